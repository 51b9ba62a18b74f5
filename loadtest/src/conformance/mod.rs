//! Checks of single rules of the protocol, from outside: they send requests to a server as clients do. If the server's upstream is the
//! control plane of this program, a check also decides what that control plane serves.
//!
//! Each check has a node cluster of its own. A relay with the cluster in its sharing key therefore starts each check with a cold cache, and with
//! upstream streams that belong to this check alone.

mod answers;
mod delta;
mod existence;
mod ordering;
mod report;
mod scene;
mod services;
mod sotw;
mod translation;
mod transport;
mod upstream;
mod warming;

use std::collections::VecDeque;
use std::fmt::{Display, Formatter};
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::{Duration, Instant};

pub use report::{Outcome, Report, Verdict};
use scene::Scene;

use crate::wire::{Plane, Variant};

#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// The server under test, as http://HOST:PORT.
    #[arg(long, required_unless_present = "list", default_value = "", hide_default_value = true)]
    pub target: String,
    /// Address at which to play the control plane that is the upstream of the server under test. Without it, only checks that need
    /// none are run.
    #[arg(long)]
    pub plane: Option<SocketAddr>,
    /// Only clients of one variant.
    #[arg(long)]
    pub downstream: Option<Variant>,
    /// Only checks of the rule with this ID, or, if there is none, with this in their rules or their description.
    #[arg(long)]
    pub only: Option<String>,
    /// Says what checks there are, and runs none.
    #[arg(long)]
    pub list: bool,
    /// Prints each result as one line of JSON, and no sum of them.
    #[arg(long, conflicts_with = "list")]
    pub json: bool,
    /// Milliseconds of silence after which a check takes it that nothing arrives.
    #[arg(long, default_value = "1500", value_parser = milliseconds)]
    pub quiet: Duration,
    /// Checks that run at one time.
    #[arg(long, default_value = "1")]
    pub jobs: usize,
    /// Seconds within which what is expected has to arrive.
    #[arg(long, default_value = "10", value_parser = seconds)]
    pub patience: Duration,
    /// Seconds after which the server under test takes the silence of a SotW upstream about a name for absence.
    #[arg(long, default_value = "15", value_parser = seconds)]
    pub resource_timer: Duration,
}

fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

fn seconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_secs)
}

/// One rule, or several that are checked together.
pub struct Check {
    /// The rules' IDs.
    pub rules: &'static str,
    pub what: &'static str,
    clients: Clients,
    /// Whether the check scripts the control plane, which then has to be the server's upstream.
    scripted: bool,
    run: fn(Scene) -> Running,
}

/// The check cannot be made here, for this reason.
#[derive(Debug)]
struct NotHere(&'static str);

impl Display for NotHere {
    fn fmt(&self, out: &mut Formatter) -> std::fmt::Result {
        out.write_str(self.0)
    }
}

impl std::error::Error for NotHere {}

type Running = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// The variants for which a check is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clients {
    Only(Variant),
    Either,
    /// The check chooses its methods itself, and runs once.
    Own,
}

const SOTW: Clients = Clients::Only(Variant::Sotw);
const DELTA: Clients = Clients::Only(Variant::Delta);
const EITHER: Clients = Clients::Either;
const OWN: Clients = Clients::Own;

/// A check with a scripted control plane.
macro_rules! scripted {
    ($rules:literal, $clients:expr, $what:literal, $run:path) => {
        $crate::conformance::Check {
            rules: $rules,
            what: $what,
            clients: $clients,
            scripted: true,
            run: |scene| Box::pin($run(scene)),
        }
    };
}

/// A check for any control plane.
macro_rules! unscripted {
    ($rules:literal, $clients:expr, $what:literal, $run:path) => {
        $crate::conformance::Check { scripted: false, ..$crate::conformance::scripted!($rules, $clients, $what, $run) }
    };
}

use {scripted, unscripted};

/// A check, and the variant that its clients use this time.
#[derive(Clone, Copy)]
pub struct Case {
    pub check: &'static Check,
    pub variant: Option<Variant>,
}

const GROUPS: [&[Check]; 10] = [
    transport::CHECKS,
    services::CHECKS,
    sotw::CHECKS,
    delta::CHECKS,
    answers::CHECKS,
    warming::CHECKS,
    existence::CHECKS,
    upstream::CHECKS,
    translation::CHECKS,
    ordering::CHECKS,
];

/// Returns the checks that these options select, in order.
pub fn selected(options: &Options) -> impl Iterator<Item = Case> {
    let (only, downstream) = (options.only.clone().unwrap_or_default(), options.downstream);
    let is_rule = GROUPS.into_iter().flatten().any(|check| check.proves(&only));
    let wanted = move |check: &&Check| if is_rule { check.proves(&only) } else { check.mentions(&only) };
    let checks = GROUPS.into_iter().flatten().filter(wanted);
    let cases = checks.flat_map(|check| {
        let variants: &[_] = match check.clients {
            Clients::Only(Variant::Sotw) => &[Some(Variant::Sotw)],
            Clients::Only(Variant::Delta) => &[Some(Variant::Delta)],
            Clients::Either => &[Some(Variant::Sotw), Some(Variant::Delta)],
            Clients::Own => &[None],
        };
        variants.iter().map(move |variant| Case { check, variant: *variant })
    });
    cases.filter(move |case| downstream.is_none() || case.variant.is_none() || case.variant == downstream)
}

/// Runs the checks in order, and reports each result once it and all results before it are known.
pub async fn run(options: &Options, plane: Option<&Plane>, mut tell: impl FnMut(&Outcome)) -> anyhow::Result<Report> {
    let run = std::process::id();
    let mut waiting = selected(options).enumerate().map(|(number, case)| {
        let scene = Scene::new(options, plane, format!("conformance-{number}-{run}"), case.variant);
        case.run(scene, plane.is_some(), options.clone())
    });
    let mut running: VecDeque<_> = waiting.by_ref().take(options.jobs.max(1)).map(tokio::spawn).collect();
    let mut report = Report::default();
    while let Some(first) = running.pop_front() {
        let outcome = first.await?;
        tell(&outcome);
        report.outcomes.push(outcome);
        running.extend(waiting.next().map(tokio::spawn));
    }
    Ok(report)
}

impl Check {
    fn proves(&self, rule: &str) -> bool {
        self.rules.split(' ').any(|id| id == rule)
    }

    fn mentions(&self, text: &str) -> bool {
        self.rules.contains(text) || self.what.contains(text)
    }
}

impl Case {
    async fn run(self, scene: Scene, has_plane: bool, options: Options) -> Outcome {
        let start = Instant::now();
        let verdict = self.verdict(scene, has_plane, &options).await;
        Outcome { case: self, verdict, took: start.elapsed() }
    }

    async fn verdict(&self, scene: Scene, has_plane: bool, options: &Options) -> Verdict {
        if self.check.scripted && !has_plane {
            return Verdict::Skipped("needs --plane: it says what upstream has");
        }
        let longest = options.patience * 4 + options.resource_timer * 2;
        match tokio::time::timeout(longest, (self.check.run)(scene)).await {
            Ok(Ok(())) => Verdict::Ok,
            Ok(Err(error)) => match error.downcast_ref() {
                Some(NotHere(reason)) => Verdict::Skipped(reason),
                None => Verdict::Failed(format!("{error:#}")),
            },
            Err(_) => Verdict::Failed(format!("it did not come to an end in {} s", longest.as_secs())),
        }
    }
}

impl Display for Case {
    fn fmt(&self, out: &mut Formatter) -> std::fmt::Result {
        let variant = self.variant.map_or("", |variant| match variant {
            Variant::Sotw => "sotw: ",
            Variant::Delta => "delta: ",
        });
        write!(out, "{:<22} {variant}{}", self.check.rules, self.check.what)
    }
}
