//! One ADS stream to one server, through all its reconnects.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::ViewContext;
use super::opening::{Epoch, Opening, PollFailure};
use super::parser::{ReceivedResponse, ResponseMessage, Room};
use super::quirks::ServerQuirks;
use super::recovery::Recovery;
use super::rejected::Rejection;
use super::report::{NameRequest, TypeRejections, TypeSummary, WaitContext, add_waits, findings};
use super::response::ResponseContext;
use super::second_request::ReopenPace;
use super::set_progress::Delivery;
use super::stream_node::StreamNode;
use super::stream_trials::StreamTrials;
use super::subscriptions::Subscriptions;
use super::terms::Terms;
use crate::proto::{Request, Response};
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::protocol::session::Variant;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{Class, InterestChange, Selector, Update, View};
use crate::protocol::wait::WaitList;
use crate::xds::{BodyStore, Name, Type, TypeTable};

/// A stream to a server through all its openings: its types, and what is due on it.
#[derive(Debug)]
pub struct Stream {
    pub(super) terms: Terms,
    pub(super) node: StreamNode,
    subscriptions: Subscriptions,
    pub(super) opening: Opening,
    /// The next opening has to make the server send one resource of each type, which shows that the server is back.
    is_to_show_life: bool,
    /// The server has answered for the end of a set, and the caller has not taken that yet.
    answered_end: bool,
    /// Limits how often the stream is opened again for a second request.
    pace: ReopenPace,
    judged_at: Moment,
    table: Arc<TypeTable>,
}

impl Stream {
    pub(crate) fn new(
        variant: Variant,
        node: Bytes,
        quirks: Arc<ServerQuirks>,
        table: Arc<TypeTable>,
        options: Arc<UpstreamOptions>,
    ) -> Self {
        let (subscriptions, is_to_show_life, answered_end, pace, judged_at) = Default::default();
        let (terms, opening, node) = (Terms { variant, quirks, options }, Opening::none(), StreamNode::new(node));
        Self { terms, node, subscriptions, opening, is_to_show_life, answered_end, pace, judged_at, table }
    }

    /// Records that the server, or the connection to it, was lost.
    pub(crate) fn note_lost(&mut self, now: Moment) {
        self.opening.note_lost(now);
    }

    /// Returns what the stream knows about the last outage of the server. A caller may add what an earlier stream knew.
    pub(crate) fn recovery(&mut self) -> &mut Recovery {
        self.opening.recovery()
    }

    /// The stream is connected; the next request opens it for the server.
    pub fn opened(&mut self) -> Epoch {
        self.node.opened();
        self.opening = self.opening.next();
        self.opening.epoch()
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.opening.epoch()
    }

    /// Whether messages of this opening still count.
    pub(crate) fn is_current(&self, epoch: Epoch) -> bool {
        self.opening.is_current(epoch)
    }

    /// Records that the server has answered the liveness call.
    pub fn on_liveness_answer(&mut self, epoch: Epoch) {
        self.opening.on_liveness_answer(epoch);
    }

    /// Returns whether to make a liveness call on this connection.
    pub fn take_liveness_call(&mut self) -> bool {
        self.opening.take_liveness_call()
    }

    /// Whether the server has answered the last liveness call on this opening; `None` if there was none.
    pub fn has_answered_call(&self) -> Option<bool> {
        self.opening.has_answered_call()
    }

    /// Records that the server is a relay. It reports itself what does not exist and where its sets end, when it knows.
    pub fn on_relay(&mut self, epoch: Epoch) {
        self.opening.on_relay(epoch);
    }

    /// Records that a message has begun to come in. Until the message is complete, the server does not count as silent.
    pub fn on_receiving(&mut self, epoch: Epoch) {
        self.opening.on_receiving(epoch);
    }

    /// Records that a poll for a type was answered without changes.
    pub fn on_unchanged(&mut self, epoch: Epoch, url: &str, now: Moment) -> Option<Update> {
        let kind = self.table.resolve(url);
        let class = if self.is_current(epoch) { self.subscriptions.on_unchanged(&kind, now) } else { None };
        (class == Some(Class::Wildcard)).then_some(Update::Unchanged { kind })
    }

    /// Records that a poll for a type failed. Until a poll is answered again, the server's silence about the type is no evidence.
    pub fn on_poll_failed(&mut self, epoch: Epoch, url: &str, failure: PollFailure, now: Moment) {
        if self.is_current(epoch) {
            self.subscriptions.on_poll_failed(&self.table.resolve(url), failure, now, &self.terms.options);
        }
    }

    /// Returns the trials of the stream's types.
    pub fn trials(&mut self) -> StreamTrials<'_> {
        StreamTrials::new(&mut self.subscriptions, &self.terms, self.node.shown(), &self.opening)
    }

    /// Returns the types that are kept off the stream, each with the status if the server refuses it.
    pub fn types_apart(&self) -> impl Iterator<Item = (&Type, Option<&ServerStatus>)> {
        self.subscriptions.trials().all_apart()
    }

    /// Sets the types that any view has seen this server send in pieces.
    pub(crate) fn on_delivery_habits(&mut self, in_pieces: &Arc<BTreeSet<Type>>) {
        self.subscriptions.on_delivery_habits(in_pieces);
    }

    /// Returns how sets were delivered on this stream since the last call.
    pub(crate) fn take_deliveries(&mut self) -> impl Iterator<Item = (Type, Delivery)> {
        self.subscriptions.take_deliveries()
    }

    /// Handles the end of the stream. Cached resources stay (UP-32). What is known of sets and of absent names holds for one opening only.
    pub fn ended(&mut self, epoch: Epoch) -> Vec<Update> {
        if !self.is_current(epoch) {
            return Vec::new();
        }
        self.opening.end();
        self.subscriptions.disconnect(&self.terms, std::mem::take(&mut self.is_to_show_life))
    }

    /// Whether the server has responded on the present opening.
    pub fn has_answered(&self) -> bool {
        self.opening.is_open() && self.opening.has_answered()
    }

    /// Whether the server is silent because it has nothing left to send: it is alive, has had time to respond, and no response is due. A polled
    /// server has answered the last poll of a wanted type.
    pub(crate) fn is_healthy(&self, now: Moment) -> bool {
        if self.terms.quirks.per_type_liveness {
            return self.opening.is_open() && self.subscriptions.any(|of| of.wanted().is_any() && of.is_polled());
        }
        let in_time = |asked: Moment| self.opening.shows_life() && now >= asked + self.terms.options.resource_timer;
        let owes_nothing = self.opening.first_request().is_some_and(in_time) && !self.subscriptions.is_any_waiting();
        self.opening.is_open() && (owes_nothing || !self.is_wanted())
    }

    /// Sets the variant of the next opening.
    pub fn set_variant(&mut self, variant: Variant) {
        if std::mem::replace(&mut self.terms.variant, variant) != variant {
            self.subscriptions.clear_all_versions();
        }
    }

    /// Returns the variant of the stream, or of its next opening.
    pub fn variant(&self) -> Variant {
        self.terms.variant
    }

    /// Whether anything is requested on the stream.
    pub fn is_wanted(&self) -> bool {
        self.subscriptions.is_wanted()
    }

    pub(crate) fn want(&mut self, change: InterestChange, held: bool) {
        self.subscriptions.want(change, held, |kind| self.table.knows(kind.name()));
    }

    /// Whether anything is kept of a type. A type is kept while its last responses may come.
    pub(crate) fn has(&self, kind: &Type) -> bool {
        self.subscriptions.get(kind).is_some()
    }

    /// Returns the next request. Types are in make-before-break order, and no request waits for a response (UP-6).
    pub fn next_request(&mut self, now: Moment) -> Option<Request> {
        if !self.opening.is_open() {
            return None;
        }
        let has_node = self.opening.first_request().is_none() || self.terms.quirks.node_in_every_request;
        let (table, epoch, node) = (&*self.table, self.opening.epoch(), self.node.shown());
        let mut request = self.subscriptions.next_request(&self.terms, table, node, epoch, has_node, now)?;
        self.opening.on_request(now);
        if has_node {
            request.set_node(node.clone());
        }
        Some(request)
    }

    /// Records that all requests returned so far were written to the transport. From now on the server's silence counts (UP-36).
    pub fn written(&mut self, now: Moment) {
        self.subscriptions.on_written(&self.terms, now);
    }

    /// Reads a whole response, and applies it like [`Self::on_received`].
    pub fn on_response(&mut self, epoch: Epoch, response: Response, store: &BodyStore, now: Moment) -> Vec<Update> {
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &self.table, store);
        response.map_or_else(|_| Vec::new(), |response| self.on_received(epoch, response, now))
    }

    /// Turns a parsed response into updates, and queues its ACK. Ignores a response of an earlier opening.
    pub(crate) fn on_received(&mut self, epoch: Epoch, response: ReceivedResponse, now: Moment) -> Vec<Update> {
        if !self.is_current(epoch) {
            return Vec::new();
        }
        self.opening.on_response(now);
        let ReceivedResponse { kind, rest, resources, bytes: _ } = response;
        let (quirks, options, is_relay) = (&*self.terms.quirks, &*self.terms.options, self.opening.is_relay());
        let context = ResponseContext { kind: &kind, quirks, options, is_relay, now };
        self.subscriptions.on_response(rest, resources, &context)
    }

    /// Rejects resources that are new to the view and have no room. Returns how many bytes were rejected.
    pub fn make_room(&mut self, response: &mut ReceivedResponse, room: &Room, view: &View) -> usize {
        let rejected = self.subscriptions.make_room(response, room, view.tables());
        self.opening.note_lacked_room(&response.kind, rejected, response.is_set());
        rejected
    }

    /// Returns how many bytes were rejected on this opening for want of room, and were not requested again yet.
    pub fn lacked_room(&self) -> usize {
        self.opening.lacked_room()
    }

    /// Records that there is room: resources that were rejected for want of it are requested again on the next opening.
    pub fn on_room(&mut self) {
        self.opening.on_room();
    }

    /// Returns when something is next due on the stream.
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.opening.is_open() {
            return None;
        }
        let subscriptions = self.subscriptions.next_deadline(&self.terms, &self.opening, self.judged_at);
        let again = self.pause_ends_at().filter(|_| self.wants_reopen());
        let proof = self.opening.proof_due(&self.terms.quirks, &self.terms.options);
        let trials = self.subscriptions.trials().next_deadline(self.judged_at);
        let later = again.into_iter().chain(proof).chain(trials).filter(|at| *at > self.judged_at);
        later.chain(subscriptions).min()
    }

    /// Handles due timers.
    pub fn on_time(&mut self, at: &ViewContext, now: Moment) -> Vec<Update> {
        self.judged_at = now;
        // Peers can make up any number of types outside of the table, so these are forgotten after use. Types of the table stay, because what an
        // empty list means to the server depends on what it was sent before (SOTW-38).
        self.subscriptions.sweep(|kind| self.table.knows(kind.name()), now, &self.terms.options);
        if !self.opening.is_open() {
            return Vec::new();
        }
        if let Some(due) = self.opening.proof_due(&self.terms.quirks, &self.terms.options) {
            self.opening.judge(due, now);
        }
        let (updates, answered_end) = self.subscriptions.on_time(&self.terms, &mut self.opening, at, now);
        self.answered_end |= answered_end;
        updates
    }

    /// Returns whether the server has answered for the end of a set since the last call.
    pub(crate) fn take_answered_end(&mut self) -> bool {
        std::mem::take(&mut self.answered_end)
    }

    /// Whether the server has answered for each routing type on this opening, or was silent about it. `true` if nothing is wanted.
    pub(crate) fn has_answered_routing(&self) -> bool {
        let has_answered = || self.subscriptions.has_answered_routing(&self.terms, &self.opening, self.judged_at);
        !self.is_wanted() || self.opening.is_open() && has_answered()
    }

    /// Returns whether to open the stream again now. If so, the pause before the next time begins, unless this time needed none.
    pub fn take_reopen(&mut self, now: Moment) -> bool {
        let is_due = self.is_reopen_due(now);
        if is_due && !self.asks_at_once() {
            self.pace.note(now, self.subscriptions.waits_for_opening(), &self.terms.options);
        }
        is_due
    }

    /// Whether the stream is to be opened again now.
    pub(crate) fn is_reopen_due(&self, now: Moment) -> bool {
        let due = self.pause_ends_at().is_none_or(|at| at <= now);
        self.wants_reopen() && (due || self.asks_at_once())
    }

    /// Returns when the pause since the last reopening is over.
    fn pause_ends_at(&self) -> Option<Moment> {
        self.pace.next_at(self.subscriptions.waits_for_opening(), &self.terms.options)
    }

    fn wants_reopen(&self) -> bool {
        self.opening.is_open() && (self.opening.is_outdated() || self.asks_at_once() || self.subscriptions.is_to_ask())
    }

    /// Whether to open the stream again without a pause: to show another node, to ask for the end of a set, or to make the server show that it is alive.
    fn asks_at_once(&self) -> bool {
        let is_due = self.is_to_show_life || self.node.changes();
        is_due || self.subscriptions.any(|of| of.second_request().is_to_ask_at_once())
    }

    /// Makes the server send again what it has, because other servers have sent other content in the meantime.
    pub(crate) fn clear_all_versions(&mut self, of: impl Fn(&Selector) -> bool) {
        self.opening.outdate(); // this opening has stated those versions
        self.subscriptions.clear_versions(of);
    }

    /// Makes the server send a set again from the beginning, because the set was incomplete when a stream ended.
    pub(crate) fn clear_set_versions(&mut self, kind: &Type, of: &Selector) {
        self.subscriptions.clear_set_versions(kind, of);
    }

    /// Makes a server that was unreachable send one resource of each type again. Otherwise, if nothing has changed, it would send nothing and
    /// could not show that it is back. If this opening has made requests, they have stated the versions, so the stream is opened again at once.
    pub fn clear_one_version_per_type(&mut self) {
        if self.opening.first_request().is_none() || !self.opening.is_open() {
            self.subscriptions.clear_one_version_per_type();
        } else {
            self.is_to_show_life = true;
        }
    }

    /// Records that the server gave a resource to an earlier process. The first delta request states it, so the server repeats or removes it.
    pub(crate) fn note_given_earlier(&mut self, kind: &Type, name: &Name) {
        if self.terms.quirks.supports_initial_resource_versions {
            self.subscriptions.on_given_earlier(kind, name);
        }
    }

    /// Makes the server say again, on the next opening, what it has under a name, because what it said before no longer counts.
    pub(crate) fn request_again(&mut self, kind: &Type, name: &Name) {
        self.subscriptions.request_again(kind, name, &self.terms);
    }

    /// Returns what the server has reported so far, since its responses count now. A server that had sent a resource would be active already.
    pub(crate) fn recheck(&mut self) -> Vec<Update> {
        self.subscriptions.recheck();
        self.subscriptions.iter().flat_map(|(kind, of)| findings(kind, of, &self.terms.quirks)).collect()
    }

    /// Returns the types of the stream, for reports.
    pub fn types(&self) -> impl Iterator<Item = TypeSummary<'_>> {
        TypeSummary::all(self.subscriptions.iter(), |kind| self.subscriptions.place(kind))
    }

    /// Returns the current rejections of a type, by name.
    pub fn rejected(&self, kind: &Type) -> impl Iterator<Item = (&Name, &Rejection)> {
        self.subscriptions.get(kind).into_iter().flat_map(|subscription| subscription.rejected().names())
    }

    /// Returns what was rejected since the last call, each version of a name once.
    pub fn take_rejected(&mut self) -> Vec<TypeRejections> {
        self.subscriptions.take_rejections().filter_map(TypeRejections::of).collect()
    }

    /// Returns how many names were left out of requests since the last call, by type.
    pub fn take_left_out(&mut self) -> Vec<(Type, usize)> {
        let counts = self.subscriptions.take_left_out_counts().filter(|(_, count)| *count > 0);
        counts.map(|(kind, count)| (kind.clone(), count)).collect()
    }

    /// Returns what is known of a name; `None` if it is not requested on this stream.
    pub fn request_of(&self, kind: &Type, name: &Name) -> Option<NameRequest> {
        NameRequest::find(self.subscriptions.get(kind)?, self.subscriptions.place(kind), name)
    }

    /// Adds the waits for this server to the list.
    pub(crate) fn add_waits(&self, server: usize, view: &View, now: Moment, list: &mut WaitList) {
        let (quirks, options, opening) = (&*self.terms.quirks, &*self.terms.options, &self.opening);
        let others = self.subscriptions.others(opening, options);
        let (is_to_reopen, last_reopened) = (opening.is_outdated() || self.is_to_show_life, self.pace.last());
        for (kind, subscription) in self.subscriptions.iter() {
            let context =
                WaitContext { kind, server, view, quirks, options, opening, others, last_reopened, is_to_reopen, now };
            add_waits(subscription, &context, list);
        }
    }
}
