//! How `/upstreams` and the metrics show errors.

use serde_json::Value;

use super::evidence::servers;
use super::holder::{ALL_CLUSTERS, Holder};
use super::log_lines::Lines;
use super::*;

/// Waits until the first view in `/upstreams` satisfies a condition.
async fn upstreams(relay: &Relay, what: &str, holds: impl Fn(&Value) -> bool) {
    let shown = async || {
        let report: Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
        report.get(0).is_some_and(&holds)
    };
    until(what, shown).await;
}

pub(super) async fn has_metric(relay: &Relay, line: &str) {
    until(line, async || get(relay.admin, "/metrics").await.lines().any(|written| written == line)).await;
}

pub(super) fn entry(name: &str, version: &str, body: bool) -> Resource {
    let resource = body.then(|| cluster(name, version));
    Resource { name: name.into(), version: version.into(), resource, ..Default::default() }
}

pub(super) fn say_entries(stream: &Stream, nonce: &str, resources: Vec<Resource>) {
    let (type_url, nonce) = (CDS.into(), nonce.into());
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
}

#[tokio::test]
async fn up_22_up_25_rejected_entries_are_shown_with_name_version_and_reason_and_counted_once() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let address = plane.address;
    let relay = relay(address, protocol_of(Variant::Delta)).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    let said = || vec![entry("a", "1", true), entry("flaw", "7", false), entry("", "1", true)];
    say_entries(&stream, "1", said());
    assert_eq!(client.sent().await.set, ["a"]);
    let shown = |report: &Value| {
        let of_type = &report["streams"][0]["types"][0];
        let named = |at: usize| &of_type["rejected"][at];
        of_type["rejected_count"] == 2
            && named(0)["name"].is_null()
            && named(0)["reason"].as_str().is_some_and(|reason| reason.contains("no name"))
            && (&named(1)["name"], &named(1)["version"]) == (&"flaw".into(), &"7".into())
            && named(1)["reason"].as_str().is_some_and(|reason| reason.contains("no body"))
    };
    upstreams(&relay, "what was rejected, and why", shown).await;
    let counted = |count: usize| {
        let labels = format!("server=\"http://{address}\",type=\"envoy.config.cluster.v3.Cluster\"");
        format!("weir_upstream_resources_rejected_total{{{labels}}} {count}")
    };
    has_metric(&relay, &counted(2)).await;

    // The same version, even on another stream, is not counted again. Another version is counted, and a valid one ends the error.
    say_entries(&stream, "2", said());
    drop((plane.kill().await, stream));
    let mut plane = Plane::start_at(address, &[Variant::Delta]).await;
    let stream = plane.stream().await;
    say_entries(&stream, "1", said());
    upstreams(&relay, "it is rejected still", shown).await;
    has_metric(&relay, &counted(2)).await;
    say_entries(&stream, "2", vec![entry("flaw", "8", false)]);
    has_metric(&relay, &counted(3)).await;
    say_entries(&stream, "3", vec![entry("flaw", "9", true)]);
    assert_eq!(client.sent().await.set, ["flaw"]);
    upstreams(&relay, "one less", |report| report["streams"][0]["types"][0]["rejected_count"] == 1).await;
    has_metric(&relay, &counted(3)).await;
}

#[tokio::test]
async fn a_great_many_rejected_entries_are_shown_in_part_with_their_count() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, protocol_of(Variant::Delta)).await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say_entries(&stream, "1", (0..500).map(|number| entry(&format!("flaw-{number:03}"), "1", false)).collect());
    let shown = |report: &Value| {
        let of_type = &report["streams"][0]["types"][0];
        of_type["rejected_count"] == 500 && of_type["rejected"].as_array().is_some_and(|shown| shown.len() == 20)
    };
    upstreams(&relay, "some, and how many", shown).await;
    let logged = lines.with("resource rejected");
    assert_eq!((logged.len(), lines.with("more resources rejected").len()), (20, 1), "{logged:?}");
    for field in ["view=", "server=", "type_url=", "name=flaw-", "version=", "reason="] {
        assert!(logged.iter().all(|(_, line)| line.contains(field)), "{field} is missing in {logged:?}");
    }
    assert!(lines.with("more resources rejected")[0].1.contains("count=480"));
}

#[tokio::test]
async fn fb_4_what_is_missing_is_shown_beside_the_ladder_and_goes_when_it_has_come() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, protocol_of(Variant::Delta)).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let names: Vec<_> = (0..30).map(|number| format!("e{number:02}")).collect();
    client.ask(EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), None);
    let stream = plane.stream().await;
    let missing = |report: &Value, count: usize| report["authorities"][0]["missing_count"] == count;
    let all = |report: &Value| {
        let shown = &report["authorities"][0]["missing"];
        missing(report, 31)
            && shown.as_array().is_some_and(|shown| shown.len() == 10)
            && (&shown[0]["type"], &shown[0]["name"]) == (&"envoy.config.cluster.v3.Cluster".into(), &"*".into())
            && shown[1]["name"] == "e00"
    };
    upstreams(&relay, "everything is missing", all).await;
    let cold = |report: &Value| report["streams"][0]["types"][0]["completeness"] == "unknown";
    upstreams(&relay, "nothing is known of the set", cold).await;
    say(&stream, "1", &TWO, &TWO, &[]);
    client.sent().await;
    upstreams(&relay, "the set is there", |report| missing(report, 30)).await;
    let begun = |report: &Value| {
        let types = &report["streams"][0]["types"];
        matches!(types[0]["completeness"].as_str(), Some("first_response" | "settled"))
            && types[1]["completeness"].is_null()
    };
    upstreams(&relay, "the first response has come", begun).await;
}

#[tokio::test]
async fn up_36_a_stream_shows_whether_its_silent_server_answered_the_call() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let timer = Duration::from_secs(10); // the first check has to be over before this
    let relay =
        relay_with_options(&servers(&[plane.address], ""), "", |options| options.upstream.resource_timer = timer).await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let _silent = plane.stream().await;
    let shows = |call: Value| move |report: &Value| report["streams"][0]["liveness_call"] == call;
    upstreams(&relay, "nothing was asked yet", shows(Value::Null)).await;
    upstreams(&relay, "it is there", shows("answered".into())).await;
    upstreams(&relay, "and has not responded", |report| report["authorities"][0]["state"] == "trying").await;
}

#[tokio::test]
async fn names_that_are_asked_a_second_time_are_counted() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let quick = |options: &mut weir_core::protocol::options::ProtocolOptions| {
        options.upstream.settle_fresh = Duration::from_millis(20);
        options.upstream.settle_stated = Duration::from_millis(50);
        options.upstream.second_silence = Duration::from_secs(3_600);
    };
    let relay = relay_with_options(&servers(&[plane.address], ""), "", quick).await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &client else { unreachable!() };
    let stated = ["a", "b", "gone"].map(|name| (name.to_owned(), "v".to_owned())).into();
    let (node, type_url) = (client::node("web"), CDS.into());
    let request = DeltaDiscoveryRequest { node, type_url, initial_resource_versions: stated, ..Default::default() };
    requests.send(request).unwrap();
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let again = plane.stream().await;
    let requested = |report: &Value| report["streams"][0]["types"][0]["requested_again"] == 1;
    upstreams(&relay, "the one that was not mentioned", requested).await;
    drop(again);
}

#[tokio::test]
async fn an_owner_that_panics_ends_the_clients_of_its_view_alone_and_the_next_gets_a_new_one() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let mut config = config(plane.address, protocol_of(Variant::Delta), "views: {key: [cluster]}\n");
    config.views.panics_at = Some("panic".into());
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut streams = Vec::new();
    let mut clients = Vec::new();
    for cluster in ["db", "web"] {
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some(cluster));
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        client.sent().await;
        streams.push(stream);
        clients.push(client);
    }
    let (mut web, mut db) = (clients.pop().unwrap(), clients.pop().unwrap());
    let mut sotw = Client::connect(relay.address, Variant::Sotw).await;
    sotw.ask(CDS, &[], Some("web"));
    sotw.sent().await;
    let mut culprit = Client::connect(relay.address, Variant::Delta).await;
    culprit.ask(EDS, &["panic"], Some("web"));
    for client in [&mut web, &mut sotw, &mut culprit] {
        assert_eq!(client.ended().await, Code::Unavailable);
    }
    has_metric(&relay, "weir_view_panics_total 1").await;
    let (level, line) = lines.with("view panicked")[0].clone();
    assert!(level == tracing::Level::ERROR && line.contains("view="), "{line}");
    has_metric(&relay, "weir_views 1").await;

    let mut back = Client::connect(relay.address, Variant::Delta).await;
    back.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(back.sent().await.set, ["a", "b"]);
    say(&stream, "2", &[], &[("a", "2")], &[]);
    assert_eq!(back.sent().await.set, ["a"]);
    say(&streams[0], "2", &[], &[("b", "2")], &[]);
    assert_eq!(db.sent().await.set, ["b"], "the other view has gone on, on the stream that it had");
    assert!(plane.streams.try_recv().is_err(), "one new stream, for the new view");
}

/// Returns status, headers and body of a response of the admin address.
async fn admin(relay: &Relay, method: &str, path: &str) -> (http::StatusCode, http::HeaderMap, String) {
    let stream = tokio::net::TcpStream::connect(relay.admin).await.unwrap();
    let (mut send, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = http::Request::builder().method(method).uri(path).header("host", "localhost");
    let response =
        send.send_request(request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap()).await.unwrap();
    let (head, body) = response.into_parts();
    let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn resources_are_listed_page_by_page_by_type_name_part_and_view() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let client = Holder::new(relay.address, Variant::Delta, ALL_CLUSTERS).await;
    let stream = plane.stream().await;
    let names: Vec<_> = (0..25).map(|number| format!("c{number:02}")).collect();
    let set: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    say(&stream, "1", &set, &set, &[]);
    client.until("all", |record| record.holds.len() == names.len()).await;
    let page = async |query: &str| -> Value {
        let (status, _, body) = admin(&relay, "GET", &format!("/resources?{query}")).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let of = page(&format!("type=clusters&limit=10&after={after}")).await;
        assert_eq!(of["total"], 25);
        let rows = of["resources"].as_array().unwrap();
        assert!(rows.len() <= 10);
        seen.extend(rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()));
        let Some(next) = of["next"].as_str() else { break };
        after = next.replace('\n', "%0A");
    }
    assert_eq!(seen, names);
    assert_eq!(page("contains=c0").await["total"], 10);
    assert_eq!(page("type=cds&name=c07").await["resources"][0]["state"], "present");
    assert_eq!(page("view=none").await["total"], 0);
    assert_eq!(page("type=routes").await["total"], 0);
    let (status, _, body) = admin(&relay, "GET", "/resources?type=clutsers").await;
    assert_eq!((status.as_u16(), body.as_str()), (400, "unknown type \"clutsers\": did you mean clusters?\n"));
}

#[tokio::test]
async fn the_admin_address_has_the_habits_of_one() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let (status, _, index) = admin(&relay, "GET", "/").await;
    assert_eq!(status, 200);
    for path in index
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|path| path.starts_with('/') && !path.contains('{') && *path != "/live")
    // `/live` does not end.
    {
        let (status, headers, body) = admin(&relay, "GET", path).await;
        // These need a client or a view as a parameter.
        let wants_more = path.contains('{') || ["/config_dump", "/diff", "/explain"].contains(&path);
        let expected = if wants_more { 400 } else { 200 };
        // A tap is not allowed at this address.
        let expected = if path == "/tap" { 403 } else { expected };
        assert!(status == expected || path == "/ready", "{path}: {status}");
        assert!(body.ends_with('\n'), "{path} ends without a newline");
        let (of_head, head, nothing) = admin(&relay, "HEAD", path).await;
        assert_eq!((of_head, head.get("content-type"), nothing.as_str()), (status, headers.get("content-type"), ""));
    }
    assert_eq!(admin(&relay, "GET", "/none").await.0, 404);
    let (status, headers, _) = admin(&relay, "DELETE", "/clients").await;
    assert_eq!((status.as_u16(), headers.get("allow").unwrap().to_str().unwrap()), (405, "GET,HEAD"));
    let (status, _, why) = admin(&relay, "POST", "/log?filter=debug").await;
    assert_eq!((status.as_u16(), why.contains("changes need a Unix socket (admin.socket)")), (403, true), "{why}");
}

#[tokio::test]
async fn the_metrics_have_what_is_cached_of_each_type_and_of_made_up_ones_together() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    assert_eq!(client.sent().await.set, ["a", "b"]);
    for made_up in ["type.googleapis.com/made.Up", "type.googleapis.com/also.made.Up"] {
        client.ask(made_up, &["one"], None);
        let mut trial = plane.stream().await;
        say_named(&mut trial, made_up, "one").await;
        say_named(&mut stream, made_up, "one").await;
        assert_eq!(client.sent().await.set, ["one"]);
    }
    let clusters = "weir_type_resources{type=\"envoy.config.cluster.v3.Cluster\"} 2";
    has_metric(&relay, clusters).await;
    has_metric(&relay, "weir_type_resources{type=\"other\"} 2").await;
}
