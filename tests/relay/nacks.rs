//! Which of many clients NACK which resources, in `/nacks`, the metrics and the log.

use serde_json::Value;
use tracing::Level;
use weir_core::proto::node::Node;
use weir_core::proto::node::node::UserAgentVersionType;

use super::client::Told;
use super::log_lines::Lines;
use super::shown::has_metric;
use super::*;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const ENVOY: &str = "Error adding/updating cluster(s) bad: cannot create an EDS cluster without an EDS config";
/// NACKs are checked for the log as often as views are for idleness.
const QUICK: &str = "views: {key: [cluster], idle_timeout: 100ms}\n";

async fn start(plane: &Plane) -> Relay {
    let config = config(plane.address, ", variant: delta", QUICK);
    run(bind_with_brakes(config).await.unwrap(), std::future::pending())
}

fn envoy(number: usize, version: &str) -> Node {
    Node {
        id: format!("envoy-{number}"),
        cluster: "web".into(),
        user_agent_name: "envoy".into(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(version.into())),
        ..Node::default()
    }
}

async fn page(relay: &Relay, query: &str) -> Value {
    serde_json::from_str(&get(relay.admin, &format!("/nacks{query}")).await).unwrap()
}

/// Waits until the first type on the page satisfies a condition, and returns that type.
async fn first_type(relay: &Relay, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    until(what, async || holds(&page(relay, "?type=clusters").await["types"][0])).await;
    page(relay, "?type=clusters").await["types"][0].clone()
}

/// Returns the counts of a type or of a version: acked, nacked, pending.
fn counts(of: &Value) -> [u64; 3] {
    ["acked", "nacked", "pending"].map(|key| of[key].as_u64().unwrap())
}

async fn nacking(relay: &Relay, streams: usize) {
    has_metric(relay, &format!("weir_client_streams_nacking{{type=\"{CLUSTER}\"}} {streams}")).await;
}

/// Waits until the relay has asked for so many names: it does not keep what it has not asked for.
async fn has_asked_for(stream: &mut Stream, names: usize) {
    let mut asked = 0;
    while asked < names {
        let Request::Delta(request) = stream.request().await else { panic!("delta") };
        asked += request.resource_names_subscribe.len();
    }
}

/// Sends changes to all clients, and returns what each client received.
async fn push(stream: &Stream, version: &str, news: &[(&str, &str)], clients: &mut [Client]) -> Vec<Told> {
    say(stream, version, &[], news, &[]);
    let mut received = Vec::new();
    for client in clients {
        received.push(client.sent().await);
    }
    received
}

#[tokio::test]
async fn each_of_several_reasons_has_the_clients_that_give_it() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane).await;
    let mut clients = Vec::new();
    for number in 0..3 {
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask_as(&envoy(number, "1.31.0"), CDS, &[]);
        clients.push(client);
    }
    let stream = plane.stream().await;
    let received = push(&stream, "1", &[("a", "1"), ("bad", "1")], &mut clients).await;
    for (number, client) in clients.iter().enumerate() {
        client.refuse_for(CDS, &[], &received[number], if number == 1 { "unknown filter" } else { ENVOY });
    }
    let type_row = first_type(&relay, "all have answered", |row| counts(row) == [0, 3, 0]).await;
    let reasons = type_row["versions"][0]["reasons"].as_array().unwrap();
    assert_eq!((&reasons[0]["reason"], &reasons[1]["reason"]), (&ENVOY.into(), &"unknown filter".into()));
    let nodes = |reason: &Value| {
        let mut nodes: Vec<_> = reason["nodes"].as_array().unwrap().iter().map(|node| node.to_string()).collect();
        nodes.sort();
        nodes
    };
    assert_eq!(
        (nodes(&reasons[0]), nodes(&reasons[1])),
        (vec!["\"envoy-0\"".into(), "\"envoy-2\"".into()], vec!["\"envoy-1\"".into()])
    );
}

#[tokio::test]
async fn seventeen_of_four_hundred_clients_nack_a_version_and_are_shown_counted_and_logged_until_they_accept_another() {
    let _turn = super::HEAVY.lock().await;
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane).await;
    let mut clients = Vec::new();
    for number in 0..400 {
        let client = Client::connect(relay.address, BOTH[number % 2]).await;
        client.ask_as(&envoy(number, if number < 20 { "1.29.1" } else { "1.31.0" }), CDS, &[]);
        clients.push(client);
    }
    let stream = plane.stream().await;
    let received = push(&stream, "1", &[("a", "1"), ("bad", "1")], &mut clients).await;
    let type_row = first_type(&relay, "sent", |row| row["clients"] == 400).await;
    assert_eq!(counts(&type_row), [0, 0, 400]);
    clients.iter().zip(&received).for_each(|(client, sent)| client.ack(CDS, &[], sent));
    let type_row = first_type(&relay, "all accept", |row| row["acked"] == 400).await;
    let version = type_row["versions"][0]["version"].clone();
    assert_eq!(type_row["versions"].as_array().unwrap().len(), 1, "SotW and delta have the same version: {type_row}");
    assert!(received.iter().all(|sent| sent.version.is_empty() || sent.version == version), "the one on the wire");

    // Nine SotW clients and eight delta clients.
    let received = push(&stream, "2", &[("bad", "2")], &mut clients).await;
    for (number, client) in clients.iter().enumerate() {
        match number < 17 {
            true => client.refuse_for(CDS, &[], &received[number], ENVOY),
            false => client.ack(CDS, &[], &received[number]),
        }
    }
    let type_row = first_type(&relay, "all have answered", |row| counts(row) == [383, 17, 0]).await;
    assert_eq!((&type_row["clients"], &type_row["other_versions"]), (&400.into(), &0.into()));
    assert_eq!(
        type_row["user_agents"][0],
        serde_json::json!({"user_agent": "envoy 1.29.1", "clients": 20, "nacked": 17})
    );
    assert_eq!(type_row["user_agents"][1]["nacked"], 0);
    let (bad, before) = (&type_row["versions"][0], &type_row["versions"][1]);
    assert_eq!((counts(bad), counts(before)), ([383, 17, 0], [17, 0, 0]));
    assert_eq!((&bad["newest"], &before["newest"], &before["version"]), (&400.into(), &0.into(), &version));
    assert_eq!(bad["suspected"], serde_json::json!([{"name": "bad", "clients": 17}]));
    let reasons = bad["reasons"].as_array().unwrap();
    assert_eq!((reasons.len(), &reasons[0]["reason"], &reasons[0]["clients"]), (1, &ENVOY.into(), &17.into()));
    assert_eq!([&bad["nodes"], &reasons[0]["nodes"]].map(|nodes| nodes.as_array().unwrap().len()), [10, 10]);
    assert!(bad["nodes"][0].as_str().unwrap().starts_with("envoy-") && bad["nacked_seconds"].is_number());
    assert!(before["suspected"].as_array().unwrap().is_empty() && before["nacked_seconds"].is_null());
    let resource: Value = serde_json::from_str(&get(relay.admin, "/resources?name=bad").await).unwrap();
    assert_eq!(resource["resources"][0]["server"], format!("http://{}", plane.address));
    nacking(&relay, 17).await;
    has_metric(&relay, &format!("weir_client_nacks_total{{type=\"{CLUSTER}\"}} 17")).await;
    until("the log says so", async || !lines.with("clients NACK a version").is_empty()).await;
    let (level, line) = lines.with("clients NACK a version")[0].clone();
    assert_eq!(level, Level::WARN);
    for field in [
        "nacked=17 ",
        "clients=400 ",
        "suspected=\"bad\"",
        "is_newest=true",
        "EDS cluster without",
        &format!("version={}", bad["version"]),
    ] {
        assert!(line.contains(field), "{field} is missing in {line}");
    }

    // In SotW a newer set has the resource again; in delta the newer response does not.
    let received = push(&stream, "3", &[("a", "2")], &mut clients).await;
    clients.iter().zip(&received).for_each(|(client, sent)| client.ack(CDS, &[], sent));
    let type_row = first_type(&relay, "delta clients have the old resource", |row| counts(row) == [392, 8, 0]).await;
    let nacked = type_row["versions"].as_array().unwrap().iter().find(|version| version["nacked"] == 8).unwrap();
    assert_eq!((&nacked["version"], &nacked["newest"]), (&bad["version"], &0.into()), "an old version is NACKed");
    assert_eq!(nacked["suspected"][0], serde_json::json!({"name": "bad", "clients": 8}));
    nacking(&relay, 8).await;

    let received = push(&stream, "4", &[("bad", "3")], &mut clients).await;
    let type_row = first_type(&relay, "sent", |row| row["pending"] == 392).await;
    assert_eq!((counts(&type_row), counts(&type_row["versions"][1])), ([0, 8, 392], [0, 0, 400]));
    clients.iter().zip(&received).for_each(|(client, sent)| client.ack(CDS, &[], sent));
    let type_row = first_type(&relay, "all accept", |row| counts(row) == [400, 0, 0]).await;
    assert_eq!(type_row["versions"].as_array().unwrap().len(), 1);
    assert_eq!(page(&relay, "?nacked").await["types"], serde_json::json!([]));
    nacking(&relay, 0).await;
    has_metric(&relay, &format!("weir_client_nacks_total{{type=\"{CLUSTER}\"}} 17")).await;
    until("the log says that it is over", async || !lines.with("no client NACKs this type any more").is_empty()).await;
    assert_eq!(lines.with("clients NACK a version").len(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_is_no_longer_shown_and_stays_counted() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane).await;
    let mut clients = Vec::new();
    for (number, variant) in BOTH.into_iter().enumerate() {
        let client = Client::connect(relay.address, variant).await;
        client.ask_as(&envoy(number, "1"), CDS, &[]);
        clients.push(client);
    }
    let stream = plane.stream().await;
    let received = push(&stream, "1", &[("bad", "1")], &mut clients).await;
    clients.iter().zip(&received).for_each(|(client, sent)| client.refuse_for(CDS, &[], sent, ENVOY));
    nacking(&relay, 2).await;
    clients.pop();
    nacking(&relay, 1).await;
    let type_row = first_type(&relay, "one is left", |row| row["clients"] == 1).await;
    assert_eq!(counts(&type_row), [0, 1, 0]);
    clients.pop();
    nacking(&relay, 0).await;
    has_metric(&relay, &format!("weir_client_nacks_total{{type=\"{CLUSTER}\"}} 2")).await;
    assert_eq!(page(&relay, "").await["total"], 0);
}

#[tokio::test]
async fn the_removal_of_a_suspected_resource_ends_the_nack_once_it_is_accepted() {
    for variant in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let relay = start(&plane).await;
        let mut client = Client::connect(relay.address, variant).await;
        client.ask_as(&envoy(0, "1"), CDS, &[]);
        let stream = plane.stream().await;
        say(&stream, "1", &[], &[("a", "1"), ("bad", "1")], &[]);
        let sent = client.sent().await;
        client.refuse_for(CDS, &[], &sent, ENVOY);
        nacking(&relay, 1).await;
        say(&stream, "2", &[], &[], &["bad"]);
        let sent = client.sent().await;
        assert_eq!(
            (sent.set.contains(&"bad".into()), sent.removed.len()),
            (false, usize::from(variant == Variant::Delta))
        );
        client.ack(CDS, &[], &sent);
        nacking(&relay, 0).await;
    }
}

#[tokio::test]
async fn a_name_is_suspected_only_by_clients_that_want_it_and_ends_with_the_subscription() {
    for variant in BOTH {
        let mut plane = Plane::start(&BOTH).await;
        let relay = start(&plane).await;
        let mut client = Client::connect(relay.address, variant).await;
        client.ask_as(&envoy(0, "1"), CDS, &["a", "b"]);
        let mut other = Client::connect(relay.address, variant).await;
        other.ask_as(&envoy(1, "1"), CDS, &["c"]);
        let mut stream = plane.stream().await;
        has_asked_for(&mut stream, 3).await;
        say(&stream, "1", &[], &[("a", "1"), ("b", "1"), ("c", "1")], &[]);
        let (sent, of_other) = (client.sent().await, other.sent().await);
        assert_eq!(sent.set, ["a", "b"]);
        client.refuse_for(CDS, &["a", "b"], &sent, "clusters 'a', \"c\" and b: no");
        other.ack(CDS, &["c"], &of_other);
        let type_row = first_type(&relay, "one NACKs", |row| counts(row) == [1, 1, 0]).await;
        let bad = &type_row["versions"][0];
        let mut suspected: Vec<_> =
            bad["suspected"].as_array().unwrap().iter().map(|suspect| suspect["name"].as_str().unwrap()).collect();
        suspected.sort_unstable();
        assert_eq!(suspected, ["a", "b"], "not the other client's");
        assert_ne!(bad["version"], type_row["versions"][1]["version"], "each list of names has a version of its own");
        match &client {
            Client::Sotw(requests, _) => {
                let (type_url, response_nonce) = (CDS.into(), sent.nonce.clone());
                let resource_names = vec!["d".into()];
                let request = DiscoveryRequest { type_url, response_nonce, resource_names, ..Default::default() };
                requests.send(request).unwrap();
            }
            Client::Delta(..) => client.leave(CDS, &["a", "b"]),
        }
        nacking(&relay, 0).await;
    }
}

#[tokio::test]
async fn i8_reasons_of_hostile_clients_are_bounded_escaped_and_redacted_and_flood_no_log() {
    let _turn = super::HEAVY.lock().await;
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane).await;
    let mut clients = Vec::new();
    for number in 0..60 {
        let client = Client::connect(relay.address, BOTH[number % 2]).await;
        client.ask_as(&envoy(number, &format!("1.{number}\u{1b}[2J{}", "y".repeat(500))), CDS, &[]);
        clients.push(client);
    }
    let stream = plane.stream().await;
    let received = push(&stream, "1", &[("a", "1")], &mut clients).await;
    let key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let start = std::time::Instant::now();
    for (number, (client, sent)) in clients.iter().zip(&received).enumerate() {
        let head = format!(
            "{number}\r\nnacked=0\u{1b}[2J {key} -----BEGIN PRIVATE KEY-----\n{key}\n-----END PRIVATE KEY----- "
        );
        for _ in 0..20 {
            client.refuse_for(
                CDS,
                &[],
                sent,
                &format!("{head} a: {}", "z\u{7}".repeat(if number == 0 { 1 << 19 } else { 500 })),
            );
        }
    }
    first_type(&relay, "all NACK", |row| counts(row) == [0, 60, 0]).await;
    has_metric(&relay, &format!("weir_client_nacks_total{{type=\"{CLUSTER}\"}} 1200")).await;
    let text = get(relay.admin, "/nacks").await;
    assert!(text.len() < 20_000, "{} bytes", text.len());
    assert!(!text.contains("BADANB") && !text.contains("PRIVATE KEY") && text.contains("[redacted]"), "{text}");
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()) && !text.contains("\\u001b"), "{text}");
    let type_row = &page(&relay, "").await["types"][0];
    assert_eq!(type_row["user_agents"].as_array().unwrap().len(), 33);
    let other =
        type_row["user_agents"].as_array().unwrap().iter().find(|agent| agent["user_agent"] == "other").unwrap();
    assert_eq!(other["clients"], 28);
    let version = &type_row["versions"][0];
    assert_eq!((version["reasons"].as_array().unwrap().len(), &version["other_reasons"]), (8, &52.into()));
    assert_eq!(version["suspected"], serde_json::json!([{"name": "a", "clients": 60}]));
    let clients_page = get(relay.admin, "/clients").await;
    assert!(!clients_page.contains("BADANB") && clients_page.len() < 60 * 6_000, "{} bytes", clients_page.len());
    until("the log says so", async || !lines.with("clients NACK a version").is_empty()).await;
    let (logged, seconds) = (lines.with("NACK"), start.elapsed().as_secs() as usize + 1);
    assert!(logged.len() <= 20 * seconds + 1, "{} lines in {seconds} s", logged.len());
    assert!(logged.iter().all(|(_, line)| !line.contains("BADANB") && line.len() < 6_000));
    assert_eq!(lines.with("clients NACK a version").len(), 1);
}

#[tokio::test]
async fn lists_of_names_have_versions_of_their_own_of_which_a_bounded_number_is_shown() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane).await;
    let names: Vec<_> = (0..20).map(|number| format!("name-{number}")).collect();
    let mut clients = Vec::new();
    for (number, name) in names.iter().enumerate() {
        let client = Client::connect(relay.address, BOTH[number % 2]).await;
        client.ask_as(&envoy(number, "1"), CDS, &[name]);
        clients.push(client);
    }
    let mut stream = plane.stream().await;
    has_asked_for(&mut stream, names.len()).await;
    let news: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    let received = push(&stream, "1", &news, &mut clients).await;
    for ((name, client), sent) in names.iter().zip(&clients).zip(&received) {
        match name.as_str() {
            "name-7" => client.refuse_for(CDS, &[name], sent, "name-7: no, like name-8: and name-70:"),
            _ => client.ack(CDS, &[name], sent),
        }
    }
    let type_row = first_type(&relay, "all have answered", |row| counts(row) == [19, 1, 0]).await;
    let versions = type_row["versions"].as_array().unwrap();
    assert_eq!((versions.len(), &type_row["other_versions"]), (16, &4.into()));
    assert_eq!((counts(&versions[0]), counts(&versions[1])), ([0, 1, 0], [1, 0, 0]));
    assert_eq!(versions[0]["suspected"], serde_json::json!([{"name": "name-7", "clients": 1}]));
}

#[tokio::test]
async fn the_page_is_filtered_and_its_parameters_are_checked() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = start(&plane).await;
    let mut streams = Vec::new();
    let mut clients = Vec::new();
    for (number, view) in ["web", "db"].into_iter().enumerate() {
        let mut client = Client::connect(relay.address, Variant::Sotw).await;
        client.ask(CDS, &[], Some(view));
        let stream = plane.stream().await;
        say(&stream, "1", &[], &[("a", "1")], &[]);
        let sent = client.sent().await;
        match number {
            0 => client.ack(CDS, &[], &sent),
            _ => client.refuse(CDS, &sent),
        }
        clients.push(client);
        streams.push(stream);
    }
    nacking(&relay, 1).await;
    until("both have answered", async || {
        let all = page(&relay, "").await;
        all["total"] == 2 && counts(&all["types"][0]) == [0, 1, 0] && counts(&all["types"][1]) == [1, 0, 0]
    })
    .await;
    let first = page(&relay, "?limit=1").await;
    assert_eq!((&first["total"], first["types"].as_array().unwrap().len()), (&2.into(), 1));
    assert_eq!(page(&relay, "?nacked").await["total"], 1);
    assert_eq!(page(&relay, "?type=listeners").await["total"], 0);
    let view = first["types"][0]["view"].as_str().unwrap();
    let of_view = page(&relay, &format!("?view={view}")).await;
    assert_eq!((&of_view["total"], &of_view["types"]), (&1.into(), &first["types"]));
    for bad in ["?limit=0", "?limit=1001", "?type=clutsers"] {
        assert_eq!(probe(relay.admin, &format!("/nacks{bad}")).await.0, 400, "{bad}");
    }
}
