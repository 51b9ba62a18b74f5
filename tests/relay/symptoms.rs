//! Symptoms in docs/operations.md that no other test causes, with the output that an operator should check.

use serde_json::{Value, json};

use super::client::PATIENCE;
use super::evidence::servers;
use super::failover::content_of;
use super::holder::{ALL_CLUSTERS, Holder};
use super::life::of_type;
use super::log_lines::Lines;
use super::plane::Answers;
use super::poller::{CLUSTERS, Poller};
use super::*;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

/// Waits until the first view in `/upstreams` satisfies a condition.
async fn view(relay: &Relay, what: &str, holds: impl Fn(&Value) -> bool) {
    let shown = async || {
        let report: Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
        report.get(0).is_some_and(&holds)
    };
    until(what, shown).await;
}

async fn has_metric(relay: &Relay, start: &str, value: u64) {
    let end = format!(" {value}");
    let is = |line: &str| line.starts_with(start) && line.ends_with(&end);
    until(&format!("{start} {value}"), async || get(relay.admin, "/metrics").await.lines().any(is)).await;
}

/// Starts a relay whose client requests two names of a server that sends only one of them.
async fn one_of_two(answers: Answers) -> (Relay, Plane, Stream, Client) {
    let mut server = Plane::answering(answers).await;
    let quick = |options: &mut weir_core::protocol::options::ProtocolOptions| {
        options.upstream.resource_timer = Duration::from_millis(100)
    };
    let relay = relay_with_options(&servers(&[server.address], ", variant: delta"), "", quick).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["sent", "silent"], Some("web"));
    let stream = server.stream().await;
    stream.send(of_type(EDS, "sent"));
    let sent = client.sent().await;
    assert_eq!(sent.set, ["sent"]);
    client.ack(EDS, &[], &sent);
    (relay, server, stream, client)
}

/// Whether the name that the server has not sent is missing, and its liveness call is in this state.
fn is_missing(view: &Value, call: &str) -> bool {
    let ladder = &view["authorities"][0];
    ladder["state"] == "active"
        && ladder["missing"] == json!([{"type": ENDPOINTS, "name": "silent"}])
        && view["streams"][0]["liveness_call"] == call
}

#[tokio::test]
async fn a_name_that_its_server_does_not_mention_is_missing_until_the_liveness_call_is_answered() {
    let (relay, server, _stream, mut client) = one_of_two(Answers::Held).await;
    view(&relay, "the call waits", |view| is_missing(view, "pending")).await;
    server.release(); // the question at the start of the relay, if it still waits
    server.release();
    assert_eq!(client.sent().await.removed, ["silent"]);
    view(&relay, "it is absent", |view| view["authorities"][0]["missing_count"] == 0).await;
}

#[tokio::test]
async fn behind_a_gateway_that_answers_liveness_calls_itself_a_name_stays_missing_and_the_log_says_why() {
    let (lines, _guard) = Lines::of_this_thread();
    let (relay, server, _stream, mut client) = one_of_two(Answers::Http(404)).await;
    view(&relay, "the call waits", |view| is_missing(view, "pending")).await;
    until("it is made again", async || server.calls() >= 2).await;
    view(&relay, "the call waits still", |view| is_missing(view, "pending")).await;
    view(&relay, "it says why", |view| view["streams"][0]["liveness_unrouted"] == "HTTP status 404").await;
    let logged = lines.with("liveness calls do not reach the server");
    assert!(logged.len() == 1 && logged[0].1.contains("HTTP status 404"), "{logged:?}");
    server.answer(Answers::Status(12)); // the answer of the control plane itself
    assert_eq!(client.sent().await.removed, ["silent"], "nothing came before");
}

#[tokio::test]
async fn a_client_that_holds_a_set_is_counted_as_blocked_until_the_set_is_known() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let never = |options: &mut weir_core::protocol::options::ProtocolOptions| {
        let hour = Duration::from_secs(3_600);
        (options.upstream.settle_fresh, options.upstream.settle_stated, options.upstream.second_silence) =
            (hour, hour, hour);
    };
    let relay = relay_with_options(&servers(&[plane.address], ", variant: delta"), "", never).await;
    let _client = Holder::of(relay.address, Variant::Sotw, ALL_CLUSTERS, &["a".to_owned()]).await;
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let begun = |view: &Value| view["streams"][0]["types"][0]["completeness"] == "first_response";
    view(&relay, "the set has begun", begun).await;
    has_metric(&relay, "weir_client_streams_blocked{", 1).await;
}

#[tokio::test]
async fn requests_for_types_that_a_stream_does_not_serve_are_counted_at_the_client() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let client = Client::connect(relay.address, Variant::Sotw).await;
    let delta_alone = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    for (number, url) in [(1, "type.googleapis.com/envoy.api.v2.Cluster"), (2, delta_alone)] {
        client.ask(url, &["a"], Some("web"));
        let is_counted = |report: &Value| report[0]["unsupported_requests"] == number;
        driver::clients(&relay, "it is counted", is_counted).await;
    }
}

#[tokio::test]
async fn a_view_that_flaps_shows_each_switch_with_the_names_and_the_error_that_caused_it() {
    let (lines, _guard) = Lines::of_this_thread();
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Mute).await);
    let first = one.address;
    let relay = relay_with_options(&servers(&[first, two.address], ", variant: delta"), "", |_| {}).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["a"], Some("web"));
    assert_eq!(content_of(&mut client).await, ["a=1"]);
    one.kill().await;
    view(&relay, "the cache is served", |view| view["authorities"][0]["state"] == "cached").await;
    let refused = |error: &Value| error.as_str().is_some_and(|error| error.contains("Connection refused"));
    view(&relay, "the error", |view| refused(&view["streams"][0]["last_error"])).await;

    client.ask(EDS, &["does-not-exist"], None);
    let tries = |view: &Value| {
        let ladder = &view["authorities"][0];
        ladder["state"] == "trying"
            && ladder["missing"] == json!([{"type": ENDPOINTS, "name": "does-not-exist"}])
            && ladder["fallbacks"] == 1
    };
    view(&relay, "a name that is not cached moves the ladder", tries).await;
    let _one = Server::start_at(first, Way::Gives("1")).await;
    assert_eq!(content_of(&mut client).await, ["does-not-exist=1"]);
    view(&relay, "it is back", |view| view["authorities"][0]["returns"] == 1).await;
    for direction in ["fallback", "return"] {
        let metrics = get(relay.admin, "/metrics").await;
        let is = |line: &str| {
            line.starts_with("weir_ladder_switches_total{") && line.contains(direction) && line.ends_with(" 1")
        };
        assert!(metrics.lines().any(is), "{direction}: {metrics}");
    }
    let logged = |part: &str| lines.with("ladder state changed").iter().any(|(_, line)| line.contains(part));
    until("the log has it", async || logged("cached") && logged("Connection refused")).await;
}

#[tokio::test]
async fn a_poll_waits_for_a_slow_control_plane_for_as_long_as_it_is_allowed_to() {
    let mut plane = Plane::start(&BOTH).await;
    for (timeout, status) in [("1ms", 503), ("1m", 200)] {
        let text = format!("views: {{key: [cluster]}}\nrest: {{timeout: {timeout}}}\n");
        let app = crate::bind(config(plane.address, ", variant: sotw", &text)).await.unwrap();
        let relay = run(app, std::future::pending());
        let mut poller = Poller::connect(relay.address).await;
        let poll = tokio::spawn(async move { poller.poll(CLUSTERS, "web", json!({})).await });
        let stream = plane.stream().await;
        if status == 200 {
            let (version_info, nonce, type_url) = ("1".into(), "1".into(), CDS.into());
            let resources = vec![rest::cluster("a", "1")];
            let set = DiscoveryResponse { version_info, resources, type_url, nonce, ..Default::default() };
            stream.respond(&Response::Sotw(set));
        }
        let answer = tokio::time::timeout(PATIENCE, poll).await.expect("no answer").unwrap();
        assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    }
}

#[tokio::test]
async fn a_poll_of_a_view_that_panics_gets_503_at_once() {
    let plane = Plane::start(&BOTH).await;
    let mut config = config(plane.address, "", "views: {key: [cluster]}\nrest: {timeout: 1h}\n");
    config.views.panics_at = Some("panic".into());
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut poller = Poller::connect(relay.address).await;
    let (status, _) = poller.poll(poller::ENDPOINTS, "web", json!({"resourceNames": ["panic"]})).await.nack();
    assert_eq!(status, 503);
    has_metric(&relay, "weir_view_panics_total", 1).await;
}

#[tokio::test]
async fn fifty_views_of_one_client_each_are_a_line_in_the_log_that_names_the_field() {
    let (lines, _guard) = Lines::of_this_thread();
    let plane = Plane::start(&BOTH).await;
    // Split views are looked for as often as idle ones.
    let config = config(plane.address, "", "views: {key: [id, cluster], idle_timeout: 100ms}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut clients = Vec::new();
    for number in 0..50 {
        let client = Client::connect(relay.address, Variant::Delta).await;
        let (id, cluster) = (format!("envoy-{number}"), "web".into());
        client.ask_as(&weir_core::proto::node::Node { id, cluster, ..Default::default() }, CDS, &[]);
        clients.push(client);
    }
    has_metric(&relay, "weir_views", 50).await;
    has_metric(&relay, "weir_key_field_values{field=\"id\"}", 50).await;
    let part = "most clients have a view of their own";
    until("the log has it", async || !lines.with(part).is_empty()).await;
    let (level, line) = lines.with(part)[0].clone();
    assert!(level == tracing::Level::WARN && line.contains("id") && line.contains("values=50"), "{line}");
    let upstreams: Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
    assert!(upstreams[0]["key_fields"]["id"].as_str().is_some_and(|id| id.starts_with("envoy-")), "{upstreams}");
}

#[tokio::test]
#[ignore = "waits half a minute for the look at views that are idle"]
async fn night_a_view_has_a_line_when_it_is_made_and_one_when_it_was_idle() {
    let (lines, _guard) = Lines::of_this_thread();
    let plane = Plane::start(&BOTH).await;
    let config = config(plane.address, "", "views: {key: [cluster], idle_timeout: 100ms}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    until("it is made", async || lines.with("view created").len() == 1).await;
    drop(client);
    until("it has gone", async || lines.with("view removed; it was idle").len() == 1).await;
    has_metric(&relay, "weir_views", 0).await;
}

/// Returns what clients notice of a server that is away, if the problem is listed.
async fn noticed(relay: &Relay, server: SocketAddr) -> Option<String> {
    let page: Value = serde_json::from_str(&get(relay.admin, "/problems").await).unwrap();
    let subject = format!("http://{server}");
    let mut problems = page["problems"].as_array().unwrap().iter();
    let problem = problems.find(|problem| problem["kind"] == "server_away" && problem["subject"] == subject)?;
    problem["noticed"].as_str().map(str::to_owned)
}

async fn is_noticed(relay: &Relay, server: SocketAddr, what: &str) {
    until(what, async || noticed(relay, server).await.is_some_and(|noticed| noticed.starts_with(what))).await;
}

#[tokio::test]
async fn a_server_that_is_away_is_a_problem_that_says_what_clients_notice_until_it_is_back() {
    let (one, two) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let (first, second) = (one.address, two.address);
    let each = ", variant: delta, backoff: {initial: 10ms, max: 10ms}";
    let relay = relay_with_options(&servers(&[first, second], each), "", |_| {}).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["a"], Some("web"));
    assert_eq!(content_of(&mut client).await, ["a=1"]);
    one.kill().await;
    is_noticed(&relay, first, "they keep what they have, and changes do not arrive").await;

    client.ask(EDS, &["b"], None);
    assert_eq!(content_of(&mut client).await, ["b=1"], "by the second");
    is_noticed(&relay, first, "nothing: another server serves them").await;

    two.kill().await;
    client.ask(EDS, &["c"], None);
    is_noticed(&relay, second, "what is not cached is missing").await;
    let _one = Server::start_at(first, Way::Gives("1")).await;
    until("the problem ends", async || noticed(&relay, first).await.is_none()).await;
}
