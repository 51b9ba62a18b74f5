//! The command line of the benchmarks.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};

use super::Bench;
use super::fanout::Fanout;
use super::idle::{Added, Idle};
use super::run::run;
use super::size::parse_size;
use super::storm::Storm;
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
    /// Clients that all connect at once to a server that has what they want
    Storm(StormArgs),
    /// Clients that all connect at once and are the first of their view [default: 2,000 for 10 KiB, and 500 for 10,000 clusters]
    Cold(ColdArgs),
    /// Memory of clients that wait [default: 2,000 connections, and 100 with 100 streams each]
    Idle(IdleArgs),
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
    pub fn benches(&self) -> Vec<Box<dyn Bench>> {
        let variants = self.variant.map_or_else(|| vec![Variant::Delta, Variant::Sotw], |variant| vec![variant]);
        variants.into_iter().flat_map(|variant| self.bench.with(variant)).collect()
    }
}

impl Command {
    fn with(&self, variant: Variant) -> Vec<Box<dyn Bench>> {
        match self {
            Self::Fanout(args) => vec![Box::new(args.fanout(variant))],
            Self::Storm(args) => vec![Box::new(args.storm(variant))],
            Self::Cold(args) => args.storms(variant).into_iter().map(|storm| Box::new(storm) as _).collect(),
            Self::Idle(args) => args.idles(variant).into_iter().map(|idle| Box::new(idle) as _).collect(),
        }
    }
}

#[derive(Debug, Args)]
pub struct StormArgs {
    #[arg(long, alias = "clients", default_value_t = 2000)]
    connections: usize,
    #[arg(long, default_value_t = 1000)]
    resources: usize,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size, default_value = "2KiB")]
    resource_size: usize,
}

#[derive(Debug, Args)]
pub struct ColdArgs {
    #[arg(long, alias = "clients")]
    connections: Option<usize>,
    #[arg(long)]
    resources: Option<usize>,
    /// Bytes of each resource
    #[arg(long, value_parser = parse_size)]
    resource_size: Option<usize>,
}

#[derive(Debug, Args)]
pub struct IdleArgs {
    #[arg(long, alias = "clients")]
    connections: Option<usize>,
    /// Streams of each connection; then memory of a further stream is measured
    #[arg(long)]
    streams: Option<usize>,
}

impl StormArgs {
    fn storm(&self, variant: Variant) -> Storm {
        let Self { connections, resources, resource_size: size } = *self;
        Storm { variant, connections, resources, size, warm: true }
    }
}

impl ColdArgs {
    fn storms(&self, variant: Variant) -> Vec<Storm> {
        let cold = |(connections, resources, size)| Storm { variant, connections, resources, size, warm: false };
        match (self.connections, self.resources, self.resource_size) {
            (None, None, None) => [(2000, 10, 1024), (500, 10_000, 100)].map(cold).into(),
            (connections, resources, size) => {
                vec![cold((connections.unwrap_or(2000), resources.unwrap_or(10), size.unwrap_or(1024)))]
            }
        }
    }
}

impl IdleArgs {
    fn idles(&self, variant: Variant) -> Vec<Idle> {
        let idle = |(connections, added)| Idle { variant, connections, added };
        match (self.connections, self.streams) {
            (None, None) => {
                [(2000, Added::SharedNames), (2000, Added::OwnNames), (100, Added::Streams(100))].map(idle).into()
            }
            (connections, Some(streams)) => vec![idle((connections.unwrap_or(100), Added::Streams(streams.max(2))))],
            (Some(connections), None) => {
                [Added::SharedNames, Added::OwnNames].map(|added| idle((connections, added))).into()
            }
        }
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
