//! Limits on what clients send, and options of their connections.

use super::checker::Checker;
use super::memory::or_part;
use super::raw;
use crate::downstream::{self, AgeLimit, ConnectionLimits, HandshakeLimits, MAX_SHARDS};
use crate::memory::Budget;

pub(super) fn check(
    raw: &raw::Root,
    connections: ConnectionLimits,
    handshakes: HandshakeLimits,
    memory: &Budget,
    checker: &mut Checker,
) -> downstream::Options {
    let (limits, clients) = (&raw.limits, &raw.clients);
    let shards = raw.shards.as_ref().map(|given| given.value.0);
    if let Some(given) = raw.shards.as_ref().filter(|given| given.value.0 > MAX_SHARDS) {
        let (place, shards) = (&given.place, given.value.0);
        checker
            .fault(place, format!("invalid number {shards}: expected at most {MAX_SHARDS}, each of which is a thread"));
    }
    let least_incomplete = if limits.incomplete_request_bytes.is_some() { 0 } else { limits.message_bytes.0 };
    downstream::Options {
        message_bytes: limits.message_bytes.0,
        first_message: limits.first_message.0.unwrap_or_default(),
        incomplete_request_bytes: or_part(&limits.incomplete_request_bytes, memory, INCOMPLETE).max(least_incomplete),
        outdated_reply_bytes: or_part(&limits.outdated_reply_bytes, memory, OUTDATED),
        request_bytes_per_second: limits.request_bytes_per_second.0,
        request_limits: downstream::RequestLimits {
            entries: limits.request_entries.0,
            name_bytes: limits.name_bytes.0,
            node_bytes: limits.node_bytes.0,
        },
        new_names_per_second: limits.new_names_per_second.0,
        control_plane: clients.control_plane_identifier.value.clone(),
        v2: clients.v2.value,
        compression: clients.compression.value,
        connections,
        handshakes,
        age: AgeLimit { age: clients.max_connection_age.0.unwrap_or_default(), grace: raw.drain.grace.0 },
        shards,
    }
}

/// The default of `limits.incomplete_request_bytes` where that is enough for a message, in percent of `limits.memory`.
const INCOMPLETE: usize = 12;
/// The default of `limits.outdated_reply_bytes`, in percent of `limits.memory`.
const OUTDATED: usize = 6;
