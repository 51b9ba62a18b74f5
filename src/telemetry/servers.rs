//! Metrics of servers over all views, including removed views.

use super::MetricsSnapshot;
use super::page::Page;
use super::table::*;
use crate::relay::Totals;

pub(super) fn add(page: &mut Page, snapshot: &MetricsSnapshot<'_>) {
    for (server, count) in &snapshot.unanswered {
        page.add(UPSTREAM_LIVENESS_CALLS_UNANSWERED, [server], *count);
    }
    for (server, count) in &snapshot.connections {
        page.count(UPSTREAM_CONNECTIONS, [server], *count);
    }
    snapshot.servers.iter().for_each(|server| add_totals(page, server, &Totals::default()));
    snapshot.incidents.upstream_totals().iter().for_each(|(server, of)| add_totals(page, server, of));
    for server in &snapshot.servers {
        for kind in snapshot.counters.type_names() {
            page.add(UPSTREAM_RESOURCES_REJECTED, [server, kind], 0);
        }
    }
    for ((server, kind), count) in snapshot.incidents.rejected_resources() {
        page.add(UPSTREAM_RESOURCES_REJECTED, [&server, &kind], count);
    }
}

fn add_totals(page: &mut Page, server: &str, totals: &Totals) {
    page.add(SERVER_STREAMS_OPENED, [server], totals.opened);
    page.add(SERVER_STREAMS_CLOSED, [server], totals.ended);
    page.add(SERVER_RESPONSES, [server], totals.responses);
    page.add(SERVER_NACKS, [server], totals.nacks);
}
