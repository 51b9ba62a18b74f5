//! Metrics with a view among their labels.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use weir_core::protocol::ladder::LadderState;

use super::integer;
use super::labels::{Labelled, Labels};
use crate::relay::{LadderMetrics, ServerMetrics, ViewMetrics};

pub(super) struct ViewFamilies {
    open: Labelled<Gauge>,
    blocked: Labelled<Gauge>,
    over_absent_limit: Labelled<Gauge>,
    resources: Labelled<Gauge>,
    from_disk: Labelled<Gauge>,
    active: Labelled<Gauge>,
    state: Labelled<Gauge>,
    state_since: Labelled<Gauge>,
    switches: Labelled<Counter>,
    streams: Labelled<Gauge>,
    connected: Labelled<Gauge>,
    opened: Labelled<Counter>,
    closed: Labelled<Counter>,
    responses: Labelled<Counter>,
    last_response: Labelled<Gauge>,
    nacks: Labelled<Counter>,
    clusters_missing: Labelled<Gauge>,
    clusters_removed_in_use: Labelled<Counter>,
    cluster_waits_timed_out: Labelled<Counter>,
    resources_not_scanned: Labelled<Counter>,
    removal_bytes: Labelled<Gauge>,
    removals_forgotten: Labelled<Counter>,
}

impl ViewFamilies {
    #[rustfmt::skip]
    pub(crate) fn register(registry: &mut Registry) -> Self {
        Self {
            open: Labelled::register(registry, "client_streams_open", "Open client streams"),
            blocked: Labelled::register(registry, "client_streams_blocked", "Client streams blocked until a resource set is complete"),
            over_absent_limit: Labelled::register(registry, "client_streams_over_absent_limit", "Client streams that request more absent names than limits.absent_names_per_stream"),
            resources: Labelled::register(registry, "resources", "Cached resources"),
            from_disk: Labelled::register(registry, "resources_from_disk", "Cached resources that were loaded from the state file and that no server has confirmed"),
            active: Labelled::register(registry, "ladder_active", "1 for the active server of the ladder, 0 for the others"),
            state: Labelled::register(registry, "ladder_state", "1 for the state of the ladder, 0 for the others"),
            state_since: Labelled::register(registry, "ladder_state_timestamp_seconds", "Unix time of the last state change of the ladder"),
            switches: Labelled::register(registry, "ladder_switches", "Switches of the ladder to the next server (fallback) and back up (return)"),
            streams: Labelled::register(registry, "upstream_streams", "Upstream streams in use, connected or not"),
            connected: Labelled::register(registry, "upstream_streams_connected", "Connected upstream streams"),
            opened: Labelled::register(registry, "upstream_streams_opened", "Upstream streams opened"),
            closed: Labelled::register(registry, "upstream_streams_closed", "Upstream streams that ended or could not be opened"),
            responses: Labelled::register(registry, "upstream_responses", "Responses of the server"),
            last_response: Labelled::register(registry, "upstream_last_response_timestamp_seconds", "Unix time of the last response of the server"),
            nacks: Labelled::register(registry, "upstream_nacks", "Responses of the server that the relay NACKed"),
            clusters_missing: Labelled::register(registry, "clusters_missing", "Clusters that routing refers to and that do not exist"),
            clusters_removed_in_use: Labelled::register(registry, "clusters_removed_in_use", "Clusters removed while routing referred to them, after limits.reference_hold"),
            cluster_waits_timed_out: Labelled::register(registry, "cluster_waits_timed_out", "Clusters that a routing change waited for and that did not arrive in time"),
            removal_bytes: Labelled::register(registry, "removal_history_bytes", "Memory of the removals that are remembered for clients that are behind"),
            removals_forgotten: Labelled::register(registry, "removals_forgotten", "Removals forgotten because of their age or because all took too much; clients that were not sent them are behind"),
            resources_not_scanned: Labelled::register(registry, "resources_not_scanned", "Resources too large to find the clusters that they refer to"),
        }
    }

    /// Adds the figures of a view; those of views with the same label are summed.
    pub(crate) fn add(&self, view: &ViewMetrics) {
        let label = view.label.as_deref().unwrap_or(OTHER);
        let labels: &Labels<'_> = &[("view", label)];
        for (family, count) in [
            (&self.open, view.sessions),
            (&self.blocked, view.blocked),
            (&self.over_absent_limit, view.over_absent_limit),
            (&self.resources, view.cached),
            (&self.from_disk, view.from_disk),
            (&self.clusters_missing, view.dangling),
            (&self.removal_bytes, view.removals.bytes),
        ] {
            family.at(labels).inc_by(integer(count));
        }
        let forgotten = view.removals.forgotten;
        for (reason, count) in [("age", forgotten.by_age), ("bytes", forgotten.by_bytes)] {
            self.removals_forgotten.at(&[labels[0], ("reason", reason)]).inc_by(count);
        }
        self.clusters_removed_in_use.at(labels).inc_by(view.order.removals);
        self.cluster_waits_timed_out.at(labels).inc_by(view.order.waits);
        self.resources_not_scanned.at(labels).inc_by(view.order.too_large);
        view.ladders.iter().for_each(|ladder| self.add_ladder(label, view.label.is_some(), ladder));
        view.servers.iter().for_each(|server| self.add_server(label, view.label.is_some(), server));
    }

    fn add_ladder(&self, view: &str, is_single: bool, ladder: &LadderMetrics) {
        let labels = [("view", view), ("authority", ladder.authority.as_str())];
        let with = |name, value| [labels[0], labels[1], (name, value)];
        for (index, server) in ladder.servers.iter().enumerate() {
            self.active.at(&with("server", server)).inc_by((ladder.active == Some(index)).into());
        }
        for state in LadderState::NAMES {
            self.state.at(&with("state", state)).inc_by((ladder.state == state).into());
        }
        if is_single {
            self.state_since.at(&labels).set(unix_time_before(ladder.state_seconds));
        }
        self.switches.at(&with("direction", "fallback")).inc_by(ladder.switches.down);
        self.switches.at(&with("direction", "return")).inc_by(ladder.switches.up);
    }

    fn add_server(&self, view: &str, is_single: bool, server: &ServerMetrics) {
        let labels = [("view", view), ("server", server.server.as_str())];
        self.streams.at(&labels).inc_by(integer(server.streams));
        self.connected.at(&labels).inc_by(integer(server.connected));
        self.opened.at(&labels).inc_by(server.totals.opened);
        self.closed.at(&labels).inc_by(server.totals.ended);
        self.responses.at(&labels).inc_by(server.totals.responses);
        if let Some(last) = server.last_response.filter(|_| is_single) {
            let last = last.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            self.last_response.at(&labels).set(i64::try_from(last).unwrap_or(i64::MAX));
        }
        self.nacks.at(&labels).inc_by(server.totals.nacks);
    }
}

fn unix_time_before(seconds: u64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.saturating_sub(Duration::from_secs(seconds)).as_secs()).unwrap_or(i64::MAX)
}

/// The label of all views without one of their own.
const OTHER: &str = "other";
