//! Selects what to send next from one snapshot: additions in the order of types, then removals.

use std::collections::HashSet;
use std::sync::Arc;

use super::acks::Ack;
use super::delays::{Delay, DelayReason, Delays, NackHold, RoutingHold, SentCluster, may_serve_routing, nacks_routing};
use super::removals::{is_end_due, is_removal_due};
use super::reply::{Attempt, Draft, ReplyContext, SendScope};
use super::subscription::Subscriptions;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::session::options::SessionOptions;
use crate::protocol::view::{Lease, LeaseAccess, LeaseProgress, Revision, Snapshot};
use crate::protocol::wait::{WaitKind, WaitList, WaitSubject, age_of};
use crate::xds::{Name, References, Role, Type, TypeTable};

/// The snapshot that a session works through.
#[derive(Debug, Default)]
pub(super) struct SessionLease {
    lease: Option<Lease>,
    /// The newest revision that the session was served from: it is never served from an older snapshot.
    reached: Revision,
    /// The last removal of a member of a collection that was forgotten instead of sent. No snapshot that may have the member is leased after that: what
    /// would be sent from it may refer to the member. The present one is older than the member.
    forgotten: Revision,
    /// When the stream ends because removals that the client was not sent are forgotten.
    ends_at: Option<Moment>,
}

impl SessionLease {
    /// Returns the snapshot, unless the lease was revoked or there is none.
    pub(super) fn state(&self, leases: &mut impl LeaseAccess, now: Moment) -> Option<Arc<Snapshot>> {
        self.lease.as_ref().and_then(|lease| leases.access(|leases| leases.state(lease, now)))
    }

    /// Leases a snapshot. Returns `None` if a member was forgotten that the newest snapshot still has: the next one is about to be published.
    pub(super) fn take(
        &mut self,
        newest: &Arc<Snapshot>,
        leases: &mut impl LeaseAccess,
        now: Moment,
    ) -> Option<Arc<Snapshot>> {
        if newest.revision < self.forgotten {
            return None;
        }
        let after = self.reached.max(self.forgotten.previous());
        let (lease, state) = leases.access(|leases| leases.take(newest, after, now));
        self.reached = lease.revision();
        self.lease = Some(lease);
        Some(state)
    }

    /// Records the removal of a member that was forgotten, if there was one.
    pub(super) fn note_forgotten(&mut self, removal: Option<Revision>) {
        self.forgotten = removal.map_or(self.forgotten, |removal| removal.max(self.forgotten));
    }

    /// Records whether removals that the client was to be sent are forgotten. A delta client then cannot be told what it has lost: its stream
    /// has to end, and until then it is sent additions only. Returns whether the stream ends now.
    pub(super) fn ends_by(&mut self, has_missed: bool, leases: &mut impl LeaseAccess, now: Moment) -> bool {
        let ends_at = || leases.access(|leases| leases.reserve_end(now));
        self.ends_at = has_missed.then(|| self.ends_at.unwrap_or_else(ends_at));
        let ends = self.ends_at.is_some_and(|at| at <= now);
        if ends {
            self.lease = None;
        }
        ends
    }

    pub(super) fn release(&mut self) {
        self.lease = None;
    }

    pub(super) fn reached(&self) -> Revision {
        self.reached
    }

    pub(super) fn ends_at(&self) -> Option<Moment> {
        self.ends_at
    }

    pub(super) fn revision(&self) -> Option<Revision> {
        self.lease.as_ref().map(Lease::revision)
    }

    pub(super) fn progress(&self) -> Option<LeaseProgress> {
        self.lease.as_ref().map(|lease| lease.progress().clone())
    }
}

/// The order of one client's replies, and what waits because of that order.
#[derive(Debug, Default)]
pub(super) struct SendOrder {
    hold: RoutingHold,
    /// Removals wait because the client has NACKed its routing, and continues with the routing before it.
    nack_hold: NackHold,
    /// Since when routes wait for a set of clusters that is incomplete.
    clusters_awaited: Option<Moment>,
    /// A reply waits until more is known (I3).
    waits: bool,
    /// Why something waits, as of the last search for a reply.
    delays: Delays,
}

/// Nothing of this snapshot can be sent now.
pub(super) struct Pause {
    /// When to search again.
    pub(super) until: Option<Moment>,
    /// Nothing is left that an ACK or NACK of the client could release.
    pub(super) is_at_rest: bool,
}

/// A draft and its type, if there is one; when to search again; and whether something is blocked.
type Found = (Option<(Type, Draft)>, Option<Moment>, bool);

impl SendOrder {
    /// Returns the next draft of this snapshot. `ends_at` is set if the stream has to end, because some of its removals are forgotten.
    /// `uncounted` is set if the view has not yet counted what the client newly subscribes to.
    pub(super) fn next_draft(
        &mut self,
        subscriptions: &mut Subscriptions,
        view: &ReplyContext,
        ends_at: Option<Moment>,
        uncounted: bool,
    ) -> Result<(Type, Draft), Pause> {
        let pause = |until| Pause { until, is_at_rest: false };
        self.delays.clear();
        let (found, deadline, blocked) = self.next_addition(subscriptions, view);
        if let Some(found) = found {
            return Ok(found);
        }
        if ends_at.is_some() {
            return Err(pause(earliest(deadline, ends_at)));
        }
        if blocked || uncounted {
            if !uncounted && let Some(found) = next_end(subscriptions, view) {
                return Ok(found);
            }
            let reason = if blocked { DelayReason::AdditionsFirst } else { DelayReason::SubscriptionsFirst };
            self.delays.removals(reason, deadline.filter(|_| blocked));
            return Err(pause(deadline)); // additions that are still to come may make the removals safe
        }
        let (found, later, blocked) = self.next_removal(subscriptions, view);
        let until = earliest(deadline, later);
        found.ok_or(Pause { until, is_at_rest: !blocked && until.is_none() })
    }

    fn next_addition(&mut self, subscriptions: &mut Subscriptions, view: &ReplyContext) -> Found {
        let ReplyContext { state, client, options, now } = *view;
        let (mut deadline, mut blocked, mut clusters_wait, mut routing_held) = (None, false, false, false);
        let (mut clusters_unknown, mut routing_waits) = (false, false);
        let longest = options.clusters_timeout;
        self.waits = false;
        let endpoints = subscriptions.iter().find(|(kind, _)| kind.is(Role::Endpoints));
        let books = endpoints.map(|(_, of)| of.books());
        let asks = |name: &Name| books.is_some_and(|of| of.wildcard.is_some() || of.names.contains(name));
        let holding = client.is_aggregated() && self.hold.stands(endpoints.map(|(kind, _)| kind), asks, view);
        let mut by_rank: Vec<_> = subscriptions.iter_mut().collect();
        by_rank.sort_by_key(|(kind, _)| kind.info().addition_rank);
        for (kind, subscription) in by_rank {
            let routing = kind.is(Role::Routing) && client.is_aggregated();
            let may = match (routing, clusters_wait, holding) {
                (true, true, _) => SendScope::Nothing,
                (true, false, true) => SendScope::InitialReplies,
                _ => SendScope::Anything,
            };
            match subscription.addition(kind, view, may) {
                Attempt::Nothing => subscription.end_unknown(),
                Attempt::Ready(draft) => return (Some((kind.clone(), *draft)), None, false),
                Attempt::Blocked(until) => {
                    let reason = match may {
                        SendScope::Nothing => DelayReason::ClustersFirst,
                        SendScope::InitialReplies => DelayReason::RoutingHold,
                        SendScope::Anything => DelayReason::Unanswered,
                    };
                    self.delays.addition(kind, reason, until);
                    blocked = true;
                    deadline = earliest(deadline, until);
                    clusters_wait |= kind.is(Role::Clusters) || kind.is(Role::Endpoints);
                    routing_held |= may == SendScope::InitialReplies;
                    routing_waits |= routing;
                }
                Attempt::Unknown => {
                    self.delays.addition(kind, DelayReason::Incomplete, None);
                    self.waits = true;
                    let may_hold_any = subscription.client_may_hold_any();
                    let clock = subscription.run_unknown(state, now);
                    // The client's routing may refer to what would be removed, until the client is sent the change of that routing.
                    if routing && clock.read(now) < longest && may_hold_any {
                        (blocked, deadline) = (true, earliest(deadline, clock.when(longest)));
                        self.delays.for_routing(kind);
                    }
                    // Routes wait for clusters that this client is about to be sent. This wait has a plain time limit: while the control plane
                    // is away, no client gains by a route that waits.
                    let patience = self.clusters_awaited.unwrap_or(now) + longest;
                    let waits = kind.is(Role::Clusters) && now < patience;
                    deadline = earliest(deadline, waits.then_some(patience));
                    clusters_unknown |= kind.is(Role::Clusters);
                    clusters_wait |= waits;
                }
            }
            deadline = earliest(deadline, subscription.next_forced(now));
        }
        // The wait for clusters does not start over, even if routing waits for something else in the meantime.
        let awaits_clusters = routing_waits && clusters_unknown;
        self.clusters_awaited = awaits_clusters.then(|| self.clusters_awaited.unwrap_or(now));
        let held_until = self.hold.account(routing_held, now, options);
        self.delays.bound(DelayReason::RoutingHold, held_until);
        deadline = earliest(deadline, held_until);
        (None, deadline, blocked)
    }

    fn next_removal(&mut self, subscriptions: &mut Subscriptions, view: &ReplyContext) -> Found {
        let nacks_routing = nacks_routing(subscriptions, view.options);
        if !nacks_routing {
            self.nack_hold.end();
        }
        let (mut is_kept_due, mut kept_until) = (false, None);
        let mut by_rank: Vec<_> = subscriptions.iter_mut().collect();
        by_rank.sort_by_key(|(kind, _)| kind.info().removal_rank);
        for (kind, subscription) in by_rank {
            let may_be_kept = nacks_routing && may_serve_routing(kind, kept_until.is_some());
            if may_be_kept && is_removal_due(&subscription.snapshot(kind, view)) {
                is_kept_due = true;
                let until = self.nack_hold.keep(view.now, view.options);
                if view.now < until && !view.state.forgets_soon() {
                    self.delays.removals(DelayReason::NackedRouting, Some(until));
                    kept_until = Some(until);
                    continue;
                }
            }
            match subscription.removal(kind, view) {
                Attempt::Nothing => {}
                Attempt::Ready(draft) => return (Some((kind.clone(), *draft)), None, false),
                // The remaining resources of this type may depend on what the next type would remove.
                Attempt::Blocked(until) => {
                    self.delays.removals(DelayReason::Unanswered, until);
                    return (None, earliest(until, kept_until), true);
                }
                Attempt::Unknown => self.delays.addition(kind, DelayReason::Incomplete, None),
            }
        }
        if !is_kept_due {
            self.nack_hold.end();
        }
        (None, kept_until, kept_until.is_some())
    }

    /// Records a draft that is about to be sent, and forces what has to follow it.
    pub(super) fn on_draft(
        &mut self,
        kind: &Type,
        draft: &Draft,
        nonce: u64,
        subscriptions: &mut Subscriptions,
        table: &TypeTable,
        view: &ReplyContext,
    ) {
        let referred = || table.referred_by(kind).filter(|_| view.client.is_aggregated());
        if kind.is(Role::Clusters)
            && let Some(endpoints) = referred()
        {
            self.after_clusters(&endpoints, draft, nonce, subscriptions, view);
        }
        if kind.info().references == References::VirtualHosts
            && let Some(hosts) = referred()
        {
            after_routes(&hosts, draft, subscriptions, view);
        }
        if kind.is(Role::Endpoints) {
            self.hold.on_reply_sent(draft, view.now, view.options);
        }
    }

    /// After a client was sent a cluster, it waits for the endpoints of the cluster, even if it has them already (SOTW-33, DELTA-45).
    fn after_clusters(
        &mut self,
        endpoints: &Type,
        draft: &Draft,
        nonce: u64,
        subscriptions: &mut Subscriptions,
        view: &ReplyContext,
    ) {
        let ReplyContext { client, options, now, .. } = *view;
        let due = now + options.forced_endpoints_after;
        if let Some(subscription) = subscriptions.get_mut(endpoints)
            && client.warms_clusters()
        {
            draft.warms().for_each(|(name, _)| subscription.force(name, due));
        }
        let had = subscriptions.get(endpoints).filter(|_| client.warms_clusters());
        let changed = draft.warms().filter(|(_, first)| !first).map(|(name, _)| SentCluster {
            endpoints: name.clone(),
            new: had.is_some_and(|of| of.books().wildcard.is_none() && !of.books().names.client_may_hold(name)),
        });
        self.hold.sent(nonce, changed, now, options);
    }

    /// Records that the last reply has waited this long since it was made.
    pub(super) fn on_late_reply(&mut self, by: std::time::Duration) {
        self.hold.on_late_reply(by);
    }

    /// Records how the client answered a reply with clusters.
    pub(super) fn on_clusters_answered(&mut self, answer: Ack, now: Moment, options: &SessionOptions) {
        self.hold.answered(answer, now, options);
    }

    /// Whether the client waits without a time limit, as of the last search for a reply.
    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether a change of routing waits for endpoints.
    pub(super) fn holds_routing(&self) -> bool {
        self.hold.is_keeping_back()
    }

    /// Returns how many clusters wait for their endpoints.
    pub(super) fn warming(&self) -> usize {
        self.hold.len()
    }

    /// Returns why something waits.
    pub(super) fn delays(&self) -> &Delays {
        &self.delays
    }

    /// Adds the waits of this client to the list.
    pub(super) fn add_waits(
        &self,
        subscriptions: &Subscriptions,
        options: &SessionOptions,
        now: Moment,
        list: &mut WaitList,
    ) {
        for delay in self.delays.of_all_additions() {
            self.add_wait(delay, options, now, list);
        }
        for kind in self.delays.awaited_routing() {
            let clock = subscriptions.get(kind).and_then(|subscription| subscription.unknown());
            let Some(clock) = clock else { continue };
            let bound = clock.runs().then_some(options.clusters_timeout);
            list.add(WaitKind::Routing, clock.read(now), bound, || WaitSubject::of_type(kind));
        }
        let (wait, until, bound) = match self.delays.of_removals() {
            Some((DelayReason::Unanswered, Some(until))) => (WaitKind::Ack, until, options.ack_patience),
            Some((DelayReason::NackedRouting, Some(until))) => {
                (WaitKind::NackedRouting, until, options.nacked_routing_hold)
            }
            _ => return,
        };
        list.add(wait, age_of(until, bound, now), Some(bound), WaitSubject::default);
    }

    fn add_wait(&self, delay: &Delay, options: &SessionOptions, now: Moment, list: &mut WaitList) {
        let Delay { kind, reason, until } = delay;
        let (wait, age, bound) = match (reason, until) {
            (DelayReason::Unanswered, Some(until)) => {
                (WaitKind::Ack, age_of(*until, options.ack_patience, now), options.ack_patience)
            }
            (DelayReason::RoutingHold, _) => {
                let Some(since) = self.hold.since() else { return };
                (WaitKind::RoutingHold, now - since, options.routing_hold)
            }
            (DelayReason::ClustersFirst, _) => {
                // Without `clusters_awaited`, they wait for another reply, which is listed itself.
                let Some(since) = self.clusters_awaited else { return };
                (WaitKind::Clusters, now - since, options.clusters_timeout)
            }
            _ => return,
        };
        list.add(wait, age, Some(bound), || WaitSubject::of_type(kind));
    }
}

/// Returns the reply that tells a relay that a set has ended, if nothing of the set is to be removed. Such a reply is independent of all other types.
fn next_end(subscriptions: &mut Subscriptions, view: &ReplyContext) -> Option<(Type, Draft)> {
    if !view.client.relay {
        return None;
    }
    let mut due = subscriptions.iter_mut().filter(|(kind, of)| is_end_due(&of.snapshot(kind, view)));
    due.find_map(|(kind, subscription)| match subscription.removal(kind, view) {
        Attempt::Ready(draft) => Some((kind.clone(), *draft)),
        _ => None,
    })
}

/// Sends virtual hosts again: a client that was just sent a route configuration has lost those under it (DELTA-41).
fn after_routes(hosts: &Type, draft: &Draft, subscriptions: &mut Subscriptions, view: &ReplyContext) {
    let Some(subscription) = subscriptions.get_mut(hosts).filter(|_| draft.warms().next().is_some()) else {
        return;
    };
    let routes: HashSet<_> = draft.warms().map(|(name, _)| name.as_str()).collect();
    let is_under = |name: &Name| name.as_str().rsplit_once('/').is_some_and(|(route, _)| routes.contains(route));
    subscription.force_under(hosts, view, is_under);
}
