//! Views of an earlier process. They are complete before their first client comes, and wait for it without a task and without a stream.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::{LowestOpen, ServerHistory};
use weir_core::protocol::view::{BrakeState, Class, SavedSet, Snapshot, View};
use weir_core::xds::{Authority, SharingKey};

use crate::relay::published::{FromDisk, NotedBrakes};

/// The saved state of a view.
pub(crate) struct SavedView {
    pub(crate) key: SharingKey,
    pub(crate) sets: Vec<SavedSet>,
    pub(crate) brakes: BrakeState,
    /// The lowest open server of each authority.
    pub(crate) lowest: BTreeMap<Authority, LowestOpen>,
    /// Whether the relay may be ready for new clients because of this view.
    pub(crate) counts_for_readiness: bool,
    /// For how long its servers had not been heard when it was loaded, if that is known.
    pub(crate) age: Option<Duration>,
}

/// A view that waits for its first client.
pub(super) struct WaitingView {
    pub(super) view: View,
    pub(super) from_disk: FromDisk,
    /// What the earlier view knew of the servers.
    pub(super) history: ServerHistory,
    /// What brakes hold. There may be very much of it, so it is not asked for again each time.
    pub(super) brakes: NotedBrakes,
    /// See [`Published`].
    pub(super) life: u64,
}

impl WaitingView {
    pub(super) fn new(view: View, from_disk: FromDisk) -> Self {
        let (history, brakes) = Default::default();
        Self { view, from_disk, history, brakes, life: LIVES.fetch_add(1, Ordering::Relaxed) }
    }

    /// Puts what was saved into an empty view. It is dropped if its clients do not come within `keep`.
    pub(super) fn restored(saved: SavedView, mut view: View, now: Moment, keep: Duration) -> Self {
        let SavedView { key: _, sets, brakes, lowest, counts_for_readiness, age } = saved;
        let answered = if counts_for_readiness { authorities_of(&sets) } else { BTreeSet::new() };
        view.restore(sets, now + keep, now);
        view.restore_brakes(&brakes, now);
        let from_disk = FromDisk { answered, age, loaded: Some(Instant::now()) };
        let (history, brakes) = (ServerHistory { lowest, ..ServerHistory::default() }, noted_brakes(&view, now));
        Self { history, brakes, ..Self::new(view, from_disk) }
    }
}

/// Returns what brakes hold in a view without a task.
pub(super) fn noted_brakes(view: &View, now: Moment) -> NotedBrakes {
    let state = if view.holds().is_braked() { view.holds().brake_state(now) } else { BrakeState::default() };
    NotedBrakes { state: state.into(), at: None, changes: 0 }
}

static LIVES: AtomicU64 = AtomicU64::new(1);

/// The views that wait for their first clients.
#[derive(Default)]
pub(super) struct WaitingViews(Mutex<HashMap<SharingKey, WaitingView>>);

impl WaitingViews {
    pub(super) fn take(&self, key: &SharingKey) -> Option<WaitingView> {
        self.lock().remove(key)
    }

    pub(super) fn keys(&self) -> Vec<SharingKey> {
        self.lock().keys().cloned().collect()
    }

    /// Reads the waiting view of a key, if there is one.
    pub(super) fn look<T>(&self, key: &SharingKey, at: impl FnOnce(&WaitingView) -> T) -> Option<T> {
        self.lock().get(key).map(at)
    }

    pub(super) fn has(&self, key: &SharingKey) -> bool {
        self.lock().contains_key(key)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Adds a view, unless its key has one. Returns whether it was added.
    pub(super) fn put(&self, key: SharingKey, view: WaitingView) -> bool {
        match self.lock().entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(view);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    pub(super) fn to_save(&self) -> Vec<ViewToSave> {
        let waiting = self.lock();
        let of_waiting = waiting.iter().map(|(key, waiting)| ViewToSave {
            key: key.clone(),
            snapshot: waiting.view.snapshot().clone(),
            life: waiting.life,
            responding: Vec::new(),
            brakes: waiting.brakes.clone(),
            lowest: waiting.history.lowest.clone(),
            is_refused: false,
        });
        of_waiting.collect()
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

    fn lock(&self) -> MutexGuard<'_, HashMap<SharingKey, WaitingView>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A view and its newest snapshot, to be saved.
pub(crate) struct ViewToSave {
    pub(crate) key: SharingKey,
    pub(crate) snapshot: Arc<Snapshot>,
    /// Revisions of different lives do not compare.
    pub(crate) life: u64,
    /// Places of the servers that have responded on an open stream of the view.
    pub(crate) responding: Vec<u16>,
    pub(crate) brakes: NotedBrakes,
    /// The lowest open server of each authority.
    pub(crate) lowest: BTreeMap<Authority, LowestOpen>,
    /// The server refuses the view: nothing of it is saved, and what was saved before is removed.
    pub(crate) is_refused: bool,
}

pub(super) fn authorities_of(sets: &[SavedSet]) -> BTreeSet<Authority> {
    let of = |set: &SavedSet| match set.class {
        Class::Wildcard => BTreeSet::from([Authority::TopLevel]),
        Class::Named => set.resources.iter().map(|saved| Authority::of(&saved.key)).collect(),
    };
    sets.iter().flat_map(of).collect()
}
