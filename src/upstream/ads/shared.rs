//! Observations that the streams of all views to one server share. Each view decides for itself what follows from them (FB-20).

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{MutexGuard, Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;
use weir_core::protocol::members::MemberPace;
use weir_core::protocol::moment::Moment;

use super::super::server::{LifeMethod, LifeTimes};
use crate::random::random;
use crate::relay::REOPENINGS;

#[derive(Debug)]
pub(super) struct Shared {
    life: LifeTimes,
    /// Locked by the one stream that makes liveness calls of its own accord after silence.
    duty: tokio::sync::Mutex<()>,
    /// Permits to reopen streams that are open.
    reopenings: Arc<Semaphore>,
    /// When streams are reopened to show another client; of all tenants.
    member_pace: Mutex<MemberPace>,
    /// The permit to try types on a stream of their own, for all tenants.
    trials: Arc<Semaphore>,
    doubts: watch::Sender<u64>,
    last_doubt: Mutex<Option<Instant>>,
    reachability: watch::Sender<ReachabilityCounts>,
    /// A stream had no connection, or nothing to show on it. None has made one, or had a first response, since.
    unreached: AtomicBool,
    rejected: AtomicBool,
    waiting: AtomicUsize,
    unanswered_calls: AtomicU64,
    /// Why liveness calls show nothing about the server.
    unrouted: Mutex<Option<String>>,
    /// A server has refused the method that does not exist, and has answered a call of a stream's own method.
    answers_own_method: watch::Sender<bool>,
}

/// How often the server was found to be reachable again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReachabilityCounts {
    /// Connections and first responses after streams that had no connection.
    reached: u64,
    /// First responses after streams that ended without one.
    answered: u64,
}

/// How far an attempt to open a stream got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AttemptStage {
    Unreached,
    /// The server was reachable, and ended the stream without a response.
    Rejected,
    Answered,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    Out,
    /// Other streams have found the server reachable again.
    Woken,
}

/// Notifies a stream when another stream suspects that the server is dead.
#[derive(Debug)]
pub(super) struct Doubts(watch::Receiver<u64>);

impl Doubts {
    /// Waits until another stream suspects the server. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await // no other stream is left
        }
        spread().await;
    }
}

impl Shared {
    pub(crate) fn new(life: LifeTimes, trials: Arc<Semaphore>) -> Self {
        Self {
            life,
            duty: tokio::sync::Mutex::new(()),
            reopenings: Arc::new(Semaphore::new(REOPENINGS)),
            member_pace: Mutex::default(),
            trials,
            doubts: watch::Sender::new(0),
            last_doubt: Mutex::new(None),
            reachability: watch::Sender::new(ReachabilityCounts::default()),
            unreached: AtomicBool::new(false),
            rejected: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            unanswered_calls: AtomicU64::new(0),
            unrouted: Mutex::new((life.method == LifeMethod::None).then(|| NO_CALLS.into())),
            answers_own_method: watch::Sender::new(false),
        }
    }

    /// Waits for the duty to make liveness calls after silence. One stream has it; when that stream ends, the next gets it.
    pub(crate) async fn duty(&self) -> MutexGuard<'_, ()> {
        self.duty.lock().await
    }

    pub(crate) fn reopenings(&self) -> &Arc<Semaphore> {
        &self.reopenings
    }

    /// Returns the time of the next turn to show another client.
    pub(crate) fn member_turn(&self, now: Moment) -> Moment {
        self.member_pace.lock().unwrap_or_else(PoisonError::into_inner).turn(now)
    }

    /// Waits for the turn to try types. Cancel-safe.
    pub(crate) async fn trial_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.trials.acquire().await.ok()
    }

    pub(crate) fn doubts(&self) -> Doubts {
        Doubts(self.doubts.subscribe())
    }

    /// Makes all other streams call at once, each on its own connection. Does nothing while they may still be busy with the last such calls.
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

    pub(crate) fn reachability(&self) -> ReachabilityCounts {
        *self.reachability.borrow()
    }

    /// Records the first bytes from the server on a connection.
    pub(crate) fn reached(&self) {
        if self.unreached.swap(false, Ordering::Relaxed) {
            self.reachability.send_modify(|counts| counts.reached += 1);
        }
    }

    /// Records the first response on a stream. The connection may be older than the failures: a stream without its token fails beside it.
    pub(crate) fn answered(&self) {
        self.reached();
        if self.rejected.swap(false, Ordering::Relaxed) {
            self.reachability.send_modify(|counts| counts.answered += 1);
        }
    }

    pub(crate) fn ended(&self, stage: AttemptStage) {
        match stage {
            AttemptStage::Unreached => {
                self.unreached.store(true, Ordering::Relaxed);
                self.unconfirmed(None);
            }
            AttemptStage::Rejected => self.rejected.store(true, Ordering::Relaxed),
            AttemptStage::Answered => {}
        }
    }

    /// Waits between two attempts, for `wait` at most. After `least`, the wait also ends when other streams have found since `before` that the
    /// server is back. Woken streams are spread over time.
    pub(crate) async fn wait(
        &self,
        stage: AttemptStage,
        before: ReachabilityCounts,
        wait: Duration,
        least: Duration,
    ) -> Waited {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        let mut counts = self.reachability.subscribe();
        let woken = async {
            tokio::time::sleep(least).await;
            let is_back = counts.wait_for(|now| match stage {
                AttemptStage::Unreached => *now != before,
                AttemptStage::Rejected => now.answered != before.answered,
                AttemptStage::Answered => false, // the server has answered this stream, so that what others find is no news
            });
            if is_back.await.is_err() {
                std::future::pending().await // no other stream is left
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

    /// Notes why a liveness call showed nothing about the server. Returns true if this is the first such call since the last answer.
    pub(crate) fn is_unrouted(&self, reason: &str) -> bool {
        self.unrouted.lock().unwrap_or_else(PoisonError::into_inner).replace(reason.into()).is_none()
    }

    /// Notes that a liveness call was answered.
    pub(crate) fn is_routed(&self) {
        *self.unrouted.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether a call of a stream's own method was answered, on any connection.
    pub(crate) fn has_answered_own_method(&self) -> bool {
        *self.answers_own_method.borrow()
    }

    pub(crate) fn own_method_was_answered(&self) {
        self.answers_own_method.send_if_modified(|answers| !std::mem::replace(answers, true));
    }

    /// Waits until calls of a stream's own method are known to be answered. Cancel-safe.
    pub(crate) async fn answers_own_method(&self) {
        let _ = self.answers_own_method.subscribe().wait_for(|answers| *answers).await; // the sender is this
    }

    /// Returns why liveness calls show nothing about the server; `None` if they do show something.
    pub(crate) fn unrouted(&self) -> Option<String> {
        self.unrouted.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Waits for some time, so that not all streams call at once.
pub(super) async fn spread() {
    tokio::time::sleep(DOUBT_SPREAD.mul_f64(random())).await;
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The reason why nothing is known of a server: no calls are made.
pub(super) const NO_CALLS: &str = "liveness.method is none";
const DOUBT_SPREAD: Duration = Duration::from_millis(500);
/// The time over which waiting streams reconnect when a server is back. With very many streams it is `WAKE_EACH` for each of them.
const WAKE_SPREAD: Duration = Duration::from_secs(1);
const WAKE_EACH: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
