//! What one configuration sets up to serve clients: sources, views, and the services in front of them. A reload sets up another one beside it,
//! which takes over sources that are the same and what the views have; the earlier one serves its streams until they have ended.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinSet;
use weir_core::protocol::local_set::SourceSnapshot;

use crate::admin::ServerCertificates;
use crate::client_status::ClientStatus;
use crate::config::Config;
use crate::config_status::ConfigFacts;
use crate::downstream::{Drain, DrainReason, DrainTimes, DrainTrigger, RestService, Service};
use crate::relay::{HubConnector, Loads, SharedConnector, Views, audit_views, retire_idle};
use crate::telemetry::{MetricsSources, ProcessSources};
use crate::transcode::{Descriptors, Transcoder};
use crate::upstream::{
    AdsConnector, Dialer, FilesConnector, FilesServer, FilesSource, FirstQuestion, LoadsConnector, Parser,
    RestConnector, SourcePlan,
};

pub(crate) struct Generation {
    pub(crate) views: Arc<Views>,
    pub(crate) loads: Arc<Loads>,
    pub(crate) files: Arc<[FilesSource]>,
    pub(crate) rest: Option<Arc<RestService>>,
    pub(crate) client_status: Arc<ClientStatus>,
    pub(crate) service: Arc<Service>,
    pub(crate) descriptors: Descriptors,
    pub(crate) server_certificates: Arc<[ServerCertificates]>,
    /// The files of certificates that servers are shown.
    own_certificates: Arc<[PathBuf]>,
    sources: Sources,
    trigger: DrainTrigger,
    /// How long the connection on which a source was first asked is kept open without a stream.
    keep: Duration,
    /// The generation's number for audits, and the servers whose views are audited.
    audits: (u64, Vec<String>),
    /// Tasks that end with the generation.
    beside: Mutex<JoinSet<()>>,
}

impl Generation {
    /// Sets up the first generation.
    pub(crate) fn first(config: &Config) -> Self {
        let sources = Sources::new(config, None);
        let views = first_views(config, sources.streams());
        let first = Self::of(config, sources, views, None);
        first.take_audits();
        first
    }

    /// Sets up a generation that follows another.
    pub(crate) fn after(config: &Config, earlier: &Self) -> Self {
        let sources = Sources::new(config, Some(&earlier.sources));
        let views = later_views(config, sources.streams(), &earlier.views);
        Self::of(config, sources, views, Some(earlier))
    }

    fn of(config: &Config, sources: Sources, views: Views, earlier: Option<&Self>) -> Self {
        sources.parser.bound_by(views.memory());
        // Held removals get larger numbers than any in this process and in earlier ones.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        config.views.protocol.view.brakes.generations.skip_to(u64::try_from(now.as_millis()).unwrap_or_default());
        let views = Arc::new(views);
        let loads = Loads::new(config.loads, views.clone(), Arc::new(LoadsConnector::new(sources.loads())));
        let loads = Arc::new(match earlier {
            Some(earlier) => loads.after(&earlier.loads),
            None => loads,
        });
        let descriptors = sources.descriptors.clone();
        let name = &config.downstream.control_plane;
        let compression = config.downstream.compression;
        let rest = config.rest.clone();
        let rest = rest.map(|options| Arc::new(RestService::new(options, compression, descriptors.clone(), name)));
        let client_status = Arc::new(ClientStatus::new(views.clone(), descriptors.clone()));
        let (trigger, drain) = Drain::new();
        let (status, options) = (client_status.clone(), &config.downstream);
        let before = earlier.map(|earlier| &*earlier.service);
        let service = Service::new(views.clone(), loads.clone(), status, rest.clone(), options, drain, before);
        let mut beside = JoinSet::new();
        let (idle_views, idle) = (views.clone(), config.views_idle);
        beside.spawn(async move { retire_idle(&idle_views, idle).await });
        let (number, audited) = (views.incidents().audits.number(), sources.audited(config));
        if let Some(interval) = config.views_audit.filter(|_| !audited.is_empty()) {
            let (views, descriptors) = (views.clone(), descriptors.clone());
            beside.spawn(async move { audit_views(&views, number, interval, &descriptors).await });
        }
        let server_certificates: Arc<[_]> =
            sources.all.iter().flat_map(|(plan, _)| server_certificates(plan)).collect();
        Self {
            views,
            loads,
            files: sources.files.clone().into(),
            rest,
            client_status,
            service: Arc::new(service),
            descriptors,
            own_certificates: server_certificates
                .iter()
                .filter_map(|of| Some(of.own.as_ref()?.certificate.clone()))
                .collect(),
            server_certificates,
            sources,
            trigger,
            keep: config.views.protocol.view.linger,
            audits: (number, audited),
            beside: Mutex::new(beside),
        }
    }

    /// Starts the audits of this generation's views, and ends those of other generations. It must be the generation in use.
    pub(crate) fn take_audits(&self) {
        let (number, servers) = &self.audits;
        self.views.incidents().audits.follow(*number, servers);
    }

    /// Returns the sources of metrics and problems.
    pub(crate) fn metrics_sources(&self, process: ProcessSources, config: ConfigFacts) -> MetricsSources {
        MetricsSources {
            views: self.views.clone(),
            loads: self.loads.clone(),
            files: self.files.clone(),
            certificate_files: self.own_certificates.clone(),
            config,
            process,
        }
    }

    /// Asks all sources whether the relay could serve a client, unless it has been ready before. From now on, this generation has to serve.
    pub(crate) fn ask_sources(&self) {
        let sources = self.sources.all.iter().map(|(plan, _)| plan.for_start());
        let Some(report) = self.views.readiness().ask(sources.collect()) else { return };
        let mut beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, (_, opener)) in self.sources.all.iter().enumerate() {
            beside.spawn(opener.question.clone().ask(index, report.clone(), self.keep));
        }
    }

    /// Waits for the first reading of files, which is usually short: a relay that serves only files should be ready as soon as probes can ask it.
    pub(crate) async fn files_are_read(&self) {
        if !self.files.is_empty() {
            let _ = tokio::time::timeout(AT_START, self.views.readiness().changed_from(false)).await;
        }
    }

    /// Charges the present bodies of files, and returns the bytes of other memory with limits of its own: versions that clients state, load reports,
    /// responses for REST.
    pub(crate) fn sample_bytes(&self) -> usize {
        self.sources.parser.charge_bodies();
        let mut stated = self.views.stated_versions().bytes();
        let mut before = self.views.before();
        while let Some(views) = before {
            stated += views.stated_versions().bytes();
            before = views.before();
        }
        let of_rest = self.rest.as_ref().map_or(0, |rest| rest.report().kept_bytes as usize);
        stated + self.loads.kept() + of_rest
    }

    /// Whether it serves no stream, of discovery or of load reports.
    pub(crate) fn has_no_clients(&self) -> bool {
        self.views.has_no_clients() && self.loads.have_no_clients()
    }

    /// Ends the streams of this generation, spread over time.
    pub(crate) fn end(&self, times: DrainTimes, reason: DrainReason) {
        self.trigger.begin(times, reason);
    }

    /// Sends the last load reports of clients, after all of them have left.
    pub(crate) async fn finish_loads(&self, patience: Duration) {
        if tokio::time::timeout(patience, self.loads.finish()).await.is_err() {
            tracing::warn!("load reports lost: no server took them in time");
        }
    }
}

/// Creates the views, including the hub behind them if there is one.
fn first_views(config: &Config, mut connectors: Vec<SharedConnector>) -> Views {
    let options = config.views.clone();
    let Some(hub) = config.hub.clone() else { return Views::new(options, connectors) };
    let hub = Arc::new(Views::new(hub, connectors.clone()).into_hub());
    connectors.push(Arc::new(HubConnector::new(hub.clone())));
    Views::new(options, connectors).with_hub(hub)
}

/// Creates views that follow those of an earlier generation.
fn later_views(config: &Config, mut connectors: Vec<SharedConnector>, earlier: &Arc<Views>) -> Views {
    let (options, keep) = (config.views.clone(), config.views_idle);
    let Some(hub) = config.hub.clone() else { return Views::new(options, connectors).after(earlier, keep) };
    let hub_before = earlier.hub().unwrap_or(earlier);
    let hub = Arc::new(Views::new(hub, connectors.clone()).into_hub().after(hub_before, keep));
    connectors.push(Arc::new(HubConnector::new(hub.clone())));
    Views::new(options, connectors).with_hub(hub).after(earlier, keep)
}

/// The sources of a plan, each opened once.
struct Sources {
    all: Vec<(SourcePlan, Opener)>,
    files: Vec<FilesSource>,
    parser: Parser,
    descriptors: Descriptors,
    /// The knowledge about addresses, which outlives every configuration.
    dialer: Arc<Dialer>,
}

/// The connectors of a source: for streams, for load reports if it accepts them, and for the question at the start.
#[derive(Clone)]
struct Opener {
    streams: SharedConnector,
    loads: Option<AdsConnector>,
    question: FirstQuestion,
}

impl Sources {
    /// Opens the sources. Sources that the earlier configuration had too keep their connections.
    fn new(config: &Config, earlier: Option<&Self>) -> Self {
        let own = config.transcoder.clone();
        let is_same = |before: &&Self| match (&before.parser.transcoder, &config.transcoder) {
            (None, None) => true,
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            _ => false,
        };
        let dialer = earlier.map(|earlier| earlier.dialer.clone()).unwrap_or_default();
        // New sources serve the resources of those that they replace even without room. A source that continues keeps its room, so it is left out.
        let goes_on = |files: &&FilesSource| {
            let is_it = |plan: &SourcePlan| match plan {
                SourcePlan::Files(server) => server.options == *files.options(),
                SourcePlan::Ads(_) | SourcePlan::Rest(_) => false,
            };
            earlier.as_ref().is_some_and(is_same) && config.upstream.servers.iter().any(is_it)
        };
        let files = earlier.iter().flat_map(|earlier| &earlier.files).filter(|files| !goes_on(files));
        let served = joined(files.map(FilesSource::served).collect());
        let earlier = earlier.filter(is_same);
        let descriptors: Descriptors = match earlier {
            Some(earlier) => earlier.descriptors.clone(),
            None => Arc::new(move || own.clone().unwrap_or_else(Transcoder::envoy)),
        };
        let parser = match earlier {
            Some(earlier) => earlier.parser.clone(),
            None => Parser::new(config.views.table.clone(), config.transcoder.clone()).until_bound(),
        };
        let mut sources = Self { all: Vec::new(), files: Vec::new(), parser, descriptors, dialer };
        for plan in &config.upstream.servers {
            let known = earlier.and_then(|earlier| earlier.all.iter().find(|(known, _)| known == plan));
            let source = match (known, plan) {
                // Sources of files always go through `open`, which takes those that continue from `earlier`, and lists them in `files`. Of an equal
                // plan the earlier one stays: it has what the connections have read.
                (Some(known), SourcePlan::Ads(_) | SourcePlan::Rest(_)) => known.clone(),
                _ => (plan.clone(), sources.open(plan.clone(), earlier, &served)),
            };
            sources.all.push(source);
        }
        sources
    }

    fn streams(&self) -> Vec<SharedConnector> {
        self.all.iter().map(|(_, opener)| opener.streams.clone()).collect()
    }

    /// Returns the servers whose views are audited: those that are shown the node of a client, which files are not.
    fn audited(&self, config: &Config) -> Vec<String> {
        if config.views_audit.is_none() || !config.views.shows_members {
            return Vec::new();
        }
        let shown = self.all.iter().filter(|(plan, _)| !matches!(plan, SourcePlan::Files(_)));
        shown.map(|(_, opener)| opener.streams.describe()).collect()
    }

    fn loads(&self) -> Vec<Option<AdsConnector>> {
        self.all.iter().map(|(_, opener)| opener.loads.clone()).collect()
    }

    /// `served`: the snapshots of earlier file sources that do not continue.
    fn open(&mut self, plan: SourcePlan, earlier: Option<&Self>, served: &[Arc<SourceSnapshot>]) -> Opener {
        match plan {
            SourcePlan::Ads(server) => {
                let connector = AdsConnector::dialing_by(*server, &self.dialer);
                let question = FirstQuestion::Ads(connector.clone());
                Opener { streams: Arc::new(connector.clone()), loads: Some(connector), question }
            }
            SourcePlan::Rest(server) => {
                let table = self.parser.table.clone();
                let connector = RestConnector::new(*server, self.descriptors.clone(), table);
                let connector = connector.dialing_by(self.dialer.clone());
                let question = FirstQuestion::Rest(connector.clone());
                Opener { streams: Arc::new(connector), loads: None, question }
            }
            SourcePlan::Files(FilesServer { options, .. }) => {
                let is_meant = |files: &&FilesSource| *files.options() == options;
                let files = match self.files.iter().find(is_meant) {
                    Some(files) => files.clone(),
                    None => {
                        let before = earlier.and_then(|earlier| earlier.files.iter().find(is_meant)).cloned();
                        let start = || FilesSource::start_after(served.to_vec(), options, self.parser.clone());
                        let files = before.unwrap_or_else(start);
                        self.files.push(files.clone());
                        files
                    }
                };
                let question = FirstQuestion::Files(files.clone());
                Opener { streams: Arc::new(FilesConnector::new(files)), loads: None, question }
            }
        }
    }
}

/// Joins the snapshots of file sources, each with those that it had from earlier sources. The result is limited, however often files are followed by
/// others before all of them could be read.
fn joined(served: Vec<Vec<Arc<SourceSnapshot>>>) -> Vec<Arc<SourceSnapshot>> {
    let own = served.iter().flat_map(|of| of.iter().take(1));
    let before = served.iter().flat_map(|of| of.iter().skip(1));
    let mut all: Vec<_> = own.chain(before).filter(|of| of.resources() > 0).cloned().collect();
    let mut known = HashSet::new();
    all.retain(|of| known.insert(Arc::as_ptr(of)));
    all.truncate(served.len() + BEFORE);
    all
}

/// Returns the files of certificates for a server.
fn server_certificates(source: &SourcePlan) -> Vec<ServerCertificates> {
    let server = match source {
        SourcePlan::Ads(server) => &**server,
        SourcePlan::Rest(server) => &server.at,
        SourcePlan::Files(_) => return Vec::new(),
    };
    let (scheme, host) = (server.uri.scheme_str().unwrap_or("https"), server.uri.host().unwrap_or_default());
    let port = server.uri.port_u16().map(|port| format!(":{port}")).unwrap_or_default();
    let name = format!("{scheme}://{host}{port}"); // without user and password
    let mut all = Vec::new();
    if let Some(tls) = &server.tls {
        let (own, ca, known) = (tls.own.clone(), tls.ca.clone(), server.known_files.clone());
        all.push(ServerCertificates { server: name.clone(), tenants: None, own, ca, known });
    }
    all.extend(server.tenants.iter().filter_map(|of| {
        let tenants = Some(of.tenants.iter().map(ToString::to_string).collect());
        let own = Some(of.own.clone()?);
        Some(ServerCertificates { server: name.clone(), tenants, own, ca: None, known: server.known_files.clone() })
    }));
    all
}

/// The number of snapshots that are kept from sources before those that are followed.
const BEFORE: usize = 8;
/// How long the start of the relay waits for its files.
const AT_START: Duration = Duration::from_millis(300);

#[cfg(test)]
mod tests;
