//! A counter that all threads may add to without writing one line of memory: each has a place of its own, and the places are added up when the
//! counter is read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{own_place, thread_places};

#[derive(Debug)]
pub(crate) struct ThreadCounter(Box<[PaddedCount]>);

#[derive(Debug, Default)]
#[repr(align(128))] // no two places on one cache line, nor on two that are fetched together
struct PaddedCount(AtomicU64);

impl Default for ThreadCounter {
    fn default() -> Self {
        Self((0..thread_places()).map(|_| PaddedCount::default()).collect())
    }
}

impl ThreadCounter {
    pub(crate) fn add_one(&self) {
        let (place, writers) = own_place(self.0.len());
        writers.add(&self.0[place].0, 1);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|place| place.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_more_threads_count_than_have_places_of_their_own_is_added_up() {
        let counter = ThreadCounter::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * counter.0.len() {
                scope.spawn(|| (0..1000).for_each(|_| counter.add_one()));
            }
        });
        assert_eq!(counter.count(), 2000 * counter.0.len() as u64);
    }
}
