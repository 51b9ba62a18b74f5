//! How one response changes what is held, and what passes of the response.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::held_words::{Earlier, HeldUpdate, HeldWord, HeldWords};
use crate::protocol::keys::{Class, Key, Selector, SetKey};
use crate::protocol::moment::Moment;
use crate::protocol::view::resource_table::ResourceTable;
use crate::protocol::view::stage::{StageFacts, class_of};
use crate::protocol::view::update::{Completeness, Evidence, Origin, Retain, Update};
use crate::xds::{Name, Resource, Type};

pub(super) struct Judgement<'a> {
    held: &'a mut HeldWords,
    facts: &'a StageFacts<'a>,
    origin: Origin,
    /// The server may not have read all of its state.
    is_doubted: bool,
    /// The start of what this judgement newly holds.
    since: Moment,
    now: Moment,
    passing: Vec<Update>,
}

impl<'a> Judgement<'a> {
    pub(super) fn new(
        held: &'a mut HeldWords,
        facts: &'a StageFacts<'a>,
        origin: Origin,
        doubted_since: Option<Moment>,
        now: Moment,
    ) -> Self {
        let (is_doubted, since) = (doubted_since.is_some(), doubted_since.unwrap_or(now));
        Self { held, facts, origin, is_doubted, since, now, passing: Vec::new() }
    }

    /// Returns what passes.
    pub(super) fn judge(mut self, updates: Vec<Update>) -> Vec<Update> {
        for update in self.in_order(updates) {
            self.pass(update);
        }
        self.passing
    }

    /// Moves removals before what may take their place: a delta response lists them last. What ends with the response comes before them.
    fn in_order(&self, mut updates: Vec<Update>) -> Vec<Update> {
        let place = |update: &Update| match update {
            Update::Interrupted { .. } => 0,
            Update::Absent { kind, evidence: Evidence::Reported, .. } if kind.can_conflict() => 1,
            _ => 2,
        };
        if self.is_doubted {
            updates.sort_by_key(place);
        }
        updates
    }

    fn pass(&mut self, update: Update) {
        match update {
            Update::Upsert { kind, class, key, resource } => self.pass_resource((kind, class, key), resource),
            Update::Absent { kind, class: Class::Named, key, evidence: Evidence::Reported } if key.is_glob() => {
                self.pass_removed_collection(kind, key);
            }
            Update::Absent { kind, class, key, evidence: Evidence::Reported } => {
                let key = (kind, class, key);
                let is_held = self.holds_removal(&key);
                self.pass_removal(key, is_held);
            }
            Update::FullSet { kind, resources, retain } => self.pass_set(kind, resources, retain),
            Update::Kept { ref kind, class, ref key } => {
                self.end(kind, class, key);
                self.passing.push(update);
            }
            Update::Expired { ref kind, class, ref key } => {
                self.take_back(&(kind.clone(), class, key.clone())); // what waits is newer than what has expired
                self.passing.push(update);
            }
            Update::Refresh { ref kind, class, ref key, .. } => {
                self.take_back(&(kind.clone(), class, key.clone()));
                self.passing.push(update);
            }
            Update::Error { ref kind, ref key, ref error } => {
                // What is cached of it stays, unless the error says that there is no such resource.
                if !error.is_about_data() {
                    self.take_back(&(kind.clone(), Class::Named, key.clone()));
                }
                self.passing.push(update);
            }
            Update::Unreadable { ref kind, ref of, ref names } => {
                names.iter().for_each(|name| self.take_back(&(kind.clone(), class_of(of), name.clone())));
                self.passing.push(update);
            }
            Update::Interrupted { ref kind, ref of } => {
                self.interrupt(kind, of);
                self.passing.push(update);
            }
            Update::RemovalHeld { ref kind, class, ref key } => {
                self.drop_change(&(kind.clone(), class, key.clone()));
                self.passing.push(update);
            }
            Update::Progress { kind, of, completeness: Completeness::Complete } => {
                let set = (kind.clone(), of.clone());
                let is_part = self.held.has_new_names(&set);
                if is_part {
                    self.held.note_incomplete(set, self.origin);
                }
                let completeness = if is_part { Completeness::Settled } else { Completeness::Complete };
                self.passing.push(Update::Progress { kind, of, completeness });
            }
            Update::Absent { evidence: Evidence::Silence, .. }
            | Update::Progress { .. }
            | Update::Unchanged { .. }
            | Update::PartHeld { .. }
            | Update::WithoutRoom { .. } => self.passing.push(update),
        }
    }

    /// Holds what a server says of a name. If it says the same as before, the time goes on.
    fn hold(&mut self, key: Key, said: HeldUpdate) {
        let new = Earlier { since: self.since, is_renewed: false };
        let Earlier { since, is_renewed } = self.held.earlier(&key, &said, self.origin, self.now).unwrap_or(new);
        self.held.insert(key, HeldWord { since, origin: self.origin, said, is_renewed });
    }

    /// The server has a resource.
    fn take_back(&mut self, key: &Key) {
        self.held.take_back(key);
    }

    /// A brake holds the removal of a resource, or a newer form of it, so a change of it that waits here is out of date.
    fn drop_change(&mut self, key: &Key) {
        if self.held.get(key).is_some_and(|word| !word.is_removal()) {
            self.held.remove(key);
        }
    }

    /// Holds a removal, if its server may not have read all of its state, or if the removal is held already, or was held until the stream
    /// was opened again. Returns whether it is held.
    fn holds_removal(&mut self, key: &Key) -> bool {
        let (kind, class, name) = key;
        let is_new = || {
            let is_there = || self.facts.is_intended(kind, *class, name) && self.facts.may_remove(key, self.origin);
            let is_doubted = || self.is_doubted && (kind.leads_traffic() || self.has_usable_host(key));
            (is_doubted() || self.held.was_said_by(self.origin.server, key)) && is_there()
        };
        let earlier = self.held.get(key);
        if earlier.is_some_and(|word| word.is_repeated_by(&HeldUpdate::Removal, self.origin)) || is_new() {
            self.hold(key.clone(), HeldUpdate::Removal);
            return true;
        }
        self.held.remove(key);
        false
    }

    fn pass_removal(&mut self, (kind, class, key): Key, is_held: bool) {
        self.passing.push(match is_held {
            true => Update::RemovalHeld { kind, class, key },
            false => Update::Absent { kind, class, key, evidence: Evidence::Reported },
        });
    }

    /// A collection is removed with its members. While the removal of a member is held, the collection is complete and has that member.
    fn pass_removed_collection(&mut self, kind: Type, glob: Name) {
        let members: Vec<Name> = self.facts.tables().members(&kind, &glob).cloned().collect();
        self.held.forget(&kind, Class::Named, |name, is_removal| {
            !is_removal && name.collection().as_ref() == Some(&glob) // it waits, and has not been applied
        });
        let mut any = false;
        for name in members {
            let key = (kind.clone(), Class::Named, name);
            let is_held = self.holds_removal(&key);
            any |= is_held;
            self.pass_removal(key, is_held);
        }
        self.passing.push(match any {
            true => Update::Progress { kind, of: Selector::Name(glob), completeness: Completeness::Complete },
            false => Update::Absent { kind, class: Class::Named, key: glob, evidence: Evidence::Reported },
        });
    }

    fn pass_resource(&mut self, key: Key, resource: Arc<Resource>) {
        if self.takes_hosts_away(&key, &resource) {
            return self.hold(key, HeldUpdate::Emptied(resource));
        }
        self.take_back(&key);
        if self.excludes_held(&key, &resource) {
            return self.wait(key, resource);
        }
        self.held.remove(&key);
        let (kind, class, key) = key;
        self.passing.push(Update::Upsert { kind, class, key, resource });
    }

    /// Whether an assignment takes the last usable host away, and that is not believed at once.
    fn takes_hosts_away(&self, key: &Key, sent: &Resource) -> bool {
        let server = self.origin.server;
        let is_held = || self.held.get(key).is_some_and(|word| word.origin.server == server);
        let was_held = || self.held.was_said_by(server, key);
        let is_judged = key.0.is_assignment() && (self.is_doubted || is_held() || was_held());
        is_judged && !sent.body.has_usable_host() && self.has_usable_host(key)
    }

    /// Whether a name is present as an assignment with a usable host.
    fn has_usable_host(&self, (kind, class, name): &Key) -> bool {
        let has_any = || self.facts.tables().resource(kind, *class, name).is_some_and(|of| of.body.has_usable_host());
        kind.is_assignment() && has_any()
    }

    /// Whether a change may conflict with a resource whose removal is held.
    fn excludes_held(&self, key: &Key, sent: &Resource) -> bool {
        let (kind, class, name) = key;
        let is_same = || self.facts.tables().resource(kind, *class, name).is_some_and(|of| of.full == sent.full);
        // A listener that is requested by name has no address: only those of a set can be in each other's way.
        kind.can_conflict() && self.held.has_removals_beside(key) && !is_same()
    }

    /// Lets a change wait with the removals that are held. A set without it is not complete.
    fn wait(&mut self, key: Key, resource: Arc<Resource>) {
        let (kind, class, name) = &key;
        let is_new = self.facts.tables().resource(kind, *class, name).is_none();
        let set = self.facts.set_of(kind, *class, name).filter(|_| is_new);
        let is_complete = |(kind, of): &SetKey| self.facts.tables().completeness_of(kind, of) == Completeness::Complete;
        if let Some((kind, of)) = set.filter(is_complete) {
            self.held.note_incomplete((kind.clone(), of.clone()), self.origin);
            self.passing.push(Update::PartHeld { kind, of });
        }
        self.hold(key, HeldUpdate::Change { resource, is_new });
    }

    fn pass_set(&mut self, kind: Type, mut resources: Vec<Arc<Resource>>, retain: Retain) {
        let class = Class::Wildcard;
        let key = |name: &Name| (kind.clone(), class, name.clone());
        let is_any_held = self.held.has_any(&kind, class);
        let mut retained = match retain {
            Retain::These(names) if is_any_held || self.is_doubted && kind.leads_traffic() => names,
            retain => {
                resources
                    .iter()
                    .filter(|_| is_any_held)
                    .for_each(|resource| drop(self.held.remove(&key(&resource.name))));
                return self.passing.push(Update::FullSet { kind, resources, retain });
            }
        };
        let sent: BTreeSet<&Name> = resources.iter().map(|resource| &resource.name).chain(&retained).collect();
        // The server has what it sends and what is unreadable. It does not have what waits and is not in its set.
        self.held.forget(&kind, class, |name, is_removal| sent.contains(name) == is_removal);
        let here = self.facts.tables().table(&kind, class).into_iter().flat_map(ResourceTable::present_names);
        let lacking: Vec<Name> = here.filter(|name| !sent.contains(name)).cloned().collect();
        let held: Vec<Name> = lacking.into_iter().filter(|name| self.holds_removal(&key(name))).collect();
        retained.extend(held.iter().cloned());
        resources.retain(|resource| {
            let key = key(&resource.name);
            let waits = self.excludes_held(&key, resource);
            if waits {
                retained.insert(resource.name.clone());
                self.wait(key, resource.clone());
            } else {
                self.held.remove(&key);
            }
            !waits
        });
        let of = Selector::Wildcard;
        let is_part = self.held.has_new_names(&(kind.clone(), of.clone()));
        let set = Update::FullSet { kind: kind.clone(), resources, retain: Retain::These(retained) };
        // These removals pass before the set, because the end of the set confirms what was loaded from disk and not removed since.
        for name in held {
            self.pass_removal((kind.clone(), class, name), true);
        }
        self.passing.push(set);
        if is_part {
            self.held.note_incomplete((kind.clone(), of.clone()), self.origin);
            self.passing.push(Update::PartHeld { kind, of });
        }
    }

    /// A server has deleted a resource that its rules keep. What was held of the resource ends.
    fn end(&mut self, kind: &Type, class: Class, key: &Name) {
        match class {
            Class::Named if key.is_glob() => {
                self.held.forget(kind, Class::Named, |name, _| name.collection().as_ref() == Some(key));
            }
            _ => drop(self.held.remove(&(kind.clone(), class, key.clone()))),
        }
    }

    /// The server is away, or another one is active: what it said counts once it says it again.
    fn interrupt(&mut self, kind: &Type, of: &Selector) {
        self.held.forget_incomplete(&(kind.clone(), of.clone()));
        match of {
            Selector::Wildcard => self.held.interrupt(kind, Class::Wildcard, |_| true, self.now),
            Selector::Name(of) if of.is_glob() => {
                let is_meant = |name: &Name| name == of || name.collection().as_ref() == Some(of);
                self.held.interrupt(kind, Class::Named, is_meant, self.now);
            }
            Selector::Name(of) => self.held.interrupt_name(&(kind.clone(), Class::Named, of.clone()), self.now),
        }
    }
}
