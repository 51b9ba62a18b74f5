//! Applies updates to the view: sets and removes resources, and tracks the completeness of sets.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::keys::Key;
use super::resource_table::Applied;
use super::row::Row;
use super::{Class, Completeness, Entry, Evidence, NameChanged, Origin, Presence, Revision, Selector, Update, View};
use crate::protocol::moment::{Moment, earliest};
use crate::xds::{Name, Resource, Role, Type};

impl View {
    /// Applies an update that no stage holds.
    pub(super) fn apply_one(&mut self, update: Update, origin: Origin, received: Moment, now: Moment) {
        let before = (std::mem::replace(&mut self.origin, origin), self.received.replace(received));
        match update {
            Update::Upsert { kind, class, key, resource } => self.set_resource(&kind, class, key, resource, now),
            Update::Absent { kind, class, key, evidence } => self.remove(&kind, class, &key, evidence, now),
            Update::RemovalHeld { kind, class, key } => self.note_removed_since(&kind, class, &key),
            Update::Expired { kind, class, key } => self.expire(&kind, class, key, now),
            Update::Kept { kind, class, key } => self.keep(&kind, class, &key, now),
            Update::Refresh { kind, class, key, ttl } => {
                if class == Class::Wildcard {
                    self.confirm(&kind, &Selector::Wildcard);
                }
                let revision = self.revision.next();
                let old = self.followed(&kind, class, &key);
                let taken = self.resources(&kind, class).extend_ttl(&key, ttl, origin, revision, now);
                self.note_taken(taken, (kind, class, key), old.as_ref(), revision, now);
            }
            Update::Error { kind, key, error } => {
                let revision = self.revision.next();
                if self.resources(&kind, Class::Named).set_error(key.clone(), error, revision, now) {
                    self.changed(&kind, Class::Named, key, revision, now);
                }
            }
            Update::Progress { kind, of, completeness } => {
                self.confirm(&kind, &of);
                self.update_completeness(&kind, &of, |known| known.raised(completeness));
                if let Selector::Name(glob) = of
                    && completeness >= Completeness::Settled
                {
                    self.conclude_empty(&kind, &glob, now);
                }
            }
            Update::PartHeld { kind, of } => self.update_completeness(&kind, &of, Completeness::interrupted),
            Update::Interrupted { kind, of } => self.interrupt(&kind, &of),
            Update::FullSet { .. } => {}   // it came as its differences
            Update::Unchanged { .. } => {} // brakes alone depend on it
            Update::Unreadable { kind, of, names } => {
                let table = self.resources(&kind, Class::Wildcard);
                names.iter().for_each(|name| table.forget_evidence(name));
                names.iter().for_each(|name| self.sought.forget_answer(&kind, Class::Wildcard, name));
                let table = self.resources(&kind, Class::Wildcard);
                if of == Selector::Wildcard && table.set_unreadable(names) {
                    self.dirty = true;
                    self.changed_wildcards.entry(kind).or_default();
                }
            }
        }
        (self.origin, self.received) = before;
    }

    pub(super) fn set_resource(&mut self, kind: &Type, class: Class, key: Name, resource: Arc<Resource>, now: Moment) {
        self.prefetch_endpoints(kind, &resource, now);
        if class == Class::Named {
            self.revive_collection(kind, &key);
        }
        let (revision, origin) = (self.revision.next(), self.origin);
        let old = self.followed(kind, class, &key);
        let taken = self.resources(kind, class).set(class, key.clone(), resource, origin, revision, now);
        self.note_taken(taken, (kind.clone(), class, key), old.as_ref(), revision, now);
    }

    /// A table has taken what a server sent under a name, where `old` was present. A resource that had expired is back by its TTL alone.
    fn note_taken(&mut self, taken: Applied, key: Key, old: Option<&Arc<Resource>>, revision: Revision, now: Moment) {
        match taken {
            Applied::Changed => self.note_change(&key, old, now),
            Applied::Refreshed | Applied::Reattributed | Applied::Unchanged => self.row.cancel_removal(&key),
        }
        let (kind, class, name) = key;
        match taken {
            Applied::Changed | Applied::Refreshed => self.changed(&kind, class, name, revision, now),
            Applied::Reattributed => self.is_reattributed = true,
            Applied::Unchanged => {}
        }
    }

    /// Returns what is present under a name, if the order follows changes of its type.
    pub(super) fn followed(&self, kind: &Type, class: Class, name: &Name) -> Option<Arc<Resource>> {
        let facts = self.facts();
        Row::follows(kind, &facts).then(|| facts.resource(kind, class, name).cloned()).flatten()
    }

    /// Records that a resource in the tables was added, replaced or removed.
    fn note_change(&mut self, key: &Key, old: Option<&Arc<Resource>>, now: Moment) {
        let (row, surroundings) = self.row_and_surroundings();
        row.applied(key.clone(), old, &surroundings.facts(), now);
    }

    /// Forgets a name that no session subscribes to any more.
    pub(super) fn forget_order(&mut self, key: &Key, old: Option<&Arc<Resource>>, now: Moment) {
        self.row.drop_waiting(key);
        self.note_change(key, old, now);
    }

    /// Ends the reported emptiness or error of a collection that has a member now.
    pub(super) fn revive_collection(&mut self, kind: &Type, member: &Name) {
        if let Some(glob) = self.interest.collection(kind, member) {
            let table = self.resources(kind, Class::Named);
            if table.get(&glob).is_some() {
                table.forget(&glob);
                self.dirty = true;
            }
        }
    }

    /// A server has removed what was loaded from disk and stays for now. Nobody waits for a server to confirm it any more, and clients that may
    /// hold something newer are not sent it.
    pub(super) fn note_removed_since(&mut self, kind: &Type, class: Class, name: &Name) {
        if self.resources(kind, class).note_removed_since(name) && class == Class::Wildcard {
            self.dirty = true;
            self.changed_wildcards.entry(kind.clone()).or_default();
        }
    }

    /// A server has spoken of a resource that stays present: that it was loaded from disk counts no more.
    fn confirm_one(&mut self, kind: &Type, class: Class, name: &Name, now: Moment) {
        let revision = self.revision.next();
        if self.resources(kind, class).confirm(name) {
            self.changed(kind, class, name.clone(), revision, now);
        }
    }

    /// Applies the word of a server that has no such resource, and whose rules keep what is present.
    fn keep(&mut self, kind: &Type, class: Class, key: &Name, now: Moment) {
        let is_present =
            |view: &Self, name: &Name| view.entry(kind, class, name).is_some_and(|of| of.resource().is_some());
        let members = match class {
            Class::Named if key.is_glob() => self.members_of(kind, key),
            _ if is_present(self, key) => vec![key.clone()],
            _ => Vec::new(),
        };
        if members.is_empty() {
            return self.remove(kind, class, key, Evidence::Reported, now);
        }
        for name in members {
            self.confirm_one(kind, class, &name, now);
        }
        if class == Class::Named && key.is_glob() {
            let of = Selector::Name(key.clone());
            self.confirm(kind, &of);
            self.update_completeness(kind, &of, |_| Completeness::Complete);
        }
    }

    fn members_of(&mut self, kind: &Type, glob: &Name) -> Vec<Name> {
        let collection = self.resources(kind, Class::Named).collection(glob);
        collection.into_iter().flat_map(|of| of.members().cloned()).collect()
    }

    fn remove(&mut self, kind: &Type, class: Class, key: &Name, word: Evidence, now: Moment) {
        if class == Class::Named && key.is_glob() {
            self.end_collection(kind, key, now);
            return;
        }
        self.remove_one(kind, class, key, word, now);
        // A complete collection is empty once upstream has removed its last member.
        if class == Class::Named
            && let Some(glob) = self.interest.collection(kind, key)
        {
            let of = self.resources(kind, class).collection(&glob);
            if of.is_some_and(|of| of.is_empty() && of.completeness >= Completeness::Settled) {
                self.remove_one(kind, class, &glob, Evidence::Reported, now);
            }
        }
    }

    /// Records that a collection is complete and has no members.
    pub(super) fn conclude_empty(&mut self, kind: &Type, glob: &Name, now: Moment) {
        let of = self.resources(kind, Class::Named).collection(glob);
        if of.is_some_and(|of| of.is_empty() && !of.lapsed) {
            self.remove_one(kind, Class::Named, glob, Evidence::Reported, now);
        }
    }

    /// Another server becomes authoritative, or the same one opens again: a set may have grown, and removed resources may be back.
    pub(super) fn interrupt(&mut self, kind: &Type, of: &Selector) {
        self.update_completeness(kind, of, Completeness::interrupted);
        self.sought.interrupt(kind, of);
        let revision = self.revision;
        self.dirty = true; // the snapshot includes which evidence counts
        match of {
            Selector::Wildcard => {
                let table = self.resources(kind, Class::Wildcard);
                table.interrupt(revision);
                if table.is_cut_short() && table.completeness < Completeness::Settled {
                    self.changed_wildcards.entry(kind.clone()).or_default(); // who waited for its quiet waits no more
                }
                let table = self.resources(kind, Class::Wildcard);
                table.set_unreadable(BTreeSet::new()); // the server sends it again, if it still exists
            }
            Selector::Name(name) => self.resources(kind, Class::Named).interrupt_one(name, revision),
        }
    }

    /// Applies an empty collection reported by upstream (COLL-15), whose members were removed one by one. Those from a server of higher rank
    /// may stay.
    fn end_collection(&mut self, kind: &Type, glob: &Name, now: Moment) {
        if self.members_of(kind, glob).is_empty() {
            self.remove_one(kind, Class::Named, glob, Evidence::Reported, now);
        }
        self.confirm(kind, &Selector::Name(glob.clone()));
        self.update_completeness(kind, &Selector::Name(glob.clone()), |_| Completeness::Complete);
    }

    pub(super) fn remove_one(&mut self, kind: &Type, class: Class, key: &Name, word: Evidence, now: Moment) {
        let (revision, source) = (self.revision.next(), self.origin);
        let options = self.options.clone();
        let (old, followed) = (self.followed(kind, class, key), (kind.clone(), class, key.clone()));
        let member_only = class == Class::Named && !self.interest.has_name(kind, key);
        let table = self.resources(kind, class);
        // Errors and absence belong to no server: a lower server may report those.
        let here = |entry: &Entry| matches!(entry.presence, Presence::Present(_));
        let higher = |entry: &Entry| source.holds_missing && here(entry) && entry.origin.rank < source.rank;
        if table.get(key).is_some_and(higher) {
            return;
        }
        if member_only {
            // No session subscribes to it by itself. Those that were sent it as a member know it, and need no tombstone.
            if table.get(key).is_some() {
                table.forget_at(key, revision);
                self.note_change(&followed, old.as_ref(), now);
                self.changed(kind, class, key.clone(), revision, now);
            }
            if word == Evidence::Reported {
                self.answer_claim(kind, class, key);
            }
            return;
        }
        // A `*` table does not remember the absence of what was not in it; a name is remembered as absent (XLAT-18).
        let is_new_to_table = class == Class::Wildcard && table.get(key).is_none();
        if is_new_to_table && word == Evidence::Reported {
            return self.answer_claim(kind, class, key);
        }
        let changed = !is_new_to_table && table.set_absent(key, word, revision, now);
        if word == Evidence::Reported {
            self.sought.found(kind, class, key);
        }
        let table = self.resources(kind, class);
        if changed {
            table.trim_bodies(now, &options);
            self.note_change(&followed, old.as_ref(), now);
            self.changed(kind, class, key.clone(), revision, now);
        } else if class == Class::Named {
            self.note_absence(kind, key); // it may have been absent only because it expired
        }
    }

    /// Expires a resource (UP-40): clients lose it. No server has reported that, so it is requested again: it may still exist
    /// upstream and its extension be late (UP-17), or another server may have it (FB-4).
    pub(super) fn expire(&mut self, kind: &Type, class: Class, name: Name, now: Moment) {
        let glob = self.interest.collection(kind, &name).filter(|_| class == Class::Named);
        self.remove_one(kind, class, &name, Evidence::Reported, now);
        self.resources(kind, class).record_expired(&name, glob.as_ref());
        let wanted = match class {
            Class::Wildcard => Some(Selector::Wildcard),
            Class::Named => {
                self.note_absence(kind, &name);
                self.interest.has_name(kind, &name).then_some(Selector::Name(name))
            }
        };
        for wanted in wanted.into_iter().chain(glob.map(Selector::Name)) {
            self.interest.ask_again(kind, &wanted);
        }
    }

    /// Upstream has responded for a set. Members that expired before and are not in the response count as absent.
    pub(super) fn confirm(&mut self, kind: &Type, of: &Selector) {
        match of {
            Selector::Wildcard => {
                let table = self.resources(kind, Class::Wildcard);
                table.has_expired = false;
                table.resume();
            }
            Selector::Name(glob) => self.resources(kind, Class::Named).collections.set_expired(glob, false),
        }
    }

    pub(super) fn held_by_name(&self, kind: &Type, name: &Name) -> bool {
        let table = self.tables.get(&(kind.clone(), Class::Named));
        table.and_then(|table| table.get(name)).is_some_and(|entry| matches!(entry.presence, Presence::Present(_)))
    }

    /// Updates how much of a set is known.
    pub(super) fn update_completeness(
        &mut self,
        kind: &Type,
        of: &Selector,
        change: impl FnOnce(Completeness) -> Completeness,
    ) {
        match of {
            Selector::Wildcard => {
                let table = self.resources(kind, Class::Wildcard);
                let before = table.completeness;
                table.completeness = change(before);
                let is_complete = table.completeness == Completeness::Complete;
                // A server has spoken of all that it has: what is present beside that is no longer what an earlier process had.
                let confirms = is_complete && table.confirm_all();
                if table.completeness != before || confirms {
                    if is_complete {
                        self.sought.found_all(kind);
                    }
                    self.dirty = true;
                    self.changed_wildcards.entry(kind.clone()).or_default();
                }
            }
            Selector::Name(glob) => {
                if self.resources(kind, Class::Named).collections.update_completeness(glob, change) {
                    self.dirty = true;
                    for session in self.interest.sessions_of(kind, glob) {
                        self.wakes.entry(session).or_default();
                    }
                }
            }
        }
    }

    fn changed(&mut self, kind: &Type, class: Class, name: Name, revision: Revision, now: Moment) {
        self.revision = revision;
        self.dirty = true;
        let received = Some(self.received.unwrap_or(now));
        match class {
            Class::Wildcard => {
                let oldest = self.changed_wildcards.entry(kind.clone()).or_default();
                *oldest = earliest(*oldest, received);
            }
            Class::Named => {
                self.names_received = earliest(self.names_received, received);
                self.note_absence(kind, &name);
                for session in self.interest.sessions_of(kind, &name) {
                    let mark = NameChanged { kind: kind.clone(), name: name.clone(), revision, claimed: None };
                    self.wakes.entry(session).or_default().push(mark);
                }
            }
        }
    }

    /// Requests the endpoints of a new cluster before the clients that are sent the cluster do.
    pub(super) fn prefetch_endpoints(&mut self, kind: &Type, resource: &Resource, now: Moment) {
        let Some(name) = &resource.refers_to else { return };
        let Some(referred) = self.table.referred_by(kind).filter(|kind| kind.is(Role::Endpoints)) else { return };
        if self.interest.any_name(&referred) {
            self.interest.prefetch(&referred, name, now);
        }
    }
}
