//! Requests of one type in either variant, and what remains for the next one.

use std::collections::BTreeMap;

use super::quirks::ServerQuirks;
use super::type_subscription::TypeSubscription;
use crate::proto::Request;
use crate::proto::code::INVALID_ARGUMENT;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::view::Class;
use crate::xds::{Name, Type, WILDCARD};

impl TypeSubscription {
    pub(crate) fn next_request(
        &mut self,
        kind: &Type,
        variant: Variant,
        now: Moment,
        rules: &ServerQuirks,
        limits: &Limits,
    ) -> Option<Request> {
        let ripe = self.wire.changed && now >= self.wire.next_at;
        let askable = variant == Variant::Delta || self.wildcard || self.names.len() > self.globs.len();
        let first = !self.wire.opened && self.is_wanted() && askable;
        if !first && !ripe && self.wire.pending_acks.is_empty() {
            return None;
        }
        if !(self.wire.opened || askable && self.is_wanted()) {
            self.wire.changed = false; // wanted and dropped again before anything was sent
            return None;
        }
        let sent = self.wire.changed;
        let request = match variant {
            Variant::Sotw => Request::Sotw(self.sotw_request(kind, first, rules)),
            Variant::Delta => Request::Delta(self.delta_request(kind, first, rules)),
        };
        if sent && !self.wire.changed {
            self.wire.next_at = now + limits.interest_window;
        }
        Some(request)
    }

    fn sotw_request(&mut self, kind: &Type, first: bool, rules: &ServerQuirks) -> DiscoveryRequest {
        let pending = self.wire.pending_acks.pop_front();
        if let Some(pending) = &pending {
            self.wire.nonce.clone_from(&pending.nonce);
        }
        // If a response need not be complete, a server could take the version to mean that Weir has everything (UP-13).
        let unsafe_to_state = first && !(self.class == Class::Wildcard && kind.info().full_state);
        let version = pending.as_ref().map_or(&self.accepted, |pending| &pending.version);
        let mut request = DiscoveryRequest {
            version_info: if unsafe_to_state { String::new() } else { version.clone() },
            type_url: url_of(kind),
            response_nonce: self.wire.nonce.clone(),
            error_detail: pending.and_then(|pending| pending.error).map(nack_status),
            ..DiscoveryRequest::default()
        };
        if self.class == Class::Wildcard {
            request.resource_names = self.wildcard_list(kind, first);
        } else {
            request.resource_names = self.name_list(first, rules);
        }
        self.wire.opened = true;
        request
    }

    /// `*` alone is sent in the form that every server knows (UP-7), and is unsubscribed by way of its explicit name: to a server
    /// that was never sent a name, an empty list still means everything (UP-8).
    fn wildcard_list(&mut self, kind: &Type, first: bool) -> Vec<String> {
        let legacy_form = kind.info().empty_first.is_wildcard() && !self.wire.named;
        if self.wire.wildcard_dropped && !self.wire.named {
            self.wire.named = true;
            return vec![WILDCARD.into()];
        }
        if std::mem::take(&mut self.wire.wildcard_dropped) {
            self.wire.wildcard_sent = false;
            if !self.wildcard {
                self.wire.changed = false;
            }
            return Vec::new();
        }
        self.wire.changed = false;
        if !self.wildcard {
            return Vec::new();
        }
        self.wire.wildcard_sent = true;
        if legacy_form && (first || !self.wire.named) {
            return Vec::new();
        }
        self.wire.named = true;
        vec![WILDCARD.into()]
    }

    fn name_list(&mut self, first: bool, rules: &ServerQuirks) -> Vec<String> {
        if first {
            self.wire.subscribe = self.names.clone();
        }
        let twice = !first && self.wire.subscribe.iter().any(|name| self.wire.unsubscribe.contains(name));
        let left = std::mem::take(&mut self.wire.unsubscribe);
        if !first {
            self.recently_left.leave(left);
        }
        let subscribed = |name: &&Name| !self.globs.has(name) && (!twice || !self.wire.subscribe.contains(*name));
        let mut list: Vec<_> = self.names.iter().filter(subscribed).map(|name| name.as_str().to_owned()).collect();
        if list.is_empty() && !rules.supports_empty_subscription {
            list.push(NOTHING.into());
        }
        if !twice {
            self.requested.hand_out(std::mem::take(&mut self.wire.subscribe), first);
            self.wire.changed = false;
        }
        self.wire.named = true;
        list
    }

    fn delta_request(&mut self, kind: &Type, first: bool, rules: &ServerQuirks) -> DeltaDiscoveryRequest {
        let pending = self.wire.pending_acks.pop_front();
        let (nonce, error) = pending.map(|pending| (pending.nonce, pending.error)).unwrap_or_default();
        let mut request = DeltaDiscoveryRequest {
            type_url: url_of(kind),
            response_nonce: nonce,
            error_detail: error.map(nack_status),
            ..DeltaDiscoveryRequest::default()
        };
        let text = |name: &Name| name.as_str().to_owned();
        if first {
            request.initial_resource_versions = self.stated(rules);
            self.wire.stated = !request.initial_resource_versions.is_empty();
            self.wire.subscribe = self.names.clone();
            self.wire.unsubscribe.clear();
        }
        let ripe = first || self.wire.changed;
        let twice = self.wire.subscribe.iter().any(|name| self.wire.unsubscribe.contains(name))
            || (self.wire.wildcard_dropped && self.wildcard);
        if ripe {
            request.resource_names_unsubscribe = self.wire.unsubscribe.iter().map(text).collect();
            self.wire.unsubscribe.clear();
            if std::mem::take(&mut self.wire.wildcard_dropped) {
                self.wire.wildcard_sent = false;
                request.resource_names_unsubscribe.push(WILDCARD.into());
            }
            if !twice {
                request.resource_names_subscribe = self.wire.subscribe.iter().map(text).collect();
                self.requested.hand_out(std::mem::take(&mut self.wire.subscribe), first);
                if self.wildcard && !std::mem::replace(&mut self.wire.wildcard_sent, true) {
                    let legacy_form = kind.info().empty_first.is_wildcard() && first;
                    request.resource_names_subscribe.extend((!legacy_form).then(|| WILDCARD.to_owned()));
                }
                self.wire.changed = false;
            }
        }
        self.wire.opened = true;
        request
    }

    /// Returns what is cached, under the versions that the server gave, and what clients hold, under a version that no server
    /// gives.
    fn stated(&self, rules: &ServerQuirks) -> BTreeMap<String, String> {
        if !rules.supports_initial_resource_versions {
            return BTreeMap::new();
        }
        let unknown = self.second_request.names.iter().map(|name| (name.to_string(), UNKNOWN.to_owned()));
        let held = self.versions.iter().filter(|(name, _)| !self.with_ttl.contains(*name));
        let version = |name| if self.unconfirmed.contains(name) { UNKNOWN } else { &self.versions[name] };
        unknown.chain(held.map(|(name, _)| (name.to_string(), version(name).to_owned()))).collect()
    }
}

fn nack_status(message: String) -> Status {
    Status { code: INVALID_ARGUMENT, message, details: Vec::new() }
}

fn url_of(kind: &Type) -> String {
    format!("type.googleapis.com/{}", kind.name())
}

/// A name that no resource has, for servers that read an empty list as everything (UP-9).
const NOTHING: &str = "weir.nothing";
/// A version that no server gives. An empty one makes some servers send nothing.
const UNKNOWN: &str = "weir-unknown";
