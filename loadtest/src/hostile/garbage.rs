//! Bytes that no client sends. Each kind has a connection of its own, again and again.

use std::sync::Arc;
use std::time::Duration;

use prost::encoding::encode_varint;
use tokio::time::timeout;

use super::frames::{PREFACE, Raw, frame};
use super::offender::{Offender, at_once};
use crate::content::EDS;
use crate::link::{ADS_DELTA, ADS_SOTW, scan};

pub async fn garbage(offender: Arc<Offender>) {
    at_once(&offender, FRAMES + MESSAGES, |offender, number| async move {
        let sending = async {
            match number.checked_sub(FRAMES) {
                None => frames(&offender, number).await,
                Some(number) => messages(&offender, number).await,
            }
        };
        let _ = timeout(EACH, sending).await; // a server may wait for more
    })
    .await;
}

/// Sends bytes that are not HTTP/2, or invalid HTTP/2 frames.
async fn frames(offender: &Arc<Offender>, number: usize) {
    let Some(mut raw) = Raw::connect(offender).await else { return };
    let noise: Vec<u8> = (0..NOISE).map(|place: u32| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let bytes = match number {
        0 => noise,
        1 => [PREFACE, &noise].concat(),
        // A frame of an unknown type, DATA for a stream that is not open, and a window update of zero.
        2 => [PREFACE, &frame(4, 0, 0, &[]), &frame(0xee, 0xff, 7, &noise[..1000]), &frame(0, 1, 99, b"data")].concat(),
        _ => [PREFACE, &frame(4, 0, 0, &[]), &frame(8, 0, 0, &[0; 4]), &frame(4, 0, 0, &noise[..7])].concat(),
    };
    if raw.write(&bytes, 1).await {
        raw.closed().await;
    }
}

/// Sends messages that are not requests, or unusual requests.
async fn messages(offender: &Arc<Offender>, number: usize) {
    let node = Some(&offender.node[..]);
    let mut link = offender.link().await;
    let path = if number.is_multiple_of(2) { ADS_SOTW } else { ADS_DELTA };
    let stream = offender.start(&mut link, path);
    let subscribe = |names: &[&str]| match path {
        ADS_SOTW => scan::sotw_subscribe(EDS, node, names),
        _ => scan::delta_subscribe(EDS, node, names),
    };
    match number / 2 {
        0 => {
            let mut request = subscribe(&["name"]);
            request.truncate(request.len() - 2);
            offender.send(&mut link, stream, &request);
        }
        1 => {
            let mut request = subscribe(&[]);
            request.extend_from_slice(&[3 << 3 | 2, 4, 0xff, 0xfe, 0xc0, 0x80]); // not UTF-8
            offender.send(&mut link, stream, &request);
        }
        2 => offender.send(&mut link, stream, &subscribe(&[&"giant".repeat(1 << 18)])),
        3 => offender.send(&mut link, stream, &subscribe(&["the same"; 10_000])),
        4 => {
            for number in 0..1000 {
                let url = format!("type.googleapis.com/made.up.Type{number}");
                let request = match path {
                    ADS_SOTW => scan::sotw_subscribe(&url, node, &["a"]),
                    _ => scan::delta_subscribe(&url, node, &["a"]),
                };
                offender.send(&mut link, stream, &request);
            }
        }
        5 => {
            // A message that claims to be compressed, or one that claims to have four gigabytes.
            let prefix = if path == ADS_SOTW { [1, 0, 0, 0, 4] } else { [0, 0xff, 0xff, 0xff, 0xff] };
            offender.send_bytes(&mut link, stream, [&prefix[..], b"data"].concat().into());
        }
        _ => {
            // Nested groups. They are obsolete, but a decoder has to skip them.
            let mut request = Vec::new();
            (0..100_000).for_each(|_| encode_varint(99 << 3 | 3, &mut request));
            offender.send(&mut link, stream, &request);
        }
    }
    offender.read_to_first_end(&mut link).await;
}

const FRAMES: usize = 4;
/// Seven kinds of messages, each in both variants.
const MESSAGES: usize = 14;
const NOISE: u32 = 20_000;
const EACH: Duration = Duration::from_secs(1);
