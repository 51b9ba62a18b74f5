//! A disk that loses power: each write since the last sync may then be there, in whole, in part, or not at all.

use std::io;
use std::sync::{Arc, Mutex};

use redb::StorageBackend;

#[derive(Debug, Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Media>>);

#[derive(Debug, Default)]
struct Media {
    /// The content after the last sync.
    synced: Vec<u8>,
    /// The content that reads find.
    now: Vec<u8>,
    /// Writes since the last sync, each with its offset.
    unsynced: Vec<(usize, Vec<u8>)>,
    /// How many more operations succeed.
    left: Option<usize>,
}

impl Disk {
    pub(super) fn holding(bytes: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(Media { synced: bytes.clone(), now: bytes, ..Media::default() })))
    }

    /// Makes all operations fail after this number of writes and syncs.
    pub(super) fn fail_after(&self, operations: usize) {
        self.0.lock().unwrap().left = Some(operations);
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().now.clone()
    }

    /// Returns the content after a loss of power. `keeps` returns how much of each write since the last sync was done.
    pub(super) fn after_power_loss(&self, mut keeps: impl FnMut(usize) -> usize) -> Vec<u8> {
        let media = self.0.lock().unwrap();
        let mut bytes = media.synced.clone();
        bytes.resize(bytes.len().max(media.now.len()), 0);
        for (offset, data) in &media.unsynced {
            let kept = keeps(data.len()).min(data.len());
            let end = (offset + kept).min(bytes.len());
            if end > *offset {
                bytes[*offset..end].copy_from_slice(&data[..end - offset]);
            }
        }
        bytes
    }
}

impl Media {
    fn operation(&mut self) -> io::Result<()> {
        match &mut self.left {
            Some(0) => return Err(io::Error::other("no power")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let media = self.0.lock().unwrap();
        let at = offset as usize;
        let found = media.now.get(at..at + out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut media = self.0.lock().unwrap();
        media.operation()?;
        media.now.resize(len as usize, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut media = self.0.lock().unwrap();
        media.operation()?;
        media.synced = media.now.clone();
        media.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut media = self.0.lock().unwrap();
        media.operation()?;
        let at = offset as usize;
        if media.now.len() < at + data.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        media.now[at..at + data.len()].copy_from_slice(data);
        media.unsynced.push((at, data.to_vec()));
        Ok(())
    }
}
