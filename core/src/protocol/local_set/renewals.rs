//! When resources with a TTL are reported again, so that they do not expire while the source has them.
//!
//! Invariant: each name has at most one moment, which is removed with the name.

use std::collections::{BTreeMap, BTreeSet};

use crate::protocol::moment::Moment;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct Renewals {
    moments: BTreeMap<Name, Moment>,
    order: BTreeSet<(Moment, Name)>,
}

impl Renewals {
    pub(super) fn insert(&mut self, name: Name, at: Moment) {
        self.remove(&name);
        self.order.insert((at, name.clone()));
        self.moments.insert(name, at);
    }

    pub(super) fn remove(&mut self, name: &Name) {
        if let Some((name, at)) = self.moments.remove_entry(name) {
            self.order.remove(&(at, name));
        }
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Name) -> bool) {
        self.moments.retain(|name, _| stays(name));
        self.order.retain(|(_, name)| stays(name));
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Returns a name whose moment has come, and forgets it.
    pub(super) fn take_due(&mut self, now: Moment) -> Option<Name> {
        self.next().filter(|at| *at <= now)?;
        let (_, name) = self.order.pop_first()?;
        self.moments.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn i1_what_changes_often_or_is_released_leaves_no_moments_behind() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let mut renewals = Renewals::default();
        for round in 0..100 {
            renewals.insert("a".into(), at(1_000 + round));
            renewals.insert(format!("b{round}").into(), at(1_000));
            renewals.remove(&format!("b{round}").into());
        }
        assert_eq!((renewals.order.len(), renewals.moments.len(), renewals.next()), (1, 1, Some(at(1_099))));
        renewals.insert("c".into(), at(1));
        renewals.retain(|name| name.as_str() == "c");
        assert_eq!((renewals.order.len(), renewals.moments.len()), (1, 1));
        assert_eq!(renewals.take_due(at(0)), None);
        assert_eq!((renewals.take_due(at(1)), renewals.take_due(at(9))), (Some("c".into()), None));
        assert!(renewals.moments.is_empty());
    }
}
