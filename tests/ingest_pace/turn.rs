//! How long the view task is busy with one response, without sockets.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{Plan, Sources};
use weir_core::protocol::upstream::{RecentSets, ResponseMessage, ResponseParser};
use weir_core::protocol::view::{InterestChange, Selector, SessionId, View};
use weir_core::xds::{BodyStore, TypeTable};

use super::plane::CDS;

/// Reads and applies the framed sets one after the other, and prints how long each took.
pub fn apply(sets: &[(&str, Bytes)]) {
    let (table, now) = (Arc::new(TypeTable::new()), Moment::START);
    let (store, mut recent) = (BodyStore::default(), RecentSets::default());
    let mut view = View::new(table.clone(), Arc::default());
    let plan = Plan::single(Variant::Sotw, Default::default());
    let mut sources = Sources::new(plan.into(), Bytes::from_static(b"node"), table.clone(), Arc::default());
    let change = InterestChange { kind: table.resolve(CDS), selector: Selector::Wildcard, on: true };
    view.change_interest(SessionId(0), change, now);
    view.take_upstream_changes().into_iter().for_each(|change| sources.want(change, &view, now));
    let (id, epoch) = sources.streams_mut().map(|(id, stream)| (id, stream.opened())).next().unwrap();
    while sources.stream(id).unwrap().next_request(now).is_some() {}
    for (what, framed) in sets {
        let start = Instant::now();
        let message = ResponseMessage::Encoded(Variant::Sotw, framed.slice(5..));
        let mut parser = ResponseParser::new(message, &table, &mut recent).unwrap();
        while parser.step(&store, usize::MAX).unwrap() {}
        let response = parser.finish(&mut recent);
        let read = start.elapsed();
        let start = Instant::now();
        let batches = sources.on_received(id, epoch, response, &view, now);
        batches.into_iter().for_each(|batch| view.apply_from(batch.origin, batch.updates, now));
        view.publish();
        println!("{what}: read in {read:.0?}, applied in {:.0?}", start.elapsed());
    }
}
