//! The habits of control planes on connections and towards calls, shown by a client without a relay, in both variants where they have any.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use prost::Message;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::Endpoint;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::session::Variant;
use weir_testkit::address::{any_address, own_address};
use weir_testkit::certificates::{Authority, certificate};
use weir_testkit::client::Client;
use weir_testkit::gzip::framed;
use weir_testkit::outage::{Nobody, Outage};
use weir_testkit::plane::{Answers, Habits, Plane};
use weir_testkit::resources::{BOTH, CDS, said, say};
use weir_testkit::wait::{PATIENCE, until};

/// How long a test waits to see that nothing arrives.
const MOMENT: Duration = Duration::from_millis(100);
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const ONE: [(&str, &str); 1] = [("a", "1")];

async fn each(case: impl AsyncFn(Variant)) {
    for variant in BOTH {
        println!("{variant:?}");
        case(variant).await;
    }
}

/// Sends a call whose stream is empty, and returns the response before its body.
async fn call(address: SocketAddr, path: &str) -> http::Response<Body> {
    send(address, path, Body::empty()).await
}

/// Sends a call, and returns the response before its body.
async fn send(address: SocketAddr, path: &str, body: Body) -> http::Response<Body> {
    let mut channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    poll_fn(|cx| Service::<http::Request<Body>>::poll_ready(&mut channel, cx)).await.unwrap();
    let request = http::Request::post(path).header("content-type", "application/grpc").body(body).unwrap();
    channel.call(request).await.unwrap()
}

/// Returns the status of a response that has nothing else.
fn status(response: &http::Response<Body>) -> Option<&str> {
    Some(response.headers().get("grpc-status")?.to_str().unwrap())
}

#[tokio::test]
async fn it_serves_the_variants_that_it_has_and_refuses_the_other() {
    each(async |variant| {
        let served: &'static [Variant] = if variant == Variant::Sotw { &[Variant::Sotw] } else { &[Variant::Delta] };
        let mut plane = Plane::start(served).await;
        for other in BOTH {
            assert_eq!(Client::try_connect(plane.address, other).await.is_some(), other == variant);
        }
        assert_eq!(plane.stream().await.variant, variant);
        let refusing = Plane::refusing_at(own_address(), 7).await;
        assert!(Client::try_connect(refusing.address, variant).await.is_none());
        assert_eq!(status(&call(refusing.address, DELTA).await), Some("7"));
    })
    .await;
}

#[tokio::test]
async fn it_passes_requests_to_the_test_and_responses_and_statuses_to_the_client() {
    each(async |variant| {
        let mut plane = Plane::start(&BOTH).await;
        let mut client = Client::connect(plane.address, variant).await;
        client.ask(CDS, &[], Some("web"));
        let mut stream = plane.stream().await;
        assert_eq!(stream.request().await.type_url(), CDS);
        assert_eq!(plane.calls.lock().unwrap()[0].cluster.as_deref(), Some("web"));
        say(&stream, "1", &ONE, &ONE, &[]);
        assert_eq!(client.sent().await.set, ["a"]);
        stream.end_quoting(13, "on purpose");
        assert_eq!(client.end().await, (tonic::Code::Internal, "on purpose".into()));
        plane.kill().await;
    })
    .await;
}

#[tokio::test]
async fn it_judges_calls_by_their_headers_and_may_name_itself_a_relay() {
    let judge = |headers: &http::HeaderMap| headers.contains_key("x-nobody-has-it");
    let judging = Plane::judging(&BOTH, judge).await;
    each(async |variant| assert!(Client::try_connect(judging.address, variant).await.is_none())).await;
    assert_eq!(status(&call(judging.address, DELTA).await), Some("16"));
    let plain = Plane::start(&BOTH).await;
    let relay = Plane::relay_at(own_address(), &BOTH).await;
    for (plane, is_relay) in [(&plain, false), (&relay, true)] {
        assert_eq!(call(plane.address, DELTA).await.headers().contains_key("weir-relay"), is_relay);
    }
}

#[tokio::test]
async fn it_states_an_encoding_and_the_test_compresses() {
    each(async |variant| {
        let mut plane = Plane::compressing(&BOTH, Some("gzip")).await;
        let mut client = Client::accepting(plane.address, variant).await;
        let stream = plane.stream().await;
        stream.respond_compressed(&said(variant, "1", &ONE, &ONE, &[]));
        assert_eq!(client.sent().await.set, ["a"]);
    })
    .await;
}

#[tokio::test]
async fn it_answers_calls_that_it_does_not_serve_as_it_is_told() {
    let plane = Plane::answering(Answers::Status(12)).await;
    let ask = async || call(plane.address, "/no.Service/Method").await;
    assert_eq!(status(&ask().await), Some("12"));
    for (answers, server, words) in [
        (Answers::Refused(7, None), None, None),
        (Answers::NoRoute(7, None), Some("gateway"), None),
        (Answers::NoRouteInWords(7, None), Some("gateway"), Some("unimplemented")),
    ] {
        plane.answer(answers);
        let answer = ask().await;
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!((status(&answer), header("server"), header("grpc-message")), (Some("7"), server, words));
    }
    plane.answer(Answers::Http(503));
    assert_eq!(ask().await.status(), 503);
    assert_eq!((plane.calls(), plane.path()), (5, "/no.Service/Method".to_owned()));
    plane.answer(Answers::Held);
    let address = plane.address;
    let held = tokio::spawn(async move { call(address, "/no.Service/Method").await });
    until("the call waits", async || plane.calls() == 6).await;
    assert!(!held.is_finished());
    plane.release();
    assert_eq!(status(&held.await.unwrap()), Some("12"));
}

#[tokio::test]
async fn it_answers_health_checks_with_a_serving_status() {
    let plane = Plane::answering(Answers::Health(2)).await;
    for serving in [2, 1] {
        plane.answer(Answers::Health(serving));
        let answer = call(plane.address, "/grpc.health.v1.Health/Check").await;
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), [0, 0, 0, 0, 2, 8, serving].as_slice());
    }
    assert_eq!(status(&call(plane.address, "/no.Service/Method").await), Some("12"));
}

#[tokio::test]
async fn its_headers_may_wait_for_the_first_message() {
    let mut plane = Plane::with(own_address(), Habits { late_headers: true, ..Habits::default() }).await;
    for variant in BOTH {
        let address = plane.address;
        let connecting = tokio::spawn(async move { Client::connect(address, variant).await });
        let stream = plane.stream().await;
        tokio::time::sleep(MOMENT).await;
        assert!(!connecting.is_finished());
        say(&stream, "1", &ONE, &ONE, &[]);
        assert_eq!(connecting.await.unwrap().sent().await.set, ["a"]);
    }
}

#[tokio::test]
async fn behind_a_gateway_it_answers_empty_streams_itself_or_not_at_all() {
    let plane = Plane::answering(Answers::Refused(7, Some(0))).await;
    assert_eq!(status(&call(plane.address, DELTA).await), Some("0"));
    plane.answer(Answers::Refused(7, None));
    assert!(timeout(MOMENT, call(plane.address, DELTA)).await.is_err());
    assert_eq!((plane.empty_streams(), plane.calls()), (2, 0));
}

#[tokio::test]
async fn it_hangs_with_open_connections() {
    each(async |variant| {
        let mut plane = Plane::start(&BOTH).await;
        let mut client = Client::connect(plane.address, variant).await;
        let stream = plane.stream().await;
        plane.hang();
        say(&stream, "1", &ONE, &ONE, &[]);
        client.hears_nothing(MOMENT).await;
        assert!(timeout(MOMENT, Client::try_connect(plane.address, variant)).await.is_err(), "and with new ones");
    })
    .await;
}

#[tokio::test]
async fn it_breaks_connections_or_leaves_them() {
    each(async |variant| {
        let mut plane = Plane::start(&BOTH).await;
        let mut client = Client::connect(plane.address, variant).await;
        let stream = plane.stream().await;
        assert_eq!((stream.connection, plane.connections()), (0, 1));
        plane.drain().await;
        say(&stream, "1", &ONE, &ONE, &[]);
        assert_eq!(client.sent().await.set, ["a"], "what is open goes on");
        drop(stream);
        client.ended().await;
        drop(client);
        until("the connection closes", async || plane.connections() == 0).await;
        let mut client = Client::connect(plane.address, variant).await;
        let stream = plane.stream().await;
        assert_eq!(stream.connection, 1);
        plane.cut();
        client.ended().await;
        until("the connection is broken", async || plane.connections() == 0).await;
    })
    .await;
}

#[tokio::test]
async fn it_allows_few_streams_on_a_connection() {
    let plane = Plane::with(own_address(), Habits { max_streams: Some(1), ..Habits::default() }).await;
    assert_eq!(Client::connect_many(plane.address, 1).await.len(), 1);
    assert!(timeout(MOMENT, Client::connect_many(plane.address, 2)).await.is_err());
}

#[tokio::test]
async fn it_reads_requests_or_takes_no_more_than_its_window_has_room_for_until_their_end_is_awaited() {
    const PARTS: usize = 20; // several times what the window has room for
    let names = vec!["x".repeat(200_000)];
    let request = DeltaDiscoveryRequest { type_url: CDS.into(), resource_names_subscribe: names, ..Default::default() };
    let message = Bytes::from(framed(0, &request.encode_to_vec()));
    let part = || Ok::<_, Infallible>(Frame::data(message.clone()));
    for (reads, wait) in [(true, PATIENCE), (false, MOMENT)] {
        let mut plane = Plane::with(own_address(), Habits { reads, ..Habits::default() }).await;
        let (parts, body) = mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
        let body = Body::new(StreamBody::new(ReceiverStream::new(body)));
        let _response = send(plane.address, DELTA, body).await;
        let mut stream = plane.stream().await;
        let mut taken = 0;
        while taken < PARTS && timeout(wait, parts.send(part())).await.is_ok() {
            taken += 1;
        }
        assert_eq!(taken == PARTS, reads, "{taken}");
        if reads {
            assert_eq!(stream.request().await.type_url(), CDS);
        } else {
            stream.hears_nothing(MOMENT).await;
        }
        let others = async move {
            for _ in taken..PARTS {
                parts.send(part()).await.unwrap();
            }
        };
        let ended = async { tokio::join!(others, stream.requests_end()) };
        timeout(PATIENCE, ended).await.expect("the requests have no end");
    }
}

#[tokio::test]
async fn it_speaks_tls() {
    let authority = Authority::new();
    let identity = authority.sign("localhost");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let own = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let own = own.with_no_client_auth().with_single_cert(vec![certificate(&identity.certificate)], key).unwrap();
    let mut plane = Plane::start_with_tls(own).await;
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&authority.pem)).unwrap();
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    for variant in BOTH {
        let socket = TcpStream::connect(plane.address).await.unwrap();
        let socket = connector.connect(ServerName::try_from("localhost").unwrap(), socket).await.unwrap();
        let mut client = Client::over_as(socket, variant).await.expect("no stream");
        let stream = plane.stream().await;
        say(&stream, "1", &ONE, &ONE, &[]);
        assert_eq!(client.sent().await.set, ["a"]);
    }
}

/// Returns what a client meets in place of a server. `wait` is how long it waits for the first bytes.
async fn met(address: SocketAddr, variant: Variant, wait: Duration) -> &'static str {
    let Ok(mut socket) = TcpStream::connect(address).await else { return "no connection" };
    let mut first = [0; 4];
    match timeout(wait, socket.read_exact(&mut first)).await {
        Err(_) => return "silence",
        Ok(read) => assert_eq!(read.unwrap(), first.len()),
    }
    if first == *b"SSH-" {
        return "another protocol";
    }
    let Some(mut client) = Client::try_connect(address, variant).await else { return "no stream" };
    client.ask(CDS, &[], Some("web"));
    client.ended().await;
    "the end of the stream"
}

#[tokio::test]
async fn each_outage_keeps_clients_out_in_its_way_until_it_goes() {
    each(async |variant| {
        for (outage, expected) in [
            (Outage::Refuses, "no connection"),
            (Outage::Hangs, "silence"),
            (Outage::Babbles, "another protocol"),
            (Outage::Rejects(14), "no stream"),
            (Outage::EndsUnheard, "the end of the stream"),
        ] {
            let address = any_address().await;
            let nobody = Nobody::at(address, outage).await;
            let wait = if matches!(outage, Outage::Hangs) { MOMENT } else { PATIENCE };
            assert_eq!(met(address, variant, wait).await, expected, "{outage:?}");
            nobody.go().await;
            let mut plane = Plane::start_at(address, &BOTH).await;
            let mut client = Client::connect(plane.address, variant).await;
            let stream = plane.stream().await;
            say(&stream, "1", &ONE, &ONE, &[]);
            assert_eq!(client.sent().await.set, ["a"], "{outage:?}");
        }
    })
    .await;
}
