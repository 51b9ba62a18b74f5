//! Writes into the tables of a view what a server said, one name or one set at a time, and records what follows from it: in the books of
//! the order, for the next publication, for claims, and in what is requested.
//!
//! Invariant: nothing is absent without evidence.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::claims::OpenClaims;
use super::interest::Interest;
use super::publication::{NameChanged, Publication};
use super::resource_table::{Applied, Presence, ResourceTable, TableEntry};
use super::row::Row;
use super::stage::{Setup, StageFacts};
use super::tables::Tables;
use super::update::{Completeness, Evidence, NamedError, Origin, UpdateContext};
use super::wants::Wants;
use crate::protocol::keys::{Class, Key, Revision, Selector};
use crate::protocol::moment::Moment;
use crate::xds::{Name, Resource, Role, SetVersion, Type};

/// The tables, and everything that is kept up to date with them, while something is applied.
pub(super) struct TableWriter<'a> {
    tables: &'a mut Tables,
    interest: &'a mut Interest,
    sought: &'a mut OpenClaims,
    row: &'a mut Row,
    publication: &'a mut Publication,
    setup: &'a Setup,
    occasion: UpdateContext,
}

impl<'a> TableWriter<'a> {
    pub(super) fn new(
        (tables, interest, sought): (&'a mut Tables, &'a mut Interest, &'a mut OpenClaims),
        row: &'a mut Row,
        publication: &'a mut Publication,
        setup: &'a Setup,
        occasion: UpdateContext,
    ) -> Self {
        Self { tables, interest, sought, row, publication, setup, occasion }
    }

    pub(super) fn tables(&self) -> &Tables {
        self.tables
    }

    pub(super) fn interest(&self) -> &Interest {
        self.interest
    }

    /// What follows came from this server, at an earlier time.
    pub(super) fn speak_for(&mut self, origin: Origin) {
        self.occasion.origin = origin;
    }

    fn table(&mut self, kind: &Type, class: Class) -> &mut ResourceTable {
        self.tables.table_made_at(self.publication.revision(), kind, class)
    }

    fn facts(&self) -> StageFacts<'_> {
        StageFacts::new(self.tables, self.interest, self.setup)
    }

    /// Puts a resource under a name.
    pub(super) fn set_resource(&mut self, kind: &Type, class: Class, key: Name, resource: Arc<Resource>) {
        let UpdateContext { origin, now, .. } = self.occasion;
        self.interest.prefetch_endpoints(kind, std::slice::from_ref(&resource), self.setup.types(), now);
        if class == Class::Named {
            self.revive_collection(kind, &key);
        }
        let (revision, old) = (self.publication.revision().next(), self.followed(kind, class, &key));
        let taken = self.table(kind, class).set(class, key.clone(), resource, origin, revision, now);
        self.note_taken(taken, (kind.clone(), class, key), old.as_ref(), revision);
    }

    /// Gives a resource a new TTL, or none.
    pub(super) fn extend_ttl(&mut self, key: Key, ttl: Option<Duration>) {
        let (UpdateContext { origin, now, .. }, (kind, class, name)) = (self.occasion, &key);
        let (revision, old) = (self.publication.revision().next(), self.followed(kind, *class, name));
        let taken = self.table(kind, *class).extend_ttl(name, ttl, origin, revision, now);
        let back = self.tables.resource(kind, *class, name).filter(|_| matches!(taken, Applied::Changed)).cloned();
        self.interest.prefetch_endpoints(kind, back.as_slice(), self.setup.types(), now);
        self.note_taken(taken, key, old.as_ref(), revision);
    }

    /// A table has taken what a server sent under a name. `old` was there before. An expired resource may be back by its TTL alone.
    fn note_taken(&mut self, taken: Applied, key: Key, old: Option<&Arc<Resource>>, revision: Revision) {
        match taken {
            Applied::Changed => self.note_change(&key, old),
            Applied::Refreshed | Applied::Reattributed | Applied::Unchanged => self.row.cancel_removal(&key),
        }
        let (kind, class, name) = key;
        match taken {
            Applied::Changed | Applied::Refreshed => self.changed(&kind, class, name, revision, false),
            Applied::Reattributed => self.publication.note_reattributed(),
            Applied::Unchanged => {}
        }
    }

    pub(super) fn set_error(&mut self, kind: &Type, key: Name, error: Arc<NamedError>) {
        let (revision, now) = (self.publication.revision().next(), self.occasion.now);
        if self.table(kind, Class::Named).set_error(key.clone(), error, revision, now) {
            let is_absent = self.tables.resource(kind, Class::Named, &key).is_none();
            self.changed(kind, Class::Named, key, revision, is_absent);
        }
    }

    /// Returns what is present under a name, if the order follows changes of its type.
    fn followed(&self, kind: &Type, class: Class, name: &Name) -> Option<Arc<Resource>> {
        let facts = self.facts();
        Row::follows(kind, &facts).then(|| facts.tables().resource(kind, class, name).cloned()).flatten()
    }

    /// Records that a resource in the tables was added, replaced or removed.
    fn note_change(&mut self, key: &Key, old: Option<&Arc<Resource>>) {
        let facts = StageFacts::new(self.tables, self.interest, self.setup);
        self.row.applied(key.clone(), old, &facts, self.occasion.now);
    }

    /// A server has removed or replaced a cluster that led to these endpoints. If no cluster takes them now, they do not linger.
    pub(super) fn leave_endpoints(&mut self, endpoints: &Name) {
        let facts = self.facts();
        let kind = self.setup.types().referred_by(facts.clusters()).filter(|kind| kind.is(Role::Endpoints));
        if let Some(kind) = kind.filter(|_| !self.row.may_take(endpoints, &facts)) {
            self.interest.note_over(&kind, endpoints);
        }
    }

    /// Ends the reported emptiness or error of a collection that has a member now.
    fn revive_collection(&mut self, kind: &Type, member: &Name) {
        if let Some(glob) = self.interest.collection(kind, member) {
            let table = self.table(kind, Class::Named);
            if table.get(&glob).is_some() {
                table.forget(&glob);
                self.publication.note_difference();
            }
        }
    }

    /// A server has removed what was loaded from disk and stays for now. No client waits for a server to confirm it any more, and clients
    /// that may hold something newer are not sent it.
    pub(super) fn note_removed_since(&mut self, kind: &Type, class: Class, name: &Name) {
        if self.table(kind, class).note_removed_since(name) && class == Class::Wildcard {
            self.note_wildcard_difference(kind);
        }
    }

    /// A server has spoken of a resource that stays present: it no longer counts as loaded from disk.
    pub(super) fn confirm_one(&mut self, kind: &Type, class: Class, name: &Name) {
        let revision = self.publication.revision().next();
        if self.table(kind, class).confirm(name) {
            self.changed(kind, class, name.clone(), revision, false);
        }
    }

    /// The next snapshot says something new to all sessions of a `*` set.
    fn note_wildcard_difference(&mut self, kind: &Type) {
        self.publication.note_difference();
        self.publication.wake_wildcard(kind);
    }

    /// Removes what is present under a name, or records that nothing is there.
    pub(super) fn remove_one(&mut self, kind: &Type, class: Class, key: &Name, evidence: Evidence) {
        let UpdateContext { origin, now, .. } = self.occasion;
        let revision = self.publication.revision().next();
        let (old, followed) = (self.followed(kind, class, key), (kind.clone(), class, key.clone()));
        let member_only = class == Class::Named && !self.interest.has_name(kind, key);
        let table = self.table(kind, class);
        // Errors and absence belong to no server: a lower server may report those.
        let here = |entry: &TableEntry| matches!(entry.presence, Presence::Present(_));
        let higher = |entry: &TableEntry| origin.holds_missing && here(entry) && entry.origin.rank < origin.rank;
        if table.get(key).is_some_and(higher) {
            return;
        }
        if member_only {
            // No session subscribes to it by itself. Those that were sent it as a member know it, and need no tombstone.
            if table.get(key).is_some() {
                table.forget_at(key, revision);
                self.note_change(&followed, old.as_ref());
                self.changed(kind, class, key.clone(), revision, true);
            }
            if evidence == Evidence::Reported {
                self.answer_claim(kind, class, key);
            }
            return;
        }
        // A `*` table does not remember the absence of what was not in it; a name is remembered as absent (XLAT-18).
        let is_new_to_table = class == Class::Wildcard && table.get(key).is_none();
        if is_new_to_table && evidence == Evidence::Reported {
            return self.answer_claim(kind, class, key);
        }
        let changed = !is_new_to_table && table.set_absent(key, evidence, revision, now);
        if evidence == Evidence::Reported {
            self.sought.found(kind, class, key);
        }
        if changed {
            let options = self.setup.options();
            self.table(kind, class).trim_bodies(now, options);
            self.note_change(&followed, old.as_ref());
            self.changed(kind, class, key.clone(), revision, true);
        } else if class == Class::Named {
            self.note_absence(kind, key); // it may have been absent only because it expired
        }
    }

    /// Expires a resource (UP-40): clients lose it. No server has reported that, so it is requested again: it may still exist
    /// upstream and its extension be late (UP-17), or another server may have it (FB-4).
    pub(super) fn expire(&mut self, kind: &Type, class: Class, name: Name) {
        let glob = self.interest.collection(kind, &name).filter(|_| class == Class::Named);
        self.remove_one(kind, class, &name, Evidence::Reported);
        self.table(kind, class).record_expired(&name, glob.as_ref());
        let expired = match class {
            Class::Wildcard => Some(Selector::Wildcard),
            Class::Named => {
                self.note_absence(kind, &name);
                self.interest.has_name(kind, &name).then_some(Selector::Name(name))
            }
        };
        for selector in expired.into_iter().chain(glob.map(Selector::Name)) {
            self.interest.ask_again(kind, &selector);
        }
    }

    /// Another server becomes authoritative, or the same one opens again: a set may have grown, and removed resources may be back.
    pub(super) fn interrupt(&mut self, kind: &Type, of: &Selector) {
        self.update_completeness(kind, of, Completeness::interrupted);
        self.sought.interrupt(kind, of);
        self.publication.note_difference(); // the snapshot includes which evidence counts
        let revision = self.publication.revision();
        match of {
            Selector::Wildcard => {
                let coverage = self.table(kind, Class::Wildcard).coverage_mut();
                coverage.interrupt(revision);
                coverage.set_unreadable(BTreeSet::new()); // the server sends it again, if it still exists
                if coverage.is_cut_short() && coverage.completeness() < Completeness::Settled {
                    self.publication.wake_wildcard(kind); // sessions that waited for its quiet wait no more
                }
            }
            Selector::Name(name) => self.table(kind, Class::Named).interrupt_one(name, revision),
        }
    }

    /// Records the names of a set that came and cannot be read.
    pub(super) fn set_unreadable(&mut self, kind: &Type, of: &Selector, names: BTreeSet<Name>) {
        for name in &names {
            self.table(kind, Class::Wildcard).forget_evidence(name);
            self.sought.forget_answer(kind, Class::Wildcard, name);
        }
        if *of == Selector::Wildcard && self.table(kind, Class::Wildcard).coverage_mut().set_unreadable(names) {
            self.note_wildcard_difference(kind);
        }
    }

    /// Upstream has responded for a set. Members that expired before and are not in the response count as absent.
    pub(super) fn confirm(&mut self, kind: &Type, of: &Selector) {
        match of {
            Selector::Wildcard => {
                let table = self.table(kind, Class::Wildcard);
                table.coverage_mut().set_expired(false);
                table.coverage_mut().resume();
            }
            Selector::Name(glob) => self.table(kind, Class::Named).collections_mut().set_expired(glob, false),
        }
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
                let table = self.table(kind, Class::Wildcard);
                let before = table.coverage().completeness();
                let completeness = change(before);
                table.coverage_mut().set_completeness(completeness);
                let is_complete = completeness == Completeness::Complete;
                // A server has sent all that it has. What is present no longer counts as what an earlier process had.
                let confirms = is_complete && table.confirm_all();
                if completeness != before || confirms {
                    if is_complete {
                        self.sought.found_all(kind);
                    }
                    self.note_wildcard_difference(kind);
                }
            }
            Selector::Name(glob) => {
                if self.table(kind, Class::Named).collections_mut().update_completeness(glob, change) {
                    self.publication.note_difference();
                    self.interest.sessions_of(kind, glob).for_each(|session| self.publication.wake(session));
                }
            }
        }
    }

    /// Requests what sessions are expected to subscribe to.
    pub(super) fn expect(&mut self, kind: &Type, selector: &Selector, until: Moment) {
        self.interest.expect(kind, selector, until);
    }

    /// Follows a collection from here on.
    pub(super) fn collect(&mut self, kind: &Type, glob: &Name) {
        self.table(kind, Class::Named).collections_mut().begin(glob);
    }

    /// Remembers the versions that an earlier process gave out for a set, and whether a resource of it had expired.
    pub(super) fn restore_past(
        &mut self,
        kind: &Type,
        class: Class,
        past: Vec<(SetVersion, SetVersion)>,
        has_expired: bool,
    ) {
        let table = self.table(kind, class);
        table.sums_mut().restore_past_versions(past);
        table.coverage_mut().set_expired(has_expired);
    }

    /// Forgets what was kept for the sessions of a set or of a name, after the last of them has left.
    pub(super) fn forget(&mut self, kind: &Type, selector: &Selector) {
        self.publication.note_difference();
        self.row.forget(kind, selector);
        self.sought.forget(kind, selector);
        match selector {
            Selector::Name(name) => self.forget_name(kind, name),
            Selector::Wildcard => {
                let dropped = self.tables.remove(kind, Class::Wildcard).unwrap_or_default();
                for name in dropped.present_names() {
                    let old = dropped.get(name).and_then(TableEntry::resource);
                    self.forget_order(&(kind.clone(), Class::Wildcard, name.clone()), old);
                }
                self.tables.note_forgotten_set(self.publication.advance());
            }
        }
    }

    /// Removes a name. If it is a collection, removes its members too, except those that a session subscribes to by name.
    fn forget_name(&mut self, kind: &Type, name: &Name) {
        let ended = self.table(kind, Class::Named).collections_mut().end(name);
        let all = ended.iter().flat_map(|of| of.members().chain(self.tables.absent_names_under(kind, name)));
        let members = all.filter(|name| !self.interest.has_name(kind, name));
        let (is_member, revision) = (self.interest.collection(kind, name).is_some(), self.publication.advance());
        let is_kept = is_member && self.tables.resource(kind, Class::Named, name).is_some();
        let forgotten: Vec<_> = members.chain(Some(name).filter(|_| !is_kept)).cloned().collect();
        for name in &forgotten {
            let (old, key) = (self.followed(kind, Class::Named, name), (kind.clone(), Class::Named, name.clone()));
            self.table(kind, Class::Named).forget_at(name, revision);
            if !is_member {
                self.row.drop_waiting(&key); // what waits of a member is for the sessions of its collection
            }
            self.note_change(&key, old.as_ref());
        }
        if self.table(kind, Class::Named).is_empty() {
            self.tables.remove(kind, Class::Named);
        }
    }

    /// Forgets a name that no session subscribes to any more.
    fn forget_order(&mut self, key: &Key, old: Option<&Arc<Resource>>) {
        self.row.drop_waiting(key);
        self.note_change(key, old);
    }

    /// A server has no such name, and the view knows nothing of it: only the sessions that claim it are notified.
    fn answer_claim(&mut self, kind: &Type, class: Class, name: &Name) {
        let revision = self.publication.revision().next();
        let Some(sessions) = self.sought.answer(kind, class, name, revision, self.interest) else { return };
        self.publication.advance();
        self.publication.note_difference();
        let answer = NameChanged::answer(kind.clone(), class, name.clone(), revision);
        sessions.into_iter().for_each(|session| self.publication.notify(session, [answer.clone()]));
    }

    /// Records a change. `is_absent` is set if no resource is under the name.
    fn changed(&mut self, kind: &Type, class: Class, name: Name, revision: Revision, is_absent: bool) {
        debug_assert!(revision == self.publication.revision().next());
        self.publication.advance();
        self.publication.note_difference();
        let received = self.occasion.received;
        match class {
            Class::Wildcard => self.publication.change_wildcard(kind, received),
            Class::Named => {
                self.note_absence(kind, &name);
                let sessions = self.interest.sessions_of(kind, &name);
                let change = NameChanged { kind: kind.clone(), name: name.clone(), revision, is_absent, claimed: None };
                self.publication.change_name(&change, received, sessions);
            }
        }
    }

    /// Updates the absent-name counts of the sessions that want a name.
    fn note_absence(&mut self, kind: &Type, name: &Name) {
        let is_absent = Wants::new(self.tables, self.interest).is_absent(kind, name);
        self.interest.note_absence(kind, name, is_absent);
    }
}
