use std::net::Ipv4Addr;
use std::task::Poll;
use std::time::Duration;

use weir_core::proto::node::Node;

use super::*;

/// A server whose stream ends some time after the last report, when the test says so.
#[derive(Default)]
struct SlowServer {
    ends: Arc<Notify>,
    /// How many streams have had their last report.
    last_reports: Arc<AtomicUsize>,
}

impl LoadConnector for SlowServer {
    fn carry(&self, _: usize, mut link: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>> {
        let (ends, last_reports) = (self.ends.clone(), self.last_reports.clone());
        Box::pin(async move {
            while link.reports.recv().await.is_some() {}
            last_reports.fetch_add(1, Ordering::Relaxed);
            ends.notified().await;
            LoadEnd::Said { code: 0, message: String::new() }
        })
    }

    fn backoff(&self, _: usize) -> BackoffTimes {
        BackoffTimes::default()
    }
}

const LIMITS: LoadLimits = LoadLimits { outage: Duration::from_secs(60), bytes: 1 << 20, bytes_total: 1 << 20 };

/// Loads for one view at a time.
fn loads_at(server: SlowServer) -> Loads {
    let views = Arc::new(crate::relay::views::tests::views());
    Loads::new(LoadsMode::Aggregate(LIMITS), views, Arc::new(server))
}

fn key(loads: &Loads, cluster: &str) -> SharingKey {
    let node = Node { cluster: cluster.into(), ..Node::default() }.encode_to_vec().into();
    let peer = Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into()));
    loads.views.identify(&peer, Some(&node)).unwrap().key().clone()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test]
async fn lrs_18_as_many_views_report_loads_as_there_may_be_and_one_that_ends_makes_room() {
    let server = SlowServer::default();
    let (ends, last_reports) = (server.ends.clone(), server.last_reports.clone());
    let loads = loads_at(server);
    let (one, other) = (key(&loads, "one"), key(&loads, "other"));
    let client = loads.member(one.clone(), LIMITS).unwrap();
    let beside = loads.member(one.clone(), LIMITS).unwrap();
    let too_many = Some(AdmissionError::TooManyViews { limit: 1, split: None });
    assert_eq!(loads.member(other.clone(), LIMITS).err(), too_many);
    drop((client, beside));
    until("the last report is not sent", || last_reports.load(Ordering::Relaxed) == 1).await;
    assert_eq!(loads.member(other.clone(), LIMITS).err(), too_many, "its server has not ended the stream");
    // Who comes back to the view meanwhile is served: that is no other view.
    let again = loads.member(one, LIMITS).expect("it takes the place of the one that ends");
    drop(again);
    until("the last report is not sent", || last_reports.load(Ordering::Relaxed) == 2).await;
    ends.notify_waiters();
    until("a pool does not end", || loads.pools.lock().is_empty()).await;
    assert!(loads.member(other, LIMITS).is_ok());
}

#[tokio::test]
async fn trn_19_who_waits_for_the_last_reports_is_woken_when_the_last_pool_has_ended() {
    let server = SlowServer::default();
    let ends = server.ends.clone();
    let loads = loads_at(server);
    drop(loads.member(key(&loads, "web"), LIMITS).unwrap());

    let mut finish = std::pin::pin!(loads.finish());
    let is_pending = std::future::poll_fn(|cx| Poll::Ready(finish.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending, "the pool still reports");
    ends.notify_one();
    tokio::time::timeout(Duration::from_secs(20), finish).await.expect("nothing wakes it");
}

/// The first server is tried again after an hour only. The second one is tried again at once.
#[derive(Default)]
struct UnreachableServers {
    attempts: [Arc<AtomicUsize>; 2],
}

impl LoadConnector for UnreachableServers {
    fn carry(&self, server: usize, _: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>> {
        self.attempts[server].fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(LoadEnd::Said { code: 14, message: String::new() }))
    }

    fn backoff(&self, server: usize) -> BackoffTimes {
        let initial = [Duration::from_secs(3600), Duration::from_millis(1)][server];
        BackoffTimes { initial, factor: 1.0, max: initial, ..BackoffTimes::default() }
    }
}

#[tokio::test]
async fn fb_19_failed_attempts_for_loads_do_not_count_at_the_server_that_is_active_next() {
    let servers = UnreachableServers::default();
    let attempts = servers.attempts.clone();
    let views = Arc::new(crate::relay::views::tests::views_to_all(&["first", "second"]));
    let loads = Loads::new(LoadsMode::Aggregate(LIMITS), views, Arc::new(servers));
    let key = key(&loads, "web");
    let _entrance = loads.views.enter_at(&key, 0);
    let _client = loads.member(key.clone(), LIMITS).unwrap();
    until("the first server is not tried", || attempts[0].load(Ordering::Relaxed) == 1).await;
    let _again = loads.views.enter_at(&key, 1);
    until("the second server is not tried again", || attempts[1].load(Ordering::Relaxed) > 1).await;
    assert_eq!(attempts[0].load(Ordering::Relaxed), 1);
}
