//! Compressed messages: of servers, which the relay does not ask to compress, and of clients.

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use http::{HeaderMap, Method, Request as Call, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::convert::Infallible;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use weir_core::proto::loads::{LoadStatsRequest, LoadStatsResponse};
use weir_core::xds::LOADS_PATH;

use super::client::PATIENCE;
use super::gzip::{bomb, framed, gzip};
use super::load_plane::LoadClient;
use super::poller::{CLUSTERS, ENDPOINTS, Poller};
use super::*;

const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const GIB: u32 = 1 << 30;

fn only(variant: Variant) -> &'static [Variant] {
    match variant {
        Variant::Sotw => &[Variant::Sotw],
        Variant::Delta => &[Variant::Delta],
    }
}

#[tokio::test]
async fn a_server_that_compresses_unasked_serves_in_either_variant() {
    let _turn = super::HEAVY.lock().await;
    let names: Vec<_> = (0..20_000).map(|number| format!("cluster-{number:06}")).collect();
    let content = "x".repeat(120);
    let large: Vec<_> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    each_translation(async |up, down| {
        let mut plane = Plane::compressing(only(up), Some("gzip")).await;
        let relay = relay(plane.address, "").await;
        let mut client = Client::connect(relay.address, down).await;
        client.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        assert_eq!(stream.variant, up);
        assert!(!stream.headers.contains_key("grpc-accept-encoding"), "it is not asked to");
        stream.respond_compressed(&said(up, "1", &TWO, &TWO, &[]));
        let sent = client.sent().await;
        assert_eq!(sent.set, ["a", "b"]);
        client.ack(CDS, &[], &sent);
        say(&stream, "2", &[("a", "1"), ("b", "2")], &[("b", "2")], &[]); // single messages may be uncompressed
        let sent = client.sent().await;
        assert!(sent.set.contains(&"b".into()), "{sent:?}");
        client.ack(CDS, &[], &sent);
        stream.respond_compressed(&said(up, "3", &large, &large, &[]));
        let mut received = 0;
        while received < large.len() {
            let sent = client.sent().await;
            received += sent.set.iter().filter(|name| name.starts_with("cluster-")).count();
            client.ack(CDS, &[], &sent);
        }
    })
    .await;
}

#[tokio::test]
async fn what_a_server_compresses_wrongly_ends_its_stream_with_a_reason_and_the_variant_stays() {
    let good = gzip(&DeltaDiscoveryResponse::default().encode_to_vec());
    let garbage = [&good[..], b"garbage at the end"].concat();
    let too_large = "response too large: more than 1048576 bytes when inflated, limit 1048576 (limits.message_bytes)";
    for (encoding, frame, text) in [
        (Some("snappy"), framed(1, b"x"), "Internal: the server compresses its responses with \\\"snappy\\\""),
        (None, framed(1, &good), "Internal: invalid response: a compressed message without grpc-encoding"),
        (Some("gzip"), framed(3, &good), "Internal: invalid response: compression flag 3"),
        (Some("gzip"), framed(1, &good[..good.len() - 1]), "Internal: invalid response: gzip data ends before its end"),
        (Some("gzip"), framed(1, &garbage), "Internal: invalid response: invalid gzip data: "),
        (Some("gzip"), framed(1, &bomb(512, GIB / 2)), too_large),
        (Some("gzip"), framed(1, &bomb(512, 7)), too_large), // it states a small size
        (None, framed(0, &[0; (1 << 20) + 1]), "response too large: 1048577 bytes, limit 1048576"),
    ] {
        println!("{text}");
        let mut plane = Plane::compressing(&BOTH, encoding).await;
        let options = "views: {key: [cluster]}\nlimits: {message_bytes: 1MiB}\n";
        let config = config(plane.address, ", backoff: {initial: 10ms}", options);
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        let frame = Bytes::from(frame);
        for _ in 0..3 {
            let stream = plane.stream().await;
            assert_eq!(stream.variant, Variant::Delta, "the server was not taken for one without delta");
            stream.responses.send(frame.clone()).unwrap();
            until("the stream ends", async || stream.responses.is_closed()).await;
        }
        until(text, async || get(relay.admin, "/upstreams").await.contains(text)).await;
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        assert_eq!(client.sent().await.set, ["a", "b"], "a message that is not compressed");
    }
}

#[tokio::test]
async fn a_client_that_compresses_its_requests_is_served_like_others() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut stream = None;
    for variant in BOTH {
        let mut client = Client::compressing(relay.address, variant).await;
        client.ask(CDS, &[], Some("web"));
        if stream.is_none() {
            let opened = plane.stream().await;
            say(&opened, "1", &TWO, &TWO, &[]);
            stream = Some(opened);
        }
        let sent = client.sent().await;
        assert_eq!(sent.set, ["a", "b"]);
        client.ack(CDS, &[], &sent);
        let name = format!("endpoints-{variant:?}");
        client.ask(EDS, &[&name], None);
        say_named(stream.as_mut().unwrap(), EDS, &name).await;
        assert_eq!(client.sent().await.set, [name]);
    }
    let client = Client::compressing(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &client else { unreachable!() };
    let stated = (0..100_000).map(|number| (format!("cluster-{number:06}"), "v".repeat(40))).collect();
    let request = DeltaDiscoveryRequest {
        node: client::node("large"),
        type_url: CDS.into(),
        initial_resource_versions: stated,
        ..Default::default()
    };
    requests.send(request).unwrap();
    let opened = plane.stream().await;
    say(&opened, "1", &TWO, &TWO, &[]);
    let mut client = client;
    assert_eq!(client.sent().await.set, ["a", "b"]);
}

#[tokio::test]
async fn load_reports_pass_whichever_side_compresses() {
    let mut plane = Plane::compressing(&BOTH, Some("gzip")).await;
    let config = config(plane.address, "", "views: {key: [cluster]}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut client = LoadClient::compressing(relay.address).await;
    client.report(&LoadStatsRequest { node: client::node("web"), ..Default::default() }).await;
    let mut stream = tokio::time::timeout(PATIENCE, plane.loads.recv()).await.expect("no stream").unwrap();
    assert_eq!(stream.report().await.node, client::node("web"));
    let order = LoadStatsResponse { clusters: vec!["c".repeat(400_000)], ..Default::default() };
    stream.say_compressed(&order.encode_to_vec()).await;
    assert_eq!(client.order().await, order);
    client.send(&[b'x'; 200_000]).await;
    assert_eq!(stream.message().await.unwrap(), &[b'x'; 200_000][..]);
    stream.order(&order).await;
    assert_eq!(client.order().await, order);
    stream.say_bomb().await;
    let ended = client.ended().await;
    assert!(ended.message().contains("response too large: more than 67108864 bytes when inflated"), "{ended:?}");
}

/// A connection on which tests make calls by hand.
struct Calls(SendRequest<BoxBody<Bytes, Infallible>>);

/// A call whose response has begun.
struct Opened {
    headers: HeaderMap,
    frames: mpsc::UnboundedSender<Bytes>,
    body: Incoming,
}

impl Calls {
    async fn connect(address: SocketAddr) -> Self {
        let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) = handshake(TokioExecutor::new(), socket).await.unwrap();
        tokio::spawn(connection);
        Self(sender)
    }

    async fn open(&mut self, path: &str, encoding: Option<&str>) -> Opened {
        let (frames, out) = mpsc::unbounded_channel();
        let body = StreamBody::new(UnboundedReceiverStream::new(out).map(|bytes| Ok(Frame::data(bytes)))).boxed();
        let call = Call::post(format!("http://relay{path}")).header("content-type", "application/grpc");
        let call = encoding.into_iter().fold(call, |call, encoding| call.header("grpc-encoding", encoding));
        let response = self.0.send_request(call.header("te", "trailers").body(body).unwrap());
        let (head, body) = tokio::time::timeout(PATIENCE, response).await.expect("no headers").unwrap().into_parts();
        Opened { headers: head.headers, frames, body }
    }
}

impl Opened {
    fn send(&self, flag: u8, message: &[u8]) {
        self.frames.send(framed(flag, message).into()).expect("the stream has ended");
    }

    /// Waits for the next bytes of the response.
    async fn data(&mut self) -> Bytes {
        let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("nothing comes");
        frame.expect("the stream has ended").unwrap().into_data().expect("the stream has ended with a status")
    }

    /// Waits for the end, and returns code and text of the status.
    async fn status(mut self) -> (u16, String) {
        let mut headers = self.headers;
        while !headers.contains_key("grpc-status") {
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("it does not end");
            let frame = frame.expect("it ends without a status").unwrap();
            headers.extend(frame.into_trailers().unwrap_or_default());
        }
        let text = headers.get("grpc-message").map(|text| text.to_str().unwrap().to_owned());
        (headers["grpc-status"].to_str().unwrap().parse().unwrap(), text.unwrap_or_default())
    }
}

fn subscribes(path: &str) -> Vec<u8> {
    let (node, type_url) = (client::node("web"), CDS.to_owned());
    match path {
        SOTW => DiscoveryRequest { node, type_url, ..Default::default() }.encode_to_vec(),
        DELTA => DeltaDiscoveryRequest { node, type_url, ..Default::default() }.encode_to_vec(),
        _ => LoadStatsRequest { node, ..Default::default() }.encode_to_vec(),
    }
}

#[tokio::test]
async fn i8_i10_what_a_client_compresses_wrongly_ends_its_stream_alone() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut calls = Calls::connect(relay.address).await;
    let too_large = "request too large: more than 67108864 bytes when inflated, limit 67108864 (limits.message_bytes)";
    let report = "request too large: more than 1048576 bytes when inflated; a larger one has to be plain";
    let (honest, liar) = (bomb(1024, GIB), bomb(1024, 7));
    let (mut others, mut upstream) = (Vec::new(), None);
    for path in [DELTA, SOTW, LOADS_PATH] {
        let mut other = calls.open(path, Some("gzip")).await;
        assert_eq!(other.headers["grpc-accept-encoding"], "gzip, identity");
        let request = subscribes(path);
        let (first, second) = request.split_at(request.len() / 2);
        other.send(1, &[gzip(first), gzip(second)].concat()); // two gzip members are one message
        if path == DELTA {
            let stream = upstream.insert(plane.stream().await);
            say(stream, "1", &TWO, &TWO, &[]);
        }
        if path != LOADS_PATH {
            other.data().await;
        }
        others.push(other);
        let good = gzip(&request);
        let garbage = [&good[..], b"garbage at the end"].concat();
        let too_large = if path == LOADS_PATH { report } else { too_large };
        for (encoding, flag, message, code, text) in [
            (None, 1, &good[..], 13, "invalid request: a compressed message without grpc-encoding"),
            (Some("identity"), 1, &good, 13, "invalid request: a compressed message without grpc-encoding"),
            (Some("gzip"), 2, &good, 13, "invalid request: compression flag 2, expected 0 or 1"),
            (Some("gzip"), 1, &good[..good.len() - 1], 13, "invalid request: gzip data ends before its end"),
            (Some("gzip"), 1, &garbage, 13, "invalid request: invalid gzip data: "),
            (Some("gzip"), 1, &honest, 8, too_large),
            (Some("gzip"), 1, &liar, 8, too_large),
        ] {
            let call = calls.open(path, encoding).await;
            call.send(flag, message);
            let (found, said) = call.status().await;
            assert!(found == code && said.starts_with(text), "{path}: {found} {said}, not {code} {text}");
        }
        let unsupported = calls.open(path, Some("snappy")).await;
        assert_eq!(unsupported.headers["grpc-accept-encoding"], "gzip, identity");
        let text = "grpc-encoding \"snappy\" is not supported: expected one of gzip, identity";
        assert_eq!(unsupported.status().await, (12, text.into()));
    }
    let reached = "weir_limit_reached_total{limit=\"limits.message_bytes\"} 4";
    assert!(get(relay.admin, "/metrics").await.contains(reached));
    // The other streams continue.
    let mut stream = upstream.unwrap();
    for (number, other) in others[..2].iter_mut().enumerate() {
        let name = format!("endpoints-{number}");
        let (type_url, names) = (EDS.to_owned(), vec![name.clone()]);
        let request = match number {
            0 => DeltaDiscoveryRequest { type_url, resource_names_subscribe: names, ..Default::default() }
                .encode_to_vec(),
            _ => DiscoveryRequest { type_url, resource_names: names, ..Default::default() }.encode_to_vec(),
        };
        other.send(1, &gzip(&request));
        say_named(&mut stream, EDS, &name).await;
        let data = other.data().await;
        assert!(data.windows(name.len()).any(|bytes| bytes == name.as_bytes()), "{data:?}");
    }
}

/// An inflated body counts until it is parsed, which takes far longer. So bodies that clients send at the same time stay within the budget.
#[tokio::test]
async fn i10_polls_that_become_large_when_they_are_inflated_count_until_they_are_parsed() {
    const POLLS: usize = 24; // five have room
    let plane = Plane::start(&BOTH).await;
    // What is parsed is refused for its number of names: to serve it would take far longer.
    let limits = "views: {key: [cluster]}\n\
                  limits: {message_bytes: 1MiB, incomplete_request_bytes: 4MiB, names_per_type: 1000}\n";
    let relay = run(crate::bind(config(plane.address, "", limits)).await.unwrap(), std::future::pending());
    let names: Vec<_> = (0..40_000).map(|number| format!("\"name-{number:012}\"")).collect();
    let request = format!("{{\"node\": {{\"cluster\": \"web\"}}, \"resource_names\": [{}]}}", names.join(","));
    let body = Bytes::from(gzip(request.as_bytes()));
    let polls = (0..POLLS).map(|_| {
        let (body, address) = (body.clone(), relay.address);
        tokio::spawn(async move {
            let headers = [("content-type", "application/json"), (CONTENT_ENCODING.as_str(), "gzip")];
            let mut poller = Poller::connect(address).await;
            poller.send_with(Method::POST, ENDPOINTS, &headers, body).await
        })
    });
    let polls: Vec<_> = polls.collect();
    let mut refused = 0;
    for poll in polls {
        let answer = tokio::time::timeout(PATIENCE, poll).await.expect("no answer").unwrap();
        assert_ne!(answer.status, 200);
        refused += usize::from(answer.nack().1.contains("too many incomplete requests"));
    }
    assert!(refused > 0 && refused < POLLS, "{refused} of {POLLS}");
}

#[tokio::test]
async fn polls_may_be_compressed() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut poller = Poller::connect(relay.address).await;
    let request = br#"{"node": {"id": "poller", "cluster": "web"}}"#;
    let mut post = async |encoding: &str, body: &[u8]| {
        let headers = [("content-type", "application/json"), (CONTENT_ENCODING.as_str(), encoding)];
        poller.send_with(Method::POST, CLUSTERS, &headers, Bytes::copy_from_slice(body)).await
    };
    assert_eq!(post("gzip", &gzip(request)).await.status, StatusCode::SERVICE_UNAVAILABLE, "nothing is known yet");
    say(&plane.stream().await, "1", &TWO, &TWO, &[]);
    until("there is a response", async || get(relay.admin, "/resources").await.contains("\"a\"")).await;
    let answer = post("gzip", &gzip(request)).await;
    assert_eq!(answer.clusters().len(), 2);
    let answer = post("br", request).await;
    assert_eq!(
        (answer.status, &answer.headers[ACCEPT_ENCODING]),
        (StatusCode::UNSUPPORTED_MEDIA_TYPE, &"gzip, identity".parse().unwrap())
    );
    assert!(answer.nack().1.contains("content-encoding \"br\" is not supported"), "{answer:?}");
    for bomb in [bomb(1024, GIB), bomb(1024, 7)] {
        assert_eq!(post("gzip", &bomb).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    }
    assert_eq!(post("gzip", &gzip(request)[..20]).await.status, StatusCode::BAD_REQUEST);
}
