//! Draining: new streams are rejected or served by others, and open ones end only after they had a response (TRN-19).

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// How long draining takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainTimes {
    /// How long the relay serves as before while it is not ready, so that load balancers notice before clients do.
    pub(crate) delay: Duration,
    /// How long a stream without a response is kept.
    pub(crate) grace: Duration,
    /// Streams end spread over this time, so that their clients do not reconnect all at once.
    pub(crate) spread: Duration,
    /// The same for the streams of a configuration that is replaced.
    pub(crate) reload_spread: Duration,
}

/// Why streams end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainReason {
    /// The process ends.
    Shutdown,
    /// New streams are served by another configuration.
    Reload,
}

/// Signals all serving tasks when to stop.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    begun: watch::Receiver<Option<Begun>>,
}

/// Starts the drain, and can hasten it: a process that ends does not wait for streams that end because of a reload.
#[derive(Debug)]
pub(crate) struct DrainTrigger(watch::Sender<Option<Begun>>);

#[derive(Debug, Clone, Copy)]
struct Begun {
    at: Instant,
    grace: Duration,
    spread: Duration,
    reason: DrainReason,
}

impl Drain {
    pub(crate) fn new() -> (DrainTrigger, Self) {
        let (sender, begun) = watch::channel(None);
        (DrainTrigger(sender), Self { begun })
    }

    pub(crate) async fn begins(&mut self) {
        if self.begun.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await; // the trigger was dropped: the process ends
        }
    }

    /// Waits, after it has begun, until it is one stream's turn to end.
    pub(crate) async fn turn_comes(&mut self) {
        let share = RandomState::new().hash_one(()) as f64 / u64::MAX as f64;
        let mut turn = None;
        loop {
            let begun = *self.begun.borrow_and_update();
            let Some(Begun { at, spread, .. }) = begun else { return };
            let by_this = at + spread.mul_f64(share);
            let next = turn.map_or(by_this, |turn: Instant| turn.min(by_this)); // it is hastened, never put off
            turn = Some(next);
            tokio::select! {
                () = sleep_until(next) => return,
                changed = self.begun.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Returns when a stream without a response has been kept for long enough.
    pub(crate) fn grace_ends(&self) -> Instant {
        self.begun.borrow().map_or_else(Instant::now, |begun| begun.at + begun.grace)
    }

    /// Returns why streams end.
    pub(crate) fn reason(&self) -> DrainReason {
        self.begun.borrow().map_or(DrainReason::Shutdown, |begun| begun.reason)
    }
}

impl DrainReason {
    /// Returns the words for clients.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Shutdown => "the relay is shutting down; reconnect",
            Self::Reload => "the configuration of the relay has changed; reconnect",
        }
    }
}

impl DrainTimes {
    /// Returns how long the drain takes at most.
    pub(crate) fn longest(&self) -> Duration {
        self.grace + self.spread
    }

    /// Returns those of a reload.
    pub(crate) fn of_reload(self) -> Self {
        Self { spread: self.reload_spread, ..self }
    }
}

impl DrainTrigger {
    pub(crate) fn begin(&self, times: DrainTimes, reason: DrainReason) {
        let DrainTimes { grace, spread, .. } = times;
        self.0.send_replace(Some(Begun { at: Instant::now(), grace, spread, reason }));
    }
}
