use std::net::Ipv4Addr;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;
use weir_core::proto::loads::{ClusterStats, LoadStatsResponse, UpstreamLocalityStats};
use weir_core::proto::node::Node;

use super::streams::OpenLoadStream;
use super::*;
use crate::memory::{Budget, GroupMembership, Memory, MemorySetting};
use crate::relay::views::tests::{views, views_of, views_to_all};

/// A server whose stream ends some time after the last report, when the test says so.
#[derive(Default)]
struct SlowServer {
    ends: Arc<Notify>,
    /// How many streams have received their last report.
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

fn aggregating(views: Views, server: impl LoadConnector + 'static) -> Loads {
    Loads::new(LoadsMode::Aggregate(LIMITS), Arc::new(views), Arc::new(server))
}

/// Loads for one view at a time.
fn loads_at(server: SlowServer) -> Loads {
    aggregating(views(), server)
}

fn key(loads: &Loads, cluster: &str) -> SharingKey {
    let node = Node { cluster: cluster.into(), ..Node::default() }.encode_to_vec().into();
    let peer = Arc::new(Peer::at((Ipv4Addr::LOCALHOST, 1).into()));
    loads.views.identify(&peer, &Default::default(), Some(&node)).unwrap().key().clone()
}

/// A connection, and what counts its pools.
type Connection = (u64, Arc<ViewQuota>);

fn connection(number: u64) -> Connection {
    (number, Arc::default())
}

fn join(loads: &Loads, cluster: &str, of: &Connection) -> Result<Membership, AdmissionError> {
    loads.member(&key(loads, cluster), &Default::default(), LoadClient { connection: of.0, quota: &of.1 }, LIMITS)
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
    let [by, beside] = [1, 2].map(connection);
    let client = join(&loads, "one", &by).unwrap();
    let joined = join(&loads, "one", &beside).unwrap();
    let too_many = Some(AdmissionError::TooManyViews { limit: 1, split: None });
    assert_eq!(join(&loads, "other", &by).err(), too_many);
    drop((client, joined));
    until("the last report is not sent", || last_reports.load(Ordering::Relaxed) == 1).await;
    assert_eq!(join(&loads, "other", &by).err(), too_many, "its server has not ended the stream");
    // A client that returns to the view meanwhile is served, since the view is the same.
    let again = join(&loads, "one", &by).expect("it takes the place of the one that ends");
    drop(again);
    until("the last report is not sent", || last_reports.load(Ordering::Relaxed) == 2).await;
    ends.notify_waiters();
    until("a pool does not end", || loads.pools.is_empty()).await;
    assert!(join(&loads, "other", &by).is_ok());
}

#[tokio::test]
async fn trn_19_who_waits_for_the_last_reports_is_woken_when_the_last_pool_has_ended() {
    let server = SlowServer::default();
    let ends = server.ends.clone();
    let loads = loads_at(server);
    drop(join(&loads, "web", &connection(1)).unwrap());

    // A generation that a reload has ended, and the end of the relay.
    let mut finish = std::pin::pin!(futures_util::future::join(loads.finish(), loads.finish()));
    let is_pending = std::future::poll_fn(|cx| Poll::Ready(finish.as_mut().poll(cx).is_pending())).await;
    assert!(is_pending, "the pool still reports");
    ends.notify_one();
    tokio::time::timeout(Duration::from_secs(20), finish).await.expect("nothing wakes one of them");
}

/// The first server is tried again only after an hour, the second one at once.
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
    let loads = aggregating(views_to_all(&["first", "second"]), servers);
    let key = key(&loads, "web");
    let _entrance = loads.views.enter_at(&key, 0);
    let _client = join(&loads, "web", &connection(1)).unwrap();
    until("the first server is not tried", || attempts[0].load(Ordering::Relaxed) == 1).await;
    let _again = loads.views.enter_at(&key, 1);
    until("the second server is not tried again", || attempts[1].load(Ordering::Relaxed) > 1).await;
    assert_eq!(attempts[0].load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn pools_count_for_the_connection_and_the_identity_that_made_them_and_apart_from_views() {
    let loads = aggregating(views_of(10, 2), UnreachableServers::default());
    let [one, two] = [1, 2].map(connection);
    let mut members: Vec<_> = ["a", "b"].map(|cluster| join(&loads, cluster, &one).unwrap()).into();
    let too_many = |limit| Some(AdmissionError::TooManyViewsOfConnection { limit, split: None });
    assert_eq!(join(&loads, "c", &one).err(), too_many(2));
    members.push(join(&loads, "c", &two).unwrap());
    members.push(join(&loads, "c", &one).expect("it joins one that the other made"));
    drop(members);
    until("a pool does not end", || loads.pools.is_empty()).await;
    assert!([&one, &two].iter().all(|(_, quota)| !quota.pools().are_any()));

    let of_identity = [3, 4, 5].map(|number| (number, Arc::new(loads.views.quota(Some("x")))));
    let _members = [0, 1].map(|number| join(&loads, &number.to_string(), &of_identity[number]).unwrap());
    let too_many = Some(AdmissionError::TooManyViewsOfIdentity { limit: 2, split: None });
    assert_eq!(join(&loads, "2", &of_identity[2]).err(), too_many);
}

#[tokio::test]
async fn a_client_with_as_many_pools_as_it_may_have_has_them_in_the_next_configuration_too_and_no_others() {
    for per_connection in [2, 0] {
        let loads = || aggregating(views_of(10, per_connection), UnreachableServers::default());
        let earlier = loads();
        let later = loads().after(&earlier);
        let client = (1, Arc::new(earlier.views.quota(Some("x"))));
        let _before = ["a", "b"].map(|cluster| join(&earlier, cluster, &client).unwrap());
        let _one = join(&later, "a", &client).expect("it has this one already");
        let refused = match per_connection {
            0 => AdmissionError::TooManyViewsOfIdentity { limit: 2, split: None },
            limit => AdmissionError::TooManyViewsOfConnection { limit, split: None },
        };
        assert_eq!(join(&later, "c", &client).err(), Some(refused));
        let _two = join(&later, "b", &client).expect("it has this one already");
    }
}

/// Whether a pool has made room.
async fn has_ended(member: &Membership) -> bool {
    futures_util::future::poll_immediate(std::pin::pin!(member.pool.has_made_room())).await.is_some()
}

#[tokio::test]
async fn i8_the_connection_with_most_pools_makes_room_for_one_with_two_fewer_by_its_newest_that_is_its_own() {
    let loads = aggregating(views_of(4, 0), SlowServer::default());
    let [greedy, beside, honest, next, last] = [1, 2, 3, 4, 5].map(connection);
    let members = ["a", "b", "c", "d"].map(|cluster| join(&loads, cluster, &greedy).unwrap());
    let _shared = join(&loads, "d", &beside).unwrap();
    let too_many = Some(AdmissionError::TooManyViews { limit: 4, split: None });
    assert_eq!(join(&loads, "e", &greedy).err(), too_many);
    let _honest = join(&loads, "e", &honest).expect("it has none, and the other has most");
    assert!(has_ended(&members[2]).await && !has_ended(&members[3]).await, "the newest that it shares with none");
    let _next = join(&loads, "f", &next).unwrap();
    assert!(has_ended(&members[1]).await);
    assert_eq!(join(&loads, "g", &last).err(), too_many, "with one more, the two would take it from each other");
    assert!(!has_ended(&members[0]).await);
    let reached = loads.views.counters().limits.counts().find(|(key, _)| *key == "views.max").unwrap().1;
    assert_eq!(reached, 4, "two were refused, and two made room");
}

#[tokio::test]
async fn i8_a_client_for_whose_pool_there_is_no_memory_ends_no_pool_of_another() {
    let loads = aggregating(views_of(2, 0), SlowServer::default());
    let greedy = connection(1);
    let members = ["a", "b"].map(|cluster| join(&loads, cluster, &greedy).unwrap());
    let memory = Memory::new(Budget::on(MemorySetting::Bytes(1 << 30), None), Arc::default(), Arc::default());
    let account = memory.connect(GroupMembership::default());
    let poor: Connection = (3, Arc::new(ViewQuota::default().charged_to(account.clone(), false)));
    let taken = account.charge(2 << 30);
    assert!(matches!(join(&loads, "c", &poor).err(), Some(AdmissionError::NoMemory(_))));
    assert!(!has_ended(&members[0]).await && !has_ended(&members[1]).await);
    drop(taken);
    let _member = join(&loads, "c", &poor).expect("there is memory, and the other has most");
    assert!(has_ended(&members[1]).await);
}

/// A server that orders reports once an hour, and then reads them or goes.
struct Orderer {
    stays: bool,
    reported: Arc<AtomicUsize>,
}

impl LoadConnector for Orderer {
    fn carry(&self, _: usize, mut link: LoadLink) -> Pin<Box<dyn Future<Output = LoadEnd> + Send>> {
        let (stays, reported) = (self.stays, self.reported.clone());
        Box::pin(async move {
            let load_reporting_interval = Duration::from_secs(3600).try_into().ok();
            let order = LoadStatsResponse { load_reporting_interval, send_all_clusters: true, ..Default::default() };
            link.answers.send(order.encode_to_vec().into()).await.unwrap();
            while let Some(report) = if stays { link.reports.recv().await } else { None } {
                let report = LoadStatsRequest::decode(report).unwrap();
                let rows = report.cluster_stats.iter().flat_map(|cluster| &cluster.upstream_locality_stats);
                let requests: u64 = rows.map(|stats| stats.total_successful_requests).sum();
                reported.fetch_add(usize::try_from(requests).unwrap(), Ordering::Relaxed);
            }
            LoadEnd::Said { code: 0, message: String::new() }
        })
    }

    fn backoff(&self, _: usize) -> BackoffTimes {
        let hour = Duration::from_secs(3600);
        BackoffTimes { initial: hour, max: hour, ..BackoffTimes::default() }
    }
}

/// A report about one cluster.
fn report() -> LoadStatsRequest {
    let stats = UpstreamLocalityStats { total_successful_requests: 7, ..Default::default() };
    let cluster_stats =
        vec![ClusterStats { cluster_name: "c".into(), upstream_locality_stats: vec![stats], ..Default::default() }];
    LoadStatsRequest { node: None, cluster_stats }
}

#[tokio::test]
async fn a_pool_without_clients_makes_room_and_reports_what_it_has_or_counts_it_as_dropped() {
    for stays in [true, false] {
        let reported = Arc::<AtomicUsize>::default();
        let loads = aggregating(views(), Orderer { stays, reported: reported.clone() });
        let by = connection(1);
        let member = join(&loads, "one", &by).unwrap();
        until("no order comes", || member.pool.orders().borrow().is_some()).await;
        member.pool.report(member.id, &report());
        assert!(join(&loads, "other", &by).is_err(), "it has a client");
        drop(member);
        assert!(loads.kept() > 0);
        let other = join(&loads, "other", &by).expect("the one without clients makes room");
        let outcome = || (reported.load(Ordering::Relaxed), loads.views.counters().load_reports_lost());
        until("it is not reported, nor dropped", || outcome() == if stays { (7, 0) } else { (0, 1) }).await;
        drop(other);
        until("a pool does not end", || loads.pools.is_empty()).await;
        assert_eq!(loads.kept(), 0);
    }
}

#[tokio::test]
async fn i10_pools_of_an_earlier_configuration_have_a_part_of_the_bytes_until_they_have_reported() {
    let loads = || aggregating(views(), Orderer { stays: true, reported: Arc::default() });
    let earlier = loads();
    let later = loads().after(&earlier);
    let by = connection(1);
    let before = join(&earlier, "one", &by).unwrap();
    until("no order comes", || before.pool.orders().borrow().is_some()).await;
    before.pool.report(before.id, &report());
    let kept = earlier.kept();
    assert!(kept > 0);
    assert_eq!(later.kept(), kept, "the memory that is in use includes it");

    // The later configuration has a lower limit, which counts for its pools.
    let limits = LoadLimits { bytes_total: kept, ..LIMITS };
    let client = LoadClient { connection: by.0, quota: &by.1 };
    let member = later.member(&key(&later, "one"), &Default::default(), client, limits).unwrap();
    until("no order comes", || member.pool.orders().borrow().is_some()).await;
    member.pool.report(member.id, &report());
    assert_eq!(later.kept(), kept, "there is no room for it");
    drop(before);
    tokio::time::timeout(Duration::from_secs(20), earlier.finish()).await.expect("the earlier pool does not end");
    assert_eq!(later.kept(), 0);
    member.pool.report(member.id, &report());
    assert_eq!((earlier.kept(), later.kept()), (kept, kept), "there is room again");
}

/// Numbers below the bounds, always the same.
fn numbers() -> impl FnMut(u64) -> u64 {
    let mut state = 7_u64;
    move |bound| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % bound
    }
}

#[tokio::test]
async fn i10_pools_that_are_made_joined_and_left_in_any_order_leave_nothing() {
    let loads = aggregating(views_of(6, 4), UnreachableServers::default());
    let connections: Vec<_> = (0..4).map(|number| (number, Arc::new(loads.views.quota(Some("x"))))).collect();
    let (mut next, mut members) = (numbers(), Vec::new());
    for _ in 0..3000 {
        if next(2) == 0 && !members.is_empty() {
            drop(members.swap_remove(next(members.len() as u64) as usize));
        } else {
            members.extend(join(&loads, &next(12).to_string(), &connections[next(4) as usize]));
        }
        if next(20) == 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(members);
    until("a pool does not end", || loads.pools.is_empty()).await;
    assert!(connections.iter().all(|(_, quota)| !quota.pools().are_any()));
    assert_eq!(loads.kept(), 0);
}

const STREAMS: LoadStreamLimits = LoadStreamLimits { streams: 9, per_connection: 5 };

#[test]
fn i10_streams_that_are_passed_on_and_end_in_any_order_leave_nothing() {
    let (streams, mut next) = (Arc::<LoadStreams>::default(), numbers());
    let mut open: Vec<(u64, OpenLoadStream)> = Vec::new();
    let (mut refused, mut made_room) = (0, 0);
    for _ in 0..5000 {
        if next(3) == 0 && !open.is_empty() {
            drop(open.swap_remove(next(open.len() as u64) as usize));
        } else {
            let connection = next(4);
            match streams.open(connection, STREAMS) {
                Ok(stream) => open.push((connection, stream)),
                Err(_) => refused += 1,
            }
        }
        let counted = |stream: &OpenLoadStream| !stream.is_ended();
        let before = open.len();
        if next(2) == 0 {
            open.retain(|(_, stream)| counted(stream));
        }
        made_room += before - open.len();
        let lives: Vec<_> = open.iter().filter(|(_, stream)| counted(stream)).map(|(of, _)| *of).collect();
        assert_eq!(streams.taken(), lives.len());
        assert!(lives.len() <= STREAMS.streams);
        assert!((0..4).all(|of| lives.iter().filter(|other| **other == of).count() <= STREAMS.per_connection));
    }
    assert!(refused > 100 && made_room > 100, "{refused} were refused, {made_room} made room");
    drop(open);
    assert_eq!(streams.taken(), 0);
}

#[test]
fn streams_that_an_earlier_configuration_passes_on_count_for_the_one_that_follows() {
    let mode = LoadsMode::PassThrough(STREAMS);
    let loads = || Loads::new(mode, Arc::new(views()), Arc::new(SlowServer::default()));
    let earlier = loads();
    let _open: Vec<_> = (0..5).map(|_| earlier.streams.open(1, STREAMS).unwrap()).collect();
    let later = loads().after(&earlier);
    let refused = later.streams.open(1, STREAMS).unwrap_err();
    assert_eq!(refused, StreamRefusal::OfConnection(5));
    let expected = "too many load report streams of one connection: the limit is 5 (load_reports.streams_per_connection); close some";
    assert_eq!(refused.to_string(), expected);
    let any_number = LoadStreamLimits { per_connection: 0, ..STREAMS };
    let _more: Vec<_> = (0..4).map(|_| later.streams.open(1, any_number).unwrap()).collect();
    assert_eq!(later.streams.open(1, any_number).unwrap_err(), StreamRefusal::InAll(9));
}
