//! What the streams of all views to one server share. These are observations alone: each view decides for itself what follows from
//! them (FB-20).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{MutexGuard, watch};
use tokio::time::Instant;

use super::super::server::LifeTimes;
use super::random;

#[derive(Debug)]
pub(super) struct Shared {
    life: LifeTimes,
    /// Held by the one stream on whose connection the server is asked when nothing was heard.
    duty: tokio::sync::Mutex<()>,
    doubts: watch::Sender<u64>,
    last_doubt: Mutex<Option<Instant>>,
    signs: watch::Sender<Signs>,
    /// Somebody has failed to connect, or to get a response, since somebody last succeeded.
    unreached: AtomicBool,
    rejected: AtomicBool,
    waiting: AtomicUsize,
    unanswered_calls: AtomicU64,
    /// That calls are not routed to the server was said once.
    unrouted: AtomicBool,
}

/// How often the server was found to be back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// Connections that were made after others had failed.
    reached: u64,
    /// First responses after streams that ended without one.
    answered: u64,
}

/// How far the last attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Unreached,
    /// The server was there, and ended the stream without a response.
    Rejected,
    Answered,
}

/// What becomes of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    Out,
    /// Others have found the server to be back.
    Woken,
}

/// Hears when a stream to the server is in doubt whether it is there.
#[derive(Debug)]
pub(super) struct Doubts(watch::Receiver<u64>);

impl Doubts {
    /// Until another stream is in doubt. May be given up anywhere.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await // nobody is left who could be in doubt
        }
        tokio::time::sleep(DOUBT_SPREAD.mul_f64(random())).await;
    }
}

impl Shared {
    pub(crate) fn new(life: LifeTimes) -> Self {
        Self {
            life,
            duty: tokio::sync::Mutex::new(()),
            doubts: watch::Sender::new(0),
            last_doubt: Mutex::new(None),
            signs: watch::Sender::new(Signs::default()),
            unreached: AtomicBool::new(false),
            rejected: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            unanswered_calls: AtomicU64::new(0),
            unrouted: AtomicBool::new(false),
        }
    }

    /// For the one stream that asks when nothing was heard; the next has its turn when that one ends.
    pub(crate) async fn duty(&self) -> MutexGuard<'_, ()> {
        self.duty.lock().await
    }

    pub(crate) fn doubts(&self) -> Doubts {
        Doubts(self.doubts.subscribe())
    }

    /// All other streams are to ask at once, each on its own connection. Not again before they had time to.
    pub(crate) fn unconfirmed(&self, own: Option<&mut Doubts>) {
        let now = Instant::now();
        let mut last = self.last_doubt.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| now - last >= 2 * self.life.timeout) {
            *last = Some(now);
            self.doubts.send_modify(|count| *count += 1);
            if let Some(own) = own {
                own.0.mark_unchanged();
            }
        }
    }

    pub(crate) fn signs(&self) -> Signs {
        *self.signs.borrow()
    }

    /// The server's first words have come on a connection.
    pub(crate) fn reached(&self) {
        if self.unreached.swap(false, Ordering::Relaxed) {
            self.signs.send_modify(|signs| signs.reached += 1);
        }
    }

    /// A first response has come on a stream.
    pub(crate) fn answered(&self) {
        if self.rejected.swap(false, Ordering::Relaxed) {
            self.signs.send_modify(|signs| signs.answered += 1);
        }
    }

    pub(crate) fn ended(&self, stage: Stage) {
        match stage {
            Stage::Unreached => {
                self.unreached.store(true, Ordering::Relaxed);
                self.unconfirmed(None);
            }
            Stage::Rejected => self.rejected.store(true, Ordering::Relaxed),
            Stage::Answered => {}
        }
    }

    /// Waits between two attempts, or after `least` until others have found since `before` that the server is back. Those that
    /// wake come one after another.
    pub(crate) async fn wait(&self, stage: Stage, before: Signs, wait: Duration, least: Duration) -> Waited {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let mut signs = self.signs.subscribe();
        let woken = async {
            tokio::time::sleep(least).await;
            let is_back = signs.wait_for(|now| match stage {
                Stage::Unreached => *now != before,
                Stage::Rejected => now.answered != before.answered,
                Stage::Answered => false, // it was back, and is as it is with this one stream
            });
            if is_back.await.is_err() {
                std::future::pending().await // nobody is left who could find it
            }
            let waiting = u32::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(u32::MAX);
            let spread = WAKE_SPREAD.max(WAKE_EACH.saturating_mul(waiting));
            tokio::time::sleep(spread.mul_f64(random())).await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => Waited::Out,
            () = woken => Waited::Woken,
        }
    }

    pub(crate) fn count_unanswered(&self) {
        self.unanswered_calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn unanswered_calls(&self) -> u64 {
        self.unanswered_calls.load(Ordering::Relaxed)
    }

    /// Whether calls turn out for the first time not to be routed to the server.
    pub(crate) fn is_first_unrouted(&self) -> bool {
        !self.unrouted.swap(true, Ordering::Relaxed)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

const DOUBT_SPREAD: Duration = Duration::from_millis(500);
/// Over which those that wait for a server come to it when it is back, and how much longer that takes for each of very many.
const WAKE_SPREAD: Duration = Duration::from_secs(1);
const WAKE_EACH: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
