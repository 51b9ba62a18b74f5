//! Requests that cost much memory: incomplete, full of empty names, or full of versions.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint};

use super::offender::{Offender, at_once};
use crate::content::EDS;
use crate::link::{ADS_DELTA, ADS_SOTW, scan};

pub async fn half_messages(offender: Arc<Offender>) {
    let share = if offender.is_small { 256 << 10 } else { 52 * MIB };
    let half = half_message(share);
    at_once(&offender, 10, move |offender, _| {
        let half = half.clone();
        async move { hold(&offender, &half).await }
    })
    .await;
}

/// Sends parts of messages, each as large as the rest of the share, or after a rejected one half as large, so that they use what the server
/// allows to the last bytes. Then keeps them open until one is ended.
async fn hold(offender: &Offender, half: &Bytes) {
    let mut link = offender.link().await;
    let (mut left, mut size) = (half.len(), half.len());
    while size > SMALLEST && left > 0 {
        size = size.min(left);
        let stream = offender.start(&mut link, ADS_DELTA);
        offender.send_bytes(&mut link, stream, half.slice(..size));
        match offender.make_room(&mut link, stream).await {
            true => left -= size,
            false => size /= 2,
        }
    }
    offender.read_to_first_end(&mut link).await;
}

pub async fn empty_names(offender: Arc<Offender>) {
    let names = if offender.is_small { 1000 } else { 38 * MIB / 2 };
    let mut request = scan::sotw_subscribe(EDS, Some(&offender.node), &[]);
    request.extend(std::iter::repeat_n([3 << 3 | 2, 0], names).flatten());
    let request = prefixed(&request);
    at_once(&offender, 4, move |offender, _| {
        let request = request.clone();
        async move {
            let mut link = offender.link().await;
            let stream = offender.start(&mut link, ADS_SOTW);
            offender.send_bytes(&mut link, stream, request);
            offender.read_to_first_end(&mut link).await;
        }
    })
    .await;
}

pub async fn stated_versions(offender: Arc<Offender>) {
    let bytes = if offender.is_small { 32 << 10 } else { 31 * MIB };
    let requests: Arc<[Bytes]> = (0..3).map(|number| prefixed(&versions(&offender.node, number, bytes))).collect();
    at_once(&offender, 1, move |offender, _| {
        let requests = requests.clone();
        async move {
            let mut link = offender.link().await;
            let stream = offender.start(&mut link, ADS_DELTA);
            requests.iter().for_each(|request| offender.send_bytes(&mut link, stream, request.clone()));
            offender.read_to_first_end(&mut link).await;
        }
    })
    .await;
}

/// Returns the beginning of a message with one long name.
fn half_message(sent: usize) -> Bytes {
    let announced = sent + sent / 6;
    let mut head = Vec::new();
    encode_key(3, WireType::LengthDelimited, &mut head);
    encode_varint(announced as u64, &mut head);
    let mut half = BytesMut::with_capacity(5 + sent);
    half.put_u8(0);
    half.put_u32((head.len() + announced) as u32);
    half.put_slice(&head);
    half.put_bytes(b'n', sent);
    half.freeze()
}

/// Returns a delta request of a made-up type with about this many bytes of `initial_resource_versions`.
fn versions(node: &[u8], number: usize, bytes: usize) -> Vec<u8> {
    let mut request = scan::delta_subscribe(&format!("type.googleapis.com/made.up.V{number}"), Some(node), &["*"]);
    for resource in 0..bytes / ENTRY {
        let mut entry = Vec::with_capacity(ENTRY);
        for (field, text) in [(1, format!("{resource:08x}")), (2, "1".to_owned())] {
            encode_key(field, WireType::LengthDelimited, &mut entry);
            encode_varint(text.len() as u64, &mut entry);
            entry.put_slice(text.as_bytes());
        }
        encode_key(5, WireType::LengthDelimited, &mut request);
        encode_varint(entry.len() as u64, &mut request);
        request.put_slice(&entry);
    }
    request
}

fn prefixed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(5 + message.len());
    out.put_u8(0);
    out.put_u32(message.len() as u32);
    out.put_slice(message);
    out.freeze()
}

const MIB: usize = 1 << 20;
/// Smaller than any honest request.
const SMALLEST: usize = 16;
/// Bytes of one stated version with a name of eight letters.
const ENTRY: usize = 15;

#[cfg(test)]
mod tests {
    use prost::Message;
    use weir_core::proto::discovery::DeltaDiscoveryRequest;

    use super::*;

    #[test]
    fn versions_are_a_request_of_about_that_size() {
        let request = versions(b"", 2, 1500);
        assert!((1500..1600).contains(&request.len()), "{}", request.len());
        let request = DeltaDiscoveryRequest::decode(&*request).unwrap();
        assert_eq!(request.initial_resource_versions.len(), 100);
        assert_eq!(request.initial_resource_versions["0000002a"], "1");
    }
}
