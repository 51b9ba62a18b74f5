//! Waiting times between attempts, as data (UP-33, UP-34).

use std::time::Duration;

/// How waiting times grow. Invariants: `initial` is not zero and at most `max`, `factor` is at least 1, and `jitter` is between 0
/// and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BackoffTimes {
    pub(crate) initial: Duration,
    pub(crate) factor: f64,
    pub(crate) max: Duration,
    /// The part of a wait by which it may be longer or shorter.
    pub(crate) jitter: f64,
    /// How long a stream has to last, with a response on it, for the next wait to be the initial one again.
    pub(crate) reset_after: Duration,
}

/// Its numbers are checked when the configuration is read, so none of them is NaN.
impl Eq for BackoffTimes {}

impl Default for BackoffTimes {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(1),
            factor: 1.6,
            max: Duration::from_secs(120),
            jitter: 0.2,
            reset_after: Duration::from_secs(30),
        }
    }
}

/// The waiting times of one stream. They grow until a stream has lasted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    times: BackoffTimes,
    failures: u32,
    /// A short stream with a response has reset the waits. That happens once between two streams that lasted.
    spared: bool,
}

impl Backoff {
    pub(crate) fn new(times: BackoffTimes) -> Self {
        Self { times, ..Self::default() }
    }

    /// How long to wait before the next attempt. `random` is between 0 and 1.
    pub fn next(&mut self, random: f64) -> Duration {
        let BackoffTimes { initial, factor, max, jitter, .. } = self.times;
        let exponent = i32::try_from(self.failures).unwrap_or(i32::MAX);
        self.failures = self.failures.saturating_add(1);
        let seconds = (initial.as_secs_f64() * factor.powi(exponent)).min(max.as_secs_f64());
        let jittered = seconds * (1.0 + jitter * (2.0 * random.clamp(0.0, 1.0) - 1.0));
        Duration::try_from_secs_f64(jittered).unwrap_or(max)
    }

    /// A stream has ended, or could not be opened. A server that responds and then ends each stream is not retried at the initial
    /// pace for ever: after the first time, only a stream that lasts resets the waits. A stream that outlasts the longest wait
    /// resets them even without a response.
    pub fn ended(&mut self, answered: bool, lived: Duration) {
        let BackoffTimes { max, reset_after, .. } = self.times;
        if answered && lived >= reset_after || lived >= max.max(reset_after) {
            self.reset();
        } else if answered && !self.spared {
            self.failures = 0;
            self.spared = true;
        }
    }

    /// Starts over with the shortest wait, after a stream that worked.
    pub fn reset(&mut self) {
        self.failures = 0;
        self.spared = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_secs(29);
    const LASTING: Duration = Duration::from_secs(30);

    /// Without jitter.
    fn wait(backoff: &mut Backoff) -> f64 {
        backoff.next(0.5).as_secs_f64()
    }

    #[test]
    fn up_33_waits_grow_to_the_cap_and_start_over_after_a_stream_that_lasted() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..40).map(|_| wait(&mut backoff)).collect();
        assert!((waits[0] - 1.0).abs() < 1e-9 && (waits[1] - 1.6).abs() < 1e-9);
        assert!(waits.is_sorted() && waits[39] == 120.0);
        backoff.ended(false, LASTING);
        assert_eq!(wait(&mut backoff), 120.0, "a stream without a response is no reason to hope");
        backoff.ended(true, LASTING);
        assert_eq!(wait(&mut backoff), 1.0);
        backoff.next(0.5);
        backoff.ended(false, Duration::from_secs(120));
        assert_eq!(wait(&mut backoff), 1.0, "it has outlasted the longest wait");
    }

    #[test]
    fn up_34_a_stream_that_answered_is_retried_soon_the_first_time_and_one_that_goes_on_dying_less_and_less() {
        let mut backoff = Backoff::default();
        while wait(&mut backoff) < 120.0 {}
        let mut waits = Vec::new();
        for _ in 0..15 {
            backoff.ended(true, SHORT);
            waits.push(wait(&mut backoff));
        }
        assert_eq!((waits[0], waits[1], waits[14]), (1.0, 1.6, 120.0));
        assert!(waits.is_sorted());
        backoff.ended(true, LASTING);
        assert_eq!(wait(&mut backoff), 1.0);
        backoff.next(0.5);
        backoff.ended(true, SHORT);
        assert_eq!(wait(&mut backoff), 1.0, "the first time since one has lasted");
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        for random in [0.0, 0.3, 1.0, 7.0] {
            let wait = Backoff::default().next(random).as_secs_f64();
            assert!((0.8..=1.2).contains(&wait), "{wait}");
        }
    }

    #[test]
    fn waits_are_those_that_were_configured_however_large() {
        let times = BackoffTimes {
            initial: Duration::from_millis(10),
            factor: 1e300,
            max: Duration::MAX,
            jitter: 1.0,
            ..BackoffTimes::default()
        };
        let mut backoff = Backoff::new(times);
        assert_eq!(backoff.next(0.5), Duration::from_millis(10));
        assert!((0..5).all(|_| backoff.next(1.0) > Duration::from_secs(1 << 40)));
        let mut even = Backoff::new(BackoffTimes { factor: 1.0, ..BackoffTimes::default() });
        assert!((0..100).all(|_| wait(&mut even) == 1.0));
    }
}
