//! The held part of one set: since when, by which clock, and what is known of the server's statements about it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::braked_changes::{BrakedChange, BrakedChanges, HeldChange};
use super::report::{BrakeReport, HeldRemoval, SetState};
use super::rules::BrakeRules;
use crate::protocol::keys::SetKey;
use crate::protocol::moment::{Clock, Moment};
use crate::protocol::view::options::ViewOptions;
use crate::protocol::view::stage::HoldTimes;
use crate::protocol::view::update::Origin;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};
use crate::xds::{Name, Resource};

/// It exists while something is held.
#[derive(Debug)]
pub(super) struct Hold {
    /// The size of the set that the loss is measured against.
    start_size: usize,
    since: Moment,
    clock: Clock,
    /// Since when the set would be empty if all that is held passed, by the clock.
    empty_since: Option<Duration>,
    /// The number of the server's present opening or poll.
    opening: u64,
    /// The set is complete once what is held has passed.
    complete: bool,
    held: BrakedChanges,
    /// Removals that the server has taken back.
    taken_back: usize,
    /// Increases with each change of what is held, or of whether its time passes.
    changes: u64,
}

/// What it means that a server states a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatedRemoval {
    /// It is held from now on.
    First,
    /// It is held already.
    Again,
    /// It is held already, and this statement may end its time.
    Agreed,
}

/// Held changes that a brake releases, in the order of their names.
pub(super) type LetGo = Vec<(Name, BrakedChange)>;

impl Hold {
    pub(super) fn new(start_size: usize, now: Moment) -> Self {
        Self::with_clock(start_size, Clock::running(now), now)
    }

    fn with_clock(start_size: usize, clock: Clock, now: Moment) -> Self {
        let (empty_since, opening, complete, held) = Default::default();
        let (taken_back, changes) = Default::default();
        Self { start_size, since: now, clock, empty_since, opening, complete, held, taken_back, changes }
    }

    /// Continues what another process held, if anything of it is still present. It counts as stated on an earlier opening.
    pub(super) fn restored(
        saved: &SetState,
        is_present: impl Fn(&Name) -> bool,
        rules: &BrakeRules,
        now: Moment,
    ) -> Option<Self> {
        let removals: Vec<_> = saved.removals.iter().filter(|removal| is_present(&removal.name)).collect();
        let bounded = |age: Duration| age.min(LONGEST);
        let ages = removals.iter().map(|removal| removal.age).chain(saved.empty_for).map(bounded);
        let passed = ages.max().filter(|_| !removals.is_empty())?;
        let mut hold = Self::with_clock(saved.start_size, Clock::standing(passed), now);
        (hold.opening, hold.empty_since) = (1, saved.empty_for.map(|age| passed - bounded(age)));
        for removal in removals {
            rules.generations.skip_to(removal.generation);
            let held = BrakedChange {
                since: passed - bounded(removal.age),
                generation: removal.generation,
                opening: 0,
                origin: removal.origin(),
                emptied: removal.emptied,
                change: HeldChange::Removal,
            };
            hold.insert(removal.name.clone(), held, rules);
        }
        Some(hold)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The server's statements up to now belong to an opening that has ended.
    pub(super) fn interrupted(&mut self, now: Moment) {
        self.opening += 1;
        self.complete = false;
        self.changes += u64::from(self.clock.runs());
        self.clock.stop(now);
    }

    /// The server has stated its whole set, or a part of it and was then quiet.
    pub(super) fn stands(&mut self, now: Moment) {
        self.changes += u64::from(!self.clock.runs());
        self.clock.start(now);
    }

    /// A poll gives the whole set again.
    pub(super) fn polled(&mut self) {
        self.opening += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(super) fn start_size(&self) -> usize {
        self.start_size
    }

    pub(super) fn removals(&self) -> usize {
        self.held.removals()
    }

    pub(super) fn taken_back(&self) -> usize {
        self.taken_back
    }

    /// Returns the highest generation of anything held.
    pub(super) fn generation(&self) -> u64 {
        self.held.generation()
    }

    pub(super) fn has_removal(&self, name: &Name) -> bool {
        self.held.get(name).is_some_and(BrakedChange::is_removal)
    }

    /// Whether the server has removed a name on its present opening. A removal of an earlier opening has to be stated again.
    pub(super) fn is_removed_now(&self, name: &Name) -> bool {
        self.held.get(name).is_some_and(|held| held.is_removal() && held.opening == self.opening)
    }

    fn held_removals(&self) -> impl Iterator<Item = (&Name, &BrakedChange)> {
        self.held.iter().filter(|(_, held)| held.is_removal())
    }

    pub(super) fn removed_names(&self) -> impl Iterator<Item = &Name> {
        self.held_removals().map(|(name, _)| name)
    }

    pub(super) fn names_removed_by(&self, server: u16) -> impl Iterator<Item = &Name> {
        self.held_removals().filter(move |(_, held)| held.origin.server == server).map(|(name, _)| name)
    }

    /// Returns how large the set would be if all that is held passed, and `lost` other resources were removed.
    pub(super) fn intended_size(&self, size: usize, lost: usize) -> usize {
        (size + self.held.new_names()).saturating_sub(self.removals() + lost)
    }

    /// Whether a set of this size would have lost too much since the start.
    pub(super) fn is_too_much(&self, intended: usize, rules: &BrakeRules) -> bool {
        rules.is_too_much(self.start_size, intended)
    }

    /// Withholds the completeness of a set while new names of it wait. Returns whether any do: then the set is complete once they have
    /// passed.
    pub(super) fn withhold_completeness(&mut self) -> bool {
        let withholds = self.held.new_names() > 0;
        self.complete |= withholds;
        withholds
    }

    /// Whether the set is complete once nothing is held.
    pub(super) fn is_complete_after(&self) -> bool {
        self.complete
    }

    fn insert(&mut self, name: Name, held: BrakedChange, rules: &BrakeRules) {
        self.changes += 1 + u64::from(self.held.insert(name, held, rules).is_some());
    }

    /// Drops what is held of a name.
    pub(super) fn remove(&mut self, name: &Name, rules: &BrakeRules) {
        self.changes += u64::from(self.held.remove(name, rules).is_some());
    }

    /// Holds a removal that a server states. One that is held already keeps its time; a later opening or another server may agree to it.
    pub(super) fn state_removal(
        &mut self,
        name: &Name,
        origin: Origin,
        generation: impl FnOnce() -> u64,
        now: Moment,
        options: &ViewOptions,
    ) -> StatedRemoval {
        let rules = &options.brakes;
        let (time, opening) = (self.clock.read(now), self.opening);
        let Some(held) = self.held.get(name).filter(|held| held.is_removal()) else {
            let (generation, emptied, change) = (generation(), false, HeldChange::Removal);
            let held = BrakedChange { since: time, generation, opening, origin, emptied, change };
            self.insert(name.clone(), held, rules);
            return StatedRemoval::First;
        };
        let is_other = held.origin.server != origin.server;
        let is_later = held.opening != opening && held.since + rules.agree_after <= time;
        let agrees = (is_other || is_later) && !held.emptied;
        self.changes += u64::from(self.held.restate(name, opening, origin));
        if agrees { StatedRemoval::Agreed } else { StatedRemoval::Again }
    }

    /// Holds a change that waits for what is held. It replaces an earlier change of the same name.
    pub(super) fn wait(
        &mut self,
        name: &Name,
        resource: Arc<Resource>,
        is_new: bool,
        origin: Origin,
        now: Moment,
        rules: &BrakeRules,
    ) {
        self.take_back(name, rules);
        let earlier = self.held.get(name).map(|held| (held.since, held.generation));
        let (since, generation) = earlier.unwrap_or_else(|| (self.clock.read(now), self.generation()));
        let (opening, emptied, change) = (self.opening, false, HeldChange::Upsert { resource, is_new });
        self.insert(name.clone(), BrakedChange { since, generation, opening, origin, emptied, change }, rules);
    }

    /// The server has the resource again.
    pub(super) fn take_back(&mut self, name: &Name, rules: &BrakeRules) {
        if self.has_removal(name) {
            self.remove(name, rules);
            self.taken_back += 1;
        }
    }

    /// The server has the resource as it is in the table, so a held removal or change of the name is out of date.
    pub(super) fn cancel(&mut self, name: &Name, rules: &BrakeRules) {
        self.take_back(name, rules);
        self.remove(name, rules);
    }

    /// A resource has expired: that is no removal.
    pub(super) fn expired(&mut self, name: &Name, rules: &BrakeRules) {
        self.start_size = self.start_size.saturating_sub(1);
        self.remove(name, rules);
    }

    pub(super) fn take_all(&mut self, rules: &BrakeRules) -> LetGo {
        self.take(rules, |_, _| true)
    }

    /// Takes out all that matches. This visits everything that is held.
    fn take(&mut self, rules: &BrakeRules, matches: impl Fn(&Name, &BrakedChange) -> bool) -> LetGo {
        self.counted(|held| held.take(rules, matches))
    }

    pub(super) fn take_named(&mut self, names: &BTreeSet<Name>, rules: &BrakeRules) -> LetGo {
        self.take(rules, |name, _| names.contains(name))
    }

    /// Drops the waiting changes of matching names.
    pub(super) fn drop_waiting(&mut self, rules: &BrakeRules, matches: impl Fn(&Name) -> bool) {
        self.take(rules, |name, held| !held.is_removal() && matches(name));
    }

    /// Takes out what was held up to a generation, of one server or of any. Also returns whether any removal was held for them, of whatever
    /// generation.
    pub(super) fn take_early(&mut self, generation: u64, server: Option<u16>, rules: &BrakeRules) -> (LetGo, bool) {
        let is_of_server = |held: &BrakedChange| server.is_none_or(|server| held.origin.server == server);
        let any = self.held.iter().any(|(_, held)| held.is_removal() && is_of_server(held));
        (self.take(rules, |_, held| held.generation <= generation && is_of_server(held)), any)
    }

    /// Takes out what has been held for long enough. A set that would be empty goes as a whole.
    pub(super) fn take_due(&mut self, now: Moment, rules: &BrakeRules) -> LetGo {
        if !self.is_due(now, rules) {
            return Vec::new();
        }
        let until = self.empty_since.is_none().then(|| self.clock.read(now));
        self.counted(|held| held.take_due(until, rules))
    }

    fn counted(&mut self, take: impl FnOnce(&mut BrakedChanges) -> LetGo) -> LetGo {
        let taken = take(&mut self.held);
        self.changes += taken.len() as u64;
        taken
    }

    pub(super) fn is_due(&self, now: Moment, rules: &BrakeRules) -> bool {
        self.next_due(rules).is_some_and(|at| at <= now)
    }

    /// Returns when something will have been held for long enough; `None` while the server has not stated its set.
    pub(super) fn next_due(&self, rules: &BrakeRules) -> Option<Moment> {
        self.when(self.held.first_due(), rules)
    }

    /// Returns since when there is a hold, and when a name will have been held for long enough, if anything is held of it.
    pub(super) fn times_of(&self, name: &Name, rules: &BrakeRules) -> Option<HoldTimes> {
        let due = self.held.due_of(name, rules)?;
        Some(HoldTimes { since: Some(self.since), until: self.when(Some(due), rules) })
    }

    fn when(&self, due: Option<Duration>, rules: &BrakeRules) -> Option<Moment> {
        let due = due?;
        self.clock.when(self.empty_since.map_or(due, |since| since + rules.empty_grace))
    }

    /// Records how large the set would be if all that is held passed.
    pub(super) fn note_size(&mut self, intended: usize, now: Moment, rules: &BrakeRules) {
        if intended > 0 {
            self.changes += u64::from(self.empty_since.take().is_some());
            return;
        }
        if self.empty_since.is_none() {
            self.empty_since = Some(self.clock.read(now));
            self.changes += 1;
        }
        for (name, held) in self.take(rules, |_, held| held.is_removal() && !held.emptied) {
            self.insert(name, BrakedChange { emptied: true, ..held }, rules);
        }
    }

    /// Returns what is held of a set, with the first names.
    pub(super) fn report(&self, (kind, of): &SetKey, rules: &BrakeRules, limit: usize) -> BrakeReport {
        let mut servers: Vec<_> = self.held_removals().map(|(_, held)| held.origin.server).collect();
        servers.sort_unstable();
        servers.dedup();
        BrakeReport {
            kind: kind.clone(),
            of: of.clone(),
            since: self.since,
            generation: self.generation(),
            held: self.removals(),
            changes: self.held.iter().count() - self.removals(),
            start_size: self.start_size,
            is_emptied: self.empty_since.is_some(),
            servers,
            release: self.next_due(rules).zip(self.when(self.held.last_due(), rules)),
            names: self.removed_names().take(limit).cloned().collect(),
        }
    }

    /// Adds everything that is held. Its clock stands from the end of an opening until the server has stated its set on the next.
    pub(super) fn add_waits(&self, (kind, _): &SetKey, rules: &BrakeRules, now: Moment, list: &mut WaitList) {
        for (name, held) in self.held.iter() {
            let (since, lasting) =
                self.empty_since.map_or((held.since, held.grace(rules)), |since| (since, rules.empty_grace));
            let age = self.clock.read(now).saturating_sub(since);
            let bound = self.clock.runs().then_some(lasting);
            list.add(WaitKind::Brake, age, bound, || WaitSubject::name(kind, name));
        }
    }

    /// Writes down what another process needs to go on.
    pub(super) fn save(&self, state: &mut SetState, now: Moment) {
        let time = self.clock.read(now);
        (state.start_size, state.is_stopped) = (self.start_size, !self.clock.runs());
        state.empty_for = self.empty_since.map(|since| time.saturating_sub(since));
        let saved = |(name, held): (&Name, &BrakedChange)| HeldRemoval {
            name: name.clone(),
            age: time.saturating_sub(held.since),
            generation: held.generation,
            emptied: held.emptied,
            server: held.origin.server,
            rank: held.origin.rank,
        };
        state.removals = self.held_removals().map(saved).collect();
    }
}

/// Ages in a file are cut to this, because a file may have any age.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
