//! Traced changes on their way to clients. Each is counted without a lock, on a cache line that few threads share. Their number is bounded.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_core::protocol::view::Revision;
use weir_core::xds::Type;

use super::span::{CHANGE, SpanIds, SpanRecord, SpanTime};
use crate::relay::deliveries::this_thread;

/// What is known of a change when it is published.
#[derive(Debug)]
pub(crate) struct ChangeFacts {
    pub(crate) view: String,
    pub(crate) server: String,
    pub(crate) kind: Type,
    /// The version that the server gave.
    pub(crate) version: String,
    pub(crate) bytes: usize,
    pub(crate) resources: usize,
    pub(crate) removed: usize,
    /// The last revision of the change.
    pub(crate) revision: Revision,
}

/// A change that clients are being sent.
#[derive(Debug)]
pub(crate) struct OpenChange {
    pub(crate) ids: SpanIds,
    facts: ChangeFacts,
    time: SpanTime,
    /// How many client streams subscribe to something in it.
    clients: u64,
    /// The time from receipt until the change was published.
    published: Duration,
    shards: Box<[OutcomeShard; SHARDS]>,
}

/// The result of a change at a client stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Sent,
    Acked,
    Nacked,
    /// The stream ended before it had answered.
    Left,
}

#[derive(Debug, Default)]
#[repr(align(128))] // no two shards on one cache line, nor on two that are fetched together
struct OutcomeShard {
    counts: [AtomicU64; 4],
    /// Microseconds from the receipt to the last answer that was counted here.
    last: AtomicU64,
}

impl OpenChange {
    pub(crate) fn new(ids: SpanIds, time: SpanTime, facts: ChangeFacts, clients: usize) -> Self {
        let (clients, published) = (clients as u64, time.elapsed());
        let shards = Box::new(std::array::from_fn(|_| OutcomeShard::default()));
        Self { ids, facts, time, clients, published, shards }
    }

    pub(super) fn count(&self, outcome: Outcome) {
        let shard = &self.shards[this_thread() % SHARDS];
        if outcome != Outcome::Sent {
            let elapsed = u64::try_from(self.time.elapsed().as_micros()).unwrap_or(u64::MAX);
            shard.last.fetch_max(elapsed, Ordering::Relaxed);
        }
        shard.counts[outcome as usize].fetch_add(1, Ordering::Release);
    }

    /// Whether a reply of a type that was made from a snapshot carries the change.
    pub(super) fn is_in(&self, kind: &Type, revision: Revision) -> bool {
        self.facts.kind == *kind && self.facts.revision <= revision
    }

    pub(super) fn is_of(&self, kind: &Type) -> bool {
        self.facts.kind == *kind
    }

    /// Whether the span has to end: each client has answered or left, or the time limit is reached.
    pub(super) fn is_due(&self, bound: Duration) -> bool {
        self.is_complete() || self.time.elapsed() >= bound
    }

    fn is_complete(&self) -> bool {
        let [_, acked, nacked, left] = self.counts();
        acked + nacked + left >= self.clients
    }

    /// Returns the span as of now. It ends with the last answer, or at the bound if one is missing.
    pub(super) fn record(&self, bound: Duration) -> SpanRecord {
        let is_complete = self.is_complete();
        let [sent, acked, nacked, left] = self.counts();
        let last = self.shards.iter().map(|shard| shard.last.load(Ordering::Relaxed)).max().unwrap_or_default();
        let ended = match is_complete {
            true => Duration::from_micros(last).max(self.published),
            false => self.time.elapsed().min(bound),
        };
        let ChangeFacts { view, server, kind, version, bytes, resources, removed, .. } = &self.facts;
        let (trace_id, span_id) = self.ids.texts();
        tracing::debug!(
            trace_id,
            span_id,
            view,
            server,
            r#type = kind.name(),
            version,
            clients = self.clients,
            sent,
            acked,
            nacked,
            left,
            is_complete,
            "change traced"
        );
        let values = [
            server.as_str().into(),
            view.as_str().into(),
            kind.name().into(),
            version.as_str().into(),
            (*bytes).into(),
            (*resources).into(),
            (*removed).into(),
            self.clients.into(),
            sent.into(),
            acked.into(),
            nacked.into(),
            left.into(),
            is_complete.into(),
        ];
        SpanRecord::new(&CHANGE, self.ids, (self.time, ended), values)
    }

    /// Returns how many were sent it, ACKed it, NACKed it and left.
    fn counts(&self) -> [u64; 4] {
        std::array::from_fn(|at| self.shards.iter().map(|shard| shard.counts[at].load(Ordering::Acquire)).sum())
    }
}

const SHARDS: usize = 16;

/// The changes whose spans are open. They are checked at intervals, so that no client has to find out that it was the last to answer. Only this
/// list keeps them alive: a change that is taken out has ended.
#[derive(Debug, Default)]
pub(super) struct OpenChanges(Mutex<VecDeque<Arc<OpenChange>>>);

impl OpenChanges {
    /// Adds a change. Returns the oldest, if there is no room for both.
    pub(super) fn add(&self, change: Arc<OpenChange>) -> Option<Arc<OpenChange>> {
        let mut open = self.lock();
        let oldest = (open.len() >= MAX_OPEN).then(|| open.pop_front()).flatten();
        open.push_back(change);
        oldest
    }

    /// Removes the changes that have ended, and returns their spans.
    pub(super) fn take_ended(&self, bound: Duration) -> Vec<SpanRecord> {
        let mut open = self.lock();
        let (ended, others): (VecDeque<_>, _) =
            std::mem::take(&mut *open).into_iter().partition(|change| change.is_due(bound));
        *open = others;
        drop(open);
        ended.iter().map(|change| change.record(bound)).collect()
    }

    /// Ends all.
    pub(super) fn take_all(&self, bound: Duration) -> Vec<SpanRecord> {
        let all = std::mem::take(&mut *self.lock());
        all.iter().map(|change| change.record(bound)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<OpenChange>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many changes are open at a time. Each takes about 2.5 KiB, and a few bytes in each session that it concerns.
pub(super) const MAX_OPEN: usize = 256;

#[cfg(test)]
mod tests {
    use weir_core::xds::TypeTable;

    use super::*;

    #[test]
    fn a_span_ends_with_the_last_answer_and_not_with_the_last_reply() {
        let facts = ChangeFacts {
            view: "abc".into(),
            server: "http://one".into(),
            kind: TypeTable::new().resolve("envoy.config.cluster.v3.Cluster"),
            version: "1".into(),
            bytes: 0,
            resources: 0,
            removed: 0,
            revision: Revision::ZERO,
        };
        let change = OpenChange::new(SpanIds { trace: 1, span: 1 }, SpanTime::now(), facts, 1);
        change.count(Outcome::Sent);
        let answered_from = change.time.elapsed() + Duration::from_millis(2);
        while change.time.elapsed() < answered_from {
            std::hint::spin_loop();
        }
        change.count(Outcome::Acked);
        let answered_until = change.time.elapsed();
        let span = change.record(Duration::from_secs(3600));
        let took = span.ended.duration_since(span.began).unwrap();
        let rounding = Duration::from_micros(1);
        assert!(answered_from <= took + rounding && took <= answered_until + rounding, "{took:?}");
    }
}
