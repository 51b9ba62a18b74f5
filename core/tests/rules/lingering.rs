//! XLAT-31: endpoints linger after their last client, unless no cluster refers to them any more.

use std::time::Duration;

use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::{Class, Evidence, Retain, SessionId, Update};

use super::support::{Bench, CDS, EDS};
use super::translation::takes;

const BOTH: [Class; 2] = [Class::Wildcard, Class::Named];

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

/// Lets the server send clusters, each with the name of its endpoints, in one response.
fn clusters(bench: &mut Bench, classes: &[Class], clusters: &[(&str, &str)]) {
    let mut updates = Vec::new();
    for (name, endpoints) in clusters {
        let (kind, resource) = (bench.kind(CDS), takes(bench, name, endpoints));
        let upsert = |class: &Class| {
            let (kind, class, key, resource) = (kind.clone(), *class, (*name).into(), resource.clone());
            Update::Upsert { kind, class, key, resource }
        };
        updates.extend(classes.iter().map(upsert));
    }
    bench.apply(updates);
}

/// Lets the server remove a cluster and be quiet after that: then the order releases the cluster.
fn remove(bench: &mut Bench, classes: &[Class], cluster: &str) {
    let kind = bench.kind(CDS);
    let evidence = Evidence::Reported;
    let gone = |class: &Class| Update::Absent { kind: kind.clone(), class: *class, key: cluster.into(), evidence };
    bench.apply(classes.iter().map(gone).collect());
    bench.later(1_000);
}

fn asked(bench: &mut Bench) -> Vec<String> {
    bench.later(0);
    bench.asked_upstream()
}

#[test]
fn xlat_31_endpoints_linger_while_a_cluster_of_either_class_refers_to_them() {
    for (first, last) in [(Class::Wildcard, Class::Named), (Class::Named, Class::Wildcard)] {
        let mut bench = Bench::with(ProtocolOptions::default());
        let envoy = envoy(&mut bench, &["ep"]);
        let by_name = bench.client(Variant::Delta);
        bench.delta(by_name, CDS, &["x"], &[]);
        clusters(&mut bench, &BOTH, &[("x", "ep")]);
        bench.delta(envoy, EDS, &[], &["ep"]);
        bench.asked_upstream();
        remove(&mut bench, &[first], "x");
        assert_eq!(asked(&mut bench), [""; 0], "the other class has the cluster: {last:?}");
        clusters(&mut bench, &[last], &[("x", "ep")]);
        assert_eq!(asked(&mut bench), [""; 0]);
        remove(&mut bench, &[last], "x");
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
    clusters(&mut bench, &[Class::Wildcard], &[("x", "blue"), ("y", "green")]);
    bench.delta(envoy, EDS, &[], &["blue"]);
    clusters(&mut bench, &[Class::Wildcard], &[("x", "green"), ("y", "blue")]);
    assert_eq!(asked(&mut bench), [""; 0], "in one response");
    clusters(&mut bench, &[Class::Wildcard], &[("y", "green")]);
    clusters(&mut bench, &[Class::Wildcard], &[("x", "blue")]);
    assert_eq!(asked(&mut bench), [""; 0], "in two, before the interest ends");
    let (kind, retain) = (bench.kind(CDS), Retain::nothing());
    let resources = vec![takes(&mut bench, "z", "blue"), takes(&mut bench, "y", "green")];
    bench.apply(vec![Update::FullSet { kind, resources, retain }]);
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
    clusters(&mut bench, &[Class::Wildcard], &[("x", "ep"), ("y", "late")]);
    bench.delta(envoy, EDS, &[], &["ep"]);
    remove(&mut bench, &[Class::Wildcard], "x");
    remove(&mut bench, &[Class::Wildcard], "y");
    assert_eq!(bench.asked_upstream(), ["-ep"], "a second ago it was gone");
    bench.delta(envoy, EDS, &[], &["late"]);
    clusters(&mut bench, &[Class::Wildcard], &[("y", "late")]);
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
    clusters(&mut bench, &[Class::Wildcard], &[("x", "gone"), ("y", "here")]);
    remove(&mut bench, &[Class::Wildcard], "x");
    bench.leave(envoy);
    assert_eq!(asked(&mut bench), [""; 0], "a reconnect asks the server for nothing");
}

#[test]
fn xlat_31_endpoints_that_a_client_wants_after_their_cluster_has_gone_linger() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["gone", "here"]);
    clusters(&mut bench, &[Class::Wildcard], &[("x", "gone"), ("y", "here")]);
    remove(&mut bench, &[Class::Wildcard], "x");
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
    clusters(&mut bench, &[Class::Wildcard], &[("x", "blue")]);
    clusters(&mut bench, &[Class::Wildcard], &[("x", "green")]);
    bench.delta(envoy, EDS, &[], &["blue"]);
    assert_eq!(asked(&mut bench), ["-blue"]);
}

#[test]
fn xlat_31_endpoints_that_no_cluster_has_led_to_linger() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let envoy = envoy(&mut bench, &["other"]);
    let alone = bench.client(Variant::Delta);
    bench.delta(alone, EDS, &["own"], &[]);
    clusters(&mut bench, &[Class::Wildcard], &[("x", "other")]);
    bench.asked_upstream();
    bench.delta(alone, EDS, &[], &["own"]);
    remove(&mut bench, &[Class::Wildcard], "x");
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
    let (kind, resource) = (bench.kind(CDS), bench.of_wrapper(CDS, wrapper));
    bench.apply(vec![Update::Upsert { kind, class: Class::Wildcard, key: "x".into(), resource }]);
    let (kind, resource) = (bench.kind(CDS), bench.resource(CDS, "x", "1"));
    bench.apply(vec![Update::Upsert { kind, class: Class::Named, key: "x".into(), resource }]);
    bench.later(6_000);
    remove(&mut bench, &[Class::Named], "x"); // no cluster is left that refers to these endpoints
    let (kind, class, key, ttl) = (bench.kind(CDS), Class::Wildcard, "x".into(), Some(Duration::from_secs(60)));
    bench.apply(vec![Update::Refresh { kind, class, key, ttl }]);
    bench.asked_upstream();
    bench.delta(envoy, EDS, &[], &["x"]);
    assert_eq!(asked(&mut bench), [""; 0]);
}

#[test]
fn xlat_31_without_the_order_all_endpoints_linger() {
    let mut bench = Bench::new();
    let envoy = envoy(&mut bench, &["x"]);
    clusters(&mut bench, &[Class::Wildcard], &[("x", "x")]);
    remove(&mut bench, &[Class::Wildcard], "x");
    bench.delta(envoy, EDS, &[], &["x"]);
    assert_eq!(asked(&mut bench), [""; 0], "nobody follows which cluster leads where");
}
