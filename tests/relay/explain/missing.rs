//! Missing names: which resources refer to them, what the set has instead, and how much of that is known.

use weir_core::proto::node::Node;

use super::*;

/// Returns a relay of a SotW control plane with complete sets, and a delta client with its listeners and clusters.
async fn complete(clusters: &[(&str, &str)], listener_to: &str) -> (Relay, Plane, Stream, Client) {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay(plane.address, ", variant: sotw").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    client.ask(LDS, &[], None);
    let mut stream = plane.stream().await;
    while stream.request().await.type_url() != LDS {}
    say(&stream, "1", clusters, &[], &[]);
    let (type_url, version_info, nonce) = (LDS.into(), "1".into(), "l1".into());
    let resources = listener("l", listener_to, "1").resource.into_iter().collect();
    stream.respond(&Response::Sotw(DiscoveryResponse {
        type_url,
        version_info,
        nonce,
        resources,
        ..Default::default()
    }));
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    (relay, plane, stream, client)
}

#[tokio::test]
async fn a_listener_that_refers_to_a_cluster_which_a_complete_set_lacks_is_said_at_both_ends() {
    let (relay, _plane, _stream, mut client) = complete(&TWO, "nowhere").await;
    let of = cluster_of(&relay);
    let chain = [STAR, ACTIVE, "not_in_set", "set_complete", "referred_by", "not_sent"];
    let page = of("nowhere").is("missing", &chain).await;
    situation(
        &page,
        "A route refers to a missing cluster",
        "missing",
        "the set of its server is complete and does not have it",
    );
    assert_eq!(text(&page, "set_complete"), "the set has 2 resources, and is complete");
    assert!(
        reason(&page, "set_complete")["heard_seconds"].is_f64() && page["set"]["heard_seconds"].is_f64(),
        "{page:#}"
    );
    assert_eq!((&page["set"]["cached"], &page["set"]["completeness"]), (&2.into(), &"complete".into()));
    assert_eq!(text(&page, "referred_by"), "Listener l refers to it");
    let sent = client.sent().await;
    assert_eq!(sent.set, ["l"]);
    client.ack(LDS, &[], &sent);
    let listeners = Asked { kind: "listeners", ..of("l") };
    let page = listeners.is("acked", &[STAR, ACTIVE, "present", "refers_to_missing", "sent", "acked"]).await;
    assert_eq!(text(&page, "refers_to_missing"), "it refers to what the complete set does not have: Cluster nowhere");
    let missing = serde_json::json!([{"type": &CDS[20..], "name": "nowhere", "state": "not_in_set"}]);
    assert_eq!((&page["refers_to_missing"], &page["refers_to_missing_count"]), (&missing, &1.into()));
    let page = of("a").is("acked", &[STAR, ACTIVE, "present", "sent", "acked"]).await;
    assert_eq!((&page["referred_by"], &page["similar"]), (&serde_json::json!([]), &serde_json::json!([])));
}

#[tokio::test]
async fn a_name_that_differs_by_a_letter_or_two_is_not_in_the_set_and_three_are_suggested() {
    let clusters = [("cart-1", "1"), ("cart-3", "1"), ("cart-4", "1"), ("cart-5", "1"), ("other", "1")];
    let (relay, _plane, _stream, _client) = complete(&clusters, "other").await;
    let page = cluster_of(&relay)("cart-2").shows("not_in_set", "not_in_set").await;
    let sentence = "the set of its server is complete and does not have it; cart-1, cart-3 and cart-4 exist";
    situation(&page, "The name is misspelt", "not_in_set", sentence);
    assert_eq!(page["similar"], serde_json::json!(["cart-1", "cart-3", "cart-4"]));
    let page = cluster_of(&relay)("nothing-like-it").shows("not_in_set", "not_in_set").await;
    assert_eq!(page["similar"], serde_json::json!([]));
}

#[tokio::test]
async fn of_a_set_that_is_not_known_to_be_complete_nothing_is_concluded_whatever_refers_to_the_name() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    until("listeners are asked for", async || get(relay.admin, "/upstreams").await.contains("Listener")).await;
    say_listener(&stream, "2", "nowhere", "1");
    let sent = client.sent().await;
    client.ack(LDS, &[], &sent);
    let of = cluster_of(&relay);
    let page = of("nowhere").shows("unknown", "referred_by").await;
    let sentence = "the set has 2 resources, and is not known to be complete";
    situation(&page, "The set is not known to be complete", "unknown", sentence);
    assert!(reason(&page, "set_not_complete")["heard_seconds"].is_f64(), "{page:#}");
    let listeners = Asked { kind: "listeners", ..of("l") };
    let page = listeners.shows("acked", "refers_to_unknown").await;
    let text = text(&page, "refers_to_unknown");
    assert!(text.ends_with("the set is not known to be complete: Cluster nowhere"), "{page:#}");
}

#[tokio::test]
async fn what_a_server_has_removed_is_said_to_be() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    say(&stream, "2", &[], &[], &["a"]);
    let sent = client.sent().await;
    assert_eq!(sent.removed, ["a"]);
    client.ack(CDS, &[], &sent);
    let page = cluster_of(&relay)("a").shows("absent", "acked").await;
    situation(&page, "The server has removed it", "absent", "it does not exist: its server says so");
}

#[tokio::test]
async fn what_has_outlived_its_ttl_is_said_to_have() {
    let (relay, _plane, stream, mut client, sent) = two_clusters("").await;
    client.ack(CDS, &[], &sent);
    let ttl = Some(prost_types::Duration { seconds: 5, nanos: 0 });
    let short = Resource {
        name: "short".into(),
        version: "1".into(),
        resource: Some(cluster("short", "1")),
        ttl,
        ..Default::default()
    };
    let (type_url, nonce, resources) = (CDS.into(), "2".into(), vec![short]);
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
    let sent = client.sent().await;
    assert_eq!(sent.set, ["short"]);
    client.ack(CDS, &[], &sent);
    let page = cluster_of(&relay)("short").shows("absent", "absent").await;
    situation(&page, "Its TTL ran out", "absent", "it does not exist: its TTL is over");
}

#[tokio::test]
async fn a_name_that_the_view_of_a_neighbour_has_is_said_to_be_there() {
    let mut plane = Plane::start(&[Variant::Sotw]).await;
    let relay = relay(plane.address, ", variant: sotw").await;
    let mut neighbour = Client::connect(relay.address, Variant::Delta).await;
    neighbour.ask_as(&Node { id: "neighbour".into(), cluster: "shop".into(), ..Node::default() }, CDS, &[]);
    let of_shop = plane.stream().await;
    say(&of_shop, "1", &[("a", "1"), ("theirs", "1")], &[], &[]);
    assert_eq!(neighbour.sent().await.set, ["a", "theirs"]);
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let of_web = plane.stream().await;
    say(&of_web, "1", &TWO, &[], &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    let of = cluster_of(&relay);
    let page = of("theirs").shows("not_in_set", "in_other_views").await;
    situation(&page, "It is in the view of a neighbour", "not_in_set", "another view has it: cluster=shop");
    assert_eq!((&page["other_views"]["count"], page["other_views"]["views"].as_array().unwrap().len()), (&1.into(), 1));
    assert!(!codes_of(&of("nobody").page().await).contains(&"in_other_views"));
    assert!(!codes_of(&of("a").page().await).contains(&"in_other_views"), "it has its own");
}
