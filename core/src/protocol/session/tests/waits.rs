//! What waits for one client is listed with its age and its bound, for as long as it waits.

use super::*;
use crate::protocol::wait::{WaitKind, WaitList};

impl World {
    /// Takes every reply that is due, and returns what waits then: types, ages in milliseconds and bounds.
    fn waits(&mut self) -> Vec<(WaitKind, &'static str, u128, u128)> {
        self.take_replies();
        let mut list = WaitList::keeping(10);
        self.session.add_waits(self.now, &mut list);
        let mut waits: Vec<_> = list
            .into_oldest()
            .into_iter()
            .map(|wait| {
                let kind = wait.subject.kind;
                let url =
                    kind.map_or("", |kind| [CDS, EDS, RDS].into_iter().find(|url| self.kind(url) == kind).unwrap());
                (wait.kind, url, wait.age.as_millis(), wait.bound.unwrap().as_millis())
            })
            .collect();
        waits.sort();
        assert!(waits.is_empty() || self.session.report().has_waits(), "a session without waits is not looked at");
        waits
    }
}

#[test]
fn a_change_that_waits_for_an_ack_is_listed_until_the_ack_or_its_time() {
    let mut world = World::plain(Variant::Sotw);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a"]);
    assert_eq!(world.waits(), [], "the first reply is unanswered, and nothing waits for that");
    for round in ["2", "3"] {
        world.later(10_000);
        world.set(CDS, "a", round);
        world.take_replies();
        world.later(100);
        world.set(CDS, "a", &format!("{round}, changed"));
        assert_eq!(world.waits(), [(WaitKind::Ack, CDS, 100, 500)]);
        world.later(300);
        assert_eq!(world.waits(), [(WaitKind::Ack, CDS, 400, 500)]);
        world.later(100);
        assert_eq!(world.waits(), []);
    }
    assert!(!world.session.report().has_waits());
}

#[test]
fn removals_that_wait_for_an_ack_are_listed_until_its_time() {
    let mut world = World::plain(Variant::Sotw);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a", "b"]);
    assert_eq!(world.waits(), []);
    world.later(10_000);
    world.set(CDS, "a", "2");
    world.take_replies();
    world.later(100);
    world.remove(CDS, "b");
    assert_eq!(world.waits(), [(WaitKind::Ack, "", 100, 500)]);
    world.later(300);
    assert_eq!(world.waits(), [(WaitKind::Ack, "", 400, 500)]);
    world.later(100);
    assert_eq!(world.waits(), []);
}

#[test]
fn a_change_of_routing_that_waits_for_endpoints_is_listed_until_its_time() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.subscribe(EDS, &["e"], &[]);
    world.subscribe(RDS, &["r"], &[]);
    world.whole(CDS, &["a"]);
    world.set(RDS, "r", "1");
    world.set(EDS, "e", "1");
    assert_eq!(world.waits(), []);
    world.later(10_000);
    world.put(
        CDS,
        world.of_wrapper(CDS, "new", "1", |wrapper| {
            let any = wrapper.resource.as_mut().unwrap();
            any.value = [any.value.as_ref(), &[0x1a, 4, 0x0a, 2, 0x1a, 0]].concat().into(); // its endpoints come over ADS
        }),
    );
    world.set(RDS, "r", "to new");
    assert_eq!(world.waits(), [(WaitKind::RoutingHold, RDS, 0, 2_000)]);
    world.later(1_500);
    assert_eq!(world.waits(), [(WaitKind::RoutingHold, RDS, 1_500, 2_000)]);
    world.later(500);
    assert_eq!(world.waits(), []);
}

#[test]
fn routing_that_waits_for_a_set_of_clusters_is_listed_until_its_time() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.subscribe(RDS, &["r"], &[]);
    world.set(RDS, "r", "1");
    assert_eq!(world.waits(), [(WaitKind::Clusters, RDS, 0, 20_000)]);
    world.later(15_000);
    assert_eq!(world.waits(), [(WaitKind::Clusters, RDS, 15_000, 20_000)]);
    world.later(5_000);
    assert_eq!(world.waits(), []);
}

#[test]
fn removals_that_wait_for_routing_that_the_client_states_are_listed_until_their_time() {
    let mut world = World::plain(Variant::Delta);
    world.subscribe(CDS, &["*"], &[]);
    world.whole(CDS, &["a"]);
    assert_eq!(world.waits(), []);
    let Request::Delta(mut request) = world.made(RDS, &["*"], &[], "", None) else { unreachable!() };
    request.initial_resource_versions.insert("r".into(), "1".into());
    world.request(Request::Delta(request));
    assert_eq!(world.waits(), [(WaitKind::Routing, RDS, 0, 20_000)]);
    world.later(15_000);
    assert_eq!(world.waits(), [(WaitKind::Routing, RDS, 15_000, 20_000)]);
    world.later(5_000);
    assert_eq!(world.waits(), []);
}
