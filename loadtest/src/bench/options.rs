//! The command line of the benchmarks: what is measured, and where the results go.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Bench;
use super::parameters::{
    ApartArgs, ColdArgs, ConnectArgs, FanoutArgs, FrontArgs, IdleArgs, IngestArgs, MixedArgs, NeighbourArgs,
    ReconnectArgs, RestartArgs, ScaleClientsArgs, ScaleResourcesArgs, StallArgs, StormArgs,
};
use super::rows;
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
    /// More configuration of the relay, such as `shards: 0`
    #[arg(long, global = true, value_name = "YAML", default_value = "", hide_default_value = true)]
    pub relay_config: String,
    /// More configuration of the other one [default: none]
    #[arg(long, global = true, value_name = "YAML", default_value = "", hide_default_value = true)]
    pub relay_b_config: String,
    /// How often each subject is measured; the median counts [default: 3, and 1 with --quick]
    #[arg(long, global = true, value_name = "N")]
    pub repetitions: Option<usize>,
    /// Measure these subjects alone
    #[arg(long, global = true, value_name = "SUBJECTS", value_delimiter = ',', value_enum)]
    pub only: Vec<Subject>,
    /// Measure this variant alone [default: both]
    #[arg(long, global = true, value_enum)]
    pub variant: Option<Variant>,
    /// Write the results to this file as JSON
    #[arg(long, global = true, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the results to this file as a page with plots
    #[arg(long, global = true, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the gates to this file as tables for a document
    #[arg(long, global = true, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// One change to many clients
    Fanout(FanoutArgs),
    /// Many clients with subsets of their own, and changes all the time
    Mixed(MixedArgs),
    /// Clients that all connect at once and are the first of their view [default: 2,000 for 10 KiB, and 500 for 10,000 clusters]
    Cold(ColdArgs),
    /// Clients that all connect at once to a server that has what they want
    Storm(StormArgs),
    /// Clients of a small set that all connect at once, without TLS and with it
    Connect(ConnectArgs),
    /// Memory of clients that wait [default: 2,000 connections, and 100 with 100 streams each]
    Idle(IdleArgs),
    /// Clients that stop reading while large changes go out
    Stall(StallArgs),
    /// One change among few and among many resources
    ScaleResources(ScaleResourcesArgs),
    /// One change beside few and beside many clients that it does not concern
    ScaleClients(ScaleClientsArgs),
    /// A large set that the control plane sends again with one change
    Ingest(IngestArgs),
    /// A view beside another that is busy
    Neighbour(NeighbourArgs),
    /// Changes to a view of few clients while others go to a view of many
    Apart(ApartArgs),
    /// Clients that come back with what they have
    Reconnect(ReconnectArgs),
    /// Clients that come back with what they have to a relay that was restarted, in delta
    Restart(RestartArgs),
    /// How much load relays take off a control plane on go-control-plane, and what new clients get while it is away
    Front(FrontArgs),
    /// All of them, with the parameters that the gates are for
    All {
        /// Small, once and without gates: whether the benchmarks work
        #[arg(long)]
        quick: bool,
    },
}

impl Options {
    /// Returns the benchmarks that the command line selects.
    pub fn benches(&self) -> Vec<Box<dyn Bench>> {
        let variants = self.variant.map_or_else(|| vec![Variant::Delta, Variant::Sotw], |variant| vec![variant]);
        variants.into_iter().flat_map(|variant| self.bench.with(variant)).collect()
    }

    /// Returns the subjects to measure by a benchmark.
    pub fn subjects(&self, bench: &dyn Bench) -> Vec<Subject> {
        let mut subjects = bench.subjects();
        if self.weir_b.is_some() {
            subjects.insert(1, Subject::RelayB);
        }
        if !self.only.is_empty() {
            subjects = self.only.clone();
        }
        subjects
    }

    pub fn repetitions(&self) -> usize {
        self.repetitions.unwrap_or(if self.is_quick() { 1 } else { 3 })
    }

    /// Whether nothing but the benchmarks themselves is tested.
    pub fn is_quick(&self) -> bool {
        matches!(self.bench, Command::All { quick: true })
    }
}

impl Command {
    fn with(&self, variant: Variant) -> Vec<Box<dyn Bench>> {
        match self {
            Self::Fanout(args) => args.benches(variant),
            Self::Mixed(args) => args.benches(variant),
            Self::Cold(args) => args.benches(variant),
            Self::Storm(args) => args.benches(variant),
            Self::Connect(args) => args.benches(variant),
            Self::Idle(args) => args.benches(variant),
            Self::Stall(args) => args.benches(variant),
            Self::ScaleResources(args) => args.benches(variant),
            Self::ScaleClients(args) => args.benches(variant),
            Self::Ingest(args) => args.benches(variant),
            Self::Neighbour(args) => args.benches(variant),
            Self::Apart(args) => args.benches(variant),
            Self::Reconnect(args) => args.benches(variant),
            Self::Restart(args) => args.benches(variant),
            Self::Front(args) => args.benches(variant),
            Self::All { quick: false } => rows::all(variant),
            Self::All { quick: true } => rows::quick(variant),
        }
    }
}
