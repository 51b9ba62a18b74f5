//! Load reporting through the relay: streams that are forwarded, and streams that are aggregated.

use prost::Message;
use tokio::sync::oneshot;

use super::client::{PATIENCE, node};
use super::evidence::servers;
use super::load_plane::{LoadClient, LoadPlane};
use super::*;
use weir_core::proto::loads::{ClusterStats, LoadStatsRequest, LoadStatsResponse, UpstreamLocalityStats};
use weir_core::proto::node::Node;
use weir_testkit::script::Way;
use weir_testkit::server::Server;

pub(super) async fn loads_relay(plane: SocketAddr, rest: &str) -> Relay {
    let config = config(plane, "", &format!("views: {{key: [cluster]}}\n{rest}"));
    run(crate::bind(config).await.unwrap(), std::future::pending())
}

pub(super) fn opening(cluster: &str) -> LoadStatsRequest {
    LoadStatsRequest { node: node(cluster), ..Default::default() }
}

#[tokio::test]
async fn lrs_11_messages_pass_through_byte_for_byte_in_both_directions() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    let mut client = LoadClient::connect(relay.address).await;
    // Unknown fields, and fields in an order that no encoder uses.
    let first = [&b"\x9a\x06\x01x"[..], &opening("web").encode_to_vec(), b"\xf8\xff\x03\x01"].concat();
    client.send(&first).await;
    let mut stream = plane.stream().await;
    assert_eq!(stream.message().await.unwrap(), first, "the client's own node, and not that of its key");
    stream.say(b"\x20\x01\x9a\x06\x01y\x0a\x01c").await;
    assert_eq!(client.answer().await.unwrap().unwrap(), &b"\x20\x01\x9a\x06\x01y\x0a\x01c"[..]);
    for message in [&b"\x12\x03\x0a\x01c"[..], b"", b"no protobuf at all", &[b'x'; 200_000]] {
        client.send(message).await;
        assert_eq!(stream.message().await.unwrap(), message);
        stream.say(message).await;
        assert_eq!(client.answer().await.unwrap().unwrap(), message);
    }
    let other = LoadClient::connect(relay.address).await;
    other.report(&opening("web")).await;
    assert_eq!(plane.stream().await.report().await, opening("web"), "a stream of its own");
}

#[tokio::test]
async fn the_end_of_one_side_is_the_end_of_the_other_with_its_status() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    for code in [0, 7, 12] {
        let mut client = LoadClient::connect(relay.address).await;
        client.report(&opening("web")).await;
        plane.stream().await.end(code).await;
        assert_eq!(client.ended().await.code() as u16, code);
    }
    // A client that half-closes still gets the final status.
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let mut stream = plane.stream().await;
    stream.report().await;
    client.reports = None;
    assert_eq!(stream.message().await, None);
    stream.say(b"last").await;
    stream.end(0).await;
    assert_eq!(client.answer().await.unwrap().unwrap(), &b"last"[..]);
    assert_eq!(client.ended().await.code(), Code::Ok);
    // When a client disconnects, its upstream stream ends too.
    let client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let mut stream = plane.stream().await;
    stream.report().await;
    drop(client);
    assert_eq!(stream.message().await, None);
}

#[tokio::test]
async fn lrs_9_without_a_control_plane_the_client_is_asked_to_reconnect() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let stream = plane.stream().await;
    let address = plane.kill().await;
    assert_eq!(client.ended().await.code(), Code::Unavailable, "the connection broke");
    drop(stream);
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    assert_eq!(client.ended().await.code(), Code::Unavailable, "there is none");
    let mut plane = LoadPlane::start_at(address).await;
    let client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    plane.stream().await.report().await;
}

#[tokio::test]
async fn a_side_that_does_not_read_holds_the_other_back() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "").await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let stream = plane.stream().await;
    let large = vec![b'x'; 1 << 20];
    let mut sent = 0;
    while tokio::time::timeout(Duration::from_millis(500), stream.say(&large)).await.is_ok() {
        sent += 1;
        assert!(sent < 32, "whatever is said is taken, although nobody reads it");
    }
    for _ in 0..sent {
        assert_eq!(client.answer().await.unwrap().unwrap(), large);
    }
}

#[tokio::test]
async fn streams_that_make_no_sense_are_ended_with_a_reason() {
    let plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "limits: {message_bytes: 1024}\n").await;
    for (message, code) in [
        (LoadStatsRequest::default().encode_to_vec(), Code::InvalidArgument),
        (b"\x0a\x09".to_vec(), Code::InvalidArgument),
        (vec![0; 1025], Code::ResourceExhausted),
    ] {
        let mut client = LoadClient::connect(relay.address).await;
        client.send(&message).await;
        assert_eq!(client.ended().await.code(), code);
    }
}

#[tokio::test]
async fn lrs_11_where_loads_are_off_there_is_no_such_method() {
    let plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "load_reports: {mode: off}\n").await;
    let rejected = LoadClient::try_connect(relay.address).await.err().expect("it is served");
    assert_eq!(rejected.code(), Code::Unimplemented);
}

#[tokio::test]
async fn trn_19_streams_of_loads_end_when_the_relay_goes() {
    let mut plane = LoadPlane::start().await;
    let config = config(plane.address, "", "drain: {grace: 10s, spread: 100ms}\n");
    let (stop, stopped) = oneshot::channel::<()>();
    let mut relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let stream = plane.stream().await;
    stop.send(()).unwrap();
    assert_eq!(client.ended().await.code(), Code::Unavailable);
    drop((client, stream));
    tokio::time::timeout(PATIENCE, &mut relay.task).await.expect("the relay does not go").unwrap();
}

pub(super) const AGGREGATE: &str = "load_reports: {mode: aggregate}\n";
const ALL_CLUSTERS: &str = "envoy.lrs.supports_send_all_clusters";

/// Returns the first report of a client that, like Envoy and gRPC, supports an order for all clusters.
pub(super) fn able(cluster: &str, id: &str) -> LoadStatsRequest {
    let client_features = vec![ALL_CLUSTERS.into()];
    let node = Node { id: id.into(), cluster: cluster.into(), client_features, ..Node::default() };
    LoadStatsRequest { node: Some(node.encode_to_vec().into()), ..Default::default() }
}

pub(super) fn all_each_second() -> LoadStatsResponse {
    let load_reporting_interval = Duration::from_secs(1).try_into().ok();
    LoadStatsResponse { load_reporting_interval, send_all_clusters: true, ..Default::default() }
}

pub(super) fn report(cluster: &str, succeeded: u64, in_progress: u64) -> LoadStatsRequest {
    let stats = UpstreamLocalityStats {
        total_successful_requests: succeeded,
        total_requests_in_progress: in_progress,
        ..Default::default()
    };
    let (cluster_name, upstream_locality_stats) = (cluster.into(), vec![stats]);
    let cluster_stats = vec![ClusterStats { cluster_name, upstream_locality_stats, ..Default::default() }];
    LoadStatsRequest { node: None, cluster_stats }
}

/// Reads reports upstream until their sum has this many requests. Returns the sum, the last number in progress, and the time covered.
pub(super) async fn told_until(stream: &mut super::load_plane::LoadStream, wanted: u64) -> (u64, u64, Duration) {
    let (mut counted, mut level, mut covered) = (0, 0, Duration::ZERO);
    let start = tokio::time::Instant::now();
    while counted < wanted {
        assert!(start.elapsed() < PATIENCE, "only {counted} were told");
        for cluster in stream.report().await.cluster_stats {
            covered += Duration::try_from(cluster.load_report_interval.unwrap()).unwrap();
            for stats in cluster.upstream_locality_stats {
                counted += stats.total_successful_requests;
                level = stats.total_requests_in_progress;
            }
        }
    }
    (counted, level, covered)
}

/// Returns how many bytes of reports are buffered for control planes.
pub(super) async fn buffered(relay: &Relay) -> u64 {
    metric(relay, "weir_load_reports_buffered_bytes").await as u64
}

/// Connects two clients of one view, which have received an order.
async fn two_clients(relay: &Relay, plane: &mut LoadPlane) -> ([LoadClient; 2], super::load_plane::LoadStream) {
    let mut clients = [LoadClient::connect(relay.address).await, LoadClient::connect(relay.address).await];
    clients[0].report(&able("web", "one")).await;
    let mut stream = plane.stream().await;
    stream.report().await;
    stream.order(&all_each_second()).await;
    assert_eq!(clients[0].order().await, all_each_second());
    clients[1].report(&able("web", "two")).await;
    assert_eq!(clients[1].order().await, all_each_second(), "LRS-13: at once, from what upstream said before");
    (clients, stream)
}

#[tokio::test]
async fn lrs_12_lrs_14_clients_of_a_view_are_summed_on_one_stream_with_the_node_of_the_view() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, AGGREGATE).await;
    let start = tokio::time::Instant::now();
    let client = LoadClient::connect(relay.address).await;
    client.report(&able("db", "zero")).await;
    let mut stream = plane.stream().await;
    let node = Node::decode(stream.report().await.node.unwrap()).unwrap();
    assert!(node.cluster == "db" && node.id.starts_with("weir-"), "{node:?}");
    assert!(node.client_features.contains(&ALL_CLUSTERS.to_owned()));

    let (clients, mut stream) = two_clients(&relay, &mut plane).await;
    for level in [6, 1] {
        clients[0].report(&report("c", 10, level)).await;
        clients[1].report(&report("c", 5, level + 1)).await;
    }
    let (counted, level, covered) = told_until(&mut stream, 30).await;
    assert_eq!((counted, level), (30, 1 + 2));
    assert!(covered > Duration::ZERO && covered <= start.elapsed(), "{covered:?}");
    stream.report().await;
    assert!(plane.streams.try_recv().is_err(), "two views, two streams");
    // All clients are sent a new order.
    let other = LoadStatsResponse { report_endpoint_granularity: true, ..all_each_second() };
    stream.order(&other).await;
    for mut client in clients {
        assert_eq!(client.order().await, other);
    }
}

#[tokio::test]
async fn i10_a_report_with_too_many_rows_is_not_decoded_and_ends_its_stream_alone() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, &format!("limits: {{request_entries: 2}}\n{AGGREGATE}")).await;
    let ([mut greedy, honest], mut stream) = two_clients(&relay, &mut plane).await;
    let cluster_stats = vec![ClusterStats::default(); 3];
    greedy.report(&LoadStatsRequest { node: None, cluster_stats: cluster_stats.clone() }).await;
    let status = greedy.ended().await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    let message = "load report too large: clusters and rows, the limit is 2 (limits.request_entries)";
    assert_eq!(status.message(), message);
    let mut first_of_stream = LoadClient::connect(relay.address).await;
    first_of_stream.report(&LoadStatsRequest { cluster_stats, ..able("web", "three") }).await;
    assert_eq!(first_of_stream.ended().await.message(), message);
    honest.report(&report("c", 5, 0)).await;
    assert_eq!(told_until(&mut stream, 5).await.0, 5);
    let metrics = get(relay.admin, "/metrics").await;
    assert!(metrics.contains("weir_limit_reached_total{limit=\"limits.request_entries\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn lrs_16_who_leaves_takes_what_is_in_progress_and_what_was_counted_stays() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, AGGREGATE).await;
    let ([mut first, second], mut stream) = two_clients(&relay, &mut plane).await;
    first.report(&report("c", 10, 4)).await;
    second.report(&report("c", 5, 3)).await;
    assert_eq!(told_until(&mut stream, 15).await.1, 7);
    first.report(&report("c", 2, 4)).await;
    first.reports = None; // a half-close, because a reset could overtake the report
    assert_eq!(first.ended().await.code(), Code::Ok);
    let (counted, _, _) = told_until(&mut stream, 2).await;
    assert_eq!(counted, 2);
    let level =
        |report: LoadStatsRequest| report.cluster_stats[0].upstream_locality_stats[0].total_requests_in_progress;
    while level(stream.report().await) != 3 {}
    // After the last client the relay ends its stream too, once upstream has the report that no request is in progress.
    drop(second);
    let mut last = 3;
    while let Some(message) = stream.message().await {
        last = level(LoadStatsRequest::decode(message).unwrap());
    }
    assert_eq!(last, 0);
}

/// The control plane has requested nothing, so no report is due at which the relay could notice.
#[tokio::test]
async fn lrs_16_the_stream_of_a_view_ends_with_its_last_client_though_no_report_is_due() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, AGGREGATE).await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&able("web", "one")).await;
    let mut stream = plane.stream().await;
    stream.report().await;
    client.reports = None;
    client.ended().await;
    assert!(stream.message().await.is_none());
}

#[tokio::test]
async fn lrs_18_clients_stay_through_an_outage_and_what_they_report_is_sent_after_it() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, AGGREGATE).await;
    let ([mut first, second], mut stream) = two_clients(&relay, &mut plane).await;
    first.report(&report("c", 1, 0)).await;
    told_until(&mut stream, 1).await;
    let address = plane.kill().await;
    while stream.message().await.is_some() {}
    first.report(&report("c", 10, 1)).await;
    second.report(&report("c", 5, 2)).await;
    let mut late = LoadClient::connect(relay.address).await;
    late.report(&able("web", "late")).await;
    assert_eq!(late.order().await, all_each_second(), "what upstream last said");
    let mut plane = LoadPlane::start_at(address).await;
    let mut stream = plane.stream().await;
    assert!(stream.report().await.node.is_some(), "LRS-9: it begins anew");
    stream.order(&all_each_second()).await;
    second.report(&report("c", 20, 2)).await;
    let (counted, level, covered) = told_until(&mut stream, 35).await;
    assert_eq!((counted, level), (35, 3));
    assert!(covered > Duration::from_secs(1), "the outage is covered: {covered:?}");
    let other = LoadStatsResponse { report_endpoint_granularity: true, ..all_each_second() };
    stream.order(&other).await;
    assert_eq!(first.order().await, other, "clients were sent nothing of the outage");
}

#[tokio::test]
async fn up_34_a_control_plane_that_orders_loads_and_dies_is_tried_less_and_less() {
    let mut plane = LoadPlane::start().await;
    let backoff = ", backoff: {initial: 50ms, factor: 2, max: 10s, jitter: 0}";
    let config = config(plane.address, backoff, &format!("views: {{key: [cluster]}}\n{AGGREGATE}"));
    let relay = run(crate::bind(config).await.unwrap(), std::future::pending());
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&able("web", "one")).await;
    let mut begun = Vec::new();
    for _ in 0..6 {
        let stream = plane.stream().await;
        begun.push(tokio::time::Instant::now());
        stream.order(&all_each_second()).await;
        stream.end(14).await;
    }
    let pauses: Vec<_> = begun.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    for (pause, least) in pauses.iter().zip([50, 100, 200, 400, 800]) {
        assert!(*pause >= least, "{pauses:?}");
    }
    assert_eq!(client.order().await, all_each_second(), "clients have not heard of it");
}

#[tokio::test]
async fn lrs_10_lrs_17_a_client_without_the_feature_is_answered_with_the_clusters_of_its_view() {
    const ELSEWHERE: &str =
        "access: [{types: [envoy.config.cluster.v3.Cluster], names: [b], allow_from: [10.1.0.0/16]}]\n";
    for (access, clusters) in [("", &["a", "b"][..]), (ELSEWHERE, &["a"])] {
        // Discovery and loads usually have one control plane. Here one server answers only loads, and another one only discovery.
        let mut plane = Plane::start(&BOTH).await;
        let relay = loads_relay(plane.address, &format!("{AGGREGATE}{access}")).await;
        let mut cds = Client::connect(relay.address, Variant::Delta).await;
        cds.ask(CDS, &[], Some("web"));
        let stream = plane.stream().await;
        say(&stream, "1", &TWO, &TWO, &[]);
        cds.sent().await;
        let address = plane.kill().await;
        let mut plane = LoadPlane::start_at(address).await;
        let mut client = LoadClient::connect(relay.address).await;
        client.report(&opening("web")).await;
        let stream = plane.stream().await;
        stream.order(&all_each_second()).await;
        let clusters = clusters.iter().map(ToString::to_string).collect();
        let listed = LoadStatsResponse { clusters, send_all_clusters: false, ..all_each_second() };
        assert_eq!(client.order().await, listed);
    }
}

#[tokio::test]
async fn trn_19_what_was_counted_is_sent_before_the_relay_goes() {
    let mut plane = LoadPlane::start().await;
    let text = format!("views: {{key: [cluster]}}\n{AGGREGATE}drain: {{grace: 10s, spread: 100ms}}\n");
    let config = config(plane.address, "", &text);
    let (stop, stopped) = oneshot::channel::<()>();
    let mut relay = run(crate::bind(config).await.unwrap(), async move { drop(stopped.await) });
    let (mut clients, mut stream) = two_clients(&relay, &mut plane).await;
    // An interval so long that the relay's next report is far off.
    let load_reporting_interval = Duration::from_secs(3600).try_into().ok();
    stream.order(&LoadStatsResponse { load_reporting_interval, ..all_each_second() }).await;
    for (client, cluster) in clients.iter_mut().zip(["c", "d"]) {
        client.order().await;
        let before = buffered(&relay).await;
        client.report(&report(cluster, 7, 1)).await;
        until("the report has arrived", async || buffered(&relay).await > before).await;
    }
    stop.send(()).unwrap();
    for client in &mut clients {
        assert_eq!(client.ended().await.code(), Code::Unavailable);
    }
    drop(clients);
    let (counted, level, _) = told_until(&mut stream, 14).await;
    assert_eq!((counted, level), (14, 0));
    tokio::time::timeout(PATIENCE, &mut relay.task).await.expect("the relay does not go").unwrap();
}

/// Two control planes that serve discovery and loads, and a relay that prefers the first one.
struct Two {
    relay: Relay,
    first: Server,
    second: Server,
}

async fn two_planes(rest: &str) -> Two {
    let (first, second) = (Server::start(Way::Gives("1")).await, Server::start(Way::Gives("1")).await);
    let relay = relay_with_options(&servers(&[first.address, second.address], ""), rest, |_| {}).await;
    Two { relay, first, second }
}

async fn loads_at(server: &mut Server) -> super::load_plane::LoadStream {
    tokio::time::timeout(PATIENCE, server.loads.recv()).await.expect("no stream of loads came").unwrap()
}

#[tokio::test]
async fn fb_19_a_stream_of_loads_that_is_passed_through_is_begun_again_at_the_server_that_serves_now() {
    let Two { relay, mut first, mut second } = two_planes("").await;
    let mut discovery = Client::connect(relay.address, Variant::Delta).await;
    discovery.ask(EDS, &["a"], Some("web"));
    discovery.sent().await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    loads_at(&mut first).await.report().await;
    let address = first.kill().await;
    // Unknown: the task of the stream ended before that of its connection, without a status.
    let end = client.ended().await.code();
    assert!([Code::Unavailable, Code::Unknown].contains(&end), "{end:?}");

    discovery.ask(EDS, &["b"], None);
    assert_eq!(discovery.sent().await.set, ["b"], "from the second");
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    let mut stream = loads_at(&mut second).await;
    stream.report().await;
    stream.say(b"order").await;
    assert_eq!(client.answer().await.unwrap().unwrap(), &b"order"[..]);

    // The second server is still up, and so is the stream to it. The view still returns to the first.
    let mut first = Server::start_at(address, Way::Gives("1")).await;
    assert_eq!(client.ended().await.code(), Code::Unavailable, "the client is to begin anew");
    assert_eq!(stream.message().await, None);
    let client = LoadClient::connect(relay.address).await;
    client.report(&opening("web")).await;
    loads_at(&mut first).await.report().await;
}

#[tokio::test]
async fn fb_19_what_is_put_together_goes_to_the_server_that_serves_now_and_is_counted_once() {
    let Two { relay, mut first, mut second } = two_planes(AGGREGATE).await;
    let mut discovery = Client::connect(relay.address, Variant::Delta).await;
    discovery.ask(EDS, &["a"], Some("web"));
    discovery.sent().await;
    let mut client = LoadClient::connect(relay.address).await;
    client.report(&able("web", "one")).await;
    let mut stream = loads_at(&mut first).await;
    stream.report().await;
    stream.order(&all_each_second()).await;
    client.order().await;
    client.report(&report("c", 10, 1)).await;
    assert_eq!(told_until(&mut stream, 10).await.0, 10);

    let address = first.kill().await;
    client.report(&report("c", 5, 2)).await;
    discovery.ask(EDS, &["b"], None);
    assert_eq!(discovery.sent().await.set, ["b"], "from the second");
    let mut stream = loads_at(&mut second).await;
    assert!(stream.report().await.node.is_some(), "it begins anew");
    stream.order(&all_each_second()).await;
    assert_eq!(told_until(&mut stream, 5).await.0, 5);
    client.report(&report("c", 7, 3)).await;

    // Back at the first server, in mid-stream: it is sent what was not reported to the second, and nothing twice.
    let mut first = Server::start_at(address, Way::Gives("1")).await;
    let mut back = loads_at(&mut first).await;
    assert!(back.report().await.node.is_some());
    back.order(&all_each_second()).await;
    client.report(&report("c", 8, 4)).await;
    let counts = |report: LoadStatsRequest| -> u64 {
        let stats = report.cluster_stats.into_iter().flat_map(|cluster| cluster.upstream_locality_stats);
        stats.map(|stats| stats.total_successful_requests).sum()
    };
    let mut counted = 0;
    while let Some(message) = stream.message().await {
        counted += counts(LoadStatsRequest::decode(message).unwrap());
    }
    let (rest, level, _) = told_until(&mut back, 15 - counted).await;
    assert_eq!((counted + rest, level), (7 + 8, 4));
    let other = LoadStatsResponse { report_endpoint_granularity: true, ..all_each_second() };
    back.order(&other).await;
    assert_eq!(client.order().await, other, "the client was sent nothing of the two changes");
}

#[tokio::test]
async fn key_14_a_client_of_loads_that_becomes_another_is_ended_to_come_back_as_such() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, AGGREGATE).await;
    let ([mut first, second], mut stream) = two_clients(&relay, &mut plane).await;
    let with_node = |cluster, id, count| LoadStatsRequest { node: able(cluster, id).node, ..report("c", count, 0) };
    first.report(&with_node("web", "another id of the same key", 1)).await;
    second.report(&with_node("web", "two", 2)).await;
    assert_eq!(told_until(&mut stream, 3).await.0, 3);
    first.report(&with_node("db", "one", 100)).await;
    assert_eq!(first.ended().await.code(), Code::Unavailable);
    second.report(&report("c", 4, 0)).await;
    assert_eq!(told_until(&mut stream, 4).await.0, 4, "nothing of the other's is in it");
}

#[tokio::test]
async fn i10_what_is_kept_of_loads_is_bounded_for_all_views_together() {
    let mut plane = LoadPlane::start().await;
    let relay = loads_relay(plane.address, "load_reports: {mode: aggregate, bytes_total: 100000}\n").await;
    let ([first, second], mut stream) = two_clients(&relay, &mut plane).await;
    let load_reporting_interval = Duration::from_secs(3600).try_into().ok();
    stream.order(&LoadStatsResponse { load_reporting_interval, ..all_each_second() }).await;
    // One view uses all memory for reports.
    let many = |from: usize| {
        let clusters = (from..from + 1000).flat_map(|number| report(&format!("cluster-{number}"), 1, 0).cluster_stats);
        LoadStatsRequest { node: None, cluster_stats: clusters.collect() }
    };
    for mut client in [first, second] {
        client.order().await;
        client.report(&many(0)).await;
        until("it is counted while its client stays", async || buffered(&relay).await > 10_000).await;
        client.reports = None;
        client.ended().await;
    }
    // The other view gets none, and continues once the first one has reported.
    let mut other = LoadClient::connect(relay.address).await;
    other.report(&able("db", "three")).await;
    let mut others = plane.stream().await;
    others.report().await;
    others.order(&all_each_second()).await;
    other.order().await;
    let mut leaves = LoadClient::connect(relay.address).await;
    leaves.report(&able("db", "four")).await;
    leaves.order().await;
    leaves.report(&report("c", 7, 0)).await;
    leaves.reports = None;
    leaves.ended().await; // its report was read
    assert!(others.report().await.cluster_stats.is_empty(), "there was no room for it");
    stream.order(&all_each_second()).await;
    let mut sent = 0;
    while let Some(message) = stream.message().await {
        sent += LoadStatsRequest::decode(message).unwrap().cluster_stats.len();
    }
    assert!(sent > 10 && sent < 500, "{sent} clusters of a thousand");
    other.report(&report("c", 9, 0)).await;
    assert_eq!(told_until(&mut others, 9).await.0, 9);
}

#[tokio::test]
async fn trn_1_loads_have_a_method_of_v2_where_v2_is_served() {
    for (served, rest) in [(false, ""), (true, "clients: {v2: true}\n")] {
        let mut plane = LoadPlane::start().await;
        let relay = loads_relay(plane.address, rest).await;
        let path = weir_core::xds::LOADS_PATH_V2;
        match LoadClient::try_connect_to(relay.address, path).await {
            Ok(client) if served => {
                client.report(&opening("web")).await;
                assert_eq!(plane.stream().await.report().await, opening("web"));
            }
            Err(status) if !served => assert_eq!(status.code(), Code::Unimplemented),
            other => panic!("served: {served}, and it is {:?}", other.map(|_| ())),
        }
    }
}
