//! Load reports (LRS): the control plane that a client's reports go to, and whether they are passed on or summed.

mod member;
mod pool;
mod pools;
mod shares;
mod streams;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use weir_core::proto::loads::LoadStatsRequest;
use weir_core::protocol::loads::LoadLimits;
use weir_core::protocol::upstream::BackoffTimes;
use weir_core::xds::{Peer, SharingKey, wire};

use self::member::converse;
use self::pool::Pool;
use self::pools::{LoadClient, Membership, Pools};
pub(crate) use self::streams::LoadStreamLimits;
use self::streams::{LoadStreams, StreamRefusal};
use super::admission::AdmissionError;
use super::clock::Clock;
use super::key_headers::KeyHeaders;
use super::views::{ViewQuota, Views};
use crate::memory::costs;

/// What happens to the reports of clients (LRS-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadsMode {
    /// Clients get the status of a method that does not exist.
    Off,
    /// Opens an upstream stream for each client stream, and passes the messages on.
    PassThrough(LoadStreamLimits),
    /// Opens one upstream stream for each key, and reports the sums of its clients.
    Aggregate(LoadLimits),
}

/// One stream of load reports: the first message from downstream, the following ones, and the channel for responses. Both
/// directions are bounded, so that a slow reader slows its sender.
pub(crate) struct LoadLink {
    /// The tenant of the clients, if views have tenants.
    pub(crate) tenant: Option<Arc<str>>,
    /// The headers of the clients that the server is shown.
    pub(crate) headers: KeyHeaders,
    pub(crate) first: Bytes,
    pub(crate) reports: mpsc::Receiver<Bytes>,
    pub(crate) answers: mpsc::Sender<Bytes>,
}

/// The end of a stream of load reports, as a gRPC status.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadEnd {
    #[error("{0}")]
    Refused(AdmissionError),
    #[error("invalid request: expected a LoadStatsRequest")]
    Unreadable,
    /// The control plane is unreachable, or the stream to it broke.
    #[error("{0}")]
    Unreachable(String),
    /// Another control plane is active for the client, or the client's node has another key.
    #[error("{0}")]
    Moved(&'static str),
    /// There are too many streams or pools: there is no place for this stream, or another connection needs its place.
    #[error("{0}")]
    Exhausted(String),
    /// The status that the control plane sent.
    #[error("gRPC status {code}: {message}")]
    Said { code: i32, message: String },
}

/// Opens load report streams to control planes. The edge implements it.
pub(crate) trait LoadConnector: Send + Sync {
    /// Carries messages between a link and a server, by its place in the plan, until either side has ended. Dropping the future
    /// resets the stream.
    fn carry(&self, server: usize, link: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>>;

    /// Returns the backoff of a server, by its place in the plan.
    fn backoff(&self, server: usize) -> BackoffTimes;
}

pub(crate) struct Loads {
    mode: LoadsMode,
    views: Arc<Views>,
    connector: Arc<dyn LoadConnector>,
    clock: Clock,
    kept: Arc<Kept>,
    pools: Arc<Pools>,
    streams: Arc<LoadStreams>,
    /// Each stream that is served has one more of it.
    served: Arc<()>,
}

/// About how many bytes the pools of all configurations use together. Each pool compares this with the limit of its own configuration.
#[derive(Debug, Default)]
struct Kept(AtomicUsize);

impl Kept {
    fn free_of(&self, limit: usize) -> usize {
        limit.saturating_sub(self.0.load(Ordering::Relaxed))
    }

    fn replace(&self, before: usize, now: usize) {
        self.0.fetch_add(now, Ordering::Relaxed);
        self.0.fetch_sub(before, Ordering::Relaxed);
    }
}

impl Loads {
    pub(crate) fn new(mode: LoadsMode, views: Arc<Views>, connector: Arc<dyn LoadConnector>) -> Self {
        let (kept, pools, streams, served) = Default::default();
        Self { mode, views, connector, clock: Clock::starting_now(), kept, pools, streams, served }
    }

    /// Takes over from the load reports of an earlier configuration: the bytes of its pools and the streams that it passes on still count.
    pub(crate) fn after(self, earlier: &Self) -> Self {
        Self { kept: earlier.kept.clone(), streams: earlier.streams.clone(), ..self }
    }

    pub(crate) fn are_served(&self) -> bool {
        self.mode != LoadsMode::Off
    }

    /// Whether reports are summed. Otherwise only the first report of a stream is decoded.
    pub(crate) fn are_summed(&self) -> bool {
        matches!(self.mode, LoadsMode::Aggregate(_))
    }

    /// Serves a client's stream from its first message to its end. If the client leaves before, the future is dropped.
    pub(crate) async fn serve(&self, peer: &Arc<Peer>, quota: &Arc<ViewQuota>, link: LoadLink) -> LoadEnd {
        let _served = self.served.clone();
        let Ok(first) = LoadStatsRequest::decode(link.first.clone()) else { return LoadEnd::Unreadable };
        // A server merges a node that is given in parts. The merged node is judged.
        let node = first.node.as_ref().and_then(|_| wire::merged(&link.first, NODE)).map(Bytes::from);
        let identity = match self.views.identify(peer, link.headers.hashes(), node.as_ref()) {
            Ok(identity) => identity,
            Err(rejected) => return LoadEnd::Refused(rejected),
        };
        let key = identity.key().clone();
        tracing::debug!(view = %key, "load report stream opened");
        match self.mode {
            LoadsMode::Aggregate(limits) => {
                match self.member(&key, &link.headers, LoadClient { connection: peer.connection, quota }, limits) {
                    Ok(member) => converse(member, first, peer, identity, link).await,
                    Err(rejected) => LoadEnd::Refused(rejected),
                }
            }
            LoadsMode::PassThrough(limits) => {
                self.pass_through(&key, LoadClient { connection: peer.connection, quota }, limits, link).await
            }
            LoadsMode::Off => LoadEnd::Moved("load reports are not served"), // no stream is opened
        }
    }

    /// Judges the node of a later report, which otherwise passes undecoded.
    pub(crate) fn judge(&self, peer: &Arc<Peer>, headers: &KeyHeaders, report: &[u8]) -> Result<(), AdmissionError> {
        if !self.views.permissions().has_rules() {
            return Ok(());
        }
        match wire::merged(report, NODE) {
            Some(node) if node.is_empty() => Ok(()),
            Some(node) => self.views.judge(peer, headers.hashes(), &node.into()),
            None => Err(AdmissionError::BadNode),
        }
    }

    /// Passes a client's stream on. When another server becomes active for the key, the stream ends, so that the client starts again there (FB-19):
    /// an order of the old server does not hold for the new one.
    async fn pass_through(
        &self,
        key: &SharingKey,
        client: LoadClient<'_>,
        limits: LoadStreamLimits,
        link: LoadLink,
    ) -> LoadEnd {
        let exhausted = |refusal: StreamRefusal| {
            self.views.counters().limits.reached(refusal.limit());
            LoadEnd::Exhausted(refusal.to_string())
        };
        let account = client.quota.account();
        if let Some(Err(why)) = account.map(|account| account.admit(costs::PASSED_ON)) {
            return LoadEnd::Refused(AdmissionError::NoMemory(why));
        }
        let open = match self.streams.open(client.connection, limits) {
            Ok(open) => open,
            Err(refusal) => return exhausted(refusal),
        };
        let _charge = account.map(|account| account.charge(costs::PASSED_ON));
        let link = LoadLink { tenant: key.tenant(), ..link };
        let server = self.views.active_server(key);
        tokio::select! {
            end = self.connector.carry(server, link) => end,
            () = self.views.active_server_changed(key, server) => LoadEnd::Moved("another server takes the load reports now; reconnect"),
            refusal = open.has_made_room() => exhausted(refusal),
        }
    }

    /// Whether no stream of this configuration is served.
    pub(crate) fn have_no_clients(&self) -> bool {
        Arc::strong_count(&self.served) == 1
    }

    /// Returns about how many bytes of reports are stored for control planes, in all views together, also of earlier configurations.
    pub(crate) fn kept(&self) -> usize {
        self.kept.0.load(Ordering::Relaxed)
    }

    /// Sends the last reports of clients, after all clients have left and before the relay stops.
    pub(crate) async fn finish(&self) {
        self.pools.finish().await;
    }

    /// Adds a client to the pool of its key, and makes the pool if there is none.
    fn member(
        &self,
        key: &SharingKey,
        headers: &KeyHeaders,
        client: LoadClient,
        limits: LoadLimits,
    ) -> Result<Membership, AdmissionError> {
        let counters = &self.views.counters().limits;
        let make =
            || Pool::new((key.clone(), headers.clone()), self.views.clone(), self.clock, self.kept.clone(), limits);
        let joined = self.pools.join(key, client, self.views.limits(), counters, make);
        let (member, made) = joined.inspect_err(|refused| {
            if let Some(limit) = refused.limit() {
                counters.reached(limit);
            }
        })?;
        if let Some(running) = made {
            let connector = self.connector.clone();
            tokio::spawn(running.run(connector)); // it lives as long as the runtime of load reports
        }
        Ok(member)
    }
}

/// The field of a report with the client's node.
const NODE: u32 = 1;

#[cfg(test)]
mod tests;
