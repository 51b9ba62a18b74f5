//! What clients may send, and what their connections are like.

use super::raw;
use crate::downstream::{self, AgeLimit, ConnectionLimits, HandshakeLimits};

pub(super) fn check(
    raw: &raw::Root,
    connections: ConnectionLimits,
    handshakes: HandshakeLimits,
) -> downstream::Options {
    let (limits, clients) = (&raw.limits, &raw.clients);
    downstream::Options {
        message_bytes: limits.message_bytes.0,
        first_message: limits.first_message.0.unwrap_or_default(),
        incomplete_request_bytes: limits.incomplete_request_bytes.0,
        outdated_reply_bytes: limits.outdated_reply_bytes.0,
        request_bytes_per_second: limits.request_bytes_per_second.0,
        request_limits: downstream::RequestLimits {
            entries: limits.request_entries.0,
            name_bytes: limits.name_bytes.0,
            node_bytes: limits.node_bytes.0,
        },
        new_names_per_second: limits.new_names_per_second.0,
        control_plane: clients.control_plane_identifier.value.clone(),
        v2: clients.v2.value,
        connections,
        handshakes,
        age: AgeLimit { age: clients.max_connection_age.0.unwrap_or_default(), grace: raw.drain.grace.0 },
    }
}
