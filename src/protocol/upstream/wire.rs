//! What the server was sent about one type on this opening, and what is still to be sent.

use std::collections::{BTreeSet, VecDeque};

use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::xds::Name;

/// What the server was sent on this opening, and what is still to be sent.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(crate) nonce: String,
    pub(crate) pending_acks: VecDeque<PendingAck>,
    /// The first request of the type was made on this opening.
    pub(crate) opened: bool,
    /// A name was sent on this stream, `*` included, so that an empty list means no names (SOTW-38).
    pub(crate) named: bool,
    pub(crate) wildcard_sent: bool,
    /// The first request of this opening stated the versions of cached resources.
    pub(crate) stated: bool,
    /// Changes that are still to be sent. A name in both was unsubscribed and is wanted again: each gets a request of its own.
    pub(crate) subscribe: BTreeSet<Name>,
    pub(crate) unsubscribe: BTreeSet<Name>,
    pub(crate) wildcard_dropped: bool,
    /// A change is still to be sent.
    pub(crate) changed: bool,
    /// No change is sent before this: changes until then are merged (UP-5).
    pub(crate) next_at: Moment,
}

/// An ACK, or a NACK with its text.
#[derive(Debug)]
pub(super) struct PendingAck {
    pub(crate) nonce: String,
    /// SotW: the accepted version after that response.
    pub(crate) version: String,
    pub(crate) error: Option<String>,
}

impl Wire {
    /// Queues the ACK or NACK of a response. For a server that reads none of them, the queue is bounded: the oldest is dropped.
    pub(crate) fn queue_ack(&mut self, nonce: String, version: String, error: Option<String>, limits: &Limits) {
        if self.pending_acks.len() >= limits.pending_answers {
            self.pending_acks.pop_front();
        }
        self.pending_acks.push_back(PendingAck { nonce, version, error });
    }

    pub(crate) fn is_acked(&self) -> bool {
        !self.changed && self.pending_acks.is_empty()
    }

    /// When a pending change may be sent, if it does not go at once with an ACK.
    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        (self.opened && self.pending_acks.is_empty() && self.changed).then_some(self.next_at)
    }

    pub(crate) fn last_sent_at(&self) -> Moment {
        self.next_at
    }

    /// The stream has ended: nothing counts as sent, and its ACKs are dropped.
    pub(crate) fn disconnect(&mut self) {
        *self = Self { next_at: self.next_at, ..Self::default() };
    }
}
