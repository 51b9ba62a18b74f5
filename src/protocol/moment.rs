//! Time in the pure layers: a number that the callers read from a clock.

use std::num::NonZeroU64;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Microseconds since a start that the caller chooses, and one: a moment that may be missing takes no more room.
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

    /// Zero if `earlier` is in fact later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.get().saturating_sub(earlier.0.get()))
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

/// The earlier of two deadlines, either of which may be missing.
pub(crate) fn earliest(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    [one, other].into_iter().flatten().min()
}
