use std::time::Duration;

use super::journal::REMOVAL_BYTES;
use super::*;
use crate::proto::{Any, discovery};
use crate::xds::{BodyStore, Type, TypeTable};

const URL: &str = "type.googleapis.com/own.Type";

struct World {
    table: ResourceTable,
    kind: Type,
    store: BodyStore,
    revision: Revision,
    now: Moment,
    options: ViewOptions,
    /// How many removals are remembered at most.
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
        while self.table.journal.removals(Revision::ZERO).count() > self.most {
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
    assert_eq!(world.table.bodies.bytes(), 80);
    world.now = world.now + world.options.tombstone_age;
    assert!(world.table.trim_bodies(world.now, &world.options));
    assert_eq!(world.table.bodies.bytes(), 0);

    let mut world = World::new(1000, 3);
    (0..10).for_each(|number| world.add_and_remove(&number.to_string()));
    assert_eq!((world.table.journal.removals(Revision::ZERO).count(), world.table.bodies.bytes()), (3, 120));
    world.now = world.now + Duration::from_secs(1);
    world.add_and_remove("again");
    assert_eq!((world.table.journal.removals(Revision::ZERO).count(), world.table.bodies.bytes()), (3, 120));
}

#[test]
fn removals_give_their_bytes_back_when_they_are_forgotten_or_undone() {
    let mut world = World::new(1000, 3);
    (0..10).for_each(|number| world.add_and_remove(&number.to_string()));
    assert_eq!(world.table.journal.removal_bytes(), 3 * (REMOVAL_BYTES + 1));
    world.add("9", 1, false);
    assert_eq!(world.table.journal.removal_bytes(), 2 * (REMOVAL_BYTES + 1));
    assert!(world.table.journal.oldest_removal().is_some());
    (0..2).for_each(|_| world.table.forget_oldest_removal());
    assert_eq!((world.table.journal.removal_bytes(), world.table.journal.oldest_removal()), (0, None));
}

#[test]
fn what_is_replaced_or_removed_counts_no_more() {
    let mut world = World::new(1000, 1000);
    for bytes in [40, 10] {
        world.add("a", bytes, true);
        assert_eq!((world.table.sums.bytes(), world.table.sums.uncacheable()), (bytes, 1));
    }
    world.add("a", 20, false);
    assert_eq!((world.table.sums.bytes(), world.table.sums.uncacheable()), (20, 0));
    world.add("a", 30, true);
    world.revision = world.revision.next();
    world.table.remove(&"a".into(), world.revision, world.now);
    assert_eq!(
        (world.table.sums.bytes(), world.table.sums.uncacheable(), world.table.sums.by_server().len()),
        (0, 0, 0)
    );
}

#[test]
fn xlat_4_of_the_versions_of_a_set_the_latest_are_known_and_one_that_came_back_counts_as_late() {
    let mut world = World::new(1000, 1000);
    world.options.past_versions = 3;
    let mut versions = Vec::new();
    for bytes in [1, 2, 3, 1, 4, 5] {
        world.add("a", bytes, false);
        world.table.sums.remember_version(&world.options);
        world.table.sums.remember_version(&world.options); // nothing has changed
        versions.push((bytes, world.table.sums.version(true)));
    }
    versions.sort_by_key(|(bytes, _)| *bytes);
    versions.dedup();
    let known: Vec<_> = versions.iter().filter(|(_, version)| world.table.sums.knows_sum(*version)).collect();
    assert_eq!(known.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [1, 4, 5]);
    for (bytes, version) in &versions {
        assert_eq!(world.table.sums.knows_version(&version.to_string()), [1, 4, 5].contains(bytes), "{bytes}");
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
        let counts: Vec<_> = world.table.sums.by_server().iter().map(|(server, count)| (*server, *count)).collect();
        (applied, since == world.now, counts, world.table.sums.loaded_from_disk())
    };
    world.add("a", 40, false);
    assert_eq!(from(&mut world, 0, false), (Applied::Unchanged, false, vec![(0, 1)], 0));
    assert_eq!(from(&mut world, 1, false), (Applied::Reattributed, true, vec![(1, 1)], 0));
    assert_eq!(from(&mut world, 1, true), (Applied::Unchanged, true, vec![(1, 1)], 1));
    assert_eq!(from(&mut world, 2, false), (Applied::Refreshed, true, vec![(2, 1)], 0), "it is confirmed");
    assert_eq!((world.table.sums.bytes(), world.table.journal.present()), (40, 1));
}
