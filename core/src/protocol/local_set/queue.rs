//! The names that a local set has yet to check for a view: queued names, and a pass over everything.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use super::snapshot::Items;
use crate::xds::Name;

#[derive(Debug, Default)]
pub(super) struct Queue {
    names: BTreeSet<Name>,
    /// A pass over everything: the last name that was checked, if any was. The outer `None` means that there is no pass.
    sweep: Option<Option<Name>>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty() && self.sweep.is_none()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn insert(&mut self, name: Name) {
        self.names.insert(name);
    }

    pub(super) fn extend(&mut self, names: impl IntoIterator<Item = Name>) {
        self.names.extend(names);
    }

    pub(super) fn remove(&mut self, name: &Name) {
        self.names.remove(name);
    }

    pub(super) fn retain(&mut self, stays: impl Fn(&Name) -> bool) {
        self.names.retain(stays);
    }

    /// Begins a pass over everything.
    pub(super) fn begin_pass(&mut self) {
        self.sweep = Some(None);
    }

    /// Returns the next names in order, at most `most`. Queued names come first. If there are none, they come from the pass: over `wanted`, and
    /// over `items` if a set is wanted that may contain them.
    pub(super) fn next(&mut self, most: usize, wanted: &BTreeSet<Name>, items: Option<&Items>) -> BTreeSet<Name> {
        if !self.names.is_empty() {
            let rest = self.names.iter().nth(most).cloned();
            let rest = rest.map(|rest| self.names.split_off(&rest)).unwrap_or_default();
            return std::mem::replace(&mut self.names, rest);
        }
        let Some(after) = self.sweep.take() else { return BTreeSet::new() };
        let from = (after.as_ref().map_or(Unbounded, Excluded), Unbounded);
        let mut names: BTreeSet<Name> = wanted.range::<Name, _>(from).take(most).cloned().collect();
        if let Some(items) = items {
            names.extend(items.range::<Name, _>(from).take(most).map(|(name, _)| name.clone()));
        }
        // Both gave their first `most` names, so the first `most` of both together are among them.
        if let Some(rest) = names.iter().nth(most).cloned() {
            names.split_off(&rest);
        }
        self.sweep = names.last().map(|last| Some(last.clone()));
        names
    }
}
