//! What the order lets on, and what it keeps: removals of what is in use, and changes of routing whose clusters are expected (ORD-1, ORD-4).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Change, Doomed, Key, Order, Waiting};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::keys::{Class, Selector};
use crate::protocol::view::resource_table::{Entry, Presence};
use crate::protocol::view::stage::{Facts, KeepsRemoved};
use crate::protocol::view::update::{Completeness, Evidence, Origin, Update};
use crate::xds::{Authority, Name, References, Resource, Role, Type};

impl Order {
    /// Judges an update of which the tables do not show anything yet. Returns what is applied now.
    pub(crate) fn judge(&mut self, update: Update, origin: Origin, facts: &Facts, now: Moment) -> Option<Update> {
        match &update {
            Update::Upsert { kind, class, key, resource } if kind.is(Role::Routing) && keeps_order(facts) => {
                let key = (kind.clone(), *class, key.clone());
                let missing = self.missing_for(&key, resource, facts);
                if !missing.is_empty() && !facts.limits.faults.has(Fault::RoutingGoesAhead) {
                    self.keep_back(key, resource.clone(), origin, missing, now);
                    return None;
                }
                self.drop_waiting(&key);
                self.note_released(now);
            }
            Update::Absent { kind, class, key, evidence } => {
                let key = (kind.clone(), *class, key.clone());
                if *evidence == Evidence::Reported && self.is_in_use(&key, origin, facts) {
                    self.doom(key.clone(), origin, now);
                    let (kind, class, key) = key;
                    return Some(Update::RemovalHeld { kind, class, key });
                }
                self.drop_waiting(&key);
            }
            Update::Expired { kind, class, key } => {
                self.drop_waiting(&(kind.clone(), *class, key.clone()));
            }
            // The active server sends its own set, and another one has removed nothing of it.
            Update::Interrupted { kind, of: Selector::Wildcard } => self.spare_all(kind),
            Update::Interrupted { kind, of: Selector::Name(name) } => {
                self.spare(&(kind.clone(), Class::Named, name.clone()));
            }
            Update::Upsert { .. }
            | Update::Kept { .. }
            | Update::FullSet { .. }
            | Update::Refresh { .. }
            | Update::Error { .. }
            | Update::Progress { .. }
            | Update::Unchanged { .. }
            | Update::Unreadable { .. }
            | Update::RemovalHeld { .. }
            | Update::PartHeld { .. } => {}
        }
        Some(update)
    }

    /// Returns the clusters that a change newly refers to and that are not present, although the set of clusters is known.
    fn missing_for(&self, (kind, class, name): &Key, resource: &Resource, facts: &Facts) -> BTreeSet<Name> {
        let refers_to = resource.body.clusters(kind);
        let Some(old) = facts.resource(kind, *class, name).filter(|_| !refers_to.is_empty()) else {
            return BTreeSet::new(); // a session that waits for its first reply is not delayed
        };
        let before = old.body.clusters(kind);
        let authority = Authority::of(name);
        let is_missing = |cluster: &&Name| {
            before.binary_search(cluster).is_err()
                && Authority::of(cluster) == authority
                && knows_all_clusters_with(cluster, facts)
                && !has_cluster(cluster, facts)
        };
        self.worth_waiting(refers_to.iter().filter(is_missing).cloned())
    }

    /// Whether a present resource that upstream removes stays for now, because another resource refers to it.
    fn is_in_use(&self, key: &Key, origin: Origin, facts: &Facts) -> bool {
        let (kind, class, name) = key;
        let clusters = kind == facts.clusters;
        let endpoints = *class == Class::Named && facts.types.referred_by(facts.clusters).as_ref() == Some(kind);
        if !(clusters || endpoints) || !keeps_order(facts) {
            return false;
        }
        if facts.resource(kind, *class, name).is_none() || !facts.may_remove(key, origin) {
            return false; // nothing to remove, or this server cannot remove it
        }
        let in_use = |cluster: &Name| {
            let is_doomed = |class| self.is_doomed(&(facts.clusters.clone(), class, cluster.clone()));
            self.is_referred_to(cluster) && has_cluster(cluster, facts)
                || is_doomed(Class::Wildcard)
                || is_doomed(Class::Named)
        };
        (clusters || self.clusters_of(name).any(in_use)) && !facts.limits.faults.has(Fault::RemoveUnderReference)
    }

    /// Whether what was in the tables is needed to record a change of a resource.
    pub(crate) fn follows(kind: &Type, facts: &Facts) -> bool {
        matches!(kind.info().role, Role::Routing | Role::Clusters) && keeps_order(facts)
    }

    /// Records that a resource in the tables was added, replaced or removed. Returns the changes that have waited for it: they follow it.
    pub(crate) fn applied(
        &mut self,
        key: Key,
        old: Option<&Arc<Resource>>,
        facts: &Facts,
        now: Moment,
    ) -> Vec<(Key, Waiting)> {
        if !keeps_order(facts) {
            return Vec::new();
        }
        self.spare(&key);
        let (kind, class, name) = &key;
        if !matches!(kind.info().role, Role::Routing | Role::Clusters) {
            return Vec::new();
        }
        let new = facts.resource(kind, *class, name);
        let kept = self.take_kept(&key);
        let old = old.or(kept.as_ref());
        let requested = *class == Class::Named && kind.info().references == References::VirtualHosts;
        match (old, new) {
            (None, None) => return Vec::new(),
            (Some(old), None) if requested && facts.interest.has_name(kind, name) => {
                self.keep(key, old.clone());
                return Vec::new();
            }
            _ => {}
        }
        let change = Change { kind, name, old, new };
        let ready = self.replaced(&change, |name| has_cluster(name, facts), now, facts.limits.reference_hold);
        self.note_released(now);
        let ready = ready.into_iter().filter_map(|key| Some((key.clone(), self.drop_waiting(&key)?)));
        let ready = ready.collect();
        self.note_released(now);
        ready
    }

    /// Returns removed clusters that nothing refers to any more, and what has stayed for long enough.
    pub(crate) fn take_removals(&mut self, facts: &Facts, now: Moment) -> Vec<(Key, Doomed)> {
        self.take_dead(now, facts.limits.reference_hold, |name| has_cluster(name, facts))
    }

    /// Returns the dangling clusters, each with since when.
    pub(crate) fn dangling<'a>(&'a self, facts: Facts<'a>) -> impl Iterator<Item = (&'a Name, Moment)> {
        let is_absent = |entry: &Entry| matches!(entry.presence, Presence::Absent(_));
        let is_gone = move |name: &Name| facts.entry(facts.clusters, Class::Named, name).is_some_and(is_absent);
        let dangling = self.references().iter().map(|(name, dangling)| (name, dangling.since));
        dangling.filter(move |(name, _)| knows_all_clusters_with(name, &facts) || is_gone(name))
    }
}

impl Waiting {
    pub(crate) fn update(&self, (kind, class, key): Key) -> Update {
        Update::Upsert { kind, class, key, resource: self.resource.clone() }
    }
}

impl Doomed {
    pub(crate) fn update(self, (kind, class, key): Key) -> Update {
        Update::Absent { kind, class, key, evidence: Evidence::Reported }
    }
}

fn keeps_order(facts: &Facts) -> bool {
    !facts.limits.reference_hold.is_zero()
}

/// Returns whether the set that a cluster would be in is settled, so that a cluster missing from it is absent upstream or still
/// to come.
fn knows_all_clusters_with(cluster: &Name, facts: &Facts) -> bool {
    let Facts { clusters, interest, .. } = facts;
    let set = match interest.collection(clusters, cluster) {
        Some(glob) => Selector::Name(glob),
        None if interest.has_wildcard(clusters) => Selector::Wildcard,
        None => return false,
    };
    // A client that requests a cluster by name does so because of the route.
    !interest.has_name(clusters, cluster) && facts.completeness_of(clusters, &set) >= Completeness::Settled
}

fn has_cluster(name: &Name, facts: &Facts) -> bool {
    [Class::Wildcard, Class::Named].into_iter().any(|class| facts.resource(facts.clusters, class, name).is_some())
}
