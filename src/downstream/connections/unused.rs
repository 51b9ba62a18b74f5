//! Connections without a stream, by when each may be closed for another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// When a connection may be closed, and its number.
pub(super) type Turn = (Instant, u64);

pub(super) struct Unused {
    times: UnusedTimes,
    turns: Mutex<Turns>,
}

#[derive(Default)]
struct Turns {
    /// Turns of connections with a place.
    placed: BTreeMap<Turn, Arc<Notify>>,
    /// Turns of connections with a spare place.
    spare: BTreeMap<Turn, Arc<Notify>>,
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
    pub(super) fn new(times: UnusedTimes) -> Self {
        Self { times, turns: Mutex::default() }
    }

    /// Adds a connection, which `leave` tells to close.
    pub(super) fn insert(&self, number: u64, usage: Use, has_place: bool, leave: Arc<Notify>) -> Turn {
        let mut turns = self.lock();
        let (turns, usage) = match has_place {
            true => (&mut turns.placed, usage),
            false => (&mut turns.spare, usage.min(Use::Bytes)), // a request that was withdrawn keeps no spare place
        };
        let turn = (Instant::now() + self.times.of(usage), number);
        turns.insert(turn, leave);
        turn
    }

    pub(super) fn remove(&self, turn: Turn) {
        let mut turns = self.lock();
        turns.placed.remove(&turn);
        turns.spare.remove(&turn);
    }

    /// Closes the connection with a place whose turn is first, if that has come. `Err`: when it comes, if there is such a connection.
    pub(super) fn close_one(&self, now: Instant) -> Result<(), Option<Instant>> {
        let placed = &mut self.lock().placed;
        if close_first(placed, now) { Ok(()) } else { Err(placed.first_key_value().map(|((from, _), _)| *from)) }
    }

    /// Closes the connections with a spare place whose turn has come.
    pub(super) fn close_spare(&self, now: Instant) {
        let spare = &mut self.lock().spare;
        while close_first(spare, now) {}
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let turns = self.lock();
        turns.placed.is_empty() && turns.spare.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the connection whose turn is first, if that has come. Returns whether it closed one.
fn close_first(turns: &mut BTreeMap<Turn, Arc<Notify>>, now: Instant) -> bool {
    let due = turns.first_entry().filter(|first| first.key().0 <= now);
    let Some(due) = due else { return false };
    due.remove().notify_one();
    true
}

impl UnusedTimes {
    fn of(&self, usage: Use) -> Duration {
        match usage {
            Use::Nothing => self.silent,
            Use::Bytes => self.without_request,
            Use::Requests => self.idle,
        }
    }
}
