//! The control plane sends a large complete set again with one change in it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use tokio::time::timeout;

use super::gate::Gate;
use super::size::show_size;
use super::stage::{Stage, mib};
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Ingest {
    pub resources: usize,
    /// Bytes of each resource.
    pub size: usize,
    pub rounds: u32,
}

impl Bench for Ingest {
    fn name(&self) -> String {
        let Self { resources, size, rounds } = self;
        format!("ingest: {resources} clusters of {} over SotW again with one change, {rounds} rounds", show_size(*size))
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay, Subject::Reader]
    }

    fn gates(&self) -> Vec<Gate> {
        vec![
            Gate::ratio("cpu_ms_per_response", Subject::Reader, 2.0).stretch(1.5),
            Gate::absolute("resources_sent_per_change", 1.0),
            Gate::absolute("peak_rss_by_bytes_held", 2.5),
        ]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Ingest {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        let resources = Resources { kind: Kind::Clusters, count: self.resources, size: self.size };
        let config = "limits: {message_bytes: 1GiB, incomplete_request_bytes: 1GiB}";
        let setting = Setting { upstream: Variant::Sotw, relay_config: config, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let client = if subject == Subject::Reader { None } else { Some(stage.warm().await?) };
        let process = stage.server.process;
        let start = process.quiet_cpu().await?;
        let before = client.as_ref().map(|client| client.received()).unwrap_or_default();
        for round in 1..=self.rounds {
            let requests = stage.origin.requests();
            match &client {
                Some(client) => drop(stage.round(client, round, 0..1).await?),
                None => stage.origin.change([0], round, |_| {}),
            }
            let acked = async {
                while stage.origin.requests() == requests {
                    tokio::time::sleep(LOOK).await;
                }
            };
            ensure!(timeout(TIMEOUT, acked).await.is_ok(), "{subject} does not ACK");
        }
        let cpu = process.quiet_cpu().await? - start;
        let rounds = f64::from(self.rounds);
        let peak = process.peak_rss()?;
        let held = (self.resources * self.size) as f64;
        let mut figures = BTreeMap::from([
            ("cpu_ms_per_response".into(), cpu.as_secs_f64() * 1e3 / rounds),
            ("peak_rss_mib".into(), mib(peak)),
            ("peak_rss_by_bytes_held".into(), peak as f64 / held),
        ]);
        if let Some(client) = &client {
            let sent = client.received().resources - before.resources;
            figures.insert("resources_sent_per_change".into(), sent as f64 / rounds);
        }
        Ok(Scene::of(figures))
    }
}

const LOOK: Duration = Duration::from_millis(1);
const TIMEOUT: Duration = Duration::from_secs(120);
