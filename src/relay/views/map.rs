//! The views of one configuration by their keys. Running views come with what is known of all of them: how their fields differ, and which client
//! made each. Other views wait for their first clients.

mod lines;
mod running;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_core::proto::Request;
use weir_core::protocol::session::Client;
use weir_core::protocol::view::{Class, ResourceTable};
use weir_core::xds::{Clearance, KeyRule, Name, SharingKey, Type};

pub(super) use self::running::RunningViews;
use super::quotas::ViewQuota;
use super::saved::{ViewToSave, WaitingView, WaitingViews};
use super::split::{Split, SplitWatch, ViewValues, view_values};
use super::successor::InheritedView;
use crate::memory::ViewCharge;
use crate::relay::admission::AdmissionError;
use crate::relay::command::Command;
use crate::relay::inspection::ViewFacts;
use crate::relay::key_headers::KeyHeaders;
use crate::relay::nack_watch::{NackNews, NackWatch};
use crate::relay::published::{FromDisk, Published};
use crate::relay::shared::Shared;
use crate::relay::view_task::{ViewChannels, ViewTask};
use crate::relay::view_usage::{ViewGuard, ViewUsage};
use crate::shared_runtime;

/// A view with the types that are worth a log line.
pub(in crate::relay) type ViewNews = (mpsc::Sender<Command>, Vec<(Type, NackNews)>);

#[derive(Default)]
pub(super) struct ViewMap {
    /// Guards only the map.
    running: Mutex<RunningViews>,
    /// Views of an earlier process or configuration that no client has asked for yet.
    waiting: WaitingViews,
    split_watch: SplitWatch,
}

impl ViewMap {
    /// Returns the view of a key, and keeps it while the result exists. If the view does not run, starts it, if there is room.
    pub(super) fn enter(
        &self,
        key: &SharingKey,
        yields: impl FnOnce(usize) -> Result<(), AdmissionError>,
        make_room: impl FnOnce(&mut RunningViews) -> Result<(), AdmissionError>,
        start: impl FnOnce(Option<WaitingView>) -> ViewHandle,
    ) -> Result<Entrance, AdmissionError> {
        let mut running = self.lock();
        if let Some(view) = running.views.get(key).filter(|view| view.is_running()) {
            if view.stay.is_last() {
                yields(running.views.len())?;
            }
            return Ok(view.enter());
        }
        running.remove(key); // its task has panicked
        make_room(&mut running)?;
        let view = start(self.waiting.take(key));
        running.lines.created(key, running.views.len() + 1);
        let entrance = view.enter();
        running.insert(key.clone(), view);
        Ok(entrance)
    }

    /// Finds room for the view of a key, unless it runs already.
    pub(super) fn find_room(
        &self,
        key: &SharingKey,
        find: impl FnOnce(&mut RunningViews) -> Result<(), AdmissionError>,
    ) -> Result<(), AdmissionError> {
        let mut running = self.lock();
        if running.views.get(key).is_some_and(ViewHandle::is_running) { Ok(()) } else { find(&mut running) }
    }

    /// Adds a view that waits for its first client. If there is a view of its key, running or waiting, that one is newer and stays. Returns whether
    /// the view was added.
    pub(super) fn put_waiting(&self, key: SharingKey, view: WaitingView) -> bool {
        let running = self.lock();
        !running.views.contains_key(&key) && self.waiting.put(key, view)
    }

    pub(super) fn has(&self, key: &SharingKey) -> bool {
        self.lock().views.contains_key(key) || self.waiting.has(key)
    }

    /// Returns the keys of the views that run or wait.
    pub(super) fn keys(&self) -> BTreeSet<SharingKey> {
        let mut keys: BTreeSet<_> = self.waiting.keys().into_iter().collect();
        keys.extend(self.lock().running().map(|(key, _)| key.clone()));
        keys
    }

    /// Removes idle views, and those whose clients have not come.
    pub(super) fn retire(&self, after: Duration) {
        self.lock().retire(after);
        self.waiting.retire(after);
    }

    /// Whether no stream is served.
    pub(super) fn has_no_clients(&self) -> bool {
        self.lock().views.values().all(|view| view.stay.is_last())
    }

    pub(super) fn published(&self, key: &SharingKey) -> Option<Arc<Published>> {
        self.lock().views.get(key).map(|view| view.published.clone())
    }

    /// Returns the names of a type in a view that its client may read.
    pub(super) fn present_names(&self, key: &SharingKey, kind: &Type, clearance: &Clearance) -> Vec<String> {
        let Some(published) = self.published(key) else { return Vec::new() };
        let snapshot = published.newest();
        let tables = [Class::Wildcard, Class::Named].into_iter().filter_map(|class| snapshot.resources(kind, class));
        let allowed = |name: &&Name| clearance.allows(kind, name);
        let names: BTreeSet<_> = tables.flat_map(ResourceTable::present_names).filter(allowed).collect();
        names.into_iter().map(Name::to_string).collect()
    }

    /// Returns the active server of a view for `*` and old-style names.
    pub(super) fn active_server(&self, key: &SharingKey) -> Option<usize> {
        self.lock().views.get(key).map(|view| view.active.load(Ordering::Relaxed))
    }

    /// Whether the server refuses the view of a key.
    pub(super) fn is_refused(&self, key: &SharingKey) -> bool {
        self.published(key).is_some_and(|published| published.refusal().is_some())
    }

    /// Returns what a view leaves to the next one of its key. Running views are looked up last, so that a view that begins meanwhile is found.
    pub(super) fn left(&self, key: &SharingKey, shared: &Shared) -> Option<InheritedView> {
        let waiting = self.waiting.look(key, |waiting| InheritedView::of_waiting(waiting, shared));
        let running = {
            let running = self.lock();
            let view = running.views.get(key).filter(|view| view.is_running() && view.published.refusal().is_none());
            view.map(|view| (view.published.clone(), view.from_disk.clone()))
        };
        let running = running.map(|(published, from_disk)| InheritedView::of_running(&published, from_disk, shared));
        running.or(waiting)
    }

    /// Returns all views, running and waiting. One that begins to run meanwhile may be among both.
    pub(super) fn to_save(&self, has_lasting_hashes: bool) -> Vec<ViewToSave> {
        let mut all = self.waiting.to_save();
        let is_lasting = |key: &SharingKey| has_lasting_hashes || key.headers().is_empty();
        all.retain(|view| is_lasting(&view.key));
        let running: Vec<(SharingKey, Arc<Published>)> = self
            .lock()
            .running()
            .filter(|(key, _)| is_lasting(key))
            .map(|(key, view)| (key.clone(), view.published.clone()))
            .collect();
        all.extend(running.into_iter().map(|(key, published)| ViewToSave {
            key,
            snapshot: published.newest(),
            life: published.life(),
            responding: published.responding(),
            brakes: published.brakes(),
            lowest: published.lowest(),
            is_refused: published.refusal().is_some(),
        }));
        all
    }

    /// Returns how many views have something from disk that no server has confirmed, running or waiting for their first client.
    pub(super) fn loaded_from_disk(&self) -> usize {
        let published: Vec<_> = self.lock().running().map(|(_, view)| view.published.clone()).collect();
        let is_from_disk = |published: &&Arc<Published>| {
            published.newest().tables().any(|(_, _, table)| table.sums().loaded_from_disk() > 0)
        };
        published.iter().filter(is_from_disk).count() + self.waiting.len()
    }

    /// Returns the tasks of the views.
    pub(super) fn tasks(&self) -> Vec<mpsc::Sender<Command>> {
        self.lock().views.values().map(|view| view.commands.clone()).collect()
    }

    /// Returns the same with their keys.
    pub(super) fn tasks_by_key(&self) -> Vec<(SharingKey, mpsc::Sender<Command>)> {
        self.lock().views.iter().map(|(key, view)| (key.clone(), view.commands.clone())).collect()
    }

    pub(super) fn nack_watches(&self) -> Vec<Arc<NackWatch>> {
        self.lock().views.values().map(|view| view.nacks.clone()).collect()
    }

    /// Takes at most so many news of NACKs, by view.
    pub(super) fn take_nack_news(&self, now: std::time::Instant, most: usize) -> Vec<ViewNews> {
        let mut left = most;
        let running = self.lock();
        let news = running.views.values().filter_map(|view| {
            let news = view.nacks.take_news(now, left);
            left -= news.len();
            (!news.is_empty()).then(|| (view.commands.clone(), news))
        });
        news.collect()
    }

    /// Warns if most clients have a view of their own.
    pub(super) fn watch_split(&self, rule: &KeyRule, connections: usize) {
        let running = self.lock();
        let views = running.views.values().filter(|view| !view.of_relay).count();
        if self.split_watch.look(views, connections)
            && let Some(Split { field, values }) = Split::of(&running.values, rule)
        {
            drop(running);
            tracing::warn!(
                views,
                connections,
                field,
                values,
                "most clients have a view of their own; weir key shows what views.key could leave out"
            );
        }
    }

    /// Returns how many values each field of the key has over all views.
    pub(super) fn values_by_field(&self, rule: &KeyRule) -> Vec<(String, usize)> {
        let fields = rule.fields();
        let counts: Vec<_> = self.lock().values.counts().chain(std::iter::repeat(0)).take(fields.len()).collect();
        fields.iter().map(ToString::to_string).zip(counts).collect()
    }

    fn lock(&self) -> MutexGuard<'_, RunningViews> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle of one view.
pub(super) struct ViewHandle {
    published: Arc<Published>,
    nacks: Arc<NackWatch>,
    commands: mpsc::Sender<Command>,
    usage: Arc<ViewUsage>,
    /// The server for `*` and old-style names, by its place in the plan.
    active: Arc<AtomicUsize>,
    stay: ViewGuard,
    /// The values of the fields of its key.
    values: ViewValues,
    /// The quota of the client that made the view.
    maker: Arc<ViewQuota>,
    _charge: Option<ViewCharge>,
    /// Whether a relay was its first client. A relay has a view for each of its own views, so such views do not show how well clients share.
    of_relay: bool,
    /// What the view had from disk when it began.
    from_disk: FromDisk,
}

/// What a session needs to join a view. The view is kept until the session has left it, or has failed to join.
pub(super) struct Entrance {
    pub(super) published: Arc<Published>,
    pub(super) nacks: Arc<NackWatch>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) stay: ViewGuard,
}

impl ViewHandle {
    /// Starts the task of a view, with what has waited for its first client.
    pub(super) fn start(
        shared: &Arc<Shared>,
        (key, headers): (&SharingKey, &KeyHeaders),
        waiting: Option<WaitingView>,
        first: &Request,
        maker: Arc<ViewQuota>,
    ) -> Self {
        shared.readiness.load().note_view(shared.is_hub, key);
        let fields: Vec<_> =
            key.parts(&shared.rule).into_iter().map(|(field, value)| (field.to_string(), value)).collect();
        let values = view_values(fields.iter().map(|(_, value)| value.as_str()));
        let begins_empty = || WaitingView::new(shared.empty_view(), FromDisk::default());
        let WaitingView { view, from_disk, history, brakes, life } = waiting.unwrap_or_else(begins_empty);
        let published = Arc::new(Published::new(shared.view_options.clone(), life));
        published.begin_with(view.snapshot(), brakes, history.clone());
        let usage = Arc::new(ViewUsage::new(Instant::now()));
        let active = Arc::new(AtomicUsize::new(shared.first_server()));
        let (sender, commands) = mpsc::channel(1024);
        let view_id = shared.view_id(key);
        let facts = ViewFacts {
            metric_label: shared.metric_labels.assign(&view_id),
            view_id,
            is_hub: shared.is_hub,
            key_fields: fields.into_iter().collect(),
            node: key.upstream_node(),
            from_disk: from_disk.clone(),
        };
        let nacks = Arc::<NackWatch>::default();
        let channels = ViewChannels {
            commands,
            published: published.clone(),
            usage: usage.clone(),
            active: active.clone(),
            nacks: nacks.clone(),
        };
        // The first client may be on another runtime.
        shared_runtime::within(|| {
            let task = ViewTask::new(shared.clone(), key, facts, view, history, headers.clone(), channels);
            tokio::spawn(task.run_supervised());
        });
        Self {
            published,
            nacks,
            commands: sender,
            usage,
            active,
            stay: ViewGuard::default(),
            values,
            _charge: maker.charge_view(key.upstream_node().len() + headers.bytes() * (1 + shared.plan.servers.len())),
            maker,
            of_relay: first.node().is_some_and(|node| Client::is_relay(node)),
            from_disk,
        }
    }

    fn enter(&self) -> Entrance {
        let (published, commands) = (self.published.clone(), self.commands.clone());
        Entrance { published, nacks: self.nacks.clone(), commands, stay: self.stay.clone() }
    }

    /// Whether the view task is running. It is not after a panic.
    fn is_running(&self) -> bool {
        !self.commands.is_closed()
    }

    /// Whether the view had no session and no interest for long enough, and no session is about to join it. Sessions look a view up under the same
    /// lock, so no session can join a view that was removed from the map.
    fn is_over(&self, after: Duration, now: Instant) -> bool {
        self.stay.is_last() && self.usage.is_over(after, now)
    }
}

#[cfg(test)]
impl ViewMap {
    pub(super) fn waiting(&self) -> &WaitingViews {
        &self.waiting
    }

    pub(super) fn len(&self) -> usize {
        self.lock().views.len()
    }

    pub(super) fn usage(&self, key: &SharingKey) -> Option<Arc<ViewUsage>> {
        self.lock().views.get(key).map(|view| view.usage.clone())
    }

    pub(super) fn are_idle(&self) -> bool {
        self.lock().views.values().all(|view| view.usage.is_idle())
    }

    pub(super) fn of_clients(&self) -> usize {
        self.lock().views.values().filter(|view| !view.of_relay).count()
    }

    pub(super) fn set_active(&self, key: &SharingKey, server: usize) {
        self.lock().views[key].active.store(server, Ordering::Relaxed);
    }
}
