//! Assembly: builds everything, binds the listeners, and runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tokio::task::JoinSet;

use crate::admin::{self, AdminSocket, ListenerInfo, Rules, ServerCertificates, ServerInfo, Shown};
use crate::client_status::ClientStatus;
use crate::config::{AdminOptions, AdminTls, Config, ListenAddress, ShownConfig};
use crate::downstream::{
    self, BACKLOG, Connections, Downstream, Drain, DrainTrigger, JudgedClients, Listener, Rest, UnixOptions, UnixSocket,
};
use crate::open_files::{self, Shares, Spare};
use crate::relay::{HubConnector, Loads, NeedsRestart, SharedConnector, Views, ViewsOptions};
use crate::state::StateWriter;
use crate::telemetry::{self, LogControl};
use crate::tls::ListenerTls;
use crate::transcode::{Descriptors, Transcoder};
use crate::upstream::{
    AdsConnector, FilesConnector, FilesServer, FilesSource, LoadsConnector, Parser, RestConnector, SourcePlan,
};
use crate::xds::Permissions;

/// A relay that is bound and not yet running.
pub struct App {
    listeners: Vec<Listener>,
    tls: Arc<[Arc<ListenerTls>]>,
    admin: Vec<AdminSocket>,
    admin_options: AdminOptions,
    spare: Arc<Spare>,
    downstream: Downstream,
    connections: Arc<Connections>,
    views: Arc<Views>,
    loads: Arc<Loads>,
    files: Arc<[FilesSource]>,
    views_idle: Duration,
    switch: DrainTrigger,
    drain: Drain,
    rest: Option<Arc<Rest>>,
    state: Option<StateWriter>,
    log: LogControl,
    descriptors: Descriptors,
    client_status: Arc<ClientStatus>,
    shown_config: ShownConfig,
    shown_now: Arc<Mutex<serde_json::Value>>,
    server_certificates: Vec<ServerCertificates>,
    started: SystemTime,
    since: Instant,
}

impl App {
    /// Builds everything in the configuration and opens the listeners. Nothing is served before [`App::run_until`].
    pub async fn bind(config: Config) -> anyhow::Result<Self> {
        let (now, since) = (SystemTime::now(), Instant::now());
        let started = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let server_certificates = config.upstream.servers.iter().flat_map(server_certificates).collect();
        let shown_now = Arc::new(Mutex::new(config.shown.config.clone()));
        config.views.limits.brakes.generations.skip_to(u64::try_from(started.as_millis()).unwrap_or_default());
        let own = config.transcoder.clone();
        let descriptors: Descriptors = Arc::new(move || own.clone().unwrap_or_else(Transcoder::envoy));
        let parser = Parser { table: Arc::new(config.views.table.clone()), transcoder: config.transcoder };
        let mut openers = Openers { parser, descriptors: descriptors.clone(), files: Vec::new() };
        let sources: Vec<_> = config.upstream.servers.into_iter().map(|source| openers.of(source)).collect();
        let streams = sources.iter().map(|source| source.streams.clone()).collect();
        let views = Arc::new(views(config.views, config.hub, streams));
        let takers = sources.into_iter().map(|source| source.loads).collect();
        let loads = Arc::new(Loads::new(config.loads, views.clone(), Arc::new(LoadsConnector::new(takers))));
        let state = config.state.map(|options| StateWriter::start(options, &views)).transpose()?;
        let mut listeners = Vec::new();
        for options in config.listen {
            let address = options.address.clone();
            listeners.push(Listener::open(options).with_context(|| format!("cannot listen on {address}"))?);
        }
        let admin = admin_sockets(&config.admin, config.probes)?;
        let (switch, drain) = Drain::new(config.drain);
        let name = config.downstream.control_plane.clone();
        let rest = config.rest.map(|options| Arc::new(Rest::new(options, descriptors.clone(), &name)));
        let limits = config.downstream.connections.clone();
        let shares = Shares::of(open_files::limit());
        let spare = Spare::new(if admin.is_empty() { 0 } else { SPARE_FILES });
        if let Some(configured) = limits.connections.filter(|configured| *configured > shares.clients) {
            let lowered = shares.clients;
            tracing::warn!(configured, lowered, "limits.connections lowered to what the limit of open files allows");
        }
        let connections = Connections::new(limits, shares, spare.clone(), listeners.len(), views.counters());
        let clients = connections.clone();
        let client_status = Arc::new(ClientStatus::new(views.clone(), descriptors.clone()));
        let (status, options) = (client_status.clone(), config.downstream);
        let downstream = Downstream::new(views.clone(), loads.clone(), clients, status, options, drain.clone());
        let downstream = downstream.with_rest(rest.clone());
        let views_idle = config.views_idle;
        let tls = listeners.iter().filter_map(Listener::tls).chain(admin.iter().filter_map(AdminSocket::tls));
        let tls = tls.cloned().collect();
        Ok(Self {
            listeners,
            tls,
            admin,
            admin_options: config.admin,
            spare,
            downstream,
            connections,
            views,
            loads,
            files: openers.files.into(),
            views_idle,
            switch,
            drain,
            rest,
            state,
            log: LogControl::none(),
            descriptors,
            client_status,
            shown_config: config.shown,
            shown_now,
            server_certificates,
            started: now,
            since,
        })
    }

    /// Lets the admin address change the log level.
    pub fn with_log_control(self, log: LogControl) -> Self {
        Self { log, ..self }
    }

    /// Returns the upstream servers as logs and metrics name them.
    pub fn servers(&self) -> Vec<String> {
        self.views.servers().collect()
    }

    /// Returns the addresses for clients, with the ports that were chosen for port 0. Unix sockets have none.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listens_at().iter().filter_map(ListenAddress::tcp).collect()
    }

    /// Returns where clients connect, Unix sockets included.
    pub fn listens_at(&self) -> Vec<ListenAddress> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// Returns the address for operators, with the port that was chosen for `:0`.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.iter().find_map(AdminSocket::of_operators)
    }

    /// Returns the address for probes, with the port that was chosen for `:0`.
    pub fn probes_address(&self) -> Option<SocketAddr> {
        self.admin.iter().find_map(AdminSocket::of_probes)
    }

    /// Returns the path of the Unix socket for operators.
    pub fn admin_socket(&self) -> Option<&Path> {
        self.admin_options.socket.as_deref()
    }

    /// Returns what changes the permissions while the relay runs.
    pub fn permissions(&self) -> PermissionsControl {
        PermissionsControl {
            views: self.views.clone(),
            judged: self.downstream.judged_clients(),
            shown: self.shown_now.clone(),
        }
    }

    /// Returns how many connections of clients are served at a time.
    pub fn max_connections(&self) -> usize {
        self.connections.max()
    }

    /// Serves until the future is dropped, or until `stop` is ready and the relay has drained: it is not ready at once, closes its
    /// listeners after the configured delay, and then ends client streams.
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let mut serving = JoinSet::new();
        let info = Arc::new(self.server_info());
        for listener in self.listeners {
            serving.spawn(self.downstream.clone().serve(listener));
        }
        let mut beside = JoinSet::new();
        let readiness = self.views.readiness().clone();
        beside.spawn({
            let readiness = readiness.clone();
            async move { readiness.log_changes().await }
        });
        let brakes = self.views.incidents().brakes.clone();
        beside.spawn(async move { brakes.log().await });
        let judged = self.downstream.judged_clients();
        beside.spawn(async move { judged.run().await });
        let (views, idle) = (self.views.clone(), self.views_idle);
        beside.spawn(async move { views.retire_idle(idle).await });
        if let Some(state) = &self.state {
            beside.spawn(state.watch());
        }
        if !self.admin.is_empty() {
            let state = self.state.as_ref().map(StateWriter::counters);
            let (views, loads, files) = (self.views.clone(), self.loads.clone(), self.files.clone());
            let metrics = telemetry::exposition(views, loads, files, self.tls.clone(), state);
            let rules = Arc::new(admin_rules(self.admin_options));
            let (views, files, rest, log) = (self.views, self.files, self.rest, self.log);
            let shown = Shown {
                views,
                files,
                rest,
                metrics,
                log,
                rules,
                info,
                tls: self.tls,
                server_certificates: self.server_certificates.into(),
                descriptors: self.descriptors,
                dumps: admin::dump_places(),
                client_status: self.client_status,
            };
            beside.spawn(admin::serve(self.admin, self.spare, shown));
        }
        stop.await;
        readiness.drain();
        // What clients leave while they are sent away is no loss of the next process, which can open the file from here on.
        if let Some(state) = self.state
            && tokio::time::timeout(LAST_WRITE, state.finish()).await.is_err()
        {
            tracing::warn!("the last state could not be written in time");
        }
        let delay = self.drain.delay();
        if !delay.is_zero() {
            let delay_text = humantime::format_duration(delay);
            tracing::info!(delay = %delay_text, "waiting for the drain delay; still accepting clients");
            tokio::time::sleep(delay).await;
        }
        tracing::info!("closing listeners and ending client streams");
        self.switch.begin();
        let ended = async { while serving.join_next().await.is_some() {} };
        if tokio::time::timeout(self.drain.longest() + LAST_BYTES, ended).await.is_err() {
            tracing::warn!("drain timed out; closing remaining connections");
        }
        drop(serving);
        if tokio::time::timeout(LAST_BYTES, self.loads.finish()).await.is_err() {
            tracing::warn!("load reports lost: no server took them in time");
        }
    }

    /// Serves until the future is dropped.
    pub async fn run(self) {
        self.run_until(std::future::pending()).await;
    }
}

impl App {
    fn server_info(&self) -> ServerInfo {
        let info = |whom, address: String, tls| ListenerInfo { whom, address, tls };
        let clients = self.listeners.iter();
        let clients = clients.map(|of| info("clients", of.address().to_string(), of.tls().is_some()));
        let operators = self.admin.iter().map(|of| {
            let socket = self.admin_options.socket.iter().map(|path| format!("unix:{}", path.display()));
            match (of.of_probes(), of.of_operators()) {
                (Some(address), _) => info("probes", address.to_string(), false),
                (None, Some(address)) => info("operators", address.to_string(), of.tls().is_some()),
                (None, None) => info("operators", socket.collect(), false),
            }
        });
        let ShownConfig { file, sha256, command_line, .. } = &self.shown_config;
        ServerInfo {
            started: self.started,
            since: self.since,
            config_file: file.clone(),
            config_sha256: sha256.clone(),
            listeners: clients.chain(operators).collect(),
            max_connections: self.max_connections(),
            config: self.shown_now.clone(),
            command_line: command_line.clone().into(),
        }
    }
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
        let own = tls.own.as_ref().map(|own| own.certificate.clone());
        all.push(ServerCertificates { server: name.clone(), tenants: None, own, ca: tls.ca.clone() });
    }
    all.extend(server.tenants.iter().filter_map(|of| {
        let tenants = Some(of.tenants.iter().map(ToString::to_string).collect());
        let own = Some(of.own.as_ref()?.certificate.clone());
        Some(ServerCertificates { server: name.clone(), tenants, own, ca: None })
    }));
    all
}

/// Changes the permissions of a running relay.
pub struct PermissionsControl {
    views: Arc<Views>,
    judged: Arc<JudgedClients>,
    shown: Arc<Mutex<serde_json::Value>>,
}

impl PermissionsControl {
    /// Puts the permissions of a configuration in force, and shows them to operators.
    pub fn apply(&self, config: Config) -> Result<bool, NeedsRestart> {
        let differ = self.replace(config.views.permissions)?;
        let permissions = config.shown.config.get("permissions").cloned().unwrap_or_default();
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)["permissions"] = permissions;
        Ok(differ)
    }

    /// Puts other permissions in force. Clients whose rule is another now are ended, spread over some seconds, and come back under it. Returns
    /// whether anything differs.
    pub fn replace(&self, permissions: Permissions) -> Result<bool, NeedsRestart> {
        let differ = self.views.permissions().replace(permissions)?;
        if differ {
            self.judged.judge_again();
        }
        Ok(differ)
    }
}

/// Returns settings of the system that a relay should not run with.
pub fn system_warnings() -> Vec<String> {
    downstream::short_queue().into_iter().collect()
}

/// Creates the views, with the hub behind them if there is one.
fn views(options: ViewsOptions, hub: Option<ViewsOptions>, mut connectors: Vec<SharedConnector>) -> Views {
    let Some(hub) = hub else { return Views::new(options, connectors) };
    let hub = Arc::new(Views::new(hub, connectors.clone()).into_hub());
    connectors.push(Arc::new(HubConnector::new(hub.clone())));
    Views::new(options, connectors).with_hub(hub)
}

/// The connectors of a source: for streams, and for load reports if it accepts any.
struct Opener {
    streams: SharedConnector,
    loads: Option<AdsConnector>,
}

/// File sources are read once, for all views.
struct Openers {
    parser: Parser,
    descriptors: Descriptors,
    files: Vec<FilesSource>,
}

impl Openers {
    fn of(&mut self, source: SourcePlan) -> Opener {
        match source {
            SourcePlan::Ads(server) => {
                let connector = AdsConnector::new(*server);
                Opener { streams: Arc::new(connector.clone()), loads: Some(connector) }
            }
            SourcePlan::Rest(server) => {
                let table = self.parser.table.clone();
                Opener { streams: Arc::new(RestConnector::new(*server, self.descriptors.clone(), table)), loads: None }
            }
            SourcePlan::Files(FilesServer { options, authoritative: alone }) => {
                let known = self.files.iter().position(|files| *files.options() == options);
                let at = known.unwrap_or_else(|| {
                    self.files.push(FilesSource::start(options, self.parser.clone()));
                    self.files.len() - 1
                });
                let connector = FilesConnector::new(self.files[at].clone(), alone, self.parser.table.clone());
                Opener { streams: Arc::new(connector), loads: None }
            }
        }
    }
}

/// Open files in reserve for the admin address.
const SPARE_FILES: usize = 4;
/// How long to wait for the last bytes of streams that have ended.
const LAST_BYTES: Duration = Duration::from_secs(2);
/// How long to wait for the last write of the state.
const LAST_WRITE: Duration = Duration::from_secs(5);

fn admin_sockets(options: &AdminOptions, probes: Option<SocketAddr>) -> anyhow::Result<Vec<AdminSocket>> {
    let mut sockets = Vec::new();
    if let Some(address) = probes {
        let listener = downstream::listen(address).with_context(|| format!("cannot listen on {address}"))?;
        sockets.push(AdminSocket::Probes(listener));
    }
    if let Some(address) = options.address {
        let listener = downstream::listen(address).with_context(|| format!("cannot listen on {address}"))?;
        sockets.push(match &options.tls {
            Some(AdminTls { tls, .. }) => {
                let name = listener.local_addr().unwrap_or(address).to_string();
                let tls = ListenerTls::load(name, tls).with_context(|| format!("cannot listen on {address}"))?;
                AdminSocket::Tls(listener, Arc::new(tls))
            }
            None => AdminSocket::Loopback(listener),
        });
    }
    if let Some(path) = &options.socket {
        let unix = UnixOptions { path: path.clone(), mode: OWN_USER, owner: None, group: None };
        let socket = UnixSocket::listen(&unix, BACKLOG);
        sockets.push(AdminSocket::Unix(socket.with_context(|| format!("cannot listen on unix:{}", path.display()))?));
    }
    Ok(sockets)
}

fn admin_rules(options: AdminOptions) -> Rules {
    let AdminOptions { address: _, socket, hosts, tls } = options;
    let (may_read, may_change) = tls.map(|tls| (tls.may_read, tls.may_change)).unwrap_or_default();
    Rules { hosts: hosts.into(), socket, may_read, may_change }
}

/// The mode of the admin socket.
const OWN_USER: u32 = 0o600;
