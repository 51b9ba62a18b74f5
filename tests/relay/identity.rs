//! Which clients share a view, and what the clients of a view have in common.

use prost::Message;
use prost_types::{Struct, Value, value::Kind};
use weir_core::proto::node::Node;

use super::log_lines::Lines;
use super::*;

#[tokio::test]
async fn clients_of_one_key_share_a_stream_and_clients_of_two_do_not() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut clients = Vec::new();
    for number in 0..40 {
        let client = Client::connect(relay.address, BOTH[number % 2]).await;
        client.ask(CDS, &[], Some(["web", "db"][number / 2 % 2]));
        clients.push(client);
    }
    let mut streams = Vec::new(); // dropping a stream would end it
    for _ in 0..2 {
        let mut stream = plane.stream().await;
        let first = stream.request().await;
        let node: weir_core::proto::node::Node = prost::Message::decode(first.node().unwrap().clone()).unwrap();
        let own = format!("of-{}", node.cluster);
        say(&stream, "1", &[(&own, "1")], &[(&own, "1")], &[]);
        streams.push(stream);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.sent().await.set, [["of-web", "of-db"][number / 2 % 2]]);
    }
    assert!(plane.streams.try_recv().is_err(), "two views, two streams");

    let report = get(relay.admin, "/upstreams").await;
    assert!(report.contains("\"clients\": 20") && report.contains("\"connected\": true"), "{report}");
    let report = get(relay.admin, "/clients").await;
    assert_eq!(report.matches("\"wildcard\": true").count(), 40, "{report}");
    assert_eq!(get(relay.admin, "/healthz").await, "ok\n");
}

/// The gateways of one deployment share a view. A field that the key does not exclude separates clients.
#[tokio::test]
async fn key_2_clients_share_by_what_is_left_out_and_the_server_is_shown_the_rest() {
    const KEY: &str = "views: {key: [{id: {part: 1, of: '~'}}, {id: {part: 4, of: '~'}}, {metadata: {except: [NAME]}}]}\n\
        permissions: [{name: all, identities: [{network: 127.0.0.0/8}], free: [id, metadata]}]\n";
    let mut plane = Plane::start(&BOTH).await;
    let relay = run(crate::bind(config(plane.address, "", KEY)).await.unwrap(), std::future::pending());
    let text = |value: &str| Value { kind: Some(Kind::StringValue(value.to_owned())) };
    let mut clients = Vec::new();
    for (number, zone) in [(1, "a"), (2, "a"), (3, "b")] {
        let name = format!("gateway-{number}");
        let fields = [("NAME".to_owned(), text(&name)), ("ZONE".to_owned(), text(zone))];
        let id = format!("router~10.0.0.{number}~{name}.shop~shop.svc");
        let node = Node { id, metadata: Some(Struct { fields: fields.into() }), ..Node::default() };
        let client = Client::connect(relay.address, Variant::Delta).await;
        let Client::Delta(requests, _) = &client else { unreachable!() };
        let node = Some(node.encode_to_vec().into());
        requests.send(DeltaDiscoveryRequest { node, type_url: CDS.into(), ..Default::default() }).unwrap();
        clients.push((client, zone));
    }
    let mut streams = Vec::new(); // dropping a stream would end it
    for _ in 0..2 {
        let mut stream = plane.stream().await;
        let first = stream.request().await;
        let node = Node::decode(first.node().unwrap().clone()).unwrap();
        assert_eq!(node.id, "router~~~shop.svc");
        let metadata = node.metadata.unwrap().fields;
        assert!(!metadata.contains_key("NAME"), "{metadata:?}");
        let zone = ["a", "b"].into_iter().find(|zone| metadata.get("ZONE") == Some(&text(zone))).unwrap();
        let own = format!("of-{zone}");
        say(&stream, "1", &[(&own, "1")], &[(&own, "1")], &[]);
        streams.push(stream);
    }
    for (client, zone) in &mut clients {
        assert_eq!(client.sent().await.set, [format!("of-{zone}")]);
    }
    assert!(plane.streams.try_recv().is_err(), "two views, two streams");
    let report = get(relay.admin, "/upstreams").await;
    for shown in ["\"id part 4 of ~\": \"shop.svc\"", "\"metadata except NAME\": "] {
        assert!(report.contains(shown), "{shown} is missing in {report}");
    }
}

#[tokio::test]
async fn trn_6_trn_12_a_stream_that_makes_no_sense_is_ended_with_a_reason() {
    let (lines, _guard) = Lines::of_this_thread();
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], None);
    assert_eq!(client.ended().await, Code::InvalidArgument, "no node");
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &client else { unreachable!() };
    let node = Some(bytes::Bytes::from_static(b"\x0a\xff"));
    requests.send(DeltaDiscoveryRequest { node, type_url: CDS.into(), ..Default::default() }).unwrap();
    assert_eq!(client.ended().await, Code::InvalidArgument, "a node that cannot be read");
    assert!(get(relay.admin, "/clients").await.contains("\"open\": 0"));
    let metrics = get(relay.admin, "/metrics").await;
    for reason in ["no_node", "bad_node"] {
        let line = format!("weir_client_streams_rejected_total{{reason=\"{reason}\"}} 1\n");
        assert!(metrics.contains(&line), "{line} is missing in {metrics}");
    }
    let logged = lines.with("client stream rejected");
    assert!(logged.len() == 2 && logged.iter().all(|(level, _)| *level == tracing::Level::WARN), "{logged:?}");
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask("", &[], Some("web"));
    assert_eq!(client.ended().await, Code::InvalidArgument, "no type");
}

#[tokio::test]
#[ignore = "keeps the processors busy: a thousand clients"]
async fn night_a_thousand_clients_of_one_view_need_one_stream_and_all_coming_back_at_once_no_request() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    let mut streams = Vec::new();
    for round in 0..3 {
        let mut clients = Vec::new();
        for number in 0..1_000 {
            let client = Client::connect(relay.address, BOTH[number % 2]).await;
            client.ask(CDS, &[], Some("web"));
            clients.push(client);
        }
        if round == 0 {
            let stream = plane.stream().await;
            say(&stream, "1", &TWO, &TWO, &[]);
            streams.push(stream);
        }
        for client in &mut clients {
            assert_eq!(client.sent().await.set, ["a", "b"]);
        }
        drop(clients); // disconnects all at once
    }
    let mut requests = 0;
    while streams[0].requests.try_recv().is_ok() {
        requests += 1;
    }
    assert_eq!(requests, 2, "the subscription and the ACK");
    assert!(plane.streams.try_recv().is_err());
}

#[tokio::test]
async fn i5_versions_are_equal_on_two_relays_and_after_a_restart() {
    let mut versions = Vec::new();
    for (up, version) in [(Variant::Sotw, "1"), (Variant::Delta, "77"), (Variant::Sotw, "another")] {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut client = Client::connect(relay.address, Variant::Sotw).await;
        client.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        say(&stream, version, &TWO, &TWO, &[]);
        versions.push(client.sent().await.version);
    }
    assert!(versions.iter().all(|version| *version == versions[0]), "{versions:?}");
}
