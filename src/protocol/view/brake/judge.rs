//! What one response changes in a set that has a brake: whether the brake engages, and what it holds of it.

use super::{BrakeEvent, Brakes, SetKey};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::keys::{Class, Selector};
use crate::protocol::view::stage::{Facts, Unit};
use crate::protocol::view::update::{Completeness, Origin, Update};

/// A set of which something was judged, until what passes is in the tables.
#[derive(Debug)]
pub(super) struct Unsettled {
    set: SetKey,
    /// What a server has said of it, if that is why.
    said: Option<Said>,
}

#[derive(Debug)]
struct Said {
    origin: Origin,
    /// The size before.
    size: usize,
    /// The brake has engaged.
    is_new: bool,
    /// Something was held before it passed, or since.
    is_held: bool,
}

impl Brakes {
    /// Takes apart what a response says of several sets: each is applied before the next is judged. An interruption begins another statement.
    pub(crate) fn parts(&self, unit: Unit, facts: &Facts) -> Vec<(Option<SetKey>, Unit)> {
        if !facts.limits.brakes.is_any() {
            return vec![(None, unit)];
        }
        let Unit { origin, received, updates } = unit;
        let mut parts: Vec<(Option<SetKey>, Unit)> = Vec::new();
        for update in updates {
            let set = braked_set(&update, facts);
            let at = match &set {
                _ if matches!(update, Update::Interrupted { .. }) => None,
                None => parts.len().checked_sub(1).filter(|last| parts[*last].0.is_none()),
                Some(_) => parts.iter().rposition(|(of, _)| *of == set),
            };
            match at {
                Some(at) => parts[at].1.updates.push(update),
                None => parts.push((set, Unit { origin, received, updates: vec![update] })),
            }
        }
        parts
    }

    /// Judges what a response says of one set, or of what has no brake.
    pub(crate) fn judge(&mut self, set: Option<SetKey>, unit: Unit, facts: &Facts, now: Moment) -> Vec<Unit> {
        match set.filter(|set| is_set_wanted(set, facts)) {
            Some(set) => self.judge_set(set, unit, facts, now),
            None => {
                unit.updates.iter().for_each(|update| self.note_end(update, facts));
                vec![unit]
            }
        }
    }

    fn judge_set(&mut self, set: SetKey, unit: Unit, facts: &Facts, now: Moment) -> Vec<Unit> {
        let rules = &facts.limits.brakes;
        let origin = unit.origin;
        self.note_opening(&set, &unit, now);
        let (before, size) = (self.intended_size(&set, facts), facts.size_of(&set));
        let statement = self.read_statement(&set, &unit, before, facts);
        let mut is_new = false;
        if self.hold(&set).is_none() && statement.shrinks(before) && !origin.skips_brakes {
            let start = match facts.limits.faults.has(Fault::BrakeForgetsDrip) {
                true => before,
                false => self.start_size(&set, before, now, rules),
            };
            // All of what there is now is all of it, also if there was nothing at the start of the window.
            let after = statement.size_after(before);
            let start = if after == 0 { start.max(before) } else { start };
            is_new = rules.is_too_much(start, after);
            if is_new {
                self.engage(&set, start, now);
            }
        }
        let is_held = self.hold(&set).is_some();
        let passed = match is_held {
            true => self.judge_held(&set, unit, &statement, facts, now),
            false => vec![unit],
        };
        self.unsettled.push(Unsettled { set, said: Some(Said { origin, size, is_new, is_held }) });
        passed
    }

    /// Records what follows from the tables once everything that passes is in them. Returns what has to be said of them.
    pub(crate) fn settle(&mut self, facts: &Facts, now: Moment) -> Vec<Unit> {
        let mut units = Vec::new();
        for Unsettled { set, said } in std::mem::take(&mut self.unsettled) {
            let rules = &facts.limits.brakes;
            if said.as_ref().is_none_or(|said| said.is_held) {
                let intended = self.intended_size(&set, facts);
                if let Some(hold) = self.hold_mut(&set) {
                    hold.note_size(intended, now, rules);
                }
            }
            let Some(Said { origin, size, is_new, is_held }) = said else { continue };
            // A set of which new names wait is not complete: what it lacks may be among them.
            let is_complete = is_held && facts.completeness_of(&set.0, &set.1) == Completeness::Complete;
            if let Some(hold) = self.hold_mut(&set).filter(|hold| is_complete && hold.new_names() > 0) {
                hold.complete = true;
                let (kind, of) = set.clone();
                units.push(Unit { origin, received: now, updates: vec![Update::PartHeld { kind, of }] });
            }
            if let Some(hold) = self.hold(&set).filter(|_| is_new) {
                self.record(BrakeEvent::Engaged {
                    kind: set.0.clone(),
                    of: set.1.clone(),
                    server: origin.server,
                    generation: hold.generation(),
                    held: hold.removals(),
                    size: hold.start_size,
                });
            }
            self.record_size(&set, size, facts.size_of(&set), now, rules);
        }
        units
    }

    /// What is held of a set has changed by itself: its size is recorded once that is in the tables.
    pub(super) fn settle_later(&mut self, set: &SetKey) {
        self.unsettled.push(Unsettled { set: set.clone(), said: None });
    }

    /// Records what the updates say of the life of the server's statement.
    fn note_opening(&mut self, set: &SetKey, unit: &Unit, now: Moment) {
        for update in &unit.updates {
            match update {
                Update::Interrupted { .. } => self.interrupted(set, now),
                Update::FullSet { .. } | Update::Unchanged { .. } => {
                    if unit.origin.is_polled {
                        self.polled(set);
                    }
                    self.stands(set, now);
                }
                Update::Progress { completeness, .. } if *completeness >= Completeness::Settled => {
                    self.stands(set, now);
                }
                _ => {}
            }
        }
    }

    /// A resource that has expired was not removed by its server.
    fn note_end(&mut self, update: &Update, facts: &Facts) {
        if let Update::Expired { kind, class, key } = update
            && facts.limits.brakes.concerns(kind)
            && let Some(set) = facts.set_of(kind, *class, key)
        {
            self.expired(&set, key, &facts.limits.brakes);
        }
    }

    /// Returns how many resources a set would have if nothing were held.
    fn intended_size(&self, set: &SetKey, facts: &Facts) -> usize {
        let (held, new) = self.hold(set).map_or((0, 0), |hold| (hold.removals(), hold.new_names()));
        (facts.size_of(set) + new).saturating_sub(held)
    }
}

/// Returns the set with a brake that an update concerns.
fn braked_set(update: &Update, facts: &Facts) -> Option<SetKey> {
    let (kind, subject) = update.subject();
    if !facts.limits.brakes.concerns(kind) || matches!(update, Update::Expired { .. }) {
        return None;
    }
    let set = match subject {
        None => (kind.clone(), Selector::Wildcard),
        Some((Class::Named, name)) if name.is_glob() => (kind.clone(), Selector::Name(name.clone())),
        Some((class, name)) => facts.set_of(kind, class, name)?,
    };
    // An interruption of one name is none of its collection.
    let is_of_one = matches!(update, Update::Interrupted { of, .. } if *of != set.1);
    (!is_of_one).then_some(set)
}

fn is_set_wanted((kind, of): &SetKey, facts: &Facts) -> bool {
    match of {
        Selector::Wildcard => facts.interest.has_wildcard(kind),
        Selector::Name(glob) => facts.interest.covers(kind, glob),
    }
}
