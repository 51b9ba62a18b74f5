//! Time in the pure layers: a number that callers read from a clock, and a clock that stands while a server is away.

use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Microseconds since a start that the caller chooses, plus one. So it is never zero, and an `Option` of it takes no more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(NonZeroU64);

impl Moment {
    /// The first moment.
    pub const START: Self = Self(NonZeroU64::MIN);
}

impl Default for Moment {
    fn default() -> Self {
        Self::START
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// Returns the time since `earlier`. Zero if `earlier` is in fact later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.get().saturating_sub(earlier.0.get()))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    /// Returns a moment that is no earlier than the start.
    fn sub(self, duration: Duration) -> Self {
        let microseconds = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        NonZeroU64::new(self.0.get().saturating_sub(microseconds)).map_or(Self::START, Self)
    }
}

/// A moment that is stored and loaded without a lock.
#[derive(Debug, Default)]
pub(crate) struct AtomicMoment(AtomicU64);

impl AtomicMoment {
    pub(crate) fn note(&self, moment: Moment) {
        self.0.fetch_max(moment.0.get(), Ordering::Relaxed);
    }

    pub(crate) fn latest(&self) -> Moment {
        NonZeroU64::new(self.0.load(Ordering::Relaxed)).map_or(Moment::START, Moment)
    }
}

/// Returns the earlier of two deadlines, either of which may be missing.
pub fn earliest(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    [one, other].into_iter().flatten().min()
}

/// A clock that stands while a server is away, so that no wait runs out meanwhile. Afterwards the clock goes on, and does not start over: so a
/// server that restarts again and again cannot delay anything for ever.
#[derive(Debug, Clone, Default)]
pub(crate) struct Clock {
    passed: Duration,
    runs_since: Option<Moment>,
}

impl Clock {
    pub(crate) fn running(now: Moment) -> Self {
        Self { passed: Duration::ZERO, runs_since: Some(now) }
    }

    /// Returns a stopped clock that shows `passed`.
    pub(crate) fn standing(passed: Duration) -> Self {
        Self { passed, runs_since: None }
    }

    pub(crate) fn read(&self, now: Moment) -> Duration {
        self.passed + self.runs_since.map_or(Duration::ZERO, |since| now - since)
    }

    pub(crate) fn stop(&mut self, now: Moment) {
        *self = Self::standing(self.read(now));
    }

    pub(crate) fn start(&mut self, now: Moment) {
        self.runs_since.get_or_insert(now);
    }

    pub(crate) fn runs(&self) -> bool {
        self.runs_since.is_some()
    }

    /// Returns when the clock will show `reading`, if it runs.
    pub(crate) fn when(&self, reading: Duration) -> Option<Moment> {
        self.runs_since.map(|since| since + reading.saturating_sub(self.passed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    #[test]
    fn it_stands_still_and_goes_on() {
        let mut clock = Clock::running(at(10));
        assert_eq!(clock.when(Duration::from_secs(60)), Some(at(70)));
        clock.stop(at(30));
        assert_eq!((clock.read(at(90)), clock.when(Duration::from_secs(60))), (Duration::from_secs(20), None));
        clock.start(at(100));
        clock.start(at(110));
        assert_eq!(
            (clock.read(at(115)), clock.when(Duration::from_secs(60))),
            (Duration::from_secs(35), Some(at(140)))
        );
    }
}
