//! Keeps a view while a session is about to join it.

use std::sync::Arc;

/// Keeps a view from being removed: from when a session looks it up until the view task has released the session.
#[derive(Debug, Clone, Default)]
pub(super) struct Stay(Arc<()>);

impl Stay {
    /// Whether this is the only one left of its view. The caller ensures that no other can be made meanwhile.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
