//! What an audit needs to know about a stream.

use super::stream::Stream;

/// What an audit needs to know about a stream. A plain record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AuditedStream {
    /// The server is a relay: it answers from the cache that it has for all clients of the same key.
    pub(crate) is_of_relay: bool,
    /// Resources that the server removes stay in the view.
    pub(crate) ignores_deletions: bool,
}

impl AuditedStream {
    pub(crate) fn of(stream: &Stream) -> Self {
        Self { is_of_relay: stream.opening.is_relay(), ignores_deletions: stream.terms.quirks.ignore_deletions }
    }
}
