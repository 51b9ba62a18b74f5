//! Applies updates in an order that is safe for traffic, whatever order the server sends (ORD-1, ORD-4): see `view/order`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::class::Class;
use super::interest::Selector;
use super::order::{Change, Key, OrderLosses};
use super::resource_table::{Presence, ResourceTable};
use super::update::{Completeness, Evidence};
use super::{Entry, View};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::xds::{Authority, Name, References, Resource, Role, Type};

impl View {
    fn keeps_order(&self) -> bool {
        !self.limits.reference_hold.is_zero()
    }

    /// Returns the present resource of a name, for types that lead to clusters or are clusters.
    pub(super) fn in_table(&self, kind: &Type, class: Class, name: &Name) -> Option<Arc<Resource>> {
        if !matches!(kind.info().role, Role::Routing | Role::Clusters) || !self.keeps_order() {
            return None;
        }
        here(self.tables.get(&(kind.clone(), class)), name).cloned()
    }

    /// Returns whether a change of routing waits for clusters that it leads to and that are expected. What it replaces is served
    /// meanwhile.
    pub(super) fn waits_for_clusters(
        &mut self,
        kind: &Type,
        class: Class,
        name: &Name,
        resource: &Arc<Resource>,
        now: Moment,
    ) -> bool {
        if !kind.is(Role::Routing) || !self.keeps_order() {
            return false;
        }
        let key = (kind.clone(), class, name.clone());
        let missing = self.missing_for(&key, resource);
        if missing.is_empty() || self.limits.faults.has(Fault::RoutingGoesAhead) {
            self.order.drop_waiting(&key);
            self.order.note_released(now);
            return false;
        }
        self.order.keep_back(key, resource.clone(), self.origin, missing, now);
        true
    }

    /// Returns the clusters that a change newly leads to and that are not present, although the set of clusters is known.
    fn missing_for(&self, (kind, class, name): &Key, resource: &Resource) -> BTreeSet<Name> {
        let leads_to = resource.body.clusters(kind);
        let Some(old) = here(self.tables.get(&(kind.clone(), *class)), name).filter(|_| !leads_to.is_empty()) else {
            return BTreeSet::new(); // a session that waits for its first reply is not delayed
        };
        let before = old.body.clusters(kind);
        let authority = Authority::of(name);
        let is_missing = |cluster: &&Name| {
            before.binary_search(cluster).is_err()
                && Authority::of(cluster) == authority
                && self.knows_all_clusters_with(cluster)
                && !self.has_cluster(cluster)
        };
        self.order.worth_waiting(leads_to.iter().filter(is_missing).cloned())
    }

    /// Returns whether the set that a cluster would be in is settled, so that a cluster missing from it is absent upstream or still
    /// to come.
    fn knows_all_clusters_with(&self, cluster: &Name) -> bool {
        let set = match self.interest.collection(&self.clusters, cluster) {
            Some(glob) => Selector::Name(glob),
            None if self.interest.has_wildcard(&self.clusters) => Selector::Wildcard,
            None => return false,
        };
        // A client that requests a cluster by name does so because of the route.
        !self.interest.has_name(&self.clusters, cluster)
            && self.completeness_of(&self.clusters, &set) >= Completeness::Settled
    }

    fn has_cluster(&self, name: &Name) -> bool {
        has_cluster(|class| self.tables.get(&(self.clusters.clone(), class)), name)
    }

    /// Returns whether a resource that upstream has removed stays for now, because another resource leads to it.
    pub(super) fn stays_for_now(
        &mut self,
        kind: &Type,
        class: Class,
        name: &Name,
        word: Evidence,
        now: Moment,
    ) -> bool {
        let clusters = *kind == self.clusters;
        let endpoints = class == Class::Named && self.table.referred_by(&self.clusters).as_ref() == Some(kind);
        if word != Evidence::Reported || !(clusters || endpoints) || !self.keeps_order() {
            return false;
        }
        let source = self.origin;
        let higher = |entry: &Entry| source.holds_missing && entry.origin.rank < source.rank;
        let entry = self.tables.get(&(kind.clone(), class)).and_then(|table| table.get(name));
        if !entry.is_some_and(|entry| matches!(entry.presence, Presence::Present(_)) && !higher(entry)) {
            return false; // nothing to remove, or this server cannot remove it
        }
        let in_use = |cluster: &Name| {
            let removable = |class| self.order.is_doomed(&(self.clusters.clone(), class, cluster.clone()));
            self.order.leads_to(cluster) && self.has_cluster(cluster)
                || removable(Class::Wildcard)
                || removable(Class::Named)
        };
        if endpoints && !self.order.clusters_of(name).any(in_use) || self.limits.faults.has(Fault::RemoveUnderReference)
        {
            return false;
        }
        self.order.doom((kind.clone(), class, name.clone()), source, now);
        true
    }

    /// Records that a resource in the tables was added, replaced or removed. Returns the changes that have waited for it: they follow it.
    pub(super) fn note_change(
        &mut self,
        kind: &Type,
        class: Class,
        name: &Name,
        old: Option<&Arc<Resource>>,
        now: Moment,
    ) -> Vec<Key> {
        if !self.keeps_order() {
            return Vec::new();
        }
        let key = (kind.clone(), class, name.clone());
        if !matches!(kind.info().role, Role::Routing | Role::Clusters) {
            self.order.spare(&key);
            return Vec::new();
        }
        let new = here(self.tables.get(&(kind.clone(), class)), name).cloned();
        self.order.spare(&key);
        let kept = self.order.take_kept(&key);
        let old = old.or(kept.as_ref());
        let requested = class == Class::Named && kind.info().references == References::VirtualHosts;
        match (old, &new) {
            (None, None) => return Vec::new(),
            (Some(old), None) if requested && self.interest.has_name(kind, name) => {
                self.order.keep(key, old.clone());
                return Vec::new();
            }
            _ => {}
        }
        let change = Change { kind, name, old, new: new.as_ref() };
        let (tables, clusters) = (&self.tables, &self.clusters);
        let is_here = |name: &Name| has_cluster(|class| tables.get(&(clusters.clone(), class)), name);
        let ready = self.order.replaced(&change, is_here, now, self.limits.reference_hold);
        self.order.note_released(now);
        ready
    }

    /// Applies changes whose clusters are here.
    pub(super) fn release(&mut self, ready: Vec<Key>, now: Moment) {
        for key in ready {
            let Some(waiting) = self.order.drop_waiting(&key) else { continue };
            let (kind, class, name) = key;
            let before = std::mem::replace(&mut self.origin, waiting.source);
            let received = self.received.replace(waiting.since);
            self.set_resource(&kind, class, name, waiting.resource, now);
            (self.origin, self.received) = (before, received);
        }
        self.order.note_released(now);
    }

    /// Forgets a name that no session subscribes to any more.
    pub(super) fn forget_order(
        &mut self,
        kind: &Type,
        class: Class,
        name: &Name,
        old: Option<&Arc<Resource>>,
        now: Moment,
    ) {
        self.order.drop_waiting(&(kind.clone(), class, name.clone()));
        self.note_change(kind, class, name, old, now);
    }

    /// Releases what has waited long enough, and removed clusters that nothing leads to any more.
    pub(super) fn settle_order(&mut self, now: Moment) {
        if !self.order.is_due(now) {
            return;
        }
        let before = self.origin;
        for ((kind, class, name), waiting) in self.order.take_overdue(now) {
            (self.origin, self.received) = (waiting.source, Some(waiting.since));
            self.set_resource(&kind, class, name, waiting.resource.clone(), now);
            self.order.waited_for(&waiting);
        }
        self.order.note_released(now);
        let (tables, clusters) = (&self.tables, &self.clusters);
        let is_here = |name: &Name| has_cluster(|class| tables.get(&(clusters.clone(), class)), name);
        for ((kind, class, name), removable) in self.order.take_dead(now, self.limits.reference_hold, is_here) {
            (self.origin, self.received) = (removable.source, Some(removable.since));
            self.remove_resource(&kind, class, &name, Evidence::Reported, now);
        }
        (self.origin, self.received) = (before, None);
    }

    /// Returns whether upstream has removed it and it stays for now.
    pub(crate) fn is_doomed(&self, kind: &Type, class: Class, name: &Name) -> bool {
        self.order.has_doomed() && self.order.is_doomed(&(kind.clone(), class, name.clone()))
    }

    /// Returns the names that a server has removed and whose removal waits: of a set, or one name.
    pub(crate) fn removed_by<'a>(
        &'a self,
        server: usize,
        kind: &'a Type,
        of: &'a Selector,
    ) -> impl Iterator<Item = &'a Name> {
        let class = if *of == Selector::Wildcard { Class::Wildcard } else { Class::Named };
        let is_meant = move |name: &&Name| match of {
            Selector::Wildcard => true,
            Selector::Name(own) => own == *name,
        };
        self.order.doomed_by(server, kind, class).filter(is_meant)
    }

    /// Returns whether the order depends on authorities whose server is unreachable or has not sent its routing yet.
    pub fn awaits_routing(&self) -> bool {
        self.order.is_any()
    }

    /// Records the authorities of `Sources::unsteady`. While an authority is unsteady, no wait in it runs out.
    pub fn note_unsteady(&mut self, unsteady: BTreeSet<Authority>, now: Moment) {
        self.order.note_unsteady(unsteady, now);
    }

    /// Returns the ordering rules that could not be kept since the last call.
    pub fn take_dangled(&mut self) -> OrderLosses {
        self.order.take_dangled()
    }

    /// Returns the dangling clusters, each with since when.
    pub fn dangling(&self) -> impl Iterator<Item = (&Name, Moment)> {
        let dangling = self.order.references().iter().map(|(name, dangling)| (name, dangling.since));
        dangling.filter(|(name, _)| self.knows_all_clusters_with(name) || self.is_gone(&self.clusters, name))
    }
}

fn here<'a>(table: Option<&'a ResourceTable>, name: &Name) -> Option<&'a Arc<Resource>> {
    table?.get(name)?.resource()
}

fn has_cluster<'a>(table: impl Fn(Class) -> Option<&'a ResourceTable>, name: &Name) -> bool {
    [Class::Wildcard, Class::Named].into_iter().any(|class| here(table(class), name).is_some())
}
