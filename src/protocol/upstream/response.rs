//! Reads responses: their structure is checked, bad resources are refused one by one, the good ones become facts (UP-22, UP-23).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::delivery::Delivery;
use super::parsed_response::{Bodyless, ParsedResponse};
use super::quirks::{InitialSet, OnResourceTimeout, ServerQuirks};
use super::rejected::Rejection;
use super::requested_names::NameState;
use super::resource_set::ResourceSet;
use super::type_subscription::TypeSubscription;
use crate::proto::code::NOT_FOUND;
use crate::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::set_mark::SetMark;
use crate::protocol::view::{Class, Evidence, NamedError, Retain, Selector, Update};
use crate::xds::{Name, Resource, Type};

/// What is at hand while one response is read.
pub(super) struct ResponseContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) limits: &'a Limits,
    pub(crate) now: Moment,
}

impl TypeSubscription {
    pub(super) fn read_sotw(
        &mut self,
        response: DiscoveryResponse,
        mut read: ParsedResponse,
        reader: &mut ResponseContext,
    ) -> Vec<Update> {
        let (kind, limits) = (reader.kind, reader.limits);
        // A heartbeat has the version that was accepted last, in the wrapper or around it.
        let same = response.version_info == self.accepted;
        let beats = |version: &String| same || *version == self.accepted;
        for entry in std::mem::take(&mut read.bodyless) {
            match &entry.name {
                Some(name) if beats(&entry.version) && self.holds(name) && !kind.info().by_alias => {
                    read.alive.insert(name.clone(), entry.ttl);
                }
                _ => read.reject_bodyless(entry),
            }
        }
        if limits.faults.has(Fault::VersionsFromUpstream) {
            read.overwrite_versions(&response.version_info);
        }
        let reported = read.take_errors(response.resource_errors, limits);
        let nack = read.nack_message(limits);
        let version = response.version_info;
        if nack.is_none() {
            self.accepted.clone_from(&version);
        }
        self.wire.queue_ack(response.nonce, self.accepted.clone(), nack, limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let full = kind.info().full_state;
        let said = self.reported_names(&reported, reader.quirks);
        let same_names = self.is_same_set(&read) && reported.is_empty();
        if same_names {
            self.progress.on_response(false, false, 0, reader.now);
        } else {
            self.record_progress(&read, false, reader);
        }
        let mut updates = self.error_updates(reported, reader);
        // Nothing but heartbeats says that some things live on, and nothing of the rest.
        let heartbeats_alone = read.good.is_empty() && !read.alive.is_empty();
        if self.class == Class::Wildcard && full && !heartbeats_alone {
            self.rejected.keep_only(|name| read.rejected.contains_key(name)); // what is not in this set is not there
        }
        self.record_rejected(&read, &said, &version, limits);
        // Of what could not even be told by name, nobody knows what is missing (UP-25).
        let gap = read.unnamed.is_some();
        let unread = self.rejected.take_unreadable(|name| self.versions.contains_key(name));
        let unreadable: BTreeSet<Name> =
            read.rejected.keys().filter(|name| !said.contains_key(*name)).cloned().collect();
        if self.class == Class::Wildcard && full && read.alive.is_empty() && !gap {
            if !same_names {
                self.versions.retain(|name, _| read.rejected.contains_key(name));
            }
            self.unconfirmed.clear();
            self.second_request.conclude_all();
        }
        if !same_names {
            let (names, wildcard) = (&self.names, self.class == Class::Wildcard);
            let wanted = read.good.values().filter(|resource| {
                wildcard || [&resource.name].into_iter().chain(resource.aliases()).any(|key| names.contains(key))
            });
            self.versions.extend(wanted.map(|resource| (resource.name.clone(), String::new())));
        }
        updates.extend(self.refresh_updates(&read, kind));
        match self.class {
            _ if heartbeats_alone => {}
            Class::Wildcard if full && !gap => {
                let kept = match reader.quirks.ignore_deletions {
                    true => Retain::Everything,
                    false => Retain::These(read.alive.into_keys().chain(read.rejected.into_keys()).collect()),
                };
                updates.push(Update::FullSet {
                    kind: kind.clone(),
                    resources: read.good.into_values().collect(),
                    retain: kept,
                });
            }
            Class::Wildcard => {
                updates.extend(self.wildcard_updates(kind, read.good));
                updates.push(self.completeness_update(kind, Selector::Wildcard, false, reader.quirks));
            }
            Class::Named => {
                let complete = full && !gap && !reader.quirks.ignore_deletions;
                let absent = if complete { self.absent_from(&read, limits) } else { Vec::new() };
                let absent = self.without_recent(absent, reader.now);
                updates.extend(self.named_updates(kind, read.good));
                updates.extend(absent.into_iter().map(|key| self.absence(kind, key)));
            }
        }
        updates.extend(self.unreadable_updates(kind, &unreadable, unread));
        updates
    }

    pub(super) fn read_delta(
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
            if !read.reject_if_sent(&name) {
                removed.insert(name);
            }
        }
        if limits.faults.has(Fault::BadEntryIsAbsent) {
            removed.extend(read.rejected.keys().cloned());
        }
        let reported = read.take_errors(response.resource_errors, limits);
        self.wire.queue_ack(response.nonce, self.accepted.clone(), read.nack_message(limits), limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let said = self.reported_names(&reported, reader.quirks);
        let first = self.progress.is_to_begin();
        let sent = |(name, version): (&Name, &String)| {
            self.versions.get(name) == Some(version) && !self.unconfirmed.contains(name)
        };
        let repeats = self.wire.stated && versions.iter().any(sent);
        self.progress.repeats |= first && repeats; // it does not go by that
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
        // The first response to `*` is all there is where the server sends sets so, or if there is nothing to add.
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
        let removed = self.removed_keys(removed, unresolved);
        let deleted = removed.into_iter().filter(|(_, held)| !(*held && reader.quirks.ignore_deletions));
        updates.extend(deleted.map(|(key, _)| self.absence(kind, key)).collect::<Vec<_>>());
        updates.extend(opens_again.then(|| Update::Interrupted { kind: kind.clone(), of: Selector::Wildcard }));
        updates.extend(sets.into_iter().map(|of| self.completeness_update(kind, of, ends, reader.quirks))); // complete with its removals
        updates.extend(self.unreadable_updates(kind, &unreadable, unread));
        updates
    }

    /// What a removal means for what was asked for, with whether that was held: a name also stands for its aliases.
    fn removed_keys(&mut self, removed: BTreeSet<Name>, unresolved: Vec<Name>) -> Vec<(Name, bool)> {
        if self.class == Class::Wildcard {
            return removed.into_iter().map(|name| (name, true)).collect();
        }
        let aliased = self.aliases.extract_if(.., |_, canonical| removed.contains(canonical));
        let mut keys: BTreeMap<Name, bool> = aliased.map(|(alias, _)| (alias, true)).collect();
        for name in removed {
            let member = self.is_member_alone(&name) && self.versions.contains_key(&name);
            self.forget(&name);
            let held = member || self.holds_by_name(&name);
            keys.insert(name, held);
        }
        keys.extend(unresolved.into_iter().map(|alias| (alias, false)));
        keys.retain(|key, _| self.names.contains(key) || self.globs.of(key).is_some());
        keys.into_iter().collect()
    }

    /// Evidence that a name has no resource, after which the server has nothing more to say of it.
    fn absence(&mut self, kind: &Type, key: Name) -> Update {
        self.forget(&key);
        self.errors.remove(&key);
        self.rejected.remove(&key);
        self.second_request.answered(&key);
        if self.names.contains(&key) {
            self.requested.settle(key.clone(), NameState::Absent);
        }
        if self.globs.has(&key) {
            self.globs.begin(&key);
            self.forget_members(&key);
        }
        Update::Absent { kind: kind.clone(), class: self.class, key, evidence: Evidence::Reported }
    }

    /// Whether a response has just the names that the server gave before, and nothing is open about any. Most sets that are sent
    /// again are so, and what is known of the names stays as it is.
    fn is_same_set(&self, read: &ParsedResponse) -> bool {
        let nothing_open = !self.progress.is_to_begin()
            && self.progress.to_be_repeated.is_empty()
            && self.unconfirmed.is_empty()
            && self.second_request.is_empty()
            && !self.second_request.is_to_ask()
            && self.rejected.is_empty();
        let all_good = read.alive.is_empty() && read.rejected.is_empty() && read.unnamed.is_none();
        let is_set = self.class == Class::Wildcard && nothing_open && all_good;
        is_set && self.versions.len() == read.good.len() && self.versions.keys().eq(read.good.names())
    }

    /// A response says something for the first time, or nothing that is new. A server that `repeats` what it was told is held goes
    /// through all of that.
    fn record_progress(&mut self, read: &ParsedResponse, repeats: bool, reader: &ResponseContext) {
        let stated = |name: &&Name| self.versions.contains_key(*name) && !self.unconfirmed.contains(*name);
        let begins = self.progress.is_to_begin() && read.good.names().any(|name| stated(&name));
        if (begins || repeats) && !self.progress.repeats_begun {
            self.progress.repeats_begun = true;
            self.progress.to_be_repeated = self.versions.keys().filter(stated).cloned().collect();
        }
        // What was asked for in the midst of things says nothing of how far the server has come with the rest.
        let late = |name: &Name| matches!(self.requested.get(name), Some(NameState::Waiting { first: false, .. }));
        let is_new = |name: &Name| {
            let unsaid = !self.versions.contains_key(name) && !late(name) || self.unconfirmed.contains(name);
            unsaid || self.second_request.names.contains(name) || self.progress.to_be_repeated.contains(name)
        };
        let new = read.good.values().filter(|resource| is_new(&resource.name));
        let bytes = new.clone().map(|resource| resource.body.bytes().len()).sum();
        let any = new.clone().next().is_some() || read.rejected.keys().any(is_new);
        let held = read.names().any(|name| self.unconfirmed.contains(name) || self.second_request.names.contains(name));
        if self.progress.on_response(any, held, bytes, reader.now) {
            self.record_delivery(Delivery::Piece);
        }
        for name in read.names() {
            self.unconfirmed.remove(name);
            self.second_request.answered(name);
            self.progress.to_be_repeated.remove(name);
        }
    }

    /// What came and cannot be read is there, whatever was said of it before.
    fn unreadable_updates(
        &self,
        kind: &Type,
        rejected: &BTreeSet<Name>,
        unread: Option<BTreeSet<Name>>,
    ) -> Vec<Update> {
        match self.class {
            Class::Wildcard => {
                let unread =
                    unread.map(|names| Update::Unreadable { kind: kind.clone(), of: Selector::Wildcard, names });
                unread.into_iter().collect()
            }
            Class::Named => {
                let was_absent = |name: &&Name| self.requested.get(name) == Some(NameState::Absent);
                let doubtful = rejected.iter().filter(was_absent).filter(|name| !self.globs.has(name));
                let of = doubtful.cloned().map(Selector::Name);
                of.map(|of| Update::Interrupted { kind: kind.clone(), of }).collect()
            }
        }
    }

    fn wants(&self, resource: &Resource) -> bool {
        let keys = || [&resource.name].into_iter().chain(resource.aliases());
        let by_name = keys().any(|key| self.names.contains(key));
        self.class == Class::Wildcard || by_name || self.globs.of(&resource.name).is_some()
    }

    fn holds(&self, name: &Name) -> bool {
        self.versions.contains_key(name) || self.holds_by_name(name)
    }

    /// What could not be used is there all the same: no timer calls it absent (UP-38), and no set is whole without it.
    fn record_rejected(&mut self, read: &ParsedResponse, said: &BTreeMap<Name, bool>, version: &str, limits: &Limits) {
        for name in read.rejected.keys() {
            self.record_one_rejected(name, said, version, read, limits);
        }
        self.rejected.unnamed = None; // of a type without full sets, nothing is concluded from what is missing
        self.record_readable(read, version, limits);
    }

    fn record_readable(&mut self, read: &ParsedResponse, version: &str, limits: &Limits) {
        for name in read.good.names() {
            self.rejected.remove(name);
        }
        if let Some(reason) = read.unnamed.clone() {
            self.rejected.insert_unnamed(Rejection { version: version.to_owned(), reason }, limits.rejected_names);
        }
    }

    fn record_one_rejected(
        &mut self,
        name: &Name,
        said: &BTreeMap<Name, bool>,
        version: &str,
        read: &ParsedResponse,
        limits: &Limits,
    ) {
        let unreadable = !said.contains_key(name);
        if unreadable && self.names.contains(name) && self.requested.get(name) != Some(NameState::Absent) {
            self.requested.given(name);
        }
        let in_a_set = self.class == Class::Wildcard || self.globs.of(name).is_some();
        let has_none = said.get(name) == Some(&true);
        if in_a_set && !has_none || unreadable && self.names.contains(name) {
            let reason = read.rejected.get(name).cloned().unwrap_or_default();
            self.rejected.insert(name, Rejection { version: version.to_owned(), reason }, limits.rejected_names);
        }
    }

    /// What the server reports of single names (UP-44): that there is none, that it is not allowed, or a passing trouble. Only
    /// the first is absence where something is held, unless this server means the second so too.
    fn error_updates(&mut self, reported: Vec<(Name, NamedError)>, reader: &ResponseContext) -> Vec<Update> {
        let mut updates = Vec::new();
        for (key, error) in reported {
            if self.class == Class::Wildcard {
                let kept = reader.quirks.ignore_deletions && self.versions.contains_key(&key);
                if self.means_absent(&error, reader.quirks) && !kept {
                    updates.push(self.absence(reader.kind, key));
                }
                continue;
            }
            let by_name = self.names.contains(&key);
            // Of members only those that are held: of others there might be ever new ones.
            let held_member = self.is_member_alone(&key) && self.versions.contains_key(&key);
            if !by_name && !held_member {
                continue;
            }
            let held = self.holds_by_name(&key) || held_member;
            let gives_up = error.code == NOT_FOUND || !held || reader.quirks.fail_on_data_errors;
            if error.is_about_data() && gives_up && !(held && reader.quirks.ignore_deletions) {
                updates.push(self.absence(reader.kind, key.clone()));
            } else {
                // A passing trouble says that somebody is there, and nothing of whether there is such a thing.
                match held {
                    true => self.requested.given(&key),
                    false => self.requested.request(key.clone()),
                }
            }
            let error = Arc::new(error);
            if by_name {
                self.errors.insert(key.clone(), error.clone());
            }
            updates.push(Update::Error { kind: reader.kind.clone(), key, error });
        }
        updates
    }

    /// The names that the server reports errors of, with whether there is nothing under them, or nothing for us: no set lacks those.
    fn reported_names(&self, reported: &[(Name, NamedError)], rules: &ServerQuirks) -> BTreeMap<Name, bool> {
        reported.iter().map(|(name, error)| (name.clone(), self.means_absent(error, rules))).collect()
    }

    /// What others have of a set, or clients hold, is not known here: only a name that was asked for can be one of which nothing is
    /// held that is not allowed.
    fn means_absent(&self, error: &NamedError, rules: &ServerQuirks) -> bool {
        match self.class {
            Class::Wildcard => error.code == NOT_FOUND || error.is_about_data() && rules.fail_on_data_errors,
            Class::Named => error.is_about_data(),
        }
    }

    /// A wrapper without a body at the version that is held: it goes on, and nothing else happens.
    fn heartbeat_of(&self, entry: &Bodyless, kind: &Type) -> Option<Name> {
        let name = entry.name.clone().filter(|_| !kind.info().by_alias)?;
        (self.versions.get(&name) == Some(&entry.version)).then_some(name)
    }

    fn refresh_updates(&self, read: &ParsedResponse, kind: &Type) -> Vec<Update> {
        let refresh = |(key, ttl): (&Name, &Option<Duration>)| {
            let (kind, class, key) = (kind.clone(), self.class, key.clone());
            Update::Refresh { kind, class, key, ttl: *ttl }
        };
        read.alive.iter().map(refresh).collect()
    }

    fn wildcard_updates(&self, kind: &Type, good: ResourceSet) -> Vec<Update> {
        let set = |resource: Arc<Resource>| {
            let key = resource.name.clone();
            Update::Upsert { kind: kind.clone(), class: Class::Wildcard, key, resource }
        };
        good.into_values().map(set).collect()
    }

    /// So much is known of a set by this response.
    fn completeness_update(&self, kind: &Type, of: Selector, ends: bool, rules: &ServerQuirks) -> Update {
        let completeness = self.completeness_after(rules, &of, ends);
        Update::Progress { kind: kind.clone(), of, completeness }
    }

    /// The collections that a response says something of.
    fn sets_of<'a>(&self, names: impl Iterator<Item = &'a Name>) -> BTreeSet<Selector> {
        names.filter_map(|name| self.globs.of(name)).cloned().map(Selector::Name).collect()
    }

    /// A resource counts for each name it was asked for under: its own and its aliases (DELTA-22). Unasked ones are tolerated
    /// and not kept (UP-27).
    fn named_updates(&mut self, kind: &Type, good: ResourceSet) -> Vec<Update> {
        let mut updates = Vec::new();
        for resource in good.into_values() {
            let keys = [&resource.name].into_iter().chain(resource.aliases());
            let mut wanted: BTreeSet<Name> = keys.filter(|key| self.names.contains(*key)).cloned().collect();
            if let Some(glob) = self.globs.of(&resource.name).cloned() {
                self.requested.given(&glob);
                if self.globs.begin(&glob) {
                    self.progress.unsettle(); // it may be that all of it was known before
                }
                wanted.insert(resource.name.clone());
            }
            for key in wanted {
                self.requested.given(&key);
                self.second_request.answered(&key);
                self.errors.remove(&key);
                if key != resource.name {
                    self.aliases.insert(key.clone(), resource.name.clone());
                }
                let resource = resource.clone();
                updates.push(Update::Upsert { kind: kind.clone(), class: Class::Named, key, resource });
            }
        }
        updates
    }

    /// Of a full-state type what is not in the answer does not exist, if the answer can know of the question (UP-24): the name
    /// stood in the first request on this opening, was given since, or was asked for long enough before.
    fn absent_from(&self, read: &ParsedResponse, limits: &Limits) -> Vec<Name> {
        let present = |name: &Name| read.good.get(name).is_some() || read.alive.contains_key(name);
        let absent = |name: &Name| !present(name) && !read.rejected.contains_key(name);
        let any = limits.faults.has(Fault::AbsenceDeletesTheUnanswered);
        let known = |name: &Name| match self.requested.get(name) {
            None | Some(NameState::Silent | NameState::Waiting { first: true, .. }) => true,
            Some(NameState::Waiting { first: false, .. }) => any,
            Some(NameState::Absent) => false, // as it was said
        };
        self.names.iter().filter(|name| known(name) && absent(name) && !self.globs.has(name)).cloned().collect()
    }
}

impl TypeSubscription {
    /// Of what was asked for, left and asked for again a moment ago, an older answer may lack what there is: the server is to say
    /// that again.
    fn without_recent(&mut self, mut absent: Vec<Name>, now: Moment) -> Vec<Name> {
        let recent: Vec<_> = absent.extract_if(.., |name| self.recently_left.is_recent(name, now)).collect();
        if !recent.is_empty() {
            self.second_request.look_anew();
        }
        self.unconfirmed.extend(recent.into_iter().filter(|name| self.versions.contains_key(name)));
        absent
    }
}
