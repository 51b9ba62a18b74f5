//! What a server has sent for a query, in either variant. Pure: responses go in, changes and the next request come out.
//!
//! It ACKs everything: operators want to see the resources, valid or not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::proto::code::NOT_FOUND;
use crate::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource, ResourceError,
};
use crate::proto::{Any, Request, Response};
use crate::protocol::session::Variant;
use crate::xds::{Name, Type, WILDCARD, Xdstp};

/// What is requested.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(crate) kind: Type,
    pub(crate) type_url: String,
    /// Empty means everything.
    pub(crate) names: Vec<String>,
    /// The encoded node.
    pub(crate) node: Bytes,
}

/// One resource as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ReceivedResource {
    /// Its own version, or that of the response if it has none.
    pub(crate) version: String,
    pub(crate) aliases: Vec<String>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) metadata: Option<Bytes>,
    pub(crate) resource: Any,
}

/// A change.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Change {
    Set {
        name: String,
        before: Option<ReceivedResource>,
    },
    Removed {
        name: String,
        before: ReceivedResource,
    },
    /// The server does not have a requested name.
    Absent {
        name: String,
    },
    /// The server reported an error for the name.
    Trouble {
        name: String,
        reason: String,
    },
    /// The server sent a type that was not requested; it is ignored.
    Unasked {
        type_url: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameStatus {
    Unknown,
    There,
    Absent,
    Trouble,
}

#[derive(Debug)]
pub(super) struct QueryState {
    question: Question,
    /// The variant of the last stream. Versions of one variant mean nothing in the other.
    variant: Option<Variant>,
    held: BTreeMap<String, ReceivedResource>,
    /// The state of each requested name, without wildcards and globs, for which there is no such state.
    statuses: BTreeMap<Name, NameStatus>,
    answered: bool,
}

impl QueryState {
    pub(crate) fn new(question: Question) -> Self {
        let single = question.names.iter().filter(|name| !is_open_ended(name));
        let statuses = single.map(|name| (Name::canonical(name), NameStatus::Unknown)).collect();
        Self { question, variant: None, held: BTreeMap::new(), statuses, answered: false }
    }

    pub(crate) fn question(&self) -> &Question {
        &self.question
    }

    pub(crate) fn held(&self) -> &BTreeMap<String, ReceivedResource> {
        &self.held
    }

    pub(crate) fn statuses(&self) -> &BTreeMap<Name, NameStatus> {
        &self.statuses
    }

    /// Whether more resources may always follow, so that only a quiet period ends the query.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.question.names.is_empty() || self.question.names.iter().any(|name| is_open_ended(name))
    }

    /// Whether every requested name is known to be present or absent; without names, whether anything has arrived.
    pub(crate) fn is_known(&self) -> bool {
        let unknown = self.statuses.values().any(|status| *status == NameStatus::Unknown);
        !unknown && (self.answered || !self.is_open_ended())
    }

    /// Returns the first request of a stream. Versions from an earlier stream are stated, where the variant allows it.
    pub(crate) fn open(&mut self, variant: Variant) -> Request {
        let before = self.variant.replace(variant);
        let Question { type_url, node, .. } = self.question.clone();
        let (node, names) = (Some(node), self.wanted());
        match variant {
            Variant::Sotw => {
                Request::Sotw(DiscoveryRequest { node, type_url, resource_names: names, ..Default::default() })
            }
            Variant::Delta => {
                let versions = self.held.iter().filter(|(_, held)| before == Some(variant) && !held.version.is_empty());
                Request::Delta(DeltaDiscoveryRequest {
                    node,
                    type_url,
                    resource_names_subscribe: names,
                    initial_resource_versions: versions
                        .map(|(name, held)| (name.clone(), held.version.clone()))
                        .collect(),
                    ..Default::default()
                })
            }
        }
    }

    /// Applies a response, and returns the changes and the next request.
    pub(crate) fn apply(&mut self, response: Response) -> (Vec<Change>, Option<Request>) {
        let type_url = match &response {
            Response::Sotw(response) => &response.type_url,
            Response::Delta(response) => &response.type_url,
        };
        // A server of a single type may leave the type out.
        if !type_url.is_empty() && type_name(type_url) != self.question.kind.name() {
            return (vec![Change::Unasked { type_url: type_url.clone() }], None);
        }
        self.answered = true;
        match response {
            Response::Sotw(response) => self.apply_sotw(response),
            Response::Delta(response) => self.apply_delta(response),
        }
    }

    fn apply_sotw(&mut self, response: DiscoveryResponse) -> (Vec<Change>, Option<Request>) {
        let mut changes = Vec::new();
        let mut named = BTreeSet::new();
        let only = response.resources.len() == 1;
        for (number, any) in response.resources.into_iter().enumerate() {
            let (name, held) = self.unwrapped(any, &response.version_info);
            let name = name.unwrap_or_else(|| self.name_of_nameless(only, number));
            named.insert(name.clone());
            self.set(name, held, Variant::Sotw, &mut changes);
        }
        if self.question.kind.info().full_state {
            let gone: Vec<_> = self.held.keys().filter(|name| !named.contains(*name)).cloned().collect();
            gone.iter().for_each(|name| self.gone(name, &mut changes));
            let there: BTreeSet<_> = named.iter().map(|name| Name::canonical(name)).collect();
            let absent: Vec<_> = self.statuses.keys().filter(|name| !there.contains(*name)).cloned().collect();
            absent.iter().for_each(|name| self.gone(name.as_str(), &mut changes));
        }
        self.take_errors(response.resource_errors, &mut changes);
        let answer = DiscoveryRequest {
            version_info: response.version_info,
            resource_names: self.wanted(),
            type_url: self.question.type_url.clone(),
            response_nonce: response.nonce,
            ..Default::default()
        };
        (changes, Some(Request::Sotw(answer)))
    }

    fn apply_delta(&mut self, response: DeltaDiscoveryResponse) -> (Vec<Change>, Option<Request>) {
        let mut changes = Vec::new();
        for resource in response.resources {
            self.take(resource, &mut changes);
        }
        let others = response.removed_resource_names.into_iter().map(|name| name.name);
        for name in response.removed_resources.into_iter().chain(others) {
            self.gone(&name, &mut changes);
        }
        self.take_errors(response.resource_errors, &mut changes);
        let (type_url, response_nonce) = (self.question.type_url.clone(), response.nonce);
        (changes, Some(Request::Delta(DeltaDiscoveryRequest { type_url, response_nonce, ..Default::default() })))
    }

    fn take(&mut self, resource: Resource, changes: &mut Vec<Change>) {
        let name = wrapper_name(&resource);
        let aliases = resource.aliases.clone();
        match held_of(resource) {
            Some(held) => {
                let name = name.or_else(|| self.name_in(&held.resource));
                let name = name.unwrap_or_else(|| self.name_of_nameless(true, 0));
                self.set(name, held, Variant::Delta, changes);
            }
            // Without a body, the resource is the one cached; if there is none, it does not exist (DELTA-39).
            None => {
                for name in name.into_iter().chain(aliases) {
                    if !self.held.contains_key(&name) {
                        self.gone(&name, changes);
                    }
                }
            }
        }
    }

    fn set(&mut self, name: String, held: ReceivedResource, variant: Variant, changes: &mut Vec<Change>) {
        for known in held.aliases.iter().chain([&name]) {
            self.mark(known, NameStatus::There);
        }
        let before = self.held.insert(name.clone(), held);
        let now = &self.held[&name];
        // In SotW the version is that of a set, not of one resource.
        let same = before.as_ref().is_some_and(|before| match variant {
            Variant::Delta => before == now,
            Variant::Sotw => *before == ReceivedResource { version: before.version.clone(), ..now.clone() },
        });
        if !same {
            changes.push(Change::Set { name, before });
        }
    }

    fn gone(&mut self, name: &str, changes: &mut Vec<Change>) {
        let was_absent = self.mark(name, NameStatus::Absent) == Some(NameStatus::Absent);
        let by_alias = || self.held.iter().find(|(_, held)| held.aliases.iter().any(|alias| alias == name));
        let key = match self.held.contains_key(name) {
            true => Some(name.to_owned()),
            false => by_alias().map(|(key, _)| key.clone()),
        };
        match key.and_then(|key| self.held.remove_entry(&key)) {
            Some((name, before)) => changes.push(Change::Removed { name, before }),
            None if !was_absent => changes.push(Change::Absent { name: name.into() }),
            None => {}
        }
    }

    fn take_errors(&mut self, errors: Vec<ResourceError>, changes: &mut Vec<Change>) {
        for error in errors {
            let name = error.resource_name.unwrap_or_default().name;
            let status = error.error_detail.unwrap_or_default();
            if status.code == NOT_FOUND {
                self.gone(&name, changes);
            } else {
                self.mark(&name, NameStatus::Trouble);
                let reason = format!("{} ({:?})", status.message, tonic::Code::from_i32(status.code));
                changes.push(Change::Trouble { name, reason });
            }
        }
    }

    /// Sets the state of a requested name, and returns the one before.
    fn mark(&mut self, name: &str, status: NameStatus) -> Option<NameStatus> {
        self.statuses.get_mut(&Name::canonical(name)).map(|held| std::mem::replace(held, status))
    }

    /// Returns the names for requests. Older servers know `*` only in its legacy form, if the type has one (UP-7).
    fn wanted(&self) -> Vec<String> {
        let everything = self.question.names.is_empty();
        match everything && !self.question.kind.info().empty_first.is_wildcard() {
            true => vec![WILDCARD.into()],
            false => self.question.names.clone(),
        }
    }
}

fn wrapper_name(resource: &Resource) -> Option<String> {
    let other = || resource.resource_name.as_ref().map(|name| name.name.clone());
    Some(resource.name.clone()).filter(|name| !name.is_empty()).or_else(other).filter(|name| !name.is_empty())
}

fn held_of(resource: Resource) -> Option<ReceivedResource> {
    let ttl = resource.ttl.and_then(|ttl| Duration::try_from(ttl).ok());
    let Resource { version, aliases, metadata, .. } = resource;
    Some(ReceivedResource { version, aliases, ttl, metadata, resource: resource.resource? })
}

/// Whether it is `*` or a glob, which stand for all names that match.
fn is_open_ended(name: &str) -> bool {
    name == WILDCARD || (Xdstp::is_new_style(name) && Xdstp::parse(name).is_ok_and(|name| name.is_glob()))
}

fn type_name(type_url: &str) -> &str {
    type_url.rsplit_once('/').map_or(type_url, |(_, name)| name)
}

#[cfg(test)]
mod tests;
mod unwrap;
