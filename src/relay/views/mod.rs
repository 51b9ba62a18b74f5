//! Which view a client belongs to: one for each sharing key, created for the first client with that key.

pub(super) mod audited;
mod map;
mod open;
mod quotas;
mod saved;
pub(super) mod split;
mod successor;
mod tenant_views;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use weir_core::proto::Request;
use weir_core::protocol::session::{Authorities, Client, Identity, Session, Variant};
use weir_core::protocol::view::Snapshot;
use weir_core::xds::{HeaderHashes, Peer, SharingKey, StatedVersionsStore, TypeTable};

use self::map::ViewMap;
pub(super) use self::map::ViewNews;
pub(crate) use self::open::{ClientInfo, open_session, open_session_after};
use self::quotas::IdentityQuotas;
pub(crate) use self::quotas::ViewQuota;
pub(super) use self::quotas::{MadeViews, ViewLimits};
use self::saved::WaitingView;
pub(crate) use self::saved::{SavedView, ViewToSave};
use self::successor::{Handovers, ViewSeed, earlier_of_rule, left};
use super::admission::{Admission, AdmissionError};
use super::clients::Clients;
use super::command::Command;
use super::counters::ProcessCounters;
use super::incidents::Incidents;
use super::link::SharedConnector;
use super::live_permissions::LivePermissions;
use super::nack_watch::NackWatch;
use super::readiness::Readiness;
use super::report::ViewMetrics;
use super::session_handle::SessionHandle;
use super::shared::{Shared, ViewsOptions};
use crate::memory::Memory;

pub(crate) struct Views {
    shared: Arc<Shared>,
    admission: Admission,
    authorities: Authorities,
    limits: ViewLimits,
    identity_quotas: Arc<IdentityQuotas>,
    stated_versions: Arc<StatedVersionsStore>,
    clients: Arc<Clients<SessionHandle>>,
    map: ViewMap,
    /// Serves the shared authorities.
    hub: Option<Arc<Views>>,
    /// How long an inherited view waits for its first client.
    keep_inherited: Duration,
    handovers: Arc<Handovers>,
    /// The views of the earlier configuration, while they have clients.
    earlier: Mutex<Option<Arc<Views>>>,
}

impl Views {
    /// Takes a connector for each server of the plan.
    pub(crate) fn new(options: ViewsOptions, connectors: Vec<SharedConnector>) -> Self {
        let ViewsOptions { rule, table, protocol, plan, max_in_metrics, memory, tenants, .. } = options;
        let authorities = Arc::new(plan.authorities.keys().cloned().collect());
        let shared = Shared::new(rule, table, protocol, plan, connectors, max_in_metrics, memory);
        let (header_hasher, shows_members, panics_at) =
            (options.header_hasher, options.shows_members, options.panics_at);
        let shared = Arc::new(Shared { header_hasher, shows_members, panics_at, ..shared });
        shared.tenants.set_limits(tenants);
        let permissions = Arc::new(LivePermissions::new(options.permissions));
        let accept_missing_node = options.accept_missing_node;
        let admission = Admission::new(shared.rule.clone(), accept_missing_node, options.access, permissions);
        let limits = ViewLimits {
            views: options.max_views,
            per_connection: options.max_views_per_connection,
            per_identity: options.max_views_per_identity,
            per_tenant: options.max_views_per_tenant,
        };
        Self {
            shared,
            admission,
            authorities,
            limits,
            identity_quotas: Arc::default(),
            stated_versions: StatedVersionsStore::new(options.stated_versions_bytes),
            clients: Arc::default(),
            map: ViewMap::default(),
            hub: None,
            keep_inherited: Duration::ZERO,
            handovers: Arc::default(),
            earlier: Mutex::default(),
        }
    }

    /// Turns these views into the hub.
    pub(crate) fn into_hub(self) -> Self {
        Self { shared: Arc::new(Shared { is_hub: true, ..(*self.shared).clone() }), ..self }
    }

    /// Adds the hub. Bodies that both have are stored once, and reports include the hub.
    pub(crate) fn with_hub(self, hub: Arc<Self>) -> Self {
        let Shared { store, memory, readers, heavy_views, readiness, incidents, counters, .. } = (*hub.shared).clone();
        let (own, limits) = ((*self.shared).clone(), counters.limits.clone());
        let counters = Arc::new(ProcessCounters::new(own.table.clone(), own.clock).with_limits(limits));
        let shared = Shared { store, memory, readers, heavy_views, readiness, incidents, counters, ..own };
        Self { shared: Arc::new(shared), clients: hub.clients.clone(), hub: Some(hub), ..self }
    }

    /// Makes these the views after earlier ones. State of the process is kept: counters, bodies, the list of clients, the permissions in force,
    /// readiness. An inherited view without a client is dropped after `keep`.
    pub(crate) fn after(self, earlier: &Arc<Self>, keep: Duration) -> Self {
        let (clients, process) = (earlier.clients.clone(), (*self.shared).clone().after(&earlier.shared));
        let Shared { clock, counters, metric_labels, .. } = (*earlier.shared).clone();
        if process.is_hub != earlier.shared.is_hub {
            // The earlier configuration had no hub: this is the first one.
            let own_counters = ProcessCounters::new(process.table.clone(), clock);
            let counters = Arc::new(own_counters.with_limits(counters.limits.clone()));
            let shared = Arc::new(Shared { counters, ..process });
            return Self { shared, clients, keep_inherited: keep, ..self };
        }
        metric_labels.limit_like(&process.metric_labels);
        Self {
            shared: Arc::new(Shared { counters, metric_labels, ..process }),
            admission: self.admission.with_permissions(earlier.permissions().clone()),
            identity_quotas: earlier.identity_quotas.clone(),
            clients,
            keep_inherited: keep,
            earlier: Some(earlier.clone()).into(),
            ..self
        }
    }

    /// Makes the session of a client that was identified by its first request.
    fn session(
        &self,
        identity: Identity,
        first: &Request,
        peer: &Peer,
        variant: Variant,
        only: Option<&str>,
    ) -> Session {
        let Shared { table, session_options, is_hub, .. } = &*self.shared;
        let clearance = self.admission.clearance(peer, &identity, *is_hub);
        let node = first.node().map_or(&[][..], |node| node);
        let only = only.map(|name| table.resolve(name));
        let client = Client { clearance, is_view: *is_hub, ..Client::of_node(node, variant, only) };
        let session = Session::new(client, table.clone(), session_options.clone());
        session.with_identity(identity).with_authorities(self.authorities.clone())
    }

    /// Returns the identity of a client by its node, if it sent one.
    pub(super) fn identify(
        &self,
        peer: &Arc<Peer>,
        headers: &HeaderHashes,
        node: Option<&Bytes>,
    ) -> Result<Identity, AdmissionError> {
        self.admission.identify(peer, headers, node)
    }

    /// Judges a later node of a client that is served.
    pub(super) fn judge(&self, peer: &Arc<Peer>, headers: &HeaderHashes, node: &Bytes) -> Result<(), AdmissionError> {
        self.admission.judge(peer, headers, node)
    }

    /// Returns who may be which client.
    pub(crate) fn permissions(&self) -> &Arc<LivePermissions> {
        self.admission.permissions()
    }

    /// Returns the quota that counts the views of a new connection, and its pools of load reports.
    pub(crate) fn quota(&self, identity: Option<&str>) -> ViewQuota {
        let identity = identity.filter(|_| self.limits.per_identity > 0);
        identity.map(|identity| self.identity_quotas.quota(identity)).unwrap_or_default()
    }

    /// Returns the names of the clusters in the view of a client that it may read.
    pub(super) fn clusters(&self, peer: &Peer, identity: &Identity) -> Vec<String> {
        let clearance = self.admission.clearance(peer, identity, self.shared.is_hub);
        self.map.present_names(identity.key(), &self.shared.table.resolve(CLUSTER), &clearance)
    }

    /// Returns the active server of a key for `*` and old-style names, or the first choice if none is active (FB-19).
    pub(super) fn active_server(&self, key: &SharingKey) -> usize {
        self.map.active_server(key).unwrap_or_else(|| self.shared.first_server())
    }

    /// Returns once the active server of a key differs from this one.
    pub(super) async fn active_server_changed(&self, key: &SharingKey, server: usize) {
        let mut moves = self.shared.active_server_changes.subscribe();
        while self.active_server(key) == server {
            if moves.changed().await.is_err() {
                return std::future::pending().await; // does not happen: `self` keeps the sender alive
            }
        }
    }

    /// Releases earlier views that have no clients any more. Their successors take over what is left: keys whose clients have not come yet. This
    /// takes time in proportion to the resources, so it must not run on a thread that others wait for.
    pub(crate) fn let_go_of(&self, gone: &Self) {
        if let (Some(hub), Some(gone)) = (&self.hub, &gone.hub) {
            hub.let_go_of(gone);
        }
        let Some(earlier) = self.before() else { return };
        // Views with other keys may be between these and `gone`. They take over nothing.
        let is_successor = earlier_of_rule(self).is_some_and(|before| std::ptr::eq(&*before, gone));
        let keys = if is_successor { gone.map.keys() } else { BTreeSet::new() };
        for key in keys {
            if !self.map.has(&key)
                && let Some(left) = left(gone, &key)
            {
                let seed = ViewSeed::new(&self.shared, self.keep_inherited);
                self.map.put_waiting(key, seed.view(&left));
            }
        }
        if !std::ptr::eq(&*earlier, gone) {
            return earlier.let_go_of(gone);
        }
        *self.earlier.lock().unwrap_or_else(PoisonError::into_inner) = earlier.before();
    }

    /// Returns the views before these, as long as they have clients.
    pub(crate) fn before(&self) -> Option<Arc<Self>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether no stream is served by these, the hub's aside.
    pub(crate) fn has_no_clients(&self) -> bool {
        self.map.has_no_clients()
    }

    pub(crate) fn hub(&self) -> Option<&Arc<Self>> {
        self.hub.as_ref()
    }

    /// Puts back a view of an earlier process. It is dropped if its clients do not come within `keep`.
    /// Returns what it publishes, and its life, if there was no such view yet.
    pub(crate) fn restore(&self, saved: SavedView, keep: Duration) -> Option<(Arc<Snapshot>, u64)> {
        let (key, now) = (saved.key.clone(), self.shared.clock.now());
        if self.readiness().load().has_begun(self.shared.is_hub, &key) {
            return None;
        }
        let waiting = WaitingView::restored(saved, self.shared.empty_view(), now, keep);
        let restored = (waiting.view.snapshot().clone(), waiting.life);
        self.map.put_waiting(key, waiting).then_some(restored)
    }

    /// Returns all views, running and waiting. One that begins to run meanwhile may be among both.
    pub(crate) fn to_save(&self) -> Vec<ViewToSave> {
        self.map.to_save(self.shared.has_lasting_hashes())
    }

    /// Returns how many views have something from disk that no server has confirmed, running or waiting for their first client.
    pub(crate) fn loaded_from_disk(&self) -> usize {
        self.map.loaded_from_disk()
    }

    /// Returns what these views share with one another.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Returns the memory of the process.
    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.shared.memory
    }

    /// Returns the bytes of all cached resources.
    pub(crate) fn cached_bytes(&self) -> usize {
        self.shared.store.bytes()
    }

    pub(crate) fn types(&self) -> &Arc<TypeTable> {
        &self.shared.table
    }

    /// Returns the store of versions that clients state, until these are applied.
    pub(crate) fn stated_versions(&self) -> &Arc<StatedVersionsStore> {
        &self.stated_versions
    }

    /// Returns how many views, and pools of load reports, may exist at one time.
    pub(super) fn limits(&self) -> &ViewLimits {
        &self.limits
    }

    pub(crate) fn clients(&self) -> &Arc<Clients<SessionHandle>> {
        &self.clients
    }

    /// Returns the readiness of the process, the hub included.
    pub(crate) fn readiness(&self) -> &Arc<Readiness> {
        &self.shared.readiness
    }

    /// Returns the incidents of all views, the hub included.
    pub(crate) fn incidents(&self) -> &Incidents {
        &self.shared.incidents
    }

    pub(crate) fn counters(&self) -> &ProcessCounters {
        &self.shared.counters
    }

    /// Returns the names of the plan's servers in metrics and logs.
    pub(crate) fn servers(&self) -> impl Iterator<Item = String> {
        self.shared.servers()
    }

    /// Returns how many values each field of the key has over all views.
    pub(crate) fn values_by_field(&self) -> Vec<(String, usize)> {
        self.map.values_by_field(&self.shared.rule)
    }

    /// Removes views that were idle for so long, or for as long as they were in use, with their upstream streams.
    pub(super) fn retire(&self, after: Duration) {
        self.map.retire(after);
    }

    /// Warns if most clients have a view of their own.
    pub(super) fn watch_split(&self) {
        self.map.watch_split(&self.shared.rule, self.shared.counters.connections());
    }

    /// Takes at most so many news of NACKs, by view, without those of the hub and of views before these.
    pub(super) fn take_nack_news(&self, now: std::time::Instant, most: usize) -> Vec<ViewNews> {
        self.map.take_nack_news(now, most)
    }

    /// Returns the tasks of these views and of those before them, without the hub's.
    pub(super) fn tasks(&self) -> Vec<mpsc::Sender<Command>> {
        let mut tasks = self.map.tasks();
        tasks.extend(self.before().iter().flat_map(|earlier| earlier.tasks()));
        tasks
    }

    /// Returns the same for what counts NACKs.
    pub(super) fn nack_watches(&self) -> Vec<Arc<NackWatch>> {
        let mut watches = self.map.nack_watches();
        watches.extend(self.before().iter().flat_map(|earlier| earlier.nack_watches()));
        watches
    }

    /// Returns the hub, or that of an earlier configuration.
    pub(super) fn shown_hub(&self) -> Option<Arc<Self>> {
        self.hub.clone().or_else(|| self.before()?.shown_hub())
    }

    /// Returns metrics as they are shown: the views without series of their own are summed.
    pub(super) fn merge_metrics(&self, views: Vec<ViewMetrics>) -> Vec<ViewMetrics> {
        self.shared.metric_labels.merge(views)
    }
}

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

#[cfg(test)]
pub(super) mod tests;
