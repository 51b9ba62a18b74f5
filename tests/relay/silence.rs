//! Silent servers: one that is alive and has nothing to send, and one that hangs (UP-36, XLAT-36).

use super::plane::Habits;
use super::*;
use weir_core::proto::node::Node;

async fn relay_of_little_patience(plane: SocketAddr) -> Relay {
    let config = config(plane, ", variant: delta", "views: {key: [cluster]}\nlimits: {resource_timer: 100ms}\n");
    run(crate::bind(config).await.unwrap(), std::future::pending())
}

#[tokio::test]
async fn up_36_the_silence_of_a_server_that_hangs_says_nothing_and_that_of_one_that_is_there_does() {
    let hangs = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(); // connections succeed, and the server sends nothing
    let relay = relay_of_little_patience(hangs.local_addr().unwrap()).await;
    let mut waits = Client::connect(relay.address, Variant::Delta).await;
    waits.ask(EDS, &["a"], Some("web"));

    let mute = Plane::with(plane::own_address(), Habits { late_headers: true, ..Habits::default() }).await;
    let relay = relay_of_little_patience(mute.address).await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(EDS, &["a"], Some("web"));
    assert_eq!(client.sent().await.removed, ["a"], "asked whether it is there, it has answered");
    waits.hears_nothing(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn xlat_36_a_grpc_client_is_ended_over_the_wire_when_no_server_is_in_reach() {
    let nobody = any_address().await;
    let relay = relay_of_little_patience(nobody).await;
    let node = Node { user_agent_name: "gRPC Go".into(), ..Node::default() };
    let mut client = Client::connect(relay.address, Variant::Sotw).await;
    client.ask_as(&node, EDS, &["a"]);
    assert_eq!(client.ended().await, Code::Unavailable, "it has another server to turn to");
    let ladder: serde_json::Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
    let ladder = &ladder[0]["authorities"][0];
    let refused = ladder["reason"].as_str().is_some_and(|reason| reason.contains("Connection refused"));
    assert!(ladder["state"] == "down" && refused, "{ladder:#}");
    let mut envoy = Client::connect(relay.address, Variant::Sotw).await;
    envoy.ask(EDS, &["a"], Some("web"));
    let mut plane = Plane::start_at(nobody, &BOTH).await;
    say_named(&mut plane.stream().await, EDS, "a").await;
    assert_eq!(envoy.sent().await.set, ["a"], "it has waited");
}

#[tokio::test]
async fn i3_and_name_10_who_waits_for_as_long_as_it_takes_and_what_cannot_be_requested_show_in_the_metrics() {
    let nobody = any_address().await;
    let relay = relay_of_little_patience(nobody).await;
    let shows = async |name: &str, value: &str| {
        let is = |line: &str| line.starts_with(name) && line.ends_with(value);
        until(name, async || get(relay.admin, "/metrics").await.lines().any(is)).await;
    };
    let client = Client::connect(relay.address, Variant::Sotw).await;
    let Client::Sotw(requests, _) = &client else { unreachable!() };
    let node = Node { cluster: "web".into(), ..Node::default() };
    let node = Some(prost::Message::encode_to_vec(&node).into());
    let request = DiscoveryRequest { node, type_url: CDS.into(), version_info: "held".into(), ..Default::default() };
    requests.send(request).unwrap();
    shows("weir_client_streams_blocked{", "} 1").await;
    client.ask(LDS, &["xdstp:broken", "fine"], None);
    shows("weir_client_names_rejected_total", " 1").await;
    drop(client);
    shows("weir_client_streams_blocked{", "} 0").await;
}
