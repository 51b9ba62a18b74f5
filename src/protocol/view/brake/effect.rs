//! What a response of a server changes while a brake holds a part of the set.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::statement::Statement;
use super::{Brakes, Held, Hold, ReleaseReason, SetKey, What};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::keys::Selector;
use crate::protocol::view::stage::{Facts, Unit, class_of};
use crate::protocol::view::update::{Completeness, Evidence, Origin, Retain, Update};
use crate::xds::{Name, Resource};

/// What a response does to a hold.
struct Effect<'a> {
    set: &'a SetKey,
    hold: &'a mut Hold,
    facts: &'a Facts<'a>,
    origin: Origin,
    now: Moment,
    passing: Vec<Update>,
    /// Names that are added although the brake holds.
    new: usize,
    /// Removals that pass, since their server has no brakes.
    gone: usize,
    /// Held removals that the server states once more, and that this lets go.
    agreed: BTreeSet<Name>,
    /// It removes more than what is held.
    removes_more: bool,
}

impl Brakes {
    /// Judges what a server says of a set of which something is held, or is held from now on.
    pub(super) fn judge_held(
        &mut self,
        set: &SetKey,
        unit: Unit,
        statement: &Statement,
        facts: &Facts,
        now: Moment,
    ) -> Vec<Unit> {
        let rules = &facts.limits.brakes;
        let Unit { origin, received, updates } = unit;
        let Some(hold) = self.hold_mut(set) else { return vec![Unit { origin, received, updates }] };
        let (passing, new, gone) = Default::default();
        let (agreed, removes_more) = Default::default();
        let mut effect = Effect { set, hold, facts, origin, now, passing, new, gone, agreed, removes_more };
        effect.hold_removals(statement);
        updates.into_iter().for_each(|update| effect.pass_one(update));
        let Effect { passing, new, gone, agreed, removes_more, hold, .. } = effect;
        let intended = (facts.size_of(set) + hold.new_names() + new).saturating_sub(hold.removals() + gone);
        let (released, reason) = if !rules.is_too_much(hold.start_size, intended) {
            (hold.take(rules, |_, _| true), ReleaseReason::Recovered)
        } else if !agreed.is_empty() && !removes_more && intended > 0 {
            (hold.take(rules, |name, _| agreed.contains(name)), ReleaseReason::Agreed)
        } else {
            (Vec::new(), ReleaseReason::Recovered)
        };
        hold.note_size(intended, now, rules);
        let updates = passing.into_iter().map(|update| adapted(hold, update)).collect();
        let mut passed = vec![Unit { origin, received, updates }];
        passed.extend(self.let_go(set, released, reason, (origin, received), rules));
        passed
    }
}

impl Effect<'_> {
    /// Holds the removals of a response. Those that are held already are stated again, which may end their time.
    fn hold_removals(&mut self, statement: &Statement) {
        let Self { set, facts, origin, now, .. } = *self;
        let (rules, faults, time) = (&facts.limits.brakes, facts.limits.faults, self.hold.clock.read(now));
        let mut generation = None;
        for name in &statement.removed {
            if origin.skips_brakes {
                self.hold.remove(name, rules);
                self.gone += 1;
                continue;
            }
            let (kind, class) = (&set.0, class_of(&set.1));
            if facts.entry(kind, class, name).is_some_and(|entry| entry.origin.from_disk) {
                self.passing.push(Update::RemovalHeld { kind: kind.clone(), class, key: name.clone() });
            }
            if let Some(held) = self.hold.get(name).filter(|held| held.is_removal()) {
                let other = held.source.server != origin.server;
                let later = held.opening != self.hold.opening && held.since + rules.agree_after <= time;
                let later = later || faults.has(Fault::BrakeAgreesWithItself);
                if (other || later) && !held.emptied {
                    self.agreed.insert(name.clone());
                }
                self.hold.restate(name, origin);
                continue;
            }
            self.removes_more = true;
            let generation = *generation.get_or_insert_with(|| rules.generations.next());
            let (opening, emptied, what) = (self.hold.opening, false, What::Removal);
            let held = Held { since: time, generation, opening, source: origin, emptied, what };
            self.hold.insert(name.clone(), held, rules);
        }
        if self.removes_more && faults.has(Fault::BrakeStartsOver) {
            for (name, held) in self.hold.take(rules, |_, _| true) {
                self.hold.insert(name, Held { since: time, ..held }, rules);
            }
        }
    }

    fn pass_one(&mut self, update: Update) {
        let Self { set, facts, .. } = *self;
        let rules = &facts.limits.brakes;
        match update {
            Update::Absent { ref key, evidence: Evidence::Reported, .. } => {
                if matches!(&set.1, Selector::Name(glob) if glob == key) && self.hold.removals() > 0 {
                    let (kind, of) = set.clone();
                    let completeness = Completeness::Complete;
                    return self.passing.push(Update::Progress { kind, of, completeness });
                }
                if !self.hold.has_removal(key) {
                    self.hold.remove(key, rules); // a change that waits
                    self.passing.push(update);
                }
            }
            Update::Upsert { ref key, ref resource, .. } => {
                if self.waits_with_hold(key, resource) {
                    return;
                }
                self.hold.cancel(key, rules);
                self.new += usize::from(!facts.is_intended(&set.0, class_of(&set.1), key));
                self.passing.push(update);
            }
            Update::Refresh { ref key, .. } => {
                self.hold.take_back(key, rules);
                self.passing.push(update);
            }
            Update::FullSet { kind, resources, retain } => {
                if let Retain::These(names) = &retain {
                    names.iter().for_each(|name| self.hold.take_back(name, rules));
                }
                if !kind.can_conflict() {
                    for resource in &resources {
                        self.hold.take_back(&resource.name, rules);
                        self.new += usize::from(!facts.is_intended(&kind, class_of(&set.1), &resource.name));
                    }
                    return self.passing.push(Update::FullSet { kind, resources, retain });
                }
                let sent: BTreeSet<&Name> = resources.iter().map(|resource| &resource.name).collect();
                let retained = |name: &Name| matches!(&retain, Retain::These(names) if !names.contains(name));
                self.hold.take(rules, |name, held| !held.is_removal() && !sent.contains(name) && retained(name));
                for resource in resources {
                    let (kind, class, key) = (kind.clone(), class_of(&set.1), resource.name.clone());
                    let entry = facts.entry(&kind, class, &key);
                    if entry.is_some_and(|entry| entry.is_unchanged_by(&resource, self.origin)) {
                        self.hold.cancel(&key, rules);
                    } else {
                        self.pass_one(Update::Upsert { kind, class, key, resource });
                    }
                }
                let (kind, of) = set.clone();
                self.passing.push(Update::Progress { kind, of, completeness: Completeness::Complete });
            }
            Update::Absent { evidence: Evidence::Silence, .. }
            | Update::Kept { .. }
            | Update::Expired { .. }
            | Update::Error { .. }
            | Update::Progress { .. }
            | Update::Interrupted { .. }
            | Update::Unchanged { .. }
            | Update::Unreadable { .. }
            | Update::RemovalHeld { .. }
            | Update::PartHeld { .. } => self.passing.push(update),
        }
    }

    /// Whether a change waits for what is held, since the two may not fit together. Then it is held too.
    fn waits_with_hold(&mut self, name: &Name, resource: &Arc<Resource>) -> bool {
        let Self { set, facts, origin: source, now, .. } = *self;
        let (kind, class, rules) = (&set.0, class_of(&set.1), &facts.limits.brakes);
        let is_same = facts.resource(kind, class, name).is_some_and(|present| present.full == resource.full);
        if !kind.can_conflict() || is_same || source.skips_brakes {
            return false;
        }
        let hold = &mut *self.hold;
        hold.take_back(name, rules);
        let earlier = hold.get(name).map(|held| (held.since, held.generation));
        let (since, generation) = earlier.unwrap_or_else(|| (hold.clock.read(now), hold.generation()));
        let what = What::Change { resource: resource.clone(), is_new: !facts.is_intended(kind, class, name) };
        let (opening, emptied) = (hold.opening, false);
        hold.insert(name.clone(), Held { since, generation, opening, source, emptied, what }, rules);
        true
    }
}

/// Adapts an update to what is held in the end: a set keeps what is held, and is not complete while new names wait.
fn adapted(hold: &mut Hold, update: Update) -> Update {
    match update {
        Update::FullSet { kind, resources, retain: Retain::These(mut names) } => {
            names.extend(hold.items().filter(|(_, held)| held.is_removal()).map(|(name, _)| name.clone()));
            Update::FullSet { kind, resources, retain: Retain::These(names) }
        }
        Update::Progress { kind, of, completeness: Completeness::Complete } if hold.new_names() > 0 => {
            hold.complete = true;
            Update::Progress { kind, of, completeness: Completeness::Settled }
        }
        update => update,
    }
}
