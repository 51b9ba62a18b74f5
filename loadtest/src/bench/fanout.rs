//! One change to many clients, round after round: the cost of a delivery.

use std::time::Instant;

use super::clients::{ClientOptions, Clients};
use super::gate::{Gate, Plausible};
use super::size::show_size;
use super::stage::{Stage, figures_of, mib};
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::{Latencies, Process, raise_open_files};
use crate::report::{Point, fan_out};
use crate::wire::Variant;

/// The parameters of one fan-out.
#[derive(Debug, Clone)]
pub struct Fanout {
    pub variant: Variant,
    pub connections: usize,
    pub streams: usize,
    /// The bytes of all resources together that change in each round.
    pub size: usize,
    /// The number of resources that these bytes are divided into.
    pub resources: usize,
    pub rounds: u32,
}

impl Fanout {
    /// Without `rounds`, the number of rounds is enough for 100,000 deliveries or 10 GiB, whichever is reached first: at least 5, at most 100.
    pub fn new(
        variant: Variant,
        connections: usize,
        streams: usize,
        size: usize,
        resources: usize,
        rounds: Option<u32>,
    ) -> Self {
        let each = (connections * streams).max(1);
        let most = (DELIVERIES / each).min(BYTES / (each * size.max(1)));
        let rounds = rounds.unwrap_or_else(|| u32::try_from(most.clamp(5, 100)).unwrap_or(5));
        Self { variant, connections, streams, size, resources, rounds }
    }
}

impl Bench for Fanout {
    fn name(&self) -> String {
        let Self { variant, connections, streams, size, resources, rounds } = self;
        let streams = if *streams == 1 { String::new() } else { format!(" x {streams} streams") };
        let parts = if *resources == 1 { String::new() } else { format!(" as {resources} resources") };
        format!("fanout: {}{parts} to {connections} connections{streams}, {variant}, {rounds} rounds", show_size(*size))
    }

    fn subjects(&self) -> Vec<Subject> {
        match self.streams {
            1 => vec![Subject::Relay, Subject::Floor, Subject::PlainTonic, Subject::Linear],
            // The floor writes once for each stream, so it is not a lower bound if connections have many streams.
            _ => vec![Subject::Relay, Subject::PlainTonic, Subject::Linear],
        }
    }

    fn gates(&self) -> Vec<Gate> {
        let (floor, tonic, linear) = (Subject::Floor, Subject::PlainTonic, Subject::Linear);
        match (self.streams, self.size) {
            (1, ..=4096) => vec![Gate::ratio(CPU, tonic, 0.9), Gate::ratio(CPU, linear, 0.42)],
            (1, ..=262_144) => vec![Gate::ratio(CPU, floor, 1.9).stretch(1.4)],
            (1, _) => {
                let by_linear = match self.resources {
                    1 => 0.55,
                    2..=100 => 0.72,
                    _ => 0.25,
                };
                vec![
                    Gate::ratio(CPU, linear, by_linear),
                    Gate::ratio(CPU, floor, 1.6).stretch(1.13),
                    Gate::absolute(GROWTH, 45.0),
                ]
            }
            _ => vec![
                Gate::ratio(CPU, linear, 0.38),
                Gate::ratio(CPU, tonic, 0.7).stretch(0.5),
                // Two writes of a connection for a change that goes to all of its streams.
                Gate::absolute(WRITES, 2.0 / self.streams as f64).of(Subject::Relay),
            ],
        }
    }

    /// See docs/record/performance.md for the derivation.
    fn plausible(&self) -> Option<Plausible> {
        let (against, from, to) = match (self.streams, self.size) {
            (1, ..=4096) => (Subject::Floor, 2.0, 5.7),
            (1, ..=262_144) => (Subject::Floor, 1.8, 4.1),
            (1, _) if self.resources > 100 => (Subject::Floor, 6.5, 12.5),
            (1, _) => (Subject::Floor, 2.1, 5.4),
            _ => (Subject::Linear, 0.3, 0.9),
        };
        Some(Plausible { figure: CPU.into(), of: Subject::PlainTonic, against, from, to })
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Fanout {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections)?;
        let resources = Resources { kind: Kind::Clusters, count: self.resources, size: self.size / self.resources };
        let setting = Setting { variant: self.variant, changed: self.resources, admin: true, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let options = ClientOptions { streams: self.streams, ..stage.clients(self.connections) };
        let clients = Clients::connect(options).await?;
        let idle = stage.server.process.memory()?;
        clients.subscribe(self.resources);
        clients.reached().await?;
        stage.round(&clients, 1, 0..self.resources).await?; // to warm up
        clients.take_latencies();
        let process = stage.server.process;
        process.quiet_cpu().await?;
        let writes = stage.server.writes().await?;
        let cpu = process.quiet_cpu().await?; // without what the metrics cost
        let client = Process::this()?;
        let client_cpu = client.cpu()?;
        let (start, mut timeline, mut latencies) =
            (Instant::now(), Vec::new(), (Latencies::default(), Latencies::default()));
        let mut last = (Instant::now(), cpu);
        for round in 2..self.rounds + 2 {
            stage.round(&clients, round, 0..self.resources).await?;
            let (received, acked) = clients.take_latencies();
            let now = (Instant::now(), process.cpu()?);
            let cores = (now.1 - last.1).as_secs_f64() / (now.0 - last.0).as_secs_f64();
            let ms = |percentile| received.percentile(percentile).as_secs_f64() * 1e3;
            let figures = [
                ("p50_ms", ms(50.0)),
                ("p99_ms", ms(99.0)),
                ("max_ms", ms(100.0)),
                ("cpu_cores", cores),
                ("rss_mib", mib(process.rss()?)),
            ];
            let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
            timeline.push(Point { seconds: start.elapsed().as_secs_f64(), figures });
            latencies.0.add(&received);
            latencies.1.add(&acked);
            last = now;
        }
        let cpu = process.quiet_cpu().await? - cpu;
        let client_cpu = client.cpu()? - client_cpu;
        let deliveries = (self.connections * self.streams) as f64 * f64::from(self.rounds);
        let mut figures = figures_of(&latencies);
        figures.insert(CPU.into(), cpu.as_secs_f64() * 1e6 / deliveries);
        figures.insert("client_cpu_us_per_delivery".into(), client_cpu.as_secs_f64() * 1e6 / deliveries);
        figures.insert("rss_idle_mib".into(), mib(idle.rss));
        figures.insert(GROWTH.into(), mib(process.peak_rss()?.saturating_sub(idle.rss)));
        if let (Some(before), Some(after)) = (writes, stage.server.writes().await?) {
            figures.insert(WRITES.into(), (after - before) / deliveries);
        }
        if let Some(polls) = stage.server.polls().await {
            figures.insert("long_polls_percent".into(), polls.long_percent());
        }
        Ok(Scene { figures, timeline, fan_out: fan_out(&latencies.0) })
    }
}

const CPU: &str = "cpu_us_per_delivery";
const GROWTH: &str = "rss_growth_mib";
const WRITES: &str = "writes_per_delivery";
const DELIVERIES: usize = 100_000;
const BYTES: usize = 10 << 30;
