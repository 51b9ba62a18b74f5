//! The responses of a server, as the parser reads them.

use std::collections::BTreeSet;

use bytes::Bytes;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{
    ReceivedResponse, RecentSets, ResponseMessage, ResponseParser, UnreadableResponse,
};
use weir_core::xds::{BodyStore, TypeTable};

/// A variant, the length of a slice, the place of a cut, and two responses of one server. Each gives the same resources and faults whether
/// it is read at once, in slices after the other response, or from a decoded message.
pub fn server_responses(data: &[u8]) {
    let [variant, slice, cut, rest @ ..] = data else { return };
    let variant = if variant % 2 == 0 { Variant::Sotw } else { Variant::Delta };
    let (first, second) = rest.split_at(rest.len() * usize::from(*cut) / 256);
    let (table, store, mut recent) = (TypeTable::new(), BodyStore::default(), RecentSets::default());
    let mut kept = Vec::new(); // recent sets keep nothing alive
    for message in [first, second, second].map(Bytes::copy_from_slice) {
        let encoded = || ResponseMessage::Encoded(variant, message.clone());
        let whole = ReceivedResponse::read(encoded(), &table, &BodyStore::default());
        let sliced = in_slices(encoded(), usize::from(*slice) * 8 + 1, &table, &store, &mut recent);
        let decoded = encoded().decode().ok().map(|response| {
            let read = ReceivedResponse::read(ResponseMessage::Decoded(response), &table, &BodyStore::default());
            read.expect("a decoded response is readable")
        });
        assert_eq!(sliced.is_ok(), whole.is_ok(), "in slices");
        match (whole, decoded) {
            (Ok(whole), Some(decoded)) => {
                assert_eq!(format!("{:?}", sliced.as_ref().ok()), format!("{:?}", Some(&whole)), "in slices");
                assert_eq!(whole.summary().bytes, message.len());
                assert_eq!(without_size(&decoded), without_size(&whole), "decoded");
                check(&whole, &message);
            }
            (Ok(_), None) => panic!("it is read, and cannot be decoded"),
            (Err(_), Some(_)) => panic!("it can be decoded, and is not read"),
            (Err(_), None) => {}
        }
        kept.extend(sliced);
    }
}

fn in_slices(
    message: ResponseMessage,
    slice: usize,
    table: &TypeTable,
    store: &BodyStore,
    recent: &mut RecentSets,
) -> Result<ReceivedResponse, UnreadableResponse> {
    let mut parser = ResponseParser::new(message, table, recent)?;
    while parser.step(store, slice)? {}
    Ok(parser.finish(recent))
}

/// Returns all of a response but its size, which comes last: a message that is decoded has no length of its own.
fn without_size(response: &ReceivedResponse) -> String {
    let mut text = format!("{response:?}");
    let size = format!(", bytes: {} }}", response.summary().bytes);
    let rest = text.strip_suffix(&size).expect("the size comes last").len();
    text.truncate(rest);
    text
}

fn check(response: &ReceivedResponse, message: &[u8]) {
    let count = response.summary().resources;
    assert!(response.usable_names().is_sorted_by(|a, b| a < b), "each name once");
    let usable: BTreeSet<_> = response.usable_names().collect();
    assert!(usable.len() + response.bodyless() <= count);
    assert!(count <= message.len() / 2, "an entry has two bytes at least");
    assert!(response.rejected_names().all(|name| !usable.contains(name)), "usable and rejected");
    let text = response.nack_message();
    assert_eq!(text.is_some(), !response.faults().is_empty());
    assert!(text.is_none_or(|text| text.len() <= NACK_BYTES), "a long NACK");
}

/// How long the text of a NACK may be: the faults, and a sign that there are more.
const NACK_BYTES: usize = 4096 + "; ...".len();
