//! Whether the server has sent its routing since the stream was opened.

use super::Stream;
use crate::protocol::faults::Fault;
use crate::protocol::moment::Moment;
use crate::protocol::upstream::liveness::{Liveness, SilenceVerdict};
use crate::protocol::upstream::set_progress::COMES_IN;
use crate::protocol::upstream::type_subscription::TypeSubscription;
use crate::xds::{Role, Type};

impl Stream {
    /// Whether the server has answered the first request of each routing type on this opening, or was silent about the rest although it
    /// is alive. True of a stream on which nothing is wanted.
    pub(crate) fn has_answered_routing(&self) -> bool {
        let all = self.limits.faults.has(Fault::LateNamesHoldUpOrder);
        let waits = |of: &TypeSubscription| all && of.requested.is_any_waiting();
        let answered = || self.routing().all(|(_, of)| of.has_answered_first() && !waits(of));
        !self.is_wanted() || self.open && answered()
    }

    /// When a server that stays silent has had the time for its routing: the next moment for any type that it has not answered. None
    /// for a polled server: only its answer to a poll of the type counts.
    pub(super) fn routing_due(&self) -> Option<Moment> {
        if !self.open || self.quirks.per_type_liveness {
            return None;
        }
        let news = self.routing_news();
        let due = self.routing().filter_map(|(_, subscription)| subscription.first_answer_due(news, &self.limits));
        due.filter(|at| *at > self.judged_at).min()
    }

    /// Judges the server's silence about its routing.
    pub(super) fn judge_routing(&mut self, now: Moment) {
        if self.receiving || self.quirks.per_type_liveness {
            return;
        }
        let (news, within) = (self.routing_news(), self.quirks.is_within_process());
        let variant = self.variant;
        let requested = |kind: &Type, of: &TypeSubscription| kind.is(Role::Routing) && of.is_requestable(kind, variant);
        for (_, subscription) in self.types.iter_mut().filter(|(kind, of)| requested(kind, of)) {
            let Some(due) = subscription.first_answer_due(news, &self.limits) else { continue };
            let alive = |liveness: &mut Liveness| within || liveness.judge(due, now) == SilenceVerdict::Proven;
            if now >= due && alive(&mut self.liveness) {
                subscription.end_first_answer();
            }
        }
    }

    /// The routing types that the server is asked for.
    fn routing(&self) -> impl Iterator<Item = (&Type, &TypeSubscription)> {
        let requested = |kind: &Type, of: &TypeSubscription| of.is_requestable(kind, self.variant);
        self.types.iter().filter(move |(kind, of)| kind.is(Role::Routing) && requested(kind, of))
    }

    /// When a routing resource last came that the server had not sent on this opening. A server that always has a new one is not waited
    /// for without end.
    fn routing_news(&self) -> Option<Moment> {
        let news = self.routing().filter_map(|(_, subscription)| subscription.progress.news()).max()?;
        Some(self.answered_at.map_or(news, |first| news.min(first + COMES_IN)))
    }
}
