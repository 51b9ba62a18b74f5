//! Applies resources, extended TTLs and errors, and keeps the indexes.

use std::sync::Arc;
use std::time::Duration;

use super::removal::bytes_of_removal;
use super::{Applied, Entry, Presence, ResourceTable};
use crate::protocol::moment::Moment;
use crate::protocol::view::keys::{Class, Revision};
use crate::protocol::view::resource_table::entry::PresenceHistory;
use crate::protocol::view::update::{NamedError, Origin};
use crate::xds::{Name, Resource, SetVersion, Xdstp};

impl ResourceTable {
    /// Applies a resource. The result is a change if a client can see a difference (I5). The TTL is no part of that.
    pub(crate) fn set(
        &mut self,
        class: Class,
        name: Name,
        resource: Arc<Resource>,
        source: Origin,
        revision: Revision,
        now: Moment,
    ) -> Applied {
        self.given = now;
        let before = self.entries.get(&name);
        let mut body_changed = revision;
        let mut presences = PresenceHistory::beginning(revision);
        match before {
            Some(entry @ Entry { presence: Presence::Present(held), .. }) => {
                // A do-not-cache resource is sent again to the clients that wait for it (XLAT-29), and a resource whose error
                // clients were sent has to be sent again to end the error.
                let awaited = class == Class::Named && resource.do_not_cache();
                let wanted_again = awaited || entry.error.is_some();
                if held.full == resource.full && entry.origin != source {
                    // The same from another server: only the origin changes (FB-24).
                    let before = entry.origin;
                    let entry = Entry { origin: source, since: now, ..entry.clone() };
                    self.count_origin(before, false);
                    self.count_origin(source, true);
                    self.entries.insert_mut(name.clone(), entry);
                    let is_of_another = before.server != source.server;
                    self.reattributed += u64::from(is_of_another);
                    return match self.set(class, name, resource, source, revision, now) {
                        Applied::Unchanged if before.from_disk => Applied::Refreshed,
                        Applied::Unchanged if is_of_another => Applied::Reattributed,
                        applied => applied,
                    };
                }
                if held.full == resource.full && !wanted_again {
                    let mortal = held.ttl.is_some() || resource.ttl.is_some();
                    return if mortal { self.refresh(&name, resource.ttl, revision, now) } else { Applied::Unchanged };
                }
                if held.content() == resource.content() {
                    body_changed = entry.body_changed;
                }
                presences = entry.history.clone();
            }
            Some(Entry { presence: Presence::Absent(_), history: past, changed, .. }) => {
                presences = past.again(*changed, revision, self.horizon);
            }
            Some(Entry { presence: Presence::Unknown, .. }) | None => {}
        }
        self.unindex(&name);
        self.count(&name, &resource, SetVersion::plus);
        self.bytes += resource.body.bytes().len();
        self.uncacheable += usize::from(resource.do_not_cache());
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
                body_changed,
                expires,
                refreshed: revision,
                origin: source,
                ..Entry::new(presence, presences, revision, now)
            },
        );
        Applied::Changed
    }

    /// Records that a server has spoken of a present resource that was loaded from disk. Returns whether that is new.
    pub(crate) fn confirm(&mut self, name: &Name) -> bool {
        self.note_spoken_of(name, |origin| Origin { from_disk: false, ..origin })
    }

    /// Records that a server has removed such a resource, which stays for now. Returns whether that is new.
    pub(crate) fn note_removed_since(&mut self, name: &Name) -> bool {
        self.note_spoken_of(name, |origin| Origin { is_removed: true, ..origin })
    }

    fn note_spoken_of(&mut self, name: &Name, change: impl FnOnce(Origin) -> Origin) -> bool {
        let is_open = |entry: &&Entry| entry.resource().is_some() && entry.origin.from_disk && !entry.origin.is_removed;
        let Some(entry) = self.entries.get(name).filter(is_open).cloned() else { return false };
        let origin = change(entry.origin);
        self.count_origin(entry.origin, false);
        self.count_origin(origin, true);
        self.entries.insert_mut(name.clone(), Entry { origin, ..entry });
        true
    }

    /// Confirms everything that is present.
    pub(crate) fn confirm_all(&mut self) -> bool {
        let any = self.awaits_confirmation();
        if any {
            let names: Vec<_> = self.present_names().cloned().collect();
            for name in &names {
                self.confirm(name);
            }
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
    pub(super) fn refresh(&mut self, name: &Name, ttl: Option<Duration>, revision: Revision, now: Moment) -> Applied {
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

    /// Returns the names that have expired.
    pub(crate) fn expired(&self, now: Moment) -> Vec<Name> {
        self.expirations.keys().take_while(|(at, _)| *at <= now).map(|(_, name)| name.clone()).collect()
    }

    /// Records an error of a name. Returns whether it is new.
    pub(crate) fn set_error(&mut self, name: Name, error: Arc<NamedError>, revision: Revision, now: Moment) -> bool {
        let unknown = || Entry::new(Presence::Unknown, PresenceHistory::beginning(revision), revision, now);
        let entry = self.entries.get(&name).cloned().unwrap_or_else(unknown);
        if entry.error.as_ref().is_some_and(|(_, known)| *known == error) {
            return false;
        }
        self.entries.insert_mut(name, Entry { error: Some((revision, error)), ..entry });
        true
    }

    /// Removes a name from its journal and from the sums, before its entry is replaced.
    pub(super) fn unindex(&mut self, name: &Name) {
        let Some(entry) = self.entries.get(name).cloned() else { return };
        match &entry.presence {
            Presence::Present(held) => {
                self.additions.remove_mut(&entry.changed);
                self.collections.note(name, false);
                self.in_folders.remove_mut(name);
                self.count(name, held, SetVersion::minus);
                self.bytes = self.bytes.saturating_sub(held.body.bytes().len());
                self.uncacheable = self.uncacheable.saturating_sub(usize::from(held.do_not_cache()));
                self.count_origin(entry.origin, false);
                self.unschedule(name, &entry);
            }
            Presence::Absent(_) => {
                self.removals.remove_mut(&entry.changed);
                self.removal_bytes = self.removal_bytes.saturating_sub(bytes_of_removal(name));
            }
            Presence::Unknown => {}
        }
    }

    pub(super) fn count_origin(&mut self, origin: Origin, more: bool) {
        let step = |count: usize, counts: bool| match more {
            true => count + usize::from(counts),
            false => count.saturating_sub(usize::from(counts)),
        };
        self.from_disk = step(self.from_disk, origin.from_disk);
        self.removed_since = step(self.removed_since, origin.from_disk && origin.is_removed);
        let counts = Arc::make_mut(&mut self.by_server);
        let count = counts.entry(origin.server).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            counts.remove(&origin.server);
        }
    }

    pub(super) fn unschedule(&mut self, name: &Name, entry: &Entry) {
        self.refreshes.remove_mut(&entry.refreshed);
        if let Some(at) = entry.expires {
            self.expirations.remove_mut(&(at, name.clone()));
        }
    }

    pub(super) fn count(&mut self, name: &Name, resource: &Resource, change: fn(SetVersion, SetVersion) -> SetVersion) {
        self.content = change(self.content, SetVersion::of(name.as_str(), resource.content()));
        self.full = change(self.full, SetVersion::of(name.as_str(), resource.full));
    }
}
