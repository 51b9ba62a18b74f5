//! The control plane of a benchmark, with the resources of one type. It runs in the measuring process, on a thread of its own so that it does not
//! wait for the clients.
//!
//! A change is a round: some resources get the number of the round, and all streams that subscribe to them are sent them.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request as Call, Response as Reply};
use http_body_util::{BodyExt, Either, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::encode::{framed, response, version_of};
use super::{Kind, Resources};
use crate::link::{ADS_DELTA, ADS_SOTW};
use crate::wire::Variant;

/// Serves until this is dropped.
pub struct Origin {
    pub address: SocketAddr,
    state: Shared,
    runtime: Option<Runtime>,
}

type Shared = Arc<Mutex<State>>;

struct State {
    resources: Resources,
    /// The round in which each resource last changed.
    rounds: Vec<u32>,
    streams: Vec<Subscriber>,
    responses: u64,
    requests: u64,
}

/// A stream, and its subscription.
struct Subscriber {
    variant: Variant,
    out: UnboundedSender<Bytes>,
    has_asked: bool,
    wildcard: bool,
    names: BTreeSet<usize>,
}

impl Origin {
    pub async fn start(resources: Resources) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let rounds = vec![0; resources.count];
        let state = State { resources, rounds, streams: Vec::new(), responses: 0, requests: 0 };
        let state = Arc::new(Mutex::new(state));
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = listener.into_std()?;
        let serving = state.clone();
        runtime.spawn(async move {
            let Ok(listener) = TcpListener::from_std(listener) else { return };
            serve(listener, serving).await;
        });
        Ok(Self { address, state, runtime: Some(runtime) })
    }

    /// Changes these resources. Calls `start` with the time at which the encoded responses are handed to the connections.
    pub fn change(&self, changed: impl IntoIterator<Item = usize>, round: u32, start: impl FnOnce(Instant)) {
        let mut state = lock(&self.state);
        let changed: BTreeSet<usize> = changed.into_iter().collect();
        for index in &changed {
            state.rounds[*index] = round;
        }
        state.push(&changed, start);
    }

    /// Returns how many requests the control plane received, ACKs included.
    pub fn requests(&self) -> u64 {
        lock(&self.state).requests
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn push(&mut self, changed: &BTreeSet<usize>, start: impl FnOnce(Instant)) {
        self.streams.retain(|stream| !stream.out.is_closed());
        let mut made: BTreeMap<_, Bytes> = BTreeMap::new();
        let mut due = Vec::new();
        for index in 0..self.streams.len() {
            let stream = &self.streams[index];
            let seen: Vec<usize> = changed.iter().copied().filter(|index| stream.sees(*index)).collect();
            if seen.is_empty() {
                continue;
            }
            let variant = stream.variant;
            let all = variant == Variant::Sotw && self.resources.kind == Kind::Clusters;
            let sent = if all { stream.visible(self.resources.count) } else { seen };
            let out = stream.out.clone();
            let message = match made.get(&(variant == Variant::Sotw, sent.clone())) {
                Some(message) => message.clone(),
                None => {
                    let message = self.encode(variant, &sent);
                    made.insert((variant == Variant::Sotw, sent), message.clone());
                    message
                }
            };
            due.push((out, message));
        }
        start(Instant::now());
        due.into_iter().for_each(|(out, message)| drop(out.send(message))); // the stream may have ended
    }

    fn encode(&mut self, variant: Variant, sent: &[usize]) -> Bytes {
        self.responses += 1;
        let number = self.responses.to_string();
        let sent = sent.iter().map(|index| (*index, self.rounds[*index]));
        framed(&response(&self.resources, variant, sent, &number, &number)).into()
    }

    fn read_sotw(&mut self, stream: usize, request: &DiscoveryRequest) {
        let names = &request.resource_names;
        let wildcard =
            names.iter().any(|name| name == "*") || names.is_empty() && self.resources.kind == Kind::Clusters;
        let names: BTreeSet<_> = names.iter().filter_map(|name| self.resources.index(name)).collect();
        let subscriber = &mut self.streams[stream];
        let is_first = !std::mem::replace(&mut subscriber.has_asked, true);
        let news: Vec<usize> = names.difference(&subscriber.names).copied().collect();
        let joined = wildcard && !subscriber.wildcard;
        (subscriber.wildcard, subscriber.names) = (wildcard, names);
        let due = if joined || self.resources.kind == Kind::Clusters {
            subscriber.visible(self.resources.count)
        } else {
            news.clone()
        };
        if joined || !news.is_empty() || is_first {
            self.send(stream, &due);
        }
    }

    fn read_delta(&mut self, stream: usize, request: &DeltaDiscoveryRequest) {
        let (on, off) = (&request.resource_names_subscribe, &request.resource_names_unsubscribe);
        let stated = &request.initial_resource_versions;
        let added: BTreeSet<_> = on.iter().filter_map(|name| self.resources.index(name)).collect();
        let subscriber = &mut self.streams[stream];
        let is_first = !std::mem::replace(&mut subscriber.has_asked, true);
        let legacy = is_first && on.is_empty() && self.resources.kind == Kind::Clusters;
        let joined = legacy || on.iter().any(|name| name == "*");
        subscriber.wildcard = (subscriber.wildcard || joined) && !off.iter().any(|name| name == "*");
        subscriber.names.extend(&added);
        for name in off {
            self.resources.index(name).map(|index| subscriber.names.remove(&index));
        }
        let due = if joined { subscriber.visible(self.resources.count) } else { added.into_iter().collect() };
        let is_new = |index: &usize| stated.get(&self.resources.name(*index)) != Some(&version_of(self.rounds[*index]));
        let due: Vec<usize> = due.into_iter().filter(is_new).collect();
        if joined || !due.is_empty() {
            self.send(stream, &due);
        }
    }

    fn send(&mut self, stream: usize, due: &[usize]) {
        let message = self.encode(self.streams[stream].variant, due);
        let _ = self.streams[stream].out.send(message); // the stream may have ended
    }
}

impl Subscriber {
    fn sees(&self, index: usize) -> bool {
        self.wildcard || self.names.contains(&index)
    }

    fn visible(&self, count: usize) -> Vec<usize> {
        (0..count).filter(|index| self.sees(*index)).collect()
    }
}

async fn serve(listener: TcpListener, state: Shared) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true); // the peer may have disconnected
        let state = state.clone();
        connections.spawn(async move {
            let service = service_fn(move |call| {
                let reply = open(call, state.clone());
                async move { Ok::<_, Infallible>(reply) }
            });
            let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
type Body = Either<StreamBody<Frames>, Empty<Bytes>>;

fn open(call: Call<Incoming>, state: Shared) -> Reply<Body> {
    let variant = match call.uri().path() {
        ADS_SOTW => Variant::Sotw,
        ADS_DELTA => Variant::Delta,
        _ => {
            let mut reply = reply(Either::Right(Empty::new()));
            reply.headers_mut().extend(unimplemented());
            return reply;
        }
    };
    #[allow(clippy::disallowed_methods, reason = "responses of one benchmark")]
    let (out, queue) = unbounded_channel();
    tokio::spawn(read(call.into_body(), variant, state, out));
    let frames = UnboundedReceiverStream::new(queue).map(|message| Ok(Frame::data(message)));
    reply(Either::Left(StreamBody::new(Box::pin(frames))))
}

fn reply(body: Body) -> Reply<Body> {
    let mut reply = Reply::new(body);
    reply.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    reply
}

fn unimplemented() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("12"))])
}

async fn read(mut body: Incoming, variant: Variant, state: Shared, out: UnboundedSender<Bytes>) {
    let subscriber =
        Subscriber { variant, out: out.clone(), has_asked: false, wildcard: false, names: BTreeSet::new() };
    lock(&state).streams.push(subscriber);
    let mut buffer = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(message) = next_message(&mut buffer) {
            let mut state = lock(&state);
            state.requests += 1;
            let Some(stream) = state.streams.iter().position(|stream| stream.out.same_channel(&out)) else { return };
            match variant {
                Variant::Sotw => DiscoveryRequest::decode(message).map(|request| state.read_sotw(stream, &request)),
                Variant::Delta => {
                    DeltaDiscoveryRequest::decode(message).map(|request| state.read_delta(stream, &request))
                }
            }
            .unwrap_or_default(); // a server that sends invalid messages does not count as synced, which the benchmark reports
        }
    }
    lock(&state).streams.retain(|stream| !stream.out.same_channel(&out));
}

fn next_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?) as usize;
    (buffer.len() >= 5 + length).then(|| buffer.split_to(5 + length).freeze().slice(5..))
}
