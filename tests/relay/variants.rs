//! The variant that the relay uses with a control plane if none is configured.

use std::convert::Infallible;

use http::StatusCode;
use http_body_util::Empty;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;

use super::*;

#[tokio::test]
async fn a_server_without_delta_is_spoken_to_in_sotw() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    assert_eq!(stream.variant, Variant::Sotw);
    say(&stream, "1", &TWO, &[], &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
}

/// Waits until attempts fail with an error that contains this.
async fn fails(relay: &Relay, why: &str) {
    until(why, async || get(relay.admin, "/upstreams").await.contains(why)).await;
}

#[tokio::test]
async fn fb_32_a_server_that_has_answered_in_a_variant_is_not_taken_for_one_without_it() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    drop(stream);
    let nobody = Plane::refusing_at(plane.kill().await, 12).await;
    fails(&relay, "Unimplemented").await;
    let mut plane = Plane::start_at(nobody.kill().await, &BOTH).await;
    assert_eq!(plane.stream().await.variant, Variant::Delta);
}

#[tokio::test]
async fn fb_32_what_a_proxy_without_a_way_answers_says_nothing_of_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let proxy = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let no_way = service_fn(async |_| {
                let not_found = http::Response::builder().status(StatusCode::NOT_FOUND);
                Ok::<_, Infallible>(not_found.body(Empty::<bytes::Bytes>::new()).unwrap())
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            connections.spawn(async move { builder.serve_connection(TokioIo::new(socket), no_way).await });
        }
    });
    let relay = relay(address, "").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    fails(&relay, "404").await;
    proxy.abort();
    let _ = proxy.await;
    let mut plane = Plane::start_at(address, &BOTH).await;
    assert_eq!(plane.stream().await.variant, Variant::Delta);
}
