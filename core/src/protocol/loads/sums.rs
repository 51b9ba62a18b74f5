//! Sums over clients: one row for each locality of a cluster at a priority, and for each endpoint in it (LRS-6, LRS-14).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::row::{Cost, Levels, Room, Row, RowKey, Sample, increase, samples};
use crate::proto::loads::cluster_stats::DroppedRequests;
use crate::proto::loads::{ClusterStats, UpstreamLocalityStats};

#[derive(Debug, Default)]
pub(super) struct Sums {
    clusters: BTreeMap<Arc<ClusterKey>, Cluster>,
    /// About how many bytes everything uses, including the gauges of clients.
    bytes: usize,
}

/// What one client has in progress in one row. Its keys are shared with the row.
#[derive(Debug)]
pub(super) struct Gauge {
    cluster: Arc<ClusterKey>,
    row: Arc<RowKey>,
    levels: Levels,
}

/// The result of adding a report.
pub(super) struct Added {
    pub(crate) gauges: Vec<Gauge>,
    /// There was no room for a part of the report.
    pub(crate) in_part: bool,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ClusterKey {
    name: String,
    service: String,
}

#[derive(Debug, Default)]
struct Cluster {
    dropped: u64,
    categories: BTreeMap<String, u64>,
    rows: BTreeMap<Arc<RowKey>, Row>,
}

impl Sums {
    pub(crate) fn is_empty(&self) -> bool {
        self.clusters.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts a client's report, and returns what it has in progress. Rows that do not fit into `limit` bytes are left out.
    pub(crate) fn add(&mut self, report: &[ClusterStats], endpoints: bool, limit: usize) -> Added {
        let Self { clusters, bytes } = self;
        let mut room = Room::of(bytes, limit);
        let mut gauges = Vec::new();
        for stats in report {
            let key = ClusterKey { name: stats.cluster_name.clone(), service: stats.cluster_service_name.clone() };
            let Some((key, cluster)) = room.entry(clusters, Arc::new(key)) else { continue };
            increase(&mut cluster.dropped, stats.total_dropped_requests);
            for drops in &stats.dropped_requests {
                if let Some((_, count)) = room.entry(&mut cluster.categories, drops.category.clone()) {
                    increase(count, drops.dropped_count);
                }
            }
            for sample in stats.upstream_locality_stats.iter().flat_map(|stats| samples(stats, endpoints)) {
                let levels = sample.levels;
                let Some(row) = cluster.add(sample, &mut room) else { continue };
                gauges.extend((levels != Levels::default()).then(|| Gauge { cluster: key.clone(), row, levels }));
            }
        }
        Added { gauges, in_part: room.rejected() }
    }

    /// Subtracts a client's gauges, because they have changed or the client has left.
    pub(crate) fn lower(&mut self, gauges: &[Gauge]) {
        for Gauge { cluster, row, levels } in gauges {
            self.bytes = self.bytes.saturating_sub(GAUGE);
            if let Some(row) = self.clusters.get_mut(cluster).and_then(|cluster| cluster.rows.get_mut(row)) {
                row.lower(*levels);
            }
        }
    }

    /// Returns the sums as a report for a time, and starts counting again. A row with something in progress stays, so that the end of that is
    /// reported too.
    pub(crate) fn take(&mut self, covered: Duration) -> Vec<ClusterStats> {
        let interval = prost_types::Duration::try_from(covered).ok();
        let report = self.clusters.iter().map(|(key, cluster)| cluster.stats(key, interval)).collect();
        let mut freed = 0;
        self.clusters.retain(|key, cluster| {
            freed += cluster.start_over();
            let stays = !cluster.rows.is_empty();
            freed += if stays { 0 } else { key.cost() };
            stays
        });
        self.bytes = self.bytes.saturating_sub(freed);
        report
    }
}

impl Cluster {
    fn add(&mut self, sample: Sample<'_>, room: &mut Room<'_>) -> Option<Arc<RowKey>> {
        let (key, row) = room.entry(&mut self.rows, Arc::new(sample.key.clone()))?;
        row.add(&sample, room);
        if sample.levels != Levels::default() && !room.take(GAUGE) {
            return None;
        }
        row.raise(sample.levels);
        Some(key)
    }

    /// Keeps only what is in progress, and returns how many bytes were freed.
    fn start_over(&mut self) -> usize {
        let mut freed: usize = self.categories.keys().map(Cost::cost).sum();
        (self.dropped, self.categories) = (0, BTreeMap::new());
        self.rows.retain(|key, row| {
            freed += row.start_over();
            let stays = row.is_busy();
            freed += if stays { 0 } else { key.cost() };
            stays
        });
        freed
    }

    fn stats(&self, key: &ClusterKey, interval: Option<prost_types::Duration>) -> ClusterStats {
        let mut localities: Vec<UpstreamLocalityStats> = Vec::new();
        let mut last: Option<&RowKey> = None;
        for (key, row) in &self.rows {
            if !last.is_some_and(|last| last.is_of_locality(key)) {
                localities.push(key.locality());
            }
            last = Some(key);
            let Some(locality) = localities.last_mut() else { continue };
            match &key.address {
                None => row.completeness(locality),
                Some(address) => locality.upstream_endpoint_stats.push(row.endpoint(address)),
            }
        }
        let drops = self.categories.iter();
        ClusterStats {
            cluster_name: key.name.clone(),
            cluster_service_name: key.service.clone(),
            upstream_locality_stats: localities,
            total_dropped_requests: self.dropped,
            dropped_requests: drops
                .map(|(category, count)| DroppedRequests { category: category.clone(), dropped_count: *count })
                .collect(),
            load_report_interval: interval,
        }
    }
}

impl Cost for Arc<ClusterKey> {
    fn cost(&self) -> usize {
        self.name.len() + self.service.len() + 256
    }
}

const GAUGE: usize = 64;
