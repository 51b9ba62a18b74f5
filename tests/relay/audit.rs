//! Audits: whether the control plane would send the clients that share a view the same resources (`views.audit`).

use std::sync::{Arc, Mutex};

use prost::Message;
use prost::encoding::{bytes, string};
use serde_json::Value;
use weir_core::proto::node::Node;

use super::reload::World;
use super::*;

/// A relay, two clients of one view, and the stream that identifies itself as the first of them.
struct Scene {
    plane: Plane,
    relay: Relay,
    first: Client,
    second: Client,
    of_view: Stream,
}

impl Scene {
    /// Gives the first client two clusters, and then connects the second one.
    async fn begin(interval: &str) -> Self {
        let mut plane = Plane::start(&[Variant::Sotw]).await;
        let relay = relay(&plane, interval, "").await;
        let first = client(&relay, "one").await;
        let of_view = plane.stream().await;
        say(&of_view, "1", &TWO, &[], &[]);
        let first = answered(first).await;
        let second = answered(client(&relay, "two").await).await;
        Self { plane, relay, first, second, of_view }
    }

    /// Waits for the stream of the next audit, which identifies itself as the second client.
    async fn audit(&mut self) -> Stream {
        let (id, stream) = self.audit_as().await;
        assert_eq!(id, "two");
        stream
    }

    /// Waits for the stream of the next audit, and returns its node id.
    async fn audit_as(&mut self) -> (String, Stream) {
        let mut stream = self.plane.stream().await;
        let request = stream.request().await;
        let shown = Node::decode(&request.node().expect("a node")[..]).unwrap();
        assert_eq!(request.type_url(), CDS);
        (shown.id, stream)
    }

    async fn count(&self, result: &str) -> u64 {
        counted(&self.relay, &format!("weir_audits_total{{result=\"{result}\"}} ")).await
    }

    async fn until_counted(&self, result: &str) {
        until(&format!("an audit is counted: {result}"), async || self.count(result).await > 0).await;
    }

    async fn problem(&self) -> Option<Value> {
        problem(&self.relay).await
    }
}

async fn relay(plane: &Plane, interval: &str, rest: &str) -> Relay {
    run(bind(config_of(plane, interval, rest)).await.unwrap(), std::future::pending())
}

fn config_of(plane: &Plane, interval: &str, rest: &str) -> Config {
    config(plane.address, ", variant: sotw", &format!("{}{rest}\n", views(interval)))
}

/// Returns the configuration of views. Clients that share a view are of one tenant.
fn views(interval: &str) -> String {
    format!(
        "views: {{key: [cluster, tenant], node: member, audit: {{interval: {interval}}}}}\n\
         permissions: [{{name: all, identities: [{{network: 127.0.0.0/8}}], tenant: all, free: [cluster]}}]\n"
    )
}

async fn client(relay: &Relay, id: &str) -> Client {
    let client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask_as(&Node { id: id.into(), cluster: "gateways".into(), ..Node::default() }, CDS, &[]);
    client
}

async fn answered(mut client: Client) -> Client {
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    client
}

async fn counted(relay: &Relay, series: &str) -> u64 {
    let metrics = get(relay.admin, "/metrics").await;
    let count = metrics.lines().find_map(|line| line.strip_prefix(series));
    count.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
}

async fn problem(relay: &Relay) -> Option<Value> {
    let page: Value = serde_json::from_str(&get(relay.admin, "/problems").await).unwrap();
    page["problems"].as_array().unwrap().iter().find(|problem| problem["kind"] == "audit_differs").cloned()
}

/// Returns a cluster with metadata for two filters, in this order.
fn with_metadata(names: [&str; 2]) -> Any {
    let mut metadata = Vec::new();
    for name in names {
        let mut entry = Vec::new();
        string::encode(1, &name.to_owned(), &mut entry);
        bytes::encode(2, &Vec::<u8>::new(), &mut entry);
        bytes::encode(1, &entry, &mut metadata);
    }
    let mut value = Vec::new();
    string::encode(1, &"a".to_owned(), &mut value);
    bytes::encode(25, &metadata, &mut value);
    Any { type_url: CDS.into(), value: value.into() }
}

fn say_resources(stream: &Stream, resources: Vec<Any>) {
    let (version_info, nonce, type_url) = ("9".into(), "9".into(), CDS.into());
    stream.respond(&Response::Sotw(DiscoveryResponse {
        version_info,
        nonce,
        type_url,
        resources,
        ..Default::default()
    }));
}

#[tokio::test]
async fn what_the_control_plane_gives_one_client_otherwise_is_found_with_its_field_and_is_over_when_it_is_equal() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    assert!(scene.problem().await.is_none());
    say(&audit, "1", &[("a", "1"), ("b", "other")], &[], &[]);
    until("it is found", async || scene.problem().await.is_some()).await;
    let found = scene.problem().await.unwrap();
    assert_eq!(found["names"]["first"][0], "CDS b: 1000", "{found:#}");
    assert!(found["reason"].as_str().unwrap().contains("id"), "{found:#}");
    assert!(!found.to_string().contains("other\""), "no values: {found:#}");
    assert_eq!(scene.count("differs").await, 1);
    assert_eq!(counted(&scene.relay, "weir_audit_views_differing ").await, 1);
    assert!(counted(&scene.relay, "weir_audit_received_bytes_total ").await > 0);
    let upstreams: Value = serde_json::from_str(&get(scene.relay.admin, "/upstreams").await).unwrap();
    let shown = &upstreams[0]["audit"];
    assert_eq!((&shown["differences"][0]["name"], &shown["differences"][0]["path"]), (&"b".into(), &"1000".into()));
    assert_eq!(shown["node_fields"], serde_json::json!(["id"]));

    let next = scene.audit().await;
    say(&next, "1", &TWO, &[], &[]);
    until("it is over", async || scene.problem().await.is_none()).await;
    assert_eq!(scene.count("equal").await, 1);
    drop((scene.first, scene.second, scene.of_view));
}

/// The result of another client says nothing about the one that differed.
#[tokio::test]
async fn the_client_that_was_given_something_else_is_asked_for_again_until_it_is_given_the_same() {
    let mut scene = Scene::begin("1s").await;
    let mut others = Vec::new();
    for id in ["three", "four", "five"] {
        others.push(answered(client(&scene.relay, id).await).await);
    }
    let (found, mut audit) = scene.audit_as().await;
    for _ in 0..3 {
        say(&audit, "1", &[("a", "1"), ("b", "other")], &[], &[]);
        let (next, stream) = scene.audit_as().await;
        assert_eq!(next, found);
        assert!(scene.problem().await.is_some());
        audit = stream;
    }
    say(&audit, "1", &TWO, &[], &[]);
    until("it is over", async || scene.problem().await.is_none()).await;
}

#[tokio::test]
async fn a_finding_is_over_when_one_client_is_left() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    say(&audit, "1", &[("a", "1"), ("b", "other")], &[], &[]);
    until("it is found", async || scene.problem().await.is_some()).await;
    drop(scene.second);
    let relay = &scene.relay;
    until("it is over", async || problem(relay).await.is_none()).await;
}

/// Two streams with the same node count as one client.
#[tokio::test]
async fn a_finding_is_over_when_each_client_that_is_left_has_the_shown_node() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    say(&audit, "1", &[("a", "1"), ("b", "other")], &[], &[]);
    until("it is found", async || scene.problem().await.is_some()).await;
    let again = answered(client(&scene.relay, "one").await).await;
    drop(scene.second);
    let relay = &scene.relay;
    until("it is over", async || problem(relay).await.is_none()).await;
    drop((again, scene.first, scene.of_view));
}

/// A relay as the server has both clients in one view, and audits do not ask it as another client.
#[tokio::test]
async fn a_finding_is_over_when_the_server_is_a_relay_by_now() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    say(&audit, "1", &[("a", "1"), ("b", "other")], &[], &[]);
    until("it is found", async || scene.problem().await.is_some()).await;
    let Scene { plane, relay, first, second, of_view } = scene;
    let address = plane.kill().await;
    drop((audit, of_view));
    let mut plane = Plane::relay_at(address, &[Variant::Sotw]).await;
    let of_view = plane.stream().await;
    say(&of_view, "1", &TWO, &[], &[]);
    until("it is over", async || problem(&relay).await.is_none()).await;
    drop((first, second));
}

#[tokio::test]
async fn another_order_of_maps_and_of_resources_is_no_difference() {
    let mut scene = Scene::begin("1s").await;
    let other = || cluster("b", "1");
    say_resources(&scene.of_view, vec![with_metadata(["x", "y"]), other()]);
    let sent = scene.first.sent().await;
    scene.first.ack(CDS, &[], &sent);
    let audit = scene.audit().await;
    say_resources(&audit, vec![other(), with_metadata(["y", "x"])]);
    scene.until_counted("equal").await;
    assert_eq!((scene.count("differs").await, scene.problem().await), (0, None));
}

#[tokio::test]
async fn what_travels_beside_a_body_is_compared() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    let metadata = Some(b"\x0a\x03\x0a\x01k".to_vec().into());
    let wrapper = Resource { name: "b".into(), resource: Some(cluster("b", "1")), metadata, ..Default::default() };
    let wrapped = Any {
        type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(),
        value: wrapper.encode_to_vec().into(),
    };
    say_resources(&audit, vec![cluster("a", "1"), wrapped]);
    until("it is found", async || scene.problem().await.is_some()).await;
    let found = scene.problem().await.unwrap();
    assert_eq!(found["names"]["first"][0], "CDS b: wrapper.metadata", "{found:#}");
}

/// The server has sent a change to one of the clients first.
#[tokio::test]
async fn a_change_that_reaches_the_view_later_is_no_difference() {
    let mut scene = Scene::begin("10s").await;
    let mut audit = scene.audit().await;
    say(&audit, "2", &[("a", "2"), ("b", "1")], &[], &[]);
    loop {
        if matches!(audit.request().await, Request::Sotw(request) if request.response_nonce == "2") {
            break;
        }
    }
    // The first of two comparisons that are ten seconds apart is made now. It counts nothing.
    let found = tokio::time::timeout(Duration::from_secs(1), scene.until_counted("differs")).await;
    assert!(found.is_err() && scene.problem().await.is_none(), "one comparison has counted");
    say(&scene.of_view, "2", &[("a", "2"), ("b", "1")], &[], &[]);
    scene.until_counted("equal").await;
    assert_eq!((scene.count("differs").await, scene.problem().await), (0, None));
}

#[tokio::test]
async fn an_audit_whose_member_leaves_says_nothing() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    drop(scene.second);
    let relay = &scene.relay;
    until("it has left", async || get(relay.admin, "/clients").await.contains("\"open\": 1")).await;
    say(&audit, "1", &[("a", "other")], &[], &[]);
    until("it has ended", async || counted(relay, "weir_audits_total{result=\"unfinished\"} ").await > 0).await;
    assert!(problem(relay).await.is_none());
}

#[tokio::test]
async fn an_audit_whose_stream_the_server_ends_says_nothing() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    audit.end_with(3);
    scene.until_counted("unfinished").await;
    assert_eq!((scene.count("differs").await, scene.problem().await), (0, None));
}

#[tokio::test]
async fn an_audit_that_is_sent_without_end_is_ended() {
    let mut scene = Scene::begin("1s").await;
    let audit = scene.audit().await;
    let large = "x".repeat(1 << 20);
    for number in 0..4 {
        say(&audit, "1", &[("a", large.as_str()), ("b", number.to_string().as_str())], &[], &[]);
    }
    scene.until_counted("unfinished").await;
    assert_eq!(scene.count("differs").await, 0);
}

#[tokio::test]
async fn there_is_no_audit_on_a_fallback() {
    let away = Plane::start(&[Variant::Sotw]).await.kill().await;
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let servers = format!(", variant: sotw}}, {{uri: 'http://{}', variant: sotw", plane.address);
    let relay = run(bind(config(away, &servers, &views("200ms"))).await.unwrap(), std::future::pending());
    let first = client(&relay, "one").await;
    let of_view = plane.stream().await;
    say(&of_view, "1", &TWO, &[], &[]);
    let _clients = (answered(first).await, answered(client(&relay, "two").await).await);
    no_stream_for(&mut plane, &relay).await;
}

#[tokio::test]
async fn there_is_no_audit_while_a_brake_holds() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let config = config_of(&plane, "200ms", "brakes: {count: 1, share: 10}");
    let relay = run(bind_with_brakes(config).await.unwrap(), std::future::pending());
    let first = client(&relay, "one").await;
    let of_view = plane.stream().await;
    say(&of_view, "1", &TWO, &[], &[]);
    let _first = answered(first).await;
    say(&of_view, "2", &TWO[..1], &[], &[]);
    let held = "weir_brake_held_removals{type=\"envoy.config.cluster.v3.Cluster\"} ";
    until("a removal is held", async || counted(&relay, held).await == 1).await;
    let _second = answered(client(&relay, "two").await).await;
    no_stream_for(&mut plane, &relay).await;
}

/// Meanwhile the view differs from its server's last response, so another client's resources cannot be compared with it.
#[tokio::test]
async fn there_is_no_audit_while_removals_wait_after_an_outage_and_there_is_one_after_that() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let config = config_of(&plane, "200ms", "brakes: {after_outage: 1h}");
    let relay = run(bind_with_brakes(config).await.unwrap(), std::future::pending());
    let first = client(&relay, "one").await;
    let of_view = plane.stream().await;
    say(&of_view, "1", &TWO, &[], &[]);
    let _first = answered(first).await;
    let mut plane = Plane::start_at(plane.kill().await, &[Variant::Sotw]).await;
    let of_view = plane.stream().await;
    say(&of_view, "2", &TWO[..1], &[], &[]);
    until("a removal waits", async || waiting_after_outage(&relay).await == 1).await;
    let _second = answered(client(&relay, "two").await).await;
    no_stream_for(&mut plane, &relay).await;
    say(&of_view, "3", &TWO, &[], &[]);
    let audit = plane.stream().await;
    say(&audit, "3", &TWO, &[], &[]);
    until("it finds nothing", async || counted(&relay, "weir_audits_total{result=\"equal\"} ").await > 0).await;
    assert_eq!((waiting_after_outage(&relay).await, problem(&relay).await), (0, None));
}

async fn waiting_after_outage(relay: &Relay) -> usize {
    let page: Value = serde_json::from_str(&get(relay.admin, "/waits").await).unwrap();
    page["oldest"].as_array().unwrap().iter().filter(|row| row["wait"] == "after_outage").count()
}

/// The clients stay with the earlier configuration for long, and so does the audit.
#[tokio::test]
async fn an_audit_that_is_under_way_when_a_reload_ends_audits_enters_nothing() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let address = plane.address;
    let text = |interval: &str| {
        format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nreload: {{spread: 1h}}\n\
             drain: {{grace: 0s, spread: 0s}}\nupstream: {{servers: [{{uri: 'http://{address}', variant: sotw}}]}}\n{}",
            views(interval)
        )
    };
    let world = World::start("audit", &text("1s")).await;
    let first = client(&world.relay, "one").await;
    let of_view = plane.stream().await;
    say(&of_view, "1", &TWO, &[], &[]);
    let _clients = (answered(first).await, answered(client(&world.relay, "two").await).await);
    let audit = plane.stream().await;
    world.change(&text("0s")).await;
    say(&audit, "1", &[("a", "1"), ("b", "other")], &[], &[]);
    let differs = "weir_audits_total{result=\"differs\"} ";
    until("it has ended", async || counted(&world.relay, differs).await == 1).await;
    assert_eq!((counted(&world.relay, "weir_audit_views_differing ").await, problem(&world.relay).await), (0, None));
}

/// Answers each stream as it comes, and gives the client `two` another cluster than others. Returns the ids that streams show, in order.
fn answering_each(mut plane: Plane) -> Arc<Mutex<Vec<String>>> {
    let shown = Arc::<Mutex<Vec<String>>>::default();
    let seen = shown.clone();
    tokio::spawn(async move {
        while let Some(mut stream) = plane.streams.recv().await {
            let seen = seen.clone();
            tokio::spawn(async move {
                let Some(first) = stream.requests.recv().await else { return };
                let id = Node::decode(&first.node().expect("a node")[..]).unwrap().id;
                let own = if id == "two" { [("a", "1"), ("b", "other")] } else { TWO };
                say(&stream, "1", &own, &[], &[]);
                seen.lock().unwrap().push(id);
                while stream.requests.recv().await.is_some() {}
            });
        }
    });
    shown
}

/// A reload moves clients one by one, and until all are moved both configurations have the view. The new one does not have all of its clients: a
/// finding is not over because it has one, and what it has is not audited.
#[tokio::test]
async fn while_a_reload_moves_the_clients_of_a_view_its_finding_stays_and_no_audit_of_it_begins() {
    let plane = Plane::start(&[Variant::Sotw]).await;
    let address = plane.address;
    let text = |rest: &str| {
        format!(
            "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nreload: {{spread: 1h}}\n\
             brakes: {{enabled: false}}\ndrain: {{grace: 0s, spread: 0s}}\n\
             upstream: {{servers: [{{uri: 'http://{address}', variant: sotw}}]}}\n{}{rest}",
            views("1s")
        )
    };
    let shown = answering_each(plane);
    let world = World::start("audit-moves", &text("")).await;
    let relay = &world.relay;
    let first = answered(client(relay, "one").await).await;
    let second = answered(client(relay, "two").await).await;
    until("it is found", async || problem(relay).await.is_some()).await;

    world.change(&text("limits: {names_per_stream: 100}\n")).await;
    let moved = answered(client(relay, "two").await).await;
    drop(second);
    tokio::time::sleep(Duration::from_secs(1)).await; // twenty looks at the views
    assert!(problem(relay).await.is_some(), "the other client is where it was");
    let third = answered(client(relay, "three").await).await;
    tokio::time::sleep(Duration::from_secs(2)).await; // two intervals
    let ids = || shown.lock().unwrap().clone();
    assert!(!ids().contains(&"three".to_owned()), "an audit has begun: {:?}", ids());

    drop(first);
    until("all are moved, and it is audited", async || ids().contains(&"three".to_owned())).await;
    drop((moved, third));
}

/// Checks that no audit begins in several intervals.
async fn no_stream_for(plane: &mut Plane, relay: &Relay) {
    let stream = tokio::time::timeout(Duration::from_secs(1), plane.streams.recv()).await;
    assert!(stream.is_err(), "an audit has begun");
    for result in ["equal", "differs", "unfinished"] {
        assert_eq!(counted(relay, &format!("weir_audits_total{{result=\"{result}\"}} ")).await, 0);
    }
}
