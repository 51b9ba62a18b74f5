//! The counters of a fleet.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::errors::Errors;
use crate::checks::Violation;

#[derive(Debug, Default)]
pub struct Counters {
    pub connected: Gauge,
    /// Open connections of those that connect at the start, without later ones.
    pub connected_first: Gauge,
    pub connects: Counter,
    pub failed_connects: Counter,
    pub ended_streams: Counter,
    /// Connections that ended, or lost a stream, although the client did not cause that.
    pub lost: Counter,
    /// Connections that were opened and ended before a response, although the client did not cause that.
    pub unanswered: Counter,
    pub messages: Counter,
    pub bytes: Counter,
    pub changes: Counter,
    /// Clients that have received everything that they subscribe to.
    pub synced: Gauge,
    /// Synced clients that do what real clients do.
    pub behaving_synced: Gauge,
    /// Why connections and streams ended, and why clients have not received what they subscribe to.
    pub errors: Errors,
    /// Clients that have the same resources as the origin.
    pub converged: Gauge,
    pub violations: Counter,
    kept: Mutex<Vec<Violation>>,
    /// How long clients that joined later waited for their first set.
    waits: Mutex<Vec<Duration>>,
}

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub fn increase(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn decrease(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Counts a violation, and stores it if it is among the first.
    pub fn violate(&self, violation: Violation) {
        self.violations.add(1);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < MAX_KEPT {
            kept.push(violation);
        }
    }

    /// Records how long a client that joined later waited for its first set.
    pub fn newcomer_waited(&self, time: Duration) {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }

    pub fn newcomers_waits(&self) -> Vec<Duration> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the first violations, with their histories.
    pub fn kept_violations(&self) -> Vec<Violation> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [connected, synced] = [&self.connected, &self.synced].map(Gauge::value);
        let [messages, bytes, changes, violations] =
            [&self.messages, &self.bytes, &self.changes, &self.violations].map(Counter::value);
        let [connects, failed, lost, unanswered] =
            [&self.connects, &self.failed_connects, &self.lost, &self.unanswered].map(Counter::value);
        write!(f, "connections={connected} synced={synced} messages={messages} bytes={bytes} changes={changes} ")?;
        write!(
            f,
            "connects={connects} failed_connects={failed} lost={lost} unanswered={unanswered} violations={violations}"
        )
    }
}

const MAX_KEPT: usize = 100;
