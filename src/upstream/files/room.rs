//! The memory of the bodies of files. Bodies are charged before it is decided which of them have room, so that no two loads get the same room.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_core::xds::BodyStore;

use crate::memory::{Charge, Memory};

/// The charge for the bodies of all files.
#[derive(Debug)]
pub(super) struct FilesRoom {
    memory: Arc<Memory>,
    charge: Mutex<Charge>,
}

/// The turn of one load to find room. When it ends, the bodies that are left are charged.
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

    /// Charges all bodies, including those that other loads have read and not decided on yet.
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

    /// Returns by how many bytes new resources exceed the room, and why; `None` if they fit. Their bodies are charged already.
    pub(super) fn excess_of(&self, bytes: usize, bodies: usize) -> Option<(usize, String)> {
        self.memory.excess_of(bytes, bodies)
    }
}

impl Drop for RoomTurn<'_> {
    fn drop(&mut self) {
        self.charge_bodies();
    }
}
