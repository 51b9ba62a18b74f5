//! Simulated clients, any number of them in one process.

mod behaviour;
mod client;
pub mod command;
mod context;
mod counters;
mod errors;
mod node;
mod options;
mod progress;
mod runner;
mod verdict;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

pub use behaviour::Behaviour;
pub use client::{Action, Client, Outcome, Shared, StreamKey};
pub use counters::Counters;
pub use errors::Errors;
pub use node::NodeTemplate;
pub use options::{FleetOptions, Group};
pub use progress::Progress;
pub use verdict::{Judged, Verdict};

use crate::checks::Truth;
use crate::link::LinkOptions;
use crate::measure::raise_open_files;
use crate::observe::Observer;
use crate::subscription::Names;
use context::{Context, Phase};
use runner::Runner;

/// A running fleet. It ends when it is stopped or dropped.
pub struct Fleet {
    phase: watch::Sender<Phase>,
    joining: watch::Sender<bool>,
    counters: Arc<Counters>,
    runners: tokio::task::JoinHandle<()>,
    connections: u64,
    /// The number of clients that should have everything in the end.
    expected: u64,
    /// The number of these clients that connect at the start.
    expected_first: u64,
}

impl Fleet {
    /// Starts all clients of all groups, at the configured rate.
    pub fn start(options: FleetOptions, truth: Option<Truth>, observer: Arc<dyn Observer>) -> anyhow::Result<Self> {
        let counters = Arc::new(Counters::default());
        let (phase, phases) = watch::channel(Phase::Running);
        let (joining, joined) = watch::channel(false);
        let is_first = |group: &&Group| group.joins.is_none();
        let converging = || options.groups.iter().filter(|group| group.behaviour.converges());
        let connections = |group: &Group| group.count.div_ceil(group.clients_per_connection.max(1)) as u64;
        raise_open_files(options.groups.iter().map(connections).fold(0, u64::saturating_add) as usize)?;
        let connections = options.groups.iter().filter(is_first).map(connections).sum();
        let expected = converging().map(|group| group.count as u64).fold(0, u64::saturating_add);
        let expected_first = converging().filter(is_first).map(|group| group.count as u64).fold(0, u64::saturating_add);
        options.groups.iter().for_each(|group| observer.asked(group.behaviour.conduct(), group.count));
        let runners = tokio::spawn(spawn(options, truth, observer, counters.clone(), (phases, joined)));
        Ok(Self { phase, joining, counters, runners, connections, expected, expected_first })
    }

    /// Lets the clients connect that join later.
    pub fn join(&self) {
        self.joining.send_replace(true);
    }

    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Waits until all clients of the start that should sync have received everything that they subscribe to. Returns whether they have.
    pub async fn synced(&self, limit: Duration) -> bool {
        self.reached(limit, self.expected_first, |counters| counters.synced.value()).await
    }

    /// Waits until all connections of the start are open. Returns whether they are.
    pub async fn all_connected(&self, limit: Duration) -> bool {
        self.reached(limit, self.connections, |counters| counters.connected_first.value()).await
    }

    /// Ends all misbehaviour, and waits until the clients that should converge have the same resources as the origin. Nothing may change meanwhile.
    pub async fn settle(&self, limit: Duration) -> bool {
        self.join();
        self.phase.send_replace(Phase::Settling);
        self.reached(limit, self.expected, |counters| counters.converged.value()).await
    }

    /// Stops all clients. After [`Self::settle`], those that differ from the origin are reported.
    pub async fn stop(self) -> Arc<Counters> {
        let judged = *self.phase.borrow() == Phase::Settling;
        self.phase.send_replace(Phase::Stopping { judged });
        let _ = self.runners.await; // the panic of a client has been printed
        self.counters
    }

    async fn reached(&self, limit: Duration, expected: u64, count: impl Fn(&Counters) -> u64) -> bool {
        let deadline = Instant::now() + limit;
        while count(&self.counters) < expected {
            if Instant::now() > deadline {
                return false;
            }
            sleep(LOOK).await;
        }
        true
    }
}

async fn spawn(
    options: FleetOptions,
    truth: Option<Truth>,
    observer: Arc<dyn Observer>,
    counters: Arc<Counters>,
    (phases, joined): (watch::Receiver<Phase>, watch::Receiver<bool>),
) {
    let shared = Shared { names: Arc::new(Names::default()), truth, checks: Arc::new(options.checks) };
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES));
    let started = Instant::now();
    let targets: Arc<[_]> = options.targets.into();
    let mut pace = options.connect_rate.map(|rate| interval(Duration::from_secs(1) / rate.max(1)));
    let mut runners = JoinSet::new();
    let mut number = 0;
    for group in &options.groups {
        let default = LinkOptions { tls: options.tls.clone(), ..LinkOptions::default() };
        let link = LinkOptions { window: group.window().unwrap_or(default.window), ..default };
        let listeners: Vec<_> = group.listeners.iter().map(|name| shared.names.intern(name)).collect();
        let mut left = group.count;
        while left > 0 {
            let count = left.min(group.clients_per_connection.max(1));
            left -= count;
            let clients = (0..count).map(|_| {
                number += 1;
                let node = group.node.encode(number);
                Client::new(number, group.behaviour, group.variant, node, &listeners, shared.clone())
            });
            let context = Context {
                targets: targets.clone(),
                link: link.clone(),
                period: group.period,
                started,
                phase: phases.clone(),
                counters: counters.clone(),
                observer: observer.clone(),
                handshakes: handshakes.clone(),
            };
            let runner = Runner::new(context, group.behaviour, clients.collect());
            if let Some(apart) = group.joins {
                let place = (group.count - left).div_ceil(count) as u32;
                runners.spawn(runner.run_later(joined.clone(), apart * place));
                continue;
            }
            if let Some(pace) = &mut pace
                && *phases.borrow() == Phase::Running
            {
                pace.tick().await;
            }
            runners.spawn(runner.run());
        }
    }
    drop(shared);
    while runners.join_next().await.is_some() {}
}

const HANDSHAKES: usize = 128;
const LOOK: Duration = Duration::from_millis(5);
