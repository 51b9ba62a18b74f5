//! Waits that keep traffic from being routed to missing clusters, whatever order the server sends: a removed cluster stays while
//! something refers to it (ORD-1), and a change of routing waits for clusters that are expected (ORD-4).
//!
//! Owns which resource refers to which cluster, and what waits since when. Reads the tables as facts, and changes nothing in them.

mod references;
pub(super) mod removals;
pub(super) mod waiting;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use self::references::{Change, References};
use self::removals::{DeferredRemoval, DeferredRemovals};
use self::waiting::{QUIET, WAIT, WaitTimes, WaitingChanges};
use super::resource_table::{Presence, TableEntry};
use super::stage::{HoldTimes, StageFacts};
use super::update::{Completeness, Evidence, Origin, SourcedUpdate, Update};
use crate::protocol::keys::{Class, Key, Selector};
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};
use crate::xds::{Authority, Name, Resource, Role, Type};

#[derive(Debug, Default)]
pub(super) struct Order {
    references: References,
    /// Resources that upstream has removed and that stay for now.
    removals: DeferredRemovals,
    /// Changes that are not applied to the tables yet.
    waiting: WaitingChanges,
    times: WaitTimes,
    look_at: Option<Moment>,
    losses: OrderLosses,
}

/// Ordering rules that could not be kept since the last call: bounded lists, and counts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OrderLosses {
    /// Clusters that were removed while something referred to them.
    pub removed: Vec<Name>,
    /// Removals of clusters that did not wait until nothing referred to them.
    pub removals: u64,
    /// Clusters that a change refers to and that did not arrive.
    pub awaited: Vec<Name>,
    /// Clusters that a change of routing waited for until it was applied without them.
    pub waits: u64,
    /// Bodies that were too large to be inspected.
    pub too_large: u64,
}

impl Order {
    /// Judges an update that is not in the tables yet. Returns what is applied now.
    pub(super) fn judge(&mut self, update: Update, origin: Origin, facts: &StageFacts, now: Moment) -> Option<Update> {
        if !self.waiting.is_empty() && update.subject().0 == facts.clusters() {
            self.look_by(now); // a cluster that changes wait for may have no room now, or be removed
        }
        match &update {
            Update::Upsert { kind, class, key, resource } if kind.is(Role::Routing) && keeps_order(facts) => {
                let key = (kind.clone(), *class, key.clone());
                let missing = self.missing_for(&key, resource, facts);
                if !missing.is_empty() {
                    self.keep_back(key, resource.clone(), origin, missing, now);
                    return None;
                }
                self.drop_waiting(&key);
                self.note_released(now);
            }
            Update::Absent { kind, class, key, evidence } => {
                let key = (kind.clone(), *class, key.clone());
                if *evidence == Evidence::Reported && self.is_in_use(&key, origin, facts) {
                    self.defer_removal(key.clone(), origin, now);
                    let (kind, class, key) = key;
                    return Some(Update::RemovalHeld { kind, class, key });
                }
                self.drop_waiting(&key);
            }
            // While an earlier stage holds a removal, or a newer form of the name, what waits here is out of date.
            Update::Expired { kind, class, key } | Update::RemovalHeld { kind, class, key } => {
                self.drop_waiting(&(kind.clone(), *class, key.clone()));
            }
            // The server that is active now sends its set again. What another server removed does not count for it.
            Update::Interrupted { kind, of: Selector::Wildcard } => self.removals.cancel_all(kind),
            Update::Interrupted { kind, of: Selector::Name(name) } => {
                self.removals.cancel(&(kind.clone(), Class::Named, name.clone()));
            }
            Update::Upsert { .. }
            | Update::Kept { .. }
            | Update::FullSet { .. }
            | Update::Refresh { .. }
            | Update::Error { .. }
            | Update::Progress { .. }
            | Update::Unchanged { .. }
            | Update::Unreadable { .. }
            | Update::PartHeld { .. }
            | Update::WithoutRoom { .. } => {}
        }
        Some(update)
    }

    /// Returns the clusters that a change newly refers to and that are missing: the set of clusters is known without them, or the server
    /// has sent them and there is no room.
    fn missing_for(&self, (kind, class, name): &Key, resource: &Resource, facts: &StageFacts) -> BTreeSet<Name> {
        let refers_to = resource.body.clusters(kind);
        let Some(old) = facts.tables().resource(kind, *class, name).filter(|_| !refers_to.is_empty()) else {
            return BTreeSet::new(); // a session that waits for its first reply is not delayed
        };
        let before = old.body.clusters(kind);
        let authority = Authority::of(name);
        let is_missing = |cluster: &&Name| {
            before.binary_search(cluster).is_err()
                && Authority::of(cluster) == authority
                && (knows_all_clusters_with(cluster, facts) || lacks_room(cluster, facts))
                && !has_cluster(cluster, facts)
        };
        let missing = refers_to.iter().filter(is_missing);
        missing.filter(|name| self.references.is_worth_waiting(name)).cloned().collect()
    }

    /// Lets a change wait for missing clusters.
    fn keep_back(&mut self, key: Key, resource: Arc<Resource>, origin: Origin, missing: BTreeSet<Name>, now: Moment) {
        self.times.note_changed(now);
        self.waiting.keep_back(key, resource, origin, missing, now);
        self.look_by(now);
    }

    /// Whether a present resource that upstream removes stays for now, because another resource refers to it.
    fn is_in_use(&self, key: &Key, origin: Origin, facts: &StageFacts) -> bool {
        let (kind, class, name) = key;
        let clusters = kind == facts.clusters();
        let endpoints = *class == Class::Named && facts.types().referred_by(facts.clusters()).as_ref() == Some(kind);
        if !(clusters || endpoints) || !keeps_order(facts) {
            return false;
        }
        if facts.tables().resource(kind, *class, name).is_none() || !facts.may_remove(key, origin) {
            return false; // nothing to remove, or this server cannot remove it
        }
        let in_use = |cluster: &Name| {
            let is_removed = |class| self.removals.has(&(facts.clusters().clone(), class, cluster.clone()));
            self.references.is_any(cluster) && has_cluster(cluster, facts)
                || is_removed(Class::Wildcard)
                || is_removed(Class::Named)
        };
        clusters || self.references.clusters_of(name).any(in_use)
    }

    /// Whether a cluster in the tables takes these endpoints. Without the order this is not known, and counts as true.
    pub(super) fn may_take(&self, endpoints: &Name, facts: &StageFacts) -> bool {
        !keeps_order(facts) || self.references.clusters_of(endpoints).any(|cluster| has_cluster(cluster, facts))
    }

    fn defer_removal(&mut self, key: Key, origin: Origin, now: Moment) {
        if key.0.is(Role::Clusters) {
            self.times.note_changed(now);
        }
        self.removals.defer(key, origin, now);
        self.look_by(now);
    }

    /// The resource is present again, or removed for good.
    pub(super) fn cancel_removal(&mut self, key: &Key) {
        self.removals.cancel(key);
    }

    /// Drops a change that waits: another one has come for the name, or no session subscribes to it any more.
    pub(super) fn drop_waiting(&mut self, key: &Key) {
        self.waiting.remove(key);
    }

    /// Whether recording a change of a resource needs the resource that was in the tables before.
    pub(super) fn follows(kind: &Type, facts: &StageFacts) -> bool {
        matches!(kind.info().role, Role::Routing | Role::Clusters) && keeps_order(facts)
    }

    /// Records that a resource in the tables was added, replaced or removed. Returns the changes that have waited for it and are applied
    /// next.
    pub(super) fn applied(
        &mut self,
        key: Key,
        old: Option<&Arc<Resource>>,
        facts: &StageFacts,
        now: Moment,
    ) -> Vec<SourcedUpdate> {
        if !keeps_order(facts) {
            return Vec::new();
        }
        self.removals.cancel(&key);
        let (kind, class, name) = &key;
        if !matches!(kind.info().role, Role::Routing | Role::Clusters) {
            return Vec::new();
        }
        let new = facts.tables().resource(kind, *class, name);
        let kept = self.references.take_kept(&key);
        let old = old.or(kept.as_ref());
        let requested = *class == Class::Named && kind.info().references == crate::xds::References::VirtualHosts;
        match (old, new) {
            (None, None) => return Vec::new(),
            (Some(old), None) if requested && facts.has_name(kind, name) => {
                self.references.keep(key, old.clone());
                return Vec::new();
            }
            _ => {}
        }
        let is_here = |name: &Name| has_cluster(name, facts);
        let change = Change { kind, class: *class, name, old, new };
        self.references.record(&change, is_here, now, facts.options().reference_hold);
        let too_much = new.and_then(|new| new.body.cluster_references(kind)).is_some_and(|found| found.too_much);
        self.losses.too_large += u64::from(too_much);
        self.times.note_changed(now);
        let ready = match new {
            Some(_) if kind.is(Role::Clusters) => self.waiting.take_ready(name),
            _ => Vec::new(),
        };
        self.note_released(now);
        ready.into_iter().map(|(key, change)| change.into_passed(key).0).collect()
    }

    fn look_by(&mut self, at: Moment) {
        self.look_at = Some(self.look_at.map_or(at, |look| look.min(at)));
    }

    pub(super) fn note_unsteady(&mut self, unsteady: BTreeSet<Authority>, now: Moment) {
        if self.times.note_unsteady(unsteady, now) {
            self.look_by(now);
        }
    }

    fn note_released(&mut self, now: Moment) {
        if let Some(could_wait) = self.waiting.take_release() {
            let oldest = self.removals.iter().map(|(_, since)| since).min();
            self.times.note_released(could_wait, oldest, now);
            self.look_by(now);
        }
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.next_deadline().is_some_and(|at| at <= now)
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        let is_free = self.look_at.is_none() && !self.removals.is_empty();
        earliest(self.look_at, self.references.next_end().filter(|_| is_free))
    }

    /// Sets for how long each change waits at most: longer while one of its clusters exists and there is no room for it. Comes before
    /// [`Self::take_overdue`].
    pub(super) fn bound_changes(&mut self, facts: &StageFacts) {
        let longest = facts.options().clusters_timeout.max(WAIT);
        self.waiting.set_longest(|cluster| lacks_room(cluster, facts), longest);
    }

    /// Returns changes that have waited long enough, each with the clusters that did not arrive. These are for [`Self::waited_for`].
    pub(super) fn take_overdue(&mut self, now: Moment) -> Vec<(SourcedUpdate, BTreeSet<Name>)> {
        self.references.on_time(now);
        let taken: Vec<_> = self.waiting.take_overdue(&self.times, now);
        let taken: Vec<_> = taken.into_iter().map(|(key, change)| change.into_passed(key)).collect();
        let missing: BTreeSet<&Name> = taken.iter().flat_map(|(_, missing)| missing).collect();
        self.losses.waits += missing.len() as u64;
        let room = NAMED.saturating_sub(self.losses.awaited.len());
        self.losses.awaited.extend(missing.into_iter().take(room).cloned());
        taken
    }

    /// Records that a change has waited for these clusters, and is in the tables now. No later change waits for them again.
    pub(super) fn waited_for(&mut self, clusters: &BTreeSet<Name>) {
        clusters.iter().for_each(|cluster| self.references.waited_for(cluster));
    }

    /// Returns removed clusters that nothing refers to any more, and what has stayed for long enough.
    pub(super) fn take_removals(&mut self, facts: &StageFacts, now: Moment) -> Vec<SourcedUpdate> {
        self.note_released(now);
        let ended = self.take_ended(now, facts.options().reference_hold, |name| has_cluster(name, facts));
        ended.into_iter().map(|(key, removal)| removal.into_passed(key)).collect()
    }

    fn take_ended(
        &mut self,
        now: Moment,
        bound: Duration,
        is_here: impl Fn(&Name) -> bool,
    ) -> Vec<(Key, DeferredRemoval)> {
        let bound = self.removal_bound(bound);
        let (ended, fallen) = self.removals.take_ended((&self.references, &self.times), is_here, bound, now);
        self.losses.removals += fallen.len() as u64;
        self.losses.removed.extend(fallen);
        self.losses.removed.truncate(NAMED);
        self.look_at = self.next_look(bound, now);
        ended
    }

    /// No removal's time runs while changes wait.
    fn removal_bound(&self, bound: Duration) -> Option<Duration> {
        self.waiting.is_empty().then_some(bound)
    }

    fn next_look(&self, bound: Option<Duration>, now: Moment) -> Option<Moment> {
        let removal = self.removals.next_end(&self.times, bound, now);
        let waiting = self.waiting.next_end(&self.times);
        let lingering = self.references.next_end().filter(|_| !self.removals.is_empty());
        // Lingering references end one by one; their removals can be joined.
        let lingering = lingering.map(|end| end.max(now + QUIET));
        earliest(removal, earliest(waiting, lingering))
    }

    /// Whether anything waits.
    pub(super) fn is_any(&self) -> bool {
        !self.removals.is_empty() || !self.waiting.is_empty()
    }

    pub(super) fn removals(&self) -> &DeferredRemovals {
        &self.removals
    }

    pub(super) fn changes(&self) -> &WaitingChanges {
        &self.waiting
    }

    pub(super) fn take_losses(&mut self) -> OrderLosses {
        std::mem::take(&mut self.losses)
    }

    /// Returns the dangling clusters, each with since when.
    pub(super) fn dangling<'a>(&'a self, facts: StageFacts<'a>) -> impl Iterator<Item = (&'a Name, Moment)> {
        let is_absent = |entry: &TableEntry| matches!(entry.presence, Presence::Absent(_));
        let is_gone =
            move |name: &Name| facts.tables().entry(facts.clusters(), Class::Named, name).is_some_and(is_absent);
        self.references.dangling().filter(move |(name, _)| knows_all_clusters_with(name, &facts) || is_gone(name))
    }

    /// Returns how many resources in the tables refer to a cluster. None without the order, which counts them.
    pub(super) fn references_to(&self, cluster: &Name, facts: &StageFacts) -> Option<usize> {
        keeps_order(facts).then(|| self.references.count(cluster))
    }

    /// Adds removals and changes that wait. `bound` is `limits.reference_hold`.
    pub(super) fn add_waits(&self, bound: Duration, now: Moment, list: &mut WaitList) {
        let subject = |(kind, _, name): &Key| WaitSubject::name(kind, name);
        let mut is_away = false;
        for (key, waiting) in self.waiting.iter() {
            let age = self.times.age(&key.2, waiting.since(), now);
            is_away |= age.is_none();
            list.add(WaitKind::Change, age.unwrap_or_default(), age.and(Some(waiting.longest())), || subject(key));
        }
        for (key, since) in self.removals.iter() {
            // While a change waits for an authority that is away, no removal's time runs.
            let age = self.times.age(&key.2, since, now).filter(|_| !is_away);
            let longest = bound + self.waiting.longest() + self.times.second_bound(since, bound);
            list.add(WaitKind::Removal, age.unwrap_or_default(), age.and(Some(longest)), || subject(key));
        }
    }

    /// Returns since when a removed resource stays, and until when at the latest. `bound` is `limits.reference_hold`.
    pub(super) fn removal_times(&self, key: &Key, bound: Duration) -> Option<HoldTimes> {
        let since = self.removals.since(key)?;
        let until = self.times.removal_end(&key.2, since, self.removal_bound(bound));
        Some(HoldTimes { since: Some(since), until })
    }

    /// Returns the clusters that a change of routing waits for.
    pub(super) fn awaited_by(&self, key: &Key) -> Option<(Vec<Name>, HoldTimes)> {
        let waiting = self.waiting.get(key)?;
        let until = self.times.change_end(&key.2, waiting.since(), waiting.longest());
        Some((waiting.missing_clusters().cloned().collect(), HoldTimes { since: Some(waiting.since()), until }))
    }
}

fn keeps_order(facts: &StageFacts) -> bool {
    !facts.options().reference_hold.is_zero()
}

/// Returns whether the set that a cluster would be in is settled, so that a cluster missing from it is absent upstream or still
/// to come.
fn knows_all_clusters_with(cluster: &Name, facts: &StageFacts) -> bool {
    let clusters = facts.clusters();
    let Some(set) = facts.set_around(clusters, cluster) else { return false };
    // A client that requests a cluster by name does so once it has the route, so the route does not wait.
    !facts.has_name(clusters, cluster) && facts.tables().completeness_of(clusters, &set) >= Completeness::Settled
}

/// Whether the server has sent a cluster for which there was no room. One that a client requests by name does not count: the client has the route by then.
fn lacks_room(cluster: &Name, facts: &StageFacts) -> bool {
    let (clusters, without_room) = (facts.clusters(), facts.tables().without_room());
    let has = |class| without_room.has(clusters, class, cluster);
    [Class::Wildcard, Class::Named].into_iter().any(has) && !facts.has_name(clusters, cluster)
}

fn has_cluster(name: &Name, facts: &StageFacts) -> bool {
    [Class::Wildcard, Class::Named]
        .into_iter()
        .any(|class| facts.tables().resource(facts.clusters(), class, name).is_some())
}

/// Names that are remembered for a log line.
const NAMED: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::Any;
    use crate::proto::discovery::Resource as Wrapper;
    use crate::protocol::wait::Wait;
    use crate::xds::{BodyStore, TypeTable};

    const BOUND: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    fn at_millis(milliseconds: u64) -> Moment {
        Moment::START + Duration::from_millis(milliseconds)
    }

    fn route_change(routes: &Type) -> Arc<Resource> {
        let body = Any { type_url: format!("type.googleapis.com/{}", routes.name()), value: bytes::Bytes::new() };
        let wrapper = Wrapper { name: "route".into(), resource: Some(body), ..Wrapper::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, routes, &BodyStore::default()).unwrap())
    }

    #[test]
    fn ord_1_the_bound_of_a_cluster_begins_when_the_last_change_that_waits_is_released() {
        let table = TypeTable::new();
        let [clusters, routes] = ["envoy.config.cluster.v3.Cluster", "envoy.config.route.v3.RouteConfiguration"]
            .map(|kind| table.resolve(kind));
        let [old, new, route] = ["old", "new", "route"].map(Name::from);
        let (cluster, change) = ((clusters, Class::Wildcard, old.clone()), (routes.clone(), Class::Named, route));
        let resource = route_change(&routes);

        let mut order = Order::default();
        order.references.replace(&[], &[old], |_| true, at(0), BOUND);
        order.defer_removal(cluster.clone(), Origin::default(), at(0));
        order.keep_back(change.clone(), resource, Origin::default(), [new].into(), at(0));
        let removed = |order: &mut Order, seconds| {
            let ended = order.take_ended(at(seconds), BOUND, |_| true).into_iter().map(|(key, _)| key);
            ended.collect::<Vec<_>>()
        };
        assert_eq!(removed(&mut order, 100), [], "it does not run while a change waits");
        assert!(order.waiting.remove(&change).is_some());
        order.note_released(at(100));
        assert_eq!(removed(&mut order, 109), [], "clients have had the change for less than the bound");
        assert_eq!(order.next_deadline(), Some(at(110)));
        assert_eq!(removed(&mut order, 110), [cluster]);
    }

    #[test]
    fn the_quiet_that_ends_no_removal_is_not_due_again() {
        let clusters = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
        let old = Name::from("old");
        let mut order = Order::default();
        order.references.replace(&[], std::slice::from_ref(&old), |_| true, at(0), BOUND);
        order.defer_removal((clusters, Class::Wildcard, old), Origin::default(), at(0));
        assert_eq!(order.take_ended(at(0), BOUND, |_| true).len(), 0);
        assert_eq!(order.next_deadline(), Some(at(0) + QUIET));
        assert_eq!(order.take_ended(at(0) + QUIET, BOUND, |_| true).len(), 0, "something refers to it");
        assert_eq!(order.next_deadline(), Some(at(0) + BOUND), "a deadline that is over would keep a core busy");
    }

    #[test]
    fn a_removal_goes_with_the_last_reference_however_long_its_authority_is_unsteady() {
        let clusters = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
        let old = Name::from("old");
        let cluster = (clusters, Class::Wildcard, old.clone());
        let mut order = Order::default();
        order.references.replace(&[], std::slice::from_ref(&old), |_| true, at(0), BOUND);
        order.note_unsteady(BTreeSet::from([Authority::TopLevel]), at(0));
        order.defer_removal(cluster.clone(), Origin::default(), at(0));
        assert_eq!(order.take_ended(at(100), BOUND, |_| true).len(), 0);
        assert_eq!(order.next_deadline(), None, "no time runs");

        order.references.replace(&[old], &[], |_| true, at(200), BOUND);
        assert_eq!(order.next_deadline(), Some(at(210)), "clients may hold what led there until then");
        assert!(order.is_due(at(210)), "a deadline in the past would keep a core busy");
        order.take_overdue(at(210));
        let ended = order.take_ended(at(210), BOUND, |_| true);
        assert_eq!(ended.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [cluster]);
        assert_eq!(order.next_deadline(), None);
    }

    /// A removed cluster, and a change of routing that waits for another one.
    fn order() -> Order {
        let table = TypeTable::new();
        let [clusters, routes] = ["envoy.config.cluster.v3.Cluster", "envoy.config.route.v3.RouteConfiguration"]
            .map(|kind| table.resolve(kind));
        let resource = route_change(&routes);
        let mut order = Order::default();
        order.defer_removal((clusters, Class::Wildcard, "old".into()), Origin::default(), at(0));
        let change = (routes, Class::Named, "route".into());
        order.keep_back(change, resource, Origin::default(), ["new".into()].into(), at_millis(500));
        order
    }

    fn waits(order: &Order, milliseconds: u64) -> Vec<(WaitKind, Duration, Option<Duration>)> {
        let mut list = WaitList::keeping(10);
        order.add_waits(BOUND, at_millis(milliseconds), &mut list);
        let told = |wait: Wait| (wait.kind, wait.age, wait.bound);
        list.into_oldest().into_iter().map(told).collect()
    }

    #[test]
    fn removals_and_changes_are_listed_with_their_bounds() {
        let order = order();
        let expected = [
            (WaitKind::Removal, Duration::from_millis(1200), Some(BOUND + WAIT)),
            (WaitKind::Change, Duration::from_millis(700), Some(WAIT)),
        ];
        assert_eq!(waits(&order, 1200), expected);
        assert!(Order::default().waiting.is_empty() && waits(&Order::default(), 1200).is_empty());
    }

    /// A change of routing waits, and is released.
    fn wait_and_release(order: &mut Order, longest: Duration, from: Moment, until: Moment) {
        let routes = TypeTable::new().resolve("envoy.config.route.v3.RouteConfiguration");
        let change = (routes.clone(), Class::Named, Name::from("route"));
        order.keep_back(change.clone(), route_change(&routes), Origin::default(), ["new".into()].into(), from);
        order.waiting.set_longest(|_| true, longest);
        order.drop_waiting(&change);
        order.note_released(until);
    }

    #[test]
    fn a_removal_keeps_the_bound_of_the_longest_wait_and_ever_new_changes_do_not_move_it() {
        let clusters = TypeTable::new().resolve("envoy.config.cluster.v3.Cluster");
        let cluster = (clusters, Class::Wildcard, Name::from("old"));
        let mut order = Order::default();
        order.defer_removal(cluster.clone(), Origin::default(), at(0));
        let bounds = |order: &Order| -> Vec<_> { waits(order, 60_000).into_iter().map(|(.., bound)| bound).collect() };
        assert_eq!(bounds(&order), [Some(BOUND + WAIT)]);
        let long = Duration::from_secs(15);
        wait_and_release(&mut order, long, at(0), at(15));
        assert_eq!(bounds(&order), [Some(BOUND + BOUND + long)]);
        for second in 25..40 {
            wait_and_release(&mut order, WAIT, at(second - 1), at(second));
            assert_eq!(bounds(&order), [Some(BOUND + BOUND + long)], "{second}");
        }
        order.cancel_removal(&cluster);
        order.defer_removal(cluster, Origin::default(), at(50));
        for second in 52..60 {
            wait_and_release(&mut order, WAIT, at(second - 1), at(second));
            assert_eq!(bounds(&order), [Some(BOUND + BOUND + WAIT)], "a later removal has not seen the long wait");
        }
    }

    #[test]
    fn while_the_control_plane_is_away_neither_has_a_bound_and_afterwards_their_clocks_start_over() {
        let mut order = order();
        order.note_unsteady(BTreeSet::from([Authority::TopLevel]), at_millis(600));
        let away = [WaitKind::Change, WaitKind::Removal].map(|kind| (kind, Duration::ZERO, None));
        assert_eq!(waits(&order, 60_000), away);
        order.note_unsteady(BTreeSet::new(), at(60));
        let again = Duration::from_millis(300);
        let expected = [(WaitKind::Change, again, Some(WAIT)), (WaitKind::Removal, again, Some(BOUND + WAIT))];
        assert_eq!(waits(&order, 60_300), expected);
    }
}
