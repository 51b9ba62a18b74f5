//! The queue of spans that wait for their export, and the task that exports them. If the collector is slow or away, spans are dropped and
//! counted.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::InstrumentationScope;
use opentelemetry_sdk::trace::RandomIdGenerator;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::exporter::Exporter;
use super::sampling::Sampling;
use super::span_data;
use super::variables::TraceSettings;
use crate::log_pace::LogPace;
use crate::relay::traces::{SpanCounts, SpanDrop, SpanIds, SpanRecord, SpanSink};

#[derive(Debug)]
pub(super) struct ExportQueue {
    sampling: Sampling,
    ids: RandomIdGenerator,
    spans: mpsc::Sender<SpanRecord>,
    /// Requests the export of all queued spans.
    flushes: mpsc::Sender<oneshot::Sender<()>>,
    counts: Arc<SpanCounts>,
}

struct ExportTask {
    spans: mpsc::Receiver<SpanRecord>,
    flushes: mpsc::Receiver<oneshot::Sender<()>>,
    exporter: Exporter,
    /// The spans of the next batch.
    filled: Vec<SpanRecord>,
    batch: usize,
    delay: Duration,
    timeout: Duration,
    scope: InstrumentationScope,
    counts: Arc<SpanCounts>,
    failures: LogPace,
}

impl ExportQueue {
    /// Starts the task, which ends with the queue.
    pub(super) fn start(settings: &TraceSettings, exporter: Exporter) -> Arc<Self> {
        let (spans, queued) = mpsc::channel(settings.queue);
        let (flushes, asked) = mpsc::channel(1);
        let counts = Arc::<SpanCounts>::default();
        let task = ExportTask {
            spans: queued,
            flushes: asked,
            exporter,
            filled: Vec::new(),
            batch: settings.batch,
            delay: settings.delay,
            timeout: settings.export_timeout,
            scope: span_data::scope(),
            counts: counts.clone(),
            failures: LogPace::once_a_minute(),
        };
        tokio::spawn(task.run());
        Arc::new(Self { sampling: settings.sampling, ids: RandomIdGenerator::default(), spans, flushes, counts })
    }

    /// Waits until all queued spans are exported.
    pub(super) async fn finish(&self) {
        let (done, flushed) = oneshot::channel();
        if self.flushes.send(done).await.is_ok() {
            let _ = flushed.await; // the task ends with the runtime
        }
    }
}

impl SpanSink for ExportQueue {
    fn sample(&self) -> Option<SpanIds> {
        self.sampling.next(&self.ids)
    }

    fn take(&self, span: SpanRecord) {
        if self.spans.try_send(span).is_err() {
            self.counts.count_dropped(SpanDrop::QueueFull, 1);
        }
    }

    fn counts(&self) -> &SpanCounts {
        &self.counts
    }
}

impl ExportTask {
    async fn run(mut self) {
        while let Some(flushed) = self.fill().await {
            match flushed {
                None => self.export().await,
                Some(done) => {
                    while self.fill_at_once() {
                        self.export().await;
                    }
                    let _ = done.send(()); // the caller may have stopped waiting
                }
            }
        }
    }

    /// Fills the batch until its first span has waited long enough, or an export of all spans is requested. Returns `None` if the queue has ended.
    async fn fill(&mut self) -> Option<Option<oneshot::Sender<()>>> {
        let mut due = None;
        loop {
            let room = self.batch - self.filled.len();
            if room == 0 {
                return Some(None);
            }
            let until_due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(done) = self.flushes.recv() => return Some(Some(done)),
                count = self.spans.recv_many(&mut self.filled, room) => match count {
                    0 if self.filled.is_empty() => return None,
                    0 => return Some(None),
                    _ => due = due.or(Some(Instant::now() + self.delay)),
                },
                () = until_due => return Some(None),
            }
        }
    }

    /// Fills the batch from the queue without waiting. Returns whether it has any spans.
    fn fill_at_once(&mut self) -> bool {
        while self.filled.len() < self.batch
            && let Ok(span) = self.spans.try_recv()
        {
            self.filled.push(span);
        }
        !self.filled.is_empty()
    }

    async fn export(&mut self) {
        let count = self.filled.len();
        let spans = self.filled.drain(..).map(|span| span_data::span_data(span, self.scope.clone())).collect();
        let error = match tokio::time::timeout(self.timeout, self.exporter.export(spans)).await {
            Ok(Ok(())) => return self.counts.count_exported(count),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timeout".to_owned(),
        };
        self.counts.count_dropped(SpanDrop::ExportFailed, count);
        if let Some(unlogged) = self.failures.line(std::time::Instant::now()) {
            tracing::warn!(count, error, unlogged, "spans not exported; dropped");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::traces::{POLL, SpanTime, SpanValue};
    use crate::telemetry::traces::variables;

    #[tokio::test]
    async fn at_the_end_all_that_is_queued_is_exported_in_however_many_batches() {
        const SPANS: usize = 10;
        let variable = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://127.0.0.1:1".into()), // where nothing listens
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE" => Some("1".into()),
            _ => None,
        };
        let settings = variables::read(&variable).0.unwrap();
        let queue = ExportQueue::start(&settings, Exporter::new(&settings, &variable).unwrap());
        let ids = SpanIds { trace: 1, span: 1 };
        let span = || {
            let values = ["/", "peer", "200"].map(SpanValue::from);
            SpanRecord::new(&POLL, ids, (SpanTime::now(), Duration::ZERO), values)
        };
        (0..SPANS).for_each(|_| queue.take(span()));
        queue.finish().await;
        let dropped: Vec<_> = queue.counts.dropped().map(|(_, count)| count as usize).collect();
        assert_eq!(dropped[SpanDrop::ExportFailed as usize], SPANS);
    }
}
