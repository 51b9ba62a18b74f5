//! Records the reports of a fleet of clients as counts and histograms, and computes rates.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Latencies;
use crate::observe::{Conduct, Observer};

/// Records the reports of clients. Any number of tasks may report to it.
pub struct Recorder {
    start: Instant,
    connected: AtomicU64,
    disconnected: AtomicU64,
    synced: AtomicU64,
    changes: AtomicU64,
    acks: AtomicU64,
    bytes: AtomicU64,
    violations: AtomicU64,
    /// The times since the last call of `take_times`.
    times: Mutex<BTreeMap<Conduct, Times>>,
    /// How many clients of each conduct should run.
    asked: Mutex<BTreeMap<Conduct, usize>>,
}

/// The recorded durations.
#[derive(Debug, Clone, Default)]
pub struct Times {
    pub first_sync: Latencies,
    pub received: Latencies,
    pub acked: Latencies,
}

/// The counts at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    pub elapsed: Duration,
    pub connected: u64,
    pub disconnected: u64,
    pub synced: u64,
    pub changes: u64,
    pub acks: u64,
    pub bytes: u64,
    pub violations: u64,
}

/// The rates between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub now: Counts,
    pub before: Counts,
}

impl Times {
    pub fn add(&mut self, other: &Self) {
        self.first_sync.add(&other.first_sync);
        self.received.add(&other.received);
        self.acked.add(&other.acked);
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            connected: AtomicU64::new(0),
            disconnected: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            acks: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            violations: AtomicU64::new(0),
            times: Mutex::default(),
            asked: Mutex::default(),
        }
    }
}

impl Recorder {
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            elapsed: self.start.elapsed(),
            connected: of(&self.connected),
            disconnected: of(&self.disconnected),
            synced: of(&self.synced),
            changes: of(&self.changes),
            acks: of(&self.acks),
            bytes: of(&self.bytes),
            violations: of(&self.violations),
        }
    }

    /// Returns the times since the last call, by conduct.
    pub fn take_times(&self) -> BTreeMap<Conduct, Times> {
        std::mem::take(&mut *self.times())
    }

    /// Returns how many clients of each conduct should run.
    pub fn asked(&self) -> BTreeMap<Conduct, usize> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn times(&self) -> MutexGuard<'_, BTreeMap<Conduct, Times>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Recorder {
    fn asked(&self, conduct: Conduct, clients: usize) {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner).entry(conduct).or_default() += clients;
    }

    fn connected(&self, _: Instant) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    fn disconnected(&self) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
    }

    fn first_sync(&self, _: usize, conduct: Conduct, since: Duration) {
        self.synced.fetch_add(1, Ordering::Relaxed);
        self.times().entry(conduct).or_default().first_sync.record(since);
    }

    fn change_received(&self, conduct: Conduct, lag: Duration) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.times().entry(conduct).or_default().received.record(lag);
    }

    fn change_acked(&self, conduct: Conduct, lag: Duration) {
        self.acks.fetch_add(1, Ordering::Relaxed);
        self.times().entry(conduct).or_default().acked.record(lag);
    }

    fn bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    fn violation(&self, _: usize, _: &'static str) {
        self.violations.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { now, before } = self;
        let seconds = (now.elapsed - before.elapsed).as_secs_f64().max(1e-3);
        let rate = |of: fn(&Counts) -> u64| (of(now) - of(before)) as f64 / seconds;
        write!(
            out,
            "{:.0} s: {} connected ({:.0}/s), {} synced, {:.0} changes/s, {:.0} ACKs/s, {:.1} MiB/s",
            now.elapsed.as_secs_f64(),
            now.connected.saturating_sub(now.disconnected),
            rate(|counts| counts.connected),
            now.synced,
            rate(|counts| counts.changes),
            rate(|counts| counts.acks),
            rate(|counts| counts.bytes) / f64::from(1 << 20),
        )?;
        if now.violations > 0 { write!(out, ", {} violations", now.violations) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let recorder = Recorder::default();
        recorder.connected(Instant::now());
        recorder.connected(Instant::now());
        recorder.disconnected();
        let envoy = Conduct { behaves: true, name: "envoy" };
        recorder.first_sync(0, envoy, Duration::from_millis(3));
        recorder.change_received(envoy, Duration::from_millis(5));
        recorder.change_acked(envoy, Duration::from_millis(6));
        recorder.bytes(4 << 20);
        let counts = recorder.counts();
        assert_eq!((counts.synced, counts.changes, counts.acks, counts.violations), (1, 1, 1, 0));
        let now = Counts { elapsed: Duration::from_secs(2), ..counts };
        let text = Rates { now, before: Counts::default() }.to_string();
        assert_eq!(text, "2 s: 1 connected (1/s), 1 synced, 0 changes/s, 0 ACKs/s, 2.0 MiB/s");
        recorder.violation(7, "order");
        assert_eq!(recorder.counts().violations, 1);
        assert!(recorder.take_times()[&envoy].received.percentile(50.0) >= Duration::from_millis(4));
        assert!(recorder.take_times().is_empty());
    }
}
