//! The same clients, directly at an origin and through the relay: they end with equal resources, and no client loses a resource that the
//! origin did not remove. The relay has the resources from the origin, in either variant, or from files with the same content.
//!
//! Runs for ten seconds, and at night for a minute from a seed that is drawn;
//! `WEIR_SECONDS=3600 cargo test --release --test relay the_same -- --nocapture` runs for an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use prost::Message;
use tokio::task::JoinHandle;
use weir::config::Config;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, DiscoveryResponse};
use weir_core::proto::{Any, Request};
use weir_core::protocol::session::Variant;

use crate::client::{Client, node};
use crate::content::{Content, Kind};
use crate::files::Folder;
use crate::origin::{Server, Truth};
use crate::plane::{Plane, Stream, own_address};
use crate::{BOTH, protocol_of, until};

/// Random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % sides as u64).unwrap()
    }
}

/// The subscriptions of every client: all clusters and listeners, and these by name.
const BY_NAME: [(Kind, u8); 2] = [(Kind::Endpoints, 4), (Kind::Route, 2)];
const STAR: [Kind; 2] = [Kind::Cluster, Kind::Listener];

/// The control plane: the resources for each of two nodes, and its side of each stream.
#[derive(Default)]
struct Origin {
    truths: [Truth; 2],
    open: Vec<Open>,
    opened: u64,
    serial: u64,
    epoch: u64,
    /// Names that were absent at any time, so that a report of absence was correct then.
    ever_absent: BTreeSet<(usize, Kind, String)>,
    /// The files from which the relay has the resources of the first node, if it does not have them from this origin.
    files: Option<Folder>,
}

/// Where the relay has the resources from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Server(Variant),
    Files,
}

impl From {
    /// Returns the indices of the clients' nodes. With files there is only one node, since files are the same for all.
    fn keys(self) -> [usize; 2] {
        if self == Self::Files { [0, 0] } else { [0, 1] }
    }
}

/// One open stream. It has the only sender, so dropping it ends the stream.
struct Open {
    id: u64,
    key: usize,
    server: Server,
    responses: tokio::sync::mpsc::UnboundedSender<Bytes>,
}

impl Origin {
    fn flush(&mut self) {
        for open in &mut self.open {
            for sent in open.server.out.drain(..) {
                let _ = open.responses.send(crate::plane::encoded(&sent.response)); // the stream may have ended
            }
        }
        self.open.retain(|open| !open.responses.is_closed());
    }

    fn set(&mut self, key: usize, kind: Kind, number: u8, target: Option<String>) {
        self.serial += 1;
        let name = kind.name(number);
        let content = Content {
            kind,
            name: name.clone(),
            serial: self.serial,
            key: u8::try_from(key).unwrap(),
            wildcard: false,
            target,
            eds: true,
            alias: None,
            metadata: 0,
        };
        let truth = &mut self.truths[key];
        truth.wildcard.entry(kind).or_default().insert(name.clone(), content.clone());
        truth.named.entry(kind).or_default().insert(name, content);
        self.push(key, kind);
    }

    fn delete(&mut self, key: usize, kind: Kind, number: u8) {
        let name = kind.name(number);
        let truth = &mut self.truths[key];
        for sets in [&mut truth.wildcard, &mut truth.named] {
            sets.entry(kind).or_default().remove(&name);
        }
        self.ever_absent.insert((key, kind, name));
        self.push(key, kind);
    }

    fn push(&mut self, key: usize, kind: Kind) {
        let epoch = self.epoch;
        for open in self.open.iter_mut().filter(|open| open.key == key) {
            open.server.push(kind, &self.truths[key], epoch);
        }
        self.flush();
        if let Some(files) = self.files.as_ref().filter(|_| key == 0) {
            let any = |content: &Content| Any { type_url: kind.url().into(), value: content.body() };
            let resources = self.truths[0].of(kind, true).values().map(any).collect();
            let response = DiscoveryResponse { resources, type_url: kind.url().into(), ..Default::default() };
            files.put_bytes(&format!("{kind:?}.pb"), &response.encode_to_vec());
        }
    }

    /// Starts a new instance: equal contents get other versions, and every stream ends.
    fn restart(&mut self) {
        self.epoch += 1;
        self.open.clear();
    }
}

fn key_of(request: &Request) -> Option<usize> {
    let node: weir_core::proto::node::Node = prost::Message::decode(request.node()?.clone()).unwrap();
    Some(usize::from(node.cluster == "k1"))
}

/// Serves every stream of the plane from the shared resources.
async fn serve(mut plane: Plane, origin: Arc<Mutex<Origin>>) {
    while let Some(stream) = plane.streams.recv().await {
        let origin = origin.clone();
        tokio::spawn(async move {
            let Stream { mut requests, responses, .. } = stream;
            let (mut responses, mut id) = (Some(responses), 0);
            while let Some(request) = requests.recv().await {
                let mut origin = origin.lock().unwrap();
                if let Some(responses) = responses.take() {
                    origin.opened += 1;
                    id = origin.opened;
                    let key = key_of(&request).expect("the first request has a node");
                    origin.open.push(Open { id, key, server: Server::default(), responses });
                }
                let Origin { truths, open, epoch, .. } = &mut *origin;
                let Some(mine) = open.iter_mut().find(|open| open.id == id) else { return };
                mine.server.read(request, &truths[mine.key], true, *epoch);
                origin.flush();
            }
            origin.lock().unwrap().open.retain(|open| open.id != id);
        });
    }
}

type Held = BTreeMap<(Kind, String), Bytes>;

/// A client that stores its resources, reconnects when its stream ends, and records which resources it loses.
struct Stub {
    key: usize,
    variant: Variant,
    held: Arc<Mutex<Held>>,
    taken: Arc<Mutex<BTreeSet<(Kind, String)>>>,
    task: JoinHandle<()>,
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stub {
    fn start(address: SocketAddr, variant: Variant, key: usize) -> Self {
        let (held, taken) = (Arc::<Mutex<Held>>::default(), Arc::<Mutex<BTreeSet<_>>>::default());
        let task = tokio::spawn(live(address, variant, key, held.clone(), taken.clone()));
        Self { key, variant, held, taken, task }
    }
}

async fn live(
    address: SocketAddr,
    variant: Variant,
    key: usize,
    held: Arc<Mutex<Held>>,
    taken: Arc<Mutex<BTreeSet<(Kind, String)>>>,
) {
    let mut versions = Versions::default();
    loop {
        if let Some(client) = Client::try_connect(address, variant).await {
            converse(client, key, &held, &taken, &mut versions).await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The versions that a client states when it reconnects.
#[derive(Default)]
struct Versions {
    of_type: BTreeMap<Kind, String>,
    of_resource: BTreeMap<(Kind, String), String>,
}

fn names_of(kind: Kind) -> Vec<String> {
    let count = BY_NAME.iter().find(|(of, _)| *of == kind).map_or(0, |(_, count)| *count);
    (0..count).map(|number| kind.name(number)).collect()
}

async fn converse(
    client: Client,
    key: usize,
    held: &Mutex<Held>,
    taken: &Mutex<BTreeSet<(Kind, String)>>,
    versions: &mut Versions,
) {
    let kinds = STAR.into_iter().chain(BY_NAME.map(|(kind, _)| kind));
    let node = node(&format!("k{key}"));
    match client {
        Client::Sotw(requests, mut responses) => {
            for kind in kinds {
                let version_info = versions.of_type.get(&kind).cloned().unwrap_or_default();
                let (type_url, resource_names) = (kind.url().into(), names_of(kind));
                let node = node.clone();
                let request = DiscoveryRequest { node, type_url, resource_names, version_info, ..Default::default() };
                let _ = requests.send(request);
            }
            while let Ok(Some(response)) = responses.message().await {
                let kind = Kind::ALL.into_iter().find(|kind| kind.url() == response.type_url).unwrap();
                let set: BTreeMap<_, _> =
                    response.resources.into_iter().map(|any| (name_in(&any.value), any.value)).collect();
                let mut held = held.lock().unwrap();
                if kind.full_state() {
                    let gone = held.keys().filter(|(of, name)| *of == kind && !set.contains_key(name)).cloned();
                    let gone: Vec<_> = gone.collect();
                    gone.iter().for_each(|key| drop(held.remove(key)));
                    taken.lock().unwrap().extend(gone);
                }
                held.extend(set.into_iter().map(|(name, body)| ((kind, name), body)));
                versions.of_type.insert(kind, response.version_info.clone());
                let _ = requests.send(DiscoveryRequest {
                    type_url: response.type_url,
                    resource_names: names_of(kind),
                    version_info: response.version_info,
                    response_nonce: response.nonce,
                    ..Default::default()
                });
            }
        }
        Client::Delta(requests, mut responses) => {
            for kind in kinds {
                let stated = versions.of_resource.iter().filter(|((of, _), _)| *of == kind);
                let _ = requests.send(DeltaDiscoveryRequest {
                    node: node.clone(),
                    type_url: kind.url().into(),
                    resource_names_subscribe: names_of(kind),
                    initial_resource_versions: stated
                        .map(|((_, name), version)| (name.clone(), version.clone()))
                        .collect(),
                    ..Default::default()
                });
            }
            while let Ok(Some(response)) = responses.message().await {
                let kind = Kind::ALL.into_iter().find(|kind| kind.url() == response.type_url).unwrap();
                let mut held = held.lock().unwrap();
                for resource in response.resources {
                    let key = (kind, resource.name);
                    held.insert(key.clone(), resource.resource.unwrap().value);
                    versions.of_resource.insert(key, resource.version);
                }
                for name in response.removed_resources {
                    let key = (kind, name);
                    versions.of_resource.remove(&key);
                    if held.remove(&key).is_some() {
                        taken.lock().unwrap().insert(key);
                    }
                }
                let (type_url, response_nonce) = (response.type_url, response.nonce);
                let _ = requests.send(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() });
            }
        }
    }
}

fn name_in(body: &[u8]) -> String {
    let length = usize::from(body[1]);
    String::from_utf8(body[2..2 + length].to_vec()).unwrap()
}

async fn start_relay(listen: SocketAddr, upstream: &str) -> (SocketAddr, JoinHandle<()>) {
    let text = format!("listen: [{{address: '{listen}'}}]\nupstream: {upstream}\nviews: {{key: [cluster]}}\n");
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    let app = Mutex::new(None);
    let binds = async || {
        let bound = crate::bind(config.clone()).await.ok();
        app.lock().unwrap().insert(bound).is_some()
    };
    until("the last one has released the port", binds).await;
    let app = app.into_inner().unwrap().flatten().unwrap();
    (app.addresses()[0], tokio::spawn(app.run()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_clients_directly_and_through_the_relay_end_with_the_same() {
    rounds(variable("WEIR_SEED").unwrap_or(1), 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute, from a seed that is drawn"]
async fn night_the_same_clients_for_a_minute() {
    let drawn = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    rounds(variable("WEIR_SEED").unwrap_or(drawn), 60).await;
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs for `WEIR_SECONDS`, or for this time.
async fn rounds(seed: u64, seconds: u64) {
    let time = Duration::from_secs(variable("WEIR_SECONDS").unwrap_or(seconds));
    println!("WEIR_SEED={seed}, {time:?}");
    for up in [From::Server(Variant::Sotw), From::Server(Variant::Delta), From::Files] {
        round(up, seed, time / 3).await;
    }
}

async fn round(up: From, seed: u64, duration: Duration) {
    let mut dice = Dice(seed);
    let plane = Plane::start(&BOTH).await;
    let (origin, plane_address) = (Arc::<Mutex<Origin>>::default(), plane.address);
    {
        let mut origin = origin.lock().unwrap();
        for (key, kind) in [0, 1].into_iter().flat_map(|key| Kind::ALL.map(|kind| (key, kind))) {
            origin.ever_absent.extend((0..6).map(|number| (key, kind, kind.name(number))));
            origin.set(key, kind, 0, Some("c0".into()));
            origin.ever_absent.remove(&(key, kind, kind.name(0)));
        }
    }
    let upstream = match up {
        From::Server(variant) => format!("{{servers: [{{uri: 'http://{plane_address}'{}}}]}}", protocol_of(variant)),
        From::Files => {
            let (folder, mut origin) = (Folder::new(), origin.lock().unwrap());
            let upstream = format!("{{files: '{}'}}", folder.path());
            origin.files = Some(folder);
            Kind::ALL.into_iter().for_each(|kind| origin.push(0, kind));
            upstream
        }
    };
    let server = tokio::spawn(serve(plane, origin.clone()));
    let (relay_address, mut relay) = start_relay(own_address(), &upstream).await;
    let mut stubs = Vec::new();
    for (key, variant) in up.keys().into_iter().flat_map(|key| BOTH.map(|variant| (key, variant))) {
        for _ in 0..2 {
            stubs.push(Stub::start(plane_address, variant, key));
            stubs.push(Stub::start(relay_address, variant, key));
        }
    }
    let end = Instant::now() + duration;
    let mut restarts = 0;
    while Instant::now() < end {
        let (key, number) = (up.keys()[dice.below(2)], u8::try_from(dice.below(4)).unwrap());
        match dice.below(100) {
            0..55 => {
                let kind = Kind::ALL[dice.below(4)];
                let target = Some(Kind::Cluster.name(number));
                origin.lock().unwrap().set(key, kind, number, target.filter(|_| kind == Kind::Route));
            }
            55..80 if number > 0 => {
                let kind = Kind::ALL[dice.below(4)];
                origin.lock().unwrap().delete(key, kind, number);
            }
            80..82 => origin.lock().unwrap().restart(),
            82..83 => {
                relay.abort();
                let _ = relay.await;
                relay = start_relay(relay_address, &upstream).await.1;
                restarts += 1;
            }
            83..86 => {
                // A client restarts without its resources.
                let at = dice.below(stubs.len());
                let address = if directly(at) { plane_address } else { relay_address };
                stubs[at] = Stub::start(address, stubs[at].variant, stubs[at].key);
            }
            _ => tokio::time::sleep(Duration::from_millis(1 + dice.below(200) as u64)).await,
        }
    }
    settle(&stubs, up, &origin).await;
    println!("{up:?}: {} changes, {restarts} relay restarts", origin.lock().unwrap().serial);
    relay.abort();
    server.abort();
}

/// Whether this client connects to the origin: of each pair of clients, the first one does.
fn directly(at: usize) -> bool {
    at.is_multiple_of(2)
}

/// Waits until every client has the right resources, and then checks which ones it has lost since the start.
async fn settle(stubs: &[Stub], up: From, origin: &Mutex<Origin>) {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let wrong = stubs.iter().enumerate().find_map(|(at, stub)| {
            // If upstream uses SotW, the relay cannot learn of such removals, and so cannot report them.
            let unsaid = stub.variant == Variant::Sotw || (up == From::Server(Variant::Sotw) && !directly(at));
            differs(stub, unsaid, &origin.lock().unwrap()).map(|how| (at, how))
        });
        let Some((at, how)) = wrong else { break };
        let (stub, where_) = (&stubs[at], if directly(at) { "at the origin" } else { "through the relay" });
        assert!(Instant::now() < patience, "{up:?}, {:?} client {where_}, key {}: {how}", stub.variant, stub.key);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let origin = origin.lock().unwrap();
    for (at, stub) in stubs.iter().enumerate() {
        for (kind, name) in stub.taken.lock().unwrap().iter() {
            let absent = origin.ever_absent.contains(&(stub.key, *kind, name.clone()));
            assert!(absent, "client {at} lost {name}, which the origin never deleted");
        }
    }
}

/// `unsaid`: SotW is used somewhere on the way, so removals of types that are not full-state are never reported.
fn differs(stub: &Stub, unsaid: bool, origin: &Origin) -> Option<String> {
    let held = stub.held.lock().unwrap();
    let truth = &origin.truths[stub.key];
    for kind in STAR.into_iter().chain(BY_NAME.map(|(kind, _)| kind)) {
        let wildcard = STAR.contains(&kind);
        let names = names_of(kind);
        let visible = truth.of(kind, wildcard).values().filter(|content| wildcard || names.contains(&content.name));
        let visible: BTreeMap<_, _> = visible.map(|content| (content.name.clone(), content.body())).collect();
        for (name, body) in &visible {
            if held.get(&(kind, name.clone())) != Some(body) {
                return Some(format!("{name} is not what it should be"));
            }
        }
        let extra = held.keys().find(|(of, name)| *of == kind && !visible.contains_key(name));
        if let Some((_, name)) = extra.filter(|_| !unsaid || kind.full_state()) {
            return Some(format!("{name} is there and should not be"));
        }
    }
    None
}
