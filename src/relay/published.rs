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
}

impl Published {
    pub(super) fn new(limits: Arc<Limits>) -> Self {
        Self { waiting: AtomicUsize::new(0), newest: Mutex::default(), leases: Mutex::new(Leases::new(limits)) }
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
