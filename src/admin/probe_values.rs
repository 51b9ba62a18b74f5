//! What probes are answered from: values that other threads leave, and that are read without waiting for those.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::relay::{BrakeWatch, Readiness, Views};
use crate::telemetry::Exposition;

/// One for the process. Clones share it.
#[derive(Clone)]
pub(crate) struct ProbeValues {
    /// Locked for as long as it takes to read it, by all.
    pub(super) readiness: Arc<Readiness>,
    /// The same.
    pub(super) brakes: Arc<BrakeWatch>,
    pub(super) metrics: Exposition,
    heartbeat: Arc<Heartbeat>,
}

/// What the worker threads leave each second.
#[derive(Debug)]
struct Heartbeat {
    started: Instant,
    /// The last time, in milliseconds since the start.
    at: AtomicU64,
    /// How many views have something from disk that no server has confirmed.
    from_disk: AtomicUsize,
}

impl ProbeValues {
    pub(crate) fn new(views: &Views, metrics: Exposition) -> Self {
        let (readiness, brakes) = (views.readiness().clone(), views.incidents().brakes.clone());
        let heartbeat = Heartbeat { started: Instant::now(), at: AtomicU64::new(0), from_disk: AtomicUsize::new(0) };
        heartbeat.beat(views);
        Self { readiness, brakes, metrics, heartbeat: Arc::new(heartbeat) }
    }

    /// Leaves values for ever. It runs on the worker threads, so that probes find out when those hang.
    pub(crate) async fn keep(self, views: impl Fn() -> Arc<Views>) {
        loop {
            tokio::time::sleep(EVERY).await;
            self.heartbeat.beat(&views());
        }
    }

    /// Returns how long the worker threads have been silent, if that is too long.
    pub(super) fn hung_for(&self, now: Instant) -> Option<Duration> {
        let silent = self.heartbeat.silent_for(now);
        (silent > SILENCE).then_some(silent)
    }

    /// Returns how many views have something from disk that no server has confirmed, or had a second ago.
    pub(super) fn views_from_disk(&self) -> usize {
        self.heartbeat.from_disk.load(Ordering::Relaxed)
    }
}

impl Heartbeat {
    fn beat(&self, views: &Views) {
        self.from_disk.store(views.loaded_from_disk(), Ordering::Relaxed);
        let since_start = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.store(since_start, Ordering::Relaxed);
    }

    fn silent_for(&self, now: Instant) -> Duration {
        let at = self.started + Duration::from_millis(self.at.load(Ordering::Relaxed));
        now.saturating_duration_since(at)
    }
}

const EVERY: Duration = Duration::from_secs(1);
/// The worker threads hang if they have left nothing for longer. Kubelets ask several times before they restart a relay.
const SILENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::views_to;

    #[tokio::test]
    async fn worker_threads_that_leave_nothing_for_half_a_minute_hang_until_they_do() {
        let views = Arc::new(views_to("http://server"));
        let values = ProbeValues::new(&views, Exposition::new(async || String::new()));
        let (now, later) = (Instant::now(), Instant::now() + SILENCE + EVERY);
        assert_eq!((values.hung_for(now), values.hung_for(now + SILENCE - EVERY)), (None, None));
        assert!(values.hung_for(later).is_some_and(|silent| silent.as_secs() >= 30));

        values.heartbeat.from_disk.store(7, Ordering::Relaxed); // until the next beat
        let before = values.heartbeat.at.load(Ordering::Relaxed);
        let _ = tokio::time::timeout(EVERY * 3 / 2, values.clone().keep(move || views.clone())).await; // it has no end
        assert!(values.heartbeat.at.load(Ordering::Relaxed) > before);
        assert_eq!((values.views_from_disk(), values.hung_for(now + SILENCE)), (0, None));
    }
}
