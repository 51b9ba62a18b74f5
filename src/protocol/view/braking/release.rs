//! Lets held removals go: by time, by an operator, or since the server has stated what ends the hold.

use super::class_of;
use crate::protocol::moment::Moment;
use crate::protocol::view::View;
use crate::protocol::view::brake::{BrakeEvent, Held, Hold, NotReleased, ReleaseReason, SetKey, What};
use crate::protocol::view::interest::Selector;
use crate::protocol::view::update::{Completeness, Evidence, Update};
use crate::xds::{Name, Type};

impl View {
    /// Lets go what has been held for long enough.
    pub(crate) fn settle_brakes(&mut self, now: Moment) {
        let limits = self.limits.clone();
        let rules = &limits.brakes;
        let is_due = |hold: &Hold| hold.next_due(rules).is_some_and(|at| at <= now);
        let due: Vec<_> = self.brakes.holds().filter(|(_, hold)| is_due(hold)).map(|(set, _)| set.clone()).collect();
        for set in due {
            let Some(hold) = self.brakes.hold_mut(&set) else { continue };
            let released = hold.take_due(now, rules);
            let emptied = released.iter().any(|(_, held)| held.emptied);
            let reason = if emptied { ReleaseReason::EmptyGrace } else { ReleaseReason::Grace };
            self.let_go(&set, released, reason, now);
        }
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
        let limits = self.limits.clone();
        let is_meant = |set: &SetKey| of.is_none_or(|(kind, of)| set.0 == *kind && set.1 == *of);
        let sets: Vec<_> = self.brakes.holds().map(|(set, _)| set.clone()).filter(is_meant).collect();
        let of_server = |held: &Held| server.is_none_or(|server| held.source.server == server);
        let (mut count, mut later) = (0, 0);
        for set in sets {
            let Some(hold) = self.brakes.hold_mut(&set) else { continue };
            let before = hold.removals();
            let any = hold.items().any(|(_, held)| held.is_removal() && of_server(held));
            let is_early = |held: &Held| held.generation <= generation && of_server(held);
            let released = hold.take(&limits.brakes, |_, held| is_early(held));
            count += before - hold.removals();
            later += usize::from(any && released.is_empty());
            self.let_go(&set, released, ReleaseReason::Operator, now);
        }
        match (count, later) {
            (0, 0) => Err(NotReleased::NothingHeld),
            (0, _) => Err(NotReleased::Later),
            (count, _) => Ok(count),
        }
    }

    /// Applies what is no longer held, additions and changes first. What is left without a removal that it would wait for goes too.
    pub(crate) fn let_go(&mut self, set: &SetKey, released: Vec<(Name, Held)>, reason: ReleaseReason, now: Moment) {
        let limits = self.limits.clone();
        let Some(hold) = self.brakes.hold_mut(set) else { return };
        let mut released = released;
        if hold.removals() == 0 {
            released.extend(hold.take(&limits.brakes, |_, _| true));
        }
        let (ended, complete, taken_back) = (hold.is_empty(), hold.complete, hold.taken_back());
        let (kind, class, before) = (set.0.clone(), class_of(&set.1), self.origin);
        let (removals, changes): (Vec<_>, Vec<_>) = released.into_iter().partition(|(_, held)| held.is_removal());
        let servers = removals.first().map_or(before.server, |(_, held)| held.source.server);
        let count = removals.len() + if ended { taken_back } else { 0 };
        let left = self.brakes.hold(set).map_or(0, Hold::removals);
        self.brakes.end_if_empty(set, reason);
        for (name, held) in changes {
            self.origin = held.source;
            if let What::Change { resource, .. } = held.what {
                self.set(&kind, class, name, resource, now);
            }
        }
        for (name, held) in &removals {
            self.origin = held.source;
            self.remove(&kind, class, name, Evidence::Reported, now);
        }
        self.origin = before;
        if ended && complete {
            let (kind, of) = set.clone();
            self.apply_one(Update::Progress { kind, of, completeness: Completeness::Complete }, now);
        }
        if ended || !removals.is_empty() {
            let (kind, of) = set.clone();
            self.brakes.record(BrakeEvent::Released { kind, of, server: servers, reason, count, left });
        }
        self.note_intended_size(set, now);
    }

    /// Records how large the set would be without what is still held.
    fn note_intended_size(&mut self, set: &SetKey, now: Moment) {
        let limits = self.limits.clone();
        let size = self.intended_size(set);
        if let Some(hold) = self.brakes.hold_mut(set) {
            hold.note_size(size, now, &limits.brakes);
        }
    }

    /// A set of which new names wait is not complete: what it lacks may be among them.
    pub(crate) fn limit_completeness(&mut self, set: &SetKey) {
        let is_complete = self.completeness_of(&set.0, &set.1) == Completeness::Complete;
        if let Some(hold) = self.brakes.hold_mut(set).filter(|hold| is_complete && hold.new_names() > 0) {
            hold.complete = true;
            self.update_completeness(&set.0, &set.1, Completeness::interrupted);
        }
    }
}
