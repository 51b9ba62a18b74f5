//! Counters that one thread alone may write, and does so without a locked instruction.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Who writes the counters of a shard. All may read them.
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

    /// Replaces a value unless `change` returns none.
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
