//! A control plane that ends a stream because of one type: clients that request the type learn of it, and all others are not affected.

use weir_core::proto::node::Node;
use weir_testkit::script::{self, Set, Way};
use weir_testkit::server::Server;

use super::evidence::servers;
use super::explain::situation;
use super::reload::{World, text};
use super::*;

pub(super) const MADE_UP: &str = "type.googleapis.com/own.Debug";
pub(super) const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
pub(super) const UNKNOWN: u8 = 2;
const UNAUTHENTICATED: u8 = 16;

/// A control plane that serves clusters, and ends each stream that requests a type of those that it refuses.
pub(super) struct Refusing {
    pub(super) address: SocketAddr,
    server: Server,
}

impl Refusing {
    pub(super) async fn start(refused: &'static [&'static str], status: u8) -> Self {
        let server = Server::start(Way::EndsForTypes(refused, status, having("1"))).await;
        Self { address: server.address, server }
    }

    /// Sets the content of the clusters.
    pub(super) fn change(&self, content: &str) {
        self.server.change(|world| *world = having(content));
    }

    /// Returns how many streams have requested a type.
    fn with(&self, url: &str) -> usize {
        self.server.seen().types.iter().filter(|types| types.contains(url)).count()
    }

    /// Returns how many streams have requested a type together with others.
    pub(super) fn shared(&self, url: &str) -> usize {
        self.server.seen().types.iter().filter(|types| types.contains(url) && types.len() > 1).count()
    }
}

fn having(content: &str) -> script::World {
    script::World::from([(CDS, Set::from([("a".to_owned(), content.to_owned())]))])
}

pub(super) async fn upstreams(relay: &Relay) -> String {
    get(relay.admin, "/upstreams").await
}

/// Returns a client that was sent clusters on the control plane's first stream.
async fn with_clusters(up: Variant) -> (Plane, Relay, Client, Stream) {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, protocol_of(up)).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let first = plane.stream().await;
    say(&first, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    (plane, relay, client, first)
}

/// Waits until a client has the clusters in the next version, and ACKs.
async fn has(client: &mut Client, nonces: &mut usize) {
    let sent = client.sent().await;
    assert_eq!(sent.set, ["a"]);
    client.ack(CDS, &[], &sent);
    *nonces += 1;
}

#[tokio::test]
async fn a_type_outside_of_the_table_that_the_server_refuses_never_ends_the_stream_of_others() {
    for status in [UNKNOWN, UNAUTHENTICATED] {
        for up in BOTH {
            println!("{up:?}, {status}");
            let plane = Refusing::start(&[MADE_UP], status).await;
            let relay = relay(plane.address, protocol_of(up)).await;
            let (mut changes, mut honest) = (0, Client::connect(relay.address, Variant::Delta).await);
            honest.ask(CDS, &[], Some("web"));
            has(&mut honest, &mut changes).await;
            let curious = Client::connect(relay.address, Variant::Delta).await;
            curious.ask(MADE_UP, &["x"], Some("web"));
            until("the type is refused", async || upstreams(&relay).await.contains("\"REFUSED\"")).await;
            let path = format!("/explain?client=2&type={MADE_UP}&name=x");
            let page: serde_json::Value = serde_json::from_str(&get(relay.admin, &path).await).unwrap();
            situation(&page[0], "The server refuses the type", "unknown", "ends streams that request the type");
            assert!(get(relay.admin, "/clients?state=refused").await.contains("own.Debug"));
            plane.change("2");
            has(&mut honest, &mut changes).await;
            assert_eq!((plane.with(MADE_UP), plane.shared(MADE_UP)), (1, 0), "on a stream of its own");
            let shown = upstreams(&relay).await;
            assert!(shown.contains("\"state\": \"active\"") && shown.contains("no such type"), "{shown}");
        }
    }
}

#[tokio::test]
async fn a_type_of_the_table_that_the_server_refuses_costs_others_one_opening() {
    for up in BOTH {
        let plane = Refusing::start(&[ROUTES], UNKNOWN).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let (mut changes, mut honest) = (0, Client::connect(relay.address, Variant::Delta).await);
        honest.ask(CDS, &[], Some("web"));
        has(&mut honest, &mut changes).await;
        let curious = Client::connect(relay.address, Variant::Delta).await;
        curious.ask(ROUTES, &["x"], Some("web"));
        until("the type is refused", async || upstreams(&relay).await.contains("\"REFUSED\"")).await;
        plane.change("2");
        has(&mut honest, &mut changes).await;
        assert_eq!((plane.with(ROUTES), plane.shared(ROUTES)), (2, 1), "{up:?}");
    }
}

#[tokio::test]
async fn a_stream_for_a_refused_type_alone_ends_with_the_status_of_the_server() {
    let plane = Refusing::start(&[ROUTES], UNAUTHENTICATED).await;
    let relay = relay(plane.address, "").await;
    let (mut changes, mut honest) = (0, Client::connect(relay.address, Variant::Delta).await);
    honest.ask(CDS, &[], Some("web"));
    has(&mut honest, &mut changes).await;
    let path = "/envoy.service.route.v3.RouteDiscoveryService/DeltaRoutes";
    let mut alone = Client::connect_to(relay.address, Variant::Delta, path).await.unwrap();
    alone.ask(ROUTES, &["x"], Some("web"));
    assert_eq!(alone.ended().await, Code::Unauthenticated);
    let mut later = Client::connect_to(relay.address, Variant::Delta, path).await.unwrap();
    later.ask(ROUTES, &["x"], Some("web"));
    assert_eq!(later.ended().await, Code::Unauthenticated, "who comes later hears of it at once");
}

#[tokio::test]
async fn a_server_that_ends_every_stream_refuses_no_type_and_is_left() {
    let (all, second) = (Refusing::start(&["*"], UNAUTHENTICATED).await, Refusing::start(&[], UNKNOWN).await);
    let relay = relay_with_options(&servers(&[all.address, second.address], ""), "", |_| {}).await;
    let (mut changes, mut client) = (0, Client::connect(relay.address, Variant::Delta).await);
    client.ask(CDS, &[], Some("web"));
    client.ask(MADE_UP, &["x"], None);
    has(&mut client, &mut changes).await;
    until("the server is tried again", async || all.server.seen().types.len() > 2).await;
    let shown = upstreams(&relay).await;
    assert!(!shown.contains("\"REFUSED\""), "{shown}");
}

/// A server that is down, limits the rate of streams, or fails for a while is no proof that it refuses a type, whatever was requested.
#[tokio::test]
async fn a_server_that_is_not_well_at_the_start_refuses_no_type_and_is_asked_for_all_in_the_end() {
    const RESOURCE_EXHAUSTED: u8 = 8;
    const UNAVAILABLE: u8 = 14;
    for status in [None, Some(RESOURCE_EXHAUSTED), Some(UNAVAILABLE), Some(UNKNOWN)] {
        println!("{status:?}");
        let mut plane = Plane::start(&BOTH).await;
        let address = plane.address;
        let is_down = status.is_none();
        if is_down {
            plane.kill().await;
            plane = Plane::start(&BOTH).await; // another server, which no relay asks
        }
        let relay = relay(address, ", variant: delta, backoff: {initial: 10ms, max: 10ms}").await;
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some("web"));
        client.ask(ROUTES, &["x"], None);
        client.ask(MADE_UP, &["x"], None);
        if let Some(status) = status {
            for opening in 0..8 {
                let mut stream = plane.stream().await; // the relay has noticed the end of the last stream
                assert!(!upstreams(&relay).await.contains("REFUSED"), "{status}, opening {opening}");
                stream.request().await;
                stream.end_with(status);
            }
        } else {
            until("it is found to be down", async || upstreams(&relay).await.contains("\"state\": \"down\"")).await;
            assert!(!upstreams(&relay).await.contains("REFUSED"));
            plane = Plane::start_at(address, &BOTH).await;
        }
        let mut open = tokio::task::JoinSet::new();
        let serves = async {
            loop {
                let mut stream = plane.stream().await;
                open.spawn(async move {
                    while let Some(request) = stream.requests.recv().await {
                        if request.type_url() == CDS && nonce_of(&request).is_empty() {
                            say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]);
                        }
                    }
                });
            }
        };
        let joins = until("all types are on the stream", async || {
            let shown = upstreams(&relay).await;
            assert!(!shown.contains("REFUSED"), "{status:?}: {shown}");
            [ROUTES, MADE_UP].iter().all(|url| shown.contains(url.rsplit('/').next().unwrap()))
                && shown.contains("\"state\": \"active\"")
                && !shown.contains("NOT_ASKED")
        });
        tokio::select! {
            () = serves => {}
            () = joins => {}
        }
    }
}

#[tokio::test]
async fn a_type_that_the_server_takes_joins_the_stream_of_others() {
    let (mut plane, relay, mut client, mut first) = with_clusters(Variant::Delta).await;
    client.ask(MADE_UP, &["x"], None);
    let mut trial = plane.stream().await;
    until("the type is tried", async || upstreams(&relay).await.contains("NOT_ASKED")).await;
    say_named(&mut trial, MADE_UP, "x").await;
    say_named(&mut first, MADE_UP, "x").await;
    assert_eq!(client.sent().await.set, ["x"]);
    assert!(!upstreams(&relay).await.contains("NOT_ASKED"));
    while trial.requests.recv().await.is_some() {} // waits until the trial is over
}

#[tokio::test]
async fn a_stream_that_is_cut_off_says_nothing_of_a_type() {
    let (mut plane, _relay, client, mut first) = with_clusters(Variant::Delta).await;
    client.ask(ROUTES, &["x"], None);
    while first.request().await.type_url() != ROUTES {}
    drop(first);
    let mut second = plane.stream().await;
    while second.request().await.type_url() != ROUTES {}
}

#[tokio::test]
async fn by_choice_the_aggregated_stream_of_who_asks_ends_with_the_status_and_no_other_one() {
    for refused in [MADE_UP, ROUTES] {
        let plane = Refusing::start(if refused == MADE_UP { &[MADE_UP] } else { &[ROUTES] }, UNAUTHENTICATED).await;
        let ending = config(plane.address, "", "views: {key: [cluster]}\nclients: {on_refused_type: end}\n");
        let relay = run(bind(ending).await.unwrap(), std::future::pending());
        let (mut changes, mut honest) = (0, Client::connect(relay.address, Variant::Delta).await);
        honest.ask(CDS, &[], Some("web"));
        has(&mut honest, &mut changes).await;
        for when in ["it is found out", "it is known"] {
            let mut curious = Client::connect(relay.address, Variant::Delta).await;
            curious.ask(refused, &["x"], Some("web"));
            let (code, message) = curious.end().await;
            assert_eq!(code, Code::Unauthenticated, "when {when}");
            assert!(message.contains("the control plane ends streams that request this type"), "{message}");
        }
        plane.change("2");
        has(&mut honest, &mut changes).await;
    }
}

/// The near relay reports an error of the name. So the far relay does not take it for a server that refuses types, and no stream ends.
#[tokio::test]
async fn behind_two_relays_who_reads_errors_gets_the_status_and_no_stream_of_a_relay_ends() {
    for between in BOTH {
        let plane = Refusing::start(&[MADE_UP], UNAUTHENTICATED).await;
        // The set counts as complete at once: a near relay sends a far relay that uses SotW only complete sets.
        let near_config = config(
            plane.address,
            ", initial_set: one_response",
            "views: {key: [cluster]}\nclients: {on_refused_type: end}\n",
        );
        let near = run(bind(near_config).await.unwrap(), std::future::pending());
        let far = relay(near.address, protocol_of(between)).await;
        let (mut changes, mut honest) = (0, Client::connect(far.address, Variant::Delta).await);
        honest.ask(CDS, &[], Some("web"));
        has(&mut honest, &mut changes).await;
        let mut reader = Client::connect(far.address, Variant::Delta).await;
        let node = Node { cluster: "web".into(), user_agent_name: "gRPC Go".into(), ..Node::default() };
        reader.ask_as(&node, MADE_UP, &["x"]);
        let Client::Delta(_, replies) = &mut reader else { unreachable!("a delta client") };
        let reply = tokio::time::timeout(client::PATIENCE, replies.message()).await.expect("no reply");
        let error = reply.unwrap().expect("an end").resource_errors[0].error_detail.clone().unwrap();
        assert_eq!(error.code, i32::from(UNAUTHENTICATED), "{between:?}: {}", error.message);
        plane.change("2");
        has(&mut honest, &mut changes).await;
        let shown = upstreams(&far).await;
        assert!(!shown.contains("\"REFUSED\""), "{between:?}: {shown}");
        assert_eq!(plane.shared(MADE_UP), 0, "{between:?}");
    }
}

#[tokio::test]
async fn a_reload_while_a_type_is_refused_keeps_it_off_the_stream_of_the_next_view_too() {
    let plane = Refusing::start(&[MADE_UP], UNKNOWN).await;
    let world = World::start("refused-type", &text(&[plane.address], "reload: {spread: 0s}\n")).await;
    let relay = &world.relay;
    let subscribe = async || {
        let (mut changes, mut honest) = (0, Client::connect(relay.address, Variant::Delta).await);
        honest.ask(CDS, &[], Some("web"));
        has(&mut honest, &mut changes).await;
        let curious = Client::connect(relay.address, Variant::Delta).await;
        curious.ask(MADE_UP, &["x"], Some("web"));
        until("the type is refused", async || upstreams(relay).await.contains("\"REFUSED\"")).await;
        (honest, curious)
    };
    let (mut honest, mut curious) = subscribe().await;
    let tried = plane.with(MADE_UP);
    world.change(&text(&[plane.address], "reload: {spread: 0s}\nlimits: {linger: 1m}\n")).await;
    for client in [&mut honest, &mut curious] {
        assert_eq!(client.ended().await, Code::Unavailable, "come back");
    }
    let (mut honest, _curious) = subscribe().await;
    plane.change("2");
    has(&mut honest, &mut 0).await;
    until("the next view has tried it", async || plane.with(MADE_UP) > tried).await;
    assert_eq!(plane.shared(MADE_UP), 0, "never on the stream of others");
}

/// Whatever the second stream of a node requests, the server ends either the first stream or the second.
#[tokio::test]
async fn at_a_server_that_takes_one_stream_of_a_node_types_are_tried_on_that() {
    for up in BOTH {
        let (mut plane, relay, mut client, mut first) = with_clusters(up).await;
        client.ask(MADE_UP, &["x"], None);
        let mut ended = Vec::new();
        let end_others = async {
            loop {
                let stream = plane.stream().await;
                stream.end_with(UNKNOWN);
                ended.push(stream);
            }
        };
        tokio::select! {
            () = end_others => {}
            () = say_named(&mut first, MADE_UP, "x") => {}
        }
        assert!(ended.len() >= 2, "the type, and one that the server has taken: {}", ended.len());
        assert_eq!(client.sent().await.set, ["x"], "{up:?}");
        assert!(!upstreams(&relay).await.contains("\"REFUSED\""), "{up:?}");
    }
}

/// One client after another requests types that the server refuses. No change is late, and the shared stream stays open.
#[tokio::test]
async fn changes_come_at_once_while_clients_make_up_types_that_the_server_refuses() {
    let plane = Refusing::start(&[MADE_UP], UNKNOWN).await;
    let relay = relay(plane.address, "").await;
    let mut honest = Client::connect(relay.address, Variant::Delta).await;
    honest.ask(CDS, &[], Some("web"));
    has(&mut honest, &mut 0).await;
    let quiet = Refusing::start(&[MADE_UP], UNKNOWN).await;
    let quiet_relay = super::relay(quiet.address, "").await;
    let mut undisturbed = Client::connect(quiet_relay.address, Variant::Delta).await;
    undisturbed.ask(CDS, &[], Some("web"));
    has(&mut undisturbed, &mut 0).await;
    let (mut curious, mut late) = (Vec::new(), Vec::new());
    let change = async |of: &Refusing, client: &mut Client, version: &str| {
        let begun = std::time::Instant::now();
        of.change(version);
        has(client, &mut 0).await;
        begun.elapsed()
    };
    for version in 2..10 {
        let version = version.to_string();
        let without = change(&quiet, &mut undisturbed, &version).await;
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(MADE_UP, &["x"], Some("web"));
        curious.push(client);
        let beside = change(&plane, &mut honest, &version).await;
        late.extend((beside >= 2 * without + Duration::from_millis(500)).then_some((without, beside)));
    }
    assert!(late.len() <= 2, "a busy machine is late now and then; each client would be: {late:?}");
    let streams = plane.with(CDS);
    assert!(streams <= 2, "the stream of all was never lost: {streams}");
}
