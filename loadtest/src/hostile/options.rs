//! The command line of `weir-loadtest hostile`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::behaviour::Behaviour;
use crate::bench::size::parse_size;

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Server that is running; its control plane has to be at --origin
    #[arg(long, value_name = "ADDR", conflicts_with = "weir", requires = "origin", required_unless_present_any = ["weir", "list"])]
    pub target: Option<SocketAddr>,
    /// Address at which the tool serves as the control plane [default: a free port]
    #[arg(long, value_name = "ADDR")]
    pub origin: Option<SocketAddr>,
    /// Relay that is started for each behaviour, with its defaults, instead of --target
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// Admin address of the target, for /healthz and the limits that were reached
    #[arg(long, value_name = "ADDR", conflicts_with = "weir")]
    pub admin: Option<SocketAddr>,
    /// Process of the target, whose memory is measured
    #[arg(long, value_name = "PID", conflicts_with = "weir")]
    pub pid: Option<u32>,
    /// Behaviours, in this order [default: all]
    #[arg(long = "behaviour", value_name = "NAME", value_enum, value_delimiter = ',', num_args = 1..)]
    pub behaviours: Vec<Behaviour>,
    /// Memory (RSS) that the process may never exceed
    #[arg(long, value_name = "SIZE", default_value = "640MiB", value_parser = parse_size)]
    pub memory_bound: usize,
    /// How long each behaviour lasts [default: 15s, and 1s with --small]
    #[arg(long, value_parser = humantime::parse_duration)]
    pub duration: Option<Duration>,
    /// Time until everything has to be as before [default: 60s]
    #[arg(long, value_parser = humantime::parse_duration)]
    pub recovery: Option<Duration>,
    /// A hundredth of each behaviour, to see that the tool works
    #[arg(long)]
    pub small: bool,
    /// Print the behaviours, and play none
    #[arg(long)]
    pub list: bool,
    /// Write the outcomes to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Options {
    pub fn behaviours(&self) -> Vec<Behaviour> {
        if self.behaviours.is_empty() { Behaviour::value_variants().to_vec() } else { self.behaviours.clone() }
    }

    pub fn duration(&self) -> Duration {
        self.duration.unwrap_or(Duration::from_secs(if self.small { 1 } else { 15 }))
    }

    pub fn recovery(&self) -> Duration {
        self.recovery.unwrap_or(Duration::from_secs(60))
    }

    /// How long the honest clients are alone.
    pub fn before(&self) -> Duration {
        Duration::from_secs(if self.small { 1 } else { 3 })
    }
}
