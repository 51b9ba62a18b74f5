//! Metrics of spans.

use crate::relay::traces::SpanCounts;
use crate::telemetry::page::Page;
use crate::telemetry::table::*;

/// Adds the counters, which are zero without traces.
pub(in crate::telemetry) fn add(page: &mut Page, counts: Option<&SpanCounts>) {
    let none = SpanCounts::default();
    let counts = counts.unwrap_or(&none);
    page.add(TRACE_SPANS_EXPORTED, [], counts.exported());
    for (reason, count) in counts.dropped() {
        page.add(TRACE_SPANS_DROPPED, [reason], count);
    }
}
