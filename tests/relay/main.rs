//! The program in-process, between a scripted control plane and scripted clients, over real connections.

mod asking;
mod client;
mod connections;
#[path = "../model/content.rs"]
#[allow(dead_code)] // the model uses the rest
mod content;
mod differential;
mod driver;
mod evidence;
mod evidence_cold;
mod evidence_crowd;
mod evidence_entries;
mod evidence_silence;
mod failover;
mod files;
mod flock;
mod holder;
mod ladder;
mod life;
mod load_plane;
mod loads;
mod log_lines;
mod order_pace;
#[path = "../model/origin.rs"]
#[allow(dead_code)] // the model also reads what a response means, and requests repetitions
mod origin;
mod partition;
mod pieces;
mod plane;
mod poller;
mod readiness;
mod request_size;
mod rest;
mod rest_plane;
mod rest_source;
mod scripts;
mod services;
mod shared;
mod shares;
mod shown;
mod silence;
mod storm;
mod strict_plane;
mod tiers;
mod tls;
mod types;
mod upstream_connections;
mod variants;
mod void;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use client::Client;
use plane::{Plane, Stream};
use tonic::Code;
use weir::app::App;
use weir::config::Config;
use weir::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
};
use weir::proto::{Any, Request, Response};
use weir::protocol::faults::{Fault, Faults};
use weir::protocol::session::Variant;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

struct Relay {
    address: SocketAddr,
    admin: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(plane: SocketAddr, protocol: &str) -> Relay {
    relay_with(plane, protocol, Faults::NONE).await
}

async fn relay_with(plane: SocketAddr, protocol: &str, faults: Faults) -> Relay {
    let mut config = config(plane, protocol, "views: {key: [cluster]}\n");
    config.views.limits.faults = faults;
    run(App::bind(config).await.unwrap(), std::future::pending())
}

fn config(plane: SocketAddr, protocol: &str, rest: &str) -> Config {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{uri: 'http://{plane}'{protocol}}}]}}\n{rest}"
    );
    Config::parse(Path::new("test.yaml"), &text).unwrap()
}

fn run(app: App, stop: impl Future<Output = ()> + Send + 'static) -> Relay {
    let (address, admin) = (app.addresses()[0], app.admin_address().unwrap());
    Relay { address, admin, task: tokio::spawn(app.run_until(stop)) }
}

/// Waits for a condition that sends no signal.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(client::PATIENCE, looking).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A cluster whose body contains `content`.
fn cluster(name: &str, content: &str) -> Any {
    let mut value = vec![0x0a, u8::try_from(name.len()).unwrap()];
    value.extend(name.bytes());
    value.extend([0xc2, 0x3e, u8::try_from(content.len()).unwrap()]);
    value.extend(content.bytes());
    Any { type_url: CDS.into(), value: value.into() }
}

/// Sends the next SotW response of a type whose bodies are only names.
fn say_any(stream: &Stream, url: &str, names: &[&str]) {
    let named = |name: &&str| Any { type_url: url.into(), ..cluster(name, "") };
    let resources = names.iter().map(named).collect();
    let (version_info, nonce, type_url) = ("1".into(), "1".into(), url.into());
    stream.respond(&Response::Sotw(DiscoveryResponse {
        version_info,
        resources,
        type_url,
        nonce,
        ..Default::default()
    }));
}

/// Sends the next response: in SotW the complete set, in delta what is new and what is removed.
fn say(stream: &Stream, version: &str, whole: &[(&str, &str)], news: &[(&str, &str)], gone: &[&str]) {
    let response = match stream.variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            version_info: version.into(),
            resources: whole.iter().map(|(name, content)| cluster(name, content)).collect(),
            type_url: CDS.into(),
            nonce: version.into(),
            ..Default::default()
        }),
        Variant::Delta => {
            let wrap = |(name, content): &(&str, &str)| Resource {
                version: version.into(),
                name: name.to_string(),
                resource: Some(cluster(name, content)),
                ..Default::default()
            };
            Response::Delta(DeltaDiscoveryResponse {
                resources: news.iter().map(wrap).collect(),
                removed_resources: gone.iter().map(ToString::to_string).collect(),
                type_url: CDS.into(),
                nonce: version.into(),
                ..Default::default()
            })
        }
    };
    stream.respond(&response);
}

fn nonce_of(request: &Request) -> &str {
    match request {
        Request::Sotw(request) => &request.response_nonce,
        Request::Delta(request) => &request.response_nonce,
    }
}

async fn each_translation<F: Future<Output = ()>>(case: impl Fn(Variant, Variant) -> F) {
    for (up, down) in BOTH.into_iter().flat_map(|up| BOTH.map(|down| (up, down))) {
        println!("{up:?} upstream, {down:?} downstream");
        case(up, down).await;
    }
}

fn protocol_of(variant: Variant) -> &'static str {
    match variant {
        Variant::Sotw => ", variant: sotw",
        Variant::Delta => ", variant: delta",
    }
}

const TWO: [(&str, &str); 2] = [("a", "1"), ("b", "1")];

#[tokio::test]
async fn up_32_all_four_translations_tell_each_client_what_it_needs_and_survive_the_loss_of_upstream() {
    each_translation(|up, down| changes_and_an_outage(up, down, Faults::NONE)).await;
}

async fn changes_and_an_outage(up: Variant, down: Variant, faults: Faults) {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay_with(plane.address, protocol_of(up), faults).await;
    let mut client = Client::connect(relay.address, down).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    assert_eq!(stream.variant, up);
    let first = stream.request().await;
    assert!(first.node().is_some() && nonce_of(&first).is_empty());
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    assert_eq!((sent.set.as_slice(), sent.removed.len()), (["a".to_owned(), "b".to_owned()].as_slice(), 0));
    client.ack(CDS, &[], &sent);
    assert_eq!(nonce_of(&stream.request().await), "1", "answered upstream without waiting for clients");

    // A change is one resource in delta and the complete set in SotW; equal content is not sent.
    say(&stream, "2", &[("a", "1"), ("b", "2")], &[("b", "2")], &[]);
    let sent = client.sent().await;
    let expected: &[&str] = if down == Variant::Delta { &["b"] } else { &["a", "b"] };
    assert_eq!(sent.set, expected);
    client.ack(CDS, &[], &sent);
    say(&stream, "3", &[("a", "1"), ("b", "2")], &[("a", "1"), ("b", "2")], &[]);
    client.hears_nothing(Duration::from_millis(300)).await;

    // Upstream dies. No client is sent anything, and new clients are served from the cache.
    let address = plane.kill().await;
    client.hears_nothing(Duration::from_millis(300)).await;
    let mut late = Client::connect(relay.address, down).await;
    late.ask(CDS, &[], Some("web"));
    assert_eq!(late.sent().await.set, ["a", "b"]);

    // It is back, without a.
    let mut plane = Plane::start_at(address, &BOTH).await;
    let mut stream = plane.stream().await;
    if let Request::Delta(request) = stream.request().await {
        let held: Vec<_> = request.initial_resource_versions.into_keys().collect();
        assert_eq!(
            held,
            ["a", "b"],
            "under versions of its own, or if it was cut off early, under such as are nobody's"
        );
    }
    say(&stream, "9", &[("b", "2")], &[], &["a"]);
    let sent = client.sent().await;
    match down {
        Variant::Sotw => assert_eq!(sent.set, ["b"]),
        Variant::Delta => assert_eq!((sent.set.len(), sent.removed.as_slice()), (0, ["a".to_owned()].as_slice())),
    }
}

#[tokio::test]
async fn xlat_3_an_upstream_version_says_nothing_of_the_content() {
    each_translation(|up, down| async move {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut client = Client::connect(relay.address, down).await;
        client.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
        say(&stream, "1", &[("a", "1"), ("b", "2")], &[("b", "2")], &[]);
        let sent = client.sent().await;
        assert!(sent.set.contains(&"b".to_owned()), "other bytes under the same version: {sent:?}");
        client.ack(CDS, &[], &sent);
        for version in ["2", "3"] {
            say(&stream, version, &[("a", "1"), ("b", "2")], &[("a", "1"), ("b", "2")], &[]);
        }
        client.hears_nothing(Duration::from_millis(300)).await;
    })
    .await;
}

#[tokio::test]
async fn xlat_36_without_upstream_a_new_grpc_client_is_sent_to_its_next_server() {
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let relay = relay(nobody, "").await;
    let [mut grpc, mut envoy] =
        [Client::connect(relay.address, Variant::Sotw).await, Client::connect(relay.address, Variant::Sotw).await];
    envoy.ask(CDS, &["a"], Some("web"));
    let Client::Sotw(requests, _) = &grpc else { unreachable!() };
    let node =
        weir::proto::node::Node { cluster: "web".into(), user_agent_name: "gRPC Go".into(), ..Default::default() };
    let node = Some(prost::Message::encode_to_vec(&node).into());
    let (type_url, resource_names) = (CDS.into(), vec!["a".into()]);
    requests.send(DiscoveryRequest { node, type_url, resource_names, ..Default::default() }).unwrap();
    assert_eq!(grpc.ended().await, Code::Unavailable, "and not one reply before");
    envoy.hears_nothing(Duration::from_millis(300)).await;
}

#[tokio::test]
async fn clients_of_one_key_share_a_stream_and_clients_of_two_do_not() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut clients = Vec::new();
    for number in 0..40 {
        let client = Client::connect(relay.address, BOTH[number % 2]).await;
        client.ask(CDS, &[], Some(["web", "db"][number / 2 % 2]));
        clients.push(client);
    }
    let mut streams = Vec::new(); // a stream that is dropped has ended
    for _ in 0..2 {
        let mut stream = plane.stream().await;
        let first = stream.request().await;
        let node: weir::proto::node::Node = prost::Message::decode(first.node().unwrap().clone()).unwrap();
        let own = format!("of-{}", node.cluster);
        say(&stream, "1", &[(&own, "1")], &[(&own, "1")], &[]);
        streams.push(stream);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.sent().await.set, [["of-web", "of-db"][number / 2 % 2]]);
    }
    assert!(plane.streams.try_recv().is_err(), "two views, two streams");

    let report = get(relay.admin, "/upstreams").await;
    assert!(report.contains("\"clients\": 20") && report.contains("\"connected\": true"), "{report}");
    let report = get(relay.admin, "/clients").await;
    assert_eq!(report.matches("\"wildcard\": true").count(), 40, "{report}");
    assert_eq!(get(relay.admin, "/healthz").await, "ok\n");
}

#[tokio::test]
async fn trn_6_trn_12_a_stream_that_makes_no_sense_is_ended_with_a_reason() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], None);
    assert_eq!(client.ended().await, Code::InvalidArgument, "no node");
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask("", &[], Some("web"));
    assert_eq!(client.ended().await, Code::InvalidArgument, "no type");
}

#[tokio::test]
async fn key_14_a_client_that_becomes_another_is_ended_to_come_back_as_such() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    client.ask(CDS, &["a"], Some("db"));
    assert_eq!(client.ended().await, Code::Unavailable);
}

#[tokio::test]
async fn trn_16_a_response_of_twelve_megabytes_reaches_the_client() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: sotw").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let names: Vec<_> = (0..100_000).map(|number| format!("cluster-{number:06}")).collect();
    let content = "x".repeat(120);
    let whole: Vec<_> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    say(&stream, "1", &whole, &[], &[]);
    let mut received = 0;
    while received < names.len() {
        received += client.sent().await.set.len(); // in responses of some 2 MiB (DELTA-48)
    }
    assert_eq!(received, names.len());
    let mut whole = Client::connect(relay.address, Variant::Sotw).await;
    whole.ask(CDS, &[], Some("web"));
    assert_eq!(whole.sent().await.set.len(), names.len(), "in one piece");
}

#[tokio::test]
async fn trn_16_a_first_request_of_six_megabytes_is_read() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &client else { unreachable!() };
    let stated = (0..100_000).map(|number| (format!("cluster-{number:06}"), "v".repeat(40))).collect();
    let request = DeltaDiscoveryRequest {
        node: client::node("web"),
        type_url: CDS.into(),
        initial_resource_versions: stated,
        ..Default::default()
    };
    requests.send(request).unwrap();
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
}

async fn get(address: SocketAddr, path: &str) -> String {
    probe(address, path).await.1
}

/// Returns status and body of a response.
async fn probe(address: SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    socket.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn xlat_10_ten_thousand_clusters_sent_again_with_one_changed_are_one_resource() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: sotw").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let names: Vec<_> = (0..10_000).map(|number| format!("c{number}")).collect();
    let mut whole: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    say(&stream, "1", &whole, &[], &[]);
    let mut received = 0;
    while received < names.len() {
        received += client.sent().await.set.len();
    }
    whole[5_000].1 = "2";
    say(&stream, "2", &whole, &[], &[]);
    assert_eq!(client.sent().await.set, ["c5000"]);
    say(&stream, "3", &whole, &[], &[]);
    client.hears_nothing(Duration::from_millis(500)).await;
}

#[tokio::test]
async fn i5_versions_are_equal_on_two_relays_and_after_a_restart() {
    let mut versions = Vec::new();
    for (up, version) in [(Variant::Sotw, "1"), (Variant::Delta, "77"), (Variant::Sotw, "another")] {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut client = Client::connect(relay.address, Variant::Sotw).await;
        client.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        say(&stream, version, &TWO, &TWO, &[]);
        versions.push(client.sent().await.version);
    }
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
}

#[tokio::test]
async fn a_thousand_clients_of_one_view_need_one_stream_and_all_coming_back_at_once_no_request() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut streams = Vec::new();
    for round in 0..3 {
        let mut clients = Vec::new();
        for number in 0..1_000 {
            let client = Client::connect(relay.address, BOTH[number % 2]).await;
            client.ask(CDS, &[], Some("web"));
            clients.push(client);
        }
        if round == 0 {
            let stream = plane.stream().await;
            say(&stream, "1", &TWO, &TWO, &[]);
            streams.push(stream);
        }
        for client in &mut clients {
            assert_eq!(client.sent().await.set, ["a", "b"]);
        }
        drop(clients); // all at once
    }
    let mut requests = 0;
    while streams[0].requests.try_recv().is_ok() {
        requests += 1;
    }
    assert_eq!(requests, 2, "the subscription and the ACK");
    assert!(plane.streams.try_recv().is_err());
}

/// `*` and a name of one type: the content for the name differs from that for `*`, and each client sees only its own.
async fn star_and_name(faults: Faults) {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay_with(plane.address, "", faults).await;
    let mut all = Client::connect(relay.address, Variant::Delta).await;
    all.ask(CDS, &["*"], Some("web"));
    let first = plane.stream().await;
    let mut one = Client::connect(relay.address, Variant::Delta).await;
    one.ask(CDS, &["hidden"], Some("web"));
    let second = tokio::time::timeout(client::PATIENCE / 4, plane.stream()).await.expect("a stream for names");
    say(&first, "1", &[], &TWO, &[]);
    say(&second, "1", &[], &[("hidden", "1")], &[]);
    assert_eq!(all.sent().await.set, ["a", "b"]);
    assert_eq!(one.sent().await.set, ["hidden"]);
    all.hears_nothing(Duration::from_millis(200)).await;
}

#[tokio::test]
async fn xlat_13_a_wildcard_and_a_name_are_requested_and_kept_apart() {
    star_and_name(Faults::NONE).await;
}

/// A cluster changes and its endpoints do not: they are sent after it all the same.
async fn endpoints_follow(faults: Faults) {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay_with(plane.address, "", faults).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    let stream = plane.stream().await;
    let with_eds = |content: &str| {
        let mut any = cluster("a", content);
        let mut value = any.value.to_vec();
        value.extend([0x1a, 4, 0x0a, 2, 0x1a, 0]); // its endpoints come over ADS, under its own name
        any.value = value.into();
        any
    };
    let respond = |url: &str, name: &str, any: Any, version: &str| {
        let resource =
            Resource { version: version.into(), name: name.into(), resource: Some(any), ..Default::default() };
        let (type_url, nonce) = (url.to_owned(), version.to_owned());
        stream.respond(&Response::Delta(DeltaDiscoveryResponse {
            resources: vec![resource],
            type_url,
            nonce,
            ..Default::default()
        }));
    };
    respond(CDS, "a", with_eds("1"), "1");
    client.sent().await;
    client.ask(EDS, &["a"], None);
    let mut endpoints = cluster("a", "endpoints");
    endpoints.type_url = EDS.into();
    // The relay has requested them already, before the client does; this is the response.
    tokio::time::sleep(Duration::from_millis(100)).await;
    respond(EDS, "a", endpoints.clone(), "2");
    assert_eq!(client.sent().await.set, ["a"]);
    respond(CDS, "a", with_eds("2"), "3");
    assert_eq!(client.sent().await.set, ["a"], "the cluster");
    let sent = tokio::time::timeout(Duration::from_secs(2), client.sent()).await.expect("its endpoints");
    assert_eq!(sent.set, ["a"]);
}

#[tokio::test]
async fn delta_45_endpoints_follow_a_changed_cluster_over_the_wire() {
    endpoints_follow(Faults::NONE).await;
}

#[tokio::test]
async fn faults_at_the_edges_are_caught() {
    let fails = async |case: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        tokio::spawn(case).await.is_err_and(|error| error.is_panic())
    };
    let dropped = Faults::planted(Fault::DropOnDisconnect);
    assert!(fails(Box::pin(changes_and_an_outage(Variant::Delta, Variant::Delta, dropped))).await);
    assert!(fails(Box::pin(star_and_name(Faults::planted(Fault::OneStreamForAll)))).await);
    assert!(fails(Box::pin(endpoints_follow(Faults::planted(Fault::NoForcedEndpoints)))).await);
    let bumped = Faults::planted(Fault::VersionsFromUpstream);
    assert!(fails(Box::pin(changes_and_an_outage(Variant::Sotw, Variant::Delta, bumped))).await);
}

#[tokio::test]
async fn upstream_lost_in_each_phase_is_asked_again_and_a_hung_one_is_nobodys_business() {
    for (phase, up) in (0..4).flat_map(|phase| BOTH.map(|up| (phase, up))) {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &["*"], Some("web"));
        if phase > 0 {
            let mut stream = plane.stream().await; // the stream is open
            if phase > 1 {
                stream.request().await; // the request has arrived
            }
            if phase > 2 {
                say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]); // the first part is sent
                assert_eq!(client.sent().await.set, ["a"]);
            }
        }
        let address = plane.kill().await;
        let mut plane = Plane::start_at(address, &BOTH).await;
        let stream = plane.stream().await;
        let news: &[(&str, &str)] = if phase > 2 { &TWO[1..] } else { &TWO };
        say(&stream, "2", &TWO, news, &[]);
        let sent = client.sent().await;
        let expected: &[&str] = if phase > 2 { &["b"] } else { &["a", "b"] };
        assert_eq!(sent.set, expected, "phase {phase}, {up:?} upstream");
        // From here on the server sends nothing. Connected clients are sent nothing, and new ones are served.
        client.hears_nothing(Duration::from_millis(100)).await;
        let mut late = Client::connect(relay.address, Variant::Sotw).await;
        late.ask(CDS, &["*"], Some("web"));
        assert_eq!(late.sent().await.set, ["a", "b"]);
    }
}

#[tokio::test]
async fn a_type_that_nobody_knows_is_relayed_and_every_address_of_a_name_is_tried() {
    const OWN: &str = "example.org/own.Type";
    let mut plane = Plane::start(&BOTH).await;
    // On most machines the name has an IPv6 address too, on which no server listens.
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'http://localhost:{}'}}]}}\n",
        plane.address.port()
    );
    let app = App::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
    let address = app.addresses()[0];
    let task = tokio::spawn(app.run());
    let mut client = Client::connect(address, Variant::Delta).await;
    client.ask(OWN, &["mine"], Some("web"));
    let stream = plane.stream().await;
    let any = Any { type_url: "type.googleapis.com/own.Type".into(), value: vec![1, 2, 3].into() };
    let resource = Resource { version: "1".into(), name: "mine".into(), resource: Some(any), ..Default::default() };
    let type_url = "type.googleapis.com/own.Type".into();
    let nonce = "1".into();
    stream.respond(&Response::Delta(DeltaDiscoveryResponse {
        resources: vec![resource],
        type_url,
        nonce,
        ..Default::default()
    }));
    assert_eq!(client.sent().await.set, ["mine"]);
    task.abort();
}
