//! The age of what a reply carries.

use std::time::Duration;

use crate::protocol::moment::{Moment, earliest};

/// When what a reply carries was received. The first reply to a subscription, or after a reconnect, counts from its request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ReplyAge {
    /// When the oldest change was received from a server.
    pub(crate) change: Option<Moment>,
    /// When the oldest request that it answers was received.
    pub(crate) request: Option<Moment>,
}

/// How long a reply took, from the change and from the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplyLag {
    /// Since the change was received.
    pub change: Option<Duration>,
    /// Since the client requested it.
    pub request: Option<Duration>,
}

impl ReplyAge {
    pub(super) fn of_request(asked: Moment) -> Self {
        Self { request: Some(asked), change: None }
    }

    pub(super) fn of_change(received: Option<Moment>) -> Self {
        Self { request: None, change: received }
    }

    /// Returns the earlier of the two times.
    pub(super) fn oldest(&self) -> Option<Moment> {
        earliest(self.change, self.request)
    }

    pub(super) fn note(&mut self, other: Self) {
        self.change = earliest(self.change, other.change);
        self.request = earliest(self.request, other.request);
    }

    pub(super) fn lag(&self, now: Moment) -> ReplyLag {
        ReplyLag { change: self.change.map(|from| now - from), request: self.request.map(|from| now - from) }
    }
}
