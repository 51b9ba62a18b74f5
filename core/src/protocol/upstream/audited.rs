//! What an audit has to know of a stream.

use super::stream::Stream;

/// What an audit has to know of a stream. A plain record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditedStream {
    /// The server is a relay: it answers from what it has for all clients of the same key.
    pub(crate) is_of_relay: bool,
    /// What the server has removed stays.
    pub(crate) ignores_deletions: bool,
}

impl AuditedStream {
    pub(crate) fn of(stream: &Stream) -> Self {
        Self { is_of_relay: stream.opening.is_relay(), ignores_deletions: stream.terms.quirks.ignore_deletions }
    }
}
