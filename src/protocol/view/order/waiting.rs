//! Changes of routing that wait for clusters and are not in the tables yet.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Key, NAMED, Order, Waiting};
use crate::protocol::moment::Moment;
use crate::protocol::view::update::Origin;
use crate::xds::{Authority, Name, Resource};

impl Order {
    /// Returns the clusters that no change has waited for yet.
    pub(crate) fn worth_waiting(&self, clusters: impl Iterator<Item = Name>) -> BTreeSet<Name> {
        clusters.filter(|name| self.references.is_worth_waiting(name)).collect()
    }

    pub(crate) fn keep_back(
        &mut self,
        key: Key,
        resource: Arc<Resource>,
        origin: Origin,
        left: BTreeSet<Name>,
        now: Moment,
    ) {
        // A server that changes it again and again does not make it wait longer.
        let since = self.drop_waiting(&key).map_or(now, |waiting| waiting.since);
        for name in &left {
            self.missing.entry(name.clone()).or_default().insert(key.clone());
        }
        self.changed = now;
        self.waiting.insert(key, Waiting { since, resource, origin, left });
        self.is_held = true;
        self.look_by(now);
    }

    /// Ends the wait of a change: another one has come for the name, or its time is over.
    pub(crate) fn drop_waiting(&mut self, key: &Key) -> Option<Waiting> {
        if self.waiting.is_empty() {
            return None; // the usual case
        }
        let waiting = self.waiting.remove(key)?;
        for name in &waiting.left {
            if let Some(keys) = self.missing.get_mut(name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.missing.remove(name);
                }
            }
        }
        Some(waiting)
    }

    pub(crate) fn note_released(&mut self, now: Moment) {
        if self.waiting.is_empty() && std::mem::take(&mut self.is_held) {
            self.release = now;
            self.look_by(now);
        }
    }

    /// Returns changes that have waited long enough, although their clusters did not arrive. While a server is unreachable,
    /// changes of its names wait: the clusters may come when it is back.
    pub(crate) fn take_overdue(&mut self, now: Moment) -> Vec<(Key, Waiting)> {
        self.references.on_time(now);
        let over: Vec<Key> =
            self.waiting.keys().filter(|key| self.goes_by(key).is_some_and(|at| at <= now)).cloned().collect();
        let taken = over.into_iter().filter_map(|key| Some((key.clone(), self.drop_waiting(&key)?)));
        let taken: Vec<(Key, Waiting)> = taken.collect();
        let missing: BTreeSet<&Name> = taken.iter().flat_map(|(_, waiting)| &waiting.left).collect();
        self.dangled.waits += missing.len() as u64;
        let room = NAMED.saturating_sub(self.dangled.awaited.len());
        self.dangled.awaited.extend(missing.into_iter().take(room).cloned());
        taken
    }

    /// Until when a change waits at most; `None` while its authority is unsteady. That the server is quiet ends no wait: one
    /// that pauses between a route and its cluster looks just like one that has no such cluster.
    pub(super) fn goes_by(&self, key: &Key) -> Option<Moment> {
        let waiting = self.waiting.get(key)?;
        let authority = Authority::of(&key.2);
        let steady = self.steady.get(&authority).copied().unwrap_or(Moment::START);
        (!self.unsteady.contains(&authority)).then_some(waiting.since.max(steady) + WAIT)
    }

    pub(crate) fn next_overdue(&self) -> Option<Moment> {
        self.waiting.keys().filter_map(|key| self.goes_by(key)).min()
    }

    pub(crate) fn waited_for(&mut self, waiting: &Waiting) {
        waiting.left.iter().for_each(|cluster| self.references.waited_for(cluster));
    }
}

/// A change waits for no longer than this while its server could send the clusters.
pub(super) const WAIT: Duration = Duration::from_secs(1);
