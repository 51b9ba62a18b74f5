//! Connections that live on shards: their clients are served there, and whatever ends or limits clients from elsewhere reaches each of them.

use std::collections::BTreeSet;

use http_body_util::Full;
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use weir_testkit::folder::Folder;

use super::certificates::{Authority, Identity};
use super::client::{PATIENCE, node};
use super::client_tls::{Connecting, VERSIONS};
use super::connections::{is_served, open};
use super::load_plane::{LoadClient, LoadPlane};
use super::loads::{AGGREGATE, able, all_each_second, loads_relay, report, told_until};
use super::log_lines::PANICS;
use super::memory::{charged, series};
use super::poller::{CLUSTERS, Poller};
use super::services::fetch;
use super::*;

/// A relay on shards, whose clients of node cluster `web` are sent the cluster `a`. The first of them is connected.
struct World {
    relay: Relay,
    first: Client,
    stop: oneshot::Sender<()>,
    stream: Stream,
    _plane: Plane,
}

impl World {
    async fn with(shards: usize, rest: &str, content: &str) -> Self {
        let mut plane = Plane::start(&BOTH).await;
        let config = config(plane.address, ", variant: sotw", &format!("shards: {shards}\n{rest}"));
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
        let mut first = Client::connect(relay.address, Variant::Delta).await;
        first.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        say(&stream, "1", &[("a", content)], &[], &[]);
        assert_eq!(first.sent().await.set, ["a"]);
        Self { relay, first, stop, stream, _plane: plane }
    }

    /// Connects a client that has the cluster.
    async fn client(&self, variant: Variant) -> Client {
        let mut client = Client::connect(self.relay.address, variant).await;
        client.ask(CDS, &[], Some("web"));
        assert_eq!(client.sent().await.set, ["a"]);
        client
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::from_shared(format!("http://{}", self.relay.address)).unwrap()
    }

    async fn channel(&self) -> Channel {
        self.endpoint().connect().await.unwrap()
    }

    /// Returns the bytes that are charged to clients.
    async fn charged_bytes(&self) -> usize {
        series(&self.relay, "weir_memory_charged_bytes{to=\"clients\"}").await
    }

    /// Waits until no more is charged to clients than before, but for what their accounts have not reported yet.
    async fn gives_back_to(&self, before: usize) {
        charged(&self.relay, |bytes| bytes <= before + UNREPORTED).await;
    }

    /// Checks that these clients and the first one are sent a change.
    async fn goes_on(&mut self, others: &mut [Client]) {
        say(&self.stream, "2", &[("a", "2")], &[], &[]);
        for client in others.iter_mut().chain([&mut self.first]) {
            assert_eq!(client.sent().await.set, ["a"]);
        }
    }

    /// Waits until so many connections and streams live on the shards.
    async fn has(&self, expected: usize) {
        until(&format!("{expected} connections and streams"), async || {
            let metrics = get(self.relay.admin, "/metrics").await;
            let is_of_shard = |line: &&str| {
                ["weir_shard_connections{", "weir_shard_streams{"].iter().any(|name| line.starts_with(name))
            };
            let loads = metrics.lines().filter(is_of_shard);
            loads.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum::<usize>() == expected
        })
        .await;
    }
}

const VIEWS: &str = "views: {key: [cluster]}\n";
/// More than the accounts of two small connections keep to themselves, and much less than a connection costs.
const UNREPORTED: usize = 16 << 10;

#[tokio::test]
async fn clients_of_all_shards_are_served_and_the_drain_waits_for_all_of_them() {
    for shards in [1, 2, 7] {
        let mut plane = Plane::start(&BOTH).await;
        let rest = format!("views: {{key: [cluster]}}\ndrain: {{spread: 1s}}\nshards: {shards}\n");
        let config = config(plane.address, ", variant: sotw", &rest);
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
        let mut clients = Vec::new();
        for variant in BOTH.into_iter().cycle().take(8) {
            let client = Client::connect(relay.address, variant).await;
            client.ask(CDS, &[], Some("web"));
            clients.push(client);
        }
        // The view and its server are not on the shard of the first client: they outlive it.
        let stream = plane.stream().await;
        say(&stream, "1", &[("a", "1")], &[], &[]);
        for client in &mut clients {
            let sent = client.sent().await;
            assert_eq!(sent.set, ["a"]);
            client.ack(CDS, &[], &sent);
        }
        drop(clients.remove(0));
        say(&stream, "2", &[("a", "2")], &[], &[]);
        for client in &mut clients {
            assert_eq!(client.sent().await.set, ["a"]);
        }
        stop.send(()).unwrap();
        for mut client in clients {
            assert_eq!(client.ended().await, Code::Unavailable);
        }
        until("the relay has ended", async || relay.task.is_finished()).await;
    }
}

/// Other threads handle such requests, make such replies and end such sessions.
#[tokio::test]
async fn clients_of_thousands_of_names_are_sent_each_of_them_and_what_changes() {
    let _turn = super::HEAVY.lock().await;
    let names: Vec<_> = (0..3000).map(|number| format!("c{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for variant in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let config =
            config(plane.address, ", variant: sotw", "views: {key: [cluster]}\ndrain: {spread: 1s}\nshards: 1\n");
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
        let mut client = Client::connect(relay.address, variant).await;
        client.ask(CDS, &names, Some("web"));
        let mut stream = plane.stream().await;
        let (mut version, mut requested) = (0, 0);
        let mut has = |content: &str, requested: &[String]| {
            version += 1;
            let whole: Vec<_> = requested.iter().map(|name| (name.as_str(), content)).collect();
            said(Variant::Sotw, &version.to_string(), &whole, &[], &[])
        };
        let mut last = Vec::new();
        while requested < names.len() {
            let Request::Sotw(request) = stream.request().await else { panic!("SotW") };
            if request.resource_names.len() > requested {
                requested = request.resource_names.len();
                last = request.resource_names;
                stream.respond(&has("1", &last));
            }
        }
        let mut received = BTreeSet::new();
        while received.len() < names.len() {
            let sent = client.sent().await;
            client.ack(CDS, &names, &sent);
            received.extend(sent.set);
        }
        stream.respond(&has("2", &last));
        while !received.is_empty() {
            let sent = client.sent().await;
            client.ack(CDS, &names, &sent);
            received.retain(|name| !sent.set.contains(name));
        }
        drop(client);
        stop.send(()).unwrap();
        until("the relay has ended", async || relay.task.is_finished()).await;
    }
}

#[tokio::test]
async fn a_drain_by_waves_ends_streams_on_all_shards_also_those_that_are_never_read() {
    for shards in [1, 2] {
        let rest = format!("{VIEWS}drain: {{grace: 4s, spread: 500ms}}\n");
        let world = World::with(shards, &rest, &"x".repeat(1 << 20)).await;
        let mut clients = Vec::new();
        for variant in BOTH.into_iter().cycle().take(6) {
            clients.push(world.client(variant).await);
        }
        let mut unread = Vec::new();
        for _ in 0..4 {
            let channel = world.endpoint().initial_stream_window_size(1024).connect().await.unwrap();
            unread.push(Client::call_for_clusters(channel, &[], "web").await.unwrap());
        }
        let World { relay, first, stop, .. } = world;
        clients.push(first);
        stop.send(()).unwrap();
        for client in &mut clients {
            assert_eq!(client.ended().await, Code::Unavailable);
            assert!(client.next_forever().await.unwrap().is_none());
        }
        until("the relay has ended", async || relay.task.is_finished()).await;
        for mut client in unread {
            let end = tokio::time::timeout(PATIENCE, client.next_forever()).await.expect("it lives on");
            assert!(end.is_err(), "it can have no whole reply: {end:?}");
        }
    }
}

/// Connects from an address of the machine. Loopback has many.
async fn connect_from(own: [u8; 4], address: SocketAddr, variant: Variant) -> Client {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((own, 0).into()).unwrap();
    Client::over_as(socket.connect(address).await.unwrap(), variant).await.expect("no stream")
}

#[tokio::test]
#[ignore = "waits twenty seconds for clients to be judged again"]
async fn night_changed_permissions_end_the_clients_of_their_rule_on_all_shards_and_no_others() {
    for shards in [1, 2] {
        let mut plane = Plane::start(&BOTH).await;
        let server = plane.address;
        let with = |cluster: &str| {
            let rule = |name: &str, address: &str, cluster: &str| {
                format!(
                    "- {{name: {name}, identities: [{{network: {address}/32}}], node: {{cluster: {cluster}}}, tenant: all}}\n"
                )
            };
            let rules = rule("stays", "127.0.0.1", "web") + &rule("goes", "127.0.0.2", cluster);
            reload::text(&[server], &format!("reload: {{spread: 0s}}\nshards: {shards}\npermissions:\n{rules}"))
        };
        let world = reload::World::start(&format!("rules-on-{shards}-shards"), &with("web")).await;
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for at in 0..6 {
            // Each shard has clients of both rules.
            let rules = if at % 2 == 0 { [false, true] } else { [true, false] };
            for goes in rules {
                let own = if goes { [127, 0, 0, 2] } else { [127, 0, 0, 1] };
                let client = connect_from(own, world.relay.address, BOTH[at / 2 % 2]).await;
                client.ask(CDS, &[], Some("web"));
                if goes { go.push(client) } else { stay.push(client) }
            }
        }
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        for client in stay.iter_mut().chain(&mut go) {
            let sent = client.sent().await;
            assert_eq!(sent.set, ["a", "b"]);
            client.ack(CDS, &[], &sent);
        }
        assert_eq!(world.change(&with("other")).await.changed, ["permissions"]);
        for client in &mut go {
            assert_eq!(client.ended().await, Code::Unavailable);
        }
        say(&stream, "2", &[("a", "2"), ("b", "1")], &[("a", "2")], &[]);
        for client in &mut stay {
            assert!(client.sent().await.set.contains(&"a".to_owned()));
        }
    }
}

#[tokio::test]
#[ignore = "waits twenty seconds for clients to be judged again"]
async fn night_other_files_for_tls_end_the_clients_on_all_shards_whose_authority_is_not_trusted_any_more() {
    for shards in [1, 2] {
        let [own, first, second] = ["own", "first", "second"].map(Authority::named);
        let mut plane = Plane::start(&BOTH).await;
        let server = plane.address;
        let folder = Folder::new(&format!("tls-on-{shards}-shards"));
        let Identity { certificate, key, .. } = own.sign("localhost");
        let both = format!("{}{}", first.pem, second.pem);
        for (name, text) in
            [("server.pem", &certificate), ("server.key", &key), ("both.pem", &both), ("second.pem", &second.pem)]
        {
            std::fs::write(folder.0.join(name), text).unwrap();
        }
        let with = |ca: &str| {
            let tls = format!("tls: {{certificate: server.pem, key: server.key, client_ca: {ca}}}");
            let text = reload::text(&[server], &format!("reload: {{spread: 0s}}\nshards: {shards}\n"));
            text.replacen("'127.0.0.1:0'", &format!("'127.0.0.1:0', {tls}"), 1)
        };
        let world = reload::World::start_in(folder, &with("both.pem")).await;
        let identities = [first.sign("goes"), second.sign("stays")];
        let mut clients = [Vec::new(), Vec::new()];
        for at in [0, 1, 1, 0, 0, 1, 1, 0] {
            let (roots, identity) = (own.pem.clone(), Some(identities[at].clone()));
            let connecting = Connecting { roots, identity, versions: VERSIONS.to_vec(), alpn: "h2" };
            let connection = connecting.connect_to(world.relay.address).await.unwrap();
            let client = Client::over_as(connection, Variant::Delta).await.expect("no stream");
            client.ask(CDS, &[], Some("web"));
            clients[at].push(client);
        }
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        for client in clients.iter_mut().flatten() {
            assert_eq!(client.sent().await.set, ["a", "b"]);
        }
        assert_eq!(world.change(&with("second.pem")).await.changed, ["listen.tls"]);
        let [go, stay] = &mut clients;
        for client in go {
            assert_eq!(client.ended().await, Code::Unauthenticated);
        }
        let news = [("a", "2"), ("b", "1")];
        say(&stream, "2", &news, &news, &[]);
        for client in stay {
            assert_eq!(client.sent().await.set, ["a"]);
        }
    }
}

#[tokio::test]
#[ignore = "waits twenty seconds for the age of connections"]
async fn night_connections_that_reach_their_age_leave_their_shards_and_their_clients_come_back() {
    for shards in [1, 2] {
        let rest = format!("{VIEWS}clients: {{max_connection_age: 5s}}\ndrain: {{grace: 1h}}\n");
        let mut world = World::with(shards, &rest, "1").await;
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(open(&world.channel().await).await.unwrap());
        }
        for (_, responses) in &mut streams {
            assert_eq!(responses.message().await.unwrap().unwrap().resources[0].name, "a");
            let end = tokio::time::timeout(PATIENCE, responses.message()).await.expect("it lives on").unwrap_err();
            assert_eq!(end.code(), Code::Unavailable);
            assert!(end.message().contains("maximum age (clients.max_connection_age)"), "{end}");
        }
        assert_eq!(world.first.ended().await, Code::Unavailable);
        is_served(open(&world.channel().await).await.unwrap()).await;
        world.has(0).await;
    }
}

#[tokio::test]
async fn polls_and_fetches_are_answered_on_shards_and_leave_nothing_there() {
    for shards in [1, 2] {
        let world = World::with(shards, VIEWS, "1").await;
        world.has(2).await; // the first client: a connection and a stream
        let address = world.relay.address;
        let mut pollers = [Poller::connect(address).await, Poller::connect_http2(address).await];
        for poller in &mut pollers {
            let answer = poller.polled(CLUSTERS, "web", json!({})).await;
            assert!(answer.status == 200 && answer.json()["resources"][0]["name"] == "a", "{answer:?}");
        }
        world.has(4).await;
        let request = DiscoveryRequest { node: node("web"), ..Default::default() };
        let path = "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters";
        assert_eq!(fetch(&world.relay, path, request).await.unwrap().resources.len(), 1);
        drop(pollers);
        world.has(2).await;
    }
}

#[tokio::test]
async fn loads_of_a_client_on_a_shard_reach_the_server_after_its_connection_has_ended() {
    for shards in [1, 2] {
        let mut plane = LoadPlane::start().await;
        let relay = loads_relay(plane.address, &format!("{AGGREGATE}shards: {shards}\n")).await;
        let mut client = LoadClient::connect(relay.address).await;
        client.report(&able("web", "one")).await;
        let mut stream = plane.stream().await;
        stream.report().await;
        stream.order(&all_each_second()).await;
        assert_eq!(client.order().await, all_each_second());
        let mut stays = LoadClient::connect(relay.address).await;
        stays.report(&able("web", "two")).await;
        assert_eq!(stays.order().await, all_each_second());
        client.report(&report("c", 7, 0)).await;
        client.reports = None; // a half-close, because a reset could overtake the report
        assert_eq!(client.ended().await.code(), Code::Ok);
        drop(client);
        assert_eq!(told_until(&mut stream, 7).await.0, 7);
        stays.report(&report("c", 5, 0)).await;
        assert_eq!(told_until(&mut stream, 5).await.0, 5, "the stream to the server is none of the first client");
    }
}

#[tokio::test]
async fn streams_of_one_connection_of_a_shard_wait_for_one_that_ends() {
    for shards in [1, 2] {
        let world = World::with(shards, &format!("{VIEWS}limits: {{streams_per_connection: 2}}\n"), "1").await;
        let channel = world.channel().await;
        let (first, second) = (open(&channel).await.unwrap(), open(&channel).await.unwrap());
        let third = tokio::spawn({
            let channel = channel.clone();
            async move { open(&channel).await }
        });
        // When another connection is served, the third stream has had all the time it needs.
        is_served(open(&world.channel().await).await.unwrap()).await;
        assert!(!third.is_finished());
        is_served(first).await;
        is_served(third.await.unwrap().unwrap()).await;
        is_served(second).await;
    }
}

#[tokio::test]
async fn the_limit_of_a_tenant_holds_over_all_shards_and_has_room_again_when_a_stream_ends() {
    for shards in [1, 2] {
        let rest = "views: {key: [cluster, tenant]}\nlimits: {streams_per_tenant: 2}\n\
                    permissions: [{name: all, identities: [{network: 127.0.0.0/8}], node: {cluster: web}, tenant: pay}]\n";
        let world = World::with(shards, rest, "1").await;
        let second = world.client(Variant::Sotw).await;
        for variant in BOTH {
            let mut beyond = Client::connect(world.relay.address, variant).await;
            beyond.ask(CDS, &[], Some("web"));
            let (code, message) = beyond.end().await;
            assert!(code == Code::ResourceExhausted && message.contains("limits.streams_per_tenant"), "{message}");
        }
        let mut poller = Poller::connect(world.relay.address).await;
        assert_eq!(poller.poll(CLUSTERS, "web", json!({})).await.status, 429);
        drop(second);
        until("the tenant has room again", async || {
            let mut again = Client::connect(world.relay.address, Variant::Delta).await;
            again.ask(CDS, &[], Some("web"));
            again.next_forever().await.is_ok()
        })
        .await;
    }
}

/// On one shard, which the others have in common with the connection that panics.
#[tokio::test]
async fn a_panic_within_the_task_of_a_connection_ends_that_connection_alone_and_gives_back_all_that_it_had() {
    let mut world = World::with(1, &format!("{VIEWS}limits: {{connections: 2}}\n"), "1").await;
    world.has(2).await;
    let before = world.charged_bytes().await;
    let channel = world.channel().await;
    let (_requests, mut responses) = open(&channel).await.unwrap();
    assert_eq!(responses.message().await.unwrap().unwrap().resources[0].name, "a");
    world.has(4).await;
    charged(&world.relay, |bytes| bytes > before + 2 * UNREPORTED).await;
    let mut grpc = Grpc::new(channel);
    grpc.ready().await.unwrap();
    let codec: ProstCodec<(), ()> = ProstCodec::default();
    let path = format!("/{PANICS}/Call").parse().unwrap();
    let call = grpc.unary(tonic::Request::new(()), path, codec);
    tokio::time::timeout(PATIENCE, call).await.expect("the call does not end").unwrap_err();
    tokio::time::timeout(PATIENCE, responses.message()).await.expect("its stream lives on").unwrap_err();
    world.has(2).await;
    world.gives_back_to(before).await;
    let next = world.client(Variant::Delta).await; // there is a place for it
    world.goes_on(&mut [next]).await;
}

#[tokio::test]
async fn a_panic_within_the_task_that_reads_a_stream_ends_that_stream_alone_and_its_session_leaves_the_view() {
    let mut world = World::with(1, VIEWS, "1").await;
    let mut pair = Client::connect_many(world.relay.address, 2).await;
    let mut sent = Vec::new();
    for client in &mut pair {
        client.ask(CDS, &[], Some("web"));
        sent.push(client.sent().await);
    }
    world.has(5).await;
    let before = world.charged_bytes().await;
    let mut panics = pair.remove(0);
    let names: Vec<_> = (0..500).map(|number| format!("e{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    panics.ask(EDS, &names, None);
    charged(&world.relay, |bytes| bytes > before + 2 * UNREPORTED).await;
    panics.refuse_for(CDS, &[], &sent[0], PANICS);
    assert_eq!(panics.ended().await, Code::Unavailable);
    world.has(4).await;
    world.gives_back_to(before).await; // the names too, which are charged until the view has none of the session
    world.goes_on(&mut pair).await;
}

#[tokio::test]
async fn a_panic_within_the_task_that_answers_a_poll_ends_that_poll_alone() {
    let mut world = World::with(1, VIEWS, "1").await;
    let mut poller = Poller::connect_http2(world.relay.address).await;
    let Poller::Http2(requests) = &mut poller else { unreachable!() };
    let request = http::Request::post(format!("http://weir/v3/discovery:{PANICS}")).body(Full::default()).unwrap();
    let answer = tokio::time::timeout(PATIENCE, requests.send_request(request)).await;
    answer.expect("the poll does not end").unwrap_err();
    world.has(3).await;
    assert_eq!(poller.polled(CLUSTERS, "web", json!({})).await.status, 200);
    world.goes_on(&mut []).await;
}
