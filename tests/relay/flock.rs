//! Many clients at once, each on a connection of its own, which count the DATA frames that arrive.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::Request as Call;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse};
use weir_core::protocol::session::Variant;

use crate::client::{PATIENCE, node};

/// Clients that ACK everything.
pub struct Flock {
    size: usize,
    counts: Arc<Counts>,
    _clients: JoinSet<()>,
}

#[derive(Default)]
struct Counts {
    frames: AtomicUsize,
    messages: AtomicUsize,
    resources: AtomicUsize,
    removed: AtomicUsize,
    ended: AtomicUsize,
}

impl Flock {
    /// Connects `each` delta clients and as many SotW clients, and waits until each has what it requested.
    pub async fn gather(relay: SocketAddr, each: usize, url: &'static str, names: &[&str]) -> Self {
        let sockets = (0..2 * each).map(|_| TcpStream::connect(relay));
        let flock = Self::over(futures_util::future::try_join_all(sockets).await.unwrap(), url, names);
        flock.has(names.len()).await;
        flock
    }

    /// Starts clients on these connections, delta and SotW in turn. No names mean a wildcard.
    pub fn over(sockets: Vec<TcpStream>, url: &'static str, names: &[&str]) -> Self {
        let counts = Arc::new(Counts::default());
        let (size, mut clients) = (sockets.len(), JoinSet::new());
        for (number, socket) in sockets.into_iter().enumerate() {
            let variant = [Variant::Delta, Variant::Sotw][number % 2];
            let names: Vec<_> = names.iter().map(ToString::to_string).collect();
            let first = asking(variant, url, &names, true, "", "");
            clients.spawn(client(socket, variant, url, names, first, counts.clone()));
        }
        Self { size, counts, _clients: clients }
    }

    /// Starts delta clients that subscribe to everything of a type, each with a first message of its own.
    pub fn beginning_with(sockets: Vec<TcpStream>, url: &'static str, mut first: impl FnMut(usize) -> Vec<u8>) -> Self {
        let counts = Arc::new(Counts::default());
        let (size, mut clients) = (sockets.len(), JoinSet::new());
        for (number, socket) in sockets.into_iter().enumerate() {
            let first = framed(&first(number));
            clients.spawn(client(socket, Variant::Delta, url, Vec::new(), first, counts.clone()));
        }
        Self { size, counts, _clients: clients }
    }

    /// Returns how many resources and removals all clients have received.
    pub fn received(&self) -> (usize, usize) {
        (self.counts.resources.load(Ordering::SeqCst), self.counts.removed.load(Ordering::SeqCst))
    }

    /// Waits until each client has received this many resources.
    pub async fn has(&self, each: usize) {
        let (has, due) = (|| self.counts.resources.load(Ordering::SeqCst), self.size * each);
        let all = async {
            while has() < due {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, all).await.is_ok(), "sent {} of {due} resources", has());
    }

    /// Returns how many DATA frames and messages all clients have received.
    pub fn heard(&self) -> (usize, usize) {
        assert_eq!(self.counts.ended.load(Ordering::SeqCst), 0, "streams have ended");
        (self.counts.frames.load(Ordering::SeqCst), self.counts.messages.load(Ordering::SeqCst))
    }

    /// Waits until each client has received one message since `before`, and checks that nothing else has arrived.
    pub async fn hears_once_since(&self, before: (usize, usize)) {
        let all = async {
            while self.heard().1 < before.1 + self.size {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let late = tokio::time::timeout(PATIENCE, all).await.is_err();
        assert!(!late, "{} of {} have heard something", self.heard().1 - before.1, self.size);
        assert_eq!(self.heard().1 - before.1, self.size, "one message for each");
    }
}

type Body = StreamBody<Pin<Box<dyn tokio_stream::Stream<Item = Result<Frame<Bytes>, hyper::Error>> + Send>>>;

async fn client(
    socket: TcpStream,
    variant: Variant,
    url: &'static str,
    names: Vec<String>,
    first: Bytes,
    counts: Arc<Counts>,
) {
    let (mut sender, connection) =
        http2::handshake::<_, _, Body>(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let (requests, out) = mpsc::unbounded_channel();
    let out: Pin<Box<dyn tokio_stream::Stream<Item = _> + Send>> =
        Box::pin(UnboundedReceiverStream::new(out).map(|bytes| Ok(Frame::data(bytes))));
    let method = if variant == Variant::Sotw { "StreamAggregatedResources" } else { "DeltaAggregatedResources" };
    let path = format!("http://relay/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}");
    let call = Call::post(path).header("content-type", "application/grpc");
    requests.send(first).unwrap();
    let response = sender.send_request(call.body(StreamBody::new(out)).unwrap()).await.unwrap();
    let (mut body, mut buffer) = (response.into_body(), BytesMut::new());
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(data) = frame.into_data() else { break };
        counts.frames.fetch_add(1, Ordering::SeqCst);
        buffer.extend_from_slice(&data);
        while let Some(message) = unframed(&mut buffer) {
            let (resources, nonce, version) = match variant {
                Variant::Sotw => {
                    let response = DiscoveryResponse::decode(message).unwrap();
                    (response.resources.len(), response.nonce, response.version_info)
                }
                Variant::Delta => {
                    let response = DeltaDiscoveryResponse::decode(message).unwrap();
                    counts.removed.fetch_add(response.removed_resources.len(), Ordering::SeqCst);
                    (response.resources.len(), response.nonce, String::new())
                }
            };
            requests.send(asking(variant, url, &names, false, &nonce, &version)).unwrap();
            counts.messages.fetch_add(1, Ordering::SeqCst);
            counts.resources.fetch_add(resources, Ordering::SeqCst);
        }
    }
    counts.ended.fetch_add(1, Ordering::SeqCst);
}

/// Returns the first request, or an ACK.
fn asking(variant: Variant, url: &str, names: &[String], first: bool, nonce: &str, version: &str) -> Bytes {
    let node = first.then(|| node("web")).flatten();
    let (type_url, response_nonce) = (url.to_owned(), nonce.to_owned());
    let message = match variant {
        Variant::Sotw => {
            let (resource_names, version_info) = (names.to_vec(), version.to_owned());
            let request =
                DiscoveryRequest { node, type_url, resource_names, version_info, response_nonce, ..Default::default() };
            request.encode_to_vec()
        }
        Variant::Delta => {
            let resource_names_subscribe = if first { names.to_vec() } else { Vec::new() };
            let request = DeltaDiscoveryRequest {
                node,
                type_url,
                resource_names_subscribe,
                response_nonce,
                ..Default::default()
            };
            request.encode_to_vec()
        }
    };
    framed(&message)
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.extend_from_slice(message);
    frame.freeze()
}

fn unframed(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().unwrap()) as usize;
    (buffer.len() >= 5 + length).then(|| buffer.split_to(5 + length).freeze().slice(5..))
}
