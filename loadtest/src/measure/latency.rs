//! Durations, as a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Times from a microsecond to an hour, each with an error of at most 0.1 %.
#[derive(Debug, Clone)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, HOUR, DIGITS).expect("the bounds are constant"))
    }
}

impl Latencies {
    pub fn record(&mut self, time: Duration) {
        self.0.saturating_record(u64::try_from(time.as_micros()).unwrap_or(HOUR).max(1));
    }

    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    pub fn percentile(&self, percentile: f64) -> Duration {
        Duration::from_micros(self.0.value_at_percentile(percentile))
    }

    pub fn max(&self) -> Duration {
        Duration::from_micros(self.0.max())
    }
}

const HOUR: u64 = 3_600_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_known_distribution() {
        let mut latencies = Latencies::default();
        (1..=500).for_each(|ms| latencies.record(Duration::from_millis(ms)));
        let mut rest = Latencies::default();
        (501..=1000).for_each(|ms| rest.record(Duration::from_millis(ms)));
        latencies.add(&rest);
        assert_eq!(latencies.count(), 1000);
        for (percentile, ms) in [(50.0, 500.0), (90.0, 900.0), (99.0, 990.0), (99.9, 999.0)] {
            let found = latencies.percentile(percentile).as_secs_f64() * 1e3;
            assert!((found / ms - 1.0).abs() < 0.002, "p{percentile}: {found} ms");
        }
        latencies.record(Duration::from_secs(1 << 30));
        assert!(latencies.max() >= Duration::from_secs(3599), "beyond the bounds counts as the longest");
    }
}
