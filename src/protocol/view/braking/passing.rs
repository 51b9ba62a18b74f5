//! What a response of a server changes while a brake holds a part of the set.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::class_of;
use super::statement::Statement;
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::brake::{Held, Hold, ReleaseReason, SetKey, What};
use crate::protocol::view::interest::Selector;
use crate::protocol::view::update::{Completeness, Evidence, Retain, Update};
use crate::protocol::view::{Entry, View};
use crate::xds::{Name, Resource};

/// What a response does to a hold.
#[derive(Default)]
struct Effect {
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

impl View {
    /// Applies a response of a server to a set of which something is held, or is held from now on.
    pub(crate) fn apply_to_hold(&mut self, set: &SetKey, updates: Vec<Update>, statement: &Statement, now: Moment) {
        let limits = self.limits.clone();
        let rules = &limits.brakes;
        let Some(mut hold) = self.brakes.take_hold(set) else { return };
        let mut effect = Effect::default();
        self.hold_removals(set, &mut hold, &mut effect, statement, now);
        for update in updates {
            self.pass_one(set, &mut hold, &mut effect, update, now);
        }
        let intended = {
            let (held, new) = (hold.removals(), hold.new_names());
            (self.intended_size(set) + new + effect.new).saturating_sub(held + effect.gone)
        };
        let (released, reason) = if !rules.is_too_much(hold.start_size, intended) {
            (hold.take(rules, |_, _| true), ReleaseReason::Recovered)
        } else if !effect.agreed.is_empty() && !effect.removes_more && intended > 0 {
            (hold.take(rules, |name, _| effect.agreed.contains(name)), ReleaseReason::Agreed)
        } else {
            (Vec::new(), ReleaseReason::Recovered)
        };
        hold.note_size(intended, now, rules);
        let passing: Vec<_> = effect.passing.into_iter().map(|update| settle(&mut hold, update)).collect();
        self.brakes.put_hold(set, hold);
        passing.into_iter().for_each(|update| self.apply_one(update, now));
        self.let_go(set, released, reason, now);
        self.limit_completeness(set);
    }

    /// Holds the removals of a response. Those that are held already are stated again, which may end their time.
    fn hold_removals(
        &mut self,
        set: &SetKey,
        hold: &mut Hold,
        effect: &mut Effect,
        statement: &Statement,
        now: Moment,
    ) {
        let limits = self.limits.clone();
        let (rules, source, time) = (&limits.brakes, self.origin, hold.clock.read(now));
        let mut generation = None;
        for name in &statement.removed {
            if source.skips_brakes {
                hold.remove(name, rules);
                effect.gone += 1;
                continue;
            }
            if let Some(held) = hold.get(name).filter(|held| held.is_removal()) {
                let other = held.source.server != source.server;
                let later = held.opening != hold.opening && held.since + rules.agree_after <= time;
                let later = later || limits.faults.has(Fault::BrakeAgreesWithItself);
                if (other || later) && !held.emptied {
                    effect.agreed.insert(name.clone());
                }
                hold.restate(name, source);
                self.note_removed_since(&set.0, class_of(&set.1), name); // it may have been restored
                continue;
            }
            effect.removes_more = true;
            self.note_removed_since(&set.0, class_of(&set.1), name);
            let generation = *generation.get_or_insert_with(|| rules.generations.next());
            let (opening, emptied, what) = (hold.opening, false, What::Removal);
            hold.insert(name.clone(), Held { since: time, generation, opening, source, emptied, what }, rules);
        }
        if effect.removes_more && limits.faults.has(Fault::BrakeStartsOver) {
            for (name, held) in hold.take(rules, |_, _| true) {
                hold.insert(name, Held { since: time, ..held }, rules);
            }
        }
    }

    fn pass_one(&mut self, set: &SetKey, hold: &mut Hold, effect: &mut Effect, update: Update, now: Moment) {
        let limits = self.limits.clone();
        let rules = &limits.brakes;
        match update {
            Update::Absent { ref key, evidence: Evidence::Reported, .. } => {
                if matches!(&set.1, Selector::Name(glob) if glob == key) && hold.removals() > 0 {
                    let (kind, of) = set.clone();
                    let completeness = Completeness::Complete;
                    return effect.passing.push(Update::Progress { kind, of, completeness });
                }
                if !hold.has_removal(key) {
                    hold.remove(key, rules); // a change that waits
                    effect.passing.push(update);
                }
            }
            Update::Upsert { ref key, ref resource, .. } => {
                let key = key.clone();
                if self.waits_with_hold(set, hold, &key, resource, now) {
                    return;
                }
                hold.cancel(&key, rules);
                effect.new += usize::from(!self.is_intended(&set.0, class_of(&set.1), &key));
                effect.passing.push(update);
            }
            Update::Refresh { ref key, .. } => {
                hold.take_back(key, rules);
                effect.passing.push(update);
            }
            Update::FullSet { kind, resources, retain } => {
                if let Retain::These(names) = &retain {
                    names.iter().for_each(|name| hold.take_back(name, rules));
                }
                if !kind.can_conflict() {
                    for resource in &resources {
                        hold.take_back(&resource.name, rules);
                        effect.new += usize::from(!self.is_intended(&kind, class_of(&set.1), &resource.name));
                    }
                    return effect.passing.push(Update::FullSet { kind, resources, retain });
                }
                let sent: BTreeSet<&Name> = resources.iter().map(|resource| &resource.name).collect();
                let retained = |name: &Name| matches!(&retain, Retain::These(names) if !names.contains(name));
                hold.take(rules, |name, held| !held.is_removal() && !sent.contains(name) && retained(name));
                for resource in resources {
                    let (kind, class, key) = (kind.clone(), class_of(&set.1), resource.name.clone());
                    let entry = self.entry(&kind, class, &key);
                    if entry.is_some_and(|entry| entry.is_unchanged_by(&resource, self.origin)) {
                        hold.cancel(&key, rules);
                    } else {
                        self.pass_one(set, hold, effect, Update::Upsert { kind, class, key, resource }, now);
                    }
                }
                let (kind, of) = set.clone();
                effect.passing.push(Update::Progress { kind, of, completeness: Completeness::Complete });
            }
            update => effect.passing.push(update),
        }
    }

    /// Whether a change waits for what is held, since the two may not fit together. Then it is held too.
    fn waits_with_hold(
        &self,
        set: &SetKey,
        hold: &mut Hold,
        name: &Name,
        resource: &Arc<Resource>,
        now: Moment,
    ) -> bool {
        let (kind, class) = (&set.0, class_of(&set.1));
        let same = |entry: &Entry| entry.resource().is_some_and(|held| held.full == resource.full);
        if !kind.can_conflict() || self.entry(kind, class, name).is_some_and(same) || self.origin.skips_brakes {
            return false;
        }
        let limits = self.limits.clone();
        hold.take_back(name, &limits.brakes);
        let earlier = hold.get(name).map(|held| (held.since, held.generation));
        let (since, generation) = earlier.unwrap_or_else(|| (hold.clock.read(now), hold.generation()));
        let what = What::Change { resource: resource.clone(), is_new: !self.is_intended(kind, class, name) };
        let (opening, source, emptied) = (hold.opening, self.origin, false);
        hold.insert(name.clone(), Held { since, generation, opening, source, emptied, what }, &limits.brakes);
        true
    }
}

/// Adapts an update to what is held in the end: a set keeps what is held, and is not complete while new names wait.
fn settle(hold: &mut Hold, update: Update) -> Update {
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
