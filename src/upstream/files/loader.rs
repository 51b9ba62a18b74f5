//! What the files say, and what they said last that made sense: each file for itself (FS-3).
//!
//! Always: a file that was good once and is not now counts as it was; two files that define one resource are no good both, as
//! they are now; a file that nobody can look at is not one that is gone, and one that is gone was missing twice.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use xxhash_rust::xxh3::xxh3_128;

use super::parse::{Entry, Parser};
use super::walk::{Sought, Stamp, Walk};
use super::watch::Watcher;
use super::{Fault, FilesOptions, Loaded, Report, State};
use crate::protocol::local::{Items, Snapshot};
use crate::xds::{Name, Type};

pub(super) struct Loader {
    options: Arc<FilesOptions>,
    parser: Parser,
    watcher: Watcher,
    files: BTreeMap<PathBuf, Known>,
    /// Paths of the configuration that were files at any time.
    seen: BTreeSet<PathBuf>,
    /// There were some at the last look, or there have been none since.
    reached: bool,
    nothing: Option<Instant>,
    snapshot: Arc<Snapshot>,
    /// What was wrong when last looked, which has been told.
    told: BTreeSet<Fault>,
    report: Arc<Report>,
}

/// What is known of one file.
#[derive(Default)]
struct Known {
    /// Of what was read last, or was to be read.
    stamp: Option<Stamp>,
    /// None while the file has to be read again, whatever it looks like.
    read: Option<SystemTime>,
    bytes: Option<u128>,
    /// What counts.
    good: Option<Arc<[Entry]>>,
    /// Read well, and not taken over yet.
    new: Option<Arc<[Entry]>>,
    fault: Option<Fault>,
    /// Another file has a resource of this one, too.
    conflict: Option<Fault>,
    /// Since when it is not there.
    missing: Option<Instant>,
}

/// What a look came to.
pub(super) struct Look {
    pub loaded: Loaded,
    /// A file was being written, or is missing, so that it has to be looked at again soon.
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
            reached: false,
            nothing: None,
            snapshot: Arc::default(),
            told: BTreeSet::new(),
            report: Arc::default(),
        }
    }

    /// Looks at all files, reads those that have changed, and says what all of them come to. Takes its time, and blocks.
    pub fn look(&mut self) -> Look {
        let start = Instant::now();
        let mut watch = self.watcher.look();
        let mut walk = Walk::over(&self.options.paths, self.options.files, &Parser::takes, &mut watch);
        watch.done();
        self.seen.extend(self.options.paths.iter().filter(|path| walk.files.contains_key(*path)).cloned());
        let mut changed = self.part(&mut walk);
        let mut unsettled = self.files.values().any(|file| file.missing.is_some());
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
            self.settle_moves();
        }
        let deleted = |lost: &Fault| walk.absent.contains(&lost.file) && self.seen.contains(&lost.file);
        let complete = walk.lost.iter().all(deleted) && self.files.values().all(|file| file.good.is_some());
        if changed || complete && !self.snapshot.is_complete() {
            self.snapshot = Arc::new(self.snapshot.next(self.items(), complete));
        }
        let state = self.state(&walk, &mut unsettled);
        let missing = |lost: &&Fault| self.files.get(&lost.file).is_some_and(|file| file.missing.is_some());
        let lost = walk.lost.iter().filter(|lost| !missing(lost)); // whether it is gone is told when that is known
        let faults: BTreeSet<_> = lost.chain(self.files.values().flat_map(Known::faults)).cloned().collect();
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

    /// Parts with files that are gone, and says whether there were any. One look is not enough for that: whoever unlinks a file and
    /// makes it anew leaves a moment without it.
    fn part(&mut self, walk: &mut Walk) -> bool {
        if walk.present.is_empty() {
            // The source is out of reach, and not each of its files gone.
            self.files.values_mut().for_each(|file| file.missing = None);
            return false;
        }
        let (now, mut changed) = (Instant::now(), false);
        let conflicts = self.files.values().any(|file| file.conflict.is_some());
        let missed: Vec<_> = self.files.keys().filter(|path| !walk.files.contains_key(*path)).cloned().collect();
        for path in missed {
            let Some(mut file) = self.files.remove(&path) else { continue };
            match walk.seek(&path) {
                Sought::There => drop(self.files.insert(path, file)),
                Sought::Unknown => drop(self.files.insert(path, Known { missing: None, ..file })),
                Sought::Elsewhere(other) => {
                    // It is read again, so that what is wrong with it is told by the path that it has now.
                    self.files.entry(other).or_insert(Known { read: None, bytes: None, ..file });
                    changed = true;
                }
                Sought::Nowhere => {
                    changed |= conflicts && file.missing.is_none();
                    match now.duration_since(*file.missing.get_or_insert(now)) >= GAP {
                        true => changed = true,
                        false => drop(self.files.insert(path, file)),
                    }
                }
            }
        }
        changed
    }

    /// Without any of its paths a source is out of reach. As with a file, one look is not enough.
    fn state(&mut self, walk: &Walk, unsettled: &mut bool) -> State {
        let missing = self.options.paths.first().filter(|_| walk.present.is_empty());
        let since = missing.map(|_| self.nothing.unwrap_or_else(Instant::now));
        let passing = self.reached && since.is_some_and(|since| since.elapsed() < GAP);
        self.nothing = since;
        self.reached = missing.is_none() || passing;
        *unsettled |= passing;
        match missing.filter(|_| !passing) {
            None => State::Ready(self.snapshot.clone()),
            Some(path) => {
                let why = walk.lost.iter().find(|fault| fault.file == *path).or(walk.lost.first());
                State::Missing(why.map_or_else(|| path.display().to_string(), ToString::to_string))
            }
        }
    }

    pub(super) fn read(&mut self, path: &Path, stamp: Stamp) -> Reading {
        let file = self.files.entry(path.to_owned()).or_default();
        if file.missing.take().is_some() {
            // It was made anew in its place, and is in no other way whole than one that is written in place.
            (file.stamp, file.read) = (Some(stamp), None);
        }
        let certain = |read: &SystemTime| !stamp.is_fresh(*read);
        if file.stamp == Some(stamp) && file.read.as_ref().is_some_and(certain) {
            return Reading::Same;
        }
        let now = SystemTime::now();
        let bytes = match bytes_of(path, stamp, self.options.file_bytes) {
            Ok(Some(bytes)) => bytes,
            // To be read again, and known as the file that it is: what is written to it is written in place.
            Ok(None) => {
                (file.stamp, file.read) = (Some(stamp), None);
                return Reading::Unsettled;
            }
            Err(reason) => {
                (file.stamp, file.read, file.bytes) = (Some(stamp), None, None);
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
            for (path, file) in self.files.iter().filter(|(_, file)| file.missing.is_none()) {
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

    /// A file that is missing is in nobody's way: what another file has now has moved there.
    fn settle_moves(&mut self) {
        let (mut missing, there): (Vec<_>, Vec<_>) =
            self.files.values_mut().partition(|file| file.missing.is_some() && file.good.is_some());
        if missing.is_empty() {
            return;
        }
        let entries = there.iter().flat_map(|file| file.good.iter().flat_map(|good| good.iter()));
        let there: HashSet<_> = entries.map(|entry| (&entry.kind, &entry.name)).collect();
        for file in &mut missing {
            let Some(good) = &file.good else { continue };
            let (moved, left): (Vec<_>, Vec<_>) =
                good.iter().cloned().partition(|entry| there.contains(&(&entry.kind, &entry.name)));
            if !moved.is_empty() {
                // Should it come back, it is read as any other file that has them, too.
                (file.good, file.read, file.bytes) = (Some(left.into()), None, None);
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
            match self.files.range(fault.file.clone()..).take_while(|(path, _)| path.starts_with(&fault.file)).next() {
                Some((_, file)) if file.good.is_some() => {
                    tracing::warn!(source = %self.options, %fault, "a file is no good; what it said before stays");
                }
                _ => tracing::warn!(source = %self.options, %fault, "a file is no good, and nothing is held of it"),
            }
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

pub(super) enum Reading {
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
        if self.conflict.is_none() && self.missing.is_none() && self.new.is_some() {
            self.good = self.new.take();
        }
    }

    fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.fault.iter().chain(&self.conflict)
    }
}

/// The whole file, unless it was written to or went meanwhile.
fn bytes_of(path: &Path, stamp: Stamp, most: u64) -> Result<Option<Vec<u8>>, String> {
    let too_large = || format!("it is larger than {most} bytes, which is the limit (limits.file_bytes)");
    if stamp.size > most {
        return Err(too_large());
    }
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None), // the next look says whether it is gone
        opened => opened.map_err(|error| error.to_string())?,
    };
    let mut bytes = Vec::with_capacity(usize::try_from(stamp.size).unwrap_or_default());
    (&file).take(most + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(too_large());
    }
    let same = file.metadata().is_ok_and(|metadata| Stamp::of(&metadata) == stamp);
    Ok(same.then_some(bytes))
}

/// How long something has to be missing to be gone.
pub(super) const GAP: Duration = Duration::from_millis(200);
/// Lines in the log for one look.
const TOLD_AT_ONCE: usize = 20;
