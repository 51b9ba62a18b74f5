//! The cost of many scrapes, and the content of one while views hang.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use prost::Message;
use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::proto::node::Node;
use weir_core::protocol::upstream::BackoffTimes;

use super::cardinality::{client, views};
use super::*;
use crate::relay::{LoadConnector, LoadEnd, LoadLink, LoadsMode, SessionHandle, open_session};

const VIEWS: usize = 100;

/// Has no load reports.
struct NoLoads;

impl LoadConnector for NoLoads {
    fn carry(&self, _: usize, _: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>> {
        Box::pin(std::future::pending())
    }

    fn backoff(&self, _: usize) -> BackoffTimes {
        BackoffTimes::default()
    }
}

/// A relay with views, and a count of the expositions that were made of it.
struct Bench {
    views: Arc<Views>,
    _clients: Vec<Arc<SessionHandle>>,
    made: Arc<AtomicUsize>,
    exposition: Exposition,
}

impl Bench {
    async fn new() -> Self {
        let views = Arc::new(views());
        let mut clients = Vec::new();
        for number in 0..VIEWS {
            let node = Node { cluster: format!("cluster-{number}"), ..Node::default() };
            let first = DeltaDiscoveryRequest { node: Some(node.encode_to_vec().into()), ..Default::default() };
            clients.push(open_session(&views, &Request::Delta(first), client()).await.unwrap());
        }
        let made = Arc::<AtomicUsize>::default();
        let loads = Arc::new(Loads::new(LoadsMode::Off, views.clone(), Arc::new(NoLoads)));
        let workers = Arc::new(WorkerHealth::new());
        let of = (views.clone(), made.clone());
        let exposition = exposition(move || {
            let (views, made) = of.clone();
            made.fetch_add(1, Ordering::SeqCst);
            let (files, tls) = (Arc::new([]), Arc::new([]));
            let (config, log, workers) = (config_facts(), LogControl::none(), workers.clone());
            let process = ProcessSources { tls, state: None, log, workers };
            MetricsSources { views, loads: loads.clone(), files, certificate_files: Arc::new([]), config, process }
        });
        Self { views, _clients: clients, made, exposition }
    }

    async fn scrape(&self) -> String {
        let page = self.exposition.page(MetricsFormat::Text).await.expect("it is made");
        String::from_utf8(page.into()).unwrap()
    }

    /// Returns how many views exist, how many of them the next page shows, and how often a view was left out.
    async fn shown(&self) -> (usize, usize, usize) {
        let page = self.scrape().await;
        let value = |name: &str| page.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap();
        let series = page.lines().filter(|line| line.starts_with("weir_client_streams_open{")).count();
        (value("weir_views "), series, value("weir_metrics_views_left_out_total "))
    }

    /// Waits until a page shows `expected` views. A busy machine may cause others to be left out too. Returns how often a view was left out.
    async fn shows(&self, expected: usize, mut left_out: usize) -> usize {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let (views, shown, counted) = self.shown().await;
            left_out += VIEWS - shown;
            assert_eq!((views, counted), (VIEWS, left_out));
            if shown == expected {
                return left_out;
            }
            assert!(Instant::now() < until, "{shown} instead of {expected}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_scrapes_at_a_time_cost_a_few_expositions() {
    let bench = Bench::new().await;
    for round in 1..=2 {
        join_all((0..50).map(|_| bench.scrape())).await;
        let made = bench.made.load(Ordering::SeqCst);
        assert!(made <= 10 * round, "{made} in {round} rounds"); // those who come late on a busy machine share others
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 8)]
async fn views_that_hang_are_left_out_after_a_second_for_all_of_them_and_counted() {
    const HUNG: usize = 6;
    let bench = Bench::new().await;
    let mut left_out = bench.shows(VIEWS, 0).await;
    let mut hung = Vec::new();
    for place in 0..HUNG {
        hung.push(bench.views.hang(place).await);
    }
    let (least, of_each) = (Duration::from_millis(900), Duration::from_secs(HUNG as u64));
    let mut times: Vec<Duration> = Vec::new();
    while times.last().is_none_or(|took| *took >= of_each) {
        assert!(times.len() < 5, "{times:?}: a second for all");
        let began = Instant::now();
        let (views, shown, counted) = bench.shown().await;
        times.push(began.elapsed());
        assert!(views == VIEWS && shown <= VIEWS - HUNG, "{shown} of {views}");
        assert_eq!(counted, left_out + VIEWS - shown);
        left_out = counted;
    }
    assert!(times.iter().all(|took| *took >= least), "{times:?}");
    let left_out = bench.shows(VIEWS - HUNG, left_out).await;
    drop(hung);
    bench.shows(VIEWS, left_out).await; // they answer again
}
