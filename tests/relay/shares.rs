//! How much greedy clients may affect others (I8, I10).

use bytes::Bytes;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use weir_core::proto::node::Node;

use super::poller::Poller;
use super::*;

/// A gRPC call on which the test writes bytes.
struct RawCall {
    bytes: mpsc::UnboundedSender<Bytes>,
    response: tokio::task::JoinHandle<(String, String)>,
}

impl RawCall {
    async fn begin(address: SocketAddr, method: &str) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (mut calls, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .handshake(TokioIo::new(socket))
            .await
            .unwrap();
        tokio::spawn(connection);
        let (bytes, out) = mpsc::unbounded_channel();
        let body = StreamBody::new(
            UnboundedReceiverStream::new(out).map(|bytes| Ok::<_, std::convert::Infallible>(Frame::data(bytes))),
        );
        let path = format!("http://{address}/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}");
        let request = http::Request::post(path).header("content-type", "application/grpc").body(body).unwrap();
        let response = tokio::spawn(async move {
            let mut response = calls.send_request(request).await.unwrap();
            let mut head = response.headers().clone();
            while let Some(Ok(frame)) = http_body_util::BodyExt::frame(response.body_mut()).await {
                if let Ok(trailers) = frame.into_trailers() {
                    head = trailers;
                }
            }
            let text = |name| {
                head.get(name).map_or_else(String::new, |value: &http::HeaderValue| value.to_str().unwrap().to_owned())
            };
            (text("grpc-status"), text("grpc-message"))
        });
        Self { bytes, response }
    }

    /// Sends the start of a message of this length.
    fn begin_message(&self, length: u32, bytes: usize) {
        let mut begin = vec![0];
        begin.extend(length.to_be_bytes());
        begin.resize(bytes, 0x0a);
        self.bytes.send(begin.into()).unwrap();
    }

    /// Waits for the end of the call, and returns its status and text.
    async fn end(self) -> (String, String) {
        tokio::time::timeout(client::PATIENCE, self.response).await.expect("the call goes on").unwrap()
    }
}

async fn run_with(plane: &Plane, rest: &str) -> Relay {
    let views = if rest.contains("views:") { "" } else { "views: {key: [cluster]}\n" };
    let config = config(plane.address, "", &format!("{views}{rest}\n"));
    run(crate::bind(config).await.unwrap(), std::future::pending())
}

#[tokio::test]
async fn i8_unfinished_messages_of_some_clients_do_not_end_the_requests_of_others() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {incomplete_request_bytes: 1MiB, message_bytes: 1MiB}").await;
    let mut established = Client::connect(relay.address, Variant::Delta).await;
    established.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[("a", "1")], &[]);
    let sent = established.sent().await;
    established.ack(CDS, &[], &sent);

    let mut greedy = Vec::new();
    for _ in 0..10 {
        let call = RawCall::begin(relay.address, "DeltaAggregatedResources").await;
        call.begin_message(1 << 20, 200_000);
        greedy.push(call);
    }
    until("greedy calls have ended", async || reached(&relay, "limits.incomplete_request_bytes").await >= 5).await;
    // The relay ends the oldest ones. On a busy machine they may have come in another order.
    let has_ended = |call: &RawCall| call.response.is_finished();
    until("its client has the status", async || greedy.iter().any(has_ended)).await;
    let ended = greedy.iter().position(has_ended).unwrap();
    let (status, text) = greedy.remove(ended).end().await;
    assert_eq!((&*status, text.contains("limits.incomplete_request_bytes")), ("8", true), "{text}");

    // A request arrives in many pieces, and is larger than what incomplete requests leave.
    let mut new = Client::connect(relay.address, Variant::Sotw).await;
    let large = Node { id: "x".repeat(60_000), cluster: "web".into(), ..Node::default() };
    new.ask_as(&large, CDS, &[]);
    assert_eq!(new.sent().await.set, ["a"], "the new client is served");
    say(&stream, "2", &[], &[("a", "2")], &[]);
    assert_eq!(established.sent().await.set, ["a"], "the neighbour has the change");
}

#[tokio::test]
async fn i8_unfinished_polls_of_some_clients_do_not_end_those_of_others() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {incomplete_request_bytes: 1MiB, message_bytes: 1MiB}").await;
    let mut greedy = Vec::new();
    for _ in 0..10 {
        let mut socket = TcpStream::connect(relay.address).await.unwrap();
        let head = "POST /v3/discovery:clusters HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                    content-length: 1000000\r\n\r\n";
        socket.write_all(format!("{head}{}", " ".repeat(200_000)).as_bytes()).await.unwrap();
        greedy.push(socket);
    }
    until("greedy polls have ended", async || reached(&relay, "limits.incomplete_request_bytes").await >= 4).await;

    let (mut new, node) = (Poller::connect(relay.address).await, Node { cluster: "web".into(), ..Node::default() });
    let mut other = Client::connect(relay.address, Variant::Sotw).await;
    other.ask_as(&node, CDS, &[]);
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[("a", "1")], &[]);
    assert_eq!(other.sent().await.set, ["a"]);
    let answer = new.polled("/v3/discovery:clusters", "web", serde_json::json!({})).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn i10_a_request_above_a_limit_ends_its_own_stream_and_says_which_limit() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(
        &plane,
        "limits: {names_per_stream: 9, request_entries: 10, name_bytes: 100, node_bytes: 200, message_bytes: 10KiB}",
    )
    .await;
    let mut neighbour = Client::connect(relay.address, Variant::Sotw).await;
    neighbour.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[("a", "1")], &[]);
    neighbour.sent().await;
    let many: Vec<_> = (0..11).map(|number| number.to_string()).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let (long, cluster, huge) = ("x".repeat(101), "c".repeat(200), "h".repeat(11_000));
    let url = format!("{}/envoy.config.endpoint.v3.ClusterLoadAssignment", "u".repeat(300));
    let cases: [(&str, &str, &[&str], &str); 6] = [
        ("limits.names_per_stream", EDS, &many[..10], "web"),
        ("limits.request_entries", EDS, &many, "web"),
        ("limits.name_bytes", EDS, &[&long], "web"),
        ("limits.name_bytes", &url, &["a"], "web"),
        ("limits.node_bytes", EDS, &[], &cluster),
        ("limits.message_bytes", EDS, &[&huge], "web"),
    ];
    for variant in BOTH {
        for (key, url, names, cluster) in cases {
            let before = reached(&relay, key).await;
            let mut client = Client::connect(relay.address, variant).await;
            client.ask(url, names, Some(cluster));
            let status = client.next_forever().await.unwrap_err();
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert!(status.message().contains(key), "{status:?}");
            assert_eq!(reached(&relay, key).await, before + 1);
        }
    }
    say(&stream, "2", &[], &[("a", "2")], &[]);
    assert_eq!(neighbour.sent().await.set, ["a"]);
}

/// Returns a first request for everything of a type, which states that the client has this many names.
fn stating(url: &str, prefix: &str, count: usize) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        node: client::node("web"),
        type_url: url.into(),
        resource_names_subscribe: vec!["*".into()],
        initial_resource_versions: (0..count).map(|number| (format!("{prefix}-{number}"), "1".to_owned())).collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn i10_versions_of_made_up_types_give_way_to_what_honest_clients_state() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {stated_versions_bytes: 256KiB}").await;
    let mut honest = Vec::new();
    for _ in 0..3 {
        let client = Client::connect(relay.address, Variant::Delta).await;
        let Client::Delta(requests, _) = &client else { unreachable!() };
        requests.send(stating(CDS, "cluster", 1500)).unwrap();
        honest.push(client);
    }
    let stream = plane.stream().await;
    let mut greedy = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, responses) = &mut greedy else { unreachable!() };
    for made_up in 0..3 {
        requests.send(stating(&format!("type.googleapis.com/made.up.V{made_up}"), "x", 700 + made_up)).unwrap();
    }
    let status = tokio::time::timeout(client::PATIENCE, responses.message()).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let message = "the limit for all clients is 262144 bytes (limits.stated_versions_bytes)";
    assert!(status.message().contains(message), "{status:?}");
    assert!(reached(&relay, "limits.stated_versions_bytes").await >= 1);

    let mut alone = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &alone else { unreachable!() };
    requests.send(stating(EDS, "too-much", 4000)).unwrap();
    assert_eq!(alone.ended().await, Code::ResourceExhausted, "one that is beyond the limit on its own");

    let names: Vec<_> = (0..1500).map(|number| format!("cluster-{number}")).collect();
    let set: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    say(&stream, "1", &[], &set, &[]);
    for client in &mut honest {
        assert_eq!(client.sent().await.set.len(), 1500, "the versions were another server's");
    }
    let none = async || get(relay.admin, "/metrics").await.contains("\nweir_stated_versions_bytes 0\n");
    until("all stated versions are judged", none).await;
}

#[tokio::test]
async fn i8_made_up_names_do_not_fill_a_view_for_others() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {names_per_view: 1000}").await;
    let mut greedy = Client::connect(relay.address, Variant::Delta).await;
    let names: Vec<_> = (0..2000).map(|number| format!("made-up-{number}")).collect();
    let grpc = Node { user_agent_name: "gRPC Go".into(), ..client_node() };
    greedy.ask_as(&grpc, EDS, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let Client::Delta(_, responses) = &mut greedy else { unreachable!() };
    let response = tokio::time::timeout(client::PATIENCE, responses.message()).await.unwrap().unwrap().unwrap();
    let error = response.resource_errors[0].error_detail.clone().unwrap();
    assert_eq!(error.code, 8);
    assert!(error.message.ends_with("the limit is 1000 (limits.names_per_view)"), "{}", error.message);
    assert!(reached(&relay, "limits.names_per_view").await >= 1);

    let mut stream = plane.stream().await;
    let mut honest = Client::connect(relay.address, Variant::Delta).await;
    honest.ask(EDS, &["honest"], Some("web"));
    say_named(&mut stream, EDS, "honest").await;
    assert_eq!(honest.sent().await.set, ["honest"], "it has room");
}

#[tokio::test]
async fn i8_a_full_cache_has_no_room_for_new_names_and_serves_what_it_has() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {cached_bytes: 64KiB}").await;
    let mut first = Client::connect(relay.address, Variant::Delta).await;
    first.ask(EDS, &["large"], Some("web"));
    let stream = plane.stream().await;
    let sent = |name: &str, version: &str, bytes: usize| {
        let mut value = [&[0x0a, name.len() as u8], name.as_bytes(), &[0x7a]].concat();
        prost::encoding::encode_varint(bytes as u64, &mut value);
        value.resize(value.len() + bytes, b'x');
        let resource = Some(Any { type_url: EDS.into(), value: value.into() });
        let resource = Resource { resource, name: name.into(), version: version.into(), ..Default::default() };
        let (type_url, nonce) = (EDS.into(), version.into());
        let response = DeltaDiscoveryResponse { type_url, nonce, resources: vec![resource], ..Default::default() };
        stream.respond(&Response::Delta(response));
    };
    sent("large", "1", 100 << 10);
    let told = first.sent().await;
    assert_eq!(told.set, ["large"]);
    first.ack(EDS, &[], &told);

    let grpc = Node { user_agent_name: "gRPC Go".into(), ..client_node() };
    let mut late = Client::connect(relay.address, Variant::Delta).await;
    late.ask_as(&grpc, EDS, &["new"]);
    let Client::Delta(_, responses) = &mut late else { unreachable!() };
    let response = tokio::time::timeout(client::PATIENCE, responses.message()).await.unwrap().unwrap().unwrap();
    let error = response.resource_errors[0].error_detail.clone().unwrap();
    assert_eq!(error.code, 8);
    assert!(error.message.ends_with("the limit is 65536 (limits.cached_bytes)"), "{}", error.message);
    assert_eq!(reached(&relay, "limits.cached_bytes").await, 1);

    let mut other = Client::connect(relay.address, Variant::Delta).await;
    other.ask(EDS, &["large"], Some("web"));
    assert_eq!(other.sent().await.set, ["large"], "what is cached is served");
    sent("large", "2", 1);
    assert_eq!(first.sent().await.set, ["large"]);
}

/// Returns a node of the view that most tests use.
fn client_node() -> Node {
    Node { id: "greedy".into(), cluster: "web".into(), ..Node::default() }
}

/// Connects a client that makes a view. As long as the relay has not noticed that others have left, it rejects such clients.
async fn with_view(relay: &Relay, cluster: &str) -> Client {
    let making = async {
        loop {
            let mut client = Client::connect(relay.address, Variant::Delta).await;
            client.ask(CDS, &[], Some(cluster));
            loop {
                if get(relay.admin, "/upstreams").await.contains(cluster) {
                    return client;
                }
                if tokio::time::timeout(Duration::from_millis(5), client.next_forever()).await.is_ok() {
                    break;
                }
            }
        }
    };
    tokio::time::timeout(client::PATIENCE, making).await.expect("there is no room for its view")
}

#[tokio::test]
async fn key_19_made_up_views_go_soon_and_make_room_for_honest_ones() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    // A view whose interest lingers is not removed as idle: it goes only because another one needs its room.
    let relay = run_with(&plane, "limits: {linger: 1h}\nviews: {key: [cluster], max: 3}").await;
    let mut honest = Client::connect(relay.address, Variant::Delta).await;
    honest.ask(CDS, &[], Some("honest"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[("a", "1")], &[]);
    honest.sent().await;
    for number in 0..10 {
        with_view(&relay, &format!("made-up-{number}")).await;
    }
    let _others = [with_view(&relay, "other-1").await, with_view(&relay, "other-2").await];
    let before = reached(&relay, "views.max").await;
    let mut refused = Client::connect(relay.address, Variant::Delta).await;
    refused.ask(CDS, &[], Some("one-too-many"));
    let status = refused.next_forever().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let expected = "too many views: the limit is 3 (views.max); cluster splits them most, with 3 values (views.key)";
    assert_eq!(status.message(), expected);
    assert_eq!(reached(&relay, "views.max").await, before + 1);
    let metrics = get(relay.admin, "/metrics").await;
    assert!(metrics.contains("weir_key_field_values{field=\"cluster\"} 3\n"), "{metrics}");
    let rejected = format!("weir_client_streams_rejected_total{{reason=\"too_many_views\"}} {}\n", before + 1);
    assert!(metrics.contains(&rejected), "{metrics}");
    say(&stream, "2", &[], &[("a", "2")], &[]);
    assert_eq!(honest.sent().await.set, ["a"], "the view with clients was never in danger");
}

#[tokio::test]
async fn i10_one_connection_makes_no_more_views_than_its_share_and_others_are_served() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {linger: 0s, views_per_connection: 2}").await;
    let mut honest = Client::connect(relay.address, Variant::Delta).await;
    honest.ask(CDS, &[], Some("honest"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[("a", "1")], &[]);
    honest.sent().await;

    let mut streams = Client::connect_many(relay.address, 5).await;
    for (stream, cluster) in streams.iter().zip(["made-up-1", "made-up-2"]) {
        stream.ask(CDS, &[], Some(cluster));
        until("the view exists", async || get(relay.admin, "/upstreams").await.contains(cluster)).await;
    }
    streams[2].ask(CDS, &[], Some("made-up-3"));
    let status = streams[2].next_forever().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let expected = "too many views of one connection: the limit is 2 (limits.views_per_connection); cluster splits them \
                    most, with 2 values (views.key)";
    assert_eq!(status.message(), expected);
    assert_eq!(reached(&relay, "limits.views_per_connection").await, 1);

    streams[3].ask(CDS, &[], Some("honest"));
    assert_eq!(streams[3].sent().await.set, ["a"], "a view that is there already counts for the client that made it");
    let other = Client::connect(relay.address, Variant::Delta).await;
    other.ask(CDS, &[], Some("late-neighbour"));
    until("the view exists", async || get(relay.admin, "/upstreams").await.contains("late-neighbour")).await;
    assert!(!get(relay.admin, "/upstreams").await.contains("made-up-3"));
    say(&stream, "2", &[], &[("a", "2")], &[]);
    assert_eq!(honest.sent().await.set, ["a"], "the neighbour has the change");

    // When a stream ends, its view has no clients and makes room. Until the relay has noticed, it rejects others.
    let mut more = Client::connect_many(relay.address, 50).await;
    for (stream, cluster) in more.iter().zip(["more-1", "more-2"]) {
        stream.ask(CDS, &[], Some(cluster));
        until("the view exists", async || get(relay.admin, "/upstreams").await.contains(cluster)).await;
    }
    drop(more.remove(0));
    for stream in &mut more[1..] {
        stream.ask(CDS, &[], Some("more-3"));
        loop {
            if get(relay.admin, "/upstreams").await.contains("more-3") {
                return;
            }
            if let Ok(Err(_)) = tokio::time::timeout(Duration::from_millis(5), stream.next_forever()).await {
                break;
            }
        }
    }
    panic!("the view without clients is kept");
}

#[tokio::test]
async fn open_connections_are_counted_until_they_close() {
    let plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "").await;
    let open = async |count: usize| {
        let line = format!("weir_client_connections {count}\n");
        until("the connections are counted", async || get(relay.admin, "/metrics").await.contains(&line)).await;
    };
    open(0).await;
    let one = Client::connect(relay.address, Variant::Delta).await;
    let two = Client::connect_many(relay.address, 3).await;
    open(2).await;
    drop(one);
    open(1).await;
    drop(two);
    open(0).await;
}
