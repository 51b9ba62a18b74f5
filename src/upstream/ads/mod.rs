//! Upstream ADS streams over gRPC, each kept open by a task of its own.

mod codec;
mod frames;
mod liveness;
mod shared;
mod stream;

use std::error::Error;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use self::shared::{Shared, Stage, Waited};
use super::dial::{Dial, FirstBytes, NothingRead};
use super::{AdsServer, token};
use crate::protocol::session::Variant;
use crate::protocol::upstream::{Backoff, BackoffTimes};
use crate::relay::{Connector, Link, LinkEvent, LinkReport};

/// Opens streams to one control plane. Each has its own connection, so that a peer's limit on streams is never reached.
#[derive(Debug, Clone)]
pub struct AdsConnector {
    server: Arc<AdsServer>,
    endpoint: Endpoint,
    /// State shared by all streams to the server.
    shared: Arc<Shared>,
}

impl AdsConnector {
    /// Prepares connections to a server; none is opened before a stream is started.
    pub fn new(server: AdsServer) -> Self {
        let mut endpoint = Endpoint::from(server.uri.clone())
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        if let Some(interval) = server.keepalive.interval {
            endpoint = endpoint
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(server.keepalive.timeout)
                .keep_alive_while_idle(true);
        }
        let shared = Arc::new(Shared::new(server.life));
        Self { server: Arc::new(server), endpoint, shared }
    }

    /// Returns a connection to the server and the metadata for each stream. The channel never reconnects: once the connection is
    /// lost, calls fail.
    pub(super) async fn connect(&self) -> Result<(Channel, MetadataMap), Status> {
        // Never over plain text, whatever the configuration contains.
        let tokens = if self.server.tls.is_some() { self.server.tokens.as_slice() } else { &[] };
        let metadata = token::metadata(tokens).await.map_err(|error| Status::new(error.code(), chain(&error)))?;
        let last_received = Arc::new(FirstBytes::default());
        let dial = Dial::new(self.server.clone(), last_received.clone());
        let channel = self.endpoint.connect_with_connector(dial).await;
        let channel = channel.map_err(|error| Status::unavailable(chain(&error)))?;
        let limit = self.server.first_words_timeout();
        let last_received =
            tokio::time::timeout(limit, last_received.wait()).await.unwrap_or(Err(NothingRead::Timeout { limit }));
        last_received.map_err(|reason| Status::unavailable(format!("{}: {reason}", self.server.name())))?;
        self.shared.reached();
        Ok((channel, metadata))
    }

    /// Returns how waits between attempts grow for the server.
    pub(super) fn backoff(&self) -> BackoffTimes {
        self.server.backoff
    }

    /// Applies the server's message size limits.
    pub(super) fn limited<T>(&self, channel: T) -> Grpc<T> {
        let limit = self.server.message_bytes;
        Grpc::new(channel).max_decoding_message_size(limit).max_encoding_message_size(limit)
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

    fn unanswered_calls(&self) -> Option<u64> {
        Some(self.shared.unanswered_calls())
    }
}

impl AdsConnector {
    async fn keep_open(&self, link: Link) {
        let mut variant = link.variant.unwrap_or(Variant::Delta);
        let (mut refused_other, mut spoken, mut refusals) = (false, self.server.variant, 0);
        let mut retry = Retry::new(self);
        loop {
            let before = self.shared.signs();
            let end = self.open_once(&link, variant).await;
            let answered = end.is_answered();
            if answered {
                spoken.get_or_insert(variant);
            }
            refusals = if !answered && is_unspoken(&end.status) { refusals + 1 } else { 0 };
            if refusals >= REFUSALS {
                spoken = self.server.variant; // the address now seems to lead to another server
            }
            let unspoken = !answered && is_unspoken(&end.status) && spoken.is_none();
            // A server that lacks one variant is reachable. A server that lacks both is of no use (FB-32).
            let there = answered || unspoken && !refused_other;
            refused_other = unspoken;
            let said = format!("{:?}: {}", end.status.code(), end.status.message());
            let reason = with_causes(said, &end.status);
            let ended = LinkReport { id: link.id, event: LinkEvent::Ended { reason, answered: there } };
            if link.reports.send(ended).await.is_err() {
                return; // the view task has ended
            }
            if unspoken {
                variant = other(variant);
            }
            self.shared.ended(end.stage);
            retry.ended(end.stage, end.lived);
            retry.wait(before).await;
        }
    }
}

/// When a stream is opened again.
struct Retry<'a> {
    shared: &'a Shared,
    backoff: Backoff,
    stage: Stage,
    /// How long a wait cannot be cut short by what other streams find. It grows each time an early attempt fails.
    least: Duration,
    unproductive: Backoff,
    waited: Waited,
}

impl<'a> Retry<'a> {
    fn new(connector: &'a AdsConnector) -> Self {
        let backoff = Backoff::new(connector.backoff());
        let (stage, least, waited) = (Stage::Unreached, Duration::ZERO, Waited::Out);
        Self { shared: &connector.shared, backoff, stage, least, unproductive: backoff, waited }
    }

    fn ended(&mut self, stage: Stage, lived: Duration) {
        self.stage = stage;
        self.backoff.ended(stage == Stage::Answered, lived);
        if stage == Stage::Answered {
            self.least = Duration::ZERO;
            self.unproductive.reset();
        } else if self.waited == Waited::Woken {
            self.least = self.unproductive.next(random());
        }
    }

    async fn wait(&mut self, before: shared::Signs) {
        let wait = self.backoff.next(random());
        self.waited = self.shared.wait(self.stage, before, wait, self.least).await;
    }
}

/// Returns whether a server reports that it does not support the variant. tonic maps an HTTP answer without a gRPC status to the
/// same code; such an answer comes from a gateway and is no evidence about the server.
fn is_unspoken(status: &Status) -> bool {
    status.code() == Code::Unimplemented && !status.message().starts_with(NO_GRPC)
}

fn other(variant: Variant) -> Variant {
    match variant {
        Variant::Sotw => Variant::Delta,
        Variant::Delta => Variant::Sotw,
    }
}

/// Returns a number between 0 and 1. The seeds of hash maps are random enough for jitter.
pub(super) fn random() -> f64 {
    RandomState::new().build_hasher().finish() as f64 / u64::MAX as f64
}

/// Formats an error with all its causes.
pub(super) fn chain(error: &dyn Error) -> String {
    with_causes(error.to_string(), error)
}

/// Some errors repeat their cause in their own text; such a cause is not added again.
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

const WINDOW: u32 = 1 << 20;
/// Rejections of the variant in a row before they are believed of a server that has answered in it.
const REFUSALS: u32 = 5;
/// The start of tonic's message for an answer without a gRPC status.
const NO_GRPC: &str = "grpc-status header missing";
