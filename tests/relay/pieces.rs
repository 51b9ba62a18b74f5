//! A control plane that loads its resources slowly: it sends each one in a response of its own as soon as the resource is loaded, unless the relay
//! states its version. It reports names as absent only once everything is loaded.
//!
//! The test decides how much is loaded; no clock does. It serves only delta, where sets may come in several responses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::session::Variant;

use crate::cluster;
use crate::plane::{Plane, Stream, encoded};

pub struct Pieces {
    pub address: SocketAddr,
    world: watch::Sender<World>,
    seen: Arc<Mutex<Seen>>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// The resources in the order in which the server loads them. The contents are also the versions.
#[derive(Debug, Clone, Default)]
struct World {
    has: Vec<(String, String)>,
    reach: Reach,
}

/// How much the server has loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Reach {
    pieces: usize,
    /// Whether a part of the message with the next resource is already sent.
    into_next: bool,
}

/// What the server has seen of the relay.
#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub opened: usize,
    pub open: usize,
    /// The reasons of the relay's NACKs.
    pub nacks: Vec<String>,
}

impl Pieces {
    /// Serves resources with these names. Sends none before the test says how many are loaded.
    pub async fn start(names: &[String]) -> Self {
        Self::start_at(crate::plane::own_address(), names).await
    }

    pub async fn start_at(address: SocketAddr, names: &[String]) -> Self {
        let mut plane = Plane::start_at(address, &[Variant::Delta]).await;
        let has = names.iter().map(|name| (name.clone(), "1".to_owned())).collect();
        let (world, worlds) = watch::channel(World { has, reach: Reach::default() });
        let (stop, mut stopped) = oneshot::channel();
        let (seen, address) = (Arc::new(Mutex::new(Seen::default())), plane.address);
        let log = seen.clone();
        let task = tokio::spawn(async move {
            let mut streams = JoinSet::new();
            loop {
                tokio::select! {
                    stream = plane.streams.recv() => {
                        streams.spawn(Conversation::over(stream.unwrap(), log.clone()).hold(worlds.clone()));
                    }
                    _ = &mut stopped => break,
                }
            }
            plane.kill().await;
        });
        Self { address, world, seen, stop, task }
    }

    /// Marks the first `pieces` resources as loaded, which sends them.
    pub fn reaches(&self, pieces: usize) {
        self.world.send_modify(|world| world.reach = Reach { pieces, into_next: false });
    }

    /// Marks the first `pieces` resources as loaded, and sends a part of the next one.
    pub fn reaches_into(&self, pieces: usize) {
        self.world.send_modify(|world| world.reach = Reach { pieces, into_next: true });
    }

    pub fn reaches_all(&self) {
        self.world.send_modify(|world| world.reach = Reach { pieces: world.has.len(), into_next: false });
    }

    /// Changes the content of a resource.
    pub fn changes(&self, name: &str, content: &str) {
        let change = |(_, held): &mut (String, String)| *held = content.to_owned();
        self.world.send_modify(|world| world.has.iter_mut().filter(|(known, _)| known == name).for_each(change));
    }

    /// Marks everything as loaded, without this resource, which no longer exists.
    pub fn removes(&self, name: &str) {
        self.world.send_modify(|world| {
            world.has.retain(|(known, _)| known != name);
            world.reach = Reach { pieces: world.has.len(), into_next: false };
        });
    }

    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Closes the listener and every connection.
    pub async fn kill(self) -> SocketAddr {
        drop(self.stop);
        self.task.await.unwrap();
        self.address
    }
}

impl World {
    fn is_known(&self, name: &str) -> bool {
        self.has.iter().any(|(known, _)| known == name)
    }

    fn is_complete(&self) -> bool {
        self.reach.pieces >= self.has.len()
    }
}

/// One stream: what the relay has requested on it, and what was sent.
struct Conversation {
    stream: Stream,
    subscriptions: BTreeMap<String, Topic>,
    nonce: usize,
    /// The unsent rest of a message, and the index of its resource.
    rest: Option<(usize, Bytes)>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Topic {
    wildcard: bool,
    names: BTreeSet<String>,
    /// The versions that the relay has, as it stated them or was sent them.
    held: BTreeMap<String, String>,
    /// Names that were reported to the relay as absent.
    absent: BTreeSet<String>,
}

impl Conversation {
    fn over(stream: Stream, seen: Arc<Mutex<Seen>>) -> Self {
        Self { stream, subscriptions: BTreeMap::new(), nonce: 0, rest: None, seen }
    }

    async fn hold(mut self, mut worlds: watch::Receiver<World>) {
        self.count(|seen| (seen.opened, seen.open) = (seen.opened + 1, seen.open + 1));
        loop {
            tokio::select! {
                request = self.stream.requests.recv() => match request {
                    Some(Request::Delta(request)) => self.take(request),
                    _ => break,
                },
                changed = worlds.changed() => if changed.is_err() { break },
            }
            let world = worlds.borrow_and_update().clone();
            self.say(&world);
        }
        self.count(|seen| seen.open -= 1);
    }

    fn count(&self, note: impl FnOnce(&mut Seen)) {
        note(&mut self.seen.lock().unwrap());
    }

    fn take(&mut self, request: DeltaDiscoveryRequest) {
        if let Some(reason) = &request.error_detail {
            self.count(|seen| seen.nacks.push(reason.message.clone()));
        }
        let (on, off) = (request.resource_names_subscribe, request.resource_names_unsubscribe);
        let first = !self.subscriptions.contains_key(&request.type_url);
        let subscription = self.subscriptions.entry(request.type_url).or_default();
        subscription.wildcard |= on.iter().any(|name| name == "*") || (first && on.is_empty());
        subscription.wildcard &= !off.iter().any(|name| name == "*");
        for name in on.iter().filter(|name| *name != "*") {
            subscription.names.insert(name.clone());
            subscription.held.remove(name); // a request is answered even if the resource was sent before
            subscription.absent.remove(name);
        }
        subscription.names.retain(|name| !off.contains(name));
        subscription.held.extend(request.initial_resource_versions);
    }

    /// Sends everything that is due, one message for each resource.
    fn say(&mut self, world: &World) {
        if self.rest.as_ref().is_some_and(|(at, _)| *at >= world.reach.pieces) {
            return; // nothing else fits into the middle of a message
        }
        self.rest.take().into_iter().for_each(|(_, rest)| self.send(rest));
        let mut subscriptions = std::mem::take(&mut self.subscriptions);
        for (url, subscription) in &mut subscriptions {
            self.say_of(url, subscription, world);
            if self.rest.is_some() {
                break;
            }
        }
        self.subscriptions = subscriptions;
    }

    fn say_of(&mut self, url: &str, subscription: &mut Topic, world: &World) {
        let begun = world.reach.into_next.then_some(world.reach.pieces);
        let reached = world.reach.pieces + usize::from(begun.is_some());
        for (at, (name, content)) in world.has.iter().enumerate().take(reached) {
            if !subscription.lacks(name, content) {
                continue;
            }
            subscription.held.insert(name.clone(), content.clone());
            subscription.absent.remove(name);
            let message = self.message(url, Some((name, content)), Vec::new());
            match Some(at) == begun {
                true => self.begin(at, &message),
                false => self.send(message),
            }
        }
        let gone = if world.is_complete() { subscription.take_gone(world) } else { Vec::new() };
        if !gone.is_empty() {
            let message = self.message(url, None, gone);
            self.send(message);
        }
    }

    fn message(&mut self, url: &str, resource: Option<(&String, &String)>, gone: Vec<String>) -> Bytes {
        self.nonce += 1;
        let wrap = |(name, content): (&String, &String)| Resource {
            name: name.clone(),
            version: content.clone(),
            resource: Some(Any { type_url: url.to_owned(), ..cluster(name, content) }),
            ..Default::default()
        };
        encoded(&Response::Delta(DeltaDiscoveryResponse {
            type_url: url.to_owned(),
            nonce: self.nonce.to_string(),
            resources: resource.into_iter().map(wrap).collect(),
            removed_resources: gone,
            ..Default::default()
        }))
    }

    fn send(&self, bytes: Bytes) {
        let _ = self.stream.responses.send(bytes); // the relay may have ended the stream
    }

    /// Sends the gRPC prefix and the first half of a message.
    fn begin(&mut self, at: usize, message: &Bytes) {
        let half = message.len() / 2;
        assert!(half > PREFIX, "a part of the message itself is out");
        self.send(message.slice(..half));
        self.rest = Some((at, message.slice(half..)));
    }
}

/// Bytes of the gRPC prefix of each message.
const PREFIX: usize = 5;

impl Topic {
    fn wants(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    fn lacks(&self, name: &str, content: &str) -> bool {
        self.wants(name) && self.held.get(name).is_none_or(|held| held != content)
    }

    /// Returns each name once that the relay requests or has, and that does not exist.
    fn take_gone(&mut self, world: &World) -> Vec<String> {
        let named = self.names.iter().chain(self.held.keys().filter(|name| self.wants(name)));
        let gone: BTreeSet<_> = named.filter(|name| !world.is_known(name)).cloned().collect();
        let gone: Vec<_> = gone.difference(&self.absent).cloned().collect();
        for name in &gone {
            self.held.remove(name);
            self.absent.insert(name.clone());
        }
        gone
    }
}
