//! The program that plays the peers of a relay.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))] // `clippy.toml`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{CommandFactory, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};
use weir_loadtest::baseline::Baseline;
use weir_loadtest::bench;
use weir_loadtest::conformance;
use weir_loadtest::fleet::Verdict;
use weir_loadtest::report::{self, Measures, measured};
use weir_loadtest::wire::Plane;
use weir_loadtest::{fleet, hostile, origin, output, recording, scenario};

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
    /// Writes manual pages: weir-loadtest.1, and one for each command.
    Man {
        /// Folder for the pages; it is made if it is not there
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
    /// Runs a server to compare a relay with.
    #[command(subcommand, hide = true)]
    Baseline(Baseline),
}

#[tokio::main]
async fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let writes_files = command.writes_files();
    tokio::select! {
        code = command.run() => code,
        // A reader such as `head` has what it needs, so the command may end, and with it all that it has started.
        () = output::closed(), if !writes_files => ExitCode::SUCCESS,
    }
}

impl Command {
    /// Whether results go to a file. Then the command continues without a reader of its output.
    fn writes_files(&self) -> bool {
        match self {
            Self::Clients { measures, .. } | Self::Run { measures, .. } => measures.writes_files(),
            Self::Man { .. } => true,
            _ => false,
        }
    }

    async fn run(self) -> ExitCode {
        match self {
            Self::Conformance(options) => run_conformance(&options).await.map_or_else(failed, passed),
            Self::Clients { options, measures } => {
                let run = |observer| fleet::command::run(&options, observer);
                measured(&measures, run).await.map_or_else(failed, judged)
            }
            Self::Record(options) => recording::command::run_record(&options).await.map_or_else(failed, done),
            Self::Replay(options) => recording::command::run_replay(&options).await.map_or_else(failed, done),
            Self::Run { options, measures } => {
                let run = |observer| scenario::command::run(&options, observer);
                until_stopped(async { measured(&measures, run).await.map_or_else(failed, passed) }).await
            }
            Self::Origin(options) => origin::command::run(&options).await.map_or_else(failed, done),
            Self::Hostile(options) => {
                until_stopped(async { hostile::command(&options).await.map_or_else(failed, passed) }).await
            }
            Self::Bench(options) => {
                until_stopped(async { bench::command(&options).await.unwrap_or_else(failed) }).await
            }
            Self::Compare { first, second } => compare(&first, &second).map_or_else(failed, done),
            Self::Man { folder } => write_manual(&folder).map_or_else(failed, done),
            Self::Baseline(baseline) => baseline.run().await.map_or_else(failed, done),
        }
    }
}

/// Runs a command that starts relays and other servers. SIGTERM and SIGINT drop the command, which ends these processes.
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
        let expected = || format!("{} is not a report: expected a file that --json has written", path.display());
        serde_json::from_slice(&text).with_context(expected)
    };
    output::line(report::compare(&report(first)?, &report(second)?).trim_end());
    Ok(())
}

/// Writes a manual page for the program and for each of its commands into a folder. Creates the folder if it does not exist.
fn write_manual(folder: &Path) -> anyhow::Result<()> {
    let cannot = || format!("cannot write manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(cannot)?;
    clap_mangen::generate_to(Arguments::command().disable_help_subcommand(true), folder).with_context(cannot)
}

fn failed(error: anyhow::Error) -> ExitCode {
    output::note(format!("error: {error:#}"));
    ExitCode::from(CANNOT_ASK)
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}

fn passed(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
}

fn judged(verdict: Verdict) -> ExitCode {
    match verdict {
        Verdict::Unserved => ExitCode::from(CANNOT_ASK),
        verdict => passed(verdict == Verdict::Passed),
    }
}

/// Returns whether all checks passed.
async fn run_conformance(options: &conformance::Options) -> anyhow::Result<bool> {
    if options.list {
        conformance::selected(options).for_each(output::line);
        return Ok(true);
    }
    ensure!(conformance::selected(options).next().is_some(), "no check is about that; --list says what there is");
    let plane = match options.plane {
        Some(address) => Some(Plane::start(address).await?),
        None => None,
    };
    let print = |outcome: &conformance::Outcome| match options.json {
        true => output::line(outcome.to_json()),
        false => output::line(outcome),
    };
    let report = conformance::run(options, plane.as_ref(), print).await?;
    if !options.json {
        output::line(&report);
    }
    Ok(report.passed())
}

// Exit codes, which docs/exit-codes.md lists.
/// A check failed, or fewer clients than required were served.
const FOUND: u8 = 1;
/// The command could not run, or no server could be asked.
const CANNOT_ASK: u8 = 2;
