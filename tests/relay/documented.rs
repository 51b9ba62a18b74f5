//! The examples of docs/admin-api.md have the form that the program's pages have.

use serde_json::Value;

use super::*;

/// Returns the text after a command in a console block.
fn example(command: &str) -> String {
    let page = std::fs::read_to_string("docs/admin-api.md").unwrap();
    let (_, rest) = page.split_once(&format!("```console\n$ {command}\n")).unwrap_or_else(|| panic!("{command}"));
    rest.split_once("```").unwrap().0.to_owned()
}

/// Returns the keys of a page with the kinds of their values. Of a list, the form of its first entry counts; null may stand for anything.
fn assert_alike(place: &str, documented: &Value, real: &Value) {
    match (documented, real) {
        (Value::Object(documented), Value::Object(real)) => {
            let keys = |of: &serde_json::Map<String, Value>| of.keys().cloned().collect::<Vec<_>>();
            assert_eq!(keys(documented), keys(real), "{place}");
            documented.iter().for_each(|(key, value)| assert_alike(&format!("{place}.{key}"), value, &real[key]));
        }
        (Value::Array(documented), Value::Array(real)) => {
            if let Some((documented, real)) = documented.first().zip(real.first()) {
                assert_alike(&format!("{place}[]"), documented, real);
            }
        }
        (Value::Null, _) | (_, Value::Null) => {}
        (documented, real) => {
            let same = std::mem::discriminant(documented) == std::mem::discriminant(real);
            assert!(same, "{place}: {documented} and {real}");
        }
    }
}

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
        let documented: Value =
            serde_json::from_str(&example(command)).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert_alike(path, &documented, &serde_json::from_str(&get(relay.admin, path).await).unwrap());
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
async fn clients_are_found_page_by_page_and_by_what_is_known_of_them() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay(plane.address, ", variant: delta").await;
    let mut clients = Vec::new();
    for number in 0..25 {
        let client = Client::connect(relay.address, BOTH[number % 2]).await;
        let id = format!("envoy-{number:02}");
        let cluster = if number < 20 { "web" } else { "db" };
        client.ask_as(&weir::proto::node::Node { id, cluster: cluster.into(), ..Default::default() }, CDS, &[]);
        clients.push(client);
    }
    let page = async |query: &str| -> Value {
        serde_json::from_str(&get(relay.admin, &format!("/clients?{query}")).await).unwrap()
    };
    until("all are there", async || page("").await["clients"].as_array().unwrap().len() == 25).await;
    let nodes = |page: &Value| {
        let clients = page["clients"].as_array().unwrap();
        clients.iter().map(|client| client["node"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
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
    assert_eq!(nodes(&page("type=clusters&state=not_sent").await).len(), 25);
    assert_eq!(nodes(&page("type=listeners").await).len(), 0);
    let stream = plane.stream().await;
    say(&stream, "1", &TWO, &TWO, &[]);
    until("one view is served", async || nodes(&page("state=stale").await).len() >= 5).await;
    assert_eq!(nodes(&page("state=stale").await).len() + nodes(&page("state=not_sent").await).len(), 25);
    assert_eq!(page("limit=1&state=stale").await["clients"].as_array().unwrap().len(), 1);
}
