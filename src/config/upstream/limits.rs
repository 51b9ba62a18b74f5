//! What bounds all sources alike.

use crate::protocol::upstream::BackoffTimes;

/// Of all sources alike.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct SourceLimits {
    pub message_bytes: usize,
    pub file_bytes: u64,
    /// Where nothing else is said of a server.
    pub backoff: BackoffTimes,
}
