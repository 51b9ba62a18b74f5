//! Errors of single names, and the clients that get them (TP3, A88).

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, ResourceLocator};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, CloseReason, Step, Variant};
use weir_core::protocol::view::SessionId;
use weir_core::xds::{Access, AccessRule, Authority, NamePattern, Network};

use super::support::{Bench, CDS, EDS, LDS, SDS};
use super::warm;

const UNAVAILABLE: i32 = 14;
const PERMISSION_DENIED: i32 = 7;

/// Adds a client that reads errors, and one that does not.
fn two(bench: &mut Bench, variant: Variant, url: &str, names: &[&str]) -> [SessionId; 2] {
    [true, false].map(|errors| {
        let id = bench.add(Client { errors, ..Client::plain(variant) });
        match variant {
            Variant::Delta => bench.delta(id, url, names, &[]),
            Variant::Sotw => bench.sotw(id, url, names, ""),
        }
        id
    })
}

#[test]
fn sotw_52_and_up_46_an_error_is_sent_once_and_again_to_those_who_come_later() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let [reads, does_not] = two(&mut bench, variant, EDS, &["a", "b"]);
        bench.fails(EDS, "a", UNAVAILABLE);
        bench.set(EDS, &[("b", "1")]);
        assert_eq!(bench.said(reads), ["C !a:14,b"], "{variant:?}");
        assert_eq!(bench.said(does_not), ["C b"]);
        bench.fails(EDS, "a", UNAVAILABLE);
        bench.later(1_000);
        assert_eq!((bench.said(reads), bench.said(does_not)), (vec![], vec![]), "no news");
        let [late, _] = two(&mut bench, variant, EDS, &["a"]);
        assert_eq!(bench.said(late), ["C !a:14"]);
        bench.set(EDS, &[("a", "1")]);
        bench.later(1_000);
        assert_eq!((bench.said(reads), bench.said(does_not)), (vec!["C a".into()], vec!["C a".into()]));
    }
}

#[test]
fn up_44_and_up_47_a_passing_error_keeps_the_value_and_its_end_is_sent() {
    let mut bench = Bench::new();
    let [reads, does_not] = two(&mut bench, Variant::Delta, EDS, &["a"]);
    bench.set(EDS, &[("a", "1")]);
    bench.said(reads);
    bench.said(does_not);
    bench.fails(EDS, "a", UNAVAILABLE);
    assert_eq!((bench.said(reads), bench.said(does_not)), (vec!["C !a:14".into()], vec![]));
    let [late, plain] = two(&mut bench, Variant::Delta, EDS, &["a"]);
    assert_eq!(bench.said(late), ["C a", "C !a:14"], "a name in error is not in the same reply");
    assert_eq!(bench.said(plain), ["C a"]);
    bench.set(EDS, &[("a", "1")]);
    assert_eq!(bench.said(reads), ["C a"], "the same again is how it is well");
    assert_eq!(bench.said(does_not), [""; 0]);
}

#[test]
fn sotw_53_and_sotw_54_a_complete_set_is_right_without_its_errors() {
    let mut bench = Bench::new();
    let [reads, does_not] = two(&mut bench, Variant::Sotw, LDS, &["a", "b"]);
    bench.set(LDS, &[("a", "1")]);
    assert_eq!((bench.said(reads), bench.said(does_not)), (vec!["L a".into()], vec!["L a".into()]));
    bench.fails(LDS, "b", UNAVAILABLE);
    bench.later(1_000);
    assert_eq!((bench.said(reads), bench.said(does_not)), (vec!["L !b:14,a".into()], vec![]));
    let everything = bench.add(Client { errors: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(everything, LDS, &[], "");
    bench.whole(LDS, &[("a", "1")]);
    assert_eq!(bench.said(everything), ["L a"], "not of a wildcard");
}

#[test]
fn sotw_55_absence_is_an_error_to_who_reads_errors_and_silence_to_others() {
    let mut bench = warm();
    let [reads, does_not] = two(&mut bench, Variant::Sotw, EDS, &["a", "missing"]);
    bench.said(reads);
    bench.said(does_not);
    bench.remove(EDS, "missing");
    bench.later(1_000);
    assert_eq!(bench.said(reads), ["C !missing:5"]);
    assert_eq!(bench.said(does_not), [""; 0], "never an empty stand-in");
    bench.later(1_000);
    assert_eq!(bench.said(reads), [""; 0]);
}

#[test]
fn delta_50_and_xlat_21_what_is_not_allowed_is_absent_and_says_why() {
    let mut bench = Bench::new();
    let [reads, does_not] = two(&mut bench, Variant::Delta, EDS, &["a"]);
    bench.remove(EDS, "a");
    bench.fails(EDS, "a", PERMISSION_DENIED);
    assert_eq!((bench.said(reads), bench.said(does_not)), (vec!["C !a:7 -a".into()], vec!["C  -a".into()]));
}

#[test]
fn xlat_22_a_removal_of_what_is_held_says_why() {
    let mut bench = Bench::new();
    let [reads, _] = two(&mut bench, Variant::Delta, EDS, &["a"]);
    bench.set(EDS, &[("a", "1")]);
    bench.said(reads);
    bench.remove(EDS, "a");
    bench.fails(EDS, "a", PERMISSION_DENIED);
    assert_eq!(bench.said(reads), ["C !a:7 -a"]);
    assert_eq!(bench.said(reads), [""; 0]);
}

#[test]
fn key_18_a_locator_with_parameters_is_an_error_and_no_wildcard() {
    let mut bench = warm();
    let [reads, _] = two(&mut bench, Variant::Delta, EDS, &["b"]);
    bench.said(reads);
    let locator =
        ResourceLocator { name: "a".into(), dynamic_parameters: [("env".to_owned(), "prod".to_owned())].into() };
    let request = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_locators_subscribe: vec![locator],
        ..Default::default()
    };
    bench.request(reads, Request::Delta(request));
    assert_eq!(bench.said(reads), ["C !a:12"]);
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(reads), [""; 0]);
}

#[test]
fn xlat_36_a_new_grpc_client_or_relay_without_hope_is_ended_and_others_wait() {
    let mut bench = Bench::new();
    let grpc = Client { grpc: true, errors: true, ..Client::plain(Variant::Sotw) };
    let (lost, envoy, served) = (bench.add(grpc.clone()), bench.client(Variant::Sotw), bench.add(grpc));
    let relay = bench.add(Client { relay: true, ..Client::plain(Variant::Sotw) });
    for id in [lost, relay, envoy] {
        bench.sotw(id, EDS, &["a"], "");
        assert_eq!(bench.said(id), [""; 0], "the connection is still being made");
    }
    bench.sotw(served, EDS, &["b"], "");
    bench.set(EDS, &[("b", "1")]);
    assert_eq!(bench.said(served), ["C b"]);
    bench.sotw(served, EDS, &["c"], "1");
    assert_eq!(bench.said(served), [""; 0]);
    bench.view.on_source([Authority::TopLevel].into(), true);
    bench.publish();
    assert!(matches!(bench.step(lost), Step::End(CloseReason::NoUpstream)));
    assert!(matches!(bench.step(relay), Step::End(CloseReason::NoUpstream)));
    assert!(matches!(bench.step(envoy), Step::Idle(_)));
    assert!(matches!(bench.step(served), Step::Idle(_)), "it had an answer");
}

#[test]
fn key_11_a_client_without_clearance_gets_no_bytes_by_name_by_wildcard_or_by_alias() {
    let access = Access::of(vec![AccessRule {
        types: vec![
            "envoy.extensions.transport_sockets.tls.v3.Secret".into(),
            "envoy.config.cluster.v3.Cluster".into(),
        ],
        names: vec![NamePattern::parse("secret*")],
        peers: vec![Network::parse("10.1.0.0/16").unwrap()],
    }]);
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let [cleared, other] = ["10.1.0.1", "10.2.0.1"].map(|peer| {
            let clearance = access.clearance(peer.parse().ok());
            bench.add(Client { errors: true, clearance, ..Client::plain(variant) })
        });
        let ask = |bench: &mut Bench, id, url: &str, names: &[&str]| match variant {
            Variant::Sotw => bench.sotw(id, url, names, ""),
            Variant::Delta => bench.delta(id, url, names, &[]),
        };
        ask(&mut bench, cleared, SDS, &["secret", "open"]);
        bench.set(SDS, &[("secret", "1"), ("open", "1")]);
        assert_eq!(bench.said(cleared), ["S open,secret"]);
        ask(&mut bench, other, SDS, &["secret", "open"]);
        let denied = if variant == Variant::Sotw { "S !secret:7,open" } else { "S !secret:7,open -secret" };
        assert_eq!(bench.said(other), [denied], "{variant:?}");
        bench.later(1_000);
        bench.set(SDS, &[("secret", "2")]);
        assert_eq!(bench.said(other), [""; 0], "nor later");
        ask(&mut bench, other, CDS, &["*"]);
        bench.whole(CDS, &[("secret-cluster", "1"), ("open", "1")]);
        assert_eq!(bench.said(other), ["C open"]);
        bench.later(1_000);
        bench.set(CDS, &[("secret-cluster", "2")]);
        assert_eq!(bench.said(other), [""; 0]);
        bench.asked_upstream();
        ask(&mut bench, other, LDS, &["l"]);
        ask(&mut bench, other, SDS, &["secret-of-nobody"]);
        assert_eq!(bench.asked_upstream(), ["+l"], "nothing is asked for on its behalf");
    }
}

#[test]
fn i8_a_name_without_room_in_the_view_gets_an_error_and_is_tried_again_when_it_is_requested_again() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.view.names_per_view = 3));
        let [reads, does_not] = two(&mut bench, variant, EDS, &["a", "b"]);
        let request = |bench: &mut Bench, id, names: &[&str]| match variant {
            Variant::Delta => bench.delta(id, EDS, names, &[]),
            Variant::Sotw => bench.sotw(id, EDS, &[&["a", "b"], names].concat(), ""),
        };
        request(&mut bench, does_not, &["c"]);
        assert_eq!(bench.asked_upstream(), ["+a", "+b", "+c"]);
        request(&mut bench, reads, &["c", "d"]);
        request(&mut bench, does_not, &["d"]);
        assert_eq!(bench.asked_upstream(), [""; 0], "{variant:?}: the third name is there, and the fourth has no room");
        assert_eq!((bench.said(reads), bench.said(does_not)), (vec!["C !d:8".into()], vec![]));
        bench.set(EDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!(bench.said(reads), ["C a,b,c"], "{variant:?}");
        if variant == Variant::Sotw {
            request(&mut bench, reads, &["c", "d"]);
            assert_eq!(bench.said(reads), [""; 0], "it repeats all names with each request, and has this error");
        }
        let other = bench.client(Variant::Delta);
        bench.leave(does_not);
        match variant {
            Variant::Delta => bench.delta(reads, EDS, &[], &["b"]),
            Variant::Sotw => bench.sotw(reads, EDS, &["a", "c", "d"], ""),
        }
        if variant == Variant::Delta {
            bench.delta(reads, EDS, &["d"], &[]);
        }
        bench.later(0);
        let asked = bench.asked_upstream();
        assert!(asked.contains(&"+d".into()) && asked.contains(&"-b".into()), "what lingers goes first: {asked:?}");
        bench.set(EDS, &[("d", "1")]);
        assert_eq!(bench.said(reads).last().unwrap(), "C d");
        bench.delta(other, EDS, &["e"], &[]);
        assert_eq!(bench.asked_upstream(), [""; 0], "it is full again");
        bench.leave(reads);
        bench.delta(other, EDS, &["f"], &[]);
        assert_eq!(bench.asked_upstream(), ["+f"], "all that lingers makes room");
    }
}

#[test]
fn i8_a_name_without_room_has_its_error_again_when_it_is_requested_again_and_there_still_is_none() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.view.names_per_view = 2));
    let [reads, _] = two(&mut bench, Variant::Delta, EDS, &["a", "b"]);
    for round in 0..3 {
        bench.delta(reads, EDS, &["c"], &[]);
        assert_eq!(bench.said(reads), ["C !c:8"], "round {round}");
    }
    bench.delta(reads, EDS, &["c"], &[]);
    bench.delta(reads, EDS, &[], &["c"]);
    assert_eq!(bench.said(reads), [""; 0], "it was left before the error was sent");
}

#[test]
fn xlat_36_for_a_wildcard_there_is_hope_while_its_set_or_anything_else_requested_is_cached() {
    let mut bench = warm();
    let grpc = Client { grpc: true, ..Client::plain(Variant::Sotw) };
    let [cold, warm, names, both] = [(); 4].map(|()| bench.add(grpc.clone()));
    bench.sotw(cold, SDS, &["*"], "");
    bench.sotw(warm, CDS, &["*"], "");
    bench.sotw(names, EDS, &["a", "missing"], "");
    bench.sotw(both, SDS, &["*"], "");
    bench.sotw(both, EDS, &["a"], "");
    bench.view.on_source([Authority::TopLevel].into(), true);
    bench.publish();
    assert!(matches!(bench.step(cold), Step::End(CloseReason::NoUpstream)));
    assert_eq!(bench.said(warm), ["C a,b,c"]);
    assert_eq!((bench.said(names), bench.said(both)), (vec!["C a".to_owned()], vec!["C a".to_owned()]));
}

#[test]
fn xlat_36_where_it_is_switched_off_a_grpc_client_without_hope_waits_too() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.grpc_fail_fast = false));
    let client = bench.add(Client { grpc: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, EDS, &["a"], "");
    bench.view.on_source([Authority::TopLevel].into(), true);
    bench.publish();
    assert!(matches!(bench.step(client), Step::Idle(_)));
}

#[test]
fn up_47_after_an_error_has_ended_a_longer_ttl_is_a_heartbeat_again() {
    let mut bench = Bench::new();
    let client = bench.add(Client { errors: true, ttl: true, ..Client::plain(Variant::Delta) });
    bench.delta(client, EDS, &["a"], &[]);
    let give = |bench: &mut Bench| {
        bench.give(EDS, "a", "1", |wrapper| wrapper.ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 }));
    };
    give(&mut bench);
    assert_eq!(bench.said(client), ["C a(60)"]);
    bench.fails(EDS, "a", UNAVAILABLE);
    assert_eq!(bench.said(client), ["C !a:14"]);
    bench.later(10_000);
    give(&mut bench);
    assert_eq!(bench.said(client), ["C a(60)"], "that is how the error ends");
    bench.later(10_000);
    give(&mut bench);
    assert_eq!(bench.said(client), ["C ~a(60)"]);
}

#[test]
fn key_11_the_end_of_what_a_client_may_not_have_is_not_sent_to_a_wildcard_either() {
    let rule = AccessRule {
        types: vec!["envoy.config.cluster.v3.Cluster".into()],
        names: vec![NamePattern::parse("secret*")],
        peers: Vec::new(),
    };
    let clearance = Access::of(vec![rule]).clearance(None);
    for (variant, all, left) in [(Variant::Sotw, "C a,b", "C a"), (Variant::Delta, "C a,b", "C  -b")] {
        let mut bench = Bench::new();
        let client = bench.add(Client { clearance: clearance.clone(), ..Client::plain(variant) });
        match variant {
            Variant::Sotw => bench.sotw(client, CDS, &["*"], ""),
            Variant::Delta => bench.delta(client, CDS, &["*"], &[]),
        }
        bench.whole(CDS, &[("a", "1"), ("b", "1"), ("secret", "1"), ("secret too", "1")]);
        assert_eq!(bench.said(client), [all], "{variant:?}");
        bench.later(1_000);
        bench.whole(CDS, &[("a", "1"), ("b", "1"), ("secret", "1")]);
        assert_eq!(bench.said(client), [""; 0], "{variant:?}: it never had that one");
        bench.whole(CDS, &[("a", "1")]);
        assert_eq!(bench.said(client), [left], "{variant:?}");
    }
}

#[test]
fn key_11_what_a_client_states_that_it_has_and_may_not_have_is_removed_at_its_wildcard() {
    let rule = AccessRule {
        types: vec!["envoy.config.cluster.v3.Cluster".into()],
        names: vec![NamePattern::parse("c"), NamePattern::parse("never was")],
        peers: Vec::new(),
    };
    let clearance = Access::of(vec![rule]).clearance(None);
    let mut bench = warm();
    let client = bench.add(Client { clearance, ..Client::plain(Variant::Delta) });
    let stated = ["a", "c", "never was"].map(|name| (name.to_owned(), "1".to_owned()));
    let request = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_names_subscribe: vec!["*".into()],
        initial_resource_versions: stated.into(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
    assert_eq!(bench.said(client), ["C a,b", "C  -c,never was"], "the rules may be newer than what it was sent");
    bench.set(CDS, &[("c", "2")]);
    assert_eq!(bench.said(client), [""; 0]);
}
