//! The state file: opening it, setting an unusable one aside, and its tables.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, StorageBackend, TableDefinition, TableError};

use super::asked_disk::AskedDisk;
use super::records::{DamagedRecord, FORMAT, stamped, verified};
use crate::relay::StateLoad;

/// Properties of the file.
pub(super) const ABOUT: TableDefinition<&str, &[u8]> = TableDefinition::new("about");
/// Views, by number.
pub(super) const VIEWS: TableDefinition<u32, &[u8]> = TableDefinition::new("views");
/// Resources of views, by [`super::records::resource_key`].
pub(super) const RESOURCES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("resources");
/// Bodies, by the hash of type and body.
pub(super) const BODIES: TableDefinition<&[u8], &[u8]> = TableDefinition::new("bodies");

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileFault {
    /// Another process has it open, perhaps the one that this process replaces.
    #[error("another process has it open")]
    InUse,
    /// It was not written by a relay of this version.
    #[error("{0}")]
    Unusable(String),
    /// The disk, or missing rights to the file.
    #[error("{0}")]
    Disk(String),
}

/// Opens the file, or makes a new one. Only the structure of an existing file is checked here.
pub(super) fn open(path: &Path, is_sealed: bool) -> Result<Database, FileFault> {
    open_asking(path, is_sealed, &Arc::default())
}

/// Opens the file for a load, which has to know whether the disk answers.
pub(super) fn open_asking(path: &Path, is_sealed: bool, load: &Arc<StateLoad>) -> Result<Database, FileFault> {
    let disk = load.ask(|| {
        let file = open_for_own_user(path).map_err(|error| FileFault::Disk(error.to_string()))?;
        Ok::<_, FileFault>(FileBackend::new(file)?)
    })?;
    open_on(AskedDisk { disk, load: load.clone() }, is_sealed)
}

/// Opens a database on any storage.
pub(super) fn open_on(backend: impl StorageBackend, is_sealed: bool) -> Result<Database, FileFault> {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
    let opened = guarded(|| Ok(builder.create_with_backend(backend)?))?;
    guarded(|| check_format(&opened, is_sealed))?;
    Ok(opened)
}

/// Runs a function that reads the file. A damaged file may make the database panic, which becomes an error.
pub(super) fn guarded<T>(run: impl FnOnce() -> Result<T, FileFault>) -> Result<T, FileFault> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(FileFault::Unusable("it is damaged".into())))
}

/// Writes the format into a new file, or compares it with that of an existing one.
fn check_format(database: &Database, is_sealed: bool) -> Result<(), FileFault> {
    let reading = database.begin_read()?;
    let known = match reading.open_table(ABOUT) {
        Ok(about) => about.get(FORMAT_KEY)?.map(|format| format.value().to_vec()),
        Err(TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    drop(reading);
    match known {
        Some(record) => {
            let record = verified(FORMAT_KEY.as_bytes(), &record)?;
            let (format, sealed) = record.split_first_chunk().ok_or(DamagedRecord)?;
            let format = u32::from_le_bytes(*format);
            match (sealed == [1], is_sealed) {
                _ if format > FORMAT => Err(FileFault::Unusable(format!(
                    "a newer version has written it: its format is {format}, and this version reads {FORMAT}"
                ))),
                _ if format != FORMAT => Err(FileFault::Unusable(format!("its format is {format}, and not {FORMAT}"))),
                (true, false) => Err(FileFault::Unusable("it is encrypted, and state.key is not set".into())),
                (false, true) => Err(FileFault::Unusable("it is not encrypted, and state.key is set".into())),
                _ => Ok(()),
            }
        }
        None => {
            let writing = database.begin_write()?;
            let is_foreign = writing.list_tables()?.next().is_some();
            if is_foreign {
                return Err(FileFault::Unusable("another program has written it".into()));
            }
            let about = [&FORMAT.to_le_bytes()[..], &[u8::from(is_sealed)]].concat();
            let record = stamped(FORMAT_KEY.as_bytes(), about);
            writing.open_table(ABOUT)?.insert(FORMAT_KEY, &*record)?;
            writing.open_table(VIEWS)?;
            writing.open_table(RESOURCES)?;
            writing.open_table(BODIES)?;
            writing.commit()?;
            Ok(())
        }
    }
}

/// Opens a file that no other user may read. A link is not followed: it could lead to a file that others may read.
fn open_for_own_user(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(OWN_USER).custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    file.set_permissions(Permissions::from_mode(OWN_USER))?;
    Ok(file)
}

/// Renames an unusable file, so that it can be examined. A few such files are kept.
pub(super) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let number = |aside: &Path| -> Option<u64> {
        aside.file_name()?.to_str()?.strip_prefix(&name)?.strip_prefix(ASIDE)?.parse().ok()
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut known: Vec<_> = std::fs::read_dir(folder)?
        .filter_map(|entry| Some((number(&entry.as_ref().ok()?.path())?, entry.ok()?.path())))
        .collect();
    known.sort();
    let next = known.last().map_or(1, |(last, _)| last + 1);
    let aside = path.with_file_name(format!("{name}{ASIDE}{next}"));
    std::fs::rename(path, &aside)?;
    let old = known.len().saturating_sub(KEPT_ASIDE - 1);
    known[..old].iter().try_for_each(|(_, path)| std::fs::remove_file(path))?;
    Ok(aside)
}

impl From<redb::Error> for FileFault {
    fn from(error: redb::Error) -> Self {
        let is_of_content =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
        match error {
            redb::Error::DatabaseAlreadyOpen | redb::Error::LockProtocolMismatch => Self::InUse,
            redb::Error::Io(error) if error.to_string().contains(NO_DATABASE) => {
                Self::Unusable("it is no state file".to_owned())
            }
            redb::Error::Io(error) if !is_of_content(&error) => Self::Disk(error.to_string()),
            error => Self::Unusable(error.to_string()),
        }
    }
}

/// The library's error for a file of another format.
const NO_DATABASE: &str = "Not a redb database";

macro_rules! from_errors {
    ($($error:ty),*) => {$(
        impl From<$error> for FileFault {
            fn from(error: $error) -> Self {
                redb::Error::from(error).into()
            }
        }
    )*};
}

from_errors!(redb::DatabaseError, redb::TransactionError, redb::TableError, redb::StorageError, redb::CommitError);

impl From<DamagedRecord> for FileFault {
    fn from(damaged: DamagedRecord) -> Self {
        Self::Unusable(damaged.to_string())
    }
}

const FORMAT_KEY: &str = "format";
const OWN_USER: u32 = 0o600;
const ASIDE: &str = ".unusable-";
const KEPT_ASIDE: usize = 3;
/// Memory for pages of the file, which is read only once and written where something changes.
const CACHE: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_were_set_aside_are_numbered_on_and_the_oldest_go() {
        let folder = std::env::temp_dir().join(format!("weir-aside-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder); // of an earlier run
        std::fs::create_dir_all(&folder).unwrap();
        let others = ["other.unusable-1", "state.unusable-x", "state-2.unusable-3"];
        for name in ["state", "state.unusable-2", "state.unusable-9", "state.unusable-10"].into_iter().chain(others) {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let aside = set_aside(&folder.join("state")).unwrap();
        assert_eq!(aside, folder.join("state.unusable-11"));
        assert_eq!(std::fs::read_to_string(aside).unwrap(), "state");
        let left = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let expected = ["state.unusable-10", "state.unusable-11", "state.unusable-9"].into_iter().chain(others);
        assert_eq!(left.collect::<std::collections::BTreeSet<_>>(), expected.map(str::to_owned).collect());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
