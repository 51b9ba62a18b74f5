//! Metrics of the runtime: how busy its workers are, what waits for them, and how late it runs a task.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::gauge;
use super::histogram::CountedHistogram;
use super::labels::Labelled;
use crate::relay::deliveries::{Histogram, Writers};

/// Measures how late the runtime runs a task that is due. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct RuntimeProbe {
    lateness: Arc<Histogram>,
    runtime: RuntimeMetrics,
    task: JoinHandle<()>,
}

impl RuntimeProbe {
    /// Starts on the current runtime.
    pub(super) fn start() -> Self {
        let lateness = Arc::<Histogram>::default();
        let task = tokio::spawn(probe(lateness.clone()));
        Self { lateness, runtime: Handle::current().metrics(), task }
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let busy =
            "Time that a worker of the runtime has spent on tasks; its rate is how busy the worker is, 1 at most";
        let busy = Labelled::<Counter<f64, AtomicU64>>::register(registry, "worker_busy_seconds", busy);
        for worker in 0..self.runtime.num_workers() {
            let seconds = self.runtime.worker_total_busy_duration(worker).as_secs_f64();
            busy.at(&[("worker", &worker.to_string())]).inc_by(seconds);
        }
        gauge(registry, "tasks", "Tasks that have not ended", self.runtime.num_alive_tasks());
        let help = "Tasks in the queue that all workers share; the queues of the workers are not counted";
        gauge(registry, "tasks_queued", help, self.runtime.global_queue_depth());
        let lateness = CountedHistogram::default();
        lateness.set(self.lateness.counts());
        let help = "How late a task that is due every 10 ms was run; a timer alone may take 1 ms";
        registry.register("task_lateness_seconds", help, lateness);
    }
}

impl Drop for RuntimeProbe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn probe(lateness: Arc<Histogram>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay); // a pause counts once
    loop {
        let due = ticks.tick().await;
        lateness.observe(Instant::now().saturating_duration_since(due), Writers::One);
    }
}

const PERIOD: Duration = Duration::from_millis(10);
