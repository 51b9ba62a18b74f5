//! Draining: other relays or configurations accept new streams, and open streams end only after a response (TRN-19).

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep};

use super::waves::{RemainingDrain, Waves};
use crate::random::random;
use crate::shared_runtime;

/// How long draining takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainTimes {
    /// How long the relay reports that it is not ready, but serves as before, so that load balancers notice first.
    pub(crate) delay: Duration,
    /// How long a stream without a response is kept open.
    pub(crate) grace: Duration,
    /// All streams have had their turn to end after this time.
    pub(crate) spread: Duration,
    /// Limits the rate of endings to what clients may fetch elsewhere. Streams end faster if this rate would take longer than the spread. 0: they
    /// end evenly over the spread.
    pub(crate) bytes_per_second: usize,
    /// Replaces `spread` for the streams of a configuration that is replaced.
    pub(crate) reload_spread: Duration,
}

/// Why streams end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DrainReason {
    /// The process ends.
    Shutdown,
    /// Another configuration serves new streams.
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
    /// Whether a task is ending the waiting streams.
    is_ending: bool,
}

/// Starts the drain, and can shorten it: a process that shuts down does not wait for the slower drain of a reload.
#[derive(Debug)]
pub(crate) struct DrainTrigger(watch::Sender<Option<Begun>>);

#[derive(Debug, Clone, Copy)]
struct Begun {
    grace_ends: Instant,
    /// When every stream has had its turn to end.
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

    /// Waits, once the drain has begun, for the turn of one stream to end. Its client subscribes to about `bytes`.
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
        let _ = turn.await; // an error means that the task is gone, and the stream may end
    }

    /// Ends streams in waves, until none is waiting.
    async fn end_waves(self) {
        let mut last = Instant::now();
        loop {
            // Random, so that relays that drain together do not stay in step.
            sleep(WAVE.mul_f64(0.5 + random())).await;
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

    /// Returns until when streams without a response are kept open.
    pub(crate) fn grace_ends(&self) -> Instant {
        self.begun.borrow().map_or_else(Instant::now, |begun| begun.grace_ends)
    }

    /// Returns why streams end.
    pub(crate) fn reason(&self) -> DrainReason {
        self.begun.borrow().map_or(DrainReason::Shutdown, |begun| begun.reason)
    }
}

impl DrainReason {
    /// Returns the message that clients get.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Shutdown => "the relay is shutting down; reconnect",
            Self::Reload => "the configuration of the relay has changed; reconnect",
        }
    }
}

impl DrainTimes {
    /// Returns the longest time that the drain can take.
    pub(crate) fn longest(&self) -> Duration {
        self.grace + self.spread
    }

    /// Returns the times for a reload: nothing waits for its end, so clients move evenly.
    pub(crate) fn of_reload(self) -> Self {
        Self { spread: self.reload_spread, ..self.evenly() }
    }

    /// Returns the same times without a rate, so that streams end evenly over the spread.
    pub(crate) fn evenly(self) -> Self {
        Self { bytes_per_second: 0, ..self }
    }

    /// Returns the times for one of `count` drains that run at the same time.
    pub(crate) fn one_of(self, count: usize) -> Self {
        Self { bytes_per_second: self.bytes_per_second / count.max(1), ..self }
    }
}

impl DrainTrigger {
    /// Begins the drain, or shortens one that has begun. It never delays an end.
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
