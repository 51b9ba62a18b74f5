//! All open client streams by their numbers, so that operators can read them page by page.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::SessionId;
use weir_core::xds::Peer;

use super::taps::Taps;

/// What is known of a client stream from its start.
#[derive(Debug)]
pub(crate) struct ClientFacts {
    pub(crate) id: SessionId,
    pub(crate) variant: Variant,
    pub(crate) node_id: String,
    pub(crate) user_agent: Box<str>,
    /// The hash of the sharing key.
    pub(crate) key: String,
    pub(crate) peer: Arc<Peer>,
    /// True for a stream, whose client answers replies; false for a call with one reply, such as a poll.
    pub(crate) is_stream: bool,
    pub(crate) connected: Moment,
}

/// The open streams of the process with their handles, including those from views to the hub.
pub(crate) struct Clients<T> {
    last: AtomicU64,
    /// Locked for one entry, or to copy the handles of one chunk.
    open: Mutex<BTreeMap<u64, Weak<T>>>,
    taps: Arc<Taps>,
    /// The streams that have a wait. Sharded, since streams enter and leave with each burst.
    waiting: [Mutex<HashSet<u64>>; SHARDS],
}

impl<T> Default for Clients<T> {
    fn default() -> Self {
        Self { last: AtomicU64::new(0), open: Mutex::default(), taps: Arc::default(), waiting: Default::default() }
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
        self.note_waiting(id, false);
    }

    /// Notes whether a stream has a wait, so that reports need not look at all streams.
    pub(super) fn note_waiting(&self, id: SessionId, waits: bool) {
        let mut waiting = self.waiting_like(id.0);
        match waits {
            true => drop(waiting.insert(id.0)),
            false => drop(waiting.remove(&id.0)),
        }
    }

    /// Returns the numbers of the streams that have a wait.
    pub(super) fn waiting(&self) -> Vec<u64> {
        (0..SHARDS as u64).flat_map(|like| self.waiting_like(like).iter().copied().collect::<Vec<_>>()).collect()
    }

    fn waiting_like(&self, id: u64) -> MutexGuard<'_, HashSet<u64>> {
        self.waiting[id as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the taps, which show what single clients request and are sent.
    pub(crate) fn taps(&self) -> &Arc<Taps> {
        &self.taps
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

const SHARDS: usize = 16;
