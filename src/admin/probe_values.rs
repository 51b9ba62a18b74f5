//! What probes are answered from: values that other threads leave, and that are read without waiting for those.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::relay::{BrakeWatch, Readiness, Views};
use crate::telemetry::{Exposition, WorkerHealth};

/// One for the process. Clones share it.
#[derive(Clone)]
pub(crate) struct ProbeValues {
    /// Locked for as long as it takes to read it, by all.
    pub(super) readiness: Arc<Readiness>,
    /// The same.
    pub(super) brakes: Arc<BrakeWatch>,
    pub(super) metrics: Exposition,
    pub(super) workers: Arc<WorkerHealth>,
    /// How many views have something from disk that no server has confirmed.
    from_disk: Arc<AtomicUsize>,
}

impl ProbeValues {
    pub(crate) fn new(views: &Views, metrics: Exposition, workers: Arc<WorkerHealth>) -> Self {
        let (readiness, brakes) = (views.readiness().clone(), views.incidents().brakes.clone());
        let from_disk = Arc::new(AtomicUsize::new(views.loaded_from_disk()));
        Self { readiness, brakes, metrics, workers, from_disk }
    }

    /// Leaves values for ever.
    pub(crate) async fn keep(self, views: impl Fn() -> Arc<Views>) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.from_disk.store(views().loaded_from_disk(), Ordering::Relaxed);
        }
    }

    /// Returns how many views have something from disk that no server has confirmed, or had a second ago.
    pub(super) fn views_from_disk(&self) -> usize {
        self.from_disk.load(Ordering::Relaxed)
    }
}

const EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::views_to;

    #[tokio::test]
    async fn what_comes_from_disk_is_counted_each_second() {
        let views = Arc::new(views_to("http://server"));
        let workers = Arc::new(WorkerHealth::new());
        let values = ProbeValues::new(&views, Exposition::new(async || String::new()), workers);
        values.from_disk.store(7, Ordering::Relaxed); // until the next time
        let _ = tokio::time::timeout(EVERY * 3 / 2, values.clone().keep(move || views.clone())).await; // it has no end
        assert_eq!(values.views_from_disk(), 0);
    }
}
