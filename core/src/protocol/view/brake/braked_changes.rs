//! The removals and changes that the brake of one set holds, by name, and by the time at which each is released.
//!
//! Invariant: the counts and the order of the ends are those of the items.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::rules::BrakeRules;
use crate::protocol::keys::SetKey;
use crate::protocol::moment::Moment;
use crate::protocol::view::stage::{UpdateUnit, class_of};
use crate::protocol::view::update::{Evidence, Origin, Update};
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource};

/// A removal that is held, or a change that waits with it. A plain record: [`BrakedChanges`] alone changes one that is held.
#[derive(Debug, Clone)]
pub(super) struct BrakedChange {
    /// By the clock of the hold.
    pub(super) since: Duration,
    pub(super) generation: u64,
    /// The opening on which its server last stated it.
    pub(super) opening: u64,
    pub(super) origin: Origin,
    /// The set would have been empty without it: it is held for the longer time.
    pub(super) emptied: bool,
    pub(super) change: HeldChange,
}

#[derive(Debug, Clone)]
pub(super) enum HeldChange {
    Removal,
    Upsert { resource: Arc<Resource>, is_new: bool },
}

impl BrakedChange {
    pub(super) fn is_removal(&self) -> bool {
        matches!(self.change, HeldChange::Removal)
    }

    fn is_new(&self) -> bool {
        matches!(self.change, HeldChange::Upsert { is_new: true, .. })
    }

    fn due(&self, rules: &BrakeRules) -> Duration {
        self.since + self.grace(rules)
    }

    pub(super) fn grace(&self, rules: &BrakeRules) -> Duration {
        if self.emptied { rules.empty_grace } else { rules.grace }
    }

    /// Returns what the stages after the brakes get once it is released.
    pub(super) fn into_unit(self, (kind, of): &SetKey, key: Name, received: Moment) -> UpdateUnit {
        let (kind, class) = (kind.clone(), class_of(of));
        let update = match self.change {
            HeldChange::Removal => Update::Absent { kind, class, key, evidence: Evidence::Reported },
            HeldChange::Upsert { resource, .. } => Update::Upsert { kind, class, key, resource },
        };
        UpdateUnit { origin: self.origin, received, updates: vec![update] }
    }
}

#[derive(Debug, Default)]
pub(super) struct BrakedChanges {
    items: BTreeMap<Name, BrakedChange>,
    /// When each is released, by the clock.
    by_due: BTreeSet<(Duration, Name)>,
    /// How many there are of each generation.
    generations: BTreeMap<u64, usize>,
    removals: usize,
    /// Changes of names that are not present.
    new_names: usize,
}

impl BrakedChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn get(&self, name: &Name) -> Option<&BrakedChange> {
        self.items.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Name, &BrakedChange)> {
        self.items.iter().inspect(|_| visit())
    }

    pub(super) fn removals(&self) -> usize {
        self.removals
    }

    pub(super) fn new_names(&self) -> usize {
        self.new_names
    }

    /// Returns the highest generation of anything held.
    pub(super) fn generation(&self) -> u64 {
        self.generations.last_key_value().map_or(0, |(generation, _)| *generation)
    }

    pub(super) fn first_due(&self) -> Option<Duration> {
        self.by_due.first().map(|(due, _)| *due)
    }

    pub(super) fn last_due(&self) -> Option<Duration> {
        self.by_due.last().map(|(due, _)| *due)
    }

    pub(super) fn due_of(&self, name: &Name, rules: &BrakeRules) -> Option<Duration> {
        Some(self.items.get(name)?.due(rules))
    }

    /// Holds a change of a name. Returns what was held of the name before.
    pub(super) fn insert(&mut self, name: Name, held: BrakedChange, rules: &BrakeRules) -> Option<BrakedChange> {
        let earlier = self.remove(&name, rules);
        self.removals += usize::from(held.is_removal());
        self.new_names += usize::from(held.is_new());
        self.by_due.insert((held.due(rules), name.clone()));
        *self.generations.entry(held.generation).or_default() += 1;
        self.items.insert(name, held);
        earlier
    }

    pub(super) fn remove(&mut self, name: &Name, rules: &BrakeRules) -> Option<BrakedChange> {
        let held = self.items.remove(name)?;
        self.removals -= usize::from(held.is_removal());
        self.new_names -= usize::from(held.is_new());
        self.by_due.remove(&(held.due(rules), name.clone()));
        if let Some(count) = self.generations.get_mut(&held.generation) {
            *count -= 1;
            if *count == 0 {
                self.generations.remove(&held.generation);
            }
        }
        Some(held)
    }

    /// Records that a server states it on this opening. Returns whether its origin has changed: another server, or the same one in another
    /// role.
    pub(super) fn restate(&mut self, name: &Name, opening: u64, origin: Origin) -> bool {
        let Some(held) = self.items.get_mut(name) else { return false };
        held.opening = opening;
        std::mem::replace(&mut held.origin, origin) != origin
    }

    /// Takes out all that matches. This visits everything that is held.
    pub(super) fn take(
        &mut self,
        rules: &BrakeRules,
        matches: impl Fn(&Name, &BrakedChange) -> bool,
    ) -> Vec<(Name, BrakedChange)> {
        let matching = self.iter().filter(|(name, held)| matches(name, held));
        let names: Vec<_> = matching.map(|(name, _)| name.clone()).collect();
        self.take_names(names, rules)
    }

    /// Takes out what is due at a time of the clock, in the order of the names; `None` takes out everything.
    pub(super) fn take_due(&mut self, until: Option<Duration>, rules: &BrakeRules) -> Vec<(Name, BrakedChange)> {
        let in_order = self.by_due.iter().inspect(|_| visit());
        let is_due = |due: &Duration| until.is_none_or(|until| *due <= until);
        let due: BTreeSet<Name> = in_order.take_while(|(due, _)| is_due(due)).map(|(_, name)| name.clone()).collect();
        self.take_names(due, rules)
    }

    fn take_names(&mut self, names: impl IntoIterator<Item = Name>, rules: &BrakeRules) -> Vec<(Name, BrakedChange)> {
        names.into_iter().filter_map(|name| self.remove(&name, rules).map(|held| (name, held))).collect()
    }
}
