//! Lets held removals go: by time, by an operator, or since the server has stated what ends the hold.

use super::{BrakeEvent, BrakeRules, Brakes, Held, Hold, NotReleased, ReleaseReason, SetKey, What};
use crate::protocol::moment::Moment;
use crate::protocol::view::keys::Selector;
use crate::protocol::view::stage::{Facts, Unit, class_of};
use crate::protocol::view::update::{Completeness, Evidence, Origin, Update};
use crate::xds::{Name, Type};

/// What an operator releases.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Release<'a> {
    /// One set, or all.
    pub(crate) of: Option<(&'a Type, &'a Selector)>,
    /// What one server has removed, or any.
    pub(crate) server: Option<u16>,
    /// Removals up to this one.
    pub(crate) generation: u64,
}

impl Brakes {
    /// Lets go what has been held for long enough.
    pub(crate) fn on_time(&mut self, facts: &Facts, now: Moment) -> Vec<Unit> {
        let rules = &facts.limits.brakes;
        let is_due = |hold: &Hold| hold.next_due(rules).is_some_and(|at| at <= now);
        let due: Vec<_> = self.holds().filter(|(_, hold)| is_due(hold)).map(|(set, _)| set.clone()).collect();
        let mut units = Vec::new();
        for set in due {
            let Some(hold) = self.hold_mut(&set) else { continue };
            let released = hold.take_due(now, rules);
            let emptied = released.iter().any(|(_, held)| held.emptied);
            let reason = if emptied { ReleaseReason::EmptyGrace } else { ReleaseReason::Grace };
            units.extend(self.let_go(&set, released, reason, (Origin::default(), now), rules));
            self.settle_later(&set);
        }
        units
    }

    /// Lets go what an operator has seen. Returns how many removals, and what follows: changes may be let go also if no removal is.
    pub(crate) fn release(
        &mut self,
        what: Release,
        rules: &BrakeRules,
        now: Moment,
    ) -> (Result<usize, NotReleased>, Vec<Unit>) {
        let is_meant = |set: &SetKey| what.of.is_none_or(|(kind, of)| set.0 == *kind && set.1 == *of);
        let sets: Vec<_> = self.holds().map(|(set, _)| set.clone()).filter(is_meant).collect();
        let of_server = |held: &Held| what.server.is_none_or(|server| held.source.server == server);
        let (mut count, mut later, mut units) = (0, 0, Vec::new());
        for set in sets {
            let Some(hold) = self.hold_mut(&set) else { continue };
            let before = hold.removals();
            let any = hold.items().any(|(_, held)| held.is_removal() && of_server(held));
            let is_early = |held: &Held| held.generation <= what.generation && of_server(held);
            let released = hold.take(rules, |_, held| is_early(held));
            let removals = before - hold.removals();
            count += removals;
            later += usize::from(any && removals == 0);
            units.extend(self.let_go(&set, released, ReleaseReason::Operator, (Origin::default(), now), rules));
            self.settle_later(&set);
        }
        let outcome = match (count, later) {
            (0, 0) => Err(NotReleased::NothingHeld),
            (0, _) => Err(NotReleased::Later),
            (count, _) => Ok(count),
        };
        (outcome, units)
    }

    /// Returns what is no longer held, additions and changes first. What is left without a removal that it would wait for goes too.
    pub(super) fn let_go(
        &mut self,
        set: &SetKey,
        mut released: Vec<(Name, Held)>,
        reason: ReleaseReason,
        (origin, received): (Origin, Moment),
        rules: &BrakeRules,
    ) -> Vec<Unit> {
        let Some(hold) = self.hold_mut(set) else { return Vec::new() };
        if hold.removals() == 0 {
            released.extend(hold.take(rules, |_, _| true));
        }
        let (ended, complete, taken_back, left) = (hold.is_empty(), hold.complete, hold.taken_back(), hold.removals());
        self.end_if_empty(set, reason);
        let (removals, changes): (Vec<_>, Vec<_>) = released.into_iter().partition(|(_, held)| held.is_removal());
        if ended || !removals.is_empty() {
            let (kind, of) = set.clone();
            let server = removals.first().map_or(origin.server, |(_, held)| held.source.server);
            let count = removals.len() + if ended { taken_back } else { 0 };
            self.record(BrakeEvent::Released { kind, of, server, reason, count, left });
        }
        let (class, evidence) = (class_of(&set.1), Evidence::Reported);
        let update = |(key, held): (Name, Held)| {
            let kind = set.0.clone();
            let update = match held.what {
                What::Removal => Update::Absent { kind, class, key, evidence },
                What::Change { resource, .. } => Update::Upsert { kind, class, key, resource },
            };
            Unit { origin: held.source, received, updates: vec![update] }
        };
        let mut units: Vec<_> = changes.into_iter().chain(removals).map(update).collect();
        if ended && complete {
            let (kind, of) = set.clone();
            let updates = vec![Update::Progress { kind, of, completeness: Completeness::Complete }];
            units.push(Unit { origin, received, updates });
        }
        units
    }
}
