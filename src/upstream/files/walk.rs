//! Finds the files: lists folders and reads stamps, and opens no file.

use std::collections::btree_map::Entry::Vacant;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::FileError;
use super::disk_wait::DiskWait;
use crate::file_access::Stamp;

/// Receives each folder before it is listed, so that no change in between is missed.
pub(super) trait Watch {
    /// Watches everything in the folder.
    fn inside(&mut self, folder: &Path);
    /// Watches only whether this one entry is created, removed or replaced.
    fn entry(&mut self, path: &Path);
}

#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(crate) files: BTreeMap<PathBuf, Stamp>,
    /// Configured paths that exist.
    pub(crate) present: BTreeSet<PathBuf>,
    /// Configured paths that do not exist although their parent folder does. They are in `lost` as well.
    pub(crate) absent: BTreeSet<PathBuf>,
    /// Paths that could not be read. What was known of them, and of what is below them, still counts.
    pub(crate) lost: Vec<FileError>,
    /// The listed folders, each by one path.
    folders: BTreeMap<(u64, u64), PathBuf>,
    disk: DiskWait,
}

/// The result of a search for a known file that a walk did not find.
pub(super) enum SearchResult {
    /// It exists, and is added to the walk. A file that is renamed while its folder is listed may be missing from the listing.
    There,
    /// The file is found by another path, to which links lead.
    Elsewhere(PathBuf),
    /// The walk could not read its path.
    Unknown,
    Nowhere,
}

impl Walk {
    /// Lists the files that `takes` accepts. Files that are configured by name are always listed.
    pub(crate) fn over(
        paths: &[PathBuf],
        limit: usize,
        takes: &dyn Fn(&Path) -> bool,
        watch: &mut dyn Watch,
        disk: &DiskWait,
    ) -> Self {
        let mut walk = Self { disk: disk.clone(), ..Self::default() };
        for path in paths {
            disk.begin(path);
            watch_way_to(path, watch);
            match fs::metadata(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    if path.parent().is_some_and(Path::is_dir) && is_nowhere(path) {
                        walk.absent.insert(path.clone());
                    }
                    walk.record_error(path, "it does not exist");
                }
                Err(error) => walk.record_error(path, &error.to_string()),
                Ok(metadata) => {
                    walk.present.insert(path.clone());
                    match metadata.is_dir() {
                        true => walk.folders_from(path, limit, takes, watch),
                        false if takes(path) => walk.file(path, &metadata),
                        false => walk.record_error(path, "its name does not end in a format that is known"),
                    }
                }
            }
        }
        walk
    }

    /// Looks again for a file that existed before.
    pub(crate) fn search(&mut self, path: &Path) -> SearchResult {
        // A missing configured folder may be unmounted; a missing configured file is treated like one in a folder.
        let absent = self.absent.contains(path);
        if self.lost.iter().any(|lost| path.starts_with(&lost.file) && !(absent && path == lost.file)) {
            return SearchResult::Unknown;
        }
        self.disk.begin(path);
        if let Some(other) = self.other_path_to(path) {
            return SearchResult::Elsewhere(other);
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => SearchResult::Nowhere,
            Ok(metadata) => {
                self.file(path, &metadata);
                if self.files.contains_key(path) { SearchResult::There } else { SearchResult::Unknown }
            }
            Err(_) if is_nowhere(path) => SearchResult::Nowhere,
            Err(error) => {
                self.record_error(path, &error.to_string());
                SearchResult::Unknown
            }
        }
    }

    fn other_path_to(&self, path: &Path) -> Option<PathBuf> {
        let folder = fs::metadata(path.parent()?).ok()?;
        let other = self.folders.get(&identity(&folder))?.join(path.file_name()?);
        (other != path && self.files.contains_key(&other)).then_some(other)
    }

    fn folders_from(&mut self, top: &Path, limit: usize, takes: &dyn Fn(&Path) -> bool, watch: &mut dyn Watch) {
        let mut left = vec![top.to_owned()];
        while let Some(folder) = left.pop() {
            self.disk.begin(&folder);
            watch.inside(&folder);
            let listed = fs::metadata(&folder).and_then(|metadata| {
                // A folder that several links lead to is listed once, so that cycles of links end.
                let Vacant(place) = self.folders.entry(identity(&metadata)) else { return Ok(Vec::new()) };
                place.insert(folder.clone());
                fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()
            });
            let mut entries = match listed {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound && folder != *top => continue, // deleted meanwhile
                Err(error) => {
                    self.record_error(&folder, &error.to_string());
                    continue;
                }
            };
            // Sorted, so that a folder with several paths is always listed by the same one.
            entries.sort_by_key(fs::DirEntry::file_name);
            let before = left.len();
            for entry in entries {
                // Hidden entries include the folders behind a mounted ConfigMap; its files are links into them.
                if entry.file_name().as_encoded_bytes().starts_with(b".") {
                    continue;
                }
                let path = entry.path();
                self.disk.begin(&path);
                let link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                let mut there = fs::metadata(&path);
                let beside = there.as_ref().is_ok_and(|metadata| !metadata.is_dir() && !takes(&path));
                if link && !beside {
                    watch_way_to(&path, watch);
                    there = fs::metadata(&path); // its state now that it is watched
                }
                match there {
                    Ok(_) if beside => {}
                    Ok(metadata) if metadata.is_dir() => left.push(path),
                    Ok(metadata) => self.file(&path, &metadata),
                    Err(error) if error.kind() == ErrorKind::NotFound && !link => {} // deleted meanwhile
                    // The target of a link may be a folder, so a missing target does not mean a deleted file.
                    Err(error) => self.record_error(&path, &error.to_string()),
                }
            }
            left[before..].reverse(); // so that the first of them is listed next
            if self.files.len() > limit {
                self.files.retain(|path, _| !path.starts_with(top));
                return self.record_error(top, &format!("there are more than {limit} files in it, which is the limit"));
            }
        }
    }

    /// Pipes and devices are not read, because opening one would block.
    fn file(&mut self, path: &Path, metadata: &Metadata) {
        match metadata.is_file() {
            true => drop(self.files.insert(path.to_owned(), Stamp::of(metadata))),
            false => self.record_error(path, "it is no file"),
        }
    }

    fn record_error(&mut self, path: &Path, reason: &str) {
        self.lost.push(FileError::of(path, reason));
    }
}

/// Equal for all paths that lead to the same folder.
pub(super) fn identity(folder: &Metadata) -> (u64, u64) {
    (folder.dev(), folder.ino())
}

/// Returns whether the path leads nowhere: its target does not exist, and neither does the path itself as a link.
fn is_nowhere(path: &Path) -> bool {
    let nowhere = |error: std::io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    fs::symlink_metadata(path).err().is_some_and(nowhere)
}

/// Watches the first missing part of the path, and each link on the way to it.
fn watch_way_to(path: &Path, watch: &mut dyn Watch) {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        let parts: Vec<_> = path.ancestors().collect();
        let is_plain = |part: &&&Path| fs::symlink_metadata(part).is_ok_and(|metadata| !metadata.is_symlink());
        let stop = parts.iter().rev().find(|part| !is_plain(part)).map_or(path.as_path(), |part| part);
        let Some(folder) = stop.parent().filter(|folder| folder.is_dir()) else { return };
        watch.entry(stop);
        let Ok(target) = fs::read_link(stop) else { return };
        let rest = path.strip_prefix(stop).unwrap_or(Path::new(""));
        let target = folder.join(target);
        path = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
    }
}

/// A path with more links counts as a cycle, as the system counts it.
const LINKS: usize = 40;
