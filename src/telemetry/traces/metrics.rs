//! Metrics of spans.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::relay::traces::SpanCounts;
use crate::telemetry::labels::Labelled;

/// Registers the counters, which are zero without traces.
pub(in crate::telemetry) fn register(registry: &mut Registry, counts: Option<&SpanCounts>) {
    let none = SpanCounts::default();
    let counts = counts.unwrap_or(&none);
    let exported = Counter::<u64>::default();
    exported.inc_by(counts.exported());
    registry.register("trace_spans_exported", "Spans that the collector of traces accepted", exported);
    let help = "Spans that were not exported, by reason";
    let dropped = Labelled::<Counter>::register(registry, "trace_spans_dropped", help);
    for (reason, count) in counts.dropped() {
        dropped.at(&[("reason", reason)]).inc_by(count);
    }
}
