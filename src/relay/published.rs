//! What a view task has published of its view: snapshots for its sessions, and what a later view of the same key begins with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::{LowestOpen, ServerHistory};
use weir_core::protocol::upstream::ServerStatus;
use weir_core::protocol::view::{BrakeState, LeaseAccess, Leases, Snapshot, ViewOptions};
use weir_core::xds::{Authority, Type};

/// The newest snapshot of a view, and those that sessions have leased. No lock is held while a reply is made.
#[derive(Debug)]
pub(super) struct Published {
    /// How many sessions are blocked without a time limit.
    blocked: AtomicUsize,
    newest: Mutex<Arc<Snapshot>>,
    leases: Mutex<Leases>,
    /// Places of the servers that have responded on a stream of this view that is still open.
    responding: Mutex<Vec<u16>>,
    brakes: Mutex<NotedBrakes>,
    /// Types that no server is asked for. Those that a server refuses have its status.
    types_apart: Mutex<Arc<TypesApart>>,
    /// The status by which a server refuses the headers of the view.
    refusal: Mutex<Option<Arc<ServerStatus>>>,
    /// What a later view is to know of the servers.
    history: Mutex<ServerHistory>,
    /// Distinguishes this view from earlier and later ones of the same key. Revisions of different lives do not compare.
    life: u64,
}

/// Types that no server is asked for. Those that a server refuses have its status.
pub(super) type TypesApart = BTreeMap<Type, Option<Arc<ServerStatus>>>;

/// What brakes held when it was noted.
#[derive(Debug, Clone, Default)]
pub(crate) struct NotedBrakes {
    pub(crate) state: Arc<BrakeState>,
    pub(crate) at: Option<Instant>,
    /// How often what is held has changed.
    pub(crate) changes: u64,
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

impl FromDisk {
    /// Returns for how long its servers have not been heard by now, if that is known.
    pub(super) fn unheard(&self) -> Option<Duration> {
        Some(self.age? + self.loaded?.elapsed())
    }
}

impl Published {
    pub(super) fn new(options: Arc<ViewOptions>, life: u64) -> Self {
        let (newest, responding, brakes, types_apart, refusal, history) = Default::default();
        let (blocked, leases) = (AtomicUsize::new(0), Mutex::new(Leases::new(options)));
        Self { blocked, newest, leases, responding, brakes, types_apart, refusal, history, life }
    }

    /// Takes over what a view begins with. Its task notes the same after its first events, and before that the view may be saved or handed over.
    pub(super) fn begin_with(&self, snapshot: &Arc<Snapshot>, brakes: NotedBrakes, history: ServerHistory) {
        self.replace(snapshot);
        *self.brakes.lock().unwrap_or_else(PoisonError::into_inner) = brakes;
        self.note_history(history);
    }

    /// One more session is blocked, or one less.
    pub(super) fn count_blocked(&self, is_blocked: bool) {
        match is_blocked {
            true => self.blocked.fetch_add(1, Ordering::Relaxed),
            false => self.blocked.fetch_sub(1, Ordering::Relaxed),
        };
    }

    pub(super) fn blocked(&self) -> usize {
        self.blocked.load(Ordering::Relaxed)
    }

    pub(super) fn life(&self) -> u64 {
        self.life
    }

    /// Notes what brakes hold; `None` if nothing.
    pub(super) fn note_brakes(&self, state: Option<BrakeState>) {
        let mut known = self.brakes.lock().unwrap_or_else(PoisonError::into_inner);
        let state = match state {
            None if known.state.sets.is_empty() => return,
            state => state.unwrap_or_default(),
        };
        known.changes += u64::from(!state.holds_the_same(&known.state));
        (known.state, known.at) = (state.into(), Some(Instant::now()));
    }

    pub(super) fn brakes(&self) -> NotedBrakes {
        self.brakes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_types_apart(&self, types: Arc<TypesApart>) {
        *self.types_apart.lock().unwrap_or_else(PoisonError::into_inner) = types;
    }

    /// Returns the types that no server is asked for. Those that a server refuses have its status.
    pub(super) fn types_apart(&self) -> Arc<TypesApart> {
        self.types_apart.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes the status by which a server refuses the view, or that none does. Returns whether that is news. Only the code counts for this, since
    /// the text of the status may differ each time.
    pub(super) fn note_refusal(&self, status: Option<Arc<ServerStatus>>) -> bool {
        let mut known = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, status);
        before.as_ref().map(|status| status.code) != known.as_ref().map(|status| status.code)
    }

    /// Returns the status that new streams get.
    pub(super) fn refusal(&self) -> Option<Arc<ServerStatus>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_history(&self, history: ServerHistory) {
        *self.history.lock().unwrap_or_else(PoisonError::into_inner) = history;
    }

    /// Returns what a later view is to know of the servers, by their places in the plan of this one.
    pub(super) fn history(&self) -> ServerHistory {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn lowest(&self) -> BTreeMap<Authority, LowestOpen> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner).lowest.clone()
    }

    pub(super) fn note_responding(&self, servers: impl Iterator<Item = u16>) {
        let mut known = self.responding.lock().unwrap_or_else(PoisonError::into_inner);
        known.clear();
        known.extend(servers);
    }

    pub(super) fn responding(&self) -> Vec<u16> {
        self.responding.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn replace(&self, snapshot: &Arc<Snapshot>) {
        let before =
            std::mem::replace(&mut *self.newest.lock().unwrap_or_else(PoisonError::into_inner), snapshot.clone());
        drop(before); // without the lock: an old snapshot may free much memory
    }

    /// Keeps no snapshot any more: the view has ended, and the handle of a session that has left may stay for long.
    pub(super) fn clear(&self, now: Moment) {
        self.replace(&Arc::default());
        let _unused = self.leases.lock().unwrap_or_else(PoisonError::into_inner).sweep(now); // dropped without the lock
    }

    pub(super) fn newest(&self) -> Arc<Snapshot> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl LeaseAccess for &Published {
    fn access<T>(&mut self, with: impl FnOnce(&mut Leases) -> T) -> T {
        with(&mut self.leases.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_core::protocol::view::{HeldRemoval, SetState};

    use super::*;

    fn holding(name: &str, generation: u64, seconds: u64) -> Option<BrakeState> {
        let age = Duration::from_secs(seconds);
        let removal = HeldRemoval { name: name.into(), age, generation, emptied: false, server: 0, rank: 0 };
        let set = SetState { type_name: "own.Type".into(), removals: vec![removal], ..SetState::default() };
        Some(BrakeState { sets: vec![set] })
    }

    #[test]
    fn a_view_that_has_ended_keeps_no_snapshot_nor_one_that_was_leased() {
        let (published, now) = (Published::new(Arc::default(), 1), Moment::START);
        let snapshot = Arc::<Snapshot>::default();
        published.replace(&snapshot);
        let mut access = &published;
        drop(access.access(|leases| leases.take(&snapshot, snapshot.revision, now)));
        assert_eq!(Arc::strong_count(&snapshot), 3);
        published.clear(now);
        assert_eq!(Arc::strong_count(&snapshot), 1);
    }

    #[test]
    fn what_brakes_hold_has_changed_if_it_is_something_else_and_not_if_it_is_older() {
        let published = Published::new(Arc::default(), 1);
        let changes = |state| {
            published.note_brakes(state);
            published.brakes().changes
        };
        assert_eq!(changes(None), 0);
        assert_eq!(changes(holding("a", 1, 0)), 1);
        assert_eq!(changes(holding("a", 1, 60)), 1, "only older");
        assert_eq!(changes(holding("b", 1, 60)), 2);
        assert_eq!(changes(holding("b", 2, 0)), 3, "released and held again");
        assert_eq!(changes(None), 4);
    }
}
