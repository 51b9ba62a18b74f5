//! Notifies that something in the folders has changed. What has changed is not reported: the loader looks at all folders.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use super::walk::{Watch, identity};

/// Watched folders, each with the path by which it is reported, without links. The system identifies a folder by inode, and reports it by the path
/// that was last watched.
type Watched = BTreeMap<(u64, u64), PathBuf>;

pub(super) struct Watcher {
    changed: mpsc::Sender<()>,
    start: StartWatching,
    /// `None`: the system has none to give. The next look tries again.
    system: Option<RecommendedWatcher>,
    interest: Arc<Mutex<Interest>>,
    watched: Watched,
    /// Why some paths are not watched.
    fault: Option<String>,
}

type OnEvent = Box<dyn FnMut(notify::Result<notify::Event>) + Send>;
pub(super) type StartWatching = fn(OnEvent) -> notify::Result<RecommendedWatcher>;

/// The paths whose changes are reported. Changes of other entries beside a watched path are ignored.
#[derive(Debug, Default)]
struct Interest {
    folders: BTreeSet<PathBuf>,
    entries: BTreeSet<PathBuf>,
}

impl Watcher {
    pub(crate) fn new(changed: mpsc::Sender<()>) -> Self {
        Self::started_by(notify::recommended_watcher, changed)
    }

    pub(super) fn started_by(start: StartWatching, changed: mpsc::Sender<()>) -> Self {
        let (interest, watched) = Default::default();
        Self { changed, start, system: None, interest, watched, fault: None }
    }

    /// Starts one look at all folders. When it ends, folders that it did not visit are no longer watched.
    pub(crate) fn look(&mut self) -> WatchPass<'_> {
        self.fault = None;
        if self.system.is_none() {
            let started = (self.start)(self.on_event());
            self.system = started.map_err(|error| self.fault = Some(error.to_string())).ok();
        }
        WatchPass { watcher: self, seen: Interest::default(), watched: Watched::new(), paths: HashMap::new() }
    }

    fn on_event(&self) -> OnEvent {
        let (interest, changed) = (self.interest.clone(), self.changed.clone());
        Box::new(move |event| {
            let counts = event.map_or(true, |event| {
                let interest = interest.lock().unwrap_or_else(PoisonError::into_inner);
                event.need_rescan() || (is_change(event.kind) && event.paths.iter().any(|path| interest.has(path)))
            });
            if counts {
                let _ = changed.try_send(()); // a notification that is already queued suffices
            }
        })
    }

    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Watches the folder again at each look: to the system, a folder that replaced another of the same name is a different one.
    fn watch(&mut self, folder: &Path) {
        let Some(system) = &mut self.system else { return };
        match system.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => {}
            Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => {} // deleted meanwhile
            Err(error) => self.fault = Some(error.to_string()),
        }
    }

    fn unwatch(&mut self, folder: &Path) {
        if let Some(system) = &mut self.system {
            let _ = system.unwatch(folder); // it may be deleted
        }
    }
}

pub(super) struct WatchPass<'a> {
    watcher: &'a mut Watcher,
    seen: Interest,
    watched: Watched,
    /// The path by which the system reports a folder that was visited by another path.
    paths: HashMap<PathBuf, Option<PathBuf>>,
}

impl Watch for WatchPass<'_> {
    fn inside(&mut self, folder: &Path) {
        self.watch(folder, &|interest, folder| interest.folders.insert(folder.to_owned()));
    }

    fn entry(&mut self, path: &Path) {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return };
        self.watch(folder, &|interest, folder| interest.entries.insert(folder.join(name)));
    }
}

impl WatchPass<'_> {
    /// The walk lists the folder only after this, so that no earlier change is missed.
    fn watch(&mut self, folder: &Path, note: &dyn Fn(&mut Interest, &Path) -> bool) {
        if !self.paths.contains_key(folder) {
            let path = self.begin(folder);
            self.paths.insert(folder.to_owned(), path);
        }
        let Some(Some(path)) = self.paths.get(folder) else { return }; // deleted meanwhile
        note(&mut self.seen, path);
        note(&mut self.watcher.interest.lock().unwrap_or_else(PoisonError::into_inner), path);
    }

    /// Starts watching a folder and returns the path by which it is reported.
    fn begin(&mut self, folder: &Path) -> Option<PathBuf> {
        let path = fs::canonicalize(folder).ok()?;
        let identity = identity(&fs::metadata(&path).ok()?);
        if let Some(path) = self.watched.get(&identity) {
            return Some(path.clone()); // also where one folder has two paths, as when it is mounted twice
        }
        // The folder may have moved: releasing its old path later would stop watching the folder itself.
        let before = self.watcher.watched.get(&identity).filter(|before| **before != path).cloned();
        if let Some(before) = before.filter(|before| !self.watched.values().any(|path| path == before)) {
            self.watcher.unwatch(&before);
        }
        self.watcher.watch(&path);
        self.watched.insert(identity, path.clone());
        Some(path)
    }

    pub(crate) fn done(self) {
        *self.watcher.interest.lock().unwrap_or_else(PoisonError::into_inner) = self.seen;
        let before = std::mem::replace(&mut self.watcher.watched, self.watched);
        let now: BTreeSet<_> = self.watcher.watched.values().cloned().collect();
        for folder in before.values().filter(|folder| !now.contains(*folder)) {
            self.watcher.unwatch(folder);
        }
    }
}

impl Interest {
    fn has(&self, path: &Path) -> bool {
        let inside = |path: &Path| self.folders.contains(path);
        inside(path) || path.parent().is_some_and(inside) || self.entries.contains(path)
    }
}

/// Reading a file is not a change; the loader itself would cause it.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind, RemoveKind};

    use super::*;

    /// The loader opens, reads and closes each file. If that counted as a change, it would load for ever.
    #[test]
    fn what_the_loader_does_itself_is_no_change_and_what_writers_do_is() {
        let by_loader = [AccessKind::Any, AccessKind::Open(AccessMode::Any), AccessKind::Close(AccessMode::Read)];
        assert_eq!(by_loader.map(|access| is_change(EventKind::Access(access))), [false; 3]);
        let by_writers = [
            EventKind::Access(AccessKind::Close(AccessMode::Write)),
            EventKind::Create(CreateKind::File),
            EventKind::Modify(ModifyKind::Any),
            EventKind::Remove(RemoveKind::File),
            EventKind::Any, // where the system does not say more
        ];
        assert_eq!(by_writers.map(is_change), [true; 5]);
    }
}
