//! A control plane whose responses are encoded in advance, so that sending them costs it almost nothing.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use weir_core::proto::Any;
use weir_core::proto::discovery::{DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::node::Node;

pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A listening control plane. It ends when this is dropped.
pub struct Plane {
    pub address: SocketAddr,
    feeds: Feeds,
    server: JoinHandle<()>,
}

/// The responses to the streams of one node cluster, and their requests.
#[derive(Clone)]
pub struct Feed {
    messages: mpsc::UnboundedSender<Bytes>,
    queue: Arc<Mutex<Option<mpsc::UnboundedReceiver<Bytes>>>>,
    requests: Arc<watch::Sender<usize>>,
}

type Feeds = Arc<Mutex<HashMap<String, Feed>>>;

impl Plane {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, feeds) = (listener.local_addr().unwrap(), Feeds::default());
        let server = tokio::spawn(serve(listener, feeds.clone()));
        Self { address, feeds, server }
    }

    /// Returns the only stream of a node cluster.
    pub fn feed(&self, cluster: &str) -> Feed {
        feed_of(&self.feeds, cluster)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Feed {
    pub fn send(&self, message: &Bytes) {
        self.messages.send(message.clone()).unwrap();
    }

    /// Waits until this many requests have arrived, ACKs included.
    pub async fn requests(&self, count: usize) {
        self.requests.subscribe().wait_for(|requests| *requests >= count).await.unwrap();
    }
}

fn feed_of(feeds: &Feeds, cluster: &str) -> Feed {
    let new = || {
        let (messages, queue) = mpsc::unbounded_channel();
        Feed { messages, queue: Arc::new(Mutex::new(Some(queue))), requests: Arc::new(watch::Sender::new(0)) }
    };
    feeds.lock().unwrap().entry(cluster.to_owned()).or_insert_with(new).clone()
}

async fn serve(listener: TcpListener, feeds: Feeds) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let feeds = feeds.clone();
        connections.spawn(async move {
            let service = service_fn(move |call| {
                let response = open(call, feeds.clone());
                async move { Ok::<_, Infallible>(response) }
            });
            let server = http2::Builder::new(TokioExecutor::new());
            let _ = server.serve_connection(TokioIo::new(socket), service).await; // the peer may close the connection
        });
    }
}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

fn open(call: Request<Incoming>, feeds: Feeds) -> Response<StreamBody<Frames>> {
    let (sender, messages) = mpsc::unbounded_channel();
    let is_stream = call.uri().path().ends_with("/StreamAggregatedResources");
    if is_stream {
        tokio::spawn(read(call.into_body(), feeds, sender));
    }
    let pieces = UnboundedReceiverStream::new(messages).map(|piece| Ok(Frame::data(piece)));
    let mut response = Response::new(StreamBody::new(Box::pin(pieces) as Frames));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    if !is_stream {
        const UNIMPLEMENTED: u16 = 12; // also the answer to liveness calls
        response.headers_mut().insert("grpc-status", UNIMPLEMENTED.into());
    }
    response
}

/// Reads requests, and forwards responses once the first request has identified the node.
async fn read(mut body: Incoming, feeds: Feeds, out: mpsc::UnboundedSender<Bytes>) {
    let (mut buffer, mut feed) = (BytesMut::new(), None);
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(message) = next_message(&mut buffer) {
            let feed = feed.get_or_insert_with(|| {
                let request = DiscoveryRequest::decode(message).unwrap();
                let feed = feed_of(&feeds, &Node::decode(request.node.unwrap()).unwrap().cluster);
                if let Some(mut queue) = feed.queue.lock().unwrap().take() {
                    let out = out.clone();
                    tokio::spawn(async move {
                        while let Some(message) = queue.recv().await {
                            if out.send(message).is_err() {
                                return;
                            }
                        }
                    });
                }
                feed
            });
            feed.requests.send_modify(|requests| *requests += 1);
        }
    }
}

fn next_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().unwrap()) as usize;
    (buffer.len() >= 5 + length).then(|| buffer.split_to(5 + length).freeze().slice(5..))
}

/// Returns a framed SotW response with clusters of this size. Their bodies differ by name, by index and by `content`.
pub fn clusters(count: usize, size: usize, content: impl Fn(usize) -> u64, version: &str) -> Bytes {
    let resources = (0..count).map(|number| cluster(&format!("cluster-{number:06}"), size, content(number)));
    let response = DiscoveryResponse {
        version_info: version.into(),
        resources: resources.collect(),
        type_url: CDS.into(),
        nonce: version.into(),
        ..Default::default()
    };
    let mut framed = BytesMut::with_capacity(5 + response.encoded_len());
    framed.put_u8(0);
    framed.put_u32(response.encoded_len() as u32);
    response.encode(&mut framed).unwrap();
    framed.freeze()
}

fn cluster(name: &str, size: usize, content: u64) -> Any {
    const NAME: u32 = 1;
    const ALTERNATIVE_NAME: u32 = 28;
    let mut body = Vec::with_capacity(size);
    prost::encoding::string::encode(NAME, &name.to_owned(), &mut body);
    let filler = format!("{name}:{content:016x}:").repeat(size / 16);
    let room = size - body.len() - 4; // tag and length of the field
    prost::encoding::string::encode(ALTERNATIVE_NAME, &filler[..room].to_owned(), &mut body);
    Any { type_url: CDS.into(), value: body.into() }
}
