//! Which versions are stated to a server in the first delta request of a type, and when they are forgotten or cleared.

use std::collections::{BTreeMap, BTreeSet};

use super::quirks::ServerQuirks;
use super::request_room::{RequestRoom, name_bytes, version_bytes};
use super::type_subscription::TypeSubscription;
use crate::protocol::upstream::end_question::EndQuestion;
use crate::protocol::upstream::second_request::SecondRequest;
use crate::protocol::view::Class;
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

impl TypeSubscription {
    /// Forgets the version of a name, which is no longer cached.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.versions.remove(name);
        self.with_ttl.remove(name);
        self.unconfirmed.remove(name);
    }

    /// Forgets the members of a collection, except those that are wanted by name.
    pub(crate) fn forget_members(&mut self, glob: &Name) {
        let members = glob.members_in(&self.versions).map(|(member, _)| member);
        let alone: Vec<_> = members.filter(|member| !self.names.contains(*member)).cloned().collect();
        alone.iter().for_each(|member| self.forget(member));
    }

    pub(super) fn forget_versions(&mut self) {
        self.versions.clear();
        self.with_ttl.clear();
        self.unconfirmed.clear();
        self.accepted.clear();
        self.progress.stated.clear();
        self.rejected.disconnect();
        self.second_request = SecondRequest::default();
        self.end_question = EndQuestion::default(); // the set that it asks for is no longer subscribed
    }

    /// Makes the server send these again: it is used in another variant, its stream ended within a set, or other servers have
    /// sent other content meanwhile. A new stream states their names under a version that no server gives.
    pub(crate) fn clear_versions(&mut self, which: impl Fn(&Name) -> bool) {
        let all = self.versions.keys().inspect(|_| visit());
        self.unconfirmed.extend(all.filter(|name| which(name)).cloned());
        if self.class == Class::Wildcard {
            self.accepted.clear();
        }
    }

    pub(crate) fn clear_one_version(&mut self) {
        let first = self.versions.keys().find(|name| !self.with_ttl.contains(*name));
        self.unconfirmed.extend(first.cloned());
        if self.class == Class::Wildcard {
            self.accepted.clear();
        }
    }

    /// Whether a name is wanted as a member of a collection, and not by itself.
    pub(crate) fn is_member_alone(&self, name: &Name) -> bool {
        !self.names.contains(name) && self.globs.of(name).is_some()
    }
}
