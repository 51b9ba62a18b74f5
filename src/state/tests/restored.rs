//! What a later process restores from the file, and what it keeps of it when it writes.

use std::collections::BTreeMap;

use redb::Database;
use tokio::time::Instant;
use weir_core::protocol::sources::LowestOpen;
use weir_core::protocol::view::{BrakeState, Class, HeldRemoval, SavedSet, SetState};
use weir_core::xds::Authority;

use super::world::{World, shown};
use super::*;
use crate::relay::{NotedBrakes, SavedView, Views, views_to_all, views_to_lists};
use crate::state::brakes::{records_of, state_of};
use crate::state::load::{id_of, written};
use crate::state::records::ServerRecord;

const ONE: &str = "http://one";
const TWO: &str = "http://two";
const SECOND: Duration = Duration::from_secs(1);

/// A world with one view and two servers, and its file.
fn of_two_servers() -> (World, Database, Contents) {
    let mut world = World::of(1, 1);
    world.servers = BTreeMap::from([(0, ONE.to_owned()), (1, TWO.to_owned())]);
    let (database, contents, _) = opened(&Disk::default(), None).unwrap();
    (world, database, contents)
}

fn clock(world: &World, later: Duration) -> WallClock {
    WallClock { now: world.now + later.as_millis() as u64, is_plausible: true }
}

/// Returns the resources of the sets of this class: name, server and rank.
fn of_class(sets: &[SavedSet], class: Class) -> Vec<(&str, u16, u8)> {
    let resources = sets.iter().filter(|set| set.class == class).flat_map(|set| &set.resources);
    let mut of_class: Vec<_> = resources.map(|saved| (saved.key.as_str(), saved.server, saved.rank)).collect();
    of_class.sort_unstable();
    of_class
}

fn held(name: &str, server: u16) -> HeldRemoval {
    HeldRemoval { name: name.into(), age: 10 * SECOND, generation: 7, emptied: true, server, rank: 9 }
}

/// The brake of a set of `*`.
fn braked(type_name: &str, removals: Vec<HeldRemoval>) -> SetState {
    SetState {
        is_stopped: false,
        type_name: type_name.into(),
        glob: None,
        sizes: vec![(SECOND, 5)],
        start_size: 30,
        empty_for: Some(5 * SECOND),
        removals,
    }
}

/// Restores the only view of a file into the views of a later process.
fn restore(database: &Database, views: &Views, clock: &WallClock) -> Contents {
    let stored = Stored::read(database, None).unwrap();
    let view = &stored.views[0];
    let (sets, id) = (stored.sets_of(view, views, clock).unwrap(), id_of(&view.record, views).unwrap());
    let (brakes, lowest, counts_for_readiness, age) = Default::default();
    let saved = SavedView { key: id.key.clone(), sets, brakes, lowest, counts_for_readiness, age };
    let restored = views.restore(saved, MINUTE).unwrap();
    let mut contents = stored.contents();
    contents.views.insert(id, written(view, &restored, views));
    contents
}

/// A resource whose set is missing in its view makes the file unusable for the process after the next.
#[test]
fn a_set_that_was_restored_in_part_leaves_nothing_behind_when_it_is_written_again() {
    for class in [Class::Wildcard, Class::Named] {
        for is_server_gone in [true, false] {
            let (mut world, database, mut contents) = of_two_servers();
            world.give(0, class, "a", None);
            world.give(1, class, "bb", None);
            world.give(0, class, "ccc", Some(MINUTE));
            world.save(&mut contents, &database, None).unwrap();
            let (servers, later) = if is_server_gone { (&[ONE][..], SECOND) } else { (&[ONE, TWO][..], 2 * MINUTE) };
            let mut contents = restore(&database, &views_to_all(servers), &clock(&world, later));
            for (life, name) in [(1, "dddd"), (2, "eeeee")] {
                world.life = life;
                world.give(0, class, name, None);
                world.save(&mut contents, &database, None).unwrap();
                let stored = Stored::read(&database, None).unwrap_or_else(|fault| panic!("{class:?}: {fault}"));
                assert_eq!(shown(&stored), world.expected(false), "{class:?}, {is_server_gone}");
            }
        }
    }
}

/// The revisions of a view that begins again are not comparable with those of the earlier one.
#[test]
fn a_view_of_another_life_is_written_whole_and_what_it_lacks_goes() {
    let (mut world, database, mut contents) = of_two_servers();
    for name in ["a", "bb", "ccc", "dddd"] {
        world.give(0, Class::Named, name, None);
        world.save(&mut contents, &database, None).unwrap();
    }
    world.views.clear();
    world.add_view(0);
    world.life = 1;
    world.give(0, Class::Named, "bb", None);
    world.give(0, Class::Named, "eeeee", None);
    world.save(&mut contents, &database, None).unwrap();
    assert_eq!(shown(&Stored::read(&database, None).unwrap()), world.expected(false));
}

#[test]
fn what_a_server_gave_is_of_that_server_though_it_has_another_place_in_the_list() {
    let (mut world, database, mut contents) = of_two_servers();
    for class in [Class::Wildcard, Class::Named] {
        world.give(0, class, "a", None);
        world.give(1, class, "bb", None);
    }
    world.save(&mut contents, &database, None).unwrap();
    let stored = Stored::read(&database, None).unwrap();
    let sets_of = |servers: &[&'static str]| {
        stored.sets_of(&stored.views[0], &views_to_all(servers), &clock(&world, SECOND)).unwrap()
    };
    let swapped = sets_of(&[TWO, ONE]);
    for class in [Class::Wildcard, Class::Named] {
        assert_eq!(of_class(&swapped, class), [("a", 1, 1), ("bb", 0, 0)]);
    }
    let without = sets_of(&["http://three", TWO]);
    assert_eq!(of_class(&without, Class::Named), [("bb", 1, 1)]);
    assert!(without.iter().all(|set| set.class == Class::Named), "a part of the set of `*` is not the set");
    assert!(sets_of(&["http://three"]).is_empty(), "nothing of it came from a server that is still there");
}

/// They may differ in settings alone: in the file both are the same URI.
#[test]
fn boot_9_what_the_server_of_an_authority_gave_and_removed_is_restored_though_another_server_has_its_name() {
    const OF_OTHER: &str = "xdstp://other/envoy.config.cluster.v3.Cluster/x";
    let (mut world, database, mut contents) = of_two_servers();
    world.servers = BTreeMap::from([(0, ONE.to_owned()), (1, ONE.to_owned())]);
    world.want(OF_OTHER);
    world.give(0, Class::Wildcard, "a", None);
    world.give(1, Class::Named, OF_OTHER, None);
    let glob = Some("xdstp://other/envoy.config.cluster.v3.Cluster/*".into());
    let of_other = SetState { glob, ..braked("a.B", vec![held(OF_OTHER, 1)]) };
    let sets = vec![braked("a.B", vec![held("a", 0)]), of_other];
    world.brakes = NotedBrakes { state: BrakeState { sets }.into(), at: None, changes: 1 };
    world.save(&mut contents, &database, None).unwrap();
    let stored = Stored::read(&database, None).unwrap();
    let (view, views) = (&stored.views[0], views_to_lists(&[ONE], &[("other", ONE)]));
    let sets = stored.sets_of(view, &views, &clock(&world, SECOND)).unwrap();
    assert_eq!(of_class(&sets, Class::Wildcard), [("a", 0, 0)]);
    assert_eq!(of_class(&sets, Class::Named), [(OF_OTHER, 1, 0)]);
    let brakes = Stored::brakes_of(view, &views);
    let removals = brakes.sets.iter().flat_map(|set| &set.removals);
    let removals: Vec<_> = removals.map(|held| (held.name.as_str(), held.server, held.rank)).collect();
    assert_eq!(removals, [("a", 0, 0), (OF_OTHER, 1, 0)]);
}

#[test]
fn fb_24_what_another_server_gives_unchanged_is_of_that_server_in_the_file_and_the_rest_is_not_written_again() {
    let (mut world, database, mut contents) = of_two_servers();
    for name in ["a", "bb"] {
        world.give(0, Class::Named, name, None);
        world.now += 1_000;
    }
    let origins = |contents: &mut Contents, world: &World| {
        let written = world.save(contents, &database, None).unwrap().resources;
        let stored = Stored::read(&database, None).unwrap();
        let sets = stored.sets_of(&stored.views[0], &views_to_all(&[ONE, TWO]), &clock(world, SECOND)).unwrap();
        let of: Vec<_> =
            of_class(&sets, Class::Named).into_iter().map(|(name, server, _)| (name.to_owned(), server)).collect();
        (written, of)
    };
    let of = |a, bb| vec![("a".to_owned(), a), ("bb".to_owned(), bb)];
    assert_eq!(origins(&mut contents, &world), (2, of(0, 0)));
    let published = world.views[0].1.snapshot().revision;
    // What a server sent at the moment of the last write may be in the file already; it is written once more with the next.
    for (name, written, expected) in [("bb", 1, of(0, 1)), ("a", 2, of(1, 1))] {
        world.now += 1_000;
        world.give(1, Class::Named, name, None);
        assert_eq!(world.views[0].1.snapshot().revision, published, "no client needs to know");
        assert_eq!(origins(&mut contents, &world), (written, expected), "{name}");
        assert_eq!(origins(&mut contents, &world).0, 0);
    }
}

#[test]
fn a_server_is_said_to_be_heard_while_it_responds_and_as_of_then_once_it_does_not() {
    let (mut world, database, mut contents) = of_two_servers();
    let heard = |contents: &Contents| {
        let stored = Stored::read(&database, None).unwrap();
        let of = |servers: &[ServerRecord]| servers.iter().map(|server| server.heard).collect::<Vec<_>>();
        let in_file = of(&stored.views[0].record.servers);
        assert_eq!(in_file, of(&contents.views.values().next().unwrap().servers));
        in_file
    };
    world.give(0, Class::Named, "a", None);
    let start = world.now;
    for (responding, expected) in
        [(vec![1], [0, start]), (vec![0], [start + 1_000, start]), (vec![], [start + 1_000, start])]
    {
        world.responding = responding;
        world.save(&mut contents, &database, None).unwrap();
        assert_eq!(heard(&contents), expected);
        world.now += 1_000;
    }
    // The next process does not count them as heard either, until it hears them.
    let mut contents = restore(&database, &views_to_all(&[ONE, TWO]), &clock(&world, SECOND));
    world.life = 1;
    world.save(&mut contents, &database, None).unwrap();
    assert_eq!(heard(&contents), [start + 1_000, start]);
}

/// The clock may have been set back since the file was written.
#[test]
fn by_a_clock_that_is_before_the_file_no_age_is_known_and_what_has_a_ttl_has_expired() {
    let (mut world, database, mut contents) = of_two_servers();
    world.give(0, Class::Named, "a", Some(MINUTE));
    world.give(0, Class::Named, "bb", None);
    world.save(&mut contents, &database, None).unwrap();
    let stored = Stored::read(&database, None).unwrap();
    for (is_plausible, left, age) in [(true, vec!["a", "bb"], Some(SECOND)), (false, vec!["bb"], None)] {
        let clock = WallClock { now: world.now, is_plausible };
        let sets = stored.sets_of(&stored.views[0], &views_to_all(&[ONE]), &clock).unwrap();
        let names: Vec<_> = of_class(&sets, Class::Named).into_iter().map(|(name, ..)| name).collect();
        assert_eq!((names, clock.since(world.now - 1_000)), (left, age));
        let named = sets.iter().find(|set| set.class == Class::Named).unwrap();
        assert_eq!((named.has_expired, clock.since(0)), (!is_plausible, None));
    }
}

/// The age of a held removal grows while a server responds. Servers are saved by name, not by their places.
#[test]
fn what_brakes_hold_is_saved_with_its_age_and_restored_for_the_servers_that_are_left() {
    let sets = vec![braked("a.B", vec![held("a", 0), held("bb", 1), held("ccc", 2)]), braked("only.sizes", vec![])];
    let at = Instant::now().checked_sub(60 * SECOND);
    let noted = NotedBrakes { state: BrakeState { sets }.into(), at, changes: 3 };
    let names = BTreeMap::from([(0, ONE.to_owned()), (1, TWO.to_owned())]);
    // The record of the view has its servers in another order.
    let servers = [TWO, ONE].map(|name| ServerRecord { name: name.into(), heard: 0 });
    for any_responds in [true, false] {
        let records = records_of(&noted, any_responds, &names, &servers);
        // In the next process the first server is no longer configured, and the second is the last of two.
        let views = views_to_all(&["http://three", TWO]);
        let state = state_of(&records, &views.shared().places_of([TWO, ONE]));
        let passed = if any_responds { 60 * SECOND } else { Duration::ZERO };
        let [restored] = &state.sets[..] else { panic!("{state:?}") };
        assert_eq!((restored.start_size, restored.type_name.as_str(), &restored.glob), (30, "a.B", &None));
        let [removal] = &restored.removals[..] else { panic!("{restored:?}") };
        assert_eq!((removal.name.as_str(), removal.generation, removal.emptied), ("bb", 7, true));
        assert_eq!((removal.server, removal.rank), (1, 1));
        for (age, before) in [(removal.age, 10 * SECOND), (restored.empty_for.unwrap(), 5 * SECOND)] {
            assert!((before + passed..before + passed + 20 * SECOND).contains(&age), "{age:?}");
        }
    }
    assert_eq!(records_of(&noted, true, &names, &servers)[0].removals.len(), 2, "of servers that are saved");
}

/// A view that had fallen back goes on at its server after a restart.
#[test]
fn fb_31_the_lowest_open_server_of_an_authority_is_written_when_it_changes_and_restored_by_its_name() {
    let (mut world, database, mut contents) = of_two_servers();
    world.give(1, Class::Named, "a", None);
    world.save(&mut contents, &database, None).unwrap();
    assert!(world.is_saved(&contents));
    let of_authority = Authority::Named("other".into());
    let [first, second] = [0, 1].map(|at| LowestOpen { server: at, rank: 0 });
    world.lowest = [(Authority::TopLevel, LowestOpen { rank: 1, ..second }), (of_authority.clone(), second)].into();
    assert!(!world.is_saved(&contents), "nothing else has changed");
    world.save(&mut contents, &database, None).unwrap();
    assert!(world.is_saved(&contents));

    let stored = Stored::read(&database, None).unwrap();
    let lists = |top: &[&'static str], of: &'static str| {
        Stored::lowest_of(&stored.views[0], &views_to_lists(top, &[("other", of)]))
    };
    let same = lists(&[ONE], TWO);
    assert_eq!(same[&of_authority], second, "each authority has a list of its own");
    assert_eq!(same[&Authority::TopLevel], LowestOpen { server: u16::MAX, rank: 1 }, "it is gone from this one");
    assert_eq!(lists(&[ONE, TWO], ONE)[&Authority::TopLevel], LowestOpen { server: 1, rank: 1 });
    assert_eq!(lists(&[TWO, ONE], ONE)[&Authority::TopLevel], first);
    let views = views_to_lists(&[ONE, TWO], &[]);
    let known = restore(&database, &views, &clock(&world, SECOND)).views.into_values().next().unwrap();
    assert_eq!(known.lowest, Stored::lowest_of(&stored.views[0], &views), "it is not written again");
}
