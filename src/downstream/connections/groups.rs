//! Connections that have something in common, such as an address: how many there are, if that is limited.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The groups of connections by what they have in common.
pub(super) struct Groups<K> {
    /// How many connections of a group are served; 0: no limit.
    limit: usize,
    groups: Mutex<HashMap<K, Group>>,
}

/// The connections of one group. There is at least one.
#[derive(Default)]
struct Group {
    served: usize,
    refused: usize,
}

/// Counts a connection of a group for as long as it exists.
pub(super) struct InGroup<K: Eq + Hash> {
    groups: Arc<Groups<K>>,
    key: K,
    is_served: bool,
}

impl<K: Clone + Eq + Hash> Groups<K> {
    pub(super) fn limited_to(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, groups: Mutex::default() })
    }

    /// Whether anything has to be counted.
    pub(super) fn are_limited(&self) -> bool {
        self.limit > 0
    }

    /// Counts a connection, which is served or else refused. `None` if the group has refused ones enough.
    pub(super) fn enter(self: &Arc<Self>, key: K) -> Option<InGroup<K>> {
        let mut groups = self.lock();
        let group = groups.entry(key.clone()).or_default();
        let is_served = group.served < self.limit;
        match is_served {
            true => group.served += 1,
            false if group.refused < REFUSALS => group.refused += 1,
            false => return None,
        }
        Some(InGroup { groups: self.clone(), key, is_served })
    }
}

impl<K> Groups<K> {
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

/// How many connections of a group are answered that they are too many, at a time.
const REFUSALS: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_serves_as_many_as_its_limit_and_refuses_two_at_a_time() {
        let groups = Groups::limited_to(2);
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
}
