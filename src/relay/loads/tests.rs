use std::net::Ipv4Addr;
use std::task::Poll;
use std::time::Duration;

use super::*;
use crate::proto::node::Node;

/// A server whose stream ends some time after the last report, when the test says so.
#[derive(Default)]
struct SlowServer(Arc<Notify>);

impl LoadConnector for SlowServer {
    fn carry(&self, _: usize, mut link: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>> {
        let ends = self.0.clone();
        Box::pin(async move {
            while link.reports.recv().await.is_some() {}
            ends.notified().await;
            LoadEnd::Said { code: 0, message: String::new() }
        })
    }

    fn backoff(&self, _: usize) -> BackoffTimes {
        BackoffTimes::default()
    }
}

#[tokio::test]
async fn trn_19_who_waits_for_the_last_reports_is_woken_when_the_last_pool_has_ended() {
    let views = Arc::new(crate::relay::views::tests::views());
    let limits = LoadLimits { outage: Duration::from_secs(60), bytes: 1 << 20, bytes_total: 1 << 20 };
    let server = SlowServer::default();
    let ends = server.0.clone();
    let loads = Loads::new(LoadsMode::Aggregate(limits), views.clone(), Arc::new(server));
    let node = Node { cluster: "web".into(), ..Node::default() }.encode_to_vec().into();
    let peer = Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into()));
    let key = views.identify(&peer, Some(&node)).unwrap().key().clone();
    drop(loads.member(key, limits).unwrap());

    let mut finish = std::pin::pin!(loads.finish());
    let is_pending = std::future::poll_fn(|cx| Poll::Ready(finish.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending, "the pool still reports");
    ends.notify_one();
    tokio::time::timeout(Duration::from_secs(20), finish).await.expect("nothing wakes it");
}
