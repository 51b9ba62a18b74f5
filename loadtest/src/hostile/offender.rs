//! The context of every behaviour: its target, its size, and a record of what it did.

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
    pub probes: Option<SocketAddr>,
    pub sources: Arc<Sources>,
    /// The control plane, for behaviours that need changes.
    pub origin: Arc<Origin>,
    /// The names of the existing endpoints.
    pub names: Arc<[Name]>,
    /// An encoded node with the sharing key of the honest clients.
    pub node: Vec<u8>,
    /// Whether the behaviour is played in its small form.
    pub is_small: bool,
    /// The factor by which the behaviour's pauses are longer.
    pub slowness: u32,
    pub did: Arc<Did>,
}

/// Counts of what the behaviour did, and of the server's answers.
#[derive(Default)]
pub struct Did {
    pub connections: AtomicU64,
    pub streams: AtomicU64,
    pub messages: AtomicU64,
    pub bytes: AtomicU64,
    ends: Mutex<BTreeMap<String, u64>>,
}

/// The same counts as plain values.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Done {
    pub connections: u64,
    pub streams: u64,
    /// Messages, or frames where no message is sent.
    pub messages: u64,
    pub bytes: u64,
    /// How streams and connections of the behaviour ended, with counts.
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
        // Texts of a server may contain numbers, so only a limited number of different ones is kept.
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
    /// Returns a count. In the small form it is a hundredth.
    pub fn count(&self, full: usize) -> usize {
        if self.is_small { (full / 100).max(2) } else { full }
    }

    /// Returns how many connections to open, and how many streams on each, for these total numbers. Behaviours with
    /// many addresses use all of them.
    pub fn spread(&self, connections: usize, streams: usize) -> (usize, usize) {
        let connections = if self.is_small { connections.min(2) } else { connections };
        let connections = connections.max(self.sources.count().div_ceil(MIXED));
        (connections, self.count(streams).div_ceil(connections))
    }

    /// Returns a pause, multiplied by the slowness.
    pub fn pause(&self, pause: Duration) -> Duration {
        pause * self.slowness
    }

    /// Connects. Tries again until it succeeds.
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

    /// Reads until the connection ends, and answers nothing.
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

    /// Writes and reads until a stream has room for more. Returns false if the connection or a stream has ended.
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

    /// Records the end of a stream or connection. Returns whether the connection has ended.
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

/// Runs `count` futures at once, and each of them again whenever it has ended, until the whole is dropped.
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

/// The pause before the next attempt after an end.
const PAUSE: Duration = Duration::from_millis(100);
const CONNECT: Duration = Duration::from_secs(5);
/// How often to check a window without room: HTTP/2 reports no event for it.
const LOOK: Duration = Duration::from_millis(1);
const SLICE: usize = 1 << 20;
const MAX_ENDS: usize = 8;
/// How many behaviours share the addresses of a mix.
const MIXED: usize = 6;

/// The node cluster of all clients, so that honest clients share a view with the hostile ones.
pub const CLUSTER: &str = "hostile";
