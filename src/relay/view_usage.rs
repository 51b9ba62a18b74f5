//! Whether a view is in use: how long it was, since when it is not, and whether a session is about to join it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Written by the view task, and read when views are removed.
#[derive(Debug)]
pub(super) struct ViewUsage {
    created: Instant,
    state: Mutex<UsageTimes>,
}

#[derive(Debug, Default)]
struct UsageTimes {
    /// Since when the view has no session.
    unused_since: Option<Instant>,
    /// Since when the view has neither a session nor lingering interest.
    idle_since: Option<Instant>,
}

impl ViewUsage {
    pub(super) fn new(created: Instant) -> Self {
        Self { created, state: Mutex::default() }
    }

    /// Records whether the view has sessions, and whether anything is wanted of it, lingering interest included.
    pub(super) fn note(&self, has_sessions: bool, is_wanted: bool, now: Instant) {
        let mut state = self.state();
        state.unused_since = state.unused_since.or(Some(now)).filter(|_| !has_sessions);
        state.idle_since = state.idle_since.or(Some(now)).filter(|_| !has_sessions && !is_wanted);
    }

    /// Whether the view has been idle for long enough: for `after`, or for as long as it was in use, if that is shorter. So views that clients
    /// invent are removed soon after these clients.
    pub(super) fn is_over(&self, after: Duration, now: Instant) -> bool {
        let state = self.state();
        let (Some(unused), Some(idle)) = (state.unused_since, state.idle_since) else { return false };
        now.saturating_duration_since(idle) >= after.min(unused.saturating_duration_since(self.created))
    }

    /// Returns for how long the view was in use.
    pub(super) fn used(&self, now: Instant) -> Duration {
        self.state().unused_since.unwrap_or(now).saturating_duration_since(self.created)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, UsageTimes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.state().idle_since.is_some()
    }
}

/// Keeps a view from being removed: from when a session looks it up until the view task has released the session.
#[derive(Debug, Clone, Default)]
pub(super) struct ViewGuard(Arc<()>);

impl ViewGuard {
    /// Whether this is the only one left of its view. The caller ensures that no other can be made meanwhile.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_view_outlives_its_last_session_by_the_time_that_it_was_used_and_at_most_by_the_timeout() {
        let start = Instant::now();
        let young = ViewUsage::new(start);
        young.note(true, true, start);
        assert!(!young.is_over(Duration::ZERO, start + HOUR), "in use");
        young.note(false, true, start + SECOND);
        assert!(!young.is_over(HOUR, start + HOUR), "its interest lingers");
        young.note(false, false, start + 30 * SECOND);
        assert!(!young.is_over(HOUR, start + 30 * SECOND) && young.is_over(HOUR, start + 31 * SECOND));
        assert_eq!(young.used(start + HOUR), SECOND);
        young.note(true, true, start + 40 * SECOND);
        assert!(!young.is_over(HOUR, start + HOUR), "in use again");

        let old = ViewUsage::new(start);
        old.note(false, false, start + HOUR);
        let timeout = 600 * SECOND;
        assert!(!old.is_over(timeout, start + HOUR + 599 * SECOND) && old.is_over(timeout, start + HOUR + timeout));
    }

    #[test]
    fn key_19_a_view_that_clients_return_to_is_idle_again_only_when_nothing_is_wanted_of_it_any_more() {
        let start = Instant::now();
        let usage = ViewUsage::new(start);
        usage.note(false, false, start + SECOND);
        for returns in 1..4 {
            let came = start + returns * HOUR;
            usage.note(true, true, came);
            assert!(!usage.is_over(Duration::ZERO, came + SECOND), "it has clients");
            usage.note(false, true, came + 2 * SECOND);
            assert!(!usage.is_over(Duration::ZERO, came + 3 * SECOND), "their interest lingers");
            usage.note(false, false, came + 4 * SECOND);
            assert!(!usage.is_over(10 * SECOND, came + 13 * SECOND), "idle for 9 s now");
            assert!(usage.is_over(10 * SECOND, came + 14 * SECOND));
        }
    }
}
