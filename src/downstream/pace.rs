//! A rate: events beyond it are delayed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// So many events a second. After a pause, those of one second may happen at once.
#[derive(Debug)]
pub(super) struct Pace {
    interval: Duration,
    /// When the next event may happen.
    next: Mutex<Option<Instant>>,
}

impl Pace {
    /// Returns `None` for a rate of 0, which means that there is no limit.
    pub(super) fn per_second(rate: usize) -> Option<Self> {
        let rate = u32::try_from(rate).unwrap_or(u32::MAX);
        let interval = SECOND.checked_div(rate)?;
        Some(Self { interval, next: Mutex::default() })
    }

    /// Returns how long an event has to wait. It is then counted.
    pub(super) fn delay(&self, now: Instant) -> Duration {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let earliest = now.checked_sub(SECOND - self.interval).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(at + self.interval);
        at.saturating_duration_since(now)
    }
}

const SECOND: Duration = Duration::from_secs(1);

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
}
