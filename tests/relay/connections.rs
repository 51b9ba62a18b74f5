//! The limits of connections and of what they may open: a client that exceeds one is answered with it, it is counted, and neighbours go on.

use std::net::Ipv4Addr;
use std::time::Instant;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request as Call, Status, Streaming};
use tonic_prost::ProstCodec;

use super::client::PATIENCE;
use super::poller::{CLUSTERS, Poller};
use super::*;

/// A relay with these limits, and a neighbour: a client that has one cluster.
struct World {
    relay: Relay,
    stream: Stream,
    neighbour: Client,
    version: usize,
    _plane: Plane,
}

impl World {
    async fn with(limits: &str) -> Self {
        let mut plane = Plane::start(&BOTH).await;
        let rest = format!("views: {{key: [cluster]}}\nlimits: {{{limits}}}\n");
        let config = config(plane.address, ", variant: sotw", &rest);
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let neighbour = Client::connect(relay.address, Variant::Delta).await;
        neighbour.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        let mut world = Self { relay, stream, neighbour, version: 0, _plane: plane };
        world.neighbour_goes_on().await;
        world
    }

    /// Checks that the neighbour gets a change, and ACKs it.
    async fn neighbour_goes_on(&mut self) {
        self.version += 1;
        let version = self.version.to_string();
        say(&self.stream, &version, &[("a", version.as_str())], &[], &[]);
        let sent = self.neighbour.sent().await;
        assert_eq!(sent.set, ["a"]);
        self.neighbour.ack(CDS, &[], &sent);
    }

    async fn counted(&self, key: &str) -> u64 {
        reached(&self.relay, &format!("limits.{key}")).await
    }

    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.relay.address)).unwrap().connect().await.unwrap()
    }
}

pub(super) type Requests = mpsc::UnboundedSender<DeltaDiscoveryRequest>;
pub(super) type Responses = Streaming<DeltaDiscoveryResponse>;

/// Opens a stream, with this header besides those of gRPC.
async fn open_with(channel: &Channel, header: Option<String>) -> Result<(Requests, Responses), Status> {
    let headers: Vec<_> = header.iter().map(|header| ("x-long", header.as_str())).collect();
    match Client::call_for_clusters(channel.clone(), &headers, "web").await? {
        Client::Delta(requests, responses) => Ok((requests, responses)),
        Client::Sotw(..) => unreachable!(),
    }
}

pub(super) async fn open(channel: &Channel) -> Result<(Requests, Responses), Status> {
    tokio::time::timeout(PATIENCE, open_with(channel, None)).await.expect("a stream without an answer")
}

/// Checks that the stream is served: its client gets the cluster.
pub(super) async fn is_served((_requests, mut responses): (Requests, Responses)) {
    let response = tokio::time::timeout(PATIENCE, responses.message()).await.expect("no response").unwrap().unwrap();
    assert_eq!(response.resources[0].name, "a");
}

pub(super) fn names(status: Status, texts: &[&str]) {
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(texts.iter().all(|text| status.message().contains(text)), "{status}");
}

/// Checks that a health check is answered.
pub(super) async fn is_healthy(channel: &Channel) {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let codec: ProstCodec<(), ()> = ProstCodec::default();
    let path = "/grpc.health.v1.Health/Check".parse().unwrap();
    grpc.unary(Call::new(()), path, codec).await.unwrap();
}

/// Waits until a new client is served. Tries one connection at a time.
async fn new_client_is_served(world: &World) {
    let served = async {
        loop {
            if let Ok(stream) = open(&world.channel().await).await {
                return is_served(stream).await;
            }
        }
    };
    tokio::time::timeout(PATIENCE, served).await.expect("new clients are not served");
}

#[tokio::test]
async fn a_full_relay_answers_each_new_client_with_the_limit_and_serves_again_when_one_has_left() {
    let mut world = World::with("connections: 2").await;
    let second = world.channel().await;
    let stream = open(&second).await.unwrap();
    for _ in 0..3 {
        names(open(&world.channel().await).await.unwrap_err(), &[" is 2 ", "limits.connections"]);
    }
    for http2 in [false, true] {
        let mut poller = match http2 {
            false => Poller::connect(world.relay.address).await,
            true => Poller::connect_http2(world.relay.address).await,
        };
        let answer = poller.poll(CLUSTERS, "web", json!({})).await;
        assert!(answer.status == 503 && answer.headers["retry-after"] == "10", "{answer:?}");
        let (_, message) = answer.nack();
        assert!(message.contains(" is 2 ") && message.contains("limits.connections"), "{message}");
    }
    assert_eq!(world.counted("connections").await, 5);
    world.neighbour_goes_on().await;
    drop((stream, second));
    new_client_is_served(&world).await;
}

#[tokio::test]
async fn a_full_relay_is_healthy() {
    let world = World::with("connections: 1").await;
    names(open(&world.channel().await).await.unwrap_err(), &["limits.connections"]);
    let mut grpc = Grpc::new(world.channel().await);
    grpc.ready().await.unwrap();
    // An empty message requests it. The first field of the response says SERVING.
    let codec: ProstCodec<(), DiscoveryResponse> = ProstCodec::default();
    let path = "/grpc.health.v1.Health/Watch".parse().unwrap();
    let watching = grpc.unary(Call::new(()), path, codec).await.unwrap_err();
    names(watching, &["limits.connections"]);
    is_healthy(&world.channel().await).await;
    assert_eq!(probe(world.relay.admin, "/healthz").await.0, 200);
}

#[tokio::test]
async fn a_health_check_of_a_full_relay_closes_no_connection_that_another_client_would_close() {
    let world = World::with("connections: 2").await;
    let silent = TcpStream::connect(world.relay.address).await.unwrap();
    until("it is accepted", async || {
        get(world.relay.admin, "/metrics").await.contains("\nweir_client_connections 2\n")
    })
    .await;
    is_healthy(&world.channel().await).await;
    let mut client = Poller::over(silent).await;
    assert_eq!(client.poll(CLUSTERS, "web", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_connection_without_streams_is_closed_for_a_new_client_and_one_with_a_stream_is_not() {
    let mut world = World::with("connections: 3").await;
    let with_stream = world.channel().await;
    let stream = open(&with_stream).await.unwrap();
    // This connection has polled once, and has been idle since then.
    let mut idle = TcpStream::connect(world.relay.address).await.unwrap();
    idle.write_all(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n").await.unwrap();
    let mut answer = [0; 1];
    idle.read_exact(&mut answer).await.unwrap();
    new_client_is_served(&world).await;
    let closed = tokio::time::timeout(PATIENCE, idle.read_to_end(&mut Vec::new())).await;
    assert!(closed.expect("the idle connection is still open").is_ok());
    assert!(world.counted("connections").await >= 1);
    is_served(stream).await;
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn connections_that_send_nothing_keep_no_client_from_an_answer() {
    let mut world = World::with("connections: 2").await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(world.relay.address).await.unwrap());
    }
    let answer = open(&world.channel().await).await;
    assert!(answer.as_ref().err().is_none_or(|status| status.code() == Code::ResourceExhausted), "{answer:?}");
    drop(answer);
    new_client_is_served(&world).await;
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn connections_that_send_nothing_and_come_again_and_again_keep_no_client_from_a_place() {
    let mut world = World::with("connections: 2").await;
    let address = world.relay.address;
    let mut silent = tokio::task::JoinSet::new();
    for _ in 0..300 {
        silent.spawn(async move {
            loop {
                let mut stream = TcpStream::connect(address).await.unwrap();
                let _ = stream.read(&mut [0]).await; // waits until it is closed
            }
        });
    }
    until("they fill the queue", async || world.counted("connections").await >= 64).await;
    new_client_is_served(&world).await;
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn an_address_with_too_many_connections_is_answered_with_the_limit_and_others_are_served() {
    let mut world = World::with("connections_per_address: 2").await;
    let (greedy, other) = (Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut poller = Poller::connect_from(greedy, world.relay.address).await;
        assert_eq!(poller.polled(CLUSTERS, "web", json!({})).await.status, 200);
        held.push(poller);
    }
    let mut third = Poller::connect_from(greedy, world.relay.address).await;
    let answer = third.poll(CLUSTERS, "web", json!({})).await;
    assert!(answer.status == 429 && answer.headers["retry-after"] == "10", "{answer:?}");
    let (_, message) = answer.nack();
    assert!(message.contains(" is 2 ") && message.contains("limits.connections_per_address"), "{message}");
    assert_eq!(world.counted("connections_per_address").await, 1);
    // Connections that send nothing delay other clients of their address only briefly, and other addresses not at all.
    let mut silent = Vec::new();
    for _ in 0..10 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((greedy, 0).into()).unwrap();
        silent.push(socket.connect(world.relay.address).await.unwrap());
    }
    let mut poller = Poller::connect_from(other, world.relay.address).await;
    assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.status, 200);
    world.neighbour_goes_on().await;
    drop((held, silent, third));
    let address = world.relay.address;
    until("the address is served again", async || {
        // Until those are gone it may be closed without an answer.
        let polled = tokio::spawn(async move {
            Poller::connect_from(greedy, address).await.poll(CLUSTERS, "web", json!({})).await.status
        });
        polled.await.is_ok_and(|status| status == 200)
    })
    .await;
}

#[tokio::test]
async fn connections_beyond_the_rate_wait_and_are_served() {
    let mut world = World::with("new_connections_per_second: 20").await;
    let address = world.relay.address;
    let polls = (0..30).map(|_| {
        tokio::spawn(async move { Poller::connect(address).await.polled(CLUSTERS, "web", json!({})).await.status })
    });
    for poll in polls.collect::<Vec<_>>() {
        assert_eq!(poll.await.unwrap(), 200);
    }
    assert!(world.counted("new_connections_per_second").await >= 1);
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_gracefully_and_others_are_not() {
    let mut world = World::with("first_request_timeout: 2s").await;
    let mut late = TcpStream::connect(world.relay.address).await.unwrap();
    late.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut received = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, late.read_to_end(&mut received)).await;
    assert!(closed.expect("it is still open").is_ok());
    // A GOAWAY frame without an error, which ends no stream.
    assert!(received.windows(9).any(|head| head == b"\0\0\x08\x07\0\0\0\0\0"), "{received:?}");
    let mut half = TcpStream::connect(world.relay.address).await.unwrap();
    half.write_all(b"POST /v3/discovery:clu").await.unwrap();
    let closed = tokio::time::timeout(PATIENCE, half.read_to_end(&mut Vec::new())).await;
    assert!(closed.is_ok(), "it is still open");
    assert_eq!(world.counted("first_request_timeout").await, 2);
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn streams_that_are_silent_from_their_beginning_end_and_others_go_on() {
    let mut world = World::with("first_message: 2s").await;
    let channel = world.channel().await;
    for path in [
        "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources",
        "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters",
        "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats",
    ] {
        let mut grpc = Grpc::new(channel.clone());
        grpc.ready().await.unwrap();
        let (requests, stream) = mpsc::unbounded_channel::<DeltaDiscoveryRequest>();
        let codec: ProstCodec<DeltaDiscoveryRequest, DeltaDiscoveryResponse> = ProstCodec::default();
        let call = Call::new(UnboundedReceiverStream::new(stream));
        let responses =
            tokio::time::timeout(PATIENCE, grpc.streaming(call, path.parse().unwrap(), codec)).await.unwrap();
        let status = match responses {
            Ok(responses) => {
                tokio::time::timeout(PATIENCE, responses.into_inner().message()).await.unwrap().unwrap_err()
            }
            Err(status) => status,
        };
        names(status, &["no message within 2s (limits.first_message)"]);
        drop(requests);
    }
    assert_eq!(world.counted("first_message").await, 3);
    is_served(open(&channel).await.unwrap()).await;
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn streams_of_one_connection_beyond_the_limit_wait_for_one_that_ends() {
    let mut world = World::with("streams_per_connection: 2").await;
    let channel = world.channel().await;
    let (first, second) = (open(&channel).await.unwrap(), open(&channel).await.unwrap());
    let third = tokio::spawn({
        let channel = channel.clone();
        async move { open(&channel).await }
    });
    // The limit does not concern another connection. When that is served, the third stream has had all the time it needs.
    new_client_is_served(&world).await;
    assert!(!third.is_finished());
    assert_eq!(world.counted("streams_per_connection").await, 1);
    is_served(first).await;
    is_served(third.await.unwrap().unwrap()).await;
    is_served(second).await;
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn new_streams_of_one_connection_beyond_the_rate_are_read_later() {
    let mut world = World::with("new_streams_per_second: 2").await;
    let channel = world.channel().await;
    let began = Instant::now();
    for _ in 0..2 {
        is_served(open(&channel).await.unwrap()).await;
    }
    assert_eq!(world.counted("new_streams_per_second").await, 0);
    let late = tokio::spawn(async move {
        for _ in 0..6 {
            is_served(open(&channel).await.unwrap()).await;
        }
        began.elapsed()
    });
    new_client_is_served(&world).await;
    let elapsed = late.await.unwrap();
    // The first two are within the rate. After each of the others the connection is not read for half a second, unless the first two had taken as
    // long. One that comes later than that by itself is within the rate too.
    assert!(elapsed >= Duration::from_millis(2500), "{elapsed:?}");
    let counted = world.counted("new_streams_per_second").await;
    assert!((2..=6).contains(&counted), "{counted}");
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn new_names_of_one_stream_beyond_the_rate_are_read_later() {
    let mut world = World::with("new_names_per_second: 10").await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    let began = Instant::now();
    for round in 0..3 {
        let names: Vec<_> = (0..140).map(|name| format!("made-up-{round}-{name}")).collect();
        client.ask(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), Some("web"));
    }
    client.ask(CDS, &[], None);
    new_client_is_served(&world).await;
    while client.sent().await.set != ["a"] {}
    assert!(began.elapsed() >= Duration::from_secs(2), "400 at once, and 20 in two seconds: {:?}", began.elapsed());
    assert!(world.counted("new_names_per_second").await >= 1);
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn names_that_a_stream_lists_again_are_not_new() {
    let mut world = World::with("new_names_per_second: 1").await;
    let mut client = Client::connect(world.relay.address, Variant::Sotw).await;
    let names: Vec<_> = (0..30).map(|name| format!("made-up-{name}")).collect();
    for _ in 0..50 {
        client.ask(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), Some("web"));
    }
    client.ask(CDS, &[], None);
    assert_eq!(client.sent().await.set, ["a"], "40 new names are allowed at once");
    assert_eq!(world.counted("new_names_per_second").await, 0);
    world.neighbour_goes_on().await;
}

#[tokio::test]
async fn streams_of_all_clients_beyond_the_limit_are_answered_with_it() {
    let mut world = World::with("streams: 2").await;
    let channel = world.channel().await;
    let second = open(&channel).await.unwrap();
    names(open(&channel).await.unwrap_err(), &[" is 2 ", "limits.streams"]);
    let mut poller = Poller::connect(world.relay.address).await;
    let answer = poller.poll(CLUSTERS, "web", json!({})).await;
    assert!(answer.status == 503 && answer.headers["retry-after"] == "10", "{answer:?}");
    assert!(answer.nack().1.contains("limits.streams"));
    assert_eq!(world.counted("streams").await, 2);
    world.neighbour_goes_on().await;
    is_served(second).await;
    // The connection stays open, and has room again.
    new_client_is_served(&world).await;
}

#[tokio::test]
async fn requests_of_a_stream_beyond_the_rate_are_read_later_and_those_of_others_are_not() {
    let mut world = World::with("requests_per_second: 10").await;
    let channel = world.channel().await;
    let (requests, mut responses) = open(&channel).await.unwrap();
    for number in 0..30 {
        let resource_names_subscribe = vec![format!("name-{number}")];
        let request = DeltaDiscoveryRequest { type_url: CDS.into(), resource_names_subscribe, ..Default::default() };
        requests.send(request).unwrap();
    }
    until("it is counted", async || world.counted("requests_per_second").await > 0).await;
    world.neighbour_goes_on().await;
    is_served(open(&channel).await.unwrap()).await; // another stream on the same connection
    // The stream stays open.
    assert_eq!(responses.message().await.unwrap().unwrap().resources[0].name, "a");
}

#[tokio::test]
async fn headers_beyond_the_limit_are_answered_with_it() {
    let mut world = World::with("header_bytes: 2KiB").await;
    let channel = world.channel().await;
    is_served(open_with(&channel, Some("x".repeat(1000))).await.unwrap()).await;
    let refused = open_with(&channel, Some("x".repeat(2500))).await.unwrap_err();
    names(refused, &[" is 2048 ", "limits.header_bytes"]);
    // Headers beyond twice the limit are answered by the HTTP library.
    let (_requests, mut responses) = open_with(&channel, Some("x".repeat(9000))).await.unwrap();
    assert!(responses.message().await.unwrap_err().message().contains("431"));
    is_served(open(&channel).await.unwrap()).await;
    let mut poller = TcpStream::connect(world.relay.address).await.unwrap();
    let request = format!("POST {CLUSTERS} HTTP/1.1\r\nhost: h\r\nx-long: {}\r\n\r\n", "x".repeat(2500));
    poller.write_all(request.as_bytes()).await.unwrap();
    let mut answer = [0; 400];
    let length = poller.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 431 ") && answer.contains("limits.header_bytes"), "{answer}");
    assert_eq!(world.counted("header_bytes").await, 2);
    world.neighbour_goes_on().await;
}
