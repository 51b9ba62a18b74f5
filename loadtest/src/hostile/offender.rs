//! What every behaviour has: whom it is directed against, how large it is, and a record of what it did.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::sources::Sources;
use crate::link::{Event, Link, LinkOptions, StreamId};
use crate::origin::{Name, Origin};

#[derive(Clone)]
pub struct Offender {
    pub target: SocketAddr,
    /// The address that answers probes, if it is known.
    pub admin: Option<SocketAddr>,
    pub sources: Arc<Sources>,
    /// Whose resources change, for behaviours that need changes.
    pub origin: Arc<Origin>,
    /// The names of the endpoints that there are.
    pub names: Arc<[Name]>,
    /// An encoded node that shares the view of the honest clients.
    pub node: Vec<u8>,
    /// Whether the behaviour is played in its small form.
    pub is_small: bool,
    /// How many times longer the pauses of a behaviour are than by themselves.
    pub slowness: u32,
    pub did: Arc<Did>,
}

/// What was done, and how it was answered.
#[derive(Default)]
pub struct Did {
    pub connections: AtomicU64,
    pub streams: AtomicU64,
    pub messages: AtomicU64,
    pub bytes: AtomicU64,
    ends: Mutex<BTreeMap<String, u64>>,
}

/// The same as plain values.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {
    pub connections: u64,
    pub streams: u64,
    /// Messages, or frames where no message is sent.
    pub messages: u64,
    pub bytes: u64,
    /// How streams and connections of the offender ended, and how often.
    pub ends: BTreeMap<String, u64>,
}

impl Did {
    pub fn sent(&self, messages: usize, bytes: usize) {
        self.messages.fetch_add(messages as u64, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn opened_stream(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    pub fn ended(&self, why: &str) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        // Texts of a server may have numbers in them, and are not all worth keeping.
        let why = if ends.len() < MAX_ENDS || ends.contains_key(why) { why } else { "others" };
        *ends.entry(why.to_owned()).or_default() += 1;
    }

    pub fn done(&self) -> Done {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Done {
            connections: of(&self.connections),
            streams: of(&self.streams),
            messages: of(&self.messages),
            bytes: of(&self.bytes),
            ends: self.ends.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Offender {
    /// Returns a count, or a hundredth of it in the small form.
    pub fn count(&self, full: usize) -> usize {
        if self.is_small { (full / 100).max(2) } else { full }
    }

    /// Returns how many connections have streams, and how many each has, for a number of connections and of streams in total. Clients with
    /// many addresses use all of them.
    pub fn spread(&self, connections: usize, streams: usize) -> (usize, usize) {
        let connections = if self.is_small { connections.min(2) } else { connections };
        let connections = connections.max(self.sources.count().div_ceil(MIXED));
        (connections, self.count(streams).div_ceil(connections))
    }

    /// Returns a pause, which is longer in a slow behaviour.
    pub fn pause(&self, pause: Duration) -> Duration {
        pause * self.slowness
    }

    /// Connects, again and again until it succeeds.
    pub async fn link(&self) -> Link {
        self.link_with(&LinkOptions::default()).await
    }

    pub async fn link_with(&self, options: &LinkOptions) -> Link {
        loop {
            let options = LinkOptions { local: self.sources.next(), ..options.clone() };
            match timeout(CONNECT, Link::open(self.target, &options)).await {
                Ok(Ok(link)) => {
                    self.did.connections.fetch_add(1, Ordering::Relaxed);
                    return link;
                }
                Ok(Err(error)) => self.did.ended(&error.to_string()),
                Err(_) => self.did.ended("not accepted in time"),
            }
            sleep(PAUSE).await;
        }
    }

    pub fn start(&self, link: &mut Link, path: &'static str) -> StreamId {
        self.did.opened_stream();
        link.start(path)
    }

    pub fn send(&self, link: &mut Link, stream: StreamId, request: &[u8]) {
        self.did.sent(1, request.len());
        link.send(stream, request);
    }

    /// Sends bytes in slices that share their memory.
    pub fn send_bytes(&self, link: &mut Link, stream: StreamId, mut bytes: Bytes) {
        self.did.sent(1, bytes.len());
        while !bytes.is_empty() {
            link.send_bytes(stream, bytes.split_to(bytes.len().min(SLICE)));
        }
    }

    /// Reads, and answers nothing, until the connection ends.
    pub async fn read_to_end(&self, link: &mut Link) {
        while !self.has_closed(&link.next().await) {}
    }

    /// Reads until the first stream ends.
    pub async fn read_to_first_end(&self, link: &mut Link) {
        loop {
            let event = link.next().await;
            if self.has_closed(&event) || matches!(event, Event::Ended(..)) {
                return;
            }
        }
    }

    /// Writes and reads until a stream has room for more. Returns false at the end of the connection or of a stream.
    pub async fn make_room(&self, link: &mut Link, stream: StreamId) -> bool {
        while !link.has_room(stream) {
            if let Ok(event) = timeout(LOOK, link.next()).await
                && (self.has_closed(&event) || matches!(event, Event::Ended(..)))
            {
                return false;
            }
        }
        true
    }

    /// Records ends. Returns whether this is the end of the connection.
    pub fn has_closed(&self, event: &Event) -> bool {
        match event {
            Event::Message(..) => false,
            Event::Ended(_, status) => {
                self.did.ended(&status.to_string());
                false
            }
            Event::Closed(why) => {
                self.did.ended(why);
                true
            }
        }
    }
}

/// Runs so many of a kind at once, each again whenever it has ended, until it is dropped.
pub async fn at_once<F, R>(offender: &Arc<Offender>, count: usize, each: F)
where
    F: Fn(Arc<Offender>, usize) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let mut tasks = JoinSet::new();
    for number in 0..count {
        let (offender, each) = (offender.clone(), each.clone());
        tasks.spawn(async move {
            loop {
                each(offender.clone(), number).await;
                sleep(PAUSE).await;
            }
        });
    }
    while tasks.join_next().await.is_some() {} // they never end
}

/// Before the next attempt after an end.
const PAUSE: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(5);
/// Between two looks at a window that has no room: HTTP/2 reports no event for it.
const LOOK: Duration = Duration::from_millis(1);
const SLICE: usize = 1 << 20;
const MAX_ENDS: usize = 8;
/// Behaviours that share the addresses of a mix.
const MIXED: usize = 6;

/// The node cluster of all clients, so that the honest ones share a view with the hostile ones.
pub const CLUSTER: &str = "hostile";
