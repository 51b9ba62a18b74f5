//! Limits of all sources.

use weir_core::protocol::upstream::BackoffTimes;

/// Limits that all sources have in common.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct SourceLimits {
    pub(crate) message_bytes: usize,
    pub(crate) file_bytes: u64,
    /// The default backoff of all servers.
    pub(crate) backoff: BackoffTimes,
}
