//! Applies the updates of sets that have brakes: holds removals that are too much, and lets them go (see `view/brake`).

mod passing;
mod release;
mod statement;
#[cfg(test)]
mod tests;

use super::View;
use super::brake::{BrakeEvent, BrakeReport, BrakeState, SetKey};
use super::class::Class;
use super::interest::Selector;
use super::resource_table::ResourceTable;
use super::update::{Completeness, Update};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::xds::{Name, Type};

impl View {
    /// Applies the updates of one response, except removals that brakes hold.
    pub(super) fn apply_braked(&mut self, updates: Vec<Update>, now: Moment) {
        if !self.limits.brakes.is_any() {
            return updates.into_iter().for_each(|update| self.apply_one(update, now));
        }
        for (set, updates) in self.by_set(updates) {
            match set {
                Some(set) if self.is_set_wanted(&set) => self.apply_to_set(&set, updates, now),
                _ => updates.into_iter().for_each(|update| self.apply_one(update, now)),
            }
        }
    }

    /// Gathers the updates of each set that has a brake. An interruption begins another statement.
    fn by_set(&self, updates: Vec<Update>) -> Vec<(Option<SetKey>, Vec<Update>)> {
        let mut groups: Vec<(Option<SetKey>, Vec<Update>)> = Vec::new();
        for update in updates {
            let set = self.braked_set(&update);
            let at = match &set {
                _ if matches!(update, Update::Interrupted { .. }) => None,
                None => groups.len().checked_sub(1).filter(|last| groups[*last].0.is_none()),
                Some(_) => groups.iter().rposition(|(of, _)| *of == set),
            };
            match at {
                Some(at) => groups[at].1.push(update),
                None => groups.push((set, vec![update])),
            }
        }
        groups
    }

    /// Returns the set with a brake that an update concerns.
    fn braked_set(&self, update: &Update) -> Option<SetKey> {
        let (kind, subject) = update.subject();
        if !self.limits.brakes.concerns(kind) {
            return None;
        }
        let of = match subject {
            None | Some((Class::Wildcard, _)) => Selector::Wildcard,
            Some((Class::Named, name)) if name.is_glob() => Selector::Name(name.clone()),
            Some((Class::Named, name)) => Selector::Name(self.interest.collection(kind, name)?),
        };
        // An interruption of one name is none of its collection.
        let is_of_one = matches!(update, Update::Interrupted { of: own, .. } if *own != of);
        (!is_of_one).then(|| (kind.clone(), of))
    }

    fn is_set_wanted(&self, (kind, of): &SetKey) -> bool {
        match of {
            Selector::Wildcard => self.interest.has_wildcard(kind),
            Selector::Name(glob) => self.interest.covers(kind, glob),
        }
    }

    fn apply_to_set(&mut self, set: &SetKey, updates: Vec<Update>, now: Moment) {
        let limits = self.limits.clone();
        let rules = &limits.brakes;
        self.note_opening(set, &updates, now);
        let (before, served) = (self.intended_size(set), self.served_size(set));
        let statement = self.read_statement(set, &updates, before);
        let mut is_new = false;
        if self.brakes.hold(set).is_none() && statement.shrinks(before) && !self.origin.skips_brakes {
            let start = match limits.faults.has(Fault::BrakeForgetsDrip) {
                true => before,
                false => self.brakes.start_size(set, before, now, rules),
            };
            // All of what there is now is all of it, also if there was nothing at the start of the window.
            let after = statement.size_after(before);
            let start = if after == 0 { start.max(before) } else { start };
            is_new = rules.is_too_much(start, after);
            if is_new {
                self.brakes.engage(set, start, now);
            }
        }
        if self.brakes.hold(set).is_none() {
            updates.into_iter().for_each(|update| self.apply_one(update, now));
        } else {
            self.apply_to_hold(set, updates, &statement, now);
            if let Some(hold) = self.brakes.hold(set).filter(|_| is_new) {
                self.brakes.record(BrakeEvent::Engaged {
                    kind: set.0.clone(),
                    of: set.1.clone(),
                    server: self.origin.server,
                    generation: hold.generation(),
                    held: hold.removals(),
                    size: hold.start_size,
                });
            }
        }
        self.brakes.record_size(set, served, self.served_size(set), now, rules);
    }

    /// Records what the updates say of the life of the server's statement.
    fn note_opening(&mut self, set: &SetKey, updates: &[Update], now: Moment) {
        for update in updates {
            match update {
                Update::Interrupted { .. } => self.brakes.interrupted(set, now),
                Update::FullSet { .. } | Update::Unchanged { .. } => {
                    if self.origin.is_polled {
                        self.brakes.polled(set);
                    }
                    self.brakes.stands(set, now);
                }
                Update::Progress { completeness, .. } if *completeness >= Completeness::Settled => {
                    self.brakes.stands(set, now);
                }
                _ => {}
            }
        }
    }

    /// Returns how many resources a set would have if nothing were held.
    fn intended_size(&self, set: &SetKey) -> usize {
        let (held, new) = self.brakes.hold(set).map_or((0, 0), |hold| (hold.removals(), hold.new_names()));
        (self.served_size(set) + new).saturating_sub(held)
    }

    /// Returns how many resources a set has, but for those that go once nothing leads to them.
    fn served_size(&self, set: &SetKey) -> usize {
        let (kind, of) = set;
        let class = class_of(of);
        let table = self.tables.get(&(kind.clone(), class));
        let present = match of {
            Selector::Wildcard => table.map_or(0, ResourceTable::present),
            Selector::Name(glob) => table.and_then(|table| table.collection(glob)).map_or(0, |of| of.len()),
        };
        let doomed = self.order.doomed(kind, class).filter(|name| match of {
            Selector::Wildcard => true,
            Selector::Name(glob) => name.collection().as_ref() == Some(glob),
        });
        present.saturating_sub(doomed.count())
    }

    /// Whether upstream has it, as far as is known: it is present, and not only because a removal waits for others.
    fn is_intended(&self, kind: &Type, class: Class, name: &Name) -> bool {
        self.entry(kind, class, name).is_some_and(|entry| entry.resource().is_some())
            && !self.is_doomed(kind, class, name)
    }

    /// Returns the set with a brake that a name belongs to.
    fn braked_set_of(&self, kind: &Type, class: Class, name: &Name) -> Option<SetKey> {
        let of = match class {
            Class::Wildcard => Selector::Wildcard,
            Class::Named => Selector::Name(self.interest.collection(kind, name)?),
        };
        Some((kind.clone(), of))
    }

    /// Returns whether the server has removed a resource on its present opening, and a brake holds that.
    pub(super) fn is_held_back(&self, kind: &Type, class: Class, name: &Name) -> bool {
        self.brakes.is_any()
            && self
                .braked_set_of(kind, class, name)
                .and_then(|set| self.brakes.hold(&set))
                .is_some_and(|hold| hold.is_removed_now(name))
    }

    /// A resource has expired: that is no removal by its server.
    pub(super) fn note_expired(&mut self, kind: &Type, class: Class, name: &Name) {
        if self.limits.brakes.concerns(kind)
            && let Some(set) = self.braked_set_of(kind, class, name)
        {
            let limits = self.limits.clone();
            self.brakes.expired(&set, name, &limits.brakes);
        }
    }

    /// Returns the brakes that hold something, each with at most so many names.
    pub fn brakes(&self, names: usize) -> Vec<BrakeReport> {
        let rules = &self.limits.brakes;
        self.brakes.holds().map(|(set, hold)| BrakeReport::of(set, hold, rules, names)).collect()
    }

    /// Returns a number that changes with what the brakes hold.
    pub(crate) fn brake_changes(&self) -> u64 {
        self.brakes.changes()
    }

    /// Returns what has happened to brakes since the last call.
    pub fn take_brake_events(&mut self) -> Vec<BrakeEvent> {
        self.brakes.take_events()
    }

    /// Whether anything is held.
    pub(crate) fn is_braked(&self) -> bool {
        self.brakes.is_any()
    }

    /// Returns what [`Self::brake_state`] does, if what is held has changed since the last call: nothing else of it would be news.
    pub fn take_brake_state(&mut self, now: Moment) -> Option<BrakeState> {
        self.brakes.take_news().then(|| self.brake_state(now))
    }

    /// Returns what another process needs to go on with the brakes.
    pub fn brake_state(&self, now: Moment) -> BrakeState {
        self.brakes.state(&self.limits.brakes, now)
    }

    /// Goes on with the brakes of another process. Names that are not present are left out: the tables are restored first.
    pub fn restore_brakes(&mut self, state: &BrakeState, now: Moment) {
        let tables = &self.tables;
        let is_present = |(kind, of): &SetKey, name: &Name| {
            let entry = tables.get(&(kind.clone(), class_of(of))).and_then(|table| table.get(name));
            entry.is_some_and(|entry| entry.resource().is_some())
        };
        self.brakes.restore(state, &self.table, &self.limits.brakes, is_present, now);
    }
}

/// Returns the class of the members of a set.
fn class_of(of: &Selector) -> Class {
    match of {
        Selector::Wildcard => Class::Wildcard,
        Selector::Name(_) => Class::Named,
    }
}
