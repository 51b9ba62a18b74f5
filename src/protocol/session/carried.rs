//! How old what a reply carries is: the oldest change in it, and the oldest request that it answers.

use std::time::Duration;

use crate::protocol::moment::{Moment, earliest};

/// What a reply carries. The first reply to a subscription, and what follows a reconnect, answer a request, however old the resources are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// When the oldest change was received from a server.
    pub(crate) change: Option<Moment>,
    /// When the oldest request that it answers was received.
    pub(crate) request: Option<Moment>,
}

/// How long something took, for each of the two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Lag {
    pub(crate) change: Option<Duration>,
    pub(crate) request: Option<Duration>,
}

impl Carried {
    pub(super) fn note(&mut self, other: Self) {
        self.note_change(other.change);
        self.note_request(other.request);
    }

    pub(super) fn note_change(&mut self, received: Option<Moment>) {
        self.change = earliest(self.change, received);
    }

    pub(super) fn note_request(&mut self, received: Option<Moment>) {
        self.request = earliest(self.request, received);
    }

    pub(super) fn lag(&self, now: Moment) -> Lag {
        Lag { change: self.change.map(|from| now - from), request: self.request.map(|from| now - from) }
    }
}

#[cfg(test)]
mod tests;
