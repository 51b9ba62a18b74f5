//! What a session keeps from its client for a time. It is read from what delayed the last reply.

use super::delays::DelayReason;
use super::nack_hold::longest;
use super::{Delay, Session};
use crate::protocol::moment::Moment;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject, age_of};

impl Session {
    /// Returns whether anything waited when the session last looked for a reply.
    pub(crate) fn has_waits(&self) -> bool {
        self.delays.any()
    }

    /// Adds what waits.
    pub fn add_waits(&self, now: Moment, list: &mut WaitList) {
        for delay in self.delays.of_all_additions() {
            self.add_wait(delay, now, list);
        }
        for kind in self.delays.awaited_routing() {
            let clock = self.subscriptions.get(kind).and_then(|subscription| subscription.unknown.as_ref());
            let Some(clock) = clock else { continue };
            let bound = clock.runs().then_some(self.limits.clusters_timeout);
            list.add(WaitKind::Routing, clock.read(now), bound, || WaitSubject::of_type(kind));
        }
        let (wait, until, bound) = match self.delays.of_removals() {
            Some((DelayReason::Unanswered, Some(until))) => (WaitKind::Ack, until, self.limits.ack_patience),
            Some((DelayReason::NackedRouting, Some(until))) => (WaitKind::NackedRouting, until, longest(&self.limits)),
            _ => return,
        };
        list.add(wait, age_of(until, bound, now), Some(bound), WaitSubject::default);
    }

    fn add_wait(&self, Delay { kind, reason, until }: &Delay, now: Moment, list: &mut WaitList) {
        let (wait, age, bound) = match (reason, until) {
            (DelayReason::Unanswered, Some(until)) => {
                let bound = self.limits.ack_patience;
                (WaitKind::Ack, age_of(*until, bound, now), bound)
            }
            (DelayReason::RoutingHold, _) => {
                let Some(since) = self.hold.since() else { return };
                (WaitKind::RoutingHold, now - since, self.limits.routing_hold)
            }
            (DelayReason::ClustersFirst, _) => {
                // Without a time of their own they wait with the reply before them.
                let Some(since) = self.clusters_awaited else { return };
                (WaitKind::Clusters, now - since, self.limits.clusters_timeout)
            }
            _ => return,
        };
        list.add(wait, age, Some(bound), || WaitSubject::of_type(kind));
    }
}
