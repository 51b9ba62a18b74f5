//! One type on one upstream stream: what is subscribed, what the server has sent of it, and what follows.

use super::end_question::EndQuestion;
use super::given::{GivenVersions, Statement, UNKNOWN};
use super::name_states::NameStates;
use super::opening::{Liveness, PollFailure};
use super::parsed_response::ParsedResponse;
use super::parts::SubscriptionParts;
use super::quirks::ServerQuirks;
use super::rejected::{NewRejections, Rejected};
use super::request::RequestProgress;
use super::request_context::RequestContext;
use super::request_room::version_bytes;
use super::response::{ResponseContext, read_delta, read_sotw};
use super::second_request::SecondRequest;
use super::set_progress::{Delivery, DeliveryRecord, SetProgress};
use super::silence::{self, TimerContext};
use super::wanted::Wanted;
use crate::proto::{Request, Response};
use crate::protocol::moment::Moment;
use crate::protocol::server_status::ServerStatus;
use crate::protocol::session::Variant;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{Class, NoRoom, Selector, Update};
use crate::xds::{Name, Role, Type};

#[derive(Debug)]
pub(super) struct TypeSubscription {
    wanted: Wanted,
    given: GivenVersions,
    /// Wanted names that the server has not sent on this opening.
    names: NameStates,
    rejected: Rejected,
    wire: RequestProgress,
    progress: SetProgress,
    deliveries: DeliveryRecord,
    second_request: SecondRequest,
    end_question: EndQuestion,
    /// What the polls of this type prove, if each type is polled separately.
    poll_liveness: Liveness,
    /// Timers up to this moment were handled.
    judged_at: Moment,
}

impl TypeSubscription {
    /// Starts with nothing wanted. `wire` has what this opening has requested of the type.
    pub(crate) fn new(class: Class, wire: RequestProgress) -> Self {
        let (given, names, rejected, progress, deliveries) = Default::default();
        let (second_request, end_question, poll_liveness) = Default::default();
        Self {
            wanted: Wanted::new(class),
            given,
            names,
            rejected,
            wire,
            progress,
            deliveries,
            second_request,
            end_question,
            poll_liveness,
            judged_at: Moment::START,
        }
    }

    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    pub(crate) fn given(&self) -> &GivenVersions {
        &self.given
    }

    pub(crate) fn names(&self) -> &NameStates {
        &self.names
    }

    pub(crate) fn rejected(&self) -> &Rejected {
        &self.rejected
    }

    pub(crate) fn wire(&self) -> &RequestProgress {
        &self.wire
    }

    pub(crate) fn progress(&self) -> &SetProgress {
        &self.progress
    }

    pub(crate) fn deliveries(&self) -> &DeliveryRecord {
        &self.deliveries
    }

    pub(crate) fn second_request(&self) -> &SecondRequest {
        &self.second_request
    }

    pub(crate) fn end_question(&self) -> &EndQuestion {
        &self.end_question
    }

    /// Whether a response is due: the first set of `*`, or a requested name.
    pub(crate) fn is_waiting(&self) -> bool {
        self.wanted.has_wildcard() && self.given.is_nothing() || self.names.is_any_waiting()
    }

    /// Whether nothing of the type is wanted any more, the server was sent that, and it has had time for its last responses.
    pub(crate) fn is_over(&self, now: Moment, options: &UpstreamOptions) -> bool {
        let sent = self.wire.is_acked() && now >= self.wire.last_sent_at() + options.resource_timer;
        !self.wanted.is_any() && (sent || !self.wire.is_opened())
    }

    /// Whether the end of the set of `*` is known on this opening.
    pub(crate) fn is_at_end(&self) -> bool {
        self.progress.is_complete() || self.end_question.has_ended()
    }

    pub(crate) fn is_polled(&self) -> bool {
        self.poll_liveness.is_proven()
    }

    /// Applies a change of interest. A name that is cached from another server (`held`) has no resource timer if it is part of the first
    /// request. Later it has one like any other name.
    pub(crate) fn want(&mut self, selector: Selector, on: bool, held: bool) {
        if self.wanted.has_wildcard() && on && selector == Selector::Wildcard {
            return; // the server sends changes of a set by itself
        }
        if let Selector::Name(name) = &selector
            && if on { self.wanted.left_out().has(name) } else { self.wanted.remove_left_out(name) }
        {
            return; // the name is left out of requests, so the server does not know it
        }
        self.wire.on_change();
        match (selector, on) {
            (Selector::Wildcard, on) => {
                self.wanted.set_wildcard(on);
                self.wire.want_wildcard(on);
                self.forget_set(); // a late response to an earlier `*` may have come in the meantime
            }
            (Selector::Name(name), true) => self.want_name(name, held),
            (Selector::Name(name), false) => self.leave_name(name),
        }
    }

    fn want_name(&mut self, name: Name, held: bool) {
        // A member that came with its collection exists. When it is then requested by name, silence about it is no evidence.
        let given = self.given.has(&name) && self.wanted.globs().of(&name).is_some();
        let is_new = self.wanted.insert(&name);
        match is_new {
            true => self.wire.subscribe(name.clone()),
            false => self.wire.subscribe_again(name.clone()),
        }
        match (is_new, self.names.get(&name)) {
            (true, _) if given || held && !self.wire.is_opened() => self.names.given(&name),
            // The name is wanted again: it stays cached, and its version is not stated, so that the server sends it.
            (false, None) => self.given.forget(&name),
            _ => self.names.request(name),
        }
    }

    fn leave_name(&mut self, name: Name) {
        self.names.forget(&name);
        self.second_request.answered(&name);
        if self.wanted.remove(&name) {
            self.given.forget_members(&name, &self.wanted);
            self.rejected.retain(|rejected| rejected.collection().as_ref() != Some(&name));
            self.second_request.retain(|member| member.collection().as_ref() != Some(&name));
        }
        if self.wanted.globs().of(&name).is_none() {
            self.given.forget(&name);
            self.rejected.remove(&name); // it would count as the answer to a later subscription
        }
        self.rejected.remove_error(&name);
        self.given.forget_alias(&name, &self.wanted);
        self.wire.unsubscribe(name);
    }

    fn forget_set(&mut self) {
        self.given.forget_all();
        self.progress = SetProgress::default();
        self.rejected.disconnect();
        self.second_request = SecondRequest::default();
        self.end_question = EndQuestion::default(); // the set whose end it asks for is no longer subscribed
    }

    pub(crate) fn next_request(&mut self, context: &RequestContext) -> Option<Request> {
        let is_unopened = !self.wire.is_opened() && self.wanted.is_any();
        if !is_unopened && !self.wire.is_due(context.now) {
            return None;
        }
        if context.variant == Variant::Delta && self.wire.is_opened() && self.wire.has_ack() {
            return self.wire.delta_ack(context).map(Request::Delta);
        }
        if is_unopened || self.wire.has_changed() {
            self.fit_names(context);
        }
        let is_first = !self.wire.is_opened() && self.wanted.is_requestable(context.variant);
        if !self.wire.is_opened() && !is_first {
            self.wire.drop_change(); // unsubscribed again before anything was sent, or not requestable
            return None;
        }
        self.rejected.on_request(is_first);
        let had_change = self.wire.has_changed();
        let Self { wanted, names, given, wire, second_request, .. } = self;
        let request = match context.variant {
            Variant::Sotw => Some(Request::Sotw(wire.sotw_request(context, is_first, given.accepted(), wanted, names))),
            Variant::Delta => wire
                .delta_request(context, is_first, wanted, names, |room| {
                    let knows_some = given.is_anything_to_state() || !second_request.is_empty();
                    let may_ask = knows_some && wanted.has_wildcard() && self.deliveries.may_show_end(context.quirks);
                    let question = may_ask.then(|| context.made_up_name());
                    let question = question.filter(|name| room.take(version_bytes(name, UNKNOWN)));
                    question.iter().for_each(|name| self.end_question.ask(name.clone(), given.with_ttl().clone()));
                    if !context.quirks.supports_initial_resource_versions {
                        return Statement::default();
                    }
                    second_request.insert(given.take_given_earlier(wanted));
                    let mut statement = given.state(wanted, second_request.names(), room);
                    self.progress.on_stated(std::mem::take(&mut statement.current));
                    Statement { question, ..statement }
                })
                .map(Request::Delta),
        }?;
        let is_polled = context.quirks.per_type_liveness;
        if is_first && context.kind.is(Role::Routing) && self.wanted.class() == Class::Named && !is_polled {
            self.names.expect(context.variant, &self.wanted, &self.given);
        }
        self.wire.on_made(had_change, context);
        Some(request)
    }

    /// Decides for which names the next request has room.
    fn fit_names(&mut self, context: &RequestContext) {
        let (variant, is_first) = (context.variant, !self.wire.is_opened());
        let (out, back) = self.wanted.fit(context.room_for_names(), variant, is_first);
        for name in out {
            self.want(Selector::Name(name.clone()), false, false);
            self.wanted.leave_out(name, || NoRoom::InRequest(context.quirks.max_request_bytes).error());
        }
        for name in back {
            self.wanted.remove_left_out(&name);
            self.want(Selector::Name(name), true, false);
        }
        self.wanted.end_fit();
    }

    pub(crate) fn on_written(&mut self, now: Moment, quirks: &ServerQuirks, options: &UpstreamOptions) {
        // The poll of a request may have to wait for the end of the poll before.
        let answers = if quirks.per_type_liveness { 2 } else { 1 };
        self.names.left_written(now, options.resource_timer * answers);
        // A polled type counts as requested once a poll was answered: its request may still wait for the response to an earlier poll.
        if quirks.per_type_liveness && !self.is_polled() {
            return;
        }
        if self.wire.is_opened() {
            self.wire.on_written(now);
            self.second_request.written(now);
            self.end_question.written(now);
        }
        let Some(lasting) = quirks.resource_timer(options) else { return };
        // Collections have no timer: only the server knows what is in them (COLL-20).
        self.names.written(now, lasting, |name| !self.wanted.globs().has(name));
    }

    pub(crate) fn on_response(
        &mut self,
        rest: Response,
        resources: ParsedResponse,
        context: &ResponseContext,
    ) -> Vec<Update> {
        self.on_poll(context.now);
        match rest {
            Response::Sotw(rest) => read_sotw(&mut self.parts(), rest, resources, context),
            Response::Delta(rest) => read_delta(&mut self.parts(), rest, resources, context),
        }
    }

    /// Records that a poll for the type was answered, with or without changes.
    pub(crate) fn on_poll(&mut self, now: Moment) {
        self.poll_liveness.answered_at(now);
        self.names.on_response();
    }

    /// Records that a poll for the type was not answered.
    pub(crate) fn on_poll_failed(&mut self, failure: PollFailure, now: Moment, options: &UpstreamOptions) {
        self.poll_liveness = Liveness::default();
        self.names.on_poll_failed(failure, now, options);
    }

    /// Reports for a type that is kept off the stream: if the server refuses it, an error for each wanted name, once.
    pub(crate) fn report_refusal(&mut self, kind: &Type, status: Option<&ServerStatus>) -> Vec<Update> {
        let is_news = status.is_some_and(|status| self.rejected.is_news(status));
        let Some(status) = status.filter(|_| is_news || self.wire.has_changed()) else { return Vec::new() };
        let news = self.wire.take_unsent();
        self.rejected.report_refusal(kind, if is_news { self.wanted.names() } else { &news }, status)
    }

    /// Handles due timers.
    pub(crate) fn on_time(&mut self, variant: Variant, context: &mut TimerContext) -> Vec<Update> {
        self.judged_at = context.now;
        let mut updates = match variant {
            Variant::Sotw => self.wanted.reject_globs(context.kind),
            Variant::Delta => Vec::new(),
        };
        updates.extend(silence::conclude(&mut self.parts(), context));
        updates.extend(self.wanted.report_left_out(context.kind));
        silence::plan_second_request(&mut self.parts(), context);
        updates
    }

    /// Requests this set again too, because another set is requested on a new opening, if clients need it (`is_sought`) and its end is not known.
    pub(crate) fn ask_for_set_too(&mut self, is_sought: bool) {
        if self.wanted.has_wildcard() && is_sought && !self.is_at_end() {
            silence::ask_for_set_too(&mut self.parts());
        }
    }

    fn parts(&mut self) -> SubscriptionParts<'_> {
        SubscriptionParts {
            wanted: &mut self.wanted,
            given: &mut self.given,
            names: &mut self.names,
            rejected: &mut self.rejected,
            wire: &mut self.wire,
            progress: &mut self.progress,
            deliveries: &mut self.deliveries,
            second_request: &mut self.second_request,
            end_question: &mut self.end_question,
            poll_liveness: &mut self.poll_liveness,
        }
    }

    pub(crate) fn judged_at(&self) -> Moment {
        self.judged_at
    }

    pub(crate) fn end_first_answer(&mut self) {
        self.names.end_first_answer();
    }

    /// Handles the end of the stream, and with it of the server's state. What the server gave stays cached, with its versions.
    pub(crate) fn disconnect(&mut self, variant: Variant, quirks: &ServerQuirks) {
        if self.progress.was_at_once() {
            self.deliveries.note(Delivery::AtOnce);
        }
        if variant == Variant::Sotw || !quirks.supports_initial_resource_versions {
            self.given.unconfirm_all();
        }
        let is_unread = self.wire.waits_for_opening();
        self.wanted.disconnect();
        self.names.request_rejected(&self.wanted, &self.given, &self.rejected);
        self.rejected.disconnect(); // if a rejected resource still exists, the server sends it again
        self.rejected.clear_errors();
        self.wire.disconnect();
        self.names.disconnect();
        self.second_request.disconnect();
        self.end_question.disconnect();
        if (is_unread || !self.second_request.is_empty()) && self.wanted.class() == Class::Wildcard {
            self.given.clear_accepted(); // if this version were stated, the server would again have no reason to respond
        }
        (self.progress, self.poll_liveness) = Default::default();
    }

    /// Makes the server send these names again. See [`GivenVersions::clear_versions`].
    pub(crate) fn clear_versions(&mut self, which: impl Fn(&Name) -> bool) {
        self.given.clear_versions(self.wanted.class(), which);
    }

    pub(crate) fn clear_one_version(&mut self) {
        self.given.clear_one_version(self.wanted.class());
    }

    pub(crate) fn clear_accepted(&mut self) {
        self.given.clear_accepted();
    }

    /// Has the first delta request state a name under a version that no server gives.
    pub(crate) fn state_as_unknown(&mut self, name: Name) {
        self.given.state_as_unknown(name);
    }

    pub(crate) fn recheck(&mut self) {
        self.second_request.recheck();
    }

    pub(crate) fn set_in_pieces_for_others(&mut self, in_pieces: bool) {
        self.deliveries.set_in_pieces_for_others(in_pieces);
    }

    pub(crate) fn take_deliveries(&mut self) -> Vec<Delivery> {
        self.deliveries.take_unshared()
    }

    pub(crate) fn take_rejections(&mut self) -> NewRejections {
        self.rejected.take_news()
    }

    pub(crate) fn take_left_out_count(&mut self) -> usize {
        self.wanted.take_left_out_count()
    }
}
