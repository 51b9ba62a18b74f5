//! Connections without a stream, by when each may be closed for another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// When a connection may be closed, and its number.
pub(super) type Turn = (Instant, u64);

#[derive(Default)]
pub(super) struct Unused {
    by_turn: BTreeMap<Turn, Arc<Notify>>,
}

/// What a connection was used for so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// It has sent nothing.
    Nothing,
    /// It has sent something, but no request.
    Bytes,
    Requests,
}

/// How long a connection must have been without a stream to be closed for another one, by its use.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnusedTimes {
    pub(super) silent: Duration,
    pub(super) without_request: Duration,
    pub(super) idle: Duration,
}

impl Unused {
    pub(super) fn insert(&mut self, turn: Turn, leave: Arc<Notify>) {
        self.by_turn.insert(turn, leave);
    }

    pub(super) fn remove(&mut self, turn: Turn) {
        self.by_turn.remove(&turn);
    }

    /// Returns when the next one may be closed.
    pub(super) fn next(&self) -> Option<Instant> {
        self.by_turn.first_key_value().map(|((from, _), _)| *from)
    }

    /// Closes the one whose turn is first, if it has come. Returns false if there is none.
    pub(super) fn close_one(&mut self, now: Instant) -> bool {
        let due = self.by_turn.first_entry().filter(|first| first.key().0 <= now);
        let Some(due) = due else { return false };
        due.remove().notify_one();
        true
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }
}

impl UnusedTimes {
    pub(super) fn of(&self, usage: Use) -> Duration {
        match usage {
            Use::Nothing => self.silent,
            Use::Bytes => self.without_request,
            Use::Requests => self.idle,
        }
    }
}
