//! What reports count: sums, gauges, and the rows that are told apart.

use super::*;

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

/// Else the control plane would never learn when it has ended.
#[test]
fn lrs_14_a_row_stays_while_it_has_requests_in_progress_or_connections() {
    for (in_progress, connections) in [(3, 0), (0, 3)] {
        let mut aggregate = ordered(LIMITS);
        let client = aggregate.join();
        let stats = UpstreamLocalityStats {
            total_requests_in_progress: in_progress,
            total_active_connections: connections,
            ..Default::default()
        };
        aggregate.on_report(client, &report("c", stats), usize::MAX);
        aggregate.report(at(10));
        let sent = aggregate.report(at(20));
        let levels = (only(&sent).total_requests_in_progress, only(&sent).total_active_connections);
        assert_eq!(levels, (in_progress, connections));
    }
}

/// Memory for reports is bounded, so names of any length have to count.
#[test]
fn lrs_18_each_part_of_a_locality_counts_with_its_length() {
    let bytes_of = |[region, zone, sub_zone]: [usize; 3]| {
        let [region, zone, sub_zone] = [region, zone, sub_zone].map(|length| "x".repeat(length));
        let mut aggregate = ordered(LIMITS);
        let client = aggregate.join();
        let locality = Some(Locality { region, zone, sub_zone });
        let stats = UpstreamLocalityStats { locality, ..requests(1, 0) };
        aggregate.on_report(client, &report("c", stats), usize::MAX);
        aggregate.bytes()
    };
    let least = bytes_of([0, 0, 0]);
    for lengths in [[1_000, 0, 0], [0, 1_000, 0], [0, 0, 1_000]] {
        assert_eq!(bytes_of(lengths), least + 1_000, "{lengths:?}");
    }
}
