//! Many clients with subsets of their own, and continuous changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clients::{ClientOptions, Clients, Names};
use super::gate::Gate;
use super::stage::{Stage, figures_of};
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::raise_open_files;
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Mixed {
    pub variant: Variant,
    pub connections: usize,
    pub resources: usize,
    /// The number of resources that each client subscribes to.
    pub subset: usize,
    pub per_second: u32,
    pub seconds: u32,
}

impl Bench for Mixed {
    fn name(&self) -> String {
        let Self { variant, connections, resources, subset, per_second, seconds } = self;
        format!(
            "mixed: {connections} clients of {subset} out of {resources} endpoints, {per_second} changes/s for {seconds} s, {variant}"
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay, Subject::Linear]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![Gate::ratio("cpu_us_per_change", Subject::Linear, 0.5).stretch(0.3)]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Mixed {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections)?;
        let resources = Resources { kind: Kind::Endpoints, count: self.resources, size: 1024 };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let (count, subset) = (self.resources, self.subset);
        // Each stream picks its names with its own start and step, so that no two streams have the same names.
        let names: Names = Arc::new(move |stream| {
            let step = 1 + stream % (count / subset - 1).max(1);
            (0..subset).map(|place| resources.name((stream * 7 + place * step) % count)).collect()
        });
        let clients = Clients::storm(ClientOptions { names, ..stage.clients(self.connections) }, subset);
        clients.reached().await?;
        clients.take_latencies();
        let process = stage.server.process;
        let (start, before) = (process.quiet_cpu().await?, clients.received());
        let begin = Instant::now();
        let changes = self.per_second * self.seconds;
        let mut ticks = tokio::time::interval(TICK);
        let (mut done, mut round) = (0, 0);
        while done < changes {
            ticks.tick().await;
            // Makes all changes that are due by now: a late tick also makes those of missed ticks.
            let due = (begin.elapsed().as_secs_f64() * f64::from(self.per_second)) as u32;
            for change in done..due.min(changes) {
                let index = (change as usize * STRIDE) % count;
                round += 1;
                stage.origin.change([index], round, |start| clients.changed(round, start));
            }
            done = due.min(changes);
        }
        let took = begin.elapsed();
        let cpu = process.quiet_cpu().await? - start;
        let received = clients.received();
        let latencies = clients.take_latencies();
        // One more round, in which everything is sent, shows that all clients are still connected.
        stage.round_of(&clients, round + 1, 0..count, subset).await?;
        let mut figures = BTreeMap::from([
            ("cpu_us_per_change".into(), cpu.as_secs_f64() * 1e6 / f64::from(changes)),
            ("resources_per_change".into(), (received.resources - before.resources) as f64 / f64::from(changes)),
            ("messages_per_change".into(), (received.messages - before.messages) as f64 / f64::from(changes)),
            ("changes_per_s".into(), f64::from(changes) / took.as_secs_f64()),
        ]);
        figures.extend(figures_of(&latencies));
        Ok(Scene::of(figures))
    }
}

const TICK: Duration = Duration::from_millis(1);
/// Coprime to every number of resources in use, so that changes reach all of them.
const STRIDE: usize = 7919;
