//! Selects what to send next of one snapshot: additions in the order of types, then removals.

use std::collections::HashSet;

use super::client::Variant;
use super::delays::DelayReason;
use super::hold::SentCluster;
use super::nacks::may_serve_routing;
use super::reply::{Draft, Reply, SentReply};
use super::subscription::SentState;
use super::{Attempt, ReplyContext, SendScope, Session};
use crate::protocol::faults::Fault;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::view::{Class, Snapshot};
use crate::protocol::visits::visit;
use crate::xds::{Name, References, Role, Type};

impl Session {
    /// Returns the next draft of this snapshot, or when to look again.
    pub(super) fn next_draft(&mut self, state: &Snapshot, now: Moment) -> Result<(Type, Draft), Option<Moment>> {
        let removals_first = self.limits.faults.has(Fault::RemoveBeforeAdding);
        if removals_first && let Some(found) = self.next_removal(state, now).0 {
            return Ok(found);
        }
        self.delays.clear();
        let (found, deadline, blocked) = self.next_addition(state, now);
        if let Some(found) = found {
            return Ok(found);
        }
        if let Some(at) = self.ends_at {
            return Err(earliest(deadline, Some(at))); // some of its removals are forgotten
        }
        let uncounted =
            (self.uncounted > 0 || !self.interest.is_empty()) && !self.limits.faults.has(Fault::RemoveBeforeCounted);
        if blocked || uncounted {
            if !uncounted && let Some(found) = self.next_end(state, now) {
                return Ok(found);
            }
            let reason = if blocked { DelayReason::AdditionsFirst } else { DelayReason::SubscriptionsFirst };
            self.delays.removals(reason, deadline.filter(|_| blocked));
            return Err(deadline); // additions that are still to come may make the removals safe
        }
        let (found, later, blocked) = self.next_removal(state, now);
        let deadline = earliest(deadline, later);
        self.at_rest = found.is_none() && !blocked && deadline.is_none();
        found.ok_or(deadline)
    }

    pub(super) fn next_addition(
        &mut self,
        state: &Snapshot,
        now: Moment,
    ) -> (Option<(Type, Draft)>, Option<Moment>, bool) {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        let (mut deadline, mut blocked, mut clusters_wait, mut routing_held) = (None, false, false, false);
        let (mut clusters_unknown, mut routing_waits) = (false, false);
        let longest = self.limits.clusters_timeout;
        self.waits = false;
        let endpoints = self.subscriptions.iter().find(|(kind, _)| kind.is(Role::Endpoints));
        let asks = |name: &Name| endpoints.is_some_and(|(_, of)| of.wildcard.is_some() || of.names.contains_key(name));
        let holding = self.client.is_aggregated() && self.hold.stands(endpoints.map(|(kind, _)| kind), asks, &view);
        let mut by_rank: Vec<_> = self.subscriptions.iter_mut().collect();
        by_rank.sort_by_key(|(kind, _)| kind.info().addition_rank);
        for (kind, subscription) in by_rank {
            let routing = kind.is(Role::Routing) && self.client.is_aggregated();
            let may = match (routing, clusters_wait, holding) {
                (true, true, _) => SendScope::Nothing,
                (true, false, true) => SendScope::InitialReplies,
                _ => SendScope::Anything,
            };
            match subscription.addition(kind, &view, may) {
                Attempt::Nothing => subscription.unknown = None,
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
                    let always = self.limits.faults.has(Fault::RemovalsWaitForAllRouting);
                    let may_hold_any = subscription.client_may_hold_any();
                    let clock = subscription.run_unknown(state, now);
                    blocked |= routing && always;
                    // What the client holds of routing may refer to what would be removed, until it is sent a change.
                    if routing && clock.read(now) < longest && may_hold_any {
                        (blocked, deadline) = (true, earliest(deadline, clock.when(longest)));
                        self.delays.for_routing(kind);
                    }
                    // Routes wait for clusters that this client is about to be sent. That goes by the time alone: while the control plane
                    // is away, nobody gains by a route that waits.
                    let patience = self.clusters_awaited.unwrap_or(now) + longest;
                    let waits = kind.is(Role::Clusters) && now < patience;
                    deadline = earliest(deadline, waits.then_some(patience));
                    clusters_unknown |= kind.is(Role::Clusters);
                    clusters_wait |= waits;
                }
            }
            deadline = earliest(deadline, subscription.next_forced(now));
        }
        // Whatever else it waits for meanwhile, its wait for clusters does not start over.
        let awaits_clusters = routing_waits && clusters_unknown;
        self.clusters_awaited = awaits_clusters.then(|| self.clusters_awaited.unwrap_or(now));
        let held_until = self.hold.account(routing_held, now, &self.limits);
        self.delays.bound(DelayReason::RoutingHold, held_until);
        deadline = earliest(deadline, held_until);
        (None, deadline, blocked)
    }

    /// Returns the reply that tells a relay of the end of a set of which nothing is to be removed. No other type has to do with that.
    fn next_end(&mut self, state: &Snapshot, now: Moment) -> Option<(Type, Draft)> {
        if !self.client.relay {
            return None;
        }
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        let mut due = self.subscriptions.iter_mut().filter(|(kind, of)| of.is_end_due(kind, &view));
        due.find_map(|(kind, subscription)| match subscription.removals(kind, &view) {
            Attempt::Ready(draft) => Some((kind.clone(), *draft)),
            _ => None,
        })
    }

    pub(super) fn next_removal(
        &mut self,
        state: &Snapshot,
        now: Moment,
    ) -> (Option<(Type, Draft)>, Option<Moment>, bool) {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        let nacks_routing = self.nacks_routing();
        let (mut is_kept_due, mut kept_until) = (false, None);
        let mut by_rank: Vec<_> = self.subscriptions.iter_mut().collect();
        by_rank.sort_by_key(|(kind, _)| kind.info().removal_rank);
        for (kind, subscription) in by_rank {
            let may_be_kept = nacks_routing && may_serve_routing(kind, kept_until.is_some());
            if may_be_kept && subscription.is_removal_due(kind, &view) {
                is_kept_due = true;
                let until = self.nack_hold.keep(now, &self.limits);
                if now < until && !view.state.forgets_soon(view.limits) {
                    self.delays.removals(DelayReason::NackedRouting, Some(until));
                    kept_until = Some(until);
                    continue;
                }
            }
            match subscription.removal(kind, &view) {
                Attempt::Nothing => {}
                Attempt::Ready(draft) => return (Some((kind.clone(), *draft)), None, false),
                // What this type still has may depend on what the next one would remove.
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

    pub(super) fn finish(&mut self, kind: &Type, draft: Draft, state: &Snapshot, now: Moment) -> Reply {
        self.last_nonce += 1;
        let nonce = self.last_nonce;
        if kind.is(Role::Clusters) && self.client.is_aggregated() {
            self.after_clusters(kind, &draft, nonce, now);
        }
        if kind.info().references == References::VirtualHosts && self.client.is_aggregated() {
            self.after_routes(kind, &draft, state, now);
        }
        if kind.is(Role::Endpoints) {
            self.hold.on_reply_sent(&draft, now, &self.limits);
        }
        let carried = draft.carried;
        let mut reply = Reply::new(kind.clone(), nonce, state.revision, self.client.wrappers, draft);
        reply.progress = self.lease.as_ref().map(|lease| lease.progress().clone());
        let is_full_set = self.client.variant == Variant::Sotw && kind.info().full_state;
        if let Some(subscription) = self.subscriptions.get_mut(kind) {
            let (version, revision) = (reply.version, state.revision);
            let sent = SentReply { nonce, version, revision, is_full_set, sent: now, carried };
            reply.lag = carried.lag(now);
            let is_awaited = !subscription.asks_once && subscription.acks.unanswered_since().is_none();
            reply.begins_wait = is_awaited.then_some(now);
            subscription.acks.sent(sent, now, &self.limits);
            subscription.acks.note_content(sent, &reply, &self.limits);
            reply.spell(&subscription.spelling, &subscription.spellings);
        }
        reply
    }

    /// A client that was just sent a route configuration has lost its virtual hosts (DELTA-41).
    pub(super) fn after_routes(&mut self, kind: &Type, draft: &Draft, state: &Snapshot, now: Moment) {
        let Some(hosts) = self.table.referred_by(kind) else { return };
        let Some(subscription) = self.subscriptions.get_mut(&hosts).filter(|_| draft.warms().next().is_some()) else {
            return;
        };
        let routes: HashSet<_> = draft.warms().map(|(name, _)| name.as_str()).collect();
        let under = |name: &&Name| name.as_str().rsplit_once('/').is_some_and(|(route, _)| routes.contains(route));
        let named: Vec<_> = subscription.names.keys().inspect(|_| visit()).filter(under).cloned().collect();
        let table = state.resources(&hosts, Class::Wildcard).filter(|_| subscription.wildcard.is_some());
        let may_have = |name: &&Name| self.client.clearance.allows(&hosts, name);
        let present = table.iter().flat_map(|table| table.present_names());
        let of_wildcard: Vec<_> = present.filter(under).filter(may_have).cloned().collect();
        named.iter().chain(&of_wildcard).for_each(|name| subscription.force(name, now));
    }

    /// A client that was just sent a cluster waits for its endpoints, also if it has them already (SOTW-33, DELTA-45).
    pub(super) fn after_clusters(&mut self, kind: &Type, draft: &Draft, nonce: u64, now: Moment) {
        let Some(endpoints) = self.table.referred_by(kind) else { return };
        let due = now + self.limits.forced_endpoints_after;
        if let Some(subscription) = self.subscriptions.get_mut(&endpoints)
            && self.client.warms_clusters()
            && !self.limits.faults.has(Fault::NoForcedEndpoints)
        {
            draft.warms().for_each(|(name, _)| subscription.force(name, due));
        }
        if !self.limits.faults.has(Fault::NoRoutingHold) {
            let had = self.subscriptions.get(&endpoints).filter(|_| self.client.warms_clusters());
            let changed = draft.warms().filter(|(_, first)| !first).map(|(name, _)| SentCluster {
                endpoints: name.clone(),
                new: had.is_some_and(|of| {
                    of.wildcard.is_none() && !of.names.get(name).is_some_and(SentState::client_may_hold)
                }),
            });
            self.hold.sent(nonce, changed, now, &self.limits);
        }
    }
}
