//! Random histories of clients, reports and outages.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

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
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Default::default() })]

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
