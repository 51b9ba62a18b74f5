//! Whether anything is traced, the state that all spans of the process share, and what happened to spans.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::change::{OpenChange, OpenChanges};
use super::span::{SpanIds, SpanRecord};

/// Takes spans that have ended.
pub(crate) trait SpanSink: fmt::Debug + Send + Sync {
    /// Decides whether an event is traced, before anything of it is noted.
    fn sample(&self) -> Option<SpanIds>;
    /// Takes a span. It never waits.
    fn take(&self, span: SpanRecord);
    /// Returns what counts spans.
    fn counts(&self) -> &SpanCounts;
}

/// The tracer of a relay, if it has one.
#[derive(Debug, Default)]
pub(crate) struct Traces(OnceLock<Arc<Tracer>>);

/// Makes spans. Keeps those of changes while they are open.
#[derive(Debug)]
pub(crate) struct Tracer {
    sink: Arc<dyn SpanSink>,
    open: OpenChanges,
    /// How long the span of a change is open at most.
    bound: Duration,
}

impl Traces {
    /// Starts tracing; it never stops. A second tracer has no effect.
    pub(crate) fn start(&self, tracer: Arc<Tracer>) {
        let _ = self.0.set(tracer);
    }

    /// Returns the tracer and the identity of a span, if the next event is sampled.
    pub(crate) fn sample(&self) -> Option<(&Arc<Tracer>, SpanIds)> {
        let tracer = self.0.get()?;
        Some((tracer, tracer.sink.sample()?))
    }

    /// Takes a span that was sampled.
    pub(crate) fn take(&self, span: SpanRecord) {
        if let Some(tracer) = self.0.get() {
            tracer.sink.take(span);
        }
    }

    pub(crate) fn counts(&self) -> Option<&SpanCounts> {
        self.0.get().map(|tracer| tracer.sink.counts())
    }
}

impl Tracer {
    /// Makes a tracer whose changes are looked at for as long as it exists.
    pub(crate) fn start(sink: Arc<dyn SpanSink>, bound: Duration) -> Arc<Self> {
        let tracer = Arc::new(Self { sink, open: OpenChanges::default(), bound });
        tokio::spawn(Self::end_changes(Arc::downgrade(&tracer)));
        tracer
    }

    /// Takes a change that clients are being sent.
    pub(crate) fn add(&self, change: Arc<OpenChange>) {
        if change.is_due(self.bound) {
            return self.sink.take(change.record(self.bound)); // it concerns no client
        }
        match self.open.add(change) {
            Some(oldest) if oldest.is_due(self.bound) => self.sink.take(oldest.record(self.bound)),
            Some(_) => self.sink.counts().count_dropped(SpanDrop::TooManyOpen, 1),
            None => {}
        }
    }

    /// Ends the spans of all changes.
    pub(crate) fn end_all(&self) {
        self.open.take_all(self.bound).into_iter().for_each(|span| self.sink.take(span));
    }

    async fn end_changes(tracer: Weak<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let Some(tracer) = tracer.upgrade() else { return };
            tracer.open.take_ended(tracer.bound).into_iter().for_each(|span| tracer.sink.take(span));
        }
    }
}

/// A span ends at the time of its last answer, however late it is checked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why a span was not exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpanDrop {
    /// The queue of the exporter was full.
    QueueFull,
    /// The collector did not accept it.
    ExportFailed,
    /// Too many changes were open, and it was the oldest.
    TooManyOpen,
}

/// What happened to spans, counted over the life of the process.
#[derive(Debug, Default)]
pub(crate) struct SpanCounts {
    exported: AtomicU64,
    dropped: [AtomicU64; SpanDrop::ALL.len()],
}

impl SpanDrop {
    pub(crate) const ALL: [Self; 3] = [Self::QueueFull, Self::ExportFailed, Self::TooManyOpen];

    fn name(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::ExportFailed => "export_failed",
            Self::TooManyOpen => "too_many_open",
        }
    }
}

impl SpanCounts {
    pub(crate) fn count_exported(&self, spans: usize) {
        self.exported.fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self, reason: SpanDrop, spans: usize) {
        self.dropped[reason as usize].fetch_add(spans as u64, Ordering::Relaxed);
    }

    pub(crate) fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// Returns how many were dropped, by reason.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        SpanDrop::ALL.into_iter().map(|reason| (reason.name(), self.dropped[reason as usize].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{LazyLock, Mutex};

    use weir_core::protocol::view::Revision;
    use weir_core::xds::{Type, TypeTable};

    use super::*;
    use crate::relay::traces::change::{ChangeFacts, MAX_OPEN};
    use crate::relay::traces::session::SessionTraces;
    use crate::relay::traces::span::{SpanTime, SpanValue};

    #[derive(Debug, Default)]
    struct Kept {
        spans: Mutex<Vec<SpanRecord>>,
        counts: SpanCounts,
    }

    impl SpanSink for Kept {
        fn sample(&self) -> Option<SpanIds> {
            None
        }

        fn take(&self, span: SpanRecord) {
            self.spans.lock().unwrap().push(span);
        }

        fn counts(&self) -> &SpanCounts {
            &self.counts
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn tracer() -> (Arc<Kept>, Tracer) {
        let kept = Arc::<Kept>::default();
        (kept.clone(), Tracer { sink: kept, open: OpenChanges::default(), bound: HOUR })
    }

    fn kind() -> Type {
        static KIND: LazyLock<Type> = LazyLock::new(|| TypeTable::new().resolve("envoy.config.cluster.v3.Cluster"));
        KIND.clone()
    }

    fn change(number: u64, clients: usize) -> Arc<OpenChange> {
        let facts = ChangeFacts {
            view: "abc".into(),
            server: "http://one".into(),
            kind: kind(),
            version: number.to_string(),
            bytes: 0,
            resources: 0,
            removed: 0,
            revision: Revision::ZERO.next(),
        };
        let ids = SpanIds { trace: number.into(), span: number };
        Arc::new(OpenChange::new(ids, SpanTime::now(), facts, clients))
    }

    fn value(span: &SpanRecord, attribute: &str) -> SpanValue {
        span.attributes.iter().find(|(name, _)| *name == attribute).unwrap().1.clone()
    }

    #[tokio::test]
    async fn the_oldest_change_is_given_up_for_one_too_many_and_counted() {
        let (kept, tracer) = tracer();
        let client = SessionTraces::of_stream(None);
        for number in 0..=MAX_OPEN as u64 {
            let change = change(number, 1);
            client.concern(&change);
            tracer.add(change);
        }
        assert_eq!(client.due(), MAX_OPEN, "nothing is left of the oldest");
        tracer.add(change(1000, 0));
        assert_eq!(kept.spans.lock().unwrap().len(), 1, "a change without clients has ended");
        tracer.end_all();
        assert_eq!(kept.spans.lock().unwrap().len(), 1 + MAX_OPEN);
        assert_eq!(client.due(), 0);
        assert_eq!(
            kept.counts.dropped().collect::<Vec<_>>(),
            [("queue_full", 0), ("export_failed", 0), ("too_many_open", 1)]
        );
    }

    #[tokio::test]
    async fn a_change_that_has_ended_is_not_given_up_for_another() {
        let (kept, tracer) = tracer();
        let client = SessionTraces::of_stream(None);
        for number in 0..MAX_OPEN as u64 {
            let change = change(number, 1);
            client.concern(&change);
            client.on_reply(&kind(), number + 1, Revision::ZERO.next());
            client.on_answer(&kind(), number + 1, true);
            tracer.open.add(change);
        }
        let before = kept.spans.lock().unwrap().len();
        let last = change(1000, 1);
        client.concern(&last);
        tracer.add(last);
        assert_eq!(kept.spans.lock().unwrap().len() - before, 1);
        assert!(kept.counts.dropped().all(|(_, count)| count == 0));
    }

    #[tokio::test]
    async fn a_change_ends_when_each_client_has_answered_it_or_left() {
        let (kept, tracer) = tracer();
        let (change, clients) = (change(1, 4), [(); 4].map(|()| SessionTraces::of_stream(None)));
        clients.iter().for_each(|client| client.concern(&change));
        tracer.add(change.clone());
        let revisions = [Revision::ZERO, Revision::ZERO.next()];
        let [acks, nacks, skips, leaves] = &clients;
        acks.on_reply(&kind(), 1, revisions[0]);
        assert_eq!(acks.on_answer(&kind(), 1, true), None, "an earlier snapshot");
        acks.on_reply(&TypeTable::new().resolve("another.Type"), 2, revisions[1]);
        // A reload has a table of its own.
        let kind = || TypeTable::new().resolve(kind().name());
        for client in [acks, nacks, skips] {
            client.on_reply(&kind(), 3, revisions[1]);
        }
        assert_eq!(acks.on_answer(&kind(), 2, true), None, "an earlier reply");
        assert_eq!(acks.on_answer(&kind(), 3, true), Some(change.ids));
        assert_eq!(acks.on_answer(&kind(), 3, true), None, "it counts once");
        nacks.on_answer(&kind(), 3, false);
        skips.on_answer(&kind(), 7, true); // an answer settles what came before
        assert!(!change.is_due(HOUR));
        leaves.leave();
        assert!(change.is_due(HOUR) && clients[..3].iter().all(|client| !client.is_active()));
        tracer.open.take_ended(HOUR).into_iter().for_each(|span| tracer.sink.take(span));
        let span = kept.spans.lock().unwrap().pop().unwrap();
        let counts =
            ["", ".sent", ".acked", ".nacked", ".left"].map(|what| value(&span, &format!("weir.clients{what}")));
        assert_eq!(counts, [4, 3, 2, 1, 1].map(SpanValue::Count));
        assert_eq!(value(&span, "weir.complete"), SpanValue::Flag(true));
    }

    #[test]
    fn the_span_of_a_change_ends_with_the_last_answer_or_at_the_bound_whenever_it_is_looked_at() {
        let (change, client) = (change(1, 1), SessionTraces::of_stream(None));
        client.concern(&change);
        assert!(!change.is_due(HOUR) && change.is_due(Duration::ZERO), "its time is over");
        let given_up = change.record(Duration::ZERO);
        assert_eq!(given_up.ended, given_up.began);
        assert_eq!(value(&given_up, "weir.complete"), SpanValue::Flag(false));
        client.on_reply(&kind(), 1, Revision::ZERO.next());
        client.on_answer(&kind(), 1, true);
        let ended = change.record(HOUR).ended;
        let answered = std::time::Instant::now();
        while answered.elapsed() < Duration::from_millis(2) {
            std::thread::yield_now();
        }
        assert_eq!(change.record(HOUR).ended, ended, "not when it is looked at");
    }

    /// The task of a view may find a session that leaves just then.
    #[test]
    fn a_change_does_not_wait_for_a_stream_that_had_ended_before() {
        let (change, client) = (change(1, 1), SessionTraces::of_stream(None));
        client.leave();
        client.concern(&change);
        assert!(change.is_due(HOUR) && client.due() == 0);
        assert_eq!(value(&change.record(HOUR), "weir.clients.left"), SpanValue::Count(1));
    }
}
