//! What waits in the order, for operators: all of it, and of one name.

use std::time::Duration;

use super::waiting::WAIT;
use super::{Key, Order};
use crate::protocol::moment::Moment;
use crate::protocol::view::held::Held;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject};
use crate::xds::{Authority, Name};

impl Order {
    /// Adds removals and changes that wait. `bound` is `limits.reference_hold`.
    pub(crate) fn add_waits(&self, bound: Duration, now: Moment, list: &mut WaitList) {
        let subject = |(kind, _, name): &Key| WaitSubject::name(kind, name);
        let mut is_away = false;
        for (key, waiting) in &self.waiting {
            let age = self.age(&Authority::of(&key.2), waiting.since, now);
            is_away |= age.is_none();
            list.add(WaitKind::Change, age.unwrap_or_default(), age.and(Some(WAIT)), || subject(key));
        }
        for (key, doomed) in &self.removable {
            // While a change waits for an authority that is away, no removal's time runs.
            let age = self.age(&Authority::of(&key.2), doomed.since, now).filter(|_| !is_away);
            // It begins anew once, when a change is released that has waited meanwhile.
            let again = if self.release > doomed.since { bound } else { Duration::ZERO };
            list.add(WaitKind::Removal, age.unwrap_or_default(), age.and(Some(bound + WAIT + again)), || subject(key));
        }
    }

    /// Returns for how long something has waited, by a clock that starts over when the authority is steady again; `None` while it is not.
    fn age(&self, authority: &Authority, since: Moment, now: Moment) -> Option<Duration> {
        let steady = self.steady.get(authority).copied().unwrap_or(Moment::START);
        (!self.unsteady.contains(authority)).then(|| now - since.max(steady))
    }

    /// Returns since when a removed resource stays, and until when at the latest. `bound` is `limits.reference_hold`.
    pub(crate) fn doomed_until(&self, key: &Key, bound: Duration) -> Option<Held> {
        let doomed = self.removable.get(key)?;
        Some(Held { since: Some(doomed.since), until: self.bound_of(&key.2, doomed.since, bound) })
    }

    /// Returns the clusters that a change of routing waits for.
    pub(crate) fn awaited_by(&self, key: &Key) -> Option<(Vec<Name>, Held)> {
        let waiting = self.waiting.get(key)?;
        Some((waiting.left.iter().cloned().collect(), Held { since: Some(waiting.since), until: self.goes_by(key) }))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::proto::Any;
    use crate::proto::discovery::Resource as Wrapper;
    use crate::protocol::view::keys::Class;
    use crate::protocol::view::update::Origin;
    use crate::protocol::wait::Wait;
    use crate::xds::{BodyStore, Resource, TypeTable};

    const BOUND: Duration = Duration::from_secs(5);

    fn at(milliseconds: u64) -> Moment {
        Moment::START + Duration::from_millis(milliseconds)
    }

    /// A removed cluster, and a change of routing that waits for another one.
    fn order() -> Order {
        let table = TypeTable::new();
        let [clusters, routes] = ["envoy.config.cluster.v3.Cluster", "envoy.config.route.v3.RouteConfiguration"]
            .map(|kind| table.resolve(kind));
        let body = Any { type_url: format!("type.googleapis.com/{}", routes.name()), value: bytes::Bytes::new() };
        let wrapper = Wrapper { name: "route".into(), resource: Some(body), ..Wrapper::default() };
        let resource = Arc::new(Resource::from_wrapper(0, wrapper, &routes, &BodyStore::default()).unwrap());
        let mut order = Order::default();
        order.doom((clusters, Class::Wildcard, "old".into()), Origin::default(), at(0));
        let change = (routes, Class::Named, "route".into());
        order.keep_back(change, resource, Origin::default(), ["new".into()].into(), at(500));
        order
    }

    fn waits(order: &Order, milliseconds: u64) -> Vec<(WaitKind, Duration, Option<Duration>)> {
        let mut list = WaitList::keeping(10);
        order.add_waits(BOUND, at(milliseconds), &mut list);
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

    #[test]
    fn while_the_control_plane_is_away_neither_has_a_bound_and_afterwards_their_clocks_start_over() {
        let mut order = order();
        order.note_unsteady(BTreeSet::from([Authority::TopLevel]), at(600));
        let away = [WaitKind::Change, WaitKind::Removal].map(|kind| (kind, Duration::ZERO, None));
        assert_eq!(waits(&order, 60_000), away);
        order.note_unsteady(BTreeSet::new(), at(60_000));
        let again = Duration::from_millis(300);
        let expected = [(WaitKind::Change, again, Some(WAIT)), (WaitKind::Removal, again, Some(BOUND + WAIT))];
        assert_eq!(waits(&order, 60_300), expected);
    }
}
