//! Files as a source: a local set.
//!
//! One loader for each list of paths reads and watches the files. Each view gets each new snapshot as a whole. What a missing resource means is
//! decided in [`local_set`](weir_core::protocol::local_set).

mod disk_wait;
mod known;
mod link;
mod loader;
mod parse;
mod room;
mod walk;
mod watch;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{mpsc, watch as latest};
use tokio::task::JoinHandle;

pub(crate) use link::FilesConnector;
pub(crate) use parse::Parser;
use weir_core::protocol::local_set::SourceSnapshot;

use self::loader::{LoadResult, Loader};
use self::watch::Watcher;

/// Which files are read, and the limits on their number and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilesOptions {
    /// Folders, which are read recursively, and single files.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) files: usize,
    pub(crate) file_bytes: u64,
}

/// An error of a file or of its path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct FileError {
    pub(crate) file: PathBuf,
    pub(crate) line: Option<u64>,
    pub(crate) reason: String,
}

/// The files of one list of paths, read by a task that ends when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct FilesSource(Arc<Inner>);

struct Inner {
    options: Arc<FilesOptions>,
    loaded: latest::Receiver<Loaded>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone)]
struct Loaded {
    state: SourceState,
    report: Arc<Report>,
    /// The snapshots that are served, even while the source is missing. Until all files could be read, those of earlier sources come after its own;
    /// before the first look, there are only those.
    served: Vec<Arc<SourceSnapshot>>,
}

#[derive(Debug, Clone)]
enum SourceState {
    /// The first look is under way.
    Loading,
    /// Unreachable, with the reason.
    Missing(String),
    Ready(Arc<SourceSnapshot>),
}

#[derive(Debug, Clone, Default)]
struct Report {
    files: usize,
    resources: usize,
    /// When something was last read, and how long it took.
    loaded: Option<(Instant, Duration)>,
    faults: Vec<FileError>,
}

/// The report of a file source in the admin API.
#[derive(Debug, Serialize)]
pub(crate) struct FilesReport {
    pub(crate) paths: Vec<PathBuf>,
    /// `loading`, `missing` or `ready`.
    pub(crate) state: &'static str,
    /// Why the source is missing.
    pub(crate) reason: Option<String>,
    pub(crate) files: usize,
    pub(crate) resources: usize,
    /// Time since the last change was read.
    pub(crate) age_seconds: Option<u64>,
    /// How long the last reading took.
    pub(crate) load_seconds: Option<f64>,
    pub(crate) errors: Vec<FileError>,
}

impl FilesReport {
    /// Returns the name of the source in metrics: its paths.
    pub(crate) fn name(&self) -> String {
        self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(",")
    }
}

impl FilesSource {
    pub(crate) fn start(options: FilesOptions, parser: Parser) -> Self {
        Self::start_after(Vec::new(), options, parser)
    }

    /// Starts a source that replaces others, which served these snapshots. Their resources are not new: they are served even without room.
    pub(crate) fn start_after(served: Vec<Arc<SourceSnapshot>>, options: FilesOptions, parser: Parser) -> Self {
        let options = Arc::new(options);
        let first = Loaded { state: SourceState::Loading, report: Arc::default(), served: served.clone() };
        let (tell, loaded) = latest::channel(first);
        let (changed, changes) = mpsc::channel(1);
        let of = options.clone();
        let task = tokio::spawn(async move {
            let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let options = FilesOptions { paths: of.paths.iter().map(absolute).collect(), ..(*of).clone() };
            parser.bound().await;
            follow(Loader::new(Arc::new(options), parser, Watcher::new(changed)).after(served), changes, tell).await;
        });
        Self(Arc::new(Inner { options, loaded, task }))
    }

    pub(crate) fn options(&self) -> &FilesOptions {
        &self.0.options
    }

    /// Returns the served snapshots: the source's own, then those of earlier sources until all files could be read.
    pub(crate) fn served(&self) -> Vec<Arc<SourceSnapshot>> {
        self.0.loaded.borrow().served.clone()
    }

    pub(crate) fn report(&self) -> FilesReport {
        let Loaded { state, report, .. } = self.0.loaded.borrow().clone();
        let (state, reason) = match state {
            SourceState::Loading => ("loading", None),
            SourceState::Missing(reason) => ("missing", Some(reason)),
            SourceState::Ready(_) => ("ready", None),
        };
        FilesReport {
            paths: self.0.options.paths.clone(),
            state,
            reason,
            files: report.files,
            resources: report.resources,
            age_seconds: report.loaded.map(|(at, _)| at.elapsed().as_secs()),
            load_seconds: report.loaded.map(|(_, took)| took.as_secs_f64()),
            errors: report.faults.clone(),
        }
    }

    /// Waits for the first look at the files, and returns why they are not read.
    pub(super) async fn first_answer(&self) -> Result<(), String> {
        let mut loaded = self.subscribe();
        let looked = loaded.wait_for(|loaded| !matches!(loaded.state, SourceState::Loading)).await;
        match looked.map(|loaded| loaded.state.clone()) {
            Ok(SourceState::Ready(snapshot)) if snapshot.is_complete() => Ok(()),
            Ok(SourceState::Ready(_)) => Err("not all of its files could be read".into()),
            Ok(SourceState::Missing(reason)) => Err(reason),
            Ok(SourceState::Loading) | Err(_) => Err("they are not followed".into()), // the task that does has ended
        }
    }

    fn subscribe(&self) -> latest::Receiver<Loaded> {
        self.0.loaded.clone()
    }
}

impl Loaded {
    /// Adds the error that the disk does not answer. What was read stays in use; if nothing was, the source is unreachable.
    fn note_late(&mut self, late: FileError) {
        if matches!(self.state, SourceState::Loading) {
            self.state = SourceState::Missing(late.to_string());
        }
        Arc::make_mut(&mut self.report).faults.push(late);
    }
}

/// Looks at the files now, after each change, and at intervals in case a change was missed. Everything runs on a blocking thread,
/// so that only the readers of the files wait for it.
async fn follow(mut loader: Loader, mut changes: mpsc::Receiver<()>, tell: latest::Sender<Loaded>) {
    let (options, disk) = (loader.options.clone(), loader.disk.clone());
    loop {
        let mut look = tokio::task::spawn_blocking(move || {
            let look = loader.look();
            (loader, look)
        });
        let looked = tokio::select! {
            looked = &mut look => looked,
            late = disk.late() => {
                tracing::warn!(source = %options, error = %late, "the disk of resource files does not answer; serving what was read before");
                tell.send_modify(|loaded| loaded.note_late(late));
                let looked = look.await; // another look would hang too, in one more thread
                tracing::info!(source = %options, "the disk of resource files has answered after all");
                looked
            }
        };
        let LoadResult { loaded, unsettled, watched } = match looked {
            Ok((back, look)) => {
                loader = back;
                look
            }
            Err(error) => {
                tracing::error!(%error, "file watcher failed; serving the last contents");
                return std::future::pending().await; // and is still served
            }
        };
        tell.send_replace(loaded);
        if let Ok(Some(())) = tokio::time::timeout(settle_time(unsettled, watched), changes.recv()).await {
            quiet(&mut changes).await;
        }
    }
}

/// Returns the time until the next look if no change is reported before.
fn settle_time(unsettled: bool, watched: bool) -> Duration {
    match (unsettled, watched) {
        (true, _) => LOOKS_UNSETTLED,
        (false, true) => LOOKS,
        (false, false) => LOOKS_UNWATCHED,
    }
}

/// Waits until no change has been reported for a moment, but no longer than a limit.
async fn quiet(changes: &mut mpsc::Receiver<()>) {
    let calm = async { while let Ok(Some(())) = tokio::time::timeout(QUIET, changes.recv()).await {} };
    let _ = tokio::time::timeout(LONGEST_UNQUIET, calm).await;
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FileError {
    fn of(file: &Path, reason: &str) -> Self {
        Self { file: file.to_owned(), line: None, reason: reason.to_owned() }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl fmt::Display for FilesOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths.iter().map(|path| path.display().to_string()).collect();
        write!(f, "files {}", paths.join(", "))
    }
}

/// Changes come in bursts, and a file is written in several steps.
const QUIET: Duration = Duration::from_millis(100);
const LONGEST_UNQUIET: Duration = Duration::from_secs(1);
/// Intervals between looks without a reported change: where the system reports changes, where it does not, and where the last look found a file
/// that may still change. The last interval lets such a file settle within a second of the change.
const LOOKS: Duration = Duration::from_secs(30);
const LOOKS_UNWATCHED: Duration = Duration::from_secs(1);
const LOOKS_UNSETTLED: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests;
