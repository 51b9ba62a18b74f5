//! What was sent to the server of one type on this opening, and what was not.

use std::collections::{BTreeSet, VecDeque};

use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::xds::Name;

/// What the server has been told on this opening, and what it has not.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(crate) nonce: String,
    pub(crate) pending_acks: VecDeque<PendingAck>,
    /// The first request of the type is out on this stream.
    pub(crate) opened: bool,
    /// The server was told a name on this stream, `*` included, so that an empty list means nothing (SOTW-38).
    pub(crate) named: bool,
    pub(crate) star_told: bool,
    /// The server was told on this opening what is held.
    pub(crate) stated: bool,
    /// Changes the server has not been told. A name in both was dropped and is wanted again: it is told twice.
    pub(crate) subscribe: BTreeSet<Name>,
    pub(crate) unsubscribe: BTreeSet<Name>,
    pub(crate) star_dropped: bool,
    /// A change is not told yet.
    pub(crate) changed: bool,
    /// No change is told before: those in between are merged (UP-5).
    pub(crate) next_at: Moment,
}

/// An ACK, or a NACK with its text.
#[derive(Debug)]
pub(super) struct PendingAck {
    pub(crate) nonce: String,
    /// SotW: the version in use once that response was read.
    pub(crate) version: String,
    pub(crate) error: Option<String>,
}

impl Wire {
    /// Owes an answer to a response. For a server that reads none of them, only so many are kept.
    pub(crate) fn queue_ack(&mut self, nonce: String, version: String, error: Option<String>, limits: &Limits) {
        if self.pending_acks.len() >= limits.owed_answers {
            self.pending_acks.pop_front();
        }
        self.pending_acks.push_back(PendingAck { nonce, version, error });
    }

    pub(crate) fn is_acked(&self) -> bool {
        !self.changed && self.pending_acks.is_empty()
    }

    /// When what is not told yet may be, if it does not go at once.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        (self.opened && self.pending_acks.is_empty() && self.changed).then_some(self.next_at)
    }

    pub(crate) fn last_sent_at(&self) -> Moment {
        self.next_at
    }

    /// The server knows nothing of us any more. Questions of another opening are not answered on the next.
    pub(crate) fn disconnect(&mut self) {
        *self = Self { next_at: self.next_at, ..Self::default() };
    }
}
