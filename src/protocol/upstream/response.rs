//! Applies responses: checks their structure, rejects bad resources one by one, and turns the good ones into updates (UP-22,
//! UP-23).

mod delta;
mod errors;
mod sotw;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::parsed_response::{ParsedResponse, ResourceSet};
use super::quirks::ServerQuirks;
use super::requested_names::NameState;
use super::set_progress::{Delivery, NewContent};
use super::type_subscription::TypeSubscription;
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Selector, Update};
use crate::protocol::visits::visit;
use crate::xds::{Name, Resource, Type};

/// What a subscription needs to apply one response.
pub(super) struct ResponseContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) limits: &'a Limits,
    /// The server is a relay, which compares what is stated. It sends endpoints again when their cluster has changed.
    pub(crate) is_relay: bool,
    pub(crate) now: Moment,
}

impl TypeSubscription {
    /// Whether a response has exactly the names that the server gave before, and no question about any is open. Most sets that
    /// are sent again are like that; what is known of the names stays as it is.
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

    /// Records what is new in a response. A server that `repeats` what the request stated sends all of that again.
    fn record_progress(&mut self, read: &ParsedResponse, repeats: bool, reader: &ResponseContext) {
        let stated = |name: &&Name| self.versions.contains_key(*name) && !self.unconfirmed.contains(*name);
        let begins = self.progress.is_to_begin() && read.good.names().any(|name| stated(&name));
        if (begins || repeats) && !self.progress.repeats_begun {
            self.progress.repeats_begun = true;
            self.progress.to_be_repeated = match repeats && !self.progress.stated.is_empty() {
                true => self.progress.stated.clone(),
                false => self.versions.keys().inspect(|_| visit()).filter(stated).cloned().collect(),
            };
        }
        // Names that were requested later show nothing of how far the server has come with the rest.
        let late = |name: &Name| matches!(self.requested.get(name), Some(NameState::Waiting { first: false, .. }));
        let is_new = |name: &Name| {
            let unsaid = !self.versions.contains_key(name) && !late(name) || self.unconfirmed.contains(name);
            unsaid || self.second_request.names.contains(name) || self.progress.to_be_repeated.contains(name)
        };
        let new = read.good.values().filter(|resource| is_new(&resource.name));
        let mut content = NewContent::default();
        for resource in new {
            content.names += 1;
            content.bytes += resource.body.bytes().len();
        }
        let any = content.names > 0 || read.rejected.keys().any(is_new);
        let held = read.names().any(|name| self.unconfirmed.contains(name) || self.second_request.names.contains(name));
        let is_taken = self.progress.has_response() && any && reader.limits.faults.has(Fault::ChangeIsPiece);
        if self.progress.on_response(any, held, content, reader.now) || is_taken {
            self.record_delivery(Delivery::Piece);
        }
        self.record_growth(read);
        for name in read.names() {
            self.unconfirmed.remove(name);
            self.second_request.answered(name);
            self.requested.answered(name);
            self.progress.to_be_repeated.remove(name);
            self.progress.stated.remove(name);
        }
    }

    /// Lets the question for the end of the set know what came. A name was stated if it is cached, or if it was requested a second time.
    fn record_growth(&mut self, read: &ParsedResponse) {
        let had_grown = self.end_question.has_grown();
        for name in read.names() {
            let is_stated = self.versions.contains_key(name) || self.second_request.names.contains(name);
            self.end_question.on_sent(name, is_stated);
        }
        if self.end_question.has_grown() != had_grown {
            self.second_request.recheck();
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

    /// Returns the update for how much of a set is known after this response.
    fn completeness_update(&self, kind: &Type, of: Selector, ends: bool, rules: &ServerQuirks) -> Update {
        let completeness = self.completeness_after(rules, &of, ends);
        Update::Progress { kind: kind.clone(), of, completeness }
    }

    /// Returns the collections that these names are members of.
    fn sets_of<'a>(&self, names: impl Iterator<Item = &'a Name>) -> BTreeSet<Selector> {
        names.filter_map(|name| self.globs.of(name)).cloned().map(Selector::Name).collect()
    }

    /// A resource counts for each name under which it was requested: its own and its aliases (DELTA-22). Unrequested resources
    /// are tolerated and not kept (UP-27).
    fn named_updates(&mut self, kind: &Type, good: ResourceSet) -> Vec<Update> {
        let mut updates = Vec::new();
        for resource in good.into_values() {
            let keys = [&resource.name].into_iter().chain(resource.aliases());
            let mut wanted: BTreeSet<Name> = keys.filter(|key| self.names.contains(*key)).cloned().collect();
            if let Some(glob) = self.globs.of(&resource.name).cloned() {
                self.requested.given(&glob);
                if self.globs.begin(&glob) {
                    self.progress.unsettle(); // the set may have been settled before
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
