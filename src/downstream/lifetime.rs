//! What ends the streams of one connection: its client fails a later judgement, or the connection reaches its maximum age.
//!
//! A balancer distributes connections. Without a maximum age those of discovery would stay for ever, and relays that are added later would get none.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::judged_clients::{self, JudgedClient};
use super::slot::{Slot, Status};
use crate::random::random;

/// The maximum age of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgeLimit {
    /// Zero: no maximum.
    pub(crate) age: Duration,
    /// How long a stream without a response is kept beyond the age.
    pub(crate) grace: Duration,
}

/// What ends the streams of a connection.
#[derive(Clone)]
pub(super) struct Lifetime {
    /// The client, if it was judged.
    pub(super) judged: Option<Arc<JudgedClient>>,
    /// `None`: no maximum age.
    pub(super) age: Option<Age>,
}

/// When a connection has reached its maximum age.
#[derive(Debug, Clone, Copy)]
pub(super) struct Age {
    ends: Instant,
    grace_ends: Instant,
}

impl AgeLimit {
    /// Returns when a connection that was accepted at this time reaches its age, with jitter, so that connections do not end together.
    pub(super) fn of(self, accepted: Instant) -> Option<Age> {
        if self.age.is_zero() {
            return None;
        }
        let ends = accepted.checked_add(self.age.mul_f64(1.0 - JITTER + 2.0 * JITTER * random()))?;
        Some(Age { ends, grace_ends: ends.checked_add(self.grace)? })
    }
}

impl Age {
    /// Waits until the connection has reached its maximum age.
    pub(super) async fn is_reached(age: Option<Self>) {
        match age {
            // Boxed, since most streams end earlier.
            Some(Self { ends, .. }) => Box::pin(sleep_until(ends)).await,
            None => pending().await,
        }
    }
}

impl Age {
    /// Waits until a stream has to end because of age: after a response, or at the end of the grace period.
    async fn ends(age: Option<Self>, answered: impl Future<Output = ()>) -> Status {
        Self::is_reached(age).await;
        if let Some(Self { grace_ends, .. }) = age {
            let _ = timeout_at(grace_ends, pin!(answered)).await;
        }
        Status::unavailable("the connection has reached its maximum age (clients.max_connection_age); reconnect")
    }

    /// Waits until even the last reply should have been read.
    pub(super) async fn is_overdue(age: Option<Self>) {
        match age {
            Some(Self { grace_ends, .. }) => sleep_until(grace_ends + LAST_REPLY).await,
            None => pending().await,
        }
    }
}

impl Lifetime {
    /// Returns what ends a unary call: it has an immediate response, so age does not end it.
    pub(super) fn of_unary(self) -> Self {
        Self { age: None, ..self }
    }

    /// Whether anything can end the streams.
    pub(super) fn is_limited(&self) -> bool {
        self.judged.is_some() || self.age.is_some()
    }

    /// Waits until a stream without a pending response has to end.
    pub(super) async fn ends(self) -> Status {
        let Self { judged, age } = self;
        tokio::select! {
            end = judged_clients::ends(judged) => end,
            end = Age::ends(age, async {}) => end,
        }
    }

    /// Waits until a discovery stream has to end, and ends it. A client that fails its judgement may have nothing more.
    pub(super) async fn end(self, slot: &Slot) {
        let Self { judged, age } = self;
        tokio::select! {
            end = judged_clients::ends(judged) => slot.end(end),
            end = Age::ends(age, slot.answered()) => slot.end_after_reply(end),
        }
    }
}

/// How long a client may take to read its last reply when the stream ends.
const LAST_REPLY: Duration = Duration::from_secs(60);
/// Connections differ from the configured age by at most this fraction.
const JITTER: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn connections_that_came_together_end_at_times_around_the_limit() {
        let accepted = Instant::now();
        let limit = AgeLimit { age: HOUR, grace: Duration::ZERO };
        let ends: Vec<_> = (0..200).map(|_| limit.of(accepted).unwrap().ends - accepted).collect();
        let (first, last) = (*ends.iter().min().unwrap(), *ends.iter().max().unwrap());
        assert!(first >= HOUR.mul_f64(0.9) && last <= HOUR.mul_f64(1.1), "{first:?} to {last:?}");
        assert!(first < HOUR.mul_f64(0.95) && last > HOUR.mul_f64(1.05), "{first:?} to {last:?}");
        assert!(AgeLimit { age: Duration::ZERO, ..limit }.of(accepted).is_none());
    }

    #[tokio::test]
    async fn a_stream_without_a_response_is_kept_for_the_grace_time_and_one_with_a_response_is_not() {
        let of = |age, grace| Lifetime { judged: None, age: AgeLimit { age, grace }.of(Instant::now()) };
        let short = Duration::from_millis(50);
        of(short, HOUR).ends().await;
        let began = Instant::now();
        of(short, 4 * short).end(&Slot::default()).await;
        assert!(began.elapsed() >= (4 * short + short).mul_f64(0.9));
    }
}
