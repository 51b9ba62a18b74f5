//! The values from which probes are answered. Other threads write them, and reading them does not wait for those threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::relay::{BrakeWatch, Readiness, Views};
use crate::telemetry::{Exposition, WorkerHealth};

/// There is one for the process, which clones share, except for the limit of scrapes.
#[derive(Clone)]
pub(crate) struct ProbeValues {
    /// Its lock is only held while values are read or written.
    pub(super) readiness: Arc<Readiness>,
    /// Its lock is only held as briefly.
    pub(super) brakes: Arc<BrakeWatch>,
    pub(super) metrics: Exposition,
    pub(super) workers: Arc<WorkerHealth>,
    /// Limits the scrapes that wait for a page, which the worker threads make: they leave connections for probes, which do not wait.
    pub(super) scrapes: Arc<Semaphore>,
    /// How many views have content from disk that no server has confirmed.
    from_disk: Arc<AtomicUsize>,
}

impl ProbeValues {
    pub(crate) fn new(views: &Views, metrics: Exposition, workers: Arc<WorkerHealth>) -> Self {
        let (readiness, brakes) = (views.readiness().clone(), views.incidents().brakes.clone());
        let from_disk = Arc::new(AtomicUsize::new(views.loaded_from_disk()));
        let scrapes = Arc::new(Semaphore::new(SCRAPES));
        Self { readiness, brakes, metrics, workers, scrapes, from_disk }
    }

    /// Returns the same values for another address, which has a limit of scrapes of its own.
    pub(super) fn at_another_address(self) -> Self {
        Self { scrapes: Arc::new(Semaphore::new(SCRAPES)), ..self }
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

/// How many scrapes wait for a page at a time, of the 32 connections that an address has.
const SCRAPES: usize = 16;
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
