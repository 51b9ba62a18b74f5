//! Draining: new streams are rejected, and open ones end only after they had a response (TRN-19).

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long draining takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainTimes {
    /// For this long the relay is not ready and serves all the same, so that load balancers notice before clients do.
    pub(crate) delay: Duration,
    /// A stream without any response yet is kept for this long.
    pub(crate) grace: Duration,
    /// Streams end spread over this time, so that their clients do not all reconnect at once.
    pub(crate) spread: Duration,
}

/// Tells everything that serves clients when to stop.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    begun: watch::Receiver<Option<Instant>>,
    times: DrainTimes,
}

/// Begins the draining.
#[derive(Debug)]
pub(crate) struct DrainTrigger(watch::Sender<Option<Instant>>);

impl Drain {
    pub(crate) fn new(times: DrainTimes) -> (DrainTrigger, Self) {
        let (sender, begun) = watch::channel(None);
        (DrainTrigger(sender), Self { begun, times })
    }

    pub(crate) async fn begins(&mut self) {
        if self.begun.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await; // the trigger is gone, and the process ends
        }
    }

    /// Returns when a stream without a response has been kept long enough.
    pub(crate) fn grace_ends(&self) -> Instant {
        self.begun.borrow().unwrap_or_else(Instant::now) + self.times.grace
    }

    /// Returns a stream's own share of the spread.
    pub(crate) fn turn(&self) -> Duration {
        let random = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
        self.times.spread.mul_f64(random)
    }

    /// From when the relay is not ready to when this begins.
    pub(crate) fn delay(&self) -> Duration {
        self.times.delay
    }

    /// From the beginning to when everything should be over.
    pub(crate) fn longest(&self) -> Duration {
        self.times.grace + self.times.spread
    }
}

impl DrainTrigger {
    pub(crate) fn begin(&self) {
        self.0.send_replace(Some(Instant::now()));
    }
}
