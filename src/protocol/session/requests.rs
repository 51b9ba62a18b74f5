//! Applies a client's requests: both variants become one kind of subscription.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::acks::Ack;
use super::client::Client;
use super::nack_reason::clean;
use super::nacks::Answered;
use super::reply::Lag;
use super::requested_names::{NameParser, RequestedNames};
use super::subscription::{Pending, SentState, Subscription};
use super::wildcard::{InitialVersions, Wildcard, Withheld};
use super::{Session, Variant};
use crate::proto::Request;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::view::{InterestChange, Revision, Selector};
use crate::xds::{EmptyFirst, HeldVersions, Name, References, Role, StatedEntries, Type};

/// Why a request ends its stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// An aggregated stream needs a type in each request.
    #[error("request without type_url on an aggregated stream")]
    NoType,
    /// The type is not the one that the service serves.
    #[error("invalid type_url {requested}: this stream serves {served}")]
    OtherType {
        /// The URL in the request.
        requested: String,
        /// The type that the service serves.
        served: String,
    },
    /// The permissions do not list the type for this client.
    #[error("type {kind} is not permitted: rule {rule} of permissions lists others")]
    TypeNotPermitted {
        /// The full name of the type.
        kind: String,
        /// The rule for this client.
        rule: Arc<str>,
    },
    /// The request is of the other variant.
    #[error("invalid request: SotW and delta cannot be mixed on a stream")]
    Variant,
    /// The stream subscribes to more types than this limit.
    #[error("too many types on one stream: limit {0} (limits.types_per_stream)")]
    TooManyTypes(usize),
    /// The stream subscribes to more names of a type than this limit.
    #[error("too many names of one type on one stream: limit {0} (limits.names_per_type)")]
    TooManyNames(usize),
    /// Names of all types on the stream, and what it states that it has.
    #[error(
        "too many names on one stream, with those in initial_resource_versions: limit {0} (limits.names_per_stream)"
    )]
    TooManyNamesOnStream(usize),
    /// Clients state that they hold more than this limit in bytes, and this stream costs most of it.
    #[error(
        "too many versions in initial_resource_versions: the limit for all clients is {0} bytes \
         (limits.stated_versions_bytes); retry later"
    )]
    TooManyStatedVersions(usize),
}

impl Session {
    pub(super) fn apply_request(
        &mut self,
        request: Request,
        stated: Option<HeldVersions>,
        now: Moment,
    ) -> Result<Option<Ack>, BadRequest> {
        let (url, nonce, error) = match &request {
            Request::Sotw(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
        };
        let (kind, url) = self.meant(url)?;
        if let Some(rule) = self.client.clearance.rule_against(&kind) {
            return Err(BadRequest::TypeNotPermitted { kind: kind.name().to_owned(), rule: rule.clone() });
        }
        if self.subscriptions.len() >= self.limits.types && !self.subscriptions.contains_key(&kind) {
            return Err(BadRequest::TooManyTypes(self.limits.types));
        }
        let before = self.nacked_version(&kind);
        let answer = self.apply_ack(&kind, nonce, error.as_ref(), now);
        let is_nacked = before.is_some() || self.nacked_version(&kind).is_some();
        let nacked = is_nacked.then(|| kind.clone());
        match (self.client.variant, request) {
            // Types that are not served at all, or not in SotW, are no reason to end the stream (TRN-3, TRN-15).
            _ if !self.table.serves(&kind) => self.unserved += 1,
            (Variant::Sotw, Request::Sotw(_)) if kind.info().delta_only => self.unserved += 1,
            (Variant::Sotw, Request::Sotw(request)) => self.take_sotw(kind, &url, request, now),
            (Variant::Delta, Request::Delta(request)) => self.take_delta(kind, &url, request, stated, now),
            _ => return Err(BadRequest::Variant),
        }
        if let Some(kind) = nacked {
            self.note_nack_change(kind, before);
        }
        let limit = self.limits.names;
        if self.subscriptions.values().any(|subscription| subscription.longest_list() > limit) {
            return Err(BadRequest::TooManyNames(limit));
        }
        let total = |subscription: &Subscription| subscription.longest_list() + subscription.initial_version_count();
        if self.subscriptions().map(|(_, subscription)| total(subscription)).sum::<usize>()
            > self.limits.names_per_stream
        {
            return Err(BadRequest::TooManyNamesOnStream(self.limits.names_per_stream));
        }
        Ok(answer)
    }

    /// Returns the type that a request is for, and its URL in the client's spelling.
    pub(super) fn meant(&self, url: &str) -> Result<(Type, String), BadRequest> {
        match &self.client.only {
            None if url.is_empty() => Err(BadRequest::NoType),
            None => match self.table.resolve(url) {
                kind if kind.name().is_empty() => Err(BadRequest::NoType),
                kind => Ok((kind, url.to_owned())),
            },
            Some(only) if url.is_empty() => Ok((only.clone(), format!("type.googleapis.com/{}", only.name()))),
            Some(only) => {
                let kind = self.table.resolve(url);
                let served = only.name().to_owned();
                let kin = kind.same_kind(only);
                if kin {
                    Ok((kind, url.to_owned()))
                } else {
                    Err(BadRequest::OtherType { requested: url.to_owned(), served })
                }
            }
        }
    }

    fn apply_ack(&mut self, kind: &Type, nonce: &str, error: Option<&Status>, now: Moment) -> Option<Ack> {
        if nonce.is_empty() {
            return None;
        }
        let limit = self.limits.error_bytes;
        let subscription = self.subscriptions.get_mut(kind)?;
        let nack = error.map(|status| (status.code, clean(&status.message, limit).into()));
        let (since, unanswered) = (subscription.acks.unanswered_since(), subscription.acks.unanswered(nonce));
        let answer = subscription.acks.answer(nonce, nack, now);
        let acknowledged = unanswered.filter(|_| matches!(answer, Ack::Ack { .. }));
        let waits_since = subscription.acks.unanswered_since();
        let is_news = !subscription.asks_once && (answer != Ack::UnknownNonce || since != waits_since);
        self.answered = is_news.then(|| Answered {
            kind: kind.clone(),
            is_ack: acknowledged.is_some(),
            lag: acknowledged.map(|reply| reply.carried.lag(now)).unwrap_or_default(),
            waited_since: since.filter(|_| since != waits_since),
            waits_since: waits_since.filter(|_| since != waits_since),
        });
        if kind.is(Role::Clusters) {
            self.hold.answered(answer, now, &self.limits);
        }
        if matches!(answer, Ack::Nack { .. }) && self.limits.faults.has(Fault::NackForgets) {
            subscription.pending.clear();
            subscription.names.clear();
        }
        Some(answer)
    }

    fn take_sotw(&mut self, kind: Type, url: &str, request: DiscoveryRequest, now: Moment) {
        let reader = NameParser { kind: &kind, client: &self.client, authorities: &self.authorities };
        let mut list = RequestedNames::of(request.resource_names, request.resource_locators, &reader);
        let legacy = has_legacy_wildcard(&kind, &self.client);
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind.clone()).or_insert_with(|| Box::new(Subscription::new(url)));
        subscription.asked = now;
        // Each request repeats the list: only what exceeds the last count is new.
        self.rejected_names += list.rejected.len().saturating_sub(subscription.refused_before);
        subscription.refused_before = list.rejected.len();
        subscription.rejected.retain(|name, _| list.rejected.contains_key(name) || list.names.contains(name));
        subscription.refuse(&mut list, &self.client);
        subscription.spellings = std::mem::take(&mut list.spellings);
        if self.limits.faults.has(Fault::DropStaleNames)
            && !request.response_nonce.is_empty()
            && subscription.acks.is_stale(&request.response_nonce)
        {
            return;
        }
        let has_version = !request.version_info.is_empty();
        if first {
            (subscription.stated, subscription.has_stated) = (has_version, has_version);
        }
        subscription.named_once |= !list.is_empty();
        list.wildcard |= list.is_empty() && legacy && !subscription.named_once;
        // The version means something for a pure wildcard only; for names it does not show which of them the client has (SOTW-4).
        let pure = first && list.wildcard && list.names.is_empty() && has_version;
        // A relay counts its first response as the complete set, for clients that may hold more.
        subscription.stated |= first && list.wildcard && self.client.relay;
        subscription.initial_version = subscription.initial_version.take().filter(|_| list.names.is_empty());
        if pure {
            subscription.initial_version = Some(request.version_info);
        }
        let mut changes = InterestChanges { kind: &kind, client: &self.client, interest: &mut self.interest };
        changes.set_wildcard(subscription, list.wildcard, None);
        let dropped: Vec<_> = subscription.names.keys().filter(|name| !list.names.contains(*name)).cloned().collect();
        for name in dropped {
            changes.unsubscribe(subscription, &name);
            subscription.set_complete_due(kind.info().full_state);
            if !kind.info().full_state && subscription.wildcard.is_some() {
                subscription.pending.insert(name, Pending::requested(subscription.asked)); // `*` may show it differently
            }
        }
        for name in list.names {
            if let Some(sent) = subscription.names.get_mut(&name).filter(|sent| sent.refused) {
                sent.refused = false;
                changes.note(Selector::Name(name), true);
            } else if !subscription.names.contains_key(&name) {
                let held_before = first && has_version;
                changes.subscribe(subscription, name, held_before);
            }
        }
        if self.limits.faults.has(Fault::AnswerEveryAck) && !request.response_nonce.is_empty() {
            subscription.set_complete_due(kind.info().full_state);
            subscription
                .pending
                .extend(subscription.names.keys().map(|name| (name.clone(), Pending::requested(subscription.asked))));
        }
        if subscription.wildcard.is_none() && subscription.names.is_empty() {
            subscription.complete_due = None; // no subscription, no reply (SOTW-43)
        }
        subscription.note_unsubscribed(&kind, &mut self.answered);
    }

    fn take_delta(
        &mut self,
        kind: Type,
        url: &str,
        request: DeltaDiscoveryRequest,
        mut stated: Option<HeldVersions>,
        now: Moment,
    ) {
        let reader = NameParser { kind: &kind, client: &self.client, authorities: &self.authorities };
        let mut on = RequestedNames::of(request.resource_names_subscribe, request.resource_locators_subscribe, &reader);
        let off =
            RequestedNames::of(request.resource_names_unsubscribe, request.resource_locators_unsubscribe, &reader);
        let legacy = has_legacy_wildcard(&kind, &self.client);
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind.clone()).or_insert_with(|| Box::new(Subscription::new(url)));
        subscription.asked = now;
        if stated.is_none() && !request.initial_resource_versions.is_empty() {
            let map = request.initial_resource_versions.iter();
            let entries = StatedEntries::of(map.map(|(name, version)| (name.as_str(), version.as_str())));
            stated = Some(HeldVersions::uncounted(entries));
        }
        let stated = stated.filter(|versions| first && !versions.is_empty());
        subscription.stated |= stated.is_some();
        subscription.has_stated |= stated.is_some();
        subscription.named_once |= !on.is_empty() || !off.is_empty();
        for name in on.rejected.keys().chain(off.rejected.keys()) {
            subscription.rejected.remove(name); // a repeated request gets the error again, an ended one does not
        }
        self.rejected_names += on.rejected.len();
        subscription.refuse(&mut on, &self.client);
        for name in &on.names {
            subscription.spellings.remove(name); // the last one counts
        }
        subscription.spellings.append(&mut on.spellings);
        for name in &off.names {
            subscription.spellings.remove(name);
            subscription.rejected.remove(name);
        }
        let empty = first && !subscription.named_once;
        subscription.empty_answer_due |= empty && kind.info().empty_first == EmptyFirst::EmptyAnswer;
        let legacy = empty && legacy;
        let wildcard = (on.wildcard || legacy || subscription.wildcard.is_some()) && !off.wildcard;
        let mut changes = InterestChanges { kind: &kind, client: &self.client, interest: &mut self.interest };
        if on.wildcard && wildcard && subscription.wildcard.is_some() {
            subscription.again();
        }
        for name in on.names.difference(&off.names) {
            subscription.rejected.remove(name); // if the view still has no room for it, the client gets the error again
            let held_before = stated.as_ref().is_some_and(|stated| stated.place(name.as_str()).is_some());
            changes.subscribe(subscription, name.clone(), held_before);
        }
        if let Some(stated) = &stated {
            subscription.hold_members(stated);
        }
        changes.set_wildcard(subscription, wildcard, stated.filter(|_| wildcard).map(InitialVersions::new));
        for name in &off.names {
            if changes.unsubscribe(subscription, name) && subscription.wildcard.is_some() && !name.is_glob() {
                // The name stays visible through `*` or is removed: the client is sent which (DELTA-24).
                subscription.pending.entry(name.clone()).or_default().requested.get_or_insert(subscription.asked);
            }
        }
        subscription.note_unsubscribed(&kind, &mut self.answered);
        if kind.info().empty_first == EmptyFirst::UnderRoutes {
            self.limit_to_routes(&kind, legacy);
        } else if kind.info().references == References::VirtualHosts {
            self.follow_routes(&kind);
        }
    }
}

impl Session {
    /// Limits a wildcard of virtual hosts to the route configurations of this stream, if the client requested any. On a stream
    /// of virtual hosts alone the wildcard covers all of them.
    fn limit_to_routes(&mut self, hosts: &Type, legacy: bool) {
        let routes = self.route_names(hosts);
        let limited = self.client.is_aggregated() && (legacy || !routes.is_empty());
        let wildcard = self.subscriptions.get_mut(hosts).and_then(|subscription| subscription.wildcard.as_mut());
        if let Some(wildcard) =
            wildcard.filter(|wildcard| limited && wildcard.under.is_none() && wildcard.progress.is_none())
        {
            wildcard.under = Some(routes);
        }
    }

    /// Virtual hosts of a new route configuration are sent after it: that is when the client wants them.
    fn follow_routes(&mut self, routes: &Type) {
        let Some(hosts) = self.table.referred_by(routes) else { return };
        let names = self.route_names(&hosts);
        let wildcard = self.subscriptions.get_mut(&hosts).and_then(|subscription| subscription.wildcard.as_mut());
        if let Some(under) = wildcard.and_then(|wildcard| wildcard.under.as_mut()) {
            *under = names;
        }
    }

    fn route_names(&self, hosts: &Type) -> BTreeSet<Name> {
        let leads_there = |kind: &Type| self.table.referred_by(kind).is_some_and(|referred| referred == *hosts);
        let routes = self.subscriptions.iter().filter(|(kind, _)| leads_there(kind));
        routes.flat_map(|(_, subscription)| subscription.names.keys().cloned()).collect()
    }
}

/// Applies changes to a subscription and notes them for the view.
struct InterestChanges<'a> {
    kind: &'a Type,
    client: &'a Client,
    interest: &'a mut Vec<InterestChange>,
}

impl InterestChanges<'_> {
    fn set_wildcard(&mut self, subscription: &mut Subscription, on: bool, stated: Option<InitialVersions>) {
        if on == subscription.wildcard.is_some() {
            return;
        }
        self.note(Selector::Wildcard, on);
        // Leaving `*` reduces the set of a full-state client (SOTW-41); joining it requests everything.
        let has_sets = self.client.variant == Variant::Sotw && self.kind.info().full_state;
        subscription.set_complete_due(has_sets);
        subscription.wildcard = on.then(|| Wildcard::new(stated, subscription.asked));
        subscription.recheck_awaiting_data(); // `*` may know them, or no longer does
        if !on {
            let names = &subscription.names;
            subscription.pending.retain(|name, _| names.contains_key(name));
            // The client may hold these from `*`: they are compared with what the server sent for the names.
            for name in subscription.names.keys() {
                subscription.pending.entry(name.clone()).or_default().changed_at(Revision::ZERO);
            }
        }
    }

    fn subscribe(&mut self, subscription: &mut Subscription, name: Name, held_before: bool) {
        subscription.awaiting_data.remove(&name);
        subscription.pending.entry(name.clone()).or_default().requested.get_or_insert(subscription.asked);
        if name.is_glob() && !subscription.globs.insert(name.clone()) {
            subscription.again_of(&name);
        }
        let sent = subscription.names.entry(name.clone()).or_insert(SentState {
            held_before,
            member: true,
            ..SentState::default()
        });
        if std::mem::take(&mut sent.member) | std::mem::take(&mut sent.refused) {
            self.note(Selector::Name(name), true);
        }
    }

    /// Ends the subscription of a name. Returns whether it was subscribed (DELTA-25).
    fn unsubscribe(&mut self, subscription: &mut Subscription, name: &Name) -> bool {
        if subscription.names.get(name).is_none_or(|sent| sent.member) {
            return false;
        }
        if !subscription.keep_as_member(name) {
            subscription.drop_name(name);
            subscription.leave_collection(name);
        }
        self.note(Selector::Name(name.clone()), false);
        true
    }

    /// Notes a change for the view. A name that the client may not have is not requested for it.
    fn note(&mut self, wanted: Selector, on: bool) {
        if matches!(&wanted, Selector::Name(name) if !self.client.clearance.allows(self.kind, name)) {
            return;
        }
        self.interest.push(InterestChange { kind: self.kind.clone(), selector: wanted, on });
    }
}

impl Subscription {
    /// Ends the wait for an answer if nothing of the type is subscribed any more.
    fn note_unsubscribed(&mut self, kind: &Type, answered: &mut Option<Answered>) {
        if self.wants_anything() || self.asks_once {
            return;
        }
        let Some(since) = self.acks.stop_waiting() else { return };
        let answered = answered.get_or_insert_with(|| Answered {
            kind: kind.clone(),
            is_ack: false,
            lag: Lag::default(),
            waited_since: None,
            waits_since: None,
        });
        answered.waited_since.get_or_insert(since);
        answered.waits_since = None;
    }

    fn set_complete_due(&mut self, due: bool) {
        self.complete_due = due.then(|| self.complete_due.unwrap_or(self.asked));
    }

    /// Records the errors of rejected names, for clients that read errors.
    fn refuse(&mut self, list: &mut RequestedNames, client: &Client) {
        for (name, error) in list.rejected.iter().filter(|_| client.errors) {
            self.rejected.entry(name.clone()).or_insert_with(|| Some(Arc::new(error.clone())));
        }
    }

    /// `*` was subscribed again: everything is sent again, since the client may have forgotten it (DELTA-10).
    fn again(&mut self) {
        if let Some(wildcard) = &mut self.wildcard {
            (wildcard.first, wildcard.asked) = (true, self.asked);
            if let Some(stated) = &mut wildcard.initial_versions {
                stated.send_all = true;
            }
            wildcard.added = Revision::ZERO;
            wildcard.sent_complete = false;
            wildcard.withheld = Withheld::default();
        }
    }
}

/// gRPC clients name what they want: an empty list of theirs is not a wildcard (SOTW-40).
fn has_legacy_wildcard(kind: &Type, client: &Client) -> bool {
    kind.info().empty_first.is_wildcard() && !client.grpc
}
