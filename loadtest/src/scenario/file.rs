//! The format of a scenario file. Unknown keys are rejected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::address::TlsOptions;
use crate::checks::Check;
use crate::fleet::Group;
use crate::origin::{Churn, Counts, Fault, Pattern};

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What the run shows, in one line.
    pub description: String,
    /// The control plane of this scenario. Without it, the checks that need an origin are off.
    pub origin: Option<Origin>,
    /// A relay that is started between the clients and the origin. Without it, clients connect to `target` or to the origin.
    pub relay: Option<Relay>,
    /// The address of a server that is already running.
    pub target: Option<String>,
    #[serde(default)]
    pub tls: TlsOptions,
    pub clients: Vec<Group>,
    /// How many connections are opened per second. By default as many as possible.
    pub connect_rate: Option<u32>,
    /// Checks to leave out.
    #[serde(default)]
    pub skip_checks: BTreeSet<Check>,
    /// The steps after the clients have their first set.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// The time limit for the first set of the clients, and for the last change at the end.
    #[serde(default = "patience", with = "super::duration")]
    pub timeout: Duration,
    /// Whether streams may end at any time, not only because of a step.
    #[serde(default)]
    pub streams_may_end: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Origin {
    pub resources: Counts,
    pub churn: Option<Churn>,
    pub fault: Option<Fault>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relay {
    /// The path of the relay; the command line may replace it.
    #[serde(default = "weir")]
    pub binary: PathBuf,
    /// Arguments, in which `{config}` is the path of the configuration.
    #[serde(default = "arguments")]
    pub arguments: Vec<String>,
    /// The relay's configuration. In it `{listen}` is replaced by the address for clients, `{probes}` by the address for probes, and `{upstream}` by
    /// the address of the origin.
    pub config: String,
    /// The number of relays behind one address. They are restarted one after another, and the clients are spread over them.
    #[serde(default = "one")]
    pub replicas: usize,
    /// Whether clients connect to a TCP balancer, which passes each connection to a relay that is ready.
    #[serde(default)]
    pub balancer: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub enum Step {
    /// Waits.
    Wait(#[serde(with = "super::duration")] Duration),
    /// Applies this many steps of a pattern at once.
    Change { pattern: Pattern, count: usize },
    /// Stops the origin, waits, and starts it again with the same resources.
    Outage(#[serde(with = "super::duration")] Duration),
    /// Restarts the relays one by one, each time waiting until the clients have reconnected.
    RollingRestart(#[serde(with = "super::duration")] Duration),
    /// Lets the clients with `joins` connect, and continues at once.
    Join,
    /// Repeats steps.
    Repeat { times: usize, steps: Vec<Step> },
}

impl Step {
    /// Returns the step's key in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wait(_) => "wait",
            Self::Change { .. } => "change",
            Self::Outage(_) => "outage",
            Self::RollingRestart(_) => "rolling_restart",
            Self::Join => "join",
            Self::Repeat { .. } => "repeat",
        }
    }
}

impl Scenario {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let scenario = Self::parse(&text).with_context(|| format!("invalid scenario {}", path.display()))?;
        Ok(scenario)
    }

    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let scenario: Self = serde_saphyr::from_str(text)?;
        let servers = usize::from(scenario.target.is_some()) + usize::from(scenario.relay.is_some());
        anyhow::ensure!(servers < 2, "target and relay exclude each other");
        anyhow::ensure!(servers > 0 || scenario.origin.is_some(), "one of target, relay and origin is required");
        anyhow::ensure!(scenario.relay.is_none() || scenario.origin.is_some(), "relay requires origin");
        let relays = scenario.relay.as_ref().map_or(1, |relay| relay.replicas);
        anyhow::ensure!(relays > 0, "relay.replicas must be greater than 0");
        let unprobed = |relay: &Relay| relay.balancer && !relay.config.contains("{probes}");
        anyhow::ensure!(
            !scenario.relay.as_ref().is_some_and(unprobed),
            "relay.balancer requires {{probes}} in relay.config"
        );
        scenario.check_steps(&scenario.steps)?;
        Ok(scenario)
    }

    fn check_steps(&self, steps: &[Step]) -> anyhow::Result<()> {
        for step in steps {
            match step {
                Step::Change { .. } | Step::Outage(_) => {
                    anyhow::ensure!(self.origin.is_some(), "change and outage require origin");
                }
                Step::RollingRestart(_) => anyhow::ensure!(self.relay.is_some(), "rolling_restart requires relay"),
                Step::Repeat { steps, .. } => self.check_steps(steps)?,
                Step::Wait(_) | Step::Join => {}
            }
        }
        Ok(())
    }

    /// Returns a variant of the scenario for a quick check: each group has at most `clients`, and no wait is longer
    /// than `wait`.
    pub fn shortened(mut self, clients: usize, wait: Duration) -> Self {
        for group in &mut self.clients {
            group.count = group.count.min(clients);
            group.period = group.period.min(wait / 4);
            group.joins = group.joins.map(|apart| apart.min(wait / 20));
        }
        self.connect_rate = None;
        shorten(&mut self.steps, wait);
        if let Some(origin) = &mut self.origin {
            origin.resources.clusters = origin.resources.clusters.min(40);
            if let Some(churn) = &mut origin.churn {
                churn.every = churn.every.min(wait / 4);
                churn.count = churn.count.min(20);
            }
        }
        self
    }
}

fn shorten(steps: &mut [Step], wait: Duration) {
    for step in steps {
        match step {
            Step::Wait(time) | Step::Outage(time) | Step::RollingRestart(time) => *time = (*time).min(wait),
            Step::Repeat { times, steps } => {
                *times = (*times).min(2);
                shorten(steps, wait);
            }
            Step::Change { .. } | Step::Join => {}
        }
    }
}

fn patience() -> Duration {
    Duration::from_secs(60)
}

fn weir() -> PathBuf {
    "target/release/weir".into()
}

fn arguments() -> Vec<String> {
    vec!["--config".into(), "{config}".into(), "--log".into(), "warn".into()]
}

fn one() -> usize {
    1
}
