//! Reports the events of a tapped session to its taps. None of this takes the lock of the session.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use weir_core::proto::Request;
use weir_core::protocol::session::{Reply, Variant};

use super::SessionHandle;
use crate::relay::taps::{OpenedStream, ReplyGlance, RequestGlance, TapWhat, Taps};

/// Whether the session is tapped. An untapped session costs only this check.
pub(crate) fn is_tapped(handle: &SessionHandle) -> bool {
    handle.is_tapped.load(Ordering::Relaxed) && taps(handle).is_any_open()
}

/// Reports that a session has opened, if it is tapped. The session was entered among the clients before this, so either this finds the tap, or the
/// tap finds the session.
pub(super) fn begin(handle: &SessionHandle) {
    if taps(handle).is_any_open() && tapped(handle).is_some() {
        mark(handle);
        if handle.client.is_stream {
            tell(handle, TapWhat::Opened(opened(handle)));
        }
    }
}

/// Makes the session report to its taps from now on.
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

/// Reports a request. `stated` is the number of resources whose versions it states, if these were taken out of it. `body` is the request as it
/// arrived.
pub(crate) fn tap_request(handle: &SessionHandle, request: &Request, stated: usize, body: impl FnOnce() -> Bytes) {
    let Some(whole) = is_tapped(handle).then(|| tapped(handle)).flatten() else { return };
    let glance = RequestGlance { body: whole.then(body), ..RequestGlance::of(request, stated) };
    tell(handle, TapWhat::Request(Box::new(glance)));
}

/// Summarizes a reply before it is encoded, if the session is tapped. Its bytes are not known yet.
pub(crate) fn glance_at_reply(handle: &SessionHandle, reply: &Reply, variant: Variant) -> Option<Box<ReplyGlance>> {
    let whole = is_tapped(handle).then(|| tapped(handle)).flatten()?;
    Some(Box::new(ReplyGlance::of(reply, variant, whole)))
}

/// Reports a reply that is sent now.
pub(crate) fn tap_reply(handle: &SessionHandle, glance: Box<ReplyGlance>) {
    tell(handle, TapWhat::Reply(glance));
}

/// Reports that a poll was answered without a change.
pub(crate) fn tap_unchanged(handle: &SessionHandle) {
    if is_tapped(handle) {
        tell(handle, TapWhat::Unchanged);
    }
}

/// Reports the status and reason with which the client's stream ends.
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
