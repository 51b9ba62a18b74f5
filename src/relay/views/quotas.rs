//! How many views there may be, in all and because of one connection or identity, and who has made which.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_core::xds::SharingKey;

/// How many views there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ViewLimits {
    pub(super) views: usize,
    /// Of those that one connection has made; 0: no limit.
    pub(super) per_connection: usize,
    /// The same of one identity.
    pub(super) per_identity: usize,
}

/// Counts the views of a client, joined by other clients or not, for as long as they exist: for its connection, and for its identity.
#[derive(Debug, Default)]
pub(crate) struct ViewQuota {
    of_connection: MadeViews,
    /// What all connections of the client's identity share, if it has one and that is limited.
    of_identity: Option<Arc<IdentityQuota>>,
}

/// Views that one connection or identity made.
#[derive(Debug, Default)]
pub(super) struct MadeViews {
    /// Changed only under the lock of the views. A key has two views while a configuration replaces another.
    keys: Mutex<HashMap<SharingKey, usize>>,
}

/// The quota of one identity, for as long as it has a connection or a view.
#[derive(Debug)]
struct IdentityQuota {
    made: MadeViews,
    identity: Arc<str>,
    all: Arc<IdentityQuotas>,
}

/// The quotas of all identities that have one.
#[derive(Debug, Default)]
pub(super) struct IdentityQuotas {
    quotas: Mutex<HashMap<Arc<str>, Weak<IdentityQuota>>>,
}

impl ViewQuota {
    pub(super) fn of_connection(&self) -> &MadeViews {
        &self.of_connection
    }

    pub(super) fn of_identity(&self) -> Option<&MadeViews> {
        self.of_identity.as_ref().map(|quota| &quota.made)
    }

    pub(super) fn add(&self, key: &SharingKey) {
        for made in self.made() {
            *made.lock().entry(key.clone()).or_default() += 1;
        }
    }

    pub(super) fn remove(&self, key: &SharingKey) {
        for made in self.made() {
            let mut keys = made.lock();
            if let Some(views) = keys.get_mut(key) {
                *views -= 1;
                if *views == 0 {
                    keys.remove(key);
                }
            }
        }
    }

    fn made(&self) -> impl Iterator<Item = &MadeViews> {
        [Some(&self.of_connection), self.of_identity()].into_iter().flatten()
    }
}

impl MadeViews {
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Reads whose keys they are, with how many views each has.
    pub(super) fn look<T>(&self, at: impl FnOnce(&HashMap<SharingKey, usize>) -> T) -> T {
        at(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SharingKey, usize>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdentityQuotas {
    /// Returns the quota of a new connection of this identity.
    pub(super) fn quota(self: &Arc<Self>, identity: &str) -> ViewQuota {
        let mut quotas = self.lock();
        let existing = quotas.get(identity).and_then(Weak::upgrade);
        let of_identity = existing.unwrap_or_else(|| {
            let identity = Arc::<str>::from(identity);
            let quota =
                Arc::new(IdentityQuota { made: MadeViews::default(), identity: identity.clone(), all: self.clone() });
            quotas.insert(identity, Arc::downgrade(&quota));
            quota
        });
        ViewQuota { of_connection: MadeViews::default(), of_identity: Some(of_identity) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<IdentityQuota>>> {
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IdentityQuota {
    fn drop(&mut self) {
        let mut quotas = self.all.lock();
        // A connection that came meanwhile has made another one.
        if quotas.get(&self.identity).is_some_and(|quota| quota.strong_count() == 0) {
            quotas.remove(&self.identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weir_core::proto::node::Node;
    use weir_core::xds::KeyRule;

    use super::*;

    #[test]
    fn connections_of_one_identity_share_its_quota_and_the_last_one_takes_it_along() {
        let all = Arc::<IdentityQuotas>::default();
        let [one, two, other] = ["a", "a", "b"].map(|identity| all.quota(identity));
        let shared =
            |one: &ViewQuota, two: &ViewQuota| std::ptr::eq(one.of_identity().unwrap(), two.of_identity().unwrap());
        assert!(shared(&one, &two) && !shared(&one, &other));
        assert!(!std::ptr::eq(one.of_connection(), two.of_connection()));
        drop(one);
        assert!(shared(&two, &all.quota("a")), "it stays as long as one is left");
        drop((two, other));
        assert!(all.lock().is_empty());
    }

    #[test]
    fn a_key_counts_until_the_last_of_its_views_is_gone_in_both_quotas() {
        let (quota, rule) = (Arc::<IdentityQuotas>::default().quota("a"), KeyRule::default());
        let [one, two] = ["one", "two"].map(|cluster| {
            let node = Node { cluster: cluster.into(), ..Node::default() };
            rule.key(&node.encode_to_vec()).unwrap()
        });
        let counts = || [quota.of_connection().count(), quota.of_identity().unwrap().count()];
        quota.add(&one);
        quota.add(&two);
        quota.add(&one); // a new configuration's, beside that of the one before
        assert_eq!(counts(), [2, 2]);
        quota.remove(&one);
        assert_eq!(counts(), [2, 2], "its view of the new configuration exists");
        quota.remove(&one);
        assert_eq!(counts(), [1, 1]);
        quota.remove(&two);
        assert_eq!(counts(), [0, 0]);
    }
}
