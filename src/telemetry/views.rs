//! Metrics with a view among their labels. Values of views with the same label are summed.

use std::time::{Duration, SystemTime};

use weir_core::protocol::ladder::LadderState;

use super::page::Page;
use super::table::*;
use super::unix_seconds;
use crate::relay::{LadderMetrics, ServerMetrics, ViewMetrics};

pub(super) fn add(page: &mut Page, view: &ViewMetrics) {
    let label = view.label.as_deref().unwrap_or(OTHER);
    for (metric, count) in [
        (CLIENT_STREAMS_OPEN, view.sessions),
        (CLIENT_STREAMS_BLOCKED, view.blocked),
        (CLIENT_STREAMS_OVER_ABSENT_LIMIT, view.over_absent_limit),
        (RESOURCES, view.cached),
        (RESOURCES_FROM_DISK, view.from_disk),
        (CLUSTERS_MISSING, view.dangling),
        (REMOVAL_HISTORY_BYTES, view.removals.bytes),
    ] {
        page.count(metric, [label], count);
    }
    let forgotten = view.removals.forgotten;
    page.add(REMOVALS_FORGOTTEN, [label, "age"], forgotten.by_age);
    page.add(REMOVALS_FORGOTTEN, [label, "bytes"], forgotten.by_bytes);
    page.add(CLUSTERS_REMOVED_IN_USE, [label], view.order.removals);
    page.add(CLUSTER_WAITS_TIMED_OUT, [label], view.order.waits);
    page.add(RESOURCES_NOT_SCANNED, [label], view.order.too_large);
    view.ladders.iter().for_each(|ladder| add_ladder(page, label, view.label.is_some(), ladder));
    view.servers.iter().for_each(|server| add_server(page, label, view.label.is_some(), server));
}

fn add_ladder(page: &mut Page, view: &str, is_single: bool, ladder: &LadderMetrics) {
    let authority = ladder.authority.as_str();
    for (index, server) in ladder.servers.iter().enumerate() {
        page.add(LADDER_ACTIVE, [view, authority, server], (ladder.active == Some(index)).into());
    }
    for state in LadderState::NAMES {
        page.add(LADDER_STATE, [view, authority, state], (ladder.state == state).into());
    }
    if is_single {
        let since = SystemTime::now().checked_sub(Duration::from_secs(ladder.state_seconds));
        let since = since.map_or(0, unix_seconds);
        page.add(LADDER_STATE_TIMESTAMP_SECONDS, [view, authority], since);
    }
    page.add(LADDER_SWITCHES, [view, authority, "fallback"], ladder.switches.down);
    page.add(LADDER_SWITCHES, [view, authority, "return"], ladder.switches.up);
}

fn add_server(page: &mut Page, view: &str, is_single: bool, server: &ServerMetrics) {
    let labels = [view, server.server.as_str()];
    page.count(UPSTREAM_STREAMS, labels, server.streams);
    page.count(UPSTREAM_STREAMS_CONNECTED, labels, server.connected);
    page.add(UPSTREAM_STREAMS_OPENED, labels, server.totals.opened);
    page.add(UPSTREAM_STREAMS_CLOSED, labels, server.totals.ended);
    page.add(UPSTREAM_RESPONSES, labels, server.totals.responses);
    if let Some(last) = server.last_response.filter(|_| is_single) {
        page.add(UPSTREAM_LAST_RESPONSE_TIMESTAMP_SECONDS, labels, unix_seconds(last));
    }
    page.add(UPSTREAM_NACKS, labels, server.totals.nacks);
}

/// The label of all views without one of their own.
const OTHER: &str = "other";
