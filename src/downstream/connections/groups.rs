//! Connections with an address or an identity in common: how many there are, and how many streams they have, if that is limited.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The groups of connections by what they have in common.
pub(super) struct Groups<K> {
    limits: Mutex<GroupLimits>,
    groups: Mutex<HashMap<K, Group>>,
}

/// What the connections of one group may have. 0: no limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct GroupLimits {
    /// How many of them are served.
    pub(super) connections: usize,
    /// How many streams they have in all.
    pub(super) streams: usize,
}

/// The connections of one group. There is at least one.
#[derive(Default)]
struct Group {
    served: usize,
    refused: usize,
    streams: Arc<AtomicUsize>,
}

/// Counts a connection of a group for as long as it exists.
pub(super) struct InGroup<K: Eq + Hash> {
    groups: Arc<Groups<K>>,
    key: K,
    is_served: bool,
    streams: Arc<AtomicUsize>,
}

/// Counts a stream of a group for as long as it exists.
pub(super) struct GroupStream(Arc<AtomicUsize>);

/// A group has as many streams as it may.
#[derive(Debug)]
pub(super) struct TooManyStreams;

impl<K: Clone + Eq + Hash> Groups<K> {
    pub(super) fn new(limits: GroupLimits) -> Arc<Self> {
        Arc::new(Self { limits: Mutex::new(limits), groups: Mutex::default() })
    }

    /// Counts a connection, which is served or else refused. `None` if the group already has as many refused connections as it may.
    pub(super) fn enter(self: &Arc<Self>, key: K) -> Option<InGroup<K>> {
        let limit = self.limits().connections;
        let mut groups = self.lock();
        let group = groups.entry(key.clone()).or_default();
        let is_served = group.served < unless_zero(limit);
        match is_served {
            true => group.served += 1,
            false if group.refused < REFUSALS => group.refused += 1,
            false => return None,
        }
        let streams = group.streams.clone();
        Some(InGroup { groups: self.clone(), key, is_served, streams })
    }
}

impl<K> Groups<K> {
    /// Puts other limits in force. Connections are also counted without a limit, so those that are open already count towards a new one.
    pub(super) fn set_limits(&self, limits: GroupLimits) {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
    }

    fn limits(&self) -> GroupLimits {
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> InGroup<K> {
    /// Whether its requests are served, as far as its group is concerned.
    pub(super) fn is_served(&self) -> bool {
        self.is_served
    }

    /// Counts a stream, unless there are too many.
    pub(super) fn open_stream(&self) -> Result<GroupStream, TooManyStreams> {
        let limit = unless_zero(self.groups.limits().streams);
        let one_more = |open| (open < limit).then_some(open + 1);
        let opened = self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        opened.map(|_| GroupStream(self.streams.clone())).map_err(|_| TooManyStreams)
    }
}

impl Drop for GroupStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<K: Eq + Hash> Drop for InGroup<K> {
    fn drop(&mut self) {
        let mut groups = self.groups.lock();
        let Some(group) = groups.get_mut(&self.key) else { return };
        match self.is_served {
            true => group.served -= 1,
            false => group.refused -= 1,
        }
        if group.served + group.refused == 0 {
            groups.remove(&self.key);
        }
    }
}

fn unless_zero(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

/// How many connections of a group beyond its limit are accepted at a time, to be refused with a reason.
const REFUSALS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_serves_as_many_as_its_limit_and_refuses_two_at_a_time() {
        let groups = Groups::new(GroupLimits { connections: 2, streams: 0 });
        let enter = |key: &'static str| groups.enter(key);
        let mut served: Vec<_> = (0..2).map(|_| enter("one").unwrap()).collect();
        let refused: Vec<_> = (0..2).map(|_| enter("one").unwrap()).collect();
        assert!(served.iter().all(InGroup::is_served) && !refused.iter().any(InGroup::is_served));
        assert!(enter("one").is_none());
        assert!(enter("other").unwrap().is_served());

        served.pop();
        assert!(enter("one").unwrap().is_served(), "those that are refused have the place of none that is served");
        served.push(enter("one").unwrap());
        assert!(enter("one").is_none());
        drop(refused);
        assert!(!enter("one").unwrap().is_served());
        drop(served);
        assert!(groups.is_empty());
    }

    #[test]
    fn all_connections_of_a_group_share_its_streams() {
        let groups = Groups::new(GroupLimits { connections: 0, streams: 2 });
        let [one, two, other] = ["one", "one", "other"].map(|key| groups.enter(key).unwrap());
        let first = one.open_stream().unwrap();
        let second = two.open_stream().unwrap();
        assert!([&one, &two].iter().all(|connection| connection.open_stream().is_err()));
        assert!(other.open_stream().is_ok());
        drop(first);
        let third = two.open_stream().unwrap();
        assert!(one.open_stream().is_err(), "those that were refused do not count, and the others do");
        drop((second, third));
        let again = [one.open_stream().unwrap(), two.open_stream().unwrap()];
        drop((one, two, other));
        assert!(groups.is_empty());
        drop(again);
    }

    #[test]
    fn without_a_limit_nothing_is_refused() {
        let groups = Groups::new(GroupLimits { connections: 0, streams: 1 });
        assert!((0..10).map(|_| groups.enter(1).unwrap()).collect::<Vec<_>>().iter().all(InGroup::is_served));
        groups.set_limits(GroupLimits { connections: 10, streams: 0 });
        assert!(groups.enter(1).is_some_and(|more| more.is_served()), "none of those are left");
        let groups = Groups::new(GroupLimits { connections: 1, streams: 0 });
        let connection = groups.enter(1).unwrap();
        assert!((0..10).map(|_| connection.open_stream()).collect::<Vec<_>>().iter().all(Result::is_ok));
    }
}
