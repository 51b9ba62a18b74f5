//! What a view task has published, for its sessions to read.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::limits::Limits;
use crate::protocol::view::{Leases, Snapshot};

/// The newest state and the states that sessions are in the middle of. The lock is held for one reply in the making, and
/// nothing waits inside it.
#[derive(Debug)]
pub(crate) struct Published {
    /// Sessions that are kept waiting without a bound.
    pub(crate) waiting: AtomicUsize,
    inner: Mutex<(Arc<Snapshot>, Leases)>,
}

impl Published {
    pub(crate) fn new(limits: Arc<Limits>) -> Self {
        Self { waiting: AtomicUsize::new(0), inner: Mutex::new((Arc::default(), Leases::new(limits))) }
    }

    pub(crate) fn replace(&self, state: &Arc<Snapshot>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0 = state.clone();
    }

    pub(crate) fn read<T>(&self, with: impl FnOnce(&Arc<Snapshot>, &mut Leases) -> T) -> T {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, leases) = &mut *inner;
        with(state, leases)
    }
}
