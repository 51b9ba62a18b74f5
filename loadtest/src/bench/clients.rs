//! The clients of a benchmark: they subscribe, read what comes, and ACK it. A goal says what each of them has to receive next.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

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
    pub streams: usize,
    /// The names that a stream subscribes to, by its number; none is `*`.
    pub names: Names,
    /// The node's cluster, which is the sharing key.
    pub cluster: &'static str,
}

pub type Names = Arc<dyn Fn(usize) -> Vec<String> + Send + Sync>;

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
}

struct Shared {
    options: ClientOptions,
    progress: Mutex<Progress>,
    reached: Notify,
    bytes: AtomicU64,
    messages: AtomicU64,
    resources: AtomicU64,
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
    /// Connects all, no more than some at a time, and waits for the last. They do not subscribe yet.
    pub async fn connect(options: ClientOptions) -> anyhow::Result<Self> {
        let now = Instant::now();
        let streams = options.connections * options.streams;
        let progress = Progress {
            goal: Goal { number: 0, since: 0, resources: usize::MAX, start: now },
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
            messages: AtomicU64::new(0),
            resources: AtomicU64::new(0),
        });
        let (orders, order) = watch::channel(Order::Wait);
        let connecting = Arc::new(Semaphore::new(CONNECTING));
        let mut tasks = JoinSet::new();
        for connection in 0..shared.options.connections {
            let (shared, order, connecting) = (shared.clone(), order.clone(), connecting.clone());
            tasks.spawn(async move {
                let Err(error) = run(&shared, connection, order, &connecting).await else { return };
                shared.lock().failure.get_or_insert_with(|| format!("connection {connection}: {error:#}"));
                shared.reached.notify_one();
            });
        }
        let clients = Self { shared, orders, _tasks: tasks };
        clients.wait("connected", |progress, options| progress.connected == options.connections).await?;
        Ok(clients)
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
            messages: shared.messages.load(Ordering::Relaxed),
            resources: shared.resources.load(Ordering::Relaxed),
        }
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
}

/// One stream: its names, and how much of which goal it has received.
#[derive(Default)]
struct Stream {
    names: Vec<String>,
    goal: u64,
    resources: usize,
}

async fn run(
    shared: &Shared,
    connection: usize,
    mut orders: watch::Receiver<Order>,
    connecting: &Semaphore,
) -> anyhow::Result<()> {
    let permit = connecting.acquire().await?;
    let mut link =
        Link::open(shared.options.address, &LinkOptions { max_message: 1 << 30, ..LinkOptions::default() }).await?;
    drop(permit);
    {
        let mut progress = shared.lock();
        progress.connected += 1;
        if progress.connected == shared.options.connections {
            shared.reached.notify_one();
        }
    }
    let mut streams: Vec<Stream> = Vec::new();
    loop {
        tokio::select! {
            changed = orders.changed() => {
                changed?;
                let order = *orders.borrow_and_update();
                match order {
                    Order::Subscribe if streams.is_empty() => streams = subscribe(shared, connection, &mut link),
                    Order::Stall(connections) if connection < connections => {
                        return std::future::pending().await; // the connection stays open, and nobody reads it
                    }
                    _ => {}
                }
            }
            event = link.next() => match event {
                Event::Message(id, message) => {
                    let stream = streams.get_mut(id).ok_or_else(|| anyhow!("a message on a stream that is not there"))?;
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
        let node = scan::node(&format!("client-{number}"), options.cluster);
        let words: Vec<_> = names.iter().map(String::as_str).collect();
        let (path, request) = match options.variant {
            Variant::Sotw => (ADS_SOTW, scan::sotw_subscribe(options.kind.type_url(), Some(&node), &words)),
            Variant::Delta => {
                let words = if words.is_empty() { vec!["*"] } else { words };
                (ADS_DELTA, scan::delta_subscribe(options.kind.type_url(), Some(&node), &words))
            }
        };
        let stream = link.start(path);
        link.send(stream, request);
        Stream { names, goal: 0, resources: 0 }
    };
    (0..options.streams).map(open).collect()
}

fn take(shared: &Shared, stream: &mut Stream, id: StreamId, message: &Message, link: &mut Link) -> anyhow::Result<()> {
    let variant = shared.options.variant;
    let goal = shared.lock().goal;
    if stream.goal != goal.number {
        (stream.goal, stream.resources) = (goal.number, 0);
    }
    let before = stream.resources;
    let mut all = 0;
    let scanned = arrival::read(message, variant, |round| {
        all += 1;
        stream.resources += usize::from(round >= goal.since);
    });
    let received = Instant::now();
    let scanned = scanned.ok_or_else(|| anyhow!("a malformed response of {} bytes", message.len()))?;
    link.send(id, ack(variant, &scanned, &stream.names));
    shared.bytes.fetch_add(message.len() as u64, Ordering::Relaxed);
    shared.messages.fetch_add(1, Ordering::Relaxed);
    shared.resources.fetch_add(all, Ordering::Relaxed);
    if before < goal.resources && stream.resources >= goal.resources {
        let mut progress = shared.lock();
        let start = progress.goal.start;
        progress.received.record(received.saturating_duration_since(start));
        progress.acked.record(start.elapsed());
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

const CONNECTING: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(120);
