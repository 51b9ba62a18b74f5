//! Compressed messages that become a thousand times as large, from a client and from a server: how much memory the program needs for them.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use weir_core::protocol::session::Variant;
use weir_loadtest::link::{ADS_DELTA, Event, Link, LinkOptions, scan};
use weir_testkit::gzip::{bomb, framed};
use weir_testkit::plane::Plane;
use weir_testkit::program::Program;

use crate::WEIR;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const PATIENCE: Duration = Duration::from_secs(60);
/// More than the longest message, which has 64 MiB by default.
const MAX_GROWTH: usize = 80 << 20;
const BOMBS: usize = 3;
const MIB: usize = 1024;

fn config(plane: &str) -> String {
    format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n\
         upstream: {{servers: [{{uri: 'http://{plane}', backoff: {{initial: 10ms}}}}]}}\n"
    )
}

/// Returns the peak memory of the program in bytes.
fn peak(program: &Program) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.child.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn assert_bounded(program: &Program, before: usize) {
    let growth = peak(program).saturating_sub(before);
    assert!(growth < MAX_GROWTH, "{} MiB more", growth >> 20);
}

/// Returns the size that a bomb states in its end: the true one, or a small one.
fn stated(number: usize) -> u32 {
    if number.is_multiple_of(2) { 7 } else { (MIB << 20) as u32 }
}

/// Sends a compressed request, and returns code and text of the status.
async fn send(address: &str, request: Vec<u8>) -> (String, String) {
    let socket = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await.unwrap();
    tokio::spawn(connection);
    let path = "http://relay/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
    let call = Request::post(path).header("content-type", "application/grpc").header("grpc-encoding", "gzip");
    let response = sender.send_request(call.body(Full::new(Bytes::from(request))).unwrap()).await.unwrap();
    let trailers = response.into_body().collect().await.unwrap().trailers().expect("a status").clone();
    let text = |name: &str| trailers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    (text("grpc-status"), text("grpc-message"))
}

#[tokio::test]
async fn i10_a_bomb_of_a_client_takes_no_more_memory_than_the_longest_request() {
    let program = Program::start(WEIR, "bombs-of-a-client.yaml", &config("127.0.0.1:1"), PATIENCE);
    let before = peak(&program);
    for number in 0..BOMBS {
        let sent = send(&program.address, framed(1, &bomb(MIB, stated(number))));
        let (code, text) = tokio::time::timeout(PATIENCE, sent).await.expect("no answer");
        assert!(code == "8" && text.starts_with("request too large: more than 67108864 bytes"), "{code}: {text}");
    }
    assert_bounded(&program, before);
}

#[tokio::test]
async fn i10_a_bomb_of_a_server_takes_no_more_memory_than_the_longest_response() {
    let mut plane = Plane::compressing(&[Variant::Delta], Some("gzip")).await;
    let program = Program::start(WEIR, "bombs-of-a-server.yaml", &config(&plane.address.to_string()), PATIENCE);
    let before = peak(&program);
    let mut link = Link::open(program.address.parse::<SocketAddr>().unwrap(), &LinkOptions::default()).await.unwrap();
    let stream = link.start(ADS_DELTA);
    link.send(stream, scan::delta_subscribe(CDS, Some(&scan::node("node", "one")), &[]));
    let client = tokio::spawn(async move { while !matches!(link.next().await, Event::Closed(_)) {} });
    let mut streams = Vec::new();
    for _ in 0..=BOMBS {
        // The relay opens the next stream after the bomb has ended the one before.
        let stream = plane.stream().await;
        stream.send(framed(1, &bomb(MIB, 7)));
        streams.push(stream);
    }
    program.says("response too large: more than 67108864 bytes when inflated", PATIENCE);
    assert_bounded(&program, before);
    client.abort();
}
