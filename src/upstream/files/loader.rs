//! The contents of the files, and the last good version of each (FS-3).
//!
//! Invariants: a file with an error counts as its last good version; two files that define one resource are both in error;
//! a file that cannot be read is not deleted, and a deleted file was missing twice.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_core::protocol::local_set::{Items, NamesWithoutRoom, SourceSnapshot};
use weir_core::xds::{Name, Type};

use super::disk_wait::DiskWait;
use super::known::{Clocks, Known, Lacking, Reading};
use super::parse::{FileEntry, Parser};
use super::room::RoomTurn;
use super::walk::{SearchResult, Walk};
use super::watch::Watcher;
use super::{FileError, FilesOptions, Loaded, Report, SourceState};
use crate::file_access::Stamp;
use crate::memory::costs;

pub(super) struct Loader {
    pub(super) options: Arc<FilesOptions>,
    pub(super) disk: DiskWait,
    parser: Parser,
    watcher: Watcher,
    /// Whether the system reports all changes, as far as the last look knows.
    watched: bool,
    files: BTreeMap<PathBuf, Known>,
    /// The snapshots of earlier sources, which are served until all files could be read.
    before: Vec<Arc<SourceSnapshot>>,
    /// Configured paths that were files at any time.
    seen: BTreeSet<PathBuf>,
    /// The last look found something that can be served.
    reached: bool,
    /// Since when no configured path exists.
    nothing: Option<Instant>,
    snapshot: Arc<SourceSnapshot>,
    /// The errors of the last look, which have been logged.
    reported: BTreeSet<FileError>,
    report: Arc<Report>,
}

/// The result of a look.
pub(super) struct LoadResult {
    pub(crate) loaded: Loaded,
    /// A file was being written, or is missing, so that the next look has to follow soon.
    pub(crate) unsettled: bool,
    pub(crate) watched: bool,
}

impl Loader {
    pub(crate) fn new(options: Arc<FilesOptions>, parser: Parser, watcher: Watcher) -> Self {
        Self {
            options,
            disk: DiskWait::default(),
            parser,
            watcher,
            watched: true,
            files: BTreeMap::new(),
            before: Vec::new(),
            seen: BTreeSet::new(),
            reached: false,
            nothing: None,
            snapshot: Arc::default(),
            reported: BTreeSet::new(),
            report: Arc::default(),
        }
    }

    /// Takes the snapshots of earlier sources. Their resources do not count as new.
    pub(crate) fn after(self, before: Vec<Arc<SourceSnapshot>>) -> Self {
        Self { before, ..self }
    }

    /// Looks at all files, reads those that have changed, and returns the result for all of them. Slow; blocks.
    pub(crate) fn look(&mut self) -> LoadResult {
        let start = Instant::now();
        self.try_again();
        let mut watch = self.watcher.look();
        let mut walk = Walk::over(&self.options.paths, self.options.files, &Parser::takes, &mut watch, &self.disk);
        watch.done();
        self.seen.extend(self.options.paths.iter().filter(|path| walk.files.contains_key(*path)).cloned());
        let mut changed = self.drop_missing(&mut walk);
        self.disk.end();
        let mut unsettled = self.files.values().any(|file| file.is_missing());
        for (path, stamp) in &walk.files {
            match self.read(path, *stamp, Clocks::now()) {
                Reading::Same => {}
                Reading::Changed => changed = true,
                Reading::Unsettled => unsettled = true,
            }
        }
        if changed {
            self.settle_conflicts();
            let parser = self.parser.clone();
            let room = parser.room();
            self.make_room(room.as_ref());
            self.files.values_mut().for_each(Known::take_over);
            drop(room);
            self.settle_moves();
        }
        let deleted = |lost: &FileError| walk.absent.contains(&lost.file) && self.seen.contains(&lost.file);
        let complete = walk.lost.iter().all(deleted) && self.files.values().all(|file| file.has_good());
        if changed || complete && !self.snapshot.is_complete() {
            let items = self.items();
            let lacking = self.without_room(&items);
            self.snapshot = Arc::new(self.snapshot.next_lacking(items, lacking, complete));
        }
        if changed {
            self.parser.charge_bodies(); // without what the snapshot before had alone
        }
        let state = self.state(&walk, &mut unsettled);
        let missing = |lost: &&FileError| self.files.get(&lost.file).is_some_and(|file| file.is_missing());
        let lost = walk.lost.iter().filter(|lost| !missing(lost)); // a missing path is reported once it is known to be deleted
        let faults: BTreeSet<_> = lost.chain(self.files.values().flat_map(Known::faults)).cloned().collect();
        let ready = matches!(state, SourceState::Ready(_));
        if changed || faults != self.reported || self.report.loaded.is_none() && ready {
            let (files, resources) = (self.files.len(), self.snapshot.resources());
            let loaded = if changed || self.report.loaded.is_none() {
                Some((Instant::now(), start.elapsed()))
            } else {
                self.report.loaded
            };
            self.report = Arc::new(Report { files, resources, loaded, faults: faults.iter().cloned().collect() });
            if changed {
                tracing::info!(source = %self.options, files, resources, elapsed = %humantime::format_duration(start.elapsed()), "resource files loaded");
            }
        }
        self.log_faults(faults);
        let watched = self.watched();
        if self.snapshot.is_complete() {
            self.before.clear();
        }
        let served = [&self.snapshot].into_iter().chain(&self.before).cloned().collect();
        LoadResult { loaded: Loaded { state, report: self.report.clone(), served }, unsettled, watched }
    }

    /// Returns whether the system reports all changes. That it does not, and that it does again, is logged once.
    fn watched(&mut self) -> bool {
        let fault = self.watcher.fault();
        let watched = fault.is_none();
        if let Some(reason) = fault.filter(|_| self.watched) {
            tracing::warn!(source = %self.options, %reason, "the system does not report changes of files; looking every second");
        } else if watched && !self.watched {
            tracing::info!(source = %self.options, "the system reports changes of files again");
        }
        self.watched = watched;
        watched
    }

    /// Drops files that are deleted and returns whether there were any. One look is not enough: a program that unlinks a file and
    /// creates it again leaves a moment without it.
    fn drop_missing(&mut self, walk: &mut Walk) -> bool {
        if walk.present.is_empty() {
            // The source is unreachable; its files are not deleted one by one.
            self.files.values_mut().for_each(Known::forget_missing);
            return false;
        }
        let (now, mut changed) = (Instant::now(), false);
        let conflicts = self.files.values().any(Known::has_conflict);
        let missed: Vec<_> = self.files.keys().filter(|path| !walk.files.contains_key(*path)).cloned().collect();
        for path in missed {
            let Some(mut file) = self.files.remove(&path) else { continue };
            match walk.search(&path) {
                SearchResult::There => drop(self.files.insert(path, file)),
                SearchResult::Unknown => {
                    file.forget_missing();
                    self.files.insert(path, file);
                }
                SearchResult::Elsewhere(other) => {
                    file.forget_reading(); // so that its errors are reported under its present path
                    self.files.entry(other).or_insert(file);
                    changed = true;
                }
                SearchResult::Nowhere => {
                    changed |= conflicts && !file.is_missing();
                    match now.duration_since(file.note_missing(now)) >= GAP {
                        true => changed = true,
                        false => drop(self.files.insert(path, file)),
                    }
                }
            }
        }
        changed
    }

    /// A source without any of its paths is unreachable. As with a file, one look is not enough.
    fn state(&mut self, walk: &Walk, unsettled: &mut bool) -> SourceState {
        let missing = self.options.paths.first().filter(|_| walk.present.is_empty());
        let since = missing.map(|_| self.nothing.unwrap_or_else(Instant::now));
        let passing = self.reached && since.is_some_and(|since| since.elapsed() < GAP);
        self.nothing = since;
        self.reached = missing.is_none() || passing;
        *unsettled |= passing;
        match missing.filter(|_| !passing) {
            None => SourceState::Ready(self.snapshot.clone()),
            Some(path) => {
                let why = walk.lost.iter().find(|fault| fault.file == *path).or(walk.lost.first());
                SourceState::Missing(why.map_or_else(|| path.display().to_string(), ToString::to_string))
            }
        }
    }

    pub(super) fn read(&mut self, path: &Path, stamp: Stamp, clocks: Clocks) -> Reading {
        let file = self.files.entry(path.to_owned()).or_default();
        file.read(path, stamp, &self.parser, self.options.file_bytes, clocks, &self.disk)
    }

    /// Of two files that define one resource, neither new version is applied. That may restore older contents, and with them
    /// another conflict. It ends at the latest when all files have their old versions, which do not conflict.
    fn settle_conflicts(&mut self) {
        self.files.values_mut().for_each(Known::forget_conflict);
        loop {
            let mut owners: HashMap<(&Type, &Name), (&Path, Option<u64>)> = HashMap::new();
            let mut conflicts = Vec::new();
            for (path, file) in self.files.iter().filter(|(_, file)| !file.is_missing()) {
                for (kind, name, line) in file.candidate() {
                    if let Some((other, there)) = owners.insert((kind, name), (path, line)) {
                        let twice = |at: &Path| format!("{} {name} is in {}, too", kind.name(), at.display());
                        conflicts.push(FileError { line, ..FileError::of(path, &twice(other)) });
                        conflicts.push(FileError { line: there, ..FileError::of(other, &twice(path)) });
                    }
                }
            }
            if conflicts.is_empty() {
                return;
            }
            let mut any = false;
            for fault in conflicts {
                if let Some(file) = self.files.get_mut(&fault.file) {
                    any |= file.note_conflict(fault);
                }
            }
            if !any {
                return;
            }
        }
    }

    /// Reads files again if a resource of theirs had no room and has room now.
    fn try_again(&mut self) {
        let Some(memory) = self.parser.memory() else { return };
        let fits = |of: &Lacking| memory.has_room_for(of.bytes + costs::TABLE_ENTRY);
        let files = self.files.values_mut().filter(|file| file.may_be_taken_anew() && file.lacking().iter().any(&fits));
        files.for_each(Known::forget_reading);
    }

    /// Leaves out new resources that have no room. Changes of served resources and removals always have room. New resources get room in the order
    /// of their names.
    fn make_room(&mut self, room: Option<&RoomTurn<'_>>) {
        let size = |entry: &FileEntry| entry.resource.body.bytes().len() + costs::TABLE_ENTRY;
        let served: HashSet<_> = self.files.values().flat_map(Known::served).map(|of| (&of.kind, &of.name)).collect();
        let was_served =
            |kind: &Type, name: &Name| self.before.iter().any(|before| before.set(kind).items().contains_key(name));
        let is_new =
            |entry: &&FileEntry| !served.contains(&(&entry.kind, &entry.name)) && !was_served(&entry.kind, &entry.name);
        let mut new: Vec<_> = self.files.values().flat_map(Known::to_be_served).filter(is_new).collect();
        let bodies: usize = new.iter().map(|entry| entry.resource.body.bytes().len()).sum();
        let all: usize = new.iter().map(|entry| size(entry)).sum();
        let excess = room.filter(|_| !new.is_empty()).and_then(|room| room.excess_of(all, bodies));
        let (excess, why) = excess.unwrap_or_default();
        let mut left = all.saturating_sub(excess);
        new.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        let mut out = HashSet::new();
        for entry in new {
            match left.checked_sub(size(entry)) {
                Some(less) => left = less,
                None => {
                    out.insert((entry.kind.clone(), entry.name.clone()));
                }
            }
        }
        let has_room = |entry: &FileEntry| out.is_empty() || !out.contains(&(entry.kind.clone(), entry.name.clone()));
        self.files.iter_mut().for_each(|(path, file)| file.leave_out(path, has_room, &why));
    }

    /// Returns the names of resources that files have and that had no room.
    fn without_room(&self, items: &BTreeMap<Type, Items>) -> BTreeMap<Type, NamesWithoutRoom> {
        let mut all = BTreeMap::<Type, NamesWithoutRoom>::new();
        for Lacking { kind, name, .. } in self.files.values().flat_map(Known::lacking) {
            if items.get(kind).is_none_or(|items| !items.contains_key(name)) {
                all.entry(kind.clone()).or_default().insert(name.clone(), ());
            }
        }
        all
    }

    /// Resolves conflicts with missing files: a resource that another file has now has moved there.
    fn settle_moves(&mut self) {
        let (mut missing, there): (Vec<_>, Vec<_>) =
            self.files.values_mut().partition(|file| file.is_missing() && file.has_good());
        if missing.is_empty() {
            return;
        }
        let entries = there.iter().flat_map(|file| file.served());
        let there: HashSet<_> = entries.map(|entry| (&entry.kind, &entry.name)).collect();
        missing.iter_mut().for_each(|file| file.drop_moved(&there));
    }

    fn items(&self) -> BTreeMap<Type, Items> {
        let mut all: BTreeMap<Type, Items> = BTreeMap::new();
        for entry in self.files.values().flat_map(Known::served) {
            if !all.contains_key(&entry.kind) {
                all.insert(entry.kind.clone(), Items::new());
            }
            if let Some(items) = all.get_mut(&entry.kind) {
                items.insert(entry.name.clone(), entry.resource.clone());
            }
        }
        all
    }

    /// Logs each error once, and once more when it is resolved.
    fn log_faults(&mut self, faults: BTreeSet<FileError>) {
        let new: Vec<_> = faults.difference(&self.reported).collect();
        for fault in new.iter().take(LOGGED_AT_ONCE) {
            match self.files.range(fault.file.clone()..).take_while(|(path, _)| path.starts_with(&fault.file)).next() {
                Some((_, file)) if file.is_without_room(fault) => {
                    tracing::warn!(source = %self.options, error = %fault, "no room for a resource of a file; serving the others");
                }
                Some((_, file)) if file.has_good() => {
                    tracing::warn!(source = %self.options, error = %fault, "cannot load resource file; serving its last good version");
                }
                _ => {
                    tracing::warn!(source = %self.options, error = %fault, "cannot load resource file; no earlier version")
                }
            }
        }
        if let Some(more) = new.len().checked_sub(LOGGED_AT_ONCE).filter(|more| *more > 0) {
            tracing::warn!(source = %self.options, count = more, "cannot load more resource files; /files lists them");
        }
        for fault in self
            .reported
            .iter()
            .filter(|fault| !faults.iter().any(|other| other.file == fault.file))
            .take(LOGGED_AT_ONCE)
        {
            tracing::info!(source = %self.options, file = %fault.file.display(), "resource file is at fault no more");
        }
        self.reported = faults;
    }
}

/// How long a path has to be missing before it counts as deleted.
pub(super) const GAP: Duration = Duration::from_millis(200);
/// Log lines for one look.
const LOGGED_AT_ONCE: usize = 20;
