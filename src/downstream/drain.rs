//! Draining: new streams are rejected, and open ones end only after they had a response (TRN-19).

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long draining takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainTimes {
    /// How long the relay serves as before while it is not ready, so that load balancers notice before clients do.
    pub(crate) delay: Duration,
    /// How long a stream without a response is kept.
    pub(crate) grace: Duration,
    /// Streams end spread over this time, so that their clients do not reconnect all at once.
    pub(crate) spread: Duration,
}

/// Signals all serving tasks when to stop.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    begun: watch::Receiver<Option<Instant>>,
    times: DrainTimes,
}

/// Starts the drain.
#[derive(Debug)]
pub(crate) struct DrainTrigger(watch::Sender<Option<Instant>>);

impl Drain {
    pub(crate) fn new(times: DrainTimes) -> (DrainTrigger, Self) {
        let (sender, begun) = watch::channel(None);
        (DrainTrigger(sender), Self { begun, times })
    }

    pub(crate) async fn begins(&mut self) {
        if self.begun.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await; // the trigger was dropped: the process ends
        }
    }

    /// Returns when a stream without a response has been kept for long enough.
    pub(crate) fn grace_ends(&self) -> Instant {
        self.begun.borrow().unwrap_or_else(Instant::now) + self.times.grace
    }

    /// Returns the share of the spread for one stream.
    pub(crate) fn turn(&self) -> Duration {
        let random = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
        self.times.spread.mul_f64(random)
    }

    /// Returns the time between the loss of readiness and the drain.
    pub(crate) fn delay(&self) -> Duration {
        self.times.delay
    }

    /// Returns how long the drain takes at most.
    pub(crate) fn longest(&self) -> Duration {
        self.times.grace + self.times.spread
    }
}

impl DrainTrigger {
    pub(crate) fn begin(&self) {
        self.0.send_replace(Some(Instant::now()));
    }
}
