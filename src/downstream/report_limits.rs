//! Limits of one load report, checked before it is decoded: a decoded empty locality takes a hundred times its encoded bytes.

use weir_core::xds::wire::{Value, fields};

use super::request_limits::RequestLimits;
use super::slot::Status;
use crate::limit::{Limit, LimitCounters};

/// A message within a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Report,
    Cluster,
    Locality,
    Endpoint,
    /// Dropped requests of a category, or a metric.
    Leaf,
}

impl Part {
    /// Returns the kind of a repeated field.
    fn repeated(self, number: u32) -> Option<Self> {
        Some(match (self, number) {
            (Self::Report, 2) => Self::Cluster,
            (Self::Cluster, 2) => Self::Locality,
            (Self::Locality, 7) => Self::Endpoint,
            (Self::Cluster | Self::Locality | Self::Endpoint, 5) => Self::Leaf,
            _ => return None,
        })
    }
}

/// Checks an encoded report.
pub(super) fn check(report: &[u8], limits: RequestLimits, counters: &LimitCounters) -> Result<(), Status> {
    const NODE: u32 = 1;
    let exceeded = |limit: Limit, what: String, most: usize| {
        counters.reached(limit);
        Err(Status::exhausted(format!("load report too large: {what}, the limit is {most} ({})", limit.key())))
    };
    let mut rest = vec![(Part::Report, report)];
    let mut rows = 0_usize;
    while let Some((part, bytes)) = rest.pop() {
        for field in fields(bytes) {
            let Some(field) = field else { return Err(Status::invalid("a report that cannot be read")) };
            let Value::Bytes(value) = field.value else { continue };
            if part == Part::Report && field.number == NODE && value.len() > limits.node_bytes {
                return exceeded(Limit::NodeBytes, format!("a node of {} bytes", value.len()), limits.node_bytes);
            }
            let Some(inner) = part.repeated(field.number) else { continue };
            rows += 1;
            if rows > limits.entries {
                return exceeded(Limit::RequestEntries, "clusters and rows".into(), limits.entries);
            }
            if inner != Part::Leaf && !value.is_empty() {
                rest.push((inner, value));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weir_core::proto::loads::cluster_stats::DroppedRequests;
    use weir_core::proto::loads::{
        ClusterStats, EndpointLoadMetricStats, LoadStatsRequest, UpstreamEndpointStats, UpstreamLocalityStats,
    };

    use super::*;

    fn judged(report: &[u8], entries: usize) -> Option<Status> {
        let counters = LimitCounters::default();
        let limits = RequestLimits { entries, name_bytes: 10, node_bytes: 20 };
        let status = check(report, limits, &counters).err();
        let counted: u64 = counters.counts().map(|(_, count)| count).sum();
        assert_eq!(counted, u64::from(status.as_ref().is_some_and(|status| status.message.contains("too large"))));
        status
    }

    /// Returns a report with two of every repeated field: 2 clusters, 4 drops, 4 localities, 8 metrics, 8 endpoints, 16 metrics.
    fn two_of_everything() -> Vec<u8> {
        let load_metric_stats = vec![EndpointLoadMetricStats::default(); 2];
        let endpoint = UpstreamEndpointStats { load_metric_stats: load_metric_stats.clone(), ..Default::default() };
        let upstream_endpoint_stats = vec![endpoint; 2];
        let locality = UpstreamLocalityStats { load_metric_stats, upstream_endpoint_stats, ..Default::default() };
        let cluster = ClusterStats {
            upstream_locality_stats: vec![locality; 2],
            dropped_requests: vec![DroppedRequests::default(); 2],
            ..Default::default()
        };
        LoadStatsRequest { node: None, cluster_stats: vec![cluster; 2] }.encode_to_vec()
    }

    #[test]
    fn i10_everything_that_can_be_repeated_counts() {
        assert_eq!(judged(&two_of_everything(), 42), None);
        let message = judged(&two_of_everything(), 41).unwrap().message;
        assert_eq!(message, "load report too large: clusters and rows, the limit is 41 (limits.request_entries)");
    }

    #[test]
    fn i10_a_large_node_and_bytes_that_are_no_report_are_rejected() {
        let report = LoadStatsRequest { node: Some(vec![0; 21].into()), cluster_stats: Vec::new() };
        assert!(judged(&report.encode_to_vec(), 1).unwrap().message.contains("a node of 21 bytes"));
        assert_eq!(judged(&[0xff; 9], 1).unwrap().message, "a report that cannot be read");
    }
}
