//! Compares what is charged with what the allocator has given out.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns the bytes that the allocator has given out, if it reports them.
pub(crate) type LiveBytes = fn() -> Option<usize>;

/// The factor by which charged bytes are corrected when it is decided who gets more.
#[derive(Debug)]
pub(super) struct Scale {
    /// In thousandths.
    thousandths: AtomicUsize,
}

impl Default for Scale {
    fn default() -> Self {
        Self { thousandths: AtomicUsize::new(ONE) }
    }
}

impl Scale {
    /// Takes what the allocator has given out and what is charged. The correction follows over a minute. Below 100 MiB it returns to none.
    pub(super) fn note(&self, live: usize, charged: usize) {
        let found = if live.max(charged) < WORTHWHILE { ONE } else { ratio(live, charged).clamp(LEAST, MOST) };
        let before = self.thousandths();
        self.thousandths.store((before * (SMOOTHED - 1) + found) / SMOOTHED, Ordering::Relaxed);
    }

    pub(super) fn thousandths(&self) -> usize {
        self.thousandths.load(Ordering::Relaxed)
    }

    pub(super) fn apply(&self, bytes: usize) -> usize {
        (bytes as u128 * self.thousandths() as u128 / ONE as u128) as usize
    }

    /// Returns the charged bytes that correspond to bytes in use.
    pub(super) fn undo(&self, bytes: usize) -> usize {
        (bytes as u128 * ONE as u128 / self.thousandths() as u128) as usize
    }
}

fn ratio(live: usize, charged: usize) -> usize {
    (live as u128 * ONE as u128 / charged.max(1) as u128).min(usize::MAX as u128) as usize
}

const ONE: usize = 1000;
const LEAST: usize = 800;
const MOST: usize = 1500;
/// How many samples a correction takes to follow: those of a minute.
const SMOOTHED: usize = 6;
const WORTHWHILE: usize = 100 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_correction_follows_slowly_and_within_bounds() {
        let scale = Scale::default();
        scale.note(50 << 20, 10 << 20);
        assert_eq!(scale.thousandths(), ONE, "small numbers say nothing");
        scale.note(1200 << 20, 1000 << 20);
        assert_eq!(scale.thousandths(), 1033);
        (0..60).for_each(|_| scale.note(1200 << 20, 1000 << 20));
        assert!((1190..=1200).contains(&scale.thousandths()), "{scale:?}");
        (0..60).for_each(|_| scale.note(9000 << 20, 1000 << 20));
        assert!((1490..=1500).contains(&scale.thousandths()), "{scale:?}");
        (0..60).for_each(|_| scale.note(1 << 20, 1000 << 20));
        assert!((800..=806).contains(&scale.thousandths()), "{scale:?}");
        assert_eq!(scale.undo(scale.apply(1 << 30)) >> 20, 1023);
    }
}
