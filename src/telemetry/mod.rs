//! The metrics of the relay as text, in one of two formats. docs/metrics.md lists every metric.
//!
//! Each scrape is made from the current state, so nothing remains of a removed view. Labels are bounded: servers and authorities by the
//! configuration, views by `views.max_in_metrics`; those beyond that are summed as `other`.

mod config;
mod deliveries;
mod format;
mod histogram;
mod labels;
mod log;
mod process;
mod runtime;
mod servers;
mod state;
mod tls;
mod traces;
mod views;
mod waits;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use self::format::MetricsFormat;
use self::labels::Labelled;
pub use self::log::{LogControl, LogFilter, LogFormat};
pub(crate) use self::process::resident_bytes;
use self::runtime::RuntimeProbe;
pub use self::traces::Traces;
use self::views::ViewFamilies;
use crate::build_facts;
use crate::config_status::ConfigFacts;
use crate::relay::{BrakeWatch, Incidents, Loads, ProcessCounters, ViewMetrics, Views, WaitReport, questions};
use crate::state::StateCounters;
use crate::tls::{ListenerTls, TlsReport};
use crate::upstream::{FilesReport, FilesSource};

/// The state of one relay at one moment.
struct MetricsSnapshot<'a> {
    view_count: usize,
    /// How many values each field of the sharing key has.
    key_values: Vec<(String, usize)>,
    /// Views with labels of their own, and `other`.
    views: &'a [ViewMetrics],
    /// What waits, in sums.
    waits: &'a WaitReport,
    counters: &'a ProcessCounters,
    incidents: &'a Incidents,
    buffered_load_bytes: usize,
    stated_versions_bytes: usize,
    cached_bytes: usize,
    /// Liveness calls without an answer, by server.
    unanswered: Vec<(String, u64)>,
    /// Connections to servers.
    connections: Vec<(String, usize)>,
    /// Client streams that NACK a version, by type.
    nacking: BTreeMap<String, usize>,
    servers: Vec<String>,
    files: Vec<FilesReport>,
    tls: Vec<TlsReport>,
    state: Option<&'a StateCounters>,
    config: &'a ConfigFacts,
    probe: &'a RuntimeProbe,
}

/// Writes the current metrics in a format.
pub(crate) type Exposition = Arc<dyn Fn(MetricsFormat) -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

/// What metrics are made of.
pub(crate) struct MetricsSources {
    pub(crate) views: Arc<Views>,
    pub(crate) loads: Arc<Loads>,
    pub(crate) files: Arc<[FilesSource]>,
    pub(crate) tls: Arc<[Arc<ListenerTls>]>,
    pub(crate) state: Option<Arc<StateCounters>>,
    pub(crate) config: ConfigFacts,
}

/// Returns the metrics endpoint of the admin address. Each scrape is of what is in use then.
pub(crate) fn exposition(sources: impl Fn() -> MetricsSources + Send + Sync + 'static) -> Exposition {
    let probe = Arc::new(RuntimeProbe::start());
    Arc::new(move |format| {
        let MetricsSources { views, loads, files, tls, state, config } = sources();
        let probe = probe.clone();
        Box::pin(async move {
            let (view_count, metrics) = questions::metrics(&views).await;
            let waits = questions::waits(&views, 0).await;
            let text = text(&MetricsSnapshot {
                view_count,
                key_values: views.values_by_field(),
                views: &metrics,
                waits: &waits,
                counters: views.counters(),
                incidents: views.incidents(),
                buffered_load_bytes: loads.kept(),
                stated_versions_bytes: views.stated_versions().bytes(),
                cached_bytes: views.cached_bytes(),
                unanswered: questions::unanswered_calls(&views).collect(),
                connections: questions::upstream_connections(&views).collect(),
                nacking: questions::nacking_streams(&views),
                servers: views.servers().collect(),
                files: files.iter().map(FilesSource::report).collect(),
                tls: tls.iter().map(|tls| tls.report()).collect(),
                state: state.as_deref(),
                config: &config,
                probe: &probe,
            });
            format.of_open_metrics(text)
        })
    })
}

fn text(snapshot: &MetricsSnapshot<'_>) -> String {
    let mut registry = Registry::default();
    let weir = registry.sub_registry_with_prefix("weir");
    register_clients(weir, snapshot);
    servers::register(weir, snapshot);
    register_relay(weir, snapshot);
    traces::register(weir, snapshot.counters.traces.counts());
    deliveries::register(weir, &snapshot.counters.deliveries.counts());
    register_types(weir, snapshot);
    waits::register(weir, snapshot.waits, &snapshot.incidents.waits);
    snapshot.probe.register(weir);
    tls::register(weir, &snapshot.tls);
    state::register(weir, snapshot.state);
    config::register(weir, snapshot.config);
    let families = ViewFamilies::register(weir);
    snapshot.views.iter().for_each(|view| families.add(view));
    process::register(&mut registry);
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => text,
        Err(_) => String::new(), // writing to a string does not fail
    }
}

fn register_relay(registry: &mut Registry, snapshot: &MetricsSnapshot<'_>) {
    let build = Labelled::<Gauge>::register(registry, "build_info", "Version of the running program; always 1");
    build.at(&[("version", build_facts::VERSION)]).set(1);
    gauge(registry, "views", "Views", snapshot.view_count);
    let help = "Values of a field of the sharing key over all views";
    let values = Labelled::<Gauge>::register(registry, "key_field_values", help);
    for (field, count) in &snapshot.key_values {
        values.at(&[("field", field)]).set(integer(*count));
    }
    counter(registry, "view_panics", "Views ended by an internal error (a bug)", snapshot.incidents.view_panics());
    register_brakes(registry, &snapshot.incidents.brakes);
    let sources = Labelled::<Gauge>::register(registry, "resource_files", "Resource files of a file source");
    let errors =
        Labelled::<Gauge>::register(registry, "resource_file_errors", "Errors in the resource files of a file source");
    for source in &snapshot.files {
        let name = source.name();
        sources.at(&[("source", &name)]).set(integer(source.files));
        errors.at(&[("source", &name)]).set(integer(source.errors.len()));
    }
}

fn register_types(registry: &mut Registry, snapshot: &MetricsSnapshot<'_>) {
    let help = "Cached resources of a type; those of several views count for each";
    let resources = Labelled::<Gauge>::register(registry, "type_resources", help);
    let help = "Bytes of the cached resources of a type; those of several views count for each";
    let bytes = Labelled::<Gauge>::register(registry, "type_resource_bytes", help);
    for kind in snapshot.counters.type_names() {
        resources.at(&[("type", kind)]).inc_by(0);
        bytes.at(&[("type", kind)]).inc_by(0);
    }
    for (kind, size) in snapshot.views.iter().flat_map(|view| &view.by_type) {
        resources.at(&[("type", kind)]).inc_by(integer(size.resources));
        bytes.at(&[("type", kind)]).inc_by(integer(size.bytes));
    }
}

fn register_brakes(registry: &mut Registry, brakes: &BrakeWatch) {
    let held = Labelled::<Gauge>::register(registry, "brake_held_removals", "Removals that brakes hold now");
    for (kind, count) in brakes.held() {
        held.at(&[("type", &kind)]).set(integer(count));
    }
    let engaged = Labelled::<Counter>::register(registry, "brakes_engaged", "Times that a brake of a set has engaged");
    for (kind, count) in brakes.engaged() {
        engaged.at(&[("type", &kind)]).inc_by(count);
    }
    let help = "Held removals that were let go, or that their server took back";
    let released = Labelled::<Counter>::register(registry, "brake_removals_released", help);
    for ((kind, reason), count) in brakes.released() {
        released.at(&[("type", &kind), ("reason", reason.name())]).inc_by(count);
    }
}

fn register_clients(registry: &mut Registry, snapshot: &MetricsSnapshot<'_>) {
    let counters = snapshot.counters;
    gauge(registry, "client_connections", "Open connections of clients", counters.connections());
    let help = "Connections that reached their maximum age, and whose clients had to connect again";
    counter(registry, "client_connections_aged", help, counters.connections_aged());
    let help = "Large replies that wait for their turn, of 256 KiB or more each";
    gauge(registry, "client_replies_waiting", help, counters.replies_waiting());
    let accepted = Labelled::<Counter>::register(registry, "client_streams_accepted", "Client streams accepted");
    for (variant, count) in counters.streams() {
        accepted.at(&[("variant", variant)]).inc_by(count);
    }
    let rejected = Labelled::<Counter>::register(registry, "client_streams_rejected", "Client streams rejected");
    for (reason, count) in counters.rejections() {
        rejected.at(&[("reason", reason)]).inc_by(count);
    }
    let limits = Labelled::<Counter>::register(registry, "limit_reached", "Times that a limit was reached, by its key");
    for (limit, count) in counters.limits.counts() {
        limits.at(&[("limit", limit)]).inc_by(count);
    }
    let help = "Connections closed for their PROXY header, or for having none";
    let faults = Labelled::<Counter>::register(registry, "proxy_headers_refused", help);
    for (reason, count) in counters.proxy_faults.counts() {
        faults.at(&[("reason", reason)]).inc_by(count);
    }
    let nacks = Labelled::<Counter>::register(registry, "client_nacks", "Responses that clients NACKed");
    for (kind, count) in counters.nacks() {
        nacks.at(&[("type", &kind)]).inc_by(count);
    }
    let help = "Client streams that NACKed a version and accepted nothing newer";
    let nacking = Labelled::<Gauge>::register(registry, "client_streams_nacking", help);
    for (kind, count) in &snapshot.nacking {
        nacking.at(&[("type", kind)]).set(integer(*count));
    }
    let help = "Requested names that are malformed, of another type, or of an authority without servers";
    counter(registry, "client_names_rejected", help, counters.rejected_names());
    counter(
        registry,
        "load_reports_dropped",
        "Load reports dropped, in whole or in part",
        counters.load_reports_lost(),
    );
    let help = "Approximate memory of load reports that wait for a control plane";
    let buffered = Gauge::<i64>::default();
    buffered.set(integer(snapshot.buffered_load_bytes));
    registry.register_with_unit("load_reports_buffered", help, Unit::Bytes, buffered);
    let help = "Approximate memory of initial_resource_versions that are not judged yet";
    let stated = Gauge::<i64>::default();
    stated.set(integer(snapshot.stated_versions_bytes));
    gauge(registry, "cached_bytes", "Bytes of all cached resources, each body once", snapshot.cached_bytes);
    registry.register_with_unit("stated_versions", help, Unit::Bytes, stated);
}

fn gauge(registry: &mut Registry, name: &str, help: &str, value: usize) {
    let gauge = Gauge::<i64>::default();
    gauge.set(integer(value));
    registry.register(name, help, gauge);
}

fn counter(registry: &mut Registry, name: &str, help: &str, value: u64) {
    let counter = Counter::<u64>::default();
    counter.inc_by(value);
    registry.register(name, help, counter);
}

fn integer(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
