//! The relay's program.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use weir::app::App;
use weir::cli::{get::Get, show, tell, watch::Watch};
use weir::config::{Config, Diagnostic};
use weir::demo::{Demo, Places};
use weir::telemetry::{LogControl, LogFilter, LogFormat};

/// Relays xDS from a control plane to a fleet.
///
/// Without a configuration it serves the example resources of config/demo.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// The configuration file; config/relay.yaml is one with every key explained.
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// Where clients connect to the example resources; otherwise 127.0.0.1:18000.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Option<SocketAddr>,
    /// The admin address beside the example resources; otherwise 127.0.0.1:19000.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "config")]
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
    /// Reads the configuration, and shows which servers would be asked for what, and in which order.
    Check,
    /// Shows which sharing key nodes have, what made it, and how a fleet splits.
    Key {
        /// Nodes as JSON, one a line; without it they are read from standard input.
        nodes: Option<PathBuf>,
    },
    Get(Get),
    Watch(Watch),
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let usual = if arguments.config.is_some() { "info" } else { "warn" };
    let Some(filter) = arguments.log.or_else(|| usual.parse().ok()) else { return ExitCode::FAILURE };
    let log = LogControl::start(&filter, arguments.log_format);
    match (arguments.task, arguments.config) {
        (Some(Task::Get(get)), _) => get.run().await,
        (Some(Task::Watch(watch)), _) => watch.run().await,
        (None, None) => ended(demo(Places { listen: arguments.listen, admin: arguments.admin }, log).await),
        (Some(Task::Check | Task::Key { .. }), None) => {
            tell("weir: say where the configuration is: --config FILE");
            tell("config/relay.yaml is an example with every key explained.");
            ExitCode::from(2)
        }
        (task, Some(path)) => with_config(&path, task, log).await,
    }
}

async fn with_config(path: &Path, task: Option<Task>, log: LogControl) -> ExitCode {
    let config = match Config::from_file(path) {
        Ok(config) => config,
        Err(error) => {
            tell(&format!("weir: {:#}", anyhow::Error::from(error)));
            return ExitCode::from(2);
        }
    };
    ended(match task {
        Some(Task::Check) => show(&weir::cli::check::report(&config)).context("cannot write"),
        Some(Task::Key { nodes }) => show_keys(&config, nodes),
        _ => match start(config).await {
            Ok(app) => run(app.with_log_control(log), "", Some(path)).await,
            Err(error) => Err(error),
        },
    })
}

async fn start(config: Config) -> anyhow::Result<App> {
    log_warnings(&config);
    App::bind(config).await
}

fn log_warnings(config: &Config) {
    for Diagnostic { path, line, at, reason, .. } in &config.warnings {
        tracing::warn!(file = %path.display(), line, key = at, reason, "configuration warning");
    }
}

fn ended(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&format!("weir: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn demo(places: Places, log: LogControl) -> anyhow::Result<()> {
    let demo = Demo::new(places)?;
    let bound = App::bind(demo.config.clone()).await;
    let app =
        bound.map_err(|error| anyhow!("{error:#}; --listen and --admin give the example resources other addresses"))?;
    let program = std::env::args().next().unwrap_or_else(|| "weir".into());
    let greeting = app.addresses().first().map(|clients| demo.greeting(*clients, app.admin_address(), &program));
    run(app.with_log_control(log), &greeting.unwrap_or_default(), None).await
}

fn show_keys(config: &Config, nodes: Option<PathBuf>) -> anyhow::Result<()> {
    let text = match &nodes {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?,
    };
    show(&weir::cli::key::report(&config.views.rule, &text).map_err(anyhow::Error::msg)?).context("cannot write")
}

/// The file counts when the program starts. A restart loses nothing: clients that come back are sent what has changed, and
/// nothing else. What there is to say before that is whether it would start (BOOT-26).
fn look_at(path: &Path) {
    match Config::from_file(path) {
        Ok(config) => {
            log_warnings(&config);
            tracing::info!(file = %path.display(), "configuration is valid; restart to apply it")
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::error!(file = %path.display(), error = %format_args!("{error:#}"), "invalid configuration; a restart would fail");
        }
    }
}

fn log_start(app: &App, config: Option<&Path>) {
    let listen = app.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let admin = app.admin_address().map(tracing::field::display);
    let config = config.map_or_else(|| "example resources".into(), |path| path.display().to_string());
    let servers = app.servers().join(" ");
    let workers = tokio::runtime::Handle::current().metrics().num_workers();
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(version, config, listen, admin, servers, workers, "weir started");
}

/// With its configuration, if there is a file of it.
async fn run(app: App, greeting: &str, config: Option<&Path>) -> anyhow::Result<()> {
    // Before anybody is told that the program is there, and may send a signal: without a configuration SIGHUP ends it, as any.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = config.map(|_| signal(SignalKind::hangup())).transpose()?;
    let _ = std::io::stdout().lock().write_all(greeting.as_bytes()); // nobody may be reading
    log_start(&app, config);
    let stop = async {
        terminate.recv().await;
        tracing::info!("SIGTERM received; draining");
    };
    let looks = async {
        let (Some(path), Some(hang_up)) = (config, &mut hang_up) else { return std::future::pending().await };
        while hang_up.recv().await.is_some() {
            look_at(path);
        }
    };
    tokio::select! {
        () = app.run_until(stop) => {}
        () = looks => {}
        _ = tokio::signal::ctrl_c() => tracing::info!("interrupted; stopping at once"),
    }
    Ok(())
}
