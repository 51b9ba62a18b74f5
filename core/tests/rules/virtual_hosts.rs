//! Virtual hosts: at start, on demand, by alias.

use weir_core::proto::discovery::Resource as Wrapper;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Variant};
use weir_core::protocol::view::SessionId;
use weir_core::xds::{Access, AccessRule, NamePattern, TypeTable};

use super::support::{Bench, CDS, RDS, VHDS};

/// Lets the server send a route configuration whose virtual hosts come by VHDS.
fn give_routes(bench: &mut Bench, name: &str, content: &str) {
    bench.give(RDS, name, content, |wrapper| {
        let any = wrapper.resource.as_mut().unwrap();
        any.value = [any.value.as_ref(), [0x4a, 0].as_slice()].concat().into();
    });
}

fn named(name: &str) -> impl Fn(&mut Wrapper) {
    move |wrapper| wrapper.name = name.into()
}

/// Adds an Envoy that was sent the route configuration `r`, and has requested virtual hosts as Envoys do.
fn started(bench: &mut Bench) -> SessionId {
    let client = bench.client(Variant::Delta);
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(bench, "r", "1");
    assert_eq!(bench.said(client), ["R r"]);
    bench.delta(client, VHDS, &[], &[]);
    client
}

#[test]
fn delta_36_an_empty_first_request_means_the_hosts_of_the_routes_that_were_requested() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    for host in ["r/one", "r/with/slash", "other/two"] {
        bench.give(VHDS, "*", "1", named(host));
    }
    assert_eq!(bench.said(client), ["V r/one"], "DELTA-37: what stands before the last slash names the routes");
    bench.delta(client, RDS, &["other"], &[]);
    give_routes(&mut bench, "other", "1");
    assert_eq!(bench.said(client), ["R other", "V other/two"]);
}

#[test]
fn delta_36_a_wildcard_that_is_named_means_the_same_on_a_stream_with_routes() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(&mut bench, "r", "1");
    assert_eq!(bench.said(client), ["R r"]);
    bench.delta(client, VHDS, &["*"], &[]);
    for host in ["r/one", "other/two"] {
        bench.give(VHDS, "*", "1", named(host));
    }
    assert_eq!(bench.said(client), ["V r/one"]);
}

#[test]
fn delta_36_switched_to_names_an_empty_first_request_gets_one_empty_answer() {
    let mut bench = Bench::of(ProtocolOptions::default(), TypeTable::new().with_virtual_hosts_by_name());
    let client = started(&mut bench);
    assert_eq!(bench.asked_upstream(), ["+r"], "nothing of virtual hosts");
    bench.give(VHDS, "*", "1", named("r/one"));
    assert_eq!(bench.said(client), ["V "]);
    assert_eq!(bench.said(client), [""; 0]);
    bench.delta(client, VHDS, &["r/one"], &[]);
    bench.give(VHDS, "r/one", "1", |_| {});
    assert_eq!(bench.said(client), ["V r/one"]);
}

#[test]
fn a_stream_of_virtual_hosts_alone_is_given_all_of_them() {
    let mut bench = Bench::new();
    let only = Some(bench.kind(VHDS));
    let client = bench.add(Client { only, ..Client::plain(Variant::Delta) });
    bench.delta(client, VHDS, &[], &[]);
    bench.give(VHDS, "*", "1", named("r/one"));
    assert_eq!(bench.said(client), ["V r/one"]);
}

#[test]
fn delta_38_and_delta_42_an_alias_is_answered_by_what_it_leads_to_and_left_as_it_was_asked() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.asked_upstream();
    bench.delta(client, VHDS, &["r/one.test"], &[]);
    assert_eq!(bench.asked_upstream(), ["+r/one.test"], "in the client's own words");
    bench.give(VHDS, "r/one.test", "1", |wrapper| {
        wrapper.name = "r/host".into();
        wrapper.aliases = vec!["r/one.test".into()];
    });
    let reply = bench.poll(client).unwrap();
    assert_eq!(reply.resources[0].name.as_str(), "r/host");
    assert_eq!(reply.resources[0].aliases()[0].as_str(), "r/one.test");
    bench.remove(VHDS, "r/one.test");
    assert_eq!(bench.said(client), ["V  -r/host"], "DELTA-29: under the name that the client knows");
    bench.delta(client, VHDS, &[], &["r/one.test"]);
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), ["-r/one.test"]);
}

#[test]
fn delta_39_an_alias_that_leads_nowhere_is_answered_without_a_body() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.delta(client, VHDS, &["r/nowhere"], &[]);
    assert_eq!(bench.said(client), [""; 0], "unknown is not unresolved");
    bench.remove(VHDS, "r/nowhere");
    assert_eq!(bench.said(client), ["V ?r/nowhere"]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_41_a_changed_route_configuration_is_followed_by_its_hosts() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.give(VHDS, "*", "1", named("r/one"));
    bench.delta(client, VHDS, &["r/two"], &[]);
    bench.give(VHDS, "r/two", "1", |_| {});
    bench.said(client);
    give_routes(&mut bench, "r", "2");
    assert_eq!(bench.said(client), ["R r", "V r/one,r/two"]);
    bench.give(RDS, "r", "3", |_| {});
    assert_eq!(bench.said(client), ["R r"], "one that has all its hosts inside");
}

#[test]
fn delta_43_clusters_on_demand_stand_beside_the_wildcard() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &[], &[]);
    bench.whole(CDS, &[("a", "1")]);
    bench.delta(client, CDS, &["b", "missing"], &[]);
    bench.give(CDS, "b", "1", |_| {});
    bench.remove(CDS, "missing");
    assert_eq!(bench.said(client), ["C a,b -missing"]);
}

#[test]
fn delta_33_two_aliases_of_one_host_are_one_resource() {
    let mut bench = Bench::new();
    let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
    bench.delta(client, VHDS, &["r/one.test", "r/two.test"], &[]);
    for key in ["r/one.test", "r/two.test"] {
        bench.give(VHDS, key, "1", |wrapper| {
            wrapper.name = "r/host".into();
            wrapper.aliases = vec!["r/one.test".into(), "r/two.test".into()];
        });
    }
    assert_eq!(bench.said(client), ["V r/host"]);
    for key in ["r/one.test", "r/two.test"] {
        bench.remove(VHDS, key);
    }
    assert_eq!(bench.said(client), ["V  -r/host"]);
}

#[test]
fn delta_36_hosts_of_routes_that_were_left_are_not_sent_any_more() {
    let mut bench = Bench::new();
    let client = started(&mut bench);
    bench.give(VHDS, "*", "1", named("r/one"));
    bench.said(client);
    bench.delta(client, RDS, &[], &["r"]);
    bench.give(VHDS, "*", "2", named("r/one"));
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_36_a_wildcard_that_was_answered_with_all_hosts_is_not_limited_by_a_later_request() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, VHDS, &["*"], &[]);
    bench.give(VHDS, "*", "1", named("other/two"));
    assert_eq!(bench.said(client), ["V other/two"], "it requested no route configuration");
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(&mut bench, "r", "1");
    bench.said(client);
    bench.delta(client, VHDS, &["r/one.test"], &[]);
    bench.give(VHDS, "*", "2", named("other/two"));
    assert_eq!(bench.said(client), ["V other/two"], "it has the host, and has to be sent its changes");
}

#[test]
fn key_11_a_host_that_a_client_may_not_have_does_not_follow_its_route_configuration() {
    let rule = AccessRule {
        types: vec!["envoy.config.route.v3.VirtualHost".into()],
        names: vec![NamePattern::parse("r/secret")],
        peers: Vec::new(),
    };
    let clearance = Access::of(vec![rule]).clearance(None);
    let mut bench = Bench::new();
    let client = bench.add(Client { clearance, ..Client::plain(Variant::Delta) });
    bench.delta(client, RDS, &["r"], &[]);
    give_routes(&mut bench, "r", "1");
    bench.delta(client, VHDS, &[], &[]);
    bench.give(VHDS, "*", "1", named("r/one"));
    bench.give(VHDS, "*", "1", named("r/secret"));
    assert_eq!(bench.said(client), ["R r", "V r/one"]);
    give_routes(&mut bench, "r", "2");
    assert_eq!(bench.said(client), ["R r", "V r/one"]);
}
