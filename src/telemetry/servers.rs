//! Metrics of servers over all views.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::Labelled;
use super::{MetricsSnapshot, integer};
use crate::relay::Totals;

pub(super) fn register(registry: &mut Registry, snapshot: &MetricsSnapshot<'_>) {
    let help = "Liveness calls that the server did not answer";
    let unanswered = Labelled::<Counter>::register(registry, "upstream_liveness_calls_unanswered", help);
    for (server, count) in &snapshot.unanswered {
        unanswered.at(&[("server", server)]).inc_by(*count);
    }
    let help = "Open connections to the server, which streams share";
    let connections = Labelled::<Gauge>::register(registry, "upstream_connections", help);
    for (server, count) in &snapshot.connections {
        connections.at(&[("server", server)]).set(integer(*count));
    }
    let totals = ServerFamilies::register(registry);
    snapshot.servers.iter().for_each(|server| totals.add(server, &Totals::default()));
    snapshot.incidents.upstream_totals().iter().for_each(|(server, of)| totals.add(server, of));
    let help = "Resources of the server that the relay rejected; each version of a name counts once";
    let rejected = Labelled::<Counter>::register(registry, "upstream_resources_rejected", help);
    let counts = snapshot.incidents.rejected_resources();
    for server in &snapshot.servers {
        for kind in snapshot.counters.type_names() {
            rejected.at(&[("server", server), ("type", kind)]).inc_by(0);
        }
    }
    for ((server, kind), count) in counts {
        rejected.at(&[("server", &server), ("type", &kind)]).inc_by(count);
    }
}

/// Totals over all views, those that were removed included.
struct ServerFamilies {
    opened: Labelled<Counter>,
    closed: Labelled<Counter>,
    responses: Labelled<Counter>,
    nacks: Labelled<Counter>,
}

impl ServerFamilies {
    #[rustfmt::skip]
    fn register(registry: &mut Registry) -> Self {
        Self {
            opened: Labelled::register(registry, "server_streams_opened", "Upstream streams opened, over all views that ever were"),
            closed: Labelled::register(registry, "server_streams_closed", "Upstream streams that ended or could not be opened, over all views that ever were"),
            responses: Labelled::register(registry, "server_responses", "Responses of the server, over all views that ever were"),
            nacks: Labelled::register(registry, "server_nacks", "Responses of the server that the relay NACKed, over all views that ever were"),
        }
    }

    fn add(&self, server: &str, totals: &Totals) {
        let labels = [("server", server)];
        self.opened.at(&labels).inc_by(totals.opened);
        self.closed.at(&labels).inc_by(totals.ended);
        self.responses.at(&labels).inc_by(totals.responses);
        self.nacks.at(&labels).inc_by(totals.nacks);
    }
}
