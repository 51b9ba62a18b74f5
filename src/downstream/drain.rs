//! Draining: new streams are rejected or served by others, and open ones end only after they had a response (TRN-19).

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use super::waves::{RemainingDrain, Waves};
use crate::shared_runtime;

/// How long draining takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainTimes {
    /// How long the relay serves as before while it is not ready, so that load balancers notice before clients do.
    pub(crate) delay: Duration,
    /// How long a stream without a response is kept.
    pub(crate) grace: Duration,
    /// All streams have had their turn to end after this time.
    pub(crate) spread: Duration,
    /// Streams end as fast as their clients may fetch so much elsewhere, or faster if that would take longer than the spread; 0: evenly over
    /// the spread.
    pub(crate) bytes_per_second: usize,
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
    queue: Arc<Mutex<Queue>>,
}

/// Streams that wait for their turn to end.
#[derive(Debug, Default)]
struct Queue {
    waves: Waves<oneshot::Sender<()>>,
    /// Whether a task ends them.
    is_ending: bool,
}

/// Starts the drain, and can hasten it: a process that ends does not wait for streams that end because of a reload.
#[derive(Debug)]
pub(crate) struct DrainTrigger(watch::Sender<Option<Begun>>);

#[derive(Debug, Clone, Copy)]
struct Begun {
    grace_ends: Instant,
    /// When all streams have had their turn.
    turns_end: Instant,
    bytes_per_second: usize,
    reason: DrainReason,
}

impl Drain {
    pub(crate) fn new() -> (DrainTrigger, Self) {
        let (sender, begun) = watch::channel(None);
        (DrainTrigger(sender), Self { begun, queue: Arc::default() })
    }

    pub(crate) async fn begins(&mut self) {
        if self.begun.wait_for(Option::is_some).await.is_err() {
            std::future::pending::<()>().await; // the trigger was dropped: the process ends
        }
    }

    /// Waits, after it has begun, until it is the turn of one stream to end, whose client subscribes to about so many bytes.
    pub(crate) async fn turn_comes(&self, bytes: usize) {
        let (ends, turn) = oneshot::channel();
        {
            let mut queue = self.lock();
            queue.waves.enter(RandomState::new().hash_one(()), bytes, ends);
            if !queue.is_ending {
                queue.is_ending = true;
                shared_runtime::spawn(self.clone().end_waves());
            }
        }
        let _ = turn.await; // it is told, or nobody is left who could
    }

    /// Ends streams in waves, until no stream waits.
    async fn end_waves(self) {
        let mut last = Instant::now();
        loop {
            // Relays that drain together do not keep step.
            sleep(WAVE.mul_f64(0.5 + random_share())).await;
            let now = Instant::now();
            let begun = *self.begun.borrow();
            let (left, budget) = begun.map_or((Duration::ZERO, 0), |begun| {
                (begun.turns_end.saturating_duration_since(now), begun.bytes_per_second)
            });
            let rest = RemainingDrain { elapsed: now - last, left, bytes_per_second: budget as u64 };
            last = now;
            let (wave, goes_on) = {
                let mut queue = self.lock();
                let wave = queue.waves.next_wave(rest, oneshot::Sender::is_closed);
                queue.is_ending = !queue.waves.is_empty();
                (wave, queue.is_ending)
            };
            for stream in wave {
                let _ = stream.send(()); // it may have ended by itself
            }
            if !goes_on {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when a stream without a response has been kept for long enough.
    pub(crate) fn grace_ends(&self) -> Instant {
        self.begun.borrow().map_or_else(Instant::now, |begun| begun.grace_ends)
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

    /// Returns those of a reload: nothing waits for it, so that clients come over evenly.
    pub(crate) fn of_reload(self) -> Self {
        Self { spread: self.reload_spread, ..self.evenly() }
    }

    /// Returns the same without an early end.
    pub(crate) fn evenly(self) -> Self {
        Self { bytes_per_second: 0, ..self }
    }

    /// Returns those of one of so many drains at the same time.
    pub(crate) fn one_of(self, count: usize) -> Self {
        Self { bytes_per_second: self.bytes_per_second / count.max(1), ..self }
    }
}

impl DrainTrigger {
    /// Begins, or hastens what has begun: no turn is put off.
    pub(crate) fn begin(&self, times: DrainTimes, reason: DrainReason) {
        let DrainTimes { grace, spread, bytes_per_second, .. } = times;
        let now = Instant::now();
        let begun = Begun { grace_ends: now + grace, turns_end: now + spread, bytes_per_second, reason };
        self.0.send_modify(|before| {
            *before = Some(before.map_or(begun, |before| Begun {
                grace_ends: begun.grace_ends.min(before.grace_ends),
                turns_end: begun.turns_end.min(before.turns_end),
                ..begun
            }));
        });
    }
}

/// Returns a random number from 0 to 1.
pub(super) fn random_share() -> f64 {
    RandomState::new().hash_one(()) as f64 / u64::MAX as f64
}

/// The mean time from one wave to the next.
const WAVE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_reason_to_drain_hastens_and_puts_nothing_off() {
        let (trigger, drain) = Drain::new();
        let times = |seconds| {
            let (grace, spread) = (Duration::from_secs(seconds), Duration::from_secs(2 * seconds));
            DrainTimes { delay: Duration::ZERO, grace, spread, bytes_per_second: 0, reload_spread: Duration::ZERO }
        };
        let ends = || {
            let begun = drain.begun.borrow().unwrap();
            (drain.grace_ends(), begun.turns_end)
        };
        trigger.begin(times(100), DrainReason::Reload);
        let first = ends();
        trigger.begin(times(200), DrainReason::Shutdown);
        assert_eq!((ends(), drain.reason()), (first, DrainReason::Shutdown));
        trigger.begin(times(10), DrainReason::Shutdown);
        assert!(ends().0 < first.0 && ends().1 < first.1);
    }

    #[test]
    fn drains_at_the_same_time_share_the_bytes_of_a_second() {
        let times = DrainTimes {
            delay: Duration::ZERO,
            grace: Duration::ZERO,
            spread: Duration::ZERO,
            bytes_per_second: 1000,
            reload_spread: Duration::ZERO,
        };
        assert_eq!([0, 1, 4].map(|count| times.one_of(count).bytes_per_second), [1000, 1000, 250]);
    }
}
