//! Says that something has changed in the folders, and not what: whoever is told looks at them all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use super::walk::Watch;

pub(super) struct Watcher {
    system: Option<RecommendedWatcher>,
    interest: Arc<Mutex<Interest>>,
    watched: BTreeSet<PathBuf>,
    /// Why not everything is watched.
    fault: Option<String>,
}

/// What is told of. Beside a path that counts others may come and go as they like.
#[derive(Debug, Default)]
struct Interest {
    folders: BTreeSet<PathBuf>,
    entries: BTreeSet<PathBuf>,
}

impl Watcher {
    pub fn new(changed: mpsc::Sender<()>) -> Self {
        let interest: Arc<Mutex<Interest>> = Arc::default();
        let of = interest.clone();
        let system = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let counts = event.map_or(true, |event| {
                let interest = of.lock().unwrap_or_else(PoisonError::into_inner);
                event.need_rescan() || (is_change(event.kind) && event.paths.iter().any(|path| interest.has(path)))
            });
            if counts {
                let _ = changed.try_send(()); // one that waits already says as much
            }
        });
        let fault = system.as_ref().err().map(ToString::to_string);
        Self { system: system.ok(), interest, watched: BTreeSet::new(), fault }
    }

    /// One look at all folders: those that it does not come by are watched no more.
    pub fn look(&mut self) -> Look<'_> {
        self.fault = self.system.is_none().then(|| self.fault.take()).flatten();
        Look { watcher: self, seen: Interest::default(), watched: BTreeSet::new() }
    }

    pub fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Each time anew: a folder that came in the place of another of the same name is another one to the system.
    fn watch(&mut self, folder: &Path) {
        let Some(system) = &mut self.system else { return };
        match system.watch(folder, RecursiveMode::NonRecursive) {
            Ok(()) => {}
            Err(error) if matches!(error.kind, notify::ErrorKind::PathNotFound) => {} // gone since
            Err(error) => self.fault = Some(error.to_string()),
        }
    }
}

pub(super) struct Look<'a> {
    watcher: &'a mut Watcher,
    seen: Interest,
    watched: BTreeSet<PathBuf>,
}

impl Watch for Look<'_> {
    fn inside(&mut self, folder: &Path) {
        self.note(|interest| {
            interest.folders.insert(folder.to_owned());
        });
        self.watch(folder);
    }

    fn entry(&mut self, path: &Path) {
        let Some(folder) = path.parent() else { return };
        self.note(|interest| {
            interest.entries.insert(path.to_owned());
        });
        self.watch(folder);
    }
}

impl Look<'_> {
    /// At once, for what happens from now on.
    fn note(&mut self, what: impl Fn(&mut Interest)) {
        what(&mut self.seen);
        what(&mut self.watcher.interest.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn watch(&mut self, folder: &Path) {
        if self.watched.insert(folder.to_owned()) {
            self.watcher.watch(folder);
        }
    }

    pub fn done(self) {
        *self.watcher.interest.lock().unwrap_or_else(PoisonError::into_inner) = self.seen;
        let before = std::mem::replace(&mut self.watcher.watched, self.watched);
        for folder in before.difference(&self.watcher.watched) {
            if let Some(system) = &mut self.watcher.system {
                let _ = system.unwatch(folder); // it may be gone
            }
        }
    }
}

impl Interest {
    fn has(&self, path: &Path) -> bool {
        let inside = |path: &Path| self.folders.contains(path);
        inside(path) || path.parent().is_some_and(inside) || self.entries.contains(path)
    }
}

/// To read a file is no change, and here it would be our own.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}
