//! The memory that the bodies of files take. They are charged before it is decided what of them has room, so that no two loads get the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::xds::BodyStore;

use crate::memory::{Charge, Memory};

/// What the bodies of all files are charged to.
#[derive(Debug)]
pub(super) struct FilesRoom {
    memory: Arc<Memory>,
    charge: Mutex<Charge>,
}

/// The turn of one load to find room. At its end, what is held then is charged.
pub(super) struct RoomTurn<'a> {
    memory: &'a Memory,
    charge: MutexGuard<'a, Charge>,
    store: &'a BodyStore,
}

impl FilesRoom {
    pub(super) fn of(memory: &Arc<Memory>) -> Self {
        Self { memory: memory.clone(), charge: Mutex::new(memory.common()) }
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Charges all bodies, those that other loads have read and not settled yet among them.
    pub(super) fn turn<'a>(&'a self, store: &'a BodyStore) -> RoomTurn<'a> {
        let charge = self.charge.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = RoomTurn { memory: &self.memory, charge, store };
        turn.charge_bodies();
        turn
    }
}

impl RoomTurn<'_> {
    fn charge_bodies(&self) {
        self.charge.set(self.store.bytes());
        self.charge.tell();
    }

    /// Returns by how many bytes new resources are too many, and why, if they are. Their bodies are charged already.
    pub(super) fn excess_of(&self, bytes: usize, bodies: usize) -> Option<(usize, String)> {
        self.memory.excess_of(bytes, bodies)
    }
}

impl Drop for RoomTurn<'_> {
    fn drop(&mut self) {
        self.charge_bodies();
    }
}
