//! What the brake of one set holds: removals, and in some types the changes that came with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::rules::BrakeRules;
use crate::protocol::moment::{Clock, Moment};
use crate::protocol::view::update::Origin;
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource};

/// The held part of one set. It exists while something is held.
#[derive(Debug)]
pub(crate) struct Hold {
    /// The size of the set that the loss is measured against.
    pub(crate) start_size: usize,
    pub(crate) since: Moment,
    pub(crate) clock: Clock,
    /// When the set became empty, by the clock.
    pub(crate) empty_since: Option<Duration>,
    /// The opening, or the poll, of the server.
    pub(crate) opening: u64,
    /// The set was complete when it was held whole, and is once that passes.
    pub(crate) complete: bool,
    items: BTreeMap<Name, Held>,
    /// When each is let go, by the clock.
    by_due: BTreeSet<(Duration, Name)>,
    /// How many there are of each generation.
    generations: BTreeMap<u64, usize>,
    removals: usize,
    /// Removals that the server has taken back.
    taken_back: usize,
    /// Held changes of names that are not present.
    new: usize,
    /// Increases with each change of what is held, or of whether its time passes.
    changes: u64,
}

#[derive(Debug, Clone)]
pub(crate) struct Held {
    /// By the clock of the hold.
    pub(crate) since: Duration,
    pub(crate) generation: u64,
    /// When its server last stated it.
    pub(crate) opening: u64,
    pub(crate) source: Origin,
    /// The set would have been empty without it: it is held for the longer time.
    pub(crate) emptied: bool,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Removal,
    Change { resource: Arc<Resource>, is_new: bool },
}

impl Held {
    pub(crate) fn is_removal(&self) -> bool {
        matches!(self.what, What::Removal)
    }

    fn is_new(&self) -> bool {
        matches!(self.what, What::Change { is_new: true, .. })
    }

    fn due(&self, rules: &BrakeRules) -> Duration {
        self.since + self.grace(rules)
    }

    fn grace(&self, rules: &BrakeRules) -> Duration {
        if self.emptied { rules.empty_grace } else { rules.grace }
    }
}

impl Hold {
    pub(crate) fn new(start_size: usize, clock: Clock, now: Moment) -> Self {
        let (empty_since, opening, complete) = Default::default();
        let (items, by_due, generations, removals, taken_back, new, changes) = Default::default();
        Self {
            start_size,
            since: now,
            clock,
            empty_since,
            opening,
            complete,
            items,
            by_due,
            generations,
            removals,
            taken_back,
            new,
            changes,
        }
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn stop_clock(&mut self, now: Moment) {
        self.changes += u64::from(self.clock.runs());
        self.clock.stop(now);
    }

    pub(crate) fn start_clock(&mut self, now: Moment) {
        self.changes += u64::from(!self.clock.runs());
        self.clock.start(now);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn removals(&self) -> usize {
        self.removals
    }

    pub(crate) fn taken_back(&self) -> usize {
        self.taken_back
    }

    pub(crate) fn new_names(&self) -> usize {
        self.new
    }

    pub(crate) fn get(&self, name: &Name) -> Option<&Held> {
        self.items.get(name)
    }

    pub(crate) fn has_removal(&self, name: &Name) -> bool {
        self.items.get(name).is_some_and(Held::is_removal)
    }

    /// Whether it is removed according to the present opening of the server. What an earlier opening removed has to be stated again.
    pub(crate) fn is_removed_now(&self, name: &Name) -> bool {
        self.items.get(name).is_some_and(|held| held.is_removal() && held.opening == self.opening)
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = (&Name, &Held)> {
        self.items.iter().inspect(|_| visit())
    }

    pub(crate) fn insert(&mut self, name: Name, held: Held, rules: &BrakeRules) {
        self.remove(&name, rules);
        self.changes += 1;
        self.removals += usize::from(held.is_removal());
        self.new += usize::from(held.is_new());
        self.by_due.insert((held.due(rules), name.clone()));
        *self.generations.entry(held.generation).or_default() += 1;
        self.items.insert(name, held);
    }

    pub(crate) fn remove(&mut self, name: &Name, rules: &BrakeRules) -> Option<Held> {
        let held = self.items.remove(name)?;
        self.changes += 1;
        self.removals -= usize::from(held.is_removal());
        self.new -= usize::from(held.is_new());
        self.by_due.remove(&(held.due(rules), name.clone()));
        self.leave_generation(held.generation);
        Some(held)
    }

    fn leave_generation(&mut self, generation: u64) {
        if let Some(count) = self.generations.get_mut(&generation) {
            *count -= 1;
            if *count == 0 {
                self.generations.remove(&generation);
            }
        }
    }

    /// The server has the resource again.
    pub(crate) fn take_back(&mut self, name: &Name, rules: &BrakeRules) {
        if self.has_removal(name) {
            self.remove(name, rules);
            self.taken_back += 1;
        }
    }

    /// The server has the resource as it is in the table: what is held of the name is out of date, a removal or a change.
    pub(crate) fn cancel(&mut self, name: &Name, rules: &BrakeRules) {
        self.take_back(name, rules);
        self.remove(name, rules);
    }

    /// Records that the server states a removal again.
    pub(crate) fn restate(&mut self, name: &Name, source: Origin) {
        let opening = self.opening;
        if let Some(held) = self.items.get_mut(name) {
            self.changes += u64::from(held.source != source);
            (held.opening, held.source) = (opening, source);
        }
    }

    /// Takes out all that matches. It looks at everything that is held.
    pub(crate) fn take(&mut self, rules: &BrakeRules, matches: impl Fn(&Name, &Held) -> bool) -> Vec<(Name, Held)> {
        let matching = self.items().filter(|(name, held)| matches(name, held));
        let names: Vec<_> = matching.map(|(name, _)| name.clone()).collect();
        self.take_names(names, rules)
    }

    fn take_names(&mut self, names: impl IntoIterator<Item = Name>, rules: &BrakeRules) -> Vec<(Name, Held)> {
        names.into_iter().filter_map(|name| self.remove(&name, rules).map(|held| (name, held))).collect()
    }

    /// Takes out what has been held for long enough.
    pub(crate) fn take_due(&mut self, now: Moment, rules: &BrakeRules) -> Vec<(Name, Held)> {
        if self.next_due(rules).is_none_or(|at| at > now) {
            return Vec::new();
        }
        let time = self.clock.read(now);
        let all = self.empty_since.is_some();
        let in_order = self.by_due.iter().inspect(|_| visit());
        let due: BTreeSet<Name> =
            in_order.take_while(|(due, _)| all || *due <= time).map(|(_, name)| name.clone()).collect();
        self.take_names(due, rules)
    }

    /// Returns when something will have been held for long enough; nothing while the server's set does not stand.
    pub(crate) fn next_due(&self, rules: &BrakeRules) -> Option<Moment> {
        self.when(self.by_due.first(), rules)
    }

    /// Returns when all of it will have been held for long enough.
    pub(crate) fn last_due(&self, rules: &BrakeRules) -> Option<Moment> {
        self.when(self.by_due.last(), rules)
    }

    /// Returns when one name will have been held for long enough.
    pub(crate) fn due_of(&self, name: &Name, rules: &BrakeRules) -> Option<Moment> {
        let due = self.items.get(name)?.due(rules);
        self.when(Some(&(due, name.clone())), rules)
    }

    /// Returns since when something is held, by the clock, and for how long at most. A set that would be empty goes as a whole.
    pub(crate) fn clock_of(&self, held: &Held, rules: &BrakeRules) -> (Duration, Duration) {
        self.empty_since.map_or((held.since, held.grace(rules)), |since| (since, rules.empty_grace))
    }

    fn when(&self, item: Option<&(Duration, Name)>, rules: &BrakeRules) -> Option<Moment> {
        let (due, _) = item?;
        self.clock.when(self.empty_since.map_or(*due, |since| since + rules.empty_grace))
    }

    /// Records how large the set would be if all that is held passed.
    pub(crate) fn note_size(&mut self, intended: usize, now: Moment, rules: &BrakeRules) {
        if intended > 0 {
            self.changes += u64::from(self.empty_since.take().is_some());
            return;
        }
        if self.empty_since.is_none() {
            self.empty_since = Some(self.clock.read(now));
            self.changes += 1;
        }
        for (name, held) in self.take(rules, |_, held| held.is_removal() && !held.emptied) {
            self.insert(name, Held { emptied: true, ..held }, rules);
        }
    }

    /// The highest number of anything held.
    pub(crate) fn generation(&self) -> u64 {
        self.generations.last_key_value().map_or(0, |(generation, _)| *generation)
    }
}
