//! Reads responses: their structure is checked, bad resources are refused one by one, the good ones become facts (UP-22, UP-23).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::topic::{Standing, Topic};
use crate::proto::discovery::{self, DeltaDiscoveryResponse, DiscoveryResponse};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::unit::{Class, Fact};
use crate::xds::{BodyStore, Malformed, Name, Resource, Type};

impl Topic {
    pub(super) fn read_sotw(
        &mut self,
        kind: &Type,
        response: DiscoveryResponse,
        store: &mut BodyStore,
        limits: &Limits,
    ) -> Vec<Fact> {
        let entries = response.resources.into_iter().enumerate();
        let mut read = Read::default();
        for (index, any) in entries {
            read.take(Resource::from_sotw(index, any, kind, store));
        }
        if limits.faults.has(Fault::VersionsFromUpstream) {
            read.stamp(&response.version_info);
        }
        let reported = read.take_errors(response.resource_errors);
        let errors = read.text(limits);
        if errors.is_none() {
            self.accepted = response.version_info;
        }
        self.owe(response.nonce, errors, limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let full = kind.info().full_state;
        let absent_by_error = self.absent_by_error(reported);
        self.note_refused(&read);
        if self.class == Class::Star {
            if full {
                self.versions.clear();
            }
            self.versions.extend(read.good.keys().map(|name| (name.clone(), String::new())));
        }
        match self.class {
            // A set with an entry that cannot be read has a gap of unknown name: nothing is absent by it (UP-25).
            Class::Star if full && read.nothing_refused() && read.spoiled.is_empty() => {
                vec![Fact::Whole { kind: kind.clone(), resources: read.good.into_values().collect() }]
            }
            Class::Star => self.star_facts(kind, read.good),
            Class::Named => {
                let complete = full && !read.unnamed_refused;
                let absent = if complete { self.absent_from(&read, limits) } else { Vec::new() };
                let mut facts = self.named_facts(kind, read.good);
                facts.extend(absent.into_iter().chain(absent_by_error).map(|key| gone(kind, Class::Named, key)));
                facts
            }
        }
    }

    pub(super) fn read_delta(
        &mut self,
        kind: &Type,
        response: DeltaDiscoveryResponse,
        store: &mut BodyStore,
        limits: &Limits,
    ) -> Vec<Fact> {
        let mut read = Read::default();
        let (mut versions, mut unresolved) = (BTreeMap::new(), Vec::new());
        for (index, wrapper) in response.resources.into_iter().enumerate() {
            let version = wrapper.version.clone();
            if self.is_heartbeat(&wrapper) {
                continue;
            }
            if wrapper.resource.is_none() && !wrapper.aliases.is_empty() {
                // The name was asked for by an alias, and resolves to nothing (DELTA-39).
                unresolved.extend(wrapper.aliases.into_iter().map(Name::from));
                continue;
            }
            if let Some(name) = read.take(Resource::from_wrapper(index, wrapper, kind, store)) {
                versions.insert(name, version);
            }
        }
        if limits.faults.has(Fault::VersionsFromUpstream) {
            read.stamp(&response.nonce);
        }
        let constrained = response.removed_resource_names.into_iter().map(|name| name.name);
        let mut removed: BTreeSet<Name> = BTreeSet::new();
        for name in response.removed_resources.into_iter().chain(constrained).map(Name::from) {
            if !read.refuse_if_sent(&name) {
                removed.insert(name);
            }
        }
        let reported = read.take_errors(response.resource_errors);
        self.owe(response.nonce, read.text(limits), limits);
        if !self.is_wanted() {
            return Vec::new();
        }
        let absent_by_error = self.absent_by_error(reported);
        self.note_refused(&read);
        for name in &removed {
            self.refused.remove(name);
        }
        if self.class == Class::Named {
            removed.extend(unresolved.into_iter().chain(absent_by_error));
        }
        for (name, version) in versions.into_iter().filter(|(name, _)| read.good.contains_key(name)) {
            if self.class == Class::Star || self.names.contains_key(&name) {
                self.versions.insert(name, version);
            }
        }
        removed.iter().for_each(|name| drop(self.versions.remove(name)));
        let mut facts = match self.class {
            Class::Star => self.star_facts(kind, read.good),
            Class::Named => self.named_facts(kind, read.good),
        };
        let removed = removed.into_iter().filter(|name| self.class == Class::Star || self.names.contains_key(name));
        let removed: Vec<_> = removed.collect();
        removed.iter().for_each(|name| self.answered(name));
        let at = facts.len() - usize::from(self.class == Class::Star); // the piece is complete with its removals
        facts.splice(at..at, removed.into_iter().map(|key| gone(kind, self.class, key)));
        facts
    }

    /// What could not be used is there all the same: no timer calls it absent (UP-38), and no set is whole without it.
    fn note_refused(&mut self, read: &Read) {
        for name in read.good.keys() {
            self.refused.remove(name);
        }
        for name in &read.spoiled {
            self.answered(name);
            if self.class == Class::Star {
                self.refused.insert(name.clone());
            }
        }
        self.unnamed_refused = read.unnamed_refused;
    }

    /// Of reported errors those that say that there is nothing: not found, and for what is not held also not allowed (UP-44,
    /// UP-45, XLAT-21).
    fn absent_by_error(&self, reported: Vec<(Name, i32)>) -> Vec<Name> {
        let held = |name: &Name| self.names.get(name) == Some(&Standing::Answered);
        let absent = |(name, code): &(Name, i32)| *code == NOT_FOUND || (*code == PERMISSION_DENIED && !held(name));
        reported.into_iter().filter(absent).map(|(name, _)| name).filter(|name| self.names.contains_key(name)).collect()
    }

    /// A wrapper without a body at the version that is held: its TTL goes on, and nothing else happens.
    fn is_heartbeat(&self, wrapper: &discovery::Resource) -> bool {
        let name = crate::xds::wrapper_name(wrapper);
        wrapper.resource.is_none() && name.is_some_and(|name| self.versions.get(&name) == Some(&wrapper.version))
    }

    fn star_facts(&self, kind: &Type, good: BTreeMap<Name, Arc<Resource>>) -> Vec<Fact> {
        let set = |(key, resource)| Fact::Set { kind: kind.clone(), class: Class::Star, key, resource };
        let flawed = self.unnamed_refused || !self.refused.is_empty();
        good.into_iter().map(set).chain([Fact::Piece { kind: kind.clone(), flawed }]).collect()
    }

    /// A resource counts for each name it was asked for under: its own and its aliases (DELTA-22). Unasked ones are tolerated
    /// and not kept (UP-27).
    fn named_facts(&mut self, kind: &Type, good: BTreeMap<Name, Arc<Resource>>) -> Vec<Fact> {
        let mut facts = Vec::new();
        for resource in good.into_values() {
            let keys = [&resource.name].into_iter().chain(resource.aliases());
            let wanted: BTreeSet<Name> = keys.filter(|key| self.names.contains_key(*key)).cloned().collect();
            for key in wanted {
                self.answered(&key);
                let resource = resource.clone();
                facts.push(Fact::Set { kind: kind.clone(), class: Class::Named, key, resource });
            }
        }
        facts
    }

    /// Of a full-state type what was held and is not in the answer is deleted. What was never received is not: the answer may
    /// be older than the question (UP-24).
    fn absent_from(&self, read: &Read, limits: &Limits) -> Vec<Name> {
        let absent = |name: &Name| !read.good.contains_key(name) && !read.spoiled.contains(name);
        let any = limits.faults.has(Fault::AbsenceDeletesTheUnanswered);
        let held = |standing: &Standing| any || *standing == Standing::Answered;
        self.names
            .iter()
            .filter(|(name, standing)| held(standing) && absent(name))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

fn gone(kind: &Type, class: Class, key: Name) -> Fact {
    Fact::Gone { kind: kind.clone(), class, key }
}

const OK: i32 = 0;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;

/// The resources of one response, sorted into good and bad.
#[derive(Default)]
struct Read {
    good: BTreeMap<Name, Arc<Resource>>,
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
    fn take_errors(&mut self, errors: Vec<discovery::ResourceError>) -> Vec<(Name, i32)> {
        let mut reported = Vec::new();
        for error in errors {
            let name = Name::from(error.resource_name.map(|name| name.name).unwrap_or_default());
            let code = error.error_detail.map_or(OK, |detail| detail.code);
            if name.as_str().is_empty() || code == OK {
                let why = if code == OK { "that all is well" } else { "of nothing" };
                self.faults.push(Malformed::Error { name, why });
                continue;
            }
            if !self.refuse_if_sent(&name) {
                self.spoiled.insert(name.clone());
                reported.push((name, code));
            }
        }
        reported
    }

    fn nothing_refused(&self) -> bool {
        self.faults.is_empty()
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
