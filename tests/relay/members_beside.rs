//! `views.node: member` beside a drain, state from disk, trials of types, and refusals of the view with a fallback server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use prost::Message;
use tokio::sync::{oneshot, watch};
use weir_core::proto::node::Node;
use weir_core::xds::{KeyField, KeyRule, SharingKey};

use super::after_outage::waits;
use super::client::PATIENCE;
use super::holder::{Holder, Record};
use super::members::{Server, client, given, named, relay, some_is_taken_away, upstreams, views, views_have};
use super::plane::END_OF_SET;
use super::refused_types::{MADE_UP, ROUTES, UNKNOWN};
use super::warm_start::{Stoppable, is_saved, state_in};
use super::*;
use weir_testkit::folder::Folder;

const PERMISSION_DENIED: u8 = 7;

fn protocol(up: Variant) -> String {
    format!("{}, initial_set: one_response", protocol_of(up))
}

/// The key by which the next relay shares, for a node that a server is shown.
fn key_of(node: &Node) -> SharingKey {
    KeyRule::of(vec![KeyField::Cluster, KeyField::Tenant]).key(&node.encode_to_vec()).unwrap()
}

/// What logs and pages call the views.
async fn view_names(relay: &Relay) -> BTreeSet<String> {
    let upstreams = upstreams(relay).await;
    upstreams.as_array().unwrap().iter().map(|view| view["view"].as_str().unwrap().to_owned()).collect()
}

/// The state file has no node, because the clients of a view change.
#[tokio::test]
async fn views_from_disk_show_the_first_client_that_comes_with_their_own_key_and_take_nothing_from_it() {
    const CLUSTERS: [&str; 2] = ["web", "api"];
    for up in BOTH {
        let folder = Folder::with_short_path(&format!("member-state-{up:?}"));
        let server = Server::start().await;
        let rest = state_in(&folder, "").replace("views: {key: [cluster]}\n", &views());
        let start =
            async || Stoppable::of(bind_with_brakes(config(server.address, &protocol(up), &rest)).await.unwrap());
        let before = start().await;
        let mut first = Vec::new();
        for cluster in CLUSTERS {
            first.push(client(&before.0, Variant::Delta, &format!("a-{cluster}"), cluster).await);
        }
        is_saved(&before.0).await;
        let names = view_names(&before.0).await;
        before.stop().await;
        drop(first);

        let relay = start().await;
        let mut second = Vec::new();
        for cluster in CLUSTERS {
            second.push(client(&relay.0, Variant::Delta, &format!("b-{cluster}"), cluster).await);
            server.has_seen(&format!("b-{cluster}")).await;
        }
        assert_eq!(view_names(&relay.0).await, names, "they are those of before");
        let ids = server.ids();
        assert!(ids[2..].iter().all(|id| id.starts_with("b-")), "none is shown before there is a client: {ids:?}");
        {
            let openings = server.openings.lock().unwrap();
            let of = |id: String| openings.iter().find(|of| of.node.id == id).unwrap();
            // No version of an earlier process is stated, and in SotW there is no other one.
            let unknown = ["c0", "c1"].map(|name| (name, "weir-unknown"));
            let expected = if up == Variant::Delta { BTreeMap::from(unknown) } else { BTreeMap::new() };
            for cluster in CLUSTERS {
                let (earlier, later) = (of(format!("a-{cluster}")), of(format!("b-{cluster}")));
                assert_eq!(key_of(&later.node), key_of(&earlier.node), "{cluster}");
                let stated = later.stated.iter().map(|(name, version)| (&**name, &**version));
                let stated: BTreeMap<_, _> = stated.filter(|(name, _)| !name.starts_with(END_OF_SET)).collect();
                assert_eq!(stated, expected, "{up:?}, {cluster}");
            }
            assert_ne!(key_of(&of("b-web".into()).node), key_of(&of("b-api".into()).node));
        }
        second.iter().for_each(Holder::has_lost_nothing);
        relay.stop().await;
    }
}

/// The last client of a view from disk has left, and the server takes away what it had for that one, before the next one comes.
#[tokio::test]
async fn what_is_taken_away_from_the_last_client_of_a_view_from_disk_waits_for_the_answer_for_the_next_one() {
    for up in BOTH {
        let folder = Folder::with_short_path(&format!("member-held-{up:?}"));
        let server = Server::start().await;
        let rest = state_in(&folder, "").replace("views: {key: [cluster]}\n", &views());
        let rest = format!("{rest}limits: {{linger: 1h}}\nbrakes: {{after_outage: 1h}}\n");
        let start =
            async || Stoppable::of(bind_with_brakes(config(server.address, &protocol(up), &rest)).await.unwrap());
        let before = start().await;
        let first = client(&before.0, Variant::Delta, "a", "web").await;
        is_saved(&before.0).await;
        before.stop().await;
        drop(first);

        let relay = start().await;
        let second = client(&relay.0, Variant::Delta, "b", "web").await;
        server.has_seen("b").await;
        until("all of it is confirmed", async || upstreams(&relay.0).await[0]["from_disk"].is_null()).await;
        drop(second);
        views_have(&relay.0, 0).await;
        assert_eq!(server.take_away("b"), 1, "{up:?}: the stream shows the last one");
        waits(&relay.0, "after_outage", 1).await;
        let third = client(&relay.0, Variant::Delta, "slow", "web").await; // the server has not answered for it
        server.has_seen("slow").await;
        assert_eq!(server.ids(), ["a", "b", "slow"]);
        if up == Variant::Delta {
            let openings = server.openings.lock().unwrap();
            assert_eq!(openings[2].stated.get("c0").map(String::as_str), Some("1"), "{:?}", openings[2].stated);
        }
        assert_eq!(server.say("slow", "3", &["c0", "c1", "c2"], &[]), 1);
        third.until("what is new", |record| record.holds.contains("c2")).await;
        waits(&relay.0, "after_outage", 0).await;
        third.has_lost_nothing();
    }
}

/// Clients leave while the relay drains, many at once so that most views wait for their turn, and the server takes away what it had for them.
#[tokio::test]
async fn what_is_taken_away_from_a_client_that_leaves_in_a_drain_takes_nothing_from_those_that_are_left() {
    for up in BOTH {
        some_is_taken_away(async || taken_away_in_a_drain(up).await).await;
    }
}

async fn taken_away_in_a_drain(up: Variant) -> usize {
    const CLUSTERS: [&str; 12] = ["w0", "w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9", "w10", "w11"];
    let server = Server::start().await;
    let rest = format!("{}drain: {{spread: 1h, bytes_per_second: 1}}\n", views());
    let (stop, stopped) = oneshot::channel::<()>();
    let app = bind_with_brakes(config(server.address, &protocol(up), &rest)).await.unwrap();
    let relay = run(app, async move { drop(stopped.await) });
    let (mut leaving, mut staying) = (Vec::new(), Vec::new());
    for cluster in CLUSTERS {
        leaving.push(client(&relay, Variant::Delta, &format!("a-{cluster}"), cluster).await);
        staying.push(client(&relay, Variant::Delta, &format!("b-{cluster}"), cluster).await);
    }
    stop.send(()).unwrap();
    until("it drains", async || probe(relay.admin, "/ready").await.0 == 503).await;
    leaving.clear();
    views_have(&relay, 1).await;
    let shown = server.take_away("a-");
    for cluster in CLUSTERS {
        server.has_seen(&format!("b-{cluster}")).await;
    }
    assert_eq!(server.say("b-", "3", &["c0", "c1", "c2"], &[]), CLUSTERS.len());
    for of in &staying {
        of.until("what is new", |record| record.holds.contains("c2")).await;
        of.has_lost_nothing();
    }
    if up == Variant::Delta {
        // If `c1` was taken away, the relay does not state it, so that the server sends it again. In SotW it states nothing then.
        let openings = server.openings.lock().unwrap();
        let next = openings.iter().filter(|of| of.node.id.starts_with("b-"));
        let unstated: Vec<_> = next.filter(|of| of.stated.get("c0") != given(up).get("c0")).collect();
        assert!(unstated.is_empty(), "{} of them", unstated.len());
    }
    shown
}

/// The clients leave one after another, and each of them may be the one that the server was shown.
#[tokio::test]
async fn a_relay_that_drains_takes_nothing_from_clients_that_are_left() {
    for up in BOTH {
        let server = Server::start().await;
        let rest = format!("{}drain: {{spread: 1s, bytes_per_second: 1}}\n", views());
        let relay = Stoppable::of(bind_with_brakes(config(server.address, &protocol(up), &rest)).await.unwrap());
        let mut clients = Vec::new();
        for id in ["a", "b", "c", "d"] {
            clients.push(client(&relay.0, Variant::Delta, id, "web").await);
        }
        relay.stop().await;
        clients.iter().for_each(Holder::has_lost_nothing);
        let ids = server.ids();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "each is shown once at most: {ids:?}");
        let openings = server.openings.lock().unwrap();
        assert!(openings[1..].iter().all(|of| of.stated == given(up)), "{up:?}: {ids:?}");
    }
}

/// What a server has.
type Clusters = &'static [(&'static str, &'static str)];

/// What a server does from now on.
#[derive(Debug, Clone, Copy)]
struct Script {
    clusters: Clusters,
    refuses: Refuses,
}

#[derive(Debug, Clone, Copy)]
enum Refuses {
    Nothing,
    Type(&'static str),
    Everybody,
}

impl Script {
    /// Returns the status by which a stream ends that requests a type.
    fn status(self, url: &str) -> Option<u8> {
        match self.refuses {
            Refuses::Type(refused) if refused == url => Some(UNKNOWN),
            Refuses::Type(_) | Refuses::Nothing => None,
            Refuses::Everybody => Some(PERMISSION_DENIED),
        }
    }
}

/// What the server has seen of one stream.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// The id of the node that it shows.
    id: String,
    types: BTreeSet<String>,
    clusters: BTreeSet<String>,
    stated: BTreeMap<String, String>,
}

impl Seen {
    /// Whether this is the stream of the view. A stream for comparison also requests a cluster that does not exist.
    fn is_of_view(&self) -> bool {
        self.types.contains(CDS) && !self.clusters.contains("weir-second-stream")
    }

    fn note(&mut self, request: &Request) {
        if let Some(node) = request.node() {
            self.id = Node::decode(&**node).unwrap().id;
        }
        self.types.insert(request.type_url().to_owned());
        if request.type_url() != CDS {
            return;
        }
        match request {
            Request::Sotw(request) => {
                self.clusters.extend(request.resource_names.iter().cloned());
                if request.response_nonce.is_empty() && !request.version_info.is_empty() {
                    self.stated.insert(String::new(), request.version_info.clone());
                }
            }
            Request::Delta(request) => {
                self.clusters.extend(request.resource_names_subscribe.iter().cloned());
                self.stated.extend(request.initial_resource_versions.clone());
            }
        }
    }
}

/// A control plane that follows a script.
struct Scripted {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    script: watch::Sender<Script>,
}

impl Scripted {
    async fn start(script: Script) -> Self {
        let mut plane = Plane::start(&BOTH).await;
        let (address, seen) = (plane.address, Arc::<Mutex<Vec<Seen>>>::default());
        let (script, now) = watch::channel(script);
        let all = seen.clone();
        tokio::spawn(async move {
            while let Some(stream) = plane.streams.recv().await {
                let at = all.lock().unwrap().len();
                all.lock().unwrap().push(Seen::default());
                tokio::spawn(follow(stream, at, all.clone(), now.clone()));
            }
        });
        Self { address, seen, script }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Returns the ids of clients that it was shown.
    fn ids(&self) -> BTreeSet<String> {
        self.seen().into_iter().map(|of| of.id).filter(|id| !id.is_empty()).collect()
    }

    fn does(&self, clusters: Clusters, refuses: Refuses) {
        self.script.send_replace(Script { clusters, refuses });
    }
}

async fn follow(mut stream: Stream, at: usize, seen: Arc<Mutex<Vec<Seen>>>, mut script: watch::Receiver<Script>) {
    let mut gives_clusters = false;
    loop {
        let request = tokio::select! {
            request = stream.requests.recv() => match request {
                None => return,
                Some(request) => Some(request),
            },
            Ok(()) = script.changed(), if gives_clusters => None,
        };
        let now = *script.borrow_and_update();
        request.iter().for_each(|request| seen.lock().unwrap()[at].note(request));
        if let Some(status) = now.status(request.as_ref().map_or("", Request::type_url)) {
            return stream.end_with(status);
        }
        let is_first = |url: &str| {
            request.as_ref().is_some_and(|request| request.type_url() == url && nonce_of(request).is_empty())
        };
        if request.is_none() || is_first(CDS) && !gives_clusters {
            gives_clusters = true;
            say(&stream, &now.clusters.len().to_string(), now.clusters, now.clusters, &[]);
        }
        if is_first(EDS) {
            // An empty response: the server knows the type, and has none of the requested endpoints.
            let (type_url, nonce) = (EDS.to_owned(), "1".to_owned());
            stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, ..Default::default() }));
        }
    }
}

const TWO_CLUSTERS: Clusters = &[("c0", "1"), ("c1", "1")];
const THREE_CLUSTERS: Clusters = &[("c0", "1"), ("c1", "1"), ("c2", "1")];
const FOUR_CLUSTERS: Clusters = &[("c0", "1"), ("c1", "1"), ("c2", "1"), ("c3", "1")];
const FIVE_CLUSTERS: Clusters = &[("c0", "1"), ("c1", "1"), ("c2", "1"), ("c3", "1"), ("c4", "1")];

fn has(name: &str) -> impl Fn(&Record) -> bool {
    move |record: &Record| record.holds.contains(name)
}

/// The stream that tries the type shows the same client as the stream of the view. Its result still holds when the next client is shown.
#[tokio::test]
async fn a_type_that_the_server_refuses_is_off_the_stream_that_shows_the_next_client() {
    for up in BOTH {
        for (refused, shared) in [(MADE_UP, 0), (ROUTES, 1)] {
            println!("{up:?}, {refused}");
            let server = Scripted::start(Script { clusters: TWO_CLUSTERS, refuses: Refuses::Type(refused) }).await;
            let relay = relay(server.address, up).await;
            let first = client(&relay, Variant::Delta, "a", "web").await;
            let second = client(&relay, Variant::Delta, "b", "web").await;
            let curious = Client::connect(relay.address, Variant::Delta).await;
            curious.ask_as(&named("b", "web"), refused, &["x"]);
            let is_refused = async || get(relay.admin, "/upstreams").await.contains("\"REFUSED\"");
            until("the type is refused", async || is_refused().await).await;
            assert_eq!(server.ids(), ["a".to_owned()].into(), "no client is passed over for a type");

            drop(first);
            let is_next = |of: &Seen| of.id == "b" && of.is_of_view();
            until("the next one is shown", async || server.seen().iter().any(is_next)).await;
            server.does(THREE_CLUSTERS, Refuses::Type(refused));
            second.until("what is new", has("c2")).await;
            second.has_lost_nothing();
            assert!(is_refused().await);
            let seen = server.seen();
            let both = |of: &&Seen| of.types.contains(refused) && of.is_of_view();
            assert_eq!(seen.iter().filter(both).count(), shared, "{seen:#?}");
            let next: Vec<_> = seen.iter().filter(|of| is_next(of)).collect();
            assert_eq!(next.len(), 1, "one opening: {seen:#?}");
            assert!(!next[0].types.contains(refused) && next[0].stated.len() == given(up).len(), "{:?}", next[0]);
        }
    }
}

/// Returns the names in the first response on a new stream of a client, or the status that ends the stream.
async fn first_of(relay: &Relay, id: &str) -> Result<Vec<String>, Code> {
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask_as(&named(id, "web"), CDS, &[]);
    let told = tokio::time::timeout(PATIENCE, client.next_forever()).await.expect("nothing comes");
    match told {
        Ok(told) => Ok(told.map(|told| told.set).unwrap_or_default()),
        Err(status) => Err(status.code()),
    }
}

/// All at once: the first choice refuses each client of a view that has its cache, and the fallback server, which is shown clients too, answers.
#[tokio::test]
async fn a_view_whose_clients_are_all_refused_is_so_beside_a_fallback_server_that_answers_and_they_lose_nothing() {
    let [refusing, fallback] =
        [TWO_CLUSTERS, THREE_CLUSTERS].map(|clusters| Script { clusters, refuses: Refuses::Nothing });
    let (refusing, fallback) = (Scripted::start(refusing).await, Scripted::start(fallback).await);
    let each = "variant: delta, initial_set: one_response, backoff: {initial: 50ms, max: 50ms}";
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\n\
         upstream: {{servers: [{{uri: 'http://{}', {each}}}, {{uri: 'http://{}', {each}}}]}}\n\
         views: {{key: [cluster, header.x-consul-token], node: member}}\n",
        refusing.address, fallback.address
    );
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    let relay = run(bind_with_brakes(config).await.unwrap(), std::future::pending());
    let clients = [client(&relay, Variant::Delta, "a", "web").await, client(&relay, Variant::Delta, "b", "web").await];
    assert_eq!((refusing.ids(), fallback.ids()), (["a".to_owned()].into(), BTreeSet::new()));

    // Something that is not cached, so that the next server is asked, by a stream that has had something.
    let mut wanting = Client::connect(relay.address, Variant::Delta).await;
    wanting.ask_as(&named("b", "web"), CDS, &[]);
    let sent = wanting.sent().await;
    wanting.ack(CDS, &[], &sent);
    wanting.ask(EDS, &["e"], None);
    until("the server is asked for it", async || refusing.seen().iter().any(|of| of.types.contains(EDS))).await;

    refusing.does(TWO_CLUSTERS, Refuses::Everybody);
    for of in &clients {
        of.until("what the fallback server has", has("c2")).await;
    }
    let is_refused = async |id: &str| first_of(&relay, id).await == Err(Code::PermissionDenied);
    until("new streams are refused", async || is_refused("c").await).await;
    assert!(["a", "b"].iter().all(|id| refusing.ids().contains(*id)), "each was shown: {:?}", refusing.ids());
    // An answer of the other server says nothing of what the first one refuses.
    fallback.does(FOUR_CLUSTERS, Refuses::Nothing);
    for of in &clients {
        of.until("what is new there", has("c3")).await;
    }
    for id in ["c", "a", "d"] {
        assert!(is_refused(id).await, "{id}, whose cache is that of a refused view");
    }

    refusing.does(FIVE_CLUSTERS, Refuses::Nothing);
    for of in &clients {
        of.until("what the first choice has", has("c4")).await;
        of.has_lost_nothing();
    }
    until("new streams are served", async || first_of(&relay, "d").await.is_ok_and(|names| names.len() == 5)).await;
}
