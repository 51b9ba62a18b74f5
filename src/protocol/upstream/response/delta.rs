//! Delta responses: changes and removals, under names and aliases.

use std::collections::{BTreeMap, BTreeSet};

use super::ResponseContext;
use crate::proto::discovery::DeltaDiscoveryResponse;
use crate::protocol::faults::Fault;
use crate::protocol::set_mark::SetMark;
use crate::protocol::upstream::parsed_response::{Bodyless, ParsedResponse};
use crate::protocol::upstream::quirks::{InitialSet, OnResourceTimeout, ServerQuirks};
use crate::protocol::upstream::requested_names::NameState;
use crate::protocol::upstream::type_subscription::TypeSubscription;
use crate::protocol::view::{Class, Selector, Update};
use crate::protocol::visits::visit;
use crate::xds::{Name, Type};

impl TypeSubscription {
    pub(crate) fn read_delta(
        &mut self,
        response: DeltaDiscoveryResponse,
        mut read: ParsedResponse,
        reader: &mut ResponseContext,
    ) -> Vec<Update> {
        let (kind, limits) = (reader.kind, reader.limits);
        let (mut versions, mut unresolved) = (std::mem::take(&mut read.versions), Vec::new());
        let empty = read.count == 0
            && response.removed_resources.is_empty()
            && response.removed_resource_names.is_empty()
            && response.resource_errors.is_empty();
        for mut entry in std::mem::take(&mut read.bodyless) {
            if let Some(name) = self.heartbeat_of(&entry, kind) {
                read.alive.insert(name, entry.ttl);
            } else if !entry.aliases.is_empty() {
                // The name was requested by an alias, and resolves to nothing (DELTA-39).
                unresolved.append(&mut entry.aliases);
            } else {
                versions.extend(entry.name.clone().map(|name| (name, entry.version.clone())));
                read.reject_bodyless(entry);
            }
        }
        if limits.faults.has(Fault::VersionsFromUpstream) {
            read.overwrite_versions(&response.nonce);
        }
        let mark = SetMark::of(&response.system_version_info).filter(|_| self.class == Class::Wildcard);
        let constrained = response.removed_resource_names.into_iter().map(|name| name.name);
        let mut removed: BTreeSet<Name> = BTreeSet::new();
        for name in response.removed_resources.into_iter().chain(constrained).map(|name| Name::canonical(&name)) {
            let is_dropped = limits.faults.has(Fault::IgnoredDeletionIsNoAnswer) && reader.quirks.ignore_deletions;
            if name.asks_for_end() {
                self.end_question.on_removed(&name, reader.now);
            } else if !read.reject_if_sent(&name) && !is_dropped {
                removed.insert(name);
            }
        }
        if limits.faults.has(Fault::BadEntryIsAbsent) {
            removed.extend(read.rejected.keys().cloned());
        }
        let mut reported = read.take_errors(response.resource_errors, limits);
        reported.retain(|(name, _)| !name.asks_for_end());
        if read.drop_end_questions() {
            self.end_question.on_nonsense();
        }
        self.wire.queue_ack(response.nonce, self.accepted.clone(), read.nack_message(limits), limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let said = self.reported_names(&reported, reader.quirks);
        let first = self.progress.is_to_begin();
        let repeats = self.wire.stated && self.is_repetition(&versions, first);
        if repeats && (first || !reader.is_relay) {
            self.progress.repeats = true; // it ignores stated versions
            self.second_request.recheck(); // it may have begun after its first silence
        }
        if repeats {
            self.end_question.on_repeated();
        }
        self.record_progress(&read, repeats, reader);
        let mut updates = self.error_updates(reported, reader);
        updates.extend(self.refresh_updates(&read, kind));
        for name in read.rejected.keys() {
            self.record_one_rejected(name, &said, versions.get(name).map_or("", |version| version), &read, limits);
        }
        self.record_readable(&read, "", limits);
        self.misnamed += read.good.values().filter(|resource| resource.name_mismatch).count() as u64;
        for name in &removed {
            self.rejected.remove(name);
        }
        for (name, version) in versions {
            if let Some(resource) = read.good.get(&name).filter(|resource| self.wants(resource)) {
                let changed = if resource.ttl.is_some() {
                    BTreeSet::insert
                } else {
                    |set: &mut BTreeSet<_>, name| set.remove(&name)
                };
                changed(&mut self.with_ttl, name.clone());
                self.versions.insert(name, version);
            }
        }
        let sets = match self.class {
            Class::Wildcard => BTreeSet::from([Selector::Wildcard]),
            Class::Named => self.sets_of(read.good.names().chain(read.rejected.keys())),
        };
        for set in &sets {
            if let Selector::Name(glob) = set {
                self.globs.begin(glob);
            }
        }
        let unread = self.rejected.take_unreadable(|name| self.versions.contains_key(name));
        let unreadable: BTreeSet<Name> =
            read.rejected.keys().filter(|name| !said.contains_key(*name)).cloned().collect();
        // The first response to `*` is complete if the server sends sets in one response, or if it is empty.
        let opens_again = self.progress.take_mark(mark);
        let speaks_of_all = first || reader.quirks.on_resource_timeout == OnResourceTimeout::Unknown;
        let at_once = reader.quirks.initial_set == InitialSet::OneResponse && speaks_of_all || first && empty;
        let at_end = self.progress.is_marked_complete() || at_once && !self.progress.is_marked_partial();
        let ends = at_end && !read.incomplete && read.unnamed.is_none();
        self.progress.complete |= ends && self.class == Class::Wildcard;
        match self.class {
            Class::Wildcard => updates.extend(self.wildcard_updates(kind, read.good)),
            Class::Named => updates.extend(self.named_updates(kind, read.good)),
        }
        let removed = self.removed_keys(removed, unresolved).into_iter();
        updates.extend(removed.map(|key| self.absence(kind, key, reader.quirks)).collect::<Vec<_>>());
        updates.extend(opens_again.then(|| Update::Interrupted { kind: kind.clone(), of: Selector::Wildcard }));
        updates.extend(sets.into_iter().map(|of| self.completeness_update(kind, of, ends, reader.quirks))); // complete with its removals
        updates.extend(self.unreadable_updates(kind, &unreadable, unread));
        updates
    }

    /// Whether a response shows that the server ignores stated versions. Until its first answer has come, one name is enough that it sends under
    /// the version that was stated. Later it may have other reasons to send one again, as endpoints after their cluster: then its first response
    /// counts that repeats most of what was stated.
    fn is_repetition(&self, versions: &BTreeMap<Name, String>, first: bool) -> bool {
        let is_known = |name: &Name, version: &String| self.versions.get(name) == Some(version);
        if versions.iter().any(|(name, version)| is_known(name, version) && self.progress.stated.contains(name)) {
            return true;
        }
        let is_stated = |name: &&Name| !self.unconfirmed.contains(*name) && !self.with_ttl.contains(*name);
        let again = versions.iter().filter(|(name, version)| is_known(name, version) && is_stated(name)).count();
        first && again > 0 && 2 * again > self.versions.keys().inspect(|_| visit()).filter(is_stated).count()
    }

    /// Returns the requested names that a removal concerns: a name also stands for its aliases.
    pub(super) fn removed_keys(&mut self, removed: BTreeSet<Name>, unresolved: Vec<Name>) -> BTreeSet<Name> {
        if self.class == Class::Wildcard {
            return removed;
        }
        let aliased = self.aliases.extract_if(.., |_, canonical| removed.contains(canonical));
        let mut keys: BTreeSet<Name> = aliased.map(|(alias, _)| alias).collect();
        for name in removed {
            self.forget(&name);
            keys.insert(name);
        }
        keys.extend(unresolved);
        keys.retain(|key| self.names.contains(key) || self.globs.of(key).is_some());
        keys
    }

    /// The server has reported that a name has no resource, or its silence counts as that. Nothing more is due for the name.
    pub(in crate::protocol::upstream) fn absence(&mut self, kind: &Type, key: Name, quirks: &ServerQuirks) -> Update {
        self.forget(&key);
        self.errors.remove(&key);
        self.rejected.remove(&key);
        self.second_request.answered(&key);
        self.end_question.on_absent(&key);
        if self.names.contains(&key) {
            self.requested.settle(key.clone(), NameState::Absent);
        }
        if self.globs.has(&key) {
            self.globs.begin(&key);
            self.forget_members(&key);
        }
        quirks.reported_absence(kind, self.class, key)
    }

    /// Returns the name of a heartbeat: a wrapper without a body at the cached version. The resource stays as it is.
    pub(super) fn heartbeat_of(&self, entry: &Bodyless, kind: &Type) -> Option<Name> {
        let name = entry.name.clone().filter(|_| !kind.info().by_alias)?;
        (self.versions.get(&name) == Some(&entry.version)).then_some(name)
    }
}
