//! The command line of the benchmarks.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use super::fanout::Fanout;
use super::run::{Bench, run};
use super::size::parse_size;
use super::subject::Subject;
use crate::wire::Variant;

#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    pub bench: Command,
    /// The relay
    #[arg(long, global = true, value_name = "PATH", default_value = "target/release/weir", alias = "weir-a")]
    pub weir: PathBuf,
    /// Another build of the relay, which is measured beside the first
    #[arg(long, global = true, value_name = "PATH")]
    pub weir_b: Option<PathBuf>,
    /// How often each subject is measured; the median counts
    #[arg(long, global = true, value_name = "N", default_value_t = 3)]
    pub repetitions: usize,
    /// Measure these subjects alone
    #[arg(long, global = true, value_name = "SUBJECTS", value_delimiter = ',', value_enum)]
    pub only: Vec<Subject>,
    /// Measure this variant alone [default: both]
    #[arg(long, global = true, value_enum)]
    pub variant: Option<Variant>,
    /// Write the results to this file as JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// One change to many clients
    Fanout(FanoutArgs),
}

#[derive(Debug, Args)]
pub struct FanoutArgs {
    #[arg(long, alias = "clients", default_value_t = 2000)]
    connections: usize,
    /// Streams of each connection
    #[arg(long, default_value_t = 1)]
    streams: usize,
    /// Bytes that change in a round
    #[arg(long, value_parser = parse_size, default_value = "1KiB")]
    size: usize,
    /// Number of resources that the bytes are divided into
    #[arg(long, default_value_t = 1)]
    resources: usize,
    /// [default: as many as give 100,000 deliveries or 10 GiB, and at least 5]
    #[arg(long)]
    rounds: Option<u32>,
}

/// Measures, prints, writes, and gives the exit code.
pub async fn command(options: &Options) -> anyhow::Result<ExitCode> {
    let report = run(options, |line| println!("{line}")).await?;
    println!("\n{report}");
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&report)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::from(report.exit_code()))
}

impl Options {
    /// The benchmarks that the command line asks for.
    pub fn benches(&self) -> Vec<Bench> {
        let variants = self.variant.map_or_else(|| vec![Variant::Delta, Variant::Sotw], |variant| vec![variant]);
        let Command::Fanout(args) = &self.bench;
        variants.into_iter().map(|variant| Bench::Fanout(args.fanout(variant))).collect()
    }
}

impl FanoutArgs {
    fn fanout(&self, variant: Variant) -> Fanout {
        let Self { connections, streams, size, resources, rounds } = *self;
        let per_round = connections * streams;
        let rounds = rounds.unwrap_or_else(|| {
            let most = (DELIVERIES / per_round.max(1)).min(BYTES / (per_round * size).max(1));
            u32::try_from(most.clamp(5, 100)).unwrap_or(5)
        });
        Fanout { variant, connections, streams, size, resources, rounds }
    }
}

const DELIVERIES: usize = 100_000;
const BYTES: usize = 10 << 30;
