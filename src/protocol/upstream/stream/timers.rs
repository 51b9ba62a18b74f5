//! The timers of a stream: resource timers, liveness calls, and when to open it again.

use super::Stream;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::upstream::ViewContext;
use crate::protocol::upstream::quirks::OnResourceTimeout;
use crate::protocol::upstream::set_progress::COMES_IN;
use crate::protocol::upstream::type_subscription::{OtherTypes, TimerContext, TypeSubscription};
use crate::protocol::view::Update;
use crate::xds::Type;

impl Stream {
    pub fn next_deadline(&self) -> Option<Moment> {
        if !self.open {
            return None;
        }
        let unreported = |subscription: &TypeSubscription| {
            let globs = self.variant == Variant::Sotw && subscription.globs.any_unasked();
            globs || subscription.left_out.is_to_report()
        };
        let at_once = |subscription: &TypeSubscription| unreported(subscription).then_some(Moment::START);
        let others = self.others();
        let deadline = |subscription: &TypeSubscription| {
            at_once(subscription).or(subscription.next_deadline(others, &self.limits))
        };
        let subscriptions = self.types.values().filter_map(deadline).min();
        let again = self.pace.next_at(&self.limits).filter(|at| self.wants_reopen() && *at > self.judged_at);
        let proof = self.proof_due().filter(|at| *at > self.judged_at);
        [subscriptions, again, proof, self.routing_due()].into_iter().flatten().min()
    }

    /// When a server that has sent nothing yet gets a liveness call: after it has had time to respond.
    pub(super) fn proof_due(&self) -> Option<Moment> {
        let silent = !self.answered
            && !self.quirks.per_type_liveness
            && self.quirks.on_resource_timeout != OnResourceTimeout::Unknown;
        self.asked_at.filter(|_| silent).map(|requested| requested + self.limits.resource_timer)
    }

    /// The types of one stream arrive one after another: for a while, none counts as finished while another is coming in.
    pub(super) fn others(&self) -> OtherTypes {
        let news = self.types.values().filter_map(|subscription| subscription.progress.news()).max();
        let last = self.types.values().filter_map(|subscription| subscription.comes_in_until(&self.limits)).max();
        let until = last.zip(self.answered_at).map(|(last, first)| last.min(first + COMES_IN));
        let fresh =
            news.zip(self.answered_at).map(|(last, first)| (last + self.limits.settle_fresh).min(first + COMES_IN));
        let [come_in_until, fresh_until] = [until, fresh].map(|at| at.unwrap_or(Moment::START));
        OtherTypes { come_in_until, fresh_until, news }
    }

    pub(super) fn wants_reopen(&self) -> bool {
        let asks = || self.types.values().any(|subscription| subscription.second_request.is_to_ask());
        self.open && (self.must_reopen || self.is_to_show_life || asks())
    }

    /// Handles due timers.
    pub fn on_time(&mut self, at: &ViewContext, now: Moment) -> Vec<Update> {
        self.judged_at = now;
        // Peers can make up any number of types outside of the table, so these are removed after use. The others stay: what an
        // empty list means to the server depends on what it was sent before (SOTW-38).
        let (table, limits) = (&self.table, &self.limits);
        let stays = |kind: &Type, subscription: &TypeSubscription| {
            !subscription.is_over(now, limits) || table.knows(kind.name())
        };
        self.types.retain(|kind, subscription| stays(kind, subscription));
        if !self.open {
            return Vec::new();
        }
        if let Some(due) = self.proof_due() {
            self.liveness.judge(due, now);
        }
        self.judge_routing(now);
        let others = self.others();
        let mut updates = Vec::new();
        for (kind, subscription) in &mut self.types {
            if self.variant == Variant::Sotw {
                updates.extend(subscription.reject_globs(kind));
            }
            let (quirks, limits, liveness) = (&*self.quirks, &*self.limits, &mut self.liveness);
            let (receiving, is_relay, is_outdated) = (self.receiving, self.is_relay, self.must_reopen);
            let mut turn =
                TimerContext { kind, at, quirks, limits, liveness, receiving, is_relay, is_outdated, others, now };
            let had_ended = subscription.end_question.has_ended();
            updates.extend(subscription.on_time(&mut turn));
            self.answered_end |= !had_ended && subscription.end_question.has_ended();
            updates.extend(subscription.report_left_out(kind));
            subscription.plan_second_request(&mut turn);
        }
        // A new opening begins the wait of each set anew, so all that clients need go along, or each would be asked for after the other.
        if self.types.values().any(|of| of.second_request.is_to_ask_for_set()) {
            self.types.iter_mut().for_each(|(kind, of)| of.ask_for_set_too(at.view.seeks_set(kind)));
        }
        updates
    }

    /// Returns whether the server has answered for the end of a set since the last call.
    pub(crate) fn take_answered_end(&mut self) -> bool {
        std::mem::take(&mut self.answered_end)
    }

    /// Returns whether to open the stream again now, to request a second time what clients hold.
    pub fn take_reopen(&mut self, now: Moment) -> bool {
        let again = self.is_reopen_due(now);
        if again && !self.asks_at_once() {
            self.pace.note(now, &self.limits);
        }
        again
    }

    /// Whether the stream is to be opened again now.
    pub(crate) fn is_reopen_due(&self, now: Moment) -> bool {
        let due = self.pace.next_at(&self.limits).is_none_or(|at| at <= now);
        self.wants_reopen() && (due || self.asks_at_once())
    }

    /// Whether the next opening waits for no pause: the first question for an end, and a sign of life, which is due when another stream fails.
    fn asks_at_once(&self) -> bool {
        self.is_to_show_life || self.types.values().any(|subscription| subscription.second_request.is_to_ask_at_once())
    }
}
