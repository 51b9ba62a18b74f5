use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::*;
use crate::proto::loads::cluster_stats::DroppedRequests;
use crate::proto::loads::{
    ClusterStats, EndpointLoadMetricStats, LoadStatsResponse, Locality, UnnamedEndpointLoadMetricStats,
    UpstreamEndpointStats, UpstreamLocalityStats,
};

mod counted;
mod histories;
mod outages;

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
fn lrs_3_lrs_5_the_same_order_again_changes_nothing_and_another_interval_does() {
    let mut aggregate = ordered(LIMITS);
    aggregate.on_order(&order(&response()), at(5));
    assert_eq!(aggregate.next_deadline(), Some(at(10)));
    let shorter = LoadStatsResponse { load_reporting_interval: None, ..response() };
    aggregate.on_order(&order(&shorter), at(6));
    assert_eq!(aggregate.next_deadline(), Some(at(7)), "never more often than each second");
}

#[test]
fn lrs_17_a_client_without_the_feature_is_given_the_clusters_by_name() {
    let all = order(&LoadStatsResponse { report_endpoint_granularity: true, ..response() });
    let listed = LoadStatsResponse::decode(all.listing(vec!["a".into(), "b".into()])).unwrap();
    assert!(!listed.send_all_clusters && listed.report_endpoint_granularity);
    assert_eq!((listed.clusters.len(), listed.load_reporting_interval), (2, response().load_reporting_interval));
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
