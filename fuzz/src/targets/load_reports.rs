//! Load reports of clients and orders of control planes.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use weir_core::proto::loads::{ClusterStats, LoadStatsRequest, LoadStatsResponse};
use weir_core::protocol::loads::{Aggregate, LoadLimits, Order, Reporter};
use weir_core::protocol::moment::Moment;

/// Steps of clients and of the control plane. The sums stay within their limit, drops are neither lost nor counted twice, and nothing is
/// left once all clients have left and everything is reported.
pub fn load_reports(data: &[u8]) {
    let mut aggregate = Aggregate::new(LIMITS);
    let mut clients: Vec<Reporter> = Vec::new();
    let (mut rest, mut now, mut dropped, mut lost) = (data, Moment::START, 0_u128, 0);
    while let [step, who, low, high, tail @ ..] = rest {
        let (message, after) = tail.split_at(tail.len().min(usize::from(u16::from_le_bytes([*low, *high]))));
        rest = after;
        let who = usize::from(*who);
        match step % 6 {
            0 => clients.push(aggregate.join()),
            1 if !clients.is_empty() => aggregate.leave(clients.swap_remove(who % clients.len())),
            2 => {
                let Ok(order) = Order::read(Bytes::copy_from_slice(message)) else { continue };
                check_order(&order);
                aggregate.on_order(&order, now);
            }
            3 if !clients.is_empty() => {
                let Ok(report) = LoadStatsRequest::decode(message) else { continue };
                aggregate.on_report(clients[who % clients.len()], &report, LIMITS.bytes_total);
                dropped += drops(&report.cluster_stats);
            }
            4 => {
                now = now + Duration::from_secs(who as u64);
                aggregate.on_time(now);
            }
            5 => {
                let report = aggregate.report(now);
                lost += aggregate.take_lost();
                if lost == 0 && dropped <= u128::from(u64::MAX) {
                    assert_eq!(drops(&report.cluster_stats), dropped, "drops");
                }
                (dropped, lost) = (0, 0);
            }
            _ => aggregate.on_ended(now),
        }
        assert!(aggregate.bytes() <= LIMITS.bytes, "{} bytes", aggregate.bytes());
    }
    clients.into_iter().for_each(|client| aggregate.leave(client));
    aggregate.report(now);
    assert!(aggregate.is_over() && aggregate.bytes() == 0, "{} bytes of nothing", aggregate.bytes());
}

fn drops(stats: &[ClusterStats]) -> u128 {
    let of_cluster = |stats: &ClusterStats| u128::from(stats.total_dropped_requests);
    stats.iter().map(of_cluster).sum()
}

fn check_order(order: &Order) {
    assert!(order.interval() >= Duration::from_secs(1));
    let listed = LoadStatsResponse::decode(order.listing(vec!["a".into()])).expect("an order of our own");
    assert_eq!(listed.clusters, ["a"]);
    assert_eq!(listed.report_endpoint_granularity, order.endpoints());
}

/// Small, so that short inputs reach it.
const LIMITS: LoadLimits = LoadLimits { outage: Duration::from_secs(60), bytes: 8192, bytes_total: 8192 };
