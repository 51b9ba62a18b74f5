//! A control plane that was away sends half of its resources, and the rest later. Clients keep what it still has, and lose what it has really
//! removed after a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tokio::sync::oneshot;

use super::client::PATIENCE;
use super::holder::{ALL_CLUSTERS, Holder, Wish};
use super::plane::listen_at;
use super::poller::CLUSTERS;
use super::rest_plane::RestPlane;
use super::*;
use weir_testkit::folder::Folder;
use weir_testkit::speaker::{Bodies, Speaker, bare};

const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
const LISTENERS: Wish = Wish { url: LDS, names: &[], cluster: "web" };
const ENDPOINTS: Wish = Wish { url: EDS, names: &["c0"], cluster: "web" };
const ROUTES: Wish = Wish { url: RDS, names: &["r"], cluster: "web" };
const SECRETS: Wish = Wish { url: SDS, names: &["s0", "s1"], cluster: "web" };

/// A locality with one healthy host.
const HOST: &[u8] = &[0x12, 4, 0x12, 2, 0x10, 1];
/// A virtual host with one route to the cluster `c1`.
const ROUTE: &[u8] = &[0x12, 8, 0x1a, 6, 0x12, 4, 0x0a, 2, b'c', b'1'];
const NEVER: &str = "brakes: {after_outage: 1h}\n";

fn set(names: &[&str]) -> Bodies {
    bare(names)
}

fn one(name: &str, content: &[u8]) -> Bodies {
    Bodies::from([(name.to_owned(), content.to_owned())])
}

struct World {
    relay: Relay,
    plane: Plane,
    server: Speaker,
    clients: Vec<Holder>,
}

impl World {
    /// A relay with clients, and its control plane.
    async fn start(up: Variant, down: Variant, wishes: &[Wish], rest: &str) -> Self {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, up, rest).await;
        let mut clients = Vec::new();
        for wish in wishes {
            clients.push(Holder::new(relay.address, down, *wish).await);
        }
        let server = Speaker::of(&mut plane, BTreeMap::new()).await;
        Self { relay, plane, server, clients }
    }

    /// Kills the control plane, and starts it again.
    async fn restart(&mut self) {
        let other = Plane::start(&BOTH).await;
        let address = std::mem::replace(&mut self.plane, other).kill().await;
        self.plane = Plane::start_at(address, &BOTH).await;
        self.next_stream().await;
    }

    async fn next_stream(&mut self) {
        let sent = std::mem::take(&mut self.server.sent);
        self.server = Speaker::of(&mut self.plane, sent).await;
    }

    /// Waits until a client has these resources.
    async fn client_has(&self, client: usize, what: &str, names: &[&str]) {
        has(&self.clients[client], what, names).await;
    }

    fn nothing_is_lost(&self) {
        self.clients.iter().for_each(Holder::has_lost_nothing);
    }
}

async fn has(client: &Holder, what: &str, names: &[&str]) {
    let names: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
    client.until(what, |record| record.holds == names).await;
}

async fn relay(plane: SocketAddr, up: Variant, rest: &str) -> Relay {
    let more = format!("{}, backoff: {{initial: 10ms, max: 10ms}}", protocol_of(up));
    let config = config(plane, &more, &format!("views: {{key: [cluster]}}\n{rest}"));
    run(bind_with_brakes(config).await.unwrap(), std::future::pending())
}

/// Waits until so many waits of a kind are listed.
pub(super) async fn waits(relay: &Relay, kind: &str, count: usize) {
    until(&format!("{count} waits of the kind {kind}"), async || {
        let shown = get(relay.admin, "/waits").await;
        // Each wait, and their sum.
        shown.matches(&format!("\"{kind}\"")).count() == if count == 0 { 0 } else { count + 1 }
    })
    .await;
}

/// Returns for how many seconds each removal has been held back.
async fn held_for(relay: &Relay) -> Vec<f64> {
    let page: serde_json::Value = serde_json::from_str(&get(relay.admin, "/waits").await).unwrap();
    let rows = page["oldest"].as_array().unwrap().iter().filter(|row| row["wait"] == "after_outage");
    rows.map(|row| row["seconds"].as_f64().unwrap()).collect()
}

/// Waits until the view knows the complete set of clusters, even if only silence shows its end.
async fn is_settled(relay: &Relay) {
    until("the set is settled", async || {
        let upstreams = get(relay.admin, "/upstreams").await;
        ["settled", "complete"].iter().any(|known| upstreams.contains(&format!("\"completeness\": \"{known}\"")))
    })
    .await;
}

#[tokio::test]
async fn half_a_configuration_takes_nothing_and_the_rest_ends_what_is_held() {
    each_translation(async |up, down| {
        let mut world = World::start(up, down, &[ALL_CLUSTERS, LISTENERS, ENDPOINTS], NEVER).await;
        world.server.has(CDS, set(&["c0", "c1", "c2"])).await;
        world.server.has(EDS, one("c0", HOST)).await;
        world.server.has(LDS, set(&["l0", "l1"])).await;
        world.client_has(0, "all clusters", &["c0", "c1", "c2"]).await;
        world.client_has(1, "all listeners", &["l0", "l1"]).await;
        world.client_has(2, "the hosts", &["c0"]).await;
        for _ in 0..2 {
            world.restart().await;
            world.server.has(CDS, set(&["c0", "c3"])).await;
            world.server.has(EDS, one("c0", b"")).await;
            world.server.has(LDS, set(&["l0"])).await;
            waits(&world.relay, "after_outage", 4).await;
            world.server.has(CDS, set(&["c0", "c1", "c3"])).await;
            waits(&world.relay, "after_outage", 3).await;
            world.server.has(EDS, one("c0", HOST)).await;
            world.server.has(CDS, set(&["c0", "c1", "c2", "c3"])).await;
            world.server.has(LDS, set(&["l0", "l1"])).await;
            waits(&world.relay, "after_outage", 0).await;
            world.client_has(0, "what is new", &["c0", "c1", "c2", "c3"]).await;
            world.nothing_is_lost();
            assert_eq!(world.clients[2].record().responses, 1, "the hosts were never taken away");
            world.server.has(CDS, set(&["c0", "c1", "c2"])).await; // the 15 s are not over yet
            waits(&world.relay, "after_outage", 1).await;
            world.server.has(CDS, set(&["c0", "c1", "c2", "c3"])).await;
            waits(&world.relay, "after_outage", 0).await;
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_meant_passes_after_the_time_and_not_before() {
    each_translation(async |up, down| {
        let rest = "brakes: {after_outage: 1s}\n";
        let mut world = World::start(up, down, &[ALL_CLUSTERS, LISTENERS, ENDPOINTS], rest).await;
        world.server.has(CDS, set(&["c0", "c1", "c2"])).await;
        world.server.has(EDS, one("c0", HOST)).await;
        world.server.has(LDS, set(&["l0", "l1"])).await;
        world.client_has(0, "all clusters", &["c0", "c1", "c2"]).await;
        world.client_has(1, "all listeners", &["l0", "l1"]).await;
        world.client_has(2, "the hosts", &["c0"]).await;
        world.restart().await;
        let start = Instant::now();
        world.server.has(CDS, set(&["c0", "c2", "new"])).await;
        world.server.has(EDS, one("c0", b"")).await;
        world.server.has(LDS, set(&["l0"])).await;
        world.clients[0].until("what is new is not held", |record| record.heard.contains("new")).await;
        world.clients[2].until("the hosts go", |record| record.responses == 2).await;
        assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
        world.client_has(1, "the listener goes", &["l0"]).await;
        world.client_has(0, "the cluster goes", &["c0", "c2", "new"]).await;
        assert_eq!(world.clients[0].record().lost, ["c1"]);
        waits(&world.relay, "after_outage", 0).await;
    })
    .await;
}

/// A control plane that drains a connection was not away, so removals on the next stream count at once. If a gateway has ended the stream, the
/// control plane may have been away.
#[tokio::test]
async fn a_control_plane_that_drains_a_connection_is_believed_at_once_and_one_behind_a_gateway_that_lost_it_is_not() {
    each_translation(async |up, down| {
        let mut world = World::start(up, down, &[ALL_CLUSTERS], NEVER).await;
        world.server.has(CDS, set(&["c0", "c1", "c2"])).await;
        world.client_has(0, "all clusters", &["c0", "c1", "c2"]).await;
        world.plane.drain().await;
        world.server.stream.end_with(0);
        world.next_stream().await;
        world.server.has(CDS, set(&["c0", "c1"])).await;
        world.client_has(0, "what is meant passes", &["c0", "c1"]).await;
        world.clients[0].forget_losses();
        world.server.stream.end_with(14);
        world.next_stream().await;
        world.server.has(CDS, set(&["c0"])).await;
        waits(&world.relay, "after_outage", 1).await;
        world.nothing_is_lost();
    })
    .await;
}

/// The server announces the end of the connection in between: the relay opens the stream again, and receives the same half again.
#[tokio::test]
async fn what_is_held_stays_held_when_the_connection_is_drained_before_the_rest_comes() {
    each_translation(async |up, down| {
        let mut world = World::start(up, down, &[ALL_CLUSTERS, LISTENERS, ENDPOINTS], NEVER).await;
        let (all_clusters, all_listeners, host) = (set(&["c0", "c1"]), set(&["l0", "l1"]), one("c0", HOST));
        world.server.has(CDS, all_clusters.clone()).await;
        world.server.has(EDS, host.clone()).await;
        world.server.has(LDS, all_listeners.clone()).await;
        world.client_has(0, "all clusters", &["c0", "c1"]).await;
        world.client_has(1, "all listeners", &["l0", "l1"]).await;
        world.client_has(2, "the hosts", &["c0"]).await;
        world.restart().await;
        for is_drained in [false, true] {
            if is_drained {
                world.plane.drain().await;
                world.server.stream.end_with(0);
                world.next_stream().await;
                // The relay requests the held-back resources again.
                world.server.sent.insert(CDS, all_clusters.clone());
                world.server.sent.insert(EDS, host.clone());
                world.server.sent.insert(LDS, all_listeners.clone());
            }
            world.server.has(CDS, set(&["c0"])).await;
            world.server.has(EDS, one("c0", b"")).await;
            world.server.has(LDS, set(&["l0"])).await;
            waits(&world.relay, "after_outage", 3).await;
            if is_drained {
                let ages = held_for(&world.relay).await;
                assert!(ages.iter().all(|age| *age >= 2.0), "the time goes on that had passed: {ages:?}");
            } else {
                let is_a_while = |ages: Vec<f64>| ages.iter().all(|age| *age >= 2.0);
                until("it is held for a while", async || is_a_while(held_for(&world.relay).await)).await;
            }
        }
        world.server.has(CDS, all_clusters).await;
        world.server.has(EDS, host).await;
        world.server.has(LDS, all_listeners).await;
        waits(&world.relay, "after_outage", 0).await;
        world.nothing_is_lost();
        assert_eq!(world.clients[2].record().responses, 1, "the hosts were never taken away");
    })
    .await;
}

/// The lower relay holds back what its control plane removes. The upper one would hold it back for ever, but believes a server that is a relay.
#[tokio::test]
async fn through_two_relays_what_is_meant_is_held_by_the_first_alone() {
    for (up, between) in BOTH.into_iter().flat_map(|up| BOTH.map(|between| (up, between))) {
        let mut plane = Plane::start(&BOTH).await;
        // In SotW a relay forwards a set only once it is complete.
        let more = format!("{}, initial_set: one_response, backoff: {{initial: 10ms, max: 10ms}}", protocol_of(up));
        let config = config(plane.address, &more, "views: {key: [cluster]}\nbrakes: {after_outage: 2s}\n");
        let lower = run(bind_with_brakes(config).await.unwrap(), std::future::pending());
        let upper = relay(lower.address, between, NEVER).await;
        let clients = vec![Holder::new(upper.address, Variant::Delta, ALL_CLUSTERS).await];
        let server = Speaker::of(&mut plane, BTreeMap::new()).await;
        let mut world = World { relay: lower, plane, server, clients };
        world.server.has(CDS, set(&["c0", "c1", "c2"])).await;
        world.client_has(0, "all clusters", &["c0", "c1", "c2"]).await;
        is_settled(&world.relay).await;
        world.restart().await;
        let start = Instant::now();
        world.server.has(CDS, set(&["c0"])).await;
        world.server.has(CDS, set(&["c0", "c1"])).await;
        world.client_has(0, "what is meant goes", &["c0", "c1"]).await;
        assert!(start.elapsed() >= Duration::from_secs(2), "{up:?}, {between:?}: {:?}", start.elapsed());
        assert_eq!(world.clients[0].record().lost, ["c2"], "{up:?}, {between:?}");
    }
}

#[tokio::test]
async fn secrets_and_routes_are_believed_at_once() {
    each_translation(async |up, down| {
        let mut world = World::start(up, down, &[ALL_CLUSTERS, SECRETS, ROUTES], NEVER).await;
        world.server.has(CDS, set(&["c0", "c1"])).await;
        world.server.has(SDS, set(&["s0", "s1"])).await;
        world.server.has(RDS, one("r", ROUTE)).await;
        world.client_has(0, "all clusters", &["c0", "c1"]).await;
        world.client_has(1, "the secrets", &["s0", "s1"]).await;
        world.client_has(2, "the route", &["r"]).await;
        world.restart().await;
        world.server.has(CDS, set(&["c0"])).await;
        waits(&world.relay, "after_outage", 1).await;
        let responses = world.clients[1].record().responses;
        world
            .server
            .has(SDS, Bodies::from([("s0".to_owned(), b"\x12\0".to_vec()), ("s1".to_owned(), Vec::new())]))
            .await;
        world.clients[1].until("a secret that has changed", |record| record.responses > responses).await;
        let responses = world.clients[2].record().responses;
        world.server.has(RDS, one("r", b"")).await;
        world.clients[2].until("a route that has changed", |record| record.responses > responses).await;
        if up == Variant::Delta {
            world.server.has(SDS, set(&["s1"])).await;
            if down == Variant::Delta {
                world.client_has(1, "a secret that was revoked", &["s1"]).await;
            }
        }
        waits(&world.relay, "after_outage", 1).await;
        world.clients[0].has_lost_nothing();
    })
    .await;
}

/// A brake that engages holds back all removals of a response, for its own time. Fewer removals are only held back after an outage.
#[tokio::test]
async fn brakes_hold_beside_it() {
    each_translation(async |up, down| {
        let all = ["c0", "c1", "c2", "c3", "c4", "c5"];
        let rest = "brakes: {after_outage: 1h, count: 3, share: 50}\n";
        let mut world = World::start(up, down, &[ALL_CLUSTERS], rest).await;
        world.server.has(CDS, set(&all)).await;
        world.client_has(0, "all clusters", &all).await;
        for few in [&all[..1], &all[..4]] {
            let (braked, doubted) = if few.len() == 1 { (5, 0) } else { (0, 2) };
            world.restart().await;
            world.server.has(CDS, set(few)).await;
            waits(&world.relay, "brake", braked).await;
            waits(&world.relay, "after_outage", doubted).await;
            world.server.has(CDS, set(&all)).await;
            waits(&world.relay, "brake", 0).await;
            waits(&world.relay, "after_outage", 0).await;
            world.nothing_is_lost();
        }
        world.server.has(CDS, set(&all[..4])).await;
        waits(&world.relay, "after_outage", 2).await;
        world.server.has(CDS, set(&all[..2])).await;
        until("the brake engages", async || get(world.relay.admin, "/waits").await.contains("\"brake\"")).await;
        world.nothing_is_lost();
        world.server.has(CDS, set(&all)).await;
        waits(&world.relay, "brake", 0).await;
        waits(&world.relay, "after_outage", 0).await;
        world.nothing_is_lost();
    })
    .await;
}

/// ORD-1: released removals go through the ordering, which keeps a cluster while a route refers to it.
#[tokio::test]
#[ignore = "waits eight seconds for each variant"]
async fn night_the_order_keeps_a_cluster_for_routing_after_that() {
    for down in BOTH {
        let rest = "brakes: {after_outage: 3s}\n";
        // In delta the relay opens the stream again meanwhile, to know the end of the set.
        let mut world = World::start(Variant::Sotw, down, &[ALL_CLUSTERS, ROUTES], rest).await;
        world.server.has(CDS, set(&["c0", "c1"])).await;
        world.server.has(RDS, one("r", ROUTE)).await;
        world.client_has(0, "all clusters", &["c0", "c1"]).await;
        world.client_has(1, "the route", &["r"]).await;
        world.restart().await;
        let start = Instant::now();
        world.server.has(CDS, set(&["c0"])).await;
        waits(&world.relay, "removal", 1).await;
        assert!(start.elapsed() >= Duration::from_secs(3), "{:?}", start.elapsed());
        waits(&world.relay, "after_outage", 0).await;
        world.nothing_is_lost();
        world.server.has(RDS, one("r", b"")).await;
        world.client_has(0, "nothing refers to it any more", &["c0"]).await;
    }
}

/// XLAT-19: nothing is removed while the server is away. The time continues when the server omits the same resources again.
#[tokio::test]
async fn a_control_plane_that_goes_away_again_and_again_delays_nothing_for_ever() {
    for up in BOTH {
        let rest = "brakes: {after_outage: 3s}\n";
        let mut world = World::start(up, Variant::Delta, &[ALL_CLUSTERS], rest).await;
        world.server.has(CDS, set(&["c0", "c1"])).await;
        world.client_has(0, "all clusters", &["c0", "c1"]).await;
        is_settled(&world.relay).await;
        let (mut openings, mut first) = (0, None);
        while world.clients[0].record().lost.is_empty() {
            openings += 1;
            let start = Instant::now();
            assert!(openings < 20, "it is never believed");
            world.restart().await;
            world.server.sent.insert(CDS, set(&["c0", "c1"]));
            world.server.has(CDS, set(&["c0"])).await;
            tokio::time::sleep(Duration::from_millis(700)).await;
            first.get_or_insert(start.elapsed());
        }
        assert!(openings > 1 || first >= Some(Duration::from_secs(3)), "it was there for {first:?}");
    }
}

/// A relay that starts with a state file has lost no stream, so it believes its control plane at once, unless it first finds it unreachable.
#[tokio::test]
async fn a_relay_that_starts_with_its_state_doubts_a_control_plane_that_it_finds_away() {
    for (up, is_away) in BOTH.into_iter().flat_map(|up| [(up, true), (up, false)]) {
        let folder = Folder::with_short_path(&format!("after-outage-{up:?}-{is_away}"));
        let state =
            format!("state: {{path: {}}}\ndrain: {{grace: 0s, spread: 0s}}\n", folder.0.join("state").display());
        let mut plane = Plane::start(&BOTH).await;
        let address = plane.address;
        let start = async |stop: oneshot::Receiver<()>| {
            let more = format!("{}, backoff: {{initial: 10ms, max: 10ms}}", protocol_of(up));
            let config = config(address, &more, &format!("views: {{key: [cluster]}}\n{NEVER}{state}"));
            run(bind_with_brakes(config).await.unwrap(), async move { drop(stop.await) })
        };
        let (stop, stopped) = oneshot::channel();
        let mut before = start(stopped).await;
        let client = Holder::new(before.address, Variant::Delta, ALL_CLUSTERS).await;
        let mut server = Speaker::of(&mut plane, BTreeMap::new()).await;
        server.has(CDS, set(&["c0", "c1"])).await;
        has(&client, "all clusters", &["c0", "c1"]).await;
        warm_start::is_saved(&before).await;
        stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, &mut before.task).await.expect("the relay does not stop").unwrap();
        let (_stop, stopped) = oneshot::channel();
        let after = start(stopped).await;
        if is_away {
            let listener = listen_at(plane.kill().await).await;
            let client = Holder::new(after.address, Variant::Delta, ALL_CLUSTERS).await;
            for _ in 0..3 {
                drop(listener.accept().await.unwrap()); // the relay dials again once it has noticed the end
            }
            drop(listener);
            until("its view finds it away", async || {
                let page: serde_json::Value = serde_json::from_str(&get(after.admin, "/upstreams").await).unwrap();
                !page[0]["streams"][0]["last_error"].is_null()
            })
            .await;
            let mut plane = Plane::start_at(address, &BOTH).await;
            let mut server = Speaker::of(&mut plane, server.sent).await;
            server.has(CDS, set(&["c0"])).await;
            waits(&after, "after_outage", 1).await;
            client.has_lost_nothing();
        } else {
            let client = Holder::new(after.address, Variant::Delta, ALL_CLUSTERS).await;
            let mut server = Speaker::of(&mut plane, server.sent).await;
            server.has(CDS, set(&["c0"])).await;
            has(&client, "what is meant passes", &["c0"]).await;
        }
    }
}

/// The view of the next configuration opens its first stream, and learns of the outage from the earlier view.
#[tokio::test]
async fn a_reload_soon_after_an_outage_does_not_end_the_doubt() {
    for up in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let address = plane.address;
        let text = |linger: &str| {
            format!(
                "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n{NEVER}\
                 upstream: {{servers: [{{uri: 'http://{address}'{}, backoff: {{initial: 10ms, max: 10ms}}}}]}}\n\
                 drain: {{grace: 0s, spread: 0s}}\nreload: {{spread: 0s}}\nlimits: {{linger: {linger}}}\n",
                protocol_of(up)
            )
        };
        let world = reload::World::start(&format!("after-outage-{up:?}"), &text("30s")).await;
        let client = Holder::new(world.relay.address, Variant::Delta, ALL_CLUSTERS).await;
        let mut server = Speaker::of(&mut plane, BTreeMap::new()).await;
        server.has(CDS, set(&["c0", "c1"])).await;
        has(&client, "all clusters", &["c0", "c1"]).await;
        is_settled(&world.relay).await;
        plane.kill().await;
        let mut plane = Plane::start_at(address, &BOTH).await;
        let mut server = Speaker::of(&mut plane, server.sent).await;
        server.has(CDS, set(&["c0", "c1", "c2"])).await;
        has(&client, "it is back", &["c0", "c1", "c2"]).await;
        world.change(&text("1m")).await;
        let client = Holder::new(world.relay.address, Variant::Delta, ALL_CLUSTERS).await;
        has(&client, "what is cached", &["c0", "c1", "c2"]).await;
        let mut server = Speaker::of(&mut plane, server.sent).await;
        server.has(CDS, set(&["c0", "c2"])).await;
        waits(&world.relay, "after_outage", 1).await;
        client.has_lost_nothing();
    }
}

#[tokio::test]
async fn another_relay_is_believed_at_once() {
    each_translation(async |up, down| {
        let mut world = World::start(up, down, &[ALL_CLUSTERS], NEVER).await;
        world.server.has(CDS, set(&["c0", "c1"])).await;
        world.client_has(0, "all clusters", &["c0", "c1"]).await;
        let other = Plane::start(&BOTH).await;
        let address = std::mem::replace(&mut world.plane, other).kill().await;
        world.plane = Plane::relay_at(address, &BOTH).await;
        world.next_stream().await;
        world.server.has(CDS, set(&["c0"])).await;
        world.client_has(0, "what is meant passes", &["c0"]).await;
    })
    .await;
}

/// A polled control plane was away if its polls have failed.
#[tokio::test]
async fn a_polled_control_plane_is_doubted_after_polls_that_failed() {
    let mut plane = RestPlane::start().await;
    let with = |names: &[&str]| names.iter().map(|name| rest_source::cluster(name, "1")).collect();
    plane.script.has(CLUSTERS, "1", with(&["c0", "c1"]));
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nviews: {{key: [cluster]}}\n{NEVER}\
         upstream: {{servers: [{{rest: 'http://{}', refresh_delay: 40ms, request_timeout: 1s}}]}}\n",
        plane.address
    );
    let relay = run(
        bind_with_brakes(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap(),
        std::future::pending(),
    );
    let client = Holder::new(relay.address, Variant::Delta, ALL_CLUSTERS).await;
    has(&client, "all clusters", &["c0", "c1"]).await;
    let is_connected = async |is: bool| {
        until(&format!("connected: {is}"), async || {
            get(relay.admin, "/upstreams").await.contains(&format!("\"connected\": {is}"))
        })
        .await;
    };
    is_connected(true).await;
    let address = plane.kill().await;
    is_connected(false).await;
    plane = RestPlane::start_at(address, None).await;
    plane.script.has(CLUSTERS, "2", with(&["c0"]));
    waits(&relay, "after_outage", 1).await;
    client.has_lost_nothing();
    plane.script.has(CLUSTERS, "3", with(&["c0", "c1"]));
    waits(&relay, "after_outage", 0).await;
    client.has_lost_nothing();
}
