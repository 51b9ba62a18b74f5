//! Brakes: removals that would take too much of a set at once are held, and their resources served, until a later statement of the
//! server agrees, enough time has passed, or an operator releases them.
//!
//! Owns the brake of each set, and what operators have to know of them. Reads the tables as facts, and changes nothing in them.
//! Invariants: what is held is present; each removal has its own time; an empty set is never agreed to.

mod braked_changes;
mod hold;
mod judgement;
mod report;
pub(super) mod rules;
mod set_brake;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub(crate) use report::Release;
pub use report::{BrakeEvent, BrakeReport, BrakeState, HeldRemoval, NotReleased, ReleaseReason, SetState};
pub use rules::{BrakeRules, Generations};

use self::hold::Hold;
use self::set_brake::{Outcome, Said, SetBrake};
use super::stage::{HoldTimes, StageFacts, UpdateUnit};
use super::update::Update;
use crate::protocol::keys::{Class, Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::wait::WaitList;
use crate::xds::{Name, TypeTable};

/// The brakes of a view.
#[derive(Debug, Default)]
pub(super) struct Brakes {
    sets: BTreeMap<SetKey, SetBrake>,
    /// Increases with each event. When the brake of a set is forgotten, the changes that it counted are added.
    changes: u64,
    /// The changes when the state was last taken.
    taken: u64,
    events: Vec<BrakeEvent>,
    /// Sets with judged updates that are not in the tables yet, each with the statement that was judged; `None` after a release.
    unsettled: Vec<(SetKey, Option<Said>)>,
}

impl Brakes {
    /// Splits a response by sets, since each set is applied before the next is judged. An interruption begins another part.
    pub(super) fn parts(&self, unit: UpdateUnit, facts: &StageFacts) -> Vec<(Option<SetKey>, UpdateUnit)> {
        if !facts.options().brakes.is_any() {
            return vec![(None, unit)];
        }
        let UpdateUnit { origin, received, updates } = unit;
        let mut parts: Vec<(Option<SetKey>, UpdateUnit)> = Vec::new();
        for update in updates {
            let set = braked_set(&update, facts);
            let at = match &set {
                _ if matches!(update, Update::Interrupted { .. }) => None,
                None => parts.len().checked_sub(1).filter(|last| parts[*last].0.is_none()),
                Some(_) => parts.iter().rposition(|(of, _)| *of == set),
            };
            match at {
                Some(at) => parts[at].1.updates.push(update),
                None => parts.push((set, UpdateUnit { origin, received, updates: vec![update] })),
            }
        }
        parts
    }

    /// Judges what a response says of one set, or of what has no brake. Returns the part that passes, and what is released because of it.
    pub(super) fn judge(
        &mut self,
        set: Option<SetKey>,
        unit: UpdateUnit,
        facts: &StageFacts,
        now: Moment,
    ) -> (UpdateUnit, Vec<UpdateUnit>) {
        let Some(set) = set.filter(|set| facts.is_set_wanted(set)) else {
            unit.updates.iter().for_each(|update| self.note_end(update, facts));
            return (unit, Vec::new());
        };
        let (passed, outcome, said) = self.sets.entry(set.clone()).or_default().judge(&set, unit, facts, now);
        self.unsettled.push((set, Some(said)));
        (passed, self.record(outcome))
    }

    /// A resource that has expired was not removed by its server.
    fn note_end(&mut self, update: &Update, facts: &StageFacts) {
        let rules = &facts.options().brakes;
        if let Update::Expired { kind, class, key } = update
            && rules.concerns(kind)
            && let Some(brake) = facts.set_of(kind, *class, key).and_then(|set| self.sets.get_mut(&set))
        {
            brake.expired(key, rules);
        }
    }

    /// Updates the brakes from the tables, once everything that passed is in them. Returns the units that follow from that.
    pub(super) fn settle(&mut self, facts: &StageFacts, now: Moment) -> Vec<UpdateUnit> {
        let mut units = Vec::new();
        for (set, said) in std::mem::take(&mut self.unsettled) {
            let Some(brake) = self.sets.get_mut(&set) else { continue };
            let outcome = brake.settle(&set, said, facts, now);
            if brake.is_blank() {
                self.sets.remove(&set);
            }
            units.extend(self.record(outcome));
        }
        units
    }

    /// Lets go what has been held for long enough.
    pub(super) fn on_time(&mut self, rules: &BrakeRules, now: Moment) -> Vec<UpdateUnit> {
        let is_due = |hold: &Hold| hold.is_due(now, rules);
        let due: Vec<_> = self.holds().filter(|(_, hold)| is_due(hold)).map(|(set, _)| set.clone()).collect();
        let mut units = Vec::new();
        for set in due {
            let Some(brake) = self.sets.get_mut(&set) else { continue };
            let outcome = brake.release_due(&set, rules, now);
            units.extend(self.record(outcome));
            self.unsettled.push((set, None));
        }
        units
    }

    /// Releases what an operator has seen. Returns how many removals that were, and what passes now. Changes may pass although no removal
    /// does.
    pub(super) fn release(
        &mut self,
        what: Release,
        rules: &BrakeRules,
        now: Moment,
    ) -> (Result<usize, NotReleased>, Vec<UpdateUnit>) {
        let is_meant = |set: &SetKey| what.of.is_none_or(|(kind, of)| set.0 == *kind && set.1 == *of);
        let sets: Vec<_> = self.holds().map(|(set, _)| set.clone()).filter(is_meant).collect();
        let (mut count, mut is_later, mut units) = (0, false, Vec::new());
        for set in sets {
            let Some(brake) = self.sets.get_mut(&set) else { continue };
            let (outcome, removals, has_later) = brake.release(&set, (what.generation, what.server), rules, now);
            count += removals;
            is_later |= has_later;
            units.extend(self.record(outcome));
            self.unsettled.push((set, None));
        }
        let outcome = match count {
            0 if is_later => Err(NotReleased::Later),
            0 => Err(NotReleased::NothingHeld),
            count => Ok(count),
        };
        (outcome, units)
    }

    /// Records an event, and returns what passes.
    fn record(&mut self, (units, event): Outcome) -> Vec<UpdateUnit> {
        if let Some(event) = event {
            self.changes += 1;
            if self.events.len() < MAX_EVENTS {
                self.events.push(event);
            }
        }
        units
    }

    pub(super) fn next_deadline(&self, rules: &BrakeRules) -> Option<Moment> {
        self.holds().filter_map(|(_, hold)| hold.next_due(rules)).min()
    }

    pub(super) fn forget(&mut self, set: &SetKey) {
        let Some(brake) = self.sets.remove(set) else { return };
        self.changes += brake.changes() + u64::from(brake.hold().is_some());
    }

    /// Whether anything is held.
    pub(super) fn is_any(&self) -> bool {
        self.holds().next().is_some()
    }

    fn holds(&self) -> impl Iterator<Item = (&SetKey, &Hold)> {
        self.sets.iter().filter_map(|(set, brake)| Some((set, brake.hold()?)))
    }

    fn hold(&self, set: &SetKey) -> Option<&Hold> {
        self.sets.get(set)?.hold()
    }

    /// Whether the server has removed a resource of a set on its present opening, and that removal is held.
    pub(super) fn is_removed_now(&self, set: &SetKey, name: &Name) -> bool {
        self.hold(set).is_some_and(|hold| hold.is_removed_now(name))
    }

    /// Returns since when the set has a hold, and until when something of a name is held, if anything is.
    pub(super) fn times_of(&self, set: &SetKey, name: &Name, rules: &BrakeRules) -> Option<HoldTimes> {
        self.hold(set)?.times_of(name, rules)
    }

    /// Returns a number that changes with what is held.
    pub(super) fn changes(&self) -> u64 {
        self.changes + self.sets.values().map(SetBrake::changes).sum::<u64>()
    }

    /// Whether there were changes since the last call.
    pub(super) fn take_news(&mut self) -> bool {
        let changes = self.changes();
        std::mem::replace(&mut self.taken, changes) != changes
    }

    pub(super) fn take_events(&mut self) -> Vec<BrakeEvent> {
        std::mem::take(&mut self.events)
    }

    /// Returns what is held, each set with a limited number of names.
    pub(super) fn reports(&self, rules: &BrakeRules, names: usize) -> Vec<BrakeReport> {
        self.holds().map(|(set, hold)| hold.report(set, rules, names)).collect()
    }

    /// Adds everything that is held.
    pub(super) fn add_waits(&self, rules: &BrakeRules, now: Moment, list: &mut WaitList) {
        self.holds().for_each(|(set, hold)| hold.add_waits(set, rules, now, list));
    }

    pub(super) fn state(&self, rules: &BrakeRules, now: Moment) -> BrakeState {
        BrakeState { sets: self.sets.iter().filter_map(|(set, brake)| brake.save(set, rules, now)).collect() }
    }

    /// Continues what another process held, of names that are present.
    pub(super) fn restore(
        &mut self,
        state: &BrakeState,
        table: &TypeTable,
        rules: &BrakeRules,
        is_present: impl Fn(&SetKey, &Name) -> bool,
        now: Moment,
    ) {
        for saved in &state.sets {
            let kind = table.resolve(&saved.type_name);
            if rules.concerns(&kind) {
                let set = (kind, saved.glob.clone().map_or(Selector::Wildcard, Selector::Name));
                let is_present = |name: &Name| is_present(&set, name);
                self.sets.entry(set.clone()).or_default().restore(saved, is_present, rules, now);
            }
        }
    }
}

/// Returns the set with a brake that an update concerns.
fn braked_set(update: &Update, facts: &StageFacts) -> Option<SetKey> {
    let (kind, subject) = update.subject();
    if !facts.options().brakes.concerns(kind) || matches!(update, Update::Expired { .. }) {
        return None;
    }
    let set = match subject {
        None => (kind.clone(), Selector::Wildcard),
        Some((Class::Named, name)) if name.is_glob() => (kind.clone(), Selector::Name(name.clone())),
        Some((class, name)) => facts.set_of(kind, class, name)?,
    };
    // That one name was interrupted does not interrupt its collection.
    let is_of_one = matches!(update, Update::Interrupted { of, .. } if *of != set.1);
    (!is_of_one).then_some(set)
}

/// Events that are kept until they are taken.
const MAX_EVENTS: usize = 256;
