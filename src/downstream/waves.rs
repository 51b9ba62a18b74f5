//! The order in which streams end in a drain: in waves, each within a budget of bytes.
//!
//! The client of an ended stream reconnects, here or to another relay, and may fetch all that it subscribes to. So streams end in
//! random order, and no faster than the budget. If the drain is too short for that, or there is no budget, they end evenly over
//! its time.

use std::collections::BTreeMap;
use std::time::Duration;

/// Streams that wait for their turn to end. A value of `T` ends one.
#[derive(Debug)]
pub(super) struct Waves<T> {
    /// The streams by a random number.
    waiting: BTreeMap<u64, Waiting<T>>,
    /// The weight of all waiting streams.
    weight: u64,
    /// The earned weight that is not spent yet. Below zero if the last stream of an earlier wave weighed more than there was.
    credit: f64,
}

#[derive(Debug)]
struct Waiting<T> {
    weight: u64,
    stream: T,
}

/// The remaining time and budget of a drain.
#[derive(Debug, Clone, Copy)]
pub(super) struct RemainingDrain {
    /// The time since the last wave.
    pub(super) elapsed: Duration,
    /// The time until all streams must have ended.
    pub(super) left: Duration,
    /// The budget that clients may fetch; 0: as little as the time permits.
    pub(super) bytes_per_second: u64,
}

impl<T> Default for Waves<T> {
    fn default() -> Self {
        Self { waiting: BTreeMap::new(), weight: 0, credit: 0.0 }
    }
}

impl<T> Waves<T> {
    /// Adds a stream at a random position. Its client subscribes to about `bytes`.
    pub(super) fn enter(&mut self, random: u64, bytes: usize, stream: T) {
        let weight = (bytes as u64).max(CONNECT);
        let mut place = random;
        while self.waiting.contains_key(&place) {
            place = place.wrapping_add(1);
        }
        self.waiting.insert(place, Waiting { weight, stream });
        self.weight += weight;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes the streams of the next wave. Streams that have ended by themselves are taken too, at no cost.
    pub(super) fn next_wave(&mut self, rest: RemainingDrain, has_ended: impl Fn(&T) -> bool) -> Vec<T> {
        let unpaid = (self.weight as f64 - self.credit).max(0.0);
        let evenly = unpaid / (rest.left + rest.elapsed).as_secs_f64().max(f64::EPSILON);
        self.credit += evenly.max(rest.bytes_per_second as f64) * rest.elapsed.as_secs_f64();
        let mut wave = Vec::new();
        while let Some(next) = self.waiting.first_entry() {
            let (weight, has_ended) = (next.get().weight, has_ended(&next.get().stream));
            // A stream ends once half of its weight is earned.
            if !has_ended && !rest.left.is_zero() && self.credit < weight as f64 / 2.0 {
                break;
            }
            self.weight -= weight;
            if !has_ended {
                self.credit -= weight as f64;
            }
            wave.push(next.remove().stream);
        }
        if self.waiting.is_empty() {
            self.credit = 0.0;
        }
        wave
    }
}

/// The least weight of a stream: even a client that fetches nothing connects, and a handshake costs as much as so many bytes.
const CONNECT: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const WAVE: Duration = Duration::from_millis(100);
    const MIB: usize = 1 << 20;

    fn waves_of(streams: impl IntoIterator<Item = usize>) -> Waves<usize> {
        let mut waves = Waves::default();
        // Some numbers occur twice.
        streams.into_iter().enumerate().for_each(|(at, bytes)| waves.enter(at as u64 / 2 * 7919 % 1009, bytes, bytes));
        waves
    }

    /// Returns the bytes of each wave.
    fn run(waves: &mut Waves<usize>, spread: Duration, bytes_per_second: u64) -> Vec<usize> {
        let mut sums = Vec::new();
        let mut left = spread;
        while !waves.is_empty() {
            left = left.saturating_sub(WAVE);
            let rest = RemainingDrain { elapsed: WAVE, left, bytes_per_second };
            sums.push(waves.next_wave(rest, |_| false).iter().sum());
            assert!(sums.len() < 10_000, "it never ends");
        }
        sums
    }

    #[test]
    fn streams_end_no_faster_than_the_budget_and_all_of_them() {
        let mut waves = waves_of([MIB; 200]);
        let sums = run(&mut waves, 60 * SECOND, 10 * MIB as u64);
        assert_eq!(sums, [MIB; 200], "one wave is a tenth of a second");
        assert_eq!((waves.weight, waves.credit), (0, 0.0));
    }

    #[test]
    fn a_drain_that_is_too_short_for_the_budget_ends_evenly_and_in_time() {
        for budget in [0, 1] {
            let sums = run(&mut waves_of([MIB; 500]), 5 * SECOND, budget);
            assert_eq!(sums.len(), 50);
            assert!(sums.iter().all(|sum| (9 * MIB..=11 * MIB).contains(sum)), "{sums:?}");
        }
    }

    #[test]
    fn a_stream_that_is_larger_than_a_wave_is_paid_for_by_the_next_waves() {
        let sums = run(&mut waves_of([10 * MIB; 3]), 60 * SECOND, 10 * MIB as u64);
        let ends: Vec<_> = sums.iter().enumerate().filter(|(_, sum)| **sum > 0).map(|(at, _)| at).collect();
        assert_eq!(ends, [4, 14, 24]);
    }

    #[test]
    fn one_heavy_stream_among_many_does_not_make_the_others_end_all_at_once() {
        for at in 0..30 {
            let mut streams = vec![100_000; 1000];
            streams[at * 33] = 500 * MIB;
            let sums = run(&mut waves_of(streams), 5 * SECOND, 64 * MIB as u64);
            let small = sums.iter().map(|sum| sum % (500 * MIB) / 100_000).max().unwrap();
            assert!(small <= 250, "{small} of 1,000 in one wave");
            assert!(sums.len() <= 50, "in time");
        }
    }

    #[test]
    fn a_single_stream_ends_in_the_middle_of_its_time() {
        assert_eq!(run(&mut waves_of([MIB]), 10 * SECOND, 0).len(), 50);
    }

    #[test]
    fn streams_without_bytes_end_no_faster_than_clients_connect() {
        let sums = run(&mut waves_of([0; 64]), 60 * SECOND, MIB as u64);
        assert_eq!(sums.len(), 40, "16 in a second");
    }

    #[test]
    fn what_has_ended_by_itself_costs_nothing() {
        let mut waves = waves_of([MIB; 100]);
        let rest = RemainingDrain { elapsed: WAVE, left: 60 * SECOND, bytes_per_second: 10 * MIB as u64 };
        assert_eq!(waves.next_wave(rest, |_| true).len(), 100);
        assert!(waves.is_empty() && waves.weight == 0);
    }

    #[test]
    fn once_the_time_is_over_all_end_at_once() {
        let mut waves = waves_of([MIB; 100]);
        let rest = RemainingDrain { elapsed: Duration::ZERO, left: Duration::ZERO, bytes_per_second: 1 };
        assert_eq!(waves.next_wave(rest, |_| false).len(), 100);
    }

    #[test]
    fn a_drain_that_is_hastened_ends_in_the_time_that_is_left() {
        let mut waves = waves_of([MIB; 600]);
        for tenth in 1..=50 {
            let left = 60 * SECOND - tenth * WAVE;
            waves.next_wave(RemainingDrain { elapsed: WAVE, left, bytes_per_second: 0 }, |_| false);
        }
        assert_eq!(waves.weight, 550 * MIB as u64);
        assert_eq!(run(&mut waves, SECOND, 0).len(), 10);
    }
}
