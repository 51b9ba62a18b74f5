//! The changes whose spans are open: a bounded number, looked at now and then, so that no client has to find out that it was the last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::change::OpenChange;
use super::span::SpanRecord;

/// Nobody else keeps them: a change that is taken out has ended.
#[derive(Debug, Default)]
pub(super) struct OpenChanges(Mutex<VecDeque<Arc<OpenChange>>>);

impl OpenChanges {
    /// Adds a change. Returns the oldest, if there is no room for both.
    pub(super) fn add(&self, change: Arc<OpenChange>) -> Option<Arc<OpenChange>> {
        let mut open = self.lock();
        let oldest = (open.len() >= MAX_OPEN).then(|| open.pop_front()).flatten();
        open.push_back(change);
        oldest
    }

    /// Removes the changes that have ended, and returns their spans.
    pub(super) fn take_ended(&self, bound: Duration) -> Vec<SpanRecord> {
        let mut open = self.lock();
        let (ended, others): (VecDeque<_>, _) =
            std::mem::take(&mut *open).into_iter().partition(|change| change.is_due(bound));
        *open = others;
        drop(open);
        ended.iter().map(|change| change.record(bound)).collect()
    }

    /// Ends all.
    pub(super) fn take_all(&self, bound: Duration) -> Vec<SpanRecord> {
        let all = std::mem::take(&mut *self.lock());
        all.iter().map(|change| change.record(bound)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<OpenChange>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many changes are open at a time. Each takes about 2.5 KiB, and a few bytes in each session that it concerns.
pub(super) const MAX_OPEN: usize = 256;
