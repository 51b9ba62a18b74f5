//! Which events are traced, and the spans that they become: changes of servers, the start of client streams, polls.
//!
//! Owns what is recorded while a span is open. A [`SpanSink`] decides which events are sampled and where spans go. Without a tracer nothing is
//! recorded: an event only checks whether there is a tracer.

mod change;
mod session;
mod span;
mod tracer;

pub(crate) use change::{ChangeFacts, OpenChange};
pub(crate) use session::SessionTraces;
pub(crate) use span::{POLL, SpanIds, SpanRecord, SpanTime, SpanValue};
pub(crate) use tracer::{SpanCounts, SpanDrop, SpanSink, Tracer, Traces};
