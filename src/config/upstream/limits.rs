//! Limits of all sources.

use crate::protocol::upstream::BackoffTimes;

/// Of all sources alike.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct SourceLimits {
    pub(crate) message_bytes: usize,
    pub(crate) file_bytes: u64,
    /// The default for all servers.
    pub(crate) backoff: BackoffTimes,
}
