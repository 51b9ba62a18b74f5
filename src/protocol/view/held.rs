//! What the stages of a view hold, for those who ask: of all names, and of one.

use std::collections::BTreeSet;

use super::View;
use super::brake::{BrakeEvent, BrakeReport, BrakeState, NotReleased, Release, SetKey};
use super::keys::{Class, Selector};
use super::order::OrderLosses;
use super::stage::{KeepsRemoved, class_of};
use crate::protocol::moment::Moment;
use crate::protocol::wait::WaitList;
use crate::xds::{Authority, Name, Type};

impl View {
    /// Adds what the view holds back.
    pub fn add_waits(&self, now: Moment, list: &mut WaitList) {
        self.order.add_waits(self.limits.reference_hold, now, list);
        self.brakes.add_waits(&self.limits.brakes, now, list);
    }

    /// Returns whether the server has removed a resource on its present opening, and a brake holds that.
    pub(super) fn is_held_back(&self, kind: &Type, class: Class, name: &Name) -> bool {
        let set = || self.facts().set_of(kind, class, name);
        self.brakes.is_any()
            && set().and_then(|set| self.brakes.hold(&set)).is_some_and(|hold| hold.is_removed_now(name))
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
        let (brakes, facts) = self.brakes_and_facts();
        let is_present = |(kind, of): &SetKey, name: &Name| facts.resource(kind, class_of(of), name).is_some();
        brakes.restore(state, facts.types, &facts.limits.brakes, is_present, now);
    }

    /// Lets go what an operator has seen: removals up to a generation, of one set or of all, of one server or of any. Returns how
    /// many.
    pub fn release_brakes(
        &mut self,
        of: Option<(&Type, &Selector)>,
        server: Option<u16>,
        generation: u64,
        now: Moment,
    ) -> Result<usize, NotReleased> {
        let (brakes, facts) = self.brakes_and_facts();
        let (outcome, passed) = brakes.release(Release { of, server, generation }, &facts.limits.brakes, now);
        self.follow_brakes(passed, now);
        outcome
    }

    /// Returns whether upstream has removed it and it stays for now.
    pub(crate) fn is_doomed(&self, kind: &Type, class: Class, name: &Name) -> bool {
        self.order.has_doomed() && self.order.is_doomed(&(kind.clone(), class, name.clone()))
    }

    /// Returns the names that a server has removed and whose removal waits: of a set, or one name.
    pub(crate) fn removed_by<'a>(
        &'a self,
        server: usize,
        kind: &'a Type,
        of: &'a Selector,
    ) -> impl Iterator<Item = &'a Name> {
        let (set, one) = match of {
            Selector::Wildcard => (Some(self.order.doomed_by(server, kind, Class::Wildcard)), None),
            Selector::Name(name) => (None, Some(name)),
        };
        let is_meant =
            move |name: &&Name| self.order.is_doomed_by(server, &(kind.clone(), Class::Named, (*name).clone()));
        set.into_iter().flatten().chain(one.into_iter().filter(is_meant))
    }

    /// Returns whether the order depends on authorities whose server is unreachable or has not sent its routing yet.
    pub fn awaits_routing(&self) -> bool {
        self.order.is_any()
    }

    /// Records the authorities of `Sources::unsteady`. While an authority is unsteady, no wait in it runs out.
    pub fn note_unsteady(&mut self, unsteady: BTreeSet<Authority>, now: Moment) {
        self.order.note_unsteady(unsteady, now);
    }

    /// Returns the ordering rules that could not be kept since the last call.
    pub fn take_dangled(&mut self) -> OrderLosses {
        self.order.take_dangled()
    }

    /// Returns the dangling clusters, each with since when.
    pub fn dangling(&self) -> impl Iterator<Item = (&Name, Moment)> {
        self.order.dangling(self.facts())
    }
}

/// What keeps the tables from following the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NameHolds {
    /// Somebody subscribes to it, or did until recently.
    pub(crate) is_wanted: bool,
    /// The server has removed it, and it stays since something refers to it.
    pub(crate) doomed: Option<Held>,
    /// The server has changed it, and the change waits for these clusters.
    pub(crate) awaits: Option<(Vec<Name>, Held)>,
    /// The server has removed or changed it, and a brake holds that.
    pub(crate) braked: Option<Held>,
    /// Another server has become active, and its set is not complete yet.
    pub(crate) is_behind_gate: bool,
}

/// Since when something is held, and until when at the latest, if that is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) since: Option<Moment>,
    pub(crate) until: Option<Moment>,
}

impl View {
    /// Returns what the view holds back of a name, of either class.
    pub(crate) fn holds_of(&self, kind: &Type, name: &Name) -> NameHolds {
        let both = [Class::Wildcard, Class::Named];
        let key = |class: Class| (kind.clone(), class, name.clone());
        NameHolds {
            is_wanted: self.interest.has_wildcard(kind)
                || self.interest.has_name(kind, name)
                || self.interest.collection(kind, name).is_some(),
            doomed: both.into_iter().find_map(|class| self.order.doomed_until(&key(class), self.limits.reference_hold)),
            awaits: both.into_iter().find_map(|class| self.order.awaited_by(&key(class))),
            braked: both.into_iter().find_map(|class| self.braked(kind, class, name)),
            is_behind_gate: self.gate.is_shut(kind),
        }
    }

    fn braked(&self, kind: &Type, class: Class, name: &Name) -> Option<Held> {
        let hold = self.brakes.hold(&self.facts().set_of(kind, class, name)?)?;
        hold.get(name)?;
        Some(Held { since: Some(hold.since), until: hold.due_of(name, &self.limits.brakes) })
    }
}
