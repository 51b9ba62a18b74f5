//! The load reports of all clients of a key, aggregated into the ones that the relay makes itself.
//!
//! Owns what was reported since the relay's own last report, the latest gauges of each client, and what the control plane last
//! ordered. Leaves streams to `relay`. Always: what a client reported is counted in one report upstream, or counted as lost; what
//! is kept is bounded in bytes, and while the control plane is away in time.

mod order;
mod room;
mod row;
mod sums;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use self::sums::{Gauge, Sums};
use super::moment::{Moment, earliest};
use crate::proto::loads::LoadStatsRequest;

pub(crate) use order::Order;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadLimits {
    /// How long reports are aggregated for a control plane that is away; then they are dropped (LRS-18).
    pub(crate) outage: Duration,
    /// About how many bytes are kept for one key, and for all keys together.
    pub(crate) bytes: usize,
    pub(crate) bytes_total: usize,
}

/// A client's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reporter(u64);

#[derive(Debug)]
pub(crate) struct Aggregate {
    limits: LoadLimits,
    sums: Sums,
    /// The gauges of each live client as it last reported them.
    clients: BTreeMap<Reporter, Vec<Gauge>>,
    next: Reporter,
    requested: Option<Asked>,
    /// The relay's own last report, or when it was first asked for one.
    since: Option<Moment>,
    due: Option<Moment>,
    /// When what is kept for a control plane that is away is dropped.
    patience_ends: Option<Moment>,
    /// Reports that are in `sums`.
    kept: u64,
    lost: u64,
}

/// What concerns the relay's own reports of what was ordered last.
#[derive(Debug, Clone, Copy)]
struct Asked {
    interval: Duration,
    endpoints: bool,
}

impl Aggregate {
    pub(crate) fn new(limits: LoadLimits) -> Self {
        Self {
            sums: Sums::default(),
            limits,
            clients: BTreeMap::new(),
            next: Reporter(0),
            requested: None,
            since: None,
            due: None,
            patience_ends: None,
            kept: 0,
            lost: 0,
        }
    }

    pub(crate) fn join(&mut self) -> Reporter {
        let client = self.next;
        self.next = Reporter(client.0 + 1);
        self.clients.insert(client, Vec::new());
        client
    }

    /// Its gauges go with it, and what it counted stays (LRS-16).
    pub(crate) fn leave(&mut self, client: Reporter) {
        self.sums.lower(&self.clients.remove(&client).unwrap_or_default());
    }

    /// A client's report. What it leaves out of it is at rest: clients report all they have. No more than `free` bytes may be
    /// kept besides what is.
    pub(crate) fn on_report(&mut self, client: Reporter, report: &LoadStatsRequest, free: usize) {
        let Some(gauges) = self.clients.get_mut(&client) else { return };
        let Some(requested) = self.requested else {
            self.lost += 1; // nobody has requested it
            return;
        };
        self.sums.lower(&std::mem::take(gauges));
        let limit = self.limits.bytes.min(self.sums.bytes().saturating_add(free));
        let added = self.sums.add(&report.cluster_stats, requested.endpoints, limit);
        *gauges = added.gauges;
        self.kept += 1;
        self.lost += u64::from(added.in_part);
    }

    /// The control plane says what it wants. The same again changes nothing on a stream that was told it (LRS-3).
    pub(crate) fn on_order(&mut self, order: &Order, now: Moment) {
        let interval = order.interval();
        let same = self.requested.is_some_and(|requested| requested.interval == interval);
        self.since.get_or_insert(now);
        self.patience_ends = None;
        self.due = self.due.filter(|_| same).or(Some(now + interval));
        self.requested = Some(Asked { interval, endpoints: order.endpoints() });
    }

    /// The stream to the control plane is gone, or there is still none.
    pub(crate) fn on_ended(&mut self, now: Moment) {
        self.due = None;
        if self.since.is_some() {
            self.patience_ends.get_or_insert(now + self.limits.outage);
        }
    }

    /// Drops what a control plane that stays away will not want any more. What comes then is kept for as long again.
    pub(crate) fn on_time(&mut self, now: Moment) {
        if self.patience_ends.is_some_and(|ends| ends <= now) {
            self.sums.take(Duration::ZERO);
            self.lost += std::mem::take(&mut self.kept);
            self.since = Some(now);
            self.patience_ends = Some(now + self.limits.outage);
        }
    }

    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The relay's own report: of the time since its last one, however late it is (LRS-15).
    pub(crate) fn report(&mut self, now: Moment) -> LoadStatsRequest {
        let covered = now - self.since.replace(now).unwrap_or(now);
        self.due = self.requested.map(|requested| now + requested.interval);
        self.kept = 0;
        LoadStatsRequest { node: None, cluster_stats: self.sums.take(covered) }
    }

    /// What there is to report is due at once, if anybody is there to hear it.
    pub(crate) fn hasten(&mut self, now: Moment) {
        self.due = self.due.map(|due| due.min(now));
    }

    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        earliest(self.due, self.patience_ends)
    }

    /// About how many bytes are kept.
    pub(crate) fn bytes(&self) -> usize {
        self.sums.bytes()
    }

    /// No client is left, and nothing that one reported.
    pub(crate) fn is_over(&self) -> bool {
        self.clients.is_empty() && self.sums.is_empty()
    }

    /// Reports that were lost, wholly or in part, since this was last asked.
    pub(crate) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}
