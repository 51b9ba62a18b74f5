//! Changes that the server sends in the wrong order: what stays, what waits, and when it is sent (ORD-1, ORD-4).

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::{OrderLosses, SessionId};
use weir_core::protocol::wait::WaitList;
use weir_core::xds::Authority;

use super::support::{Bench, CDS, EDS, RDS, Set, lead};

const HOLD: u64 = 5_000;
const QUIET: u64 = 50;
/// How long a change of routing waits for its clusters at most, in milliseconds.
const WAIT: u64 = 1_000;
/// How long such a change waits at most if there is no room for one of the clusters.
const LONG_WAIT: u64 = 20_000;

/// Returns a view whose route `r` refers to cluster `a`, and a client that subscribes to everything.
fn led() -> (Bench, SessionId) {
    let mut bench = Bench::with(ProtocolOptions::default());
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, EDS, &["a", "b"], &[]);
    bench.delta(client, RDS, &["r"], &[]);
    bench.whole(CDS, &[("a", "1"), ("idle", "1")]);
    bench.set(EDS, &[("a", "1")]);
    lead(&mut bench, "r", &["a"]);
    bench.said(client);
    bench.later(10 * HOLD);
    bench.said(client);
    (bench, client)
}

fn dangling(bench: &Bench) -> Vec<String> {
    bench.view.holds().dangling().map(|(name, _)| name.to_string()).collect()
}

#[test]
fn a_change_of_routing_waits_longer_for_a_cluster_without_room_than_for_one_that_does_not_exist() {
    let (mut bench, client) = led();
    bench.overfills(CDS, "b");
    lead(&mut bench, "r", &["b"]);
    bench.later(LONG_WAIT - 1);
    assert_eq!((bench.said(client), bench.leads("r")), (vec![], vec!["a".to_owned()]));
    let mut list = WaitList::keeping(1);
    bench.view.holds().add_waits(bench.now, &mut list);
    assert_eq!(list.into_oldest()[0].bound, Some(Duration::from_millis(LONG_WAIT)));
    bench.later(1);
    assert_eq!((bench.said(client), bench.leads("r")), (vec!["R r".to_owned()], vec!["b".to_owned()]));
}

#[test]
fn what_waits_already_waits_longer_when_its_cluster_comes_and_has_no_room_and_no_longer_when_it_has() {
    let (mut bench, _client) = led();
    lead(&mut bench, "r", &["b"]);
    bench.later(WAIT - 1);
    bench.overfills(CDS, "b");
    bench.later(LONG_WAIT / 2);
    assert_eq!(bench.leads("r"), ["a"]);
    bench.set(CDS, &[("b", "1")]);
    assert_eq!(bench.leads("r"), ["b"], "there is room");
    lead(&mut bench, "r", &["a"]);
    bench.later(10 * HOLD);
    lead(&mut bench, "r", &["other"]);
    bench.later(WAIT);
    assert_eq!(bench.leads("r"), ["other"], "nothing is known of that one");
}

#[test]
fn ord_1_a_route_that_leaves_its_collection_refers_to_no_cluster_any_more() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let [glob, route] = ["*", "r"].map(|id| format!("xdstp://x/envoy.config.route.v3.RouteConfiguration/f/{id}"));
    bench.count_interest(SessionId(1), RDS, &glob, true);
    lead(&mut bench, &route, &["a"]);
    let references = |bench: &Bench| bench.view.holds().references_to(&bench.kind(CDS), &"a".into());
    assert_eq!(references(&bench), Some(1));
    bench.removes(RDS, Set::Names, &[&route]);
    assert_eq!(references(&bench), Some(0));
}

#[test]
fn a_change_waits_no_longer_for_a_cluster_without_room_once_the_server_has_removed_it() {
    let (mut bench, _client) = led();
    for name in ["b", "c"] {
        bench.overfills(CDS, name);
    }
    lead(&mut bench, "r", &["b", "c"]);
    bench.later(WAIT);
    bench.removes(CDS, Set::All, &["b"]);
    bench.later(WAIT);
    assert_eq!(bench.leads("r"), ["a"], "the other one exists");
    bench.removes(CDS, Set::All, &["c"]);
    bench.later(1);
    assert_eq!(bench.leads("r"), ["b", "c"]);
}

#[test]
fn a_change_waits_no_longer_for_a_cluster_without_room_that_a_client_requests_by_name() {
    let (mut bench, client) = led();
    lead(&mut bench, "r", &["b"]);
    bench.delta(client, CDS, &["b"], &[]);
    bench.overfills(CDS, "b");
    bench.later(WAIT);
    assert_eq!(bench.leads("r"), ["b"], "it does so because of the route");
}

#[test]
fn ord_1_a_cluster_that_nothing_refers_to_goes_when_upstream_is_quiet_and_another_after_the_bound() {
    let (mut bench, client) = led();
    bench.removes(CDS, Set::All, &["idle"]);
    bench.later(QUIET - 1);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["C  -idle"]);

    bench.removes(CDS, Set::All, &["a"]);
    bench.later(HOLD - 1);
    assert_eq!(bench.said(client), [""; 0], "a route refers to it");
    assert_eq!(bench.view.take_dangled(), OrderLosses::default());
    bench.later(1);
    assert_eq!(bench.said(client), ["C  -a"]);
    assert_eq!(bench.view.take_dangled().removals, 1);
    assert_eq!(dangling(&bench), ["a"]);
}

#[test]
fn a_cluster_of_the_set_does_not_dangle_though_it_is_gone_for_those_that_requested_it_by_name() {
    for is_removed in [false, true] {
        let (mut bench, _client) = led();
        let (by_name, kind) = (bench.client(Variant::Delta), bench.kind(CDS));
        bench.delta(by_name, CDS, &["a"], &[]);
        bench.set(CDS, &[("a", "1")]);
        if is_removed {
            bench.removes(CDS, Set::Names, &["a"]);
        } else {
            bench.delta(by_name, CDS, &[], &["a"]);
        }
        bench.later(20 * HOLD);
        assert_eq!(bench.view.tables().held(&kind, false), 0, "removed: {is_removed}");
        assert_eq!(dangling(&bench), [""; 0], "removed: {is_removed}");
        bench.removes(CDS, Set::All, &["a"]);
        bench.later(HOLD);
        assert_eq!(dangling(&bench), ["a"], "removed: {is_removed}");
    }
}

#[test]
fn ord_1_what_was_led_to_until_lately_stays_for_the_bound() {
    let (mut bench, client) = led();
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    lead(&mut bench, "r", &["b"]);
    bench.said(client);
    bench.later(3_000);
    bench.said(client);
    bench.removes(CDS, Set::All, &["a"]);
    bench.later(HOLD - 3_000 - 1);
    assert_eq!(bench.said(client), [""; 0], "a listener may drain there");
    bench.later(1 + QUIET);
    assert_eq!(bench.said(client), ["C  -a"]);
    assert_eq!(bench.view.take_dangled(), OrderLosses::default());
}

#[test]
fn ord_1_a_cluster_that_comes_back_in_time_was_never_gone() {
    let (mut bench, client) = led();
    bench.removes(CDS, Set::All, &["a"]);
    bench.later(1_000);
    bench.set(CDS, &[("a", "1")]);
    bench.later(10 * HOLD);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn ord_1_endpoints_stay_as_long_as_the_cluster_that_is_led_to() {
    let (mut bench, client) = led();
    bench.removes(EDS, Set::Names, &["a"]);
    bench.removes(CDS, Set::All, &["a"]);
    bench.later(HOLD - 1);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["C  -a", "C  -a"], "both, endpoints and cluster");
}

#[test]
fn ord_1_the_bound_does_not_run_while_the_server_is_away_or_has_not_said_its_routing() {
    let (mut bench, client) = led();
    bench.view.note_unsteady(BTreeSet::from([Authority::TopLevel]), bench.now);
    bench.removes(CDS, Set::All, &["a"]);
    bench.later(100 * HOLD);
    assert_eq!(bench.said(client), [""; 0]);
    bench.view.note_unsteady(BTreeSet::new(), bench.now);
    bench.later(HOLD - 1);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["C  -a"]);
}

#[test]
fn ord_1_a_route_configuration_that_was_removed_counts_while_somebody_requests_it() {
    let (mut bench, client) = led();
    bench.removes(RDS, Set::Names, &["r"]);
    bench.said(client);
    bench.later(2 * HOLD);
    bench.removes(CDS, Set::All, &["a"]);
    bench.later(HOLD - 1);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["C  -a"]);
}

#[test]
fn ord_4_a_route_waits_a_second_for_a_missing_cluster_however_quiet_upstream_is() {
    let (mut bench, client) = led();
    lead(&mut bench, "r", &["a", "b"]);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(WAIT - 1);
    bench.set(EDS, &[("b", "1")]);
    bench.set(CDS, &[("b", "1")]);
    assert_eq!(bench.leads("r"), ["a", "b"], "at once");
    assert_eq!(bench.said(client), ["C b", "C b"]);
    bench.later(500);
    assert_eq!(bench.said(client), ["R r"], "behind its cluster and endpoints");

    lead(&mut bench, "r", &["a", "b", "static"]);
    bench.later(WAIT - 1);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["R r"]);
    assert_eq!((bench.view.take_dangled().waits, dangling(&bench)), (1, vec!["static".to_owned()]));

    // As long as a route refers to this cluster, no change waits for the cluster again.
    lead(&mut bench, "r2", &["static"]);
    lead(&mut bench, "r", &["static", "a"]);
    assert_eq!(bench.said(client), ["R r"]);
}

#[test]
fn ord_4_upstream_that_is_never_quiet_keeps_a_route_back_for_a_second_and_no_longer() {
    let (mut bench, _client) = led();
    lead(&mut bench, "r", &["b"]);
    for number in 0..99 {
        bench.set(CDS, &[("idle", &number.to_string())]);
        bench.later(10);
    }
    assert_eq!(bench.leads("r"), ["a"]);
    bench.later(10);
    assert_eq!(bench.leads("r"), ["b"]);
}

#[test]
fn ord_4_each_change_has_its_own_second_and_one_that_is_replaced_gets_no_other() {
    let (mut bench, client) = led();
    bench.delta(client, RDS, &["r2"], &[]);
    lead(&mut bench, "r2", &["a"]);
    lead(&mut bench, "r", &["b"]);
    bench.later(WAIT - 1);
    lead(&mut bench, "r2", &["c"]);
    lead(&mut bench, "r", &["b", "c"]);
    assert_eq!(bench.leads("r"), ["a"]);
    bench.later(1);
    assert_eq!(bench.leads("r"), ["b", "c"], "r goes, and r2 waits");
    assert_eq!(bench.view.take_dangled().waits, 2);
    bench.later(WAIT - 2);
    assert_eq!(bench.view.take_dangled().waits, 0);
    bench.later(1);
    assert_eq!(bench.view.take_dangled().waits, 1, "r2 goes");
}

#[test]
fn ord_4_a_change_has_its_second_after_its_server_is_steady_again() {
    let (mut bench, _client) = led();
    lead(&mut bench, "r", &["b"]);
    bench.later(WAIT - 1);
    bench.view.note_unsteady(BTreeSet::from([Authority::TopLevel]), bench.now);
    bench.later(100 * WAIT);
    assert_eq!(bench.leads("r"), ["a"], "nobody could have sent the cluster");
    bench.view.note_unsteady(BTreeSet::new(), bench.now);
    bench.later(WAIT - 1);
    assert_eq!(bench.leads("r"), ["a"]);
    bench.later(1);
    assert_eq!(bench.leads("r"), ["b"]);
}

#[test]
fn ord_4_first_answers_and_clients_that_request_clusters_by_name_wait_for_nothing() {
    let (mut bench, client) = led();
    bench.delta(client, RDS, &["r2"], &[]);
    lead(&mut bench, "r2", &["b"]);
    assert_eq!(bench.said(client), ["R r2"], "the first that is said of it");

    let mut bench = Bench::with(ProtocolOptions::default());
    let client = bench.client(Variant::Delta);
    bench.delta(client, RDS, &["r"], &[]);
    bench.delta(client, CDS, &["a"], &[]);
    bench.set(CDS, &[("a", "1")]);
    lead(&mut bench, "r", &["a"]);
    bench.said(client);
    lead(&mut bench, "r", &["b"]);
    assert_eq!(bench.said(client), ["R r"], "it asks for the cluster because of the route");
}

#[test]
fn with_a_hold_of_zero_everything_goes_out_as_it_comes() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)));
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, RDS, &["r"], &[]);
    bench.whole(CDS, &[("a", "1")]);
    lead(&mut bench, "r", &["a"]);
    bench.said(client);
    lead(&mut bench, "r", &["b"]);
    bench.removes(CDS, Set::All, &["a"]);
    assert_eq!(bench.said(client), ["R r", "C  -a"]);
}

/// Lets the server send a cluster whose endpoints have another name.
fn cluster_with_endpoints(bench: &mut Bench, name: &str, endpoints: &str) {
    bench.give(CDS, "*", "1", |wrapper| {
        let nested = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
        let config = [nested(1, &[0x1a, 0]), nested(2, endpoints.as_bytes())].concat();
        let body = [nested(1, name.as_bytes()), nested(3, &config)].concat();
        wrapper.name = name.into();
        wrapper.resource.as_mut().unwrap().value = body.into();
    });
}

#[test]
fn ord_1_endpoints_stay_for_the_clusters_that_use_them_now_and_for_no_others() {
    let (mut bench, client) = led();
    bench.delta(client, EDS, &["e1", "e2"], &[]);
    bench.set(EDS, &[("e1", "1"), ("e2", "1")]);
    cluster_with_endpoints(&mut bench, "named", "e1");
    lead(&mut bench, "r", &["named"]);
    bench.said(client);
    bench.later(10 * HOLD);
    bench.said(client);
    let lost = |bench: &mut Bench, name: &str| {
        bench.removes(EDS, Set::Names, &[name]);
        bench.said(client)
    };
    assert_eq!(lost(&mut bench, "e1"), [""; 0], "a cluster that is led to uses them");
    bench.set(EDS, &[("e1", "1")]);
    cluster_with_endpoints(&mut bench, "named", "e2");
    bench.said(client);
    bench.later(10 * HOLD);
    bench.said(client);
    assert_eq!(lost(&mut bench, "e1"), ["C  -e1"], "the cluster has others now");
    assert_eq!(lost(&mut bench, "e2"), [""; 0]);
}

#[test]
fn ord_1_a_removal_that_waits_is_taken_back_when_its_set_starts_over() {
    let (mut bench, client) = led();
    bench.removes(CDS, Set::All, &["a"]);
    bench.later(1_000);
    bench.cut(CDS, Set::All);
    bench.later(10 * HOLD);
    assert_eq!(bench.said(client), [""; 0], "the server of the new opening has said nothing of it");
}

#[test]
fn ord_4_a_change_that_waits_is_dropped_by_what_comes_for_its_name_meanwhile() {
    let (mut bench, client) = led();
    lead(&mut bench, "r", &["a", "b"]);
    bench.later(WAIT / 2);
    lead(&mut bench, "r", &["a"]);
    bench.later(10 * WAIT);
    assert_eq!((bench.leads("r"), bench.said(client)), (vec!["a".to_owned()], vec![]), "the server took it back");

    lead(&mut bench, "r", &["a", "c"]);
    bench.later(WAIT / 2);
    bench.remove(RDS, "r");
    assert_eq!(bench.said(client), ["R  -r"]);
    bench.later(10 * WAIT);
    assert_eq!(
        (bench.leads("r"), bench.said(client)),
        (vec![], vec![]),
        "a removal is not undone by an earlier change"
    );
}
