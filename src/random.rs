//! Jitter.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Returns a number between 0 and 1. The seeds of hash maps are random enough for jitter.
pub(crate) fn random() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}
