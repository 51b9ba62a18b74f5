//! Waits of views and sessions are read where they are.

use std::task::Waker;

use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryRequest, Resource};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Step;
use weir_core::protocol::wait::WaitKind;

use super::scripted::{SERVER, views_at_server, wants};
use super::wakes::settle;
use super::*;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

/// A delta response with one cluster.
fn cluster(name: &str, content: &str) -> Response {
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    let nested = |tag: u8, text: &str| [&[tag, u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let value = [nested(0x0a, name), nested(0xe2, content)].concat();
    let value = if content.is_empty() { nested(0x0a, name) } else { value };
    let resource = Some(Any { type_url: type_url.clone(), value: value.into() });
    let resources = vec![Resource { name: name.into(), version: content.into(), resource, ..Default::default() }];
    Response::Delta(DeltaDiscoveryResponse { type_url, nonce: "1".into(), resources, ..Default::default() })
}

#[tokio::test(start_paused = true)]
async fn only_sessions_for_which_something_waits_are_looked_at_and_none_when_they_have_left() {
    let (views, mut server) = views_at_server(options());
    let sotw = || ClientInfo { variant: Variant::Sotw, ..visit() };
    let node = || match first_request() {
        Request::Delta(request) => request.node,
        Request::Sotw(_) => unreachable!(),
    };
    let type_url = || format!("type.googleapis.com/{CLUSTER}");
    let request = || Request::Sotw(DiscoveryRequest { node: node(), type_url: type_url(), ..Default::default() });
    let mut handles = Vec::new();
    for _ in 0..2 {
        let handle = open_session(&views, &request(), sotw()).await.unwrap();
        handle.handle_request(request()).await;
        handles.push(handle);
    }
    let link = server.link().await;
    let _requests = link.open(100).await;
    link.say(cluster("a", "")).await;
    settle(&views).await;
    let reply = |handle: &SessionHandle| matches!(handle.poll(Waker::noop()), Step::Reply(_));
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(handles.iter().all(|handle| reply(handle)));
    assert!(handles.iter().all(|handle| !reply(handle)));
    assert_eq!(views.clients.waiting(), [0; 0]);

    link.say(cluster("b", "")).await;
    settle(&views).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(reply(&handles[0]), "of a change that comes before its client has answered this, it waits");
    link.say(cluster("c", "")).await;
    settle(&views).await;
    assert!(!reply(&handles[0]));
    assert_eq!(views.clients.waiting(), [handles[0].client().id.0]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let sum = questions::waits(&views, 10).await.sums()[&WaitKind::Ack];
    assert!(sum.count == 1 && sum.oldest >= Duration::from_millis(100), "{sum:?}");
    let page = serde_json::to_value(questions::waits(&views, 10).await.into_page()).unwrap();
    let row = page["oldest"].as_array().unwrap().iter().find(|row| row["wait"] == "ack").unwrap();
    assert_eq!(
        (&row["session"], &row["type"], &row["key"]),
        (&handles[0].client().id.0.into(), &CLUSTER.into(), &().into())
    );
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(reply(&handles[0]));
    assert_eq!(views.clients.waiting(), [0; 0], "it was sent");

    link.say(cluster("d", "")).await;
    settle(&views).await;
    assert!(!reply(&handles[0]));
    assert_eq!(views.clients.waiting().len(), 1);
    handles[0].leave().await;
    assert_eq!(views.clients.waiting(), [0; 0]);
}

#[tokio::test]
async fn the_waits_of_a_view_are_shown_with_their_servers() {
    let (views, mut server) = views_at_server(options());
    let handle = open_session(&views, &first_request(), visit()).await.unwrap();
    let endpoints = "envoy.config.endpoint.v3.ClusterLoadAssignment";
    handle.handle_request(wants(endpoints, "payments")).await;
    let link = server.link().await;
    let row = async || {
        let page = serde_json::to_value(questions::waits(&views, 10).await.into_page()).unwrap();
        page["oldest"].as_array().unwrap().iter().find(|row| row["wait"] == "name").cloned().unwrap()
    };
    let away = row().await;
    assert_eq!((&away["bound_seconds"], &away["unbounded"]), (&().into(), &"the control plane is away".into()));
    let _requests = link.open(100).await;
    settle(&views).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let row = row().await;
    assert_eq!((&row["server"], &row["name"], &row["type"]), (&SERVER.into(), &"payments".into(), &endpoints.into()));
    assert!(row["seconds"].as_f64().unwrap() >= 0.3 && row["bound_seconds"] == 15.0, "{row:#}");
    assert_eq!((&row["key"], &row["beyond"]), (&"limits.resource_timer".into(), &false.into()));
}
