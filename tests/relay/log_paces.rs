//! Log lines that one client or one server could cause very fast: only a few are written, and metrics count the rest.

use std::time::Instant;

use weir_core::proto::loads::LoadStatsResponse;

use super::admin_access::{app, ask};
use super::load_plane::{LoadClient, LoadPlane};
use super::loads::{loads_relay, opening};
use super::log_lines::Lines;
use super::rest_plane::RestPlane;
use super::rest_source::{cluster, polling};
use super::shown::{entry, has_metric, say_entries};
use super::*;
use weir_testkit::folder::Folder;

/// The number of events of each kind. Without a limit each event would have a line.
const MANY: usize = 300;

/// Counts the lines with a text, and checks that there were at most `a_second` in each second since then.
fn few(lines: &Lines, text: &str, a_second: usize, since: Instant) {
    let (count, seconds) = (lines.with(text).len(), since.elapsed().as_secs() as usize + 1);
    let most = a_second * seconds;
    assert!(most < MANY, "too slow to tell");
    assert!((1..=most).contains(&count), "{count} lines in {seconds} s: {text}");
}

#[tokio::test]
async fn i8_clients_that_make_up_views_cause_a_few_lines() {
    let (lines, _guard) = Lines::of_this_thread();
    let plane = Plane::start(&BOTH).await;
    let config = config(plane.address, ", variant: delta", "views: {key: [cluster]}\n");
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut clients = Vec::new();
    for _ in 0..MANY / 10 {
        clients.extend(Client::connect_many(relay.address, 10).await);
    }
    let began = Instant::now();
    for (number, client) in clients.iter().enumerate() {
        client.ask(CDS, &[], Some(&format!("made-up-{number}")));
    }
    has_metric(&relay, &format!("weir_views {MANY}")).await;
    few(&lines, "view created", 20, began);
}

#[tokio::test]
async fn a_server_whose_every_response_is_bad_causes_a_few_lines() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let (stream, began) = (plane.stream().await, Instant::now());
    for round in 0..MANY {
        say_entries(&stream, &round.to_string(), vec![entry("flaw", &round.to_string(), false)]);
    }
    let labels = format!("server=\"http://{}\",type=\"envoy.config.cluster.v3.Cluster\"", plane.address);
    has_metric(&relay, &format!("weir_upstream_resources_rejected_total{{{labels}}} {MANY}")).await;
    few(&lines, "message=resource rejected", 20, began);
    few(&lines, "message=more resources rejected", 20, began);
}

#[tokio::test]
async fn a_server_of_load_reports_whose_orders_cannot_be_read_causes_a_few_lines() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "load_reports: {mode: aggregate}\n").await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let (stream, began) = (plane.stream().await, Instant::now());
    for _ in 0..MANY {
        stream.say(b"no protobuf at all").await;
    }
    stream.order(&LoadStatsResponse { clusters: vec!["last".into()], ..Default::default() }).await;
    while !client.order().await.clusters.contains(&"last".to_owned()) {}
    few(&lines, "invalid LoadStatsResponse", 20, began);
}

#[tokio::test]
async fn i8_types_that_a_polled_server_cannot_have_are_a_few_lines() {
    let (lines, _guard) = Lines::of_this_thread();
    let plane = RestPlane::start().await;
    plane.script.has(poller::CLUSTERS, "1", vec![cluster("a", "1")]);
    let relay = polling(&plane, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    for number in 0..30 {
        client.ask(&format!("type.googleapis.com/made.up.Type{number}"), &["a"], Some("web"));
    }
    client.ask(CDS, &[], Some("web"));
    assert_eq!(client.sent().await.set, ["a"]);
    let count = lines.with("type has no REST path").len();
    assert!((1..=5).contains(&count), "{count} lines in this minute");
}

#[tokio::test]
#[ignore = "waits for twenty polls, and counts lines within a minute"]
async fn night_a_polled_server_that_refuses_every_poll_causes_a_few_lines() {
    let (lines, _guard) = Lines::of_this_thread();
    let plane = RestPlane::start().await; // without resources
    let relay = polling(&plane, "").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    plane.script.polled(poller::CLUSTERS, 20).await;
    let count = lines.with("poll failed").len();
    assert!((1..=5).contains(&count), "{count} lines in this minute");
}

#[tokio::test]
async fn refused_changes_are_a_few_lines_and_those_that_are_made_have_a_line_each() {
    let (lines, _guard) = Lines::of_this_thread();
    let folder = Folder::with_short_path("paced");
    let plane = Plane::start(&BOTH).await;
    let relay = run(app(&folder, plane.address, ", address: '127.0.0.1:0'").await, std::future::pending());
    let change = ["POST /log?filter=debug HTTP/1.1", "host: localhost"];
    for _ in 0..20 {
        assert_eq!(ask(tokio::net::TcpStream::connect(relay.admin).await.unwrap(), &change).await.0, 403);
    }
    assert_eq!(lines.with("by=127.0.0.1:").len(), 5);
    for _ in 0..20 {
        ask(tokio::net::UnixStream::connect(folder.socket()).await.unwrap(), &change).await;
    }
    assert_eq!(lines.with("change requested by=unix").len(), 20);
}
