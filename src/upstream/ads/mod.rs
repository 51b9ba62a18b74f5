//! Upstream ADS streams over gRPC, each kept open by a task of its own.

mod codec;
mod first_answer;
mod frames;
mod life_call;
mod liveness;
mod methods;
mod shared;
mod stream;
mod trial;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{Backoff, BackoffTimes, Conclusion, Ending, VariantChoice};
use weir_core::xds::NamePattern;

use self::shared::{AttemptStage, Shared, Waited};
use self::stream::open_once;
use self::trial::try_types;
use super::connection_pool::{ConnectionPool, MoveTurn, Moves, ServedStream, StreamSlot};
use super::dial::{Dialer, Lookup};
use super::error_chain::{chain, with_causes, without_manual};
use super::own_headers::headers_for;
use super::server::{AdsServer, LifeTimes};
use super::wire_message::WireMessages;
use crate::random::random;
use crate::relay::{Connector, InUse, KeyHeaders, Link, LinkEvent, LinkReport, Redaction, TypeTrial};

/// Opens streams to one control plane, on connections that they share.
#[derive(Debug, Clone)]
pub struct AdsConnector {
    server: Arc<AdsServer>,
    /// Connections of views.
    pool: Arc<ConnectionPool>,
    /// Connections of load reports. Clients decide how much they report, and their reports must not delay views.
    load_pool: Arc<ConnectionPool>,
    /// State shared by all streams to the server.
    shared: Arc<Shared>,
    /// The same server with the credentials of some tenants. Each of these connectors has connections of its own: the credentials that opened a
    /// connection decide what may be shown on it.
    of_tenants: Arc<[(Vec<NamePattern>, AdsConnector)]>,
}

impl AdsConnector {
    /// Prepares connections to a server; none is opened before a stream is started.
    pub fn new(server: AdsServer) -> Self {
        Self::dialing_by(server, &Arc::default())
    }

    /// Like `new`, for tests, with these addresses of the name. `pace` is the time between look-ups, and between two moves.
    #[doc(hidden)]
    pub fn resolving(
        server: AdsServer,
        addresses: impl Fn() -> Vec<SocketAddr> + Send + Sync + 'static,
        pace: Duration,
    ) -> Self {
        struct Answering<F>(F);
        impl<F: Fn() -> Vec<SocketAddr> + Send + Sync> Lookup for Answering<F> {
            fn addresses(&self, _: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
                Ok((self.0)())
            }
        }
        Self::dialing_by(server, &Dialer::by(Answering(addresses), pace))
    }

    /// Like `new`, with the dialer of the process, which knows the state of addresses.
    pub(crate) fn dialing_by(server: AdsServer, dialer: &Arc<Dialer>) -> Self {
        let (moves, trials) = (Arc::new(Moves::new(dialer.pause())), Arc::new(Semaphore::new(1)));
        Self::taking_turns(server, dialer, (&moves, &trials))
    }

    /// Like `dialing_by`. The connectors of all tenants take turns in leaving connections and in trying types.
    fn taking_turns(server: AdsServer, dialer: &Arc<Dialer>, turns: (&Arc<Moves>, &Arc<Semaphore>)) -> Self {
        let (moves, trials) = turns;
        let shared = Arc::new(Shared::new(server.life, trials.clone()));
        let of_tenants = server.tenants.iter().map(|credentials| {
            (credentials.tenants.clone(), Self::taking_turns(server.with_credentials(credentials), dialer, turns))
        });
        let of_tenants = of_tenants.collect();
        let server = Arc::new(server);
        let pool = |moves| Arc::new(ConnectionPool::new(server.clone(), dialer.clone(), moves));
        // Load reports have no moves: a report on its way would be lost with its stream.
        Self { pool: pool(Some(moves.clone())), load_pool: pool(None), server, shared, of_tenants }
    }

    /// Returns the connector for a tenant: the one with its credentials, or this one.
    pub(super) fn of_tenant(&self, tenant: Option<&str>) -> &Self {
        self.place_of(tenant).map_or(self, |at| &self.of_tenants[at].1)
    }

    fn place_of(&self, tenant: Option<&str>) -> Option<usize> {
        let tenant = tenant?;
        self.of_tenants.iter().position(|(patterns, _)| patterns.iter().any(|pattern| pattern.matches(tenant)))
    }

    /// Returns all connectors to the server.
    fn with_tenants(&self) -> impl Iterator<Item = &Self> {
        self.of_tenants.iter().map(|(_, connector)| connector).chain([self])
    }

    /// Asks the server whether it could serve a client that comes now. Its connection is kept for `keep`, for the first stream. The server is shown
    /// the relay's credentials, and if these fail, those for a tenant, another one at each attempt. Without credentials of the relay, those of the
    /// tenant come first. Credentials that are refused, or have no file yet, do not hold up the others.
    pub(super) async fn first_answer(&self, attempt: usize, keep: Duration) -> Result<(), String> {
        first_answer::ask_in_turn(self, attempt, keep).await
    }

    /// Reserves a stream for load reports. Returns its slot with the channel and the metadata.
    pub(super) async fn connect_for_loads(&self, headers: &KeyHeaders) -> Result<Connected, Status> {
        self.connect_in(&self.load_pool, 0, headers).await
    }

    /// Reserves a stream for a view, on a connection with at least this number. Returns its slot with the channel and the metadata.
    async fn connect(&self, least_connection: u64, headers: &KeyHeaders) -> Result<Connected, Status> {
        self.connect_in(&self.pool, least_connection, headers).await
    }

    async fn connect_in(
        &self,
        pool: &Arc<ConnectionPool>,
        least_connection: u64,
        headers: &KeyHeaders,
    ) -> Result<Connected, Status> {
        let metadata = self.metadata_of(headers).await?;
        Ok(self.connected(pool.slot(least_connection).await?, metadata))
    }

    fn connected(&self, (slot, channel): (StreamSlot, Channel), metadata: MetadataMap) -> Connected {
        if !slot.is_shared() {
            self.shared.reached();
        }
        let slot = Arc::new(slot);
        Connected { served: ServedStream::new(slot.clone()), slot, channel, metadata }
    }

    /// Waits until the stream of a slot is to move. Returns its place on another connection with at least this number.
    async fn moved(&self, slot: &StreamSlot, least_connection: u64, headers: &KeyHeaders) -> Moved {
        loop {
            let turn = MoveTurn::of(slot).await;
            let connecting = async {
                let metadata = self.metadata_of(headers).await?;
                Ok::<_, Status>(self.connected(self.pool.slot_elsewhere(least_connection).await?, metadata))
            };
            match connecting.await {
                Ok(to) => return Moved { to, turn },
                Err(error) => {
                    let (server, error) = (self.server.name(), error.message());
                    tracing::info!(
                        server,
                        error,
                        "cannot replace a connection; its streams stay, and it is tried again later"
                    );
                    turn.stay();
                }
            }
        }
    }

    /// Returns the metadata of a stream that begins now, for a view that shows these headers.
    async fn metadata_of(&self, headers: &KeyHeaders) -> Result<MetadataMap, Status> {
        let mut metadata = self.metadata().await?.into_headers();
        if self.server.may_be_shown_headers() {
            headers.show_in(&mut metadata);
        }
        Ok(MetadataMap::from_headers(metadata))
    }

    /// Returns the metadata of a stream or call that begins now, without headers of clients.
    async fn metadata(&self) -> Result<MetadataMap, Status> {
        let headers = headers_for(&self.server).await;
        headers.map(MetadataMap::from_headers).map_err(|error| Status::new(error.code(), chain(&error)))
    }

    /// Keeps these headers of clients among the values that are removed from texts of the server, until the result is dropped.
    pub(super) fn keep(&self, headers: &KeyHeaders) -> InUse {
        headers.keep_in(&self.server.shown_values)
    }

    /// Returns what removes all shown values from the texts of a stream with these headers of clients.
    pub(super) fn redaction(&self, headers: &KeyHeaders) -> Redaction {
        headers.redaction(&self.server.shown_values)
    }

    /// Returns how waits between attempts grow for the server.
    pub(super) fn backoff(&self) -> BackoffTimes {
        self.server.backoff
    }

    /// Applies the server's message size limits. The codec of the call must read responses as `WireMessage`.
    pub(super) fn limited<T>(&self, channel: T) -> Grpc<WireMessages<T>> {
        let limit = self.message_bytes();
        let grpc = Grpc::new(WireMessages::new(channel, limit, self.server.accept_compression))
            .max_encoding_message_size(limit);
        grpc.max_decoding_message_size(limit.saturating_add(1)) // with the flag
    }

    /// Returns how many bytes a message may have.
    pub(super) fn message_bytes(&self) -> usize {
        self.server.message_bytes
    }

    /// Returns when liveness calls are made.
    fn life(&self) -> LifeTimes {
        self.server.life
    }

    fn shared(&self) -> &Shared {
        &self.shared
    }

    async fn keep_open(&self, link: Link) {
        let _in_use = self.keep(&link.headers);
        let mut choice = VariantChoice::new(link.variant, self.server.variant);
        let mut least_connection = 0;
        let mut retry = Retry::new(self);
        let mut may_be_early = link.follows_another;
        let mut moved = None;
        loop {
            let before = self.shared.reachability();
            let mut end = open_once(self, &link, choice.variant(), least_connection, moved.take(), may_be_early).await;
            moved = end.moved.take();
            if moved.is_some() {
                // The relay has ended the stream to move it. That is no evidence about the server.
                if end.is_answered() {
                    choice.ended(Ending::Answered);
                    retry.ended(end.stage, end.lived);
                }
                may_be_early = true;
                let reason = end.status.message().to_owned();
                let ended = LinkEvent::Ended { reason, answered: true, is_lost: false, status: None };
                for event in [LinkEvent::Moving, ended] {
                    if link.reports.send(LinkReport { id: link.id, event }).await.is_err() {
                        return; // the view task has ended
                    }
                }
                continue;
            }
            let ending = match &end {
                end if end.is_answered() => Ending::Answered,
                end if is_unspoken(&end.status) => Ending::Unspoken,
                end if end.is_sent_away => Ending::SentAway,
                _ => Ending::Failed,
            };
            // The server may not know yet that the stream before has ended. Such a failure is no evidence; the stream is tried again once.
            let is_early = std::mem::take(&mut may_be_early) && ending == Ending::Failed && end.may_be_early();
            let conclusion = if is_early { Conclusion::NONE } else { choice.ended(ending) };
            let Conclusion { is_there, goes_elsewhere, changes_variant } = conclusion;
            let is_of_connection =
                !(is_early || ending == Ending::Answered || changes_variant || end.refuses(&link.headers));
            if let Some(connection) = end.connection.filter(|_| is_of_connection) {
                least_connection = connection + 1; // a balancer may have routed this one to a server that is broken
            }
            let said = with_causes(without_manual(end.status.message().to_owned()), &end.status);
            let redaction = self.redaction(&link.headers);
            let reason = format!("{:?}: {}", end.status.code(), redaction.apply(said));
            // A status about the variant says nothing about types.
            let status = end.by_server(&redaction).filter(|_| !is_early && ending != Ending::Unspoken);
            let is_lost = !(end.is_server_leaving || is_early || goes_elsewhere || changes_variant);
            let event = LinkEvent::Ended { reason, answered: is_there, is_lost, status };
            if link.reports.send(LinkReport { id: link.id, event }).await.is_err() {
                return; // the view task has ended
            }
            if !is_early {
                self.shared.ended(end.stage);
            }
            retry.ended(end.stage, end.lived);
            if end.is_replaced(self.server.backoff) {
                tokio::time::sleep(REPLACED_SPREAD.mul_f64(random())).await;
            } else if !goes_elsewhere {
                retry.wait(before).await;
            }
        }
    }
}

/// What a stream needs to be opened.
pub(super) struct Connected {
    /// Kept for as long as a direction of the stream is open.
    pub(crate) slot: Arc<StreamSlot>,
    /// Kept until the stream ends.
    pub(crate) served: ServedStream,
    pub(crate) channel: Channel,
    pub(crate) metadata: MetadataMap,
}

/// The new place of a stream that moves, and its turn. The next stream moves when the turn is dropped.
pub(super) struct Moved {
    to: Connected,
    turn: MoveTurn,
}

impl Connector for AdsConnector {
    fn start(&self, link: Link) -> JoinHandle<()> {
        let this = self.of_tenant(link.tenant.as_deref()).clone();
        tokio::spawn(async move { this.keep_open(link).await })
    }

    fn try_types(&self, trial: TypeTrial) -> JoinHandle<()> {
        let this = self.of_tenant(trial.tenant.as_deref()).clone();
        tokio::spawn(async move {
            let end = try_types(&this, &trial).await;
            trial.report(end).await;
        })
    }

    fn describe(&self) -> String {
        self.server.name()
    }

    fn credentials(&self, tenant: Option<&str>) -> usize {
        self.place_of(tenant).map_or(0, |at| at + 1)
    }

    fn variant(&self) -> Option<Variant> {
        self.server.variant
    }

    fn reopenings(&self) -> Option<Arc<Semaphore>> {
        Some(self.shared.reopenings().clone())
    }

    fn member_turn(&self, now: Moment) -> Moment {
        self.shared.member_turn(now)
    }

    fn connections(&self) -> Option<usize> {
        Some(self.with_tenants().map(|this| this.pool.len() + this.load_pool.len()).sum())
    }

    fn unanswered_calls(&self) -> Option<u64> {
        Some(self.with_tenants().map(|this| this.shared.unanswered_calls()).sum())
    }

    fn unrouted_calls(&self) -> Option<String> {
        self.with_tenants().find_map(|this| this.shared.unrouted())
    }
}

/// When a stream is opened again.
struct Retry<'a> {
    shared: &'a Shared,
    backoff: Backoff,
    stage: AttemptStage,
    /// How long other streams cannot cut a wait short. It grows with each attempt that was made early and failed.
    least: Duration,
    unproductive: Backoff,
    waited: Waited,
}

impl<'a> Retry<'a> {
    fn new(connector: &'a AdsConnector) -> Self {
        let backoff = Backoff::new(connector.backoff());
        let (stage, least, waited) = (AttemptStage::Unreached, Duration::ZERO, Waited::Out);
        Self { shared: &connector.shared, backoff, stage, least, unproductive: backoff, waited }
    }

    fn ended(&mut self, stage: AttemptStage, lived: Duration) {
        self.stage = stage;
        self.backoff.ended(stage == AttemptStage::Answered, lived);
        if stage == AttemptStage::Answered {
            self.least = Duration::ZERO;
            self.unproductive.reset();
        } else if self.waited == Waited::Woken {
            self.least = self.unproductive.next(random());
        }
    }

    async fn wait(&mut self, before: shared::ReachabilityCounts) {
        let wait = self.backoff.next(random());
        self.waited = self.shared.wait(self.stage, before, wait, self.least).await;
    }
}

/// Whether a server reports that it does not support the variant. tonic uses the same code for an HTTP answer without a gRPC status. Such an answer
/// comes from a gateway and is no evidence about the server.
fn is_unspoken(status: &Status) -> bool {
    status.code() == Code::Unimplemented && !status.message().starts_with(NO_GRPC)
}

/// When a server has announced the end of a connection, its streams are opened again spread over this time.
const REPLACED_SPREAD: Duration = Duration::from_secs(1);
/// The start of tonic's message for an answer without a gRPC status.
const NO_GRPC: &str = "grpc-status header missing";
/// The start of tonic's message for a stream that ended without a status.
const NO_TRAILERS: &str = "protocol error: missing grpc-status";
/// The start of tonic's message for a stream that ended within a message.
const CUT: &str = "Unexpected EOF decoding stream";

#[cfg(test)]
mod tests;
