//! What a view task reports to the process: log lines, counts, which server is active, and what readiness and the brakes of all views need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::sources::{LadderSummary, Sources};
use weir_core::protocol::upstream::{ServerStatus, Stream};
use weir_core::protocol::view::{Update, View};
use weir_core::xds::{Authority, Name, Type};

use crate::limit::Limit;
use crate::log_pace::LogPace;
use crate::relay::brakes::ViewBrakes;
use crate::relay::links::Links;
use crate::relay::readiness::ViewReadiness;
use crate::relay::report::OrderMetrics;
use crate::relay::server_log::LadderChange;
use crate::relay::server_paces::ServerEvent;
use crate::relay::shared::Shared;

pub(super) struct ViewReporter {
    view_id: Arc<str>,
    shared: Arc<Shared>,
    brakes: ViewBrakes,
    readiness: ViewReadiness,
    /// The server for `*` and old-style names, for load reports.
    active: Arc<AtomicUsize>,
    /// The state of each ladder when it was last reported.
    ladder_states: BTreeMap<Authority, LadderState>,
    /// Cases in which the order of changes could not be kept.
    order_metrics: OrderMetrics,
    /// For the log lines about names that were left out of requests.
    left_out_pace: LogPace,
}

impl ViewReporter {
    pub(super) fn new(
        shared: Arc<Shared>,
        view_id: Arc<str>,
        active: Arc<AtomicUsize>,
        answered: BTreeSet<Authority>,
    ) -> Self {
        Self {
            brakes: shared.incidents.brakes.view(&view_id),
            readiness: shared.readiness.view(&view_id, answered),
            view_id,
            shared,
            active,
            ladder_states: BTreeMap::new(),
            order_metrics: OrderMetrics::default(),
            left_out_pace: LogPace::of_client(),
        }
    }

    pub(super) fn order_metrics(&self) -> OrderMetrics {
        self.order_metrics
    }

    /// Logs and counts the rejected resources of a response.
    pub(super) fn report_rejected(&self, stream: &mut Stream, server: impl FnOnce() -> String) {
        let rejected = stream.take_rejected();
        if rejected.is_empty() {
            return;
        }
        let (view, server) = (&*self.view_id, server());
        for of_type in rejected {
            let (type_url, news) = (of_type.kind.name(), of_type.news);
            let count = news.entries.len() + news.more;
            self.shared.incidents.rejected(&server, &of_type.kind, &self.shared.table, count);
            let mut left = count;
            for (name, nack) in news.entries.iter().take(MAX_LOGGED) {
                let Some(unlogged) = self.line(ServerEvent::Rejected) else { break };
                left -= 1;
                let name = name.as_ref().map(tracing::field::display);
                let (version, reason) = (&nack.version, &*nack.reason);
                tracing::warn!(view, server, type_url, name, version, reason, unlogged, "resource rejected");
            }
            if left > 0
                && let Some(unlogged) = self.line(ServerEvent::MoreRejected)
            {
                tracing::warn!(view, server, type_url, count = left, unlogged, "more resources rejected");
            }
        }
    }

    pub(super) fn report_mismatches(&self, count: u64, server: &str) {
        if let Some(unlogged) = self.line(ServerEvent::OtherNames) {
            tracing::warn!(view = %self.view_id, server, count, unlogged, "resource names in body and wrapper differ");
        }
    }

    /// Logs the errors that a server reports for collections.
    pub(super) fn report_errors(&self, updates: &[Update]) {
        for update in updates {
            if let Update::Error { key: name, error, .. } = update
                && name.is_glob()
                && let Some(unlogged) = self.line(ServerEvent::CollectionError)
            {
                tracing::warn!(view = %self.view_id, %name, code = error.code, error = error.message, unlogged, "server reported an error for a collection");
            }
        }
    }

    /// Logs and counts routing that referred to missing clusters despite all holds.
    pub(super) fn report_dangling(&mut self, view: &mut View) {
        let dangled = view.take_dangled();
        if dangled.removals > 0
            && let Some(unlogged) = self.line(ServerEvent::RemovedInUse)
        {
            let clusters = names(&dangled.removed);
            tracing::warn!(view = %self.view_id, count = dangled.removals, clusters, unlogged, "clusters removed while routing refers to them");
        }
        if dangled.waits > 0
            && let Some(unlogged) = self.line(ServerEvent::MissingClusters)
        {
            let clusters = names(&dangled.awaited);
            tracing::info!(view = %self.view_id, count = dangled.waits, clusters, unlogged, "routing refers to clusters that do not exist");
        }
        if dangled.too_large > 0
            && let Some(unlogged) = self.line(ServerEvent::TooLarge)
        {
            let count = dangled.too_large;
            tracing::warn!(view = %self.view_id, count, unlogged, "resources too large to find the clusters that they refer to");
        }
        self.order_metrics.removals += dangled.removals;
        self.order_metrics.waits += dangled.waits;
        self.order_metrics.too_large += dangled.too_large;
    }

    /// Whether an event that servers may repeat is worth a line.
    fn line(&self, event: ServerEvent) -> Option<u64> {
        self.shared.server_paces.line(event)
    }

    /// Logs that a server refuses a type. Only clients that request the type are notified.
    pub(super) fn report_refused(&self, server: &str, kind: &Type, status: &ServerStatus, clients: usize) {
        let Some(unlogged) = self.line(ServerEvent::TypeRefused) else { return };
        let (view, type_url) = (&*self.view_id, kind.name());
        tracing::warn!(view, server, type_url, %status, clients, unlogged, "server refuses a type; it is requested apart from others");
    }

    /// Logs that a server refuses what a view shows it.
    pub(super) fn report_view_refused(&self, server: &str, status: &ServerStatus) {
        let Some(unlogged) = self.line(ServerEvent::ViewRefused) else { return };
        let view = &*self.view_id;
        tracing::warn!(view, server, %status, unlogged, "server refuses the headers of a view; new streams get its status");
    }

    pub(super) fn report_brakes(&mut self, view: &mut View, links: &Links) {
        self.brakes.report(view, |server| links.server_name(server));
    }

    /// Publishes the active server if it has changed, and logs each ladder whose state has.
    pub(super) fn report_ladders(&mut self, sources: &Sources, links: &Links) {
        for ladder in sources.ladders() {
            if let (Authority::TopLevel, Some(server)) = (ladder.authority, ladder.server)
                && self.active.swap(server, Ordering::Relaxed) != server
            {
                self.shared.active_server_changes.send_replace(());
            }
            let known = self.ladder_states.insert(ladder.authority.clone(), ladder.state);
            if known != Some(ladder.state) {
                let change = LadderChange {
                    authority: ladder.authority.name().to_owned(),
                    state: ladder.state,
                    previous: known,
                    server: ladder.server.map(|server| links.server(server)),
                };
                let reason = links.reason_of(&ladder);
                self.shared.server_log.ladder_changed(&self.view_id, change, reason.as_deref());
            }
        }
    }

    pub(super) fn report_readiness(&mut self, sources: &Sources, links: &Links, down: &BTreeSet<Authority>) {
        let is_hub = |ladder: &LadderSummary<'_>| ladder.server.is_some_and(|server| links.is_hub(server));
        self.readiness.report(sources.ladders(), down, is_hub, |ladder| links.reason_of(ladder));
    }

    /// Counts what has happened on upstream streams.
    pub(super) fn report_links(&self, links: &mut Links) {
        for (server, news) in links.take_unreported() {
            self.shared.incidents.upstream(links.server(server), news);
        }
    }

    /// Counts and logs the names that were left out of the last requests. Clients decide how often that is.
    pub(super) fn report_left_out(&self, sources: &mut Sources, links: &Links) {
        let view = &*self.view_id;
        for (id, stream) in sources.streams_mut() {
            for (kind, count) in stream.take_left_out() {
                self.shared.counters.limits.reached(Limit::MaxRequestBytes);
                let Some(unlogged) = self.left_out_pace.line(Instant::now()) else { continue };
                let server = links.server(id.server);
                tracing::warn!(view, server, type_url = kind.name(), count, unlogged, "names left out of a request");
            }
        }
    }
}

/// Joins the names for a log line.
fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

/// How many resources of a response are logged.
const MAX_LOGGED: usize = 20;
