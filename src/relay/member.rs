//! A session as its view has it, and what keeps the view while it is on its way in.

use std::ops::Deref;
use std::sync::Arc;

use super::session_handle::SessionHandle;

/// Keeps a view from being retired: from when a session looks it up until its owner has let go of the session.
#[derive(Debug, Clone, Default)]
pub(super) struct Stay(Arc<()>);

impl Stay {
    /// Nobody else has one of this view. Whoever asks sees to it that nobody can get one meanwhile.
    pub fn is_last(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// A session that joins a view, or has joined it.
///
/// Dropped, it wakes the session: an owner that panics drops those that it has and those that were on their way, after it has closed
/// its channel, and by that each of them sees that its view is gone.
pub(super) struct Member {
    seat: Arc<SessionHandle>,
    _stay: Stay,
}

impl Member {
    pub fn new(seat: Arc<SessionHandle>, stay: Stay) -> Self {
        Self { seat, _stay: stay }
    }
}

impl Deref for Member {
    type Target = SessionHandle;

    fn deref(&self) -> &SessionHandle {
        &self.seat
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.seat.wake();
    }
}
