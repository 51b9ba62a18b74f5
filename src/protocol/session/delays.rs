//! Why something has to wait before it is sent. It is noted where that is decided, so that operators are shown the decision itself, and read
//! for how long it has waited.

use super::Session;
use super::nacks::longest;
use crate::protocol::moment::Moment;
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject, age_of};
use crate::xds::Type;

/// Why a client is not sent what is due for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DelayReason {
    /// The client has not ACKed or NACKed the last reply of the type.
    Unanswered,
    /// Clusters that it was sent wait for their endpoints.
    RoutingHold,
    /// Clusters or endpoints have to be sent first, and wait themselves.
    ClustersFirst,
    /// Too little is known of what the client subscribes to.
    Incomplete,
    /// Removals wait for additions that are still to come.
    AdditionsFirst,
    /// Removals wait until the view has counted what the client newly subscribes to.
    SubscriptionsFirst,
    /// Removals of clusters and endpoints wait, since the client has NACKed its routing and uses the one before.
    NackedRouting,
}

impl DelayReason {
    /// Returns its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unanswered => "ack",
            Self::RoutingHold => "endpoints",
            Self::ClustersFirst => "clusters",
            Self::Incomplete => "completeness",
            Self::AdditionsFirst => "additions",
            Self::SubscriptionsFirst => "subscriptions",
            Self::NackedRouting => "nack",
        }
    }
}

/// What waits of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delay {
    pub(crate) kind: Type,
    pub(crate) reason: DelayReason,
    /// It waits no longer than until then.
    pub(crate) until: Option<Moment>,
}

/// What waited when the session last looked for a reply.
#[derive(Debug, Default)]
pub(super) struct Delays {
    additions: Vec<Delay>,
    removals: Option<(DelayReason, Option<Moment>)>,
    /// Routing for which removals wait.
    routing: Vec<Type>,
}

impl Delays {
    pub(crate) fn clear(&mut self) {
        *self = Self::default(); // what is idle keeps no room for it
    }

    pub(crate) fn addition(&mut self, kind: &Type, reason: DelayReason, until: Option<Moment>) {
        self.additions.push(Delay { kind: kind.clone(), reason, until });
    }

    /// Notes until when everything that has this reason waits at most.
    pub(crate) fn bound(&mut self, reason: DelayReason, until: Option<Moment>) {
        self.additions.iter_mut().filter(|delay| delay.reason == reason).for_each(|delay| delay.until = until);
    }

    pub(crate) fn removals(&mut self, reason: DelayReason, until: Option<Moment>) {
        self.removals = Some((reason, until));
    }

    /// Removals wait for routing of this type.
    pub(crate) fn for_routing(&mut self, kind: &Type) {
        self.routing.push(kind.clone());
    }

    /// Returns the types of routing for which removals wait.
    pub(crate) fn awaited_routing(&self) -> impl Iterator<Item = &Type> {
        self.routing.iter()
    }

    /// Returns why additions and changes of a type wait.
    pub(crate) fn of_additions(&self, kind: &Type) -> Option<&Delay> {
        self.additions.iter().find(|delay| delay.kind == *kind)
    }

    /// Returns whether anything waits.
    pub(crate) fn any(&self) -> bool {
        !self.additions.is_empty() || self.removals.is_some()
    }

    /// Returns why additions and changes wait, by type.
    pub(crate) fn of_all_additions(&self) -> impl Iterator<Item = &Delay> {
        self.additions.iter()
    }

    /// Returns why removals wait.
    pub(crate) fn of_removals(&self) -> Option<(DelayReason, Option<Moment>)> {
        self.removals
    }
}

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
