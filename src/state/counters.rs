//! The counters of the state file, for metrics and the admin address.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Read by other threads while the file is written.
#[derive(Debug, Default)]
pub(crate) struct StateCounters {
    commits: AtomicU64,
    failures: AtomicU64,
    /// The time of the state in the file, in milliseconds since 1970; 0 if none was written.
    current_at: AtomicU64,
    loaded_views: AtomicU64,
    loaded_resources: AtomicU64,
    /// Since when the file is being read or written; `None` if it is not.
    busy_since: Mutex<Option<Instant>>,
    /// Why the file is not being written; `None` if it is.
    fault: Mutex<Option<String>>,
}

impl StateCounters {
    pub(super) fn loaded(&self, views: usize, resources: usize) {
        self.loaded_views.fetch_add(views as u64, Ordering::Relaxed);
        self.loaded_resources.fetch_add(resources as u64, Ordering::Relaxed);
    }

    pub(super) fn begin(&self) {
        *self.busy_since() = Some(Instant::now());
    }

    pub(super) fn end(&self) {
        *self.busy_since() = None;
    }

    /// Returns for how long the file has been read or written, whatever happens to the time of day.
    pub(super) fn busy_for(&self) -> Option<Duration> {
        self.busy_since().map(|since| since.elapsed())
    }

    fn busy_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.busy_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn current(&self, at: u64) {
        self.current_at.store(at, Ordering::Relaxed);
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records a fault. Returns whether it differs from the last one.
    pub(super) fn failed(&self, fault: &str) -> bool {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let mut known = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = known.as_deref() != Some(fault);
        *known = Some(fault.into());
        is_news
    }

    /// Returns why the file is not being written; `None` if it is.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the time of the state in the file, in seconds since 1970.
    pub(crate) fn current_at(&self) -> f64 {
        self.current_at.load(Ordering::Relaxed) as f64 / 1000.0
    }

    pub(crate) fn loaded_views(&self) -> u64 {
        self.loaded_views.load(Ordering::Relaxed)
    }

    pub(crate) fn loaded_resources(&self) -> u64 {
        self.loaded_resources.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_to_the_file_takes_time_until_it_ends() {
        let counters = StateCounters::default();
        assert_eq!(counters.busy_for(), None);
        counters.begin();
        let (before, after) = (counters.busy_for(), counters.busy_for());
        assert!(before.is_some() && before <= after);
        counters.end();
        assert_eq!(counters.busy_for(), None);
    }

    #[test]
    fn a_fault_is_news_once_and_again_after_something_was_written() {
        let counters = StateCounters::default();
        assert!(counters.failed("no space"));
        assert!(!counters.failed("no space"), "each attempt fails alike");
        assert!(counters.failed("no rights") && counters.failed("no space"), "another one");
        counters.current(2_500);
        assert_eq!((counters.current_at(), counters.failures()), (2.5, 4));
        assert!(counters.failed("no space"), "it was current meanwhile");
        assert_eq!(counters.current_at(), 2.5, "the file has what it had");
    }
}
