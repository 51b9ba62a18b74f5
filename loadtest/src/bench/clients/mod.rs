//! The clients of a benchmark: they subscribe, read, and ACK. A goal is what each client has to receive next.

mod connection;
mod options;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::measure::Latencies;
pub use options::{CachedVersions, ClientOptions, Names, wildcard};

/// Connected clients. They disconnect when this is dropped.
pub struct Clients {
    shared: Arc<Shared>,
    orders: watch::Sender<Order>,
    _tasks: JoinSet<()>,
}

/// The current order to all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Wait,
    Subscribe,
    /// The connections with lower numbers stop reading, once they have read so many bytes more.
    Stall {
        connections: usize,
        after: usize,
    },
    Resume,
}

struct Shared {
    options: ClientOptions,
    progress: Mutex<Progress>,
    reached: Notify,
    bytes: AtomicU64,
    removed: AtomicU64,
    resources: AtomicU64,
    /// The number of messages on each connection.
    messages: Vec<AtomicU64>,
    /// The start of each round, if each change is timed.
    rounds: Mutex<Vec<Instant>>,
}

struct Progress {
    goal: Goal,
    /// Streams that have not reached the goal yet.
    remaining: usize,
    last: Instant,
    received: Latencies,
    acked: Latencies,
    failure: Option<String>,
    connected: usize,
}

/// What each stream has to receive: this many resources that changed in this round or later.
#[derive(Debug, Clone, Copy)]
struct Goal {
    number: u64,
    since: u32,
    resources: usize,
    start: Instant,
}

/// Counts of what was received since the last call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    pub bytes: u64,
    pub messages: u64,
    pub resources: u64,
    /// The number of removed names, in delta.
    pub removed: u64,
}

impl Clients {
    /// Connects all clients and waits for the last. They do not subscribe yet.
    pub async fn connect(options: ClientOptions) -> anyhow::Result<Self> {
        let clients = Self::start(options, Order::Wait, usize::MAX);
        clients.connected().await?;
        Ok(clients)
    }

    /// Waits until all clients are connected.
    pub async fn connected(&self) -> anyhow::Result<()> {
        self.wait("connected", |progress, options| progress.connected == options.connections).await
    }

    /// Connects the clients; each subscribes as soon as it is connected. The goal is the first set, with this many resources.
    pub fn storm(options: ClientOptions, resources: usize) -> Self {
        Self::start(options, Order::Subscribe, resources)
    }

    fn start(options: ClientOptions, first: Order, resources: usize) -> Self {
        let now = Instant::now();
        let streams = options.connections * options.streams;
        let messages = std::iter::repeat_with(AtomicU64::default).take(options.connections).collect();
        let progress = Progress {
            goal: Goal { number: 0, since: 0, resources, start: now },
            remaining: streams,
            last: now,
            received: Latencies::default(),
            acked: Latencies::default(),
            failure: None,
            connected: 0,
        };
        let shared = Arc::new(Shared {
            options,
            progress: Mutex::new(progress),
            reached: Notify::new(),
            bytes: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            resources: AtomicU64::new(0),
            messages,
            rounds: Mutex::default(),
        });
        let (orders, order) = watch::channel(first);
        let connecting = Arc::new(Semaphore::new(shared.options.connecting));
        let syncing = Arc::new(Semaphore::new(shared.options.syncing));
        let mut tasks = JoinSet::new();
        for connection in 0..shared.options.connections {
            let (shared, order) = (shared.clone(), order.clone());
            let (connecting, syncing) = (connecting.clone(), syncing.clone());
            tasks.spawn(async move {
                let Err(error) = connection::run(&shared, connection, order, &connecting, syncing).await else {
                    return;
                };
                shared.lock().failure.get_or_insert_with(|| format!("connection {connection}: {error:#}"));
                shared.reached.notify_one();
            });
        }
        Self { shared, orders, _tasks: tasks }
    }

    /// Subscribes all clients at once. The goal is the first set, with this many resources.
    pub fn subscribe(&self, resources: usize) -> Instant {
        let start = Instant::now();
        self.expect(0, resources, start);
        self.orders.send_replace(Order::Subscribe);
        start
    }

    /// Makes the connections with lower numbers stop reading, once they have read so many bytes more. Goals no longer include them.
    pub fn stall(&self, connections: usize, after: usize) {
        self.orders.send_replace(Order::Stall { connections, after });
    }

    /// Makes the stalled connections read again. The goal is the last change, on these connections only.
    pub fn resume(&self, round: u32, resources: usize) {
        let mut progress = self.shared.lock();
        let Order::Stall { connections, .. } = *self.orders.borrow() else { return };
        progress.goal = Goal { number: progress.goal.number + 1, since: round, resources, start: Instant::now() };
        progress.remaining = connections * self.shared.options.streams;
        drop(progress);
        self.orders.send_replace(Order::Resume);
    }

    /// Sets the next goal: each stream has to receive this many resources that changed in this round. The time to the goal counts from `start`.
    pub fn expect(&self, round: u32, resources: usize, start: Instant) {
        let mut progress = self.shared.lock();
        let stalled = match *self.orders.borrow() {
            Order::Stall { connections, .. } => connections,
            _ => 0,
        };
        progress.goal = Goal { number: progress.goal.number + 1, since: round, resources, start };
        progress.remaining = (self.shared.options.connections - stalled) * self.shared.options.streams;
    }

    /// Times each change on arrival, instead of the time to a goal. Rounds count from 1.
    pub fn changed(&self, round: u32, start: Instant) {
        let mut rounds = self.shared.rounds();
        debug_assert_eq!(rounds.len() + 1, round as usize);
        rounds.push(start);
    }

    /// Waits until all clients have reached the goal, and returns how long the last one took.
    pub async fn reached(&self) -> anyhow::Result<Duration> {
        self.wait("at the goal", |progress, _| progress.remaining == 0).await?;
        let progress = self.shared.lock();
        Ok(progress.last.saturating_duration_since(progress.goal.start))
    }

    pub fn received(&self) -> Received {
        let shared = &self.shared;
        Received {
            bytes: shared.bytes.load(Ordering::Relaxed),
            messages: shared.messages.iter().map(|messages| messages.load(Ordering::Relaxed)).sum(),
            resources: shared.resources.load(Ordering::Relaxed),
            removed: shared.removed.load(Ordering::Relaxed),
        }
    }

    /// Waits until each client has received a response, and returns how long that took.
    pub async fn answered(&self) -> anyhow::Result<Duration> {
        let all = || self.shared.messages.iter().all(|messages| messages.load(Ordering::Relaxed) > 0);
        let start = self.shared.lock().goal.start;
        while !all() {
            if let Some(failure) = &self.shared.lock().failure {
                bail!("{failure}");
            }
            ensure!(start.elapsed() < ANSWERED, "some clients have received nothing for {ANSWERED:?}");
            tokio::time::sleep(LOOK).await;
        }
        Ok(start.elapsed())
    }

    /// Returns the largest number of messages on any of the first `connections` connections.
    pub fn most_messages(&self, connections: usize) -> u64 {
        let messages = self.shared.messages.iter().take(connections);
        messages.map(|messages| messages.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Takes two kinds of times: from a change to its receipt, and from a change to the moment when its ACK was handed to the connection.
    pub fn take_latencies(&self) -> (Latencies, Latencies) {
        let mut progress = self.shared.lock();
        (std::mem::take(&mut progress.received), std::mem::take(&mut progress.acked))
    }

    async fn wait(&self, what: &str, holds: impl Fn(&Progress, &ClientOptions) -> bool) -> anyhow::Result<()> {
        let mut before = None;
        loop {
            let now = {
                let progress = self.shared.lock();
                if let Some(failure) = &progress.failure {
                    bail!("{failure}");
                }
                if holds(&progress, &self.shared.options) {
                    return Ok(());
                }
                (progress.connected, progress.remaining)
            };
            let notified = timeout(TIMEOUT, self.shared.reached.notified()).await;
            let (connected, remaining) = now;
            let is_stuck = notified.is_err() && before.replace((now, self.received())) == Some((now, self.received()));
            ensure!(
                !is_stuck,
                "clients are not {what}, and have received nothing for {TIMEOUT:?}; connected: {connected}, short: {remaining}"
            );
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn rounds(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const ANSWERED: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(10);
/// A benchmark fails if no byte arrives for this long.
const TIMEOUT: Duration = Duration::from_secs(60);
