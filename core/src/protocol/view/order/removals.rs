//! Removals that wait: what upstream has removed stays while something refers to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::references::References;
use super::waiting::WaitTimes;
use crate::protocol::keys::{Class, Key};
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::view::update::{Evidence, Origin, SourcedUpdate, Update};
use crate::xds::{Name, Role, Type};

/// What upstream has removed and stays for now.
#[derive(Debug, Default)]
pub(in crate::protocol::view) struct DeferredRemovals {
    removals: BTreeMap<Key, DeferredRemoval>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct DeferredRemoval {
    pub(super) since: Moment,
    pub(super) origin: Origin,
}

impl DeferredRemoval {
    pub(super) fn into_passed(self, (kind, class, key): Key) -> SourcedUpdate {
        let update = Update::Absent { kind, class, key, evidence: Evidence::Reported };
        SourcedUpdate { update, origin: self.origin, received: self.since }
    }
}

impl DeferredRemovals {
    pub(in crate::protocol::view) fn is_empty(&self) -> bool {
        self.removals.is_empty()
    }

    pub(in crate::protocol::view) fn has(&self, key: &Key) -> bool {
        !self.removals.is_empty() && self.removals.contains_key(key)
    }

    /// Returns the names of one type and class that stay for this reason.
    pub(in crate::protocol::view) fn names(&self, kind: &Type, class: Class) -> impl Iterator<Item = &Name> {
        let from = (kind.clone(), class, Name::from(""));
        let kind = kind.clone();
        let of_set = self.removals.range(from..).take_while(move |((of, own, _), _)| (of, *own) == (&kind, class));
        of_set.map(|((_, _, name), _)| name)
    }
    /// Returns what one server has removed, of one type and class.
    pub(in crate::protocol::view) fn names_removed_by(
        &self,
        server: usize,
        of: &Type,
        class: Class,
    ) -> impl Iterator<Item = &Name> {
        let all = self.removals.iter().filter(move |(_, removal)| usize::from(removal.origin.server) == server);
        all.filter(move |((kind, own, _), _)| kind == of && *own == class).map(|((_, _, name), _)| name)
    }

    pub(in crate::protocol::view) fn is_removed_by(&self, server: usize, key: &Key) -> bool {
        self.removals.get(key).is_some_and(|removal| usize::from(removal.origin.server) == server)
    }

    /// Returns since when each waits.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, Moment)> {
        self.removals.iter().map(|(key, removal)| (key, removal.since))
    }

    pub(super) fn since(&self, key: &Key) -> Option<Moment> {
        self.removals.get(key).map(|removal| removal.since)
    }

    /// A repeated removal does not make the resource stay longer.
    pub(super) fn defer(&mut self, key: Key, origin: Origin, now: Moment) {
        let removal = self.removals.entry(key).or_insert(DeferredRemoval { since: now, origin });
        removal.origin = origin;
    }

    /// The resource is present again, or removed for good.
    pub(super) fn cancel(&mut self, key: &Key) {
        if !self.removals.is_empty() {
            self.removals.remove(key);
        }
    }

    /// Cancels the removals from a `*` set.
    pub(super) fn cancel_all(&mut self, of: &Type) {
        self.removals.retain(|(kind, class, _), _| kind != of || *class != Class::Wildcard);
    }

    /// Takes out what is removed now. Also returns the clusters among it that something in the tables still refers to. The endpoints of a cluster
    /// are removed with it or after it. `bound` is `None` while changes wait.
    pub(super) fn take_ended(
        &mut self,
        (references, times): (&References, &WaitTimes),
        is_here: impl Fn(&Name) -> bool,
        bound: Option<Duration>,
        now: Moment,
    ) -> (Vec<(Key, DeferredRemoval)>, Vec<Name>) {
        let mut ended: BTreeMap<Key, DeferredRemoval> = BTreeMap::new();
        let is_over = |name: &Name, since| times.removal_end(name, since, bound).is_some_and(|at| at <= now);
        let (clusters, endpoints): (Vec<_>, Vec<_>) =
            self.removals.iter().partition(|((kind, _, _), _)| kind.is(Role::Clusters));
        let mut fallen = Vec::new();
        let mut stay = BTreeSet::new();
        for (key, removal) in clusters {
            let is_free = times.quiet_at(removal.since) <= now && !references.is_any(&key.2);
            if is_free || is_over(&key.2, removal.since) {
                fallen.extend(references.is_live(&key.2).then(|| key.2.clone()));
                ended.insert(key.clone(), *removal);
            } else {
                stay.insert(&key.2);
            }
        }
        let gone: BTreeSet<_> = ended.keys().map(|(_, _, name)| name).collect();
        let stays = |cluster: &Name| {
            let is_led_to = references.is_any(cluster) && is_here(cluster) && !gone.contains(cluster);
            is_led_to || stay.contains(cluster)
        };
        let ended_endpoints: Vec<_> = endpoints
            .into_iter()
            .filter(|(key, removal)| is_over(&key.2, removal.since) || !references.clusters_of(&key.2).any(stays))
            .map(|(key, removal)| (key.clone(), *removal))
            .collect();
        ended.extend(ended_endpoints);
        for key in ended.keys() {
            self.removals.remove(key);
        }
        (ended.into_iter().collect(), fallen)
    }

    /// Returns when the time of one of them may be over. Removals that end with a reference are not considered.
    pub(super) fn next_end(&self, times: &WaitTimes, bound: Option<Duration>, now: Moment) -> Option<Moment> {
        let quiet = self.iter().map(|(_, since)| times.quiet_at(since)).filter(|at| *at > now).min();
        earliest(quiet, self.iter().filter_map(|(key, since)| times.removal_end(&key.2, since, bound)).min())
    }
}
