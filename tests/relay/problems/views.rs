//! Problems of views: with servers, with what servers send, and with how clients answer.

use super::super::brakes::{Bench, asked, has, names};
use super::super::examples::assert_documented;
use super::super::holder::{ALL_CLUSTERS, Holder};
use super::super::refused_types::{MADE_UP, Refusing, UNKNOWN};
use super::super::void::led_to;
use super::*;
use weir_testkit::speaker::bare;

/// Returns clients of several views, each with its stream at the control plane, which has sent resources to it.
async fn views(plane: &mut Plane, relay: &Relay, clusters: &[&str]) -> Vec<(Client, Stream)> {
    let mut clients = Vec::new();
    for cluster in clusters {
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[], Some(cluster));
        let stream = plane.stream().await;
        say(&stream, "1", &[], &TWO, &[]);
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
        clients.push((client, stream));
    }
    clients
}

#[tokio::test]
async fn server_away_is_one_problem_for_all_views_and_says_what_clients_notice() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta, backoff: {initial: 10ms, max: 10ms}").await;
    let clients = views(&mut plane, &relay, &["one", "two", "three"]).await;
    let address = plane.kill().await;
    let held: Vec<_> = clients.into_iter().map(|(client, _)| client).collect();
    let away = appears(relay.admin, "server_away").await;
    assert_eq!(away["subject"], format!("http://{address}"));
    until("all views are counted", async || {
        let away = of_kind(relay.admin, "server_away").await.unwrap();
        (&away["views"]["count"], &away["clients"]) == (&3.into(), &3.into())
    })
    .await;
    let away = of_kind(relay.admin, "server_away").await.unwrap();
    assert_eq!(away["views"]["first"], serde_json::json!(["cluster=one", "cluster=two", "cluster=three"]));
    // Which of the two it is depends on whether the sets were complete before.
    let noticed = away["noticed"].as_str().unwrap();
    assert!(noticed.starts_with("they keep what they have") || noticed == "what is not cached is missing", "{away:#}");
    let (code, out) = next(relay.admin, "server_away").await;
    let line = out.lines().find(|line| line.starts_with("server away: "));
    assert!(code == 0 && line.is_some_and(|line| line.contains("3 views, 3 client streams")), "{out}");
    drop(held);
}

#[tokio::test]
async fn server_away_is_over_when_it_is_back() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta, backoff: {initial: 10ms, max: 10ms}").await;
    let (_client, stream) = views(&mut plane, &relay, &["one"]).await.pop().unwrap();
    drop(stream);
    let address = plane.kill().await;
    appears(relay.admin, "server_away").await;
    let mut plane = Plane::start_at(address, &[Variant::Delta]).await;
    let stream = plane.stream().await;
    say(&stream, "2", &[], &TWO, &[]);
    goes(relay.admin, "server_away").await;
}

#[tokio::test]
async fn nacks_of_many_clients_in_several_views_are_one_problem_for_each_reason() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut clients = views(&mut plane, &relay, &["one", "two", "three"]).await;
    for (number, (client, stream)) in clients.iter_mut().enumerate() {
        say(stream, "2", &[], &[("a", "2")], &[]);
        let sent = client.sent().await;
        client.refuse_for(CDS, &[], &sent, if number < 2 { "bad cluster" } else { "no memory" });
    }
    until("both reasons, of all clients", async || {
        let most = of_kind(relay.admin, "nacks").await;
        page(relay.admin).await["kinds"]["nacks"] == 2 && most.is_some_and(|most| most["clients"] == 2)
    })
    .await;
    let most = of_kind(relay.admin, "nacks").await.unwrap();
    assert_eq!(
        (&most["reason"], &most["clients"], &most["views"]["count"]),
        (&"bad cluster".into(), &2.into(), &2.into())
    );
    assert_eq!((&most["subject"], &most["title"]), (&"CDS".into(), &"clients NACK".into()));
    let (code, out) = next(relay.admin, "nacks").await;
    assert!(code == 1 && out.contains("bad cluster"), "{out}");
    for (client, stream) in &mut clients {
        say(stream, "3", &[], &[("a", "3")], &[]);
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
    }
    goes(relay.admin, "nacks").await;
}

#[tokio::test]
async fn dangling_clusters_are_one_problem_with_their_names() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {reference_hold: 1s}").await;
    let (stream, mut client) = led_to(&mut plane, &relay, "nowhere").await;
    let dangling = appears(relay.admin, "dangling").await;
    assert_eq!(dangling["names"], serde_json::json!({"count": 1, "first": ["nowhere"]}));
    assert_documented("curl -s 127.0.0.1:19000/problems", &page(relay.admin).await.to_string());
    let (code, out) = next(relay.admin, "dangling").await;
    assert!(code == 1 && out.contains("nowhere"), "{out}");
    say(&stream, "9", &[], &[("nowhere", "1")], &[]);
    assert_eq!(client.sent().await.set, ["nowhere"]);
    goes(relay.admin, "dangling").await;
}

#[tokio::test]
async fn refused_types_are_one_problem_by_their_status() {
    let plane = Refusing::start(&[MADE_UP], UNKNOWN).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut honest = Client::connect(relay.address, Variant::Delta).await;
    honest.ask(CDS, &[], Some("web"));
    assert_eq!(honest.sent().await.set, ["a"]);
    honest.ask(MADE_UP, &["x"], None);
    until("it is refused", async || of_kind(relay.admin, "refused").await.is_some()).await;
    let refused = of_kind(relay.admin, "refused").await.unwrap();
    assert_eq!((&refused["subject"], &refused["views"]["count"]), (&"other types".into(), &1.into()));
    assert!(refused["reason"].as_str().unwrap().contains("no such type"), "{refused:#}");
    next(relay.admin, "refused").await;
}

#[tokio::test]
async fn brake_held_removals_are_one_problem_of_their_type() {
    let mut bench = Bench::start(Variant::Delta, "").await;
    let all = names(0..100);
    let client = Holder::new(bench.relay.address, Variant::Delta, ALL_CLUSTERS).await;
    let mut server = asked(&mut bench.plane, CDS).await;
    server.set(CDS, bare(&all));
    has(&client, "all clusters", &all).await;
    server.set(CDS, bare(names(0..10)));
    let admin = bench.relay.admin;
    let held = appears(admin, "brake_held").await;
    assert_eq!(
        (&held["subject"], &held["names"]["count"], &held["views"]["count"]),
        (&"CDS".into(), &90.into(), &1.into())
    );
    let (code, out) = next(admin, "brake_held").await;
    assert!(code == 1 && out.contains("90"), "{out}");
    server.set(CDS, bare(&all));
    goes(admin, "brake_held").await;
}

#[tokio::test]
async fn laggards_are_those_that_leave_a_reply_unanswered() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &TWO, &[]);
    let sent = client.sent().await;
    until("it has waited long", async || of_kind(relay.admin, "laggards").await.is_some()).await;
    let late = of_kind(relay.admin, "laggards").await.unwrap();
    assert_eq!((&late["subject"], &late["clients"]), (&"CDS".into(), &1.into()));
    next(relay.admin, "laggards").await;
    client.ack(CDS, &[], &sent);
    goes(relay.admin, "laggards").await;
}
