//! Time as the pure layers see it: a count that their callers read off a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds since whatever the caller counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// The first moment.
    pub const START: Self = Self(0);
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// Nothing if `earlier` is in fact later.
    fn sub(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// The earlier of two deadlines, either of which may be missing.
pub(crate) fn earliest(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    [one, other].into_iter().flatten().min()
}
