//! Counters over the life of the process that belong to no view.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use weir_core::protocol::session::{BadRequest, Variant};
use weir_core::xds::{Type, TypeTable};

use super::admission::AdmissionError;
use super::clock::Clock;
use super::deliveries::{Deliveries, ThreadCounter};
use super::traces::Traces;
use crate::limit::{Limit, LimitCounters};

#[derive(Debug)]
pub(crate) struct ProcessCounters {
    table: Arc<TypeTable>,
    streams: [AtomicU64; 2],
    rejected: [AtomicU64; AdmissionError::REASONS.len()],
    /// By type. Unknown types count as one, since clients can invent them.
    nacks: Mutex<BTreeMap<String, u64>>,
    pub(crate) deliveries: Deliveries,
    names_refused: AtomicU64,
    lost_load_reports: AtomicU64,
    views_left_out: AtomicU64,
    pub(crate) limits: Arc<LimitCounters>,
    pub(crate) proxy_faults: ProxyFaultCounters,
    pub(crate) traces: Traces,
    /// Open connections of clients.
    pub(crate) open_connections: Arc<AtomicUsize>,
    /// Connections that have ended because they reached their maximum age.
    pub(crate) aged_connections: Arc<AtomicU64>,
    /// Calls that wrote bytes to sockets of clients.
    pub(crate) client_writes: Arc<ThreadCounter>,
    /// Large replies that wait for their turn.
    pub(crate) waiting_replies: Arc<AtomicUsize>,
    pub(crate) compression: Arc<CompressionCounters>,
}

impl ProcessCounters {
    pub(crate) fn new(table: Arc<TypeTable>, clock: Clock) -> Self {
        let deliveries = Deliveries::new(&table, clock);
        let (streams, rejected) = Default::default();
        let nacks = table.names().chain([OTHER]).map(|name| (name.to_owned(), 0)).collect();
        let nacks = Mutex::new(nacks);
        let (names_refused, lost_load_reports, views_left_out, limits, proxy_faults) = Default::default();
        let (open_connections, aged_connections, client_writes) = Default::default();
        let (waiting_replies, traces, compression) = Default::default();
        Self {
            table,
            streams,
            rejected,
            nacks,
            deliveries,
            names_refused,
            lost_load_reports,
            views_left_out,
            limits,
            proxy_faults,
            traces,
            open_connections,
            aged_connections,
            client_writes,
            waiting_replies,
            compression,
        }
    }

    /// Counts reached limits in counters that are shared with others.
    pub(super) fn with_limits(self, limits: Arc<LimitCounters>) -> Self {
        Self { limits, ..self }
    }

    pub(super) fn stream_accepted(&self, variant: Variant) {
        self.streams[usize::from(variant == Variant::Delta)].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rejected(&self, why: &AdmissionError) {
        self.rejected[why.place()].fetch_add(1, Ordering::Relaxed);
        if let Some(limit) = why.limit() {
            self.limits.reached(limit);
        }
    }

    /// If a request ends its stream because of a limit, counts that limit.
    pub(super) fn bad_request(&self, fault: &BadRequest) {
        match fault {
            BadRequest::TooManyTypes(_) => self.limits.reached(Limit::TypesPerStream),
            BadRequest::TooManyNames(_) => self.limits.reached(Limit::NamesPerType),
            BadRequest::TooManyNamesOnStream(_) => self.limits.reached(Limit::NamesPerStream),
            BadRequest::TooManyStatedVersions(_) => self.limits.reached(Limit::StatedVersionsBytes),
            _ => {}
        }
    }

    pub(crate) fn nack(&self, kind: Option<&Type>) {
        let kind = kind.map(Type::name).filter(|name| self.table.knows(name));
        let mut nacks = self.nacks.lock().unwrap_or_else(PoisonError::into_inner);
        *nacks.entry(kind.unwrap_or(OTHER).to_owned()).or_default() += 1;
    }

    pub(super) fn names_refused(&self, count: usize) {
        self.names_refused.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn load_reports_dropped(&self, lost: u64) {
        self.lost_load_reports.fetch_add(lost, Ordering::Relaxed);
    }

    pub(super) fn views_left_out(&self, count: usize) {
        self.views_left_out.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Returns how often a view was left out of the metrics.
    pub(crate) fn metrics_views_left_out(&self) -> u64 {
        self.views_left_out.load(Ordering::Relaxed)
    }

    /// Returns how many connections have ended because of their age.
    pub(crate) fn connections_aged(&self) -> u64 {
        self.aged_connections.load(Ordering::Relaxed)
    }

    /// Returns how many connections of clients are open.
    pub(crate) fn connections(&self) -> usize {
        self.open_connections.load(Ordering::Acquire) // those that are not counted any more have given back what was their own
    }

    /// Returns how many large replies wait for their turn.
    pub(crate) fn replies_waiting(&self) -> usize {
        self.waiting_replies.load(Ordering::Relaxed)
    }

    /// Returns the types that have counters.
    pub(crate) fn type_names(&self) -> impl Iterator<Item = &str> {
        self.table.names()
    }

    /// Returns how many client streams were accepted, by variant.
    pub(crate) fn streams(&self) -> [(&'static str, u64); 2] {
        let of = |at: usize| self.streams[at].load(Ordering::Relaxed);
        [("sotw", of(0)), ("delta", of(1))]
    }

    /// Returns how many streams were not accepted, by reason.
    pub(crate) fn rejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        AdmissionError::REASONS.into_iter().zip(self.rejected.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// Returns how many replies clients rejected, by type.
    pub(crate) fn nacks(&self) -> BTreeMap<String, u64> {
        self.nacks.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns how many names clients requested that no server can have (NAME-10, BOOT-16).
    pub(crate) fn rejected_names(&self) -> u64 {
        self.names_refused.load(Ordering::Relaxed)
    }

    /// Returns how many load reports were dropped, in whole or in part.
    pub(crate) fn load_reports_lost(&self) -> u64 {
        self.lost_load_reports.load(Ordering::Relaxed)
    }
}

/// The label for unknown types, since peers can invent them.
const OTHER: &str = "other";

/// The results of compression, for replies to clients that accept it.
#[derive(Debug, Default)]
pub(crate) struct CompressionCounters {
    made: AtomicU64,
    saved: AtomicU64,
}

impl CompressionCounters {
    /// Counts one compression of a reply, which serves all its clients.
    pub(crate) fn made(&self) {
        self.made.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that compression saved for one client.
    pub(crate) fn saved(&self, bytes: usize) {
        self.saved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns how many replies were compressed, each counted once for all its clients, and how many bytes that saved.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.made.load(Ordering::Relaxed), self.saved.load(Ordering::Relaxed))
    }
}

/// What was wrong with the PROXY header of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProxyFault {
    /// A trusted balancer sent none.
    Missing,
    /// A trusted balancer sent one that cannot be read.
    Invalid,
    /// It did not arrive in time.
    Late,
    /// A peer that is not a trusted balancer sent one.
    Untrusted,
}

#[derive(Debug, Default)]
pub(crate) struct ProxyFaultCounters([AtomicU64; ProxyFault::ALL.len()]);

impl ProxyFault {
    pub(crate) const ALL: [Self; 4] = [Self::Missing, Self::Invalid, Self::Late, Self::Untrusted];

    fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Invalid => "invalid",
            Self::Late => "late",
            Self::Untrusted => "untrusted",
        }
    }
}

impl ProxyFaultCounters {
    pub(crate) fn found(&self, fault: ProxyFault) {
        self.0[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often each was found, by its name.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ProxyFault::ALL.into_iter().map(|fault| (fault.name(), self.0[fault as usize].load(Ordering::Relaxed)))
    }
}
