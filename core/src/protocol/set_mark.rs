//! The mark by which a relay shows a downstream relay whether a `*` set is complete. The protocol has no field for that (XLAT-12), so the
//! mark is in `system_version_info` of a delta response, whose contents a server may choose.

/// The name of the response header by which relays recognize each other. A relay reports absent names itself. Its silence proves nothing,
/// because its own servers may be away.
pub const RELAY_HEADER: &str = "weir-relay";

/// Whether what was sent, up to and with this response, is the complete set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetMark {
    /// The client now has the complete set.
    Complete,
    /// The set is incomplete, or no longer known to be complete.
    Partial,
}

impl SetMark {
    /// Returns the text that carries the mark in `system_version_info`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Complete => "weir.set=complete",
            Self::Partial => "weir.set=partial",
        }
    }

    /// Reads the mark from a server's text, which may not be that of a relay.
    pub(crate) fn of(text: &str) -> Option<Self> {
        [Self::Complete, Self::Partial].into_iter().find(|mark| mark.text() == text)
    }
}
