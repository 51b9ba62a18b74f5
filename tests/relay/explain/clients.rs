//! Which client an explanation is for: ids that are almost right.

use weir_core::proto::node::Node;

use super::super::status::weir;
use super::*;

#[tokio::test]
async fn an_id_that_is_nearly_that_of_a_client_is_answered_with_those_that_are_connected() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut clients = Vec::new();
    for id in ["envoy-11", "envoy-12", "envoy-13", "envoy-14", "gateway"] {
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask_as(&Node { id: id.into(), cluster: "web".into(), ..Node::default() }, CDS, &[]);
        clients.push(client);
    }
    let all_are_there = async || get(relay.admin, "/clients").await.matches("\"node\"").count() == 5;
    until("all are there", all_are_there).await;
    let asked = async |id: &str| probe(relay.admin, &format!("/explain?client={id}&type=clusters&name=a")).await;
    let (status, said) = asked("envoy-1").await;
    assert!(status == 404 && said.ends_with("have them; connected: envoy-11, envoy-12, envoy-13\n"), "{said}");
    assert!(asked("nobody").await.1.ends_with("weir status have them\n"));
    let admin = relay.admin.to_string();
    let explain = ["explain", "--admin", &admin, "--client", "gatewya", "clusters", "*"];
    let (code, _, error) = weir(&explain).await;
    assert!(code == 2 && error.ends_with("have them; connected: gateway\n"), "{code} {error}");
}

#[tokio::test]
async fn what_a_client_does_not_subscribe_to_is_said_with_the_name_that_it_may_mean() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["payments"], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &[], &[("payments", "1")], &[]);
    let of = cluster_of(&relay);
    of("payments").is("unacked", &["subscribed_by_name", ACTIVE, "present", "sent", "unacked"]).await;
    let page = of("paymnets").is("not_subscribed", &["not_subscribed", ACTIVE, "unknown"]).await;
    assert!(text(&page, "not_subscribed").ends_with("; it subscribes to payments"), "{page:#}");
    advised(&page, "not_subscribed", "the client does not subscribe to the name");
    assert!(text(&page, "unknown").ends_with("; payments exists"), "{page:#}");
    let of_listeners = Asked { kind: "listeners", ..of("payments") };
    of_listeners.is("not_subscribed", &["type_not_requested", ACTIVE, "unknown"]).await;
}

#[tokio::test]
async fn rules_and_names_that_cannot_be_requested_are_said() {
    let rule = "access: [{types: [envoy.config.cluster.v3.Cluster], names: [b], allow_from: [10.0.0.0/8]}]\n";
    let (relay, _plane, _stream, client, sent) = two_clusters(rule).await;
    assert_eq!(sent.set, ["a"]);
    let of = cluster_of(&relay);
    let page = of("b").is("not_allowed", &[STAR, "not_allowed"]).await;
    situation(
        &page,
        "`access` rules hide it",
        "not_allowed",
        "permissions or access rules do not allow this client to have it",
    );
    advised(&page, "not_allowed", "permissions or access rules do not allow this client to have it");
    client.ack(CDS, &[], &sent);
    let name = "xdstp://nobody.example/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    client.ask(EDS, &[name], None);
    let rejected = Asked { kind: "endpoints", ..of("") };
    let rejected = Asked { name, ..rejected };
    let page = rejected.is("rejected", &["name_rejected"]).await;
    assert!(text(&page, "name_rejected").contains("no servers are configured"), "{page:#}");
}

#[tokio::test]
async fn a_name_for_which_there_is_no_room_is_said() {
    let plane = Plane::start(&BOTH).await;
    let rest = "views: {key: [cluster]}\nlimits: {names_per_view: 1}\n";
    let app = crate::bind(config(plane.address, ", variant: delta", rest)).await.unwrap();
    let relay = run(app, std::future::pending());
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &["a", "b"], Some("web"));
    let of = cluster_of(&relay);
    until("one of the two has no room", async || {
        let pages = [of("a").page().await, of("b").page().await];
        pages.iter().filter(|page| page["verdict"] == "rejected" && codes_of(page).contains(&"no_room")).count() == 1
    })
    .await;
    let pages = [of("a").page().await, of("b").page().await];
    let page = pages.iter().find(|page| page["verdict"] == "rejected").unwrap();
    situation(page, "A limit is reached", "rejected", "there is no room for another name");
}
