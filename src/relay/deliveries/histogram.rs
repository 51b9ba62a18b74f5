//! Counters for a single writer thread, without a locked instruction, and a histogram of times with fixed buckets made of them.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Which threads write the counters of a shard. All threads may read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    /// One thread, or one task.
    One,
    Many,
}

impl Writers {
    pub(super) fn add(self, counter: &AtomicU64, count: u64) {
        self.update(counter, |before| Some(before.wrapping_add(count)));
    }

    pub(super) fn add_signed(self, counter: &AtomicI64, change: i64) {
        match self {
            Self::One => counter.store(counter.load(Ordering::Relaxed).wrapping_add(change), Ordering::Relaxed),
            Self::Many => drop(counter.fetch_add(change, Ordering::Relaxed)),
        }
    }

    /// Replaces a value, unless `change` returns `None`.
    pub(super) fn update(self, counter: &AtomicU64, mut change: impl FnMut(u64) -> Option<u64>) {
        match self {
            Self::One => {
                let after = change(counter.load(Ordering::Relaxed));
                after.into_iter().for_each(|after| counter.store(after, Ordering::Relaxed));
            }
            Self::Many => drop(counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change)),
        }
    }
}

/// The upper bounds of buckets, in microseconds.
pub(crate) type Bounds = [u64; 16];

/// Counts times by bucket.
#[derive(Debug)]
pub(crate) struct Histogram {
    bounds: &'static Bounds,
    /// The last bucket is for times above all bounds.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
}

/// The counts of a histogram, or of several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HistogramCounts {
    bounds: &'static Bounds,
    buckets: [u64; BOUNDS.len() + 1],
    microseconds: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::with_bounds(&BOUNDS)
    }
}

impl Default for HistogramCounts {
    fn default() -> Self {
        Self::with_bounds(&BOUNDS)
    }
}

impl Histogram {
    /// Returns one with other buckets than most.
    pub(crate) fn with_bounds(bounds: &'static Bounds) -> Self {
        Self { bounds, buckets: Default::default(), microseconds: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, time: Duration, writers: Writers) {
        let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = self.bounds.partition_point(|bound| *bound < microseconds);
        writers.add(&self.buckets[bucket], 1);
        writers.add(&self.microseconds, microseconds);
    }

    pub(crate) fn counts(&self) -> HistogramCounts {
        let mut counts = HistogramCounts::with_bounds(self.bounds);
        counts.add(self);
        counts
    }
}

impl HistogramCounts {
    fn with_bounds(bounds: &'static Bounds) -> Self {
        Self { bounds, buckets: Default::default(), microseconds: 0 }
    }

    /// Adds the counts of a histogram with the same buckets.
    pub(super) fn add(&mut self, other: &Histogram) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.microseconds = self.microseconds.wrapping_add(other.microseconds.load(Ordering::Relaxed));
    }

    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all times in seconds.
    pub(crate) fn sum(&self) -> f64 {
        self.microseconds as f64 / 1e6
    }

    /// Returns each bucket's upper bound in seconds, `None` for the last, and how many times are in it.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (Option<f64>, u64)> {
        let bounds = self.bounds.iter().map(|bound| Some(*bound as f64 / 1e6)).chain([None]);
        bounds.zip(self.buckets)
    }
}

const BOUNDS: Bounds = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000, 30_000_000, 60_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for microseconds in [0, 500, 501, 60_000_000, 60_000_001] {
            histogram.observe(Duration::from_micros(microseconds), Writers::Many);
        }
        let counts = histogram.counts();
        let filled: Vec<_> = counts.buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(Some(0.0005), 2), (Some(0.001), 1), (Some(60.0), 1), (None, 1)]);
        assert_eq!((counts.count(), counts.sum()), (5, 120.001_002));
    }
}
