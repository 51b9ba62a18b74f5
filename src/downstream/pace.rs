//! A rate limit that delays events.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Allows so many events a second, and after a pause a burst at once.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    at_once: usize,
    /// When the next event may happen.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// Allows the events of one second at once. Returns `None` for a rate of 0, which means no limit.
    pub(super) fn per_second(rate: usize) -> Option<Self> {
        Self::with_burst(rate, rate)
    }

    /// Allows `at_once` events at once.
    pub(super) fn with_burst(rate: usize, at_once: usize) -> Option<Self> {
        let interval = Duration::from_secs(1).checked_div(u32::try_from(rate).unwrap_or(u32::MAX))?;
        Some(Self { interval, at_once, next: Mutex::default() })
    }

    /// Counts an event, and returns how long it has to wait.
    pub(super) fn delay(&self, now: Instant) -> Duration {
        self.delay_of(1, now)
    }

    /// Counts some events, and returns how long the last of them has to wait.
    pub(super) fn delay_of(&self, events: usize, now: Instant) -> Duration {
        let Some(before) = events.checked_sub(1) else { return Duration::ZERO };
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(self.time_of(self.at_once.saturating_sub(1))).unwrap_or(now);
        let first = next.map_or(earliest, |next| next.max(earliest));
        let last = first + self.time_of(before);
        *next = Some(last + self.interval);
        last.saturating_duration_since(now)
    }

    fn time_of(&self, events: usize) -> Duration {
        self.interval.saturating_mul(u32::try_from(events).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_events_of_one_second_happen_at_once_and_the_others_at_the_rate() {
        let pace = Pace::per_second(10).unwrap();
        let start = Instant::now() + Duration::from_secs(60);
        let delays = |count: usize, now| (0..count).map(|_| pace.delay(now)).collect::<Vec<_>>();
        assert_eq!(delays(10, start), [Duration::ZERO; 10]);
        assert_eq!(delays(3, start), [100, 200, 300].map(Duration::from_millis));
        assert_eq!(delays(1, start + Duration::from_millis(400)), [Duration::ZERO]);
        assert_eq!(delays(11, start + Duration::from_secs(60))[10], Duration::from_millis(100));
        assert!(Pace::per_second(0).is_none());
    }

    #[tokio::test]
    async fn several_events_wait_for_the_time_of_the_last() {
        let pace = Pace::with_burst(10, 100).unwrap();
        let start = Instant::now() + Duration::from_secs(60);
        let delay = |events, now| pace.delay_of(events, now);
        assert_eq!((delay(0, start), delay(90, start)), (Duration::ZERO, Duration::ZERO));
        assert_eq!(delay(30, start), Duration::from_secs(2));
        assert_eq!(delay(0, start), Duration::ZERO);
        assert_eq!(delay(20, start + Duration::from_secs(3)), Duration::from_secs(1));
    }
}
