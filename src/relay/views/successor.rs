//! Views of a configuration that follows another one while the relay runs.
//!
//! The earlier views serve the streams that they have until those end; new streams come to the later ones. These begin with what the
//! earlier ones have, as the views of a process begin with what is on disk: it is served, and proves nothing. So a server that is not
//! configured any more takes no resource with it before another one has spoken.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{SavedView, Views};
use crate::protocol::view::{BrakeState, Class, Origin, SavedResource, SavedSet, Snapshot};
use crate::relay::counters::ProcessCounters;
use crate::relay::published::NotedBrakes;
use crate::xds::{Name, SharingKey};

/// A view that is handed over.
struct Estate {
    key: SharingKey,
    snapshot: Arc<Snapshot>,
    brakes: NotedBrakes,
}

impl Views {
    /// Makes these the views that follow earlier ones. What belongs to the process goes on: counters, bodies, the list of clients, the
    /// permissions in force, readiness.
    pub(crate) fn after(self, earlier: &Arc<Self>) -> Self {
        let braked = self.limits.brakes.types.iter().map(|name| &**name);
        earlier.incidents.brakes.add_types(braked);
        let process = Self {
            incidents: earlier.incidents.clone(),
            readiness: earlier.readiness.clone(),
            client_log: earlier.client_log.clone(),
            store: earlier.store.clone(),
            readers: earlier.readers.clone(),
            clock: earlier.clock,
            clients: earlier.clients.clone(),
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
            earlier: (!process.is_hub).then(|| earlier.clone()).into(),
            ..process
        }
    }

    /// Lets go of the views before these; they end when nothing else needs them.
    pub(crate) fn forget_earlier(&self) {
        *self.earlier.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the views before these, as long as they have clients.
    pub(crate) fn before(&self) -> Option<Arc<Self>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes what the earlier views have, before the first clients come. It is dropped where none comes within `keep`. This takes as long as
    /// there are resources: it is not for a thread that others wait for. Returns how many views there are.
    pub(crate) fn inherit(&self, earlier: &Self, keep: Duration) -> usize {
        if self.rule != earlier.rule {
            return 0; // no key is the same
        }
        let places = self.places_of_servers(earlier);
        let now = self.clock.now();
        let mut views = 0;
        for Estate { key, snapshot, brakes } in earlier.estates() {
            let sets = snapshot.to_save(now).into_iter().map(|set| self.placed(set, &places)).collect::<Vec<_>>();
            let brakes = self.placed_brakes(&brakes, &places);
            let saved = SavedView { key, sets, brakes, counts_for_readiness: true, age: None };
            views += usize::from(self.restore(saved, keep).is_some());
        }
        views
    }

    fn estates(&self) -> Vec<Estate> {
        let running: Vec<_> = {
            let views = self.lock();
            views.running().map(|(key, view)| (key.clone(), view.published.clone())).collect()
        };
        let of_running = running.into_iter().map(|(key, published)| Estate {
            key,
            snapshot: published.newest(),
            brakes: published.brakes(),
        });
        let waiting = self.waiting.snapshots().into_iter().map(|(key, snapshot)| Estate {
            key,
            snapshot,
            brakes: NotedBrakes::default(),
        });
        of_running.chain(waiting).collect()
    }

    /// Returns where the servers of earlier views are in the plan of these.
    fn places_of_servers(&self, earlier: &Self) -> Vec<Option<u16>> {
        let servers: Vec<_> = self.servers().collect();
        let place = |name: String| servers.iter().position(|known| *known == name);
        earlier.servers().map(|name| u16::try_from(place(name)?).ok()).collect()
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
        Some((server, self.rank_of(server, class, name)?))
    }

    /// What a server that is gone has removed is not held for it: the next one says whether it exists.
    fn placed_brakes(&self, noted: &NotedBrakes, places: &[Option<u16>]) -> BrakeState {
        let since = noted.at.map(|at| Instant::now() - at).unwrap_or_default();
        let mut state = (*noted.state).clone();
        for set in &mut state.sets {
            let class = if set.glob.is_some() { Class::Named } else { Class::Wildcard };
            set.sizes.iter_mut().for_each(|(age, _)| *age += since);
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
