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
    /// Admin address of the target, for /healthz, the limits that were reached and how long polls on its shards took
    #[arg(long, value_name = "ADDR", conflicts_with = "weir")]
    pub admin: Option<SocketAddr>,
    /// Process of the target, whose memory is measured
    #[arg(long, value_name = "PID", conflicts_with = "weir")]
    pub pid: Option<u32>,
    /// Behaviours, in this order [default: all]
    #[arg(long = "behaviour", value_name = "NAME", value_enum, value_delimiter = ',', num_args = 1..)]
    pub behaviours: Vec<Behaviour>,
    /// Memory that the relay is given (limits.memory); honest clients may then notice nothing of a behaviour
    #[arg(long, value_name = "SIZE", conflicts_with = "target", value_parser = parse_size)]
    pub memory: Option<usize>,
    /// Run the relay with its defaults in a memory control group with this limit, as in a container
    #[arg(long, value_name = "SIZE", conflicts_with_all = ["target", "memory"], value_parser = parse_size)]
    pub container: Option<usize>,
    /// Memory (RSS) that the process may never exceed [default: 640MiB, four thirds of --memory, or --container]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory_bound: Option<usize>,
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
        if !self.behaviours.is_empty() {
            return self.behaviours.clone();
        }
        let can_play = |one: &&Behaviour| self.has_admin() || !one.needs_admin();
        Behaviour::value_variants().iter().filter(can_play).copied().collect()
    }

    /// Whether the admin address of the server is known.
    pub fn has_admin(&self) -> bool {
        self.weir.is_some() || self.admin.is_some()
    }

    /// Returns the bytes of RSS that the process may never exceed. A pod has a third more memory than the limit of its relay.
    pub fn memory_bound(&self) -> u64 {
        let pod = self.memory.map(|memory| memory.saturating_add(memory / 3)).or(self.container);
        let bound = self.memory_bound.or(pod);
        bound.unwrap_or(MEMORY_BOUND) as u64
    }

    /// Whether the relay gets less memory than the machine has.
    pub fn is_relay_bounded(&self) -> bool {
        self.memory.is_some() || self.container.is_some()
    }

    pub fn duration(&self) -> Duration {
        self.duration.unwrap_or(Duration::from_secs(if self.small { 1 } else { 15 }))
    }

    pub fn recovery(&self) -> Duration {
        self.recovery.unwrap_or(Duration::from_secs(60))
    }

    /// Returns how long the honest clients are alone before a behaviour begins.
    pub fn before(&self) -> Duration {
        Duration::from_secs(if self.small { 1 } else { 3 })
    }
}

const MEMORY_BOUND: usize = 640 << 20;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        options: Options,
    }

    fn options(arguments: &str) -> Option<Options> {
        let arguments = ["hostile"].into_iter().chain(arguments.split_whitespace());
        Arguments::try_parse_from(arguments).ok().map(|arguments| arguments.options)
    }

    #[test]
    fn the_bound_of_memory_is_the_pod_of_a_relay_unless_it_is_given() {
        let bound = |arguments: &str| options(&format!("--weir weir {arguments}")).unwrap().memory_bound();
        assert_eq!(bound(""), 640 << 20);
        assert_eq!(bound("--memory 384MiB"), 512 << 20);
        assert_eq!(bound("--memory 1.5GiB"), 2 << 30);
        assert_eq!(bound("--memory 384MiB --memory-bound 400MiB"), 400 << 20);
        assert_eq!(bound("--container 512MiB"), 512 << 20);
        assert!(options("--weir weir --container 512MiB --memory 384MiB").is_none());
        assert!(
            options("--target 127.0.0.1:1 --origin 127.0.0.1:2 --memory 1GiB").is_none(),
            "it has its configuration"
        );
    }

    #[test]
    fn without_an_admin_address_no_behaviour_needs_it() {
        let target = "--target 127.0.0.1:1 --origin 127.0.0.1:2";
        assert!(!options(target).unwrap().behaviours().iter().any(|one| one.needs_admin()));
        assert_eq!(options("--weir weir").unwrap().behaviours(), Behaviour::value_variants());
        assert_eq!(
            options(&format!("{target} --admin 127.0.0.1:3")).unwrap().behaviours(),
            Behaviour::value_variants()
        );
    }
}
