//! What keeps a session's next reply outside of the session: its turn, its compressed form, or a client that reads slowly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_core::protocol::moment::Moment;

/// The way of replies to the client, as of the last poll.
#[derive(Debug, Default)]
pub(super) struct Transit(AtomicU64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstruction {
    /// A reply was made, and the connection has not taken all of it.
    Unread,
    /// A large reply waits until others are sent.
    Turn,
    /// A reply was made, and waits until it is compressed.
    Form,
}

impl Transit {
    /// The session was asked for a reply: the one before was taken. `now` is when it is left with this obstruction, if any.
    pub(super) fn set(&self, obstruction: Option<Obstruction>, now: Moment) {
        let known = self.get();
        let since = match (known, obstruction) {
            (Some((Obstruction::Turn, since)), Some(Obstruction::Turn)) => since, // it is asked again and again
            _ => now,
        };
        let flag = match obstruction {
            None => return self.0.store(0, Ordering::Relaxed),
            Some(Obstruction::Unread) => 1,
            Some(Obstruction::Turn) => 2,
            Some(Obstruction::Form) => 3,
        };
        let micros = u64::try_from((since - Moment::START).as_micros()).unwrap_or(u64::MAX >> 2);
        self.0.store(micros << 2 | flag, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<(Obstruction, Moment)> {
        let value = self.0.load(Ordering::Relaxed);
        let obstruction = match value & 3 {
            1 => Obstruction::Unread,
            2 => Obstruction::Turn,
            3 => Obstruction::Form,
            _ => return None,
        };
        Some((obstruction, Moment::START + Duration::from_micros(value >> 2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_since_when_a_client_reads_nothing() {
        let at = |seconds| Moment::START + Duration::from_secs(seconds);
        let transit = Transit::default();
        assert_eq!(transit.get(), None);
        transit.set(Some(Obstruction::Unread), at(5));
        assert_eq!(transit.get(), Some((Obstruction::Unread, at(5))));
        transit.set(Some(Obstruction::Unread), at(7));
        assert_eq!(transit.get(), Some((Obstruction::Unread, at(7))), "the next reply");
        transit.set(Some(Obstruction::Turn), at(8));
        transit.set(Some(Obstruction::Turn), at(9));
        assert_eq!(transit.get(), Some((Obstruction::Turn, at(8))));
        transit.set(Some(Obstruction::Form), at(9));
        assert_eq!(transit.get(), Some((Obstruction::Form, at(9))), "the client is not what it waits for");
        transit.set(None, at(10));
        assert_eq!(transit.get(), None);
    }
}
