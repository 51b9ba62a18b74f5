//! What one response of a server does to its set: what it removes and adds, and what of that passes while a brake holds a part.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::braked_changes::BrakedChange;
use super::hold::{Hold, LetGo, StatedRemoval};
use super::report::ReleaseReason;
use crate::protocol::keys::{Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::view::collections::Collection;
use crate::protocol::view::resource_table::ResourceTable;
use crate::protocol::view::stage::{StageFacts, UpdateUnit, class_of};
use crate::protocol::view::update::{Completeness, Evidence, Origin, Retain, Update};
use crate::xds::{Name, Resource};

/// The difference of one response to a set, if it may matter to a brake.
#[derive(Debug, Default)]
pub(super) struct Statement {
    /// Present resources that it removes, including those whose removal is held.
    removed: BTreeSet<Name>,
    /// How many names it adds, whether there is room for them or not.
    added: usize,
    /// How many names without room it removes. No client has these.
    lost: usize,
}

impl Statement {
    /// Reads the difference to a set of `before` resources. It is empty where none can matter, so that a large set that grows is not gone
    /// through.
    pub(super) fn read(
        set: &SetKey,
        unit: &UpdateUnit,
        before: usize,
        hold: Option<&Hold>,
        facts: &StageFacts,
    ) -> Self {
        let may_matter = |update: &Update| match update {
            Update::Absent { evidence, .. } => *evidence == Evidence::Reported,
            Update::FullSet { resources, .. } => hold.is_some() || resources.len() < before,
            Update::Unchanged { .. } => hold.is_some(),
            _ => false,
        };
        let mut statement = Self::default();
        if unit.updates.iter().any(may_matter) {
            unit.updates.iter().for_each(|update| statement.add(set, update, unit.origin, hold, facts));
        }
        statement
    }

    fn add(&mut self, set: &SetKey, update: &Update, origin: Origin, hold: Option<&Hold>, facts: &StageFacts) {
        let (kind, class) = (&set.0, class_of(&set.1));
        let is_removable = |name: &Name| is_removable(set, name, origin, facts);
        let without_room = facts.tables().without_room();
        match update {
            Update::Absent { key, evidence: Evidence::Reported, .. } => match &set.1 {
                Selector::Name(glob) if glob == key => {
                    let members = facts.tables().collection(kind, glob).into_iter().flat_map(Collection::members);
                    self.removed.extend(members.filter(|name| is_removable(name)).cloned());
                    self.lost += without_room.count(kind, &set.1);
                }
                _ if is_removable(key) => drop(self.removed.insert(key.clone())),
                _ => self.lost += usize::from(without_room.has(kind, class, key)),
            },
            Update::Upsert { key, .. } | Update::WithoutRoom { key, .. } => {
                self.added += usize::from(!facts.is_counted(kind, class, key));
            }
            Update::FullSet { resources, retain, .. } => {
                let is_new = |name: &Name| !facts.is_counted(kind, class, name);
                self.added += resources.iter().filter(|resource| is_new(&resource.name)).count();
                if let Retain::These(retained) = retain {
                    // A full set removes members by not listing them.
                    let sent: BTreeSet<&Name> = resources.iter().map(|of| &of.name).chain(retained).collect();
                    let here = facts.tables().table(kind, class).into_iter().flat_map(ResourceTable::present_names);
                    let vanished = here.filter(|name| !sent.contains(name) && is_removable(name));
                    self.removed.extend(vanished.cloned());
                    self.lost += without_room.names(kind, &set.1).filter(|name| !sent.contains(name)).count();
                }
            }
            Update::Unchanged { .. } => {
                self.removed.extend(hold.into_iter().flat_map(|hold| hold.names_removed_by(origin.server)).cloned());
            }
            _ => {}
        }
    }

    /// Whether it removes more than it adds, and some of what it removes is present.
    pub(super) fn shrinks(&self, before: usize) -> bool {
        !self.removed.is_empty() && self.size_after(before) < before
    }

    /// Returns the size of the set after it. Counts as if nothing were held yet.
    pub(super) fn size_after(&self, before: usize) -> usize {
        (before + self.added).saturating_sub(self.removed.len() + self.lost)
    }
}

/// Whether a server can remove a name: the name is present, and not kept for a server above this one.
fn is_removable((kind, of): &SetKey, name: &Name, origin: Origin, facts: &StageFacts) -> bool {
    let class = class_of(of);
    facts.is_intended(kind, class, name) && facts.may_remove(&(kind.clone(), class, name.clone()), origin)
}

/// What follows from a response.
pub(super) struct Judged {
    pub(super) passed: UpdateUnit,
    /// What is released because of it.
    pub(super) let_go: LetGo,
    pub(super) reason: ReleaseReason,
    /// How many removals pass with the response that were held before it.
    pub(super) passed_removals: usize,
}

/// What a response does to a hold.
pub(super) struct Judgement<'a> {
    set: &'a SetKey,
    hold: &'a mut Hold,
    facts: &'a StageFacts<'a>,
    origin: Origin,
    now: Moment,
    passing: Vec<Update>,
    /// Names that are added although the brake holds.
    added: usize,
    /// Removals that pass, because their server has no brakes.
    removed: usize,
    /// Held removals that the server states once more, which releases them.
    agreed: BTreeSet<Name>,
    /// Removals that were not held before this response.
    first: BTreeSet<Name>,
}

impl<'a> Judgement<'a> {
    pub(super) fn new(
        set: &'a SetKey,
        hold: &'a mut Hold,
        facts: &'a StageFacts<'a>,
        origin: Origin,
        now: Moment,
    ) -> Self {
        let (passing, added, removed) = Default::default();
        let (agreed, first) = Default::default();
        Self { set, hold, facts, origin, now, passing, added, removed, agreed, first }
    }

    /// Judges what a server says of a set, if something of the set is held or is to be held now.
    pub(super) fn judge(mut self, unit: UpdateUnit, statement: &Statement) -> Judged {
        let rules = &self.facts.options().brakes;
        self.hold_removals(statement);
        let UpdateUnit { origin, received, updates } = unit;
        updates.into_iter().for_each(|update| self.pass(update));
        let Self { set, hold, facts, now, mut passing, added, removed, agreed, first, .. } = self;
        let intended = hold.intended_size(facts.size_of(set) + added, removed + statement.lost);
        let (let_go, reason) = if !hold.is_too_much(intended, rules) {
            (hold.take_all(rules), ReleaseReason::Recovered)
        } else if !agreed.is_empty() && first.is_empty() && intended > 0 {
            (hold.take_named(&agreed, rules), ReleaseReason::Agreed)
        } else {
            (LetGo::new(), ReleaseReason::Recovered)
        };
        // These have waited for no certain time, and nobody has agreed to them. The later stages judge them with the rest of the response.
        let is_judged = |(_, held): &(Name, BrakedChange)| {
            reason == ReleaseReason::Recovered && held.is_removal() && held.origin.server == origin.server
        };
        let (judged, let_go): (LetGo, LetGo) = let_go.into_iter().partition(is_judged);
        let passed_removals = judged.iter().filter(|(name, _)| !first.contains(name)).count();
        passing.extend(judged.into_iter().flat_map(|(name, held)| held.into_unit(set, name, received).updates));
        hold.note_size(intended, now, rules);
        let updates = passing.into_iter().map(|update| adapted(hold, &let_go, update)).collect();
        Judged { passed: UpdateUnit { origin, received, updates }, let_go, reason, passed_removals }
    }

    /// Holds the removals of a response. Those that are held already are stated again, which may end their time.
    fn hold_removals(&mut self, statement: &Statement) {
        let Self { set: (kind, of), facts, origin, now, .. } = *self;
        let (options, class) = (facts.options(), class_of(of));
        let mut group = None;
        for name in &statement.removed {
            if origin.skips_brakes {
                self.hold.remove(name, &options.brakes);
                self.removed += 1;
                continue;
            }
            let is_from_disk = facts.tables().entry(kind, class, name).is_some_and(|entry| entry.origin.from_disk);
            // A change of the name that waits in a later stage is out of date now.
            if is_from_disk || facts.is_held_later(kind, class, name) {
                self.passing.push(Update::RemovalHeld { kind: kind.clone(), class, key: name.clone() });
            }
            let generation = || *group.get_or_insert_with(|| options.brakes.generations.next());
            match self.hold.state_removal(name, origin, generation, now, options) {
                StatedRemoval::First => drop(self.first.insert(name.clone())),
                StatedRemoval::Agreed => drop(self.agreed.insert(name.clone())),
                StatedRemoval::Again => {}
            }
        }
    }

    fn pass(&mut self, update: Update) {
        let Self { set: (kind, of), facts, .. } = *self;
        let (class, rules) = (class_of(of), &facts.options().brakes);
        match update {
            Update::Absent { ref key, evidence: Evidence::Reported, .. } => {
                if matches!(of, Selector::Name(glob) if glob == key) && self.hold.removals() > 0 {
                    return self.pass_end();
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
                self.added += usize::from(!facts.is_counted(kind, class, key));
                self.passing.push(update);
            }
            Update::WithoutRoom { ref key, .. } => {
                self.added += usize::from(!facts.is_counted(kind, class, key));
                self.passing.push(update);
            }
            Update::Refresh { ref key, .. } => {
                self.hold.take_back(key, rules);
                self.passing.push(update);
            }
            Update::FullSet { resources, retain, .. } => self.pass_set(resources, retain),
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

    fn pass_set(&mut self, resources: Vec<Arc<Resource>>, retain: Retain) {
        let Self { set: (kind, of), facts, .. } = *self;
        let (class, rules) = (class_of(of), &facts.options().brakes);
        if let Retain::These(names) = &retain {
            names.iter().for_each(|name| self.hold.take_back(name, rules));
        }
        if !kind.can_conflict() {
            for resource in &resources {
                self.hold.take_back(&resource.name, rules);
                self.added += usize::from(!facts.is_counted(kind, class, &resource.name));
            }
            return self.passing.push(Update::FullSet { kind: kind.clone(), resources, retain });
        }
        let sent: BTreeSet<&Name> = resources.iter().map(|resource| &resource.name).collect();
        let is_lacking =
            |name: &Name| !sent.contains(name) && matches!(&retain, Retain::These(names) if !names.contains(name));
        // These names wait in a later stage, and this set lacks them. The set is not passed on as a set, so that stage gets a removal of
        // each, unless the removal is held here.
        for key in facts.waiting_names(kind, class).filter(|name| is_lacking(name)).cloned() {
            if !self.hold.has_removal(&key) {
                let (kind, evidence) = (kind.clone(), Evidence::Reported);
                self.passing.push(Update::Absent { kind, class, key, evidence });
            }
        }
        self.hold.drop_waiting(rules, is_lacking);
        for resource in resources {
            let (kind, key) = (kind.clone(), resource.name.clone());
            let entry = facts.tables().entry(&kind, class, &key);
            let is_same = entry.is_some_and(|entry| entry.is_unchanged_by(&resource, self.origin));
            if is_same && !facts.is_held_later(&kind, class, &key) {
                self.hold.cancel(&key, rules);
            } else {
                self.pass(Update::Upsert { kind, class, key, resource });
            }
        }
        self.pass_end();
    }

    /// All of the set has come.
    fn pass_end(&mut self) {
        let (kind, of) = self.set.clone();
        self.passing.push(Update::Progress { kind, of, completeness: Completeness::Complete });
    }

    /// Whether a change waits for what is held, since the two may not fit together. Then it is held too.
    fn waits_with_hold(&mut self, name: &Name, resource: &Arc<Resource>) -> bool {
        let Self { set: (kind, of), facts, origin, now, .. } = *self;
        let (class, rules) = (class_of(of), &facts.options().brakes);
        let is_same = facts.tables().resource(kind, class, name).is_some_and(|present| present.full == resource.full);
        let waits = kind.can_conflict() && !is_same && !origin.skips_brakes;
        if waits {
            let is_new = !facts.is_intended(kind, class, name);
            self.take_back_later(name);
            self.hold.wait(name, resource.clone(), is_new, origin, now, rules);
        }
        waits
    }

    /// The server has a resource in another form, which waits here. A later stage must neither remove the resource nor apply an earlier
    /// form any more.
    fn take_back_later(&mut self, name: &Name) {
        let Self { set: (kind, of), facts, .. } = *self;
        let class = class_of(of);
        if facts.is_held_later(kind, class, name) {
            let present = facts.tables().resource(kind, class, name).cloned();
            let (kind, key) = (kind.clone(), name.clone());
            self.passing.push(match present {
                Some(resource) => Update::Upsert { kind, class, key, resource },
                // It ends what waits, and does not tell clients that there is no such resource.
                None => Update::RemovalHeld { kind, class, key },
            });
        }
    }
}

/// Adapts an update to what is held in the end: a set keeps what is held, and is not complete while new names wait. It also keeps what is
/// released because of it, whose removals follow by themselves.
fn adapted(hold: &mut Hold, let_go: &[(Name, BrakedChange)], update: Update) -> Update {
    match update {
        Update::FullSet { kind, resources, retain: Retain::These(mut names) } => {
            names.extend(hold.removed_names().cloned());
            names.extend(let_go.iter().filter(|(_, held)| held.is_removal()).map(|(name, _)| name.clone()));
            Update::FullSet { kind, resources, retain: Retain::These(names) }
        }
        Update::Progress { kind, of, completeness: Completeness::Complete } if hold.withhold_completeness() => {
            Update::Progress { kind, of, completeness: Completeness::Settled }
        }
        update => update,
    }
}
