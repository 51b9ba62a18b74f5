//! Clients connect and subscribe all at once: to a warm server, which has everything cached, or to a cold one, of which they are the first
//! clients.

use std::collections::BTreeMap;

use super::clients::{ClientOptions, Clients};
use super::gate::Gate;
use super::size::show_size;
use super::stage::{Stage, mib};
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::raise_open_files;
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Storm {
    pub variant: Variant,
    pub connections: usize,
    pub resources: usize,
    /// Bytes of each resource.
    pub size: usize,
    /// Whether another client has received everything before, so that the server has it cached.
    pub warm: bool,
}

impl Bench for Storm {
    fn name(&self) -> String {
        let Self { variant, connections, resources, size, warm } = self;
        let name = if *warm { "storm" } else { "cold" };
        format!("{name}: {resources} resources of {} to {connections} clients at once, {variant}", show_size(*size))
    }

    fn subjects(&self) -> Vec<Subject> {
        match self.warm {
            true => vec![
                Subject::Relay,
                Subject::Floor,
                Subject::PlainTonic,
                Subject::Linear,
                Subject::RelayTls,
                Subject::RelayTlsShared,
            ],
            false => vec![Subject::Relay, Subject::Linear],
        }
    }

    fn gates(&self) -> Vec<Gate> {
        if !self.warm {
            let half = Gate::ratio("half_synced_s", Subject::Linear, 0.6).base("synced_s");
            return vec![Gate::ratio("synced_s", Subject::Linear, 1.2).stretch(0.8), half];
        }
        vec![
            Gate::ratio("rss_growth_mib", Subject::PlainTonic, 0.02).stretch(0.01),
            Gate::ratio("synced_s", Subject::Linear, 0.75),
            Gate::ratio("synced_s", Subject::Floor, 1.5).stretch(1.1),
            Gate::ratio("cpu_ms_per_client", Subject::Linear, 0.42),
            Gate::ratio("cpu_ms_per_client", Subject::RelayTlsShared, 1.0).of(Subject::RelayTls),
        ]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Storm {
    pub(super) async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections)?;
        let resources = Resources { kind: Kind::Clusters, count: self.resources, size: self.size };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let stage = Stage::start(subject, setting, programs).await?;
        let _first = if self.warm { Some(stage.warm().await?) } else { None };
        let process = stage.server.process;
        let cpu = process.quiet_cpu().await?;
        let idle = process.memory()?;
        process.reset_peak()?;
        let connecting = self.connections.min(CONNECTING);
        let options = ClientOptions { connecting, ..stage.clients(self.connections) };
        let clients = Clients::storm(options, self.resources);
        let synced = clients.reached().await?;
        let cpu = process.quiet_cpu().await? - cpu;
        let (received, _) = clients.take_latencies();
        let figures = BTreeMap::from([
            ("synced_s".into(), synced.as_secs_f64()),
            ("first_synced_s".into(), received.percentile(0.0).as_secs_f64()),
            ("half_synced_s".into(), received.percentile(50.0).as_secs_f64()),
            ("p99_synced_s".into(), received.percentile(99.0).as_secs_f64()),
            ("cpu_ms_per_client".into(), cpu.as_secs_f64() * 1e3 / self.connections as f64),
            ("rss_growth_mib".into(), mib(process.peak_rss()?.saturating_sub(idle.rss))),
            ("received_mib_per_client".into(), mib(clients.received().bytes) / self.connections as f64),
        ]);
        Ok(Scene::of(figures))
    }
}

/// How many clients may connect at a time. If a listener's backlog overflowed, a client would wait a second before it tries again.
const CONNECTING: usize = 2000;
