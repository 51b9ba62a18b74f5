//! Cases chosen by hand. Each is played step by step and checked by the oracle.

use std::time::Duration;

use weir_core::protocol::session::Variant;

use crate::client::{Profile, Reaction, Return};
use crate::content::Kind;
use crate::world::{Pulled, World};

const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// Returns a world with one Envoy that holds cluster 0, its endpoints, and route 0 to it.
fn settled(upstream: Variant, downstream: Variant) -> World {
    let mut world = World::new(upstream, |_| {});
    world.set(0, Kind::Cluster, 0, true, true, |_| {});
    world.set(0, Kind::Endpoints, 0, true, true, |_| {});
    world.set(0, Kind::Route, 0, true, true, |route| route.target = Some("c0".into()));
    let at = world.add_client(Profile::Envoy, downstream, 0, false);
    world.clients[at].change(Kind::Route, &["r0".into()], &[]);
    world.quiesce().unwrap();
    world
}

fn each_combination(case: impl Fn(&mut World)) {
    for (upstream, downstream) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
        let mut world = settled(upstream, downstream);
        case(&mut world);
        let end = world.quiesce();
        end.unwrap_or_else(|fault| panic!("{upstream:?} upstream, {downstream:?} client: {fault}"));
    }
}

/// Delivers everything that the server sent to the view, and publishes it.
fn arrive(world: &mut World) {
    world.relay_reads(0, usize::MAX, true).unwrap();
}

fn pull(world: &mut World) -> bool {
    let pulled = matches!(world.pull(0).unwrap(), Pulled::Reply);
    world.process(0, Reaction::Ack);
    while world.session_reads(0).unwrap() {}
    pulled
}

fn route_to(world: &mut World, cluster: &str) {
    world.set(0, Kind::Route, 0, true, true, |route| route.target = Some(cluster.into()));
}

#[test]
fn a_cluster_changed_before_and_after_the_route_to_it_is_held_by_a_client_that_reads_in_between() {
    each_combination(|world| {
        world.set(0, Kind::Cluster, 1, true, true, |_| {});
        world.set(0, Kind::Endpoints, 1, true, true, |_| {});
        route_to(world, "c1");
        arrive(world);
        // The client starts with this state. The cluster's entry then moves behind the route's entry in the journal.
        assert!(pull(world));
        world.set(0, Kind::Cluster, 1, true, true, |_| {});
        arrive(world);
        while pull(world) {}
    });
}

#[test]
fn a_route_changed_before_and_after_a_removal_is_sent_first_by_a_client_that_reads_in_between() {
    each_combination(|world| {
        world.set(0, Kind::Cluster, 1, true, true, |_| {});
        route_to(world, "c1");
        world.delete(0, Kind::Cluster, 0, true, true);
        arrive(world);
        assert!(pull(world), "the new cluster");
        world.set(0, Kind::Cluster, 2, true, true, |_| {});
        route_to(world, "c2");
        arrive(world);
        while pull(world) {}
    });
}

#[test]
fn a_removal_between_two_changes_of_the_route_that_named_it_comes_after_the_route() {
    each_combination(|world| {
        world.clients[0].stalled = true;
        world.set(0, Kind::Cluster, 1, true, true, |_| {});
        world.set(0, Kind::Endpoints, 1, true, true, |_| {});
        route_to(world, "c1");
        world.delete(0, Kind::Cluster, 0, true, true);
        route_to(world, "c1");
        arrive(world);
        world.clients[0].stalled = false;
    });
}

#[test]
fn ord_7_a_client_that_paused_through_a_move_never_routes_to_a_cluster_that_is_gone() {
    each_combination(|world| {
        world.clients[0].stalled = true;
        for to in [1u8, 2, 3] {
            world.set(0, Kind::Cluster, to, true, true, |_| {});
            arrive(world);
            world.set(0, Kind::Endpoints, to, true, true, |_| {});
            route_to(world, &format!("c{to}"));
            arrive(world);
            world.delete(0, Kind::Cluster, to - 1, true, true);
            arrive(world);
        }
        world.clients[0].stalled = false;
    });
}

#[test]
fn what_was_removed_and_made_again_between_two_bursts_is_sent_as_a_change() {
    each_combination(|world| {
        world.clients[0].stalled = true;
        let serial = world.serial;
        world.delete(0, Kind::Cluster, 0, true, true);
        arrive(world);
        world.set(0, Kind::Cluster, 0, true, true, |_| {});
        arrive(world);
        assert!(world.serial > serial);
        world.clients[0].stalled = false;
    });
}

#[test]
fn an_alias_alone_is_news_to_delta_and_none_to_sotw() {
    each_combination(|world| {
        let serial = world.truths[0].of(Kind::Cluster, true)["c0"].serial;
        world.set(0, Kind::Cluster, 0, true, true, |content| {
            (content.serial, content.alias) = (serial, Some("other".into()));
        });
        arrive(world);
        let sent = world.coverage.replies;
        pull(world);
        let news = world.coverage.replies - sent;
        assert_eq!(news, u64::from(world.clients[0].variant == Variant::Delta));
    });
}

#[test]
fn delta_16_and_sotw_7_a_client_that_comes_back_to_a_cold_unit_with_versions_waits() {
    for (upstream, downstream) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
        let mut world = settled(upstream, downstream);
        let held = world.clients[0].held.clone();
        // Another relay has a cold cache, and the server sends nothing for a long time either.
        let mut cold = World::new(upstream, |_| {});
        cold.truths = world.truths.clone();
        cold.serial = world.serial;
        cold.clients.append(&mut world.clients);
        cold.reconnect(0, 0, Return::TrueVersions).unwrap();
        while cold.session_reads(0).unwrap() {}
        for _ in 0..30 {
            cold.advance(Duration::from_secs(10)).unwrap();
            assert!(!pull(&mut cold), "answered out of nothing");
        }
        assert_eq!(cold.clients[0].held, held);
        cold.delete(0, Kind::Cluster, 0, true, true);
        cold.quiesce().unwrap();
        assert!(!cold.clients[0].held.contains_key(&(Kind::Cluster, "c0".into())), "now it is known to be gone");
    }
}

#[test]
fn xlat_12_a_sotw_client_with_state_gets_no_part_of_a_set_however_slowly_it_comes() {
    let mut world = World::new(Variant::Delta, |_| {});
    world.pieces = true;
    (0..3).for_each(|number| world.set(0, Kind::Cluster, number, true, true, |_| {}));
    world.add_client(Profile::Envoy, Variant::Sotw, 0, false);
    world.reconnect(0, 0, Return::ForeignVersions).unwrap();
    while world.session_reads(0).unwrap() {}
    world.connect_upstream(0);
    world.settle(0, true).unwrap();
    for _ in 0..9 {
        world.origin_reads(0, usize::MAX);
        world.relay_reads(0, 1, true).unwrap();
        if pull(&mut world) {
            break; // everything is known by now
        }
        world.advance(Duration::from_secs(20)).unwrap();
    }
    if let Some(sent) = world.clients[0].replies.front() {
        assert_eq!(sent.resources.len(), 3);
    }
    world.quiesce().unwrap();
    assert_eq!(world.clients[0].held.len(), 3);
}

#[test]
fn up_32_and_i4_no_client_is_sent_anything_of_an_outage() {
    each_combination(|world| {
        let sent = world.coverage.replies;
        world.kill_upstream(0, 0);
        world.kill_upstream(0, 1);
        for _ in 0..20 {
            world.advance(Duration::from_secs(30)).unwrap();
            assert!(!pull(world));
        }
        let late = world.add_client(Profile::Envoy, world.clients[0].variant, 0, false);
        while world.session_reads(late).unwrap() {}
        assert!(matches!(world.pull(late).unwrap(), Pulled::Reply), "what is held is served to new clients");
        world.quiesce().unwrap();
        assert_eq!(world.clients[0].judge.kinds().count(), 3);
        let newcomers = world.coverage.replies - sent;
        assert!((1..=3).contains(&newcomers), "{newcomers} replies, all to the newcomer");
    });
}

/// Lets a second client request a route that is cached. The route moves before the view has counted the subscription.
fn a_route_moves_before_interest_is_counted(downstream: Variant) -> Result<(), String> {
    let mut world = World::new(Variant::Delta, |_| {});
    world.set(0, Kind::Cluster, 0, true, true, |_| {});
    world.set(0, Kind::Endpoints, 0, true, true, |_| {});
    world.set(0, Kind::Route, 0, true, true, |route| route.target = Some("c0".into()));
    for at in 0..2 {
        world.add_client(Profile::Envoy, downstream, 0, false);
        if at == 0 {
            world.clients[0].change(Kind::Route, &["r0".into()], &[]);
        }
        world.quiesce()?;
    }
    world.slow_interest = true;
    world.clients[1].change(Kind::Route, &["r0".into()], &[]);
    let tell = |world: &mut World| -> Result<(), String> {
        while world.session_reads(1)? {}
        while matches!(world.pull(1)?, Pulled::Reply) {
            world.process(1, Reaction::Ack);
        }
        Ok(())
    };
    tell(&mut world)?;
    world.set(0, Kind::Cluster, 1, true, true, |_| {});
    route_to(&mut world, "c1");
    world.delete(0, Kind::Cluster, 0, true, true);
    world.relay_reads(0, usize::MAX, true)?;
    world.advance(Duration::from_millis(600))?;
    tell(&mut world)?;
    world.quiesce()
}

#[test]
fn removals_wait_until_what_the_client_requested_is_counted() {
    for downstream in BOTH {
        a_route_moves_before_interest_is_counted(downstream).unwrap();
    }
}
