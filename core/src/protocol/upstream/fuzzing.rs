//! Fuzz target: the responses of a server, as the parser reads them.

use bytes::Bytes;

use super::parser::{ReceivedResponse, RecentSets, ResponseMessage, ResponseParser, UnreadableResponse};
use crate::protocol::session::Variant;
use crate::xds::{BodyStore, ERROR_BYTES, TypeTable};

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
            // A message that is decoded has no length of its own.
            ReceivedResponse { bytes: message.len(), ..read.expect("a decoded response is readable") }
        });
        assert_eq!(sliced.is_ok(), whole.is_ok(), "in slices");
        match (whole, decoded) {
            (Ok(whole), Some(decoded)) => {
                let expected = format!("{whole:?}");
                assert_eq!(format!("{:?}", sliced.as_ref().ok()), format!("{:?}", Some(&whole)), "in slices");
                assert_eq!(format!("{decoded:?}"), expected, "decoded");
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

fn check(response: &ReceivedResponse, message: &[u8]) {
    let resources = &response.resources;
    assert!(resources.good.values().is_sorted_by(|a, b| a.name < b.name), "each name once");
    assert!(resources.good.len() + resources.bodyless.len() <= resources.count);
    assert!(resources.count <= message.len() / 2, "an entry has two bytes at least");
    assert!(resources.rejected.keys().all(|name| resources.good.get(name).is_none()), "good and rejected");
    let text = resources.nack_message();
    assert_eq!(text.is_some(), !resources.faults.is_empty());
    assert!(text.is_none_or(|text| text.len() <= ERROR_BYTES + "; ...".len()), "a long NACK");
}
