//! What delays a session's next reply outside of the session: the wait for its turn, its compression, or a client that reads slowly.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use weir_core::protocol::moment::Moment;

/// What delays replies to the client, as of the last poll.
#[derive(Debug, Default)]
pub(super) struct SendProgress {
    obstruction: AtomicU64,
    /// Whether the next reply is made only once the connection has taken all of the last one.
    one_by_one: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocker {
    /// A reply was made, and the connection has not taken all of it.
    Unread,
    /// A large reply waits for its turn.
    Turn,
    /// A reply was made, and waits until it is compressed.
    Form,
}

impl SendProgress {
    /// Records a poll for the next reply, which means that the one before was taken. `now` is the time from which an obstruction counts.
    pub(super) fn set(&self, obstruction: Option<Blocker>, now: Moment) {
        let known = self.get();
        let since = match (known, obstruction) {
            (Some((Blocker::Turn, since)), Some(Blocker::Turn)) => since, // it is asked again and again
            _ => now,
        };
        let flag = match obstruction {
            None => return self.obstruction.store(0, Ordering::Relaxed),
            Some(Blocker::Unread) => 1,
            Some(Blocker::Turn) => 2,
            Some(Blocker::Form) => 3,
        };
        let micros = u64::try_from((since - Moment::START).as_micros()).unwrap_or(u64::MAX >> 2);
        self.obstruction.store(micros << 2 | flag, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<(Blocker, Moment)> {
        let value = self.obstruction.load(Ordering::Relaxed);
        let obstruction = match value & 3 {
            1 => Blocker::Unread,
            2 => Blocker::Turn,
            3 => Blocker::Form,
            _ => return None,
        };
        Some((obstruction, Moment::START + Duration::from_micros(value >> 2)))
    }

    pub(super) fn set_one_by_one(&self, one_by_one: bool) {
        self.one_by_one.store(one_by_one, Ordering::Relaxed);
    }

    pub(super) fn is_one_by_one(&self) -> bool {
        self.one_by_one.load(Ordering::Relaxed)
    }

    /// Returns for how long the connection has had the last reply, which it has now taken. `None` if replies are not sent one by one, or if that
    /// was returned before.
    pub(super) fn take_lateness(&self, now: Moment) -> Option<Duration> {
        if !self.is_one_by_one() {
            return None;
        }
        let (Blocker::Unread, since) = self.get()? else { return None };
        self.set(None, now);
        Some(now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_since_when_a_client_reads_nothing() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let transit = SendProgress::default();
        assert_eq!(transit.get(), None);
        transit.set(Some(Blocker::Unread), at(5));
        assert_eq!(transit.get(), Some((Blocker::Unread, at(5))));
        transit.set(Some(Blocker::Unread), at(7));
        assert_eq!(transit.get(), Some((Blocker::Unread, at(7))), "the next reply");
        transit.set(Some(Blocker::Turn), at(8));
        transit.set(Some(Blocker::Turn), at(9));
        assert_eq!(transit.get(), Some((Blocker::Turn, at(8))));
        transit.set(Some(Blocker::Form), at(9));
        assert_eq!(transit.get(), Some((Blocker::Form, at(9))), "the client is not what it waits for");
        transit.set(None, at(10));
        assert_eq!(transit.get(), None);
    }

    #[test]
    fn a_reply_is_late_once_by_the_time_for_which_the_connection_had_it_if_the_next_one_waits_for_that() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let transit = SendProgress::default();
        transit.set(Some(Blocker::Unread), at(5));
        assert_eq!(transit.take_lateness(at(8)), None, "the next reply does not wait");
        transit.set_one_by_one(true);
        assert_eq!(transit.take_lateness(at(8)), Some(Duration::from_secs(3)));
        assert_eq!(transit.take_lateness(at(9)), None, "once");
        transit.set(Some(Blocker::Turn), at(9));
        assert_eq!(transit.take_lateness(at(10)), None, "the connection has nothing of it");
    }
}
