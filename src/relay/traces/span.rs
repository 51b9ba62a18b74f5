//! Spans: their names and attributes, and one that has ended. docs/tracing.md lists them all.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use weir_core::xds::truncate;

/// A sort of span, with the attributes that each span of it has.
#[derive(Debug)]
pub(crate) struct SpanShape<const N: usize> {
    pub(crate) name: &'static str,
    /// The span covers a client's request, rather than work within the relay.
    pub(crate) is_server: bool,
    pub(crate) attributes: [&'static str; N],
}

/// A change of a server, from the receipt of its response to the last answer of a client.
pub(crate) const CHANGE: SpanShape<13> = SpanShape {
    name: "upstream change",
    is_server: false,
    attributes: [
        "weir.server",
        "weir.view",
        "weir.type",
        "weir.version",
        "weir.response.bytes",
        "weir.response.resources",
        "weir.response.removed",
        "weir.clients",
        "weir.clients.sent",
        "weir.clients.acked",
        "weir.clients.nacked",
        "weir.clients.left",
        "weir.complete",
    ],
};

/// A client stream, from its first request to its first complete set.
pub(crate) const STREAM: SpanShape<7> = SpanShape {
    name: "client stream start",
    is_server: true,
    attributes: [
        "weir.stream",
        "weir.node",
        "weir.peer",
        "weir.view",
        "weir.variant",
        "weir.stream.replies",
        "weir.complete",
    ],
};

/// A poll, from its request to the response.
pub(crate) const POLL: SpanShape<3> = SpanShape {
    name: "client poll",
    is_server: true,
    attributes: ["url.path", "weir.peer", "http.response.status_code"],
};

/// Identifies a span. Each is the only one of its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanIds {
    pub(crate) trace: u128,
    pub(crate) span: u64,
}

impl SpanIds {
    /// Returns trace and span as text for log lines.
    pub(crate) fn texts(self) -> (String, String) {
        (format!("{:032x}", self.trace), format!("{:016x}", self.span))
    }
}

/// When a span began, by the system's clock and by a monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpanTime {
    wall: SystemTime,
    begun: Instant,
}

impl SpanTime {
    pub(crate) fn now() -> Self {
        Self::since(Instant::now())
    }

    pub(crate) fn since(begun: Instant) -> Self {
        let wall = SystemTime::now();
        Self { wall: wall.checked_sub(begun.elapsed()).unwrap_or(wall), begun }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SpanValue {
    Text(String),
    Count(u64),
    Flag(bool),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> Self {
        Self::Text(truncate(text, TEXT_BYTES))
    }
}

impl From<u64> for SpanValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<usize> for SpanValue {
    fn from(count: usize) -> Self {
        Self::Count(count as u64)
    }
}

impl From<bool> for SpanValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// A span that has ended.
#[derive(Debug, Clone)]
pub(crate) struct SpanRecord {
    pub(crate) name: &'static str,
    pub(crate) is_server: bool,
    pub(crate) ids: SpanIds,
    pub(crate) began: SystemTime,
    pub(crate) ended: SystemTime,
    pub(crate) attributes: Vec<(&'static str, SpanValue)>,
}

impl SpanRecord {
    /// Makes a span with a value for each attribute of its shape, in their order.
    pub(crate) fn new<const N: usize>(
        shape: &SpanShape<N>,
        ids: SpanIds,
        (time, duration): (SpanTime, Duration),
        values: [SpanValue; N],
    ) -> Self {
        let attributes = shape.attributes.into_iter().zip(values).collect();
        let (began, ended) = (time.wall, time.wall + duration);
        Self { name: shape.name, is_server: shape.is_server, ids, began, ended, attributes }
    }
}

/// Clients decide what node ids and paths contain.
const TEXT_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of docs/tracing.md, each with the heading above it and the first cells of its rows.
    fn documented() -> Vec<(String, Vec<String>)> {
        let page = std::fs::read_to_string("docs/tracing.md").unwrap();
        let mut spans = Vec::<(String, Vec<String>)>::new();
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("### ") {
                spans.push((heading.trim_matches('`').to_owned(), Vec::new()));
            } else if let (Some(row), Some((_, attributes))) = (line.strip_prefix("| `"), spans.last_mut()) {
                attributes.push(row.split('`').next().unwrap().to_owned());
            }
        }
        spans
    }

    fn shape<const N: usize>(shape: &SpanShape<N>) -> (String, Vec<String>) {
        (shape.name.to_owned(), shape.attributes.map(str::to_owned).to_vec())
    }

    #[test]
    fn each_span_and_attribute_is_documented_and_no_others() {
        assert_eq!(documented(), [shape(&CHANGE), shape(&STREAM), shape(&POLL)]);
    }
}
