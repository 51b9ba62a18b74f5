//! Liveness of a server. Many servers send nothing before they have a response, and a hung server sends nothing either. A call on the same
//! connection, begun after the silence, distinguishes the two: only a live server answers it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{MutexGuard, Notify};
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

use super::super::connection_pool::StreamSlot;
use super::super::observed_socket::CLOSED;
use super::super::server::{LifeMethod, LifeTimes};
use super::frames::Incoming;
use super::life_call::{CallResult, LifeCalls};
use super::shared::{Doubts, Shared, spread};

/// Makes liveness calls on the connection of one stream.
pub(super) struct LivenessProbe<'a> {
    pub(crate) server: String,
    pub(crate) times: LifeTimes,
    pub(crate) shared: &'a Shared,
    pub(crate) slot: &'a StreamSlot,
    pub(crate) calls: LifeCalls<'a>,
    pub(crate) incoming: Arc<Incoming>,
    /// When notified, the stream wants the answer to a call that begins after the notification.
    pub(crate) requested: Arc<Notify>,
    /// Notified when that answer has come. Everything received before the answer must be reported first.
    pub(crate) answered: &'a Notify,
}

/// Calls in a row without an answer.
#[derive(Default)]
struct Missed {
    count: u32,
    since: Option<Instant>,
}

impl LivenessProbe<'_> {
    /// Runs for as long as the server answers. Returns why the stream has to be closed.
    pub(crate) async fn watch(mut self) -> Status {
        if self.times.method == LifeMethod::None {
            return std::future::pending().await; // what is asked for is never answered
        }
        let mut doubts = self.shared.doubts();
        let mut duty = None;
        // `pending`: when a request came that has no answer yet.
        let (mut pending, mut missed) = (None, Missed::default());
        let (mut last, mut earliest) = (Instant::now(), Instant::now());
        let mut is_due = self.is_on_silent_connection();
        // `early`: since when an answer is wanted that could not be asked for yet. `is_tried`: the first call of the stream's own method was
        // considered.
        let (mut early, mut is_tried) = (None, false);
        loop {
            if pending.is_none() && early.is_none() && missed.count == 0 && !std::mem::take(&mut is_due) {
                tokio::select! {
                    () = self.requested.notified() => pending = Some(Instant::now()),
                    () = self.idle(last, &mut duty) => {}
                    () = self.doubted(&mut doubts) => {}
                    () = self.untried(), if !is_tried => is_tried = true,
                }
            }
            self.wait_until(earliest, &mut pending).await;
            let began = Instant::now();
            last = began;
            let asked = pending.or(early).unwrap_or(began);
            let was_refused = early.take().is_some();
            let answer = self.call(asked, was_refused, &mut doubts).await;
            match &answer {
                CallResult::Own => {}
                CallResult::TooEarly(until) => earliest = *until,
                _ => earliest = began + self.times.timeout,
            }
            match answer {
                CallResult::Own => {
                    self.shared.is_routed();
                    missed = Missed::default();
                    self.incoming.note_received();
                    // This call began before the request, so that it does not answer the request. The next call answers both.
                    if self.requested.notified().now_or_never().is_some() {
                        pending = Some(Instant::now());
                    } else if pending.take().is_some() {
                        self.answered.notify_one();
                    }
                }
                CallResult::Unrouted(reason) => {
                    let reason = self.calls.without_values(reason);
                    if self.shared.is_unrouted(&reason) {
                        let server = &self.server;
                        tracing::warn!(
                            server,
                            reason,
                            path = self.calls.path(),
                            "liveness calls do not reach the server; a hung server looks like a silent one"
                        );
                    }
                    missed = Missed::default();
                }
                CallResult::TooEarly(_) => early = Some(asked),
                CallResult::Closed => return Status::unavailable(CLOSED),
                CallResult::Missing(reason) => {
                    self.shared.count_unanswered();
                    self.shared.unconfirmed(Some(&mut doubts));
                    if self.incoming.last_received() > began {
                        missed = Missed::default(); // the server was busy sending
                        continue;
                    }
                    let since = *missed.since.get_or_insert(began);
                    missed.count += 1;
                    if missed.count == LIMIT {
                        let limit = humantime::format_duration(self.times.timeout);
                        let reason = reason.map(|reason| self.calls.without_values(reason));
                        let reason = reason.map_or(format!(" within {limit} each"), |reason| format!(": {reason}"));
                        let reason = format!("no answer to two calls{reason}");
                        let (server, elapsed) = (&self.server, humantime::format_duration(in_millis(since.elapsed())));
                        tracing::warn!(server, %elapsed, reason, "server does not answer; closing stream");
                        self.slot.is_silent();
                        return Status::unavailable(reason);
                    }
                }
            }
        }
    }

    /// Whether the stream is new on a shared connection on which nothing has arrived for some time: the server may hang.
    fn is_on_silent_connection(&self) -> bool {
        let is_silent = self.slot.last_received() + self.times.timeout <= Instant::now();
        self.times.interval.is_some() && self.slot.is_shared() && is_silent
    }

    /// Waits for the duty to call, and then until nothing has arrived for the interval and no call was made in it. `last` is the last call.
    async fn idle<'s>(&self, last: Instant, duty: &mut Option<MutexGuard<'s, ()>>)
    where
        Self: 's,
    {
        let Some(interval) = self.times.interval else { return std::future::pending().await };
        if duty.is_none() {
            *duty = Some(self.shared.duty().await);
        }
        loop {
            let due = self.incoming.last_received().max(last) + interval;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    /// Waits until another stream suspects the server. Never returns if calls are made on request alone.
    async fn doubted(&self, doubts: &mut Doubts) {
        match self.times.interval {
            Some(_) => doubts.next().await,
            None => std::future::pending().await,
        }
    }

    /// Waits until the connection needs a first call of the stream's own method. It needs one where the server answers only such calls. A missing
    /// answer says something only if an earlier call on the connection was answered.
    async fn untried(&self) {
        if self.times.interval.is_none() {
            return std::future::pending().await;
        }
        self.shared.answers_own_method().await;
        if self.calls.is_untried() {
            spread().await;
        }
        if !self.calls.is_untried() {
            std::future::pending().await // that of another stream is for all
        }
    }

    /// Waits until this time. The call that follows begins after all requests that have come until then.
    async fn wait_until(&self, time: Instant, pending: &mut Option<Instant>) {
        let mut wait = pin!(sleep_until(time));
        loop {
            tokio::select! {
                biased;
                () = self.requested.notified() => *pending = Some(Instant::now()),
                () = &mut wait => return,
            }
        }
    }

    async fn call(&mut self, asked: Instant, was_refused: bool, doubts: &mut Doubts) -> CallResult {
        let (limit, shared) = (self.times.timeout, self.shared);
        let mut call = pin!(self.calls.ask(asked, was_refused));
        tokio::select! {
            answer = &mut call => answer,
            () = sleep(limit / 2) => {
                // The other streams call now too: each needs as long as this one, and all must find a hung server in time.
                shared.unconfirmed(Some(doubts));
                call.await
            }
        }
    }
}

/// Truncates to milliseconds, for the log.
fn in_millis(elapsed: Duration) -> Duration {
    Duration::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

/// Calls in a row without an answer that close a stream.
const LIMIT: u32 = 2;
