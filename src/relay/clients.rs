//! All open client streams by their numbers, so that operators can read them page by page.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::protocol::view::SessionId;

/// The streams of a process, those that views have to the hub included, with a handle of each.
pub(crate) struct Clients<T> {
    last: AtomicU64,
    /// Locked for one entry, or to copy the handles of one chunk.
    open: Mutex<BTreeMap<u64, Weak<T>>>,
}

impl<T> Default for Clients<T> {
    fn default() -> Self {
        Self { last: AtomicU64::new(0), open: Mutex::default() }
    }
}

impl<T> Clients<T> {
    /// Returns a number that no stream of this process has had.
    pub(super) fn next_id(&self) -> SessionId {
        SessionId(self.last.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(super) fn enter(&self, id: SessionId, handle: &Arc<T>) {
        self.lock().insert(id.0, Arc::downgrade(handle));
    }

    pub(super) fn leave(&self, id: SessionId) {
        self.lock().remove(&id.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn get(&self, id: u64) -> Option<Arc<T>> {
        self.lock().get(&id)?.upgrade()
    }

    /// Returns the next streams after a number, at most so many.
    pub(crate) fn after(&self, id: u64, count: usize) -> Vec<Arc<T>> {
        let open = self.lock();
        open.range((Excluded(id), Unbounded)).filter_map(|(_, handle)| handle.upgrade()).take(count).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Weak<T>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
