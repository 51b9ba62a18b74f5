//! Streams of real control planes, recorded by `tests/interop/run --real record`: clients end with the recorded resources, and nothing is NACKed.
//! Keys and certificates in the files are placeholders. A file that is missing fails its test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use prost::Message;
use tokio::task::JoinHandle;
use weir_core::xds::WRAPPER_TYPE;
use weir_loadtest::recording::{Reader, Replay};

use super::client::Told;
use super::plane::{listen_at, own_address};
use super::unnamed::{Agent, NDS};
use super::*;

const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const TYPES: [&str; 4] = [CDS, EDS, LDS, RDS];

fn path_of(recording: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/relay/recordings").join(recording)
}

/// Returns the names that the recorded client has at the end, by type.
fn at_the_end(recording: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut reader = Reader::open(&path_of(recording)).unwrap();
    let mut sets = BTreeMap::<String, BTreeSet<String>>::new();
    while let Some(recorded) = reader.read().unwrap() {
        if recorded.is_request {
            continue;
        }
        let response = DeltaDiscoveryResponse::decode(recorded.message).unwrap();
        let set = sets.entry(response.type_url).or_default();
        set.retain(|name| !response.removed_resources.contains(name));
        set.extend(response.resources.into_iter().map(|resource| resource.name));
    }
    sets
}

/// Returns the body of the last recorded table of names.
fn last_table(recording: &str) -> bytes::Bytes {
    let mut reader = Reader::open(&path_of(recording)).unwrap();
    let mut last = None;
    while let Some(recorded) = reader.read().unwrap() {
        if recorded.is_request {
            continue;
        }
        let response = DeltaDiscoveryResponse::decode(recorded.message).unwrap();
        if response.type_url == NDS {
            last = response.resources.into_iter().next_back().or(last);
        }
    }
    let table = last.expect("a table of names was recorded");
    assert_eq!(table.name, "", "it has no name");
    table.resource.unwrap().value
}

/// The parts of a resource that these tests read.
#[derive(Clone, PartialEq, Message)]
struct Named {
    #[prost(string, tag = "1")]
    name: String,
}

#[derive(Clone, PartialEq, Message)]
struct Assignment {
    #[prost(message, repeated, tag = "2")]
    localities: Vec<Locality>,
}

#[derive(Clone, PartialEq, Message)]
struct Locality {
    #[prost(message, repeated, tag = "2")]
    hosts: Vec<Host>,
}

#[derive(Clone, PartialEq, Message)]
struct Host {}

/// The resources of one type that a client has.
#[derive(Debug, Default)]
struct Held {
    /// The number of hosts by name; 0 for other types.
    hosts: BTreeMap<String, usize>,
    /// The names that the client has lost, and the names whose hosts it has lost.
    lost: Vec<String>,
}

impl Held {
    fn receive(&mut self, is_complete_set: bool, sent: BTreeMap<String, usize>, removed: &[String]) {
        let is_gone = |name: &String| removed.contains(name) || is_complete_set && !sent.contains_key(name);
        let is_emptied = |name: &String, before: usize| before > 0 && sent.get(name) == Some(&0);
        let lost = self.hosts.iter().filter(|(name, before)| is_gone(name) || is_emptied(name, **before));
        let lost: Vec<_> = lost.map(|(name, _)| name.clone()).collect();
        self.lost.extend(lost);
        self.hosts.retain(|name, _| !is_gone(name));
        self.hosts.extend(sent);
    }
}

/// A client that subscribes to one type, as an Envoy does.
struct Envoy {
    url: &'static str,
    names: Vec<String>,
    held: Arc<Mutex<Held>>,
    task: JoinHandle<()>,
}

impl Envoy {
    /// Subscribes to these names, or to everything if the type is listeners or clusters.
    async fn start(relay: SocketAddr, variant: Variant, url: &'static str, names: &BTreeSet<String>) -> Self {
        let wanted = wanted(url, names).into_iter().map(str::to_owned).collect();
        let names: Vec<String> = names.iter().cloned().collect();
        let held = Arc::<Mutex<Held>>::default();
        let client = Client::connect(relay, variant).await;
        let task = tokio::spawn(listen(client, url, wanted, held.clone()));
        Self { url, names, held, task }
    }

    async fn has_everything(&self) {
        let has = || self.held.lock().unwrap().hosts.keys().eq(&self.names);
        until(&format!("{} of {:?}: {:?}", self.names.len(), self.url, self.names), async || has()).await;
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the names that an Envoy requests of a type with these names; none means everything.
fn wanted<'n>(url: &str, names: &'n BTreeSet<String>) -> Vec<&'n str> {
    if [CDS, LDS].contains(&url) { Vec::new() } else { names.iter().map(String::as_str).collect() }
}

async fn listen(mut client: Client, url: &'static str, wanted: Vec<String>, held: Arc<Mutex<Held>>) {
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    client.ask(url, &wanted, Some("web"));
    let is_complete_set = matches!(client, Client::Sotw(..)) && [CDS, LDS].contains(&url);
    while let Some((_, resources, sent)) = next(&mut client).await {
        client.ack(url, &wanted, &sent);
        let resources = resources.into_iter().map(|any| {
            let hosts = if url == EDS { hosts_in(&any) } else { 0 };
            (Named::decode(any.value).unwrap().name, hosts)
        });
        held.lock().unwrap().receive(is_complete_set, resources.collect(), &sent.removed);
    }
}

/// Returns the type, the resources and the remaining fields of the next response.
async fn next(client: &mut Client) -> Option<(String, Vec<Any>, Told)> {
    match client {
        Client::Sotw(_, responses) => {
            let response = responses.message().await.ok()??;
            let unwrapped = response.resources.into_iter().map(|any| match any.type_url.ends_with(WRAPPER_TYPE) {
                true => Resource::decode(any.value).unwrap().resource.unwrap(),
                false => any,
            });
            let (nonce, version) = (response.nonce, response.version_info);
            Some((
                response.type_url,
                unwrapped.collect(),
                Told { set: Vec::new(), removed: Vec::new(), nonce, version },
            ))
        }
        Client::Delta(_, responses) => {
            let response = responses.message().await.ok()??;
            let (nonce, removed) = (response.nonce, response.removed_resources);
            let resources = response.resources.into_iter().filter_map(|resource| resource.resource).collect();
            Some((response.type_url, resources, Told { set: Vec::new(), removed, nonce, version: String::new() }))
        }
    }
}

fn hosts_in(any: &Any) -> usize {
    let assignment = Assignment::decode(any.value.clone()).unwrap();
    assignment.localities.iter().map(|locality| locality.hosts.len()).sum()
}

/// A control plane that replays a recording, a relay, and a client for each type.
struct World {
    recording: &'static str,
    replay: Option<Replay>,
    relay: Relay,
    clients: Vec<Envoy>,
}

impl World {
    /// Replays the recording without its pauses.
    async fn start(recording: &'static str, down: Variant) -> Self {
        let replay = Replay::start(own_address(), path_of(recording), 0.0).await.unwrap();
        let more = ", variant: delta, backoff: {initial: 10ms, max: 10ms}";
        let config = config(replay.address, more, "views: {key: [cluster]}\n");
        let relay = run(bind_with_brakes(config).await.unwrap(), std::future::pending());
        let sets = at_the_end(recording);
        let mut clients = Vec::new();
        for url in TYPES {
            clients.push(Envoy::start(relay.address, down, url, &sets[url]).await);
        }
        Self { recording, replay: Some(replay), relay, clients }
    }

    /// Kills the control plane, starts it again, and replays the recording at this pace.
    async fn restart(&mut self, speed: f64) {
        let address = self.replay.take().unwrap().address;
        drop(listen_at(address).await);
        self.replay = Some(Replay::start(address, path_of(self.recording), speed).await.unwrap());
    }

    async fn clients_have_everything(&self) {
        for client in &self.clients {
            client.has_everything().await;
        }
    }

    /// Checks that neither the relay nor a client has NACKed anything.
    async fn nothing_is_nacked(&self) {
        let metrics = get(self.relay.admin, "/metrics").await;
        let nacks = metrics.lines().filter(|line| line.contains("_nacks_total{") && !line.ends_with(" 0"));
        assert_eq!(nacks.collect::<Vec<_>>(), [""; 0]);
    }
}

/// This control plane does not send endpoints again after their cluster has changed. A service goes and comes back.
#[tokio::test]
async fn java_control_plane_as_it_was_recorded() {
    for down in BOTH {
        let world = World::start("java-control-plane-habits", down).await;
        world.clients_have_everything().await;
        world.nothing_is_nacked().await;
    }
}

/// After its start, Consul removes resources that it sends again seconds later.
#[tokio::test]
async fn consul_that_was_killed_as_it_was_recorded() {
    for down in BOTH {
        let mut world = World::start("consul-restart", down).await;
        world.clients_have_everything().await;
        world.clients.iter().for_each(|client| client.held.lock().unwrap().lost.clear());
        world.restart(1.0).await;
        let is_doubted = async || get(world.relay.admin, "/waits").await.contains("\"after_outage\"");
        until("what it lacks is not believed", async || is_doubted().await).await;
        until("it has sent the rest", async || !is_doubted().await).await;
        world.clients_have_everything().await;
        for client in &world.clients {
            let lost = client.held.lock().unwrap().lost.clone();
            assert!(lost.is_empty(), "lost in {down:?}: {lost:?}");
        }
        world.nothing_is_nacked().await;
    }
}

/// Subscribes to everything of each type on one stream, as an Envoy does. Returns the types in the order of their first replies.
async fn types_in_order(relay: SocketAddr, down: Variant, sets: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut client = Client::connect(relay, down).await;
    for url in TYPES {
        client.ask(url, &wanted(url, &sets[url]), Some("web"));
    }
    let mut order = Vec::<String>::new();
    while order.len() < TYPES.len() {
        let reply = tokio::time::timeout(client::PATIENCE, next(&mut client)).await.expect("nothing came");
        let (url, _, sent) = reply.expect("the relay ended the stream");
        client.ack(&url, &wanted(&url, &sets[&url]), &sent);
        if !order.contains(&url) {
            order.push(url);
        }
    }
    order
}

/// Istiod's table of names has no name, and its agent requests it by an empty list. An Envoy that comes first and one that comes late get clusters
/// before endpoints, and routing after both.
#[tokio::test]
async fn istiod_that_starts_as_it_was_recorded() {
    const RECORDING: &str = "istiod-start";
    let sets = at_the_end(RECORDING);
    assert_eq!(sets.get(NDS), Some(&BTreeSet::from([String::new()])), "one table, which has no name");
    let are_wanted = sets.keys().all(|url| url == NDS || TYPES.contains(&url.as_str()));
    assert!(are_wanted, "a replay waits for who wants each of {:?}", sets.keys());
    for down in BOTH {
        let world = World::start(RECORDING, down).await;
        let relay = world.relay.address;
        let first = tokio::spawn({
            let sets = sets.clone();
            async move { types_in_order(relay, down, &sets).await }
        });
        let mut agent = Agent::start(relay, down).await;
        let expected = last_table(RECORDING);
        while agent.table().await.map(|table| table.value).as_ref() != Some(&expected) {}
        world.clients_have_everything().await;
        assert_eq!(first.await.unwrap(), TYPES, "{down:?}");
        assert_eq!(types_in_order(relay, down, &sets).await, TYPES, "{down:?}, late");
        world.nothing_is_nacked().await;
    }
}
