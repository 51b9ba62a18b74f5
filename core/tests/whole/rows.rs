//! Single situations in virtual time, each many times, in which clients could wait for minutes or for ever. The judge checks `World::bound`, which
//! begins with two seconds for one tier, three for more.

use std::time::Duration;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{InitialSet, OnResourceTimeout};

use crate::client::{Client, Profile};
use crate::content::{Content, Key, Kind};
use crate::options::Options;
use crate::world::World;

const TIMES: u64 = 20;
const CLUSTER: Key = Key(Kind::Clusters, 0);
/// A cluster to which nothing refers.
pub const UNUSED: Key = Key(Kind::Clusters, 9);
pub const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// Returns a world with one client of each variant at the last tier.
pub fn world(seed: u64, options: Options) -> World {
    let top = options.tiers - 1;
    let mut world = World::with(seed, false, |of, _| *of = options);
    for variant in BOTH {
        world.enter(Client::new(top, Profile::Stream(variant)), Duration::from_millis(10));
    }
    world
}

pub fn has(world: &World, client: usize, key: Key) -> bool {
    world.clients[client].held.contains_key(&key)
}

pub fn change(world: &mut World, key: Key, to: u16) {
    let serial = world.serial();
    world.change(0, key, Some(Content { serial, to }));
}

/// Runs a history, and tells which one it was if it fails.
fn live(mut world: World, what: &str) -> World {
    if let Err(why) = world.live() {
        panic!("{what}: {why}");
    }
    world
}

#[test]
fn xlat_12_clients_that_come_back_after_a_restart_have_what_changed_meanwhile() {
    for (tiers, restarted) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
        for (seed, is_warm) in (1..=TIMES).flat_map(|seed| [(seed, true), (seed, false)]) {
            let mut options = Options::calm(tiers);
            options.habits[0].says_nothing_is_new = seed % 2 == 0;
            let mut world = world(seed, options);
            world.step(10_000, move |world| {
                world.restart(restarted, is_warm);
                change(world, CLUSTER, 0);
            });
            live(world, &format!("tier {restarted} of {tiers} restarts, with its state: {is_warm}, {seed}"));
        }
    }
}

#[test]
fn xlat_12_a_client_that_another_relay_has_served_has_everything() {
    for tiers in 1..=3 {
        for seed in 1..=TIMES {
            let mut options = Options::calm(tiers);
            options.habits[0].says_nothing_is_new = seed % 2 == 0;
            let mut world = world(seed, options);
            let moves = move |world: &mut World| {
                for client in 0..BOTH.len() {
                    world.clients[client].forget_versions();
                    world.break_client(client, false);
                }
                change(world, CLUSTER, 0);
            };
            world.step(10_000, moves);
            world.step(20_000, moves);
            live(world, &format!("{tiers} tiers, {seed}"));
        }
    }
}

#[test]
fn ord_5_a_removal_waits_for_no_type_that_the_control_plane_never_answers() {
    for tiers in 1..=3 {
        for kind in [Kind::Scopes, Kind::Listeners] {
            for seed in 1..=TIMES {
                let mut options = Options::calm(tiers);
                options.habits[0].unanswered = [kind].into();
                options.unanswered = [kind].into();
                let mut world = world(seed, options);
                world.clients.iter_mut().for_each(|client| client.scopes = true);
                world.step(5, |world| change(world, UNUSED, 0));
                world.step(10_000, |world| {
                    assert!(BOTH.iter().enumerate().all(|(client, _)| has(world, client, UNUSED)));
                    world.change(0, UNUSED, None);
                });
                let what = format!("{tiers} tiers, {kind:?}, {seed}");
                let of = what.clone();
                world.step(11_000, move |world| {
                    let kept = (0..BOTH.len()).filter(|client| has(world, *client, UNUSED)).count();
                    assert_eq!(kept, 0, "{of}");
                });
                live(world, &what);
            }
        }
    }
}

#[test]
fn delta_21_an_empty_set_is_answered_though_another_type_never_is() {
    for tiers in 1..=3 {
        for seed in 1..=TIMES {
            let mut options = Options::calm(tiers);
            options.habits[0].unanswered = [Kind::Listeners].into();
            options.unanswered = [Kind::Listeners].into();
            let mut world = world(seed, options);
            world.clients.iter_mut().for_each(|client| client.all_endpoints = true);
            world.servers[0].content.retain(|key, _| key.0 != Kind::Endpoints);
            let what = format!("{tiers} tiers, {seed}");
            let of = what.clone();
            world.step(3_000, move |world| {
                let delta = &world.clients[1];
                assert!(delta.answered.contains(&Kind::Endpoints), "{of}: {:?}", delta.answered);
            });
            live(world, &what);
        }
    }
}

/// A client requests routes that do not exist, one after another, and the server is silent about them.
#[test]
fn ord_1_a_client_that_guesses_holds_up_neither_routes_nor_removals() {
    for seed in 1..=TIMES {
        let mut options = Options::calm(1);
        options.quirks[0].on_resource_timeout = OnResourceTimeout::TransientError;
        options.span = 60;
        let mut world = world(seed, options);
        for number in 0..8 {
            world.step(2_000 + number * 8_000, |world| world.guess_once(1));
        }
        let route = Key(Kind::Routes, 0);
        world.step(30_000, move |world| change(world, route, 8)); // to a cluster that does not exist
        world.step(31_200, move |world| {
            let to = BOTH.iter().enumerate().map(|(client, _)| world.clients[client].held[&route].content.to);
            assert_eq!(to.collect::<Vec<_>>(), [8, 8], "{seed}: a second after the change");
        });
        world.step(40_000, move |world| {
            change(world, UNUSED, 0);
            change(world, route, UNUSED.1);
        });
        world.step(45_000, move |world| {
            change(world, route, 0);
            world.change(0, UNUSED, None);
        });
        let bound = 45_000 + 6_300; // the reference hold, and a second for changes of routing that wait
        world.step(bound, move |world| {
            assert!(!(0..BOTH.len()).any(|client| has(world, client, UNUSED)), "{seed}: still there");
        });
        live(world, &format!("{seed}"));
    }
}

#[test]
fn xlat_20_what_ignore_deletions_keeps_stays_over_reloads_and_restarts_and_nobody_is_frozen() {
    for (seed, silence, pause, times) in [(1, 2, 10, 20), (2, 2, 10, 20), (3, 120, 200, 1), (4, 120, 200, 1)] {
        for variant in BOTH {
            let mut options = Options::calm(1);
            options.variants = vec![variant];
            options.quirks[0].ignore_deletions = true;
            options.protocol.upstream.second_silence = Duration::from_secs(silence);
            options.span = 10 + 2 * times * pause;
            let mut world = world(seed, options);
            world.step(5, |world| change(world, UNUSED, 0));
            world.step(5_000, |world| world.change(0, UNUSED, None));
            for round in 0..2 * times {
                world.step(10_000 + round * pause * 1_000, move |world| {
                    assert!((0..BOTH.len()).all(|client| has(world, client, UNUSED)), "{seed}, round {round}");
                    if round % 2 == 0 {
                        world.reload(0)
                    } else {
                        world.restart(0, true)
                    }
                    change(world, CLUSTER, 0); // the judge checks that clients get it
                });
            }
            live(world, &format!("{seed}, {variant:?}"));
        }
    }
}

#[test]
fn up_15_no_stream_is_opened_again_where_nobody_needs_the_end_of_a_set() {
    for seed in 1..=TIMES {
        let mut world = world(seed, Options::calm(1));
        for second in [10, 15, 20] {
            world.step(second * 1_000, |world| {
                for client in 0..BOTH.len() {
                    world.break_client(client, false);
                }
                change(world, CLUSTER, 0);
            });
        }
        let world = live(world, &format!("{seed}"));
        assert_eq!(world.judge.reopenings(0, Moment::START), 0, "{seed}");
    }
}

#[test]
fn up_15_a_server_that_does_not_answer_for_the_end_is_asked_at_most_three_times_for_a_type() {
    for (tiers, silence, seed) in [(1, 120), (1, 2), (2, 120), (2, 2)]
        .into_iter()
        .flat_map(|(tiers, silence)| (1..=TIMES).map(move |seed| (tiers, silence, seed)))
    {
        let mut options = Options::calm(tiers);
        options.protocol.upstream.second_silence = Duration::from_secs(silence);
        options.habits[0].compares = false;
        options.habits[0].says_nothing_is_new = false;
        options.span = 900;
        let mut world = world(seed, options);
        world.clients[1].profile = Profile::Stream(Variant::Sotw);
        world.step(10_000, |world| {
            for client in 0..BOTH.len() {
                world.clients[client].forget_versions();
                world.break_client(client, false);
            }
        });
        let world = live(world, &format!("{seed}"));
        let reopenings = world.judge.reopenings(0, Moment::START);
        assert!((1..=3).contains(&reopenings), "{tiers} tiers, {silence} s, {seed}: {reopenings}");
    }
}

/// Each of two hundred worlds has one relay with one view, and the relay restarts.
#[test]
fn up_15_the_question_costs_a_restart_at_most_a_tenth_more_bytes_of_responses() {
    let bytes = |initial_set: InitialSet| -> usize {
        let of = |seed| {
            let mut options = Options::calm(1);
            options.quirks[0].initial_set = initial_set;
            let mut world = world(seed, options);
            for number in 10..60 {
                let key = Key(Kind::Clusters, number);
                let serial = world.serial();
                world.servers[0].content.insert(key, Content { serial, to: 0 });
                world.judge.note_first(0, [key].into_iter());
            }
            world.step(10_000, |world| {
                world.sent_bytes = 0;
                world.restart(0, true);
            });
            match initial_set == InitialSet::Auto {
                true => live(world, &format!("{seed}")).sent_bytes,
                false => {
                    let _ = world.live(); // clients that wait for the end are late
                    world.sent_bytes
                }
            }
        };
        (1..=200).map(of).sum()
    };
    // A server that sends its sets in pieces is not asked for the end.
    let (with, without) = (bytes(InitialSet::Auto), bytes(InitialSet::Pieces));
    let ratio = with as f64 / without as f64;
    println!("{ratio:.3} times the bytes of responses");
    assert!(ratio <= 1.1, "{with} bytes instead of {without}");
}
