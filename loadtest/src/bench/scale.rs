//! Whether a change costs more if there are more resources or clients that it does not concern.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clients::{ClientOptions, Clients, Names};
use super::gate::Gate;
use super::stage::{Stage, figures_of};
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::raise_open_files;
use crate::wire::Variant;

/// One change among few and among many resources, for clients that subscribe to all of them.
#[derive(Debug, Clone)]
pub struct ScaleResources {
    pub variant: Variant,
    pub connections: usize,
    pub few: usize,
    pub many: usize,
    pub rounds: u32,
}

/// One change of one name, with few and with many clients that do not subscribe to it.
#[derive(Debug, Clone)]
pub struct ScaleClients {
    pub variant: Variant,
    pub holders: usize,
    pub few: usize,
    pub many: usize,
    pub rounds: u32,
}

impl Bench for ScaleResources {
    fn name(&self) -> String {
        let Self { variant, connections, few, many, rounds } = self;
        format!(
            "scale-resources: 1 of {few} and of {many} clusters to {connections} clients, {variant}, {rounds} rounds"
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay]
    }

    fn gates(&self) -> Vec<Gate> {
        match self.variant {
            // In SotW every change sends the complete set.
            Variant::Sotw => Vec::new(),
            Variant::Delta => vec![
                Gate::absolute("cpu_per_delivery_many_by_few", 1.2).stretch(1.0),
                Gate::absolute("rss_per_client_many_by_few", 1.05).stretch(1.0),
            ],
        }
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(async move {
            let mut figures = BTreeMap::new();
            for (which, count) in [("few", self.few), ("many", self.many)] {
                let (cpu, rss) = self.measure(subject, programs, count).await?;
                figures.insert(format!("cpu_us_per_delivery_{which}"), cpu);
                figures.insert(format!("rss_kib_per_client_{which}"), rss);
            }
            let by = |figure: &str| figures[&format!("{figure}_many")] / figures[&format!("{figure}_few")];
            let (cpu, rss) = (by("cpu_us_per_delivery"), by("rss_kib_per_client"));
            figures.insert("cpu_per_delivery_many_by_few".into(), cpu);
            figures.insert("rss_per_client_many_by_few".into(), rss);
            Ok(Scene::of(figures))
        })
    }
}

impl ScaleResources {
    /// Returns microseconds of processor time per delivery, and KiB of memory per client.
    async fn measure(&self, subject: Subject, programs: &Programs, count: usize) -> anyhow::Result<(f64, f64)> {
        raise_open_files(self.connections)?;
        let resources = Resources { kind: Kind::Clusters, count, size: 64 };
        let config = "limits: {message_bytes: 256MiB}";
        let setting = Setting { variant: self.variant, relay_config: config, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        // As many clients as sync at a time, so that memory which the process allocates for syncing does not count later.
        let first = Clients::storm(stage.clients(SYNCING), count);
        first.reached().await?;
        let process = stage.server.process;
        process.quiet_cpu().await?;
        let before = process.memory()?.rss;
        let options = ClientOptions { syncing: SYNCING, ..stage.clients(self.connections) };
        let clients = Clients::storm(options, count);
        clients.reached().await?;
        stage.round(&clients, 1, 0..1).await?; // warm-up
        let start = process.quiet_cpu().await?;
        let rss = process.memory()?.rss.saturating_sub(before);
        for round in 2..self.rounds + 2 {
            let one = round as usize % count;
            stage.round(&clients, round, one..one + 1).await?;
        }
        let cpu = process.quiet_cpu().await? - start;
        let clients = self.connections as f64;
        Ok((cpu.as_secs_f64() * 1e6 / (clients * f64::from(self.rounds)), rss as f64 / 1024.0 / clients))
    }
}

impl Bench for ScaleClients {
    fn name(&self) -> String {
        let Self { variant, holders, few, many, rounds } = self;
        format!(
            "scale-clients: a name of {holders} clients beside {few} and beside {many} others, {variant}, {rounds} rounds"
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![Gate::absolute("cpu_per_change_many_by_few", 1.2).stretch(1.0)]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(async move {
            let mut figures = BTreeMap::new();
            for (which, others) in [("few", self.few), ("many", self.many)] {
                for (name, value) in self.measure(subject, programs, others).await? {
                    figures.insert(format!("{name}_{which}"), value);
                }
            }
            let by = figures["cpu_us_per_change_many"] / figures["cpu_us_per_change_few"];
            figures.insert("cpu_per_change_many_by_few".into(), by);
            Ok(Scene::of(figures))
        })
    }
}

impl ScaleClients {
    async fn measure(
        &self,
        subject: Subject,
        programs: &Programs,
        others: usize,
    ) -> anyhow::Result<BTreeMap<String, f64>> {
        raise_open_files(self.holders + others)?;
        let resources = Resources { kind: Kind::Endpoints, count: 1 + NAMES, size: 1024 };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let named = |from: usize, to: usize| -> Names {
            Arc::new(move |_| (from..to).map(|index| resources.name(index)).collect())
        };
        let options = ClientOptions { names: named(1, 1 + NAMES), ..stage.clients(others) };
        let beside = Clients::storm(options, NAMES);
        beside.reached().await?;
        let holders = Clients::storm(ClientOptions { names: named(0, 1), ..stage.clients(self.holders) }, 1);
        holders.reached().await?;
        stage.round(&holders, 1, 0..1).await?; // warm-up
        holders.take_latencies();
        let process = stage.server.process;
        let start = process.quiet_cpu().await?;
        for round in 2..self.rounds + 2 {
            stage.round(&holders, round, 0..1).await?;
        }
        let cpu = process.quiet_cpu().await? - start;
        let latencies = figures_of(&holders.take_latencies());
        let mut figures: BTreeMap<_, _> =
            latencies.into_iter().filter(|(name, _)| name.starts_with("received_p")).collect();
        figures.insert("cpu_us_per_change".into(), cpu.as_secs_f64() * 1e6 / f64::from(self.rounds));
        Ok(figures)
    }
}

/// How many names each client subscribes to that the change does not concern.
const NAMES: usize = 20;
/// How many clients may wait for a large first set at a time. The memory of the measuring process limits this.
const SYNCING: usize = 16;
