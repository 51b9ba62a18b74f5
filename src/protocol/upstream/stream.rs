//! One ADS stream to one server, through all its reconnects.

mod report;
mod routing;
#[cfg(test)]
mod tests;
mod timers;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

pub(crate) use self::report::{NameRequest, RequestState, TypeSummary};
use super::liveness::{Liveness, PollFailure};
use super::parser::{ReceivedResponse, ResponseMessage};
use super::quirks::ServerQuirks;
use super::request::RequestContext;
use super::response::ResponseContext;
use super::second_request::ReopenPace;
use super::set_progress::Delivery;
use super::type_subscription::TypeSubscription;
use crate::proto::{Request, Response};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::view::{Class, InterestChange, Selector, Update};
use crate::xds::{BodyStore, Type, TypeTable};

/// The number of an opening of the stream. It shows whether a message belongs to an earlier opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epoch {
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
pub struct Stream {
    variant: Variant,
    node: Bytes,
    types: BTreeMap<Type, TypeSubscription>,
    epoch: Epoch,
    open: bool,
    liveness: Liveness,
    /// A response has come on this opening.
    answered: bool,
    /// When the first request of this opening was made, and when the first response came.
    asked_at: Option<Moment>,
    answered_at: Option<Moment>,
    /// A message is coming in.
    receiving: bool,
    /// The server of this opening is a relay.
    is_relay: bool,
    /// It is to be opened again: this opening has stated a version that is no longer valid.
    must_reopen: bool,
    /// The next opening is to make the server send one resource of each type, which shows that it is back.
    is_to_show_life: bool,
    /// The server has answered for the end of a set, and nobody has taken note yet.
    answered_end: bool,
    /// Limits how often it is opened again for a second request.
    pace: ReopenPace,
    judged_at: Moment,
    /// Types that any view has seen the server send in pieces.
    types_in_pieces: Arc<BTreeSet<Type>>,
    quirks: Arc<ServerQuirks>,
    table: Arc<TypeTable>,
    limits: Arc<Limits>,
}

impl Stream {
    pub(crate) fn new(
        variant: Variant,
        node: Bytes,
        rules: Arc<ServerQuirks>,
        table: Arc<TypeTable>,
        limits: Arc<Limits>,
    ) -> Self {
        Self {
            variant,
            node,
            types: BTreeMap::new(),
            epoch: Epoch(0),
            open: false,
            liveness: Liveness::default(),
            answered: false,
            asked_at: None,
            answered_at: None,
            receiving: false,
            is_relay: false,
            must_reopen: false,
            is_to_show_life: false,
            answered_end: false,
            pace: ReopenPace::default(),
            judged_at: Moment::START,
            types_in_pieces: Arc::default(),
            quirks: rules,
            table,
            limits,
        }
    }

    /// The stream is connected; the next request opens it for the server.
    pub fn opened(&mut self) -> Epoch {
        self.epoch.0 += 1;
        (self.open, self.answered, self.receiving, self.is_relay) = (true, false, false, false);
        self.must_reopen = false;
        (self.asked_at, self.answered_at) = (None, None);
        self.liveness = Liveness::new(self.limits.faults);
        self.epoch
    }

    /// The server has answered the liveness call.
    pub fn on_liveness_answer(&mut self, epoch: Epoch) {
        if epoch == self.epoch && self.open {
            self.liveness.answered();
        }
    }

    /// The server is a relay. It says itself what does not exist and where its sets end, once it knows: whoever holds something is not
    /// told by its silence.
    pub fn on_relay(&mut self, epoch: Epoch) {
        self.is_relay |= epoch == self.epoch && self.open;
    }

    /// Returns whether to make a liveness call on this connection.
    pub fn take_liveness_call(&mut self) -> bool {
        self.open && self.liveness.take_question()
    }

    /// A message has begun to come in. Until it is complete, the server does not count as silent.
    pub fn on_receiving(&mut self, epoch: Epoch) {
        self.receiving |= epoch == self.epoch && self.open;
    }

    /// A poll for a type was answered, without changes.
    pub fn on_unchanged(&mut self, epoch: Epoch, url: &str, now: Moment) -> Option<Update> {
        let kind = self.table.resolve(url);
        let subscription = self.types.get_mut(&kind).filter(|_| epoch == self.epoch && self.open)?;
        subscription.on_poll(now);
        (subscription.class == Class::Wildcard).then_some(Update::Unchanged { kind })
    }

    /// A poll for a type failed. Until one is answered again, the server's silence about the type is no evidence.
    pub fn on_poll_failed(&mut self, epoch: Epoch, url: &str, failure: PollFailure, now: Moment) {
        let kind = self.table.resolve(url);
        if let Some(subscription) = self.types.get_mut(&kind).filter(|_| epoch == self.epoch && self.open) {
            subscription.on_poll_failed(failure, now, &self.limits);
        }
    }

    /// Sets the types that any view has seen the server send in pieces.
    pub(crate) fn on_delivery_habits(&mut self, cut: &Arc<BTreeSet<Type>>) {
        if !Arc::ptr_eq(cut, &self.types_in_pieces) {
            self.types_in_pieces = cut.clone();
            self.types
                .iter_mut()
                .for_each(|(kind, subscription)| subscription.in_pieces_for_others = cut.contains(kind));
        }
    }

    /// Returns what this stream has seen of that since the last call.
    pub(crate) fn take_deliveries(&mut self) -> impl Iterator<Item = (Type, Delivery)> {
        let of = |(kind, subscription): (&Type, &mut TypeSubscription)| {
            subscription.deliveries.drain(..).map(|seen| (kind.clone(), seen)).collect::<Vec<_>>()
        };
        self.types.iter_mut().flat_map(of)
    }

    /// The stream has ended. Cached resources stay (UP-32). What is known of the completeness of sets and of absent names holds
    /// for one opening.
    pub fn ended(&mut self, epoch: Epoch) -> Vec<Update> {
        if epoch != self.epoch || !self.open {
            return Vec::new();
        }
        self.open = false;
        self.types.retain(|_, subscription| subscription.is_wanted());
        // In SotW a set is sent again if its version is not stated. A type that states one is silent, and would be asked about next.
        let asks = self.variant == Variant::Sotw && self.types.values().any(|of| of.second_request.is_to_ask());
        let shows_life = std::mem::take(&mut self.is_to_show_life);
        let mut updates = Vec::new();
        for (kind, subscription) in &mut self.types {
            let wildcard = (subscription.class == Class::Wildcard).then_some(Selector::Wildcard);
            let names = subscription.requested.iter().map(|(name, _)| name).chain(subscription.globs.all());
            let of = wildcard.into_iter().chain(names.cloned().map(Selector::Name));
            updates.extend(of.map(|of| Update::Interrupted { kind: kind.clone(), of }));
            subscription.disconnect(self.variant, &self.quirks);
            if asks && subscription.class == Class::Wildcard {
                subscription.accepted.clear();
            }
            if shows_life {
                subscription.clear_one_version();
            }
            if self.limits.faults.has(Fault::DropOnDisconnect) {
                updates.extend(subscription.drop_everything(kind));
            }
            if self.limits.faults.has(Fault::ForgetNamesOnReconnect) {
                subscription.forget_names();
            }
        }
        updates
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn has_answered(&self) -> bool {
        self.open && self.answered
    }

    /// Whether the server is silent because nothing is left to send: it is alive, has had time to respond, and no response is
    /// due. It has no reason to send again what the request has stated.
    pub(crate) fn is_healthy(&self, now: Moment) -> bool {
        let wanted = || self.types.values().filter(|subscription| subscription.is_wanted());
        let alive = if self.quirks.per_type_liveness {
            wanted().all(TypeSubscription::is_polled)
        } else {
            self.answered || self.liveness.is_proven()
        };
        let in_time = |requested: Moment| alive && now >= requested + self.limits.resource_timer;
        let owes_nothing = self.asked_at.is_some_and(in_time) && !self.types.values().any(TypeSubscription::is_waiting);
        self.open && (owes_nothing || !self.is_wanted())
    }

    /// Sets the variant of the next opening.
    pub fn set_variant(&mut self, variant: Variant) {
        if self.variant != variant {
            self.variant = variant;
            self.types.values_mut().for_each(|subscription| subscription.clear_versions(|_| true));
        }
    }

    pub fn variant(&self) -> Variant {
        self.variant
    }

    pub fn is_wanted(&self) -> bool {
        self.types.values().any(TypeSubscription::is_wanted)
    }

    pub(crate) fn want(&mut self, change: InterestChange, held: bool) {
        let InterestChange { kind, selector: wanted, on } = change;
        let cut = self.types_in_pieces.contains(&kind);
        let subscription = self.types.entry(kind).or_insert_with(|| TypeSubscription::of(&wanted));
        subscription.in_pieces_for_others = cut;
        subscription.want(wanted, on, held);
    }

    /// Returns what this server has reported, also at a time when its updates did not count: absent names, errors, progress of
    /// `*`, and names that cannot be read. Resources are not included: a server that has sent one is active.
    pub(crate) fn findings(&self) -> Vec<Update> {
        let spoken = |subscription: &TypeSubscription| subscription.wildcard && subscription.progress.has_response();
        let completeness_by_name = |kind: &Type, subscription: &TypeSubscription| {
            let completeness =
                subscription.completeness_after(&self.quirks, &Selector::Wildcard, subscription.is_at_end());
            spoken(subscription).then(|| Update::Progress { kind: kind.clone(), of: Selector::Wildcard, completeness })
        };
        self.types
            .iter()
            .flat_map(|(kind, subscription)| {
                subscription.findings(kind, &self.quirks).into_iter().chain(completeness_by_name(kind, subscription))
            })
            .collect()
    }

    /// Whether messages of this opening still count.
    pub(crate) fn is_current(&self, epoch: Epoch) -> bool {
        epoch == self.epoch && self.open
    }

    /// The next request, in make-before-break order of types and without waiting for responses (UP-6).
    pub fn next_request(&mut self, now: Moment) -> Option<Request> {
        if !self.open {
            return None;
        }
        let (variant, rules, limits) = (self.variant, &*self.quirks, &*self.limits);
        let has_node = self.asked_at.is_none() || rules.node_in_every_request;
        // Delta-only types are not requested in SotW: no server would respond, and the silence would count as absence.
        let speakable = |kind: &Type| variant == Variant::Delta || !kind.info().delta_only;
        let subscriptions = self.types.iter_mut().filter(|(kind, _)| speakable(kind));
        let (node, epoch) = (&*self.node, self.epoch);
        let mut request = subscriptions.into_iter().find_map(|(kind, subscription)| {
            let quirks = rules;
            let of = RequestContext { kind, variant, node, epoch, has_node, quirks, limits, now };
            subscription.next_request(&of)
        })?;
        self.asked_at.get_or_insert(now);
        if has_node {
            match &mut request {
                Request::Sotw(request) => request.node = Some(self.node.clone()),
                Request::Delta(request) => request.node = Some(self.node.clone()),
            }
        }
        Some(request)
    }

    /// All requests handed out so far have been written to the transport: from here on the server's silence counts (UP-36).
    pub fn written(&mut self, now: Moment) {
        // A request that waits for the response to an earlier poll is not sent yet.
        let requested =
            |subscription: &&mut TypeSubscription| !self.quirks.per_type_liveness || subscription.is_polled();
        for subscription in self.types.values_mut().filter(requested) {
            subscription.written(now, &self.quirks, &self.limits);
        }
    }

    /// Reads a response in one go, and applies it like [`Self::on_received`].
    pub fn on_response(&mut self, epoch: Epoch, response: Response, store: &BodyStore, now: Moment) -> Vec<Update> {
        let copies = BodyStore::default();
        let store = if self.limits.faults.has(Fault::KeepCopies) { &copies } else { store };
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &self.table, store);
        response.map_or_else(|_| Vec::new(), |response| self.on_received(epoch, response, now))
    }

    /// Turns a response that is read into updates, and queues its ACK. Ignores one of an earlier opening.
    pub(crate) fn on_received(&mut self, epoch: Epoch, response: ReceivedResponse, now: Moment) -> Vec<Update> {
        let late = epoch != self.epoch || !self.open;
        if late && !self.limits.faults.has(Fault::TakeLateMessages) {
            return Vec::new();
        }
        (self.answered, self.receiving) = (true, false);
        self.answered_at.get_or_insert(now);
        let ReceivedResponse { kind, rest, resources, bytes: _ } = response;
        let Some(subscription) = self.types.get_mut(&kind) else { return Vec::new() };
        subscription.on_poll(now);
        let (quirks, limits, is_relay) = (&*self.quirks, &*self.limits, self.is_relay);
        let mut context = ResponseContext { kind: &kind, quirks, limits, is_relay, now };
        match rest {
            Response::Sotw(rest) => subscription.read_sotw(rest, resources, &mut context),
            Response::Delta(rest) => subscription.read_delta(rest, resources, &mut context),
        }
    }

    /// Whether anything is kept of a type. It is kept while its last responses may come.
    pub(crate) fn has(&self, kind: &Type) -> bool {
        self.types.contains_key(kind)
    }
}
