//! Numbers that have to fit one another: totals and their shares, and what clients send and servers take.

use weir_core::protocol::session::SessionOptions;

use super::bounds::{LONGEST_MESSAGE, Setting, has_room_for, is_share_of, within};
use super::checker::Checker;
use super::form::size_text;
use super::raw;
use crate::downstream;
use crate::upstream::{Plan, SourcePlan};

/// Checks the limits in force, those by default included.
pub(super) fn check(raw: &raw::Root, session: &SessionOptions, clients: &downstream::Options, checker: &mut Checker) {
    let (given, requests) = (&raw.limits, &clients.request_limits);
    for size in [&given.message_bytes, &given.reply_bytes] {
        within(size, SHORTEST_MESSAGE, LONGEST_MESSAGE, "the longest message of gRPC", checker);
    }
    within(&given.header_bytes, FEWEST_HEADER_BYTES, MOST_HEADER_BYTES, "what HTTP/2 can announce", checker);
    let message = Setting::size("limits.message_bytes", clients.message_bytes, &given.message_bytes);
    let incomplete = clients.incomplete_request_bytes;
    let incomplete = Setting::size("limits.incomplete_request_bytes", incomplete, &given.incomplete_request_bytes);
    has_room_for(&incomplete, &message, checker);
    is_share_of(&Setting::size("limits.name_bytes", requests.name_bytes, &given.name_bytes), &message, checker);
    is_share_of(&Setting::size("limits.node_bytes", requests.node_bytes, &given.node_bytes), &message, checker);
    is_share_of(
        &Setting::number("limits.names_per_type", session.names, &given.names_per_type),
        &Setting::number("limits.names_per_stream", session.names_per_stream, &given.names_per_stream),
        checker,
    );
    check_connections(raw, clients, checker);
}

fn check_connections(raw: &raw::Root, clients: &downstream::Options, checker: &mut Checker) {
    let (given, limits) = (&raw.limits, &clients.connections);
    let of_connection = limits.streams_per_connection as usize;
    let of_connection = Setting::number("limits.streams_per_connection", of_connection, &given.streams_per_connection);
    let of_identity = &given.streams_per_identity;
    let of_identity = Setting::number("limits.streams_per_identity", limits.streams_per_identity, of_identity);
    let all = Setting::number("limits.streams", limits.streams, &given.streams);
    is_share_of(&of_connection, &all, checker);
    is_share_of(&of_identity, &all, checker);
    let Some(connections) = limits.connections else { return };
    let all = Setting::number("limits.connections", connections, &given.connections);
    let of_address = &given.connections_per_address;
    let of_address = Setting::number("limits.connections_per_address", limits.per_address, of_address);
    let of_identity = &given.connections_per_identity;
    let of_identity = Setting::number("limits.connections_per_identity", limits.per_identity, of_identity);
    is_share_of(&of_address, &all, checker);
    is_share_of(&of_identity, &all, checker);
}

/// Checks the views of one connection, and of one identity.
pub(super) fn check_views(raw: &raw::Root, checker: &mut Checker) {
    let Some(all) = &raw.views.max else { return };
    let all = Setting::number("views.max", all.0, &raw.views.max);
    for (key, share) in [
        ("limits.views_per_connection", &raw.limits.views_per_connection),
        ("limits.views_per_identity", &raw.limits.views_per_identity),
    ] {
        let value = share.as_ref().map_or(0, |share| share.0);
        is_share_of(&Setting::number(key, value, share), &all, checker);
    }
}

/// Checks that the node of a client, which each server is sent, has room in a request to any of them.
pub(super) fn check_nodes(raw: &raw::Root, plan: &Plan, node_bytes: usize, checker: &mut Checker) {
    let servers = plan.servers.iter().filter_map(SourcePlan::ads);
    let least = servers.map(|server| server.quirks.max_request_bytes).min().unwrap_or(usize::MAX);
    if least >= node_bytes || checker.has_fault_within("limits.node_bytes") {
        return;
    }
    if let Some(given) = &raw.limits.node_bytes {
        let (shown, most) = (size_text(node_bytes), size_text(least));
        let reason = format!("invalid size {shown}: expected at most {most}, the least max_request_bytes of a server");
        return checker.fault(&given.place, reason);
    }
    let sizes: Vec<_> = raw.upstream.0.iter().flat_map(|upstream| upstream.all_servers()).collect();
    for size in sizes.into_iter().filter_map(|server| server.max_request_bytes.as_ref()) {
        if size.0 < node_bytes && !checker.has_fault_within(&size.place.path) {
            let (shown, least) = (size_text(size.0), size_text(node_bytes));
            let reason = format!("invalid size {shown}: expected at least {least}, which is limits.node_bytes");
            checker.fault(&size.place, reason);
        }
    }
}

/// Even an empty request of an Envoy has some hundred bytes.
const SHORTEST_MESSAGE: usize = 1 << 10;
/// A request without tokens has some 300 bytes.
const FEWEST_HEADER_BYTES: usize = 1 << 10;
/// HTTP/2 announces 32 bits; the library is told twice the limit.
const MOST_HEADER_BYTES: usize = 1 << 30;
