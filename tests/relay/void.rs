//! Changes that a control plane sends in the wrong order reach clients in the right one, over real connections.

use serde_json::Value;

use super::examples::assert_documented;
use super::log_lines::Lines;
use super::*;

/// Returns a listener that forwards its connections to one cluster.
pub fn listener(name: &str, cluster: &str, content: &str) -> Resource {
    let nested = |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let proxy = b"type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
    let any = [nested(1, proxy), nested(2, &nested(2, cluster.as_bytes()))].concat();
    let chain = nested(3, &nested(4, &any));
    let body = [nested(1, name.as_bytes()), nested(3, &chain), nested(13, content.as_bytes())].concat();
    let resource = Some(Any { type_url: LDS.into(), value: body.into() });
    Resource { name: name.into(), version: cluster.into(), resource, ..Default::default() }
}

fn say_listener(stream: &Stream, nonce: &str, cluster: &str) {
    let (type_url, nonce) = (LDS.into(), nonce.into());
    let resources = vec![listener("l", cluster, "")];
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
}

async fn dangling(relay: &Relay) -> Value {
    serde_json::from_str(&get(relay.admin, "/dangling").await).unwrap()
}

#[tokio::test]
async fn ord_1_a_route_waits_for_its_cluster_and_a_cluster_for_its_route_and_what_leads_nowhere_is_shown() {
    for variant in BOTH {
        let mut plane = Plane::start(&[Variant::Delta]).await;
        let relay = run_with(&plane, "limits: {reference_hold: 1s}").await;
        let mut client = Client::connect(relay.address, variant).await;
        client.ask(CDS, &[], Some("web"));
        let mut stream = plane.stream().await;
        say(&stream, "1", &[], &[("a", "1")], &[]);
        let sent = client.sent().await;
        client.ack(CDS, &[], &sent);
        client.ask(LDS, &[], None);
        while stream.request().await.type_url() != LDS {}
        say_listener(&stream, "2", "a");
        let sent = client.sent().await;
        assert_eq!(sent.set, ["l"]);
        client.ack(LDS, &[], &sent);

        say(&stream, "3", &[], &[], &["a"]);
        say_listener(&stream, "4", "b");
        say(&stream, "5", &[], &[("b", "1")], &[]);
        let sent = client.sent().await;
        let all = if variant == Variant::Sotw { vec!["a", "b"] } else { vec!["b"] };
        assert!(sent.set.iter().eq(all) && sent.removed.is_empty(), "{sent:?}");
        client.ack(CDS, &[], &sent);
        let sent = client.sent().await;
        assert_eq!(sent.set, ["l"], "the listener goes to the new cluster");
        client.ack(LDS, &[], &sent);
        let sent = client.sent().await;
        match variant {
            Variant::Sotw => assert_eq!(sent.set, ["b"]),
            Variant::Delta => assert_eq!(sent.removed, ["a"]),
        }
        client.ack(CDS, &[], &sent);
        assert_eq!(dangling(&relay).await, serde_json::json!([]));

        say_listener(&stream, "6", "nowhere");
        assert_eq!(client.sent().await.set, ["l"], "it waited long enough");
        let shown = dangling(&relay).await;
        assert_documented("curl -s 127.0.0.1:19000/dangling", &shown.to_string());
        assert_eq!(shown[0]["cluster"], "nowhere");
        assert_eq!(shown[0]["from"], serde_json::json!(["envoy.config.listener.v3.Listener l"]));
        let metrics = get(relay.admin, "/metrics").await;
        let lines = |name: &str| metrics.lines().any(|line| line.starts_with(name) && line.ends_with(" 1"));
        assert!(lines("weir_clusters_missing{") && lines("weir_cluster_waits_timed_out_total{"), "{metrics}");
    }
}

/// Connects a delta client, and gives it a cluster and a listener that refers to the cluster.
pub(super) async fn led_to(plane: &mut Plane, relay: &Relay, cluster: &str) -> (Stream, Client) {
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let mut stream = plane.stream().await;
    say(&stream, "1", &[], &[("a", "1"), ("b", "1")], &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    client.ask(LDS, &[], None);
    while stream.request().await.type_url() != LDS {}
    say_listener(&stream, "2", cluster);
    let sent = client.sent().await;
    assert_eq!(sent.set, ["l"]);
    client.ack(LDS, &[], &sent);
    (stream, client)
}

#[tokio::test]
async fn a_cluster_that_is_removed_while_a_listener_refers_to_it_goes_after_its_time_and_is_shown_counted_and_logged() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "limits: {reference_hold: 100ms}").await;
    let (stream, mut client) = led_to(&mut plane, &relay, "a").await;
    say(&stream, "3", &[], &[], &["a"]);
    assert_eq!(client.sent().await.removed, ["a"]);
    until("the removal is counted", async || {
        let metrics = get(relay.admin, "/metrics").await;
        metrics.lines().any(|line| line.starts_with("weir_clusters_removed_in_use_total{") && line.ends_with(" 1"))
    })
    .await;
    until("it is shown", async || {
        let shown = dangling(&relay).await;
        shown[0]["cluster"] == "a" && shown[0]["from_count"] == 1
    })
    .await;
    let metrics = get(relay.admin, "/metrics").await;
    let missing = |line: &str| line.starts_with("weir_clusters_missing{") && line.ends_with(" 1");
    assert!(metrics.lines().any(missing), "{metrics}");
    assert_eq!(lines.with("clusters removed while routing refers to them").len(), 1);
}

#[tokio::test]
async fn a_listener_with_too_many_fields_to_look_at_is_served_counted_and_logged() {
    let (lines, _guard) = Lines::of_this_thread();
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "").await;
    let (stream, mut client) = led_to(&mut plane, &relay, "a").await;
    let mut large = listener("l", "nowhere", "");
    let empty_fields = [13 << 3 | 2, 0].repeat(2_000_001);
    large.resource.as_mut().unwrap().value = empty_fields.into();
    let (type_url, nonce) = (LDS.into(), "3".into());
    stream.respond(&Response::Delta(DeltaDiscoveryResponse {
        type_url,
        nonce,
        resources: vec![large],
        ..Default::default()
    }));
    assert_eq!(client.sent().await.set, ["l"], "it waits for no cluster");
    until("it is counted", async || {
        let metrics = get(relay.admin, "/metrics").await;
        metrics.lines().any(|line| line.starts_with("weir_resources_not_scanned_total{") && line.ends_with(" 1"))
    })
    .await;
    assert_eq!(lines.with("resources too large to find the clusters that they refer to").len(), 1);
}

#[tokio::test]
async fn a_cluster_that_was_rejected_is_shown_as_one_that_routing_refers_to_and_as_rejected() {
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, "").await;
    let (stream, _client) = led_to(&mut plane, &relay, "a").await;
    let flaw = Resource { name: "flaw".into(), version: "7".into(), ..Default::default() };
    let (type_url, nonce, resources) = (CDS.into(), "3".into(), vec![flaw]);
    stream.respond(&Response::Delta(DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() }));
    say_listener(&stream, "4", "flaw");
    until("it is shown", async || dangling(&relay).await[0]["cluster"] == "flaw").await;
    let upstreams: Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
    let types = upstreams[0]["streams"][0]["types"].as_array().unwrap();
    assert!(types.iter().any(|of_type| of_type["rejected"][0]["name"] == "flaw"), "{upstreams:#}");
    let counted = format!(
        "weir_upstream_resources_rejected_total{{server=\"http://{}\",type=\"envoy.config.cluster.v3.Cluster\"}} 1\n",
        plane.address
    );
    assert!(get(relay.admin, "/metrics").await.contains(&counted), "{counted}");
}

#[tokio::test]
async fn a_cluster_that_a_client_may_not_have_exists_and_is_not_shown() {
    let rule = "access: [{types: [envoy.config.cluster.v3.Cluster], names: [b], allow_from: [10.0.0.0/8]}]\n";
    let mut plane = Plane::start(&[Variant::Delta]).await;
    let relay = run_with(&plane, rule).await;
    let (_stream, _client) = led_to(&mut plane, &relay, "b").await;
    let explain = get(relay.admin, "/explain?client=test&type=clusters&name=b").await;
    assert!(explain.contains("\"verdict\": \"not_allowed\""), "{explain}");
    assert_eq!(dangling(&relay).await, serde_json::json!([]));
}

async fn run_with(plane: &Plane, rest: &str) -> Relay {
    let app = crate::bind(config(plane.address, protocol_of(Variant::Delta), rest)).await.unwrap();
    run(app, std::future::pending())
}
