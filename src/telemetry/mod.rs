//! What the relay measures, as OpenMetrics text. docs/metrics.md has every metric.
//!
//! Each scrape is written from what is there at that moment, so nothing is left of a view that has gone, and labels are bounded by
//! the configuration and by `views.max`: a view goes by the hash of its sharing key, a server by its name in the configuration.

mod labels;

use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use self::labels::{Labelled, Labels};
use crate::admin::Exposition;
use crate::relay::{Incidents, LadderMetrics, Loads, ProcessCounters, ServerMetrics, ViewMetrics, Views};

/// Everything of one relay at one moment.
struct MetricsSnapshot<'a> {
    views: &'a [ViewMetrics],
    tally: &'a ProcessCounters,
    incidents: &'a Incidents,
    load_bytes: usize,
    /// Calls without an answer, by server.
    unanswered: Vec<(String, u64)>,
}

/// What the admin address serves as its metrics.
pub fn exposition(views: Arc<Views>, loads: Arc<Loads>) -> Exposition {
    Arc::new(move || {
        let (views, loads) = (views.clone(), loads.clone());
        Box::pin(async move {
            let measures = views.measures().await;
            let (load_bytes, unanswered) = (loads.kept(), views.unanswered_calls().collect());
            let (tally, incidents) = (views.counters(), views.incidents());
            text(&MetricsSnapshot { views: &measures, tally, incidents, load_bytes, unanswered })
        })
    })
}

fn text(picture: &MetricsSnapshot<'_>) -> String {
    let mut registry = Registry::with_prefix("weir");
    of_process(&mut registry, picture);
    let mut of_views = OfViews::register(&mut registry);
    picture.views.iter().for_each(|view| of_views.add(view));
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => text,
        Err(_) => String::new(), // writing to a string does not fail
    }
}

fn of_process(registry: &mut Registry, picture: &MetricsSnapshot<'_>) {
    let build = Labelled::<Gauge>::register(registry, "build", "Always 1; the label says which version runs");
    build.at(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
    let views: Gauge = Gauge::default();
    views.set(whole(picture.views.len()));
    registry.register("views", "Views that are kept", views);
    let streams = Labelled::<Counter>::register(registry, "streams", "Discovery streams of clients that were taken on");
    for (variant, count) in picture.tally.streams() {
        streams.at(&[("variant", variant)]).inc_by(count);
    }
    let help = "Discovery streams of clients that were not taken on";
    let refused = Labelled::<Counter>::register(registry, "streams_refused", help);
    for (reason, count) in picture.tally.rejections() {
        refused.at(&[("reason", reason)]).inc_by(count);
    }
    let nacks = Labelled::<Counter>::register(registry, "client_nacks", "Replies that clients refused");
    for (kind, count) in picture.tally.nacks() {
        nacks.at(&[("type", &kind)]).inc_by(count);
    }
    let refused: Counter = Counter::default();
    refused.inc_by(picture.tally.rejected_names());
    registry.register("names_refused", "Names that clients asked for and that nobody can be asked for", refused);
    let lost: Counter = Counter::default();
    lost.inc_by(picture.tally.load_reports_lost());
    registry.register("load_reports_lost", "Load reports that were dropped, in whole or in part", lost);
    let help = "Calls that asked the server whether it is there, and that it did not answer";
    let unanswered = Labelled::<Counter>::register(registry, "upstream_life_calls_unanswered", help);
    for (server, count) in &picture.unanswered {
        unanswered.at(&[("server", server)]).inc_by(*count);
    }
    let help = "Resources of the server that the relay rejected, each version of a name once";
    let rejected = Labelled::<Counter>::register(registry, "upstream_resources_rejected", help);
    for ((server, kind), count) in picture.incidents.rejected_resources() {
        rejected.at(&[("server", &server), ("type", &kind)]).inc_by(count);
    }
    let panics: Counter = Counter::default();
    panics.inc_by(picture.incidents.view_panics());
    registry.register("view_panics", "Views that ended by a panic, which is a bug", panics);
    let kept: Gauge = Gauge::default();
    kept.set(whole(picture.load_bytes));
    registry.register("load_bytes", "About how many bytes of load reports are kept for control planes", kept);
}

/// Metrics that have a view among their labels.
struct OfViews {
    sessions: Labelled<Gauge>,
    resources: Labelled<Gauge>,
    active: Labelled<Gauge>,
    waiting: Labelled<Gauge>,
    guessing: Labelled<Gauge>,
    standing: Labelled<Gauge>,
    standing_seconds: Labelled<Gauge>,
    moves: Labelled<Counter>,
    streams: Labelled<Gauge>,
    connected: Labelled<Gauge>,
    opened: Labelled<Counter>,
    ended: Labelled<Counter>,
    responses: Labelled<Counter>,
    nacks: Labelled<Counter>,
    dangling: Labelled<Gauge>,
    removed_in_use: Labelled<Counter>,
    routed_nowhere: Labelled<Counter>,
    too_large: Labelled<Counter>,
}

impl OfViews {
    #[rustfmt::skip]
    fn register(registry: &mut Registry) -> Self {
        Self {
            sessions: Labelled::register(registry, "sessions", "Discovery streams of clients that are open"),
            waiting: Labelled::register(registry, "sessions_waiting", "Streams of clients that wait, for as long as it takes, because not all of a type is known"),
            guessing: Labelled::register(registry, "sessions_guessing", "Streams of clients that ask for more absent names than limits.absent_names_per_stream"),
            resources: Labelled::register(registry, "resources", "Resources of control planes that are held"),
            active: Labelled::register(registry, "ladder_active", "1 for the server whose word counts, 0 for the others of the ladder"),
            standing: Labelled::register(registry, "ladder_standing", "1 for how the ladder stands, 0 for how it could"),
            standing_seconds: Labelled::register(registry, "ladder_standing_seconds", "How long the ladder has been standing so"),
            moves: Labelled::register(registry, "ladder_moves", "Moves to the next server, and back to one further up"),
            streams: Labelled::register(registry, "upstream_streams", "Streams to the server that are wanted"),
            connected: Labelled::register(registry, "upstream_connected", "Streams to the server that are up"),
            opened: Labelled::register(registry, "upstream_opened", "Times that a stream to the server came up"),
            ended: Labelled::register(registry, "upstream_ended", "Times that a stream to the server ended or could not be opened"),
            responses: Labelled::register(registry, "upstream_responses", "Responses of the server"),
            dangling: Labelled::register(registry, "clusters_missing", "Clusters that routing leads to and that do not exist"),
            removed_in_use: Labelled::register(registry, "clusters_removed_in_use", "Clusters that were removed while routing led to them, after limits.reference_hold"),
            routed_nowhere: Labelled::register(registry, "clusters_awaited_in_vain", "Clusters that a change of routing leads to and that did not come in time"),
            too_large: Labelled::register(registry, "resources_too_large_to_order", "Times that a resource came which is too large to see which clusters it leads to"),
            nacks: Labelled::register(registry, "upstream_nacks", "Responses of the server that the relay refused, in whole or in part"),
        }
    }

    fn add(&mut self, view: &ViewMetrics) {
        let of_view: &Labels<'_> = &[("view", &view.view)];
        self.sessions.at(of_view).set(whole(view.sessions));
        self.waiting.at(of_view).set(whole(view.blocked));
        self.guessing.at(of_view).set(whole(view.over_absent_limit));
        self.resources.at(of_view).set(whole(view.cached));
        self.dangling.at(of_view).set(whole(view.dangling));
        self.removed_in_use.at(of_view).inc_by(view.order.removals);
        self.routed_nowhere.at(of_view).inc_by(view.order.waits);
        self.too_large.at(of_view).inc_by(view.order.too_large);
        view.ladders.iter().for_each(|ladder| self.add_ladder(&view.view, ladder));
        view.servers.iter().for_each(|server| self.add_server(&view.view, server));
    }

    fn add_ladder(&self, view: &str, ladder: &LadderMetrics) {
        let of_ladder = [("view", view), ("authority", ladder.authority.as_str())];
        let and = |name, value| [of_ladder[0], of_ladder[1], (name, value)];
        for (at, server) in ladder.servers.iter().enumerate() {
            self.active.at(&and("server", server)).set((ladder.active == Some(at)).into());
        }
        for standing in ["idle", "trying", "active", "held", "down"] {
            self.standing.at(&and("standing", standing)).set((ladder.state == standing).into());
        }
        self.standing_seconds.at(&of_ladder).set(ladder.seconds.try_into().unwrap_or(i64::MAX));
        self.moves.at(&and("direction", "down")).inc_by(ladder.switches.down);
        self.moves.at(&and("direction", "up")).inc_by(ladder.switches.up);
    }

    fn add_server(&self, view: &str, server: &ServerMetrics) {
        let labels = [("view", view), ("server", server.server.as_str())];
        self.streams.at(&labels).set(whole(server.streams));
        self.connected.at(&labels).set(whole(server.connected));
        self.opened.at(&labels).inc_by(server.totals.opened);
        self.ended.at(&labels).inc_by(server.totals.ended);
        self.responses.at(&labels).inc_by(server.totals.responses);
        self.nacks.at(&labels).inc_by(server.totals.nacks);
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
