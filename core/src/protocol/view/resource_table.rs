//! The resources of one type and interest class, each with the revision of its last change.
//!
//! Owns the entries: each name once, absence included. Applies changes to them, which its parts record and count. All maps are persistent,
//! so a clone is cheap and a published snapshot stays as it was.
//! Invariant: a name that is present or absent is either in the additions or in the removals of the journal, at the revision of its entry.

mod coverage;
mod entry;
mod expirations;
mod journal;
mod sums;
mod tombstone_bodies;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use entry::Applied;
pub use entry::{AbsenceEvidence, Presence, TableEntry};
use rpds::HashTrieMapSync;

use self::coverage::Coverage;
use self::entry::PresenceHistory;
use self::expirations::Expirations;
use self::journal::Journal;
use self::sums::Sums;
use self::tombstone_bodies::TombstoneBodies;
use super::collections::Collections;
use super::options::ViewOptions;
use super::update::{Evidence, NamedError, Origin};
use crate::protocol::keys::{Class, Revision};
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource};

/// What a view has of one type: by name, or of the wildcard set.
#[derive(Debug, Clone, Default)]
pub struct ResourceTable {
    entries: HashTrieMapSync<Name, TableEntry>,
    journal: Journal,
    sums: Sums,
    coverage: Coverage,
    collections: Collections,
    expirations: Expirations,
    bodies: TombstoneBodies,
}

impl ResourceTable {
    /// Returns an empty table, made at a revision.
    pub(super) fn empty_at(made: Revision, horizon: Revision) -> Self {
        Self { journal: Journal::empty_at(made, horizon), ..Self::default() }
    }

    /// Returns the record of which name changed when.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    pub(super) fn journal_mut(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Returns the sums of contents that versions are made of.
    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    pub(super) fn sums_mut(&mut self) -> &mut Sums {
        &mut self.sums
    }

    /// Returns how much of the wildcard set is known.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    pub(super) fn coverage_mut(&mut self) -> &mut Coverage {
        &mut self.coverage
    }

    /// Returns the collections that sessions subscribe to.
    pub fn collections(&self) -> &Collections {
        &self.collections
    }

    pub(super) fn collections_mut(&mut self) -> &mut Collections {
        &mut self.collections
    }

    pub(crate) fn expirations(&self) -> &Expirations {
        &self.expirations
    }

    /// Looks up a name.
    pub fn get(&self, name: &Name) -> Option<&TableEntry> {
        self.entries.get(name)
    }

    /// Returns everything known, by name, present or not.
    pub fn entries(&self) -> impl Iterator<Item = (&Name, &TableEntry)> {
        self.entries.iter().inspect(|_| visit())
    }

    /// Returns the present resources that changed after a revision, in the order of change.
    pub fn additions(&self, after: Revision) -> impl Iterator<Item = (&TableEntry, &Arc<Resource>)> {
        self.changed_since(after).filter_map(|(_, entry)| Some((entry, entry.resource()?)))
    }

    /// Returns the present resources whose TTL was extended after a revision.
    pub(crate) fn refreshes(&self, after: Revision) -> impl Iterator<Item = (&TableEntry, &Arc<Resource>)> {
        self.refreshed_since(after).filter_map(|(_, entry)| Some((entry, entry.resource()?)))
    }

    /// Returns the names of present resources that changed after a revision, in the order of change.
    pub fn changed_since(&self, after: Revision) -> impl Iterator<Item = (&Name, &TableEntry)> {
        self.journal.additions(after).filter_map(|name| Some((name, self.entries.get(name)?)))
    }

    /// Returns the names of present resources whose TTL was extended after a revision.
    pub fn refreshed_since(&self, after: Revision) -> impl Iterator<Item = (&Name, &TableEntry)> {
        self.journal.refreshes(after).filter_map(|name| Some((name, self.entries.get(name)?)))
    }

    /// Returns the names that were removed after a revision, in the order of removal.
    pub fn removals(&self, after: Revision) -> impl Iterator<Item = (&Name, &TableEntry)> {
        self.journal.removals(after).filter_map(|name| Some((name, self.entries.get(name)?)))
    }

    /// Returns what is present and was given by its server at `since` or later.
    pub fn given_since(&self, since: Moment) -> impl Iterator<Item = (&Name, &TableEntry)> {
        self.entries().filter(move |(_, entry)| entry.resource().is_some() && entry.since >= since)
    }

    /// Returns how many resources are present.
    pub fn present(&self) -> usize {
        self.journal.present()
    }

    /// Returns the names of what is present.
    pub fn present_names(&self) -> impl Iterator<Item = &Name> {
        self.journal.present_names()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.size()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.collections.is_empty()
    }

    pub(super) fn next_deadline(&self, options: &ViewOptions) -> Option<Moment> {
        earliest(self.expirations.next_deadline(), self.bodies.next_deadline(options))
    }

    /// Returns the opening of what a name belongs to: of `*`, or of its collection.
    pub(crate) fn opening_of(&self, class: Class, name: &Name) -> Revision {
        match class {
            Class::Wildcard => self.coverage.opening(),
            Class::Named => self.collections.opening_of(name),
        }
    }

    /// Applies a resource. The result is a change if a client can see a difference (I5). A difference of the TTL does not count.
    pub(crate) fn set(
        &mut self,
        class: Class,
        name: Name,
        resource: Arc<Resource>,
        origin: Origin,
        revision: Revision,
        now: Moment,
    ) -> Applied {
        self.sums.note_given(now);
        let before = self.entries.get(&name);
        if let Some(entry) = before
            && let Some(held) = entry.resource().filter(|held| held.full == resource.full)
        {
            if entry.origin != origin {
                // The same resource came from another server: only the origin changes (FB-24).
                let before = entry.origin;
                let entry = TableEntry { origin, since: now, ..entry.clone() };
                self.sums.change_origin(before, origin);
                self.entries.insert_mut(name.clone(), entry);
                return match self.set(class, name, resource, origin, revision, now) {
                    Applied::Unchanged if before.from_disk => Applied::Refreshed,
                    Applied::Unchanged if before.server != origin.server => Applied::Reattributed,
                    applied => applied,
                };
            }
            // A do-not-cache resource is sent again to the clients that wait for it (XLAT-29), and a resource whose error
            // clients were sent has to be sent again to end the error.
            let is_awaited = class == Class::Named && resource.do_not_cache();
            if !is_awaited && entry.error.is_none() {
                let has_ttl = held.ttl.is_some() || resource.ttl.is_some();
                return if has_ttl { self.refresh(&name, resource.ttl, revision, now) } else { Applied::Unchanged };
            }
        }
        let (history, body_changed) = match before {
            Some(entry) => entry.continued_by(&resource, revision, self.journal.horizon()),
            None => (PresenceHistory::beginning(revision), revision),
        };
        self.unindex(&name);
        self.sums.add(&name, &resource, origin);
        self.journal.add(&name, revision);
        self.collections.note(&name, true);
        let expires = self.expirations.add(&name, resource.ttl, now);
        let new = TableEntry::new(Presence::Present(resource), history, revision, now);
        self.entries.insert_mut(name, TableEntry { body_changed, expires, refreshed: revision, origin, ..new });
        Applied::Changed
    }

    /// Records that a server has spoken of a present resource that was loaded from disk. Returns whether that is new.
    pub(crate) fn confirm(&mut self, name: &Name) -> bool {
        self.note_spoken_of(name, |origin| Origin { from_disk: false, ..origin })
    }

    /// Records that a server has removed a resource that was loaded from disk, and that it stays for now. Returns whether that is new.
    pub(crate) fn note_removed_since(&mut self, name: &Name) -> bool {
        self.note_spoken_of(name, |origin| Origin { is_removed: true, ..origin })
    }

    fn note_spoken_of(&mut self, name: &Name, change: impl FnOnce(Origin) -> Origin) -> bool {
        let is_open = |old: &&TableEntry| old.resource().is_some() && old.origin.from_disk && !old.origin.is_removed;
        let Some(entry) = self.entries.get(name).filter(is_open).cloned() else { return false };
        let origin = change(entry.origin);
        self.sums.change_origin(entry.origin, origin);
        self.entries.insert_mut(name.clone(), TableEntry { origin, ..entry });
        true
    }

    /// Confirms everything that is present.
    pub(crate) fn confirm_all(&mut self) -> bool {
        let any = self.sums.awaits_confirmation();
        let names: Vec<_> = if any { self.present_names().cloned().collect() } else { Vec::new() };
        for name in &names {
            self.confirm(name);
        }
        any
    }

    /// Extends the TTL of a resource, as reported by upstream. The extension may come slightly after the expiry.
    pub(crate) fn extend_ttl(
        &mut self,
        name: &Name,
        ttl: Option<Duration>,
        source: Origin,
        revision: Revision,
        now: Moment,
    ) -> Applied {
        match self.entries.get(name).map(|entry| entry.presence.clone()) {
            Some(Presence::Absent(Some(last))) if last.ttl.is_some() => {
                self.set(Class::Wildcard, name.clone(), Arc::new(last.with_ttl(ttl)), source, revision, now)
            }
            _ => self.refresh(name, ttl, revision, now),
        }
    }

    /// Gives a present resource a new TTL, or none.
    fn refresh(&mut self, name: &Name, ttl: Option<Duration>, revision: Revision, now: Moment) -> Applied {
        let Some(entry) = self.entries.get(name).cloned() else { return Applied::Unchanged };
        let Presence::Present(held) = &entry.presence else { return Applied::Unchanged };
        self.expirations.remove(name, entry.expires);
        let expires = self.expirations.add(name, ttl, now);
        self.journal.refresh(name, entry.refreshed, revision);
        let resource = if held.ttl == ttl { held.clone() } else { Arc::new(held.with_ttl(ttl)) };
        let presence = Presence::Present(resource);
        self.entries.insert_mut(name.clone(), TableEntry { presence, expires, refreshed: revision, ..entry });
        Applied::Refreshed
    }

    /// Records an error of a name. Returns whether it is new.
    pub(crate) fn set_error(&mut self, name: Name, error: Arc<NamedError>, revision: Revision, now: Moment) -> bool {
        let unknown = || TableEntry::new(Presence::Unknown, PresenceHistory::beginning(revision), revision, now);
        let entry = self.entries.get(&name).cloned().unwrap_or_else(unknown);
        if entry.error.as_ref().is_some_and(|(_, known)| *known == error) {
            return false;
        }
        self.entries.insert_mut(name, TableEntry { error: Some((revision, error)), ..entry });
        true
    }

    /// Removes a resource. Returns whether it was present.
    pub(crate) fn remove(&mut self, name: &Name, revision: Revision, now: Moment) -> bool {
        let Some(TableEntry { history, presence: Presence::Present(old), .. }) = self.entries.get(name).cloned() else {
            return false;
        };
        self.unindex(name);
        self.bodies.add(name, &old, revision, now);
        self.add_tombstone(name, TableEntry::tombstone(Some(old), history, revision, now));
        true
    }

    /// Like [`Self::remove`]; a name that was never present is remembered as absent too.
    pub(crate) fn set_absent(&mut self, name: &Name, word: Evidence, revision: Revision, now: Moment) -> bool {
        let known = self.entries.get(name).filter(|entry| !matches!(entry.presence, Presence::Unknown));
        match (known, word) {
            // Clients hold it, and for them silence is not evidence.
            (Some(entry), Evidence::Silence) if entry.resource().is_some() => false,
            (Some(entry), Evidence::Reported) if entry.resource().is_some() => self.remove(name, revision, now),
            (Some(entry), Evidence::Silence) => {
                if entry.absence == AbsenceEvidence::Expired {
                    self.set_absence(name, AbsenceEvidence::Silence);
                }
                false
            }
            (Some(entry), Evidence::Reported) => {
                // It was absent, and now the evidence also counts for clients that hold it.
                let news = !self.coverage.is_absent_by_evidence(entry);
                // Without news there is no new revision: the report is no later than what was there.
                let reported = if news { revision } else { entry.reported.max(revision.previous()) };
                let entry = TableEntry { absence: AbsenceEvidence::Reported, reported, ..entry.clone() };
                self.entries.insert_mut(name.clone(), entry);
                news
            }
            (None, _) => {
                let tombstone = TableEntry::tombstone(None, PresenceHistory::beginning(revision), revision, now);
                self.add_tombstone(name, tombstone);
                if word == Evidence::Silence {
                    self.set_absence(name, AbsenceEvidence::Silence);
                }
                true
            }
        }
    }

    /// Records that the last removal was an expiry, and not the server's.
    pub(crate) fn record_expired(&mut self, name: &Name, glob: Option<&Name>) {
        self.coverage.set_expired(true);
        self.set_absence(name, AbsenceEvidence::Expired);
        glob.into_iter().for_each(|glob| self.collections.set_expired(glob, true));
    }

    fn set_absence(&mut self, name: &Name, absence: AbsenceEvidence) {
        if let Some(entry) = self.entries.get(name).filter(|entry| entry.absence != absence).cloned() {
            self.entries.insert_mut(name.clone(), TableEntry { absence, ..entry });
        }
    }

    /// Forgets a name that no session subscribes to any more.
    pub(crate) fn forget_at(&mut self, name: &Name, revision: Revision) {
        self.journal.note_forgotten(revision);
        self.forget(name);
    }

    /// Forgets all that is known of a name.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.unindex(name);
        self.entries.remove_mut(name);
    }

    /// Drops bodies of tombstones that are old or too many, or whose names are forgotten. Returns whether a new snapshot would differ.
    pub(crate) fn trim_bodies(&mut self, now: Moment, options: &ViewOptions) -> bool {
        let mut any = false;
        while let Some(oldest) = self.bodies.take_surplus(self.journal.horizon(), now, options) {
            any = true;
            if let Some((name, entry)) = oldest.taken_out_of(&self.entries) {
                self.entries.insert_mut(name, entry);
            }
        }
        any
    }

    /// Forgets the oldest removal. A session that has not reached it yet has missed it.
    pub(crate) fn forget_oldest_removal(&mut self) {
        if let Some(name) = self.journal.pass_oldest_removal() {
            self.forget(&name);
        }
    }

    fn add_tombstone(&mut self, name: &Name, tombstone: TableEntry) {
        self.journal.remove(name, tombstone.changed);
        self.entries.insert_mut(name.clone(), tombstone);
    }

    /// Like [`Coverage::interrupt`], for one name or one collection.
    pub(super) fn interrupt_one(&mut self, name: &Name, at: Revision) {
        self.collections.interrupt(name, at);
        self.forget_evidence(name);
    }

    /// Makes the absence of a name no evidence for clients that come later.
    pub(super) fn forget_evidence(&mut self, name: &Name) {
        if let Some(entry) = self.entries.get(name).filter(|entry| entry.reported != Revision::ZERO).cloned() {
            self.entries.insert_mut(name.clone(), TableEntry { reported: Revision::ZERO, ..entry });
        }
    }

    /// Removes a name from the journal and from the sums, before its entry is replaced.
    fn unindex(&mut self, name: &Name) {
        let Some(entry) = self.entries.get(name).cloned() else { return };
        self.journal.take_out(name, &entry);
        if let Some(held) = entry.resource() {
            self.collections.note(name, false);
            self.sums.remove(name, held, entry.origin);
            self.expirations.remove(name, entry.expires);
        }
    }
}

#[cfg(test)]
mod tests;
