//! The program `weir`.

mod allocator;
mod service_manager;
mod signals;

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use tokio::runtime::{Handle, Runtime};
use weir::app::{App, InheritError, InheritedSockets};
use weir::build_facts;
use weir::cli::check::{AsClient, Shows};
use weir::cli::{
    explain::Explain, get::Get, note, release::Release, show, snapshot::Snapshot, status::Status, watch::Watch,
};
use weir::config::{Config, Diagnostic, admin_address, listen_address, size};
use weir::demo::{Demo, Places};
use weir::open_files::{self, Raised};
use weir::telemetry::{LogControl, LogFilter, LogFormat, Traces};

use self::signals::Signals;

/// Relays xDS from a control plane to a fleet.
///
/// Without a configuration it serves the example resources of config/demo.
#[derive(Debug, Parser)]
#[command(version = build_facts::LINE, about)]
struct Arguments {
    /// Configuration file; config/relay.yaml is one with every key explained
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address for clients, instead of those in the configuration; `:18000` is that port on all addresses [default without a
    /// configuration: 127.0.0.1:18000]
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Address for operators, instead of the one in the configuration; `:19000` is that port on 127.0.0.1 [default without a
    /// configuration: 127.0.0.1:19000]
    #[arg(long, value_name = "ADDRESS", value_parser = admin_address)]
    admin: Option<SocketAddr>,
    /// Log level: error, warn, info, debug or trace, also by module (`info,weir::downstream=debug`) [default: info with a
    /// configuration, warn with the example resources]
    #[arg(long, env = "WEIR_LOG", value_name = "FILTER")]
    log: Option<LogFilter>,
    /// Form of log lines
    #[arg(long, env = "WEIR_LOG_FORMAT", value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: LogFormat,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Checks a configuration and the files that it names, and shows what the relay understands: servers in their order, addresses, the
    /// sharing key, access rules, limits.
    ///
    /// The last line is the verdict. Exits with 0 if the relay can use it, with 1 if there are faults. Warnings are shown, and do not count.
    Check {
        /// Configuration file; - is standard input
        #[arg(value_name = "FILE", conflicts_with = "config_file")]
        file: Option<PathBuf>,
        /// Shows only faults and the verdict
        #[arg(long, conflicts_with = "all")]
        quiet: bool,
        /// Shows every key, also those that are not set
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        client: AsClient,
        /// Memory of the machine or container that the file is for, such as 2GiB, instead of that of this one
        #[arg(long, value_name = "SIZE", value_parser = size)]
        memory: Option<usize>,
    },
    /// Shows which sharing key nodes have, what made it, and how a fleet splits.
    Key {
        #[command(flatten)]
        config: ConfigFile,
        /// Nodes as JSON, one a line; without it they are read from standard input
        nodes: Option<PathBuf>,
    },
    Get(Get),
    Watch(Watch),
    Status(Status),
    Explain(Explain),
    Snapshot(Snapshot),
    Release(Release),
    /// Prints the JSON schema of the configuration, for editors and other tools.
    Schema,
    /// Prints a completion script for a shell.
    Completions {
        shell: Shell,
    },
}

/// The sockets that the process was started with. Only a relay reports what is wrong with them.
type Inherited = Result<InheritedSockets, InheritError>;

#[derive(Debug, Args)]
struct ConfigFile {
    /// Configuration file
    #[arg(long = "config", id = "config_file", value_name = "FILE")]
    path: Option<PathBuf>,
}

fn main() -> ExitCode {
    allocator::share_arenas();
    let inherited = InheritedSockets::from_environment(); // changes the environment, so it comes before all threads
    let arguments = Arguments::parse();
    let log = match arguments.start_log() {
        Ok(log) => log,
        Err(error) => {
            note(&format!("weir: {error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let _end = log.end(); // older than the runtime, so that it is dropped later
    let runtime = match Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return ended(&log, Err(error).context("cannot start the threads")),
    };
    let code = runtime.block_on(start(arguments, &log, inherited));
    // All tasks are dropped, with the sockets that they own. What waits for a name server or a disk does not keep the process.
    runtime.shutdown_timeout(LAST_TASKS);
    code
}

impl Arguments {
    /// Starts the log. A relay does not wait for who reads it.
    fn start_log(&self) -> anyhow::Result<LogControl> {
        let usual = match (&self.task, &self.config) {
            (Some(Task::Check { .. }), _) => "error", // the check prints its result itself
            (None, Some(_)) => "info",
            _ => "warn",
        };
        let filter = self.log.clone().map_or_else(|| usual.parse(), Ok)?;
        match self.task {
            Some(_) => Ok(LogControl::start(&filter, self.log_format)),
            None => {
                LogControl::start_with_queue(&filter, self.log_format).context("cannot start the thread of the log")
            }
        }
    }
}

async fn start(arguments: Arguments, log: &LogControl, inherited: Inherited) -> ExitCode {
    let Arguments { config, listen, admin, task, .. } = arguments;
    let places = Places { listen, admin };
    match task {
        Some(task) if places.listen.is_some() || places.admin.is_some() => {
            refuse(&format!("--listen and --admin have no effect on {}", task.name()))
        }
        Some(task) => task.run(config, log).await,
        None => match config {
            Some(path) => relay(path, places, log, inherited).await,
            None => ended(log, demo(places, log, inherited).await),
        },
    }
}

impl Task {
    async fn run(self, before: Option<PathBuf>, log: &LogControl) -> ExitCode {
        let name = self.name();
        match self {
            Self::Check { file, quiet, all, config, client, memory } => match file.or(config.path).or(before) {
                Some(path) if client.is_given() => ExitCode::from(weir::cli::check::run_as(&path, &client)),
                Some(path) => ExitCode::from(weir::cli::check::run(&path, memory, Shows::of(quiet, all)).await),
                None => refuse(WHICH_FILE),
            },
            Self::Key { config: ConfigFile { path }, nodes } => match path.or(before) {
                Some(path) => with_config(&path, log, |config| show_keys(&config, nodes)),
                None => refuse(WHICH_FILE),
            },
            _ if before.is_some() => refuse(&format!("--config has no effect on {name}")),
            Self::Get(get) => get.run().await,
            Self::Watch(watch) => watch.run().await,
            Self::Status(status) => status.run().await,
            Self::Explain(explain) => explain.run().await,
            Self::Snapshot(snapshot) => weir::cli::snapshot::run(&snapshot),
            Self::Release(release) => release.run().await,
            Self::Schema => {
                let schema = format!("{:#}\n", weir::config::schema());
                ended(log, show(&schema).context("cannot write"))
            }
            Self::Completions { shell } => {
                let mut script = Vec::new();
                clap_complete::generate(shell, &mut Arguments::command(), "weir", &mut script);
                ended(log, show(&String::from_utf8_lossy(&script)).context("cannot write"))
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Check { .. } => "check",
            Self::Key { .. } => "key",
            Self::Snapshot(_) => "snapshot",
            Self::Status(_) => "status",
            Self::Explain(_) => "explain",
            Self::Get(_) => "get",
            Self::Watch(_) => "watch",
            Self::Release(_) => "release",
            Self::Schema => "schema",
            Self::Completions { .. } => "completions",
        }
    }
}

/// Prints what is wrong with the command line.
fn refuse(reason: &str) -> ExitCode {
    let error = Arguments::command().error(ErrorKind::ArgumentConflict, reason);
    note(error.render().to_string().trim_end());
    ExitCode::from(USAGE)
}

fn with_config(path: &Path, log: &LogControl, task: impl FnOnce(Config) -> anyhow::Result<()>) -> ExitCode {
    match Config::from_file(path) {
        Ok(config) => ended(log, task(config)),
        Err(error) => {
            log.say(&error.to_string());
            ExitCode::from(USAGE)
        }
    }
}

async fn relay(path: PathBuf, places: Places, log: &LogControl, inherited: Inherited) -> ExitCode {
    let serve = async {
        let mut signals = Signals::catch(true)?;
        let (of_start, of_log) = (path.clone(), log.clone());
        match signals.or_ended(move || configured(&of_start, places, &of_log, inherited)).await? {
            None => Ok(ExitCode::SUCCESS),
            Some(Err(code)) => Ok(code),
            Some(Ok(app)) => run(app, "", Some(&path), signals).await.map(|()| ExitCode::SUCCESS),
        }
    };
    serve.await.unwrap_or_else(|error| ended(log, Err(error)))
}

/// Reads the configuration and opens the listeners. It waits for the disk. `Err`: what is wrong has been printed.
fn configured(path: &Path, places: Places, log: &LogControl, inherited: Inherited) -> Result<App, ExitCode> {
    let invalid = |error: String| {
        log.say(&error);
        ExitCode::from(USAGE)
    };
    let config = Config::from_file(path).map_err(|error| invalid(error.to_string()))?;
    let config = with_places(config, places).map_err(|error| invalid(format!("weir: {error:#}")))?;
    log_warnings(&config);
    let app = bound(config, log, inherited).map_err(|error| ended(log, Err(error)))?;
    Ok(app.adapting(Box::new(move |config| with_places(config, places))))
}

fn bound(config: Config, log: &LogControl, inherited: Inherited) -> anyhow::Result<App> {
    raise_open_files();
    let app = Handle::current().block_on(App::bind_with(config, inherited?))?;
    Ok(app.with_log_control(log.clone()))
}

/// Options of the command line override the configuration file.
fn with_places(mut config: Config, places: Places) -> anyhow::Result<Config> {
    if let Some(listen) = places.listen {
        config.listen_at(listen);
    }
    if let Some(address) = places.admin {
        config.admin_at(address).map_err(|reason| anyhow!("--admin: {reason}"))?;
    }
    Ok(config)
}

fn log_warnings(config: &Config) {
    for Diagnostic { path, line, at, reason, .. } in &config.warnings {
        tracing::warn!(file = %path.display(), line, key = at, reason, "configuration warning");
    }
}

/// Each connection takes an open file, and the usual soft limit is 1024.
fn raise_open_files() {
    match open_files::raise() {
        Ok(Raised { before, now }) if before < now => tracing::info!(before, now, "limit of open files raised"),
        Ok(_) => {}
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
}

fn ended(log: &LogControl, done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.say(&format!("weir: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo(places: Places, log: &LogControl, inherited: Inherited) -> anyhow::Result<()> {
    let mut signals = Signals::catch(false)?;
    let of_log = log.clone();
    let start = move || {
        let demo = Demo::new(places)?;
        let app = bound(demo.config.clone(), &of_log, inherited)
            .map_err(|error| anyhow!("{error:#}; --listen and --admin give the example resources other addresses"))?;
        Ok::<_, anyhow::Error>((demo, app))
    };
    let Some(started) = signals.or_ended(start).await? else { return Ok(()) };
    let (demo, app) = started?; // its files are there until the relay has ended
    let program = std::env::args().next().unwrap_or_else(|| "weir".into());
    let greeting = app.addresses().first().map(|clients| demo.greeting(*clients, app.admin_address(), &program));
    run(app, &greeting.unwrap_or_default(), None, signals).await?;
    // Not to stdout, which may have nobody who reads it.
    demo.farewell().iter().for_each(|text| log.say(text));
    Ok(())
}

fn show_keys(config: &Config, nodes: Option<PathBuf>) -> anyhow::Result<()> {
    let text = match &nodes {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?,
    };
    show(&weir::cli::key::report(&config.views.rule, &text)?).context("cannot write")
}

fn log_start(app: &App, config: Option<&Path>) {
    let listen = listen_of(app);
    let admin = app.admin_address().map(tracing::field::display);
    let admin_socket = app.admin_socket().map(|path| path.display().to_string());
    let probes = app.probes_address().map(tracing::field::display);
    let config = config.map_or_else(|| "example resources".into(), |path| path.display().to_string());
    let servers = app.servers().join(" ");
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let (version, commit) = (build_facts::VERSION, build_facts::COMMIT);
    let (open_files, max_connections, memory) = (open_files::limit(), app.max_connections(), app.memory());
    tracing::info!(
        version,
        commit,
        config,
        listen,
        admin,
        admin_socket,
        probes,
        servers,
        memory,
        workers,
        open_files,
        max_connections,
        "weir started"
    );
    for reason in weir::app::system_warnings() {
        tracing::warn!(reason, "system setting");
    }
}

fn listen_of(app: &App) -> String {
    app.listens_at().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Runs the relay. `config` is the path of its configuration file, if it has one.
async fn run(app: App, greeting: &str, config: Option<&Path>, signals: Signals) -> anyhow::Result<()> {
    let Signals { mut terminate, mut interrupt, mut hang_up } = signals;
    let _ = std::io::stdout().lock().write_all(greeting.as_bytes()); // stdout may be closed
    let traces = Traces::from_environment();
    let mut app = app.with_traces(&traces).asking_allocator(allocator::live_bytes).while_alive(service_manager::alive);
    log_start(&app, config);
    tokio::spawn(allocator::give_back());
    service_manager::ready(&listen_of(&app));
    let stop = async {
        terminate.recv().await;
        tracing::info!("SIGTERM received; draining");
        service_manager::stopping();
    };
    let reloads = app.reloads();
    let looks = async {
        let Some(hang_up) = &mut hang_up else { return std::future::pending().await };
        while hang_up.recv().await.is_some() {
            service_manager::reloading();
            service_manager::reloaded(&reloads.reload().await); // logged there
        }
    };
    let mut ended = Ok(());
    tokio::select! {
        done = app.run_with(reloads.clone(), stop) => ended = done,
        () = looks => {}
        _ = interrupt.recv() => tracing::info!("interrupted; stopping at once"),
    }
    traces.finish().await;
    ended
}

const WHICH_FILE: &str =
    "missing configuration: expected --config FILE; config/relay.yaml is one with every key explained";
/// How long the process waits for threads that a name server or a disk holds up.
const LAST_TASKS: Duration = Duration::from_millis(500);
/// The exit code for an invalid command line or configuration.
const USAGE: u8 = 2;
