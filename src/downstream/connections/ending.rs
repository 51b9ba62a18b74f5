//! When a connection has to end, and how.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::place::Place;
use crate::downstream::drain::Drain;
use crate::downstream::judged_clients;
use crate::downstream::lifetime::Age;
use crate::relay::Limit;

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum End {
    /// The relay drains.
    Drain,
    /// Another connection needs its place, and it has no stream.
    Unused,
    /// Its first request is late.
    Late,
    /// Its request was refused.
    Refused,
    /// Its client was judged again, and has to end.
    Judged,
    /// It has reached its maximum age.
    Aged,
    /// The relay has too many streams: the next ones of its client had better go to another one.
    Full,
}

impl Place {
    /// Waits until the connection has to end, also because the relay drains.
    pub(in crate::downstream) async fn ends(&self, drain: &mut Drain) -> End {
        tokio::select! {
            () = self.drains(drain) => End::Drain,
            end = self.closes() => end,
        }
    }

    /// Waits until the relay drains. A connection that was just accepted has a moment for its first request, which is answered.
    async fn drains(&self, drain: &mut Drain) {
        drain.begins().await;
        let _ = Box::pin(timeout(JUST_ACCEPTED, self.first.wait())).await;
    }

    /// Waits until the connection has to end while the relay does not drain.
    pub(in crate::downstream) async fn closes(&self) -> End {
        tokio::select! {
            end = self.is_closed() => end,
            () = self.is_late() => End::Late,
            _ = judged_clients::ends(self.judged()) => End::Judged,
            () = Age::is_reached(self.age()) => {
                self.connections.aged.fetch_add(1, Ordering::Relaxed);
                End::Aged
            }
        }
    }

    async fn is_closed(&self) -> End {
        loop {
            self.leave.notified().await;
            if self.is_refused() {
                return End::Refused;
            }
            if self.is_full() {
                return End::Full;
            }
            if self.is_idle() {
                return End::Unused;
            }
            self.stay(); // it has a stream again
        }
    }

    /// Waits until the first request is late. That may never be.
    async fn is_late(&self) {
        let limit = match self.is_served() {
            true => self.connections.limits.first_request,
            false => self.connections.times.first_request,
        };
        let left = limit.saturating_sub(self.accepted.elapsed());
        // Boxed, since most connections outlive this.
        if limit.is_zero() || Box::pin(timeout(left, self.first.wait())).await.is_ok() {
            pending::<()>().await;
        }
        if self.is_served() {
            self.connections.counters.reached(Limit::FirstRequestTimeout);
        }
    }

    /// Lets a connection end that was told to. Without streams it has little time for that. Returns `None` if it took longer.
    pub(in crate::downstream) async fn finish<T>(&self, end: End, serving: impl Future<Output = T>) -> Option<T> {
        let mut serving = pin!(serving);
        let mut has_to_go = end == End::Judged;
        if matches!(end, End::Drain | End::Aged | End::Full) {
            // Boxed, since few connections come here.
            let overdue = Box::pin(async {
                tokio::select! {
                    _ = judged_clients::ends(self.judged()) => {}
                    () = Age::is_overdue(self.age()) => {}
                }
            });
            tokio::select! {
                ended = &mut serving => return Some(ended),
                () = overdue => has_to_go = true,
            }
        }
        tokio::select! {
            ended = &mut serving => return Some(ended),
            () = sleep(self.connections.times.end) => {}
        }
        let has_streams = !has_to_go && !self.is_refused() && !self.is_idle();
        if has_streams { Some(serving.await) } else { None }
    }
}

/// How long a drain waits for the first request of a connection.
const JUST_ACCEPTED: Duration = Duration::from_secs(1);
