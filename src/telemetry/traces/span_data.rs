//! Spans in the form of the exporter.

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};

use crate::build_facts;
use crate::relay::traces::{SpanRecord, SpanValue};

/// Returns the instrumentation scope of all spans.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("weir").with_version(build_facts::VERSION).build()
}

pub(super) fn span_data(span: SpanRecord, scope: InstrumentationScope) -> SpanData {
    let SpanRecord { name, is_server, ids, began, ended, attributes } = span;
    let (trace, own) = (TraceId::from(ids.trace), SpanId::from(ids.span));
    let attribute = |(key, value)| KeyValue::new(key, of(value));
    SpanData {
        span_context: SpanContext::new(trace, own, TraceFlags::SAMPLED, false, TraceState::default()),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: if is_server { SpanKind::Server } else { SpanKind::Internal },
        name: name.into(),
        start_time: began,
        end_time: ended,
        attributes: attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: scope,
    }
}

fn of(value: SpanValue) -> Value {
    match value {
        SpanValue::Text(text) => text.into(),
        SpanValue::Count(count) => i64::try_from(count).unwrap_or(i64::MAX).into(),
        SpanValue::Flag(flag) => flag.into(),
    }
}
