//! Which view a client belongs to: one for each sharing key, created for the first client with that key.

mod clients;
mod map;
mod nacks;
mod options;
mod quotas;
mod reports;
mod saved;
mod split_watch;
mod start;
mod successor;

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::Instant;

pub(crate) use self::map::Split;
use self::map::{Entrance, ViewMap};
pub(crate) use self::options::{ClientInfo, ViewsOptions};
use self::saved::WaitingViews;
pub(crate) use self::saved::{FromDisk, SavedView, ViewToSave};
use self::split_watch::SplitWatch;
use super::admission::AdmissionError;
use super::client_log::ClientLog;
use super::clients::Clients;
use super::clock::Clock;
use super::command::Command;
use super::counters::ProcessCounters;
use super::incidents::Incidents;
use super::link::SharedConnector;
use super::live_permissions::LivePermissions;
use super::member::Member;
use super::metric_labels::MetricLabels;
use super::reachability::SharedReachability;
use super::readiness::Readiness;
use super::response_reader::ResponseReaders;
use super::server_log::ServerLog;
use super::session_handle::{SessionHandle, SessionParts};
use super::view_quota::IdentityQuotas;
use crate::proto::Request;
use crate::protocol::session::{Authorities, Client, Identity, IdentityError, Session, SessionOptions};
use crate::protocol::sources::Plan;
use crate::protocol::upstream::UpstreamOptions;
use crate::protocol::view::{Class, ResourceTable, ViewOptions};
use crate::xds::{
    Access, BodyStore, Clearance, KeyRule, Name, Peer, Permit, SharingKey, StatedVersionsStore, TypeTable,
};

pub(crate) struct Views {
    rule: Arc<KeyRule>,
    accept_missing_node: bool,
    access: Access,
    permissions: Arc<LivePermissions>,
    table: Arc<TypeTable>,
    session_options: Arc<SessionOptions>,
    view_options: Arc<ViewOptions>,
    stream_options: Arc<UpstreamOptions>,
    plan: Arc<Plan>,
    authorities: Authorities,
    connectors: Arc<[SharedConnector]>,
    /// Serves the shared authorities.
    hub: Option<Arc<Views>>,
    is_hub: bool,
    reachability: Arc<SharedReachability>,
    readiness: Arc<Readiness>,
    incidents: Arc<Incidents>,
    server_log: Arc<ServerLog>,
    client_log: Arc<ClientLog>,
    /// Changes whenever the active server of a view changes.
    active_server_changes: Arc<watch::Sender<()>>,
    store: Arc<BodyStore>,
    stated_versions: Arc<StatedVersionsStore>,
    readers: ResponseReaders,
    clock: Clock,
    counters: Arc<ProcessCounters>,
    max_views: usize,
    /// The largest number of views that one connection may have made; 0: no limit.
    max_views_per_connection: usize,
    /// The same of one identity.
    max_views_per_identity: usize,
    identity_quotas: Arc<IdentityQuotas>,
    split_watch: SplitWatch,
    max_in_metrics: usize,
    metric_labels: Arc<MetricLabels>,
    clients: Arc<Clients<SessionHandle>>,
    /// Views of an earlier process or configuration that no client has asked for yet.
    waiting: WaitingViews,
    /// How long a view that has something from an earlier one waits for its first client.
    keep_inherited: Duration,
    /// Keys whose views are being handed over, each by one of the clients that have come.
    handing_over: Mutex<HashMap<SharingKey, Arc<tokio::sync::Mutex<()>>>>,
    /// The views of the configuration before, while they have clients.
    earlier: Mutex<Option<Arc<Views>>>,
    /// Guards only the map.
    views: Mutex<ViewMap>,
}

impl Views {
    /// Takes a connector for each server of the plan.
    pub(crate) fn new(options: ViewsOptions, connectors: Vec<SharedConnector>) -> Self {
        let ViewsOptions {
            rule,
            accept_missing_node,
            max_views,
            max_views_per_connection,
            max_views_per_identity,
            max_in_metrics,
            table,
            access,
            permissions,
            protocol,
            stated_versions_bytes,
            plan,
        } = options;
        let (table, store) = (Arc::new(table), Arc::<BodyStore>::default());
        let clock = Clock::starting_now();
        let readers = ResponseReaders::new(table.clone(), store.clone());
        Self {
            rule: Arc::new(rule),
            accept_missing_node,
            access,
            permissions: Arc::new(LivePermissions::new(permissions)),
            counters: Arc::new(ProcessCounters::new(table.clone(), clock)),
            table,
            incidents: Arc::new(Incidents::with_brakes(protocol.view.brakes.types.iter().map(|name| &**name))),
            session_options: Arc::new(protocol.session),
            view_options: Arc::new(protocol.view),
            stream_options: Arc::new(protocol.upstream),
            authorities: Arc::new(plan.authorities.keys().cloned().collect()),
            reachability: Arc::new(SharedReachability::of(plan.servers.len())),
            readiness: Arc::default(),
            server_log: ServerLog::new(plan.servers.len()),
            client_log: Arc::default(),
            active_server_changes: Arc::new(watch::Sender::new(())),
            plan: Arc::new(plan),
            connectors: connectors.into(),
            hub: None,
            is_hub: false,
            readers,
            store,
            stated_versions: StatedVersionsStore::new(stated_versions_bytes),
            clock,
            max_views,
            max_views_per_connection,
            max_views_per_identity,
            identity_quotas: Arc::default(),
            split_watch: SplitWatch::default(),
            max_in_metrics,
            metric_labels: MetricLabels::new(max_in_metrics),
            clients: Arc::default(),
            waiting: WaitingViews::default(),
            keep_inherited: Duration::ZERO,
            handing_over: Mutex::default(),
            earlier: Mutex::default(),
            views: Mutex::default(),
        }
    }

    /// Turns these views into the hub: logs, reports and metrics call it `shared` instead of showing a key.
    pub(crate) fn into_hub(self) -> Self {
        Self { is_hub: true, ..self }
    }

    /// Adds the hub. Bodies that both have are stored once, and reports include the hub.
    pub(crate) fn with_hub(self, hub: Arc<Self>) -> Self {
        let (store, readers) = (hub.store.clone(), hub.readers.clone());
        let (readiness, incidents) = (hub.readiness.clone(), hub.incidents.clone());
        let counters = ProcessCounters::new(self.table.clone(), self.clock).with_limits(hub.counters.limits.clone());
        let clients = hub.clients.clone();
        Self { store, readers, readiness, incidents, counters: Arc::new(counters), clients, hub: Some(hub), ..self }
    }

    /// Returns the number of unanswered liveness calls, by server.
    pub(crate) fn unanswered_calls(&self) -> impl Iterator<Item = (String, u64)> {
        self.connectors.iter().filter_map(|connector| Some((connector.describe(), connector.unanswered_calls()?)))
    }

    /// Returns the number of connections to servers with streams, by server.
    pub(crate) fn upstream_connections(&self) -> impl Iterator<Item = (String, usize)> {
        self.connectors.iter().filter_map(|connector| Some((connector.describe(), connector.connections()?)))
    }

    /// Returns the names of the plan's servers in metrics and logs.
    pub(crate) fn servers(&self) -> impl Iterator<Item = String> {
        self.connectors.iter().map(|connector| connector.describe())
    }

    /// Accepts a client by its first request.
    pub(crate) async fn open_session(
        &self,
        first: &Request,
        visit: ClientInfo,
    ) -> Result<Arc<SessionHandle>, AdmissionError> {
        let (variant, peer) = (visit.variant, visit.peer.clone());
        let handle = self.try_open_session(first, visit).await;
        match &handle {
            Ok(_) => self.counters.stream_accepted(variant),
            Err(rejected) => {
                self.counters.rejected(rejected);
                if let Some(unlogged) = self.client_log.rejections.line(Instant::now().into_std()) {
                    tracing::warn!(%peer, error = %rejected, unlogged, "client stream rejected");
                }
            }
        }
        handle
    }

    /// Logs why a request ended its stream, unless there were many.
    pub(crate) fn log_rejected_request(&self, peer: &Peer, error: &str) {
        self.client_log.request_rejected(peer, error);
    }

    async fn try_open_session(&self, first: &Request, visit: ClientInfo) -> Result<Arc<SessionHandle>, AdmissionError> {
        for _ in 0..JOINS {
            let identity = self.identify(&visit.peer, first.node())?;
            self.inherit(identity.key()).await;
            let entrance = self.enter(identity.key(), first, &visit)?;
            if let Some(handle) = self.join(entrance, identity, first, &visit).await {
                return Ok(handle);
            }
        }
        Err(AdmissionError::Stopping)
    }

    /// Returns none if the view task has ended.
    async fn join(
        &self,
        into: Entrance,
        identity: Identity,
        first: &Request,
        visit: &ClientInfo,
    ) -> Option<Arc<SessionHandle>> {
        let ClientInfo { variant, only, is_stream, ref peer, .. } = *visit;
        let Entrance { published, nacks, commands, stay } = into;
        let node = first.node().map_or(&[][..], |node| node);
        let (node_id, user_agent) = Client::id_and_user_agent(node);
        let place = SessionParts {
            id: self.clients.next_id(),
            variant,
            node_id,
            user_agent,
            key: if self.is_hub { "shared".into() } else { identity.key().to_string() },
            is_stream,
            peer: peer.clone(),
            published,
            owner: commands.clone(),
            clock: self.clock,
            tally: self.counters.clone(),
            log: self.client_log.clone(),
            nacks,
            clients: self.clients.clone(),
        };
        let clearance = self.clearance(peer, &identity);
        let only = only.map(|name| self.table.resolve(name));
        let client = Client { clearance, is_view: self.is_hub, ..Client::of_node(node, variant, only) };
        let session = Session::new(client, self.table.clone(), self.session_options.clone());
        let session = session.with_identity(identity).with_authorities(self.authorities.clone());
        let handle = SessionHandle::new(place, session);
        commands.send(Command::Join(Box::new(Member::new(handle.clone(), stay)))).await.ok()?;
        // A view task that ends after this drops the command, which ends the session.
        (!commands.is_closed()).then_some(handle)
    }

    /// Returns the identity of a client by its node, if it sent one.
    pub(super) fn identify(&self, peer: &Arc<Peer>, node: Option<&Bytes>) -> Result<Identity, AdmissionError> {
        let nobody = Bytes::new();
        let node = node.or(self.accept_missing_node.then_some(&nobody)).ok_or(AdmissionError::NoNode)?;
        Identity::of(self.rule.clone(), self.permissions.current(), peer.clone(), node).map_err(|error| match error {
            IdentityError::Node(_) => AdmissionError::BadNode,
            IdentityError::Denied(denied) => AdmissionError::Denied(Box::new(denied)),
        })
    }

    /// Whether there are rules for who may be which client.
    pub(crate) fn are_judged(&self) -> bool {
        !self.permissions.current().rules().is_empty()
    }

    /// Returns who may be which client.
    pub(crate) fn permissions(&self) -> &Arc<LivePermissions> {
        &self.permissions
    }

    /// Returns what a client may have, by the permissions and by the access rules.
    fn clearance(&self, peer: &Peer, identity: &Identity) -> Clearance {
        // What all views share is no place for secrets: whose they are is decided by each view's rules, and the hub knows none.
        let permit = if self.is_hub { Some(Arc::new(Permit::all_but_secrets())) } else { identity.permit().cloned() };
        self.access.clearance(peer.ip()).with_permit(permit)
    }

    /// Returns the names of the clusters in the view of a client that it may read.
    pub(super) fn clusters(&self, peer: &Peer, identity: &Identity) -> Vec<String> {
        let views = self.lock();
        let Some(published) = views.get(identity.key()).map(|view| view.published.clone()) else { return Vec::new() };
        drop(views);
        let (kind, clearance) = (self.table.resolve(CLUSTER), self.clearance(peer, identity));
        let snapshot = published.newest();
        let tables = [Class::Wildcard, Class::Named].into_iter().filter_map(|class| snapshot.resources(&kind, class));
        let allowed = |name: &&Name| clearance.allows(&kind, name);
        let names: BTreeSet<_> = tables.flat_map(ResourceTable::present_names).filter(allowed).collect();
        names.into_iter().map(Name::to_string).collect()
    }

    /// Returns how many views may exist at one time.
    pub(super) fn max_views(&self) -> usize {
        self.max_views
    }

    /// Returns the readiness of the process, the hub included.
    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.readiness
    }

    /// Returns the incidents of all views, the hub included.
    pub(crate) fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// Returns the bytes of all cached resources.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.store.bytes()
    }

    /// Returns what clients state that they hold, until it is judged.
    pub(crate) fn stated_versions(&self) -> &Arc<StatedVersionsStore> {
        &self.stated_versions
    }

    pub(crate) fn counters(&self) -> &ProcessCounters {
        &self.counters
    }

    /// Looks up the view of a key, or starts it. The view is kept for as long as the result exists.
    fn enter(&self, key: &SharingKey, first: &Request, by: &ClientInfo) -> Result<Entrance, AdmissionError> {
        let mut views = self.lock();
        if let Some(view) = views.get(key).filter(|view| view.is_running()) {
            return Ok(view.enter());
        }
        views.remove(key); // its task has panicked
        self.check_quota(&mut views, by)?;
        let limit = self.max_views;
        if views.len() >= limit {
            views.make_room();
        }
        if views.len() >= limit {
            return Err(AdmissionError::TooManyViews { limit, split: self.widest(views.values()) });
        }
        let view = self.start_view(key, first, by);
        tracing::info!(view = %key, count = views.len() + 1, "view created");
        let entrance = view.enter();
        views.insert(key.clone(), view);
        Ok(entrance)
    }

    /// Returns the active server of a key for `*` and old-style names, or the first choice if none is active (FB-19).
    pub(super) fn active_server(&self, key: &SharingKey) -> usize {
        let views = self.lock();
        let first = self.plan.top.servers.first().copied().unwrap_or_default();
        views.get(key).map_or(first, |view| view.active.load(Ordering::Relaxed))
    }

    /// Returns once the active server of a key is another than this.
    pub(super) async fn active_server_changed(&self, key: &SharingKey, server: usize) {
        let mut moves = self.active_server_changes.subscribe();
        while self.active_server(key) == server {
            if moves.changed().await.is_err() {
                return std::future::pending().await; // does not happen: `self` keeps the sender alive
            }
        }
    }

    /// Removes views that were idle for `views.idle_timeout`, or for as long as they were in use, with their upstream streams. Never returns.
    pub(crate) async fn retire_idle(&self, after: Duration) {
        let mut ticks = tokio::time::interval(after.clamp(Duration::from_millis(100), LOOKS_EVERY));
        loop {
            ticks.tick().await;
            for views in [Some(self), self.hub.as_deref()].into_iter().flatten() {
                views.lock().retire(after);
                views.waiting.retire(after);
            }
            self.watch_split();
            self.log_nacks().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, ViewMap> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often a stream joins a new view if the task of the one before has panicked.
const JOINS: usize = 3;
const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const LOOKS_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
pub(super) mod tests;
