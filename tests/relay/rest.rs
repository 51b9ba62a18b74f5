//! REST clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::{Value, json};
use weir::transcode::{Strictness, Transcoder};
use weir_core::proto::discovery::DiscoveryResponse;
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;

use crate::client::Client;
use crate::plane::{Plane, Stream};
use crate::poller::{Answer, CLUSTERS, ENDPOINTS, ENVOYS_PATIENCE, Poller};
use crate::{BOTH, CDS, EDS, Relay, config, get, run};

const VIEWS: &str = "views: {key: [cluster]}\n";

async fn relay(plane: &Plane, rest: &str) -> Relay {
    run(
        crate::bind(config(plane.address, ", variant: sotw", &format!("{VIEWS}{rest}"))).await.unwrap(),
        std::future::pending(),
    )
}

/// Returns a valid cluster, with `content` in its `alt_stat_name`.
pub(super) fn cluster(name: &str, content: &str) -> Any {
    any("envoy.config.cluster.v3.Cluster", json!({"name": name, "altStatName": content}))
}

fn any(kind: &str, body: Value) -> Any {
    let value = Transcoder::envoy().from_json(kind, &body, Strictness::Strict).unwrap();
    Any { type_url: format!("type.googleapis.com/{kind}"), value }
}

fn say(stream: &Stream, version: &str, url: &str, resources: Vec<Any>) {
    let (version_info, nonce, type_url) = (version.to_owned(), version.to_owned(), url.to_owned());
    stream.respond(&Response::Sotw(DiscoveryResponse {
        version_info,
        resources,
        type_url,
        nonce,
        ..Default::default()
    }));
}

fn say_clusters(stream: &Stream, version: &str, clusters: &[(&str, &str)]) {
    say(stream, version, CDS, clusters.iter().map(|(name, content)| cluster(name, content)).collect());
}

fn owned(clusters: &[(&str, &str)]) -> Vec<(String, String)> {
    clusters.iter().map(|(name, content)| (name.to_string(), content.to_string())).collect()
}

/// Returns a relay with two clusters in its cache, and a client that has polled for them.
async fn warm(rest: &str) -> (Plane, Stream, Relay, Poller, Answer) {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(&plane, rest).await;
    let mut poller = Poller::connect(relay.address).await;
    poller.poll(CLUSTERS, "web", json!({})).await;
    let stream = plane.stream().await;
    say_clusters(&stream, "1", &[("a", "1"), ("b", "1")]);
    let answer = poller.polled(CLUSTERS, "web", json!({})).await;
    (plane, stream, relay, poller, answer)
}

/// Waits until so many polls are open. After an answer the relay may still know of its poll for a moment.
async fn open_polls(admin: SocketAddr, count: u64) {
    let open = async || serde_json::from_str::<Value>(&get(admin, "/clients").await).unwrap()["open"] == count;
    crate::until(&format!("{count} polls are open"), open).await;
}

async fn report(relay: &Relay) -> Value {
    serde_json::from_str(&get(relay.admin, "/rest").await).unwrap()
}

#[tokio::test]
async fn rest_1_a_set_is_given_as_json_over_either_http_and_requested_in_either_spelling() {
    let (mut plane, _stream, relay, mut poller, answer) = warm("").await;
    assert_eq!(answer.clusters(), owned(&[("a", "1"), ("b", "1")]));
    assert_eq!(answer.headers["content-length"], answer.body.len().to_string());
    let mut http2 = Poller::connect_http2(relay.address).await;
    assert_eq!(http2.poll(CLUSTERS, "web", json!({})).await.body, answer.body);
    poller.poll(CLUSTERS, "web", json!({"resourceNames": ["a"]})).await;
    let named = plane.stream().await; // names have a stream of their own (XLAT-13)
    say_clusters(&named, "1", &[("a", "1")]);
    for (names, version) in [("resourceNames", "versionInfo"), ("resource_names", "version_info")] {
        let one = poller.polled(CLUSTERS, "web", json!({names: ["a"]})).await;
        assert_eq!(one.clusters(), owned(&[("a", "1")]), "{names}");
        let again = poller.poll(CLUSTERS, "web", json!({names: ["a"], version: one.version()})).await;
        assert_eq!(again.status, 304, "{version}");
    }
    // gRPC is still served on the same port.
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a", "b"]);
}

#[tokio::test]
async fn rest_2_the_type_comes_from_the_path_and_another_one_in_the_body_is_rejected() {
    let (_plane, _stream, _relay, mut poller, _) = warm("").await;
    for url in [CDS, "envoy.config.cluster.v3.Cluster", ""] {
        let answer = poller.polled(CLUSTERS, "web", json!({"typeUrl": url})).await;
        assert_eq!(answer.clusters().len(), 2, "{url}");
        let spelt = if url.is_empty() { CDS } else { url };
        assert_eq!(answer.json()["typeUrl"], spelt);
    }
    let (code, message) = poller.poll(CLUSTERS, "web", json!({"typeUrl": EDS})).await.nack();
    assert!(code == 400 && message.contains("ClusterLoadAssignment"), "{message}");
}

#[tokio::test]
async fn rest_3_resources_are_given_with_their_fields_and_read_back_as_they_were() {
    let (_plane, stream, _relay, mut poller, _) = warm("").await;
    let body = json!({
        "name": "full", "type": "EDS", "connectTimeout": "0.250s", "lbPolicy": "RING_HASH",
        "edsClusterConfig": {"serviceName": "other", "edsConfig": {"ads": {}, "resourceApiVersion": "V3"}},
        "metadata": {"filterMetadata": {"own": {"weight": 1.5, "names": ["x", null, true]}}},
        "typedExtensionProtocolOptions": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicitHttpConfig": {"http2ProtocolOptions": {"maxConcurrentStreams": 7}}
        }},
    });
    let full = any("envoy.config.cluster.v3.Cluster", body);
    say(&stream, "2", CDS, vec![full.clone()]);
    let answer = loop {
        let answer = poller.poll(CLUSTERS, "web", json!({})).await;
        if answer.clusters().len() == 1 {
            break answer.json();
        }
    };
    let resource = &answer["resources"][0];
    assert_eq!(resource["@type"], CDS);
    let read = Transcoder::envoy().from_json("google.protobuf.Any", resource, Strictness::Strict).unwrap();
    let read: Any = prost::Message::decode(read).unwrap();
    assert_eq!(read, full);
}

#[tokio::test]
async fn rest_3_what_has_no_descriptor_is_rejected_and_never_given_as_base64() {
    const ECDS: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(&plane, "").await;
    let mut poller = Poller::connect(relay.address).await;
    let fields = json!({"resourceNames": ["mine"]});
    poller.poll("/v3/discovery:extension_configs", "web", fields.clone()).await;
    let stream = plane.stream().await;
    let own = Any { type_url: "type.googleapis.com/example.v1.Own".into(), value: vec![1, 2, 3].into() };
    let mut value = vec![0x0a, 4];
    value.extend(b"mine");
    value.extend([0x12, u8::try_from(prost::Message::encoded_len(&own)).unwrap()]);
    value.extend(prost::Message::encode_to_vec(&own));
    say(&stream, "1", ECDS, vec![Any { type_url: ECDS.into(), value: value.into() }]);
    for _ in 0..3 {
        let answer = poller.polled("/v3/discovery:extension_configs", "web", fields.clone()).await;
        let (code, message) = answer.nack();
        assert!(code == 501 && message.contains("example.v1.Own"), "{code} {message}");
    }
    assert_eq!(report(&relay).await["transcoded"], 1, "what cannot be said is not tried again for each poll");
}

#[tokio::test]
async fn rest_4_the_node_is_in_each_request_and_nothing_is_carried_from_one_to_the_next() {
    let (mut plane, _stream, _relay, mut poller, _) = warm("").await;
    let (code, message) = poller.post(CLUSTERS, "{}").await.nack();
    assert!(code == 400 && message.contains("node"), "{message}");
    poller.poll(CLUSTERS, "web", json!({"resourceNames": ["a"]})).await;
    let named = plane.stream().await;
    say_clusters(&named, "1", &[("a", "1")]);
    // Without names a poll requests everything again, whatever was requested before on this connection (REST-11).
    let fields = json!({"resourceNames": ["a"], "responseNonce": "7"});
    assert_eq!(poller.polled(CLUSTERS, "web", fields).await.clusters().len(), 1);
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.clusters().len(), 2);
}

#[tokio::test]
async fn rest_5_and_rest_6_an_unchanged_set_is_a_304_at_once_and_costs_no_transcoding() {
    let (_plane, stream, relay, mut poller, answer) = warm("").await;
    let before = report(&relay).await["transcoded"].clone();
    let held = json!({"versionInfo": answer.version()});
    let mut late = Vec::new();
    for _ in 0..20 {
        let start = Instant::now();
        let again = poller.poll(CLUSTERS, "web", held.clone()).await;
        assert_eq!((again.status.as_u16(), again.body.len()), (304, 0), "{again:?}");
        late.extend((start.elapsed() >= ENVOYS_PATIENCE / 2).then(|| start.elapsed()));
    }
    assert!(late.len() <= 5, "a busy machine is late now and then; a poll that is held is so each time: {late:?}");
    assert_eq!(report(&relay).await["transcoded"], before);
    // The same content under another version is not a change; other content is.
    say_clusters(&stream, "2", &[("a", "1"), ("b", "1")]);
    say_clusters(&stream, "3", &[("a", "1"), ("b", "1"), ("c", "1")]);
    let changed = poller.polled_until(CLUSTERS, "web", held.clone(), |answer| answer.status == 200).await;
    assert_eq!(changed.clusters().len(), 3);
    say_clusters(&stream, "4", &[("a", "1"), ("b", "1")]);
    poller.polled_until(CLUSTERS, "web", held, |answer| answer.status == 304).await;
}

#[tokio::test]
async fn polls_are_counted_by_their_results() {
    let (_plane, _stream, relay, mut poller, answer) = warm("").await;
    let counts = async || {
        let report = report(&relay).await;
        ["polls", "ok", "not_modified", "rejected"].map(|key| report[key].as_u64().unwrap())
    };
    let [polls, ok, not_modified, rejected] = counts().await;
    assert_eq!((polls, ok, not_modified), (ok + rejected, 1, 0), "the first polls came to a cold cache");
    poller.poll(CLUSTERS, "web", json!({})).await;
    for _ in 0..2 {
        poller.poll(CLUSTERS, "web", json!({"versionInfo": answer.version()})).await;
    }
    for _ in 0..3 {
        poller.post(CLUSTERS, "{").await;
    }
    assert_eq!(counts().await, [polls + 6, ok + 1, not_modified + 2, rejected + 3]);
}

#[tokio::test]
async fn rest_5_and_rest_6_a_hold_ends_with_news_or_with_its_time() {
    let (plane, stream, relay, mut poller, answer) = warm("rest: {long_poll: 600ms}\n").await;
    let held = json!({"versionInfo": answer.version()});
    let (mut times, mut soonest) = (Vec::new(), Duration::MAX); // a busy machine is sometimes late
    while times.len() < 3 || soonest >= ENVOYS_PATIENCE && times.len() < 20 {
        let start = Instant::now();
        assert_eq!(poller.poll(CLUSTERS, "web", held.clone()).await.status, 304);
        times.push(start.elapsed());
        soonest = soonest.min(start.elapsed());
    }
    assert!(soonest >= Duration::from_millis(600) && soonest < ENVOYS_PATIENCE, "{times:?}");

    drop((plane, stream, relay, poller));
    let (_plane, stream, patient, mut holding, _) = warm("rest: {long_poll: 1m}\n").await;
    let version = holding.polled(CLUSTERS, "web", json!({})).await.version();
    let held = json!({"versionInfo": version});
    open_polls(patient.admin, 0).await;
    let holding = tokio::spawn(async move { holding.poll(CLUSTERS, "web", held).await });
    open_polls(patient.admin, 1).await;
    say_clusters(&stream, "2", &[("a", "2"), ("b", "1")]);
    assert_eq!(holding.await.unwrap().clusters(), owned(&[("a", "2"), ("b", "1")]));
}

#[tokio::test]
async fn a_poll_that_is_held_is_one_stream_of_its_tenant_also_when_something_has_changed() {
    let mut plane = Plane::start(&BOTH).await;
    let text = "views: {key: [cluster, tenant]}\nrest: {long_poll: 1m}\nlimits: {streams_per_tenant: 1}\n\
                permissions: [{name: all, identities: [{network: 127.0.0.0/8}], tenant: all, free: [cluster]}]\n";
    let relay = run(crate::bind(config(plane.address, ", variant: sotw", text)).await.unwrap(), std::future::pending());
    let mut poller = Poller::connect(relay.address).await;
    poller.poll(CLUSTERS, "web", json!({})).await;
    let stream = plane.stream().await;
    say_clusters(&stream, "1", &[("a", "1"), ("b", "1")]);
    // A poll may be rejected until the view has released the one before.
    let version = poller.polled_until(CLUSTERS, "web", json!({}), |answer| answer.status == 200).await.version();
    let held = json!({"versionInfo": version});
    let holding =
        tokio::spawn(async move { poller.polled_until(CLUSTERS, "web", held, |answer| answer.status != 429).await });
    let is_held = async || get(relay.admin, "/clients").await.contains("\"acked_version\": \"");
    crate::until("the poll is held", is_held).await;
    let rejected = report(&relay).await["rejected"].clone();
    say_clusters(&stream, "2", &[("a", "2"), ("b", "1")]);
    assert_eq!(holding.await.unwrap().clusters(), owned(&[("a", "2"), ("b", "1")]));
    assert_eq!(report(&relay).await["rejected"], rejected, "it takes the place of no other stream");
}

#[tokio::test]
async fn rest_7_an_old_version_gets_what_is_there_now_and_no_rejection_is_read_into_it() {
    let (_plane, stream, relay, mut poller, first) = warm("").await;
    say_clusters(&stream, "2", &[("a", "2")]);
    let held = json!({"versionInfo": first.version(), "errorDetail": {"code": 13, "message": "no", "details": [{"@type": "x/un.Known"}]}});
    // Removed resources go a moment after new ones arrive.
    let is_last = |answer: &Answer| answer.status == 200 && answer.clusters() == owned(&[("a", "2")]);
    let second = poller.polled_until(CLUSTERS, "web", held.clone(), is_last).await;
    for _ in 0..3 {
        assert_eq!(poller.poll(CLUSTERS, "web", held.clone()).await.body, second.body);
    }
    let nacks: Value = serde_json::from_str(&get(relay.admin, "/nacks?nacked").await).unwrap();
    assert_eq!(nacks["total"], 0, "REST has no NACK");
}

#[tokio::test]
async fn rest_8_a_name_more_or_less_is_answered_whatever_the_version() {
    let (_plane, stream, _relay, mut poller, _) = warm("").await;
    let ask = |names: &[&str], version: &str| json!({"resourceNames": names, "versionInfo": version});
    let endpoints = |name: &str| any("envoy.config.endpoint.v3.ClusterLoadAssignment", json!({"clusterName": name}));
    poller.poll(ENDPOINTS, "web", ask(&["a"], "")).await;
    say(&stream, "1", EDS, vec![endpoints("a")]);
    let one = poller.polled(ENDPOINTS, "web", ask(&["a"], "")).await.version();
    assert_eq!(poller.poll(ENDPOINTS, "web", ask(&["a"], &one)).await.status, 304);
    // The second name is still unknown. The reply has the first one.
    let partly = poller.poll(ENDPOINTS, "web", ask(&["a", "b"], &one)).await;
    assert_eq!((partly.status.as_u16(), partly.json()["resources"].as_array().unwrap().len()), (200, 1));
    say(&stream, "2", EDS, vec![endpoints("a"), endpoints("b")]);
    let held = ask(&["b", "a"], &partly.version());
    let both = poller.polled_until(ENDPOINTS, "web", held, |answer| answer.status == 200).await;
    assert_eq!(both.json()["resources"].as_array().unwrap().len(), 2);
    assert_eq!(poller.poll(ENDPOINTS, "web", ask(&["a"], &both.version())).await.status, 200);
}

#[tokio::test]
async fn rest_9_what_is_wrong_with_a_poll_is_said_in_status_and_json() {
    let (_plane, _stream, relay, mut poller, _) = warm("limits: {message_bytes: 4096}\n").await;
    for garbage in
        ["", "{", "[]", "7", "null", r#"{"resourceNames": 5}"#, r#"{"node": []}"#, "\u{0}", &"[".repeat(4000)]
    {
        let (code, message) = poller.post(CLUSTERS, garbage.to_owned()).await.nack();
        assert_eq!(code, 400, "{garbage}: {message}");
    }
    // Unknown fields are ignored (TRN-15).
    assert_eq!(poller.poll(CLUSTERS, "web", json!({"fromTheFuture": {"a": 1}})).await.status, 200);
    for path in ["/v3/discovery:cluster", "/", "/v2/discovery:clusters", "/clusters", "/v3/discovery:health_check"] {
        let (code, message) = poller.post(path, "{}").await.nack();
        assert!(code == 404 && message.contains("clusters"), "{path}: {message}");
    }
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = poller.send(method.clone(), CLUSTERS, None, Bytes::new()).await;
        assert_eq!((answer.nack().0, &answer.headers["allow"]), (405, &"POST".parse().unwrap()), "{method}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/grpc", "application/jsonp"] {
        let answer = poller.send(Method::POST, CLUSTERS, Some(kind), "{}".into()).await;
        assert_eq!(answer.nack().0, 415, "{kind}");
    }
    let node = r#"{"node": {"id": "x", "cluster": "web"}}"#;
    for kind in [Some("application/json; charset=utf-8"), Some("Application/JSON"), None] {
        assert_eq!(poller.send(Method::POST, CLUSTERS, kind, node.into()).await.status, 200, "{kind:?}");
    }
    let large = format!("{{\"versionInfo\": \"{}\"}}", "x".repeat(5000));
    assert_eq!(poller.post(CLUSTERS, large.clone()).await.nack().0, 413);
    let mut http2 = Poller::connect_http2(relay.address).await;
    assert_eq!(http2.post(CLUSTERS, large).await.nack().0, 413);
    assert_eq!(http2.post("/v3/discovery:cluster", "{}").await.nack().0, 404);
    assert_eq!(http2.post("/other", "{}").await.nack().0, 404);
    let method = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
    let mut poller = Poller::connect(relay.address).await;
    assert_eq!(poller.send(Method::POST, method, Some("application/grpc"), "".into()).await.nack().0, 404);
}

/// A response would repeat it beside each resource.
#[tokio::test]
async fn i10_a_poll_with_a_long_type_url_is_rejected() {
    let (_plane, _stream, _relay, mut poller, _) = warm("limits: {name_bytes: 100}\n").await;
    let url = |prefix: usize| format!("{}/envoy.config.cluster.v3.Cluster", "u".repeat(prefix));
    let answer = poller.polled(CLUSTERS, "web", json!({"typeUrl": url(50)})).await;
    assert_eq!(answer.json()["resources"][0]["@type"], url(50));
    let (code, message) = poller.poll(CLUSTERS, "web", json!({"typeUrl": url(300)})).await.nack();
    assert_eq!(code, 413);
    assert_eq!(message, "request too large: a type URL of 332 bytes, the limit is 256 (limits.name_bytes)");
}

#[tokio::test]
async fn rest_11_and_trn_8_v2_paths_are_there_when_they_are_switched_on() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(&plane, "clients: {v2: true}\n").await;
    let mut poller = Poller::connect(relay.address).await;
    let path = "/v2/discovery:clusters";
    poller.poll(path, "web", json!({"node": {"cluster": "web", "buildVersion": "old"}})).await;
    let mut stream = plane.stream().await;
    let Request::Sotw(request) = stream.request().await else { panic!("another variant") };
    assert!(request.type_url.ends_with("envoy.api.v2.Cluster"));
    say(&stream, "1", &request.type_url, Vec::new());
    let answer = poller.polled(path, "web", json!({})).await;
    assert_eq!((answer.clusters(), answer.json()["typeUrl"].clone()), (Vec::new(), request.type_url.clone().into()));
    // v2 types have no descriptors, and the relay does not send them as their v3 successors (TRN-10).
    let old = Any { type_url: request.type_url.clone(), value: cluster("a", "1").value };
    say(&stream, "2", &request.type_url, vec![old]);
    let answer = poller.polled_until(path, "web", json!({}), |answer| answer.status != 200).await;
    assert_eq!(answer.nack().0, 501);
    assert_eq!(poller.post("/v2/discovery:extension_configs", "{}").await.nack().0, 404);
}

#[tokio::test]
async fn rest_12_a_cold_cache_is_a_503_and_begins_to_be_filled() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(&plane, "").await;
    let mut poller = Poller::connect(relay.address).await;
    let unknown = (503, "resource not available yet; retry".to_owned());
    let (mut soonest, mut streams) = (Duration::MAX, Vec::new()); // a busy machine is sometimes late
    let clusters = ["web".to_owned()].into_iter().chain((1..20).map(|number| format!("other-{number}")));
    for cluster in clusters {
        let start = Instant::now();
        assert_eq!(poller.poll(CLUSTERS, &cluster, json!({})).await.nack(), unknown, "the first poll of its view");
        soonest = soonest.min(start.elapsed());
        streams.push(plane.stream().await);
        if streams.len() >= 3 && soonest < ENVOYS_PATIENCE {
            break;
        }
    }
    assert!(soonest < ENVOYS_PATIENCE, "{soonest:?}");
    let stream = &streams[0];
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.nack(), unknown, "as long as the server is silent");
    assert!(get(relay.admin, "/upstreams").await.contains("\"state\": \"trying\""));
    say_clusters(stream, "1", &[("a", "1")]);
    crate::until("the answer is there", async || get(relay.admin, "/upstreams").await.contains("\"responses\": 1"))
        .await;
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.clusters(), owned(&[("a", "1")]));
}

#[tokio::test]
async fn rest_12_polls_that_come_again_and_again_are_one_subscription_upstream() {
    let (_plane, mut stream, relay, mut poller, answer) = warm("").await;
    for _ in 0..50 {
        assert_eq!(poller.poll(CLUSTERS, "web", json!({"versionInfo": answer.version()})).await.status, 304);
        assert_eq!(Poller::connect(relay.address).await.poll(CLUSTERS, "web", json!({})).await.body, answer.body);
    }
    let (_subscription, _ack) = (stream.request().await, stream.request().await);
    assert!(stream.requests.try_recv().is_err(), "the subscription and the ACK");
    open_polls(relay.admin, 0).await;
}

#[tokio::test]
#[ignore = "keeps the processors busy: a thousand pollers"]
async fn night_a_thousand_pollers_of_one_new_version_share_one_answer() {
    let _turn = super::HEAVY.lock().await;
    let (_plane, stream, relay, mut poller, first) = warm("").await;
    assert_eq!(report(&relay).await["transcoded"], 1);
    let many: Vec<_> = (0..3_000).map(|number| format!("cluster-{number}")).collect();
    let content = "x".repeat(300); // together about a megabyte, which takes some time
    let mut clusters: Vec<_> = many.iter().map(|name| (name.as_str(), content.as_str())).collect();
    clusters.extend([("a", "1"), ("b", "1")]); // a removal would be sent a moment later, under another version
    let mut pollers = Vec::new();
    for _ in 0..1_000 {
        pollers.push(Poller::connect(relay.address).await);
    }
    say_clusters(&stream, "2", &clusters);
    let held = json!({"versionInfo": first.version()});
    let mut polls = tokio::task::JoinSet::new();
    for mut poller in pollers {
        let held = held.clone();
        polls
            .spawn(async move { poller.polled_until(CLUSTERS, "web", held, |answer| answer.status == 200).await.body });
    }
    let bodies = polls.join_all().await;
    assert!(bodies[0].len() > 1_000_000 && bodies.iter().all(|body| *body == bodies[0]));
    assert_eq!(report(&relay).await["transcoded"], 2);
    // A client that polled before the others gets the same body.
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.body, bodies[0]);
}

#[tokio::test]
async fn key_11_and_i9_what_a_peer_may_not_have_and_what_is_of_another_view_is_not_shared() {
    let rules = "access: [{types: [envoy.config.cluster.v3.Cluster], names: [b], allow_from: [10.0.0.0/8]}]\n";
    let (mut plane, _stream, relay, mut poller, answer) = warm(rules).await;
    assert_eq!(answer.clusters(), owned(&[("a", "1")]));
    let mut other = Poller::connect(relay.address).await;
    other.poll(CLUSTERS, "db", json!({})).await;
    let stream = plane.stream().await;
    say_clusters(&stream, "1", &[("a", "of db")]);
    assert_eq!(other.polled(CLUSTERS, "db", json!({})).await.clusters(), owned(&[("a", "of db")]));
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.clusters(), owned(&[("a", "1")]));
}

#[tokio::test]
async fn key_11_an_answer_to_one_peer_is_not_given_to_another_that_may_not_have_all_of_it() {
    let kind = "envoy.config.endpoint.v3.ClusterLoadAssignment";
    let rules = format!("access: [{{types: [{kind}], names: [secret*], allow_from: [127.0.0.2]}}]\n");
    let (_plane, stream, relay, mut poller, _) = warm(&rules).await;
    let mut cleared = Poller::connect_from(Ipv4Addr::new(127, 0, 0, 2), relay.address).await;
    let all = || json!({"resourceNames": ["*"]});
    cleared.poll(ENDPOINTS, "web", all()).await;
    let endpoints = ["open", "secret"].map(|name| any(kind, json!({"clusterName": name})));
    say(&stream, "1", EDS, endpoints.into());
    let full = cleared.polled(ENDPOINTS, "web", all()).await;
    let part = poller.polled(ENDPOINTS, "web", all()).await;
    let names = |answer: &Answer| {
        let resources = answer.json()["resources"].as_array().unwrap().clone();
        let mut names: Vec<_> = resources.iter().map(|of| of["clusterName"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!((names(&full), names(&part)), (vec!["open".into(), "secret".into()], vec!["open".to_owned()]));
    let held = json!({"resourceNames": ["*"], "versionInfo": part.version()});
    assert_eq!(names(&cleared.poll(ENDPOINTS, "web", held.clone()).await), ["open", "secret"]);
    assert_eq!(poller.poll(ENDPOINTS, "web", held).await.status, 304);
}

#[tokio::test]
async fn i8_a_view_too_many_is_rejected() {
    let mut plane = Plane::start(&BOTH).await;
    let text = "views: {key: [cluster], max: 1}\n";
    let relay = run(crate::bind(config(plane.address, ", variant: sotw", text)).await.unwrap(), std::future::pending());
    let mut poller = Poller::connect(relay.address).await;
    let mut held = Client::connect(relay.address, Variant::Delta).await;
    held.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say_clusters(&stream, "1", &[("a", "1")]);
    assert_eq!(held.sent().await.set, ["a"]);
    let (code, message) = poller.poll(CLUSTERS, "db", json!({})).await.nack();
    assert!(code == 503 && message.contains("views"), "{message}");
}

#[tokio::test]
async fn i10_answers_are_bounded_over_all_polls_and_one_too_many_is_rejected_and_not_remembered() {
    let (_plane, stream, _relay, mut poller, answer) = warm("rest: {cache_bytes: 1, response_bytes: 400}\n").await;
    assert_eq!(answer.clusters(), owned(&[("a", "1"), ("b", "1")]));
    let long = "x".repeat(400);
    say_clusters(&stream, "2", &[("a", &long)]);
    let rejected = poller.polled_until(CLUSTERS, "web", json!({}), |answer| answer.status == 503).await;
    assert!(rejected.nack().1.contains("too many responses in flight"), "{rejected:?}");
    assert_eq!(rejected.headers["retry-after"], "10");
    say_clusters(&stream, "3", &[("a", "2")]);
    let again = poller.polled_until(CLUSTERS, "web", json!({}), |answer| answer.status == 200).await;
    assert_eq!(again.clusters(), owned(&[("a", "2")]));
}

#[tokio::test]
async fn trn_19_a_poll_that_is_held_is_answered_when_the_relay_drains() {
    let mut plane = Plane::start(&BOTH).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let config = config(plane.address, ", variant: sotw", &format!("{VIEWS}rest: {{long_poll: 1m}}\n"));
    let relay = run(crate::bind(config).await.unwrap(), async { drop(stopped.await) });
    let mut poller = Poller::connect(relay.address).await;
    poller.poll(CLUSTERS, "web", json!({})).await;
    let stream = plane.stream().await;
    say_clusters(&stream, "1", &[("a", "1")]);
    let version = poller.polled(CLUSTERS, "web", json!({})).await.version();
    let _idle = Poller::connect(relay.address).await;
    open_polls(relay.admin, 0).await;
    let held = tokio::spawn(async move { poller.poll(CLUSTERS, "web", json!({"versionInfo": version})).await });
    open_polls(relay.admin, 1).await;
    stop.send(()).unwrap();
    assert_eq!(held.await.unwrap().status, 304);
    crate::until("the relay has ended", async || relay.task.is_finished()).await;
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_leaves_nothing_behind() {
    let (_plane, _stream, relay, mut poller, answer) = warm("rest: {long_poll: 10m}\n").await;
    let held = json!({"versionInfo": answer.version()});
    open_polls(relay.admin, 0).await;
    let mut cold = Poller::connect(relay.address).await;
    let polls = [
        tokio::spawn(async move { poller.poll(CLUSTERS, "web", held).await }),
        tokio::spawn(async move { cold.polled(CLUSTERS, "db", json!({})).await }),
    ];
    open_polls(relay.admin, 2).await;
    polls.iter().for_each(|poll| poll.abort());
    open_polls(relay.admin, 0).await;
}

#[tokio::test]
async fn rest_is_rejected_where_it_is_switched_off() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(&plane, "rest: {enabled: false}\n").await;
    let mut poller = Poller::connect(relay.address).await;
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.status, 404);
}

/// Generates valid requests with some bytes removed, inserted or changed.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let good = json!({
        "node": {"id": "n", "cluster": "web", "metadata": {"a": [1, {"b": null}]}, "locality": {"region": "r"}},
        "resourceNames": ["a", "b"], "versionInfo": "1", "typeUrl": CDS,
        "resourceLocators": [{"name": "x", "dynamicParameters": {"k": "v"}}],
    });
    let change = (any_index(), proptest::num::u8::ANY, 0..3u8);
    proptest::collection::vec(change, 1..12).prop_map(move |changes| {
        let mut bytes = good.to_string().into_bytes();
        for (at, byte, how) in changes {
            let at = at.index(bytes.len().max(1)).min(bytes.len().saturating_sub(1));
            match how {
                0 if bytes.len() > 1 => drop(bytes.remove(at)),
                1 => bytes.insert(at, byte),
                _ => bytes[at] = byte,
            }
        }
        bytes
    })
}

fn any_index() -> impl Strategy<Value = proptest::sample::Index> {
    proptest::arbitrary::any::<proptest::sample::Index>()
}

#[tokio::test]
async fn i10_no_request_takes_the_relay_down() {
    let (_plane, _stream, _relay, mut poller, answer) = warm("rest: {timeout: 0s}\n").await;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..1_000 {
        let body = mutated().new_tree(&mut runner).unwrap().current();
        let answer = poller.post(CLUSTERS, body.clone()).await;
        assert!([200, 304, 400, 503].contains(&answer.status.as_u16()), "{answer:?} to {}", body.escape_ascii());
    }
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.body, answer.body);
}
