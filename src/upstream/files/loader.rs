//! What the files say, and what they said last that made sense: each file for itself (FS-3).
//!
//! Always: a file that was good once and is not now counts as it was; two files that define one resource are no good both, as
//! they are now; a file that nobody can look at is not one that is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use xxhash_rust::xxh3::xxh3_128;

use super::parse::{Entry, Parser};
use super::walk::{Stamp, Walk};
use super::watch::Watcher;
use super::{Fault, FilesOptions, Loaded, Report, State};
use crate::protocol::local::{Items, Snapshot};
use crate::xds::{Name, Type};

pub(super) struct Loader {
    options: Arc<FilesOptions>,
    parser: Parser,
    watcher: Watcher,
    files: BTreeMap<PathBuf, Known>,
    /// Paths of the configuration that were there at any time.
    seen: BTreeSet<PathBuf>,
    snapshot: Arc<Snapshot>,
    /// What was wrong when last looked, which has been told.
    told: BTreeSet<Fault>,
    report: Arc<Report>,
}

/// What is known of one file.
#[derive(Default)]
struct Known {
    /// None while the file has to be read again, whatever it looks like.
    stamp: Option<Stamp>,
    read: Option<SystemTime>,
    bytes: Option<u128>,
    /// What counts.
    good: Option<Arc<[Entry]>>,
    /// Read well, and not taken over yet.
    new: Option<Arc<[Entry]>>,
    fault: Option<Fault>,
    /// Another file has a resource of this one, too.
    conflict: Option<Fault>,
}

/// What a look came to.
pub(super) struct Look {
    pub loaded: Loaded,
    /// A file was being written, so that it has to be looked at again soon.
    pub unsettled: bool,
    pub watched: bool,
}

impl Loader {
    pub fn new(options: Arc<FilesOptions>, parser: Parser, watcher: Watcher) -> Self {
        Self {
            options,
            parser,
            watcher,
            files: BTreeMap::new(),
            seen: BTreeSet::new(),
            snapshot: Arc::default(),
            told: BTreeSet::new(),
            report: Arc::default(),
        }
    }

    /// Looks at all files, reads those that have changed, and says what all of them come to. Takes its time, and blocks.
    pub fn look(&mut self) -> Look {
        let start = Instant::now();
        let mut watch = self.watcher.look();
        let walk = Walk::over(&self.options.paths, self.options.files, &Parser::takes, &mut watch);
        watch.done();
        self.seen.extend(walk.present.iter().cloned());
        let before = self.files.len();
        self.files.retain(|path, _| walk.files.contains_key(path) || walk.has_lost(path));
        let mut changed = self.files.len() != before;
        let mut unsettled = false;
        for (path, stamp) in &walk.files {
            match self.read(path, *stamp) {
                Reading::Same => {}
                Reading::Changed => changed = true,
                Reading::Unsettled => unsettled = true,
            }
        }
        if changed {
            self.settle_conflicts();
            self.files.values_mut().for_each(Known::take_over);
        }
        let complete = walk.lost.is_empty() && self.files.values().all(|file| file.good.is_some());
        if changed || complete && !self.snapshot.is_complete() {
            self.snapshot = Arc::new(self.snapshot.next(self.items(), complete));
        }
        let faults: BTreeSet<_> =
            walk.lost.iter().chain(self.files.values().flat_map(Known::faults)).cloned().collect();
        let state = self.state(&walk);
        let ready = matches!(state, State::Ready(_));
        if changed || faults != self.told || self.report.loaded.is_none() && ready {
            let (files, resources) = (self.files.len(), self.snapshot.resources());
            let loaded = if changed || self.report.loaded.is_none() {
                Some((Instant::now(), start.elapsed()))
            } else {
                self.report.loaded
            };
            self.report = Arc::new(Report { files, resources, loaded, faults: faults.iter().cloned().collect() });
            if changed {
                tracing::info!(source = %self.options, files, resources, took = ?start.elapsed(), "files read");
            }
        }
        self.tell(faults);
        let watched = self.watcher.fault().is_none();
        Look { loaded: Loaded { state, report: self.report.clone() }, unsettled, watched }
    }

    /// Without any of its paths a source is out of reach; before all of them have been there once, too: what is missing is not
    /// known to be absent (I3).
    fn state(&self, walk: &Walk) -> State {
        let never = self.options.paths.iter().find(|path| !self.seen.contains(*path));
        let missing = never.or(self.options.paths.first()).filter(|_| never.is_some() || walk.present.is_empty());
        match missing {
            None => State::Ready(self.snapshot.clone()),
            Some(path) => {
                let why = walk.lost.iter().find(|fault| fault.file == *path).or(walk.lost.first());
                State::Missing(why.map_or_else(|| path.display().to_string(), ToString::to_string))
            }
        }
    }

    fn read(&mut self, path: &Path, stamp: Stamp) -> Reading {
        let file = self.files.entry(path.to_owned()).or_default();
        let certain = |read: &SystemTime| !stamp.is_fresh(*read);
        if file.stamp == Some(stamp) && file.read.as_ref().is_some_and(certain) {
            return Reading::Same;
        }
        let now = SystemTime::now();
        let bytes = match bytes_of(path, stamp, self.options.file_bytes) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => {
                file.stamp = None;
                return Reading::Unsettled;
            }
            Err(reason) => {
                (file.stamp, file.read, file.bytes) = (None, None, None);
                return file.refuse(Fault::of(path, &reason));
            }
        };
        let hash = xxh3_128(&bytes);
        if file.bytes == Some(hash) {
            (file.stamp, file.read) = (Some(stamp), Some(now));
            return Reading::Same;
        }
        let read = self.parser.read(path, &bytes);
        // Half of a file may make sense. What is being written in place and lacks something is looked at once more in a moment.
        let in_place = file.stamp.is_some_and(|before| before.is_same_file(stamp)) && stamp.is_young(now);
        if in_place && read.as_ref().is_ok_and(|entries| file.would_lose(entries)) {
            return Reading::Unsettled;
        }
        (file.stamp, file.read, file.bytes) = (Some(stamp), Some(now), Some(hash));
        match read {
            Ok(entries) => {
                (file.new, file.fault) = (Some(entries.into()), None);
                Reading::Changed
            }
            Err(fault) => file.refuse(fault),
        }
    }

    /// Of two files that define one resource neither is taken over as it is now. That may bring back what was in them before, and
    /// with it another such case; at the latest when all are as they were, there is none.
    fn settle_conflicts(&mut self) {
        self.files.values_mut().for_each(|file| file.conflict = None);
        loop {
            let mut owners: HashMap<(&Type, &Name), (&Path, Option<u64>)> = HashMap::new();
            let mut conflicts = Vec::new();
            for (path, file) in &self.files {
                for entry in file.candidate() {
                    let (kind, name) = (&entry.kind, &entry.name);
                    if let Some((other, line)) = owners.insert((kind, name), (path, entry.line)) {
                        let twice = |there: &Path| format!("{} {name} is in {}, too", kind.name(), there.display());
                        conflicts.push(Fault { line: entry.line, ..Fault::of(path, &twice(other)) });
                        conflicts.push(Fault { line, ..Fault::of(other, &twice(path)) });
                    }
                }
            }
            if conflicts.is_empty() {
                return;
            }
            let mut any = false;
            for fault in conflicts {
                if let Some(file) = self.files.get_mut(&fault.file).filter(|file| file.conflict.is_none()) {
                    (file.conflict, any) = (Some(fault), true);
                }
            }
            if !any {
                return;
            }
        }
    }

    fn items(&self) -> BTreeMap<Type, Items> {
        let mut all: BTreeMap<Type, Items> = BTreeMap::new();
        for entry in self.files.values().flat_map(|file| file.good.iter().flat_map(|good| good.iter())) {
            if !all.contains_key(&entry.kind) {
                all.insert(entry.kind.clone(), Items::new());
            }
            if let Some(items) = all.get_mut(&entry.kind) {
                items.insert(entry.name.clone(), entry.item.clone());
            }
        }
        all
    }

    /// Says once what is wrong, and that it is no more.
    fn tell(&mut self, faults: BTreeSet<Fault>) {
        let new: Vec<_> = faults.difference(&self.told).collect();
        for fault in new.iter().take(TOLD_AT_ONCE) {
            tracing::warn!(source = %self.options, %fault, "a file is no good; what it said before stays");
        }
        if let Some(more) = new.len().checked_sub(TOLD_AT_ONCE).filter(|more| *more > 0) {
            tracing::warn!(source = %self.options, more, "further files are no good; the admin address has all of them");
        }
        for fault in
            self.told.iter().filter(|fault| !faults.iter().any(|other| other.file == fault.file)).take(TOLD_AT_ONCE)
        {
            tracing::info!(source = %self.options, file = %fault.file.display(), "nothing is wrong with it any more");
        }
        self.told = faults;
    }
}

enum Reading {
    Same,
    Changed,
    Unsettled,
}

impl Known {
    fn refuse(&mut self, fault: Fault) -> Reading {
        let changed = self.new.take().is_some();
        self.fault = Some(fault);
        if changed { Reading::Changed } else { Reading::Same }
    }

    /// Whether something that counts is not in a new reading.
    fn would_lose(&self, entries: &[Entry]) -> bool {
        let new: HashSet<_> = entries.iter().map(|entry| (&entry.kind, &entry.name)).collect();
        let good = self.good.iter().flat_map(|good| good.iter());
        good.into_iter().any(|entry| !new.contains(&(&entry.kind, &entry.name)))
    }

    /// What would count if nothing spoke against it.
    fn candidate(&self) -> impl Iterator<Item = &Entry> {
        let new = self.new.as_ref().filter(|_| self.conflict.is_none());
        new.or(self.good.as_ref()).into_iter().flat_map(|entries| entries.iter())
    }

    fn take_over(&mut self) {
        if self.conflict.is_none() && self.new.is_some() {
            self.good = self.new.take();
        }
    }

    fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.fault.iter().chain(&self.conflict)
    }
}

/// The whole file, unless it was written to meanwhile.
fn bytes_of(path: &Path, stamp: Stamp, most: u64) -> Result<Option<Vec<u8>>, String> {
    let too_large = || format!("it is larger than {most} bytes, which is the limit (limits.file_bytes)");
    if stamp.size > most {
        return Err(too_large());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or_default());
    (&file).take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(too_large());
    }
    let same = file.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == stamp);
    Ok(same.then_some(bytes))
}

/// Lines in the log for one look.
const TOLD_AT_ONCE: usize = 20;
