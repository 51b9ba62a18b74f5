//! New-style names between client and upstream.

use std::sync::Arc;

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Resource as Wrapper};
use weir_core::protocol::session::{Client, CloseReason, Session, Step, Variant};
use weir_core::protocol::view::SessionId;
use weir_core::xds::Authority;

use super::support::{Bench, LDS, text_of};

const CANONICAL: &str = "xdstp://x/envoy.config.listener.v3.Listener/id?a=1&b=2";
const OTHERWISE: &str = "xdstp://x/envoy.config.listener.v3.Listener/id?b=2&a=1";

/// Adds a client of a relay that has servers for the authority `x`.
fn client(bench: &mut Bench, variant: Variant) -> SessionId {
    client_as(bench, Client { errors: true, ..Client::plain(variant) })
}

fn client_as(bench: &mut Bench, client: Client) -> SessionId {
    let id = bench.add(client);
    let session = bench.sessions.remove(&id).unwrap();
    let session: Session = session.with_authorities(Arc::new(["x".to_owned()].into()));
    bench.sessions.insert(id, session);
    id
}

#[test]
fn name_6_name_16_and_name_17_one_name_upstream_and_each_clients_own_spelling_downstream() {
    let mut bench = Bench::new();
    let [one, other] = [Variant::Delta, Variant::Delta].map(|variant| client(&mut bench, variant));
    bench.delta(one, LDS, &[CANONICAL], &[]);
    bench.delta(other, LDS, &[OTHERWISE], &[]);
    assert_eq!(bench.asked_upstream(), [format!("+{CANONICAL}")]);
    bench.set(LDS, &[(CANONICAL, "1")]);
    let spelt = |bench: &mut Bench, id| {
        let reply = bench.poll(id).unwrap();
        reply.spellings.iter().map(|(_, name)| name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(spelt(&mut bench, one), [""; 0], "it is canonical");
    assert_eq!(spelt(&mut bench, other), [OTHERWISE]);
    bench.remove(LDS, CANONICAL);
    assert_eq!(bench.said(one), [format!("L  -{CANONICAL}")]);
    assert_eq!(bench.said(other), [format!("L  -{OTHERWISE}")]);
    bench.delta(one, LDS, &[], &[CANONICAL]);
    bench.delta(other, LDS, &[], &[CANONICAL]);
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), [format!("-{CANONICAL}")], "left in whatever spelling");
}

#[test]
fn name_16_and_name_17_a_sotw_client_is_answered_in_the_spelling_of_its_last_request() {
    let mut bench = Bench::new();
    let id = client(&mut bench, Variant::Sotw);
    bench.sotw(id, LDS, &[OTHERWISE], "");
    bench.set(LDS, &[(CANONICAL, "1")]);
    let reply = bench.poll(id).unwrap();
    assert_eq!(reply.spellings.iter().map(|(_, name)| &**name).collect::<Vec<_>>(), [OTHERWISE]);
    bench.sotw(id, LDS, &[CANONICAL], &reply.nonce.to_string());
    bench.set(LDS, &[(CANONICAL, "2")]);
    assert!(bench.poll(id).unwrap().spellings.is_empty(), "it is canonical now");
}

#[test]
fn name_16_a_delta_client_is_answered_in_the_spelling_that_it_subscribed_with_last() {
    let mut bench = Bench::new();
    let id = client(&mut bench, Variant::Delta);
    bench.delta(id, LDS, &[OTHERWISE], &[]);
    bench.set(LDS, &[(CANONICAL, "1")]);
    let spelt = |bench: &mut Bench, off: &[&str], on: &[&str]| {
        bench.delta(id, LDS, &[], off);
        bench.delta(id, LDS, on, &[]);
        bench.poll(id).unwrap().spellings.first().map(|(_, name)| name.to_string())
    };
    assert_eq!(bench.poll(id).unwrap().spellings.len(), 1);
    assert_eq!(spelt(&mut bench, &[CANONICAL], &[CANONICAL]), None, "the spelling has gone with the subscription");
    assert_eq!(spelt(&mut bench, &[], &[OTHERWISE]).as_deref(), Some(OTHERWISE), "it is asked for again");
    assert_eq!(spelt(&mut bench, &[], &[CANONICAL]), None);
    assert_eq!(spelt(&mut bench, &[], &[OTHERWISE]).as_deref(), Some(OTHERWISE));
    bench.delta(id, LDS, &["*"], &[CANONICAL]);
    bench.set(LDS, &[(CANONICAL, "2")]);
    let reply = bench.poll(id).unwrap();
    assert_eq!((text_of(&reply), reply.spellings.len()), (format!("L {CANONICAL}"), 0), "it is a member of `*` now");
}

#[test]
fn delta_14_what_a_client_says_it_holds_counts_in_whatever_spelling() {
    let mut bench = Bench::new();
    let keeper = client(&mut bench, Variant::Delta);
    bench.delta(keeper, LDS, &[CANONICAL], &[]);
    bench.remove(LDS, CANONICAL);
    bench.said(keeper);
    let id = client(&mut bench, Variant::Delta);
    let request = DeltaDiscoveryRequest {
        type_url: LDS.into(),
        resource_names_subscribe: vec![OTHERWISE.into()],
        initial_resource_versions: [(OTHERWISE.to_owned(), "v".to_owned())].into(),
        ..Default::default()
    };
    bench.request(id, Request::Delta(request));
    assert_eq!(bench.said(id), [format!("L  -{OTHERWISE}")], "it held something that is gone");
}

#[test]
fn name_5_name_10_boot_16_and_xlat_23_what_cannot_be_requested_is_an_error_for_that_name_once() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let id = client(&mut bench, variant);
        let names = [
            "xdstp://nobody/envoy.config.listener.v3.Listener/id",
            "xdstp://x/envoy.config.cluster.v3.Cluster/id",
            "xdstp:broken",
            "good",
        ];
        match variant {
            Variant::Sotw => bench.sotw(id, LDS, &names, ""),
            Variant::Delta => bench.delta(id, LDS, &names, &[]),
        }
        assert_eq!(bench.asked_upstream(), ["+good"], "nobody is asked for the others");
        bench.set(LDS, &[("good", "1")]);
        let sent = bench.said(id);
        let errors: Vec<_> = sent.iter().flat_map(|text| text.matches(":3,").chain(text.matches(":5,"))).collect();
        assert_eq!(errors.len(), 3, "{variant:?}: {sent:?}");
        if variant == Variant::Sotw {
            bench.sotw(id, LDS, &names, "1");
            assert_eq!(bench.said(id), [""; 0], "the answer to an error is not answered with an error");
        }
    }
}

#[test]
fn coll_12_a_glob_in_sotw_is_a_name_that_never_exists() {
    let mut bench = Bench::new();
    let id = client(&mut bench, Variant::Sotw);
    bench.sotw(id, LDS, &["xdstp://x/envoy.config.listener.v3.Listener/*"], "");
    assert_eq!(bench.asked_upstream(), [""; 0]);
}

#[test]
fn xlat_37_a_set_waits_for_the_authority_that_is_still_cold_where_something_may_be_held_of_it() {
    let mut bench = Bench::new();
    let (fresh, holding) = (client(&mut bench, Variant::Sotw), client(&mut bench, Variant::Sotw));
    bench.sotw(fresh, LDS, &["a", CANONICAL], "");
    let come_back = DiscoveryRequest {
        type_url: LDS.into(),
        version_info: "7".into(),
        resource_names: vec!["a".into(), OTHERWISE.into()],
        ..Default::default()
    };
    bench.request(holding, Request::Sotw(come_back));
    bench.set(LDS, &[("a", "1")]);
    assert_eq!(bench.said(fresh), ["L a"]);
    bench.later(100_000);
    assert_eq!(bench.said(holding), [""; 0]);
    bench.set(LDS, &[(CANONICAL, "1")]);
    assert_eq!(bench.said(holding), [format!("L a,{CANONICAL}")]);
}

#[test]
fn xlat_36_it_is_the_authority_of_what_is_wanted_that_has_to_be_unreachable() {
    let mut bench = Bench::new();
    let grpc = Client { grpc: true, errors: true, ..Client::plain(Variant::Sotw) };
    let [old, new, both] = [(); 3].map(|()| client_as(&mut bench, grpc.clone()));
    bench.sotw(old, LDS, &["a"], "");
    bench.sotw(new, LDS, &[CANONICAL], "");
    bench.sotw(both, LDS, &["a", CANONICAL], "");
    bench.view.on_source([Authority::Named("x".into())].into(), true);
    bench.publish();
    assert!(matches!(bench.step(new), Step::End(CloseReason::NoUpstream)));
    assert!(matches!(bench.step(old), Step::Idle(_)), "its servers are there");
    assert!(matches!(bench.step(both), Step::Idle(_)), "half of it may come");
    bench.view.on_source([Authority::TopLevel].into(), true);
    bench.publish();
    assert!(matches!(bench.step(both), Step::Idle(_)), "now it is the other half");
    assert!(matches!(bench.step(old), Step::End(CloseReason::NoUpstream)));
}

const BROKEN: &str = "xdstp:broken";

#[test]
fn name_10_a_name_that_cannot_be_requested_has_its_error_again_when_it_is_requested_again_and_none_once_it_was_left() {
    let mut bench = Bench::new();
    let id = client(&mut bench, Variant::Sotw);
    let error = [format!("L !{BROKEN}:3")];
    bench.sotw(id, LDS, &[BROKEN, "good"], "");
    assert_eq!(bench.said(id), error);
    bench.sotw(id, LDS, &["good"], "1");
    assert_eq!(bench.said(id), [""; 0]);
    bench.sotw(id, LDS, &[BROKEN, "good"], "1");
    assert_eq!(bench.said(id), error, "it was left meanwhile");

    let id = client(&mut bench, Variant::Delta);
    bench.delta(id, LDS, &[BROKEN], &[]);
    assert_eq!(bench.said(id), error);
    bench.delta(id, LDS, &["other"], &[]);
    assert_eq!(bench.said(id), [""; 0]);
    bench.delta(id, LDS, &[BROKEN], &[]);
    assert_eq!(bench.said(id), error, "it is requested again");
    bench.delta(id, LDS, &[BROKEN], &[]);
    bench.delta(id, LDS, &[], &[BROKEN]);
    assert_eq!(bench.said(id), [""; 0], "it was left before the error was sent");
}

#[test]
fn name_16_errors_and_heartbeats_are_in_the_spelling_of_the_client_too() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let able = Client { errors: true, ttl: true, wrappers: true, ..Client::plain(variant) };
        let id = client_as(&mut bench, able);
        match variant {
            Variant::Sotw => bench.sotw(id, OWN, &[&own(OTHERWISE)], ""),
            Variant::Delta => bench.delta(id, OWN, &[&own(OTHERWISE)], &[]),
        }
        bench.fails(OWN, &own(CANONICAL), 14);
        assert_eq!(bench.said(id), [format!("T !{}:14", own(OTHERWISE))], "{variant:?}");
        bench.later(1_000);
        let mortal = |wrapper: &mut Wrapper| wrapper.ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
        bench.give(OWN, &own(CANONICAL), "1", mortal);
        assert_eq!(bench.poll(id).unwrap().spellings.len(), 1, "{variant:?}");
        bench.later(1_000);
        bench.give(OWN, &own(CANONICAL), "1", mortal);
        assert_eq!(bench.said(id), [format!("T ~{}(60)", own(OTHERWISE))], "{variant:?}");
    }
}

/// A type whose SotW replies have single resources.
const OWN: &str = "type.googleapis.com/own.Type";

fn own(listener: &str) -> String {
    listener.replace("envoy.config.listener.v3.Listener", "own.Type")
}
