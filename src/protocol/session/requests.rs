//! What a client's requests mean: the two variants brought down to one idea of a subscription.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::answers::Answer;
use super::client::Client;
use super::subscription::{Owed, Star, Stated, Subscription, Told};
use super::{Session, Variant};
use crate::proto::Request;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator, Status};
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::unit::{InterestChange, Seq, Wanted};
use crate::xds::{Name, Role, Type, WILDCARD};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("an aggregated stream needs a type_url in each request")]
    NoType,
    #[error("a request of the other variant on this stream")]
    Variant,
    #[error("more than {0} types on one stream")]
    TooManyTypes(usize),
    #[error("more than {0} names of one type on one stream")]
    TooManyNames(usize),
}

impl Session {
    pub(super) fn take_request(&mut self, request: Request, now: Moment) -> Result<Option<Answer>, BadRequest> {
        let (url, nonce, error) = match &request {
            Request::Sotw(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
        };
        if url.is_empty() {
            return Err(BadRequest::NoType);
        }
        let (kind, url) = (self.table.resolve(url), url.clone());
        if self.subscriptions.len() >= self.limits.types && !self.subscriptions.contains_key(&kind) {
            return Err(BadRequest::TooManyTypes(self.limits.types));
        }
        let answer = self.take_answer(&kind, nonce, error.as_ref(), now);
        match (self.client.variant, request) {
            // Not served in SotW, and not worth ending the stream for (TRN-3).
            (Variant::Sotw, Request::Sotw(_)) if kind.info().delta_only => {}
            (Variant::Sotw, Request::Sotw(request)) => self.take_sotw(kind, &url, request),
            (Variant::Delta, Request::Delta(request)) => self.take_delta(kind, &url, request),
            _ => return Err(BadRequest::Variant),
        }
        let most = self.limits.names;
        if self.subscriptions.values().any(|subscription| subscription.names.len().max(subscription.owed.len()) > most)
        {
            return Err(BadRequest::TooManyNames(most));
        }
        Ok(answer)
    }

    fn take_answer(&mut self, kind: &Type, nonce: &str, error: Option<&Status>, now: Moment) -> Option<Answer> {
        if nonce.is_empty() {
            return None;
        }
        let limit = self.limits.error_bytes;
        let subscription = self.subscriptions.get_mut(kind)?;
        let refusal = error.map(|status| (status.code, cut(&status.message, limit)));
        let answer = subscription.answers.answer(nonce, refusal, now);
        if kind.is(Role::Clusters) {
            self.hold.answered(answer);
        }
        if matches!(answer, Answer::Nack { .. }) && self.limits.faults.has(Fault::NackForgets) {
            subscription.owed.clear();
            subscription.names.clear();
        }
        Some(answer)
    }

    fn take_sotw(&mut self, kind: Type, url: &str, request: DiscoveryRequest) {
        let mut list = Listed::of(request.resource_names, request.resource_locators);
        let legacy = has_legacy_wildcard(&kind, &self.client);
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind.clone()).or_insert_with(|| Subscription::new(url));
        if self.limits.faults.has(Fault::DropStaleNames)
            && !request.response_nonce.is_empty()
            && subscription.answers.is_stale(&request.response_nonce)
        {
            return;
        }
        if first {
            subscription.stated = !request.version_info.is_empty();
        }
        subscription.named_once |= !list.is_empty();
        list.star |= list.is_empty() && legacy && !subscription.named_once;
        // The version tells of a pure wildcard alone; for names it does not say which of them the client has (SOTW-4).
        let pure = first && list.star && list.names.is_empty() && subscription.stated;
        subscription.came_with = subscription.came_with.take().filter(|_| list.names.is_empty());
        if pure {
            subscription.came_with = Some(request.version_info);
        }
        let mut changes = Changes { kind: &kind, interest: &mut self.interest };
        changes.set_star(subscription, list.star, None);
        let dropped: Vec<_> = subscription.names.keys().filter(|name| !list.names.contains(*name)).cloned().collect();
        for name in dropped {
            changes.unsubscribe(subscription, &name);
            subscription.complete_due = kind.info().full_state;
            if !kind.info().full_state && subscription.star.is_some() {
                subscription.owed.insert(name, Owed::asked()); // `*` may show it differently
            }
        }
        for name in list.names {
            if !subscription.names.contains_key(&name) {
                let came_with = first && subscription.stated;
                changes.subscribe(subscription, name, came_with);
            }
        }
        if self.limits.faults.has(Fault::AnswerEveryAck) && !request.response_nonce.is_empty() {
            subscription.complete_due = kind.info().full_state;
            subscription.owed.extend(subscription.names.keys().map(|name| (name.clone(), Owed::asked())));
        }
        if subscription.star.is_none() && subscription.names.is_empty() {
            subscription.complete_due = false; // nothing wanted, nothing sent (SOTW-43)
        }
    }

    fn take_delta(&mut self, kind: Type, url: &str, request: DeltaDiscoveryRequest) {
        let on = Listed::of(request.resource_names_subscribe, request.resource_locators_subscribe);
        let off = Listed::of(request.resource_names_unsubscribe, request.resource_locators_unsubscribe);
        let legacy = has_legacy_wildcard(&kind, &self.client);
        let first = !self.subscriptions.contains_key(&kind);
        let subscription = self.subscriptions.entry(kind.clone()).or_insert_with(|| Subscription::new(url));
        let versions = if first { request.initial_resource_versions } else { Default::default() };
        subscription.stated |= !versions.is_empty();
        subscription.named_once |= !on.is_empty() || !off.is_empty();
        let legacy = first && legacy && !subscription.named_once;
        let star = (on.star || legacy || subscription.star.is_some()) && !off.star;
        let mut changes = Changes { kind: &kind, interest: &mut self.interest };
        if on.star && star && subscription.star.is_some() {
            subscription.again();
        }
        for name in on.names.difference(&off.names) {
            changes.subscribe(subscription, name.clone(), versions.contains_key(name.as_str()));
        }
        let stated = (star && !versions.is_empty()).then(|| {
            let versions: HashMap<_, _> = versions.into_iter().map(|(name, version)| (name.into(), version)).collect();
            Stated { versions: Arc::new(versions), outdated: BTreeSet::new(), send_all: false }
        });
        changes.set_star(subscription, star, stated);
        for name in &off.names {
            if changes.unsubscribe(subscription, name) && subscription.star.is_some() {
                // It stays visible through `*`, or goes: the client is told which (DELTA-24).
                subscription.owed.insert(name.clone(), Owed::asked());
            }
        }
    }
}

/// Applies changes to a subscription and notes them for the unit.
struct Changes<'a> {
    kind: &'a Type,
    interest: &'a mut Vec<InterestChange>,
}

impl Changes<'_> {
    fn set_star(&mut self, subscription: &mut Subscription, on: bool, stated: Option<Stated>) {
        if on == subscription.star.is_some() {
            return;
        }
        self.note(Wanted::Star, on);
        // Leaving `*` shrinks what a full-state client sees (SOTW-41); joining it asks for everything.
        subscription.complete_due = self.kind.info().full_state;
        subscription.star = on.then(|| Star::new(stated));
        subscription.unpark_all(); // `*` may know them, or no longer does
        if !on {
            let names = &subscription.names;
            subscription.owed.retain(|name, _| names.contains_key(name));
            // What the client has of these may be what `*` showed: it is compared with what the names have.
            for name in subscription.names.keys() {
                subscription.owed.entry(name.clone()).or_default().changed_at(Seq::ZERO);
            }
        }
    }

    fn subscribe(&mut self, subscription: &mut Subscription, name: Name, came_with: bool) {
        subscription.parked.remove(&name);
        subscription.owed.entry(name.clone()).or_default().asked = true;
        if let std::collections::btree_map::Entry::Vacant(vacant) = subscription.names.entry(name.clone()) {
            vacant.insert(Told { came_with, ..Told::default() });
            self.note(Wanted::Name(name), true);
        }
    }

    /// Whether it was subscribed (DELTA-25).
    fn unsubscribe(&mut self, subscription: &mut Subscription, name: &Name) -> bool {
        let Some(told) = subscription.names.remove(name) else { return false };
        subscription.sum = subscription.sum.minus(told.holds);
        subscription.owed.remove(name);
        subscription.parked.remove(name);
        self.note(Wanted::Name(name.clone()), false);
        true
    }

    fn note(&mut self, wanted: Wanted, on: bool) {
        self.interest.push(InterestChange { kind: self.kind.clone(), wanted, on });
    }
}

impl Subscription {
    /// `*` subscribed once more: everything is sent again, since the client may have forgotten it (DELTA-10).
    fn again(&mut self) {
        if let Some(star) = &mut self.star {
            star.first = true;
            if let Some(stated) = &mut star.stated {
                stated.send_all = true;
            }
            star.added = Seq::ZERO;
        }
    }
}

/// A list of names as a set (SOTW-60), with `*` apart. Locators count by their plain names (WIRE-14).
struct Listed {
    star: bool,
    names: BTreeSet<Name>,
}

impl Listed {
    fn of(names: Vec<String>, locators: Vec<ResourceLocator>) -> Self {
        let all = names.into_iter().chain(locators.into_iter().map(|locator| locator.name));
        let mut names: BTreeSet<Name> = all.filter(|name| !name.is_empty()).map(Name::from).collect();
        Self { star: names.remove(WILDCARD), names }
    }

    fn is_empty(&self) -> bool {
        !self.star && self.names.is_empty()
    }
}

/// gRPC names what it wants: an empty list of its is no wildcard (SOTW-40).
fn has_legacy_wildcard(kind: &Type, client: &Client) -> bool {
    kind.info().legacy_wildcard && !client.grpc
}

fn cut(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
