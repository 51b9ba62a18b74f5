//! How many absent names each session of a view requests.

use std::collections::HashMap;

use crate::protocol::keys::SessionId;
use crate::protocol::visits::visit;

/// Counts names that are known to be absent, by the sessions that request them.
#[derive(Debug, Default)]
pub(super) struct AbsentNames {
    /// No entry means none.
    counts: HashMap<SessionId, usize>,
}

impl AbsentNames {
    /// A session requests one more of them, or one less.
    pub(super) fn note(&mut self, session: SessionId, more: bool) {
        let count = self.counts.entry(session).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            self.counts.remove(&session);
        }
    }

    /// Whether a session requests no more of them than the limit.
    pub(super) fn is_within(&self, session: SessionId, limit: usize) -> bool {
        self.counts.get(&session).is_none_or(|count| *count <= limit)
    }

    /// Returns how many sessions request more of them than the limit.
    pub(super) fn sessions_over(&self, limit: usize) -> usize {
        self.counts.values().inspect(|_| visit()).filter(|count| **count > limit).count()
    }
}
