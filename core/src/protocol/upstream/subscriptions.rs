//! The types of one stream. Their sets arrive one after another, so what is concluded for one type depends on how far the others have come. The
//! routing types count together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::ViewContext;
use super::forgotten_types::ForgottenTypes;
use super::opening::{Epoch, Opening, PollFailure, SilenceVerdict};
use super::parsed_response::ParsedResponse;
use super::parser::{ReceivedResponse, Room};
use super::rejected::NewRejections;
use super::report::{TypePlace, next_deadline};
use super::request_context::RequestContext;
use super::requestable::{is_requestable, is_routing, is_spoken};
use super::response::ResponseContext;
use super::routing_answers::{self, first_answer_due};
use super::set_progress::{COMES_IN, Delivery};
use super::silence::{OtherTypes, TimerContext};
use super::terms::Terms;
use super::type_subscription::TypeSubscription;
use super::type_trials::TypeTrials;
use crate::proto::{Request, Response};
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::options::UpstreamOptions;
use crate::protocol::view::{Class, InterestChange, Selector, Tables, Update};
use crate::xds::{Name, Resource, Type, TypeTable};

#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    types: BTreeMap<Type, TypeSubscription>,
    forgotten: ForgottenTypes,
    /// Types that any view has seen this server send in pieces.
    in_pieces: Arc<BTreeSet<Type>>,
    /// Which types are not requested for now, because the server may end the stream for them.
    trials: TypeTrials,
}

impl Subscriptions {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Type, &TypeSubscription)> {
        self.types.iter()
    }

    pub(crate) fn get(&self, kind: &Type) -> Option<&TypeSubscription> {
        self.types.get(kind)
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.any(|of| of.wanted().is_any())
    }

    pub(crate) fn trials(&self) -> &TypeTrials {
        &self.trials
    }

    pub(crate) fn trials_mut(&mut self) -> &mut TypeTrials {
        &mut self.trials
    }

    pub(crate) fn is_any_waiting(&self) -> bool {
        self.types.iter().any(|(kind, of)| of.is_waiting() && !self.trials.is_apart(kind))
    }

    pub(crate) fn place(&self, kind: &Type) -> TypePlace<'_> {
        match self.trials.refusal(kind) {
            Some(status) => TypePlace::Refused(status),
            None if self.trials.is_apart(kind) => TypePlace::NotAsked,
            None => TypePlace::OnStream,
        }
    }

    pub(crate) fn any(&self, is: impl FnMut(&TypeSubscription) -> bool) -> bool {
        self.types.values().any(is)
    }

    /// Whether a type waits for a new opening, on which it is requested.
    pub(crate) fn waits_for_opening(&self) -> bool {
        self.any(|of| of.wanted().is_any() && of.wire().waits_for_opening())
    }

    /// Whether something is to be requested on a new opening.
    pub(crate) fn is_to_ask(&self) -> bool {
        self.waits_for_opening() || self.any(|of| of.second_request().is_to_ask())
    }

    /// Applies a change of interest. Types that are `kept` are never forgotten.
    pub(crate) fn want(&mut self, change: InterestChange, held: bool, is_kept: impl Fn(&Type) -> bool) {
        let InterestChange { kind, selector, on } = change;
        let in_pieces = self.in_pieces.contains(&kind);
        let class = match selector {
            Selector::Wildcard => Class::Wildcard,
            Selector::Name(_) => Class::Named,
        };
        let Self { types, forgotten, .. } = self;
        let begin = |kind: &Type| TypeSubscription::new(class, forgotten.take(kind, class, is_kept));
        let subscription = types.entry(kind).or_insert_with_key(begin);
        subscription.set_in_pieces_for_others(in_pieces);
        subscription.want(selector, on, held);
    }

    /// Forgets types that are no longer wanted, when no response for them may come any more. Types that are to `stay` are kept.
    pub(crate) fn sweep(&mut self, stay: impl Fn(&Type) -> bool, now: Moment, options: &UpstreamOptions) {
        let Self { types, forgotten, .. } = self;
        for (kind, of) in types.extract_if(.., |kind, of| of.is_over(now, options) && !stay(kind)) {
            forgotten.note(&kind, of.wanted().class(), of.wire());
        }
    }

    /// Sets the types that any view has seen this server send in pieces.
    pub(crate) fn on_delivery_habits(&mut self, in_pieces: &Arc<BTreeSet<Type>>) {
        if !Arc::ptr_eq(in_pieces, &self.in_pieces) {
            self.in_pieces = in_pieces.clone();
            self.types.iter_mut().for_each(|(kind, of)| of.set_in_pieces_for_others(in_pieces.contains(kind)));
        }
    }

    /// Returns how sets were delivered on this stream since the last call.
    pub(crate) fn take_deliveries(&mut self) -> impl Iterator<Item = (Type, Delivery)> {
        let of = |(kind, of): (&Type, &mut TypeSubscription)| {
            of.take_deliveries().into_iter().map(|seen| (kind.clone(), seen)).collect::<Vec<_>>()
        };
        self.types.iter_mut().flat_map(of)
    }

    pub(crate) fn take_rejections(&mut self) -> impl Iterator<Item = (&Type, NewRejections)> {
        self.types.iter_mut().map(|(kind, of)| (kind, of.take_rejections()))
    }

    pub(crate) fn take_left_out_counts(&mut self) -> impl Iterator<Item = (&Type, usize)> {
        self.types.iter_mut().map(|(kind, of)| (kind, of.take_left_out_count()))
    }

    /// Returns the next request, which is of the first type that has one to send.
    pub(crate) fn next_request(
        &mut self,
        terms: &Terms,
        table: &TypeTable,
        node: &[u8],
        epoch: Epoch,
        has_node: bool,
        now: Moment,
    ) -> Option<Request> {
        let (variant, quirks, options) = (terms.variant, &*terms.quirks, &*terms.options);
        let Self { types, trials, .. } = self;
        if quirks.tries_types_apart {
            let is_asked = |(kind, of): &(&Type, &TypeSubscription)| {
                is_spoken(kind, variant) && (of.wire().is_opened() || of.wanted().is_requestable(variant))
            };
            let asked = types.iter().filter(is_asked).map(|(kind, of)| (kind, of.wire().is_opened()));
            trials.sort(asked, |kind| table.knows(kind.name()), now);
        }
        types.iter_mut().filter(|(kind, _)| is_spoken(kind, variant)).find_map(|(kind, subscription)| {
            let was_opened = subscription.wire().is_opened();
            if !was_opened && trials.is_apart(kind) {
                return None;
            }
            let context = RequestContext { kind, variant, node, epoch, has_node, quirks, options, now };
            let request = subscription.next_request(&context)?;
            if !was_opened && quirks.tries_types_apart {
                trials.on_requested(kind, now);
            }
            Some(request)
        })
    }

    pub(crate) fn on_written(&mut self, terms: &Terms, now: Moment) {
        let Self { types, trials, .. } = self;
        for (_, subscription) in types.iter_mut().filter(|(kind, _)| !trials.is_apart(kind)) {
            subscription.on_written(now, &terms.quirks, &terms.options);
        }
    }

    /// Rejects new resources without room, but never changes of resources that the view has, nor removals. Returns how many bytes.
    pub(crate) fn make_room(&self, response: &mut ReceivedResponse, room: &Room, tables: &Tables) -> usize {
        let kind = response.kind.clone();
        let Some(wanted) = self.types.get(&kind).map(TypeSubscription::wanted) else { return 0 };
        if !response.may_exceed(room) {
            return 0;
        }
        let class = wanted.class();
        let held = |name: &Name| tables.entry(&kind, class, name)?.resource();
        let all = (class == Class::Wildcard).then(|| tables.present(&kind, class)).into_iter().flatten();
        let freed = response.frees(room.each, held, all);
        let is_held = |resource: &Resource| {
            let mut names = [&resource.name].into_iter().chain(resource.aliases());
            names.any(|name| held(name).is_some())
        };
        response.fit_into(room, freed, |resource| wanted.wants_resource(resource) && !is_held(resource))
    }

    pub(crate) fn on_response(
        &mut self,
        rest: Response,
        resources: ParsedResponse,
        context: &ResponseContext,
    ) -> Vec<Update> {
        self.trials.on_response(context.kind);
        let Some(subscription) = self.types.get_mut(context.kind) else {
            self.forgotten.on_response(context.kind, &rest);
            return Vec::new();
        };
        subscription.on_response(rest, resources, context)
    }

    /// Records that a poll for a type was answered without changes. Returns the class of the type, unless the server has an entry without a
    /// readable name, so that it is not known what it lacks.
    pub(crate) fn on_unchanged(&mut self, kind: &Type, now: Moment) -> Option<Class> {
        let subscription = self.types.get_mut(kind)?;
        subscription.on_poll(now);
        subscription.rejected().unnamed().is_none().then(|| subscription.wanted().class())
    }

    pub(crate) fn on_poll_failed(&mut self, kind: &Type, failure: PollFailure, now: Moment, options: &UpstreamOptions) {
        if let Some(subscription) = self.types.get_mut(kind) {
            subscription.on_poll_failed(failure, now, options);
        }
    }

    pub(crate) fn next_deadline(&self, terms: &Terms, opening: &Opening, judged_at: Moment) -> Option<Moment> {
        let unreported = |of: &TypeSubscription| {
            let globs = terms.variant == Variant::Sotw && of.wanted().globs().any_unasked();
            globs || of.wanted().left_out().is_to_report() || of.names().is_behind()
        };
        let others = self.others(opening, &terms.options);
        let deadline = |of: &TypeSubscription| match unreported(of) {
            true => Some(Moment::START),
            false => next_deadline(of, others, &terms.options),
        };
        let on_stream = self.types.iter().filter(|(kind, _)| !self.trials.is_apart(kind));
        let deadlines = on_stream.filter_map(|(_, of)| deadline(of));
        let due = routing_answers::next_due(self.routing(terms.variant), terms, opening, judged_at);
        deadlines.chain(due).chain(self.trials_end(terms, opening, judged_at).filter(|at| *at > judged_at)).min()
    }

    /// Handles due timers. Returns the updates, and whether the server has answered for the end of a set.
    pub(crate) fn on_time(
        &mut self,
        terms: &Terms,
        opening: &mut Opening,
        at: &ViewContext,
        now: Moment,
    ) -> (Vec<Update>, bool) {
        self.judge_routing(terms, opening, now);
        let (variant, quirks, options) = (terms.variant, &*terms.quirks, &*terms.options);
        let others = self.others(opening, options);
        let (mut updates, mut answered_end) = (Vec::new(), false);
        let Self { types, trials, .. } = self;
        let is_wanted = |kind: &Type| types.get(kind).is_some_and(|of| is_requestable(kind, of, variant));
        trials.on_time(|kind| types.contains_key(kind), is_wanted, now);
        for (kind, subscription) in types {
            if trials.is_apart(kind) {
                updates.extend(subscription.report_refusal(kind, trials.refusal(kind)));
                continue;
            }
            let had_ended = subscription.end_question().has_ended();
            let mut context = TimerContext { kind, at, quirks, options, opening: &mut *opening, others, now };
            updates.extend(subscription.on_time(variant, &mut context));
            answered_end |= !had_ended && subscription.end_question().has_ended();
        }
        // A new opening makes the wait of each set start over. So it asks for all sets that clients need; else each would take an opening of its own.
        if self.any(|of| of.second_request().is_to_ask_for_set()) {
            self.types.iter_mut().for_each(|(kind, of)| of.ask_for_set_too(at.view.sought().has_set(kind)));
        }
        (updates, answered_end)
    }

    /// Records that the stream has ended. With `shows_life`, the next opening makes the server send one resource of each type.
    pub(crate) fn disconnect(&mut self, terms: &Terms, shows_life: bool) -> Vec<Update> {
        self.trials.on_closed();
        self.forgotten = ForgottenTypes::default();
        self.types.retain(|_, subscription| subscription.wanted().is_any());
        // In SotW a server sends a set again if its version is not stated. Otherwise it would be silent, and the set would take another opening.
        let asks = terms.variant == Variant::Sotw && self.any(|of| of.second_request().is_to_ask());
        let mut updates = Vec::new();
        for (kind, subscription) in &mut self.types {
            let is_set = subscription.wanted().class() == Class::Wildcard;
            let wildcard = is_set.then_some(Selector::Wildcard);
            let names = subscription.names().iter().map(|(name, _)| name).chain(subscription.wanted().globs().all());
            let of = wildcard.into_iter().chain(names.cloned().map(Selector::Name));
            updates.extend(of.map(|of| Update::Interrupted { kind: kind.clone(), of }));
            subscription.disconnect(terms.variant, &terms.quirks);
            if asks && is_set {
                subscription.clear_accepted();
            }
            if shows_life {
                subscription.clear_one_version();
            }
        }
        updates
    }

    /// Makes the server send again what it has, because other servers have sent other content in the meantime.
    pub(crate) fn clear_versions(&mut self, of: impl Fn(&Selector) -> bool) {
        for subscription in self.types.values_mut() {
            match subscription.wanted().class() {
                Class::Wildcard if of(&Selector::Wildcard) => subscription.clear_versions(|_| true),
                Class::Wildcard => {}
                Class::Named => subscription.clear_versions(|name| of(&Selector::Name(name.clone()))),
            }
        }
    }

    /// Makes the server send again everything, whichever server sent it last.
    pub(crate) fn clear_all_versions(&mut self) {
        self.types.values_mut().for_each(|of| of.clear_versions(|_| true));
    }

    pub(crate) fn clear_set_versions(&mut self, kind: &Type, of: &Selector) {
        let Some(subscription) = self.types.get_mut(kind) else { return };
        match of {
            Selector::Wildcard => subscription.clear_versions(|_| true),
            Selector::Name(glob) => subscription.clear_versions(|name| name.collection().as_ref() == Some(glob)),
        }
    }

    pub(crate) fn clear_one_version_per_type(&mut self) {
        self.types.values_mut().for_each(TypeSubscription::clear_one_version);
    }

    /// Records that the server gave a resource to an earlier process.
    pub(crate) fn on_given_earlier(&mut self, kind: &Type, name: &Name) {
        if let Some(subscription) = self.types.get_mut(kind).filter(|of| !of.wire().is_opened()) {
            subscription.state_as_unknown(name.clone());
        }
    }

    /// Makes the server say again, on the next opening, what it has under a name, because what it said before no longer counts.
    pub(crate) fn request_again(&mut self, kind: &Type, name: &Name, terms: &Terms) {
        let Some(subscription) = self.types.get_mut(kind) else { return };
        match terms.variant {
            Variant::Delta if !terms.quirks.supports_initial_resource_versions => {} // it sends everything again
            Variant::Delta => subscription.state_as_unknown(name.clone()),
            Variant::Sotw => subscription.clear_accepted(),
        }
    }

    pub(crate) fn recheck(&mut self) {
        self.types.values_mut().for_each(TypeSubscription::recheck);
    }

    /// Returns what one type needs to know of the others. For a while, no type counts as finished while another is coming in.
    pub(crate) fn others(&self, opening: &Opening, options: &UpstreamOptions) -> OtherTypes {
        let news = self.types.values().filter_map(|of| of.progress().news()).max();
        let with_sets = self.types.values().filter(|of| of.wanted().has_sets());
        let last = with_sets.filter_map(|of| of.progress().news()).max().map(|news| news + options.settle_stated);
        let first = opening.first_response();
        let until = last.zip(first).map(|(last, first)| last.min(first + COMES_IN));
        let fresh = news.zip(first).map(|(last, first)| (last + options.settle_fresh).min(first + COMES_IN));
        let [come_in_until, fresh_until] = [until, fresh].map(|at| at.unwrap_or(Moment::START));
        OtherTypes { come_in_until, fresh_until, news }
    }

    /// Returns the routing types that are requested on this stream.
    fn routing(&self, variant: Variant) -> impl Iterator<Item = &TypeSubscription> + Clone {
        let of = self.types.iter().filter(move |(kind, _)| self.place(kind) == TypePlace::OnStream);
        of.filter(move |(kind, of)| is_routing(kind, of, variant)).map(|(_, of)| of)
    }

    /// Whether the server has answered the first request of each routing type, or was alive and silent about the rest.
    pub(crate) fn has_answered_routing(&self, terms: &Terms, opening: &Opening, now: Moment) -> bool {
        self.trials_end(terms, opening, now).is_none_or(|end| end <= now)
            && self.routing(terms.variant).all(|of| of.names().has_answered_first())
    }

    /// Returns until when a routing type that is yet to be tried keeps the routing unanswered: what the server has of it may refer to anything.
    /// `None` if there is no such type, or no trial. A refused type does not count. The time is limited, since views try one type after another.
    fn trials_end(&self, terms: &Terms, opening: &Opening, now: Moment) -> Option<Moment> {
        let mut routing = self.types.iter().filter(|(kind, of)| is_routing(kind, of, terms.variant));
        let is_any = routing.any(|(kind, _)| self.place(kind) == TypePlace::NotAsked);
        (is_any && self.trials.one_stream_until.is_none())
            .then(|| opening.first_request().unwrap_or(now) + terms.options.resource_timer)
    }

    /// Judges the server's silence about its routing.
    fn judge_routing(&mut self, terms: &Terms, opening: &mut Opening, now: Moment) {
        if opening.is_receiving() || terms.quirks.per_type_liveness {
            return;
        }
        let news = routing_answers::news(self.routing(terms.variant), opening);
        let within = terms.quirks.is_hub();
        let routing = self.types.iter_mut().filter(|(kind, of)| is_routing(kind, of, terms.variant));
        for (_, subscription) in routing {
            let Some(due) = first_answer_due(subscription, news, &terms.options) else { continue };
            if now >= due && (within || opening.judge(due, now) == SilenceVerdict::Proven) {
                subscription.end_first_answer();
            }
        }
    }
}
