//! All open client streams by their numbers, so that operators can read them page by page.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::session_handle::SessionHandle;
use crate::protocol::view::SessionId;

/// The streams of a process, those that views have to the hub included.
#[derive(Default)]
pub(crate) struct Clients {
    last: AtomicU64,
    /// Locked for one entry, or to copy the handles of one chunk.
    open: Mutex<BTreeMap<u64, Weak<SessionHandle>>>,
}

impl Clients {
    /// Returns a number that no stream of this process has had.
    pub(super) fn next_id(&self) -> SessionId {
        SessionId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn enter(&self, session: &Arc<SessionHandle>) {
        self.lock().insert(session.id.0, Arc::downgrade(session));
    }

    pub(super) fn leave(&self, id: SessionId) {
        self.lock().remove(&id.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<SessionHandle>> {
        self.lock().get(&id)?.upgrade()
    }

    /// Returns the next streams after a number, at most so many.
    pub(crate) fn after(&self, id: u64, count: usize) -> Vec<Arc<SessionHandle>> {
        let open = self.lock();
        open.range((Excluded(id), Unbounded)).filter_map(|(_, session)| session.upgrade()).take(count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<SessionHandle>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
