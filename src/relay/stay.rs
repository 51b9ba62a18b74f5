//! What keeps a view while somebody is on the way in.

use std::sync::Arc;

/// Keeps a view from being retired: from when a session looks it up until its owner has let go of the session.
#[derive(Debug, Clone, Default)]
pub(super) struct Stay(Arc<()>);

impl Stay {
    /// Nobody else has one of this view. Whoever asks sees to it that nobody can get one meanwhile.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
