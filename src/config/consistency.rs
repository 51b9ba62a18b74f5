//! Checks that numbers fit one another: totals and their shares, what clients may send and what servers accept.

use weir_core::xds::{KeyField, KeyRule};

use super::bounds::{LONGEST_MESSAGE, has_room_for, is_share_of, within};
use super::checker::Checker;
use super::form::size_text;
use super::raw;
use crate::upstream::{Plan, SourcePlan};

/// Checks the limits in force, including default values.
pub(super) fn check(raw: &raw::Root, checker: &mut Checker) {
    let limits = &raw.limits;
    for size in [&limits.message_bytes, &limits.reply_bytes] {
        within(size, SHORTEST_MESSAGE, LONGEST_MESSAGE, "the longest message of gRPC", checker);
    }
    within(&limits.header_bytes, FEWEST_HEADER_BYTES, MOST_HEADER_BYTES, "what HTTP/2 can announce", checker);
    if let Some(incomplete) = &limits.incomplete_request_bytes {
        has_room_for(incomplete, &limits.message_bytes, checker);
    }
    is_share_of(&limits.name_bytes, &limits.message_bytes, checker);
    is_share_of(&limits.node_bytes, &limits.message_bytes, checker);
    is_share_of(&limits.names_per_type, &limits.names_per_stream, checker);
    is_share_of(&limits.streams_per_connection, &limits.streams, checker);
    is_share_of(&limits.streams_per_identity, &limits.streams, checker);
    is_share_of(&limits.streams_per_tenant, &limits.streams, checker);
    if let Some(connections) = &limits.connections {
        is_share_of(&limits.connections_per_address, connections, checker);
        is_share_of(&limits.connections_per_identity, connections, checker);
    }
}

/// Reports limits of tenants in a file without tenants.
pub(super) fn check_tenants(raw: &raw::Root, key: &KeyRule, checker: &mut Checker) {
    let has_tenants = key.fields().contains(&KeyField::Tenant);
    let of = &raw.limits;
    let requests = &of.tenant_requests_per_second;
    for limit in [&of.streams_per_tenant, &of.names_per_tenant, &of.views_per_tenant, requests] {
        if let Some(place) = limit.given().filter(|_| limit.0 > 0 && !has_tenants) {
            checker.fault(place, "requires tenant in views.key: without it, clients have no tenants");
        }
    }
}

/// Checks the limits on the views of one connection, identity or tenant.
pub(super) fn check_views(raw: &raw::Root, checker: &mut Checker) {
    if raw.views.max.given().is_some() {
        is_share_of(&raw.limits.views_per_connection, &raw.views.max, checker);
        is_share_of(&raw.limits.views_per_identity, &raw.views.max, checker);
        is_share_of(&raw.limits.views_per_tenant, &raw.views.max, checker);
    }
}

/// Checks that a client's node, which Weir sends to each server, has room in a request to any of them.
pub(super) fn check_nodes(raw: &raw::Root, plan: &Plan, checker: &mut Checker) {
    let node_bytes = raw.limits.node_bytes.0;
    let servers = plan.servers.iter().filter_map(SourcePlan::ads);
    let least = servers.map(|server| server.quirks.max_request_bytes).min().unwrap_or(usize::MAX);
    if least >= node_bytes || checker.has_fault_within("limits.node_bytes") {
        return;
    }
    if let Some(place) = raw.limits.node_bytes.given() {
        let (shown, most) = (size_text(node_bytes), size_text(least));
        let reason = format!("invalid size {shown}: expected at most {most}, the least max_request_bytes of a server");
        return checker.fault(place, reason);
    }
    let servers: Vec<_> = raw.upstream.0.iter().flat_map(|upstream| upstream.all_servers()).collect();
    for size in servers.into_iter().map(|server| &server.max_request_bytes) {
        let place = size.given().filter(|place| size.0 < node_bytes && !checker.has_fault_within(&place.path));
        if let Some(place) = place {
            let (shown, least) = (size_text(size.0), size_text(node_bytes));
            let reason = format!("invalid size {shown}: expected at least {least}, which is limits.node_bytes");
            checker.fault(place, reason);
        }
    }
}

/// Checks that streams last long enough for conclusions from silence: each new stream starts these timers again.
pub(super) fn check_ages(raw: &raw::Root, checker: &mut Checker) {
    let limits = &raw.limits;
    let least = limits.resource_timer.0.saturating_add(limits.second_silence.0).saturating_mul(2);
    let servers: Vec<_> = raw.upstream.0.iter().flat_map(|upstream| upstream.all_servers()).collect();
    for age in servers.into_iter().map(|server| &server.max_connection_age) {
        let (Some(place), Some(value)) = (age.given(), age.0) else { continue };
        let are_known =
            ["limits.resource_timer", "limits.second_silence"].iter().all(|key| !checker.has_fault_within(key));
        if value < least && are_known {
            let (shown, least) = (humantime::format_duration(value), humantime::format_duration(least));
            let reason = format!(
                "invalid duration {shown}: expected at least {least}, twice limits.resource_timer and limits.second_silence; \
                 a stream that moves sooner ends before its silence says that a resource does not exist"
            );
            checker.fault(place, reason);
        }
    }
}

/// Even an empty request of an Envoy has some hundred bytes, so a lower limit is a mistake.
const SHORTEST_MESSAGE: usize = 1 << 10;
/// A request without tokens has some 300 bytes.
const FEWEST_HEADER_BYTES: usize = 1 << 10;
/// The HTTP/2 setting has 32 bits, and the library is given twice this limit.
const MOST_HEADER_BYTES: usize = 1 << 30;
