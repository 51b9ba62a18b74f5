//! What is counted of a session, until it leaves.

use std::task::Waker;

use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::protocol::session::Step;

use super::wakes::settle;
use super::*;

/// A client that may hold clusters that the view does not know.
fn of_clusters() -> Request {
    Request::Sotw(DiscoveryRequest {
        type_url: format!("type.googleapis.com/{CLUSTER}"),
        version_info: "7".into(),
        ..Default::default()
    })
}

#[tokio::test]
async fn a_session_that_leaves_is_counted_no_more_though_it_was_blocked() {
    let views = views_to("http://server");
    for _ in 0..3 {
        let client = ClientInfo { variant: Variant::Sotw, ..visit() };
        let handle = open_session(&views, &first_request(), client).await.unwrap();
        handle.handle_request(of_clusters()).await;
        settle(&views).await;
        assert!(matches!(handle.poll(Waker::noop()), Step::Idle(_)));
        let published = views.map.published(&key(&views)).unwrap();
        let counts = || (views.clients.len(), published.blocked());
        assert_eq!(counts(), (1, 1));
        handle.leave().await;
        drop(handle);
        settle(&views).await;
        assert_eq!((counts(), views.sessions().await), ((0, 0), vec![0]));
    }
}
