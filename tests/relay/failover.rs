//! Two control planes behind one relay: fallback and return, with clients over real connections.

use super::*;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

pub(super) async fn relay_over(upstream: &str) -> Relay {
    relay_with_options(upstream, "", |_| {}).await
}

pub(super) async fn content_of(client: &mut Client) -> Vec<String> {
    let Client::Delta(_, responses) = client else { unreachable!() };
    let response = tokio::time::timeout(super::client::PATIENCE, responses.message()).await.unwrap().unwrap().unwrap();
    let last = |resource: Resource| {
        let body = resource.resource.unwrap().value;
        format!("{}={}", resource.name, char::from(body[body.len() - 1]))
    };
    response.resources.into_iter().map(last).collect()
}

pub(super) async fn standing(relay: &Relay, wanted: &str) {
    report_with(relay, "/upstreams", wanted).await;
}

#[tokio::test]
async fn fb_13_cached_names_hear_nothing_of_a_fallback_and_new_ones_are_served_by_it() {
    let (first, second) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let (one, two) = (first.address, second.address);
    let relay = relay_over(&format!("{{servers: [{{uri: 'http://{one}'}}, {{uri: 'http://{two}'}}]}}")).await;
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(EDS, &["a"], Some("web"));
        assert_eq!(content_of(&mut client).await, ["a=1"]);
        clients.push(client);
    }
    let giver = async |name: &str| get(relay.admin, &format!("/resources?type={ENDPOINTS}&name={name}")).await;
    let sent = giver("%61").await;
    assert!(
        sent.contains(&format!("\"server\": \"http://{one}\"")) && sent.contains("\"state\": \"present\""),
        "{sent}"
    );
    assert!(giver("b").await.contains("\"total\": 0"));
    first.kill().await; // this closes its port too
    standing(&relay, "\"state\": \"cached\"").await;
    let mut new = Client::connect(relay.address, Variant::Delta).await;
    new.ask(EDS, &["b"], Some("web"));
    assert_eq!(content_of(&mut new).await, ["b=1"], "from the second");
    assert!(giver("b").await.contains(&format!("\"server\": \"http://{two}\"")));
    standing(&relay, &format!("\"server\": \"http://{two}\"")).await;
    let report: serde_json::Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
    let cached = serde_json::json!({ format!("http://{two}"): 2 });
    assert_eq!(report[0]["cached"], cached, "the same again from the second is of the second");

    let _back = Server::start_at(one, Way::Gives("1")).await;
    standing(&relay, &format!("\"state\": \"active\",\n        \"server\": \"http://{one}\"")).await;
    for client in &mut clients {
        client.ask(EDS, &["c"], None);
        assert_eq!(content_of(client).await, ["c=1"], "and nothing before");
    }
    new.ask(EDS, &["c"], None);
    assert_eq!(content_of(&mut new).await, ["c=1"]);
}

#[tokio::test]
async fn xlat_38_and_name_16_authorities_have_servers_of_their_own() {
    let (top, own) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("2")).await);
    let (one, two) = (top.address, own.address);
    let relay = relay_over(&format!(
        "{{servers: [{{uri: 'http://{one}'}}], authorities: {{x: {{servers: [{{uri: 'http://{two}'}}]}}}}}}"
    ))
    .await;
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let name = format!("xdstp://x/{ENDPOINTS}/e?b=2&a=1");
    client.ask(EDS, &["old"], Some("web"));
    assert_eq!(content_of(&mut client).await, ["old=1"]);
    client.ask(EDS, &[&name], None);
    assert_eq!(content_of(&mut client).await, [format!("{name}=2")], "from its own server, in the client's spelling");
}
