//! Types in the configuration.

use super::*;

#[tokio::test]
async fn type_7_a_built_in_type_that_is_only_moved_in_the_order_is_answered_and_stays_full_state() {
    each_translation(async |up, down| {
        let mut plane = Plane::start(&BOTH).await;
        let types = "views: {key: [cluster]}\ntypes:\n- name: envoy.config.cluster.v3.Cluster\n  \
                     order_with: envoy.config.endpoint.v3.ClusterLoadAssignment\n";
        let config = config(plane.address, protocol_of(up), types);
        let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
        let mut client = Client::connect(relay.address, down).await;
        client.ask(CDS, &[], Some("web")); // the legacy wildcard
        let mut stream = plane.stream().await;
        stream.request().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        let sent = client.sent().await;
        assert_eq!(sent.set, ["a", "b"]);
        client.ack(CDS, &[], &sent);
        say(&stream, "2", &[("a", "1")], &[], &["b"]);
        let sent = client.sent().await;
        match down {
            Variant::Sotw => assert_eq!(sent.set, ["a"], "a set without it is its removal"),
            Variant::Delta => assert_eq!(sent.removed, ["b"]),
        }
    })
    .await;
}
