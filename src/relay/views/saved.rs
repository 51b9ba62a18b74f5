//! Views of an earlier process: they are complete before the first client comes, and wait for it without a task and without a stream.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::Views;
use crate::protocol::moment::Moment;
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
}

/// What a running view has from disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct FromDisk {
    /// Authorities of which something was loaded, if the relay may be ready because of that.
    pub(crate) answered: BTreeSet<Authority>,
    /// For how long its servers had not been heard when it was loaded, if that is known.
    pub(crate) age: Option<Duration>,
    pub(crate) loaded: Option<Instant>,
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

    /// Returns what each of them publishes.
    pub(super) fn snapshots(&self) -> Vec<(SharingKey, Arc<Snapshot>)> {
        let waiting = self.lock();
        waiting.iter().map(|(key, waiting)| (key.clone(), waiting.view.snapshot().clone())).collect()
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
    /// Places of the servers that the view has a stream to on which they have responded.
    pub(crate) responding: Vec<u16>,
    pub(crate) brakes: NotedBrakes,
}

impl Views {
    /// Puts back a view of an earlier process. It is dropped if its clients do not come within `keep`.
    /// Returns what it publishes, if there is no such view yet.
    pub(crate) fn restore(&self, saved: SavedView, keep: Duration) -> Option<Arc<Snapshot>> {
        let now = self.clock.now();
        let SavedView { key, sets, brakes, counts_for_readiness, age } = saved;
        let answered = if counts_for_readiness { authorities_of(&sets) } else { BTreeSet::new() };
        let mut view = View::new(self.table.clone(), self.limits.clone());
        view.restore(sets, now + keep, now);
        view.restore_brakes(&brakes, now);
        let from_disk = FromDisk { answered, age, loaded: Some(Instant::now()) };
        let snapshot = view.snapshot().clone();
        let views = self.lock();
        if views.get(&key).is_some() {
            return None;
        }
        self.waiting.lock().insert(key, WaitingView { view, from_disk });
        Some(snapshot)
    }

    /// Returns how long it is until a moment of the views.
    pub(crate) fn time_until(&self, moment: Moment) -> Duration {
        moment - self.clock.now()
    }

    /// Returns all views, running and waiting.
    pub(crate) fn to_save(&self) -> Vec<ViewToSave> {
        let running: Vec<(SharingKey, Arc<Published>)> = {
            let views = self.lock();
            views.running().map(|(key, view)| (key.clone(), view.published.clone())).collect()
        };
        let of_running = running.into_iter().map(|(key, published)| ViewToSave {
            key,
            snapshot: published.newest(),
            responding: published.responding(),
            brakes: published.brakes(),
        });
        let of_waiting = self.waiting.snapshots().into_iter().map(|(key, snapshot)| ViewToSave {
            key,
            snapshot,
            responding: Vec::new(),
            brakes: NotedBrakes::default(),
        });
        of_running.chain(of_waiting).collect()
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
        let authority = match class {
            Class::Wildcard => Authority::TopLevel,
            Class::Named => Authority::of(name),
        };
        let servers = &self.plan.authority(&authority)?.servers;
        u8::try_from(servers.iter().position(|at| *at == usize::from(server))?).ok()
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

fn authorities_of(sets: &[SavedSet]) -> BTreeSet<Authority> {
    let of = |set: &SavedSet| match set.class {
        Class::Wildcard => BTreeSet::from([Authority::TopLevel]),
        Class::Named => set.resources.iter().map(|saved| Authority::of(&saved.key)).collect(),
    };
    sets.iter().flat_map(of).collect()
}
