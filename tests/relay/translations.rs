//! Each combination of variants upstream and downstream: what every client is sent.

use super::*;

#[tokio::test]
async fn up_32_all_four_translations_tell_each_client_what_it_needs_and_survive_the_loss_of_upstream() {
    each_translation(changes_and_an_outage).await;
}

async fn changes_and_an_outage(up: Variant, down: Variant) {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, protocol_of(up)).await;
    let mut client = Client::connect(relay.address, down).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    assert_eq!(stream.variant, up);
    let first = stream.request().await;
    assert!(first.node().is_some() && nonce_of(&first).is_empty());
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    assert_eq!((sent.set.as_slice(), sent.removed.len()), (["a".to_owned(), "b".to_owned()].as_slice(), 0));
    client.ack(CDS, &[], &sent);
    assert_eq!(nonce_of(&stream.request().await), "1", "answered upstream without waiting for clients");

    // A change is one resource in delta and the complete set in SotW; equal content is not sent.
    say(&stream, "2", &[("a", "1"), ("b", "2")], &[("b", "2")], &[]);
    let sent = client.sent().await;
    let expected: &[&str] = if down == Variant::Delta { &["b"] } else { &["a", "b"] };
    assert_eq!(sent.set, expected);
    client.ack(CDS, &[], &sent);
    say(&stream, "3", &[("a", "1"), ("b", "2")], &[("a", "1"), ("b", "2")], &[]);
    say(&stream, "4", &[("a", "1"), ("b", "2"), ("c", "1")], &[("c", "1")], &[]);
    let sent = client.sent().await;
    let expected: &[&str] = if down == Variant::Delta { &["c"] } else { &["a", "b", "c"] };
    assert_eq!(sent.set, expected);
    client.ack(CDS, &[], &sent);

    // Upstream goes down. No client is sent anything, and new clients are served from the cache.
    let address = plane.kill().await;
    super::failover::standing(&relay, "\"connected\": false").await;
    let mut late = Client::connect(relay.address, down).await;
    late.ask(CDS, &[], Some("web"));
    assert_eq!(late.sent().await.set, ["a", "b", "c"]);

    // Upstream is back, without the cluster `a`.
    let mut plane = Plane::start_at(address, &BOTH).await;
    let mut stream = plane.stream().await;
    if let Request::Delta(request) = stream.request().await {
        let stated = request.initial_resource_versions.into_keys();
        let held: Vec<_> = stated.filter(|name| !name.starts_with(plane::END_OF_SET)).collect();
        assert_eq!(
            held,
            ["a", "b", "c"],
            "under versions of its own, or if it was cut off early, under such as are nobody's"
        );
    }
    say(&stream, "9", &[("b", "2"), ("c", "1")], &[], &["a"]);
    let sent = client.sent().await;
    match down {
        Variant::Sotw => assert_eq!(sent.set, ["b", "c"]),
        Variant::Delta => assert_eq!((sent.set.len(), sent.removed.as_slice()), (0, ["a".to_owned()].as_slice())),
    }
}

#[tokio::test]
async fn xlat_3_an_upstream_version_says_nothing_of_the_content() {
    each_translation(|up, down| async move {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut client = Client::connect(relay.address, down).await;
        client.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
        say(&stream, "1", &[("a", "1"), ("b", "2")], &[("b", "2")], &[]);
        let sent = client.sent().await;
        assert!(sent.set.contains(&"b".to_owned()), "other bytes under the same version: {sent:?}");
        client.ack(CDS, &[], &sent);
        for version in ["2", "3"] {
            say(&stream, version, &[("a", "1"), ("b", "2")], &[("a", "1"), ("b", "2")], &[]);
        }
        say(&stream, "4", &[("a", "1"), ("b", "2"), ("c", "1")], &[("c", "1")], &[]);
        let expected: &[&str] = if down == Variant::Delta { &["c"] } else { &["a", "b", "c"] };
        assert_eq!(client.sent().await.set, expected, "nothing came for the other versions");
    })
    .await;
}

/// Tests `*` and a name of one type: the content for the name differs from that for `*`, and each client sees only its own.
#[tokio::test]
async fn xlat_13_a_wildcard_and_a_name_are_requested_and_kept_apart() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut all = Client::connect(relay.address, Variant::Delta).await;
    all.ask(CDS, &["*"], Some("web"));
    let first = plane.stream().await;
    let mut one = Client::connect(relay.address, Variant::Delta).await;
    one.ask(CDS, &["hidden"], Some("web"));
    let second = tokio::time::timeout(Duration::from_secs(5), plane.stream()).await.expect("a stream for names");
    say(&first, "1", &[], &TWO, &[]);
    say(&second, "1", &[], &[("hidden", "1")], &[]);
    assert_eq!(all.sent().await.set, ["a", "b"]);
    assert_eq!(one.sent().await.set, ["hidden"]);
    say(&first, "2", &[], &[("c", "1")], &[]);
    assert_eq!(all.sent().await.set, ["c"], "nothing of the name");
}

/// A cluster changes and its endpoints do not. They are still sent after it.
#[tokio::test]
async fn delta_45_endpoints_follow_a_changed_cluster_over_the_wire() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["*"], Some("web"));
    let stream = plane.stream().await;
    let with_eds = |content: &str| {
        let mut any = cluster("a", content);
        let mut value = any.value.to_vec();
        value.extend([0x1a, 4, 0x0a, 2, 0x1a, 0]); // its endpoints come over ADS, under its own name
        any.value = value.into();
        any
    };
    let respond = |url: &str, name: &str, any: Any, version: &str| {
        let resource =
            Resource { version: version.into(), name: name.into(), resource: Some(any), ..Default::default() };
        let (type_url, nonce) = (url.to_owned(), version.to_owned());
        stream.respond(&Response::Delta(DeltaDiscoveryResponse {
            resources: vec![resource],
            type_url,
            nonce,
            ..Default::default()
        }));
    };
    respond(CDS, "a", with_eds("1"), "1");
    client.sent().await;
    client.ask(EDS, &["a"], None);
    let mut endpoints = cluster("a", "endpoints");
    endpoints.type_url = EDS.into();
    // The relay has requested them before the client does; this is the response.
    super::driver::clients(&relay, "the client has requested them", |report| {
        let types = report[0]["types"].as_array().unwrap();
        types.iter().any(|kind| EDS.ends_with(kind["type"].as_str().unwrap()) && kind["names"] == 1)
    })
    .await;
    respond(EDS, "a", endpoints.clone(), "2");
    assert_eq!(client.sent().await.set, ["a"]);
    respond(CDS, "a", with_eds("2"), "3");
    assert_eq!(client.sent().await.set, ["a"], "the cluster");
    let sent = tokio::time::timeout(Duration::from_secs(2), client.sent()).await.expect("its endpoints");
    assert_eq!(sent.set, ["a"]);
}
