//! What the first delta request of a type states of the resources that are cached or that clients hold.

use std::collections::{BTreeMap, BTreeSet};

use super::quirks::ServerQuirks;
use super::request_room::{RequestRoom, name_bytes, version_bytes};
use super::type_subscription::TypeSubscription;
use crate::protocol::visits::visit;
use crate::xds::Name;

impl TypeSubscription {
    /// Returns names to subscribe to and versions to state, as many as there is room for: what is cached, under the versions that
    /// the server gave, and what clients hold, under a version that no server gives. A version is stated only in the request that
    /// subscribes to its name. Cached names without one are unconfirmed: the server sends them again if they still exist.
    pub(super) fn state_versions(
        &mut self,
        rules: &ServerQuirks,
        room: &mut RequestRoom,
    ) -> (BTreeSet<Name>, BTreeMap<String, String>) {
        if !rules.supports_initial_resource_versions {
            return Default::default();
        }
        let given_earlier = std::mem::take(&mut self.given_earlier).into_iter();
        let is_wanted = |name: &Name| self.wildcard || self.names.contains(name) || self.globs.of(name).is_some();
        let given_earlier: Vec<_> = given_earlier.filter(is_wanted).collect();
        self.second_request.names.extend(given_earlier);
        let stands_for_others = |name: &Name| self.globs.has(name) || self.aliases.contains_key(name);
        let mut sets = self.names.iter().filter(|name| stands_for_others(name)).cloned().collect();
        let mut subscribed = room.take_names(&mut sets);
        let (mut stated, mut current) = (BTreeMap::new(), BTreeSet::new());
        let order = if sets.is_empty() { self.in_order_of_use() } else { Vec::new() };
        for name in order {
            let version = self.version_to_state(name);
            let is_new = self.names.contains(name) && !subscribed.contains(name);
            let bytes = version_bytes(name, version) + if is_new { name_bytes(name.as_str()) } else { 0 };
            if !stated.contains_key(name.as_str()) && room.take(bytes) {
                stated.insert(name.to_string(), version.to_owned());
                current.extend((version != UNKNOWN).then(|| name.clone()));
                subscribed.extend(is_new.then(|| name.clone()));
            }
        }
        let left_out = |name: &&Name| !self.with_ttl.contains(*name) && !stated.contains_key(name.as_str());
        let left_out: Vec<_> = self.versions.keys().filter(left_out).cloned().collect();
        self.unconfirmed.extend(left_out);
        self.progress.stated = current;
        (subscribed, stated)
    }

    /// Returns the names of which a version can be stated: first what the server has to answer for, then what it need not send
    /// again, and then what it sends in any case.
    fn in_order_of_use(&self) -> Vec<&Name> {
        let all = || self.versions.keys().inspect(|_| visit());
        let held = || all().filter(|name| !self.with_ttl.contains(*name));
        let current = held().filter(|name| !self.unconfirmed.contains(*name));
        let others = held().filter(|name| self.unconfirmed.contains(*name));
        self.second_request.names.iter().chain(current).chain(others).collect()
    }

    fn version_to_state(&self, name: &Name) -> &str {
        let known =
            self.versions.get(name).filter(|_| !self.with_ttl.contains(name) && !self.unconfirmed.contains(name));
        known.map_or(UNKNOWN, String::as_str)
    }
}

/// A version that no server gives. An empty one makes some servers send nothing.
pub(super) const UNKNOWN: &str = "weir-unknown";
