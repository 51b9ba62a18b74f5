//! A state file without a disk, filled by a snapshot.

use redb::Database;
use redb::backends::InMemoryBackend;

use super::file::{self, FileFault};
use super::load::Stored;
use super::portable;

/// A state file in memory, without encryption: what `weir snapshot import` makes of a snapshot.
pub struct MemoryStateFile(Database);

impl MemoryStateFile {
    /// Makes a state file without views.
    pub fn new() -> Result<Self, String> {
        file::open_on(InMemoryBackend::new(), false).map(Self).map_err(|fault| fault.to_string())
    }

    /// Fills the file with the contents of a snapshot. The error says why the snapshot is refused.
    pub fn import(&self, mut snapshot: &[u8]) -> Result<(), String> {
        portable::read(&mut snapshot, &self.0, None).map_err(|fault| fault.to_string())
    }

    /// Returns a snapshot of the file. `None`: a relay would set the file aside, because its contents do not fit together.
    pub fn export(&self) -> Result<Option<Vec<u8>>, String> {
        let stored = match Stored::read(&self.0, None) {
            Ok(stored) => stored,
            Err(FileFault::Unusable(_)) => return Ok(None),
            Err(fault) => return Err(fault.to_string()),
        };
        let mut snapshot = Vec::new();
        portable::write(&stored, true, &mut snapshot).map_err(|fault| fault.to_string())?;
        Ok(Some(snapshot))
    }
}
