//! New streams of a view that its server refuses, and those that are there.

use std::task::Waker;

use weir_core::proto::Response;
use weir_core::proto::discovery::DeltaDiscoveryResponse;
use weir_core::protocol::session::{CloseReason, Step};
use weir_core::xds::KeyField;

use super::scripted::{Server, views_at_server, wants};
use super::wakes::settle;
use super::*;

/// Views by the cluster and a header, which no client of these tests sends.
fn views_by_header() -> (Views, Server) {
    let rule = KeyRule::of(vec![KeyField::Cluster, KeyField::parse("header.x-token").unwrap()]);
    views_at_server(ViewsOptions { rule, ..options() })
}

async fn is_refused(views: &Views) -> bool {
    match open_session(views, &first_request(), visit()).await {
        Ok(handle) => {
            handle.leave().await;
            false
        }
        Err(error) => matches!(error, AdmissionError::RefusedByServer(_)),
    }
}

#[tokio::test]
async fn the_server_refuses_a_view_by_the_end_of_its_link_and_not_by_that_of_an_earlier_one() {
    let (views, mut server) = views_by_header();
    let mut links = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..2 {
        let client = open_session(&views, &first_request(), visit()).await.unwrap();
        client.handle_request(wants(CLUSTER, "a")).await;
        links.push(server.link().await);
        if links.len() == 1 {
            client.leave().await;
            settle(&views).await;
        }
        clients.push(client);
    }
    let [earlier, later] = &links[..] else { unreachable!() };
    assert_eq!(earlier.0.id.stream, later.0.id.stream);
    let _requests = later.open(9).await;
    settle(&views).await;
    earlier.refuse().await;
    settle(&views).await;
    assert!(!is_refused(&views).await);
    assert!(matches!(clients[1].poll(Waker::noop()), Step::Idle(_)));
    later.refuse().await;
    settle(&views).await;
    assert!(is_refused(&views).await, "also without the header");
    assert!(matches!(clients[1].poll(Waker::noop()), Step::End(CloseReason::Refused(_))), "it has had nothing");

    let _requests = later.open(9).await;
    let type_url = format!("type.googleapis.com/{CLUSTER}");
    later.say(Response::Delta(DeltaDiscoveryResponse { type_url, ..Default::default() })).await;
    settle(&views).await;
    assert!(!is_refused(&views).await, "the server takes it again");
}
