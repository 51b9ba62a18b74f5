//! How many views and pools of load reports may exist: in total, and made by one connection, identity or tenant. Also which client made which.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_core::xds::SharingKey;

use super::split::Split;
use crate::memory::{Account, ViewCharge, costs};
use crate::relay::admission::AdmissionError;

/// How many views there may be, and how many pools of load reports.
#[derive(Debug, Clone, Copy)]
pub(in crate::relay) struct ViewLimits {
    pub(in crate::relay) views: usize,
    /// The limit of those that one connection has made; 0: no limit.
    pub(super) per_connection: usize,
    /// The limit of those that one identity has made.
    pub(super) per_identity: usize,
    /// The limit of those of one tenant.
    pub(super) per_tenant: usize,
}

/// Counts what a client made, for its connection and for its identity, as long as it exists. It still counts when other clients have joined it.
/// Views and pools of load reports are counted separately.
#[derive(Debug, Default)]
pub(crate) struct ViewQuota {
    of_connection: Made,
    /// The memory account of the connection; none within the relay.
    account: Option<Arc<Account>>,
    /// The client is a relay for others, so each of its views gets an equal part of its own.
    is_of_relay: bool,
    /// The quota that all connections of the client's identity share. `None` without an identity or without a limit.
    of_identity: Option<Arc<IdentityQuota>>,
}

/// What one connection or identity made.
#[derive(Debug, Default)]
struct Made {
    views: MadeViews,
    pools: MadeViews,
}

/// The views of a client, or its pools of load reports.
#[derive(Debug, Clone, Copy)]
pub(in crate::relay) struct MadeBy<'a> {
    pub(super) of_connection: &'a MadeViews,
    pub(super) of_identity: Option<&'a MadeViews>,
    /// The views or pools of the tenant, by any client.
    pub(super) of_tenant: Option<&'a MadeViews>,
}

/// Views, or pools of load reports, that one connection or identity made.
#[derive(Debug, Default)]
pub(in crate::relay) struct MadeViews {
    /// Changed only under the lock of the views, or of the pools. A key has two views while a configuration replaces another.
    keys: Mutex<HashMap<SharingKey, usize>>,
}

/// The quota of one identity, for as long as it has a connection, a view or a pool.
#[derive(Debug)]
struct IdentityQuota {
    made: Made,
    identity: Arc<str>,
    all: Arc<IdentityQuotas>,
}

/// The quotas of all identities that have one.
#[derive(Debug, Default)]
pub(super) struct IdentityQuotas {
    quotas: Mutex<HashMap<Arc<str>, Weak<IdentityQuota>>>,
}

impl ViewLimits {
    /// Finds room for one more of a client. `find` is called for its connection, its identity and its tenant, each with those that count for it and
    /// their limit; 0: no limit.
    pub(in crate::relay) fn find_room(
        &self,
        made: MadeBy,
        mut find: impl FnMut(&MadeViews, usize) -> Result<(), Option<Split>>,
    ) -> Result<(), AdmissionError> {
        let limit = self.per_connection;
        let room = find(made.of_connection, limit);
        room.map_err(|split| AdmissionError::TooManyViewsOfConnection { limit, split })?;
        if let Some(of_identity) = made.of_identity {
            let limit = self.per_identity;
            let room = find(of_identity, limit);
            room.map_err(|split| AdmissionError::TooManyViewsOfIdentity { limit, split })?;
        }
        let Some(of_tenant) = made.of_tenant else { return Ok(()) };
        let limit = self.per_tenant;
        let room = find(of_tenant, limit);
        room.map_err(|split| AdmissionError::TooManyViewsOfTenant { limit, split })
    }
}

impl ViewQuota {
    /// Charges the views and streams to an account.
    pub(crate) fn charged_to(self, account: Arc<Account>, is_of_relay: bool) -> Self {
        Self { account: Some(account), is_of_relay, ..self }
    }

    pub(crate) fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    /// Returns how many thousandths of its part of `limit` the client's views make with so many more.
    pub(super) fn part_of_views(&self, more: usize, limit: usize) -> usize {
        self.account.as_ref().map_or(0, |account| account.standing_of_views(more, limit))
    }

    /// Charges a view, whose key has so many bytes.
    pub(super) fn charge_view(&self, key: usize) -> Option<ViewCharge> {
        let bytes = costs::VIEW + costs::KEYS_OF_VIEW * key;
        self.account.as_ref().map(|account| account.charge_view(bytes, self.is_of_relay))
    }

    pub(super) fn views(&self) -> MadeBy<'_> {
        self.made(|made| &made.views)
    }

    pub(in crate::relay) fn pools(&self) -> MadeBy<'_> {
        self.made(|made| &made.pools)
    }

    fn made(&self, of: impl Fn(&Made) -> &MadeViews) -> MadeBy<'_> {
        let of_identity = self.of_identity.as_ref().map(|quota| of(&quota.made));
        MadeBy { of_connection: of(&self.of_connection), of_identity, of_tenant: None }
    }
}

impl MadeBy<'_> {
    pub(in crate::relay) fn add(self, key: &SharingKey) {
        self.all().for_each(|made| made.add(key));
    }

    pub(in crate::relay) fn remove(self, key: &SharingKey) {
        self.all().for_each(|made| made.remove(key));
    }

    #[cfg(test)]
    pub(in crate::relay) fn are_any(self) -> bool {
        self.all().any(|made| made.count() > 0)
    }

    fn all(&self) -> impl Iterator<Item = &MadeViews> {
        [Some(self.of_connection), self.of_identity].into_iter().flatten()
    }
}

impl MadeViews {
    pub(super) fn add(&self, key: &SharingKey) {
        *self.lock().entry(key.clone()).or_default() += 1;
    }

    pub(super) fn remove(&self, key: &SharingKey) {
        let mut keys = self.lock();
        if let Some(views) = keys.get_mut(key) {
            *views -= 1;
            if *views == 0 {
                keys.remove(key);
            }
        }
    }

    /// Whether the limit leaves no room for a view of this key; 0: no limit. A key counts once, so a view that an earlier configuration has can be made
    /// again in this one. That limit may have been higher: `is_here` tells which other keys have a view in this configuration.
    pub(in crate::relay) fn are_full(
        &self,
        limit: usize,
        key: &SharingKey,
        is_here: impl Fn(&SharingKey) -> bool,
    ) -> bool {
        limit > 0
            && self.look(|keys| {
                let others_here = || keys.keys().filter(|&other| other != key && is_here(other)).count();
                keys.len() >= limit && (!keys.contains_key(key) || others_here() >= limit)
            })
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Reads the keys, with the number of views of each.
    pub(in crate::relay) fn look<T>(&self, at: impl FnOnce(&HashMap<SharingKey, usize>) -> T) -> T {
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
                Arc::new(IdentityQuota { made: Made::default(), identity: identity.clone(), all: self.clone() });
            quotas.insert(identity, Arc::downgrade(&quota));
            quota
        });
        ViewQuota { of_identity: Some(of_identity), ..ViewQuota::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Weak<IdentityQuota>>> {
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for IdentityQuota {
    fn drop(&mut self) {
        let mut quotas = self.all.lock();
        // A connection that came meanwhile may have made the quota again.
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
        let of_identity = |quota: &ViewQuota| std::ptr::from_ref(quota.views().of_identity.unwrap());
        let shared = |one: &ViewQuota, two: &ViewQuota| std::ptr::eq(of_identity(one), of_identity(two));
        assert!(shared(&one, &two) && !shared(&one, &other));
        assert!(!std::ptr::eq(one.views().of_connection, two.views().of_connection));
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
        let counts_of = |made: MadeBy| [made.of_connection.count(), made.of_identity.unwrap().count()];
        let counts = || counts_of(quota.views());
        quota.views().add(&one);
        quota.views().add(&two);
        quota.views().add(&one); // a new configuration's, beside that of the one before
        assert_eq!(counts(), [2, 2]);
        quota.views().remove(&one);
        assert_eq!(counts(), [2, 2], "its view of the new configuration exists");
        quota.views().remove(&one);
        assert_eq!(counts(), [1, 1]);
        quota.views().remove(&two);
        assert_eq!(counts(), [0, 0]);
        quota.pools().add(&one);
        assert_eq!([counts(), counts_of(quota.pools())], [[0, 0], [1, 1]], "pools of load reports count apart");
    }
}
