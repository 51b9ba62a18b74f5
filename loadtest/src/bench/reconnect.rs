//! Clients reconnect with the resources that they have: what the relay sends them again, and what the control plane notices of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};

use super::clients::{CachedVersions, ClientOptions, Clients};
use super::gate::Gate;
use super::stage::Stage;
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::link::scan;
use crate::link::{ADS_DELTA, ADS_SOTW, Event, Link, LinkOptions};
use crate::measure::raise_open_files;
use crate::wire::Variant;

#[derive(Debug, Clone)]
pub struct Reconnect {
    pub variant: Variant,
    pub connections: usize,
    pub resources: usize,
    /// Bytes of each resource.
    pub size: usize,
    /// The percentage of resources that change while the clients are disconnected.
    pub changed_percent: usize,
}

impl Bench for Reconnect {
    fn name(&self) -> String {
        let Self { variant, connections, resources, size, changed_percent } = self;
        format!(
            "reconnect: {connections} clients with {resources} clusters of {size} B, {changed_percent} % changed meanwhile, {variant}"
        )
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay]
    }

    fn gates(&self) -> Vec<Gate> {
        let bytes = if self.changed_percent == 0 { 2.0 } else { self.changed_percent as f64 + 3.0 };
        vec![Gate::absolute("bytes_percent_of_first_sync", bytes), Gate::absolute("upstream_requests", 0.0)]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Reconnect {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections)?;
        let resources = Resources { kind: Kind::Clusters, count: self.resources, size: self.size };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let mut stage = Stage::start(subject, setting, programs).await?;
        let options = ClientOptions { syncing: SYNCING, ..stage.clients(self.connections) };
        let warm = stage.warm().await?;
        let held = Arc::new(held(&options, self.resources).await?);
        let clients = Clients::storm(options.clone(), self.resources);
        clients.reached().await?;
        let first = clients.received();
        drop(clients);
        let process = stage.server.process;
        process.quiet_cpu().await?;
        let changed = self.resources * self.changed_percent / 100;
        if changed > 0 {
            stage.round(&warm, 1, 0..changed).await?;
        }
        process.quiet_cpu().await?;
        let requests = stage.origin.requests();
        let start = process.quiet_cpu().await?;
        // A client that is sent nothing would never count as synced.
        let clients = Clients::storm(ClientOptions { held, syncing: self.connections, ..options }, changed.max(1));
        if changed > 0 {
            clients.reached().await?;
        } else {
            clients.connected().await?;
        }
        let cpu = process.quiet_cpu().await? - start;
        let requests = stage.origin.requests() - requests;
        // One more change, which is not counted. It arrives after everything that clients are sent on reconnecting.
        let last = self.resources - 1;
        stage.round(&clients, 2, last..last + 1).await?;
        let all = clients.received();
        let sets = if self.variant == Variant::Sotw { self.resources as u64 } else { 1 } * self.connections as u64;
        let again = all.resources.saturating_sub(sets);
        let bytes = all.bytes.saturating_sub(first.bytes * sets / first.resources);
        let figures = BTreeMap::from([
            ("bytes_percent_of_first_sync".into(), bytes as f64 * 100.0 / first.bytes as f64),
            ("resources_again_per_client".into(), again as f64 / self.connections as f64),
            ("upstream_requests".into(), requests as f64),
            ("cpu_us_per_client".into(), cpu.as_secs_f64() * 1e6 / self.connections as f64),
        ]);
        Ok(Scene::of(figures))
    }
}

/// Returns the versions that a client with these options has once it is synced. The server gives all clients the same versions.
pub(super) async fn held(options: &ClientOptions, resources: usize) -> anyhow::Result<CachedVersions> {
    let mut link =
        Link::open(options.target.clone(), &LinkOptions { tls: options.tls.clone(), ..LinkOptions::default() }).await?;
    let node = scan::node("probe", &options.cluster);
    let (url, is_sotw) = (options.kind.type_url(), options.variant == Variant::Sotw);
    let stream = link.start(if is_sotw { ADS_SOTW } else { ADS_DELTA });
    match options.variant {
        Variant::Sotw => link.send(stream, scan::sotw_subscribe(url, Some(&node), &[])),
        Variant::Delta => link.send(stream, scan::delta_subscribe(url, Some(&node), &["*"])),
    }
    let mut held = CachedVersions::default();
    loop {
        let Event::Message(_, message) = link.next().await else {
            anyhow::bail!("the stream of the first client ended")
        };
        let bytes: Bytes = message.into_bytes();
        let count = match options.variant {
            Variant::Sotw => {
                let response = DiscoveryResponse::decode(bytes)?;
                held.version = response.version_info;
                response.resources.len()
            }
            Variant::Delta => {
                let response = DeltaDiscoveryResponse::decode(bytes)?;
                held.versions.extend(response.resources.into_iter().map(|wrapper| (wrapper.name, wrapper.version)));
                held.versions.len()
            }
        };
        if count >= resources {
            return Ok(held);
        }
    }
}

/// How many clients may wait for their first set at a time.
const SYNCING: usize = 64;
