//! A resource on its way to a client, and resources of a set that the client lacks.

use super::super::driver::{Connection, everything};
use super::*;

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
    situation(&page, "The client reads slowly", "unacked", "the client's connection has not taken all of it");
    advised(&page, "unread", "a reply is on its way, and the client's connection has not taken all of it");
    // Another thread encodes so many removals; until then the client does not read slowly.
    until("the client reads nothing", async || {
        let laggards: Value = serde_json::from_str(&get(relay.admin, "/laggards").await).unwrap();
        let client = &laggards["clients"][0];
        assert_eq!((&client["node"], &client["state"]), (&"test".into(), &"STALE".into()));
        client["unread_seconds"].is_f64()
    })
    .await;
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
    let page = of("new").is("waiting", &[STAR, ACTIVE, "present", "not_sent", "waits_for_ack"]).await;
    situation(
        &page,
        "The client never ACKs",
        "waiting",
        "until the client has ACKed or NACKed the last reply of the type",
    );
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
    client.sent().await; // not ACKed, as by an Envoy that warms the cluster
    say_listener(&stream, "4", "a", "2");
    let listeners = Asked { kind: "listeners", ..cluster_of(&relay)("l") };
    let page = listeners.is("waiting", &[STAR, ACTIVE, "present", "earlier_sent", "routing_hold", "acked"]).await;
    assert!(reason(&page, "routing_hold")["until_seconds"].as_f64().unwrap() > 3_000.0, "{page:#}");
    advised(&page, "routing_hold", "it waits until the client has the endpoints of clusters that it was sent");
}
