//! Requests of one type in either variant: which names they have room for, and what remains for the next one.

use std::collections::BTreeSet;

use prost::Message;
use xxhash_rust::xxh3::xxh3_64;

use super::quirks::ServerQuirks;
use super::request_room::{RequestRoom, field_bytes, name_bytes, version_bytes};
use super::requested_names::Globs;
use super::stream::Epoch;
use super::type_subscription::TypeSubscription;
use super::versions::UNKNOWN;
use crate::proto::Request;
use crate::proto::code::INVALID_ARGUMENT;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::view::{Class, NoRoom, Selector, Update};
use crate::xds::{END_OF_SET, Name, Type, WILDCARD};

/// What a subscription needs to make a request.
pub(super) struct RequestContext<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) variant: Variant,
    /// The encoded node, and whether the next request of the stream has it.
    pub(crate) node: &'a [u8],
    pub(crate) has_node: bool,
    pub(crate) epoch: Epoch,
    pub(crate) quirks: &'a ServerQuirks,
    pub(crate) limits: &'a Limits,
    pub(crate) now: Moment,
}

impl RequestContext<'_> {
    pub(super) fn type_url(&self) -> String {
        format!("type.googleapis.com/{}", self.kind.name())
    }

    /// Returns a name that no other opening has asked with, nor another process as far as their clocks differ.
    fn made_up_name(&self) -> Name {
        let time = (self.now - Moment::START).as_nanos().to_le_bytes();
        let opening = [self.node, self.kind.name().as_bytes(), &self.epoch.number().to_le_bytes(), &time].concat();
        format!("{END_OF_SET}{:016x}", xxh3_64(&opening)).as_str().into()
    }
}

impl TypeSubscription {
    pub(crate) fn next_request(&mut self, of: &RequestContext) -> Option<Request> {
        let ripe = self.wire.changed && of.now >= self.wire.next_at;
        let unopened = !self.wire.opened && self.is_wanted();
        if !unopened && !ripe && self.wire.pending_acks.is_empty() {
            return None;
        }
        if self.wire.changed || unopened {
            self.fit_names(of);
        }
        let names = match of.variant {
            Variant::Delta => self.names.len(),
            Variant::Sotw => self.names.len().saturating_sub(self.globs.len()),
        };
        let first = !self.wire.opened && (self.wildcard || names > 0);
        if !self.wire.opened && !first {
            self.wire.changed = false; // wanted and dropped again before anything was sent, or not requestable
            return None;
        }
        let sent = self.wire.changed;
        let request = match of.variant {
            Variant::Sotw => Request::Sotw(self.sotw_request(of, first)),
            Variant::Delta => Request::Delta(self.delta_request(of, first)),
        };
        if first {
            self.expect_answers(of.kind, of.variant, of.quirks.per_type_liveness);
        }
        if self.wire.changed {
            self.wire.next_at = self.wire.next_at.min(of.now); // the rest follows at once
        } else if sent {
            self.wire.next_at = of.now + of.limits.interest_window;
        }
        Some(request)
    }

    /// Returns the name that asks for the end of the set, if the server may know some of the set already.
    fn next_end_question(&self, of: &RequestContext) -> Option<Name> {
        let knows_some = !self.versions.is_empty() || !self.given_earlier.is_empty() || !self.second_request.is_empty();
        let is_off = of.limits.faults.has(Fault::EndIsNotAsked);
        let asks = self.wildcard && knows_some && self.can_ask_for_end(of.quirks) && !is_off;
        asks.then(|| of.made_up_name())
    }

    fn sotw_request(&mut self, of: &RequestContext, first: bool) -> DiscoveryRequest {
        let pending = self.wire.pending_acks.pop_front();
        if let Some(pending) = &pending {
            self.wire.nonce.clone_from(&pending.nonce);
        }
        // If a response need not be complete, a server could take the version to mean that Weir has everything (UP-13).
        let unsafe_to_state = first && !(self.class == Class::Wildcard && of.kind.info().full_state);
        let version = pending.as_ref().map_or(&self.accepted, |pending| &pending.version);
        let mut request = DiscoveryRequest {
            version_info: if unsafe_to_state { String::new() } else { version.clone() },
            type_url: of.type_url(),
            response_nonce: self.wire.nonce.clone(),
            error_detail: pending.and_then(|pending| pending.error).map(nack_status),
            ..DiscoveryRequest::default()
        };
        if self.class == Class::Wildcard {
            request.resource_names = self.wildcard_list(of.kind, first);
        } else {
            request.resource_names = self.name_list(first, of.quirks);
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
        list
    }

    fn delta_request(&mut self, of: &RequestContext, first: bool) -> DeltaDiscoveryRequest {
        let pending = self.wire.pending_acks.pop_front();
        let is_ack = pending.is_some();
        let (nonce, error) = pending.map(|pending| (pending.nonce, pending.error)).unwrap_or_default();
        let mut request = DeltaDiscoveryRequest {
            type_url: of.type_url(),
            response_nonce: nonce,
            error_detail: error.map(nack_status),
            ..DeltaDiscoveryRequest::default()
        };
        let node_bytes = if of.has_node { field_bytes(of.node.len()) } else { 0 };
        let mut room = RequestRoom::new(of.quirks.max_request_bytes, request.encoded_len() + node_bytes);
        if first || !is_ack {
            room = room.with_a_name();
        }
        let wildcards = usize::from(self.wildcard) + usize::from(self.wire.wildcard_dropped);
        room.take(wildcards * name_bytes(WILDCARD));
        let mut subscribed = BTreeSet::new();
        if first {
            self.wire.subscribe = self.names.clone();
            self.wire.unsubscribe.clear();
            let question = self.next_end_question(of).filter(|name| room.take(version_bytes(name, UNKNOWN)));
            (subscribed, request.initial_resource_versions) = self.state_versions(of.quirks, &mut room);
            self.wire.stated = !request.initial_resource_versions.is_empty();
            if let Some(name) = question {
                request.initial_resource_versions.insert(name.to_string(), UNKNOWN.to_owned());
                self.end_question.ask(name, self.with_ttl.clone());
            }
            self.wire.subscribe.retain(|name| !subscribed.contains(name));
        }
        let text = |name: Name| name.as_str().to_owned();
        if first || self.wire.changed {
            let twice = self.wire.subscribe.iter().any(|name| self.wire.unsubscribe.contains(name))
                || (self.wire.wildcard_dropped && self.wildcard);
            if std::mem::take(&mut self.wire.wildcard_dropped) {
                self.wire.wildcard_sent = false;
                request.resource_names_unsubscribe.push(WILDCARD.into());
            }
            request
                .resource_names_unsubscribe
                .extend(room.take_names(&mut self.wire.unsubscribe).into_iter().map(text));
            if !twice && self.wire.unsubscribe.is_empty() {
                if self.wildcard && !std::mem::replace(&mut self.wire.wildcard_sent, true) {
                    let legacy_form = of.kind.info().empty_first.is_wildcard() && first;
                    request.resource_names_subscribe.extend((!legacy_form).then(|| WILDCARD.to_owned()));
                }
                subscribed.append(&mut room.take_names(&mut self.wire.subscribe));
                request.resource_names_subscribe.extend(subscribed.iter().cloned().map(text));
                self.requested.hand_out(subscribed, first);
                self.wire.changed = !self.wire.subscribe.is_empty();
            }
        }
        self.wire.opened = true;
        request
    }
}

fn nack_status(message: String) -> Status {
    Status { code: INVALID_ARGUMENT, message }
}

/// A name that no resource has, for servers that read an empty list as everything (UP-9).
const NOTHING: &str = "weir.nothing";

impl TypeSubscription {
    /// Decides which of the wanted names the next request can have: older names come before newer ones, and a name that the
    /// server was sent on this opening stays.
    pub(super) fn fit_names(&mut self, of: &RequestContext) {
        let new = std::mem::take(&mut self.left_out.new);
        let limit = of.room_for_names();
        let (first, sotw) = (!self.wire.opened, of.variant == Variant::Sotw);
        let mut room = RequestRoom::new(limit, 0);
        let mut fits = |name: &Name, globs: &Globs| match of.variant {
            Variant::Delta => name_bytes(name.as_str()) <= limit,
            Variant::Sotw => globs.has(name) || room.take(name_bytes(name.as_str())),
        };
        let (mut out, mut back) = (Vec::new(), Vec::new());
        if first || sotw {
            let older = self.names.iter().filter(|name| !new.contains(*name));
            out.extend(older.filter(|name| !fits(name, &self.globs) && first).cloned());
        }
        back.extend(self.left_out.all().filter(|name| fits(name, &self.globs)).cloned());
        out.extend(new.into_iter().filter(|name| !fits(name, &self.globs)));
        for name in out {
            self.want(Selector::Name(name.clone()), false, false);
            self.left_out.insert(name, || NoRoom::InRequest(of.quirks.max_request_bytes).error());
        }
        for name in back {
            self.left_out.remove(&name);
            self.want(Selector::Name(name), true, false);
        }
        self.left_out.new.clear();
    }

    /// Reports an error for each name that is left out, once.
    pub(crate) fn report_left_out(&mut self, kind: &Type) -> Vec<Update> {
        let Some((names, error)) = self.left_out.take_unreported() else { return Vec::new() };
        names.into_iter().map(|key| Update::Error { kind: kind.clone(), key, error: error.clone() }).collect()
    }
}

impl RequestContext<'_> {
    /// Returns the bytes that a request has for names beside a nonce, a version and an error text.
    fn room_for_names(&self) -> usize {
        let limit = self.quirks.max_request_bytes;
        let others = field_bytes(self.node.len()) + field_bytes(self.type_url().len()) + (limit / 8).min(OTHER_FIELDS);
        limit.saturating_sub(others)
    }
}

/// An error text has 4 KiB at most; servers keep nonces and versions short.
const OTHER_FIELDS: usize = 8 << 10;
