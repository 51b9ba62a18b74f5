//! The relay's program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use weir::app::App;
use weir::cli::{get::Get, watch::Watch};
use weir::config::Config;

/// Relays xDS from a control plane to a fleet.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    /// The configuration file; config/relay.yaml is one with every key explained.
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// What is logged: error, warn, info, debug or trace, also by module as in `info,weir::downstream=debug`.
    #[arg(long, env = "WEIR_LOG", default_value = "info")]
    log: String,
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
    tracing_subscriber::fmt().with_env_filter(EnvFilter::new(&arguments.log)).with_writer(std::io::stderr).init();
    match arguments.task {
        Some(Task::Get(get)) => get.run().await,
        Some(Task::Watch(watch)) => watch.run().await,
        task => with_config(arguments.config, task).await,
    }
}

async fn with_config(path: Option<PathBuf>, task: Option<Task>) -> ExitCode {
    let Some(path) = path else {
        eprintln!("weir: say where the configuration is: weir --config FILE");
        eprintln!("config/relay.yaml is an example with every key explained.");
        return ExitCode::from(2);
    };
    let config = match Config::from_file(&path) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("weir: {:#}", anyhow::Error::from(error));
            return ExitCode::from(2);
        }
    };
    let done = match task {
        Some(Task::Check) => {
            print!("{}", weir::cli::check::report(&config));
            Ok(())
        }
        Some(Task::Key { nodes }) => show_keys(&config, nodes),
        _ => run(&path, config).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn show_keys(config: &Config, nodes: Option<PathBuf>) -> anyhow::Result<()> {
    let text = match &nodes {
        Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?,
    };
    print!("{}", weir::cli::key::report(&config.views.rule, &text).map_err(anyhow::Error::msg)?);
    Ok(())
}

/// The file counts when the program starts. A restart loses nothing: clients that come back are sent what has changed, and
/// nothing else. What there is to say before that is whether it would start (BOOT-26).
fn look_at(path: &Path) {
    match Config::from_file(path) {
        Ok(_) => {
            tracing::warn!(path = %path.display(), "SIGHUP: the configuration can be read; a restart takes it over")
        }
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::error!(
                "SIGHUP: the relay goes on as it is, and would not start with this configuration: {error:#}"
            );
        }
    }
}

async fn run(path: &Path, config: Config) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let app = App::bind(config).await?;
    for address in app.addresses() {
        tracing::info!(%address, "clients connect here");
    }
    if let Some(address) = app.admin_address() {
        tracing::info!(%address, "admin address");
    }
    let stop = async {
        terminate.recv().await;
        tracing::info!("SIGTERM: nobody new is taken on, and clients are sent away once they were answered");
    };
    let looks = async {
        while hang_up.recv().await.is_some() {
            look_at(path);
        }
    };
    tokio::select! {
        () = app.run_until(stop) => {}
        () = looks => {}
        _ = tokio::signal::ctrl_c() => tracing::info!("interrupted: stopping at once"),
    }
    Ok(())
}
