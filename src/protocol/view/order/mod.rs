//! Waits that keep traffic from being routed to missing clusters, whatever order the server sends: a removed cluster stays while
//! something refers to it, and a change of routing waits for clusters that are expected.
//!
//! Owns which resource refers to which cluster, and what waits since when. Reads the tables as facts, and changes nothing in them.

mod judge;
mod references;
mod report;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::references::References;
use super::keys::{Class, Key};
use super::stage::KeepsRemoved;
use super::update::Origin;
use crate::protocol::moment::{Moment, earliest};
use crate::xds::{Authority, Name, Resource, Role, Type};

#[derive(Debug, Default)]
pub(super) struct Order {
    references: References,
    /// Resources that upstream has removed and that stay for now.
    removable: BTreeMap<Key, Doomed>,
    /// Changes that are not applied to the tables yet.
    waiting: BTreeMap<Key, Waiting>,
    /// The missing clusters, each with the changes that wait for it.
    missing: BTreeMap<Name, BTreeSet<Key>>,
    /// Whether a change has waited since the last release.
    is_held: bool,
    /// When a cluster or a routing resource last changed.
    changed: Moment,
    /// When the last waiting change of routing was released.
    release: Moment,
    /// Authorities whose server is unreachable, or has not sent its routing since it came back; and since when others are steady.
    unsteady: BTreeSet<Authority>,
    steady: BTreeMap<Authority, Moment>,
    /// Clusters whose endpoints have another name, by that name.
    clusters_of: BTreeMap<Name, BTreeSet<Name>>,
    /// Removed route configurations that clients still request: an Envoy continues to use the last one.
    kept: BTreeMap<Key, Arc<Resource>>,
    look_at: Option<Moment>,
    dangled: OrderLosses,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Doomed {
    pub(crate) since: Moment,
    pub(crate) origin: Origin,
}

#[derive(Debug, Clone)]
pub(super) struct Waiting {
    pub(crate) since: Moment,
    pub(crate) resource: Arc<Resource>,
    pub(crate) origin: Origin,
    /// Clusters that are missing.
    left: BTreeSet<Name>,
}

/// Ordering rules that could not be kept since the last call: bounded lists, and counts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OrderLosses {
    /// Clusters that were removed while something referred to them.
    pub(crate) removed: Vec<Name>,
    /// Removals of clusters that did not wait until nothing referred to them.
    pub removals: u64,
    /// Clusters that a change refers to and that did not arrive.
    pub(crate) awaited: Vec<Name>,
    /// Changes of routing that were applied before their clusters arrived.
    pub waits: u64,
    /// Bodies that were too large to be inspected.
    pub(crate) too_large: u64,
}

impl KeepsRemoved for Order {
    fn is_doomed(&self, key: &Key) -> bool {
        !self.removable.is_empty() && self.removable.contains_key(key)
    }

    fn doomed(&self, kind: &Type, class: Class) -> Box<dyn Iterator<Item = &Name> + '_> {
        let from = (kind.clone(), class, Name::from(""));
        let kind = kind.clone();
        let of_set = self.removable.range(from..).take_while(move |((of, own, _), _)| (of, *own) == (&kind, class));
        Box::new(of_set.map(|((_, _, name), _)| name))
    }
}

impl Order {
    /// Returns what one server has removed and stays for now, of one type and class.
    pub(crate) fn doomed_by(&self, server: usize, of: &Type, class: Class) -> impl Iterator<Item = &Name> {
        let all = self.removable.iter().filter(move |(_, doomed)| usize::from(doomed.origin.server) == server);
        all.filter(move |((kind, own, _), _)| kind == of && *own == class).map(|((_, _, name), _)| name)
    }

    pub(crate) fn is_doomed_by(&self, server: usize, key: &Key) -> bool {
        self.removable.get(key).is_some_and(|doomed| usize::from(doomed.origin.server) == server)
    }

    pub(crate) fn has_doomed(&self) -> bool {
        !self.removable.is_empty()
    }

    pub(crate) fn is_any(&self) -> bool {
        self.has_doomed() || !self.waiting.is_empty()
    }

    pub(crate) fn references(&self) -> &BTreeMap<Name, references::Dangling> {
        self.references.dangling()
    }

    /// A removed resource still leads where it did.
    pub(crate) fn keep(&mut self, key: Key, resource: Arc<Resource>) {
        self.kept.insert(key, resource);
    }

    pub(crate) fn take_kept(&mut self, key: &Key) -> Option<Arc<Resource>> {
        if self.kept.is_empty() { None } else { self.kept.remove(key) }
    }

    /// A cluster, or a resource that refers to clusters, was replaced. Returns the changes that have waited for it.
    pub(crate) fn replaced(
        &mut self,
        change: &Change,
        is_here: impl Fn(&Name) -> bool,
        now: Moment,
        bound: Duration,
    ) -> Vec<Key> {
        let kind = change.kind;
        let old = change.old.map_or(&[][..], |old| old.body.clusters(kind));
        let new = change.new.map_or(&[][..], |new| new.body.clusters(kind));
        self.references.replace(old, new, is_here, now, bound);
        let too_much = change.new.and_then(|new| new.body.cluster_references(kind)).is_some_and(|found| found.too_much);
        self.dangled.too_large += u64::from(too_much);
        self.changed = now;
        if !change.kind.is(Role::Clusters) {
            return Vec::new();
        }
        let endpoints =
            |of: Option<&Arc<Resource>>| of.and_then(|of| of.refers_to.clone()).filter(|name| name != change.name);
        let (before, after) = (endpoints(change.old), endpoints(change.new));
        if before != after {
            before.into_iter().for_each(|name| self.leave_endpoints(&name, change.name));
            if let Some(name) = after {
                self.clusters_of.entry(name).or_default().insert(change.name.clone());
            }
        }
        match (change.old, change.new) {
            (_, Some(_)) => self.appeared(change.name),
            (Some(_), None) => {
                self.references.vanished(change.name, now);
                Vec::new()
            }
            (None, None) => Vec::new(),
        }
    }

    fn leave_endpoints(&mut self, endpoints: &Name, cluster: &Name) {
        if let Some(clusters) = self.clusters_of.get_mut(endpoints) {
            clusters.remove(cluster);
            if clusters.is_empty() {
                self.clusters_of.remove(endpoints);
            }
        }
    }

    fn appeared(&mut self, cluster: &Name) -> Vec<Key> {
        self.references.appeared(cluster);
        let waiting = self.missing.remove(cluster).unwrap_or_default();
        let ready = |key: &Key| {
            let waiting = self.waiting.get_mut(key);
            waiting.is_some_and(|waiting| {
                waiting.left.remove(cluster);
                waiting.left.is_empty()
            })
        };
        waiting.into_iter().filter(ready).collect()
    }

    /// Returns the clusters that may take their endpoints under this name.
    pub(crate) fn clusters_of<'a>(&'a self, endpoints: &'a Name) -> impl Iterator<Item = &'a Name> {
        std::iter::once(endpoints).chain(self.clusters_of.get(endpoints).into_iter().flatten())
    }

    pub(crate) fn is_referred_to(&self, cluster: &Name) -> bool {
        self.references.is_any(cluster)
    }

    /// The server removed it, and it stays for now. A repeated removal does not make it stay longer.
    pub(crate) fn doom(&mut self, key: Key, origin: Origin, now: Moment) {
        if key.0.is(Role::Clusters) {
            self.changed = now;
        }
        self.removable
            .entry(key)
            .and_modify(|removable| removable.origin = origin)
            .or_insert(Doomed { since: now, origin });
        self.look_by(now);
    }

    /// The resource is present again, or removed for good.
    pub(crate) fn spare(&mut self, key: &Key) {
        if !self.removable.is_empty() {
            self.removable.remove(key);
        }
    }

    /// Cancels the removals from a `*` set that still wait.
    pub(crate) fn spare_all(&mut self, of: &Type) {
        self.removable.retain(|(kind, class, _), _| kind != of || *class != Class::Wildcard);
    }

    fn look_by(&mut self, at: Moment) {
        self.look_at = Some(self.look_at.map_or(at, |look| look.min(at)));
    }

    pub(crate) fn note_unsteady(&mut self, unsteady: BTreeSet<Authority>, now: Moment) {
        if unsteady == self.unsteady {
            return;
        }
        let back = self.unsteady.difference(&unsteady).cloned();
        self.steady.extend(back.map(|authority| (authority, now)));
        self.unsteady = unsteady;
        self.look_by(now);
    }

    /// Whether upstream has been quiet since something began to wait.
    fn is_quiet(&self, since: Moment, now: Moment) -> bool {
        now >= self.quiet_at(since)
    }

    fn quiet_at(&self, since: Moment) -> Moment {
        (self.changed + QUIET).min(since + LONGEST)
    }

    /// When it is removed at the latest. `None` while changes wait, or while a server that could send another reference has not
    /// responded.
    fn bound_of(&self, name: &Name, since: Moment, bound: Duration) -> Option<Moment> {
        let authority = Authority::of(name);
        let runs = !self.unsteady.contains(&authority) && self.waiting.is_empty();
        let steady = self.steady.get(&authority).copied().unwrap_or(Moment::START);
        runs.then(|| since.max(steady).max(self.release) + bound)
    }

    pub(crate) fn is_due(&self, now: Moment) -> bool {
        self.next_deadline().is_some_and(|at| at <= now)
    }

    pub(crate) fn next_deadline(&self) -> Option<Moment> {
        earliest(self.look_at, self.references.next_end().filter(|_| self.look_at.is_none() && self.has_doomed()))
    }

    /// Returns what is removed now. The endpoints of a cluster are removed with it or after it.
    pub(crate) fn take_dead(
        &mut self,
        now: Moment,
        bound: Duration,
        is_here: impl Fn(&Name) -> bool,
    ) -> Vec<(Key, Doomed)> {
        let mut dead: BTreeMap<Key, Doomed> = BTreeMap::new();
        let is_over = |name: &Name, since| self.bound_of(name, since, bound).is_some_and(|at| at <= now);
        let (clusters, endpoints): (Vec<_>, Vec<_>) =
            self.removable.iter().partition(|((kind, _, _), _)| kind.is(Role::Clusters));
        let mut fallen = Vec::new();
        let mut stay = BTreeSet::new();
        for (key, removable) in clusters {
            let free = self.is_quiet(removable.since, now) && !self.references.is_any(&key.2);
            if free || is_over(&key.2, removable.since) {
                fallen.extend(self.references.is_live(&key.2).then(|| key.2.clone()));
                dead.insert(key.clone(), *removable);
            } else {
                stay.insert(&key.2);
            }
        }
        let gone: BTreeSet<_> = dead.keys().map(|(_, _, name)| name).collect();
        let stays = |cluster: &Name| {
            let led_to = self.references.is_any(cluster) && is_here(cluster) && !gone.contains(cluster);
            led_to || stay.contains(cluster)
        };
        let dead_endpoints: Vec<_> = endpoints
            .into_iter()
            .filter(|(key, removable)| is_over(&key.2, removable.since) || !self.clusters_of(&key.2).any(stays))
            .map(|(key, removable)| (key.clone(), *removable))
            .collect();
        dead.extend(dead_endpoints);
        for key in dead.keys() {
            self.removable.remove(key);
        }
        self.dangled.removals += fallen.len() as u64;
        self.dangled.removed.extend(fallen);
        self.dangled.removed.truncate(NAMED);
        self.look_at = self.next_look(now, bound);
        dead.into_iter().collect()
    }

    fn next_look(&self, now: Moment, bound: Duration) -> Option<Moment> {
        let quiet =
            self.removable.values().map(|removable| self.quiet_at(removable.since)).filter(|at| *at > now).min();
        let bounds =
            self.removable.iter().filter_map(|(key, removable)| self.bound_of(&key.2, removable.since, bound)).min();
        let waiting = self.next_overdue();
        let lingering = self.references.next_end().filter(|_| self.has_doomed());
        // Lingering references end one by one; their removals can be joined.
        let lingering = lingering.map(|end| end.max(now + QUIET));
        [quiet, bounds, waiting, lingering].into_iter().flatten().min()
    }

    pub(crate) fn take_dangled(&mut self) -> OrderLosses {
        std::mem::take(&mut self.dangled)
    }
}

/// A resource in the tables was added, replaced or removed.
pub(super) struct Change<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) name: &'a Name,
    pub(crate) old: Option<&'a Arc<Resource>>,
    pub(crate) new: Option<&'a Arc<Resource>>,
}

/// Upstream counts as quiet once no cluster and no routing resource has changed for this long.
const QUIET: Duration = Duration::from_millis(50);
/// A server that is never quiet delays nothing for longer than this.
const LONGEST: Duration = Duration::from_secs(1);
/// Names that are remembered for a log line.
const NAMED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Any;
    use crate::proto::discovery::Resource as Wrapper;
    use crate::xds::{BodyStore, TypeTable};

    const BOUND: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    #[test]
    fn ord_1_the_bound_of_a_cluster_begins_when_the_last_change_that_waits_is_released() {
        let table = TypeTable::new();
        let [clusters, routes] = ["envoy.config.cluster.v3.Cluster", "envoy.config.route.v3.RouteConfiguration"]
            .map(|kind| table.resolve(kind));
        let [old, new, route] = ["old", "new", "route"].map(Name::from);
        let (cluster, change) = ((clusters, Class::Wildcard, old.clone()), (routes.clone(), Class::Named, route));
        let body = Any { type_url: format!("type.googleapis.com/{}", routes.name()), value: bytes::Bytes::new() };
        let wrapper = Wrapper { name: "route".into(), resource: Some(body), ..Wrapper::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &routes, &BodyStore::default()).unwrap());

        let mut order = Order::default();
        order.references.replace(&[], &[old], |_| true, at(0), BOUND);
        order.doom(cluster.clone(), Origin::default(), at(0));
        order.keep_back(change.clone(), resource, Origin::default(), [new].into(), at(0));
        let removed = |order: &mut Order, seconds| {
            let dead = order.take_dead(at(seconds), BOUND, |_| true).into_iter().map(|(key, _)| key);
            dead.collect::<Vec<_>>()
        };
        assert_eq!(removed(&mut order, 100), [], "it does not run while a change waits");
        assert!(order.drop_waiting(&change).is_some());
        order.note_released(at(100));
        assert_eq!(removed(&mut order, 109), [], "clients have had the change for less than the bound");
        assert_eq!(order.next_deadline(), Some(at(110)));
        assert_eq!(removed(&mut order, 110), [cluster]);
    }

    #[test]
    fn a_removal_goes_with_the_last_reference_however_long_its_authority_is_unsteady() {
        let clusters = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
        let old = Name::from("old");
        let cluster = (clusters, Class::Wildcard, old.clone());
        let mut order = Order::default();
        order.references.replace(&[], std::slice::from_ref(&old), |_| true, at(0), BOUND);
        order.note_unsteady(BTreeSet::from([Authority::TopLevel]), at(0));
        order.doom(cluster.clone(), Origin::default(), at(0));
        assert_eq!(order.take_dead(at(100), BOUND, |_| true).len(), 0);
        assert_eq!(order.next_deadline(), None, "no time runs");

        order.references.replace(&[old], &[], |_| true, at(200), BOUND);
        assert_eq!(order.next_deadline(), Some(at(210)), "clients may hold what led there until then");
        assert!(order.is_due(at(210)), "a deadline in the past would keep a core busy");
        order.take_overdue(at(210));
        let dead = order.take_dead(at(210), BOUND, |_| true);
        assert_eq!(dead.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [cluster]);
        assert_eq!(order.next_deadline(), None);
    }
}
