//! The clients of a view that its server is shown one after the other, and refuses.

use std::task::Waker;
use std::time::Duration;

use tokio::sync::mpsc;
use weir_core::proto::Response;
use weir_core::proto::discovery::DeltaDiscoveryResponse;
use weir_core::protocol::session::{CloseReason, Step};
use weir_core::xds::KeyField;

use super::explained::clusters;
use super::scripted::{Server, Upstream, views_at_server, wants};
use super::wakes::settle;
use super::*;

/// Views by the cluster and a header, whose server is shown their clients.
fn views_of_members() -> (Views, Server) {
    let rule = KeyRule::of(vec![KeyField::Cluster, KeyField::parse("header.x-token").unwrap()]);
    views_at_server(ViewsOptions { rule, shows_members: true, ..options() })
}

fn request_of(id: &str) -> Request {
    let node = Node { id: id.into(), cluster: "web".into(), ..Node::default() };
    Request::Delta(DeltaDiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() })
}

/// Opens the stream. Returns the id that it shows, and its requests.
async fn shown_on(link: &Upstream) -> (String, mpsc::Receiver<Request>) {
    let mut requests = link.open(9).await;
    let first = tokio::time::timeout(Duration::from_secs(20), requests.recv()).await.expect("nothing is requested");
    let node = Node::decode(&**first.unwrap().node().unwrap()).unwrap();
    (node.id, requests)
}

/// Whether the view takes one more stream of a client that is there.
async fn takes(views: &Views, id: &str) -> bool {
    match open_session(views, &request_of(id), visit()).await {
        Ok(handle) => {
            handle.leave().await;
            true
        }
        Err(error) => !matches!(error, AdmissionError::RefusedByServer(_)),
    }
}

#[tokio::test]
async fn a_view_is_refused_once_each_of_its_clients_was() {
    let (views, mut server) = views_of_members();
    let mut clients = Vec::new();
    for id in ["a", "b", "c"] {
        let client = open_session(&views, &request_of(id), visit()).await.unwrap();
        client.handle_request(wants(CLUSTER, "x")).await;
        clients.push(client);
    }
    let link = server.link().await;
    settle(&views).await;
    for id in ["a", "b", "c"] {
        assert!(takes(&views, "b").await, "before {id} was refused");
        assert!(clients.iter().all(|client| matches!(client.poll(Waker::noop()), Step::Idle(_))));
        let (shown, _requests) = shown_on(&link).await;
        assert_eq!(shown, id);
        link.refuse().await;
        settle(&views).await;
    }
    assert!(!takes(&views, "b").await);
    assert!(clients.iter().all(|client| matches!(client.poll(Waker::noop()), Step::End(CloseReason::Refused(_)))));
    let (shown, _requests) = shown_on(&link).await;
    assert_eq!(shown, "a", "the one that was refused longest ago");
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    link.say(Response::Delta(DeltaDiscoveryResponse { type_url, ..Default::default() })).await;
    settle(&views).await;
    assert!(takes(&views, "b").await, "the server takes one");
}

/// The end of a stream that had an answer is no word on the client.
#[tokio::test]
async fn a_client_that_was_answered_stays_shown() {
    let (views, mut server) = views_of_members();
    let mut clients = Vec::new();
    for id in ["a", "b"] {
        let client = open_session(&views, &request_of(id), visit()).await.unwrap();
        client.handle_request(wants(CLUSTER, "x")).await;
        clients.push(client);
    }
    let link = server.link().await;
    settle(&views).await;
    let (shown, _requests) = shown_on(&link).await;
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    link.say(Response::Delta(DeltaDiscoveryResponse { type_url, ..Default::default() })).await;
    link.refuse().await;
    settle(&views).await;
    let (again, _requests) = shown_on(&link).await;
    link.end("lost").await;
    settle(&views).await;
    let (after_loss, _requests) = shown_on(&link).await;
    assert_eq!([shown, again, after_loss], ["a", "a", "a"]);
}

/// Clients that poll come and go, so the node of the first one stays. One that the server refuses must not keep the server from all others (I8).
#[tokio::test]
async fn clients_that_poll_are_shown_in_place_of_one_that_the_server_refuses() {
    let rule = KeyRule::of(vec![KeyField::Cluster]);
    let (views, mut server) = views_at_server(ViewsOptions { rule, shows_members: true, ..options() });
    let polls = async |id: &str| {
        let client = open_session(&views, &request_of(id), ClientInfo { is_stream: false, ..visit() }).await.unwrap();
        client.handle_request(wants(CLUSTER, "x")).await;
        client
    };
    let refused = polls("a").await;
    let link = server.link().await;
    let (first, _requests) = shown_on(&link).await;
    link.refuse().await;
    settle(&views).await;
    let _keeps_the_view = polls("b").await;
    refused.leave().await;
    settle(&views).await;
    let _back_at_once = polls("a").await;
    settle(&views).await;

    let _c = polls("c").await;
    settle(&views).await;
    let (second, _requests) = shown_on(&link).await;
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    link.say(Response::Delta(DeltaDiscoveryResponse { type_url, ..Default::default() })).await;
    settle(&views).await;
    let _d = polls("d").await;
    link.end("lost").await;
    settle(&views).await;
    let (third, _requests) = shown_on(&link).await;
    assert_eq!([first, second, third], ["a", "c", "c"], "one that the server takes stays");
}

/// `*` and a name of one type have a stream each. Some servers end a second stream of a node: that is no word about the node, which was
/// answered on the first one.
#[tokio::test]
async fn a_client_that_was_answered_on_the_other_stream_stays_shown() {
    let (views, mut server) = views_of_members();
    let mut clients = Vec::new();
    for (id, name) in [("a", "*"), ("b", "x")] {
        let client = open_session(&views, &request_of(id), visit()).await.unwrap();
        client.handle_request(wants(CLUSTER, name)).await;
        settle(&views).await;
        clients.push(client);
    }
    let links = [server.link().await, server.link().await];
    let (shown_on_one, _requests_of_one) = shown_on(&links[0]).await;
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    links[0].say(Response::Delta(DeltaDiscoveryResponse { type_url, ..Default::default() })).await;
    settle(&views).await;
    let (shown_on_other, _requests_of_other) = shown_on(&links[1]).await;
    links[1].refuse().await;
    settle(&views).await;
    let (again, _requests) = shown_on(&links[1]).await;
    assert_eq!([shown_on_one, shown_on_other, again], ["a", "a", "a"]);
}

/// What is cached is from before the server refused the view, and nothing shows that it would take the other node.
#[tokio::test]
async fn a_refused_view_stays_refused_when_its_client_states_another_node() {
    let (views, mut server) = views_of_members();
    let client = open_session(&views, &request_of("a"), visit()).await.unwrap();
    client.handle_request(wants(CLUSTER, "cluster-000000")).await;
    let link = server.link().await;
    let (_, _requests) = shown_on(&link).await;
    link.say(clusters(0..1)).await;
    settle(&views).await;
    assert!(matches!(client.poll(Waker::noop()), Step::Reply(_)));
    link.end("lost").await;
    settle(&views).await;
    let (_, _requests) = shown_on(&link).await;
    link.refuse().await;
    settle(&views).await;
    assert!(!takes(&views, "b").await, "its only client was refused");
    let Request::Delta(other) = wants(CLUSTER, "x") else { unreachable!() };
    let node = request_of("c").node().cloned();
    client.handle_request(Request::Delta(DeltaDiscoveryRequest { node, ..other })).await;
    settle(&views).await;
    assert!(!takes(&views, "b").await, "the server has not answered");
}

/// A revoked credential in the key is refused for every client that is shown with it. To try each of them would take hours.
#[tokio::test]
async fn a_view_is_refused_after_three_clients_in_a_row_and_until_one_is_answered() {
    let (views, mut server) = views_of_members();
    let mut clients = Vec::new();
    for id in ["a", "b", "c", "d", "e"] {
        let client = open_session(&views, &request_of(id), visit()).await.unwrap();
        client.handle_request(wants(CLUSTER, "x")).await;
        clients.push(client);
    }
    let link = server.link().await;
    settle(&views).await;
    for id in ["a", "b", "c"] {
        assert!(takes(&views, "e").await, "before {id} was refused");
        let (shown, _requests) = shown_on(&link).await;
        assert_eq!(shown, id);
        link.refuse().await;
        settle(&views).await;
    }
    assert!(!takes(&views, "e").await);
    assert!(clients.iter().all(|client| matches!(client.poll(Waker::noop()), Step::End(CloseReason::Refused(_)))));
    clients[0].leave().await;
    settle(&views).await;
    assert!(!takes(&views, "e").await, "that one has left changes nothing");
    let (shown, _requests) = shown_on(&link).await;
    assert_eq!(shown, "d", "the server is asked again");
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    link.say(Response::Delta(DeltaDiscoveryResponse { type_url, ..Default::default() })).await;
    settle(&views).await;
    assert!(takes(&views, "e").await);
}

/// What servers refused was for the clients of that time, and for what the relay has shown by its former configuration.
#[tokio::test]
async fn after_a_reload_a_view_has_no_refusal_and_shows_its_own_clients() {
    let (earlier, mut server) = views_of_members();
    let earlier = Arc::new(earlier);
    let refused = open_session(&earlier, &request_of("a"), visit()).await.unwrap();
    refused.handle_request(wants(CLUSTER, "x")).await;
    let link = server.link().await;
    let (_, _requests) = shown_on(&link).await;
    link.refuse().await;
    settle(&earlier).await;
    assert!(!takes(&earlier, "a").await);

    let (later, mut server) = views_of_members();
    let later = later.after(&earlier, Duration::from_secs(3600));
    let again = open_session(&later, &request_of("a"), visit()).await.unwrap();
    again.handle_request(wants(CLUSTER, "x")).await;
    let link = server.link().await;
    let (shown, _requests) = shown_on(&link).await;
    settle(&later).await;
    assert_eq!(shown, "a");
    assert!(matches!(again.poll(Waker::noop()), Step::Idle(_)));
    assert!(!takes(&earlier, "a").await, "the earlier one is what it was");
}
