//! `views.node: member`: the relay shows servers the clients of a view one after another, and clients notice nothing of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use weir_core::proto::node::Node;

use super::holder::{ALL_CLUSTERS, Holder, Wish};
use super::plane::encoded;
use super::poller::CLUSTERS;
use super::rest_plane::RestPlane;
use super::*;

/// One opening of a stream, as the server has seen it.
pub(super) struct Opening {
    pub(super) node: Node,
    /// The versions that it states by name; in SotW that of the set, by no name.
    pub(super) stated: BTreeMap<String, String>,
    /// The sender of responses while the stream is open.
    responses: Option<mpsc::UnboundedSender<Bytes>>,
    variant: Variant,
}

const INVALID_ARGUMENT: u8 = 3;

type Openings = Arc<Mutex<Vec<Opening>>>;

/// A control plane that has the clusters `c0` and `c1` for each node, refuses those whose id begins with `bad`, and does not answer by itself
/// for those whose id begins with `slow`.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) openings: Arc<Mutex<Vec<Opening>>>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let mut plane = Plane::start(&BOTH).await;
        let (address, openings) = (plane.address, Openings::default());
        let seen = openings.clone();
        tokio::spawn(async move {
            while let Some(stream) = plane.streams.recv().await {
                tokio::spawn(answer(stream, seen.clone()));
            }
        });
        Self { address, openings }
    }

    /// Returns the ids that it was shown, in order.
    pub(super) fn ids(&self) -> Vec<String> {
        self.openings.lock().unwrap().iter().map(|opening| opening.node.id.clone()).collect()
    }

    pub(super) async fn has_seen(&self, id: &str) {
        until(&format!("the server is shown {id}"), async || self.ids().iter().any(|seen| seen == id)).await;
    }

    /// Takes `c1` away on all open streams that show one of these clients. Returns how many there are.
    pub(super) fn take_away(&self, prefix: &str) -> usize {
        self.say(prefix, "2", &["c0"], &["c1"])
    }

    /// Sends what it has, and what it has not any more, on all open streams that show one of these clients. Returns how many there are.
    pub(super) fn say(&self, prefix: &str, nonce: &str, names: &[&str], removed: &[&str]) -> usize {
        let openings = self.openings.lock().unwrap();
        let of_these = openings.iter().filter(|of| of.node.id.starts_with(prefix));
        let open = of_these.filter_map(|of| Some((of.variant, of.responses.as_ref()?)));
        open.filter(|(variant, responses)| {
            let response = response(*variant, nonce, names, removed);
            responses.send(encoded(&response)).is_ok()
        })
        .count()
    }
}

/// Returns the versions that a stream of the relay states after the first response. In SotW the set has one, here under an empty name.
pub(super) fn given(variant: Variant) -> BTreeMap<String, String> {
    let names: &[&str] = if variant == Variant::Sotw { &[""] } else { &["c0", "c1"] };
    names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect()
}

async fn answer(mut stream: Stream, openings: Openings) {
    let mut place = None;
    while let Some(request) = stream.requests.recv().await {
        let Some(node) = request.node().filter(|_| place.is_none()) else { continue };
        let stated: BTreeMap<_, _> = match &request {
            Request::Sotw(request) => {
                let version = Some(request.version_info.clone()).filter(|version| !version.is_empty());
                version.into_iter().map(|version| (String::new(), version)).collect()
            }
            Request::Delta(request) => request.initial_resource_versions.clone().into_iter().collect(),
        };
        let (node, variant) = (Node::decode(&**node).unwrap(), stream.variant);
        if node.id.starts_with("bad") {
            stream.end_quoting(INVALID_ARGUMENT, "no such proxy");
        } else if !node.id.starts_with("slow") {
            stream.respond(&response(variant, "1", &["c0", "c1"], &[]));
        }
        let responses = Some(stream.responses.clone());
        let mut openings = openings.lock().unwrap();
        place = Some(openings.len());
        openings.push(Opening { node, stated, responses, variant });
    }
    if let Some(place) = place {
        openings.lock().unwrap()[place].responses = None;
    }
}

/// Returns a response with everything that a server has, and in delta with removed names.
fn response(variant: Variant, nonce: &str, names: &[&str], removed: &[&str]) -> Response {
    let (type_url, nonce) = (CDS.to_owned(), nonce.to_owned());
    match variant {
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            version_info: nonce.clone(),
            resources: names.iter().map(|name| cluster(name, "1")).collect(),
            type_url,
            nonce,
            ..Default::default()
        }),
        Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
            resources: names
                .iter()
                .map(|name| Resource {
                    name: (*name).to_owned(),
                    version: "1".into(),
                    resource: Some(cluster(name, "1")),
                    ..Default::default()
                })
                .collect(),
            removed_resources: removed.iter().map(ToString::to_string).collect(),
            type_url,
            nonce,
            ..Default::default()
        }),
    }
}

/// Clients that share a view are of one tenant. A relay may state the tenant for them.
const TENANT: &str = "permissions: [{name: all, identities: [{network: 127.0.0.0/8}], tenant: all, relays_for: ['*'], free: [cluster]}]\n";

pub(super) fn views() -> String {
    format!("views: {{key: [cluster, tenant], node: member}}\n{TENANT}")
}

pub(super) async fn relay(server: SocketAddr, up: Variant) -> Relay {
    let each = format!("{}, initial_set: one_response, backoff: {{initial: 10ms, max: 10ms}}", protocol_of(up));
    let config = config(server, &each, &views());
    run(bind_with_brakes(config).await.unwrap(), std::future::pending())
}

pub(super) fn named(id: &str, cluster: &str) -> Node {
    Node { id: id.into(), cluster: cluster.into(), user_agent_name: "envoy".into(), ..Node::default() }
}

/// A client that has the clusters.
pub(super) async fn client(relay: &Relay, variant: Variant, id: &str, cluster: &'static str) -> Holder {
    let wish = Wish { cluster, ..ALL_CLUSTERS };
    let client = Holder::as_node(relay.address, variant, wish, &named(id, cluster)).await;
    client.until("all clusters", has_all).await;
    client
}

fn has_all(record: &super::holder::Record) -> bool {
    record.holds == BTreeSet::from(["c0", "c1"].map(str::to_owned))
}

pub(super) async fn upstreams(relay: &Relay) -> serde_json::Value {
    serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap()
}

/// Waits until each view has so many clients.
pub(super) async fn views_have(relay: &Relay, clients: u64) {
    until(&format!("{clients} clients"), async || {
        let upstreams = upstreams(relay).await;
        upstreams.as_array().unwrap().iter().all(|view| view["clients"] == clients)
    })
    .await;
}

#[tokio::test]
async fn the_next_client_is_shown_when_the_shown_one_has_left_and_the_last_one_stays() {
    each_translation(async |up, down| {
        let server = Server::start().await;
        let relay = relay(server.address, up).await;
        let first = client(&relay, down, "a", "web").await;
        let second = client(&relay, down, "b", "web").await;
        let third = client(&relay, down, "c", "web").await;
        assert_eq!(server.ids(), ["a"], "one view, one stream");
        drop(second);
        views_have(&relay, 2).await;
        drop(first);
        server.has_seen("c").await;
        assert_eq!(server.ids(), ["a", "c"]);
        assert_eq!(server.openings.lock().unwrap()[1].stated, given(up), "what the server has given");
        third.has_lost_nothing();
        drop(third);
        views_have(&relay, 0).await;
        assert_eq!(server.ids(), ["a", "c"], "the last one stays");
        let later = client(&relay, down, "d", "web").await;
        server.has_seen("d").await;
        later.has_lost_nothing();
        assert_eq!(server.ids(), ["a", "c", "d"]);
    })
    .await;
}

#[tokio::test]
async fn the_whole_node_is_shown_with_the_features_of_the_relay_and_is_on_no_page() {
    let server = Server::start().await;
    let relay = relay(server.address, Variant::Delta).await;
    let fields = [("NAMESPACE".to_owned(), text("shop-of-the-test"))].into();
    let metadata = Some(prost_types::Struct { fields });
    let client_features = vec!["envoy.config.supports-resource-ttl".to_owned(), "own".to_owned()];
    let node = Node { metadata, client_features, ..named("router~10.0.0.7~a.shop~shop.svc", "web") };
    let client = Holder::as_node(relay.address, Variant::Delta, ALL_CLUSTERS, &node).await;
    client.until("all clusters", has_all).await;
    let mut shown = server.openings.lock().unwrap()[0].node.clone();
    let tenant = shown.metadata.as_mut().and_then(|metadata| metadata.fields.remove("weir.tenant"));
    assert_eq!(tenant, Some(text("all")));
    let features: BTreeSet<_> = shown.client_features.iter().map(String::as_str).collect();
    assert!(features.contains("own") && features.contains("weir.relay"), "{features:?}");
    assert!(!features.contains("envoy.config.supports-resource-ttl"), "{features:?}");
    assert_eq!(Node { client_features: Vec::new(), ..shown }, Node { client_features: Vec::new(), ..node });
    let view = upstreams(&relay).await[0].clone();
    assert_eq!(view["node"], "");
    assert!(view["shown_client"].is_u64(), "{view}");
    for page in ["/upstreams", "/clients", "/waits", "/config"] {
        assert!(!get(relay.admin, page).await.contains("shop-of-the-test"), "{page}");
    }
}

fn text(value: &str) -> prost_types::Value {
    prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(value.into())) }
}

/// The control plane removes what it had for a proxy that has left. Many views change at once, so most of them wait for their turn.
#[tokio::test]
async fn what_is_taken_away_from_a_client_that_has_left_takes_nothing_from_the_others() {
    each_translation(async |up, down| some_is_taken_away(async || taken_away(up, down).await).await).await;
}

/// How often to try to take something away from clients that have left, while streams still show them: for a second.
const TRIES: usize = 5;

/// Repeats a case until a stream showed a client that had left. The case returns how many did.
pub(super) async fn some_is_taken_away(case: impl AsyncFn() -> usize) {
    for _ in 0..TRIES {
        if case().await > 0 {
            return;
        }
    }
    panic!("no stream shows a client that has left");
}

async fn taken_away(up: Variant, down: Variant) -> usize {
    const CLUSTERS: [&str; 12] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11"];
    let server = Server::start().await;
    let relay = relay(server.address, up).await;
    let (mut leaving, mut staying) = (Vec::new(), Vec::new());
    for cluster in CLUSTERS {
        leaving.push(client(&relay, down, &format!("a-{cluster}"), cluster).await);
        staying.push(client(&relay, down, &format!("b-{cluster}"), cluster).await);
    }
    leaving.clear();
    views_have(&relay, 1).await;
    let shown = server.take_away("a-");
    for cluster in CLUSTERS {
        server.has_seen(&format!("b-{cluster}")).await;
    }
    let later = client(&relay, down, "later", "w11").await;
    staying.iter().chain([&later]).for_each(Holder::has_lost_nothing);
    let ids = server.ids();
    assert_eq!(ids.len(), 2 * CLUSTERS.len(), "each view has changed once: {ids:?}");
    shown
}

/// The pace is for each server: however fast clients of however many views leave, streams to it are opened a tenth of a second apart.
#[tokio::test]
async fn clients_that_leave_one_after_the_other_cause_ten_openings_a_second() {
    const CLIENTS: usize = 40;
    const VIEWS: [&str; 2] = ["web", "api"];
    let server = Server::start().await;
    let relay = relay(server.address, Variant::Delta).await;
    let mut clients = Vec::new();
    for at in 0..CLIENTS {
        clients.push(client(&relay, Variant::Delta, &format!("m{at}"), VIEWS[at % VIEWS.len()]).await);
    }
    let began = Instant::now();
    let mut clients = clients.into_iter();
    for at in VIEWS.len()..CLIENTS {
        drop(clients.next());
        server.has_seen(&format!("m{at}")).await;
    }
    let turns = u32::try_from(CLIENTS - VIEWS.len() - 1).unwrap(); // the first one is immediate
    assert!(began.elapsed() >= turns * Duration::from_millis(100), "{:?}", began.elapsed());
    assert_eq!(server.ids().len(), CLIENTS);
    clients.for_each(|client| client.has_lost_nothing());
}

/// I8: a server may reject one node, and accept others with the same key.
#[tokio::test]
async fn i8_a_client_that_the_server_refuses_keeps_nothing_from_the_others() {
    each_translation(async |up, down| {
        let server = Server::start().await;
        let relay = relay(server.address, up).await;
        let wish = Wish { cluster: "web", ..ALL_CLUSTERS };
        let mut refused = Vec::new();
        for id in ["bad0", "bad1"] {
            refused.push(Holder::as_node(relay.address, down, wish, &named(id, "web")).await);
            server.has_seen(id).await;
        }
        let other = client(&relay, down, "b", "web").await;
        for client in &refused {
            client.until("all clusters", has_all).await;
        }
        assert_eq!(server.ids().last().map(String::as_str), Some("b"));
        other.has_lost_nothing();
    })
    .await;
}

/// `*` and names of one type have separate streams, so a change of the shown client opens two.
#[tokio::test]
async fn both_streams_of_a_view_show_the_next_client() {
    let server = Server::start().await;
    let relay = relay(server.address, Variant::Delta).await;
    let first = client(&relay, Variant::Delta, "a", "web").await;
    let wish = Wish { names: &["c0"], cluster: "web", ..ALL_CLUSTERS };
    let second = Holder::as_node(relay.address, Variant::Delta, wish, &named("b", "web")).await;
    second.until("its cluster", |record| record.holds.contains("c0")).await;
    let third = client(&relay, Variant::Delta, "c", "web").await;
    assert_eq!(server.ids(), ["a", "a"]);
    drop(first);
    until("both streams show b", async || server.ids().len() == 4).await;
    assert_eq!(server.ids(), ["a", "a", "b", "b"]);
    [second, third].iter().for_each(Holder::has_lost_nothing);
}

/// When a view falls back to a server, the server is shown the current client, and later the next one when that client leaves.
#[tokio::test]
async fn a_fallback_server_is_shown_clients_too() {
    let (above, server) = (Plane::start(&BOTH).await, Server::start().await);
    let upstream = format!(
        "{{servers: [{{uri: 'http://{}', variant: delta}}, {{uri: 'http://{}', variant: delta, initial_set: one_response}}]}}",
        above.kill().await,
        server.address
    );
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nupstream: {upstream}\n\
         {}",
        views()
    );
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    let relay = run(bind_with_brakes(config).await.unwrap(), std::future::pending());
    let first = client(&relay, Variant::Delta, "a", "web").await;
    let second = client(&relay, Variant::Delta, "b", "web").await;
    assert_eq!(server.ids(), ["a"]);
    drop(first);
    server.has_seen("b").await;
    assert_eq!(server.ids(), ["a", "b"]);
    second.has_lost_nothing();
}

/// Clients from before the reload may be in either view. Later ones are in the view of the new configuration.
#[tokio::test]
async fn after_a_reload_servers_are_shown_clients() {
    let server = Server::start().await;
    let by_key = super::reload::text(&[server.address], &format!("reload: {{spread: 0s}}\n{TENANT}"));
    let by_key = by_key.replace("key: [cluster]", "key: [cluster, tenant]");
    let world = super::reload::World::start("member", &by_key).await;
    let first = client(&world.relay, Variant::Delta, "a", "web").await;
    assert!(server.ids()[0].starts_with("weir-"), "{:?}", server.ids());
    world.change(&by_key.replace("tenant]}", "tenant], node: member}")).await;
    let second = client(&world.relay, Variant::Delta, "b", "web").await;
    until("a client is shown", async || server.ids().iter().any(|id| !id.starts_with("weir-"))).await;
    drop(first);
    server.has_seen("b").await;
    second.has_lost_nothing();
}

/// SOTW-11: the key stays the same, so the view does too, and the server keeps the node that it was shown.
#[tokio::test]
async fn a_shown_client_that_states_another_node_stays_shown() {
    let server = Server::start().await;
    let relay = relay(server.address, Variant::Sotw).await;
    let first = Client::connect(relay.address, Variant::Sotw).await;
    first.ask_as(&named("a", "web"), CDS, &[]);
    server.has_seen("a").await;
    let second = client(&relay, Variant::Sotw, "b", "web").await;
    first.ask_as(&Node { metadata: Some(Default::default()), ..named("a2", "web") }, LDS, &[]);
    until("the request has come", async || get(relay.admin, "/upstreams").await.contains("Listener")).await;
    assert_eq!(server.ids(), ["a"]);
    drop(first);
    server.has_seen("b").await;
    assert_eq!(server.ids(), ["a", "b"]);
    second.has_lost_nothing();
}

/// The shown node has the key of the view, so the next relay has one view too.
#[tokio::test]
async fn two_tiers_agree_on_who_is_shown() {
    for between in BOTH {
        let server = Server::start().await;
        let lower = relay(server.address, Variant::Delta).await;
        let upper = relay(lower.address, between).await;
        let first = client(&upper, Variant::Delta, "a", "web").await;
        let second = client(&upper, Variant::Delta, "b", "web").await;
        assert_eq!(server.ids(), ["a"]);
        drop(first);
        server.has_seen("b").await;
        let views = [upstreams(&lower).await, upstreams(&upper).await].map(|of| of[0]["view"].clone());
        assert_eq!(views[0], views[1]);
        second.has_lost_nothing();
    }
}

/// The relay states versions, so the poll for the next client brings nothing new.
#[tokio::test]
async fn a_server_that_is_polled_is_shown_the_next_client() {
    let plane = RestPlane::start().await;
    let clusters = ["c0", "c1"].map(|name| super::rest_source::cluster(name, "1"));
    plane.script.has(CLUSTERS, "1", clusters.into());
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{rest: 'http://{}', refresh_delay: 40ms}}]}}\n{}",
        plane.address,
        views()
    );
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let first = client(&relay, Variant::Delta, "a", "web").await;
    let second = client(&relay, Variant::Delta, "b", "web").await;
    plane.script.polled(CLUSTERS, 2).await;
    let ids = || plane.script.polls().iter().map(|poll| poll.request["node"]["id"].clone()).collect::<Vec<_>>();
    assert!(ids().iter().all(|id| id == "a"), "{:?}", ids());
    drop(first);
    until("it is polled with the next one", async || ids().last().is_some_and(|id| id == "b")).await;
    plane.script.polled(CLUSTERS, 2).await;
    assert_eq!(ids().last().unwrap(), "b");
    second.has_lost_nothing();
}
