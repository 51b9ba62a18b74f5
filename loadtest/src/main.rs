//! The program that plays the peers of a relay.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use weir_loadtest::baseline::Baseline;
use weir_loadtest::bench;
use weir_loadtest::conformance::{self, Report};
use weir_loadtest::report::{self, Measures, measured};
use weir_loadtest::wire::Plane;
use weir_loadtest::{fleet, hostile, origin, recording, scenario};

/// Plays the clients of an xDS relay, and the control plane behind it.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Checks an xDS server, a relay above all, against single rules of the protocol.
    Conformance(conformance::Options),
    /// Connects simulated clients to an xDS server, and checks all that they receive.
    Clients {
        #[command(flatten)]
        options: fleet::command::Options,
        #[command(flatten)]
        measures: Measures,
    },
    /// Serves resources as a control plane, and changes them.
    Origin(origin::command::Options),
    /// Records what a control plane sends to a client.
    Record(recording::command::RecordOptions),
    /// Serves a recording in place of the control plane.
    Replay(recording::command::ReplayOptions),
    /// Runs a scenario: clients, and with them an origin and a relay.
    Run {
        #[command(flatten)]
        options: scenario::command::Options,
        #[command(flatten)]
        measures: Measures,
    },
    /// Plays hostile clients of a server, and shows what honest ones notice.
    Hostile(hostile::Options),
    /// Measures the relay and what it is compared with, in turn.
    Bench(bench::Options),
    /// Shows the results of two benchmarks beside each other: the second's by the first's.
    Compare {
        /// JSON of a benchmark
        first: PathBuf,
        second: PathBuf,
    },
    /// Runs a server to compare a relay with.
    #[command(subcommand, hide = true)]
    Baseline(Baseline),
}

#[tokio::main]
async fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Conformance(options) => run_conformance(&options).await,
        Command::Clients { options, measures } => {
            let run = |observer| fleet::command::run(&options, observer);
            measured(&measures, run).await.map_or_else(failed, passed)
        }
        Command::Record(options) => {
            recording::command::run_record(&options).await.map_or_else(failed, |()| ExitCode::SUCCESS)
        }
        Command::Replay(options) => {
            recording::command::run_replay(&options).await.map_or_else(failed, |()| ExitCode::SUCCESS)
        }
        Command::Run { options, measures } => {
            let run = |observer| scenario::command::run(&options, observer);
            until_stopped(async { measured(&measures, run).await.map_or_else(failed, passed) }).await
        }
        Command::Origin(options) => origin::command::run(&options).await.map_or_else(failed, |()| ExitCode::SUCCESS),
        Command::Hostile(options) => {
            until_stopped(async { hostile::command(&options).await.map_or_else(failed, passed) }).await
        }
        Command::Bench(options) => until_stopped(async { bench::command(&options).await.unwrap_or_else(failed) }).await,
        Command::Compare { first, second } => compare(&first, &second).map_or_else(failed, |()| ExitCode::SUCCESS),
        Command::Baseline(baseline) => baseline.run().await.map_or_else(failed, |()| ExitCode::SUCCESS),
    }
}

/// Runs a command that starts relays and other servers. SIGTERM and SIGINT drop it: their processes end with their handles.
async fn until_stopped(work: impl Future<Output = ExitCode>) -> ExitCode {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return work.await;
    };
    let number = tokio::select! {
        code = work => return code,
        _ = terminate.recv() => 15,
        _ = interrupt.recv() => 2,
    };
    ExitCode::from(128 + number) // as shells report a signal
}

fn compare(first: &Path, second: &Path) -> anyhow::Result<()> {
    let report = |path: &Path| -> anyhow::Result<report::Report> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is not a report", path.display()))
    };
    print!("{}", report::compare(&report(first)?, &report(second)?));
    Ok(())
}

fn failed(error: anyhow::Error) -> ExitCode {
    eprintln!("weir-loadtest: {error:#}");
    ExitCode::from(2)
}

fn passed(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run_conformance(options: &conformance::Options) -> ExitCode {
    if options.list {
        conformance::selected(options).for_each(|check| println!("{check}"));
        return ExitCode::SUCCESS;
    }
    match conformance(options).await {
        Ok(report) => {
            println!("{report}");
            passed(report.passed())
        }
        Err(error) => failed(error),
    }
}

async fn conformance(options: &conformance::Options) -> anyhow::Result<Report> {
    ensure!(conformance::selected(options).next().is_some(), "no check is about that; --list says what there is");
    let plane = match options.plane {
        Some(address) => Some(Plane::start(address).await?),
        None => None,
    };
    conformance::run(options, plane.as_ref(), |outcome| println!("{outcome}")).await
}
