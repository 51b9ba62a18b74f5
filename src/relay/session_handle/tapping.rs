//! What those who tap a session are told. Nothing of it takes the lock of the session.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use weir_core::proto::Request;
use weir_core::protocol::session::{Reply, Variant};

use super::SessionHandle;
use crate::relay::taps::{OpenedStream, ReplyGlance, RequestGlance, TapWhat, Taps};

/// Whether somebody taps the session. This is all that it costs when nobody does.
pub(crate) fn is_tapped(handle: &SessionHandle) -> bool {
    handle.is_tapped.load(Ordering::Relaxed) && taps(handle).is_any_open()
}

/// Begins to tell of a session that has opened, if somebody taps it. It has been entered among the clients before: so either this finds the
/// tap, or the tap finds the session.
pub(super) fn begin(handle: &SessionHandle) {
    if taps(handle).is_any_open() && tapped(handle).is_some() {
        mark(handle);
        if handle.client.is_stream {
            tell(handle, TapWhat::Opened(opened(handle)));
        }
    }
}

/// Has the session tell those who tap it, from now on.
pub(in crate::relay) fn mark(handle: &SessionHandle) {
    handle.is_tapped.store(true, Ordering::Relaxed);
}

pub(in crate::relay) fn opened(handle: &SessionHandle) -> OpenedStream {
    let client = &handle.client;
    OpenedStream {
        session: client.id.0,
        node: client.node_id.clone(),
        peer: client.peer.to_string(),
        view: client.key.clone(),
        variant: client.variant.name(),
    }
}

/// Tells of a request. `stated` is of how many resources it states versions, if these were taken out of it; `body` is how it came.
pub(crate) fn tap_request(handle: &SessionHandle, request: &Request, stated: usize, body: impl FnOnce() -> Bytes) {
    let Some(whole) = is_tapped(handle).then(|| tapped(handle)).flatten() else { return };
    let glance = RequestGlance { body: whole.then(body), ..RequestGlance::of(request, stated) };
    tell(handle, TapWhat::Request(Box::new(glance)));
}

/// Looks at a reply before it is encoded, if somebody taps the session.
pub(crate) fn glance_at_reply(handle: &SessionHandle, reply: &Reply, variant: Variant) -> Option<Box<ReplyGlance>> {
    let whole = is_tapped(handle).then(|| tapped(handle)).flatten()?;
    Some(Box::new(ReplyGlance::of(reply, variant, whole)))
}

/// Tells of a reply of so many bytes.
pub(crate) fn tap_reply(handle: &SessionHandle, glance: Box<ReplyGlance>, bytes: usize) {
    tell(handle, TapWhat::Reply(Box::new(ReplyGlance { bytes, ..*glance })));
}

/// Tells that a poll was answered with nothing new.
pub(crate) fn tap_unchanged(handle: &SessionHandle) {
    if is_tapped(handle) {
        tell(handle, TapWhat::Unchanged);
    }
}

/// Tells what the client is told of its end.
pub(crate) fn tap_end(handle: &SessionHandle, status: Option<i32>, reason: &str) {
    if is_tapped(handle) {
        tell(handle, TapWhat::Ended { status, reason: reason.to_owned() });
    }
}

fn tapped(handle: &SessionHandle) -> Option<bool> {
    taps(handle).on(handle.client.id.0, &handle.client.node_id)
}

fn tell(handle: &SessionHandle, what: TapWhat) {
    taps(handle).tell(handle.client.id.0, &handle.client.node_id, what);
}

fn taps(handle: &SessionHandle) -> &Taps {
    handle.place.clients.taps()
}
