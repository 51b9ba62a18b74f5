//! What waits for the task of a view was heard, however late that task reads it.

use futures_util::FutureExt;
use tokio::sync::Notify;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, Resource};
use weir_core::proto::{Any, Response};

use super::scripted::{views_at_server, wants};
use super::wakes::settle;
use super::*;
use crate::relay::link::LinkEvent;

const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A response with what is requested.
fn endpoints() -> Response {
    let type_url = format!("type.googleapis.com/{EDS}");
    let resource = Some(Any { type_url: type_url.clone(), value: vec![0x0a, 1, b'a'].into() });
    let resources = vec![Resource { name: "a".into(), version: "1".into(), resource, ..Default::default() }];
    Response::Delta(DeltaDiscoveryResponse { type_url, nonce: "1".into(), resources, ..Default::default() })
}

/// A server that is silent for the resource timer is called. Whatever it has sent before the end of that time ends the silence, also if there was no
/// room for it, and it still is not sent once there is.
#[tokio::test(start_paused = true)]
async fn a_silence_does_not_count_by_a_time_after_a_report_that_waits_for_room() {
    for waits in [false, true] {
        let (views, mut server) = views_at_server(options());
        let client = open_session(&views, &first_request(), visit()).await.unwrap();
        client.handle_request(wants(EDS, "a")).await;
        let (link, life) = (server.link().await, Arc::<Notify>::default());
        let _requests = link.open_with(9, life.clone()).await;
        settle(&views).await;
        tokio::time::sleep(Duration::from_secs(14)).await;
        assert!(life.notified().now_or_never().is_none(), "it has a second more");
        let others = (0..4).take_while(|_| waits);
        others.for_each(|_| link.report(LinkEvent::Alive).now_or_never().expect("there is room"));
        let mut response = Box::pin(link.say(endpoints()));
        if waits {
            assert!(response.as_mut().now_or_never().is_none(), "there is no room");
        }
        tokio::time::advance(Duration::from_secs(2)).await;
        settle(&views).await;
        assert_eq!(life.notified().now_or_never().is_none(), waits);
        response.await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(life.notified().now_or_never().is_none(), "it has answered");
    }
}
