//! The one place where a clock is read for the pure layers.

use tokio::time::Instant;

use weir_core::protocol::moment::Moment;

/// Counts from the moment at which it was created.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn starting_now() -> Self {
        Self { start: Instant::now() }
    }

    /// Returns a clock that was created some time ago.
    #[cfg(test)]
    pub(crate) fn started(ago: std::time::Duration) -> Self {
        Self { start: Instant::now().checked_sub(ago).unwrap() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::START + self.start.elapsed()
    }

    /// Returns the moment of an instant.
    pub(crate) fn moment(&self, instant: Instant) -> Moment {
        Moment::START + instant.saturating_duration_since(self.start)
    }

    /// Returns the instant of a moment, for timers.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        self.start + (moment - Moment::START)
    }
}
