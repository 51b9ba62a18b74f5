//! What clients may send, and what their connections are like.

use super::checker::or;
use super::form::{Count, Interval, Located, Positive, Size, Wait};
use super::limits::GRACE;
use super::raw;
use crate::downstream::{self, AgeLimit, ConnectionLimits, HandshakeLimits};

pub(super) fn check(
    raw: &raw::Root,
    message_bytes: usize,
    connections: ConnectionLimits,
    handshakes: HandshakeLimits,
) -> downstream::Options {
    let identifier = raw.clients.control_plane_identifier.as_ref();
    downstream::Options {
        message_bytes,
        incomplete_request_bytes: or(&raw.limits.incomplete_request_bytes, Size(INCOMPLETE_REQUEST_BYTES)).0,
        outdated_reply_bytes: or(&raw.limits.outdated_reply_bytes, Size(OUTDATED_REPLY_BYTES)).0,
        request_bytes_per_second: or(&raw.limits.request_bytes_per_second, Size(REQUEST_BYTES_PER_SECOND)).0,
        request_limits: downstream::RequestLimits {
            entries: or(&raw.limits.request_entries, Positive(REQUEST_ENTRIES)).0,
            name_bytes: or(&raw.limits.name_bytes, Size(NAME_BYTES)).0,
            node_bytes: or(&raw.limits.node_bytes, Size(NODE_BYTES)).0,
        },
        new_names_per_second: or(&raw.limits.new_names_per_second, Count(NEW_NAMES_PER_SECOND)).0,
        control_plane: identifier.map_or_else(|| CONTROL_PLANE.into(), |given: &Located<String>| given.value.clone()),
        v2: raw.clients.v2.value,
        connections,
        handshakes,
        age: AgeLimit {
            age: or(&raw.clients.max_connection_age, Interval(None)).0.unwrap_or_default(),
            grace: or(&raw.drain.grace, Wait(GRACE)).0,
        },
    }
}

const INCOMPLETE_REQUEST_BYTES: usize = 512 << 20;
const OUTDATED_REPLY_BYTES: usize = 128 << 20;
/// Slower than any link that an Envoy is run on.
const REQUEST_BYTES_PER_SECOND: usize = 1 << 10;
/// A full stream of names, each with its version, and as many to leave.
const REQUEST_ENTRIES: usize = 400_000;
const NAME_BYTES: usize = 16 << 10;
/// More than changes while a fleet is being scaled.
const NEW_NAMES_PER_SECOND: usize = 5000;
/// Sixteen times a large node.
const NODE_BYTES: usize = 1 << 20;
const CONTROL_PLANE: &str = "weir";
