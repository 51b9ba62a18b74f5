//! One stream at the origin: the client's subscriptions, and how far the origin has served them.

use std::collections::{BTreeMap, BTreeSet};

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::faults::{Fault, Faults};
use super::world::Name;
use crate::kind::Kind;
use crate::wire::Variant;

pub struct Session {
    pub(super) variant: Variant,
    pub(super) faults: Faults,
    pub(super) topics: [Topic; 4],
    pub(super) replies: u64,
    /// The resource whose changes the fault `forget-change` hides from the client.
    pub(super) forgotten: Option<Name>,
    /// Whether the client has answered a response. All that it requested when it opened the stream has been read then.
    has_answered: bool,
    number: u64,
}

/// One type of a stream.
#[derive(Debug, Default)]
pub(super) struct Topic {
    pub is_subscribed: bool,
    pub is_wildcard: bool,
    pub names: BTreeSet<Name>,
    /// The update up to which the client has been served; 0 before the first response.
    pub cursor: u64,
    /// Names that are due although they have not changed: new subscriptions.
    pub forced: BTreeSet<Name>,
    /// Whether everything is due, changed or not.
    pub is_repeated: bool,
    /// The cursor at which the fault has repeated a response, so that it does so only once.
    pub repeated_at: u64,
    /// Versions that the client stated in its first request (delta).
    pub stated: BTreeMap<Name, String>,
    pub last_nonce: String,
    /// The names in the last response.
    pub last_sent: BTreeSet<Name>,
}

impl Topic {
    pub fn sees(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name)
    }
}

impl Session {
    pub fn new(variant: Variant, number: u64, faults: Faults) -> Self {
        let topics = Default::default();
        Self { variant, faults, topics, replies: 0, forgotten: None, has_answered: false, number }
    }

    /// Applies a request. Types that the origin does not have are ignored.
    pub fn on_request(&mut self, request: &Request, only: Option<Kind>) {
        let Some(kind) = only.or_else(|| Kind::of_url(request.type_url())) else { return };
        let nonce = match request {
            Request::Sotw(request) => &request.response_nonce,
            Request::Delta(request) => &request.response_nonce,
        };
        self.has_answered |= !nonce.is_empty();
        let repeats = request.is_nack() && self.faults.has(Fault::ResendAfterNack);
        let topic = &mut self.topics[kind as usize];
        match request {
            Request::Sotw(request) => topic.on_sotw(kind, request),
            Request::Delta(request) => topic.on_delta(kind, request),
        }
        if repeats && topic.repeated_at != topic.cursor {
            topic.repeated_at = topic.cursor;
            topic.is_repeated = self.variant == Variant::Sotw;
            topic.forced.extend(topic.last_sent.iter().cloned());
        }
    }

    /// Whether what the client stated is not removed yet: clusters, as its routes may refer to them, and its request for routes may not
    /// have been read. A client of all clusters gets a response in any case, and with its answer the wait is over.
    pub(super) fn keeps_stated(&self, kind: Kind) -> bool {
        let routes = &self.topics[Kind::Route as usize];
        let is_all = self.topics[kind as usize].is_wildcard;
        kind == Kind::Cluster && is_all && !routes.is_subscribed && !self.has_answered
    }

    pub(super) fn next_nonce(&mut self) -> String {
        self.replies += 1;
        let count = if self.faults.has(Fault::RepeatNonce) { self.replies.min(2) } else { self.replies };
        if self.faults.has(Fault::EmptyNonce) && count > 1 { String::new() } else { format!("{}-{count}", self.number) }
    }
}

impl Topic {
    fn on_sotw(&mut self, kind: Kind, request: &DiscoveryRequest) {
        if !request.response_nonce.is_empty() && request.response_nonce != self.last_nonce {
            return; // it answers an earlier response; the ACK of the last one is on its way
        }
        let names: BTreeSet<Name> = request.resource_names.iter().map(|name| Name::from(&**name)).collect();
        let had_names = !self.names.is_empty();
        let first = !self.is_subscribed;
        self.is_subscribed = true;
        self.is_wildcard = names.contains("*")
            || names.is_empty() && kind.is_full_state() && (first || self.is_wildcard && !had_names);
        self.forced.retain(|name| names.contains(name));
        self.forced.extend(names.difference(&self.names).filter(|name| &***name != "*").cloned());
        self.names = names;
    }

    fn on_delta(&mut self, kind: Kind, request: &DeltaDiscoveryRequest) {
        if !self.is_subscribed {
            self.is_subscribed = true;
            self.is_wildcard = request.resource_names_subscribe.is_empty() && kind.is_full_state();
            let stated = request.initial_resource_versions.iter();
            self.stated = stated.map(|(name, version)| (Name::from(&**name), version.clone())).collect();
        }
        for name in &request.resource_names_subscribe {
            match &**name {
                "*" => self.is_wildcard = true,
                name => {
                    self.names.insert(name.into());
                    self.forced.insert(name.into());
                }
            }
        }
        for name in &request.resource_names_unsubscribe {
            match &**name {
                "*" => self.is_wildcard = false,
                name => {
                    self.names.remove(name);
                    self.forced.remove(name);
                }
            }
        }
    }
}
