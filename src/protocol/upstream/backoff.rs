//! Waiting times between attempts, as data (UP-33).

use std::time::Duration;

/// Starts at 1 s and grows by 1.6 to 120 s, each time 20 % more or less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// How long to wait before the next attempt. `random` is between 0 and 1.
    pub fn next(&mut self, random: f64) -> Duration {
        let exponent = self.failures.min(LONGEST_AFTER);
        self.failures = self.failures.saturating_add(1);
        let seconds = (FIRST * FACTOR.powi(exponent as i32)).min(CAP);
        Duration::from_secs_f64(seconds * (1.0 + JITTER * (2.0 * random.clamp(0.0, 1.0) - 1.0)))
    }

    /// A response came. A connection, or a stream without one, is no reason to hope (UP-33, UP-34).
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

const FIRST: f64 = 1.0;
const FACTOR: f64 = 1.6;
const CAP: f64 = 120.0;
const JITTER: f64 = 0.2;
/// By then the cap is reached; further powers would only run out of range.
const LONGEST_AFTER: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_33_waits_grow_to_the_cap_and_start_over_after_a_response() {
        let mut backoff = Backoff::default();
        let waits: Vec<_> = (0..40).map(|_| backoff.next(0.5).as_secs_f64()).collect();
        assert!((waits[0] - 1.0).abs() < 1e-9 && (waits[1] - 1.6).abs() < 1e-9);
        assert!(waits.is_sorted() && waits[39] == 120.0);
        backoff.reset();
        assert_eq!(backoff.next(0.5), Duration::from_secs(1));
    }

    #[test]
    fn jitter_stays_within_a_fifth() {
        for random in [0.0, 0.3, 1.0, 7.0] {
            let wait = Backoff::default().next(random).as_secs_f64();
            assert!((0.8..=1.2).contains(&wait), "{wait}");
        }
    }
}
