//! Reads responses: their structure is checked, bad resources are rejected one by one, the good ones become updates (UP-22, UP-23).

mod delta;
mod errors;
mod sotw;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::delivery::Delivery;
use super::parsed_response::ParsedResponse;
use super::quirks::ServerQuirks;
use super::requested_names::NameState;
use super::resource_set::ResourceSet;
use super::type_subscription::TypeSubscription;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Selector, Update};
use crate::xds::{Name, Resource, Type};

/// What is at hand while one response is read.
pub(super) struct ResponseContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) limits: &'a Limits,
    pub(crate) now: Moment,
}

impl TypeSubscription {
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
        // What was requested in the midst of things says nothing of how far the server has come with the rest.
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

    fn wants(&self, resource: &Resource) -> bool {
        let keys = || [&resource.name].into_iter().chain(resource.aliases());
        let by_name = keys().any(|key| self.names.contains(key));
        self.class == Class::Wildcard || by_name || self.globs.of(&resource.name).is_some()
    }

    fn holds(&self, name: &Name) -> bool {
        self.versions.contains_key(name) || self.holds_by_name(name)
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

    /// A resource counts for each name it was requested under: its own and its aliases (DELTA-22). Unasked ones are tolerated
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
}
