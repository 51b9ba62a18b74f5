//! The options of views, and the state that the views of one configuration share. Some of that state belongs to the process, and is kept for the
//! next configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::watch;
use weir_core::proto::Request;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Identity, SessionOptions};
use weir_core::protocol::sources::Plan;
use weir_core::protocol::upstream::UpstreamOptions;
use weir_core::protocol::view::{View, ViewOptions};
use weir_core::xds::{Access, BodyStore, HeaderHashes, KeyRule, MemberNode, Name, Permissions, SharingKey, TypeTable};

use super::client_log::ClientLog;
use super::clock::Clock;
use super::counters::ProcessCounters;
use super::heavy::HeavyTurns;
use super::incidents::Incidents;
use super::key_headers::{HeaderHasher, KeyHeaders, UnfitHeaders};
use super::link::SharedConnector;
use super::metric_labels::MetricLabels;
use super::reachability::SharedReachability;
use super::readiness::Readiness;
use super::response_reader::ResponseReaders;
use super::server_log::ServerLog;
use super::server_paces::ServerPaces;
use super::server_places::ServerPlaces;
use super::tenants::{TenantLimits, Tenants};
use crate::memory::{Budget, Memory};

/// How clients are assigned to views and served.
#[derive(Debug, Clone)]
pub struct ViewsOptions {
    pub rule: KeyRule,
    /// Servers are shown one of the clients of a view, instead of the fields of its key.
    pub(crate) shows_members: bool,
    /// If true, a client without a node counts as one with an empty node; otherwise it is rejected (TRN-12).
    pub(crate) accept_missing_node: bool,
    /// The largest number of views at one time.
    pub(crate) max_views: usize,
    /// The largest number of views that one connection may have made; 0: no limit.
    pub(crate) max_views_per_connection: usize,
    /// The largest number of views that the connections of one identity may have made; 0: no limit.
    pub(crate) max_views_per_identity: usize,
    /// The largest number of views with series of their own in the metrics.
    pub(crate) max_in_metrics: usize,
    pub(crate) table: TypeTable,
    pub(crate) access: Access,
    pub permissions: Permissions,
    pub protocol: ProtocolOptions,
    /// Memory for the versions that all clients state, until these are applied.
    pub(crate) stated_versions_bytes: usize,
    /// The memory of the process.
    pub(crate) memory: Budget,
    /// The limits on the clients of each tenant.
    pub(crate) tenants: TenantLimits,
    /// The largest number of views of one tenant; 0: no limit.
    pub(crate) max_views_per_tenant: usize,
    /// Hashes the headers in the key, if it has any.
    pub(crate) header_hasher: Option<HeaderHasher>,
    pub(crate) plan: Plan,
    /// A view whose client requests this name panics, so that tests see what follows. No key of the configuration sets it.
    pub panics_at: Option<Name>,
}

/// The state that is made from the options, and the state that belongs to the process.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) rule: Arc<KeyRule>,
    /// See [`ViewsOptions`].
    pub(super) header_hasher: Option<HeaderHasher>,
    /// See [`ViewsOptions`].
    pub(super) shows_members: bool,
    /// See [`ViewsOptions`].
    pub(super) panics_at: Option<Name>,
    pub(crate) table: Arc<TypeTable>,
    pub(crate) session_options: Arc<SessionOptions>,
    pub(crate) view_options: Arc<ViewOptions>,
    pub(crate) stream_options: Arc<UpstreamOptions>,
    pub(crate) plan: Arc<Plan>,
    /// By the servers' places in the plan.
    pub(crate) connectors: Arc<[SharedConnector]>,
    /// These views are the hub: logs, reports and metrics call it `shared` instead of showing a key.
    pub(crate) is_hub: bool,
    pub(super) reachability: Arc<SharedReachability>,
    pub(super) server_log: Arc<ServerLog>,
    pub(super) server_paces: Arc<ServerPaces>,
    /// Changes whenever the active server of a view changes.
    pub(crate) active_server_changes: Arc<watch::Sender<()>>,
    pub(super) metric_labels: Arc<MetricLabels>,
    pub(crate) counters: Arc<ProcessCounters>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) incidents: Arc<Incidents>,
    pub(crate) client_log: Arc<ClientLog>,
    pub(crate) store: Arc<BodyStore>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) tenants: Arc<Tenants>,
    pub(crate) readers: ResponseReaders,
    /// The turns of views with work on many names.
    pub(super) heavy_views: HeavyTurns,
    pub(crate) clock: Clock,
}

impl Shared {
    pub(super) fn new(
        rule: KeyRule,
        table: TypeTable,
        protocol: ProtocolOptions,
        plan: Plan,
        connectors: Vec<SharedConnector>,
        max_in_metrics: usize,
        memory: Budget,
    ) -> Self {
        let (table, store, clock) = (Arc::new(table), Arc::<BodyStore>::default(), Clock::starting_now());
        let counters = Arc::new(ProcessCounters::new(table.clone(), clock));
        let memory = Memory::new(memory, store.clone(), counters.limits.clone());
        let reachability = SharedReachability::of(plan.servers.len(), rule.headers().next().is_some());
        Self {
            rule: Arc::new(rule),
            header_hasher: None,
            shows_members: false,
            panics_at: None,
            connectors: connectors.into(),
            is_hub: false,
            reachability: Arc::new(reachability),
            server_log: ServerLog::new(plan.servers.len()),
            server_paces: Arc::default(),
            active_server_changes: Arc::new(watch::Sender::new(())),
            metric_labels: MetricLabels::new(max_in_metrics),
            tenants: Tenants::without_limits(counters.limits.clone()),
            counters,
            memory,
            readiness: Arc::default(),
            incidents: Arc::new(Incidents::with_brakes(protocol.view.brakes.types.iter().map(|name| &**name))),
            client_log: Arc::default(),
            readers: ResponseReaders::new(table.clone(), store.clone()),
            heavy_views: HeavyTurns::of_views(),
            store,
            clock,
            table,
            session_options: Arc::new(protocol.session),
            view_options: Arc::new(protocol.view),
            stream_options: Arc::new(protocol.upstream),
            plan: Arc::new(plan),
        }
    }

    /// Makes this the state after an earlier configuration. State of the process is kept, except what the hub counts separately.
    pub(super) fn after(self, earlier: &Self) -> Self {
        let Self { incidents, readiness, client_log, store, memory, tenants, readers, heavy_views, clock, .. } =
            earlier.clone();
        memory.set_budget(self.memory.setting());
        incidents.brakes.add_types(self.view_options.brakes.types.iter().map(|name| &**name));
        // The hasher is kept, so that equal values keep their hashes.
        let header_hasher = earlier.header_hasher.clone().or_else(|| self.header_hasher.clone());
        Self {
            incidents,
            readiness,
            client_log,
            store,
            memory,
            tenants,
            readers,
            heavy_views,
            clock,
            header_hasher,
            ..self
        }
    }

    /// Takes the headers in the key from those of a call.
    pub(crate) fn take_headers(&self, given: &HeaderMap) -> Result<KeyHeaders, UnfitHeaders> {
        match &self.header_hasher {
            Some(hasher) => hasher.take(&self.rule, given),
            None => Ok(KeyHeaders::default()),
        }
    }

    /// Returns the node of a client that servers may be shown; `None` if they are not shown clients.
    pub(super) fn member_node(&self, identity: &Identity, first: &Request) -> Option<MemberNode> {
        if !self.shows_members {
            return None;
        }
        identity.key().member_node(first.node().map_or(&[][..], |node| node))
    }

    pub(super) fn empty_view(&self) -> View {
        View::new(self.table.clone(), self.view_options.clone())
    }

    /// Returns for each server, by its place in the plan, the credentials that it is shown for a view.
    pub(super) fn credentials_for(&self, key: &SharingKey) -> Vec<usize> {
        let tenant = key.tenant();
        self.connectors.iter().map(|connector| connector.credentials(tenant.as_deref())).collect()
    }

    /// Returns the names of the plan's servers in metrics and logs.
    pub(super) fn servers(&self) -> impl Iterator<Item = String> {
        self.connectors.iter().map(|connector| connector.describe())
    }

    /// Returns the first choice for `*` and old-style names.
    pub(super) fn first_server(&self) -> usize {
        self.plan.top.servers.first().copied().unwrap_or_default()
    }

    /// Returns what logs, reports and metrics call a view.
    pub(super) fn view_id(&self, key: &SharingKey) -> Arc<str> {
        if self.is_hub { "shared".into() } else { key.to_string().into() }
    }

    /// Returns the names of the servers whose resources are worth saving, by their places in the plan.
    pub(crate) fn saved_servers(&self) -> BTreeMap<u16, String> {
        let servers = self.connectors.iter().enumerate().filter(|(_, server)| !server.is_local());
        servers.filter_map(|(at, server)| Some((u16::try_from(at).ok()?, server.describe()))).collect()
    }

    /// Returns where the servers of an earlier configuration, or of a file, are in the plan. They are given by name.
    pub(crate) fn places_of<'a>(&self, earlier: impl IntoIterator<Item = &'a str>) -> ServerPlaces {
        let servers: Vec<_> = self.servers().collect();
        ServerPlaces::find(earlier, &servers, self.plan.clone())
    }

    /// Returns the key of a node that the relay shows to servers, if the relay would show the same node for that key now.
    pub(crate) fn key_of_own_node(&self, node: &Bytes, headers: &HeaderHashes) -> Option<SharingKey> {
        let is_of_another = !headers.is_empty() && !self.has_lasting_hashes();
        self.rule.key_showing(node, headers).ok().filter(|key| !is_of_another && key.upstream_node() == *node)
    }

    /// Whether a later process makes the same hashes, so that it finds views whose keys have headers.
    pub(crate) fn has_lasting_hashes(&self) -> bool {
        self.header_hasher.as_ref().is_some_and(HeaderHasher::is_lasting)
    }

    /// Returns an identifier of the key of lasting hashes; `None` if there are no such hashes.
    pub(crate) fn hashes_id(&self) -> Option<String> {
        self.header_hasher.as_ref().filter(|hasher| hasher.is_lasting()).map(HeaderHasher::id)
    }

    /// Returns the time from now until a moment of the views.
    pub(crate) fn time_until(&self, moment: Moment) -> Duration {
        moment - self.clock.now()
    }
}
