//! Which connections streams move away from: those whose address has left the name of the server, and those that are old.
//!
//! One connection to a server is left at a time, and the next one some time after it. Its streams move one by one: a place on another
//! connection is there before a stream ends. Where none can be made, all stay.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::ConnectionPool;

/// The turn of a stream to move. The next one moves when this is dropped.
pub(in crate::upstream) type MoveTurn = OwnedSemaphorePermit;

/// When the connections to one server are left, for all pools of connections to it.
#[derive(Debug)]
pub(in crate::upstream) struct Moves {
    pause: Duration,
    /// When the last one was begun to be left. Locked until its streams have moved.
    begun: Mutex<Option<Instant>>,
}

impl Moves {
    pub(in crate::upstream) fn new(pause: Duration) -> Self {
        Self { pause, begun: Mutex::new(None) }
    }

    /// Waits until a connection may be left.
    pub(super) async fn turn(&self) -> MutexGuard<'_, Option<Instant>> {
        let mut begun = self.begun.lock().await;
        if let Some(last) = *begun {
            sleep_until(last + self.pause).await;
        }
        *begun = Some(Instant::now());
        begun
    }

    /// Takes the turn, if a connection may be left now.
    pub(in crate::upstream) fn try_turn(&self) -> bool {
        let Ok(mut begun) = self.begun.try_lock() else { return false };
        let is_due = begun.is_none_or(|last| last.elapsed() >= self.pause);
        if is_due {
            *begun = Some(Instant::now());
        }
        is_due
    }
}

/// Leaves the connections of a pool that are to be left, for as long as it has any.
pub(super) async fn follow(pool: Weak<ConnectionPool>, moves: Arc<Moves>) {
    loop {
        // The pool is not kept while nothing is to be left.
        let next = match pool.upgrade() {
            Some(pool) => match pool.next_to_leave() {
                Next::Connection => None,
                Next::Look(at) => Some(at),
                Next::Empty => return,
            },
            None => return,
        };
        if let Some(at) = next {
            sleep_until(at.min(Instant::now() + moves.pause)).await;
            continue;
        }
        let turn = moves.turn().await;
        if let Some(pool) = pool.upgrade()
            && pool.begin_to_leave()
        {
            // A connection whose streams cannot move, or whose server does not read, must not keep the others.
            let _ = timeout(AT_MOST, pool.is_left()).await;
        }
        drop(turn);
    }
}

/// What there is to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A connection is to be left.
    Connection,
    /// None is, before then.
    Look(Instant),
    /// There is no connection.
    Empty,
}

/// Keeps the turn of a stream until the server has responded to it at its new place, or had time to.
pub(in crate::upstream) async fn settle(turn: Option<MoveTurn>, responded: impl Future<Output = ()>) {
    if let Some(turn) = turn {
        tokio::select! {
            () = responded => {}
            () = sleep(FIRST_RESPONSE) => {}
        }
        drop(turn);
    }
}

/// How long the streams of one connection have for their moves before those of the next begin.
const AT_MOST: Duration = Duration::from_secs(60);
/// How long a stream that has moved keeps the next one waiting.
const FIRST_RESPONSE: Duration = Duration::from_secs(1);
