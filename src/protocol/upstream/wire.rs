//! What the server has been told of one type on this opening, and what it has not.

use std::collections::{BTreeSet, VecDeque};

use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::xds::Name;

/// What the server has been told on this opening, and what it has not.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub nonce: String,
    pub pending_acks: VecDeque<PendingAck>,
    /// The first request of the type is out on this stream.
    pub opened: bool,
    /// The server was told a name on this stream, `*` included, so that an empty list means nothing (SOTW-38).
    pub named: bool,
    pub star_told: bool,
    /// The server was told on this opening what is held.
    pub stated: bool,
    /// Changes the server has not been told. A name in both was dropped and is wanted again: it is told twice.
    pub subscribe: BTreeSet<Name>,
    pub unsubscribe: BTreeSet<Name>,
    pub star_dropped: bool,
    /// A change is not told yet.
    pub changed: bool,
    /// No change is told before: those in between are merged (UP-5).
    pub next_at: Moment,
}

/// An ACK, or a NACK with its text.
#[derive(Debug)]
pub(super) struct PendingAck {
    pub nonce: String,
    /// SotW: the version in use once that response was read.
    pub version: String,
    pub error: Option<String>,
}

impl Wire {
    /// Owes an answer to a response. A server that reads none of them is owed no more than so many.
    pub fn queue_ack(&mut self, nonce: String, version: String, error: Option<String>, limits: &Limits) {
        if self.pending_acks.len() >= limits.owed_answers {
            self.pending_acks.pop_front();
        }
        self.pending_acks.push_back(PendingAck { nonce, version, error });
    }

    pub fn is_acked(&self) -> bool {
        !self.changed && self.pending_acks.is_empty()
    }

    /// When what is not told yet may be, if it does not go at once.
    pub fn next_deadline(&self) -> Option<Moment> {
        (self.opened && self.pending_acks.is_empty() && self.changed).then_some(self.next_at)
    }

    pub fn last_sent_at(&self) -> Moment {
        self.next_at
    }

    /// The server knows nothing of us any more. Questions of another opening are not answered on the next.
    pub fn disconnect(&mut self) {
        *self = Self { next_at: self.next_at, ..Self::default() };
    }
}
