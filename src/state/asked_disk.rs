//! The disk of the state file, observed for whether it answers.

use std::io;
use std::ops::Bound;
use std::sync::Arc;

use redb::{BackendError, StorageBackend};

use crate::relay::StateLoad;

/// Passes every call on to the disk, and records while it has not answered.
#[derive(Debug)]
pub(super) struct AskedDisk<B> {
    pub(super) disk: B,
    pub(super) load: Arc<StateLoad>,
}

impl<B: StorageBackend> StorageBackend for AskedDisk<B> {
    fn len(&self) -> io::Result<u64> {
        self.load.ask(|| self.disk.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.load.ask(|| self.disk.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.load.ask(|| self.disk.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.load.ask(|| self.disk.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.load.ask(|| self.disk.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.load.ask(|| self.disk.close())
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.load.ask(|| self.disk.try_lock_range(start, end))
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.load.ask(|| self.disk.try_lock_shared_range(start, end))
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.load.ask(|| self.disk.lock_range(start, end))
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.load.ask(|| self.disk.lock_shared_range(start, end))
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.load.ask(|| self.disk.unlock_range(start, end))
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.load.ask(|| self.disk.query_lock_range(start, end))
    }
}
