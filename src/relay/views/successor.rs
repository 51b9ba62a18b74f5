//! Views of a configuration that follows another one while the relay runs.
//!
//! The earlier views serve the streams that they have until those end; new streams come to the later ones. When the first client of a key
//! comes, its view begins with what the earlier one has then, as the views of a process begin with what is on disk: it is served, and proves
//! nothing. So a server that is not configured any more takes no resource with it before another one has spoken.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Views;
use super::saved::{FromDisk, WaitingView, authorities_of};
use crate::protocol::moment::Moment;
use crate::protocol::sources::Plan;
use crate::protocol::view::ViewOptions;
use crate::protocol::view::{BrakeState, Class, Origin, SavedResource, SavedSet, Snapshot, View};
use crate::relay::counters::ProcessCounters;
use crate::relay::published::NotedBrakes;
use crate::xds::{Authority, Name, SharingKey, TypeTable};

/// What an earlier view leaves to the one that follows it.
struct Estate {
    snapshot: Arc<Snapshot>,
    brakes: NotedBrakes,
    from_disk: FromDisk,
    /// Authorities that have fallen back.
    fallen: BTreeSet<Authority>,
    has_responded: bool,
    /// The servers of its configuration by their places.
    servers: Vec<String>,
}

/// What a view needs of its configuration to begin with an estate.
struct Heir {
    table: Arc<TypeTable>,
    options: Arc<ViewOptions>,
    plan: Arc<Plan>,
    servers: Vec<String>,
    now: Moment,
    keep: Duration,
}

impl Views {
    /// Makes these the views that follow earlier ones. What belongs to the process goes on: counters, bodies, the list of clients, the
    /// permissions in force, readiness. What an earlier view leaves is kept for as long as `keep` without a client.
    pub(crate) fn after(self, earlier: &Arc<Self>, keep: Duration) -> Self {
        let braked = self.view_options.brakes.types.iter().map(|name| &**name);
        earlier.incidents.brakes.add_types(braked);
        let process = Self {
            incidents: earlier.incidents.clone(),
            readiness: earlier.readiness.clone(),
            client_log: earlier.client_log.clone(),
            store: earlier.store.clone(),
            readers: earlier.readers.clone(),
            clock: earlier.clock,
            clients: earlier.clients.clone(),
            keep_inherited: keep,
            ..self
        };
        if process.is_hub != earlier.is_hub {
            // There was no hub: this is the first.
            let counters = ProcessCounters::new(process.table.clone(), process.clock);
            let counters = Arc::new(counters.with_limits(earlier.counters.limits.clone()));
            return Self { counters, ..process };
        }
        earlier.metric_labels.set_limit(process.max_in_metrics);
        Self {
            permissions: earlier.permissions.clone(),
            counters: earlier.counters.clone(),
            identity_quotas: earlier.identity_quotas.clone(),
            metric_labels: earlier.metric_labels.clone(),
            earlier: Some(earlier.clone()).into(),
            ..process
        }
    }

    /// Returns the views before these, as long as they have clients.
    pub(crate) fn before(&self) -> Option<Arc<Self>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether no stream is served by these, the hub's aside.
    pub(crate) fn has_no_clients(&self) -> bool {
        self.lock().iter().all(|view| view.stay.is_last())
    }

    /// Lets go of views before these, which have no clients any more. The views that followed them take what is left: keys whose clients
    /// have not come yet. This takes as long as there are resources: it is not for a thread that others wait for.
    pub(crate) fn let_go_of(&self, gone: &Self) {
        if let (Some(hub), Some(gone)) = (&self.hub, &gone.hub) {
            hub.let_go_of(gone);
        }
        let Some(earlier) = self.before() else { return };
        if !std::ptr::eq(&*earlier, gone) {
            return earlier.let_go_of(gone);
        }
        let left = if self.rule == earlier.rule { earlier.own_keys() } else { BTreeSet::new() };
        for key in left {
            if !self.has_view(&key)
                && let Some(estate) = earlier.estate_of(&key)
            {
                self.put_inherited(key, self.heir().view(&estate));
            }
        }
        *self.earlier.lock().unwrap_or_else(PoisonError::into_inner) = earlier.before();
    }

    /// Has the view of a key begin with what the one before it has, if its first client comes.
    pub(super) async fn inherit(&self, key: &SharingKey) {
        let Some(earlier) = self.before() else { return };
        if self.has_view(key) || self.rule != earlier.rule {
            return;
        }
        if earlier.estate_of(key).is_none() {
            return;
        }
        // Many clients come at the same time, and the view is made once.
        let turn = self.handing_over().entry(key.clone()).or_default().clone();
        let _turn = turn.lock().await;
        if !self.has_view(key)
            && let Some(estate) = earlier.estate_of(key)
        {
            let heir = self.heir();
            if let Ok(view) = tokio::task::spawn_blocking(move || heir.view(&estate)).await {
                self.put_inherited(key.clone(), view);
            }
        }
        self.handing_over().remove(key);
    }

    fn handing_over(&self) -> MutexGuard<'_, HashMap<SharingKey, Arc<tokio::sync::Mutex<()>>>> {
        self.handing_over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_view(&self, key: &SharingKey) -> bool {
        self.lock().get(key).is_some() || self.waiting.look(key, |_| ()).is_some()
    }

    fn put_inherited(&self, key: SharingKey, view: WaitingView) {
        let views = self.lock();
        if views.get(&key).is_none() {
            self.waiting.put(key, view);
        }
    }

    fn own_keys(&self) -> BTreeSet<SharingKey> {
        let mut keys: BTreeSet<_> = self.waiting.keys().into_iter().collect();
        keys.extend(self.lock().running().map(|(key, _)| key.clone()));
        keys
    }

    /// Returns what is known of a key. A view that begins to run meanwhile is found: it is looked for last.
    fn estate_of(&self, key: &SharingKey) -> Option<Estate> {
        let servers = || self.servers().collect();
        let now = self.clock.now();
        let waiting = self.waiting.look(key, |waiting| Estate {
            snapshot: waiting.view.snapshot().clone(),
            brakes: waiting.brakes(now),
            from_disk: waiting.from_disk.clone(),
            fallen: waiting.fallen.clone(),
            has_responded: false,
            servers: servers(),
        });
        let running = {
            let views = self.lock();
            let view = views.get(key).filter(|view| view.is_running());
            view.map(|view| (view.published.clone(), view.from_disk.clone()))
        };
        let running = running.map(|(published, from_disk)| Estate {
            snapshot: published.newest(),
            brakes: published.brakes(),
            from_disk,
            fallen: published.fallen(),
            has_responded: !published.responding().is_empty(),
            servers: servers(),
        });
        let earlier = || self.before().filter(|earlier| earlier.rule == self.rule)?.estate_of(key);
        running.or(waiting).or_else(earlier)
    }

    fn heir(&self) -> Heir {
        Heir {
            table: self.table.clone(),
            options: self.view_options.clone(),
            plan: self.plan.clone(),
            servers: self.servers().collect(),
            now: self.clock.now(),
            keep: self.keep_inherited,
        }
    }
}

impl Heir {
    /// Makes a view of what another leaves.
    fn view(&self, estate: &Estate) -> WaitingView {
        let place = |name: &String| self.servers.iter().position(|known| known == name);
        let places: Vec<_> = estate.servers.iter().map(|name| u16::try_from(place(name)?).ok()).collect();
        let sets = estate.snapshot.to_save(self.now);
        let sets: Vec<_> = sets.into_iter().map(|set| self.placed(set, &places)).collect();
        // What a server has said counts for readiness, whatever the age of the rest.
        let answered = match estate.has_responded {
            true => authorities_of(&sets),
            false => estate.from_disk.answered.clone(),
        };
        let is_from_disk = estate.snapshot.tables().any(|(_, _, table)| table.loaded_from_disk() > 0);
        let age = estate.from_disk.unheard().filter(|_| is_from_disk);
        let mut view = View::new(self.table.clone(), self.options.clone());
        view.restore(sets, self.now + self.keep, self.now);
        view.restore_brakes(&self.placed_brakes(&estate.brakes, &places), self.now);
        let from_disk = FromDisk { answered, age, loaded: Some(Instant::now()) };
        WaitingView { fallen: estate.fallen.clone(), ..WaitingView::new(view, from_disk) }
    }

    /// What a server gave that is not in a list any more ranks behind all that are: any of them may take its place.
    fn placed(&self, set: SavedSet, places: &[Option<u16>]) -> SavedSet {
        let class = set.class;
        let place = |saved: SavedResource| {
            let (server, rank) = self.place(saved.server, places, class, &saved.key).unwrap_or(GONE);
            SavedResource { server, rank, ..saved }
        };
        SavedSet { resources: set.resources.into_iter().map(place).collect(), ..set }
    }

    fn place(&self, server: u16, places: &[Option<u16>], class: Class, name: &Name) -> Option<(u16, u8)> {
        let server = places.get(usize::from(server)).copied().flatten()?;
        Some((server, super::saved::rank_in(&self.plan, server, class, name)?))
    }

    /// What a server that is gone has removed is not held for it: the next one says whether it exists.
    fn placed_brakes(&self, noted: &NotedBrakes, places: &[Option<u16>]) -> BrakeState {
        let since = noted.at.map(|at| at.elapsed()).unwrap_or_default();
        let mut state = (*noted.state).clone();
        for set in &mut state.sets {
            let class = if set.glob.is_some() { Class::Named } else { Class::Wildcard };
            set.sizes.iter_mut().for_each(|(age, _)| *age += since);
            let since = if set.is_stopped { Duration::ZERO } else { since };
            set.empty_for = set.empty_for.map(|age| age + since);
            set.removals.retain_mut(|held| {
                let place = self.place(held.server, places, class, &held.name);
                (held.server, held.rank) = place.unwrap_or(GONE);
                held.age += since;
                place.is_some()
            });
        }
        state
    }
}

const GONE: (u16, u8) = (Origin::GONE.server, Origin::GONE.rank);

#[cfg(test)]
mod tests;
