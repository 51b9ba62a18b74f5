use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::proto::loads::cluster_stats::DroppedRequests;
use crate::proto::loads::{
    ClusterStats, EndpointLoadMetricStats, LoadStatsResponse, Locality, UnnamedEndpointLoadMetricStats,
    UpstreamEndpointStats, UpstreamLocalityStats,
};

const LIMITS: LoadLimits = LoadLimits { outage: Duration::from_secs(300), bytes: 1 << 20, bytes_total: 1 << 20 };
const PERIOD: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Moment {
    Moment::START + Duration::from_secs(seconds)
}

fn response() -> LoadStatsResponse {
    let load_reporting_interval = PERIOD.try_into().ok();
    LoadStatsResponse { load_reporting_interval, send_all_clusters: true, ..Default::default() }
}

fn order(response: &LoadStatsResponse) -> Order {
    Order::read(response.encode_to_vec().into()).unwrap()
}

/// An aggregate that has received an order at the start.
fn ordered(limits: LoadLimits) -> Aggregate {
    let mut aggregate = Aggregate::new(limits);
    aggregate.on_order(&order(&response()), Moment::START);
    aggregate
}

fn report(cluster: &str, stats: UpstreamLocalityStats) -> LoadStatsRequest {
    LoadStatsRequest {
        node: None,
        cluster_stats: vec![ClusterStats {
            cluster_name: cluster.into(),
            upstream_locality_stats: vec![stats],
            ..Default::default()
        }],
    }
}

fn requests(succeeded: u64, in_progress: u64) -> UpstreamLocalityStats {
    UpstreamLocalityStats {
        total_successful_requests: succeeded,
        total_requests_in_progress: in_progress,
        total_active_connections: in_progress.saturating_mul(100),
        ..Default::default()
    }
}

fn only(report: &LoadStatsRequest) -> &UpstreamLocalityStats {
    let [cluster] = &report.cluster_stats[..] else { panic!("{report:?}") };
    let [locality] = &cluster.upstream_locality_stats[..] else { panic!("{report:?}") };
    locality
}

#[test]
fn lrs_14_counters_are_summed_and_gauges_are_the_latest_of_each_client() {
    let mut aggregate = ordered(LIMITS);
    let clients = [aggregate.join(), aggregate.join()];
    for in_progress in [7, 3] {
        aggregate.on_report(clients[0], &report("c", requests(10, in_progress)), usize::MAX);
        aggregate.on_report(clients[1], &report("c", requests(5, in_progress + 1)), usize::MAX);
    }
    let sent = aggregate.report(at(20));
    assert_eq!(*only(&sent), UpstreamLocalityStats { locality: Some(Locality::default()), ..requests(30, 3 + 4) });
    let sent = aggregate.report(at(30));
    assert_eq!((only(&sent).total_successful_requests, only(&sent).total_requests_in_progress), (0, 7), "once");
}

#[test]
fn lrs_14_drops_and_custom_metrics_are_summed_by_name() {
    let mut aggregate = ordered(LIMITS);
    for (client, count) in [(aggregate.join(), 2), (aggregate.join(), 3)] {
        let utilization = |requests, total| {
            Some(UnnamedEndpointLoadMetricStats {
                num_requests_finished_with_metric: requests,
                total_metric_value: total,
            })
        };
        let metric = |name: &str| EndpointLoadMetricStats {
            metric_name: name.into(),
            num_requests_finished_with_metric: count,
            total_metric_value: 0.5,
        };
        let mut report = report(
            "c",
            UpstreamLocalityStats {
                load_metric_stats: vec![metric("named_metrics.a"), metric("b")],
                cpu_utilization: utilization(count, 1.5),
                application_utilization: utilization(1, 0.25),
                ..Default::default()
            },
        );
        report.cluster_stats[0].total_dropped_requests = 10;
        report.cluster_stats[0].dropped_requests = vec![
            DroppedRequests { category: "lb".into(), dropped_count: count },
            DroppedRequests { category: format!("only {count}"), dropped_count: 1 },
        ];
        aggregate.on_report(client, &report, usize::MAX);
    }
    let sent = aggregate.report(at(10));
    let drops = |drops: &DroppedRequests| (drops.category.clone(), drops.dropped_count);
    assert_eq!(
        sent.cluster_stats[0].dropped_requests.iter().map(drops).collect::<Vec<_>>(),
        [("lb".to_owned(), 5), ("only 2".to_owned(), 1), ("only 3".to_owned(), 1)]
    );
    assert_eq!(sent.cluster_stats[0].total_dropped_requests, 20);
    let stats = only(&sent);
    let metric = |metric: &EndpointLoadMetricStats| {
        (metric.metric_name.clone(), metric.num_requests_finished_with_metric, metric.total_metric_value)
    };
    assert_eq!(
        stats.load_metric_stats.iter().map(metric).collect::<Vec<_>>(),
        [("b".to_owned(), 5, 1.0), ("named_metrics.a".to_owned(), 5, 1.0)]
    );
    let unnamed = |stats: Option<UnnamedEndpointLoadMetricStats>| {
        stats.map(|stats| (stats.num_requests_finished_with_metric, stats.total_metric_value))
    };
    assert_eq!(unnamed(stats.cpu_utilization), Some((5, 3.0)));
    assert_eq!((unnamed(stats.mem_utilization), unnamed(stats.application_utilization)), (None, Some((2, 0.5))));
}

#[test]
fn lrs_6_both_names_the_locality_and_the_priority_tell_rows_apart() {
    let mut aggregate = ordered(LIMITS);
    let client = aggregate.join();
    let place = |zone: &str, priority| UpstreamLocalityStats {
        locality: Some(Locality { zone: zone.into(), ..Default::default() }),
        priority,
        ..requests(1, 0)
    };
    for (cluster, service, zone, priority) in [
        ("c", "", "z", 0),
        ("c", "eds", "z", 0),
        ("d", "", "z", 0),
        ("c", "", "y", 0),
        ("c", "", "z", 1),
        ("c", "", "z", 0),
    ] {
        let mut report = report(cluster, place(zone, priority));
        report.cluster_stats[0].cluster_service_name = service.into();
        aggregate.on_report(client, &report, usize::MAX);
    }
    let sent = aggregate.report(at(10));
    let rows: Vec<_> = (sent.cluster_stats.iter())
        .flat_map(|cluster| cluster.upstream_locality_stats.iter().map(move |stats| (cluster, stats)))
        .map(|(cluster, stats)| {
            let zone = &stats.locality.as_ref().unwrap().zone;
            (
                &*cluster.cluster_name,
                &*cluster.cluster_service_name,
                &**zone,
                stats.priority,
                stats.total_successful_requests,
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("c", "", "y", 0, 1),
            ("c", "", "z", 0, 2),
            ("c", "", "z", 1, 1),
            ("c", "eds", "z", 0, 1),
            ("d", "", "z", 0, 1)
        ]
    );
}

#[test]
fn lrs_15_a_report_covers_the_time_since_the_relays_own_last() {
    let mut aggregate = ordered(LIMITS);
    assert_eq!(aggregate.next_deadline(), Some(at(10)));
    let client = aggregate.join();
    assert!(!aggregate.is_due(at(9)) && aggregate.is_due(at(10)));
    let covered = |sent: &LoadStatsRequest| sent.cluster_stats[0].load_report_interval.unwrap().seconds;
    let mut reported = report("c", requests(1, 0));
    reported.cluster_stats[0].load_report_interval = Some(Default::default()); // the client's own interval
    aggregate.on_report(client, &reported, usize::MAX);
    assert_eq!(covered(&aggregate.report(at(13))), 13, "late, and said so");
    assert_eq!(aggregate.next_deadline(), Some(at(23)));
    aggregate.on_report(client, &reported, usize::MAX);
    assert_eq!(covered(&aggregate.report(at(23))), 10);
}

#[test]
fn lrs_3_lrs_5_the_same_order_again_changes_nothing_and_another_interval_does() {
    let mut aggregate = ordered(LIMITS);
    aggregate.on_order(&order(&response()), at(5));
    assert_eq!(aggregate.next_deadline(), Some(at(10)));
    let shorter = LoadStatsResponse { load_reporting_interval: None, ..response() };
    aggregate.on_order(&order(&shorter), at(6));
    assert_eq!(aggregate.next_deadline(), Some(at(7)), "never more often than each second");
}

#[test]
fn lrs_16_a_client_that_leaves_takes_its_gauges_and_its_counters_stay() {
    let mut aggregate = ordered(LIMITS);
    let clients = [aggregate.join(), aggregate.join()];
    aggregate.on_report(clients[0], &report("c", requests(1, 4)), usize::MAX);
    aggregate.on_report(clients[1], &report("c", requests(2, 5)), usize::MAX);
    aggregate.leave(clients[0]);
    assert_eq!(only(&aggregate.report(at(10))).total_requests_in_progress, 5);
    aggregate.leave(clients[1]);
    assert!(!aggregate.is_over(), "upstream still thinks that five are in progress");
    assert_eq!(only(&aggregate.report(at(20))).total_requests_in_progress, 0);
    assert!(aggregate.is_over() && aggregate.report(at(30)).cluster_stats.is_empty());
}

#[test]
fn lrs_17_a_client_without_the_feature_is_given_the_clusters_by_name() {
    let all = order(&LoadStatsResponse { report_endpoint_granularity: true, ..response() });
    let listed = LoadStatsResponse::decode(all.listing(vec!["a".into(), "b".into()])).unwrap();
    assert!(!listed.send_all_clusters && listed.report_endpoint_granularity);
    assert_eq!((listed.clusters.len(), listed.load_reporting_interval), (2, response().load_reporting_interval));
}

#[test]
fn lrs_18_reports_are_kept_through_an_outage_for_so_long() {
    let mut aggregate = ordered(LIMITS);
    let client = aggregate.join();
    aggregate.on_report(client, &report("c", requests(1, 1)), usize::MAX);
    aggregate.on_ended(at(5));
    assert!(!aggregate.is_due(at(20)), "there is nobody to tell");
    aggregate.on_report(client, &report("c", requests(2, 1)), usize::MAX);
    aggregate.on_ended(at(200)); // one more attempt
    aggregate.on_time(at(304));
    aggregate.on_order(&order(&response()), at(304));
    assert_eq!(aggregate.next_deadline(), Some(at(314)));
    let sent = aggregate.report(at(314));
    assert_eq!(only(&sent).total_successful_requests, 3);
    assert_eq!((sent.cluster_stats[0].load_report_interval.unwrap().seconds, aggregate.take_lost()), (314, 0));

    aggregate.on_ended(at(320));
    aggregate.on_report(client, &report("c", requests(4, 9)), usize::MAX);
    aggregate.on_time(at(620));
    assert_eq!(aggregate.take_lost(), 1);
    aggregate.on_report(client, &report("c", requests(8, 6)), usize::MAX);
    aggregate.on_order(&order(&response()), at(630));
    let sent = aggregate.report(at(640));
    assert_eq!((only(&sent).total_successful_requests, only(&sent).total_requests_in_progress), (8, 6));
    assert_eq!(sent.cluster_stats[0].load_report_interval.unwrap().seconds, 20, "since what came before was dropped");
}

#[test]
fn lrs_18_what_is_kept_is_bounded_in_bytes_and_given_back() {
    let mut aggregate = ordered(LoadLimits { bytes: 10_000, ..LIMITS });
    let client = aggregate.join();
    for round in 0..3 {
        for cluster in 0..100 {
            aggregate.on_report(client, &report(&format!("c{cluster}"), requests(1, cluster % 2)), usize::MAX);
        }
        let sent = aggregate.report(at(10 * round));
        let clusters = sent.cluster_stats.len();
        assert!((10..20).contains(&clusters), "{clusters}");
        let rows = sent.cluster_stats.iter().map(|cluster| cluster.upstream_locality_stats.len()).sum::<usize>() as u64;
        assert!(aggregate.take_lost() >= 100 - rows);
    }
    // Whatever fits is still summed.
    for _ in 0..100 {
        aggregate.on_report(client, &report("c0", requests(1, 0)), usize::MAX);
    }
    assert_eq!(aggregate.take_lost(), 0);
}

#[test]
fn lrs_18_a_report_that_is_lost_in_part_and_then_as_a_whole_is_counted_once() {
    let mut aggregate = ordered(LoadLimits { bytes: 10_000, ..LIMITS });
    let client = aggregate.join();
    let mut reported = report("c0", requests(1, 0));
    reported
        .cluster_stats
        .extend((1..100).flat_map(|number| report(&format!("c{number}"), requests(1, 0)).cluster_stats));
    aggregate.on_report(client, &reported, usize::MAX);
    assert!(!aggregate.sums.is_empty(), "a part fits");
    aggregate.on_report(client, &report("c0", requests(1, 0)), usize::MAX);
    assert_eq!(aggregate.lost, 1, "the first one does not fit as a whole");
    aggregate.on_ended(at(0));
    aggregate.on_time(at(300));
    assert!(aggregate.sums.is_empty());
    assert_eq!(aggregate.take_lost(), 2, "one of them twice would be 3");
}

#[test]
fn lrs_19_endpoints_are_merged_by_their_whole_address_where_that_is_wanted() {
    let endpoint = |address: &'static [u8]| UpstreamEndpointStats {
        address: Some(Bytes::from_static(address)),
        total_issued_requests: 2,
        total_requests_in_progress: 1,
        metadata: Some(Bytes::from_static(b"m")),
        ..Default::default()
    };
    let stats =
        UpstreamLocalityStats { upstream_endpoint_stats: vec![endpoint(b"one"), endpoint(b"two")], ..requests(4, 0) };
    for wanted in [false, true] {
        let mut aggregate = Aggregate::new(LIMITS);
        let wish = LoadStatsResponse { report_endpoint_granularity: wanted, ..response() };
        aggregate.on_order(&order(&wish), Moment::START);
        for client in [aggregate.join(), aggregate.join()] {
            aggregate.on_report(client, &report("c", stats.clone()), usize::MAX);
        }
        let sent = aggregate.report(at(10));
        assert_eq!(only(&sent).total_successful_requests, 8);
        let endpoints = &only(&sent).upstream_endpoint_stats;
        if wanted {
            let sum = |address| UpstreamEndpointStats {
                total_issued_requests: 4,
                total_requests_in_progress: 2,
                ..endpoint(address)
            };
            assert_eq!(endpoints[..], [sum(b"one"), sum(b"two")]);
        } else {
            assert!(endpoints.is_empty());
        }
    }
}

#[test]
fn numbers_beyond_all_bounds_stay_at_the_largest() {
    let mut aggregate = ordered(LIMITS);
    let clients = [aggregate.join(), aggregate.join()];
    clients
        .iter()
        .for_each(|client| aggregate.on_report(*client, &report("c", requests(u64::MAX, u64::MAX)), usize::MAX));
    assert_eq!(only(&aggregate.report(at(10))).total_requests_in_progress, u64::MAX);
    aggregate.leave(clients[0]);
    aggregate.on_report(clients[1], &report("c", requests(1, 2)), usize::MAX);
    assert_eq!(only(&aggregate.report(at(20))).total_requests_in_progress, 2);
}

#[derive(Debug, Clone)]
enum Event {
    Join,
    Leave(usize),
    /// Each row is cluster, zone, counted requests, and requests in progress.
    Report(usize, Vec<(u8, u8, u64, u64)>),
    Due,
    Ended,
    Back,
}

fn event() -> impl Strategy<Value = Event> {
    let rows = prop::collection::vec((0..3u8, 0..3u8, 0..5u64, 0..3u64), 0..4);
    prop_oneof![
        2 => Just(Event::Join),
        1 => (0..8usize).prop_map(Event::Leave),
        6 => (0..8usize, rows).prop_map(|(client, rows)| Event::Report(client, rows)),
        2 => Just(Event::Due),
        1 => Just(Event::Ended),
        2 => Just(Event::Back),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The reference: every reported row, and the last report of each live client.
    #[test]
    fn lrs_14_whatever_happens_each_report_is_counted_once_and_gauges_are_those_of_the_living(
        events in prop::collection::vec(event(), 0..60)
    ) {
        let mut aggregate = ordered(LIMITS);
        type Report = Vec<(u8, u8, u64, u64)>;
        let mut living: Vec<(Reporter, Report)> = Vec::new();
        let mut reported = std::collections::BTreeMap::<(u8, u8), u64>::new();
        let mut sent = std::collections::BTreeMap::<(u8, u8), u64>::new();
        let mut up = true;
        for (step, event) in events.into_iter().chain([Event::Back, Event::Due]).enumerate() {
            let now = at(step as u64);
            match event {
                Event::Join => living.push((aggregate.join(), Vec::new())),
                Event::Leave(which) if which < living.len() => aggregate.leave(living.remove(which).0),
                Event::Report(which, rows) if which < living.len() => {
                    let mut request = LoadStatsRequest::default();
                    for (cluster, zone, counted, in_progress) in &rows {
                        *reported.entry((*cluster, *zone)).or_default() += counted;
                        let locality = Some(Locality { zone: zone.to_string(), ..Default::default() });
                        let stats = UpstreamLocalityStats { locality, ..requests(*counted, *in_progress) };
                        request.cluster_stats.extend(report(&cluster.to_string(), stats).cluster_stats);
                    }
                    aggregate.on_report(living[which].0, &request, usize::MAX);
                    living[which].1 = rows;
                }
                Event::Due if up => {
                    let mut gauges = std::collections::BTreeMap::<(u8, u8), u64>::new();
                    for (cluster, zone, _, in_progress) in living.iter().flat_map(|(_, rows)| rows) {
                        *gauges.entry((*cluster, *zone)).or_default() += in_progress;
                    }
                    for cluster in aggregate.report(now).cluster_stats {
                        for stats in &cluster.upstream_locality_stats {
                            let zone = stats.locality.as_ref().unwrap().zone.parse().unwrap();
                            let row = (cluster.cluster_name.parse().unwrap(), zone);
                            *sent.entry(row).or_default() += stats.total_successful_requests;
                            let gauge = gauges.remove(&row).unwrap_or_default();
                            prop_assert_eq!(stats.total_requests_in_progress, gauge);
                        }
                    }
                    prop_assert!(gauges.values().all(|gauge| *gauge == 0), "not told: {:?}", gauges);
                }
                Event::Ended => {
                    aggregate.on_ended(now);
                    up = false;
                }
                Event::Back => {
                    aggregate.on_order(&order(&response()), now);
                    up = true;
                }
                _ => {}
            }
            aggregate.on_time(now);
        }
        reported.retain(|_, count| *count > 0);
        sent.retain(|_, count| *count > 0);
        prop_assert_eq!(sent, reported);
        prop_assert_eq!(aggregate.take_lost(), 0);
        living.into_iter().for_each(|(client, _)| aggregate.leave(client));
        aggregate.report(at(1000));
        prop_assert!(aggregate.is_over() && aggregate.sums.bytes() == 0);
    }
}

#[test]
fn lrs_18_in_a_long_outage_reports_are_kept_for_so_long_again_and_again() {
    let mut aggregate = ordered(LIMITS);
    let client = aggregate.join();
    aggregate.on_ended(at(0));
    for ends in [300, 600, 900] {
        assert_eq!(aggregate.next_deadline(), Some(at(ends)));
        aggregate.on_report(client, &report("c", requests(1, 0)), usize::MAX);
        aggregate.on_time(at(ends - 1));
        assert_eq!(aggregate.take_lost(), 0);
        aggregate.on_time(at(ends));
        assert_eq!(aggregate.take_lost(), 1);
    }
}

#[test]
fn lrs_19_an_order_of_the_same_interval_may_ask_for_endpoints_or_no_longer() {
    let endpoint = UpstreamEndpointStats { address: Some(Bytes::from_static(b"one")), ..Default::default() };
    let stats = UpstreamLocalityStats { upstream_endpoint_stats: vec![endpoint], ..requests(1, 0) };
    let mut aggregate = ordered(LIMITS);
    let client = aggregate.join();
    for (wanted, number) in [(true, 1), (false, 0), (true, 1)] {
        let wish = LoadStatsResponse { report_endpoint_granularity: wanted, ..response() };
        aggregate.on_order(&order(&wish), at(1));
        assert_eq!(aggregate.next_deadline(), Some(at(10)), "the interval is the same");
        aggregate.on_report(client, &report("c", stats.clone()), usize::MAX);
        assert_eq!(only(&aggregate.report(at(0))).upstream_endpoint_stats.len(), number);
    }
}

#[test]
fn lrs_1_a_report_before_any_order_is_counted_as_lost() {
    let mut aggregate = Aggregate::new(LIMITS);
    let client = aggregate.join();
    aggregate.on_report(client, &report("c", requests(1, 1)), usize::MAX);
    aggregate.on_report(client, &report("c", requests(1, 1)), usize::MAX);
    assert_eq!((aggregate.take_lost(), aggregate.take_lost()), (2, 0));
    aggregate.on_ended(at(1));
    assert_eq!(aggregate.next_deadline(), None, "there is nothing that an outage could lose");
    aggregate.on_order(&order(&response()), at(2));
    assert!(aggregate.report(at(12)).cluster_stats.is_empty());
}

#[test]
fn a_report_that_is_hastened_is_due_at_once_and_no_other_begins() {
    let mut aggregate = ordered(LIMITS);
    aggregate.hasten(at(4));
    assert!(aggregate.is_due(at(4)));
    aggregate.report(at(4));
    assert_eq!(aggregate.next_deadline(), Some(at(14)), "the next one has its whole interval");
    aggregate.hasten(at(20));
    assert_eq!(aggregate.next_deadline(), Some(at(14)), "one that is late is not put off");
    aggregate.on_ended(at(21));
    aggregate.hasten(at(22));
    assert!(!aggregate.is_due(at(1000)), "there is no stream to report on");
}

#[test]
fn lrs_18_what_a_report_has_beside_its_counts_is_given_back_with_them() {
    let mut aggregate = Aggregate::new(LIMITS);
    let wish = LoadStatsResponse { report_endpoint_granularity: true, ..response() };
    aggregate.on_order(&order(&wish), at(0));
    let client = aggregate.join();
    let metric = |name: &str| EndpointLoadMetricStats { metric_name: name.into(), ..Default::default() };
    let endpoint = UpstreamEndpointStats {
        address: Some(Bytes::from_static(b"one")),
        metadata: Some(Bytes::from_static(b"metadata")),
        load_metric_stats: vec![metric("of an endpoint")],
        total_requests_in_progress: 1,
        ..Default::default()
    };
    let stats = UpstreamLocalityStats {
        upstream_endpoint_stats: vec![endpoint],
        load_metric_stats: vec![metric("of a locality")],
        ..requests(1, 1)
    };
    let mut reported = report("c", stats);
    let category = "overload".to_owned();
    reported.cluster_stats[0].dropped_requests = vec![DroppedRequests { category, dropped_count: 1 }];
    let mut kept = Vec::new();
    for round in 1..4 {
        aggregate.on_report(client, &reported, usize::MAX);
        let full = aggregate.bytes();
        aggregate.report(at(10 * round));
        kept.push((full, aggregate.bytes()));
    }
    assert!(kept[0].0 > kept[0].1 && kept.iter().all(|bytes| *bytes == kept[0]), "the same in each round: {kept:?}");
    aggregate.leave(client);
    aggregate.report(at(100));
    assert_eq!((aggregate.bytes(), aggregate.is_over()), (0, true));
}
