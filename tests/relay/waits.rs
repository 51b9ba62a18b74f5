//! Everything that waits is listed at the admin address, with its bound, and ends.

use serde_json::Value;

use super::evidence::servers;
use super::examples::assert_documented;
use super::log_lines::Lines;
use super::status::weir;
use super::void::listener;
use super::*;

async fn page(relay: &Relay) -> Value {
    serde_json::from_str(&get(relay.admin, "/waits").await).unwrap()
}

/// Returns the oldest wait of a kind.
async fn wait(relay: &Relay, kind: &str) -> Option<Value> {
    let page = page(relay).await;
    page["oldest"].as_array().unwrap().iter().find(|row| row["wait"] == kind).cloned()
}

/// Waits until there is a wait of a kind, and returns it.
async fn waiting(relay: &Relay, kind: &str) -> Value {
    until(&format!("a wait of the kind {kind}"), async || wait(relay, kind).await.is_some()).await;
    wait(relay, kind).await.unwrap()
}

/// Waits until the bound of a wait of a kind is this, and returns the wait. It has none before the server has answered.
async fn bounded(relay: &Relay, kind: &str, seconds: f64) -> Value {
    let is_bounded = async || wait(relay, kind).await.is_some_and(|row| row["bound_seconds"] == seconds);
    until(&format!("a wait of the kind {kind} for at most {seconds} s"), is_bounded).await;
    waiting(relay, kind).await
}

async fn ends(relay: &Relay, kind: &str) {
    until(&format!("the end of all waits of the kind {kind}"), async || wait(relay, kind).await.is_none()).await;
}

async fn oldest(relay: &Relay, kind: &str) -> f64 {
    let start = format!("weir_oldest_wait_seconds{{wait=\"{kind}\"}} ");
    let text = get(relay.admin, "/metrics").await;
    text.lines().find_map(|line| line.strip_prefix(&start)?.parse().ok()).unwrap_or_else(|| panic!("{kind}: {text}"))
}

#[tokio::test]
async fn what_waits_is_listed_with_its_owner_its_bound_and_its_key_until_it_ends() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    // So long that nothing ends before the test has checked it.
    let slow = |options: &mut ProtocolOptions| options.session.ack_patience = Duration::from_secs(600);
    let upstream = servers(&[plane.address], ", variant: delta, backoff: {initial: 10ms, max: 10ms}");
    let relay = relay_with_options(&upstream, "limits: {reference_hold: 10m, resource_timer: 5m}", slow).await;

    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    let set = bounded(&relay, "set", 300.0).await;
    assert_eq!((&set["type"], &set["name"]), (&"envoy.config.cluster.v3.Cluster".into(), &"*".into()));
    assert_eq!(set["key"], "limits.resource_timer");
    say(&stream, "1", &[], &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);

    // A removed cluster stays while a listener refers to it.
    client.ask(LDS, &[], None);
    while stream.request().await.type_url() != LDS {}
    say_listener(&stream, "l", "a");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    say(&stream, "3", &[], &[], &["a"]);
    let removal = waiting(&relay, "removal").await;
    assert_eq!((&removal["name"], &removal["bound_seconds"]), (&"a".into(), &601.0.into()));
    assert_eq!(removal["key"], "limits.reference_hold");
    assert!(removal["session"].is_null(), "the view holds it back for all: {removal:#}");

    // A change waits until the client has answered the last one.
    say(&stream, "4", &[], &[("c", "1")], &[]);
    assert_eq!(client.sent().await.set, ["a", "b", "c"]);
    assert!(wait(&relay, "ack").await.is_none());
    say(&stream, "5", &[], &[("d", "1")], &[]);
    let ack = waiting(&relay, "ack").await;
    let clients: Value = serde_json::from_str(&get(relay.admin, "/clients").await).unwrap();
    assert_eq!(ack["session"], clients["clients"][0]["session"]);
    assert_eq!((&ack["view"], &ack["key"]), (&clients["clients"][0]["view"], &Value::Null));

    // The server does not mention this name.
    client.ask(EDS, &["payments"], None);
    let name = bounded(&relay, "name", 300.0).await;
    assert_eq!((&name["name"], &name["server"]), (&"payments".into(), &format!("http://{}", plane.address).into()));
    assert_eq!(name["beyond"], false);
    until("the age of the name is shown", async || oldest(&relay, "name").await > 0.0).await;
    assert_eq!(oldest(&relay, "brake").await, 0.0);
    assert!(get(relay.admin, "/metrics").await.contains("weir_waits_beyond_bound_total{wait=\"name\"} 0"));
    let explained = probe(relay.admin, "/explain?client=test&type=endpoints&name=payments").await.1;
    let explained: Value = serde_json::from_str(&explained).unwrap();
    let kinds: Vec<_> = explained[0]["waits"].as_array().unwrap().iter().map(|row| row["wait"].clone()).collect();
    assert!(kinds.contains(&"name".into()) && !kinds.contains(&"removal".into()), "{explained:#}");
    let admin = relay.admin.to_string();
    let printed = weir(&["explain", "--client", "test", "endpoints", "payments", "--admin", &admin]).await;
    let line = printed.1.lines().find(|line| line.contains("wait `name`: A requested name")).unwrap_or_default();
    assert!(line.contains("at most 5m") && line.ends_with(", limits.resource_timer)"), "{printed:?}");

    // While the control plane is down a name has no bound, and waiting removals stay: the control plane has to send them again.
    drop((stream, plane));
    let is_away = async || {
        let wait = waiting(&relay, "name").await;
        wait["bound_seconds"].is_null()
            && wait["unbounded"] == "the control plane is away"
            && wait["name"] == "payments"
    };
    until("the name has no bound", is_away).await;
    ends(&relay, "removal").await;
    let is_unbounded = async || wait(&relay, "ladder").await.is_some_and(|row| row["bound_seconds"].is_null());
    until("the ladder waits without a bound", is_unbounded).await;
    assert_eq!(waiting(&relay, "ack").await["bound_seconds"], 600.0, "a client is there");
    drop(client);
    ends(&relay, "ack").await;
}

/// Sends a listener that refers to a cluster.
fn say_listener(stream: &Stream, name: &str, cluster: &str) {
    let resources = vec![listener(name, cluster, "")];
    let response = DeltaDiscoveryResponse { type_url: LDS.into(), nonce: name.into(), resources, ..Default::default() };
    stream.respond(&Response::Delta(response));
}

/// While changes of routing wait, the time of a removal does not run. In this test they come without a pause, or with a shorter one than that time
/// where the machine is busy.
#[tokio::test]
async fn a_wait_beyond_its_bound_is_counted_once_however_often_the_list_is_read() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let upstream = servers(&[plane.address], ", variant: delta");
    let relay = relay_with_options(&upstream, "limits: {reference_hold: 1s}", |_| {}).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    client.sent().await;
    client.ask(LDS, &[], None);
    while stream.request().await.type_url() != LDS {}
    say_listener(&stream, "to-a", "a");
    client.sent().await;
    say_listener(&stream, "changing", "b");
    client.sent().await;
    ends(&relay, "quiet").await;
    say_listener(&stream, "changing", "missing");
    say(&stream, "2", &[], &[], &["a"]);
    let counted = async || metric(&relay, "weir_waits_beyond_bound_total{wait=\"removal\"}").await as u64;
    let change = async || {
        for number in 0.. {
            say_listener(&stream, "changing", &format!("missing{number}"));
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    let look = async || {
        until("it is beyond its bound", async || {
            assert!(counted().await <= 1);
            wait(&relay, "removal").await.is_some_and(|row| row["beyond"] == true)
        })
        .await;
        for _ in 0..5 {
            assert_eq!(counted().await, 1, "the page has counted it, or an earlier reading of the metrics");
            assert!(wait(&relay, "removal").await.is_some_and(|row| row["beyond"] == true));
        }
        problems::appears(relay.admin, "wait_beyond_bound").await;
    };
    tokio::select! {
        () = change() => {}
        () = look() => {}
    }
    ends(&relay, "removal").await;
    problems::goes(relay.admin, "wait_beyond_bound").await;
    assert_eq!(counted().await, 1);
    let logged = lines.with("wait beyond its bound");
    let of_removals = logged.iter().filter(|(_, line)| line.contains("wait=\"removal\""));
    assert_eq!(of_removals.count(), 1, "{logged:?}");
}

#[tokio::test]
async fn removals_for_a_client_that_nacks_its_routing_wait_until_it_accepts_newer_routing() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let slow = |options: &mut ProtocolOptions| options.session.nacked_routing_hold = Duration::from_secs(600);
    let upstream = servers(&[plane.address], ", variant: delta");
    let relay = relay_with_options(&upstream, "limits: {reference_hold: 200ms}", slow).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    while stream.request().await.type_url() != LDS {}
    say_listener(&stream, "l", "a");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);

    // The client NACKs the new listener, and keeps the one that refers to `a`.
    say_listener(&stream, "l", "b");
    let sent = client.sent().await;
    client.refuse(LDS, &sent);
    let nacked = "weir_client_nacks_total{type=\"envoy.config.listener.v3.Listener\"} 1";
    until("the NACK is counted", async || get(relay.admin, "/metrics").await.contains(nacked)).await;
    say(&stream, "2", &[], &[], &["a"]);
    let held = waiting(&relay, "nacked_routing").await;
    assert_eq!((&held["bound_seconds"], &held["key"]), (&600.0.into(), &"limits.reference_hold".into()));
    assert!(held["session"].is_number(), "{held:#}");

    say_listener(&stream, "m", "b");
    let sent = client.sent().await;
    assert_eq!(sent.set, ["m"]);
    client.ack(LDS, &[], &sent);
    let resources = vec![listener("l", "b", "changed")];
    let response = DeltaDiscoveryResponse { type_url: LDS.into(), nonce: "3".into(), resources, ..Default::default() };
    stream.respond(&Response::Delta(response));
    let sent = client.sent().await;
    assert_eq!(sent.set, ["l"], "`m` leaves the client with the earlier `l`");
    client.ack(LDS, &[], &sent);
    assert_eq!(client.sent().await.removed, ["a"]);
    ends(&relay, "nacked_routing").await;
}

#[tokio::test]
async fn the_page_of_waits_has_the_documented_form() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["payments"], Some("web"));
    let _stream = plane.stream().await;
    until("the request is written", async || wait(&relay, "name").await.is_some_and(|row| row["key"].is_string()))
        .await;
    until("its timer runs", async || wait(&relay, "name").await.unwrap()["bound_seconds"] == 15.0).await;
    let page: Value = serde_json::from_str(&get(relay.admin, "/waits").await).unwrap();
    let of_names = |of: &Value, rows: &str| -> Value {
        let rows = of[rows].as_array().unwrap().iter().filter(|row| row["wait"] == "name").cloned();
        rows.collect::<Vec<_>>().into()
    };
    let view = &page["views"][0];
    let views = serde_json::json!([{"view": view["view"], "waits": of_names(view, "waits")}]);
    let shown = serde_json::json!({"views": views, "oldest": of_names(&page, "oldest")});
    assert_eq!(page.as_object().unwrap().len(), 2);
    assert_documented("curl -s 127.0.0.1:19000/waits", &shown.to_string());
}
