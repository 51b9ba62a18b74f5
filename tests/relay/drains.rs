//! How clients move to other relays: in waves when a relay drains, and one by one when connections reach their maximum age.

use std::time::Instant;

use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

use super::client::PATIENCE;
use super::connections::{is_served, names, open};
use super::*;

struct World {
    relay: Relay,
    stream: Stream,
    stop: oneshot::Sender<()>,
    _first: Client,
    _plane: Plane,
}

impl World {
    /// Starts a relay with these keys, and a cluster and its endpoints of this many bytes.
    async fn with(rest: &str, bytes: usize) -> Self {
        let mut plane = Plane::start(&BOTH).await;
        let config = config(plane.address, ", variant: sotw", &format!("views: {{key: [cluster]}}\n{rest}"));
        let (stop, stopped) = oneshot::channel::<()>();
        let relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        let mut stream = plane.stream().await;
        let content = "x".repeat(bytes);
        say(&stream, "1", &[("a", &content)], &[], &[]);
        client.ask(EDS, &["a"], None);
        while stream.request().await.type_url() != EDS {}
        let (type_url, version, nonce) = (EDS.to_owned(), "1".to_owned(), "1".to_owned());
        let resources = vec![Any { type_url: EDS.into(), ..cluster("a", &content) }];
        stream.respond(&Response::Sotw(DiscoveryResponse {
            version_info: version,
            resources,
            type_url,
            nonce,
            ..Default::default()
        }));
        Self { relay, stream, stop, _first: client, _plane: plane }
    }

    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.relay.address)).unwrap().connect().await.unwrap()
    }

    async fn metric(&self, name: &str) -> u64 {
        metric(&self.relay, name).await as u64
    }

    /// Connects clients of both variants. Half of them subscribe to the cluster, the others to its endpoints.
    async fn clients(&self, count: usize) -> Vec<Client> {
        let mut clients = Vec::new();
        for at in 0..count {
            let variant = if at % 2 == 0 { Variant::Delta } else { Variant::Sotw };
            let mut client = Client::connect(self.relay.address, variant).await;
            if at % 4 < 2 {
                client.ask(CDS, &[], Some("web"));
            } else {
                client.ask(EDS, &["a"], Some("web"));
            }
            assert_eq!(client.sent().await.set, ["a"]);
            clients.push(client);
        }
        clients
    }
}

/// Returns when each stream ended. Each has to end with UNAVAILABLE.
async fn ends(clients: Vec<Client>) -> Vec<Duration> {
    let began = Instant::now();
    let ends = clients.into_iter().map(|mut client| async move {
        assert_eq!(client.ended().await, Code::Unavailable);
        began.elapsed()
    });
    let mut ends = futures_util::future::join_all(ends).await;
    ends.sort();
    ends
}

#[tokio::test]
async fn streams_end_no_faster_than_others_can_serve_what_their_clients_fetch() {
    let world = World::with("drain: {spread: 1h, bytes_per_second: 4MiB}\n", 1 << 20).await;
    let clients = world.clients(20).await;
    world.stop.send(()).unwrap();
    let ends = ends(clients).await;
    // The budget allows 20 MiB in about five seconds.
    assert!(ends[19] >= Duration::from_millis(3500), "{ends:?}");
    let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    assert!(longest < ends[19] / 2, "not all at once: {ends:?}");
}

#[tokio::test]
async fn a_drain_whose_clients_have_little_is_over_long_before_its_spread() {
    let world = World::with("drain: {spread: 1h}\n", 1).await;
    let clients = world.clients(20).await;
    world.stop.send(()).unwrap();
    ends(clients).await;
    let relay = world.relay;
    until("the process has ended", async || relay.task.is_finished()).await;
}

#[tokio::test]
async fn a_spread_that_is_too_short_for_the_budget_is_kept() {
    // By the budget alone it would take months.
    let world = World::with("drain: {spread: 4s, bytes_per_second: 1}\n", 1 << 20).await;
    let clients = world.clients(20).await;
    world.stop.send(()).unwrap();
    let ends = ends(clients).await;
    assert!(ends[19] >= Duration::from_secs(2) && ends[0] < ends[19] / 2, "evenly: {ends:?}");
    assert!(ends[19] < Duration::from_secs(25), "not by the default of 30 s: {ends:?}");
}

#[tokio::test]
async fn trn_18_a_connection_that_has_reached_its_age_ends_each_stream_after_a_response_and_its_client_comes_back() {
    let age = Duration::from_secs(2);
    let rest = format!("clients: {{max_connection_age: {}ms}}\ndrain: {{grace: 1h}}\n", age.as_millis());
    let world = World::with(&rest, 1).await;
    let began = Instant::now();
    let channel = world.channel().await;
    let (_requests, mut responses) = open(&channel).await.unwrap();
    assert_eq!(responses.message().await.unwrap().unwrap().resources[0].name, "a");
    let mut waiting = Client::connect(world.relay.address, Variant::Delta).await;
    waiting.ask(EDS, &["b"], Some("web"));
    let end = tokio::time::timeout(PATIENCE, responses.message()).await.expect("it lives on").unwrap_err();
    assert_eq!(end.code(), Code::Unavailable);
    assert!(end.message().contains("maximum age (clients.max_connection_age)"), "{end}");
    assert!(began.elapsed() >= age.mul_f64(0.8), "{:?}", began.elapsed());

    // A stream that has had no response waits for one, and new streams are served meanwhile.
    let aged = async || world.metric("weir_client_connections_aged_total").await;
    until("all three have reached their age", async || aged().await >= 3).await;
    is_served(open(&world.channel().await).await.unwrap()).await;
    say_any(&world.stream, EDS, &["a", "b"]);
    assert_eq!(waiting.sent().await.set, ["b"]);
    assert_eq!(waiting.ended().await, Code::Unavailable);
    until("the connections are closed", async || world.metric("weir_client_connections").await == 0).await;
    assert!(get(world.relay.admin, "/ready").await.starts_with("ready"), "the relay itself goes on");
}

#[tokio::test]
async fn connections_last_for_as_long_as_their_clients_want_without_a_limit() {
    let world = World::with("", 1).await;
    let mut client = world.clients(1).await.pop().unwrap();
    client.hears_nothing(Duration::from_millis(500)).await;
}

#[tokio::test]
async fn a_relay_with_too_many_streams_lets_the_next_connection_find_another_one() {
    let world = World::with("limits: {streams: 2}\n", 1).await; // the first client uses one
    let (first, second) = (world.channel().await, world.channel().await);
    let mut served = open(&first).await.unwrap();
    let sent = tokio::time::timeout(PATIENCE, served.1.message()).await.expect("no response").unwrap().unwrap();
    assert_eq!(sent.resources[0].name, "a");
    let connections = async || world.metric("weir_client_connections").await;
    until("both are connected", async || connections().await == 3).await;
    names(open(&second).await.unwrap_err(), &["too many streams", "limits.streams"]);
    until("the refused one has left", async || connections().await == 2).await;
    say(&world.stream, "2", &[("a", "other")], &[], &[]);
    let sent = tokio::time::timeout(PATIENCE, served.1.message()).await.expect("no response").unwrap().unwrap();
    assert_eq!(sent.resources[0].name, "a", "the others go on");
}
