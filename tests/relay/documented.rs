//! The pages of the program have the form of the examples in docs/admin-api.md.

use prost::Message;
use serde_json::Value;
use weir_core::proto::node::Node;

use super::asking::deltas;
use super::client_status::post_status;
use super::dumps::{World, body_of, cluster_with_key};
use super::examples::{assert_documented, example};
use super::*;

#[tokio::test]
async fn pages_about_clients_are_as_documented() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    let sent = client.sent().await;
    client.ack(CDS, &[], &sent);
    until("the ACK is known", async || get(relay.admin, "/clients").await.contains("SYNCED")).await;
    for (command, path) in [
        ("curl -s '127.0.0.1:19000/clients?node=envoy-1'", "/clients?node=test"),
        ("curl -s '127.0.0.1:19000/diff?client=envoy-1'", "/diff?client=test"),
        (
            "curl -s '127.0.0.1:19000/explain?client=envoy-1&type=clusters&name=cart'",
            "/explain?client=test&type=clusters&name=a",
        ),
    ] {
        assert_documented(command, &get(relay.admin, path).await);
    }
    let laggards: Value = serde_json::from_str(&get(relay.admin, "/laggards").await).unwrap();
    assert_eq!(laggards["clients"], serde_json::json!([]));
    let (status, page) = probe(relay.admin, "/clients/1").await;
    assert!(status == 200 && page.contains("\"session\": 1"), "{page}");
    assert_eq!(probe(relay.admin, "/clients/77").await.0, 404);
    assert_eq!(probe(relay.admin, "/clients/x").await.0, 400);
    assert_eq!(probe(relay.admin, "/clients?state=asleep").await.0, 400);
    assert_eq!(probe(relay.admin, "/clients?limit=1001").await.0, 400);
    assert_eq!(probe(relay.admin, "/explain?client=test&type=clusters").await.0, 400);
    assert_eq!(probe(relay.admin, "/explain?client=nobody&type=clusters&name=a").await.0, 404);
}

#[tokio::test]
async fn pages_about_views_and_contents_are_as_documented() {
    let mut world = World::new().await;
    let admin = world.relay.admin;
    let page = async |path: &str| get(admin, path).await;
    assert_documented("curl -s 127.0.0.1:19000/upstreams", &page("/upstreams").await);
    assert_documented(
        "curl -s '127.0.0.1:19000/resources?type=routes&name=web'",
        &page("/resources?type=clusters").await,
    );
    assert_documented("curl -s 127.0.0.1:19000/rest", &page("/rest").await);
    assert_documented("curl -s 127.0.0.1:19000/server_info", &page("/server_info").await);
    assert_eq!(example("curl -s 127.0.0.1:19000/config | jq .config.limits.linger").trim(), "\"30s\"");
    let config: Value = serde_json::from_str(&page("/config").await).unwrap();
    assert_eq!(config["config"]["limits"]["linger"], "30s");
    let query = "resource=dynamic_active_clusters&mask=cluster.name,version_info,client_status";
    let dump = format!("/config_dump?client={}&{query}", world.client_row().await["session"]);
    let (_, body) = body_of(admin, &dump).await;
    assert_documented(&format!("curl -s '127.0.0.1:19000/config_dump?client=1&{query}'"), &body);
    let request = |node: &str| {
        format!(r#"{{"nodeMatchers": [{{"nodeId": {{"exact": "{node}"}}}}], "excludeResourceContents": true}}"#)
    };
    let command = "curl -s -X POST 127.0.0.1:19000/v3/discovery:client_status \\\n    -d";
    let (_, body) = post_status(admin, &request("test")).await;
    assert_documented(&format!("{command} '{}'", request("envoy-1")), &body);

    world.stream.respond(&deltas(CDS, "5", vec![("b", cluster_with_key("b", "2s"))], &[]));
    let sent = world.client.sent().await;
    world.client.refuse_for(CDS, &[], &sent, "Error adding/updating cluster(s) b: it is bad");
    until("the NACK is known", async || page("/nacks?nacked").await.contains("it is bad")).await;
    assert_documented(
        "curl -s '127.0.0.1:19000/nacks?type=clusters&nacked'",
        &page("/nacks?type=clusters&nacked").await,
    );
}

#[tokio::test]
async fn what_is_wrong_is_shown_as_documented() {
    let plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, "").await;
    until("it is ready", async || probe(relay.admin, "/ready").await.0 == 200).await;
    plane.kill().await;
    let client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[], Some("web"));
    let strict = report_with(&relay, "/ready?strict", "state=down").await;
    let documented = example("curl -s '127.0.0.1:19000/ready?strict'");
    let words = |text: &str| text.split([' ', '=']).take(8).map(str::to_owned).collect::<Vec<_>>();
    let (documented, real) = (words(&documented), words(&strict));
    assert_eq!((&documented[..4], &documented[5..]), (&real[..4], &real[5..]), "all but the view");
}

#[tokio::test]
async fn clients_are_found_page_by_page_and_by_what_is_known_of_them() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut clients = Vec::new();
    for number in 0..25 {
        let client = Client::connect(relay.address, BOTH[number % 2]).await;
        let id = format!("envoy-{number:02}");
        let cluster = if number < 20 { "web" } else { "db" };
        client.ask_as(&Node { id, cluster: cluster.into(), ..Default::default() }, CDS, &[]);
        clients.push(client);
    }
    let page = async |query: &str| -> Value {
        serde_json::from_str(&get(relay.admin, &format!("/clients?{query}")).await).unwrap()
    };
    let nodes = |page: &Value| {
        let clients = page["clients"].as_array().unwrap();
        clients.iter().map(|client| client["node"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    until("all are there", async || nodes(&page("type=clusters&state=not_sent").await).len() == 25).await;
    let (mut seen, mut after) = (Vec::new(), Value::from(0));
    let mut pages = 0;
    while !after.is_null() {
        let of = page(&format!("limit=10&after={after}")).await;
        assert_eq!(of["open"], 25);
        seen.extend(nodes(&of));
        after = of["next"].clone();
        pages += 1;
    }
    seen.sort();
    assert_eq!((seen, pages), ((0..25).map(|number| format!("envoy-{number:02}")).collect::<Vec<_>>(), 3));

    assert_eq!(nodes(&page("node=-07").await), ["envoy-07"]);
    let view = page("node=envoy-24").await["clients"][0]["view"].as_str().unwrap().to_owned();
    assert_eq!(nodes(&page(&format!("view={view}")).await).len(), 5);
    assert_eq!(nodes(&page("identity=spiffe").await).len(), 0);
    assert_eq!(nodes(&page("type=listeners").await).len(), 0);
    let mut stream = plane.stream().await;
    let request = stream.request().await;
    let of_view = Node::decode(request.node().unwrap().clone()).unwrap();
    let served = if of_view.cluster == "web" { 20 } else { 5 };
    say(&stream, "1", &TWO, &TWO, &[]);
    until("one view is served", async || nodes(&page("state=stale").await).len() == served).await;
    assert_eq!(nodes(&page("state=not_sent").await).len(), 25 - served);
    assert_eq!(page("limit=1&state=stale").await["clients"].as_array().unwrap().len(), 1);
}
