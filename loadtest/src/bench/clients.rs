//! The clients of a benchmark: they subscribe, read what comes, and ACK it. A goal says what each of them has to receive next.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use prost::Message as _;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use weir::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::Kind;
use super::arrival;
use crate::link::scan::{self, Scan};
use crate::link::{ADS_DELTA, ADS_SOTW, Event, Link, LinkOptions, Message, StreamId};
use crate::measure::Latencies;
use crate::wire::Variant;

/// Who connects to what, and for which names.
#[derive(Clone)]
pub struct ClientOptions {
    pub address: SocketAddr,
    pub variant: Variant,
    pub kind: Kind,
    pub connections: usize,
    /// Streams of each connection.
    pub streams: usize,
    /// The names that a stream subscribes to, by its number; none is `*`.
    pub names: Names,
    /// The node's cluster, which is the sharing key.
    pub cluster: String,
    /// How many may connect at a time.
    pub connecting: usize,
    /// How many may connect and wait for their first set at a time. Only for [`Clients::storm`].
    pub syncing: usize,
    /// Connections of lower number have small receive buffers.
    pub small: usize,
    /// What the clients have from an earlier stream.
    pub held: Arc<Held>,
}

pub type Names = Arc<dyn Fn(usize) -> Vec<String> + Send + Sync>;

/// What a client states of an earlier stream.
#[derive(Debug, Default)]
pub struct Held {
    /// Of each resource by its name, in delta.
    pub versions: BTreeMap<String, String>,
    /// Of the set, in SotW.
    pub version: String,
}

/// All resources of the type.
pub fn wildcard() -> Names {
    Arc::new(|_| Vec::new())
}

/// Clients that are connected, until this is dropped.
pub struct Clients {
    shared: Arc<Shared>,
    orders: watch::Sender<Order>,
    _tasks: JoinSet<()>,
}

/// What all clients do from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Wait,
    Subscribe,
    /// The connections of lower number stop reading.
    Stall(usize),
    Resume,
}

struct Shared {
    options: ClientOptions,
    progress: Mutex<Progress>,
    reached: Notify,
    bytes: AtomicU64,
    resources: AtomicU64,
    /// Messages by connection.
    messages: Vec<AtomicU64>,
    /// When each round began, from the first on, if times are taken of single changes.
    rounds: Mutex<Vec<Instant>>,
}

struct Progress {
    goal: Goal,
    /// Streams that have not reached it.
    remaining: usize,
    last: Instant,
    received: Latencies,
    acked: Latencies,
    failure: Option<String>,
    connected: usize,
}

/// Each stream is to receive so many resources that changed in this round or later.
#[derive(Debug, Clone, Copy)]
struct Goal {
    number: u64,
    since: u32,
    resources: usize,
    start: Instant,
}

/// What was received since the last look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    pub bytes: u64,
    pub messages: u64,
    pub resources: u64,
}

impl Clients {
    /// Connects all and waits for the last. They do not subscribe yet.
    pub async fn connect(options: ClientOptions) -> anyhow::Result<Self> {
        let clients = Self::start(options, Order::Wait, usize::MAX);
        clients.connected().await?;
        Ok(clients)
    }

    /// Waits until all have a connection.
    pub async fn connected(&self) -> anyhow::Result<()> {
        self.wait("connected", |progress, options| progress.connected == options.connections).await
    }

    /// Each client connects and subscribes at once. The goal is the first set, of so many resources.
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
                let Err(error) = run(&shared, connection, order, &connecting, syncing).await else { return };
                shared.lock().failure.get_or_insert_with(|| format!("connection {connection}: {error:#}"));
                shared.reached.notify_one();
            });
        }
        Self { shared, orders, _tasks: tasks }
    }

    /// All subscribe at once. The goal is the first set, of so many resources.
    pub fn subscribe(&self, resources: usize) -> Instant {
        let start = Instant::now();
        self.expect(0, resources, start);
        self.orders.send_replace(Order::Subscribe);
        start
    }

    /// The connections of lower number stop reading. They no longer count for goals.
    pub fn stall(&self, connections: usize) {
        self.orders.send_replace(Order::Stall(connections));
    }

    /// They read again. The goal is what changed last for them alone.
    pub fn resume(&self, round: u32, resources: usize) {
        let mut progress = self.shared.lock();
        let Order::Stall(connections) = *self.orders.borrow() else { return };
        progress.goal = Goal { number: progress.goal.number + 1, since: round, resources, start: Instant::now() };
        progress.remaining = connections * self.shared.options.streams;
        drop(progress);
        self.orders.send_replace(Order::Resume);
    }

    /// Sets the next goal: each stream is to receive so many resources that changed in this round. Their time runs from `start`.
    pub fn expect(&self, round: u32, resources: usize, start: Instant) {
        let mut progress = self.shared.lock();
        let stalled = match *self.orders.borrow() {
            Order::Stall(connections) => connections,
            _ => 0,
        };
        progress.goal = Goal { number: progress.goal.number + 1, since: round, resources, start };
        progress.remaining = (self.shared.options.connections - stalled) * self.shared.options.streams;
    }

    /// Takes the time of each change that is received, instead of the time in which a goal is reached. Rounds count from 1.
    pub fn changed(&self, round: u32, start: Instant) {
        let mut rounds = self.shared.rounds();
        debug_assert_eq!(rounds.len() + 1, round as usize);
        rounds.push(start);
    }

    /// Waits until all have reached the goal, and gives the time that the last one needed.
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
        }
    }

    /// The most messages that one of these connections has received.
    pub fn most_messages(&self, connections: usize) -> u64 {
        let messages = self.shared.messages.iter().take(connections);
        messages.map(|messages| messages.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Takes the times from change to receipt, and to the ACK's being handed to the connection.
    pub fn take_latencies(&self) -> (Latencies, Latencies) {
        let mut progress = self.shared.lock();
        (std::mem::take(&mut progress.received), std::mem::take(&mut progress.acked))
    }

    async fn wait(&self, what: &str, holds: impl Fn(&Progress, &ClientOptions) -> bool) -> anyhow::Result<()> {
        let waiting = async {
            loop {
                {
                    let progress = self.shared.lock();
                    if let Some(failure) = &progress.failure {
                        bail!("{failure}");
                    }
                    if holds(&progress, &self.shared.options) {
                        return Ok(());
                    }
                }
                self.shared.reached.notified().await;
            }
        };
        timeout(TIMEOUT, waiting).await.unwrap_or_else(|_| {
            let progress = self.shared.lock();
            let connected = progress.connected;
            Err(anyhow!(
                "clients are not {what} after {TIMEOUT:?}; connected: {connected}, short: {}",
                progress.remaining
            ))
        })
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

/// One stream: its names, and how much of which goal it has received.
#[derive(Default)]
struct Stream {
    names: Vec<String>,
    goal: u64,
    resources: usize,
    /// Whether it has reached a goal.
    is_synced: bool,
}

async fn run(
    shared: &Shared,
    connection: usize,
    mut orders: watch::Receiver<Order>,
    connecting: &Semaphore,
    syncing: Arc<Semaphore>,
) -> anyhow::Result<()> {
    let mut unsynced = Some(syncing.acquire_owned().await?);
    let permit = connecting.acquire().await?;
    let receive_buffer = (connection < shared.options.small).then_some(SMALL_BUFFER);
    let options = LinkOptions { max_message: 1 << 30, receive_buffer, ..LinkOptions::default() };
    let mut link = Link::open(shared.options.address, &options).await?;
    drop(permit);
    {
        let mut progress = shared.lock();
        progress.connected += 1;
        if progress.connected == shared.options.connections {
            shared.reached.notify_one();
        }
    }
    while *orders.borrow_and_update() != Order::Subscribe {
        tokio::select! {
            changed = orders.changed() => changed?,
            event = link.next() => bail!("before a stream was opened: {event:?}"),
        }
    }
    let mut streams = subscribe(shared, connection, &mut link);
    loop {
        if unsynced.is_some() && streams.iter().all(|stream| stream.is_synced) {
            unsynced = None;
        }
        tokio::select! {
            changed = orders.changed() => {
                changed?;
                // The connection stays open, and nobody reads it.
                while matches!(*orders.borrow_and_update(), Order::Stall(connections) if connection < connections) {
                    orders.changed().await?;
                }
            }
            event = link.next() => match event {
                Event::Message(id, message) => {
                    let stream = streams.get_mut(id).ok_or_else(|| anyhow!("a message on a stream that is not there"))?;
                    shared.messages[connection].fetch_add(1, Ordering::Relaxed);
                    take(shared, stream, id, &message, &mut link)?;
                }
                Event::Ended(_, status) => bail!("the server ended a stream: {status}"),
                Event::Closed(reason) => bail!("the server closed the connection: {reason}"),
            },
        }
    }
}

fn subscribe(shared: &Shared, connection: usize, link: &mut Link) -> Vec<Stream> {
    let options = &shared.options;
    let open = |place: usize| {
        let number = connection * options.streams + place;
        let names = (options.names)(number);
        let node = scan::node(&format!("client-{number}"), &options.cluster);
        let (path, request) = first_request(options, node, &names);
        let stream = link.start(path);
        link.send(stream, request);
        Stream { names, goal: 0, resources: 0, is_synced: false }
    };
    (0..options.streams).map(open).collect()
}

fn first_request(options: &ClientOptions, node: Vec<u8>, names: &[String]) -> (&'static str, Vec<u8>) {
    let (type_url, held) = (options.kind.type_url().to_owned(), &options.held);
    match options.variant {
        Variant::Sotw => {
            let version_info = held.version.clone();
            let node = Some(node.into());
            let resource_names = names.to_vec();
            let request = DiscoveryRequest { type_url, version_info, node, resource_names, ..Default::default() };
            (ADS_SOTW, request.encode_to_vec())
        }
        Variant::Delta => {
            let names = if names.is_empty() { vec!["*".to_owned()] } else { names.to_vec() };
            let request = DeltaDiscoveryRequest {
                type_url,
                node: Some(node.into()),
                resource_names_subscribe: names,
                initial_resource_versions: held.versions.clone(),
                ..Default::default()
            };
            (ADS_DELTA, request.encode_to_vec())
        }
    }
}

fn take(shared: &Shared, stream: &mut Stream, id: StreamId, message: &Message, link: &mut Link) -> anyhow::Result<()> {
    let variant = shared.options.variant;
    let goal = shared.lock().goal;
    if stream.goal != goal.number {
        (stream.goal, stream.resources) = (goal.number, 0);
    }
    let before = stream.resources;
    let mut all = 0;
    let is_followed = !shared.rounds().is_empty();
    let mut changes = Vec::new();
    let scanned = arrival::read(message, variant, |round| {
        all += 1;
        stream.resources += usize::from(round >= goal.since);
        if is_followed {
            changes.push(round);
        }
    });
    let received = Instant::now();
    let scanned = scanned.ok_or_else(|| anyhow!("a malformed response of {} bytes", message.len()))?;
    link.send(id, ack(variant, &scanned, &stream.names));
    shared.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
    shared.resources.fetch_add(all, Ordering::Relaxed);
    stream.is_synced |= stream.resources >= goal.resources;
    if is_followed {
        let rounds = shared.rounds();
        let starts = changes.iter().filter_map(|round| rounds.get((*round as usize).checked_sub(1)?));
        let mut progress = shared.lock();
        starts.for_each(|start| {
            progress.received.record(received.saturating_duration_since(*start));
            progress.acked.record(start.elapsed());
        });
    }
    if before < goal.resources && stream.resources >= goal.resources {
        let mut progress = shared.lock();
        let start = progress.goal.start;
        if !is_followed {
            progress.received.record(received.saturating_duration_since(start));
            progress.acked.record(start.elapsed());
        }
        progress.last = progress.last.max(received);
        progress.remaining = progress.remaining.saturating_sub(1);
        if progress.remaining == 0 {
            shared.reached.notify_one();
        }
    }
    Ok(())
}

fn ack(variant: Variant, scanned: &Scan, names: &[String]) -> Vec<u8> {
    match variant {
        Variant::Sotw => scan::sotw_ack(scanned, &names.iter().map(String::as_str).collect::<Vec<_>>()),
        Variant::Delta => scan::delta_ack(scanned),
    }
}

/// For clients that will stall: what their own kernel buffers for them does not hide what the server's does.
const SMALL_BUFFER: u32 = 64 << 10;
const TIMEOUT: Duration = Duration::from_secs(120);
