//! Cached resources are sent at once, and serve clients in an outage, however young the set is.

use std::time::Instant;

use serde_json::json;

use super::client::node;
use super::evidence::servers;
use super::failover::{content_of, standing};
use super::holder::{ALL_CLUSTERS, Holder, UNKNOWN};
use super::poller::{CLUSTERS, Poller};
use super::services::fetch;
use super::*;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

const HOUR: Duration = Duration::from_secs(3600);
/// The limit for a reply at once: more than the relay needs, and far below any timer for which it could be waiting.
const AT_ONCE: Duration = Duration::from_secs(1);
/// How often to try: a busy machine may be late once.
const TRIES: usize = 3;
const LONG_WAITS: &str = "rest: {timeout: 1m}\nlimits: {fetch_timeout: 1m}\n";
const FETCH: &str = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";

/// How clients without resources request them.
#[derive(Debug, Clone, Copy)]
enum Asks {
    OnAStream(Variant),
    ByPoll,
    ByFetch,
}

const EACH_WAY: [Asks; 4] =
    [Asks::OnAStream(Variant::Delta), Asks::OnAStream(Variant::Sotw), Asks::ByPoll, Asks::ByFetch];

/// Sends two valid clusters, which a poll needs as it is answered in JSON.
fn say_two(stream: &Stream, version: &str) {
    let bodies = ["a", "b"].map(|name| (name, rest::cluster(name, version)));
    let (type_url, nonce) = (CDS.into(), version.into());
    stream.respond(&match stream.variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            version_info: version.into(),
            resources: bodies.map(|(_, body)| body).into(),
            type_url,
            nonce,
            ..Default::default()
        }),
        Variant::Delta => {
            let wrap = |(name, body): (&str, Any)| Resource {
                name: name.into(),
                version: version.into(),
                resource: Some(body),
                ..Default::default()
            };
            let resources = bodies.map(wrap).into();
            Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() })
        }
    });
}

/// Returns how many clusters are in the first reply.
async fn first_answer(relay: &Relay, asks: Asks) -> usize {
    match asks {
        Asks::OnAStream(variant) => {
            let mut client = Client::connect(relay.address, variant).await;
            client.ask(CDS, &[], Some("web"));
            client.sent().await.set.len()
        }
        Asks::ByPoll => Poller::connect(relay.address).await.poll(CLUSTERS, "web", json!({})).await.clusters().len(),
        Asks::ByFetch => {
            let request = DiscoveryRequest { node: node("web"), ..Default::default() };
            fetch(relay, FETCH, request).await.unwrap().resources.len()
        }
    }
}

/// Returns the time from the control plane's set to the reply for a client that was already waiting.
async fn after_the_set(up: Variant, asks: Asks) -> Duration {
    let mut plane = Plane::start(&BOTH).await;
    let slow =
        |options: &mut ProtocolOptions| (options.upstream.settle_fresh, options.upstream.settle_stated) = (HOUR, HOUR);
    let relay = relay_with_options(&servers(&[plane.address], protocol_of(up)), LONG_WAITS, slow).await;
    let set_is_said = async {
        let mut stream = plane.stream().await;
        stream.request().await;
        say_two(&stream, "1");
        (Instant::now(), stream)
    };
    let (answer, (start, _stream)) =
        tokio::join!(async { (first_answer(&relay, asks).await, Instant::now()) }, set_is_said);
    assert_eq!(answer.0, 2, "{asks:?}");
    answer.1.saturating_duration_since(start)
}

async fn each_way_is_answered_at_once(up: Variant) {
    let mut late = Vec::new();
    for asks in EACH_WAY {
        let mut soonest = Duration::MAX;
        for _ in 0..TRIES {
            if soonest >= AT_ONCE {
                soonest = soonest.min(after_the_set(up, asks).await);
            }
        }
        late.extend((soonest >= AT_ONCE).then_some((asks, soonest)));
    }
    assert!(late.is_empty(), "{up:?} upstream: {late:?}");
}

#[tokio::test]
async fn xlat_12_a_cold_client_without_state_is_answered_as_soon_as_the_first_response_of_a_delta_server_is_there() {
    each_way_is_answered_at_once(Variant::Delta).await;
}

#[tokio::test]
async fn xlat_12_a_cold_client_is_answered_as_soon_as_the_set_of_a_sotw_server_is_there() {
    each_way_is_answered_at_once(Variant::Sotw).await;
}

async fn patient_relay(plane: &Plane) -> Relay {
    let rest = "rest: {timeout: 3s}\n";
    relay_with_options(&servers(&[plane.address], ""), rest, |options| options.upstream.settle_stated = HOUR).await
}

/// Returns a view whose set has just arrived, for a client without resources.
async fn young_view() -> (Plane, Stream, Relay) {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = patient_relay(&plane).await;
    let first = Holder::new(relay.address, Variant::Delta, ALL_CLUSTERS).await;
    let stream = plane.stream().await;
    say_two(&stream, "1");
    first.until("the set", |record| record.holds.len() == 2).await;
    (plane, stream, relay)
}

/// Returns the version that another relay, or this one before a restart, gives the set.
async fn version_of_the_set() -> String {
    let (_plane, _stream, relay) = young_view().await;
    Poller::connect(relay.address).await.polled(CLUSTERS, "web", json!({})).await.version()
}

#[tokio::test]
async fn rest_5_i5_a_poll_with_the_current_version_is_a_304_after_a_start_as_soon_as_the_set_is_held() {
    let held = json!({"versionInfo": version_of_the_set().await});
    let (_plane, _stream, relay) = young_view().await;
    let mut poller = Poller::connect(relay.address).await;
    assert_eq!(poller.poll(CLUSTERS, "web", held).await.status, 304);
}

#[tokio::test]
async fn rest_7_a_poll_with_a_version_that_this_relay_gave_out_is_answered_however_young_the_set_is() {
    let (_plane, stream, relay) = young_view().await;
    let mut poller = Poller::connect(relay.address).await;
    let first = poller.polled(CLUSTERS, "web", json!({})).await.version();
    say_two(&stream, "2");
    let changed = |answer: &poller::Answer| answer.status == 200 && answer.clusters()[0].1 == "2";
    let second = poller.polled_until(CLUSTERS, "web", json!({}), changed).await;
    let behind = poller.poll(CLUSTERS, "web", json!({"versionInfo": first})).await;
    assert_eq!(behind.body, second.body);
    let current = poller.poll(CLUSTERS, "web", json!({"versionInfo": second.version()})).await;
    assert_eq!(current.status, 304);
    // An unknown version may be that of a set with more resources.
    assert_eq!(poller.poll(CLUSTERS, "web", json!({"versionInfo": UNKNOWN})).await.status, 503);
}

#[tokio::test]
async fn fb_4_an_outage_right_after_the_first_set_is_sat_out_on_what_is_held() {
    let quiet = Duration::from_millis(100);
    for age in [Duration::ZERO, quiet * 5] {
        let one = Server::start(Way::GivesOnly(&[("a", "1"), ("b", "1")])).await;
        let two = Server::start(Way::GivesOnly(&[("a", "2"), ("n", "2")])).await;
        let options = |options: &mut ProtocolOptions| {
            (options.upstream.settle_fresh, options.upstream.settle_stated) = (quiet, HOUR)
        };
        let upstream = servers(&[one.address, two.address], protocol_of(Variant::Delta));
        let relay = relay_with_options(&upstream, "", options).await;
        let client = Holder::new(relay.address, Variant::Delta, ALL_CLUSTERS).await;
        client.until("the set", |record| record.holds.len() == 2).await;
        tokio::time::sleep(age).await;

        one.kill().await;
        until("the outage is seen", async || {
            let report = get(relay.admin, "/upstreams").await;
            assert_eq!(two.seen().opened, 0, "all is held: {report}");
            report.contains("\"state\": \"cached\"")
        })
        .await;

        // The ladder works as usual: the client wants another name, which the next server may have.
        let mut new = Client::connect(relay.address, Variant::Delta).await;
        new.ask(EDS, &["n"], Some("web"));
        assert_eq!(content_of(&mut new).await, ["n=2"]);
        standing(&relay, &format!("\"server\": \"http://{}\"", two.address)).await;
        client.has_lost_nothing();
    }
}

#[tokio::test]
async fn xlat_12_what_one_view_has_seen_of_a_server_that_cuts_its_sets_the_next_view_knows_from_the_start() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let slow = |options: &mut ProtocolOptions| options.upstream.settle_fresh = HOUR;
    let relay = relay_with_options(&servers(&[plane.address], ""), "", slow).await;
    let first = Holder::new(relay.address, Variant::Delta, ALL_CLUSTERS).await;
    let stream = plane.stream().await;
    say(&stream, "1", &[], &TWO[..1], &[]);
    say(&stream, "2", &[], &[("b", "1"), ("c", "1")], &[]); // a single one of these may be new
    first.until("both pieces", |record| record.holds.len() == 3).await;
    let mut next = Client::connect(relay.address, Variant::Sotw).await;
    next.ask(CDS, &[], Some("other"));
    let mut stream = plane.stream().await;
    stream.request().await;
    say(&stream, "1", &[], &TWO[..1], &[]);
    stream.request().await; // the ACK shows that the response was read
    next.ask(EDS, &["e"], None);
    say_named(&mut stream, EDS, "e").await;
    assert_eq!(next.sent().await.set, ["e"], "a set of clusters would come before");
}
