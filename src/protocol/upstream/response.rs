//! Reads responses: their structure is checked, bad resources are refused one by one, the good ones become facts (UP-22, UP-23).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::rules::ServerRules;
use super::topic::{Standing, Topic};
use crate::proto::discovery::{self, DeltaDiscoveryResponse, DiscoveryResponse};
use crate::protocol::faults::Fault;
use crate::protocol::limits::{Limits, cut};
use crate::protocol::moment::Moment;
use crate::protocol::unit::{Class, Fact, Kept, NamedError, Part, Wanted};
use crate::xds::{BodyStore, Malformed, Name, Resource, Type};

/// What is at hand while one response is read.
pub(super) struct Reader<'a> {
    pub kind: &'a Type,
    pub rules: &'a ServerRules,
    pub limits: &'a Limits,
    pub store: &'a mut BodyStore,
    pub now: Moment,
}

impl Topic {
    pub(super) fn read_sotw(&mut self, response: DiscoveryResponse, reader: &mut Reader) -> Vec<Fact> {
        let (kind, limits) = (reader.kind, reader.limits);
        let mut read = Read::default();
        // A heartbeat has the version that was accepted last, in the wrapper or around it.
        let same = response.version_info == self.accepted;
        let beats = |version: &String| same || *version == self.accepted;
        for (index, any) in response.resources.into_iter().enumerate() {
            match Resource::from_sotw(index, any, kind, reader.store) {
                Err(Malformed::Bodyless { name: Some(name), ttl, version, .. })
                    if beats(&version) && self.holds(&name) && !kind.info().by_alias =>
                {
                    read.alive.insert(name, ttl);
                }
                resource => drop(read.take(resource)),
            }
        }
        if limits.faults.has(Fault::VersionsFromUpstream) {
            read.stamp(&response.version_info);
        }
        let reported = read.take_errors(response.resource_errors, limits);
        let refusal = read.text(limits);
        if refusal.is_none() {
            self.accepted = response.version_info;
        }
        self.owe(response.nonce, refusal, limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let full = kind.info().full_state;
        let said = said_of(&reported);
        let sent = read.good.keys().chain(read.alive.keys()).chain(&read.spoiled);
        self.confirm(sent.cloned(), reader.now, limits);
        let mut facts = self.error_facts(reported, reader);
        // Nothing but heartbeats says that some things live on, and nothing of the rest.
        let heartbeats_alone = read.good.is_empty() && !read.alive.is_empty();
        if self.class == Class::Star && full && !heartbeats_alone {
            self.refused.clear(); // what is not in this set is not there
        }
        self.note_refused(&read, &said, limits);
        // What could not be read and is held is kept; of what never could be, nobody knows what is missing (UP-25).
        let gap = read.unnamed_refused || !read.spoiled.iter().all(|name| self.versions.contains_key(name));
        if self.class == Class::Star {
            if full && read.alive.is_empty() {
                self.versions.retain(|name, _| read.spoiled.contains(name));
            }
            self.versions.extend(read.good.keys().map(|name| (name.clone(), String::new())));
        }
        facts.extend(self.refresh_facts(&read, kind));
        match self.class {
            _ if heartbeats_alone => {}
            Class::Star if full && !gap => {
                let kept = match reader.rules.hold_deletions {
                    true => Kept::Everything,
                    false => Kept::These(read.alive.into_keys().chain(read.spoiled).collect()),
                };
                facts.push(Fact::Whole { kind: kind.clone(), resources: read.good.into_values().collect(), kept });
            }
            Class::Star => {
                facts.extend(self.star_facts(kind, read.good));
                facts.push(self.piece(kind, Wanted::Star, reader.rules));
            }
            Class::Named => {
                let complete = full && !read.unnamed_refused && !reader.rules.hold_deletions;
                let absent = if complete { self.absent_from(&read, limits) } else { Vec::new() };
                facts.extend(self.named_facts(kind, read.good, reader.now));
                facts.extend(absent.into_iter().map(|key| self.absence(kind, key, reader.now)));
            }
        }
        facts
    }

    pub(super) fn read_delta(&mut self, response: DeltaDiscoveryResponse, reader: &mut Reader) -> Vec<Fact> {
        let (kind, limits) = (reader.kind, reader.limits);
        let mut read = Read::default();
        let (mut versions, mut unresolved) = (BTreeMap::new(), Vec::new());
        for (index, wrapper) in response.resources.into_iter().enumerate() {
            let version = wrapper.version.clone();
            if let Some(name) = self.heartbeat_of(&wrapper, kind) {
                read.alive.insert(name, ttl_of(&wrapper));
                continue;
            }
            if wrapper.resource.is_none() && !wrapper.aliases.is_empty() {
                // The name was asked for by an alias, and resolves to nothing (DELTA-39).
                unresolved.extend(wrapper.aliases.iter().map(|alias| Name::of_peer(alias)));
                continue;
            }
            if let Some(name) = read.take(Resource::from_wrapper(index, wrapper, kind, reader.store)) {
                versions.insert(name, version);
            }
        }
        if limits.faults.has(Fault::VersionsFromUpstream) {
            read.stamp(&response.nonce);
        }
        let constrained = response.removed_resource_names.into_iter().map(|name| name.name);
        let mut removed: BTreeSet<Name> = BTreeSet::new();
        for name in response.removed_resources.into_iter().chain(constrained).map(|name| Name::of_peer(&name)) {
            if !read.refuse_if_sent(&name) {
                removed.insert(name);
            }
        }
        let reported = read.take_errors(response.resource_errors, limits);
        self.owe(response.nonce, read.text(limits), limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let sent = read.good.keys().chain(read.alive.keys()).chain(&read.spoiled);
        self.confirm(sent.cloned(), reader.now, limits);
        let said = said_of(&reported);
        let mut facts = self.error_facts(reported, reader);
        facts.extend(self.refresh_facts(&read, kind));
        self.note_refused(&read, &said, limits);
        self.misnamed += read.good.values().filter(|resource| resource.misnamed).count() as u64;
        for name in &removed {
            self.refused.remove(name);
        }
        for (name, version) in versions {
            if let Some(resource) = read.good.get(&name).filter(|resource| self.wants(resource)) {
                let changed = if resource.ttl.is_some() {
                    BTreeSet::insert
                } else {
                    |set: &mut BTreeSet<_>, name| set.remove(&name)
                };
                changed(&mut self.mortal, name.clone());
                self.versions.insert(name, version);
            }
        }
        let sets = match self.class {
            Class::Star => BTreeSet::from([Wanted::Star]),
            Class::Named => self.sets_of(read.good.keys().chain(&read.spoiled)),
        };
        match self.class {
            Class::Star => facts.extend(self.star_facts(kind, read.good)),
            Class::Named => facts.extend(self.named_facts(kind, read.good, reader.now)),
        }
        let removed = self.removed_keys(removed, unresolved);
        let deleted = removed.into_iter().filter(|(_, held)| !(*held && reader.rules.hold_deletions));
        facts.extend(deleted.map(|(key, _)| self.absence(kind, key, reader.now)).collect::<Vec<_>>());
        facts.extend(sets.into_iter().map(|of| self.piece(kind, of, reader.rules))); // complete with its removals
        facts
    }

    /// What a removal means for what was asked for, with whether that was held: a name also stands for its aliases.
    fn removed_keys(&mut self, removed: BTreeSet<Name>, unresolved: Vec<Name>) -> Vec<(Name, bool)> {
        if self.class == Class::Star {
            return removed.into_iter().map(|name| (name, true)).collect();
        }
        let aliased = self.aliases.extract_if(.., |_, canonical| removed.contains(canonical));
        let mut keys: BTreeMap<Name, bool> = aliased.map(|(alias, _)| (alias, true)).collect();
        for name in removed {
            let member = self.is_member_alone(&name) && self.versions.contains_key(&name);
            self.forget(&name);
            let held = member || self.names.get(&name) == Some(&Standing::Held);
            keys.insert(name, held);
        }
        keys.extend(unresolved.into_iter().map(|alias| (alias, false)));
        keys.retain(|key, _| self.names.contains_key(key) || self.globs.of(key).is_some());
        keys.into_iter().collect()
    }

    /// Evidence that a name has no resource, after which the server has nothing more to say of it.
    fn absence(&mut self, kind: &Type, key: Name, now: Moment) -> Fact {
        self.forget(&key);
        self.troubles.remove(&key);
        self.answered(&key, Standing::Absent);
        if self.globs.has(&key) {
            self.globs.begin(&key, now);
            self.forget_members(&key);
        }
        Fact::Gone { kind: kind.clone(), class: self.class, key }
    }

    fn wants(&self, resource: &Resource) -> bool {
        let keys = || [&resource.name].into_iter().chain(resource.aliases());
        let by_name = keys().any(|key| self.names.contains_key(key));
        self.class == Class::Star || by_name || self.globs.of(&resource.name).is_some()
    }

    fn holds(&self, name: &Name) -> bool {
        self.versions.contains_key(name) || self.names.get(name) == Some(&Standing::Held)
    }

    /// What could not be used is there all the same: no timer calls it absent (UP-38), and no set is whole without it.
    fn note_refused(&mut self, read: &Read, said: &BTreeMap<Name, bool>, limits: &Limits) {
        for name in read.good.keys() {
            self.refused.remove(name);
        }
        for name in &read.spoiled {
            let unreadable = !said.contains_key(name);
            if unreadable && self.names.get(name).is_some_and(|standing| *standing != Standing::Absent) {
                self.answered(name, Standing::Held);
            }
            let in_a_set = self.class == Class::Star || self.globs.of(name).is_some();
            if in_a_set && said.get(name) != Some(&true) {
                self.refused.insert(name, limits.refused_names);
            }
        }
        self.refused.unnamed = read.unnamed_refused;
    }

    /// What the server reports of single names (UP-44): that there is none, that it is not allowed, or a passing trouble. Only
    /// the first is absence where something is held, unless this server means the second so too.
    fn error_facts(&mut self, reported: Vec<(Name, NamedError)>, reader: &Reader) -> Vec<Fact> {
        let mut facts = Vec::new();
        for (key, error) in reported {
            let standing = self.names.get(&key).copied();
            // Of members only those that are held: of others there might be ever new ones.
            let held_member = self.is_member_alone(&key) && self.versions.contains_key(&key);
            if standing.is_none() && !held_member {
                continue;
            }
            let held = standing == Some(Standing::Held) || held_member;
            let gives_up = error.code == NOT_FOUND || !held || reader.rules.fail_on_data_errors;
            if error.is_about_data() && gives_up && !(held && reader.rules.hold_deletions) {
                facts.push(self.absence(reader.kind, key.clone(), reader.now));
            } else {
                // A passing trouble says that somebody is there, and nothing of whether there is such a thing.
                self.answered(&key, if held { Standing::Held } else { Standing::Asked { until: None } });
            }
            let error = Arc::new(error);
            if standing.is_some() {
                self.troubles.insert(key.clone(), error.clone());
            }
            facts.push(Fact::Error { kind: reader.kind.clone(), key, error });
        }
        facts
    }

    /// A wrapper without a body at the version that is held: it goes on, and nothing else happens.
    fn heartbeat_of(&self, wrapper: &discovery::Resource, kind: &Type) -> Option<Name> {
        let name = crate::xds::wrapper_name(wrapper).filter(|_| wrapper.resource.is_none() && !kind.info().by_alias)?;
        (self.versions.get(&name) == Some(&wrapper.version)).then_some(name)
    }

    fn refresh_facts(&self, read: &Read, kind: &Type) -> Vec<Fact> {
        let refresh = |(key, ttl): (&Name, &Option<Duration>)| {
            let (kind, class, key) = (kind.clone(), self.class, key.clone());
            Fact::Refresh { kind, class, key, ttl: *ttl }
        };
        read.alive.iter().map(refresh).collect()
    }

    fn star_facts(&self, kind: &Type, good: BTreeMap<Name, Arc<Resource>>) -> Vec<Fact> {
        let set = |(key, resource)| Fact::Set { kind: kind.clone(), class: Class::Star, key, resource };
        good.into_iter().map(set).collect()
    }

    /// More of a set has come, of which nobody says when it is all there.
    pub(super) fn piece(&self, kind: &Type, of: Wanted, rules: &ServerRules) -> Fact {
        let untold = rules.says_whole && of != Wanted::Star;
        let flawed = untold || self.refused.any_of(&of);
        let part = match (flawed, rules.whole_at_once && of == Wanted::Star) {
            (true, _) => Part::Flawed,
            (false, true) => Part::Last,
            (false, false) => Part::More,
        };
        Fact::Piece { kind: kind.clone(), of, part }
    }

    /// The collections that a response says something of.
    fn sets_of<'a>(&self, names: impl Iterator<Item = &'a Name>) -> BTreeSet<Wanted> {
        names.filter_map(|name| self.globs.of(name)).cloned().map(Wanted::Name).collect()
    }

    /// A resource counts for each name it was asked for under: its own and its aliases (DELTA-22). Unasked ones are tolerated
    /// and not kept (UP-27).
    fn named_facts(&mut self, kind: &Type, good: BTreeMap<Name, Arc<Resource>>, now: Moment) -> Vec<Fact> {
        let mut facts = Vec::new();
        for resource in good.into_values() {
            let keys = [&resource.name].into_iter().chain(resource.aliases());
            let mut wanted: BTreeSet<Name> = keys.filter(|key| self.names.contains_key(*key)).cloned().collect();
            if let Some(glob) = self.globs.of(&resource.name).cloned() {
                self.answered(&glob, Standing::Held);
                self.globs.begin(&glob, now);
                wanted.insert(resource.name.clone());
            }
            for key in wanted {
                self.answered(&key, Standing::Held);
                self.troubles.remove(&key);
                if key != resource.name {
                    self.aliases.insert(key.clone(), resource.name.clone());
                }
                let resource = resource.clone();
                facts.push(Fact::Set { kind: kind.clone(), class: Class::Named, key, resource });
            }
        }
        facts
    }

    /// Of a full-state type what was held and is not in the answer is deleted. What was never received from this server is not:
    /// the answer may be older than the question (UP-24).
    fn absent_from(&self, read: &Read, limits: &Limits) -> Vec<Name> {
        let present = |name: &Name| read.good.contains_key(name) || read.alive.contains_key(name);
        let absent = |name: &Name| !present(name) && !read.spoiled.contains(name);
        let any = limits.faults.has(Fault::AbsenceDeletesTheUnanswered);
        let held = |standing: &Standing| any || *standing == Standing::Held;
        self.names
            .iter()
            .filter(|(name, standing)| held(standing) && absent(name) && !self.globs.has(name))
            .filter(|(name, _)| !self.doubt.contains(name))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// The names that the server reports errors of, with whether there is nothing under them, or nothing for us: no set lacks those.
fn said_of(reported: &[(Name, NamedError)]) -> BTreeMap<Name, bool> {
    reported.iter().map(|(name, error)| (name.clone(), error.is_about_data())).collect()
}

fn ttl_of(wrapper: &discovery::Resource) -> Option<Duration> {
    wrapper.ttl.and_then(|ttl| Duration::try_from(ttl).ok())
}

const OK: i32 = 0;
const NOT_FOUND: i32 = 5;

/// The resources of one response, sorted into good and bad.
#[derive(Default)]
struct Read {
    good: BTreeMap<Name, Arc<Resource>>,
    /// Heartbeats: what lives on as it is, and for how long.
    alive: BTreeMap<Name, Option<Duration>>,
    /// Present, and not usable: their previous value stays.
    spoiled: BTreeSet<Name>,
    unnamed_refused: bool,
    faults: Vec<Malformed>,
}

impl Read {
    fn take(&mut self, resource: Result<Resource, Malformed>) -> Option<Name> {
        match resource {
            Ok(resource) if self.good.contains_key(&resource.name) || self.spoiled.contains(&resource.name) => {
                let name = resource.name;
                self.good.remove(&name);
                self.spoiled.insert(name.clone());
                self.faults.push(Malformed::Duplicate { name });
                None
            }
            Ok(resource) => {
                let name = resource.name.clone();
                self.good.insert(name.clone(), Arc::new(resource));
                Some(name)
            }
            Err(malformed) => {
                match malformed.name() {
                    Some(name) => drop(self.spoiled.insert(name.clone())),
                    None => self.unnamed_refused = true,
                }
                self.faults.push(malformed);
                None
            }
        }
    }

    /// A name both sent and removed says nothing that can be believed.
    fn refuse_if_sent(&mut self, name: &Name) -> bool {
        if self.good.remove(name).is_none() && !self.spoiled.contains(name) {
            return false;
        }
        self.spoiled.insert(name.clone());
        self.faults.push(Malformed::SentAndRemoved { name: name.clone() });
        true
    }

    /// Errors that the server reports of single resources. They count as present; one that makes no sense is refused (UP-22).
    fn take_errors(&mut self, errors: Vec<discovery::ResourceError>, limits: &Limits) -> Vec<(Name, NamedError)> {
        let mut reported = Vec::new();
        for error in errors {
            let name = Name::of_peer(&error.resource_name.map(|name| name.name).unwrap_or_default());
            let detail = error.error_detail.unwrap_or_default();
            let code = detail.code;
            if name.as_str().is_empty() || code == OK {
                let why = if code == OK { "that all is well" } else { "of nothing" };
                self.faults.push(Malformed::Error { name, why });
                continue;
            }
            if !self.refuse_if_sent(&name) {
                self.spoiled.insert(name.clone());
                reported.push((name, NamedError { code, message: cut(&detail.message, limits.error_bytes) }));
            }
        }
        reported
    }

    /// The text of the NACK, if there is to be one.
    fn text(&self, limits: &Limits) -> Option<String> {
        let mut text = String::new();
        for fault in &self.faults {
            let fault = fault.to_string();
            if text.len() + fault.len() > limits.error_bytes {
                text.push_str("; ...");
                break;
            }
            text.push_str(if text.is_empty() { "" } else { "; " });
            text.push_str(&fault);
        }
        (!text.is_empty()).then_some(text)
    }

    /// The fault of versions that are not made from content.
    fn stamp(&mut self, upstream_version: &str) {
        for resource in self.good.values_mut() {
            let mut stamped = (**resource).clone();
            stamped.full = stamped.full.with([upstream_version.as_bytes()]);
            *resource = Arc::new(stamped);
        }
    }
}
