//! Which connections streams move away from: old ones, and those whose address has left the name of the server.
//!
//! One connection to a server is left at a time, and the next one some time after it. Its streams move one by one, and each has a place on another
//! connection before it ends. The remaining streams stay if no other connection can be made, or if a stream that has moved gets no response at its
//! new place.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connection::Leaving;
use super::{ConnectionPool, StreamSlot};
use crate::upstream::observed_socket::ConnectionState;

/// The turn of a stream to move away from its connection. The next one moves when this is dropped.
#[derive(Debug)]
pub(in crate::upstream) struct MoveTurn {
    permit: OwnedSemaphorePermit,
    pool: Arc<ConnectionPool>,
    number: u64,
    state: Arc<ConnectionState>,
}

impl MoveTurn {
    /// Waits until it is this stream's turn to move to another connection. Cancel-safe.
    pub(in crate::upstream) async fn of(slot: &StreamSlot) -> Self {
        let permit = slot.state.move_turn().await;
        Self { permit, pool: slot.pool.clone(), number: slot.number, state: slot.state.clone() }
    }

    /// Lets the streams that are still on the connection stay for a while, because it cannot be replaced.
    pub(in crate::upstream) fn stay(self) {
        self.permit.forget();
        self.state.stay();
        if let Some(connection) = self.pool.lock().find(self.number) {
            connection.leaving = Leaving::Due(Instant::now() + RETRY);
        }
        self.pool.left.notify_one();
    }
}

/// When connections to one server are left, for all its pools.
#[derive(Debug)]
pub(in crate::upstream) struct Moves {
    pause: Duration,
    /// When a connection was last begun to be left. Locked until its streams have moved.
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

    /// Takes the turn to leave a connection, if one may be left now.
    pub(in crate::upstream) fn try_turn(&self) -> bool {
        let Ok(mut begun) = self.begun.try_lock() else { return false };
        let is_due = begun.is_none_or(|last| last.elapsed() >= self.pause);
        if is_due {
            *begun = Some(Instant::now());
        }
        is_due
    }
}

/// Leaves the connections of a pool that are due, as long as the pool has any.
pub(super) async fn follow(pool: Weak<ConnectionPool>, moves: Arc<Moves>) {
    loop {
        // The pool is not kept alive while no connection is due.
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
            // A limit on the wait: the streams may be unable to move, or the server may not read. Other connections must still get their turn.
            let _ = timeout(AT_MOST, pool.is_left()).await;
        }
        drop(turn);
    }
}

/// The next step of the task that leaves connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// A connection is due to be left.
    Connection,
    /// No connection is due before this time.
    Look(Instant),
    /// There is no connection.
    Empty,
}

/// Keeps the turn of a stream that has moved until the server has responded at the new place. Returns the end of the stream, if that comes first.
///
/// Without a response the remaining streams stay where they are. A server may have nothing to send: then an answer to a call, `alive`, lets the
/// next stream move.
pub(in crate::upstream) async fn settle<T>(
    turn: Option<MoveTurn>,
    stream: Pin<&mut impl Future<Output = T>>,
    responded: impl Future<Output = ()>,
    has_responded: impl Fn() -> bool,
    alive: impl Future<Output = ()>,
) -> Option<T> {
    let turn = turn?;
    let is_silent_and_alive = async {
        sleep(FIRST_RESPONSE).await;
        alive.await;
    };
    let is_taken = async {
        tokio::select! {
            () = responded => {}
            () = is_silent_and_alive => {}
        }
    };
    tokio::select! {
        end = stream => {
            if !has_responded() {
                turn.stay();
            }
            Some(end)
        }
        is_taken = timeout(TAKEN, is_taken) => {
            if is_taken.is_err() {
                turn.stay();
            }
            None
        }
    }
}

/// How long the streams of one connection have for their moves before the next connection is left.
const AT_MOST: Duration = Duration::from_secs(60);
/// After this silence at the new place of a stream, the server is called.
const FIRST_RESPONSE: Duration = Duration::from_secs(1);
/// How long the server has for a response, or for the answer to that call.
const TAKEN: Duration = Duration::from_secs(30);
/// How long streams stay after their connection could not be replaced.
const RETRY: Duration = Duration::from_secs(30);
