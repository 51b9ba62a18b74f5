//! Changes of routing that wait for clusters and are not in the tables yet, and until when anything in the order waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::keys::Key;
use crate::protocol::moment::Moment;
use crate::protocol::view::update::{Origin, SourcedUpdate, Update};
use crate::xds::{Authority, Name, Resource};

/// Changes of routing that wait.
#[derive(Debug, Default)]
pub(in crate::protocol::view) struct WaitingChanges {
    changes: BTreeMap<Key, WaitingChange>,
    /// The missing clusters, each with the changes that wait for it.
    missing: BTreeMap<Name, BTreeSet<Key>>,
    /// The longest time that any change could wait, of those that have waited since the last release.
    could_wait: Option<Duration>,
}

#[derive(Debug, Clone)]
pub(super) struct WaitingChange {
    since: Moment,
    /// For how long it waits at most: longer if one of its clusters exists, and there is no room for it.
    longest: Duration,
    resource: Arc<Resource>,
    origin: Origin,
    /// Clusters that are missing.
    left: BTreeSet<Name>,
}

impl WaitingChange {
    pub(super) fn since(&self) -> Moment {
        self.since
    }

    pub(super) fn longest(&self) -> Duration {
        self.longest
    }

    pub(super) fn missing_clusters(&self) -> impl Iterator<Item = &Name> {
        self.left.iter()
    }

    /// Returns what is applied once it waits no more, and the clusters that did not arrive.
    pub(super) fn into_passed(self, (kind, class, key): Key) -> (SourcedUpdate, BTreeSet<Name>) {
        let update = Update::Upsert { kind, class, key, resource: self.resource };
        (SourcedUpdate { update, origin: self.origin, received: self.since }, self.left)
    }
}

impl WaitingChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(in crate::protocol::view) fn has(&self, key: &Key) -> bool {
        self.changes.contains_key(key)
    }

    pub(super) fn get(&self, key: &Key) -> Option<&WaitingChange> {
        self.changes.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &WaitingChange)> {
        self.changes.iter()
    }

    /// Returns for how long any of them waits at most.
    pub(super) fn longest(&self) -> Duration {
        self.changes.values().map(WaitingChange::longest).max().unwrap_or(WAIT)
    }

    pub(super) fn keep_back(
        &mut self,
        key: Key,
        resource: Arc<Resource>,
        origin: Origin,
        left: BTreeSet<Name>,
        now: Moment,
    ) {
        // A server that changes it again and again does not make it wait longer.
        let since = self.remove(&key).map_or(now, |waiting| waiting.since);
        for name in &left {
            self.missing.entry(name.clone()).or_default().insert(key.clone());
        }
        self.changes.insert(key, WaitingChange { since, longest: WAIT, resource, origin, left });
        self.could_wait = self.could_wait.max(Some(WAIT));
    }

    /// Changes that wait for a cluster without room do so for longer than others.
    pub(super) fn set_longest(&mut self, lacks_room: impl Fn(&Name) -> bool, longest: Duration) {
        for waiting in self.changes.values_mut() {
            waiting.longest = if waiting.left.iter().any(&lacks_room) { longest } else { WAIT };
            self.could_wait = self.could_wait.max(Some(waiting.longest));
        }
    }

    /// Removes a waiting change, because a newer one has replaced it or it has waited long enough.
    pub(super) fn remove(&mut self, key: &Key) -> Option<WaitingChange> {
        if self.changes.is_empty() {
            return None; // the usual case
        }
        let waiting = self.changes.remove(key)?;
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

    /// A cluster is present. Takes out the changes that have waited for it alone.
    pub(super) fn take_ready(&mut self, cluster: &Name) -> Vec<(Key, WaitingChange)> {
        let keys = self.missing.remove(cluster).unwrap_or_default();
        let is_ready = |key: &Key| {
            let waiting = self.changes.get_mut(key);
            waiting.is_some_and(|waiting| {
                waiting.left.remove(cluster);
                waiting.left.is_empty()
            })
        };
        let ready: Vec<Key> = keys.into_iter().filter(is_ready).collect();
        self.take_all(ready)
    }

    /// Takes out changes that have waited long enough, although their clusters did not arrive. While a server is unreachable, changes of its
    /// names wait: the clusters may come when it is back.
    pub(super) fn take_overdue(&mut self, times: &WaitTimes, now: Moment) -> Vec<(Key, WaitingChange)> {
        let is_over = |(key, waiting): &(&Key, &WaitingChange)| {
            times.change_end(&key.2, waiting.since, waiting.longest).is_some_and(|at| at <= now)
        };
        let over: Vec<Key> = self.iter().filter(is_over).map(|(key, _)| key.clone()).collect();
        self.take_all(over)
    }

    fn take_all(&mut self, keys: Vec<Key>) -> Vec<(Key, WaitingChange)> {
        keys.into_iter().filter_map(|key| self.remove(&key).map(|waiting| (key, waiting))).collect()
    }

    /// When no change waits any more, returns once for how long one could have waited since the last release. Otherwise `None`.
    pub(super) fn take_release(&mut self) -> Option<Duration> {
        if self.changes.is_empty() { self.could_wait.take() } else { None }
    }

    /// Returns when the first of them has waited long enough.
    pub(super) fn next_end(&self, times: &WaitTimes) -> Option<Moment> {
        self.iter().filter_map(|(key, waiting)| times.change_end(&key.2, waiting.since, waiting.longest)).min()
    }
}

/// What decides when a wait ends.
#[derive(Debug, Default)]
pub(super) struct WaitTimes {
    /// When a cluster or a routing resource last changed.
    changed: Moment,
    /// When the last waiting change of routing was released.
    released: Moment,
    /// The longest time that this change could wait, or an earlier one whose release the oldest removal has seen too.
    could_wait: Duration,
    /// Authorities whose server is unreachable, or has not sent its routing since it came back; and since when others are steady.
    unsteady: BTreeSet<Authority>,
    steady: BTreeMap<Authority, Moment>,
}

impl WaitTimes {
    pub(super) fn note_changed(&mut self, now: Moment) {
        self.changed = now;
    }

    /// Records a release. `oldest` is since when the oldest removal waits. If it has seen the release before too, the longer of both waits
    /// counts.
    pub(super) fn note_released(&mut self, could_wait: Duration, oldest: Option<Moment>, now: Moment) {
        let before = oldest.filter(|since| *since < self.released).map_or(Duration::ZERO, |_| self.could_wait);
        (self.released, self.could_wait) = (now, could_wait.max(before));
    }

    /// Returns whether that changes anything.
    pub(super) fn note_unsteady(&mut self, unsteady: BTreeSet<Authority>, now: Moment) -> bool {
        if unsteady == self.unsteady {
            return false;
        }
        let back = self.unsteady.difference(&unsteady).cloned();
        self.steady.extend(back.map(|authority| (authority, now)));
        self.unsteady = unsteady;
        true
    }

    /// Returns since when the authority of a name is steady; `None` while it is not.
    fn steady_since(&self, name: &Name) -> Option<Moment> {
        let authority = Authority::of(name);
        let is_steady = !self.unsteady.contains(&authority);
        is_steady.then(|| self.steady.get(&authority).copied().unwrap_or(Moment::START))
    }

    /// Returns for how long something has waited, by a clock that starts over when the authority is steady again; `None` while it is not.
    pub(super) fn age(&self, name: &Name, since: Moment, now: Moment) -> Option<Duration> {
        Some(now - since.max(self.steady_since(name)?))
    }

    /// Returns when upstream counts as quiet for what waits since `since`, if it says nothing more.
    pub(super) fn quiet_at(&self, since: Moment) -> Moment {
        (self.changed + QUIET).min(since + LONGEST)
    }

    /// Until when a change waits at most; `None` while its authority is unsteady. That the server is quiet ends no wait: one that pauses
    /// between a route and its cluster looks just like one that has no such cluster.
    pub(super) fn change_end(&self, name: &Name, since: Moment, longest: Duration) -> Option<Moment> {
        Some(since.max(self.steady_since(name)?) + longest)
    }

    /// Until when a removed resource stays at most. `None` while changes wait (then `bound` is `None`), or while a server that could send another
    /// reference has not responded.
    pub(super) fn removal_end(&self, name: &Name, since: Moment, bound: Option<Duration>) -> Option<Moment> {
        Some(since.max(self.steady_since(name)?).max(self.released) + bound?)
    }

    /// Returns how much longer a removal may wait if a change was released after it began: then its time starts over, once.
    pub(super) fn second_bound(&self, since: Moment, bound: Duration) -> Duration {
        if self.released > since { bound + self.could_wait.saturating_sub(WAIT) } else { Duration::ZERO }
    }
}

/// Upstream counts as quiet once no cluster and no routing resource has changed for this long.
pub(super) const QUIET: Duration = Duration::from_millis(50);
/// A server that is never quiet delays nothing for longer than this.
const LONGEST: Duration = Duration::from_secs(1);
/// A change waits for no longer than this while its server could send the clusters, unless it has sent one for which there was no room.
pub(super) const WAIT: Duration = Duration::from_secs(1);
