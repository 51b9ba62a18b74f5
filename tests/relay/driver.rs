//! The tasks around a session with unusual peers: readers that stall, and a connection with as many streams as an Envoy opens.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Request as Call;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Endpoint;
use weir_core::proto::Response;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_testkit::resources::wrapped;

use crate::client::{Client, PATIENCE, node};
use crate::evidence::servers;
use crate::plane::{Plane, Stream};
use crate::void::listener;
use crate::{BOTH, CDS, EDS, LDS, Relay, TWO, cluster, get, relay, relay_with_options, say, say_named};

const PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

pub(super) type Body =
    StreamBody<std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<Frame<Bytes>, hyper::Error>> + Send>>>;

pub(super) struct Connection {
    sender: SendRequest<Body>,
    driver: tokio::task::JoinHandle<hyper::Result<()>>,
}

impl Connection {
    pub async fn open(relay: &Relay) -> Self {
        Self::with_window(relay, None).await
    }

    /// Opens one whose streams are sent so many bytes at most that are not read. `None`: as many as by default.
    pub async fn with_window(relay: &Relay, window: Option<u32>) -> Self {
        let socket = tokio::net::TcpStream::connect(relay.address).await.unwrap();
        let mut builder = http2::Builder::new(TokioExecutor::new());
        // Opens many streams before the server's settings have arrived.
        builder.initial_max_send_streams(2_000).max_concurrent_reset_streams(4_000);
        builder.initial_stream_window_size(window);
        let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
        Self { sender, driver: tokio::spawn(connection) }
    }

    pub fn stream(
        &mut self,
    ) -> (mpsc::UnboundedSender<Bytes>, impl Future<Output = hyper::Result<http::Response<Incoming>>> + use<>) {
        let (requests, out) = mpsc::unbounded_channel();
        let out: std::pin::Pin<Box<dyn tokio_stream::Stream<Item = _> + Send>> =
            Box::pin(UnboundedReceiverStream::new(out).map(|bytes| Ok(Frame::data(bytes))));
        let call = Call::post(format!("http://relay{PATH}")).header("content-type", "application/grpc");
        (requests, self.sender.send_request(call.body(StreamBody::new(out)).unwrap()))
    }
}

fn framed(request: &DeltaDiscoveryRequest) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(request.encoded_len()).unwrap());
    request.encode(&mut frame).unwrap();
    frame.freeze()
}

pub(super) fn everything() -> Bytes {
    everything_of("web")
}

/// Returns the first request of a client with this node cluster.
pub(super) fn everything_of(cluster: &str) -> Bytes {
    framed(&DeltaDiscoveryRequest { node: node(cluster), type_url: CDS.into(), ..Default::default() })
}

/// Returns a first request for all clusters of a client that states that it has these.
pub(super) fn everything_stating(names: impl Iterator<Item = String>) -> Bytes {
    framed(&DeltaDiscoveryRequest {
        node: node("web"),
        type_url: CDS.into(),
        resource_names_subscribe: vec!["*".into()],
        initial_resource_versions: names.map(|name| (name, "x".to_owned())).collect(),
        ..Default::default()
    })
}

/// Waits until the `/clients` page satisfies a condition.
pub(super) async fn clients(relay: &Relay, what: &str, holds: impl Fn(&serde_json::Value) -> bool) {
    let start = tokio::time::Instant::now();
    loop {
        let page: serde_json::Value = serde_json::from_str(&get(relay.admin, "/clients").await).unwrap();
        let report = &page["clients"];
        if holds(report) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {report}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
#[ignore = "keeps the processors busy: 60,000 clusters and 10 MB of requests"]
async fn night_a_stalled_readers_unsubscribe_and_half_close_are_seen_behind_ten_megabytes_of_requests() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: sotw").await;
    let mut connection = Connection::open(&relay).await;
    let (requests, response) = connection.stream();
    requests.send(everything()).unwrap();
    let stream = plane.stream().await;
    let names: Vec<_> = (0..60_000).map(|number| format!("cluster-{number:06}")).collect();
    let content = "x".repeat(120);
    let whole: Vec<_> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    say(&stream, "1", &whole, &[], &[]);
    let _unread = response.await.unwrap(); // megabytes are on their way, and are not read

    let names_of_eds = |report: &serde_json::Value| {
        let types =
            report[0]["types"].as_array()?.iter().find(|kind| EDS.ends_with(kind["type"].as_str().unwrap()))?.clone();
        types["names"].as_u64()
    };
    let subscribe = |on: &[&str], off: &[&str]| {
        framed(&DeltaDiscoveryRequest {
            type_url: EDS.into(),
            resource_names_subscribe: on.iter().map(ToString::to_string).collect(),
            resource_names_unsubscribe: off.iter().map(ToString::to_string).collect(),
            ..Default::default()
        })
    };
    requests.send(subscribe(&["wanted"], &[])).unwrap();
    clients(&relay, "the subscription is seen", |report| names_of_eds(report) == Some(1)).await;
    let padding = "p".repeat(10 << 10);
    for _ in 0..1024 {
        requests.send(subscribe(&[], &[&padding])).unwrap();
    }
    requests.send(subscribe(&[], &["wanted"])).unwrap();
    clients(&relay, "the unsubscription is seen", |report| names_of_eds(report) == Some(0)).await;
    drop(requests);
    clients(&relay, "the half-close is seen", |report| report.as_array().unwrap().is_empty()).await;
}

#[tokio::test]
#[ignore = "keeps the processors busy: a thousand updates within a time limit"]
async fn night_sotw_57_a_reader_that_stalls_through_a_thousand_updates_delays_nobody_and_gets_the_newest_at_last() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut connection = Connection::open(&relay).await;
    let (requests, response) = connection.stream();
    requests.send(everything()).unwrap();
    let mut reader = Client::connect(relay.address, Variant::Delta).await;
    reader.ask(CDS, &["first"], Some("web"));
    let streams = [plane.stream().await, plane.stream().await]; // one for `*`, one for the name
    clients(&relay, "both ask", |report| report.as_array().unwrap().len() == 2).await;
    let content = "x".repeat(120);
    let names: Vec<_> = (0..30_000).map(|number| format!("cluster-{number:06}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    streams.iter().for_each(|stream| say(stream, "0", &[], &many, &[]));
    let mut unread = response.await.unwrap().into_body(); // megabytes are on their way, and are not read

    let updates = async {
        for round in 1..=1_000 {
            let round = round.to_string();
            streams.iter().for_each(|stream| say(stream, &round, &[], &[("first", &round)], &[]));
            assert_eq!(reader.sent().await.set, ["first"]);
        }
    };
    tokio::time::timeout(PATIENCE, updates).await.expect("the other reader is held up");

    let (mut buffer, mut sent) = (BytesMut::new(), Vec::new());
    while sent.last().is_none_or(|content| content != b"1000") {
        let frame = tokio::time::timeout(PATIENCE, unread.frame()).await.expect("the newest does not come");
        buffer.extend_from_slice(&frame.unwrap().unwrap().into_data().unwrap());
        while let Some(message) = unframed(&mut buffer) {
            let resources = DeltaDiscoveryResponse::decode(message).unwrap().resources.into_iter();
            let bodies =
                resources.filter(|resource| resource.name == "first").map(|resource| resource.resource.unwrap());
            sent.extend(bodies.map(|body| body.value[10..].to_vec())); // the part after the name and the tag of the content
        }
    }
    assert!(sent.len() <= 3, "told of {} of a thousand states that it did not read", sent.len());
}

fn say_one(stream: &Stream, url: &str, nonce: &str, resource: Resource) {
    let (type_url, nonce, resources) = (url.into(), nonce.into(), vec![resource]);
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
}

/// The reply with the cluster is made when the cluster changes. Its window has no room for all of it until the client reads, which takes longer than
/// the hold.
#[tokio::test]
async fn i7_a_route_waits_for_the_endpoints_of_a_cluster_that_its_client_reads_late() {
    const WINDOW: u32 = 16 << 10;
    const HOLD: Duration = Duration::from_secs(1);
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let hold = |options: &mut ProtocolOptions| options.session.routing_hold = HOLD;
    let relay = relay_with_options(&servers(&[plane.address], ", variant: delta"), "", hold).await;
    let endpoint = Endpoint::from_shared(format!("http://{}", relay.address)).unwrap();
    let channel = endpoint.initial_stream_window_size(WINDOW).connect().await.unwrap();
    let mut client = Client::call_for_clusters(channel, &[], "web").await.unwrap();
    let mut stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    while stream.request().await.type_url() != LDS {}
    say_one(&stream, LDS, "2", listener("l", "a", "1"));
    let sent = client.sent().await;
    assert_eq!(sent.set, ["l"]);
    client.ack(LDS, &[], &sent);
    client.ask(EDS, &["a"], None);
    say_named(&mut stream, EDS, "a").await;
    let sent = client.sent().await;
    assert_eq!(sent.set, ["a"]);
    client.ack(EDS, &[], &sent);
    let mut beside = Client::connect(relay.address, Variant::Delta).await;
    beside.ask(LDS, &[], Some("web"));
    assert_eq!(beside.sent().await.set, ["l"]);

    let mut new = cluster("new", &"x".repeat(2 * WINDOW as usize));
    new.value = [&new.value[..], &[0x1a, 4, 0x0a, 2, 0x1a, 0]].concat().into(); // its endpoints come by EDS
    say_one(&stream, CDS, "3", wrapped("new", "1", new));
    say_one(&stream, LDS, "4", listener("l", "new", "2"));
    say_named(&mut stream, EDS, "new").await; // the relay requests them before its client does
    assert_eq!(beside.sent().await.set, ["l"], "a client without clusters waits for nothing");
    clients(&relay, "the cluster is unread for longer than the hold", |report| {
        report[0]["unread_seconds"].as_f64().is_some_and(|unread| unread > HOLD.as_secs_f64())
    })
    .await;

    let reads = tokio::time::Instant::now();
    assert_eq!(client.sent().await.set, ["new"]);
    client.ask(EDS, &["new"], None);
    let next = client.sent().await;
    // If the machine is busy for all of the hold, which begins no earlier than the client reads, the listener may come first.
    assert!(next.set == ["new"] || reads.elapsed() >= HOLD, "{next:?} after {:?}", reads.elapsed());
    if next.set == ["new"] {
        assert_eq!(client.sent().await.set, ["l"]);
    }
}

fn unframed(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().unwrap()) as usize;
    (buffer.len() >= 5 + length).then(|| buffer.split_to(5 + length).freeze().slice(5..))
}

#[tokio::test]
#[ignore = "keeps the processors busy: 15,000 streams"]
async fn night_fifteen_hundred_streams_on_one_connection_are_reset_and_opened_again_ten_times() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut connection = Connection::open(&relay).await;
    let mut upstream = None;
    for round in 0..10 {
        let mut open = Vec::new();
        for _ in 0..1_500 {
            let (requests, response) = connection.stream();
            requests.send(everything()).unwrap();
            // A second small message arrives together with the first one.
            requests.send(framed(&DeltaDiscoveryRequest { type_url: CDS.into(), ..Default::default() })).unwrap();
            open.push((requests, response));
        }
        if upstream.is_none() {
            let stream = plane.stream().await;
            assert_eq!(stream.variant, Variant::Delta);
            say(&stream, "1", &TWO, &TWO, &[]);
            upstream = Some(stream);
        }
        let mut bodies = Vec::new();
        for (requests, response) in open {
            let answer = tokio::time::timeout(PATIENCE, response).await.expect("no headers came");
            let mut body = answer.unwrap_or_else(|error| panic!("round {round}: {error}")).into_body();
            let frame = tokio::time::timeout(PATIENCE, body.frame()).await.expect("no reply came");
            frame.unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
            bodies.push((requests, body));
        }
        drop(bodies); // resets all streams at once; the next round opens streams at once
    }
    assert!(!connection.driver.is_finished(), "the connection was given up");
    clients(&relay, "no session is left behind", |report| report.as_array().unwrap().is_empty()).await;
}

#[tokio::test]
async fn streams_that_the_relay_ends_while_answers_are_on_their_way_do_not_cost_the_connection() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut connection = Connection::open(&relay).await;
    let mut upstream = None;
    for round in 0..10 {
        let mut open = Vec::new();
        for _ in 0..500 {
            let (requests, response) = connection.stream();
            requests.send(everything()).unwrap();
            open.push((requests, response));
        }
        if upstream.is_none() {
            let stream = plane.stream().await;
            say(&stream, "1", &TWO, &TWO, &[]);
            upstream = Some(stream);
        }
        let mut bodies = Vec::new();
        for (requests, response) in open {
            let body = tokio::time::timeout(PATIENCE, response).await.expect("no headers came").unwrap().into_body();
            bodies.push((requests, body));
        }
        let other = DeltaDiscoveryRequest { node: node("db"), type_url: CDS.into(), ..Default::default() };
        let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce: "1".into(), ..Default::default() };
        for (requests, _) in &bodies {
            requests.send(framed(&other)).unwrap(); // another node: the relay ends the stream (KEY-14)
            (0..3).for_each(|_| requests.send(framed(&ack)).unwrap());
        }
        for (_requests, mut body) in bodies {
            let ended = async {
                while let Some(frame) = body.frame().await {
                    if let Some(trailers) =
                        frame.unwrap_or_else(|error| panic!("round {round}: {error}")).trailers_ref()
                    {
                        return trailers["grpc-status"] == "14";
                    }
                }
                false
            };
            assert!(tokio::time::timeout(PATIENCE, ended).await.expect("the stream goes on"), "no status, or another");
        }
    }
    assert!(!connection.driver.is_finished(), "the connection was given up");
}
