//! Clients stop reading while large changes are sent: the memory that they pin, and the effect on other clients.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clients::{ClientOptions, Clients, Names};
use super::gate::Gate;
use super::size::show_size;
use super::stage::{Stage, mib};
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::{Process, raise_open_files, tcp_memory};
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Stall {
    pub variant: Variant,
    pub connections: usize,
    pub stalled_percent: usize,
    /// Bytes of each update.
    pub size: usize,
    pub updates: u32,
    /// How many bytes of the first update the clients read before they stop.
    pub read_first: usize,
    /// Whether the clients subscribe to different names.
    pub differing: bool,
}

impl Stall {
    fn stalled(&self) -> usize {
        (self.connections * self.stalled_percent / 100).max(1)
    }
}

impl Bench for Stall {
    fn name(&self) -> String {
        let Self { variant, connections, size, updates, differing, read_first, .. } = self;
        let (stalled, size) = (self.stalled(), show_size(*size));
        let interest = if *differing { "differing names" } else { "the same names" };
        let when = match read_first {
            0 => String::new(),
            bytes => format!(" after {}", show_size(*bytes)),
        };
        format!(
            "stall: {stalled} of {connections} clients with {interest} stop reading{when}, {updates} updates of {size}, {variant}"
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![
            Gate::absolute("rss_growth_mib", 16.0 + 8.0 * mib(self.size as u64)),
            Gate::absolute("kernel_kib_per_stalled", 512.0),
            Gate::absolute("versions_to_stalled", 4.0),
        ]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Stall {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections)?;
        let resources = Resources { kind: Kind::Endpoints, count: RESOURCES, size: self.size / RESOURCES };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let (differing, each) = (self.differing, RESOURCES - 1);
        let names: Names = Arc::new(move |stream| {
            let without = if differing { stream % RESOURCES } else { 0 };
            (0..RESOURCES).filter(|index| *index != without).map(|index| resources.name(index)).collect()
        });
        let options =
            ClientOptions { names, syncing: SYNCING, small: self.stalled(), ..stage.clients(self.connections) };
        let clients = Clients::storm(options, each);
        clients.reached().await?;
        let process = stage.server.process;
        process.quiet_cpu().await?;
        let alone = self.rounds(&mut stage, &clients, each, 0).await?;
        let (before, kernel) = settled(process).await?;
        process.reset_peak()?;
        let stalled = self.stalled();
        let messages = clients.most_messages(stalled);
        clients.stall(stalled, self.read_first);
        let beside = self.rounds(&mut stage, &clients, each, self.updates).await?;
        let (now, kernel_now) = settled(process).await?;
        let peak = process.peak_rss()?;
        clients.resume(2 * self.updates, each);
        clients.reached().await?;
        // The version that was current before they stalled counts too.
        let versions = clients.most_messages(stalled) - messages + 1;
        let figures = BTreeMap::from([
            ("rss_growth_mib".into(), mib(now.saturating_sub(before))),
            ("peak_rss_growth_mib".into(), mib(peak.saturating_sub(before))),
            ("kernel_kib_per_stalled".into(), kernel_now.saturating_sub(kernel) as f64 / 1024.0 / stalled as f64),
            ("versions_to_stalled".into(), versions as f64),
            ("others_p99_ms".into(), beside),
            ("others_p99_before_ms".into(), alone),
        ]);
        Ok(Scene::of(figures))
    }

    /// Runs rounds of updates, starting with round `from`. Returns the 99th percentile of the times of the clients that read.
    async fn rounds(&self, stage: &mut Stage, clients: &Clients, each: usize, from: u32) -> anyhow::Result<f64> {
        clients.take_latencies();
        for round in from + 1..=from + self.updates {
            stage.round_of(clients, round, 0..RESOURCES, each).await?;
        }
        Ok(clients.take_latencies().0.percentile(99.0).as_secs_f64() * 1e3)
    }
}

/// Returns the RSS of the process and the memory of all TCP sockets, once the process is idle.
async fn settled(process: Process) -> anyhow::Result<(u64, u64)> {
    process.quiet_cpu().await?;
    Ok((process.memory()?.rss, tcp_memory()?))
}

const RESOURCES: usize = 1000;
/// How many clients may wait for their first set at a time.
const SYNCING: usize = 64;
