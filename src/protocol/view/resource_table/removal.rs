//! Removals and absence: tombstones, their evidence, and how long they are remembered.

use std::sync::Arc;

use super::{AbsenceEvidence, Entry, Presence, ResourceTable, TombstoneBody};
use crate::protocol::moment::Moment;
use crate::protocol::view::keys::Revision;
use crate::protocol::view::options::ViewOptions;
use crate::protocol::view::resource_table::entry::PresenceHistory;
use crate::protocol::view::update::Evidence;
use crate::xds::{Name, Resource};

impl ResourceTable {
    /// Removes a resource. Returns whether it was present.
    pub(crate) fn remove(&mut self, name: &Name, revision: Revision, now: Moment) -> bool {
        let Some(Entry { history: presences, presence: Presence::Present(last), .. }) = self.entries.get(name).cloned()
        else {
            return false;
        };
        self.unindex(name);
        let bytes = last.body.bytes().len();
        self.bodies.enqueue_mut(TombstoneBody { name: name.clone(), revision, at: now, bytes });
        self.body_bytes += bytes;
        self.add_tombstone(name, revision, presences, Some(last), now);
        true
    }

    /// Like [`Self::remove`]; a name that was never present is remembered as absent too.
    pub(crate) fn set_absent(&mut self, name: &Name, word: Evidence, revision: Revision, now: Moment) -> bool {
        match self.entries.get(name).map(|entry| (entry, &entry.presence)) {
            // Clients hold it, and for them silence is not evidence.
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
                // It was absent, and now the evidence also counts for clients that hold it.
                let news = !self.is_absent_by_evidence(entry);
                // What is no news gets no revision of its own: it is not later than what was there.
                let reported = if news { revision } else { entry.reported.max(revision.previous()) };
                let entry = Entry { absence: AbsenceEvidence::Reported, reported, ..entry.clone() };
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

    /// Records that the last removal was an expiry, and not the server's.
    pub(crate) fn record_expired(&mut self, name: &Name, glob: Option<&Name>) {
        self.has_expired = true;
        self.set_absence(name, AbsenceEvidence::Expired);
        glob.into_iter().for_each(|glob| self.collections.set_expired(glob, true));
    }

    pub(super) fn set_absence(&mut self, name: &Name, absence: AbsenceEvidence) {
        if let Some(entry) = self.entries.get(name).filter(|entry| entry.absence != absence).cloned() {
            self.entries.insert_mut(name.clone(), Entry { absence, ..entry });
        }
    }

    /// Forgets a name that no session subscribes to any more.
    pub(crate) fn forget_at(&mut self, name: &Name, revision: Revision) {
        self.forgotten_at = revision;
        self.forget(name);
    }

    /// Forgets all that is known of a name.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.unindex(name);
        self.entries.remove_mut(name);
    }

    /// Drops bodies of tombstones that are old or too many, or whose names are forgotten. Returns whether a new snapshot would differ.
    pub(crate) fn trim_bodies(&mut self, now: Moment, options: &ViewOptions) -> bool {
        let (horizon, before) = (self.horizon, self.bodies.len());
        self.drop_bodies(|oldest, bytes| {
            oldest.revision <= horizon || bytes > options.tombstone_bytes || now - oldest.at >= options.tombstone_age
        });
        self.bodies.len() != before
    }

    /// Returns the revision of the oldest remembered removal.
    pub(crate) fn oldest_removal(&self) -> Option<Revision> {
        self.removals.first().map(|(revision, _)| *revision)
    }

    /// Forgets the oldest removal: a session that has not come so far has missed it.
    pub(crate) fn forget_oldest_removal(&mut self) {
        let Some((revision, name)) = self.removals.first().map(|(revision, name)| (*revision, name.clone())) else {
            return;
        };
        self.forget(&name);
        self.horizon = self.horizon.max(revision);
    }

    pub(super) fn drop_bodies(&mut self, too_much: impl Fn(&TombstoneBody, usize) -> bool) {
        while let Some(oldest) = self.bodies.peek().filter(|oldest| too_much(oldest, self.body_bytes)).cloned() {
            self.bodies.dequeue_mut();
            self.body_bytes -= oldest.bytes;
            // The name may have been added or removed again since: then its entry does not have this body.
            let same = self.entries.get(&oldest.name).filter(|entry| entry.changed == oldest.revision);
            // If the client requested it under another name, the body stays: the removal has to state the resource's own name.
            if let Some(entry) = same.cloned()
                && matches!(&entry.presence, Presence::Absent(Some(last)) if last.name == oldest.name)
            {
                self.entries.insert_mut(oldest.name, Entry { presence: Presence::Absent(None), ..entry });
            }
        }
    }

    pub(super) fn add_tombstone(
        &mut self,
        name: &Name,
        revision: Revision,
        presences: PresenceHistory,
        last: Option<Arc<Resource>>,
        now: Moment,
    ) {
        self.removals.insert_mut(revision, name.clone());
        self.removal_bytes += bytes_of_removal(name);
        let entry = Entry { reported: revision, ..Entry::new(Presence::Absent(last), presences, revision, now) };
        self.entries.insert_mut(name.clone(), entry);
    }
}

/// Returns about what a remembered removal takes: its entry, its places in two persistent maps, and its name.
pub(super) fn bytes_of_removal(name: &Name) -> usize {
    REMOVAL_BYTES + name.as_str().len()
}

const REMOVAL_BYTES: usize = 350;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::proto::{Any, discovery};
    use crate::protocol::view::keys::Class;
    use crate::protocol::view::resource_table::Applied;
    use crate::protocol::view::update::Origin;
    use crate::xds::{BodyStore, Type, TypeTable};

    const URL: &str = "type.googleapis.com/own.Type";

    struct World {
        table: ResourceTable,
        kind: Type,
        store: BodyStore,
        revision: Revision,
        now: Moment,
        options: ViewOptions,
        /// So many removals are remembered.
        most: usize,
    }

    impl World {
        fn new(tombstone_bytes: usize, most: usize) -> Self {
            let options = ViewOptions { tombstone_bytes, ..ViewOptions::default() };
            let (table, store, kind) = (ResourceTable::default(), BodyStore::default(), TypeTable::new().resolve(URL));
            Self { table, kind, store, revision: Revision::ZERO, now: Moment::START, options, most }
        }

        fn add(&mut self, name: &str, bytes: usize, do_not_cache: bool) {
            let resource = Some(Any { type_url: URL.into(), value: vec![7; bytes].into() });
            let cache_control = do_not_cache.then_some(discovery::resource::CacheControl { do_not_cache });
            let wrapper = discovery::Resource { name: name.into(), resource, cache_control, ..Default::default() };
            let resource = Arc::new(Resource::from_wrapper(0, wrapper, &self.kind, &self.store).unwrap());
            self.revision = self.revision.next();
            self.table.set(Class::Wildcard, name.into(), resource, Origin::default(), self.revision, self.now);
        }

        /// Adds a resource of 40 bytes and removes it.
        fn add_and_remove(&mut self, name: &str) {
            self.add(name, 40, false);
            self.revision = self.revision.next();
            assert!(self.table.remove(&name.into(), self.revision, self.now));
            while self.table.removals.size() > self.most {
                self.table.forget_oldest_removal();
            }
            self.table.trim_bodies(self.now, &self.options);
        }

        fn has_body(&self, name: &str) -> bool {
            let entry = self.table.get(&name.into());
            entry.is_some_and(|entry| matches!(entry.presence, Presence::Absent(Some(_))))
        }
    }

    #[test]
    fn bodies_that_give_way_to_newer_ones_give_their_bytes_back() {
        let mut world = World::new(100, 1000);
        for number in 0..20_u32 {
            world.add_and_remove(&number.to_string());
            let kept: Vec<_> = (0..20).filter(|number| world.has_body(&number.to_string())).collect();
            assert_eq!(kept, Vec::from_iter(number.saturating_sub(1)..=number), "there is room for two");
        }
    }

    #[test]
    fn bodies_give_their_bytes_back_when_they_are_old_and_with_the_tombstones_that_are_too_many() {
        let mut world = World::new(100, 1000);
        (0..2).for_each(|number| world.add_and_remove(&number.to_string()));
        assert_eq!(world.table.body_bytes, 80);
        world.now = world.now + world.options.tombstone_age;
        assert!(world.table.trim_bodies(world.now, &world.options));
        assert_eq!(world.table.body_bytes, 0);

        let mut world = World::new(1000, 3);
        (0..10).for_each(|number| world.add_and_remove(&number.to_string()));
        assert_eq!((world.table.removals.size(), world.table.body_bytes), (3, 120));
        world.now = world.now + Duration::from_secs(1);
        world.add_and_remove("again");
        assert_eq!((world.table.removals.size(), world.table.body_bytes), (3, 120));
    }

    #[test]
    fn removals_give_their_bytes_back_when_they_are_forgotten_or_undone() {
        let mut world = World::new(1000, 3);
        (0..10).for_each(|number| world.add_and_remove(&number.to_string()));
        assert_eq!(world.table.removal_bytes(), 3 * (REMOVAL_BYTES + 1));
        world.add("9", 1, false);
        assert_eq!(world.table.removal_bytes(), 2 * (REMOVAL_BYTES + 1));
        assert!(world.table.oldest_removal().is_some());
        (0..2).for_each(|_| world.table.forget_oldest_removal());
        assert_eq!((world.table.removal_bytes(), world.table.oldest_removal()), (0, None));
    }

    #[test]
    fn what_is_replaced_or_removed_counts_no_more() {
        let mut world = World::new(1000, 1000);
        for bytes in [40, 10] {
            world.add("a", bytes, true);
            assert_eq!((world.table.bytes(), world.table.uncacheable), (bytes, 1));
        }
        world.add("a", 20, false);
        assert_eq!((world.table.bytes(), world.table.uncacheable), (20, 0));
        world.add("a", 30, true);
        world.revision = world.revision.next();
        world.table.remove(&"a".into(), world.revision, world.now);
        assert_eq!((world.table.bytes(), world.table.uncacheable, world.table.by_server().len()), (0, 0, 0));
    }

    #[test]
    fn xlat_4_of_the_versions_of_a_set_the_latest_are_known_and_one_that_came_back_counts_as_late() {
        let mut world = World::new(1000, 1000);
        world.options.past_versions = 3;
        let mut versions = Vec::new();
        for bytes in [1, 2, 3, 1, 4, 5] {
            world.add("a", bytes, false);
            world.table.remember_version(&world.options);
            world.table.remember_version(&world.options); // nothing has changed
            versions.push((bytes, world.table.version(true)));
        }
        versions.sort_by_key(|(bytes, _)| *bytes);
        versions.dedup();
        let known: Vec<_> = versions.iter().filter(|(_, version)| world.table.knows_sum(*version)).collect();
        assert_eq!(known.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [1, 4, 5]);
        for (bytes, version) in &versions {
            assert_eq!(world.table.knows_version(&version.to_string()), [1, 4, 5].contains(bytes), "{bytes}");
        }
    }

    #[test]
    fn fb_24_the_same_from_another_server_counts_for_that_one_and_no_longer_for_the_first() {
        let mut world = World::new(1000, 1000);
        let from = |world: &mut World, server: u16, from_disk: bool| {
            world.now = world.now + Duration::from_secs(1);
            let held = world.table.get(&"a".into()).unwrap().resource().unwrap().clone();
            let (origin, revision) = (Origin { server, from_disk, ..Origin::default() }, world.revision.next());
            let applied = world.table.set(Class::Wildcard, "a".into(), held, origin, revision, world.now);
            let since = world.table.get(&"a".into()).unwrap().since;
            let counts: Vec<_> = world.table.by_server().iter().map(|(server, count)| (*server, *count)).collect();
            (applied, since == world.now, counts, world.table.loaded_from_disk())
        };
        world.add("a", 40, false);
        assert_eq!(from(&mut world, 0, false), (Applied::Unchanged, false, vec![(0, 1)], 0));
        assert_eq!(from(&mut world, 1, false), (Applied::Reattributed, true, vec![(1, 1)], 0));
        assert_eq!(from(&mut world, 1, true), (Applied::Unchanged, true, vec![(1, 1)], 1));
        assert_eq!(from(&mut world, 2, false), (Applied::Refreshed, true, vec![(2, 1)], 0), "it is confirmed");
        assert_eq!((world.table.bytes(), world.table.present()), (40, 1));
    }
}
