//! The load reports of all clients of one sharing key, summed into the relay's own reports.
//!
//! Owns what was reported since the relay's own last report, the latest gauges of each client, and the last order of the control plane.
//! Leaves streams to `relay`. Invariants: each client report is counted in one report upstream, or counted as lost; memory is bounded in
//! bytes, and in time while the control plane is unreachable.

mod order;
mod row;
mod sums;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use self::sums::{Gauge, Sums};
use super::moment::{Moment, earliest};
use crate::proto::loads::LoadStatsRequest;

pub use order::Order;

/// The limits of what is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadLimits {
    /// How long reports are summed for an unreachable control plane; then they are dropped (LRS-18).
    pub outage: Duration,
    /// About how many bytes one sharing key may use.
    pub bytes: usize,
    /// About how many bytes all sharing keys together may use.
    pub bytes_total: usize,
}

/// A client's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reporter(u64);

/// The load reports of all clients with one sharing key.
#[derive(Debug)]
pub struct Aggregate {
    limits: LoadLimits,
    sums: Sums,
    /// The gauges of each live client as it last reported them.
    clients: BTreeMap<Reporter, Vec<Gauge>>,
    next: Reporter,
    requested: Option<Asked>,
    /// Since when the sums count: since the relay's last report, its first order, or the time at which an outage last dropped the sums.
    since: Option<Moment>,
    due: Option<Moment>,
    /// When the sums for an unreachable control plane are dropped.
    patience_ends: Option<Moment>,
    /// Reports that are in `sums` as a whole. Those of which a part is lost are in `lost` already.
    kept: u64,
    lost: u64,
}

/// The part of the last order that concerns the relay's own reports.
#[derive(Debug, Clone, Copy)]
struct Asked {
    interval: Duration,
    endpoints: bool,
}

impl Aggregate {
    /// Starts without clients and without an order.
    pub fn new(limits: LoadLimits) -> Self {
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

    /// Adds a client's stream.
    pub fn join(&mut self) -> Reporter {
        let client = self.next;
        self.next = Reporter(client.0 + 1);
        self.clients.insert(client, Vec::new());
        client
    }

    /// Removes a client. Its gauges are subtracted, and its counts stay (LRS-16).
    pub fn leave(&mut self, client: Reporter) {
        self.sums.lower(&self.clients.remove(&client).unwrap_or_default());
    }

    /// Counts a client's report. Whatever the report leaves out counts as idle: clients report everything that they have. The sums may grow
    /// by at most `free` bytes.
    pub fn on_report(&mut self, client: Reporter, report: &LoadStatsRequest, free: usize) {
        let Some(gauges) = self.clients.get_mut(&client) else { return };
        let Some(requested) = self.requested else {
            self.lost += 1; // no order yet
            return;
        };
        self.sums.lower(&std::mem::take(gauges));
        let limit = self.limits.bytes.min(self.sums.bytes().saturating_add(free));
        let added = self.sums.add(&report.cluster_stats, requested.endpoints, limit);
        *gauges = added.gauges;
        match added.in_part {
            true => self.lost += 1,
            false => self.kept += 1,
        }
    }

    /// Applies an order of the control plane. An order with the same interval does not change when the next report is due (LRS-3).
    pub fn on_order(&mut self, order: &Order, now: Moment) {
        let interval = order.interval();
        let same = self.requested.is_some_and(|requested| requested.interval == interval);
        self.since.get_or_insert(now);
        self.patience_ends = None;
        self.due = self.due.filter(|_| same).or(Some(now + interval));
        self.requested = Some(Asked { interval, endpoints: order.endpoints() });
    }

    /// The stream to the control plane has ended, or could not be opened.
    pub fn on_ended(&mut self, now: Moment) {
        self.due = None;
        if self.since.is_some() {
            self.patience_ends.get_or_insert(now + self.limits.outage);
        }
    }

    /// Drops the sums when the outage has lasted too long, and starts the next period of the same length.
    pub fn on_time(&mut self, now: Moment) {
        if self.patience_ends.is_some_and(|ends| ends <= now) {
            self.discard();
            self.since = Some(now);
            self.patience_ends = Some(now + self.limits.outage);
        }
    }

    /// Drops the sums. The reports that are in them are lost, each once.
    pub fn discard(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        if !self.sums.is_empty() {
            self.sums.take(Duration::ZERO);
            self.lost += kept;
        }
    }

    /// Whether the relay's own report is due.
    pub fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Returns the relay's own report for the time since its last one, however late it is (LRS-15).
    pub fn report(&mut self, now: Moment) -> LoadStatsRequest {
        let covered = now - self.since.replace(now).unwrap_or(now);
        self.due = self.requested.map(|requested| now + requested.interval);
        self.kept = 0;
        LoadStatsRequest { node: None, cluster_stats: self.sums.take(covered) }
    }

    /// Makes the next report due now, if one is scheduled.
    pub fn hasten(&mut self, now: Moment) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// Returns when the next report is due, or when sums that have waited too long are dropped.
    pub fn next_deadline(&self) -> Option<Moment> {
        earliest(self.due, self.patience_ends)
    }

    /// Returns about how many bytes are used.
    pub fn bytes(&self) -> usize {
        self.sums.bytes()
    }

    /// Whether no client is left and nothing is left to report.
    pub fn is_over(&self) -> bool {
        self.clients.is_empty() && self.sums.is_empty()
    }

    /// Returns the number of reports that were lost, wholly or in part, since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}
