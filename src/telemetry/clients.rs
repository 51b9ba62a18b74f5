//! Metrics of clients: their connections, streams, requests and reports.

use super::MetricsSnapshot;
use super::page::Page;
use super::table::*;

pub(super) fn add(page: &mut Page, snapshot: &MetricsSnapshot<'_>) {
    let counters = snapshot.counters;
    page.count(CLIENT_CONNECTIONS, [], counters.connections());
    page.add(CLIENT_CONNECTIONS_AGED, [], counters.connections_aged());
    page.add(CLIENT_WRITES, [], counters.client_writes.count());
    page.count(CLIENT_REPLIES_WAITING, [], counters.replies_waiting());
    let (compressed, saved) = counters.compression.counts();
    page.add(CLIENT_REPLIES_COMPRESSED, [], compressed);
    page.add(CLIENT_REPLY_BYTES_SAVED, [], saved);
    for (variant, count) in counters.streams() {
        page.add(CLIENT_STREAMS_ACCEPTED, [variant], count);
    }
    for (reason, count) in counters.rejections() {
        page.add(CLIENT_STREAMS_REJECTED, [reason], count);
    }
    for (limit, count) in counters.limits.counts() {
        page.add(LIMIT_REACHED, [limit], count);
    }
    for (reason, count) in counters.proxy_faults.counts() {
        page.add(PROXY_HEADERS_REFUSED, [reason], count);
    }
    for (kind, count) in counters.nacks() {
        page.add(CLIENT_NACKS, [&kind], count);
    }
    for (kind, count) in &snapshot.nacking {
        page.count(CLIENT_STREAMS_NACKING, [kind], *count);
    }
    page.add(CLIENT_NAMES_REJECTED, [], counters.rejected_names());
    page.add(LOAD_REPORTS_DROPPED, [], counters.load_reports_lost());
    page.count(LOAD_REPORTS_BUFFERED_BYTES, [], snapshot.buffered_load_bytes);
    page.count(STATED_VERSIONS_BYTES, [], snapshot.stated_versions_bytes);
}
