//! What a server has sent for a query, in either variant. Pure: responses go in, changes and the next request come out.
//!
//! It ACKs everything: operators want to see the resources, valid or not.

mod received;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use weir_core::proto::code::NOT_FOUND;
use weir_core::proto::discovery::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource, ResourceError,
};
use weir_core::proto::{Request, Response};
use weir_core::protocol::session::Variant;
use weir_core::xds::{Name, Type, TypeTable, WILDCARD, Xdstp};

pub(super) use self::received::ReceivedResource;
use self::received::{name_in, name_of_nameless, received_of, unwrapped, wrapper_name};

/// What is requested.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(crate) kind: Type,
    pub(crate) type_url: String,
    /// The requested names. An empty list means all resources.
    pub(crate) names: Vec<String>,
    /// The encoded node.
    pub(crate) node: Bytes,
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
    /// The variant of the last stream. Versions of one variant are meaningless in the other.
    variant: Option<Variant>,
    received: BTreeMap<String, ReceivedResource>,
    /// The state of each requested name, without wildcards and globs, for which there is no such state.
    statuses: BTreeMap<Name, NameStatus>,
    answered: bool,
    /// Version and nonce of the last response of the stream, for a request of more names.
    last: (String, String),
}

impl QueryState {
    pub(crate) fn new(question: Question) -> Self {
        let single = question.names.iter().filter(|name| !is_open_ended(name));
        let statuses = single.map(|name| (Name::canonical(name), NameStatus::Unknown)).collect();
        Self { question, variant: None, received: BTreeMap::new(), statuses, answered: false, last: Default::default() }
    }

    pub(crate) fn question(&self) -> &Question {
        &self.question
    }

    pub(crate) fn received(&self) -> &BTreeMap<String, ReceivedResource> {
        &self.received
    }

    pub(crate) fn statuses(&self) -> &BTreeMap<Name, NameStatus> {
        &self.statuses
    }

    /// Whether more resources may always follow, so that only a quiet period can end the query.
    pub(crate) fn is_open_ended(&self) -> bool {
        self.question.names.is_empty() || self.question.names.iter().any(|name| is_open_ended(name))
    }

    /// Whether every requested name is known to be present or absent; without names, whether anything has arrived.
    pub(crate) fn is_known(&self) -> bool {
        let unknown = self.statuses.values().any(|status| *status == NameStatus::Unknown);
        !unknown && (self.answered || !self.is_open_ended())
    }

    /// Returns the first request of a stream. It states versions from an earlier stream if the variant allows that.
    pub(crate) fn open(&mut self, variant: Variant) -> Request {
        let before = self.variant.replace(variant);
        self.last = Default::default();
        let Question { type_url, node, .. } = self.question.clone();
        let (node, names) = (Some(node), self.wanted());
        match variant {
            Variant::Sotw => {
                Request::Sotw(DiscoveryRequest { node, type_url, resource_names: names, ..Default::default() })
            }
            Variant::Delta => {
                let versions = self
                    .received
                    .iter()
                    .filter(|(_, received)| before == Some(variant) && !received.version.is_empty());
                Request::Delta(DeltaDiscoveryRequest {
                    node,
                    type_url,
                    resource_names_subscribe: names,
                    initial_resource_versions: versions
                        .map(|(name, received)| (name.clone(), received.version.clone()))
                        .collect(),
                    ..Default::default()
                })
            }
        }
    }

    /// Requests more names for a query by names. Returns the request if a stream is open and a name is new.
    pub(crate) fn also(&mut self, names: impl IntoIterator<Item = String>) -> Option<Request> {
        let mut new = Vec::new();
        for name in names {
            if !self.question.names.contains(&name) {
                self.statuses.entry(Name::canonical(&name)).or_insert(NameStatus::Unknown);
                self.question.names.push(name.clone());
                new.push(name);
            }
        }
        let (type_url, (version_info, response_nonce)) = (self.question.type_url.clone(), self.last.clone());
        match self.variant.filter(|_| !new.is_empty())? {
            Variant::Sotw => {
                let resource_names = self.question.names.clone();
                let request =
                    DiscoveryRequest { version_info, resource_names, type_url, response_nonce, ..Default::default() };
                Some(Request::Sotw(request))
            }
            Variant::Delta => {
                let resource_names_subscribe = new;
                Some(Request::Delta(DeltaDiscoveryRequest { type_url, resource_names_subscribe, ..Default::default() }))
            }
        }
    }

    /// Applies a response, and returns the changes and the next request.
    pub(crate) fn apply(&mut self, response: Response) -> (Vec<Change>, Option<Request>) {
        let type_url = match &response {
            Response::Sotw(response) => &response.type_url,
            Response::Delta(response) => &response.type_url,
        };
        // A server with a single type may leave out the type.
        if !type_url.is_empty() && TypeTable::new().resolve(type_url) != self.question.kind {
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
            let (name, received) = unwrapped(any, &self.question.kind, &response.version_info);
            let name = name.unwrap_or_else(|| name_of_nameless(&self.question.names, only, number));
            named.insert(name.clone());
            self.set(name, received, Variant::Sotw, &mut changes);
        }
        if self.question.kind.info().full_state {
            let gone: Vec<_> = self.received.keys().filter(|name| !named.contains(*name)).cloned().collect();
            gone.iter().for_each(|name| self.gone(name, &mut changes));
            let there: BTreeSet<_> = named.iter().map(|name| Name::canonical(name)).collect();
            let absent: Vec<_> = self.statuses.keys().filter(|name| !there.contains(*name)).cloned().collect();
            absent.iter().for_each(|name| self.gone(name.as_str(), &mut changes));
        }
        self.take_errors(response.resource_errors, &mut changes);
        self.last = (response.version_info.clone(), response.nonce.clone());
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
        match received_of(resource) {
            Some(received) => {
                let name = name.or_else(|| name_in(&received.resource, &self.question.kind));
                let name = name.unwrap_or_else(|| name_of_nameless(&self.question.names, true, 0));
                self.set(name, received, Variant::Delta, changes);
            }
            // A resource without a body is unchanged; if none is cached, it does not exist (DELTA-39).
            None => {
                for name in name.into_iter().chain(aliases) {
                    if !self.received.contains_key(&name) {
                        self.gone(&name, changes);
                    }
                }
            }
        }
    }

    fn set(&mut self, name: String, received: ReceivedResource, variant: Variant, changes: &mut Vec<Change>) {
        for known in received.aliases.iter().chain([&name]) {
            self.mark(known, NameStatus::There);
        }
        let before = self.received.insert(name.clone(), received);
        let now = &self.received[&name];
        // In SotW the version is that of the set, not of one resource.
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
        let by_alias = || self.received.iter().find(|(_, received)| received.aliases.iter().any(|alias| alias == name));
        let key = match self.received.contains_key(name) {
            true => Some(name.to_owned()),
            false => by_alias().map(|(key, _)| key.clone()),
        };
        match key.and_then(|key| self.received.remove_entry(&key)) {
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

    /// Sets the state of a requested name, and returns the previous one.
    fn mark(&mut self, name: &str, status: NameStatus) -> Option<NameStatus> {
        self.statuses.get_mut(&Name::canonical(name)).map(|received| std::mem::replace(received, status))
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

/// Whether a name is `*` or a glob, which stand for all names that match.
pub(super) fn is_open_ended(name: &str) -> bool {
    name == WILDCARD || (Xdstp::is_new_style(name) && Xdstp::parse(name).is_ok_and(|name| name.is_glob()))
}

#[cfg(test)]
mod tests;
