//! Runs a scenario: starts its processes, waits for the first sets, runs the steps, and checks the result.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::time::sleep;

use super::balancer::Balancer;
use super::file::{Scenario, Step};
use super::relay::Relay;
use super::report::{Report, StepReport, Traffic};
use crate::address::resolve;
use crate::checks::{Check, Truth};
use crate::fleet::{Behaviour, Counters, Fleet, FleetOptions, Group};
use crate::observe::Observer;
use crate::origin::{Origin, listener_name};
use crate::output;

/// Runs a scenario. `relay`: the path of the relay, instead of the one in the file.
pub async fn run(scenario: &Scenario, relay: Option<&Path>, observer: Arc<dyn Observer>) -> anyhow::Result<Report> {
    let origin = match &scenario.origin {
        None => None,
        Some(origin) => Some(Origin::start(LOCAL, origin.resources, origin.fault).await?),
    };
    let mut stage = Stage { scenario, origin, relays: Vec::new(), balancer: None };
    if let (Some(file), Some(origin)) = (&scenario.relay, &stage.origin) {
        for _ in 0..file.replicas {
            stage.relays.push(Relay::start(file, relay, origin.address).await?);
        }
        if file.balancer {
            let relays = stage.relays.iter().map(|relay| (relay.address, relay.probes));
            stage.balancer = Some(Balancer::start(relays).await?);
        }
    }
    let (targets, tls) = match (&scenario.target, &stage.balancer) {
        (None, Some(balancer)) => (vec![balancer.address.into()], None),
        (Some(target), _) => resolve(target, &scenario.tls).await.map(|(address, tls)| (vec![address], tls))?,
        (None, None) if !stage.relays.is_empty() => {
            (stage.relays.iter().map(|relay| relay.address.into()).collect(), None)
        }
        (None, None) => (stage.origin.iter().map(|origin| origin.address.into()).collect(), None),
    };
    let checks_off = stage.checks_off();
    let checks = Check::ALL.into_iter().filter(|check| !checks_off.contains(check)).collect();
    let options = FleetOptions { targets, tls, groups: stage.groups(), checks, connect_rate: scenario.connect_rate };
    let truth = stage.origin.as_ref().map(|origin| Truth::new(origin.shared()));

    let began = Instant::now();
    let fleet = Fleet::start(options, truth, observer)?;
    let counters = fleet.counters().clone();
    let (first_sync, convergence, steps) = tokio::select! {
        times = stage.play(fleet, began) => times?,
        () = show_progress(&counters) => (None, None, Vec::new()), // never returns
    };
    let unexpected_ends = if stage.ends_are_expected() { 0 } else { counters.lost.value() };
    let checks_off = checks_off.into_iter().collect();
    let description = scenario.description.clone();
    Ok(Report { description, counters, first_sync, convergence, steps, unexpected_ends, checks_off })
}

struct Stage<'a> {
    scenario: &'a Scenario,
    origin: Option<Origin>,
    relays: Vec<Relay>,
    balancer: Option<Balancer>,
}

/// The time until the first sets, the time until the last change, and the reports of the steps.
type Played = (Option<Duration>, Option<Duration>, Vec<StepReport>);

impl Stage<'_> {
    /// Runs all steps once the clients have their first sets.
    async fn play(&mut self, fleet: Fleet, began: Instant) -> anyhow::Result<Played> {
        let limit = self.scenario.timeout;
        let first_sync = fleet.synced(limit).await.then(|| began.elapsed());
        let steps = if first_sync.is_some() { self.take_steps(&fleet).await? } else { Vec::new() };
        let began = Instant::now();
        let convergence = fleet.settle(limit).await.then(|| began.elapsed());
        fleet.stop().await;
        Ok((first_sync, convergence, steps))
    }

    /// Runs all steps, while the origin changes continuously.
    async fn take_steps(&mut self, fleet: &Fleet) -> anyhow::Result<Vec<StepReport>> {
        let Self { scenario, origin, relays, balancer } = self;
        let churn = scenario.origin.as_ref().and_then(|origin| origin.churn.as_ref());
        let changes = async {
            match (origin.as_ref(), churn) {
                (Some(origin), Some(churn)) => origin.churn(churn).await,
                _ => std::future::pending().await,
            }
        };
        let (origin, balancer, limit) = (origin.as_ref(), balancer.as_ref(), scenario.timeout);
        let mut scene = Scene { origin, relays, balancer, fleet, limit };
        let taken = async {
            let mut reports = Vec::new();
            for step in &scenario.steps {
                let (began, before) = (Instant::now(), Traffic::of(fleet));
                scene.take(step).await?;
                let traffic = Traffic::of(fleet) - before;
                reports.push(StepReport { step: step.name(), time: began.elapsed(), traffic });
            }
            Ok(reports)
        };
        tokio::select! {
            taken = taken => taken,
            () = changes => Ok(Vec::new()), // never returns
        }
    }

    /// Returns the groups. gRPC clients without listeners get those of the origin.
    fn groups(&self) -> Vec<Group> {
        let mut groups = self.scenario.clients.clone();
        let count = self.scenario.origin.as_ref().map_or(0, |origin| origin.resources.listeners);
        for group in groups.iter_mut().filter(|group| group.behaviour == Behaviour::Grpc && group.listeners.is_empty())
        {
            group.listeners = (0..count).map(|listener| listener_name(listener).to_string()).collect();
        }
        groups
    }

    fn checks_off(&self) -> BTreeSet<Check> {
        let without_origin = Check::ALL.into_iter().filter(|check| check.needs_origin() && self.origin.is_none());
        without_origin.chain(self.scenario.skip_checks.iter().copied()).collect()
    }

    /// Whether a step ends servers to which clients are connected.
    fn ends_are_expected(&self) -> bool {
        let has = |wanted: fn(&Step) -> bool| has_step(&self.scenario.steps, wanted);
        self.scenario.streams_may_end
            || has(|step| matches!(step, Step::RollingRestart(_)))
            || self.relays.is_empty() && has(|step| matches!(step, Step::Outage(_)))
    }
}

fn has_step(steps: &[Step], wanted: fn(&Step) -> bool) -> bool {
    steps.iter().any(|step| match step {
        Step::Repeat { steps, .. } => has_step(steps, wanted),
        step => wanted(step),
    })
}

/// The objects on which steps act.
struct Scene<'a> {
    origin: Option<&'a Origin>,
    relays: &'a mut Vec<Relay>,
    balancer: Option<&'a Balancer>,
    fleet: &'a Fleet,
    limit: Duration,
}

impl Scene<'_> {
    fn take<'a>(&'a mut self, step: &'a Step) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>> {
        Box::pin(async move {
            match step {
                Step::Wait(time) => sleep(*time).await,
                Step::Join => self.fleet.join(),
                Step::Change { pattern, count } => {
                    self.origin.context("change requires origin")?.step(*pattern, *count);
                }
                Step::Outage(time) => {
                    let origin = self.origin.context("outage requires origin")?;
                    origin.stop_listening().await;
                    sleep(*time).await;
                    origin.listen().await?;
                }
                Step::RollingRestart(pause) => self.restart_relays(*pause).await?,
                Step::Repeat { times, steps } => {
                    for step in std::iter::repeat_n(steps, *times).flatten() {
                        self.take(step).await?;
                    }
                }
            }
            Ok(())
        })
    }

    async fn restart_relays(&mut self, pause: Duration) -> anyhow::Result<()> {
        for relay in self.relays.iter_mut() {
            relay.restart().await?;
            if let Some(balancer) = self.balancer {
                balancer.all_are_ready(self.limit).await?;
            }
            ensure!(self.fleet.all_connected(self.limit).await, "not all clients connect again");
            sleep(pause).await;
        }
        Ok(())
    }
}

async fn show_progress(counters: &Counters) {
    loop {
        sleep(PROGRESS).await;
        output::line(counters);
    }
}

const LOCAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);
const PROGRESS: Duration = Duration::from_secs(5);
