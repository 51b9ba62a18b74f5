//! One file: its last reading, its last good version, and whether it has to be read again.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use weir_core::xds::{Malformed, Name, Type};
use xxhash_rust::xxh3::xxh3_128;

use super::FileError;
use super::disk_wait::DiskWait;
use super::parse::{FileEntry, Parser};
use crate::file_access::{Stamp, YOUNG};

/// The state of one file.
#[derive(Default)]
pub(super) struct Known {
    /// The stamp of the last reading, or of the last attempt.
    stamp: Option<Stamp>,
    /// When it was read. None while the file has to be read again, whatever its stamp.
    read: Option<SystemTime>,
    bytes: Option<u128>,
    /// The contents of the file while its writer may still be writing, and since when they are the same.
    unsettled: Option<(Stamp, u128, Instant)>,
    /// The version that is served.
    good: Option<Arc<[FileEntry]>>,
    /// Parsed without errors, and not applied yet.
    new: Option<Arc<[FileEntry]>>,
    fault: Option<FileError>,
    /// Another file defines a resource of this one.
    conflict: Option<FileError>,
    /// The resources of the file that had no room, and the errors that report them.
    lacking: Vec<Lacking>,
    too_much: Vec<FileError>,
    /// Since when the file is missing.
    missing: Option<Instant>,
}

/// A resource for which there was no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lacking {
    pub(crate) kind: Type,
    pub(crate) name: Name,
    pub(crate) bytes: usize,
    line: Option<u64>,
}

/// The time of a reading by two clocks: the one that stamps are compared with, and a monotonic one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clocks {
    pub(super) wall: SystemTime,
    pub(super) steady: Instant,
}

impl Clocks {
    pub(super) fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }
}

pub(super) enum Reading {
    Same,
    Changed,
    Unsettled,
}

impl Known {
    /// Reads the file unless it is unchanged, and returns the result.
    pub(crate) fn read(
        &mut self,
        path: &Path,
        stamp: Stamp,
        parser: &Parser,
        limit: u64,
        clocks: Clocks,
        disk: &DiskWait,
    ) -> Reading {
        let back = self.missing.take().is_some();
        if back {
            // The file was created again in its place, and may be incomplete like one that is written in place.
            (self.stamp, self.read) = (Some(stamp), None);
        }
        let certain = |read: &SystemTime| !stamp.is_fresh(*read);
        if self.stamp == Some(stamp) && self.read.as_ref().is_some_and(certain) {
            return Reading::Same;
        }
        let Clocks { wall: now, steady } = clocks;
        disk.begin(path);
        let bytes = bytes_of(path, stamp, limit);
        disk.end();
        let bytes = match bytes {
            Ok(Some(bytes)) => bytes,
            // Read again with the same identity: writes to it are writes in place.
            Ok(None) => {
                (self.stamp, self.read) = (Some(stamp), None);
                return Reading::Unsettled;
            }
            Err(reason) => {
                self.stamp = Some(stamp);
                self.forget_reading();
                return self.refuse(FileError::of(path, &reason.to_string()));
            }
        };
        let hash = xxh3_128(&bytes);
        if self.bytes == Some(hash) {
            (self.stamp, self.read) = (Some(stamp), Some(now));
            // Its resources may be waiting for another file that had them.
            return if back && self.new.is_some() { Reading::Changed } else { Reading::Same };
        }
        let read = parser.read(path, &bytes);
        // Half of a file may parse. If a file is being written in place and lacks resources, it is read once more shortly.
        let in_place = self.stamp.is_some_and(|before| before.is_same_file(stamp)) && stamp.is_young(now);
        if in_place
            && read.as_ref().is_ok_and(|entries| self.would_lose(entries))
            && !self.has_settled(stamp, hash, steady)
        {
            return Reading::Unsettled;
        }
        self.unsettled = None;
        (self.stamp, self.read, self.bytes) = (Some(stamp), Some(now), Some(hash));
        match read {
            Ok(entries) => {
                (self.new, self.fault) = (Some(entries.into()), None);
                Reading::Changed
            }
            Err(fault) => self.refuse(fault),
        }
    }

    /// Whether the file has been unchanged for long enough. Its stamp alone may look young for long, because the clock of the disk may be ahead.
    fn has_settled(&mut self, stamp: Stamp, hash: u128, now: Instant) -> bool {
        let same = self.unsettled.filter(|(of, content, _)| (*of, *content) == (stamp, hash));
        let (.., since) = *self.unsettled.insert(same.unwrap_or((stamp, hash, now)));
        now.duration_since(since) >= YOUNG
    }

    /// Makes the next look read the file again and apply the result even if it is unchanged.
    pub(crate) fn forget_reading(&mut self) {
        (self.read, self.bytes) = (None, None);
    }

    fn refuse(&mut self, fault: FileError) -> Reading {
        let changed = self.new.take().is_some();
        self.fault = Some(fault);
        if changed { Reading::Changed } else { Reading::Same }
    }

    /// Returns whether a new reading lacks a resource that is served.
    fn would_lose(&self, entries: &[FileEntry]) -> bool {
        let new: HashSet<_> = entries.iter().map(|entry| (&entry.kind, &entry.name)).collect();
        self.served().any(|entry| !new.contains(&(&entry.kind, &entry.name)))
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.missing.is_some()
    }

    /// Notes that the file is missing, and returns since when.
    pub(crate) fn note_missing(&mut self, now: Instant) -> Instant {
        *self.missing.get_or_insert(now)
    }

    /// Notes that it is not known whether the file is missing.
    pub(crate) fn forget_missing(&mut self) {
        self.missing = None;
    }

    pub(crate) fn has_good(&self) -> bool {
        self.good.is_some()
    }

    /// Returns the entries that are served.
    pub(crate) fn served(&self) -> impl Iterator<Item = &FileEntry> {
        self.good.iter().flat_map(|good| good.iter())
    }

    /// Stops serving resources that another file has now.
    pub(crate) fn drop_moved(&mut self, elsewhere: &HashSet<(&Type, &Name)>) {
        let Some(good) = &self.good else { return };
        let (moved, left): (Vec<_>, Vec<_>) =
            good.iter().cloned().partition(|entry| elsewhere.contains(&(&entry.kind, &entry.name)));
        if !moved.is_empty() {
            self.good = Some(left.into());
            self.forget_reading(); // if it comes back, it is one more file with these resources
        }
    }

    pub(crate) fn has_conflict(&self) -> bool {
        self.conflict.is_some()
    }

    /// Notes that another file defines a resource of this one. Returns false if a conflict of this file is known already.
    pub(crate) fn note_conflict(&mut self, conflict: FileError) -> bool {
        let is_new = self.conflict.is_none();
        self.conflict.get_or_insert(conflict);
        is_new
    }

    pub(crate) fn forget_conflict(&mut self) {
        self.conflict = None;
    }

    /// Returns the entries that the file would have without conflicts, each with its line: those that are served, and those without room. Entries
    /// without room count too; otherwise memory would decide which of two files has a resource.
    pub(crate) fn candidate(&self) -> impl Iterator<Item = (&Type, &Name, Option<u64>)> {
        let new = self.new.as_ref().filter(|_| self.conflict.is_none());
        let lacking: &[Lacking] = if new.is_some() { &[] } else { &self.lacking }; // that is of the good version
        let entries = new.or(self.good.as_ref()).into_iter().flat_map(|entries| entries.iter());
        let lacking = lacking.iter().map(|of| (&of.kind, &of.name, of.line));
        entries.map(|entry| (&entry.kind, &entry.name, entry.line)).chain(lacking)
    }

    pub(crate) fn take_over(&mut self) {
        if self.is_to_be_taken_over() {
            self.good = self.new.take();
        }
    }

    fn is_to_be_taken_over(&self) -> bool {
        self.conflict.is_none() && self.missing.is_none() && self.new.is_some()
    }

    /// Returns the entries of the new version, if it is to be served.
    pub(crate) fn to_be_served(&self) -> impl Iterator<Item = &FileEntry> {
        let new = self.new.as_ref().filter(|_| self.is_to_be_taken_over());
        new.into_iter().flat_map(|entries| entries.iter())
    }

    /// Removes from the new version the resources that have no room. The rest of the version is served.
    pub(crate) fn leave_out(&mut self, path: &Path, has_room: impl Fn(&FileEntry) -> bool, why: &str) {
        if !self.is_to_be_taken_over() {
            return;
        }
        self.forget_lacking();
        let Some(new) = self.new.take() else { return };
        let (stays, out): (Vec<_>, Vec<_>) = new.iter().cloned().partition(has_room);
        self.new = Some(if out.is_empty() { new } else { stays.into() });
        for FileEntry { kind, name, resource, line } in out {
            let bytes = resource.body.bytes().len();
            if self.too_much.len() < REPORTED {
                let error = Malformed::NoRoom { name: name.clone(), bytes, why: why.into() };
                self.too_much.push(FileError { line, ..FileError::of(path, &error.to_string()) });
            }
            self.lacking.push(Lacking { kind, name, bytes, line });
        }
    }

    /// Returns the resources of the file that had no room.
    pub(crate) fn lacking(&self) -> &[Lacking] {
        &self.lacking
    }

    /// Whether the served version is the present content of the file, apart from resources without room. Only then are its resources without room
    /// those of the served version.
    pub(crate) fn may_be_taken_anew(&self) -> bool {
        self.fault.is_none() && self.conflict.is_none() && self.new.is_none()
    }

    /// Whether an error of the file says that a resource has no room.
    pub(crate) fn is_without_room(&self, fault: &FileError) -> bool {
        self.too_much.contains(fault)
    }

    fn forget_lacking(&mut self) {
        self.lacking.clear();
        self.too_much.clear();
    }

    pub(crate) fn faults(&self) -> impl Iterator<Item = &FileError> {
        self.fault.iter().chain(&self.conflict).chain(&self.too_much)
    }
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("it is larger than {limit} bytes, which is the limit (limits.file_bytes)")]
    TooLarge { limit: u64 },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns the complete file, unless it was written to or deleted meanwhile.
fn bytes_of(path: &Path, stamp: Stamp, limit: u64) -> Result<Option<Vec<u8>>, ReadError> {
    if stamp.size > limit {
        return Err(ReadError::TooLarge { limit });
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None), // the next look finds out whether it is deleted
        opened => opened?,
    };
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or_default());
    (&file).take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(ReadError::TooLarge { limit });
    }
    let same = file.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == stamp);
    Ok(same.then_some(bytes))
}

/// Resources of one file without room that are reported one by one.
const REPORTED: usize = 20;
