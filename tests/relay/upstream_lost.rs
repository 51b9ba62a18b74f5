//! A control plane that is down, ends or hangs, and names with several addresses.

use super::*;

#[tokio::test]
async fn xlat_36_without_upstream_a_new_grpc_client_is_sent_to_its_next_server() {
    let nobody = any_address().await;
    let relay = relay(nobody, "").await;
    let [mut grpc, mut envoy] =
        [Client::connect(relay.address, Variant::Sotw).await, Client::connect(relay.address, Variant::Sotw).await];
    envoy.ask(CDS, &["a"], Some("web"));
    let Client::Sotw(requests, _) = &grpc else { unreachable!() };
    let node =
        weir_core::proto::node::Node { cluster: "web".into(), user_agent_name: "gRPC Go".into(), ..Default::default() };
    let node = Some(prost::Message::encode_to_vec(&node).into());
    let (type_url, resource_names) = (CDS.into(), vec!["a".into()]);
    requests.send(DiscoveryRequest { node, type_url, resource_names, ..Default::default() }).unwrap();
    assert_eq!(grpc.ended().await, Code::Unavailable, "and not one reply before");
    let mut plane = Plane::start_at(nobody, &BOTH).await;
    say_named(&mut plane.stream().await, CDS, "a").await;
    assert_eq!(envoy.sent().await.set, ["a"], "it has waited");
}

#[tokio::test]
async fn upstream_lost_in_each_phase_is_asked_again_and_a_hung_one_is_nobodys_business() {
    for (phase, up) in (0..4).flat_map(|phase| BOTH.map(|up| (phase, up))) {
        let mut plane = Plane::start(&BOTH).await;
        let relay = relay(plane.address, protocol_of(up)).await;
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &["*"], Some("web"));
        if phase > 0 {
            let mut stream = plane.stream().await; // the stream is open
            if phase > 1 {
                stream.request().await; // the request has arrived
            }
            if phase > 2 {
                say(&stream, "1", &[("a", "1")], &[("a", "1")], &[]); // the first part is sent
                assert_eq!(client.sent().await.set, ["a"]);
            }
        }
        let address = plane.kill().await;
        let mut plane = Plane::start_at(address, &BOTH).await;
        let stream = plane.stream().await;
        let news: &[(&str, &str)] = if phase > 2 { &TWO[1..] } else { &TWO };
        say(&stream, "2", &TWO, news, &[]);
        let sent = client.sent().await;
        let expected: &[&str] = if phase > 2 { &["b"] } else { &["a", "b"] };
        assert_eq!(sent.set, expected, "phase {phase}, {up:?} upstream");
        // The server is silent now. A connected client is sent nothing, and a new client gets the set from the cache.
        let mut late = Client::connect(relay.address, Variant::Sotw).await;
        late.ask(CDS, &["*"], Some("web"));
        assert_eq!(late.sent().await.set, ["a", "b"]);
        say(&stream, "3", &[("a", "1"), ("b", "1"), ("c", "1")], &[("c", "1")], &[]);
        assert_eq!(client.sent().await.set, ["c"], "phase {phase}, {up:?} upstream");
    }
}

#[tokio::test]
async fn a_type_that_nobody_knows_is_relayed_and_every_address_of_a_name_is_tried() {
    const OWN: &str = "example.org/own.Type";
    let mut plane = Plane::start_at("127.0.0.1:0".parse().unwrap(), &BOTH).await;
    // On most machines the name has an IPv6 address too, on which no server listens.
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nupstream: {{servers: [{{uri: 'http://localhost:{}'}}]}}\n",
        plane.address.port()
    );
    let app = crate::bind(Config::parse(Path::new("test.yaml"), &text).unwrap()).await.unwrap();
    let address = app.addresses()[0];
    let task = tokio::spawn(app.run());
    let mut client = Client::connect(address, Variant::Delta).await;
    client.ask(OWN, &["mine"], Some("web"));
    let stream = plane.stream().await;
    let any = Any { type_url: OWN.into(), value: vec![1, 2, 3].into() };
    let resource = Resource { version: "1".into(), name: "mine".into(), resource: Some(any), ..Default::default() };
    let type_url = OWN.into();
    let nonce = "1".into();
    stream.respond(&Response::Delta(DeltaDiscoveryResponse {
        resources: vec![resource],
        type_url,
        nonce,
        ..Default::default()
    }));
    assert_eq!(client.sent().await.set, ["mine"]);
    task.abort();
}
