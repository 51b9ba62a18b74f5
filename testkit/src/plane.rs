//! A scripted control plane: it passes each stream of the relay to the test, as a pair of requests and responses.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use http::{Request as Call, Response as Reply};
use http_body_util::{BodyExt, Either, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest};
use weir_core::proto::node::Node;
use weir_core::proto::{Request, Response};
use weir_core::protocol::session::Variant;
use weir_core::protocol::set_mark::RELAY_HEADER;
use weir_core::xds::LOADS_PATH;

use crate::address::{listen_at, own_address};
use crate::gzip;
use crate::last_errors::errors_of;
use crate::load_plane::{self, LoadStream};
use crate::wait::PATIENCE;

/// Names with this prefix ask where a set ends.
pub const END_OF_SET: &str = "weir.end-of-set/";

pub struct Plane {
    pub address: SocketAddr,
    pub streams: mpsc::UnboundedReceiver<Stream>,
    pub loads: mpsc::UnboundedReceiver<LoadStream>,
    /// All calls that were received so far.
    pub calls: Calls,
    server: JoinHandle<()>,
    drains: Drains,
}

pub type Calls = Arc<Mutex<Vec<SeenCall>>>;

/// A call of any method.
#[derive(Debug, Clone)]
pub struct SeenCall {
    pub path: String,
    pub headers: http::HeaderMap,
    /// The node cluster in its first request.
    pub cluster: Option<String>,
}

/// Notifies connections to announce their end. The semaphore counts those that have.
type Drains = Arc<(Notify, Semaphore)>;

/// The served variants, the status for other calls, and the encoding that responses state.
#[derive(Clone, Copy)]
struct Speaks {
    variants: &'static [Variant],
    nack: u16,
    encoding: Option<&'static str>,
    is_relay: bool,
    /// Decides by the headers of a call whether it is accepted.
    judge: Option<fn(&http::HeaderMap) -> bool>,
}

const UNIMPLEMENTED: u16 = 12;
const UNAUTHENTICATED: u16 = 16;

pub struct Stream {
    pub variant: Variant,
    pub requests: mpsc::UnboundedReceiver<Request>,
    pub responses: mpsc::UnboundedSender<Bytes>,
    pub headers: http::HeaderMap,
    /// The address from which the connection comes.
    pub from: SocketAddr,
}

impl Plane {
    pub async fn start(speaks: &'static [Variant]) -> Self {
        Self::start_at(own_address(), speaks).await
    }

    pub async fn start_at(address: SocketAddr, speaks: &'static [Variant]) -> Self {
        Self::listen(
            address,
            None,
            Speaks { variants: speaks, nack: UNIMPLEMENTED, encoding: None, is_relay: false, judge: None },
        )
        .await
    }

    /// Starts a control plane that identifies itself as a relay.
    pub async fn relay_at(address: SocketAddr, speaks: &'static [Variant]) -> Self {
        Self::listen(
            address,
            None,
            Speaks { variants: speaks, nack: UNIMPLEMENTED, encoding: None, is_relay: true, judge: None },
        )
        .await
    }

    /// Starts a control plane that states this encoding in its responses. The test decides which messages are encoded.
    pub async fn compressing(speaks: &'static [Variant], encoding: Option<&'static str>) -> Self {
        Self::listen(
            own_address(),
            None,
            Speaks { variants: speaks, nack: UNIMPLEMENTED, encoding, is_relay: false, judge: None },
        )
        .await
    }

    /// Starts a control plane that ends every stream with this status, before any response.
    pub async fn refusing_at(address: SocketAddr, status: u16) -> Self {
        Self::listen(
            address,
            None,
            Speaks { variants: &[], nack: status, encoding: None, is_relay: false, judge: None },
        )
        .await
    }

    /// Starts a control plane that accepts or rejects calls of any method by their headers.
    pub async fn judging(speaks: &'static [Variant], judge: fn(&http::HeaderMap) -> bool) -> Self {
        let judge = Some(judge);
        let speaks = Speaks { variants: speaks, nack: UNIMPLEMENTED, encoding: None, is_relay: false, judge };
        Self::listen(own_address(), None, speaks).await
    }

    pub async fn start_with_tls(tls: rustls::ServerConfig) -> Self {
        let tls = TlsAcceptor::from(Arc::new(tls));
        let speaks = Speaks {
            variants: &[Variant::Sotw, Variant::Delta],
            nack: UNIMPLEMENTED,
            encoding: None,
            is_relay: false,
            judge: None,
        };
        Self::listen("127.0.0.1:0".parse().unwrap(), Some(tls), speaks).await
    }

    async fn listen(address: SocketAddr, tls: Option<TlsAcceptor>, speaks: Speaks) -> Self {
        let listener = listen_at(address).await;
        let address = listener.local_addr().unwrap();
        let (accepted, streams) = mpsc::unbounded_channel();
        let (of_loads, loads) = mpsc::unbounded_channel();
        let drains: Drains = Arc::new((Notify::new(), Semaphore::new(0)));
        let calls = Calls::default();
        let seen = Arc::new((accepted, of_loads, calls.clone()));
        let server = tokio::spawn(serve(listener, tls, seen, speaks, drains.clone()));
        Self { address, streams, loads, calls, server, drains }
    }

    pub async fn stream(&mut self) -> Stream {
        match tokio::time::timeout(PATIENCE, self.streams.recv()).await {
            Ok(stream) => stream.unwrap(),
            Err(_) => panic!("the relay opens no stream: {}", errors_of(self.address).await),
        }
    }

    /// Announces on every connection that it accepts no more streams. Returns once the announcements are sent.
    pub async fn drain(&self) {
        self.drains.0.notify_waiters();
        tokio::time::timeout(PATIENCE, self.drains.1.acquire()).await.expect("no connection").unwrap().forget();
    }

    /// Closes the listener and every connection.
    pub async fn kill(self) -> SocketAddr {
        self.server.abort();
        let _ = self.server.await;
        self.address
    }
}

impl Stream {
    pub async fn request(&mut self) -> Request {
        let request = tokio::time::timeout(PATIENCE, self.requests.recv()).await.expect("the relay asks for nothing");
        request.expect("the relay ended the stream")
    }

    /// Waits for the next request that asks for the end of a set, and answers that nothing is new. Returns the type of the set.
    pub async fn answer_for_end(&mut self) -> String {
        loop {
            let Request::Delta(request) = self.request().await else { panic!("SotW sets have their end") };
            let mut stated = request.initial_resource_versions.into_keys();
            if let Some(name) = stated.find(|name| name.starts_with(END_OF_SET)) {
                let (nonce, removed_resources) = ("end".into(), vec![name]);
                let type_url = request.type_url.clone();
                let answer = DeltaDiscoveryResponse { type_url, nonce, removed_resources, ..Default::default() };
                self.respond(&Response::Delta(answer));
                return request.type_url;
            }
        }
    }

    pub fn respond(&self, response: &Response) {
        let _ = self.responses.send(encoded(response)); // the relay may have disconnected
    }

    /// Ends the stream with a status.
    pub fn end_with(&self, status: u8) {
        self.end_quoting(status, "no such type");
    }

    /// Ends the stream with a status and its message.
    pub fn end_quoting(&self, status: u8, message: &str) {
        let _ = self.responses.send([&[END, status], message.as_bytes()].concat().into()); // likewise
    }

    pub fn respond_compressed(&self, response: &Response) {
        let _ = self.responses.send(gzip::framed(1, &gzip::gzip(&encoded(response)[5..])).into()); // likewise
    }
}

async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    accepted: Arc<Accepted>,
    speaks: Speaks,
    drains: Drains,
) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (socket, from) = listener.accept().await.unwrap();
        let (tls, accepted, drains) = (tls.clone(), accepted.clone(), drains.clone());
        connections.spawn(async move {
            let service = service_fn(move |call| {
                let reply = open(call, from, &accepted, speaks);
                async move { Ok::<_, Infallible>(reply) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            match tls {
                None => {
                    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
                    tokio::select! {
                        _ = connection.as_mut() => return,
                        () = drains.0.notified() => connection.as_mut().graceful_shutdown(),
                    }
                    drains.1.add_permits(1);
                    let _ = connection.await;
                }
                Some(tls) => {
                    // If the handshake fails, the relay gets the reason.
                    if let Ok(socket) = tls.accept(socket).await {
                        let _ = builder.serve_connection(TokioIo::new(socket), service).await;
                    }
                }
            }
        });
    }
}

/// The channels by which streams of discovery and of loads reach the test, and all calls.
type Accepted = (mpsc::UnboundedSender<Stream>, mpsc::UnboundedSender<LoadStream>, Calls);

type Body = Either<
    StreamBody<std::pin::Pin<Box<dyn tokio_stream::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>>,
    Empty<Bytes>,
>;

fn open(call: Call<Incoming>, from: SocketAddr, (accepted, of_loads, calls): &Accepted, speaks: Speaks) -> Reply<Body> {
    let at = note(calls, &call);
    let grpc = || Reply::builder().header("content-type", "application/grpc");
    if speaks.judge.is_some_and(|takes| !takes(call.headers())) {
        return grpc().header("grpc-status", UNAUTHENTICATED).body(Either::Right(Empty::new())).unwrap();
    }
    if call.uri().path() == LOADS_PATH {
        return named(load_plane::open(call, of_loads), speaks).map(Either::Left);
    }
    let variant = match call.uri().path().rsplit('/').next() {
        Some("StreamAggregatedResources") => Some(Variant::Sotw),
        Some("DeltaAggregatedResources") => Some(Variant::Delta),
        _ => None,
    };
    let Some(variant) = variant.filter(|variant| speaks.variants.contains(variant)) else {
        return grpc().header("grpc-status", speaks.nack).body(Either::Right(Empty::new())).unwrap();
    };
    let (responses, out) = mpsc::unbounded_channel();
    let (seen, requests) = mpsc::unbounded_channel();
    let (head, body) = call.into_parts();
    accepted.send(Stream { variant, requests, responses, headers: head.headers, from }).ok();
    tokio::spawn(read(body, variant, seen, (calls.clone(), at)));
    let out: std::pin::Pin<Box<dyn tokio_stream::Stream<Item = _> + Send>> =
        Box::pin(UnboundedReceiverStream::new(out).map(|bytes| Ok(frame(bytes))));
    named(grpc().body(Either::Left(StreamBody::new(out))).unwrap(), speaks)
}

/// Returns a frame with a message, or with the status that ends the stream.
fn frame(bytes: Bytes) -> Frame<Bytes> {
    let [END, status, message @ ..] = &bytes[..] else { return Frame::data(bytes) };
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", u16::from(*status).into());
    trailers.insert("grpc-message", http::HeaderValue::from_bytes(message).unwrap());
    Frame::trailers(trailers)
}

const END: u8 = 0xff;

/// Adds the headers that state the encoding of a response, and identify a relay.
fn named<B>(mut reply: Reply<B>, speaks: Speaks) -> Reply<B> {
    if let Some(encoding) = speaks.encoding {
        reply.headers_mut().insert("grpc-encoding", http::HeaderValue::from_static(encoding));
    }
    if speaks.is_relay {
        reply.headers_mut().insert(RELAY_HEADER, http::HeaderValue::from_static("1"));
    }
    reply
}

/// Records a call, and returns its index.
fn note(calls: &Calls, call: &Call<Incoming>) -> usize {
    let mut calls = calls.lock().unwrap();
    let (path, headers) = (call.uri().path().to_owned(), call.headers().clone());
    calls.push(SeenCall { path, headers, cluster: None });
    calls.len() - 1
}

async fn read(mut body: Incoming, variant: Variant, seen: mpsc::UnboundedSender<Request>, (calls, at): (Calls, usize)) {
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while buffer.len() >= 5 {
            let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
            if buffer.len() < 5 + length {
                break;
            }
            let message = buffer.split_to(5 + length).freeze().slice(5..);
            let request = match variant {
                Variant::Sotw => Request::Sotw(DiscoveryRequest::decode(message).unwrap()),
                Variant::Delta => Request::Delta(DeltaDiscoveryRequest::decode(message).unwrap()),
            };
            if let Some(node) = request.node() {
                let cluster = Node::decode(&node[..]).unwrap_or_default().cluster;
                calls.lock().unwrap()[at].cluster.get_or_insert(cluster);
            }
            seen.send(request).ok();
        }
    }
}

pub fn encoded(response: &Response) -> Bytes {
    match response {
        Response::Sotw(response) => framed(&response.encode_to_vec()),
        Response::Delta(response) => framed(&response.encode_to_vec()),
    }
}

fn framed(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.extend_from_slice(message);
    frame.freeze()
}
