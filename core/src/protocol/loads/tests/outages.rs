//! What is kept of reports while there is no server to send them to, and for how long.

use super::*;

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
