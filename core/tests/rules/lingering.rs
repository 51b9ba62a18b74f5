//! XLAT-31: endpoints linger after their last client, unless no cluster refers to them any more.

use std::time::Duration;

use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::SessionId;

use super::support::{Bench, CDS, EDS, Set};
use super::translation::takes;

const BOTH: [Set; 2] = [Set::All, Set::Names];

/// Adds an Envoy that subscribes to all clusters, and to endpoints with these names, which are present.
fn envoy(bench: &mut Bench, endpoints: &[&str]) -> SessionId {
    let envoy = bench.client(Variant::Delta);
    bench.delta(envoy, CDS, &[], &[]);
    bench.delta(envoy, EDS, endpoints, &[]);
    let all: Vec<_> = endpoints.iter().map(|name| (*name, "1")).collect();
    bench.set(EDS, &all);
    bench.asked_upstream();
    envoy
}

/// Lets the server send clusters, each with the name of its endpoints, in one response for each of these sets.
fn clusters(bench: &mut Bench, sets: &[Set], clusters: &[(&str, &str)]) {
    for set in sets {
        bench.gives_as(CDS, *set, clusters.iter().map(|(name, endpoints)| (*name, takes(name, endpoints))));
    }
}

/// Lets the server remove a cluster and be quiet after that: then the order releases the cluster.
fn remove(bench: &mut Bench, set: Set, cluster: &str) {
    bench.removes(CDS, set, &[cluster]);
    bench.later(1_000);
}

fn asked(bench: &mut Bench) -> Vec<String> {
    bench.later(0);
    bench.asked_upstream()
}

#[test]
fn xlat_31_endpoints_linger_while_a_cluster_of_either_class_refers_to_them() {
    for (first, last) in [(Set::All, Set::Names), (Set::Names, Set::All)] {
        let mut bench = Bench::with(ProtocolOptions::default());
        let envoy = envoy(&mut bench, &["ep"]);
        let by_name = bench.client(Variant::Delta);
        bench.delta(by_name, CDS, &["x"], &[]);
        clusters(&mut bench, &BOTH, &[("x", "ep")]);
        bench.delta(envoy, EDS, &[], &["ep"]);
        bench.asked_upstream();
        remove(&mut bench, first, "x");
        assert_eq!(asked(&mut bench), [""; 0], "the other class has the cluster: {last:?}");
        clusters(&mut bench, &[last], &[("x", "ep")]);
        assert_eq!(asked(&mut bench), [""; 0]);
        remove(&mut bench, last, "x");
        assert_eq!(asked(&mut bench), ["-ep"], "no class has it");
    }
}

#[test]
fn xlat_31_endpoints_outlive_a_cluster_that_is_only_forgotten() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let by_name = bench.client(Variant::Delta);
    let envoy = envoy(&mut bench, &["ep"]);
    bench.delta(by_name, CDS, &["x"], &[]);
    clusters(&mut bench, &BOTH, &[("x", "ep")]);
    bench.leave(by_name);
    bench.later(20_000);
    bench.leave(envoy);
    bench.asked_upstream();
    bench.later(10_000);
    assert_eq!(bench.asked_upstream(), ["-x"], "the last client of the name left 30 s ago");
    assert_eq!(asked(&mut bench), [""; 0], "the Envoy may be back, and its cluster is there");
    bench.later(20_000);
    assert_eq!(bench.asked_upstream(), ["-*", "-ep"]);
}

#[test]
fn xlat_31_endpoints_that_one_cluster_leaves_and_another_takes_linger() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["blue", "green"]);
    clusters(&mut bench, &[Set::All], &[("x", "blue"), ("y", "green")]);
    bench.delta(envoy, EDS, &[], &["blue"]);
    clusters(&mut bench, &[Set::All], &[("x", "green"), ("y", "blue")]);
    assert_eq!(asked(&mut bench), [""; 0], "in one response");
    clusters(&mut bench, &[Set::All], &[("y", "green")]);
    clusters(&mut bench, &[Set::All], &[("x", "blue")]);
    assert_eq!(asked(&mut bench), [""; 0], "in two, before the interest ends");
    bench.whole_of(CDS, [takes("z", "blue"), takes("y", "green")]);
    bench.later(1_000);
    assert_eq!(asked(&mut bench), [""; 0], "in a whole set that has another cluster");
    bench.later(27_000);
    assert_eq!(asked(&mut bench), [""; 0]);
    bench.later(2_000);
    assert_eq!(asked(&mut bench), ["-blue"], "they linger no longer for that");
}

#[test]
fn xlat_31_endpoints_linger_on_when_their_cluster_comes_back_at_once() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["ep", "late"]);
    clusters(&mut bench, &[Set::All], &[("x", "ep"), ("y", "late")]);
    bench.delta(envoy, EDS, &[], &["ep"]);
    remove(&mut bench, Set::All, "x");
    remove(&mut bench, Set::All, "y");
    assert_eq!(bench.asked_upstream(), ["-ep"], "a second ago it was gone");
    bench.delta(envoy, EDS, &[], &["late"]);
    clusters(&mut bench, &[Set::All], &[("y", "late")]);
    assert_eq!(asked(&mut bench), [""; 0], "the interest had not ended yet");
    bench.delta(envoy, EDS, &["late"], &[]);
    bench.delta(envoy, EDS, &[], &["late"]);
    bench.later(29_000);
    assert_eq!(bench.asked_upstream(), [""; 0], "and it lingers as ever");
}

#[test]
fn xlat_31_endpoints_of_a_removed_cluster_outlive_the_stream_of_a_client_that_may_be_back() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["gone", "here"]);
    clusters(&mut bench, &[Set::All], &[("x", "gone"), ("y", "here")]);
    remove(&mut bench, Set::All, "x");
    bench.leave(envoy);
    assert_eq!(asked(&mut bench), [""; 0], "a reconnect asks the server for nothing");
}

#[test]
fn xlat_31_endpoints_that_a_client_wants_after_their_cluster_has_gone_linger() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["gone", "here"]);
    clusters(&mut bench, &[Set::All], &[("x", "gone"), ("y", "here")]);
    remove(&mut bench, Set::All, "x");
    let alone = bench.client(Variant::Delta);
    bench.delta(alone, EDS, &["gone"], &[]);
    bench.delta(envoy, EDS, &[], &["gone"]);
    bench.delta(alone, EDS, &[], &["gone"]);
    assert_eq!(asked(&mut bench), [""; 0], "it has its clusters from somewhere else");
}

#[test]
fn xlat_31_endpoints_that_their_last_cluster_has_left_do_not_linger() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["blue", "green"]);
    clusters(&mut bench, &[Set::All], &[("x", "blue")]);
    clusters(&mut bench, &[Set::All], &[("x", "green")]);
    bench.delta(envoy, EDS, &[], &["blue"]);
    assert_eq!(asked(&mut bench), ["-blue"]);
}

#[test]
fn xlat_31_endpoints_that_no_cluster_has_led_to_linger() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["other"]);
    let alone = bench.client(Variant::Delta);
    bench.delta(alone, EDS, &["own"], &[]);
    clusters(&mut bench, &[Set::All], &[("x", "other")]);
    bench.asked_upstream();
    bench.delta(alone, EDS, &[], &["own"]);
    remove(&mut bench, Set::All, "x");
    assert_eq!(asked(&mut bench), [""; 0], "its clusters come from somewhere else");
    bench.delta(envoy, EDS, &[], &["other"]);
    assert_eq!(asked(&mut bench), ["-other"]);
}

#[test]
fn xlat_31_endpoints_outlive_a_cluster_whose_ttl_ran_out() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["x"]);
    bench.give(CDS, "*", "1", |wrapper| {
        *wrapper = super::support::wrapper(CDS, "x", "1");
        wrapper.ttl = Some(Duration::from_secs(5).try_into().unwrap());
    });
    bench.said(envoy);
    bench.delta(envoy, EDS, &[], &["x"]);
    bench.asked_upstream();
    bench.later(6_000);
    assert_eq!(bench.said(envoy), ["C  -x"]);
    bench.asked_upstream();
    assert_eq!(asked(&mut bench), [""; 0], "its extension may be late");
}

#[test]
fn xlat_31_a_cluster_that_is_extended_takes_its_endpoints_again() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["x"]);
    let by_name = bench.client(Variant::Delta);
    bench.delta(by_name, CDS, &["x"], &[]);
    let mut wrapper = super::support::wrapper(CDS, "x", "1");
    wrapper.ttl = Some(Duration::from_secs(5).try_into().unwrap());
    bench.gives_as(CDS, Set::All, [("x", wrapper)]);
    bench.gives(CDS, Set::Names, &[("x", "1")]);
    bench.later(6_000);
    remove(&mut bench, Set::Names, "x"); // no cluster is left that refers to these endpoints
    bench.prolongs(CDS, Set::All, "x", 60);
    bench.asked_upstream();
    bench.delta(envoy, EDS, &[], &["x"]);
    assert_eq!(asked(&mut bench), [""; 0]);
}

#[test]
fn xlat_31_without_the_order_all_endpoints_linger() {
    let mut bench = Bench::new();
    let envoy = envoy(&mut bench, &["x"]);
    clusters(&mut bench, &[Set::All], &[("x", "x")]);
    remove(&mut bench, Set::All, "x");
    bench.delta(envoy, EDS, &[], &["x"]);
    assert_eq!(asked(&mut bench), [""; 0], "nobody follows which cluster leads where");
}
