//! How many clients have left a reply unanswered, and for how long. Counted as it happens, so that no session has to be read.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use weir_core::protocol::moment::Moment;

use super::histogram::Writers;

/// Open waits: all of them, and those that began in each of the last seconds. This is one shard of several. A wait may begin in one shard and end
/// in another, so only the sum over all shards is a number of waits.
#[derive(Debug)]
pub(super) struct Waits {
    open: AtomicI64,
    seconds: [AtomicU64; SECONDS as usize],
}

impl Default for Waits {
    fn default() -> Self {
        Self { open: AtomicI64::new(0), seconds: std::array::from_fn(|_| AtomicU64::new(0)) }
    }
}

impl Waits {
    pub(super) fn begun(&self, at: Moment, writers: Writers) {
        writers.add_signed(&self.open, 1);
        self.add(at, 1, writers);
    }

    pub(super) fn ended(&self, begun: Moment, writers: Writers) {
        writers.add_signed(&self.open, -1);
        self.add(begun, -1, writers);
    }

    /// Returns how many open waits are older than a time.
    pub(super) fn older_than(&self, time: Duration, now: Moment) -> i64 {
        let now = second_of(now);
        let first = now.saturating_sub(time.as_secs().min(u64::from(SECONDS - 1)) as u32);
        let recent = self.seconds.iter().map(|of| unpack(of.load(Ordering::Relaxed)));
        let recent = recent.filter(|(second, _)| (first..=now).contains(second)).map(|(_, count)| i64::from(count));
        self.open.load(Ordering::Relaxed) - recent.sum::<i64>()
    }

    /// Changes the count of one second. Each place of the ring holds one second. A change for a second that has left the ring is dropped: waits of
    /// that second are then counted only in `open`.
    fn add(&self, at: Moment, change: i32, writers: Writers) {
        let second = second_of(at);
        let place = &self.seconds[(second % SECONDS) as usize];
        writers.update(place, |packed| match unpack(packed) {
            (of, count) if of == second => Some(pack(second, count.wrapping_add(change))),
            (of, _) if of > second => None,
            _ => Some(pack(second, change)),
        });
    }
}

/// The length of the ring: more seconds than the longest time that is asked for.
const SECONDS: u32 = 64;

fn second_of(at: Moment) -> u32 {
    u32::try_from((at - Moment::START).as_secs()).unwrap_or(u32::MAX)
}

fn pack(second: u32, count: i32) -> u64 {
    u64::from(second) << 32 | u64::from(count.cast_unsigned())
}

fn unpack(packed: u64) -> (u32, i32) {
    ((packed >> 32) as u32, (packed as u32).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    fn older(waits: &[Waits], seconds: u64, now: u64) -> i64 {
        waits.iter().map(|of| of.older_than(Duration::from_secs(seconds), at(now))).sum()
    }

    #[test]
    fn a_wait_counts_once_it_is_older_than_a_bound_until_it_ends() {
        let waits = [Waits::default(), Waits::default()];
        waits[0].begun(at(100), Writers::One);
        waits[1].begun(at(105), Writers::One);
        assert_eq!([older(&waits, 10, 109), older(&waits, 10, 111), older(&waits, 10, 120)], [0, 1, 2]);
        assert_eq!([older(&waits, 60, 150), older(&waits, 60, 161), older(&waits, 60, 9000)], [0, 1, 2]);
        waits[1].ended(at(100), Writers::Many); // in another shard
        assert_eq!([older(&waits, 10, 111), older(&waits, 10, 120), older(&waits, 60, 9000)], [0, 1, 1]);
        waits[0].ended(at(105), Writers::Many);
        assert_eq!(older(&waits, 10, 9000), 0);
    }

    #[test]
    fn old_waits_stay_counted_when_their_second_is_reused() {
        let waits = [Waits::default()];
        (0..1000).for_each(|second| waits[0].begun(at(second), Writers::One));
        assert_eq!([older(&waits, 10, 999), older(&waits, 60, 999)], [989, 939]);
        (0..900).for_each(|second| waits[0].ended(at(second), Writers::Many));
        assert_eq!([older(&waits, 10, 999), older(&waits, 60, 999)], [89, 39]);
    }

    #[test]
    fn a_random_history_agrees_with_a_plain_list() {
        let waits = [Waits::default(), Waits::default(), Waits::default()];
        let (mut open, mut random) = (Vec::new(), 7u64);
        for now in 0..2000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let shard = &waits[(random % 3) as usize];
            if random % 5 < 3 || open.is_empty() {
                shard.begun(at(now), Writers::One);
                open.push(now);
            } else {
                shard.ended(at(open.swap_remove((random >> 9) as usize % open.len())), Writers::One);
            }
            for bound in [10, 60] {
                let expected = open.iter().filter(|begun| **begun + bound < now).count() as i64;
                assert_eq!(older(&waits, bound, now), expected, "at {now}");
            }
        }
    }
}
