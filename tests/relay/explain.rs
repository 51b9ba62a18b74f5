//! Why a client has a resource, or lacks it, in situations that are made on purpose.

use serde_json::Value;

use weir_core::protocol::options::ProtocolOptions;

use super::client::Told;
use super::driver::{Connection, everything};
use super::evidence::{relay_with_options, servers};
use super::unix::Folder;
use super::void::listener;
use super::*;

/// The chain for a resource of one client.
struct Asked<'a> {
    relay: &'a Relay,
    client: &'a str,
    kind: &'a str,
    name: &'a str,
}

impl Asked<'_> {
    async fn page(&self) -> Value {
        let Self { relay, client, kind, name } = self;
        let (status, page) = probe(relay.admin, &format!("/explain?client={client}&type={kind}&name={name}")).await;
        if status != 200 {
            return Value::Null; // the client is not there yet
        }
        serde_json::from_str::<Value>(&page).unwrap()[0].take()
    }

    /// Waits until the chain has this verdict and exactly these reasons.
    async fn is(&self, verdict: &str, codes: &[&str]) -> Value {
        let seen = std::sync::Mutex::new(Vec::new());
        let looking = async {
            loop {
                let page = self.page().await;
                if page["verdict"] == verdict && codes_of(&page) == codes {
                    return page;
                }
                let chain = format!("{} {:?}", page["verdict"], codes_of(&page));
                note(&mut seen.lock().unwrap(), chain);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let found = tokio::time::timeout(client::PATIENCE, looking).await;
        found.unwrap_or_else(|_| panic!("expected {verdict} {codes:?}, saw {:#?}", seen.lock().unwrap()))
    }
}

fn note(seen: &mut Vec<String>, chain: String) {
    if seen.last() != Some(&chain) {
        seen.push(chain);
    }
}

fn codes_of(page: &Value) -> Vec<&str> {
    page["reasons"].as_array().into_iter().flatten().map(|reason| reason["code"].as_str().unwrap()).collect()
}

/// Returns the text of a reason.
fn text<'a>(page: &'a Value, code: &str) -> &'a str {
    reason(page, code)["text"].as_str().unwrap()
}

/// Checks that the text of a reason has the words by which docs/operations.md says what to do about it.
fn advised(page: &Value, code: &str, quoted: &str) {
    assert!(text(page, code).contains(quoted), "{page:#}");
    let runbook = std::fs::read_to_string("docs/operations.md").unwrap();
    assert!(runbook.contains(&format!("`{quoted}`")), "{quoted} is not in docs/operations.md");
}

fn reason<'a>(page: &'a Value, code: &str) -> &'a Value {
    let reasons = page["reasons"].as_array().unwrap();
    reasons.iter().find(|reason| reason["code"] == code).unwrap_or_else(|| panic!("no {code} in {page:#}"))
}

fn cluster_of<'a>(relay: &'a Relay) -> impl Fn(&'a str) -> Asked<'a> + 'a {
    move |name| Asked { relay, client: "test", kind: "clusters", name }
}

const ACTIVE: &str = "server_active";
const STAR: &str = "subscribed_by_wildcard";

/// A relay, its control plane, and a delta client with a wildcard that was sent two clusters.
async fn two_clusters(rest: &str) -> (Relay, Plane, Stream, Client, Told) {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let config = config(plane.address, ", variant: delta", &format!("views: {{key: [cluster]}}\n{rest}"));
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    (relay, plane, stream, client, sent)
}

#[tokio::test]
async fn a_resource_on_its_way_to_a_client_is_unknown_then_unacked_then_acked() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let of = cluster_of(&relay);
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let page = of("a").is("unknown", &[STAR, "server_unheard", "unknown", "not_sent", "set_incomplete"]).await;
    advised(&page, "set_incomplete", "the set is not complete enough for this client");
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    let page = of("a").is("unacked", &[STAR, ACTIVE, "present", "sent", "unacked"]).await;
    assert!(text(&page, "present").contains(&format!("from http://{}", plane.address)), "{page:#}");
    assert_eq!((&page["node"], &page["type"]), (&"test".into(), &"envoy.config.cluster.v3.Cluster".into()));
    advised(&page, "unacked", "the client has not answered the newest reply of the type");
    client.ack(CDS, &[], &sent);
    let page = of("a").is("acked", &[STAR, ACTIVE, "present", "sent", "acked"]).await;
    advised(&page, "sent", "the client was sent this version");
    advised(&page, "acked", "the client has accepted the newest reply of the type");
}

#[tokio::test]
async fn a_wildcard_set_is_unknown_then_there_as_far_as_it_is_known_and_has_what_the_client_lacks() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let of = cluster_of(&relay);
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    of("*").is("unknown", &[STAR, "server_unheard", "set_unknown", "set_incomplete"]).await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    of("*").is("unacked", &[STAR, ACTIVE, "set_settled", "unacked"]).await;
    client.ack(CDS, &[], &sent);
    let page = of("*").is("acked", &[STAR, ACTIVE, "set_settled", "acked"]).await;
    assert!(text(&page, "set_settled").ends_with("; 2 cached"), "{page:#}");
    assert_eq!((&page["name"], &page["waits"][0]["wait"]), (&"*".into(), &"set".into()), "its end: {page:#}");
    let endpoints = Asked { kind: "endpoints", ..of("*") };
    let page = endpoints.page().await;
    assert_eq!((&page["verdict"], codes_of(&page)[0]), (&"not_subscribed".into(), "type_not_requested"));
}

#[tokio::test]
async fn a_nack_is_of_the_resource_that_its_reason_names() {
    let (relay, _plane, _stream, client, sent) = two_clusters("").await;
    let of = cluster_of(&relay);
    client.refuse_for(CDS, &[], &sent, "Error adding/updating cluster(s) a: no hosts");
    let page = of("a").is("nacked", &[STAR, ACTIVE, "present", "sent", "nacked"]).await;
    assert!(
        text(&page, "nacked").ends_with("cluster(s) a: no hosts") && reason(&page, "nacked")["since_seconds"].is_f64()
    );
    advised(&page, "nacked", "the client rejected a reply");
    of("b").is("nacked", &[STAR, ACTIVE, "present", "sent", "type_nacked"]).await;
}

#[tokio::test]
async fn what_a_client_does_not_subscribe_to_is_said_with_the_name_that_it_may_mean() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["payments"], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[("payments", "1")], &[]);
    let of = cluster_of(&relay);
    of("payments").is("unacked", &["subscribed_by_name", ACTIVE, "present", "sent", "unacked"]).await;
    let page = of("paymnets").is("not_subscribed", &["not_subscribed", ACTIVE, "unknown"]).await;
    assert!(text(&page, "not_subscribed").ends_with("; it subscribes to payments"), "{page:#}");
    advised(&page, "not_subscribed", "the client does not subscribe to the name");
    assert!(text(&page, "unknown").ends_with("; payments exists"), "{page:#}");
    let of_listeners = Asked { kind: "listeners", ..of("payments") };
    of_listeners.is("not_subscribed", &["type_not_requested", ACTIVE, "unknown"]).await;
}

#[tokio::test]
async fn a_name_that_was_requested_is_waited_for_until_its_server_speaks_or_is_silent() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let timer = |options: &mut ProtocolOptions| options.upstream.resource_timer = Duration::from_secs(2);
    let relay = relay_with_options(&servers(&[plane.address], ", variant: delta"), "", timer).await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["here", "gone", "silent"], Some("web"));
    let stream = plane.stream().await;
    let of = cluster_of(&relay);
    let waits = ["subscribed_by_name", "server_unheard", "requested", "unknown", "not_sent"];
    let page = of("gone").is("unknown", &waits).await;
    assert!(text(&page, "requested").contains("was asked for the name"), "{page:#}");
    say(&stream, "1", &[], &[("here", "1")], &["gone"]);
    of("here").is("unacked", &["subscribed_by_name", ACTIVE, "present", "sent", "unacked"]).await;
    let told = ["subscribed_by_name", ACTIVE, "server_reports_absent", "absent", "removal_sent", "unacked"];
    let page = of("gone").is("absent", &told).await;
    assert!(text(&page, "absent").contains("its server says so"), "{page:#}");
    let silent = ["subscribed_by_name", ACTIVE, "server_silent", "absent", "removal_sent", "unacked"];
    let page = of("silent").is("absent", &silent).await;
    assert!(text(&page, "absent").contains("was silent about it"), "{page:#}");
}

#[tokio::test]
async fn a_server_that_is_away_is_said_to_be_and_the_cache_is_served() {
    let (relay, plane, stream, client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    drop((plane.kill().await, stream));
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, "servers_down", "present", "sent", "acked"]).await;
    advised(&page, "servers_down", "no server is reachable");
    let last_error = async || {
        let report: Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
        report[0]["streams"][0]["last_error"].as_str().unwrap_or_default().to_owned()
    };
    until("the reason is the last error of the server", async || {
        let (page, error) = (of("a").page().await, last_error().await);
        !error.is_empty() && text(&page, "servers_down").contains(&format!("({error})"))
    })
    .await;
    client.ask(EDS, &["e"], None);
    let endpoints = Asked { kind: "endpoints", ..of("e") };
    endpoints.is("unknown", &["subscribed_by_name", "servers_down", "unknown", "not_sent"]).await;
}

#[tokio::test]
async fn a_fallback_server_is_named_with_the_reason() {
    let nowhere = super::scripts::any_address().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay_with_options(&servers(&[nowhere, plane.address], ", variant: delta"), "", |_| {}).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    let page = cluster_of(&relay)("a").is("unacked", &[STAR, "fallback_active", "present", "sent", "unacked"]).await;
    assert!(text(&page, "fallback_active").contains("Connection refused"), "{page:#}");
    advised(&page, "fallback_active", "a fallback server is active");
}

#[tokio::test]
async fn a_server_that_is_unreachable_while_all_is_cached_is_said_to_be() {
    let (mut plane, other) = (Plane::start(&[Variant::Delta]).await, Plane::start(&[Variant::Delta]).await);
    let upstream = servers(&[plane.address, other.address], ", variant: delta");
    let relay = relay_with_options(&upstream, "", |_| {}).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    drop((plane.kill().await, stream));
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, "server_unreachable", "present", "sent", "acked"]).await;
    advised(&page, "server_unreachable", "the server is unreachable");
}

fn say_listener(stream: &Stream, nonce: &str, cluster: &str, content: &str) {
    let (type_url, nonce) = (LDS.into(), nonce.into());
    let resources = vec![listener("l", cluster, content)];
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
}

#[tokio::test]
async fn what_the_order_of_changes_keeps_back_is_said_with_what_it_waits_for() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("limits: {reference_hold: 1h}\n").await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    until("listeners are asked for", async || get(relay.admin, "/upstreams").await.contains("Listener")).await;
    say_listener(&stream, "2", "a", "1");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    let of = cluster_of(&relay);

    say(&stream, "3", &[], &[], &["a"]);
    let deferred = [STAR, ACTIVE, "removal_deferred", "present", "sent", "acked"];
    let page = of("a").is("acked", &deferred).await;
    let until = reason(&page, "removal_deferred")["until_seconds"].as_f64().unwrap();
    assert!((3_000.0..=3_600.0).contains(&until), "{page:#}");
    advised(&page, "removal_deferred", "it stays while something refers to it");
}

#[tokio::test]
async fn a_change_of_routing_waits_for_clusters_that_are_named() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    until("listeners are asked for", async || get(relay.admin, "/upstreams").await.contains("Listener")).await;
    say_listener(&stream, "2", "a", "1");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    // The set of clusters has to be settled: until then, nothing is known to be missing from it.
    until("the set is settled", async || get(relay.admin, "/upstreams").await.contains("\"settled\"")).await;
    let listeners = Asked { kind: "listeners", ..cluster_of(&relay)("l") };
    say_listener(&stream, "3", "missing", "2");
    // It waits for as long as the server goes on.
    for version in 4.. {
        let version = version.to_string();
        say(&stream, &version, &[], &[("b", version.as_str())], &[]);
        let page = listeners.page().await;
        if codes_of(&page) == [STAR, ACTIVE, "change_deferred", "present", "sent", "acked"] {
            assert!(text(&page, "change_deferred").ends_with("missing clusters: missing"), "{page:#}");
            advised(&page, "change_deferred", "which waits for missing clusters");
            break;
        }
        assert!(text(&page, "present").contains("version"), "{page:#}");
    }
}

#[tokio::test]
async fn what_is_held_after_an_outage_is_said() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let rest = "views: {key: [cluster]}\nbrakes: {after_outage: 1h}\n";
    let more = ", variant: delta, backoff: {initial: 10ms, max: 10ms}";
    let relay = run(App::bind(config(plane.address, more, rest)).await.unwrap(), std::future::pending());
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let all = [("a", "1"), ("b", "1")];
    say(&stream, "1", &all, &all, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    until("the set is settled", async || get(relay.admin, "/upstreams").await.contains("\"settled\"")).await;
    let mut plane = Plane::start_at(plane.kill().await, &[Variant::Delta]).await;
    let mut stream = plane.stream().await;
    stream.request().await;
    say(&stream, "2", &[], &[], &["a"]);
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, ACTIVE, "after_outage", "present", "sent", "acked"]).await;
    assert!(reason(&page, "after_outage")["until_seconds"].as_f64().unwrap() > 3_000.0, "{page:#}");
    advised(&page, "after_outage", "that is not believed at once");
}

#[tokio::test]
async fn what_a_brake_holds_is_said() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let rest = "views: {key: [cluster]}\nbrakes: {share: 30, count: 2, window: 10m, grace: 1h, empty_grace: 1h}\n";
    let app = App::bind(config(plane.address, ", variant: delta", rest)).await.unwrap();
    let relay = run(app, std::future::pending());
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let all = [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")];
    say(&stream, "1", &all, &all, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    until("the set is settled", async || get(relay.admin, "/upstreams").await.contains("\"settled\"")).await;
    say(&stream, "2", &[], &[], &["a", "b", "c"]);
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, ACTIVE, "braked", "present", "sent", "acked"]).await;
    assert!(reason(&page, "braked")["until_seconds"].as_f64().unwrap() > 3_000.0, "{page:#}");
    advised(&page, "braked", "a brake holds that");
    of("d").is("acked", &[STAR, ACTIVE, "present", "sent", "acked"]).await;
}

#[tokio::test]
async fn a_version_that_cannot_be_used_is_said_with_the_reason() {
    let (relay, _plane, stream, client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    let flaw = Resource { name: "a".into(), version: "9".into(), ..Default::default() };
    let (type_url, nonce) = (CDS.into(), "2".into());
    let resources = vec![flaw];
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
    let of = cluster_of(&relay);
    let page = of("a").is("acked", &[STAR, ACTIVE, "resource_rejected", "present", "sent", "acked"]).await;
    assert!(text(&page, "resource_rejected").contains("no body"), "{page:#}");
    advised(&page, "resource_rejected", "has sent a version that cannot be used");
}

#[tokio::test]
async fn rules_and_names_that_cannot_be_requested_are_said() {
    let rule = "access: [{types: [envoy.config.cluster.v3.Cluster], names: [b], allow_from: [10.0.0.0/8]}]\n";
    let (relay, _plane, _stream, client, sent) = two_clusters(rule).await;
    assert_eq!(sent.set, ["a"]);
    let of = cluster_of(&relay);
    let page = of("b").is("not_allowed", &[STAR, "not_allowed"]).await;
    advised(&page, "not_allowed", "permissions or access rules do not allow this client to have it");
    client.ack(CDS, &[], &sent);
    let name = "xdstp://nobody.example/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    client.ask(EDS, &[name], None);
    let rejected = Asked { kind: "endpoints", ..of("") };
    let rejected = Asked { name, ..rejected };
    let page = rejected.is("rejected", &["name_rejected"]).await;
    assert!(text(&page, "name_rejected").contains("no servers are configured"), "{page:#}");
}

#[tokio::test]
async fn a_name_for_which_there_is_no_room_is_said() {
    let plane = Plane::start(&BOTH).await;
    let rest = "views: {key: [cluster]}\nlimits: {names_per_view: 1}\n";
    let app = crate::bind(config(plane.address, ", variant: delta", rest)).await.unwrap();
    let relay = run(app, std::future::pending());
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["a", "b"], Some("web"));
    let of = cluster_of(&relay);
    until("one of the two has no room", async || {
        let pages = [of("a").page().await, of("b").page().await];
        pages.iter().filter(|page| page["verdict"] == "rejected" && codes_of(page).contains(&"no_room")).count() == 1
    })
    .await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_is_said_to() {
    let _turn = super::HEAVY.lock().await;
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut connection = Connection::open(&relay).await;
    let (requests, response) = connection.stream();
    requests.send(everything()).unwrap();
    let stream = plane.stream().await;
    let names: Vec<_> = (0..60_000).map(|number| format!("cluster-{number:06}")).collect();
    let content = "x".repeat(120);
    let whole: Vec<_> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    say(&stream, "1", &[], &whole, &[]);
    let _unread = response.await.unwrap();
    let of = cluster_of(&relay);
    let page = of("cluster-000000").is("unacked", &[STAR, ACTIVE, "present", "sent", "unread", "unacked"]).await;
    assert!(reason(&page, "unread")["since_seconds"].is_f64(), "{page:#}");
    advised(&page, "unread", "a reply is on its way, and the client's connection has not taken all of it");
    let laggards: Value = serde_json::from_str(&get(relay.admin, "/laggards").await).unwrap();
    assert_eq!((&laggards["clients"][0]["node"], &laggards["clients"][0]["state"]), (&"test".into(), &"STALE".into()));
    assert!(laggards["clients"][0]["unread_seconds"].is_f64(), "{laggards:#}");
}

#[tokio::test]
async fn what_comes_from_disk_is_said_to() {
    let folder = Folder::new("explain-disk");
    let state = format!("state: {{path: {}}}\ndrain: {{grace: 0s, spread: 0s}}\n", folder.0.join("state").display());
    let (relay, plane, _stream, client, sent) = two_clusters(&state).await;
    client.ack(CDS, &[], &sent);
    until("the set is settled", async || get(relay.admin, "/upstreams").await.contains("\"settled\"")).await;
    let settled = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    until("everything is saved", async || {
        let metrics = get(relay.admin, "/metrics").await;
        let current = metrics.lines().find_map(|line| line.strip_prefix("weir_state_current_timestamp_seconds "));
        current.is_some_and(|at| at.parse::<f64>().unwrap() > settled)
    })
    .await;
    let address = plane.kill().await;
    drop(relay);
    let config = || config(address, ", variant: delta", &format!("views: {{key: [cluster]}}\n{state}"));
    let relay = loop {
        // The file is free once the first relay has ended.
        let relay = run(crate::bind(config()).await.unwrap(), std::future::pending());
        if get(relay.admin, "/ready").await.contains("from disk") {
            break relay;
        }
        drop(relay);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    client.sent().await;
    let asked = cluster_of(&relay);
    until("it is from disk", async || codes_of(&asked("a").page().await).contains(&"from_disk")).await;
    assert_eq!(asked("a").page().await["verdict"], "unacked");
}

#[tokio::test]
async fn a_sotw_client_gets_a_change_when_it_has_answered_and_diff_says_what_it_lacks() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let long = |options: &mut ProtocolOptions| options.session.ack_patience = Duration::from_secs(3_600);
    let relay = relay_with_options(&servers(&[plane.address], ", variant: delta"), "", long).await;
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    let sent = client.sent().await;
    say(&stream, "2", &[], &[("a", "2"), ("new", "1")], &[]);
    let of = cluster_of(&relay);
    let page = of("a").is("waiting", &[STAR, ACTIVE, "present", "earlier_sent", "waits_for_ack", "unacked"]).await;
    assert!(reason(&page, "waits_for_ack")["until_seconds"].as_f64().unwrap() > 3_000.0, "{page:#}");
    of("new").is("waiting", &[STAR, ACTIVE, "present", "not_sent", "waits_for_ack"]).await;
    let diff = async || -> Value { serde_json::from_str(&get(relay.admin, "/diff?client=test").await).unwrap() };
    let clusters = diff().await[0]["types"][0].take();
    let list = |names: &[&str]| serde_json::json!({"count": names.len(), "names": names});
    assert_eq!((&clusters["missing"], &clusters["outdated"]), (&list(&["new"]), &list(&["a"])));
    assert_eq!((&clusters["surplus"], &clusters["unknown"]), (&list(&[]), &list(&[])));
    assert_eq!(
        (&clusters["unacked_version"], &clusters["acked_version"]),
        (&sent.version.as_str().into(), &Value::Null)
    );
    client.ack(CDS, &[], &sent);
    let sent = client.sent().await;
    assert_eq!(sent.set, ["a", "b", "new"]);
    client.ack(CDS, &[], &sent);
    of("a").is("acked", &[STAR, ACTIVE, "present", "sent", "acked"]).await;
    let clusters = diff().await[0]["types"][0].take();
    assert_eq!((&clusters["missing"]["count"], &clusters["outdated"]["count"]), (&0.into(), &0.into()));
    assert_eq!(clusters["acked_version"], sent.version.as_str());
}

#[tokio::test]
async fn a_route_waits_for_the_endpoints_of_clusters_that_the_client_was_sent() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let long = |options: &mut ProtocolOptions| options.session.routing_hold = Duration::from_secs(3_600);
    let relay = relay_with_options(&servers(&[plane.address], ", variant: delta"), "", long).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    client.ask(EDS, &["a"], None);
    until("endpoints are asked for", async || get(relay.admin, "/upstreams").await.contains("ClusterLoad")).await;
    say_listener(&stream, "2", "a", "1");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    let mut warming = cluster("a", "2");
    warming.value = [&warming.value[..3], &[0x1a, 4, 0x0a, 2, 0x1a, 0], &warming.value[3..]].concat().into(); // its endpoints come by EDS
    let changed = Resource { name: "a".into(), version: "2".into(), resource: Some(warming), ..Default::default() };
    let (type_url, nonce, resources) = (CDS.into(), "3".into(), vec![changed]);
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
    client.sent().await; // not answered: an Envoy is warming it
    say_listener(&stream, "4", "a", "2");
    let listeners = Asked { kind: "listeners", ..cluster_of(&relay)("l") };
    let page = listeners.is("waiting", &[STAR, ACTIVE, "present", "earlier_sent", "routing_hold", "acked"]).await;
    assert!(reason(&page, "routing_hold")["until_seconds"].as_f64().unwrap() > 3_000.0, "{page:#}");
    advised(&page, "routing_hold", "it waits until the client has the endpoints of clusters that it was sent");
}
