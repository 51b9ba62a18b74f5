//! Two control planes behind one relay: fallback and return, with clients over real connections.

use tokio::sync::oneshot;

use super::*;

const ENDPOINTS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

fn endpoints(name: &str, content: &str) -> Resource {
    let resource = Some(Any { type_url: EDS.into(), ..cluster(name, content) });
    Resource { name: name.into(), version: content.into(), resource, ..Default::default() }
}

/// A control plane that serves until it is killed.
struct Serving {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Serving {
    async fn kill(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }
}

/// Answers every request for endpoints with this content.
fn give(mut plane: Plane, content: &'static str) -> Serving {
    let (stop, mut stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let mut streams = tokio::task::JoinSet::new();
        loop {
            let mut stream = tokio::select! {
                stream = plane.streams.recv() => stream.unwrap(),
                _ = &mut stopped => break,
            };
            streams.spawn(async move {
                while let Some(Request::Delta(request)) = stream.requests.recv().await {
                    let requested = &request.resource_names_subscribe;
                    if !requested.is_empty() {
                        let resources = requested.iter().map(|name| endpoints(name, content)).collect();
                        let (type_url, nonce) = (EDS.into(), content.into());
                        let response = DeltaDiscoveryResponse { type_url, nonce, resources, ..Default::default() };
                        stream.respond(&Response::Delta(response));
                    }
                }
            });
        }
        plane.kill().await;
    });
    Serving { stop, task }
}

pub(super) async fn relay_over(upstream: &str) -> Relay {
    let text = format!(
        "listen: [{{address: '127.0.0.1:0'}}]\nadmin: {{address: '127.0.0.1:0'}}\nupstream: {upstream}\n\
         views: {{key: [cluster]}}\n"
    );
    let config = Config::parse(Path::new("test.yaml"), &text).unwrap();
    run(crate::bind(config).await.unwrap(), std::future::pending())
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
    let start = tokio::time::Instant::now();
    loop {
        let report = get(relay.admin, "/upstreams").await;
        if report.contains(wanted) {
            return;
        }
        assert!(start.elapsed() < super::client::PATIENCE, "no {wanted} in {report}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn fb_13_cached_names_hear_nothing_of_a_fallback_and_new_ones_are_served_by_it() {
    let first = Plane::start(&BOTH).await;
    let second = Plane::start(&BOTH).await;
    let (one, two) = (first.address, second.address);
    let relay = relay_over(&format!("{{servers: [{{uri: 'http://{one}'}}, {{uri: 'http://{two}'}}]}}")).await;
    let serving = give(first, "1");
    let _second = give(second, "1");
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
    serving.kill().await; // this closes its port too
    standing(&relay, "\"state\": \"cached\"").await;
    let mut new = Client::connect(relay.address, Variant::Delta).await;
    new.ask(EDS, &["b"], Some("web"));
    assert_eq!(content_of(&mut new).await, ["b=1"], "from the second");
    assert!(giver("b").await.contains(&format!("\"server\": \"http://{two}\"")));
    standing(&relay, &format!("\"server\": \"http://{two}\"")).await;
    let report: serde_json::Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
    let cached = serde_json::json!({ format!("http://{two}"): 2 });
    assert_eq!(report[0]["cached"], cached, "the same again from the second is of the second");

    let _back = give(Plane::start_at(one, &BOTH).await, "1");
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
    let top = Plane::start(&BOTH).await;
    let own = Plane::start(&BOTH).await;
    let (one, two) = (top.address, own.address);
    let relay = relay_over(&format!(
        "{{servers: [{{uri: 'http://{one}'}}], authorities: {{x: {{servers: [{{uri: 'http://{two}'}}]}}}}}}"
    ))
    .await;
    let _serving = (give(top, "1"), give(own, "2"));
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let name = format!("xdstp://x/{ENDPOINTS}/e?b=2&a=1");
    client.ask(EDS, &["old"], Some("web"));
    assert_eq!(content_of(&mut client).await, ["old=1"]);
    client.ask(EDS, &[&name], None);
    assert_eq!(content_of(&mut client).await, [format!("{name}=2")], "from its own server, in the client's spelling");
}

#[tokio::test]
async fn fb_28_nothing_is_absent_while_no_server_is_in_reach() {
    let plane = Plane::start(&BOTH).await;
    let address = plane.address;
    let nobody = any_address().await;
    let relay = relay_over(&format!("{{servers: [{{uri: 'http://{address}'}}, {{uri: 'http://{nobody}'}}]}}")).await;
    let serving = give(plane, "1");
    let mut held = Client::connect(relay.address, Variant::Delta).await;
    held.ask(EDS, &["a"], Some("web"));
    content_of(&mut held).await;
    serving.kill().await;
    let mut waits = Client::connect(relay.address, Variant::Delta).await;
    waits.ask(EDS, &["b"], Some("web"));
    standing(&relay, "\"state\": \"down\"").await;
    waits.ask(EDS, &["a"], None);
    assert_eq!(content_of(&mut waits).await, ["a=1"], "and nothing of b before");
    let mut late = Client::connect(relay.address, Variant::Delta).await;
    late.ask(EDS, &["a"], Some("web"));
    assert_eq!(content_of(&mut late).await, ["a=1"], "what is cached is served as ever");
}
