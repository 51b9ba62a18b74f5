//! The snapshots that a view task has published, for its sessions to read.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::limits::Limits;
use crate::protocol::view::{LeaseAccess, Leases, Snapshot};

/// The newest snapshot of a view, and those that sessions have leased. No lock is held while a reply is made.
#[derive(Debug)]
pub(super) struct Published {
    /// How many sessions are blocked without a time limit.
    pub(super) waiting: AtomicUsize,
    newest: Mutex<Arc<Snapshot>>,
    leases: Mutex<Leases>,
    /// Places of the servers that have responded on a stream of this view which stands.
    responding: Mutex<Vec<u16>>,
}

impl Published {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        let (newest, responding) = Default::default();
        Self { waiting: AtomicUsize::new(0), newest, leases: Mutex::new(Leases::new(limits)), responding }
    }

    pub(super) fn note_responding(&self, servers: impl Iterator<Item = u16>) {
        let mut known = self.responding.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        known.extend(servers);
    }

    pub(super) fn responding(&self) -> Vec<u16> {
        self.responding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn replace(&self, snapshot: &Arc<Snapshot>) {
        let before =
            std::mem::replace(&mut *self.newest.lock().unwrap_or_else(PoisonError::into_inner), snapshot.clone());
        drop(before); // without the lock: an old snapshot may free much memory
    }

    pub(super) fn newest(&self) -> Arc<Snapshot> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LeaseAccess for &Published {
    fn access<T>(&mut self, with: impl FnOnce(&mut Leases) -> T) -> T {
        with(&mut self.leases.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
