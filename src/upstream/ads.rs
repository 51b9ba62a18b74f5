//! Upstream ADS streams over gRPC, each kept open by a task of its own.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request as Call, Response as Answer, Status, Streaming};
use tonic_prost::ProstCodec;

use super::dial::Dial;
use super::{AdsServer, token};
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use crate::proto::{Request, Response};
use crate::protocol::session::Variant;
use crate::protocol::upstream::Backoff;
use crate::relay::{Connector, Link, LinkEvent, LinkId, LinkReport};

/// Opens streams to one control plane, over a connection of their own each: a peer's limit on streams is then never reached.
#[derive(Debug, Clone)]
pub struct AdsConnector {
    server: Arc<AdsServer>,
    endpoint: Endpoint,
}

impl AdsConnector {
    pub fn new(server: AdsServer) -> Self {
        let endpoint = Endpoint::from(server.uri.clone())
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        Self { server: Arc::new(server), endpoint }
    }

    /// A connection to the server, with the limits that hold for its messages, and what goes along with each stream.
    pub(super) async fn connect(&self) -> Result<(Grpc<Channel>, MetadataMap), Status> {
        // Never over plain text, whatever the configuration says.
        let tokens = if self.server.tls.is_some() { self.server.tokens.as_slice() } else { &[] };
        let metadata = token::metadata(tokens).await.map_err(|error| Status::new(error.code(), chain(&error)))?;
        let (limit, heard) = (self.server.connect_timeout, Arc::new(Notify::new()));
        let deadline = tokio::time::Instant::now() + limit;
        let dial = Dial { server: self.server.clone(), heard: heard.clone() };
        let channel = self.endpoint.connect_with_connector(dial).await;
        let grpc = Grpc::new(channel.map_err(|error| Status::unavailable(chain(&error)))?);
        tokio::time::timeout_at(deadline, heard.notified()).await.map_err(|_| {
            let (server, limit) = (self.server.name(), humantime::format_duration(limit));
            Status::unavailable(format!("{server} took the connection and said nothing on it within {limit}"))
        })?;
        let grpc = grpc.max_decoding_message_size(self.server.message_bytes);
        Ok((grpc.max_encoding_message_size(self.server.message_bytes), metadata))
    }
}

impl Connector for AdsConnector {
    fn start(&self, link: Link) -> JoinHandle<()> {
        let this = self.clone();
        tokio::spawn(async move { this.keep_open(link).await })
    }

    fn describe(&self) -> String {
        self.server.name()
    }

    fn variant(&self) -> Option<Variant> {
        self.server.variant
    }
}

/// How one opening of a stream came to its end.
struct End {
    answered: bool,
    status: Status,
}

impl AdsConnector {
    async fn keep_open(&self, link: Link) {
        let mut backoff = Backoff::default();
        let mut variant = link.variant.unwrap_or(Variant::Delta);
        let (mut refused_other, mut spoken, mut refusals) = (false, self.server.variant, 0);
        loop {
            let began = tokio::time::Instant::now();
            let end = self.open_once(&link, variant).await;
            if end.answered {
                spoken.get_or_insert(variant);
            }
            refusals = if !end.answered && is_unspoken(&end.status) { refusals + 1 } else { 0 };
            if refusals >= REFUSALS {
                spoken = self.server.variant; // it has become another server, it seems
            }
            if end.answered || began.elapsed() > LONG {
                backoff.reset();
            }
            let unspoken = !end.answered && is_unspoken(&end.status) && spoken.is_none();
            // A server that lacks one variant is there. One that lacks both is of no use (FB-32).
            let there = end.answered || unspoken && !refused_other;
            refused_other = unspoken;
            let said = format!("{:?}: {}", end.status.code(), end.status.message());
            let reason = with_causes(said, &end.status);
            let ended = LinkReport { id: link.id, event: LinkEvent::Ended { reason, answered: there } };
            if link.reports.send(ended).await.is_err() {
                return; // the owner is gone
            }
            if unspoken {
                variant = other(variant);
            }
            tokio::time::sleep(backoff.next(random())).await;
        }
    }

    async fn open_once(&self, link: &Link, variant: Variant) -> End {
        let (grpc, metadata) = match self.connect().await {
            Ok(connected) => connected,
            Err(status) => return End { answered: false, status },
        };
        match variant {
            Variant::Sotw => {
                let wire = Wire { path: SOTW_PATH, inner: sotw_request, wrap: Response::Sotw };
                run(grpc, link, variant, metadata, wire).await
            }
            Variant::Delta => {
                let wire = Wire { path: DELTA_PATH, inner: delta_request, wrap: Response::Delta };
                run(grpc, link, variant, metadata, wire).await
            }
        }
    }
}

/// What differs between the variants on the wire.
struct Wire<Q, R> {
    path: &'static str,
    inner: fn(Request) -> Option<Q>,
    wrap: fn(R) -> Response,
}

fn sotw_request(request: Request) -> Option<DiscoveryRequest> {
    match request {
        Request::Sotw(request) => Some(request),
        Request::Delta(_) => None,
    }
}

fn delta_request(request: Request) -> Option<DeltaDiscoveryRequest> {
    match request {
        Request::Delta(request) => Some(request),
        Request::Sotw(_) => None,
    }
}

async fn run<Q, R>(
    mut grpc: Grpc<Channel>,
    link: &Link,
    variant: Variant,
    metadata: MetadataMap,
    wire: Wire<Q, R>,
) -> End
where
    Q: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
{
    let gone = || End { answered: true, status: Status::cancelled("the owner is gone") };
    if let Err(error) = grpc.ready().await {
        return End { answered: false, status: Status::unavailable(chain(&error)) };
    }
    let (sender, receiver) = mpsc::channel(16);
    let life = Arc::new(Notify::new());
    let opened = LinkEvent::Opened { variant, requests: sender, life: life.clone() };
    // Told before the server has said anything: many servers send no headers until they have a first request.
    if link.reports.send(LinkReport { id: link.id, event: opened }).await.is_err() {
        return gone();
    }
    let alive = (link.id, link.reports.clone());
    let probe = probe(grpc.clone(), metadata.clone(), alive, life);
    let requests = ReceiverStream::new(receiver).filter_map(wire.inner);
    let mut call = Call::new(requests);
    *call.metadata_mut() = metadata;
    let path = PathAndQuery::from_static(wire.path);
    let codec: ProstCodec<Q, R> = ProstCodec::default();
    tokio::select! {
        end = listen(grpc.streaming(call, path, codec), link, wire.wrap) => end,
        never = probe => match never {},
    }
}

/// Many servers send nothing at all before they have something to say, and one that hangs sends nothing either. What tells
/// them apart is the answer to a call: of a method that does not exist, on a path that gateways route as they route ADS.
async fn probe(
    mut grpc: Grpc<Channel>,
    metadata: MetadataMap,
    (id, reports): (LinkId, mpsc::Sender<LinkReport>),
    life: Arc<Notify>,
) -> Infallible {
    loop {
        life.notified().await;
        if grpc.ready().await.is_ok() {
            let codec: ProstCodec<(), ()> = ProstCodec::default();
            let mut call = Call::new(());
            *call.metadata_mut() = metadata.clone();
            let answer = grpc.unary(call, PathAndQuery::from_static(LIFE_PATH), codec).await;
            // A status without a source is one that the server gave, unless it is what a proxy says in its place.
            let own = |status: Status| {
                status.source().is_none()
                    && status.code() != Code::Unavailable
                    && !status.message().starts_with(NO_GRPC)
            };
            if answer.is_ok() || answer.is_err_and(own) {
                let _ = reports.send(LinkReport { id, event: LinkEvent::Life }).await; // the owner may be gone
            }
        }
    }
}

async fn listen<R>(
    call: impl Future<Output = Result<Answer<Streaming<R>>, Status>>,
    link: &Link,
    wrap: fn(R) -> Response,
) -> End {
    let mut responses = match call.await {
        Ok(call) => call.into_inner(),
        Err(status) => return End { answered: false, status },
    };
    let gone = || End { answered: true, status: Status::cancelled("the owner is gone") };
    let mut answered = false;
    loop {
        match responses.message().await {
            Ok(Some(response)) => {
                answered = true;
                let event = LinkEvent::Response(Box::new(wrap(response)));
                if link.reports.send(LinkReport { id: link.id, event }).await.is_err() {
                    return gone();
                }
            }
            Ok(None) => return End { answered, status: Status::ok("the server ended the stream") },
            Err(status) => return End { answered, status },
        }
    }
}

/// Whether a server says that it does not speak the variant. An HTTP answer that is none of gRPC is taken for the same code, and
/// says nothing of the server: something before it had no way to it.
fn is_unspoken(status: &Status) -> bool {
    status.code() == Code::Unimplemented && !status.message().starts_with(NO_GRPC)
}

fn other(variant: Variant) -> Variant {
    match variant {
        Variant::Sotw => Variant::Delta,
        Variant::Delta => Variant::Sotw,
    }
}

/// Between 0 and 1. Jitter needs no better source than the seeds that hash maps get.
pub(super) fn random() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

/// An error with everything that caused it.
pub(super) fn chain(error: &dyn Error) -> String {
    with_causes(error.to_string(), error)
}

/// Some errors repeat their cause in their own words, which is not said twice.
fn with_causes(mut text: String, error: &dyn Error) -> String {
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

const SOTW_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// What gRPC clients do, and no more often (TRN-17).
const KEEPALIVE: Duration = Duration::from_secs(300);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
const WINDOW: u32 = 1 << 20;
const LIFE_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/WeirIsAnyoneThere";
/// A server that has answered in a variant may say so often in a row that it does not speak it before that is believed.
const REFUSALS: u32 = 5;
/// How tonic begins to speak of an answer without a gRPC status.
const NO_GRPC: &str = "grpc-status header missing";
/// A stream that stood for so long was no failed attempt, whatever was said on it: the longest wait between attempts.
const LONG: Duration = Duration::from_secs(120);
