//! The metrics of the relay as text, in one of two formats. [`table`] has every metric, and docs/metrics.md is written from it.
//!
//! Each scrape is made from the current state, so nothing remains of a removed view. The number of label values is limited: servers and
//! authorities by the configuration, views by `views.max_in_metrics`; further views are summed as `other`.

mod clients;
mod config;
mod deliveries;
mod exposition;
mod format;
mod histogram;
mod log;
mod log_format;
mod log_panics;
mod log_queue;
mod metric;
mod page;
mod problems;
mod process;
mod relay;
mod runtime;
mod servers;
mod state;
mod table;
mod tls;
mod traces;
mod views;
mod waits;
mod workers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use self::exposition::Exposition;
pub(crate) use self::format::MetricsFormat;
pub use self::log::{LogControl, LogEnd, LogFilter};
pub use self::log_format::LogFormat;
use self::page::Page;
pub(crate) use self::problems::watch_problems;
pub(crate) use self::process::resident_bytes;
use self::runtime::RuntimeProbe;
pub use self::traces::Traces;
pub(crate) use self::workers::{WorkerHealth, WorkerWatch};
use crate::config_status::ConfigFacts;
use crate::memory::Book;
use crate::relay::questions::{self, Measured};
use crate::relay::{Incidents, Loads, ProcessCounters, ViewMetrics, Views, WaitReport};
use crate::state::StateCounters;
use crate::tls::{ListenerTls, TlsReport};
use crate::upstream::{FilesReport, FilesSource};

/// The state of one relay at one moment.
struct MetricsSnapshot<'a> {
    view_count: usize,
    /// The number of values of each field of the sharing key.
    key_values: Vec<(String, usize)>,
    /// The views that have labels of their own, and `other`.
    views: &'a [ViewMetrics],
    /// The open waits, in sums.
    waits: &'a WaitReport,
    counters: &'a ProcessCounters,
    incidents: &'a Incidents,
    buffered_load_bytes: usize,
    stated_versions_bytes: usize,
    cached_bytes: usize,
    book: Book,
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
    log_lines_dropped: u64,
    workers: &'a WorkerHealth,
    probe: &'a RuntimeProbe,
}

/// The sources of metrics.
pub(crate) struct MetricsSources {
    pub(crate) views: Arc<Views>,
    pub(crate) loads: Arc<Loads>,
    pub(crate) files: Arc<[FilesSource]>,
    /// The certificates that servers are shown.
    pub(crate) certificate_files: Arc<[PathBuf]>,
    pub(crate) config: ConfigFacts,
    pub(crate) process: ProcessSources,
}

/// The sources that stay the same while the process runs.
#[derive(Clone)]
pub(crate) struct ProcessSources {
    pub(crate) tls: Arc<[Arc<ListenerTls>]>,
    pub(crate) state: Option<Arc<StateCounters>>,
    pub(crate) log: LogControl,
    pub(crate) workers: Arc<WorkerHealth>,
}

/// Returns the exposition of the metrics. Each page is made from the sources that are in use then.
pub(crate) fn exposition(sources: impl Fn() -> MetricsSources + Send + Sync + 'static) -> Exposition {
    let probe = Arc::new(RuntimeProbe::start());
    Exposition::new(move || {
        let MetricsSources { views, loads, files, config, process, .. } = sources();
        let ProcessSources { tls, state, log, workers } = process;
        let probe = probe.clone();
        async move {
            let Measured { view_count, views: metrics, waits } = questions::measure(&views).await;
            text(&MetricsSnapshot {
                view_count,
                key_values: views.values_by_field(),
                views: &metrics,
                waits: &waits,
                counters: views.counters(),
                incidents: views.incidents(),
                buffered_load_bytes: loads.kept(),
                stated_versions_bytes: views.stated_versions().bytes(),
                cached_bytes: views.cached_bytes(),
                book: views.memory().book(),
                unanswered: questions::unanswered_calls(&views).collect(),
                connections: questions::upstream_connections(&views).collect(),
                nacking: questions::nacking_streams(&views),
                servers: views.servers().collect(),
                files: files.iter().map(FilesSource::report).collect(),
                tls: tls.iter().map(|tls| tls.report()).collect(),
                state: state.as_deref(),
                config: &config,
                log_lines_dropped: log.dropped_lines(),
                workers: &workers,
                probe: &probe,
            })
        }
    })
}

fn text(snapshot: &MetricsSnapshot<'_>) -> String {
    let mut page = Page::new();
    relay::add(&mut page, snapshot);
    clients::add(&mut page, snapshot);
    servers::add(&mut page, snapshot);
    traces::add(&mut page, snapshot.counters.traces.counts());
    deliveries::add(&mut page, &snapshot.counters.deliveries.counts());
    waits::add(&mut page, snapshot.waits, &snapshot.incidents.waits);
    snapshot.probe.add(&mut page, snapshot.workers);
    tls::add(&mut page, &snapshot.tls);
    if let Some(state) = snapshot.state {
        state::add(&mut page, state);
    }
    config::add(&mut page, snapshot.config);
    snapshot.views.iter().for_each(|view| views::add(&mut page, view));
    process::add(&mut page);
    page.text()
}

fn unix_seconds(time: SystemTime) -> i64 {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    i64::try_from(seconds).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
