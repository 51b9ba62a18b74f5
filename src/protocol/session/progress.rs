//! What a client of `*` has been sent, and so may hold, without keeping names.

use crate::protocol::view::{Entry, Revision};

/// Removals up to one revision, and the snapshots whose additions were sent since.
#[derive(Debug)]
pub(super) struct Progress {
    removals: Revision,
    /// First and last revision of each. If bursts were interrupted many times, neighbours are merged.
    additions: Vec<(Revision, Revision)>,
}

impl Progress {
    /// Starts with the snapshot of the first reply.
    pub(crate) fn starting(mark: Revision) -> Self {
        Self { removals: mark, additions: vec![(mark, mark)] }
    }

    pub(crate) fn removals(&self) -> Revision {
        self.removals
    }

    pub(crate) fn record_additions_sent(&mut self, mark: Revision) {
        if self.additions.last().is_some_and(|(_, last)| *last == mark) {
            return;
        }
        self.additions.push((mark, mark));
        if self.additions.len() > REMEMBERED {
            let (_, last) = self.additions.remove(REMEMBERED);
            self.additions[REMEMBERED - 1].1 = last;
        }
    }

    /// Records that removals up to a revision were sent; more of this snapshot will follow.
    pub(crate) fn record_removals_sent_to(&mut self, revision: Revision) {
        self.removals = self.removals.max(revision);
    }

    /// Records that everything was sent: the client holds what this snapshot has.
    pub(crate) fn record_all_sent(&mut self, mark: Revision) {
        *self = Self::starting(mark);
    }

    /// Whether the client may hold a resource that is removed now.
    pub(crate) fn client_may_hold(&self, gone: &Entry) -> bool {
        self.additions.iter().any(|(from, to)| gone.history.overlaps(*from, *to, gone.changed))
    }
}

const REMEMBERED: usize = 6;
