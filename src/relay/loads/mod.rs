//! Load reports (LRS): the control plane that a client's reports go to, and whether they are passed on or summed.

mod pool;

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use prost::Message;
use tokio::sync::{Notify, mpsc};
use weir_core::proto::loads::LoadStatsRequest;
use weir_core::protocol::loads::LoadLimits;
use weir_core::protocol::upstream::BackoffTimes;
use weir_core::xds::{Peer, SharingKey, wire};

use self::pool::{Member, Pool};
use super::admission::AdmissionError;
use super::clock::Clock;
use super::views::Views;

/// What happens to the reports of clients (LRS-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LoadsMode {
    /// Clients get the status of a method that does not exist.
    Off,
    /// Opens an upstream stream for each client stream, and passes the messages on.
    PassThrough,
    /// Opens one upstream stream for each key, and reports the sums of its clients.
    Aggregate(LoadLimits),
}

/// One stream of load reports: the first message from downstream, the following ones, and the channel for responses. Both
/// directions are bounded, so that a slow reader slows its sender.
pub(crate) struct LoadLink {
    /// Whose reports these are, if views have tenants.
    pub(crate) tenant: Option<Arc<str>>,
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
    pools: Arc<Pools>,
}

/// The pools of keys with clients.
struct Pools {
    clock: Clock,
    /// Guards only the map.
    of_keys: Mutex<HashMap<SharingKey, Arc<Pool>>>,
    /// A pool has ended.
    ended: Notify,
    kept: Arc<Kept>,
}

/// About how many bytes all pools use together.
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
        let pools = Pools {
            clock: Clock::starting_now(),
            of_keys: Mutex::default(),
            ended: Notify::new(),
            kept: Arc::default(),
        };
        Self { mode, views, connector, pools: Arc::new(pools) }
    }

    pub(crate) fn are_served(&self) -> bool {
        self.mode != LoadsMode::Off
    }

    /// Whether reports are summed. Otherwise all but the first of a stream pass undecoded.
    pub(crate) fn are_summed(&self) -> bool {
        matches!(self.mode, LoadsMode::Aggregate(_))
    }

    /// Serves a client's stream from its first message to its end. If the client leaves before, the future is dropped.
    pub(crate) async fn serve(&self, peer: &Arc<Peer>, link: LoadLink) -> LoadEnd {
        let Ok(first) = LoadStatsRequest::decode(link.first.clone()) else { return LoadEnd::Unreadable };
        // The server reads a node that is given in parts as one, and it is that one which is judged.
        let node = first.node.as_ref().and_then(|_| wire::merged(&link.first, NODE)).map(Bytes::from);
        let identity = match self.views.identify(peer, node.as_ref()) {
            Ok(identity) => identity,
            Err(rejected) => return LoadEnd::Refused(rejected),
        };
        let key = identity.key().clone();
        tracing::debug!(view = %key, "load report stream opened");
        match self.mode {
            LoadsMode::Aggregate(limits) => match self.member(key, limits) {
                Ok(member) => member.converse(first, peer, identity, link).await,
                Err(rejected) => LoadEnd::Refused(rejected),
            },
            LoadsMode::PassThrough | LoadsMode::Off => self.pass_through(&key, link).await,
        }
    }

    /// Judges the node of a later report, which may pass undecoded.
    pub(crate) fn judge(&self, peer: &Arc<Peer>, report: &[u8]) -> Result<(), AdmissionError> {
        if !self.views.permissions().has_rules() {
            return Ok(());
        }
        match wire::merged(report, NODE) {
            Some(node) if node.is_empty() => Ok(()),
            Some(node) => self.views.identify(peer, Some(&node.into())).map(drop),
            None => Err(AdmissionError::BadNode),
        }
    }

    /// Ends the client's stream when another server becomes active for the key, so that the client starts again there (FB-19): an order of
    /// the old server does not hold for the new one.
    async fn pass_through(&self, key: &SharingKey, link: LoadLink) -> LoadEnd {
        let link = LoadLink { tenant: key.tenant(), ..link };
        let server = self.views.active_server(key);
        tokio::select! {
            end = self.connector.carry(server, link) => end,
            () = self.views.active_server_changed(key, server) => LoadEnd::Moved("another server takes the load reports now; reconnect"),
        }
    }

    /// Returns about how many bytes of reports are stored for control planes, in all views together.
    pub(crate) fn kept(&self) -> usize {
        self.pools.kept.0.load(Ordering::Relaxed)
    }

    /// Sends what clients last reported, after all of them have left and before the relay stops.
    pub(crate) async fn finish(&self) {
        self.pools.lock().values().for_each(|pool| pool.hasten());
        while !self.pools.lock().is_empty() {
            self.pools.ended.notified().await;
        }
    }

    fn member(&self, key: SharingKey, limits: LoadLimits) -> Result<Member, AdmissionError> {
        let mut pools = self.pools.lock();
        if let Some(member) = pools.get(&key).and_then(Pool::join) {
            return Ok(member);
        }
        let limit = self.views.max_views();
        // One that is about to end is replaced.
        if pools.len() >= limit && !pools.contains_key(&key) {
            return Err(AdmissionError::TooManyViews { limit, split: None });
        }
        let pool = Arc::new(Pool::new(key.clone(), self.views.clone(), &self.pools, limits));
        let member = pool.join().ok_or(AdmissionError::Stopping)?;
        pools.insert(key, pool.clone());
        let (pools, connector) = (self.pools.clone(), self.connector.clone());
        tokio::spawn(async move {
            pool.run(&*connector).await;
            pools.lock().retain(|_, other| !Arc::ptr_eq(other, &pool));
            pools.ended.notify_one();
        });
        Ok(member)
    }
}

impl Pools {
    fn lock(&self) -> MutexGuard<'_, HashMap<SharingKey, Arc<Pool>>> {
        self.of_keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The field of a report with the client's node.
const NODE: u32 = 1;

#[cfg(test)]
mod tests;
