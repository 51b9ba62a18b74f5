//! Measures how much memory a client costs that is up to date and waits.

use std::collections::BTreeMap;
use std::ops::Sub;
use std::sync::Arc;

use super::clients::{ClientOptions, Clients, Names};
use super::gate::Gate;
use super::stage::Stage;
use super::subject::{Setting, Subject};
use super::{Bench, Kind, Programs, Resources, Running, Scene};
use crate::measure::{Process, raise_open_files, tcp_memory};
use crate::wire::Variant;

/// What is added to a server that already has a few connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// Connections that subscribe to the same names as others.
    SharedNames,
    /// Connections with names of their own.
    OwnNames,
    /// Streams on the existing connections.
    Streams(usize),
}

#[derive(Debug, Clone)]
pub struct Idle {
    pub variant: Variant,
    pub connections: usize,
    pub added: Added,
}

impl Bench for Idle {
    fn name(&self) -> String {
        let Self { variant, connections, added } = self;
        match added {
            Added::SharedNames => format!("idle: {connections} connections with the same {NAMES} names, {variant}"),
            Added::OwnNames => format!("idle: {connections} connections with {NAMES} names of their own, {variant}"),
            Added::Streams(streams) => {
                format!("idle: {connections} connections x {streams} streams with the same {NAMES} names, {variant}")
            }
        }
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::Relay, Subject::PlainTonic]
    }

    fn gates(&self) -> Vec<Gate> {
        let name = Resources { kind: Kind::Endpoints, count: 0, size: 0 }.name(0).len();
        let kib = |bytes: usize| bytes as f64 / 1024.0;
        let limit = |limit| Gate::ratio("rss_kib_each", Subject::PlainTonic, limit);
        vec![match self.added {
            Added::SharedNames => limit(0.72).free(kib(NAMES * 16)),
            // Only these connections have these names, so the bodies of the names count too.
            Added::OwnNames => limit(0.95).stretch(0.8).free(kib(NAMES * (name + 250 + SIZE))),
            Added::Streams(_) => limit(0.41).stretch(0.25),
        }]
    }

    fn run<'a>(&'a self, subject: Subject, programs: &'a Programs) -> Running<'a> {
        Box::pin(self.measure(subject, programs))
    }
}

impl Idle {
    async fn measure(&self, subject: Subject, programs: &Programs) -> anyhow::Result<Scene> {
        raise_open_files(self.connections * 2)?;
        let is_own = self.added == Added::OwnNames;
        let count = if is_own { (self.connections + 1) * NAMES } else { NAMES };
        let resources = Resources { kind: Kind::Endpoints, count, size: SIZE };
        let setting = Setting { variant: self.variant, ..Setting::of(resources) };
        let stage = Stage::start(subject, setting, programs).await?;
        let names: Names = Arc::new(move |stream| {
            let first = if is_own { stream * NAMES } else { 0 };
            (first..first + NAMES).map(|index| resources.name(index)).collect()
        });
        let options = ClientOptions { names, ..stage.clients(self.connections) };
        let process = stage.server.process;
        // A first client makes the server allocate what it allocates only once, so that this does not count.
        let _first = connect(ClientOptions { connections: 1, ..options.clone() }).await?;
        let start = Memory::of(process).await?;
        let _clients = connect(options.clone()).await?;
        let mut grown = Memory::of(process).await? - start;
        let mut each = self.connections as f64;
        if let Added::Streams(streams) = self.added {
            let before = Memory::of(process).await?;
            let _more = connect(ClientOptions { streams, ..options }).await?;
            // The cost of the same connections with one stream each is subtracted, so that the rest is the cost of the other streams.
            grown = Memory::of(process).await? - before - grown;
            each = (self.connections * (streams - 1)) as f64;
        }
        let figures = BTreeMap::from([
            ("rss_kib_each".into(), grown.rss / each),
            ("pss_kib_each".into(), grown.pss / each),
            ("kernel_kib_each".into(), grown.kernel / each),
        ]);
        Ok(Scene::of(figures))
    }
}

async fn connect(options: ClientOptions) -> anyhow::Result<Clients> {
    let clients = Clients::storm(options, NAMES);
    clients.reached().await?;
    Ok(clients)
}

/// Memory in KiB.
#[derive(Debug, Clone, Copy)]
struct Memory {
    rss: f64,
    pss: f64,
    kernel: f64,
}

impl Memory {
    async fn of(process: Process) -> anyhow::Result<Self> {
        process.quiet_cpu().await?;
        let (memory, kernel) = (process.memory()?, tcp_memory()?);
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        Ok(Self { rss: kib(memory.rss), pss: kib(memory.pss), kernel: kib(kernel) })
    }
}

impl Sub for Memory {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { rss: self.rss - other.rss, pss: self.pss - other.pss, kernel: self.kernel - other.kernel }
    }
}

const NAMES: usize = 20;
const SIZE: usize = 200;
