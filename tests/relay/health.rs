//! `grpc.health.v1` besides other streams of one connection.

use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Method, Request, Version};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tonic::Code;

use super::client::PATIENCE;
use super::*;

/// One HTTP/2 connection of a client that chooses what it sends on each stream.
struct Connection {
    requests: SendRequest<bytes::Bytes>,
    task: tokio::task::JoinHandle<()>,
}

/// A call whose response has begun.
struct Call {
    out: SendStream<bytes::Bytes>,
    answer: RecvStream,
}

impl Connection {
    async fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        let (requests, connection) = h2::client::handshake(socket).await.unwrap();
        Self { requests, task: tokio::spawn(async move { drop(connection.await) }) }
    }

    /// Begins a call with a message, without half-closing it.
    async fn call(&self, path: &str, message: &[u8]) -> Call {
        let request = Request::builder().method(Method::POST).version(Version::HTTP_2);
        let request = request.uri(format!("http://relay{path}")).header("content-type", "application/grpc");
        let mut requests = self.requests.clone().ready().await.unwrap();
        let (response, mut out): (ResponseFuture, _) = requests.send_request(request.body(()).unwrap(), false).unwrap();
        out.send_data(framed(message), false).unwrap();
        let response = timeout(PATIENCE, response).await.expect("no response").unwrap();
        Call { out, answer: response.into_body() }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Call {
    /// Returns the next bytes; none at the end.
    async fn next(&mut self) -> Option<bytes::Bytes> {
        let next = timeout(PATIENCE, self.answer.data()).await.expect("nothing came")?;
        next.ok()
    }

    async fn status(mut self) -> Code {
        while self.next().await.is_some() {}
        let trailers = timeout(PATIENCE, self.answer.trailers()).await.expect("no end").unwrap().unwrap();
        Code::from_bytes(trailers["grpc-status"].as_bytes())
    }
}

fn framed(message: &[u8]) -> bytes::Bytes {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, message].concat().into()
}

const WATCH: &str = "/grpc.health.v1.Health/Watch";
const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// A request for an unknown service.
const UNKNOWN: &[u8] = b"\x0a\x04none";

/// The streams of a connection share a window of 4 MiB, and each has a window of 64 KiB. If 64 streams are not read, a few bytes of the shared window
/// remain; one more stream uses these up.
#[tokio::test]
async fn what_watchers_of_health_send_beside_their_request_keeps_no_other_stream_of_their_connection_from_being_read() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut upstream = None;
    for watched in [&b""[..], UNKNOWN] {
        let connection = Connection::open(relay.address).await;
        let mut watchers = Vec::new();
        for _ in 0..65 {
            let mut watcher = connection.call(WATCH, watched).await;
            assert!(watcher.next().await.is_some(), "the first status");
            // The start of a message that is never completed.
            let mut rest = vec![0; (64 << 10) - 1 - 5 - watched.len()];
            rest[..5].copy_from_slice(&[0, 0, 16, 0, 0]);
            watcher.out.send_data(rest.into(), false).unwrap();
            watchers.push(watcher);
        }
        let request = DeltaDiscoveryRequest { node: client::node("web"), type_url: CDS.into(), ..Default::default() };
        let mut ads = connection.call(ADS, &prost::Message::encode_to_vec(&request)).await;
        if upstream.is_none() {
            let stream = plane.stream().await;
            say(&stream, "1", &TWO, &TWO, &[]);
            upstream = Some(stream);
        }
        assert!(ads.next().await.is_some(), "the clusters");
        drop(watchers);
    }
}

#[tokio::test]
async fn a_watcher_that_sends_a_second_request_is_ended_and_one_that_half_closes_is_not() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    until("it is ready", async || probe(relay.admin, "/ready").await.0 == 200).await; // no change follows for the watchers
    let connection = Connection::open(relay.address).await;
    for watched in [&b""[..], UNKNOWN] {
        let mut quiet = connection.call(WATCH, watched).await;
        assert!(quiet.next().await.is_some());
        quiet.out.send_data(bytes::Bytes::new(), true).unwrap();
        let mut again = connection.call(WATCH, watched).await;
        assert!(again.next().await.is_some());
        again.out.send_data(framed(b""), false).unwrap();
        assert_eq!(again.status().await, Code::InvalidArgument);
        assert!(timeout(Duration::from_millis(100), quiet.answer.data()).await.is_err(), "it watches");
    }
}
