//! What one server gave of one type, with its versions: which versions are stated to it, and which names it has not confirmed.

use std::collections::{BTreeMap, BTreeSet};

use super::parsed_response::{Bodyless, ParsedResponse};
use super::request_room::{RequestRoom, name_bytes, version_bytes};
use super::wanted::Wanted;
use crate::protocol::view::Class;
use crate::protocol::visits::visit;
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct GivenVersions {
    /// The names that this server gave, with its versions (UP-12). A new stream states them.
    versions: BTreeMap<Name, String>,
    /// Those of `versions` that the server has not confirmed on this opening. A request states them, if at all, under a version that no server gives.
    unconfirmed: BTreeSet<Name>,
    /// Those of `versions` with a TTL. A new stream does not state them, so the server sends again what may have expired.
    with_ttl: BTreeSet<Name>,
    /// Aliases that were requested, with the server's own name of the resource (DELTA-22).
    aliases: BTreeMap<Name, Name>,
    /// The last accepted SotW version.
    accepted: String,
    /// Names that the next request states under a version that no server gives: what the server gave to an earlier process, and what it has said
    /// that no longer counts.
    given_earlier: BTreeSet<Name>,
    /// How many resources had another name in the body than in the wrapper.
    misnamed: u64,
}

/// The names and versions in the first delta request of a type.
#[derive(Debug, Default)]
pub(super) struct Statement {
    pub(crate) subscribed: BTreeSet<Name>,
    /// Versions of the server, or [`UNKNOWN`].
    pub(crate) versions: BTreeMap<String, String>,
    /// The name that asks for the end of the set, which is stated too.
    pub(crate) question: Option<Name>,
    /// Names that are stated under a version of the server.
    pub(crate) current: BTreeSet<Name>,
}

impl GivenVersions {
    pub(crate) fn has(&self, name: &Name) -> bool {
        self.versions.contains_key(name)
    }

    pub(crate) fn has_other_than(&self, name: &Name) -> bool {
        self.versions.len() > usize::from(self.has(name))
    }

    /// Whether the server has given nothing: no resource, and no version that was accepted.
    pub(crate) fn is_nothing(&self) -> bool {
        self.versions.is_empty() && self.accepted.is_empty()
    }

    /// Whether the next request states anything that the server may know.
    pub(crate) fn is_anything_to_state(&self) -> bool {
        !self.versions.is_empty() || !self.given_earlier.is_empty()
    }

    pub(crate) fn accepted(&self) -> &str {
        &self.accepted
    }

    pub(crate) fn with_ttl(&self) -> &BTreeSet<Name> {
        &self.with_ttl
    }

    pub(crate) fn misnamed(&self) -> u64 {
        self.misnamed
    }

    #[cfg(test)]
    pub(crate) fn given_earlier(&self) -> &BTreeSet<Name> {
        &self.given_earlier
    }

    pub(crate) fn is_unconfirmed(&self, name: &Name) -> bool {
        self.unconfirmed.contains(name)
    }

    pub(crate) fn unconfirmed(&self) -> &BTreeSet<Name> {
        &self.unconfirmed
    }

    /// Returns the server's own name of a resource that is requested by a name or an alias.
    fn own_name<'a>(&'a self, name: &'a Name) -> &'a Name {
        self.aliases.get(name).unwrap_or(name)
    }

    /// Whether the server has given the resource that is requested by a name or an alias.
    pub(crate) fn has_own(&self, name: &Name) -> bool {
        self.has(self.own_name(name))
    }

    /// Whether the resource that is requested by this name was sent or confirmed on this opening.
    pub(crate) fn is_confirmed(&self, name: &Name) -> bool {
        self.is_confirmed_as(self.own_name(name))
    }

    /// Like [`Self::is_confirmed`], for the server's own name.
    pub(crate) fn is_confirmed_as(&self, own: &Name) -> bool {
        self.has(own) && !self.is_unconfirmed(own)
    }

    /// Whether the next request states, under the server's version, the resource that is requested by a name.
    pub(crate) fn is_to_state(&self, name: &Name) -> bool {
        let own = self.own_name(name);
        self.is_confirmed_as(own) && !self.with_ttl.contains(own)
    }

    pub(crate) fn confirmed_names(&self) -> BTreeSet<Name> {
        let all = self.versions.keys().inspect(|_| visit());
        all.filter(|name| !self.is_unconfirmed(name)).cloned().collect()
    }

    /// Whether a response has exactly the names that the server gave before, all of them confirmed.
    pub(crate) fn is_same_set(&self, read: &ParsedResponse) -> bool {
        let same = || self.versions.len() == read.good.len() && self.versions.keys().eq(read.good.names());
        self.unconfirmed.is_empty() && same()
    }

    /// Returns the name of a heartbeat, which is a wrapper without a body at the cached version. The resource stays as it is.
    pub(crate) fn heartbeat_of(&self, entry: &Bodyless, kind: &Type) -> Option<Name> {
        let name = entry.name.clone().filter(|_| !kind.info().by_alias)?;
        (self.versions.get(&name) == Some(&entry.version)).then_some(name)
    }

    /// Whether a response shows that the server ignores stated versions. Until its first answer has come, one name suffices that it sends under
    /// the stated version. Later it may send a name again for other reasons, such as endpoints after their cluster. Then only a first response
    /// shows it that repeats more than half of what was stated.
    pub(crate) fn is_repeated_by(
        &self,
        versions: &BTreeMap<Name, String>,
        is_unanswered: impl Fn(&Name) -> bool,
        is_first: bool,
    ) -> bool {
        let is_known = |name: &Name, version: &String| self.versions.get(name) == Some(version);
        if versions.iter().any(|(name, version)| is_known(name, version) && is_unanswered(name)) {
            return true;
        }
        let is_stated = |name: &&Name| !self.unconfirmed.contains(*name) && !self.with_ttl.contains(*name);
        let again = versions.iter().filter(|(name, version)| is_known(name, version) && is_stated(name)).count();
        is_first && again > 0 && 2 * again > self.versions.keys().inspect(|_| visit()).filter(is_stated).count()
    }

    pub(crate) fn insert(&mut self, name: Name, version: String, has_ttl: bool) {
        match has_ttl {
            true => self.with_ttl.insert(name.clone()),
            false => self.with_ttl.remove(&name),
        };
        self.versions.insert(name, version);
    }

    /// Adds names without versions: SotW has no versions of single resources. A delta request after it states them under a version that no
    /// server gives. So the server sends or removes each of them, with a TTL or without.
    pub(crate) fn extend(&mut self, names: impl Iterator<Item = Name>) {
        for name in names {
            self.with_ttl.remove(&name);
            self.versions.insert(name, String::new());
        }
    }

    pub(crate) fn insert_alias(&mut self, alias: Name, own: Name) {
        self.aliases.insert(alias, own);
    }

    /// Has the next request state a name under a version that no server gives, also if the server has given it a version.
    pub(crate) fn state_as_unknown(&mut self, name: Name) {
        self.unconfirm(std::iter::once(name.clone()));
        self.given_earlier.insert(name);
    }

    pub(crate) fn count_misnamed(&mut self, count: u64) {
        self.misnamed += count;
    }

    pub(crate) fn accept(&mut self, version: &str) {
        version.clone_into(&mut self.accepted);
    }

    /// Forgets the accepted version: if none is stated, a SotW server sends the set again.
    pub(crate) fn clear_accepted(&mut self) {
        self.accepted.clear();
    }

    pub(crate) fn confirm(&mut self, name: &Name) {
        self.unconfirmed.remove(name);
    }

    /// Confirms all names, because a full set came.
    pub(crate) fn confirm_all(&mut self) {
        self.unconfirmed.clear();
    }

    /// Makes names that the server gave unconfirmed, so that it sends them again.
    pub(crate) fn unconfirm(&mut self, names: impl Iterator<Item = Name>) {
        self.unconfirmed.extend(names.filter(|name| self.versions.contains_key(name)));
    }

    pub(crate) fn unconfirm_all(&mut self) {
        self.unconfirmed = self.versions.keys().cloned().collect();
    }

    /// Makes the server send these names again: it is used in another variant, its stream ended within a set, or other servers have sent other
    /// content meanwhile. A new stream states the names under a version that no server gives.
    pub(crate) fn clear_versions(&mut self, class: Class, which: impl Fn(&Name) -> bool) {
        let all = self.versions.keys().inspect(|_| visit());
        self.unconfirmed.extend(all.filter(|name| which(name)).cloned());
        if class == Class::Wildcard {
            self.accepted.clear();
        }
    }

    pub(crate) fn clear_one_version(&mut self, class: Class) {
        let first = self.versions.keys().find(|name| !self.with_ttl.contains(*name));
        self.unconfirmed.extend(first.cloned());
        if class == Class::Wildcard {
            self.accepted.clear();
        }
    }

    /// Forgets that the server gave a name, so that its version is not stated.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.versions.remove(name);
        self.with_ttl.remove(name);
        self.unconfirmed.remove(name);
    }

    /// Forgets the members of a collection, except those that are wanted by name.
    pub(crate) fn forget_members(&mut self, glob: &Name, wanted: &Wanted) {
        let members = glob.members_in(&self.versions).map(|(member, _)| member);
        let alone: Vec<_> = members.filter(|member| !wanted.names().contains(*member)).cloned().collect();
        alone.iter().for_each(|member| self.forget(member));
    }

    /// Forgets an alias that is no longer wanted. The resource is forgotten with the last name by which it was requested.
    pub(crate) fn forget_alias(&mut self, alias: &Name, wanted: &Wanted) {
        if let Some(own) = self.aliases.remove(alias)
            && !wanted.names().contains(&own)
            && !self.aliases.values().any(|other| *other == own)
        {
            self.forget(&own);
        }
    }

    /// Forgets removed names. Returns all names by which they were requested, aliases included.
    pub(crate) fn forget_removed(&mut self, removed: BTreeSet<Name>) -> BTreeSet<Name> {
        let aliased = self.aliases.extract_if(.., |_, own| removed.contains(own));
        let mut keys: BTreeSet<Name> = aliased.map(|(alias, _)| alias).collect();
        for name in removed {
            self.forget(&name);
            keys.insert(name);
        }
        keys
    }

    /// Forgets the versions of a set that is replaced, except those that `keep` accepts.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Name) -> bool) {
        self.versions.retain(|name, _| keep(name));
        self.with_ttl.retain(keep);
    }

    pub(crate) fn forget_all(&mut self) {
        self.versions.clear();
        self.with_ttl.clear();
        self.unconfirmed.clear();
        self.accepted.clear();
    }

    /// Takes the names to state under a version that no server gives. Returns those that are wanted.
    pub(crate) fn take_given_earlier(&mut self, wanted: &Wanted) -> Vec<Name> {
        std::mem::take(&mut self.given_earlier).into_iter().filter(|name| wanted.wants(name)).collect()
    }

    /// Returns names to subscribe to and versions to state, as many as there is room for. What is cached is stated under the versions that the
    /// server gave, and what clients hold (`claimed`) under a version that no server gives. A version is stated only in the request that
    /// subscribes to its name. Cached names whose version is not stated become unconfirmed: the server sends them again if they still exist.
    pub(crate) fn state(&mut self, wanted: &Wanted, claimed: &BTreeSet<Name>, room: &mut RequestRoom) -> Statement {
        let stands_for_others = |name: &Name| wanted.globs().has(name) || self.aliases.contains_key(name);
        let mut sets = wanted.names().iter().filter(|name| stands_for_others(name)).cloned().collect();
        let mut subscribed = room.take_names(&mut sets);
        let (mut versions, mut current) = (BTreeMap::new(), BTreeSet::new());
        let order = if sets.is_empty() { self.in_order_of_use(claimed) } else { Vec::new() };
        for name in order {
            let version = self.version_to_state(name);
            let is_new = wanted.names().contains(name) && !subscribed.contains(name);
            let bytes = version_bytes(name, version) + if is_new { name_bytes(name.as_str()) } else { 0 };
            if !versions.contains_key(name.as_str()) && room.take(bytes) {
                versions.insert(name.to_string(), version.to_owned());
                current.extend((version != UNKNOWN).then(|| name.clone()));
                subscribed.extend(is_new.then(|| name.clone()));
            }
        }
        let left_out = |name: &&Name| !self.with_ttl.contains(*name) && !versions.contains_key(name.as_str());
        self.unconfirmed.extend(self.versions.keys().filter(left_out).cloned());
        Statement { subscribed, versions, question: None, current }
    }

    /// Returns the names for which a version can be stated, in order of use: first names that the server has to answer for, then those that it
    /// need not send again, then those that it sends in any case.
    fn in_order_of_use<'a>(&'a self, claimed: &'a BTreeSet<Name>) -> Vec<&'a Name> {
        let all = || self.versions.keys().inspect(|_| visit());
        let held = || all().filter(|name| !self.with_ttl.contains(*name));
        let current = held().filter(|name| !self.unconfirmed.contains(*name));
        let others = held().filter(|name| self.unconfirmed.contains(*name));
        claimed.iter().chain(current).chain(others).collect()
    }

    fn version_to_state(&self, name: &Name) -> &str {
        let known =
            self.versions.get(name).filter(|_| !self.with_ttl.contains(name) && !self.unconfirmed.contains(name));
        known.map_or(UNKNOWN, String::as_str)
    }
}

/// A version that no server gives. An empty one would make some servers send nothing.
pub(super) const UNKNOWN: &str = "weir-unknown";
