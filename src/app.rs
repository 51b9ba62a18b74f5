//! Assembly: builds everything, binds the listeners, and runs.

mod server_info;

use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use futures_util::future::{self, BoxFuture, OptionFuture};
use tokio::task::JoinSet;

use crate::admin::{self, AdminContext, AdminSocket, CurrentContext, ProbeValues};
use crate::config::{AdminOptions, Config, InUse, ListenAddress, with_lasting_hashes};
use crate::config_status::ConfigStatus;
use crate::downstream::{
    self, AwaitedAddress, Connections, Downstream, Drain, DrainReason, DrainTimes, DrainTrigger, Handover, Listener,
};
pub use crate::downstream::{InheritError, InheritedSockets};
use crate::generation::Generation;
use crate::memory::{LiveBytes, MemoryWatch};
use crate::open_files::{self, Shares, SpareFiles};
use crate::reload::{ConfigOverride, PermissionsControl, PutLimits, ReloadControl, Serving};
use crate::state::StateWriter;
use crate::telemetry::{self, LogControl, ProcessSources, Traces, WorkerHealth, WorkerWatch};
use crate::tls::ListenerTls;

type Boxed<T> = BoxFuture<'static, T>;

/// A relay that is bound and not yet running.
pub struct App {
    listeners: Vec<Listener>,
    tls: Arc<[Arc<ListenerTls>]>,
    admin: Vec<AdminSocket>,
    admin_options: AdminOptions,
    spare: Arc<SpareFiles>,
    downstream: Downstream,
    connections: Arc<Connections>,
    serving: Arc<Serving>,
    switch: DrainTrigger,
    handover: Handover,
    state: Option<StateWriter>,
    log: LogControl,
    config_status: Arc<ConfigStatus>,
    in_use: InUse,
    drain_times: DrainTimes,
    watches_file: bool,
    adapt: Option<ConfigOverride>,
    /// Addresses that another process still has.
    awaited: Vec<AwaitedAddress>,
    started: SystemTime,
    since: Instant,
    live_bytes: Option<LiveBytes>,
    watchdog: Option<Duration>,
    alive: fn(),
    opened: fn(),
    draining: fn(),
}

impl App {
    /// Builds everything in the configuration and opens the listeners. Nothing is served before [`App::run_until`].
    pub async fn bind(config: Config) -> anyhow::Result<Self> {
        Self::bind_with(config, InheritedSockets::default()).await
    }

    /// Like [`App::bind`], with sockets that are open already. Each must have an address in the configuration.
    pub async fn bind_with(config: Config, mut inherited: InheritedSockets) -> anyhow::Result<Self> {
        let (started, since) = (SystemTime::now(), Instant::now());
        let config = with_lasting_hashes(config)?;
        let generation = Generation::first(&config);
        let views = generation.views.clone();
        views.readiness().set_ready_after(config.ready_after);
        generation.ask_sources();
        generation.files_are_read().await;
        let serving = Arc::new(Serving::new(generation));
        let (in_use, drain_times, watches_file) = (InUse::of(&config), config.drain, config.reload.watch);
        let state = config.state.map(|options| StateWriter::start(options, &serving.views)).transpose()?;
        let handover = inherited.handover();
        let mut listeners = Vec::new();
        for options in config.listen {
            let address = options.address.clone();
            let listener = Listener::open(options, &mut inherited);
            listeners.push(listener.with_context(|| format!("cannot listen on {address}"))?);
        }
        let admin = admin::open_sockets(&config.admin, config.probes, &mut inherited)?;
        inherited.check_used()?;
        let awaited = inherited.awaited();
        let (switch, drain) = Drain::new();
        let limits = config.downstream.connections.clone();
        let shares = Shares::of(open_files::limit());
        let spare = SpareFiles::new(if admin.is_empty() { 0 } else { SPARE_FILES });
        if let Some(configured) = limits.connections.filter(|configured| *configured > shares.clients) {
            let lowered = shares.clients;
            tracing::warn!(configured, lowered, "limits.connections lowered to what the limit of open files allows");
        }
        let connections = Connections::new(limits, shares, spare.clone(), listeners.len(), views.counters());
        let downstream = Downstream::new(serving.service.clone(), connections.clone(), &config.downstream, drain)?;
        let tls = listeners.iter().filter_map(Listener::tls).chain(admin.iter().filter_map(AdminSocket::tls));
        let tls = tls.cloned().collect();
        let config_status = ConfigStatus::new(config.shown.facts(started));
        Ok(Self {
            listeners,
            tls,
            admin,
            admin_options: config.admin,
            spare,
            downstream,
            connections,
            serving,
            switch,
            handover,
            state,
            log: LogControl::none(),
            config_status: Arc::new(config_status),
            in_use,
            drain_times,
            watches_file,
            adapt: None,
            awaited,
            started,
            since,
            live_bytes: None,
            watchdog: config.watchdog,
            alive: || {},
            opened: || {},
            draining: || {},
        })
    }

    /// Lets the relay ask the allocator how many bytes it has given out.
    pub fn asking_allocator(self, live_bytes: fn() -> Option<usize>) -> Self {
        Self { live_bytes: Some(live_bytes), ..self }
    }

    /// Sets three callbacks: `alive` is called each second, unless the workers or a shard hang; `opened` when the relay gets an address that
    /// another process had; `draining` once, when the drain begins.
    pub fn telling(self, alive: fn(), opened: fn(), draining: fn()) -> Self {
        Self { alive, opened, draining, ..self }
    }

    /// Applies the command line to every later version of the configuration.
    pub fn adapting(self, adapt: ConfigOverride) -> Self {
        Self { adapt: Some(adapt), ..self }
    }

    /// Connects the relay to these traces.
    pub fn with_traces(self, traces: &Traces) -> Self {
        traces.attach(self.serving.views.get().counters());
        self
    }

    /// Lets the admin address change the log level.
    pub fn with_log_control(self, log: LogControl) -> Self {
        Self { log, ..self }
    }

    /// Returns the upstream servers as logs and metrics name them.
    pub fn servers(&self) -> Vec<String> {
        self.serving.views.get().servers().collect()
    }

    /// Returns the addresses for clients, with the ports that were chosen for port 0. Unix sockets have none.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.listens_at().iter().filter_map(ListenAddress::tcp).collect()
    }

    /// Returns the addresses and Unix sockets to which clients connect.
    pub fn listens_at(&self) -> Vec<ListenAddress> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// Returns the addresses that another process still has, including those for operators and probes.
    pub fn awaits(&self) -> Vec<String> {
        self.awaited.iter().map(ToString::to_string).collect()
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

    /// Returns the control that changes the permissions while the relay runs.
    pub fn permissions(&self) -> PermissionsControl {
        let permissions = self.serving.views.get().permissions().clone();
        PermissionsControl::new(permissions, self.downstream.judged_clients())
    }

    /// Returns the control that reads the configuration file again. [`App::adapting`] has to be called before.
    pub fn reloads(&mut self) -> ReloadControl {
        let of = (self.in_use.clone(), self.drain_times, self.watches_file);
        let adapt = self.adapt.take().unwrap_or_else(|| Box::new(Ok));
        let listeners = self.listeners.iter().map(|listener| listener.tls().cloned()).collect();
        let (status, downstream) = (self.config_status.clone(), self.downstream.clone());
        let limits: PutLimits = Box::new(move |options| downstream.set_limits(options));
        ReloadControl::new(self.serving.clone(), self.permissions(), status, of, (listeners, limits, adapt))
    }

    /// Returns how much memory may be used, and where this limit comes from.
    pub fn memory(&self) -> String {
        self.serving.views.get().memory().setting().to_string()
    }

    /// Returns on how many threads connections of clients live; 0: they live on the runtime of all else.
    pub fn shards(&self) -> usize {
        self.downstream.shard_count()
    }

    /// Returns the maximum number of client connections at a time.
    pub fn max_connections(&self) -> usize {
        self.connections.max()
    }

    /// Serves until the future is dropped, or until `stop` is ready and the relay has drained. A drain makes the relay not ready at once, leaves the
    /// connections of inherited sockets to the next process, closes the relay's own listeners after the configured delay, and then ends client
    /// streams.
    pub async fn run_until(mut self, stop: impl Future<Output = ()> + Send + 'static) {
        let reloads = self.reloads();
        let _ = self.run_with(reloads, Box::pin(stop)).await; // it is logged, and fails only with inherited sockets
    }

    /// Like [`App::run_until`], with the control that reads the configuration file again. The relay also drains, and returns an error, if another process
    /// keeps an address for longer than it may drain. In a box, so that this crate has all of it compiled and not each program that runs a relay.
    pub fn run_with(self, reloads: ReloadControl, stop: Boxed<()>) -> Boxed<anyhow::Result<()>> {
        Box::pin(self.serve(reloads, stop))
    }

    async fn serve(mut self, reloads: ReloadControl, stop: Boxed<()>) -> anyhow::Result<()> {
        let times = self.drain_times;
        let drain = times.delay + times.longest() + AFTER_DRAIN;
        let info = Arc::new(server_info::of(&self).awaiting(&self.awaited));
        let opening = std::mem::take(&mut self.awaited).into_iter().map(|address| address.opened_within(drain));
        let opening = future::try_join_all(opening.collect::<Vec<_>>());
        let (mut serving, mut beside) = (JoinSet::new(), JoinSet::new());
        let inherited = self.listeners.iter().filter(|listener| listener.is_inherited()).count();
        let bound = self.listeners.len() - inherited;
        for listener in self.listeners {
            serving.spawn(self.downstream.clone().serve(listener));
        }
        let views = self.serving.views.get();
        let (counting, incomplete) = (self.serving.clone(), self.downstream.incomplete());
        let counted = Box::new(move || counting.generation.get().sample_bytes() + incomplete());
        let _watch = MemoryWatch::start(views.memory().clone(), counted, self.live_bytes)
            .inspect_err(|error| tracing::error!(%error, "cannot watch the memory: limits.memory is not exact"));
        let workers = Arc::new(WorkerHealth::with_shards(self.downstream.shards()));
        let _watchdog = WorkerWatch::start(workers.clone(), self.watchdog, self.alive)
            .inspect_err(|error| tracing::error!(%error, "cannot watch the worker threads"));
        let (readiness, brakes) = (views.readiness().clone(), views.incidents().brakes.clone());
        drop(views);
        let starting = readiness.clone();
        beside.spawn(async move { starting.log_start().await });
        beside.spawn(async move { brakes.log().await });
        let judged = self.downstream.judged_clients();
        beside.spawn(async move { judged.run().await });
        let watching = reloads.clone();
        beside.spawn(async move { watching.watch().await });
        if let Some(state) = &self.state {
            beside.spawn(state.watch());
        }
        if !self.admin.is_empty() {
            let of_process = ProcessSources {
                tls: self.tls.clone(),
                state: self.state.as_ref().map(StateWriter::counters),
                log: self.log.clone(),
                workers: workers.clone(),
            };
            let (status, serving) = (self.config_status.clone(), self.serving.clone());
            let sources = move || serving.generation.get().metrics_sources(of_process.clone(), status.get());
            beside.spawn(telemetry::watch_problems(sources.clone()));
            let now = self.serving.views.clone();
            let probes = ProbeValues::new(&now.get(), telemetry::exposition(sources), workers);
            beside.spawn(probes.clone().keep(move || now.get()));
            let rules = Arc::new(admin::rules_of(self.admin_options));
            let live = Arc::new(admin::Live::new(admin::instance_of(self.started)));
            let (dumps, status, log, tls) = (admin::dump_places(), self.config_status, self.log, self.tls);
            let (serving, reload, rules_of) = (self.serving, reloads.for_admin(), rules.clone());
            let shown = move || {
                let generation = serving.generation.get();
                AdminContext {
                    views: generation.views.clone(),
                    files: generation.files.clone(),
                    rest: generation.rest.clone(),
                    log: log.clone(),
                    rules: rules_of.clone(),
                    info: info.clone(),
                    config: status.clone(),
                    reload: reload.clone(),
                    tls: tls.clone(),
                    server_certificates: generation.server_certificates.clone(),
                    descriptors: generation.descriptors.clone(),
                    live: live.clone(),
                    dumps: dumps.clone(),
                    client_status: generation.client_status.clone(),
                }
            };
            let shown = CurrentContext { shown: Arc::new(shown), probes };
            beside.spawn(admin::serve(self.admin, self.spare, rules, shown));
        }
        let never_ends = async {
            match opening.await {
                Ok(opened) => {
                    if !opened.is_empty() {
                        (self.opened)();
                    }
                    future::pending().await
                }
                Err(error) => error,
            }
        };
        let ended = tokio::select! {
            () = stop => Ok(()),
            error = never_ends => Err(error),
        };
        if let Err(error) = &ended {
            tracing::error!(error = format!("{error:#}"), "another process keeps the address; draining");
        }
        (self.draining)();
        readiness.drain();
        if inherited > 0 {
            tracing::info!(
                listeners = inherited,
                "not accepting at inherited sockets; new connections wait for the next process"
            );
            self.handover.begin();
        }
        // The state is written before clients leave, so that the next process can open the file now and misses only changes by leaving clients. A
        // write that takes longer has until the end of the drain.
        let stopped = tokio::time::Instant::now();
        let mut last_write = pin!(OptionFuture::from(self.state.map(StateWriter::finish)));
        let is_written = tokio::time::timeout(FIRST_WRITE, last_write.as_mut()).await.is_ok();
        let delay = reloads.last_delay();
        // Without a delay, or without own listeners, there is nothing for a balancer to notice.
        if !delay.is_zero() && bound > 0 {
            let delay_text = humantime::format_duration(delay);
            tracing::info!(delay = %delay_text, "waiting for the drain delay; still accepting clients");
            tokio::time::sleep(delay).await;
        }
        tracing::info!("closing listeners and ending client streams");
        let times = reloads.end();
        self.switch.begin(times, DrainReason::Shutdown);
        let all_closed = async { while serving.join_next().await.is_some() {} };
        if tokio::time::timeout(times.longest() + LAST_BYTES, all_closed).await.is_err() {
            tracing::warn!("drain timed out; closing remaining connections");
        }
        drop(serving);
        tokio::join!(reloads.finish_loads(LAST_REPORTS), self.downstream.end_shards(LAST_REPORTS));
        self.downstream.end_loads(END_OF_LOADS).await;
        if !is_written && tokio::time::timeout_at(stopped + LAST_WRITE, last_write).await.is_err() {
            tracing::warn!("the last state could not be written in time");
        }
        ended
    }

    /// Serves until the future is dropped.
    pub async fn run(self) {
        self.run_until(std::future::pending()).await;
    }
}

/// Returns settings of the system that a relay should not run with.
pub fn system_warnings() -> Vec<String> {
    downstream::short_queue().into_iter().collect()
}

/// The number of files in reserve for the admin address.
const SPARE_FILES: usize = 4;
/// How long to wait for the last bytes of streams that have ended.
const LAST_BYTES: Duration = Duration::from_secs(2);
/// How long to wait for the last load reports, and for the threads of connections.
const LAST_REPORTS: Duration = Duration::from_secs(1);
/// How long to wait for the thread of load reports after that.
const END_OF_LOADS: Duration = Duration::from_millis(100);
/// How long a process may take to end once it has drained.
const AFTER_DRAIN: Duration = Duration::from_secs(7);
/// How long the drain waits for the last write of the state.
const FIRST_WRITE: Duration = Duration::from_millis(500);
/// The least time for the last write, including that of the drain.
const LAST_WRITE: Duration = Duration::from_secs(2);
