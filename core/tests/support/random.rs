//! What random histories share: the generator, and how many of them there are.

use std::ops::Range;

/// A generator of random numbers with the same results on all machines.
pub struct Random(u64);

impl Random {
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Returns the place of one of `count` items.
    pub fn place(&mut self, count: usize) -> usize {
        self.below(count as u64) as usize
    }

    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.place(at + 1));
        }
    }
}

/// Returns the number in an environment variable, if it is set.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}
