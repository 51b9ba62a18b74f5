//! Changes that a control plane sends in the wrong order reach clients in the right one, over real connections.

use serde_json::Value;

use super::examples::assert_documented;
use super::*;

/// A listener that forwards its connections to one cluster.
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

async fn run_with(plane: &Plane, rest: &str) -> Relay {
    let app = crate::bind(config(plane.address, protocol_of(Variant::Delta), rest)).await.unwrap();
    run(app, std::future::pending())
}
