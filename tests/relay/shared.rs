//! Authorities that all views share (NAME-20): there is one upstream subscription for all views.

use super::failover::{content_of, relay_over};
use super::*;
use weir_core::proto::node::Node;

const KIND: &str = "envoy.config.cluster.v3.Cluster";

fn delta(request: Request) -> DeltaDiscoveryRequest {
    match request {
        Request::Delta(request) => request,
        Request::Sotw(_) => panic!("asked in SotW"),
    }
}

/// Waits for the next request with names, and returns these.
async fn requested(stream: &mut Stream) -> Vec<String> {
    loop {
        let request = delta(stream.request().await);
        if !request.resource_names_subscribe.is_empty() {
            return request.resource_names_subscribe;
        }
    }
}

/// Waits for two resources, in one response or two, and returns their names.
async fn both(client: &mut Client) -> Vec<String> {
    let mut sent = content_of(client).await;
    if sent.len() < 2 {
        sent.extend(content_of(client).await);
    }
    sent.sort();
    sent
}

#[tokio::test]
async fn name_20_and_coll_24_names_of_a_shared_authority_are_requested_once_for_all_views() {
    let mut plane = Plane::start(&BOTH).await;
    let relay = relay_over(&format!(
        "{{servers: [{{uri: 'http://{}'}}], authorities: {{x: {{}}, y: {{}}}}, shared_authorities: [x]}}",
        plane.address
    ))
    .await;
    let [mut one, mut other] =
        [Client::connect(relay.address, Variant::Delta).await, Client::connect(relay.address, Variant::Delta).await];
    let (name, glob) = (format!("xdstp://x/{KIND}/a?b=2&a=1"), format!("xdstp://x/{KIND}/all/*"));
    let (canonical, member) = (format!("xdstp://x/{KIND}/a?a=1&b=2"), format!("xdstp://x/{KIND}/all/m"));
    one.ask(CDS, &[&name, &glob], Some("one"));
    let mut stream = plane.stream().await;
    assert_eq!(requested(&mut stream).await, [canonical.clone(), glob.clone()]);
    say(&stream, "1", &[], &[(&canonical, "1"), (&member, "1")], &[]);
    assert_eq!(both(&mut one).await, [format!("{name}=1"), format!("{member}=1")], "in the client's spelling");
    other.ask(CDS, &[&canonical, &glob], Some("other"));
    assert_eq!(both(&mut other).await, [format!("{canonical}=1"), format!("{member}=1")], "from what is there");

    say(&stream, "2", &[], &[(&canonical, "2")], &[&member]);
    for client in [&mut one, &mut other] {
        let update = client.sent().await;
        let removal = client.sent().await;
        assert_eq!((update.set.len(), removal.removed), (1, vec![member.clone()]));
    }

    let views: serde_json::Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
    let servers = views.as_array().unwrap().iter().flat_map(|view| view["streams"].as_array().unwrap());
    let mut servers: Vec<_> = servers.map(|stream| stream["server"].as_str().unwrap().to_owned()).collect();
    servers.sort();
    let plane_uri = format!("http://{}", plane.address);
    assert_eq!(
        servers,
        [plane_uri.as_str(), "what all views share", "what all views share"],
        "the hub's, and each view's"
    );

    // Everything else still belongs to single views.
    for (client, cluster) in [(&one, "one"), (&other, "other")] {
        client.ask(CDS, &[&format!("xdstp://y/{KIND}/own")], None);
        let mut own = plane.stream().await;
        assert_eq!(requested(&mut own).await, [format!("xdstp://y/{KIND}/own")], "{cluster}");
    }
    assert!(plane.streams.try_recv().is_err(), "no stream but one for all and one for each");

    // The control plane goes down. No client is sent anything, and a new client is served.
    drop(stream);
    plane.kill().await;
    let mut late = Client::connect(relay.address, Variant::Delta).await;
    late.ask(CDS, &[&canonical], Some("late"));
    assert_eq!(content_of(&mut late).await, [format!("{canonical}=2")]);
    one.ask(CDS, &[&name], None);
    assert_eq!(content_of(&mut one).await, [format!("{name}=2")], "requested again, and nothing came before");
    assert!(get(relay.admin, "/metrics").await.contains("view=\"shared\""));
}

#[tokio::test]
async fn name_20_what_nobody_wants_any_more_is_left_upstream_and_absence_is_sent_to_all() {
    let mut plane = Plane::start(&BOTH).await;
    let upstream = format!(
        "{{servers: [{{uri: 'http://{}'}}], authorities: {{x: {{}}}}, shared_authorities: [x]}}",
        plane.address
    );
    let relay = relay_with_options(&upstream, "limits: {linger: 50ms}\n", |_| {}).await;
    let [name, there] = ["nobody", "there"].map(|id| format!("xdstp://x/{KIND}/{id}"));
    let mut clients = Vec::new();
    for cluster in ["one", "other"] {
        let client = Client::connect(relay.address, Variant::Delta).await;
        client.ask(CDS, &[&name, &there], Some(cluster));
        clients.push(client);
    }
    let mut stream = plane.stream().await;
    assert_eq!(requested(&mut stream).await, [name.clone(), there.clone()]);
    say(&stream, "0", &[], &[(&there, "1")], &[]);
    for client in &mut clients {
        assert_eq!(content_of(client).await, [format!("{there}=1")], "nothing of the other before the server's word");
    }
    say(&stream, "1", &[], &[], &[&name]);
    for client in &mut clients {
        assert_eq!(client.sent().await.removed, std::slice::from_ref(&name));
    }
    drop(clients);
    let left = loop {
        let Some(request) = stream.requests.recv().await else { break vec![name.clone(), there.clone()] }; // or the relay closes the whole stream
        let left = delta(request).resource_names_unsubscribe;
        if !left.is_empty() {
            break left;
        }
    };
    assert_eq!(left, [name, there]);
}

#[test]
fn an_authority_that_does_not_exist_cannot_be_shared() {
    let text = "listen: [{address: '127.0.0.1:0'}]\nupstream:\n  servers: [{uri: 'http://one:1'}]\n  \
                shared_authorities: [x]\n";
    let message = Config::parse(Path::new("etc/relay.yaml"), text).unwrap_err().to_string();
    assert!(
        message.contains(
            "etc/relay.yaml:4:24: upstream.shared_authorities[0]: unknown authority \"x\": expected an entry of"
        ),
        "{message}"
    );
}

#[tokio::test]
async fn coll_19_and_coll_20_what_a_client_held_of_a_shared_collection_is_judged_when_the_hub_knows_all_of_it() {
    let mut plane = Plane::start(&BOTH).await;
    let upstream = format!(
        "{{servers: [{{uri: 'http://{}'}}], authorities: {{x: {{}}}}, shared_authorities: [x]}}",
        plane.address
    );
    let relay = relay_with_options(&upstream, "limits: {resource_timer: 5s}\n", |_| {}).await;
    let [glob, there, gone] = ["*", "there", "gone"].map(|id| format!("xdstp://x/{KIND}/f/{id}"));
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    let Client::Delta(requests, _) = &client else { unreachable!() };
    let request = DeltaDiscoveryRequest {
        node: super::client::node("one"),
        type_url: CDS.into(),
        resource_names_subscribe: vec![glob.clone()],
        initial_resource_versions: [(gone.clone(), "v".to_owned())].into(),
        ..Default::default()
    };
    requests.send(request).unwrap();
    let mut stream = plane.stream().await;
    requested(&mut stream).await;
    say(&stream, "1", &[], &[(&there, "1")], &[]);
    assert_eq!(content_of(&mut client).await, [format!("{there}=1")]);
    drop(stream); // in the middle of the set, as far as the relay knows
    let mut streams = Vec::new();
    loop {
        let mut stream = plane.stream().await;
        let Request::Delta(request) = stream.request().await else { unreachable!() };
        let asks_for_it = request.initial_resource_versions.get(&gone).is_some_and(|version| version == "weir-unknown");
        if asks_for_it {
            client.hears_nothing(Duration::from_millis(300)).await;
        }
        let removed: &[&str] = if asks_for_it { &[&gone] } else { &[] };
        say(&stream, "2", &[], &[(&there, "1")], removed);
        streams.push(stream);
        if asks_for_it {
            break;
        }
    }
    assert_eq!(client.sent().await.removed, [gone], "asked for that, the server has said so");
}

#[tokio::test]
async fn coll_20_a_shared_collection_that_is_left_and_wanted_again_is_judged_again() {
    let mut plane = Plane::start(&BOTH).await;
    let servers =
        format!("servers: [{{uri: 'http://{}'}}], authorities: {{x: {{}}}}, shared_authorities: [x]", plane.address);
    let relay = relay_with_options(&format!("{{{servers}}}"), "limits: {linger: 50ms}\n", |_| {}).await;
    let [glob, other] = ["f/*", "other"].map(|id| format!("xdstp://x/{KIND}/{id}"));
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[&other], Some("one")); // the stream between the view and the hub stays open
    let mut stream = plane.stream().await;
    requested(&mut stream).await;
    say(&stream, "0", &[], &[(&other, "1")], &[]);
    assert_eq!(content_of(&mut client).await, [format!("{other}=1")]);
    let member = format!("xdstp://x/{KIND}/f/there");
    for round in ["1", "2"] {
        client.ask(CDS, &[&glob], None);
        assert_eq!(requested(&mut stream).await, std::slice::from_ref(&glob));
        say(&stream, round, &[], &[(&member, round)], &[]);
        assert_eq!(content_of(&mut client).await, [format!("{member}={round}")]);
        until("nothing is missing", async || {
            let report: serde_json::Value = serde_json::from_str(&get(relay.admin, "/upstreams").await).unwrap();
            report
                .as_array()
                .unwrap()
                .iter()
                .flat_map(|view| view["authorities"].as_array().unwrap())
                .all(|of| of["missing_count"] == 0)
        })
        .await;
        client.leave(CDS, &[&glob]);
        while delta(stream.request().await).resource_names_unsubscribe.is_empty() {}
    }
}

#[tokio::test]
async fn xlat_36_a_grpc_client_is_ended_when_the_servers_of_what_all_views_share_are_gone() {
    let (mut plane, mut shared) = (Plane::start(&BOTH).await, Plane::start(&BOTH).await);
    let relay = relay_over(&format!(
        "{{servers: [{{uri: 'http://{}'}}], authorities: {{x: {{servers: [{{uri: 'http://{}'}}]}}}}, shared_authorities: [x]}}",
        plane.address, shared.address
    ))
    .await;
    let (known, unknown) = (format!("xdstp://x/{KIND}/known"), format!("xdstp://x/{KIND}/unknown"));
    let mut one = Client::connect(relay.address, Variant::Delta).await;
    one.ask(CDS, &[&known], Some("one"));
    let mut stream = shared.stream().await;
    requested(&mut stream).await;
    say(&stream, "1", &[], &[(&known, "1")], &[]);
    assert_eq!(content_of(&mut one).await, [format!("{known}=1")]);
    drop(stream);
    shared.kill().await;

    let node = Node { user_agent_name: "gRPC Go".into(), cluster: "one".into(), ..Node::default() };
    let mut new = Client::connect(relay.address, Variant::Sotw).await;
    new.ask_as(&node, CDS, &[&unknown]);
    assert_eq!(new.ended().await, Code::Unavailable, "it has another server to turn to");
    let mut top = Client::connect(relay.address, Variant::Sotw).await;
    top.ask_as(&node, CDS, &["old"]);
    say_named(&mut plane.stream().await, CDS, "old").await;
    assert_eq!(top.sent().await.set, ["old"], "its server is up");
    one.ask(CDS, &[&known], None);
    assert_eq!(content_of(&mut one).await, [format!("{known}=1")], "requested again, and nothing came before");
}

/// A view has no timer for names that it requests from the hub: the hub reports names about which the server is silent.
#[tokio::test]
async fn name_20_and_xlat_15_a_name_that_the_server_is_silent_about_is_absent_for_who_does_not_hold_it() {
    let mut plane = Plane::start(&BOTH).await;
    let upstream = format!(
        "{{servers: [{{uri: 'http://{}'}}], authorities: {{x: {{}}}}, shared_authorities: [x]}}",
        plane.address
    );
    let relay = relay_with_options(&upstream, "limits: {resource_timer: 200ms}\n", |_| {}).await;
    let name = format!("xdstp://x/{KIND}/nobody");
    let mut client = Client::connect(relay.address, Variant::Delta).await;
    client.ask(CDS, &[&name], Some("one"));
    let mut stream = plane.stream().await;
    assert_eq!(requested(&mut stream).await, std::slice::from_ref(&name));
    assert_eq!(client.sent().await.removed, [name]);
}
