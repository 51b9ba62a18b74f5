//! Counts references to clusters: from the tables, and for a while from resources that were replaced or removed. Knows the clusters whose
//! endpoints have another name.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::keys::{Class, Key};
use crate::protocol::moment::Moment;
use crate::xds::{Name, Resource, Role, Type};

#[derive(Debug, Default)]
pub(super) struct References {
    /// How many resources in the tables refer to a cluster.
    live: HashMap<Name, u32>,
    /// How many did until recently. A listener drains, and a new one warms on its old route.
    lingering: HashMap<Name, u32>,
    ends: VecDeque<(Moment, Name)>,
    /// Clusters that a resource refers to and that are absent, with since when.
    dangling: BTreeMap<Name, Dangling>,
    /// Clusters whose endpoints have another name, by that name; each with the class in which it has them.
    clusters_of: BTreeMap<Name, BTreeSet<(Class, Name)>>,
    /// Removed route configurations that clients still request: an Envoy continues to use the last one.
    kept: BTreeMap<Key, Arc<Resource>>,
}

#[derive(Debug, Clone, Copy)]
struct Dangling {
    since: Moment,
    /// No change waits for it: one has waited in vain, or the cluster was removed while something referred to it.
    waited: bool,
}

/// A resource in the tables was added, replaced or removed.
pub(super) struct Change<'a> {
    pub(super) kind: &'a Type,
    pub(super) class: Class,
    pub(super) name: &'a Name,
    pub(super) old: Option<&'a Arc<Resource>>,
    pub(super) new: Option<&'a Arc<Resource>>,
}

impl References {
    /// A cluster, or a resource that refers to clusters, was replaced.
    pub(super) fn record(&mut self, change: &Change, is_here: impl Fn(&Name) -> bool, now: Moment, linger: Duration) {
        let old = change.old.map_or(&[][..], |old| old.body.clusters(change.kind));
        let new = change.new.map_or(&[][..], |new| new.body.clusters(change.kind));
        self.replace(old, new, &is_here, now, linger);
        if !change.kind.is(Role::Clusters) {
            return;
        }
        let endpoints =
            |of: Option<&Arc<Resource>>| of.and_then(|of| of.refers_to.clone()).filter(|name| name != change.name);
        let (before, after) = (endpoints(change.old), endpoints(change.new));
        if before != after {
            let cluster = (change.class, change.name.clone());
            before.into_iter().for_each(|name| self.leave_endpoints(&name, &cluster));
            if let Some(name) = after {
                self.clusters_of.entry(name).or_default().insert(cluster);
            }
        }
        match (change.old, change.new) {
            (_, Some(_)) => drop(self.dangling.remove(change.name)),
            (Some(_), None) if self.is_live(change.name) && !is_here(change.name) => {
                self.dangling.insert(change.name.clone(), Dangling { since: now, waited: true });
            }
            (_, None) => {}
        }
    }

    fn leave_endpoints(&mut self, endpoints: &Name, cluster: &(Class, Name)) {
        if let Some(clusters) = self.clusters_of.get_mut(endpoints) {
            clusters.remove(cluster);
            if clusters.is_empty() {
                self.clusters_of.remove(endpoints);
            }
        }
    }

    /// Returns the clusters that may take their endpoints under this name.
    pub(super) fn clusters_of<'a>(&'a self, endpoints: &'a Name) -> impl Iterator<Item = &'a Name> {
        let others = self.clusters_of.get(endpoints).into_iter().flatten();
        std::iter::once(endpoints).chain(others.map(|(_, cluster)| cluster))
    }

    /// Keeps a removed resource, because its references still count.
    pub(super) fn keep(&mut self, key: Key, resource: Arc<Resource>) {
        self.kept.insert(key, resource);
    }

    pub(super) fn take_kept(&mut self, key: &Key) -> Option<Arc<Resource>> {
        if self.kept.is_empty() { None } else { self.kept.remove(key) }
    }

    /// The references of a resource have changed. Both lists are sorted, without duplicates.
    pub(super) fn replace(
        &mut self,
        old: &[Name],
        new: &[Name],
        is_here: impl Fn(&Name) -> bool,
        now: Moment,
        linger: Duration,
    ) {
        self.on_time(now); // drops references that have ended
        for name in new.iter().filter(|name| old.binary_search(name).is_err()) {
            let count = self.live.entry(name.clone()).or_default();
            *count += 1;
            if *count == 1 && !is_here(name) {
                self.dangling.insert(name.clone(), Dangling { since: now, waited: false });
            }
        }
        for name in old.iter().filter(|name| new.binary_search(name).is_err()) {
            take_one(&mut self.live, name);
            if !self.live.contains_key(name) {
                self.dangling.remove(name);
            }
            *self.lingering.entry(name.clone()).or_default() += 1;
            self.ends.push_back((now + linger, name.clone()));
        }
    }

    pub(super) fn on_time(&mut self, now: Moment) {
        let over = self.ends.iter().take_while(|(end, _)| *end <= now).count();
        for (_, name) in self.ends.drain(..over) {
            take_one(&mut self.lingering, &name);
        }
    }

    /// When the next lingering reference ends.
    pub(super) fn next_end(&self) -> Option<Moment> {
        self.ends.front().map(|(end, _)| *end)
    }

    /// Returns how many resources in the tables refer to a cluster.
    pub(super) fn count(&self, cluster: &Name) -> usize {
        self.live.get(cluster).map_or(0, |count| *count as usize)
    }

    pub(super) fn is_live(&self, cluster: &Name) -> bool {
        self.live.contains_key(cluster)
    }

    pub(super) fn is_any(&self, cluster: &Name) -> bool {
        self.is_live(cluster) || self.lingering.contains_key(cluster)
    }

    /// Returns the absent clusters that a resource refers to, each with since when.
    pub(super) fn dangling(&self) -> impl Iterator<Item = (&Name, Moment)> {
        self.dangling.iter().map(|(name, dangling)| (name, dangling.since))
    }

    /// Whether a change that refers to this cluster waits for it: not if one has waited in vain, or the cluster was removed under a reference.
    pub(super) fn is_worth_waiting(&self, cluster: &Name) -> bool {
        self.dangling.get(cluster).is_none_or(|dangling| !dangling.waited)
    }

    pub(super) fn waited_for(&mut self, cluster: &Name) {
        if let Some(dangling) = self.dangling.get_mut(cluster) {
            dangling.waited = true;
        }
    }
}

fn take_one(counts: &mut HashMap<Name, u32>, name: &Name) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_that_lingers_ends_at_its_time_and_not_after_it() {
        let mut references = References::default();
        let (a, linger) = (Name::from("a"), Duration::from_secs(5));
        references.replace(&[], std::slice::from_ref(&a), |_| true, Moment::START, linger);
        references.replace(std::slice::from_ref(&a), &[], |_| true, Moment::START, linger);
        let end = references.next_end().unwrap();
        assert_eq!(end, Moment::START + linger);
        references.on_time(Moment::START + (linger - Duration::from_nanos(1)));
        assert!(references.is_any(&a));
        references.on_time(end);
        assert!(!references.is_any(&a));
        assert_eq!(references.next_end(), None, "a timer that is due again and again would keep a core busy");
    }
}
