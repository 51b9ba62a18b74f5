//! Metrics of the runtime: how busy its workers are, how many tasks wait for them, and how late a due task runs. Metrics of the shards beside it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeMetrics};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use super::page::Page;
use super::table::*;
use super::workers::WorkerHealth;
use crate::relay::deliveries::{Histogram, Writers};

/// Measures how late the runtime runs a task that is due. Dropping this ends the measurement.
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

    pub(super) fn add(&self, page: &mut Page, workers: &WorkerHealth) {
        for worker in 0..self.runtime.num_workers() {
            let seconds = self.runtime.worker_total_busy_duration(worker).as_secs_f64();
            page.add(WORKER_BUSY_SECONDS, [&worker.to_string()], seconds);
        }
        for (worker, stalls) in workers.stalls().enumerate() {
            page.add(WORKER_STALLS, [&worker.to_string()], stalls);
        }
        page.count(WORKERS, [], self.runtime.num_workers());
        page.count(TASKS, [], self.runtime.num_alive_tasks());
        page.count(TASKS_QUEUED, [], self.runtime.global_queue_depth());
        page.add(TASK_LATENESS_SECONDS, [], self.lateness.counts());
        for (shard, figures) in workers.shards().enumerate() {
            let shard = &shard.to_string();
            page.count(SHARD_CONNECTIONS, [shard], figures.connections());
            page.count(SHARD_STREAMS, [shard], figures.streams());
            page.add(SHARD_LATE_ROUNDS, [shard], figures.late_rounds());
            page.add(SHARD_POLL_SECONDS, [shard], figures.polls());
        }
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
