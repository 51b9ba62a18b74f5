//! Parses one file's bytes into resources with names and versions.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::SetOnce;
use weir_core::proto::discovery;
use weir_core::xds::{BodyStore, Malformed, Name, Resource, Type, TypeTable, name_of_entry};

use super::FileError;
use super::room::{FilesRoom, RoomTurn};
use crate::memory::Memory;
use crate::transcode::Transcoder;
use crate::transcode::document::{DocumentError, FileResource, Format, read_resources};

/// A resource of a file.
#[derive(Debug, Clone)]
pub(super) struct FileEntry {
    pub(crate) kind: Type,
    pub(crate) name: Name,
    pub(crate) resource: Arc<Resource>,
    pub(crate) line: Option<u64>,
}

/// What the parsing of files needs.
#[derive(Debug, Clone)]
pub(crate) struct Parser {
    pub(crate) table: Arc<TypeTable>,
    /// `None`: the transcoder with the embedded descriptors, which are unpacked when the first file is read.
    pub(crate) transcoder: Option<Arc<Transcoder>>,
    /// The bodies of all files. They are in memory whatever clients request, so they are not in the limited store.
    store: Arc<BodyStore>,
    /// The memory for files, once [`Self::bound_by`] has set it.
    room: Arc<SetOnce<FilesRoom>>,
    /// Files are not read before `room` is set.
    is_bounded: bool,
}

impl Parser {
    pub(crate) fn new(table: TypeTable, transcoder: Option<Arc<Transcoder>>) -> Self {
        Self { table: Arc::new(table), transcoder, store: Arc::default(), room: Arc::default(), is_bounded: false }
    }

    /// Lets files be read only after [`Self::bound_by`].
    pub(crate) fn until_bound(self) -> Self {
        Self { is_bounded: true, ..self }
    }

    /// Lets files be read from now on. They have room as far as there is memory, and their bodies are charged.
    pub(crate) fn bound_by(&self, memory: &Arc<Memory>) {
        let _ = self.room.set(FilesRoom::of(memory)); // it is the same in each generation
    }

    /// Waits until files may be read.
    pub(super) async fn bound(&self) {
        if self.is_bounded {
            self.room.wait().await;
        }
    }

    pub(super) fn memory(&self) -> Option<&Arc<Memory>> {
        self.room.get().map(FilesRoom::memory)
    }

    /// Charges all bodies. Until the result is dropped, no other load finds room. `None`: room is not limited.
    pub(super) fn room(&self) -> Option<RoomTurn<'_>> {
        self.room.get().map(|room| room.turn(&self.store))
    }

    /// Charges the present bodies: some may have been dropped since they were read.
    pub(crate) fn charge_bodies(&self) {
        drop(self.room());
    }

    /// Returns whether a file's name is that of a resource file.
    pub(super) fn takes(path: &Path) -> bool {
        Format::of_path(path).is_some()
    }

    pub(super) fn read(&self, path: &Path, bytes: &[u8]) -> Result<Vec<FileEntry>, FileError> {
        if bytes.is_empty() {
            return Err(FileError::of(path, "it is empty; a file without resources says so"));
        }
        let Some(format) = Format::of_path(path) else { return Err(FileError::of(path, "its format is not known")) };
        let transcoder = self.transcoder.clone().unwrap_or_else(Transcoder::envoy);
        let resources = read_resources(&transcoder, format, bytes).map_err(|error| fault(path, error))?;
        let (mut entries, mut seen) = (Vec::with_capacity(resources.len()), HashSet::new());
        for resource in resources {
            let line = resource.line;
            let reject = |error: EntryError| FileError { line, ..FileError::of(path, &error.to_string()) };
            let entry = self.entry(resource).map_err(reject)?;
            if !seen.insert((entry.kind.clone(), entry.name.clone())) {
                return Err(reject(EntryError::Twice { kind: entry.kind, name: entry.name }));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The wrapper's name wins over the body's (TYPE-10).
    fn entry(&self, resource: FileResource) -> Result<FileEntry, EntryError> {
        let (kind, line) = (self.table.resolve(&resource.type_url), resource.line);
        let beside = resource.name.as_deref().filter(|name| !name.is_empty()).map(Name::canonical);
        let name = name_of_entry(&kind, beside, &resource.type_url, &resource.body);
        let name = name.ok_or_else(|| match kind.info().name_field {
            Some(_) => EntryError::NoName(kind.clone()),
            None => EntryError::NoWrapper(kind.clone()),
        })?;
        let wrapper = discovery::Resource { name: name.to_string(), ..resource.into_wrapper() };
        let resource = Resource::from_wrapper(0, wrapper, &kind, &self.store)?;
        Ok(FileEntry { kind, name, resource: Arc::new(resource), line })
    }
}

/// Why a resource of a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum EntryError {
    #[error("a {} without a name", .0.name())]
    NoName(Type),
    #[error("a {} has its name in a wrapper around it, and this one has none", .0.name())]
    NoWrapper(Type),
    #[error("{} {name} is in this file twice", kind.name())]
    Twice { kind: Type, name: Name },
    #[error(transparent)]
    Unusable(#[from] Malformed),
}

fn fault(path: &Path, error: DocumentError) -> FileError {
    let line = error.faults.first().and_then(|fault| fault.line);
    FileError { line, ..FileError::of(path, &error.to_string()) }
}
