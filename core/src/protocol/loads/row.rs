//! One row of the sums: a locality of a cluster at a priority, or an endpoint in it. The bytes of all rows are bounded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;

use crate::proto::loads::{
    EndpointLoadMetricStats, Locality, UnnamedEndpointLoadMetricStats, UpstreamEndpointStats, UpstreamLocalityStats,
};

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowKey {
    region: String,
    zone: String,
    sub_zone: String,
    priority: u32,
    /// `None` for the row of the whole locality, which is sorted before its endpoints.
    pub(crate) address: Option<Bytes>,
}

#[derive(Debug, Default)]
pub(super) struct Row {
    counts: Counts,
    metrics: BTreeMap<String, Metric>,
    metadata: Option<Bytes>,
    /// Sums of what is in progress. They are wider than the `u64` of a report, so that every addition can be subtracted again.
    requests: u128,
    connections: u128,
}

/// Requests in progress, and active connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Levels {
    requests: u64,
    connections: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    succeeded: u64,
    failed: u64,
    issued: u64,
    connections_new: u64,
    connections_failed: u64,
    cpu: Metric,
    memory: Metric,
    application: Metric,
}

#[derive(Debug, Clone, Copy, Default)]
struct Metric {
    requests: u64,
    total: f64,
}

/// One row of a client's report, of a locality or of an endpoint.
pub(super) struct Sample<'a> {
    pub(crate) key: RowKey,
    counts: Counts,
    pub(crate) levels: Levels,
    metrics: &'a [EndpointLoadMetricStats],
    metadata: Option<&'a Bytes>,
}

impl RowKey {
    /// Whether both are of the same locality, as a whole or as an endpoint in it.
    pub(crate) fn is_of_locality(&self, other: &Self) -> bool {
        let Self { region, zone, sub_zone, priority, address: _ } = self;
        (region, zone, sub_zone, priority) == (&other.region, &other.zone, &other.sub_zone, &other.priority)
    }

    /// Returns the locality with empty counts.
    pub(crate) fn locality(&self) -> UpstreamLocalityStats {
        let Self { region, zone, sub_zone, priority, address: _ } = self.clone();
        UpstreamLocalityStats { locality: Some(Locality { region, zone, sub_zone }), priority, ..Default::default() }
    }
}

impl Row {
    pub(crate) fn add(&mut self, sample: &Sample<'_>, room: &mut Room<'_>) {
        self.counts.add(&sample.counts);
        for metric in sample.metrics {
            if let Some((_, sum)) = room.entry(&mut self.metrics, metric.metric_name.clone()) {
                sum.add(Metric {
                    requests: metric.num_requests_finished_with_metric,
                    total: metric.total_metric_value,
                });
            }
        }
        if let (None, Some(metadata)) = (&self.metadata, sample.metadata)
            && room.take(metadata.len())
        {
            self.metadata = Some(Bytes::copy_from_slice(metadata)); // a slice would keep the whole report
        }
    }

    pub(crate) fn raise(&mut self, levels: Levels) {
        self.requests += u128::from(levels.requests);
        self.connections += u128::from(levels.connections);
    }

    pub(crate) fn lower(&mut self, levels: Levels) {
        self.requests -= u128::from(levels.requests);
        self.connections -= u128::from(levels.connections);
    }

    /// Whether something is in progress.
    pub(crate) fn is_busy(&self) -> bool {
        self.requests > 0 || self.connections > 0
    }

    /// Keeps only what is in progress, and returns how many bytes were freed.
    pub(crate) fn start_over(&mut self) -> usize {
        let freed = self.metrics.keys().map(Cost::cost).sum::<usize>() + self.metadata.as_ref().map_or(0, Bytes::len);
        *self = Self { requests: self.requests, connections: self.connections, ..Self::default() };
        freed
    }

    pub(crate) fn completeness(&self, stats: &mut UpstreamLocalityStats) {
        let Counts { succeeded, failed, issued, connections_new, connections_failed, cpu, memory, application } =
            self.counts;
        stats.total_successful_requests = succeeded;
        stats.total_requests_in_progress = narrow(self.requests);
        stats.total_error_requests = failed;
        stats.load_metric_stats = self.metrics();
        stats.total_issued_requests = issued;
        stats.total_active_connections = narrow(self.connections);
        stats.total_new_connections = connections_new;
        stats.total_fail_connections = connections_failed;
        stats.cpu_utilization = cpu.unnamed();
        stats.mem_utilization = memory.unnamed();
        stats.application_utilization = application.unnamed();
    }

    pub(crate) fn endpoint(&self, address: &Bytes) -> UpstreamEndpointStats {
        UpstreamEndpointStats {
            address: Some(address.clone()),
            total_successful_requests: self.counts.succeeded,
            total_requests_in_progress: narrow(self.requests),
            total_error_requests: self.counts.failed,
            load_metric_stats: self.metrics(),
            metadata: self.metadata.clone(),
            total_issued_requests: self.counts.issued,
        }
    }

    fn metrics(&self) -> Vec<EndpointLoadMetricStats> {
        let named = |(name, metric): (&String, &Metric)| EndpointLoadMetricStats {
            metric_name: name.clone(),
            num_requests_finished_with_metric: metric.requests,
            total_metric_value: metric.total,
        };
        self.metrics.iter().map(named).collect()
    }
}

impl Counts {
    fn add(&mut self, more: &Self) {
        increase(&mut self.succeeded, more.succeeded);
        increase(&mut self.failed, more.failed);
        increase(&mut self.issued, more.issued);
        increase(&mut self.connections_new, more.connections_new);
        increase(&mut self.connections_failed, more.connections_failed);
        self.cpu.add(more.cpu);
        self.memory.add(more.memory);
        self.application.add(more.application);
    }
}

impl Metric {
    fn of(stats: &Option<UnnamedEndpointLoadMetricStats>) -> Self {
        stats.as_ref().map_or(Self::default(), |stats| Self {
            requests: stats.num_requests_finished_with_metric,
            total: stats.total_metric_value,
        })
    }

    fn add(&mut self, more: Self) {
        increase(&mut self.requests, more.requests);
        self.total += more.total;
    }

    fn unnamed(self) -> Option<UnnamedEndpointLoadMetricStats> {
        (self.requests > 0 || self.total != 0.0).then_some(UnnamedEndpointLoadMetricStats {
            num_requests_finished_with_metric: self.requests,
            total_metric_value: self.total,
        })
    }
}

/// Returns the row of a locality, and those of its endpoints if they are ordered.
pub(super) fn samples(stats: &UpstreamLocalityStats, endpoints: bool) -> impl Iterator<Item = Sample<'_>> {
    let Locality { region, zone, sub_zone } = stats.locality.clone().unwrap_or_default();
    let key = RowKey { region, zone, sub_zone, priority: stats.priority, address: None };
    let whole = Sample {
        counts: Counts {
            succeeded: stats.total_successful_requests,
            failed: stats.total_error_requests,
            issued: stats.total_issued_requests,
            connections_new: stats.total_new_connections,
            connections_failed: stats.total_fail_connections,
            cpu: Metric::of(&stats.cpu_utilization),
            memory: Metric::of(&stats.mem_utilization),
            application: Metric::of(&stats.application_utilization),
        },
        levels: Levels { requests: stats.total_requests_in_progress, connections: stats.total_active_connections },
        metrics: &stats.load_metric_stats,
        metadata: None,
        key: key.clone(),
    };
    let endpoints = stats.upstream_endpoint_stats.iter().filter(move |_| endpoints);
    std::iter::once(whole).chain(endpoints.map(move |stats| endpoint_sample(stats, &key)))
}

fn endpoint_sample<'a>(stats: &'a UpstreamEndpointStats, locality: &RowKey) -> Sample<'a> {
    let address = stats.address.as_deref().unwrap_or_default().to_vec(); // a slice would keep the whole report
    Sample {
        key: RowKey { address: Some(address.into()), ..locality.clone() },
        counts: Counts {
            succeeded: stats.total_successful_requests,
            failed: stats.total_error_requests,
            issued: stats.total_issued_requests,
            ..Counts::default()
        },
        levels: Levels { requests: stats.total_requests_in_progress, connections: 0 },
        metrics: &stats.load_metric_stats,
        metadata: stats.metadata.as_ref(),
    }
}

impl Cost for Arc<RowKey> {
    fn cost(&self) -> usize {
        let address = self.address.as_ref().map_or(0, Bytes::len);
        self.region.len() + self.zone.len() + self.sub_zone.len() + address + 512
    }
}

pub(super) fn increase(sum: &mut u64, more: u64) {
    *sum = sum.saturating_add(more);
}

fn narrow(level: u128) -> u64 {
    u64::try_from(level).unwrap_or(u64::MAX)
}

/// How many bytes are left below a limit.
pub(super) struct Room<'a> {
    bytes: &'a mut usize,
    limit: usize,
    rejected: bool,
}

impl<'r> Room<'r> {
    /// Starts with what is left of `limit`. `bytes` counts the bytes in use.
    pub(crate) fn of(bytes: &'r mut usize, limit: usize) -> Self {
        Self { bytes, limit, rejected: false }
    }

    /// Whether something did not fit.
    pub(crate) fn rejected(&self) -> bool {
        self.rejected
    }

    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        let fits = self.bytes.saturating_add(bytes) <= self.limit;
        if fits {
            *self.bytes += bytes;
        }
        self.rejected |= !fits;
        fits
    }

    /// Returns the entry of a key, and creates it if it is missing and fits.
    pub(crate) fn entry<'a, K: Ord + Clone + Cost, V: Default>(
        &mut self,
        map: &'a mut BTreeMap<K, V>,
        key: K,
    ) -> Option<(K, &'a mut V)> {
        match map.entry(key) {
            Entry::Occupied(entry) => Some((entry.key().clone(), entry.into_mut())),
            Entry::Vacant(entry) if self.take(entry.key().cost()) => {
                Some((entry.key().clone(), entry.insert(V::default())))
            }
            Entry::Vacant(_) => None,
        }
    }
}

/// About how many bytes an entry with this key takes.
pub(super) trait Cost {
    fn cost(&self) -> usize;
}

impl Cost for String {
    fn cost(&self) -> usize {
        self.len() + 64
    }
}
