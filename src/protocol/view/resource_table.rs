//! The resources of one type and interest class, each with the number of its last change.
//!
//! Owns the journal: each entry once, at its last change, absence included. Its maps are persistent, so a clone costs nothing
//! and a published state stays as it was.
//! Always: a name that is here or gone stands in exactly one of the two journals, at the number its entry has.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use rpds::{HashTrieMapSync, QueueSync, RedBlackTreeMapSync, RedBlackTreeSetSync};

use super::class::Class;
use super::collections::{Collection, Collections};
use super::history::PresenceHistory;
use super::named_error::NamedError;
use super::revision::Revision;
use super::update::{Completeness, Evidence, Origin};
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, earliest};
use crate::xds::{Name, Resource, SetVersion, Xdstp};

#[derive(Debug, Clone)]
pub enum Presence {
    Present(Arc<Resource>),
    /// A tombstone. The body goes first, the name later.
    Absent(Option<Arc<Resource>>),
    /// Only an error is known.
    Unknown,
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub(crate) changed: Revision,
    /// The last change of its body, which is all that a SotW client without wrappers sees.
    pub(crate) body_changed: Revision,
    pub(crate) history: PresenceHistory,
    pub presence: Presence,
    /// What was last reported wrong with it, and since when (UP-46).
    pub error: Option<(Revision, Arc<NamedError>)>,
    /// When it dies unless upstream gives it more time (UP-40).
    pub(crate) expires: Option<Moment>,
    /// The last time that it was given a TTL, or none.
    pub(crate) refreshed: Revision,
    /// Who gave it, and since when that is so; or since when it is gone or in error.
    pub(crate) origin: Origin,
    pub(crate) since: Moment,
    /// Why it is gone, if it is, and since when that was last said on the present opening.
    pub absence: AbsenceEvidence,
    reported: Revision,
}

impl Entry {
    /// What is here.
    pub(crate) fn resource(&self) -> Option<&Arc<Resource>> {
        match &self.presence {
            Presence::Present(resource) => Some(resource),
            Presence::Absent(_) | Presence::Unknown => None,
        }
    }

    /// Whether nothing happens to a member of a `*` set that is sent again so.
    pub(super) fn is_unchanged_by(&self, sent: &Arc<Resource>, origin: Origin) -> bool {
        let is_same = |held: &Arc<Resource>| {
            Arc::ptr_eq(held, sent) && sent.ttl.is_none()
                || held.full == sent.full && held.ttl.is_none() && sent.ttl.is_none()
        };
        self.resource().is_some_and(is_same) && self.error.is_none() && self.origin == origin
    }
}

/// By what it is known that something is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbsenceEvidence {
    Reported,
    /// A server that is there was silent about it. Whoever holds it is not told so by that.
    Silence,
    /// Its time was over, and nobody has said that there is none (XLAT-15).
    Expired,
}

/// What taking a resource over came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Applied {
    Unchanged,
    /// It lives longer than before, or its end is called off. Only clients that run TTLs by themselves need to know.
    Refreshed,
    Changed,
}

#[derive(Debug, Clone, Default)]
pub struct ResourceTable {
    entries: HashTrieMapSync<Name, Entry>,
    additions: RedBlackTreeMapSync<Revision, Name>,
    removals: RedBlackTreeMapSync<Revision, Name>,
    /// What was given more time since its last change, at the number of that.
    refreshes: RedBlackTreeMapSync<Revision, Name>,
    expirations: RedBlackTreeMapSync<(Moment, Name), ()>,
    content: SetVersion,
    full: SetVersion,
    pub completeness: Completeness,
    /// Something has outlived its time since upstream last spoke of the set.
    pub(super) has_expired: bool,
    pub(super) collections: Collections,
    /// New-style names of what is here, so that the members of a collection are found together.
    in_folders: RedBlackTreeSetSync<Name>,
    /// Removals up to here are forgotten.
    horizon: Revision,
    /// What is gone since then went by a word on the present opening: evidence also for whoever came since.
    evidence_from: Revision,
    /// Versions that it had, the last one last, of bodies and of all: whoever comes with one holds nothing that is not here.
    past: Arc<Vec<(SetVersion, SetVersion)>>,
    /// What has come under these names cannot be read, and nothing is held of it.
    unreadable: Arc<BTreeSet<Name>>,
    /// Tombstones that still have a body, oldest first.
    bodies: QueueSync<TombstoneBody>,
    body_bytes: usize,
    /// How many of what is present came from each server, by its place in the plan.
    by_server: Arc<BTreeMap<u16, usize>>,
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
        self.entries.iter()
    }

    /// What is there and changed after a number, in the order of change.
    pub fn additions(&self, after: Revision) -> impl Iterator<Item = (&Entry, &Arc<Resource>)> {
        self.additions.range((Excluded(after), Unbounded)).filter_map(|(_, name)| {
            let entry = self.entries.get(name)?;
            match &entry.presence {
                Presence::Present(resource) => Some((entry, resource)),
                Presence::Absent(_) | Presence::Unknown => None,
            }
        })
    }

    /// What is here and had its TTL extended after a number.
    pub(crate) fn refreshes(&self, after: Revision) -> impl Iterator<Item = (&Entry, &Arc<Resource>)> {
        self.refreshes.range((Excluded(after), Unbounded)).filter_map(|(_, name)| {
            let entry = self.entries.get(name)?;
            match &entry.presence {
                Presence::Present(resource) => Some((entry, resource)),
                Presence::Absent(_) | Presence::Unknown => None,
            }
        })
    }

    /// What was removed after a number, in the order of removal.
    pub(crate) fn removals(&self, after: Revision) -> impl Iterator<Item = (&Name, &Entry)> {
        self.removals
            .range((Excluded(after), Unbounded))
            .filter_map(|(_, name)| self.entries.get(name).map(|entry| (name, entry)))
    }

    /// The version of everything that is here: of bodies alone, or of all that a delta client sees (I5).
    pub(crate) fn version(&self, full: bool) -> SetVersion {
        if full { self.full } else { self.content }
    }

    /// A session that was told of removals only up to less than this has missed some.
    pub(super) fn horizon(&self) -> Revision {
        self.horizon
    }

    pub(crate) fn present_names(&self) -> impl Iterator<Item = &Name> {
        self.additions.values()
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

    /// Whether a client with this version holds nothing but what is here, or went by evidence.
    pub(crate) fn knows_version(&self, version: &str) -> bool {
        let known = |(bodies, all): &(SetVersion, SetVersion)| {
            [bodies, all].into_iter().any(|known| known.to_string() == version)
        };
        known(&(self.content, self.full)) || self.past.iter().rev().any(known)
    }

    /// Remembers what is published under its version.
    pub(super) fn remember_version(&mut self, limits: &Limits) {
        let version = (self.content, self.full);
        if self.past.last() != Some(&version) {
            let past = Arc::make_mut(&mut self.past);
            past.retain(|known| *known != version);
            past.push(version);
            past.drain(..past.len().saturating_sub(limits.past_versions));
        }
    }

    /// Whether nothing is kept back for want of being readable.
    pub fn is_readable(&self) -> bool {
        self.unreadable.is_empty()
    }

    pub(super) fn set_unreadable(&mut self, names: BTreeSet<Name>) -> bool {
        let changed = *self.unreadable != names;
        if changed {
            self.unreadable = Arc::new(names);
        }
        changed
    }

    /// The server is another from here on, or opened anew: what was taken away before is no evidence for who comes later.
    pub(super) fn interrupt(&mut self, at: Revision) {
        self.evidence_from = at;
    }

    /// Changes with each opening.
    pub(crate) fn opening(&self) -> Revision {
        self.evidence_from
    }

    /// The same for one name.
    pub(super) fn interrupt_one(&mut self, name: &Name) {
        if let Some(entry) = self.entries.get(name).filter(|entry| entry.reported != Revision::ZERO).cloned() {
            self.entries.insert_mut(name.clone(), Entry { reported: Revision::ZERO, ..entry });
        }
    }

    /// Whether it is known, also for a client that came holding it, that this is gone.
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

    /// Follows a collection from here on.
    pub(super) fn collect(&mut self, glob: &Name) -> bool {
        self.collections.begin(glob, &self.in_folders)
    }

    pub(super) fn empty_after(horizon: Revision) -> Self {
        Self { horizon, ..Self::default() }
    }

    /// Whether anything that a client can see differs (I5). A TTL is no part of that.
    pub(super) fn set(
        &mut self,
        class: Class,
        name: Name,
        resource: Arc<Resource>,
        source: Origin,
        revision: Revision,
        now: Moment,
    ) -> Applied {
        let before = self.entries.get(&name);
        let mut body_changed = revision;
        let mut lives = PresenceHistory::beginning(revision);
        match before {
            Some(entry @ Entry { presence: Presence::Present(held), .. }) => {
                // What must not be answered from memory is told again to those who wait for it (XLAT-29), and what a client
                // was told is in error has to come again to be well.
                let awaited = class == Class::Named && resource.do_not_cache();
                let wanted_again = awaited || entry.error.is_some();
                if held.full == resource.full && entry.origin != source {
                    // The same from another server: nothing has happened, but whose it is (FB-24).
                    let before = entry.origin;
                    let entry = Entry { origin: source, since: now, ..entry.clone() };
                    self.count_origin(before, false);
                    self.count_origin(source, true);
                    self.entries.insert_mut(name.clone(), entry);
                    return self.set(class, name, resource, source, revision, now);
                }
                if held.full == resource.full && !wanted_again {
                    let mortal = held.ttl.is_some() || resource.ttl.is_some();
                    return if mortal { self.refresh(&name, resource.ttl, revision, now) } else { Applied::Unchanged };
                }
                if held.content() == resource.content() {
                    body_changed = entry.body_changed;
                }
                lives = entry.history.clone();
            }
            Some(Entry { presence: Presence::Absent(_), history: past, changed, .. }) => {
                lives = past.again(*changed, revision, self.horizon);
            }
            Some(Entry { presence: Presence::Unknown, .. }) | None => {}
        }
        self.unindex(&name);
        self.count(&name, &resource, SetVersion::plus);
        self.count_origin(source, true);
        self.additions.insert_mut(revision, name.clone());
        self.collections.note(&name, true);
        if Xdstp::is_new_style(name.as_str()) {
            self.in_folders.insert_mut(name.clone());
        }
        let expires = resource.ttl.map(|ttl| now + ttl);
        if let Some(at) = expires {
            self.expirations.insert_mut((at, name.clone()), ());
        }
        let presence = Presence::Present(resource);
        self.entries.insert_mut(
            name,
            Entry {
                changed: revision,
                body_changed,
                history: lives,
                presence,
                error: None,
                expires,
                refreshed: revision,
                origin: source,
                since: now,
                absence: AbsenceEvidence::Reported,
                reported: Revision::ZERO,
            },
        );
        Applied::Changed
    }

    /// Upstream says that what it gave under this name goes on. That may come a little late for it.
    pub(super) fn extend_ttl(
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

    /// Gives what is here more time, or for ever.
    fn refresh(&mut self, name: &Name, ttl: Option<Duration>, revision: Revision, now: Moment) -> Applied {
        let Some(entry) = self.entries.get(name).cloned() else { return Applied::Unchanged };
        let Presence::Present(held) = &entry.presence else { return Applied::Unchanged };
        self.unschedule(name, &entry);
        let expires = ttl.map(|ttl| now + ttl);
        if let Some(at) = expires {
            self.expirations.insert_mut((at, name.clone()), ());
        }
        self.refreshes.insert_mut(revision, name.clone());
        let presence = Presence::Present(match held.ttl == ttl {
            true => held.clone(),
            false => Arc::new(held.with_ttl(ttl)),
        });
        self.entries.insert_mut(name.clone(), Entry { presence, expires, refreshed: revision, ..entry });
        Applied::Refreshed
    }

    /// What has outlived its time.
    pub(super) fn expired(&self, now: Moment) -> Vec<Name> {
        self.expirations.keys().take_while(|(at, _)| *at <= now).map(|(_, name)| name.clone()).collect()
    }

    /// Something is wrong with the name. Whether that is news.
    pub(super) fn set_error(&mut self, name: Name, error: Arc<NamedError>, revision: Revision, now: Moment) -> bool {
        let entry = self.entries.get(&name).cloned().unwrap_or_else(|| Entry {
            changed: revision,
            body_changed: revision,
            history: PresenceHistory::beginning(revision),
            presence: Presence::Unknown,
            error: None,
            expires: None,
            refreshed: Revision::ZERO,
            origin: Origin::default(),
            since: now,
            absence: AbsenceEvidence::Reported,
            reported: Revision::ZERO,
        });
        if entry.error.as_ref().is_some_and(|(_, known)| *known == error) {
            return false;
        }
        self.entries.insert_mut(name, Entry { error: Some((revision, error)), ..entry });
        true
    }

    /// Whether the name was here.
    pub(super) fn remove(&mut self, name: &Name, revision: Revision, now: Moment) -> bool {
        let Some(Entry { history: lives, presence: Presence::Present(last), .. }) = self.entries.get(name).cloned()
        else {
            return false;
        };
        self.unindex(name);
        let bytes = last.body.bytes().len();
        self.bodies.enqueue_mut(TombstoneBody { name: name.clone(), revision, at: now, bytes });
        self.body_bytes += bytes;
        self.add_tombstone(name, revision, lives, Some(last), now);
        true
    }

    /// Like [`Self::remove`], and a name that was never here is remembered as absent too.
    pub(super) fn set_absent(&mut self, name: &Name, word: Evidence, revision: Revision, now: Moment) -> bool {
        match self.entries.get(name).map(|entry| (entry, &entry.presence)) {
            // Those who have been told of it hold it, and what nobody has said is no evidence for them.
            Some((_, Presence::Present(_))) if word == Evidence::Silence => return false,
            Some((_, Presence::Present(_))) => return self.remove(name, revision, now),
            Some((entry, Presence::Absent(_))) => {
                let expired = entry.absence == AbsenceEvidence::Expired;
                if word == Evidence::Silence {
                    if expired {
                        self.set_absence(name, AbsenceEvidence::Silence);
                    }
                    return false;
                }
                // It was gone, and now it is so also for who has come since, or holds it still.
                let news = !self.is_absent_by_evidence(entry);
                let entry = Entry { absence: AbsenceEvidence::Reported, reported: revision, ..entry.clone() };
                self.entries.insert_mut(name.clone(), entry);
                return news;
            }
            Some((_, Presence::Unknown)) | None => {}
        }
        self.add_tombstone(name, revision, PresenceHistory::beginning(revision), None, now);
        if word == Evidence::Silence {
            self.set_absence(name, AbsenceEvidence::Silence);
        }
        true
    }

    /// What was just removed was not taken away by upstream: its time was over.
    pub(super) fn record_expired(&mut self, name: &Name, glob: Option<&Name>) {
        self.has_expired = true;
        self.set_absence(name, AbsenceEvidence::Expired);
        glob.into_iter().for_each(|glob| self.collections.set_expired(glob, true));
    }

    fn set_absence(&mut self, name: &Name, absence: AbsenceEvidence) {
        if let Some(entry) = self.entries.get(name).filter(|entry| entry.absence != absence).cloned() {
            self.entries.insert_mut(name.clone(), Entry { absence, ..entry });
        }
    }

    /// Nothing is known of the name any more.
    pub(super) fn forget(&mut self, name: &Name) {
        self.unindex(name);
        self.entries.remove_mut(name);
    }

    pub(super) fn next_deadline(&self, limits: &Limits) -> Option<Moment> {
        let tombstone = self.bodies.peek().map(|oldest| oldest.at + limits.tombstone_age);
        let death = self.expirations.first().map(|((at, _), ())| *at);
        earliest(death, tombstone)
    }

    /// Whether a published state would look different now.
    pub(super) fn on_time(&mut self, now: Moment, limits: &Limits) -> bool {
        let bodies = self.bodies.len();
        self.drop_bodies(|oldest, _| now - oldest.at >= limits.tombstone_age);
        self.bodies.len() != bodies
    }

    /// Bounds what is kept of the dead. Absent names of a named shelf stay: they are bounded by the interest in them.
    pub(super) fn trim(&mut self, now: Moment, limits: &Limits, class: Class) {
        while class == Class::Wildcard && self.removals.size() > limits.tombstones {
            let Some((revision, name)) = self.removals.first().map(|(revision, name)| (*revision, name.clone())) else {
                break;
            };
            self.forget(&name);
            self.horizon = self.horizon.max(revision);
        }
        let horizon = self.horizon;
        self.drop_bodies(|oldest, bytes| {
            oldest.revision <= horizon || bytes > limits.tombstone_bytes || now - oldest.at >= limits.tombstone_age
        });
    }

    fn drop_bodies(&mut self, too_much: impl Fn(&TombstoneBody, usize) -> bool) {
        while let Some(oldest) = self.bodies.peek().filter(|oldest| too_much(oldest, self.body_bytes)).cloned() {
            self.bodies.dequeue_mut();
            self.body_bytes -= oldest.bytes;
            // The name may have come back, or gone again, since: then this tombstone is not its body any more.
            let same = self.entries.get(&oldest.name).filter(|entry| entry.changed == oldest.revision);
            // One that a client knows under another name than it asked for keeps it: its removal has to say that name.
            if let Some(entry) = same.cloned()
                && matches!(&entry.presence, Presence::Absent(Some(last)) if last.name == oldest.name)
            {
                self.entries.insert_mut(oldest.name, Entry { presence: Presence::Absent(None), ..entry });
            }
        }
    }

    fn add_tombstone(
        &mut self,
        name: &Name,
        revision: Revision,
        lives: PresenceHistory,
        last: Option<Arc<Resource>>,
        now: Moment,
    ) {
        self.removals.insert_mut(revision, name.clone());
        let entry = Entry {
            changed: revision,
            body_changed: revision,
            history: lives,
            presence: Presence::Absent(last),
            error: None,
            expires: None,
            refreshed: Revision::ZERO,
            origin: Origin::default(),
            since: now,
            absence: AbsenceEvidence::Reported,
            reported: revision,
        };
        self.entries.insert_mut(name.clone(), entry);
    }

    /// Takes a name out of its journal and of the sums; its entry is about to be replaced.
    fn unindex(&mut self, name: &Name) {
        let Some(entry) = self.entries.get(name).cloned() else { return };
        match &entry.presence {
            Presence::Present(held) => {
                self.additions.remove_mut(&entry.changed);
                self.collections.note(name, false);
                self.in_folders.remove_mut(name);
                self.count(name, held, SetVersion::minus);
                self.count_origin(entry.origin, false);
                self.unschedule(name, &entry);
            }
            Presence::Absent(_) => drop(self.removals.remove_mut(&entry.changed)),
            Presence::Unknown => {}
        }
    }

    fn count_origin(&mut self, origin: Origin, more: bool) {
        let counts = Arc::make_mut(&mut self.by_server);
        let count = counts.entry(origin.server).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            counts.remove(&origin.server);
        }
    }

    /// Returns how many of the present resources came from each server, by its place in the plan.
    pub(super) fn by_server(&self) -> &BTreeMap<u16, usize> {
        &self.by_server
    }

    fn unschedule(&mut self, name: &Name, entry: &Entry) {
        self.refreshes.remove_mut(&entry.refreshed);
        if let Some(at) = entry.expires {
            self.expirations.remove_mut(&(at, name.clone()));
        }
    }

    fn count(&mut self, name: &Name, resource: &Resource, change: fn(SetVersion, SetVersion) -> SetVersion) {
        self.content = change(self.content, SetVersion::of(name.as_str(), resource.content()));
        self.full = change(self.full, SetVersion::of(name.as_str(), resource.full));
    }
}
