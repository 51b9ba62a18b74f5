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
    /// Held for a change: one is made at a time.
    turn: Mutex<()>,
    runtime: Option<Runtime>,
}

/// Streams are answered under this lock, so a change holds it neither while it encodes nor for other long work.
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

/// What a response has: the resources with these indexes.
type Content = (Variant, Vec<usize>);

/// A response that is not encoded yet.
struct Draft {
    resources: Resources,
    variant: Variant,
    /// The resources, each with the round in which it last changed.
    sent: Vec<(usize, u32)>,
    number: u64,
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
        Ok(Self { address, state, turn: Mutex::new(()), runtime: Some(runtime) })
    }

    /// Changes these resources. Calls `start` with the time at which the encoded responses are handed to the connections.
    pub fn change(&self, changed: impl IntoIterator<Item = usize>, round: u32, start: impl FnOnce(Instant)) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let changed: BTreeSet<usize> = changed.into_iter().collect();
        let drafts = lock(&self.state).drafts(&changed, round);
        let made = drafts.into_iter().map(|(content, draft)| (content, draft.encode())).collect();
        lock(&self.state).push(&changed, round, made, start);
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
    /// Returns the responses that a change of these resources needs.
    fn drafts(&mut self, changed: &BTreeSet<usize>, round: u32) -> BTreeMap<Content, Draft> {
        self.streams.retain(|stream| !stream.out.is_closed());
        let due = self.streams.iter().filter_map(|stream| stream.due(changed, &self.resources));
        let contents: BTreeSet<Content> = due.collect();
        let draft_of = |content: Content| {
            let mut draft = self.draft(content.0, &content.1);
            let news = draft.sent.iter_mut().filter(|(index, _)| changed.contains(index));
            news.for_each(|(_, changed_in)| *changed_in = round);
            (content, draft)
        };
        contents.into_iter().map(draft_of).collect()
    }

    /// Makes the change, and sends its responses. What streams need that have asked since the drafts is encoded now.
    fn push(
        &mut self,
        changed: &BTreeSet<usize>,
        round: u32,
        mut made: BTreeMap<Content, Bytes>,
        start: impl FnOnce(Instant),
    ) {
        for index in changed {
            self.rounds[*index] = round;
        }
        let mut due = Vec::new();
        for index in 0..self.streams.len() {
            let stream = &self.streams[index];
            let Some(content) = stream.due(changed, &self.resources) else { continue };
            let out = stream.out.clone();
            let message = match made.get(&content) {
                Some(message) => message.clone(),
                None => {
                    let message = self.draft(content.0, &content.1).encode();
                    made.insert(content, message.clone());
                    message
                }
            };
            due.push((out, message));
        }
        start(Instant::now());
        due.into_iter().for_each(|(out, message)| drop(out.send(message))); // the stream may have ended
    }

    fn draft(&mut self, variant: Variant, sent: &[usize]) -> Draft {
        self.responses += 1;
        let sent = sent.iter().map(|index| (*index, self.rounds[*index])).collect();
        Draft { resources: self.resources, variant, sent, number: self.responses }
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
        let message = self.draft(self.streams[stream].variant, due).encode();
        let _ = self.streams[stream].out.send(message); // the stream may have ended
    }
}

impl Draft {
    fn encode(self) -> Bytes {
        let number = self.number.to_string();
        framed(&response(&self.resources, self.variant, self.sent, &number, &number)).into()
    }
}

impl Subscriber {
    /// Returns what this stream is sent if these resources change; `None` if it sees none of them.
    fn due(&self, changed: &BTreeSet<usize>, resources: &Resources) -> Option<Content> {
        let seen: Vec<usize> = changed.iter().copied().filter(|index| self.sees(*index)).collect();
        if seen.is_empty() {
            return None;
        }
        let all = self.variant == Variant::Sotw && resources.kind == Kind::Clusters;
        Some((self.variant, if all { self.visible(resources.count) } else { seen }))
    }

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

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::UnboundedReceiver;
    use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};

    use super::super::resources::round_of;
    use super::*;

    fn state() -> State {
        let resources = Resources { kind: Kind::Endpoints, count: 3, size: 100 };
        State { resources, rounds: vec![0; 3], streams: Vec::new(), responses: 0, requests: 0 }
    }

    /// Adds a stream that has subscribed to these resources.
    fn join(state: &mut State, variant: Variant, names: &[usize]) -> UnboundedReceiver<Bytes> {
        let (out, queue) = unbounded_channel();
        let names = names.iter().copied().collect();
        state.streams.push(Subscriber { variant, out, has_asked: true, wildcard: false, names });
        queue
    }

    /// Returns the resources of the next message, each with its round.
    fn next_of(variant: Variant, queue: &mut UnboundedReceiver<Bytes>) -> Vec<(String, u32)> {
        let message = queue.try_recv().unwrap().slice(5..);
        let read = |body: &[u8]| (String::from_utf8_lossy(&body[2..17]).into_owned(), round_of(body).unwrap());
        match variant {
            Variant::Sotw => {
                let resources = DiscoveryResponse::decode(message).unwrap().resources;
                resources.iter().map(|of| read(&of.value)).collect()
            }
            Variant::Delta => {
                let resources = DeltaDiscoveryResponse::decode(message).unwrap().resources;
                resources.iter().map(|of| read(&of.resource.as_ref().unwrap().value)).collect()
            }
        }
    }

    #[test]
    fn a_stream_that_asks_while_a_change_is_encoded_is_sent_the_change_too() {
        let mut state = state();
        for variant in [Variant::Sotw, Variant::Delta] {
            let round = state.rounds[0] + 1;
            let mut first = join(&mut state, variant, &[0, 1]);
            let changed = BTreeSet::from([0, 2]);
            let drafts = state.drafts(&changed, round);
            let mut late = join(&mut state, variant, &[1, 2]);
            let mut other = join(&mut state, variant, &[1]);
            let made = drafts.into_iter().map(|(content, draft)| (content, draft.encode())).collect();
            state.push(&changed, round, made, |_| ());
            assert_eq!(next_of(variant, &mut first), [("resource-000000".to_owned(), round)]);
            assert_eq!(next_of(variant, &mut late), [("resource-000002".to_owned(), round)]);
            assert!(other.try_recv().is_err() && first.try_recv().is_err() && late.try_recv().is_err());
            assert_eq!(state.rounds, [round, 0, round]);
        }
    }

    #[test]
    fn a_response_has_the_round_of_the_change_only_where_it_changes_something() {
        let mut state = State { resources: Resources { kind: Kind::Clusters, count: 3, size: 100 }, ..state() };
        let _all = join(&mut state, Variant::Sotw, &[0, 1, 2]);
        let drafts = state.drafts(&BTreeSet::from([1]), 4);
        let sent: Vec<_> = drafts.into_values().map(|draft| draft.sent).collect();
        assert_eq!(sent, [[(0, 0), (1, 4), (2, 0)]]);
        assert_eq!(state.rounds, [0; 3], "until it is sent");
    }
}
