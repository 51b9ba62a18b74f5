//! The resources of one type and interest class, each with the revision of its last change.
//!
//! Owns the journal: each entry once, at its last change, absence included. Its maps are persistent, so a clone is cheap and a
//! published snapshot stays as it was.
//! Invariant: a name that is present or absent is in exactly one of the two journals, at the revision of its entry.

mod entry;
mod removal;
mod upsert;

pub(crate) use entry::Entry;
pub use entry::{AbsenceEvidence, Presence};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use rpds::{HashTrieMapSync, QueueSync, RedBlackTreeMapSync, RedBlackTreeSetSync};

use super::collections::{Collection, Collections};
use super::keys::{Class, Revision};
use super::receipts::Receipts;
use super::update::Completeness;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::view::options::ViewOptions;
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource, SetVersion};

/// The result of applying a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Applied {
    Unchanged,
    /// Another server has given the same. No client needs to know.
    Reattributed,
    /// Its TTL was extended or removed, or a server has confirmed what was loaded from disk. Only some clients need to know.
    Refreshed,
    Changed,
}

#[derive(Debug, Clone, Default)]
pub struct ResourceTable {
    entries: HashTrieMapSync<Name, Entry>,
    additions: RedBlackTreeMapSync<Revision, Name>,
    removals: RedBlackTreeMapSync<Revision, Name>,
    /// Resources whose TTL was extended since their last change, by the revision of that.
    refreshes: RedBlackTreeMapSync<Revision, Name>,
    expirations: RedBlackTreeMapSync<(Moment, Name), ()>,
    content: SetVersion,
    full: SetVersion,
    /// The length of all present bodies.
    bytes: usize,
    pub completeness: Completeness,
    /// Its stream or server was lost since it last said something of the set: more of it will not come until the next opening.
    is_cut: bool,
    /// A resource has expired since upstream last sent something of the set.
    pub(super) has_expired: bool,
    pub(super) collections: Collections,
    /// The new-style names of present resources, so that the members of a collection are found together.
    in_folders: RedBlackTreeSetSync<Name>,
    /// Removals up to here are forgotten.
    horizon: Revision,
    /// Removals since then were reported on the present opening: evidence also for clients that connected since.
    evidence_from: Revision,
    /// Earlier versions of the table, the last one last, of bodies and of everything: a client that states one holds nothing
    /// else.
    past: Arc<Vec<(SetVersion, SetVersion)>>,
    /// Names of resources that could not be read and have no cached value.
    unreadable: Arc<BTreeSet<Name>>,
    /// Tombstones that still have a body, oldest first.
    bodies: QueueSync<TombstoneBody>,
    body_bytes: usize,
    /// What the removed names take, without bodies.
    removal_bytes: usize,
    /// How many of what is present came from each server, by its place in the plan.
    by_server: Arc<BTreeMap<u16, usize>>,
    /// How often a server gave what another one had given.
    reattributed: u64,
    /// When something was last given.
    given: Moment,
    /// How many of what is present were loaded from disk, and not confirmed by a server since.
    from_disk: usize,
    /// How many of those a server has removed since. They stay for now.
    removed_since: usize,
    /// How many of what is present no later client may be sent from a cache.
    pub(super) uncacheable: usize,
    /// When something present was last forgotten without a tombstone, or the table was made.
    forgotten_at: Revision,
    /// The publications with additions, and those with removals. Only kept for `*`.
    added: Receipts,
    removed: Receipts,
}

#[derive(Debug, Clone)]
struct TombstoneBody {
    name: Name,
    revision: Revision,
    at: Moment,
    bytes: usize,
}

impl ResourceTable {
    pub fn get(&self, name: &Name) -> Option<&Entry> {
        self.entries.get(name)
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.entries.iter().inspect(|_| visit())
    }

    /// Returns the present resources that changed after a revision, in the order of change.
    pub fn additions(&self, after: Revision) -> impl Iterator<Item = (&Entry, &Arc<Resource>)> {
        changes_after(&self.additions, after).filter_map(|name| {
            let entry = self.entries.get(name)?;
            match &entry.presence {
                Presence::Present(resource) => Some((entry, resource)),
                Presence::Absent(_) | Presence::Unknown => None,
            }
        })
    }

    /// Returns the present resources whose TTL was extended after a revision.
    pub(crate) fn refreshes(&self, after: Revision) -> impl Iterator<Item = (&Entry, &Arc<Resource>)> {
        changes_after(&self.refreshes, after).filter_map(|name| {
            let entry = self.entries.get(name)?;
            match &entry.presence {
                Presence::Present(resource) => Some((entry, resource)),
                Presence::Absent(_) | Presence::Unknown => None,
            }
        })
    }

    /// Returns the names of present resources that changed after a revision, in the order of change.
    pub(crate) fn changed_since(&self, after: Revision) -> impl Iterator<Item = (&Name, &Entry)> {
        changes_after(&self.additions, after).filter_map(|name| Some((name, self.entries.get(name)?)))
    }

    /// Returns the names of present resources whose TTL was extended after a revision.
    pub(crate) fn refreshed_since(&self, after: Revision) -> impl Iterator<Item = (&Name, &Entry)> {
        changes_after(&self.refreshes, after).filter_map(|name| Some((name, self.entries.get(name)?)))
    }

    /// Returns the revision of the last addition or removal.
    pub(super) fn newest(&self) -> Revision {
        let newest = |journal: &RedBlackTreeMapSync<Revision, Name>| journal.last().map(|(revision, _)| *revision);
        newest(&self.additions).max(newest(&self.removals)).unwrap_or_default()
    }

    /// Returns the servers that gave what is present, by their places in the plan.
    pub(crate) fn servers(&self) -> impl Iterator<Item = u16> {
        self.by_server.keys().copied()
    }

    /// Returns the names that were removed after a revision, in the order of removal.
    pub(crate) fn removals(&self, after: Revision) -> impl Iterator<Item = (&Name, &Entry)> {
        changes_after(&self.removals, after).filter_map(|name| Some((name, self.entries.get(name)?)))
    }

    /// Records a publication: the last one was at a revision, and its oldest change was received then.
    pub(super) fn note_received(&mut self, last: Revision, revision: Revision, received: Moment) {
        let is_new = |journal: &RedBlackTreeMapSync<Revision, Name>| journal.last().is_some_and(|(at, _)| *at > last);
        if is_new(&self.additions) {
            self.added.note(revision, received);
        }
        if is_new(&self.removals) {
            self.removed.note(revision, received);
        }
    }

    /// Returns when the oldest change was received that added something after a revision.
    pub(crate) fn additions_received(&self, after: Revision) -> Option<Moment> {
        self.added.oldest_after(after)
    }

    /// Returns what the remembered removals take in memory, without bodies.
    pub(crate) fn removal_bytes(&self) -> usize {
        self.removal_bytes
    }

    /// Returns when the oldest removal after a revision was received.
    pub(crate) fn removals_received(&self, after: Revision) -> Option<Moment> {
        self.removed.oldest_after(after)
    }

    /// Returns the version of everything present: of bodies alone, or of all that a delta client sees (I5).
    pub(crate) fn version(&self, full: bool) -> SetVersion {
        if full { self.full } else { self.content }
    }

    /// Returns the removal horizon: a session that was sent removals only up to an earlier revision has missed some.
    pub(crate) fn horizon(&self) -> Revision {
        self.horizon
    }

    /// Returns the length of all present bodies.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether any resource has a TTL.
    pub(crate) fn is_mortal(&self) -> bool {
        !self.expirations.is_empty()
    }

    pub(crate) fn present_names(&self) -> impl Iterator<Item = &Name> {
        self.additions.values().inspect(|_| visit())
    }

    pub(super) fn present(&self) -> usize {
        self.additions.size()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.size()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.collections.is_empty()
    }

    /// Whether the table has had this version: then a client that states it holds only resources that are present, or were
    /// removed by evidence.
    pub(crate) fn knows_version(&self, version: &str) -> bool {
        let known = |(bodies, all): &(SetVersion, SetVersion)| {
            [bodies, all].into_iter().any(|known| known.to_string() == version)
        };
        known(&(self.content, self.full)) || self.past.iter().rev().any(known)
    }

    /// Whether the set of everything that a delta client sees has had this sum.
    pub(crate) fn knows_sum(&self, sum: SetVersion) -> bool {
        self.full == sum || self.past.iter().any(|(_, all)| *all == sum)
    }

    /// Whether everything that left since a revision is among the removals: nothing was forgotten meanwhile.
    pub(crate) fn remembers_since(&self, revision: Revision, forgotten_at: Revision) -> bool {
        self.forgotten_at == forgotten_at && self.horizon <= revision
    }

    /// Returns when something present was last forgotten without a tombstone.
    pub(crate) fn forgotten_at(&self) -> Revision {
        self.forgotten_at
    }

    /// Whether a resource has expired since upstream last sent something of the set.
    pub(crate) fn has_expired(&self) -> bool {
        self.has_expired
    }

    /// Returns the remembered versions, the last one last.
    pub(crate) fn past_versions(&self) -> &[(SetVersion, SetVersion)] {
        &self.past
    }

    /// Remembers versions that an earlier process gave out.
    pub(super) fn restore_past_versions(&mut self, past: Vec<(SetVersion, SetVersion)>) {
        self.past = past.into();
    }

    /// Remembers the version that is published.
    pub(super) fn remember_version(&mut self, options: &ViewOptions) {
        let version = (self.content, self.full);
        if self.past.last() != Some(&version) {
            let past = Arc::make_mut(&mut self.past);
            past.retain(|known| *known != version);
            past.push(version);
            past.drain(..past.len().saturating_sub(options.past_versions));
        }
    }

    /// Whether every resource of the set could be read or has a cached value.
    pub fn is_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    /// Whether the server has sent something under a name that could not be read, and nothing is cached of it: it exists.
    pub(crate) fn is_unreadable(&self, name: &Name) -> bool {
        self.unreadable.contains(name)
    }

    pub(super) fn set_unreadable(&mut self, names: BTreeSet<Name>) -> bool {
        let changed = *self.unreadable != names;
        if changed {
            self.unreadable = Arc::new(names);
        }
        changed
    }

    /// Another server has become active, or the same one was opened again: earlier removals are no evidence for clients that
    /// connect later.
    pub(super) fn interrupt(&mut self, at: Revision) {
        self.evidence_from = at;
        self.is_cut = true;
    }

    /// The server has said something of the set.
    pub(super) fn resume(&mut self) {
        self.is_cut = false;
    }

    /// Whether something of the set has come and no more will for now, since its stream is lost: nobody needs to wait for its quiet.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut && self.completeness > Completeness::Unknown
    }

    /// Returns the opening of what a name belongs to: of `*`, or of its collection.
    pub(crate) fn opening_of(&self, class: Class, name: &Name) -> Revision {
        match class {
            Class::Wildcard => self.evidence_from,
            Class::Named => {
                let collection = name.collection().and_then(|glob| self.collection(&glob));
                collection.map_or(Revision::ZERO, |of| of.opening)
            }
        }
    }

    /// Returns a revision that changes with each opening.
    pub(crate) fn opening(&self) -> Revision {
        self.evidence_from
    }

    /// Does the same as [`Self::interrupt`] for one name, or one collection.
    pub(super) fn interrupt_one(&mut self, name: &Name, at: Revision) {
        self.collections.interrupt(name, at);
        self.forget_evidence(name);
    }

    /// That a name is absent is no evidence any more for clients that come later.
    pub(super) fn forget_evidence(&mut self, name: &Name) {
        if let Some(entry) = self.entries.get(name).filter(|entry| entry.reported != Revision::ZERO).cloned() {
            self.entries.insert_mut(name.clone(), Entry { reported: Revision::ZERO, ..entry });
        }
    }

    /// Whether there is evidence of its absence that also counts for a client that stated it.
    pub fn is_absent_by_evidence(&self, entry: &Entry) -> bool {
        let said = matches!(entry.presence, Presence::Absent(_)) && entry.absence == AbsenceEvidence::Reported;
        said && entry.reported > self.evidence_from || entry.absence == AbsenceEvidence::Expired
    }

    /// How much is known of a collection, if it is followed.
    pub fn completeness_of(&self, glob: &Name) -> Option<Completeness> {
        self.collection(glob).map(|collection| collection.completeness)
    }

    pub(super) fn collection(&self, glob: &Name) -> Option<&Collection> {
        self.collections.get(glob)
    }

    /// Follows a collection from here on. Returns whether it is new.
    pub(super) fn collect(&mut self, glob: &Name) -> bool {
        self.collections.begin(glob, &self.in_folders)
    }

    /// Returns an empty table, made at a revision.
    pub(super) fn empty_at(made: Revision, horizon: Revision) -> Self {
        Self { horizon, forgotten_at: made, ..Self::default() }
    }

    /// Returns how many of the present resources were loaded from disk, and not confirmed by a server since.
    pub(crate) fn loaded_from_disk(&self) -> usize {
        self.from_disk
    }

    /// Returns how many of those a server has removed since. They stay for now.
    pub(crate) fn removed_since(&self) -> usize {
        self.removed_since
    }

    /// Whether a server may still confirm something that was loaded from disk.
    pub(crate) fn awaits_confirmation(&self) -> bool {
        self.from_disk > self.removed_since
    }

    pub(super) fn next_deadline(&self, options: &ViewOptions) -> Option<Moment> {
        let tombstone = self.bodies.peek().map(|oldest| oldest.at + options.tombstone_age);
        let death = self.expirations.first().map(|((at, _), ())| *at);
        earliest(death, tombstone)
    }

    /// Returns how often a server gave what another one had given. That is no change of a resource.
    pub(crate) fn reattributed(&self) -> u64 {
        self.reattributed
    }

    /// Returns when something was last given. What is given or attributed later has a later `since`, or this one.
    pub(crate) fn given(&self) -> Moment {
        self.given
    }

    /// Returns what is present and was given by its server since then.
    pub(crate) fn given_since(&self, since: Moment) -> impl Iterator<Item = (&Name, &Entry)> {
        self.entries().filter(move |(_, entry)| entry.resource().is_some() && entry.since >= since)
    }

    /// Returns how many of the present resources came from each server, by its place in the plan.
    pub(super) fn by_server(&self) -> &BTreeMap<u16, usize> {
        &self.by_server
    }
}

/// Returns the names in a journal after a revision, in the order of change.
fn changes_after(journal: &RedBlackTreeMapSync<Revision, Name>, after: Revision) -> impl Iterator<Item = &Name> {
    journal.range((Excluded(after), Unbounded)).map(|(_, name)| name).inspect(|_| visit())
}
