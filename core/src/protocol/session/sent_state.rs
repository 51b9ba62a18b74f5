//! What a client was sent of one name, and how much memory all its names take.

use crate::protocol::view::Revision;
use crate::xds::{Name, SetVersion};

/// What the client was sent of a requested name.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentState {
    /// The share of the name in the [`SetVersion`] of what the client holds. Empty if the client holds nothing that it was sent.
    pub(super) holds: SetVersion,
    /// The client stated that it holds something under this name, or may hold it of `*`, which it has left.
    pub(super) held_before: bool,
    /// The revision of the last error of the name that the client was sent.
    pub(super) error: Revision,
    /// The name is a member of a subscribed collection, and not subscribed by itself.
    pub(super) member: bool,
    /// The view had no room for the name. It is tried again when the client requests the name again.
    pub(super) refused: bool,
}

impl SentState {
    /// Whether a reply without this name would make the client drop something.
    pub(super) fn client_may_hold(&self) -> bool {
        !self.holds.is_empty() || self.held_before
    }

    pub(super) fn holds(&self) -> SetVersion {
        self.holds
    }

    pub(super) fn held_before(&self) -> bool {
        self.held_before
    }

    pub(super) fn error(&self) -> Revision {
        self.error
    }

    pub(super) fn is_member(&self) -> bool {
        self.member
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }
}

/// How many names are kept for a client, and for how many of them it holds nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeptNames {
    /// All names, members of collections included.
    pub names: usize,
    /// Names for which the client holds nothing that it was sent.
    pub unsent: usize,
    /// The bytes of their texts, of what is kept of the resources that aliases lead to, of type URLs, and of each type after the first.
    pub bytes: usize,
}

impl KeptNames {
    pub(super) fn enter(&mut self, name: &Name, sent: &SentState) {
        self.names += 1;
        self.unsent += usize::from(sent.holds.is_empty());
        self.bytes += name.as_str().len();
    }

    pub(super) fn leave(&mut self, name: &Name, sent: &SentState) {
        self.names -= 1;
        self.unsent -= usize::from(sent.holds.is_empty());
        self.bytes -= name.as_str().len();
    }

    pub(super) fn change(&mut self, before: SetVersion, now: SetVersion) {
        self.unsent += usize::from(now.is_empty());
        self.unsent -= usize::from(before.is_empty());
    }

    /// Returns the sum.
    pub(super) fn plus(self, other: Self) -> Self {
        let (names, unsent) = (self.names + other.names, self.unsent + other.unsent);
        Self { names, unsent, bytes: self.bytes + other.bytes }
    }
}
