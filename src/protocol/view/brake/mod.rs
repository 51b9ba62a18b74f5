//! Brakes: removals that would take too much of a set at once are held, and their resources served, until a later statement of the
//! server agrees, enough time has passed, or an operator releases them.
//!
//! Owns how large each set was, and what is held. Reads the tables as facts, and changes nothing in them.
//! Invariants: what is held is present; each removal has its own time; an empty set is never agreed to.

mod effect;
mod hold;
mod judge;
mod release;
mod report;
mod rules;
mod state;
mod statement;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeMap;

pub(super) use hold::{Held, Hold, What};
pub(crate) use release::Release;
pub use report::{BrakeEvent, BrakeReport, NotReleased, ReleaseReason};
pub use rules::{BrakeRules, Generations};
pub use state::{BrakeState, HeldRemoval, SetState};

use self::judge::Unsettled;
use self::window::Window;
pub(crate) use super::keys::SetKey;
use super::update::Origin;
use crate::protocol::moment::{Clock, Moment};
use crate::xds::Name;

/// The brakes of a view.
#[derive(Debug, Default)]
pub(crate) struct Brakes {
    sets: BTreeMap<SetKey, SetBrake>,
    /// Increases with each event, and with the end of a hold by the number of its changes.
    changes: u64,
    /// The changes when the state was last taken.
    taken: u64,
    events: Vec<BrakeEvent>,
    /// Sets of which something was judged that is not in the tables yet.
    unsettled: Vec<Unsettled>,
}

#[derive(Debug, Default)]
struct SetBrake {
    window: Window,
    hold: Option<Hold>,
}

impl Brakes {
    /// Whether anything is held.
    pub(crate) fn is_any(&self) -> bool {
        self.sets.values().any(|of| of.hold.is_some())
    }

    pub(crate) fn hold(&self, set: &SetKey) -> Option<&Hold> {
        self.sets.get(set)?.hold.as_ref()
    }

    pub(crate) fn hold_mut(&mut self, set: &SetKey) -> Option<&mut Hold> {
        self.sets.get_mut(set)?.hold.as_mut()
    }

    pub(crate) fn holds(&self) -> impl Iterator<Item = (&SetKey, &Hold)> {
        self.sets.iter().filter_map(|(set, of)| Some((set, of.hold.as_ref()?)))
    }

    pub(crate) fn next_deadline(&self, rules: &BrakeRules) -> Option<Moment> {
        self.holds().filter_map(|(_, hold)| hold.next_due(rules)).min()
    }

    /// The server's statements up to now belong to an opening that has ended.
    pub(crate) fn interrupted(&mut self, set: &SetKey, now: Moment) {
        if let Some(hold) = self.hold_mut(set) {
            hold.opening += 1;
            hold.complete = false;
            hold.stop_clock(now);
        }
    }

    /// The server has stated its whole set, or was quiet after its part of it.
    pub(crate) fn stands(&mut self, set: &SetKey, now: Moment) {
        let of = self.sets.entry(set.clone()).or_default();
        of.window.begin(now);
        of.hold.iter_mut().for_each(|hold| hold.start_clock(now));
    }

    /// A poll gives the whole set again.
    pub(crate) fn polled(&mut self, set: &SetKey) {
        if let Some(hold) = self.hold_mut(set) {
            hold.opening += 1;
        }
    }

    /// Returns the size that a loss is measured against.
    pub(crate) fn start_size(&mut self, set: &SetKey, size: usize, now: Moment, rules: &BrakeRules) -> usize {
        let window = self.sets.get_mut(set).map(|of| &mut of.window);
        window.map_or(size, |window| window.start_size(size, now, rules.window))
    }

    pub(crate) fn record_size(&mut self, set: &SetKey, before: usize, after: usize, now: Moment, rules: &BrakeRules) {
        if before != after {
            let of = self.sets.entry(set.clone()).or_default();
            of.window.record(before, after, now, rules.window);
            self.changes += u64::from(of.hold.is_some());
        }
    }

    pub(crate) fn engage(&mut self, set: &SetKey, start_size: usize, now: Moment) -> &mut Hold {
        let of = self.sets.entry(set.clone()).or_default();
        of.hold.get_or_insert_with(|| Hold::new(start_size, Clock::running(now), now))
    }

    /// Ends a hold that has nothing left.
    pub(crate) fn end_if_empty(&mut self, set: &SetKey, reason: ReleaseReason) {
        let Some(of) = self.sets.get_mut(set).filter(|of| of.hold.as_ref().is_some_and(Hold::is_empty)) else { return };
        self.changes += of.hold.take().map_or(0, |hold| hold.changes() + 1);
        if reason != ReleaseReason::Recovered {
            of.window.restart();
        }
    }

    /// A resource has expired: that is no removal.
    pub(crate) fn expired(&mut self, set: &SetKey, name: &Name, rules: &BrakeRules) {
        let Some(of) = self.sets.get_mut(set) else { return };
        of.window.forget_one();
        if let Some(hold) = &mut of.hold {
            self.changes += 1; // of the size
            hold.start_size = hold.start_size.saturating_sub(1);
            hold.remove(name, rules);
        }
    }

    pub(crate) fn forget(&mut self, set: &SetKey) {
        let hold = self.sets.remove(set).and_then(|of| of.hold);
        self.changes += hold.map_or(0, |hold| hold.changes() + 1);
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes + self.holds().map(|(_, hold)| hold.changes()).sum::<u64>()
    }

    /// Whether there were changes since the last call.
    pub(crate) fn take_news(&mut self) -> bool {
        let changes = self.changes();
        std::mem::replace(&mut self.taken, changes) != changes
    }

    pub(crate) fn record(&mut self, event: BrakeEvent) {
        self.changes += 1;
        if self.events.len() < MAX_EVENTS {
            self.events.push(event);
        }
    }

    pub(crate) fn take_events(&mut self) -> Vec<BrakeEvent> {
        std::mem::take(&mut self.events)
    }
}

/// The origin of what is restored: no server has stated it in this process.
pub(crate) fn restored_origin(of: &HeldRemoval) -> Origin {
    Origin { server: of.server, rank: of.rank, ..Origin::default() }
}

/// Events that are kept until they are taken.
const MAX_EVENTS: usize = 256;
