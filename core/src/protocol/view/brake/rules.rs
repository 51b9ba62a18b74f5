//! When a brake engages, and for how long it holds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::xds::Type;

/// Which sets have brakes, and what they do. The default has none.
#[derive(Debug, Clone, Default)]
pub struct BrakeRules {
    /// The full names of the types whose sets have brakes. v2 types follow their successors.
    pub types: BTreeSet<Box<str>>,
    /// Removals are held if they would take more than this percentage of a set and at least `count` of it, or all of it.
    pub share: u8,
    /// See `share`.
    pub count: usize,
    /// The time over which removals are counted together.
    pub window: Duration,
    /// How long a removal is held.
    pub grace: Duration,
    /// How long the removals from a set that would be empty are held.
    pub empty_grace: Duration,
    /// How long a removal has to be held before a later opening or poll of the same server can end the grace.
    pub agree_after: Duration,
    /// How long the first words of a server after an outage are held, if they take something away from clients. Zero: not at all.
    pub after_outage: Duration,
    /// Numbers the removals that are held together. Shared by all views of a process.
    pub generations: Generations,
}

impl BrakeRules {
    /// Whether any type has brakes.
    pub(crate) fn is_any(&self) -> bool {
        !self.types.is_empty()
    }

    /// Whether sets of this type have brakes.
    pub(crate) fn concerns(&self, kind: &Type) -> bool {
        let name = kind.info().successor.as_deref().unwrap_or(kind.name());
        self.types.contains(kind.name()) || self.types.contains(name)
    }

    /// Whether it is too much if a set of `before` resources would have `after` of them.
    pub(crate) fn is_too_much(&self, before: usize, after: usize) -> bool {
        let lost = before.saturating_sub(after);
        let share = lost as u128 * 100 > before as u128 * u128::from(self.share);
        lost > 0 && (after == 0 || share && lost >= self.count.max(1))
    }
}

/// Gives each group of held removals a number that no other has, so that a release names what it lets through.
#[derive(Debug, Clone, Default)]
pub struct Generations(Arc<AtomicU64>);

impl Generations {
    /// Starts after a number. If it is the time of day at the start, a process does not give a number of the process before it again.
    pub fn after(last: u64) -> Self {
        Self(Arc::new(AtomicU64::new(last)))
    }

    /// Skips the numbers up to this one, because another process may have given them.
    pub fn skip_to(&self, last: u64) {
        self.0.fetch_max(last.min(u64::MAX / 2), Ordering::Relaxed); // a file may have any number
    }

    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xds::TypeTable;

    fn rules() -> BrakeRules {
        BrakeRules { share: 30, count: 10, ..BrakeRules::default() }
    }

    #[test]
    fn a_share_and_a_count_together_are_too_much() {
        assert!(!rules().is_too_much(100, 70), "not more than the share");
        assert!(rules().is_too_much(100, 69));
        assert!(!rules().is_too_much(20, 11), "45 %, but only 9 of them");
        assert!(rules().is_too_much(20, 10));
        assert!(!rules().is_too_much(1000, 980), "20, but only 2 %");
    }

    #[test]
    fn all_of_a_set_is_always_too_much() {
        assert!(rules().is_too_much(1, 0));
        assert!(rules().is_too_much(5, 0));
        assert!(!rules().is_too_much(0, 0), "nothing is lost");
    }

    #[test]
    fn growth_is_never_too_much() {
        assert!(!rules().is_too_much(10, 10) && !rules().is_too_much(0, 10) && !rules().is_too_much(10, 20));
    }

    #[test]
    fn v2_types_follow_their_successors() {
        let table = TypeTable::new().with_v2(true);
        let types = BTreeSet::from(["envoy.config.cluster.v3.Cluster".into()]);
        let rules = BrakeRules { types, ..rules() };
        assert!(rules.concerns(&table.resolve("envoy.config.cluster.v3.Cluster")));
        assert!(rules.concerns(&table.resolve("envoy.api.v2.Cluster")));
        assert!(!rules.concerns(&table.resolve("envoy.config.listener.v3.Listener")));
    }

    #[test]
    fn generations_are_not_given_twice() {
        let first = Generations::after(7);
        let same = first.clone();
        assert_eq!((first.next(), same.next(), first.next()), (8, 9, 10));
    }
}
