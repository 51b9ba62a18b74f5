//! Views of a configuration that follows another one while the relay runs.
//!
//! The earlier views serve their streams until these end; new streams join the later views. When the first client of a key comes, its view begins
//! with the resources of the earlier view. They are treated like those that a process loads from disk: they are served, and are no evidence. So
//! resources of a server that is no longer configured stay until another server has responded.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::ServerHistory;
use weir_core::protocol::upstream::Recovery;
use weir_core::protocol::view::{BrakeState, Class, Origin, SavedResource, SavedSet, Snapshot};
use weir_core::xds::{SharingKey, Type};

use super::Views;
use super::saved::{WaitingView, authorities_of, noted_brakes};
use crate::relay::published::{FromDisk, NotedBrakes, Published};
use crate::relay::server_places::ServerPlaces;
use crate::relay::shared::Shared;
use crate::shared_runtime;

/// What an earlier view leaves to the one that follows it.
pub(super) struct InheritedView {
    snapshot: Arc<Snapshot>,
    brakes: NotedBrakes,
    from_disk: FromDisk,
    history: ServerHistory,
    has_responded: bool,
    /// The servers of its configuration by their places.
    servers: Vec<String>,
}

impl InheritedView {
    pub(super) fn of_waiting(waiting: &WaitingView, shared: &Shared) -> Self {
        Self {
            snapshot: waiting.view.snapshot().clone(),
            brakes: noted_brakes(&waiting.view, shared.clock.now()),
            from_disk: waiting.from_disk.clone(),
            history: waiting.history.clone(),
            has_responded: false,
            servers: shared.servers().collect(),
        }
    }

    pub(super) fn of_running(published: &Published, from_disk: FromDisk, shared: &Shared) -> Self {
        Self {
            snapshot: published.newest(),
            brakes: published.brakes(),
            from_disk,
            history: published.history(),
            has_responded: !published.responding().is_empty(),
            servers: shared.servers().collect(),
        }
    }
}

/// Whether the earlier views of a key leave anything.
pub(super) fn leaves_any(views: &Views, key: &SharingKey) -> bool {
    earlier_of_rule(views).is_some_and(|earlier| left(&earlier, key).is_some())
}

/// Returns a view with what the earlier views of a key leave, if that is anything. The turn lasts until it is made, also if its client leaves meanwhile:
/// otherwise the next client would let another one be made beside it.
pub(super) async fn inherited(views: &Views, key: &SharingKey, turn: BegunTurn) -> Option<(WaitingView, BegunTurn)> {
    let left = left(&*earlier_of_rule(views)?, key)?;
    let seed = ViewSeed::new(&views.shared, views.keep_inherited);
    shared_runtime::spawn_blocking(move || (seed.view(&left), turn)).await.ok()
}

/// Returns what views leave of a key, or views before them. A view that its server refuses leaves nothing, and neither do views before it.
pub(super) fn left(views: &Views, key: &SharingKey) -> Option<InheritedView> {
    let of_these = views.map.left(key, &views.shared);
    if of_these.is_some() || views.map.is_refused(key) {
        return of_these;
    }
    left(&*earlier_of_rule(views)?, key)
}

/// Returns the last earlier views whose keys are made of the same fields. Others are between if `views.key` was put back.
pub(super) fn earlier_of_rule(views: &Views) -> Option<Arc<Views>> {
    let mut before = std::iter::successors(views.before(), |views| views.before());
    before.find(|earlier| earlier.shared.rule == views.shared.rule)
}

/// What a configuration needs to make a view from what an earlier one leaves.
pub(super) struct ViewSeed {
    shared: Arc<Shared>,
    now: Moment,
    keep: Duration,
}

/// Keys whose views are being handed over. One of the clients that have come does it for each key.
#[derive(Default)]
pub(super) struct Handovers(Mutex<HashMap<SharingKey, Handover>>);

#[derive(Default)]
struct Handover {
    lock: Arc<tokio::sync::Mutex<()>>,
    /// How many clients have a turn or wait for it.
    clients: usize,
}

/// The turn of a client at the handover of a view. It may be dropped at any time, since clients leave at any time.
pub(super) struct HandoverTurn {
    handovers: Arc<Handovers>,
    key: SharingKey,
    lock: Arc<tokio::sync::Mutex<()>>,
}

/// A turn that has begun, until this is dropped.
pub(super) struct BegunTurn {
    _begun: tokio::sync::OwnedMutexGuard<()>,
    _turn: HandoverTurn,
}

impl Handovers {
    /// Returns the turn of another client of a key. Many clients come at the same time, and the view is made once.
    pub(super) fn turn(self: &Arc<Self>, key: &SharingKey) -> HandoverTurn {
        let mut handovers = self.lock();
        let handover = handovers.entry(key.clone()).or_default();
        handover.clients += 1;
        HandoverTurn { handovers: self.clone(), key: key.clone(), lock: handover.lock.clone() }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SharingKey, Handover>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HandoverTurn {
    /// Waits until no other client has its turn.
    pub(super) async fn begins(self) -> BegunTurn {
        BegunTurn { _begun: self.lock.clone().lock_owned().await, _turn: self }
    }
}

impl Drop for HandoverTurn {
    fn drop(&mut self) {
        let mut handovers = self.handovers.lock();
        if let Some(handover) = handovers.get_mut(&self.key) {
            handover.clients -= 1;
            if handover.clients == 0 {
                handovers.remove(&self.key);
            }
        }
    }
}

impl ViewSeed {
    /// An inherited view without a client is dropped after `keep`.
    pub(super) fn new(shared: &Arc<Shared>, keep: Duration) -> Self {
        Self { shared: shared.clone(), now: shared.clock.now(), keep }
    }

    /// Makes a view from what another leaves.
    pub(super) fn view(&self, inherited: &InheritedView) -> WaitingView {
        let places = self.shared.places_of(inherited.servers.iter().map(String::as_str));
        let sets = SavedSet::all_of(&inherited.snapshot, self.now);
        let sets: Vec<_> = sets.into_iter().map(|set| placed(set, &places)).collect();
        // Responses of a server count for readiness, whatever the age of the other resources.
        let answered = match inherited.has_responded {
            true => authorities_of(&sets),
            false => inherited.from_disk.answered.clone(),
        };
        let is_from_disk = inherited.snapshot.tables().any(|(_, _, table)| table.sums().loaded_from_disk() > 0);
        let age = inherited.from_disk.unheard().filter(|_| is_from_disk);
        let mut view = self.shared.empty_view();
        view.restore(sets, self.now + self.keep, self.now);
        view.restore_brakes(&placed_brakes(&inherited.brakes, &places), self.now);
        let from_disk = FromDisk { answered, age, loaded: Some(Instant::now()) };
        let history = placed_history(&inherited.history, &places);
        WaitingView { history, brakes: noted_brakes(&view, self.now), ..WaitingView::new(view, from_disk) }
    }
}

/// Resources of a server that is in no list any more rank behind all servers: any server may replace them.
fn placed(set: SavedSet, places: &ServerPlaces) -> SavedSet {
    let class = set.class;
    let place = |saved: SavedResource| {
        let (server, rank) = places.of_resource(usize::from(saved.server), class, &saved.key).unwrap_or(GONE);
        SavedResource { server, rank, ..saved }
    };
    SavedSet { resources: set.resources.into_iter().map(place).collect(), ..set }
}

/// A removal by a server that is no longer configured is not held: the next server decides whether the resource exists.
fn placed_brakes(noted: &NotedBrakes, places: &ServerPlaces) -> BrakeState {
    let since = noted.at.map(|at| at.elapsed()).unwrap_or_default();
    let mut state = (*noted.state).clone();
    for set in &mut state.sets {
        let class = if set.glob.is_some() { Class::Named } else { Class::Wildcard };
        set.sizes.iter_mut().for_each(|(age, _)| *age += since);
        let since = if set.is_stopped { Duration::ZERO } else { since };
        set.empty_for = set.empty_for.map(|age| age + since);
        set.removals.retain_mut(|held| {
            let place = places.of_resource(usize::from(held.server), class, &held.name);
            (held.server, held.rank) = place.unwrap_or(GONE);
            held.age += since;
            place.is_some()
        });
    }
    state
}

/// Drops what is known of servers that are in no list any more, but that one of them was the lowest open one.
fn placed_history(of: &ServerHistory, places: &ServerPlaces) -> ServerHistory {
    let recovery = |(server, of): (&u16, &Recovery)| Some((places.of_server(usize::from(*server))?, *of));
    let refused = |(server, of): (&usize, &BTreeSet<Type>)| Some((usize::from(places.of_server(*server)?), of.clone()));
    let (recoveries, refused) = (of.recoveries.iter().filter_map(recovery), of.refused.iter().filter_map(refused));
    let lowest = of.lowest.iter().map(|(of, lowest)| (of.clone(), places.of_lowest(*lowest, of)));
    ServerHistory { lowest: lowest.collect(), recoveries: recoveries.collect(), refused: refused.collect() }
}

const GONE: (u16, u8) = (Origin::GONE.server, Origin::GONE.rank);

#[cfg(test)]
mod tests;
