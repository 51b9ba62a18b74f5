//! A stream that is lost while a set comes in: what was received whole reaches delta clients (I4).

use std::time::Duration;

use super::*;
use support::{RDS, route_configuration};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryResponse, Resource};
use weir_core::protocol::view::SessionId;

/// Lets a delta client request a type, and state what it holds.
fn ask(bench: &mut Bench, client: SessionId, url: &str, name: &str, stated: &[&str]) {
    let request = DeltaDiscoveryRequest {
        type_url: url.into(),
        resource_names_subscribe: vec![name.into()],
        initial_resource_versions: stated.iter().map(|name| ((*name).into(), "of-another".into())).collect(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
}

#[test]
fn i4_a_route_that_came_with_its_cluster_just_before_the_stream_was_lost_is_sent_during_the_outage() {
    for stated in [&[][..], &["old"]] {
        let mut bench = Bench::with_servers(plan(1, Variant::Delta, Rule::Reachability));
        let client = bench.client(Variant::Delta);
        ask(&mut bench, client, CDS, "*", stated);
        ask(&mut bench, client, EDS, "a", &[]);
        ask(&mut bench, client, RDS, "r", &[]);
        bench.open(0);
        bench.say(0, delta(CDS, &[("first", "1")], &[]));
        bench.later(Duration::from_millis(100));
        bench.say(0, delta(CDS, &[("a", "1"), ("b", "1")], &[])); // a second piece
        bench.say(0, delta(EDS, &[("a", "1")], &[]));
        bench.say(0, delta(RDS, &[("r", "1")], &[]));
        let mut said = bench.said(client);
        bench.later(Duration::from_millis(300));
        said.extend(bench.said(client));
        assert!(!said.iter().any(|said| said.starts_with('R')), "{stated:?}: more clusters may come: {said:?}");
        bench.end(0, true);
        let mut waited = Duration::ZERO;
        while !said.iter().any(|said| said == "R r") {
            assert!(waited < Duration::from_secs(2), "{stated:?}: {said:?}");
            said.extend(bench.said(client));
            bench.later(Duration::from_millis(100));
            waited += Duration::from_millis(100);
        }
        bench.end(0, false);
        bench.later(Duration::from_secs(3_600));
        assert!(bench.said(client).is_empty(), "{stated:?}: nothing is removed");
    }
}

/// The end of a stream cancels removals that wait, because the resources may be back. The next opening requests them at once.
#[test]
fn ord_1_what_was_removed_and_waits_is_requested_again_on_the_next_opening() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench = Bench::of_servers(plan(1, variant, Rule::Reachability), ProtocolOptions::default());
        bench.want(CDS, "*", true);
        bench.want(RDS, "r", true);
        bench.open(0);
        let route = || routing("r", "old");
        match variant {
            Variant::Delta => {
                bench.say(0, delta(CDS, &[("old", "1"), ("b", "1")], &[]));
                bench.say(0, Response::Delta(route()));
                bench.later(Duration::from_secs(1));
                bench.say(0, delta(CDS, &[], &["old"]));
            }
            Variant::Sotw => {
                bench.say(0, sotw(CDS, "1", &[("old", "1"), ("b", "1")]));
                let resources = route().resources.into_iter().filter_map(|wrapper| wrapper.resource).collect();
                let response = DiscoveryResponse { resources, type_url: RDS.into(), ..Default::default() };
                bench.say(0, Response::Sotw(response));
                bench.later(Duration::from_secs(1));
                bench.say(0, sotw(CDS, "2", &[("b", "1")]));
            }
        }
        assert_eq!(bench.held(CDS, Set::All, "old"), "1", "the route leads there");
        bench.requested(0);
        bench.end(0, true);
        let requests = bench.open(0);
        match variant {
            Variant::Delta => assert!(requests[0].contains("old:weir-unknown"), "{requests:?}"),
            Variant::Sotw => assert_eq!(requests[0], "[] v"),
        }
    }
}

/// Returns a response with a route that refers to a cluster.
fn routing(name: &str, cluster: &str) -> DeltaDiscoveryResponse {
    let resource = Resource { version: "1".into(), ..route_configuration(name, &[cluster]) };
    DeltaDiscoveryResponse { resources: vec![resource], type_url: RDS.into(), ..Default::default() }
}
