//! Applies a client's requests: finds the type of each, applies its subscriptions, and records what it answers.

use std::collections::{BTreeSet, VecDeque};

use super::BadRequest;
use super::acks::{Ack, AnswerEffect, NackChange};
use super::burst::SendOrder;
use super::carried::ReplyLag;
use super::client::{Client, Variant};
use super::nack_reason::clean;
use super::requested_names::{Authorities, NameParser, RequestedNames};
use super::subscription::{Subscription, Subscriptions};
use crate::proto::Request;
use crate::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use crate::protocol::moment::Moment;
use crate::protocol::session::options::SessionOptions;
use crate::protocol::view::InterestChange;
use crate::xds::{ERROR_BYTES, EmptyFirst, HeldVersions, Name, References, Role, StatedEntries, Type, TypeTable};

/// Which authorities a stream may request names of, and what its requests led to until the caller takes it.
#[derive(Debug, Default)]
pub(super) struct Requests {
    authorities: Authorities,
    /// How many requests were for types that this stream does not serve. They stay unanswered.
    unserved: usize,
    /// How many names were rejected since the count was last taken.
    rejected_names: usize,
    /// NACKs that began or ceased to stand since they were last taken.
    nack_changes: Vec<NackChange>,
    /// What the last request settled by its ACK or NACK.
    answered: Option<AnswerEffect>,
}

/// What one request is applied to.
pub(super) struct RequestContext<'r> {
    pub(super) client: &'r Client,
    pub(super) table: &'r TypeTable,
    pub(super) options: &'r SessionOptions,
    pub(super) now: Moment,
    pub(super) subscriptions: &'r mut Subscriptions,
    pub(super) order: &'r mut SendOrder,
    /// Where changes of interest go.
    pub(super) interest: &'r mut VecDeque<InterestChange>,
}

impl Requests {
    /// Lets the client subscribe to names of these authorities, beside old-style names.
    pub(super) fn of_authorities(authorities: Authorities) -> Self {
        Self { authorities, ..Self::default() }
    }

    pub(super) fn authorities(&self) -> &Authorities {
        &self.authorities
    }

    pub(super) fn unserved(&self) -> usize {
        self.unserved
    }

    pub(super) fn take_rejected_names(&mut self) -> usize {
        std::mem::take(&mut self.rejected_names)
    }

    pub(super) fn take_nack_changes(&mut self) -> Vec<NackChange> {
        std::mem::take(&mut self.nack_changes)
    }

    pub(super) fn take_answered(&mut self) -> Option<AnswerEffect> {
        self.answered.take()
    }

    /// Applies a request: its subscriptions and its ACK or NACK.
    pub(super) fn apply(
        &mut self,
        request: Request,
        stated: Option<HeldVersions>,
        context: &mut RequestContext,
    ) -> Result<Option<Ack>, BadRequest> {
        let RequestContext { client, table, options, .. } = *context;
        let (url, nonce, error) = match &request {
            Request::Sotw(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
            Request::Delta(request) => (&request.type_url, &request.response_nonce, &request.error_detail),
        };
        let (kind, url) = meant_type(url, client, table)?;
        if let Some(rule) = client.clearance.rule_against(&kind) {
            return Err(BadRequest::TypeNotPermitted { kind: kind.name().to_owned(), rule: rule.clone() });
        }
        if context.subscriptions.len() >= options.types && !context.subscriptions.contains_key(&kind) {
            return Err(BadRequest::TooManyTypes(options.types));
        }
        let nacked = |subscriptions: &Subscriptions| subscriptions.get(&kind).and_then(|of| of.nacked());
        let before = nacked(context.subscriptions);
        let answer = self.apply_ack(&kind, nonce, error.as_ref(), context);
        let is_nacked = before.is_some() || nacked(context.subscriptions).is_some();
        match (client.variant, request) {
            // A type that is not served, or not in SotW, does not end the stream (TRN-3, TRN-15).
            _ if !table.serves(&kind) => self.unserved += 1,
            (Variant::Sotw, Request::Sotw(_)) if kind.info().delta_only => self.unserved += 1,
            (Variant::Sotw, Request::Sotw(request)) => self.take_sotw(&kind, &url, request, context),
            (Variant::Delta, Request::Delta(request)) => self.take_delta(&kind, &url, request, stated, context),
            _ => return Err(BadRequest::Variant),
        }
        if is_nacked {
            if let Some(subscription) = context.subscriptions.get_mut(&kind) {
                subscription.settle_nack(&kind);
            }
            let began = nacked(context.subscriptions);
            if before != began {
                self.nack_changes.push(NackChange { kind: kind.clone(), ended: before, began });
            }
        }
        let limit = options.names;
        if context.subscriptions.values().any(|subscription| subscription.longest_list() > limit) {
            return Err(BadRequest::TooManyNames(limit));
        }
        let total = |subscription: &Subscription| subscription.longest_list() + subscription.initial_version_count();
        if context.subscriptions.values().map(|subscription| total(subscription)).sum::<usize>()
            > options.names_per_stream
        {
            return Err(BadRequest::TooManyNamesOnStream(options.names_per_stream));
        }
        Ok(answer)
    }

    fn apply_ack(
        &mut self,
        kind: &Type,
        nonce: &str,
        error: Option<&Status>,
        context: &mut RequestContext,
    ) -> Option<Ack> {
        let RequestContext { options, now, .. } = *context;
        if nonce.is_empty() {
            return None;
        }
        // A NACK counts even if its type has forgotten the reply, but not with a nonce of another type.
        let mut others = context.subscriptions.iter().filter(|(of, _)| *of != kind);
        if error.is_some() && others.any(|(_, other)| other.acks().remembers(nonce)) {
            return Some(Ack::UnknownNonce);
        }
        let subscription = context.subscriptions.get_mut(kind)?;
        let nack = error.map(|status| (status.code, clean(&status.message, ERROR_BYTES).into()));
        let (answer, answered) = subscription.on_answer(kind, nonce, nack, now);
        self.answered = answered;
        if kind.is(Role::Clusters) {
            context.order.on_clusters_answered(answer, now, options);
        }
        Some(answer)
    }

    fn take_sotw(&mut self, kind: &Type, url: &str, request: DiscoveryRequest, context: &mut RequestContext) {
        let RequestContext { client, now, .. } = *context;
        let parser = NameParser::new(kind, client, &self.authorities);
        let mut list = RequestedNames::of(request.resource_names, request.resource_locators, &parser);
        let (subscription, first) = open(context.subscriptions, kind, url);
        let mut changes = subscription.on_request(kind, client, now, context.interest);
        self.rejected_names += changes.take_wording(&mut list);
        changes.take_list(list, request.version_info, first);
        self.note_unsubscribed(kind, subscription);
    }

    fn take_delta(
        &mut self,
        kind: &Type,
        url: &str,
        request: DeltaDiscoveryRequest,
        mut stated: Option<HeldVersions>,
        context: &mut RequestContext,
    ) {
        let RequestContext { client, table, now, .. } = *context;
        let parser = NameParser::new(kind, client, &self.authorities);
        let on = RequestedNames::of(request.resource_names_subscribe, request.resource_locators_subscribe, &parser);
        let off =
            RequestedNames::of(request.resource_names_unsubscribe, request.resource_locators_unsubscribe, &parser);
        let (subscription, first) = open(context.subscriptions, kind, url);
        if stated.is_none() && !request.initial_resource_versions.is_empty() {
            let map = request.initial_resource_versions.iter();
            let entries = StatedEntries::of(map.map(|(name, version)| (name.as_str(), version.as_str())));
            stated = Some(HeldVersions::uncounted(entries));
        }
        let stated = stated.filter(|versions| first && !versions.is_empty());
        self.rejected_names += on.rejected.len();
        let mut changes = subscription.on_request(kind, client, now, context.interest);
        let legacy = changes.take_changes(on, off, stated, first);
        self.note_unsubscribed(kind, subscription);
        if kind.info().empty_first == EmptyFirst::UnderRoutes {
            // On a stream of virtual hosts alone the wildcard covers all of them, and so does an explicit `*` if the client has requested no routes.
            let routes = route_names(context.subscriptions, kind, table);
            let limited = client.is_aggregated() && (legacy || !routes.is_empty());
            if let Some(subscription) = context.subscriptions.get_mut(kind).filter(|_| limited) {
                subscription.limit_to(routes);
            }
        } else if kind.info().references == References::VirtualHosts
            && let Some(hosts) = table.referred_by(kind)
        {
            // Virtual hosts of a new route configuration are sent after it, because the client wants them then.
            let routes = route_names(context.subscriptions, &hosts, table);
            if let Some(subscription) = context.subscriptions.get_mut(&hosts) {
                subscription.follow_routes(routes);
            }
        }
    }

    /// Records that no answer is awaited any more, if the client subscribes to nothing of the type.
    fn note_unsubscribed(&mut self, kind: &Type, subscription: &mut Subscription) {
        let Some(since) = subscription.stop_waiting() else { return };
        let answered = self.answered.get_or_insert_with(|| AnswerEffect {
            kind: kind.clone(),
            is_ack: false,
            lag: ReplyLag::default(),
            waited_since: None,
            waits_since: None,
        });
        answered.waited_since.get_or_insert(since);
        answered.waits_since = None;
    }

    /// Ends every standing NACK, because the client leaves.
    pub(super) fn end_nacks(&mut self, subscriptions: &mut Subscriptions) {
        for (kind, subscription) in subscriptions {
            let ended = subscription.end_nack();
            self.nack_changes.extend(ended.map(|ended| NackChange {
                kind: kind.clone(),
                ended: Some(ended),
                began: None,
            }));
        }
    }
}

/// Returns the subscription of a type, and whether this is the first request of it.
fn open<'s>(subscriptions: &'s mut Subscriptions, kind: &Type, url: &str) -> (&'s mut Subscription, bool) {
    let first = !subscriptions.contains_key(kind);
    (subscriptions.entry(kind.clone()).or_insert_with(|| Box::new(Subscription::new(url))), first)
}

fn route_names(subscriptions: &Subscriptions, hosts: &Type, table: &TypeTable) -> BTreeSet<Name> {
    let leads_there = |kind: &Type| table.referred_by(kind).is_some_and(|referred| referred == *hosts);
    let routes = subscriptions.iter().filter(|(kind, _)| leads_there(kind));
    routes.flat_map(|(_, subscription)| subscription.books().names.keys().cloned()).collect()
}

/// Returns the type of a request, and its URL in the client's spelling.
pub(super) fn meant_type(url: &str, client: &Client, table: &TypeTable) -> Result<(Type, String), BadRequest> {
    match &client.only {
        None if url.is_empty() => Err(BadRequest::NoType),
        None => match table.resolve(url) {
            kind if kind.message().is_empty() => Err(BadRequest::NoType),
            kind => Ok((kind, url.to_owned())),
        },
        Some(only) if url.is_empty() => Ok((only.clone(), only.url().into_owned())),
        Some(only) => match table.resolve(url) {
            kind if kind.same_kind(only) => Ok((kind, url.to_owned())),
            _ => Err(BadRequest::OtherType { requested: url.to_owned(), served: only.name().to_owned() }),
        },
    }
}

/// Returns the type of a request if the request may be a mere ACK or NACK.
pub(super) fn answered_type(request: &Request, client: &Client, table: &TypeTable) -> Option<Type> {
    let names = match request {
        Request::Sotw(_) => 0, // each ACK repeats the list, so the names tell nothing
        Request::Delta(request) => {
            let names = [&request.resource_names_subscribe, &request.resource_names_unsubscribe];
            let locators = [&request.resource_locators_subscribe, &request.resource_locators_unsubscribe];
            names.map(Vec::len).iter().sum::<usize>() + locators.map(Vec::len).iter().sum::<usize>()
        }
    };
    let (kind, _) = meant_type(request.type_url(), client, table).ok()?;
    (names == 0).then_some(kind)
}
