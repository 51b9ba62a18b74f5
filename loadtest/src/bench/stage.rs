//! One subject with its control plane, and the steps that benchmarks have in common.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Programs;
use super::clients::{ClientOptions, Clients, wildcard};
use super::origin::Origin;
use super::subject::{Server, Setting, Subject};
use crate::measure::Latencies;
use crate::report::percentiles;

pub struct Stage {
    pub setting: Setting,
    // The server is dropped before the origin: otherwise it would notice the end of the origin.
    pub server: Server,
    pub origin: Origin,
}

impl Stage {
    pub async fn start(subject: Subject, setting: Setting, programs: &Programs) -> anyhow::Result<Self> {
        let origin = Origin::start(setting.resources).await?;
        let setting = Setting { origin: origin.address, ..setting };
        let server = {
            let (setting, programs) = (setting.clone(), programs.clone());
            tokio::task::spawn_blocking(move || Server::start(subject, &setting, &programs)).await??
        };
        Ok(Self { setting, server, origin })
    }

    /// Ends the subject's process and starts another with an empty cache.
    pub async fn restart(&mut self, programs: &Programs) -> anyhow::Result<()> {
        let (subject, setting, programs) = (self.server.subject, self.setting.clone(), programs.clone());
        self.server = tokio::task::spawn_blocking(move || Server::start(subject, &setting, &programs)).await??;
        Ok(())
    }

    /// Returns options for clients of all resources, with one stream on each connection.
    pub fn clients(&self, connections: usize) -> ClientOptions {
        ClientOptions {
            target: self.server.target.clone(),
            tls: self.server.tls.clone(),
            variant: self.setting.variant,
            kind: self.setting.resources.kind,
            connections,
            streams: 1,
            names: wildcard(),
            cluster: CLUSTER.into(),
            connecting: CONNECTING,
            syncing: usize::MAX >> 4,
            small: 0,
            held: Arc::default(),
        }
    }

    /// Connects one client that receives everything, so that a relay creates its view.
    pub async fn warm(&self) -> anyhow::Result<Clients> {
        let client = Clients::storm(self.clients(1), self.setting.resources.count);
        client.reached().await?;
        Ok(client)
    }

    /// Changes these resources and waits until all clients have them. Returns the time of the last client.
    pub async fn round(&mut self, clients: &Clients, round: u32, changed: Range<usize>) -> anyhow::Result<Duration> {
        let count = changed.len();
        self.round_of(clients, round, changed, count).await
    }

    /// Like [`Self::round`], for clients that each subscribe to `each` of the changed resources.
    pub async fn round_of(
        &mut self,
        clients: &Clients,
        round: u32,
        changed: Range<usize>,
        each: usize,
    ) -> anyhow::Result<Duration> {
        if self.server.subject == Subject::Floor {
            clients.expect(round, each, Instant::now());
            self.server.push(round)?;
        } else {
            self.origin.change(changed, round, |start| clients.expect(round, each, start));
        }
        clients.reached().await
    }
}

/// Returns percentiles of the times from a change to its receipt and to its ACK.
pub fn figures_of((received, acked): &(Latencies, Latencies)) -> BTreeMap<String, f64> {
    percentiles("received", received).chain(percentiles("acked", acked)).collect()
}

pub fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The sharing key of most clients.
pub const CLUSTER: &str = "bench";
/// How many connections are opened at a time, so that no listener's backlog overflows.
pub const CONNECTING: usize = 64;
