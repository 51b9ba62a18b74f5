//! Views of an earlier process: they are complete before the first client comes, and wait for it without a task and without a stream.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Views;
use crate::protocol::moment::Moment;
use crate::protocol::sources::Plan;
use crate::protocol::view::{BrakeState, Class, SavedSet, Snapshot, View};
use crate::relay::published::{NotedBrakes, Published};
use crate::xds::{Authority, BodyStore, KeyRule, Name, SharingKey, TypeTable};

/// What an earlier process had of a view.
pub(crate) struct SavedView {
    pub(crate) key: SharingKey,
    pub(crate) sets: Vec<SavedSet>,
    pub(crate) brakes: BrakeState,
    /// Whether new clients may be sent here because of it.
    pub(crate) counts_for_readiness: bool,
    /// For how long its servers had not been heard when it was loaded, if that is known.
    pub(crate) age: Option<Duration>,
}

/// A view that waits for its first client.
pub(super) struct WaitingView {
    pub(super) view: View,
    pub(super) from_disk: FromDisk,
    /// Authorities that had fallen back.
    pub(super) fallen: BTreeSet<Authority>,
    /// See [`Published`].
    pub(super) life: u64,
}

impl WaitingView {
    pub(super) fn new(view: View, from_disk: FromDisk) -> Self {
        Self { view, from_disk, fallen: BTreeSet::new(), life: LIVES.fetch_add(1, Ordering::Relaxed) }
    }

    /// Returns what brakes hold in it.
    pub(super) fn brakes(&self, now: Moment) -> NotedBrakes {
        let state =
            if self.view.holds().is_braked() { self.view.holds().brake_state(now) } else { BrakeState::default() };
        NotedBrakes { state: state.into(), at: None, changes: 0 }
    }
}

static LIVES: AtomicU64 = AtomicU64::new(1);

/// What a running view has from disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct FromDisk {
    /// Authorities of which something was loaded, if the relay may be ready because of that.
    pub(crate) answered: BTreeSet<Authority>,
    /// For how long its servers had not been heard when it was loaded, if that is known.
    pub(crate) age: Option<Duration>,
    pub(crate) loaded: Option<Instant>,
}

impl FromDisk {
    /// Returns for how long its servers have not been heard by now, if that is known.
    pub(super) fn unheard(&self) -> Option<Duration> {
        Some(self.age? + self.loaded?.elapsed())
    }
}

/// The views that wait for their first clients.
#[derive(Default)]
pub(super) struct WaitingViews(Mutex<HashMap<SharingKey, WaitingView>>);

impl WaitingViews {
    fn lock(&self) -> MutexGuard<'_, HashMap<SharingKey, WaitingView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self, key: &SharingKey) -> Option<WaitingView> {
        self.lock().remove(key)
    }

    pub(super) fn keys(&self) -> Vec<SharingKey> {
        self.lock().keys().cloned().collect()
    }

    /// Shows one of them.
    pub(super) fn look<T>(&self, key: &SharingKey, at: impl FnOnce(&WaitingView) -> T) -> Option<T> {
        self.lock().get(key).map(at)
    }

    /// Puts one in, unless there is one.
    pub(super) fn put(&self, key: SharingKey, view: WaitingView) {
        self.lock().entry(key).or_insert(view);
    }

    /// Drops views whose clients have not come.
    pub(super) fn retire(&self, after: Duration) {
        let mut waiting = self.lock();
        if waiting.is_empty() {
            return;
        }
        let is_over = |of: &FromDisk| of.loaded.is_none_or(|loaded| loaded.elapsed() >= after);
        let before = waiting.len();
        waiting.retain(|_, waiting| !is_over(&waiting.from_disk));
        let (count, left) = (before - waiting.len(), waiting.len());
        drop(waiting);
        if count > 0 {
            tracing::info!(count, left, "saved views removed; no client came");
        }
    }
}

/// A view and its newest snapshot, for whoever saves it.
pub(crate) struct ViewToSave {
    pub(crate) key: SharingKey,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Revisions of different lives do not compare.
    pub(crate) life: u64,
    /// Places of the servers that the view has a stream to on which they have responded.
    pub(crate) responding: Vec<u16>,
    pub(crate) brakes: NotedBrakes,
}

impl Views {
    /// Puts back a view of an earlier process. It is dropped if its clients do not come within `keep`.
    /// Returns what it publishes, and its life, if there is no such view yet.
    pub(crate) fn restore(&self, saved: SavedView, keep: Duration) -> Option<(Arc<Snapshot>, u64)> {
        let now = self.clock.now();
        let SavedView { key, sets, brakes, counts_for_readiness, age } = saved;
        let answered = if counts_for_readiness { authorities_of(&sets) } else { BTreeSet::new() };
        let mut view = View::new(self.table.clone(), self.view_options.clone());
        view.restore(sets, now + keep, now);
        view.restore_brakes(&brakes, now);
        let from_disk = FromDisk { answered, age, loaded: Some(Instant::now()) };
        let waiting = WaitingView::new(view, from_disk);
        let restored = (waiting.view.snapshot().clone(), waiting.life);
        let views = self.lock();
        // What is here is newer, whether its first client has come or not.
        if views.get(&key).is_some() || self.waiting.look(&key, |_| ()).is_some() {
            return None;
        }
        self.waiting.put(key, waiting);
        Some(restored)
    }

    /// Returns how long it is until a moment of the views.
    pub(crate) fn time_until(&self, moment: Moment) -> Duration {
        moment - self.clock.now()
    }

    /// Returns all views, running and waiting. One that begins to run meanwhile may be among both.
    pub(crate) fn to_save(&self) -> Vec<ViewToSave> {
        let now = self.clock.now();
        let waiting = self.waiting.lock();
        let of_waiting = waiting.iter().map(|(key, waiting)| ViewToSave {
            key: key.clone(),
            snapshot: waiting.view.snapshot().clone(),
            life: waiting.life,
            responding: Vec::new(),
            brakes: waiting.brakes(now),
        });
        let mut all: Vec<_> = of_waiting.collect();
        drop(waiting);
        let running: Vec<(SharingKey, Arc<Published>)> = {
            let views = self.lock();
            views.running().map(|(key, view)| (key.clone(), view.published.clone())).collect()
        };
        let of_running = running.into_iter().map(|(key, published)| ViewToSave {
            key,
            snapshot: published.newest(),
            life: published.life,
            responding: published.responding(),
            brakes: published.brakes(),
        });
        all.extend(of_running);
        all
    }

    /// Returns how many views have something from disk that no server has confirmed, running or waiting for their first client.
    pub(crate) fn loaded_from_disk(&self) -> usize {
        let is_from_disk =
            |snapshot: Arc<Snapshot>| snapshot.tables().any(|(_, _, table)| table.loaded_from_disk() > 0);
        let published: Vec<_> = self.lock().running().map(|(_, view)| view.published.clone()).collect();
        let running = published.iter().filter(|published| is_from_disk(published.newest())).count();
        running + self.waiting.lock().len()
    }

    /// Returns the names of the servers whose resources are worth saving, by their places in the plan.
    pub(crate) fn saved_servers(&self) -> BTreeMap<u16, String> {
        let servers = self.connectors.iter().enumerate().filter(|(_, server)| !server.is_local());
        servers.filter_map(|(at, server)| Some((u16::try_from(at).ok()?, server.describe()))).collect()
    }

    /// Returns the rank of a server in the list for a name, or for `*`.
    pub(crate) fn rank_of(&self, server: u16, class: Class, name: &Name) -> Option<u8> {
        rank_in(&self.plan, server, class, name)
    }

    /// Returns the key of a node that this relay shows to servers, if the relay would show it the same node now.
    pub(crate) fn key_of_own_node(&self, node: &Bytes) -> Option<SharingKey> {
        self.rule.key(node).ok().filter(|key| key.upstream_node() == *node)
    }

    pub(crate) fn key_rule(&self) -> &KeyRule {
        &self.rule
    }

    pub(crate) fn types(&self) -> &TypeTable {
        &self.table
    }

    pub(crate) fn bodies(&self) -> &BodyStore {
        &self.store
    }

    pub(crate) fn hub(&self) -> Option<&Arc<Self>> {
        self.hub.as_ref()
    }
}

/// Returns the rank of a server of a plan in the list for a name, or for `*`.
pub(super) fn rank_in(plan: &Plan, server: u16, class: Class, name: &Name) -> Option<u8> {
    let authority = match class {
        Class::Wildcard => Authority::TopLevel,
        Class::Named => Authority::of(name),
    };
    let servers = &plan.authority(&authority)?.servers;
    u8::try_from(servers.iter().position(|at| *at == usize::from(server))?).ok()
}

pub(super) fn authorities_of(sets: &[SavedSet]) -> BTreeSet<Authority> {
    let of = |set: &SavedSet| match set.class {
        Class::Wildcard => BTreeSet::from([Authority::TopLevel]),
        Class::Named => set.resources.iter().map(|saved| Authority::of(&saved.key)).collect(),
    };
    sets.iter().flat_map(of).collect()
}
