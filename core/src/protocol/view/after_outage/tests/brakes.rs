//! The hold after an outage together with the brakes.

use super::*;
use crate::protocol::view::BrakeEvent;

/// A brake that engages when at least `count` resources, and more than half of a set, are removed.
fn braked(count: usize) -> ViewOptions {
    let types = [CDS, LDS, SRDS].map(Into::into).into();
    let [window, grace, empty_grace, agree_after] = [600, 300, 900, 60].map(Duration::from_secs);
    let brakes = BrakeRules {
        types,
        share: 50,
        count,
        window,
        grace,
        empty_grace,
        agree_after,
        after_outage: HOLD,
        ..BrakeRules::default()
    };
    ViewOptions { brakes, ..options() }
}

fn braked_names(bench: &Bench) -> usize {
    bench.view.holds().brakes(0).iter().map(|brake| brake.held).sum()
}

#[test]
fn a_brake_that_engages_in_the_same_response_holds_all_of_it_and_for_longer() {
    for kind in [CDS, LDS] {
        let mut bench = Bench::back(kind, &["a", "b", "c", "d"], braked(2));
        bench.set(kind, &["a"]);
        assert_eq!((braked_names(&bench), bench.waits()), (3, vec![]), "{kind}");
        bench.pass(20_000);
        assert_eq!(bench.present(kind).len(), 4, "{kind}");
        bench.set(kind, &["a", "b", "c", "d"]);
        assert_eq!((braked_names(&bench), bench.present(kind).len()), (0, 4), "{kind}");
    }
}

#[test]
fn brakes_count_what_is_held_after_an_outage_as_removed() {
    let mut bench = Bench::back(CDS, &["a", "b", "c", "d"], braked(2));
    bench.remove(CDS, "a");
    bench.remove(CDS, "b");
    assert_eq!((braked_names(&bench), bench.waits().len()), (0, 2), "half of it is no reason for the brake");
    bench.remove(CDS, "c");
    assert_eq!((braked_names(&bench), bench.waits().len()), (1, 2), "the third is");
    bench.pass(10_000);
    assert_eq!(bench.present(CDS), names(&["c", "d"]));
    bench.pass(289_999);
    assert_eq!(bench.present(CDS), names(&["c", "d"]));
    bench.pass(1);
    assert_eq!(bench.present(CDS), names(&["d"]));
}

/// An opening agrees with a brake if it removes no more than the brake holds. What is held only because of the outage is more.
#[test]
fn half_a_configuration_does_not_agree_with_what_a_brake_holds() {
    let mut bench = Bench::with(braked(3));
    bench.set(CDS, &["a", "b", "c", "d", "e"]);
    bench.pass(100_000);
    bench.set(CDS, &["a", "b"]);
    assert_eq!(braked_names(&bench), 3);
    bench.pass(100_000);
    bench.outage(CDS);
    bench.set(CDS, &["a"]);
    assert_eq!(bench.present(CDS).len(), 5);
    bench.set(CDS, &["a", "b", "c", "d", "e"]);
    assert_eq!((bench.present(CDS).len(), braked_names(&bench), bench.waits().len()), (5, 0, 0));
}

#[test]
fn what_a_brake_lets_go_because_an_opening_agrees_is_not_held_again() {
    let mut bench = Bench::with(braked(3));
    bench.set(CDS, &["a", "b", "c", "d", "e"]);
    bench.pass(100_000);
    bench.set(CDS, &["a", "b"]);
    bench.pass(100_000);
    bench.outage(CDS);
    bench.set(CDS, &["a", "b"]);
    assert_eq!((bench.present(CDS), bench.waits()), (names(&["a", "b"]), vec![]));
    assert!(bench.view.holds().held_of_servers().is_empty());
    bench.set(CDS, &[]);
    assert_eq!(braked_names(&bench), 2, "what is gone does not count as gone once more");
}

const TEN: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// A bench whose server has sent ten names, then three of them, and has just come back. A brake holds the others.
fn back_under_a_brake(kind: &str) -> Bench {
    let mut bench = Bench::with(braked(3));
    bench.set(kind, &TEN);
    bench.pass(100_000);
    bench.set(kind, &["a", "b", "c"]);
    assert_eq!(braked_names(&bench), 7, "{kind}");
    bench.pass(1_000);
    bench.outage(kind);
    bench
}

#[test]
fn what_is_removed_when_a_response_ends_a_brake_is_held() {
    for (kind, is_delta) in [CDS, LDS].into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut bench = back_under_a_brake(kind);
        if is_delta {
            let class = Class::Wildcard;
            let back = ["d", "e", "f", "g"].map(|name| bench.upsert(kind, class, name, b""));
            let response = back.into_iter().chain([bench.absent(kind, class, "a")]).collect();
            bench.apply(response);
        } else {
            bench.set(kind, &["b", "c", "d", "e", "f", "g"]);
        }
        assert_eq!((braked_names(&bench), bench.waits()), (0, vec![0; 4]), "{kind}, delta: {is_delta}");
        bench.pass(9_999);
        assert_eq!(bench.present(kind), names(&TEN), "{kind}, delta: {is_delta}");
        bench.pass(1);
        assert_eq!(bench.present(kind), names(&TEN[1..7]), "{kind}, delta: {is_delta}");
    }
}

/// A server that has just started sends its set in pieces. The brake has held the rest only since the first piece.
#[test]
fn what_a_brake_has_held_for_a_moment_is_held_after_an_outage_when_the_next_piece_ends_the_brake() {
    for (kind, is_delta) in [CDS, LDS].into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let mut bench = Bench::with(braked(3));
        bench.set(kind, &TEN);
        bench.pass(100_000);
        bench.outage(kind);
        bench.set(kind, &["a", "b", "c"]);
        assert_eq!((braked_names(&bench), bench.waits()), (7, vec![]), "{kind}, delta: {is_delta}");
        bench.pass(1_000);
        if is_delta {
            let back = ["d", "e", "f", "g"].map(|name| bench.upsert(kind, Class::Wildcard, name, b""));
            bench.apply(back.into());
        } else {
            bench.set(kind, &TEN[..7]);
        }
        assert_eq!((braked_names(&bench), bench.waits()), (0, vec![0; 3]), "{kind}, delta: {is_delta}");
        let events = bench.view.take_brake_events();
        let is_end = |event: &BrakeEvent| matches!(event, BrakeEvent::Released { count: 7, left: 0, .. });
        assert!(events.iter().any(is_end), "{kind}, delta: {is_delta}: {events:?}");
        bench.pass(9_999);
        assert_eq!(bench.present(kind), names(&TEN), "{kind}, delta: {is_delta}");
        bench.pass(1);
        assert_eq!(bench.present(kind), names(&TEN[..7]), "{kind}, delta: {is_delta}");
    }
}

#[test]
fn without_an_outage_what_is_still_removed_goes_with_the_response_that_ends_a_brake() {
    for kind in [CDS, LDS] {
        let mut bench = Bench::with(braked(3));
        bench.set(kind, &TEN);
        bench.pass(100_000);
        bench.set(kind, &["a", "b", "c"]);
        assert_eq!(braked_names(&bench), 7, "{kind}");
        bench.pass(1_000);
        bench.set(kind, &TEN[..7]);
        assert_eq!((bench.present(kind), bench.waits()), (names(&TEN[..7]), vec![]), "{kind}");
        assert!(bench.is_complete(kind), "{kind}");
    }
}

/// It may have the address of that listener.
#[test]
fn a_listener_that_a_brake_lets_go_waits_for_one_whose_removal_is_held() {
    let mut bench = back_under_a_brake(LDS);
    bench.set(LDS, &["b", "c", "d", "e", "f", "g", "new"]);
    assert_eq!((bench.present(LDS), bench.waits()), (names(&TEN), vec![0; 5]));
    assert!(!bench.is_complete(LDS), "a client may hold the new one");
    bench.pass(10_000);
    assert_eq!(bench.present(LDS), names(&["b", "c", "d", "e", "f", "g", "new"]));
    assert!(bench.is_complete(LDS));
}

/// A bench on which the removal of the listener `a` is held, and a change of `b` waits with it.
fn with_a_change_that_waits() -> Bench {
    let mut bench = Bench::back(LDS, &["a", "b", "c", "d", "e"], braked(2));
    let changed = bench.resource(LDS, "b", b"2");
    let others = ["c", "d", "e"].map(|name| bench.resource(LDS, name, b""));
    let (kind, resources) = (bench.kind(LDS), [changed].into_iter().chain(others).collect());
    bench.apply(vec![Update::FullSet { kind, resources, retain: Retain::nothing() }]);
    assert_eq!((braked_names(&bench), bench.waits().len()), (0, 2));
    bench
}

#[test]
fn a_change_that_waits_ends_when_the_server_has_the_listener_as_before_although_a_brake_engages() {
    let mut bench = with_a_change_that_waits();
    bench.set(LDS, &["b"]);
    assert_eq!((braked_names(&bench), bench.waits().len()), (3, 1));
    bench.pass(10_000);
    assert_eq!(bench.present(LDS), names(&["b", "c", "d", "e"]));
    assert_eq!(bench.body(LDS, Class::Wildcard, "b"), b"");
}

#[test]
fn a_change_that_waits_ends_when_the_server_has_another_one_that_a_brake_holds() {
    let mut bench = with_a_change_that_waits();
    let (kind, resources) = (bench.kind(LDS), vec![bench.resource(LDS, "b", b"3")]);
    bench.apply(vec![Update::FullSet { kind, resources, retain: Retain::nothing() }]);
    assert_eq!((braked_names(&bench), bench.waits().len()), (3, 1));
    bench.pass(60_000);
    assert_eq!(bench.present(LDS), names(&["b", "c", "d", "e"]));
    assert_eq!(bench.body(LDS, Class::Wildcard, "b"), b"");
    bench.pass(240_000);
    assert_eq!(bench.present(LDS), names(&["b"]));
    assert_eq!(bench.body(LDS, Class::Wildcard, "b"), b"3");
}

#[test]
fn a_new_listener_that_waits_ends_when_the_server_has_another_form_that_a_brake_holds() {
    let mut bench = Bench::back(LDS, &["a", "b", "c", "d", "e"], braked(2));
    bench.set(LDS, &["b", "c", "d", "e", "new"]);
    assert_eq!((braked_names(&bench), bench.waits().len()), (0, 2));
    let (kind, resources) = (bench.kind(LDS), vec![bench.resource(LDS, "e", b""), bench.resource(LDS, "new", b"3")]);
    bench.apply(vec![Update::FullSet { kind, resources, retain: Retain::nothing() }]);
    assert_eq!((braked_names(&bench), bench.waits().len()), (3, 1));
    bench.pass(60_000);
    assert_eq!(bench.present(LDS), names(&["b", "c", "d", "e"]));
    assert!(!bench.is_complete(LDS), "a client may hold the new one");
    bench.pass(240_000);
    assert_eq!((bench.present(LDS), bench.is_complete(LDS)), (names(&["e", "new"]), true));
    assert_eq!(bench.body(LDS, Class::Wildcard, "new"), b"3");
}

/// A bench on which a change of the scoped route `s` waits in the order for a cluster.
fn with_a_change_in_the_order() -> Bench {
    let mut bench = Bench::with(ViewOptions { reference_hold: HOLD, ..braked(2) });
    bench.set(CDS, &["a"]);
    bench.set(SRDS, &["s", "t", "u", "v"]);
    bench.pass(100_000);
    // An inline route configuration: a virtual host with one route to a cluster.
    let changed = [0x2a, 9, 0x12, 7, 0x1a, 5, 0x12, 3, 0x0a, 1, b'x'];
    bench.send(SRDS, "s", &changed);
    assert_eq!(bench.body(SRDS, Class::Wildcard, "s"), b"", "it waits for the cluster");
    bench
}

#[test]
fn a_change_that_waits_in_the_order_ends_when_the_server_has_the_resource_as_before_although_a_brake_engages() {
    let mut bench = with_a_change_in_the_order();
    bench.set(SRDS, &["s"]);
    assert_eq!(braked_names(&bench), 3);
    bench.pass(10_000);
    assert_eq!(bench.body(SRDS, Class::Wildcard, "s"), b"");
}

#[test]
fn a_change_that_waits_in_the_order_ends_when_a_brake_holds_the_removal_of_its_resource() {
    let mut bench = with_a_change_in_the_order();
    bench.set(SRDS, &["t"]);
    assert_eq!(braked_names(&bench), 3);
    bench.pass(10_000);
    assert_eq!(bench.present(SRDS), names(&["s", "t", "u", "v"]));
    assert_eq!(bench.body(SRDS, Class::Wildcard, "s"), b"");
}

#[test]
fn a_listener_that_a_brake_keeps_is_neither_removed_nor_changed_by_what_waited_of_it() {
    for is_delta in [false, true] {
        let mut bench = with_a_change_that_waits();
        if is_delta {
            let response = ["b", "c", "d"].map(|name| bench.absent(LDS, Class::Wildcard, name));
            bench.apply(response.into());
        } else {
            bench.set(LDS, &["e"]);
        }
        assert_eq!((braked_names(&bench), bench.waits().len()), (3, 1), "delta: {is_delta}");
        bench.pass(60_000);
        assert_eq!(bench.present(LDS), names(&["b", "c", "d", "e"]), "delta: {is_delta}");
        assert_eq!(bench.body(LDS, Class::Wildcard, "b"), b"", "delta: {is_delta}");
    }
}

#[test]
fn a_listener_that_cannot_be_read_stays_although_a_change_of_it_waits_and_a_brake_engages() {
    let mut bench = with_a_change_that_waits();
    let (kind, resources) = (bench.kind(LDS), vec![bench.resource(LDS, "e", b"")]);
    bench.apply(vec![Update::FullSet { kind, resources, retain: Retain::These(["b".into()].into()) }]);
    assert_eq!(braked_names(&bench), 2);
    bench.pass(60_000);
    assert_eq!(bench.present(LDS), names(&["b", "c", "d", "e"]));
}

/// The brakes split sets of listeners into single updates, which say the same of each name as the set.
#[test]
fn what_is_held_ends_also_by_a_set_of_listeners_under_a_brake() {
    let mut bench = Bench::back(LDS, &["a", "b", "c", "d", "e"], braked(2));
    bench.set(LDS, &["b", "c", "d", "e", "new"]);
    assert_eq!((braked_names(&bench), bench.waits().len()), (0, 2));
    bench.set(LDS, &["e"]);
    assert!(braked_names(&bench) > 0);
    assert_eq!(bench.waits().len(), 1, "what waited is not in the set");
    bench.set(LDS, &["a", "e"]);
    assert_eq!(bench.waits().len(), 0, "it is back");
    bench.pass(60_000);
    assert_eq!(bench.present(LDS), names(&["a", "b", "c", "d", "e"]));
    bench.set(LDS, &["a", "b", "c", "d", "e"]);
    assert_eq!((braked_names(&bench), bench.present(LDS).len()), (0, 5));
}
