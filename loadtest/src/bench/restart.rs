//! Clients reconnect all at once, with the resources that they have, to a relay that was restarted with an empty cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::clients::{ClientOptions, Clients};
use super::gate::Gate;
use super::reconnect::held;
use super::stage::{Stage, mib};
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::raise_open_files;
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Restart {
    pub variant: Variant,
    pub connections: usize,
    pub resources: usize,
    /// Bytes of each resource.
    pub size: usize,
}

impl Bench for Restart {
    fn name(&self) -> String {
        let Self { variant, connections, resources, size } = self;
        format!(
            "restart: {connections} clients return to a cold relay with {resources} clusters of {size} B, {variant}"
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![Gate::absolute("removals", 0.0), Gate::absolute("resources_again_per_client", 0.0)]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Restart {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections)?;
        let resources = Resources { kind: Kind::Clusters, count: self.resources, size: self.size };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let held = Arc::new(held(&stage.clients(1), self.resources).await?);
        stage.restart(programs).await?;
        let process = stage.server.process;
        let idle = process.memory()?;
        process.reset_peak()?;
        let options = ClientOptions { held, connecting: self.connections, ..stage.clients(self.connections) };
        let clients = Clients::storm(options, self.resources);
        let current = clients.answered().await?;
        let cpu = process.quiet_cpu().await?;
        let peak = process.peak_rss()?.saturating_sub(idle.rss);
        let again = clients.received();
        // One more change, which clients receive after everything that was sent before it.
        stage.round(&clients, 1, 0..1).await?;
        let rest = process.memory()?.rss.saturating_sub(idle.rss);
        let figures = BTreeMap::from([
            ("current_s".into(), current.as_secs_f64()),
            ("cpu_ms_per_client".into(), cpu.as_secs_f64() * 1e3 / self.connections as f64),
            ("peak_rss_growth_mib".into(), mib(peak)),
            ("rss_growth_mib".into(), mib(rest)),
            ("resources_again_per_client".into(), again.resources as f64 / self.connections as f64),
            ("removals".into(), clients.received().removed as f64),
        ]);
        Ok(Scene::of(figures))
    }
}
