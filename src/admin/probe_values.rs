//! The values from which probes are answered. Other threads write them, and reading them does not wait for those threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::relay::{BrakeWatch, Readiness, Views};
use crate::telemetry::{Exposition, WorkerHealth};

/// There is one for the process, which clones share.
#[derive(Clone)]
pub(crate) struct ProbeValues {
    /// Its lock is only held while values are read or written.
    pub(super) readiness: Arc<Readiness>,
    /// Its lock is only held as briefly.
    pub(super) brakes: Arc<BrakeWatch>,
    pub(super) metrics: Exposition,
    pub(super) workers: Arc<WorkerHealth>,
    /// How many views have content from disk that no server has confirmed.
    from_disk: Arc<AtomicUsize>,
}

impl ProbeValues {
    pub(crate) fn new(views: &Views, metrics: Exposition, workers: Arc<WorkerHealth>) -> Self {
        let (readiness, brakes) = (views.readiness().clone(), views.incidents().brakes.clone());
        let from_disk = Arc::new(AtomicUsize::new(views.loaded_from_disk()));
        Self { readiness, brakes, metrics, workers, from_disk }
    }

    /// Updates the values again and again, without end.
    pub(crate) async fn keep(self, views: impl Fn() -> Arc<Views>) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.from_disk.store(views().loaded_from_disk(), Ordering::Relaxed);
        }
    }

    /// Returns how many views had content from disk, up to a second ago, that no server had confirmed.
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
        values.from_disk.store(7, Ordering::Relaxed); // until the next update
        let _ = tokio::time::timeout(EVERY * 3 / 2, values.clone().keep(move || views.clone())).await; // the future has no end
        assert_eq!(values.views_from_disk(), 0);
    }
}
