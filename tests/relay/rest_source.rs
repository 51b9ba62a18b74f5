//! A REST control plane as a source.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};
use weir_core::protocol::session::Variant;

use crate::client::{Client, PATIENCE};
use crate::evidence_crowd::ended;
use crate::failover::standing;
use crate::plane::Plane;
use crate::poller::{CLUSTERS, ENDPOINTS, Poller};
use crate::rest_plane::{Behaviour, RestPlane};
use crate::storm::metric;
use crate::{BOTH, CDS, EDS, Relay, get, relay_with_options, until};

const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const HASTE: &str = "refresh_delay: 40ms, request_timeout: 1s";

async fn relay(servers: &str, rest: &str) -> Relay {
    relay_with_options(&format!("{{servers: [{servers}]}}"), rest, |_| {}).await
}

pub(super) async fn polling(plane: &RestPlane, rest: &str) -> Relay {
    relay(&format!("{{rest: 'http://{}', {HASTE}}}", plane.address), rest).await
}

pub(super) fn cluster(name: &str, content: &str) -> Value {
    json!({"@type": CDS, "name": name, "altStatName": content})
}

fn endpoints(name: &str, priority: u32) -> Value {
    json!({"@type": EDS, "clusterName": name, "endpoints": [{"priority": priority}]})
}

#[tokio::test]
async fn what_is_polled_reaches_streams_and_what_changes_does_too() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1"), cluster("b", "1")]);
    let relay = polling(&plane, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a", "b"]);
    plane.script.polled(CLUSTERS, 5).await;
    let polls = plane.script.polls();
    assert!(polls.iter().all(|poll| poll.path == CLUSTERS), "nothing else is wanted: {polls:?}");
    assert!(
        polls.iter().all(|poll| poll.request["node"]["cluster"] == "web"),
        "the node goes along each time (REST-4)"
    );
    let statuses: Vec<_> = polls.iter().map(|poll| poll.status).collect();
    assert!(
        statuses.iter().filter(|status| **status == 200).count() <= 2 && statuses.last() == Some(&304),
        "{statuses:?}"
    );
    plane.script.has(CLUSTERS, "2", vec![cluster("a", "2"), cluster("c", "1")]);
    assert_eq!(client.sent().await.set, ["a", "c"], "and nothing for the polls before");
    assert_eq!(client.sent().await.removed, ["b"], "a full set without it");
    assert!(get(relay.admin, "/upstreams").await.contains("(REST)"));
}

#[tokio::test]
async fn rest_8_a_name_more_is_requested_at_once_and_of_a_server_that_knows_one_version_alone() {
    let plane = RestPlane::start().await;
    plane.script.has(ENDPOINTS, "1", vec![endpoints("a", 1), endpoints("b", 1)]);
    let slow = format!("{{rest: 'http://{}', refresh_delay: 1h}}", plane.address);
    let relay = relay(&slow, "").await;
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask(EDS, &["a"], Some("web"));
    let sent = client.sent().await;
    assert_eq!(sent.set, ["a"]);
    client.ack(EDS, &["a"], &sent);
    client.ask(EDS, &["a", "b"], None);
    assert_eq!(client.sent().await.set, ["b"]);
    let polls = plane.script.polls_of(ENDPOINTS);
    let names: Vec<_> = polls.iter().map(|poll| poll.request["resourceNames"].clone()).collect();
    assert_eq!(names, [json!(["a"]), json!(["a", "b"])]);
}

#[tokio::test]
async fn only_what_somebody_wants_is_polled_for() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
    plane.script.has(ENDPOINTS, "1", vec![endpoints("a", 1)]);
    let relay = polling(&plane, "limits: {linger: 100ms}\n").await;
    let mut stays = Client::connect(relay.address, Variant::Delta).await;
    stays.ask(CDS, &[], Some("web"));
    stays.sent().await;
    let mut goes = Client::connect(relay.address, Variant::Delta).await;
    goes.ask(EDS, &["a"], Some("web"));
    goes.sent().await;
    plane.script.polled(ENDPOINTS, 3).await;
    drop(goes);
    let silent = async || {
        let before = plane.script.polls_of(ENDPOINTS).len();
        plane.script.polled(CLUSTERS, 5).await;
        plane.script.polls_of(ENDPOINTS).len() == before
    };
    until("nobody asks for endpoints any more", silent).await;
}

#[tokio::test]
async fn up_25_a_resource_that_cannot_be_read_is_rejected_by_itself_and_what_was_there_of_it_stays() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1"), cluster("b", "1")]);
    let relay = polling(&plane, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a", "b"]);
    plane.script.has(
        CLUSTERS,
        "2",
        vec![json!({"@type": CDS, "name": "a", "type": []}), cluster("b", "2"), cluster("c", "1")],
    );
    assert_eq!(client.sent().await.set, ["b", "c"]);
    let mut late = Client::connect(relay.address, Variant::Sotw).await;
    late.ask(CDS, &[], Some("web"));
    assert_eq!(late.sent().await.set, ["a", "b", "c"]);
    plane.script.has(CLUSTERS, "3", vec![cluster("a", "3"), cluster("b", "2"), cluster("c", "1")]);
    assert_eq!(client.sent().await.set, ["a"], "and nothing of it before");
}

#[tokio::test]
async fn i3_what_a_server_does_not_answer_is_unknown_and_what_it_answers_without_is_absent() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
    plane.script.behave(ENDPOINTS, Behaviour::Status(500));
    let relay = polling(&plane, "limits: {resource_timer: 300ms}\n").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    client.ask(EDS, &["a", "b"], None);
    plane.script.polled(ENDPOINTS, 3).await; // the resource timer ends between two of them
    plane.script.has(ENDPOINTS, "1", vec![endpoints("a", 1)]);
    assert_eq!(client.sent().await.set, ["a"]);
    assert_eq!(client.sent().await.removed, ["b"]);
}

#[tokio::test]
async fn a_type_that_rest_has_no_word_for_stays_unknown() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
    let relay = polling(&plane, "limits: {resource_timer: 300ms}\n").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask("type.googleapis.com/own.Type", &["mine"], Some("web"));
    client.ask(CDS, &[], None);
    assert_eq!(client.sent().await.set, ["a"]);
    plane.script.polled(CLUSTERS, 20).await; // longer than the resource timer
    plane.script.has(CLUSTERS, "2", vec![cluster("a", "2")]);
    let sent = client.sent().await;
    assert_eq!((sent.set, sent.removed), (vec!["a".to_owned()], vec![]));
    assert!(plane.script.polls().iter().all(|poll| poll.path == CLUSTERS));
}

/// What the server has of the type is never known, so nothing waits for it.
#[tokio::test]
async fn i8_a_client_that_requests_a_type_without_a_path_keeps_no_removed_cluster_with_the_others() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1"), cluster("b", "1")]);
    let routes = json!([{"match": {"prefix": "/"}, "route": {"cluster": "b"}}]);
    let hosts = json!([{"name": "h", "domains": ["*"], "routes": routes}]);
    let route = json!({"@type": RDS, "name": "r", "virtualHosts": hosts});
    plane.script.has("/v3/discovery:routes", "1", vec![route]);
    let relay = polling(&plane, "limits: {reference_hold: 100ms}\n").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a", "b"]);
    client.ask(RDS, &["r"], None);
    assert_eq!(client.sent().await.set, ["r"]);
    let other = Client::connect(relay.address, Variant::Delta).await;
    let pathless = "envoy.extensions.filters.network.thrift_proxy.v3.RouteConfiguration";
    other.ask(&format!("type.googleapis.com/{pathless}"), &["t"], Some("web"));
    until("the view wants it", async || get(relay.admin, "/upstreams").await.contains(pathless)).await;
    plane.script.has(CLUSTERS, "2", vec![cluster("a", "1")]);
    assert_eq!(client.sent().await.removed, ["b"]);
}

/// Starts a relay with a REST server as first choice and a gRPC server as fallback.
async fn with_fallback() -> (RestPlane, Plane, Relay) {
    let (first, second) = (RestPlane::start().await, Plane::start(&BOTH).await);
    let servers = format!(
        "{{rest: 'http://{}', refresh_delay: 40ms, request_timeout: 1s}}, {{uri: 'http://{}', variant: sotw}}",
        first.address, second.address
    );
    let relay = relay(&servers, "").await;
    (first, second, relay)
}

#[tokio::test]
async fn fb_2_and_fb_33_a_server_without_a_connection_is_left_for_a_stream_and_returned_to() {
    let (first, mut second, relay) = with_fallback().await;
    first.script.has(ENDPOINTS, "1", vec![endpoints("a", 1)]);
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["a"], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    let script = first.script.clone();
    let address = first.kill().await;
    // Everything that clients want is cached, so there is no fallback.
    standing(&relay, "\"state\": \"cached\"").await;
    assert!(second.streams.try_recv().is_err());
    client.ask(EDS, &["b"], None);
    let mut stream = second.stream().await;
    stream.request().await;
    crate::say_any(&stream, EDS, &["b"]);
    assert_eq!(client.sent().await.set, ["b"]);
    drop(script);
    let first = RestPlane::start_at(address, None).await;
    first.script.has(ENDPOINTS, "2", vec![endpoints("a", 2), endpoints("b", 2)]);
    let mut sent = client.sent().await.set;
    if sent.len() < 2 {
        sent.extend(client.sent().await.set);
    }
    assert_eq!(sent, ["a", "b"], "the first server's word counts again");
    until("the second is left", async || stream.responses.is_closed()).await;
}

#[tokio::test]
async fn fb_2_three_polls_that_fail_in_a_row_are_unreachable_and_fewer_are_not() {
    for behaviour in [Behaviour::Status(503), Behaviour::Hang, Behaviour::Cut] {
        let (first, mut second, relay) = with_fallback().await;
        first.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
        // A failing poll of one type alone causes no fallback, even if another server has the resource.
        first.script.behave(ENDPOINTS, behaviour.clone());
        client.ask(EDS, &["a"], None);
        first.script.polled(ENDPOINTS, 2).await;
        first.script.polled(CLUSTERS, 2).await;
        assert!(second.streams.try_recv().is_err(), "{behaviour:?}: clusters are answered");
        first.script.behave(CLUSTERS, behaviour.clone());
        let mut stream = tokio::time::timeout(PATIENCE, second.stream()).await.expect("the next server is tried");
        stream.request().await;
    }
}

#[tokio::test]
async fn fb_2_i8_a_server_that_fails_for_one_type_alone_is_not_left_however_seldom_the_others_are_polled() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
    plane.script.behave(ENDPOINTS, Behaviour::Status(503));
    let relay = relay(&format!("{{rest: 'http://{}', refresh_delay: 1h}}", plane.address), "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    client.ask(EDS, &["a"], None);
    plane.script.polled(ENDPOINTS, 4).await;
    let statuses: Vec<_> = plane.script.polls_of(CLUSTERS).iter().map(|poll| poll.status).collect();
    assert!(statuses.len() > 1 && statuses[1..].iter().all(|status| *status == 304), "nothing again: {statuses:?}");
    assert_eq!(ended(&relay).await, 0);
}

/// No opening has had an answer, so nothing is known of which type the server answers.
#[tokio::test]
async fn up_31_a_server_is_found_again_by_whatever_type_it_answers() {
    for (answered, silent) in [(CLUSTERS, ENDPOINTS), (ENDPOINTS, CLUSTERS)] {
        let plane = RestPlane::start().await;
        for path in [CLUSTERS, ENDPOINTS] {
            plane.script.behave(path, Behaviour::Status(503));
        }
        let relay = polling(&plane, "").await;
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        client.ask(EDS, &["a"], None);
        until("it is left", async || ended(&relay).await > 0).await;
        plane.script.has(answered, "1", vec![if answered == CLUSTERS { cluster("a", "1") } else { endpoints("a", 1) }]);
        let good = |path| plane.script.polls_of(path).iter().filter(|poll| poll.status == 200).count();
        until("it is tested and then polled", async || good(answered) > 1).await;
        assert_eq!(good(silent), 0);
    }
}

/// A gateway refuses what the server never has, also while the server is away.
#[tokio::test]
async fn fb_20_a_server_is_not_reached_by_what_it_refuses_while_it_is_silent_about_the_rest() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
    plane.script.behave(ENDPOINTS, Behaviour::Status(404));
    let relay = polling(&plane, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    client.ask(EDS, &["a"], None);
    plane.script.polled(ENDPOINTS, 1).await;
    plane.script.behave(CLUSTERS, Behaviour::Status(503));
    until("it is left", async || ended(&relay).await > 0).await;
    plane.script.polled(ENDPOINTS, 3).await; // each attempt polls for both types
    assert_eq!(metric(&relay, "weir_upstream_streams_opened_total").await, 1);
    plane.script.has(CLUSTERS, "2", vec![cluster("a", "2")]);
    assert_eq!(client.sent().await.set, ["a"], "it is back");
}

#[tokio::test]
#[ignore = "waits half a minute for polls"]
async fn night_fb_2_what_a_server_says_of_one_type_is_no_reason_to_leave_it() {
    for behaviour in [Behaviour::Status(404), Behaviour::Status(501), Behaviour::Body(b"<html>".to_vec())] {
        let (first, mut second, relay) = with_fallback().await;
        first.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
        first.script.behave(ENDPOINTS, behaviour.clone());
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(EDS, &["a"], Some("web"));
        first.script.polled(ENDPOINTS, 4).await;
        client.ask(CDS, &[], None);
        assert_eq!(client.sent().await.set, ["a"]);
        first.script.polled(ENDPOINTS, 6).await;
        assert!(second.streams.try_recv().is_err(), "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_at_first_is_asked_when_it_is() {
    let gone = RestPlane::start().await;
    let (script, address) = (gone.script.clone(), gone.kill().await);
    let relay = relay(&format!("{{rest: 'http://{address}', {HASTE}}}"), "").await;
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    until("it is tried", async || get(relay.admin, "/upstreams").await.contains("refused")).await;
    assert!(script.polls().is_empty());
    let plane = RestPlane::start_at(address, None).await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
    assert_eq!(client.sent().await.set, ["a"]);
}

#[tokio::test]
async fn up_33_after_an_answer_the_waits_of_a_server_that_is_polled_begin_again() {
    let mut plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "0", vec![cluster("a", "0")]);
    // The second consecutive pause is long enough for the server to come back, and the third is longer than the test.
    let backoff = "backoff: {initial: 50ms, factor: 100, max: 1h, jitter: 0}";
    let relay = relay(&format!("{{rest: 'http://{}', {HASTE}, {backoff}}}", plane.address), "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    for round in 1..=2 {
        let address = plane.kill().await;
        until("the second wait has begun", async || ended(&relay).await >= 2 * round).await;
        plane = RestPlane::start_at(address, None).await;
        plane.script.has(CLUSTERS, &round.to_string(), vec![cluster("a", &round.to_string())]);
        assert_eq!(client.sent().await.set, ["a"], "{round}");
    }
}

#[tokio::test]
async fn rest_from_end_to_end_a_relay_polls_a_relay() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1"), cluster("b", "1")]);
    plane.script.has(ENDPOINTS, "1", vec![endpoints("a", 1)]);
    let near = polling(&plane, "").await;
    let far = relay(&format!("{{rest: 'http://{}', {HASTE}}}", near.address), "").await;
    let mut client = Client::connect(far.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a", "b"]);
    client.ask(EDS, &["a"], None);
    assert_eq!(client.sent().await.set, ["a"]);
    let (mut one, mut other) = (Poller::connect(near.address).await, Poller::connect(far.address).await);
    let of_near = one.polled(CLUSTERS, "web", json!({})).await;
    assert_eq!(of_near.json()["resources"], other.polled(CLUSTERS, "web", json!({})).await.json()["resources"]);
    assert_eq!(
        other.poll(CLUSTERS, "web", json!({"versionInfo": of_near.version()})).await.status,
        304,
        "equal on both (I5)"
    );
    plane.script.has(CLUSTERS, "2", vec![cluster("b", "2")]);
    assert_eq!(client.sent().await.set, ["b"]);
    assert_eq!(client.sent().await.removed, ["a"]);
}

#[tokio::test]
async fn i10_no_answer_takes_the_relay_down_and_a_good_one_counts_again() {
    let plane = RestPlane::start().await;
    plane.script.has(CLUSTERS, "1", vec![cluster("a", "1")]);
    let relay =
        relay(&format!("{{rest: 'http://{}', refresh_delay: 10ms, request_timeout: 1s}}", plane.address), "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    let good = json!({"versionInfo": "2", "resources": [cluster("a", "1")]}).to_string().into_bytes();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let changes = proptest::collection::vec(change, 1..6);
    for _ in 0..4 {
        let mut bytes = good.clone();
        for (at, byte) in changes.new_tree(&mut runner).unwrap().current() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        plane.script.behave(CLUSTERS, Behaviour::Body(bytes));
        plane.script.polled(CLUSTERS, 1).await;
    }
    plane.script.has(CLUSTERS, "3", vec![cluster("a", "3"), cluster("z", "1")]);
    let mut sent = Vec::new();
    while !sent.contains(&"z".to_owned()) {
        sent.extend(client.sent().await.set);
    }
}
