//! The thread that owns the file: it loads views into a starting relay, and then writes changes.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use redb::Database;
use tokio::sync::oneshot;
use weir_core::protocol::view::Revision;

use super::common::{Common, reopened, unwritten};
use super::counters::StateCounters;
use super::file::{self, FileFault};
use super::load::{NotUsed, Stored, StoredView, WallClock, id_of, written};
use super::save::{Contents, CurrentView, Form, Saved, ViewId, WrittenView};
use super::sealing::SealingKey;
use super::{StateOptions, WhenOlder};
use crate::relay::{Newest, SavedView, StateLoad, Views};

/// Controls the thread that writes the state.
pub(crate) struct StateWriter {
    counters: Arc<StateCounters>,
    load: Arc<StateLoad>,
    path: PathBuf,
    /// Set if the process ends before the file is loaded. The file must then not be written.
    given_up: Arc<AtomicBool>,
    stop: Sender<()>,
    /// Closed when the thread has ended.
    ended: oneshot::Receiver<()>,
}

impl StateWriter {
    /// Starts a thread that loads the file into views without clients, and then writes. Usually the file is loaded when this returns, but a slow
    /// disk is not waited for here.
    pub(crate) fn start(options: StateOptions, newest: &Arc<Newest<Views>>) -> anyhow::Result<Self> {
        let load = newest.get().readiness().load().clone();
        let counters = Arc::<StateCounters>::default();
        let mut work = Work {
            path: options.path.clone(),
            key: options.key.as_deref().map(SealingKey::read).transpose().context("state.key")?,
            options,
            views: Arc::downgrade(newest),
            counters: counters.clone(),
            load: load.clone(),
            open: None,
            was_loaded: false,
            unused: HashSet::new(),
            begun_without: HashSet::new(),
            given_up: Arc::default(),
            started: Instant::now(),
        };
        let (path, given_up) = (work.path.clone(), work.given_up.clone());
        let (stop, stopped) = mpsc::channel();
        let (running, ended) = oneshot::channel();
        let (trying, tried) = mpsc::channel::<()>();
        load.begin();
        let run = move || {
            work.open_first();
            drop(trying);
            work.run(&stopped);
            drop::<oneshot::Sender<()>>(running);
        };
        std::thread::Builder::new().name("weir-state".into()).spawn(run)?;
        let _ = tried.recv_timeout(AT_START); // closed when the file is loaded
        Ok(Self { counters, load, path, given_up, stop, ended })
    }

    pub(crate) fn counters(&self) -> Arc<StateCounters> {
        self.counters.clone()
    }

    /// Reports a slow disk, and makes the relay serve without the file. The thread itself cannot do this while it waits for the disk.
    pub(crate) fn watch(&self) -> impl Future<Output = ()> + Send + use<> {
        let (counters, load, path) = (self.counters(), self.load.clone(), self.path.clone());
        async move {
            if let Some(reason) = load.let_go_when_late().await {
                tracing::error!(path = %path.display(), %reason, "the state file is not loaded; serving without it, and not saving");
                while load.is_pending() {
                    counters.failed(&format!("not loaded: {reason}"));
                    tokio::time::sleep(SLOW).await;
                }
            }
            loop {
                tokio::time::sleep(SLOW).await;
                if counters.busy_for() >= Some(SLOW) && counters.failed("the disk is slow") {
                    tracing::warn!(path = %path.display(), "the disk is slow: state is not being saved; everything else goes on");
                }
            }
        }
    }

    /// Writes the last changes, and waits for that. Dropping the future leaves the thread alone with its disk, and the process can end.
    pub(crate) async fn finish(self) {
        if self.load.is_pending() {
            self.given_up.store(true, Ordering::Relaxed);
            tracing::warn!(path = %self.path.display(), "the state file was never loaded; it stays as it is");
            return;
        }
        drop(self.stop);
        let _ = self.ended.await; // the sender is dropped even if the thread has panicked
    }
}

pub(super) struct Work {
    pub(super) options: StateOptions,
    pub(super) path: PathBuf,
    pub(super) key: Option<SealingKey>,
    pub(super) views: Weak<Newest<Views>>,
    pub(super) counters: Arc<StateCounters>,
    pub(super) load: Arc<StateLoad>,
    pub(super) open: Option<(Database, Contents)>,
    /// The file was loaded. When it is opened again, the views of this process are newer than those in it.
    pub(super) was_loaded: bool,
    /// Views in the file that are kept for a while although they are not used.
    pub(super) unused: HashSet<ViewId>,
    /// Views that begin without what the file has of them, and to which no server has responded yet: the file has the only copy of their resources.
    pub(super) begun_without: HashSet<ViewId>,
    pub(super) given_up: Arc<AtomicBool>,
    pub(super) started: Instant,
}

impl Work {
    fn run(mut self, stopped: &Receiver<()>) {
        loop {
            let pause = if self.open.is_some() { PAUSE } else { RETRY };
            let is_last = !matches!(stopped.recv_timeout(pause), Err(RecvTimeoutError::Timeout));
            if self.given_up.load(Ordering::Relaxed) {
                return;
            }
            self.counters.begin();
            self.open();
            let Some(views) = self.newest() else { return };
            self.write(&views);
            self.counters.end();
            if is_last {
                return;
            }
        }
    }

    /// Opens the file for the first time, while streams may be waiting for its contents.
    fn open_first(&mut self) {
        let begun = Instant::now();
        let opened = loop {
            match self.open_and_load() {
                Err(FileFault::InUse) if begun.elapsed() < HANDED_OVER => std::thread::sleep(LOOK_AGAIN),
                opened => break opened,
            }
        };
        self.take(opened, begun);
        if self.load.end() {
            let (path, views) = (self.path.display(), self.counters.loaded_views());
            tracing::warn!(%path, views, "the disk of the state file has answered after all; only views without clients so far begin with it");
        }
    }

    fn newest(&self) -> Option<Arc<Views>> {
        self.views.upgrade().map(|newest| newest.get())
    }

    /// Opens the file if it is not open, and loads its contents.
    pub(super) fn open(&mut self) {
        if self.open.is_some() {
            return;
        }
        let begun = Instant::now();
        let opened = self.open_and_load();
        self.take(opened, begun);
    }

    /// Continues with the file, or without it. An unusable file is set aside.
    fn take(&mut self, opened: Result<(Database, Contents), FileFault>, begun: Instant) {
        match opened {
            Ok(contents) => self.open = Some(contents),
            Err(fault @ FileFault::Unusable(_)) => {
                let path = self.path.display();
                match self.load.ask(|| file::set_aside(&self.path)) {
                    Ok(aside) => {
                        tracing::error!(%path, error = %fault, aside = %aside.display(), "state file unusable; renamed, starting without it");
                        self.open = self.open_and_load().map_err(|fault| self.on_fault(&fault)).ok();
                    }
                    Err(error) => self.on_fault(&FileFault::Disk(format!("{fault}, and cannot be renamed: {error}"))),
                }
            }
            Err(fault) => self.on_fault(&fault),
        }
        let took = begun.elapsed();
        if took > SLOW {
            tracing::warn!(path = %self.path.display(), ?took, "state file took long to open");
        }
    }

    fn open_and_load(&mut self) -> Result<(Database, Contents), FileFault> {
        let begun = Instant::now();
        let database = file::open_asking(&self.path, self.key.is_some(), &self.load)?;
        let stored = file::guarded(|| Stored::read(&database, self.key.as_ref()))?;
        // Not earlier: the configuration may have been replaced while the disk was slow.
        let Some(views) = self.newest() else { return Ok((database, stored.contents())) };
        let views = &*views;
        if self.was_loaded {
            return Ok((database, reopened(&stored, views)));
        }
        let mut contents = stored.contents();
        let clock = WallClock::of(&stored, wall_time());
        let (mut loaded, mut resources, mut not_used) = (0, 0, Vec::new());
        let (common, of_hub) = (Common::of(views, false), views.hub().map(|hub| Common::of(hub, true)));
        for view in &stored.views {
            let of = if view.record.shared { of_hub.as_ref() } else { Some(&common) };
            let restored = match of.map_or(Err(NotUsed::OtherKey), |of| of.fits(&view.record)) {
                Ok(()) => self.restore(&stored, view, views, &clock)?,
                Err(why) => Err((why, None)),
            };
            match restored {
                Ok((id, written, count)) => {
                    if count.is_none() {
                        self.unused.insert(id.clone()); // in case the view ends before it has any resources
                        self.begun_without.insert(id.clone());
                    }
                    (loaded, resources) =
                        (loaded + usize::from(count.is_some()), resources + count.unwrap_or_default());
                    contents.views.insert(id, written);
                }
                Err((why, id)) => {
                    not_used.push(why);
                    match id {
                        Some(id) => {
                            contents.views.insert(id.clone(), unwritten(view, views));
                            self.unused.insert(id.clone());
                            self.begun_without.insert(id);
                        }
                        None => contents.orphans.push(view.number),
                    }
                }
            }
        }
        self.was_loaded = true;
        self.load.is_taken();
        self.counters.loaded(loaded, resources);
        let (path, took) = (self.path.display(), begun.elapsed());
        if loaded > 0 {
            tracing::info!(%path, views = loaded, resources, ?took, "state loaded; it is served until servers have spoken");
        }
        not_used.sort_unstable();
        for why in not_used.chunk_by(|one, other| one == other) {
            tracing::warn!(%path, views = why.len(), reason = %why[0], "views of the state file are not used");
        }
        if !clock.is_plausible && !stored.views.is_empty() {
            tracing::warn!(%path, "the clock is before the time at which the state was written; its age is unknown");
        }
        Ok((database, contents))
    }

    /// Restores a view. The outer error is a fault of the file.
    fn restore(
        &self,
        stored: &Stored,
        view: &StoredView,
        views: &Views,
        clock: &WallClock,
    ) -> Result<Restored, FileFault> {
        let of = if view.record.shared { views.hub().map(|hub| &**hub) } else { Some(views) };
        let Some((of, id)) = of.and_then(|of| Some((of, id_of(&view.record, of)?))) else {
            return Ok(Err((NotUsed::OtherKey, None)));
        };
        if view.record.lacks_secrets && !self.options.serve_without_secrets {
            return Ok(Err((NotUsed::LacksSecrets, Some(id))));
        }
        let sets = stored.sets_of(view, of, clock)?;
        let given = |set: &weir_core::protocol::view::SavedSet| set.resources.len();
        let count = sets.iter().map(given).sum();
        if sets.is_empty() {
            return Ok(Err((NotUsed::Nothing, None)));
        }
        let heard = view.record.servers.iter().map(|server| server.heard).max().unwrap_or_default();
        let age = clock.since(heard);
        let is_old = self.options.max_age.is_some_and(|max| age.is_some_and(|age| age > max));
        if is_old && self.options.when_older == WhenOlder::Refuse {
            return Ok(Err((NotUsed::TooOld, Some(id))));
        }
        let counts_for_readiness = !(is_old && self.options.when_older == WhenOlder::NotReady);
        let (brakes, lowest) = (Stored::brakes_of(view, of), Stored::lowest_of(view, of));
        let saved = SavedView { key: id.key.clone(), sets, brakes, lowest, counts_for_readiness, age };
        match of.restore(saved, self.options.keep) {
            Some(restored) => {
                if counts_for_readiness && count > 0 {
                    of.readiness().is_warm();
                }
                Ok(Ok((id, written(view, &restored, of), Some(count))))
            }
            None => Ok(Ok((id, unwritten(view, of), None))), // it has a task already
        }
    }

    /// Writes the changes of the views that serve, and of views of an earlier configuration that none of these follows yet.
    pub(super) fn write(&mut self, views: &Arc<Views>) {
        let Some((database, contents)) = &mut self.open else { return };
        if self.started.elapsed() > self.options.keep {
            self.unused.clear();
        }
        let begun = Instant::now();
        let now = wall_time();
        let (mut present, mut changed) = (self.unused.clone(), Vec::new());
        let mut seen = HashSet::new();
        let generations: Vec<_> = std::iter::successors(Some(views.clone()), |views| views.before()).collect();
        let with_hubs = |views: &Arc<Views>| [Some((views.clone(), false)), views.hub().map(|hub| (hub.clone(), true))];
        for (of, shared) in generations.iter().flat_map(with_hubs).flatten() {
            let (servers, common) = (Arc::new(of.shared().saved_servers()), OnceCell::new());
            let mut here = HashMap::new();
            for view in of.to_save() {
                here.insert(view.key.clone(), view); // a view that has started to run comes last, and replaces the waiting one
            }
            for view in here.into_values() {
                let id = ViewId { shared, key: view.key.clone() };
                if !seen.insert(id.clone()) {
                    continue; // a later view follows it
                }
                if view.is_refused {
                    self.begun_without.remove(&id);
                    self.unused.remove(&id);
                    present.remove(&id);
                    continue;
                }
                present.insert(id.clone());
                if self.begun_without.contains(&id) {
                    if view.responding.is_empty() {
                        continue;
                    }
                    self.begun_without.remove(&id);
                    self.unused.remove(&id);
                }
                let known = contents.views.get(&id);
                let is_current = known.is_some_and(|known| known.has_all_of(&view, now));
                if is_current || known.is_none() && view.snapshot.revision == Revision::ZERO {
                    continue;
                }
                let record = common.get_or_init(|| Common::of(&of, shared)).record(&id.key);
                changed.push(CurrentView { id, view, record, servers: servers.clone() });
            }
        }
        let wall_time =
            |moment| now + u64::try_from(views.shared().time_until(moment).as_millis()).unwrap_or(u64::MAX / 2);
        let form = Form { key: self.key.as_ref(), wall_time: &wall_time, now };
        match file::guarded(|| contents.save(database, &changed, |id| present.contains(id), &form)) {
            Ok(saved) => {
                if !changed.is_empty() || saved != Saved::default() {
                    self.counters.committed();
                }
                self.counters.current(now);
                let took = begun.elapsed();
                if took > SLOW {
                    tracing::warn!(path = %self.path.display(), ?took, "state file took long to write; it is current again");
                }
            }
            Err(fault) => {
                self.on_fault(&fault);
                self.open = None; // a database that could not write has to be opened again
            }
        }
    }

    fn on_fault(&self, fault: &FileFault) {
        let text = fault.to_string();
        if self.counters.failed(&text) {
            tracing::warn!(path = %self.path.display(), error = text, "state is not being saved; everything else goes on");
        }
    }
}

/// A view, its state in the file, and how many resources were restored, `None` if it is running already; or why it is not used.
type Restored = Result<(ViewId, WrittenView, Option<usize>), (NotUsed, Option<ViewId>)>;

/// Returns the milliseconds since 1970.
fn wall_time() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

/// The pause between two writes.
const PAUSE: Duration = Duration::from_millis(500);
/// The pause between two attempts to open the file.
const RETRY: Duration = Duration::from_secs(5);
/// How long streams wait for a file that another process has open: a draining process closes it after its last write.
const HANDED_OVER: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long the start of the relay waits for the file.
const AT_START: Duration = Duration::from_millis(300);
/// A read or write that takes longer causes a warning.
const SLOW: Duration = Duration::from_secs(5);
