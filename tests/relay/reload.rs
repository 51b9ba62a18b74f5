//! A configuration file that changes while the relay runs.

use std::time::Instant;

use tokio::sync::oneshot;
use weir::reload::{ReloadControl, ReloadReport};
use weir_core::proto::node::Node;

use super::certificates::{Authority, Identity, certificate};
use super::client::PATIENCE;
use super::client_tls::{Connecting, VERSIONS};
use super::*;
use weir_testkit::folder::Folder;

/// A relay with a configuration file, and the control that reloads it.
pub(super) struct World {
    pub relay: Relay,
    pub reloads: ReloadControl,
    /// All addresses that are not Unix sockets.
    pub addresses: Vec<SocketAddr>,
    pub folder: Folder,
    /// Dropping it makes the relay drain.
    pub stop: Option<oneshot::Sender<()>>,
}

impl World {
    pub async fn start(name: &str, text: &str) -> Self {
        Self::start_in(Folder::with_short_path(&format!("reload-{name}")), text).await
    }

    pub async fn start_in(folder: Folder, text: &str) -> Self {
        std::fs::write(folder.0.join("relay.yaml"), text).unwrap();
        let config = Config::from_file(&folder.0.join("relay.yaml")).unwrap_or_else(|error| panic!("{error}"));
        let mut app = bind_with_brakes(config).await.unwrap();
        let reloads = app.reloads();
        let (addresses, admin) = (app.addresses(), app.admin_address().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let running = reloads.clone();
        let task =
            tokio::spawn(async move { app.run_with(running, Box::pin(async { drop(stopped.await) })).await.unwrap() });
        Self { relay: Relay::new(addresses[0], admin, task), reloads, addresses, folder, stop: Some(stop) }
    }

    pub fn write(&self, text: &str) {
        std::fs::write(self.folder.0.join("relay.yaml"), text).unwrap();
    }

    pub async fn change(&self, text: &str) -> ReloadReport {
        self.write(text);
        self.reloads.reload().await.unwrap()
    }

    pub async fn post_reload(&self) -> (u16, String) {
        let request =
            "POST /config/reload HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        exchange(tokio::net::UnixStream::connect(self.folder.0.join("admin.sock")).await.unwrap(), request).await
    }

    pub async fn metric(&self, name: &str) -> f64 {
        metric(&self.relay, name).await
    }
}

pub(super) fn text(servers: &[SocketAddr], rest: &str) -> String {
    let servers: Vec<_> = servers.iter().map(|at| format!("{{uri: 'http://{at}', variant: delta}}")).collect();
    format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0', socket: admin.sock}}\nviews: {{key: [cluster]}}\n\
         upstream: {{servers: [{}]}}\nbrakes: {{enabled: false}}\ndrain: {{grace: 0s, spread: 0s}}\n{rest}",
        servers.join(", ")
    )
}

pub(super) const AT_ONCE: &str = "reload: {spread: 0s}\n";

/// Waits until a `*` set is settled, so that it may be handed over to the next view.
pub(super) async fn is_settled(relay: &Relay) {
    until("the set is settled", async || {
        let upstreams = get(relay.admin, "/upstreams").await;
        ["settled", "complete"].iter().any(|known| upstreams.contains(&format!("\"completeness\": \"{known}\"")))
    })
    .await;
}

/// Requests with the version that the client has, as a client does that reconnects, and states nothing else.
fn come_back(client: &Client, version: &str) {
    let Client::Sotw(requests, _) = client else { panic!("a SotW client") };
    let request = DiscoveryRequest {
        node: client::node("web"),
        type_url: CDS.into(),
        version_info: version.into(),
        ..DiscoveryRequest::default()
    };
    requests.send(request).unwrap();
}

#[tokio::test]
async fn a_dry_run_says_what_a_reload_would_do_and_does_nothing() {
    let plane = Plane::start(&BOTH).await;
    let world = World::start("dry", &text(&[plane.address], AT_ONCE)).await;
    let socket = format!("unix:{}", world.folder.0.join("admin.sock").display());
    let run = async |more: &[&str]| super::status::weir(&[&["reload", "--admin", &socket], more].concat()).await;
    let linger = async || {
        let page: serde_json::Value = serde_json::from_str(&get(world.relay.admin, "/config").await).unwrap();
        assert_eq!(page["error"], serde_json::Value::Null);
        page["config"]["limits"]["linger"].as_str().unwrap().to_owned()
    };
    world.write(&text(&[plane.address], "reload: {spread: 0s}\nlimits: {linger: 7s, header_bytes: 8KiB}\n"));
    let (code, out, error) = run(&["--dry-run"]).await;
    assert_eq!((code, error.as_str()), (0, ""));
    assert_eq!(out, "would change: limits.linger\nwould wait for a restart: limits.header_bytes\n");
    let (_, foretold, _) = run(&["--dry-run", "-o", "json"]).await;
    assert_eq!(linger().await, "30s");
    let (code, done, _) = run(&["-o", "json"]).await;
    assert_eq!((code, done), (0, foretold));
    assert_eq!(linger().await, "7s");
    world.write("listen: []\n");
    let (code, out, error) = run(&["--dry-run"]).await;
    assert!(code == 1 && out.is_empty() && error.starts_with("error: ") && error.contains("listen"), "{error}");
    assert_eq!(linger().await, "7s", "and the fault is not taken for one of a reload");
}

#[tokio::test]
async fn an_active_server_that_is_taken_out_takes_no_resource_with_it_before_another_has_spoken() {
    let (mut before, mut after) = (Plane::start(&BOTH).await, Plane::start(&BOTH).await);
    let world = World::start("server", &text(&[before.address], AT_ONCE)).await;
    let mut client = Client::connect(world.relay.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let stream = before.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    is_settled(&world.relay).await;

    let report = world.change(&text(&[after.address], AT_ONCE)).await;
    assert_eq!(report, ReloadReport { changed: vec!["upstream.servers".into()], pending: vec![] });
    let (code, message) = client.end().await;
    assert_eq!((code, &*message), (Code::Unavailable, "the configuration of the relay has changed; reconnect"));

    // The next server is silent. A client that comes back keeps its resources, and a new client gets them.
    let mut back = Client::connect(world.relay.address, Variant::Sotw).await;
    come_back(&back, &sent.version);
    let stream = after.stream().await;
    let mut fresh = Client::connect(world.relay.address, Variant::Delta).await;
    fresh.ask(CDS, &[], Some("web"));
    assert_eq!(fresh.sent().await.set, ["a", "b"]);
    let upstreams = get(world.relay.admin, "/upstreams").await;
    assert!(upstreams.contains("\"unknown\": 2"), "what is from no server of the plan: {upstreams}");

    let one = [("a", "1")];
    say(&stream, "7", &one, &one, &["b"]);
    assert_eq!(back.sent().await.set, ["a"], "by the word of the next server");
    assert_eq!(fresh.sent().await.removed, ["b"]);
    until("the first server is left", async || {
        !get(world.relay.admin, "/upstreams").await.contains(&before.address.to_string())
    })
    .await;
}

/// Removals that are held back after an outage end with their view and remove nothing: the server sends them again to the next view, which holds them
/// back too.
#[tokio::test]
async fn what_is_held_after_an_outage_is_no_removal_for_the_view_that_follows() {
    let mut plane = Plane::start(&BOTH).await;
    let with = |rest: &str| {
        let text = text(&[plane.address], &format!("{AT_ONCE}{rest}"));
        let quickly = text.replace("variant: delta}", "variant: delta, backoff: {initial: 10ms, max: 10ms}}");
        quickly.replace("brakes: {enabled: false}", "brakes: {after_outage: 1h}")
    };
    let (before, after) = (with(""), with("limits: {names_per_stream: 100}\n"));
    let world = World::start("after-outage", &before).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    is_settled(&world.relay).await;
    let mut plane = Plane::start_at(plane.kill().await, &BOTH).await;
    let mut stream = plane.stream().await;
    stream.request().await;
    say(&stream, "2", &[], &[], &["b"]);
    until("it is held", async || get(world.relay.admin, "/waits").await.contains("\"after_outage\"")).await;

    assert_eq!(world.change(&after).await.changed, ["limits.names_per_stream"]);
    assert_eq!(client.ended().await, Code::Unavailable, "and it was sent no removal");
    let mut fresh = Client::connect(world.relay.address, Variant::Delta).await;
    fresh.ask(CDS, &[], Some("web"));
    assert_eq!(fresh.sent().await.set, ["a", "b"]);
    let mut stream = plane.stream().await;
    stream.request().await;
    say(&stream, "3", &[], &[], &["b"]);
    while nonce_of(&stream.request().await) != "3" {}
    let (whole, news) = ([("a", "1"), ("b", "2")], [("b", "2")]);
    say(&stream, "4", &whole, &news, &[]);
    let sent = fresh.sent().await;
    assert_eq!((sent.set, sent.removed), (vec!["b".to_owned()], vec![]), "the server had not said it again");
}

#[tokio::test]
async fn what_has_not_changed_goes_on_and_a_file_with_a_fault_changes_nothing() {
    let mut plane = Plane::start(&BOTH).await;
    let good = text(&[plane.address], AT_ONCE);
    let world = World::start("fault", &good).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;

    let nothing = ReloadReport { changed: vec![], pending: vec![] };
    assert_eq!(world.change(&format!("# another comment\n{good}")).await, nothing);
    let spelled = format!("{good}limits: {{message_bytes: 16MiB}}\n").replace("16MiB", &default_of("message_bytes"));
    assert_eq!(world.change(&spelled).await, nothing, "a default that is spelled out is the same");

    world.write(&format!("{good}limits: {{message_bytes: much}}\nlisten_to: me\n"));
    let error = world.reloads.reload().await.unwrap_err().to_string();
    assert!(error.contains("message_bytes") && error.contains("listen_to"), "every fault at once: {error}");
    assert_eq!(world.metric("weir_config_last_reload_successful").await, 0.0);
    assert_eq!(world.metric("weir_config_reloads_total{result=\"failed\"}").await, 1.0);
    let config = get(world.relay.admin, "/config").await;
    assert!(config.contains("listen_to"), "the reason is shown: {config}");
    let (status, body) = world.post_reload().await;
    assert!(status == 422 && body.contains("message_bytes"), "{status} {body}");

    let news = [("c", "1")];
    say(&stream, "2", &news, &news, &[]);
    assert_eq!(client.sent().await.set, ["c"], "its stream has seen nothing of all this");
    world.write(&good);
    let (status, body) = world.post_reload().await;
    assert!(status == 200 && body.contains("\"changed\": []"), "{status} {body}");
    assert_eq!(world.metric("weir_config_last_reload_successful").await, 1.0);
}

fn default_of(limit: &str) -> String {
    let schema = weir::config::schema();
    schema["properties"]["limits"]["properties"][limit]["default"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn what_needs_a_restart_is_pending_and_the_rest_counts() {
    let mut plane = Plane::start(&BOTH).await;
    let world = World::start("pending", &text(&[plane.address], AT_ONCE)).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(EDS, &["a", "b"], Some("web"));
    let _stream = plane.stream().await;
    let other =
        text(&[plane.address], AT_ONCE).replace("admin: {address: '127.0.0.1:0'", "admin: {address: '127.0.0.1:1'");
    let other = format!("{other}limits: {{names_per_stream: 1, header_bytes: 8KiB}}\n");
    let report = world.change(&other).await;
    assert_eq!(report.changed, ["limits.names_per_stream"]);
    assert_eq!(report.pending, ["admin.address", "limits.header_bytes"]);
    assert_eq!(client.ended().await, Code::Unavailable);
    let mut back = Client::connect(world.relay.address, Variant::Delta).await;
    back.ask(EDS, &["a", "b"], Some("web"));
    assert_eq!(back.ended().await, Code::ResourceExhausted, "the new limit");
    let shown: serde_json::Value = serde_json::from_str(&get(world.relay.admin, "/config").await).unwrap();
    assert_eq!(shown["pending"], serde_json::json!(["admin.address", "limits.header_bytes"]));
    assert_eq!(shown["config"]["limits"]["names_per_stream"], 1);
    assert_eq!(shown["config"]["admin"]["address"], "127.0.0.1:0", "what is in use");
    assert_eq!(world.metric("weir_config_pending_keys").await, 2.0);

    let report = world.change(&text(&[plane.address], AT_ONCE)).await;
    assert_eq!((report.changed, report.pending), (vec!["limits.names_per_stream".to_owned()], vec![]));
}

#[tokio::test]
async fn a_file_that_is_valid_only_with_a_restart_changes_nothing() {
    let plane = Plane::start(&BOTH).await;
    let world = World::start("together", &text(&[plane.address], AT_ONCE)).await;
    let with_type = text(&[plane.address], &format!("{AT_ONCE}types: [{{name: a.B, full_state: true}}]\n"));
    world.write(&with_type.replace("brakes: {enabled: false}", "brakes: {types: [a.B]}"));
    let error = world.reloads.reload().await.unwrap_err().to_string();
    assert!(error.starts_with("valid only with a restart: without the changes that need one (types), "), "{error}");
    assert!(error.contains("brakes.types"), "{error}");
    assert!(!get(world.relay.admin, "/config").await.contains("a.B\""));
}

/// I4: with a thousand streams and changes of the control plane, no client is sent what it has, and none misses a change.
#[tokio::test]
async fn a_thousand_streams_come_over_to_another_configuration() {
    let mut plane = Plane::start(&BOTH).await;
    let spread = "reload: {spread: 2s}\n";
    let world = World::start("thousand", &text(&[plane.address], spread)).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.extend(Client::connect_many(world.relay.address, 50).await);
    }
    clients.iter().for_each(|client| client.ask(CDS, &[], Some("web")));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    for client in &mut clients {
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
    }
    is_settled(&world.relay).await;
    let begun = Instant::now();
    let report = world.change(&text(&[plane.address], &format!("{spread}limits: {{names_per_type: 77}}\n"))).await;
    assert_eq!(report.changed, ["limits.names_per_type"]);
    for client in &mut clients {
        assert_eq!(client.ended().await, Code::Unavailable);
    }
    assert!(begun.elapsed() > Duration::from_secs(1), "spread over the time that is configured");
    let mut back = Vec::new();
    for _ in 0..20 {
        back.extend(Client::connect_many(world.relay.address, 50).await);
    }
    back.iter().for_each(|client| client.ask(CDS, &[], Some("web")));
    for client in &mut back {
        assert_eq!(client.sent().await.set, ["a", "b"]);
    }
    // The second upstream stream uses the same connection.
    let stream = tokio::time::timeout(PATIENCE, plane.stream()).await.unwrap();
    let two = [("a", "2"), ("b", "1")];
    say(&stream, "2", &two, &two, &[]);
    for client in &mut back {
        assert_eq!(client.sent().await.set, ["a"]);
    }
    let connections = format!("weir_upstream_connections{{server=\"http://{}\"}}", plane.address);
    assert_eq!(world.metric(&connections).await, 1.0);
}

#[tokio::test]
async fn a_file_that_is_watched_is_read_when_it_changes() {
    let plane = Plane::start(&BOTH).await;
    let watched = "reload: {watch: true, spread: 0s}\n";
    let world = World::start("watched", &text(&[plane.address], watched)).await;
    world.write(&text(&[plane.address], &format!("{watched}limits: {{names_per_type: 77}}\n")));
    until("the change counts", async || get(world.relay.admin, "/config").await.contains("\"names_per_type\": 77"))
        .await;
    world.write(&text(&[plane.address], "reload: {watch: false}\n"));
    until("it is not watched any more", async || get(world.relay.admin, "/config").await.contains("\"watch\": false"))
        .await;
}

/// The state file has the resources of the configuration that serves.
#[tokio::test]
async fn the_state_file_goes_on_over_a_reload() {
    let mut plane = Plane::start(&BOTH).await;
    let state = format!("{AT_ONCE}state: {{path: state}}\n");
    let world = World::start("state", &text(&[plane.address], &state)).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    is_settled(&world.relay).await;
    world.change(&text(&[plane.address], &format!("{state}limits: {{names_per_type: 77}}\n"))).await;
    assert_eq!(client.ended().await, Code::Unavailable);
    // The next configuration has no client for a while: the file keeps its content.
    is_saved(&world).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    client.sent().await;
    let stream = plane.stream().await;
    let now = [("a", "2"), ("c", "1")];
    say(&stream, "2", &now, &now, &["b"]);
    assert_eq!(client.sent().await.set, ["a", "c"]);
    assert_eq!(client.sent().await.removed, ["b"]);
    is_settled(&world.relay).await;
    is_saved(&world).await;
    let address = plane.kill().await;

    let file = world.folder.0.join("state");
    drop(world.stop);
    let stopped = async {
        while !world.relay.task.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await
        }
    };
    tokio::time::timeout(PATIENCE, stopped).await.expect("the relay does not stop");
    let again = text(&[address], &format!("state: {{path: '{}'}}\n", file.display()));
    let next = World::start("state-next", &again).await;
    let mut client = Client::connect(next.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a", "c"], "of the second configuration");
}

async fn is_saved(world: &World) {
    let then = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    until("everything is saved", async || world.metric("weir_state_current_timestamp_seconds").await > then).await;
}

/// I3: a view begins with the resources that the view before it has when the first client comes, not with those at the time of the reload.
#[tokio::test]
async fn what_changes_after_the_reload_is_not_taken_back_for_those_who_come_later() {
    let mut plane = Plane::start(&BOTH).await;
    let slowly = "reload: {spread: 1h}\n";
    let world = World::start("later", &text(&[plane.address], slowly)).await;
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    is_settled(&world.relay).await;
    world.change(&text(&[plane.address], &format!("{slowly}limits: {{names_per_type: 77}}\n"))).await;
    let now = [("a", "2")];
    say(&stream, "2", &now, &now, &["b"]);
    let sent = client.sent().await;
    assert_eq!(sent.set, ["a"], "its stream is served as before");
    client.ack(CDS, &[], &sent);
    assert_eq!(client.sent().await.removed, ["b"]);
    let mut fresh = Client::connect(world.relay.address, Variant::Sotw).await;
    fresh.ask(CDS, &[], Some("web"));
    assert_eq!(fresh.sent().await.set, ["a"], "the server has said nothing on the new stream");
    let clients = get(world.relay.admin, "/clients").await;
    assert_eq!(clients.matches("\"session\"").count(), 2, "both are shown: {clients}");
    let metrics = get(world.relay.admin, "/metrics").await;
    let series = metrics
        .lines()
        .filter(|line| line.starts_with("weir_view_clients{") || line.starts_with("weir_client_streams{"));
    let series: Vec<_> = series.collect();
    assert_eq!(
        series.len(),
        series.iter().map(|line| line.split(' ').next()).collect::<std::collections::BTreeSet<_>>().len()
    );
}

/// More people read the message of an error than may read the environment.
#[tokio::test]
async fn no_page_shows_a_value_of_the_environment() {
    let plane = Plane::start(&BOTH).await;
    let world = World::start("environment", &text(&[plane.address], AT_ONCE)).await;
    let (name, value) = std::env::vars().find(|(_, value)| value.len() > 8 && value.starts_with('/')).unwrap();
    world.write(&text(&[plane.address], &format!("{AT_ONCE}limits: {{message_bytes: '${{{name}}}'}}\n")));
    let (status, body) = world.post_reload().await;
    assert!(status == 422 && body.contains("message_bytes") && !body.contains(&value), "{body}");
    let config = get(world.relay.admin, "/config").await;
    assert!(config.contains("message_bytes") && !config.contains(&value), "{config}");
}

/// NAME-20: the resources that all views share are handed over too, even without their control plane.
#[tokio::test]
async fn what_all_views_share_is_there_after_a_reload() {
    let mut plane = Plane::start(&BOTH).await;
    let shared = "authorities: {x: {}}, shared_authorities: [x]";
    let text = |rest: &str| {
        text(&[plane.address], &format!("{AT_ONCE}{rest}")).replace("upstream: {", &format!("upstream: {{{shared}, "))
    };
    let (first, second) = (text(""), text("limits: {names_per_type: 77}\n"));
    let world = World::start("shared", &first).await;
    let name = "xdstp://x/envoy.config.cluster.v3.Cluster/a";
    let mut client = Client::connect(world.relay.address, Variant::Delta).await;
    client.ask(CDS, &[name], Some("one"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[(name, "1")], &[]);
    assert_eq!(client.sent().await.set, [name]);
    drop(stream);
    plane.kill().await;
    world.change(&second).await;
    assert_eq!(client.ended().await, Code::Unavailable);
    for cluster in ["one", "other"] {
        let mut back = Client::connect(world.relay.address, Variant::Delta).await;
        back.ask(CDS, &[name], Some(cluster));
        assert_eq!(back.sent().await.set, [name], "{cluster}");
    }
    let metrics = get(world.relay.admin, "/metrics").await;
    let series: Vec<_> = metrics.lines().filter(|line| line.contains("view=\"shared\"")).collect();
    let names: std::collections::BTreeSet<_> = series.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    assert!(!series.is_empty() && series.len() == names.len(), "each series once");
}

#[tokio::test]
async fn what_clients_of_the_configuration_before_the_last_have_is_handed_over_too() {
    let mut plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let limited = |names| text(&[address], &format!("reload: {{spread: 1h}}\nlimits: {{names_per_type: {names}}}\n"));
    let world = World::start("twice", &limited(70)).await;
    let mut client = Client::connect(world.relay.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    is_settled(&world.relay).await;
    drop(stream);
    plane.kill().await;
    for names in [71, 72] {
        assert_eq!(world.change(&limited(names)).await.changed, ["limits.names_per_type"]);
    }
    let mut fresh = Client::connect(world.relay.address, Variant::Delta).await;
    fresh.ask(CDS, &[], Some("web"));
    assert_eq!(fresh.sent().await.set, ["a", "b"]);
}

/// CSDS-1: each request is answered by the configuration in force at the time.
#[tokio::test]
async fn a_status_stream_that_outlives_a_reload_shows_the_clients_of_after_it() {
    let (mut before, mut after) = (Plane::start(&BOTH).await, Plane::start(&BOTH).await);
    let world = World::start("status", &text(&[before.address], AT_ONCE)).await;
    let (requests, mut statuses) = client_status::watch(world.relay.admin).await;
    let mut configs = async |id: &str| {
        requests.send(client_status::of_node(id)).unwrap();
        statuses.message().await.unwrap().unwrap().config.len()
    };
    for (id, plane) in [("early", &mut before), ("late", &mut after)] {
        world.change(&text(&[plane.address], AT_ONCE)).await;
        let mut client = Client::connect(world.relay.address, Variant::Delta).await;
        client.ask_as(&Node { id: id.into(), cluster: "web".into(), ..Node::default() }, CDS, &[]);
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        assert_eq!(client.sent().await.set, ["a", "b"]);
        assert_eq!(configs(id).await, 1, "{id}");
    }
}

#[tokio::test]
async fn other_files_for_tls_are_for_new_clients_and_end_those_who_are_not_trusted_any_more() {
    let [own, first, second] = ["own", "first", "second"].map(Authority::named);
    let mut plane = Plane::start(&BOTH).await;
    let folder = Folder::with_short_path("reload-tls");
    let write = |name: &str, text: &str| std::fs::write(folder.0.join(name), text).unwrap();
    let servers = [own.sign("localhost"), own.sign("localhost")];
    for (at, server) in servers.iter().enumerate() {
        write(&format!("server-{at}.pem"), &server.certificate);
        write(&format!("server-{at}.key"), &server.key);
    }
    write("both.pem", &format!("{}{}", first.pem, second.pem));
    write("second.pem", &second.pem);
    let with = |server: usize, ca: &str| {
        let tls = format!("tls: {{certificate: server-{server}.pem, key: server-{server}.key, client_ca: {ca}}}");
        text(&[plane.address], AT_ONCE).replacen("'127.0.0.1:0'", &format!("'127.0.0.1:0', {tls}"), 1)
    };
    let (before, after, broken) = (with(0, "both.pem"), with(1, "second.pem"), with(1, "none.pem"));
    let world = World::start_in(folder, &before).await;
    let connect = async |identity: &Identity| {
        let (roots, identity) = (own.pem.clone(), Some(identity.clone()));
        let connecting = Connecting { roots, identity, versions: VERSIONS.to_vec(), alpn: "h2" };
        connecting.connect_to(world.relay.address).await.unwrap()
    };
    let (goes, stays) = (first.sign("goes"), second.sign("stays"));
    let mut clients = Vec::new();
    for identity in [&goes, &stays] {
        let client = Client::over_as(connect(identity).await, Variant::Delta).await.expect("no stream");
        client.ask(CDS, &[], Some("web"));
        clients.push(client);
    }
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    for client in &mut clients {
        assert_eq!(client.sent().await.set, ["a", "b"]);
    }
    let shown = async || connect(&stays).await.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    world.write(&broken);
    assert!(world.reloads.reload().await.unwrap_err().to_string().contains("none.pem"));
    assert_eq!(shown().await, certificate(&servers[0].certificate).to_vec(), "nothing has changed");

    let report = world.change(&after).await;
    assert_eq!(report, ReloadReport { changed: vec!["listen.tls".into()], pending: vec![] });
    assert_eq!(shown().await, certificate(&servers[1].certificate).to_vec());
    let [mut goes, mut stays] = <[Client; 2]>::try_from(clients).ok().unwrap();
    assert_eq!(goes.ended().await, Code::Unauthenticated, "its CA is not trusted any more");
    let news = [("a", "2"), ("b", "1")];
    say(&stream, "2", &news, &news, &[]);
    assert_eq!(stays.sent().await.set, ["a"], "its stream goes on");
    let plain = world.change(&text(&[plane.address], AT_ONCE)).await;
    assert_eq!((plain.changed, plain.pending), (vec![], vec!["listen".to_owned()]));
}
