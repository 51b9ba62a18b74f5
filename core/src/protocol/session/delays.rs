//! What delays replies to one client for a limited time, and the record of why something waits.
//!
//! The routing hold: a change of routing waits a short time for the endpoints of the clusters that were sent before it.
//! Envoy does not delay a route whose cluster is not warm; requests fail until it is. It ACKs its clusters once they are warm,
//! secrets included. So the hold ends with that ACK, or shortly after the endpoints were sent or are known to be absent, and in
//! any case after a total time. Other clients ACK at once, before they subscribe to the endpoints of a new cluster: the hold
//! waits a short time for that, and then until the endpoints are sent (ORD-13). A reply counts as sent when the connection has taken it.
//!
//! The NACK hold: a client whose NACK of routing stands continues with the routing before it, which may refer to what is removed now. The
//! client's removals of clusters and endpoints wait for a limited time. Removals of other clients (I8) and of other types do not wait.
//!
//! Each delay is recorded where it is decided, so that operators are shown the decision itself, and for how long it has lasted.

use std::collections::BTreeMap;

use super::acks::Ack;
use super::reply::{Draft, ReplyContext};
use super::subscription::Subscriptions;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::session::options::SessionOptions;
use crate::protocol::view::{Class, Lookup};
use crate::xds::{Name, Role, Type};

/// The routing hold.
#[derive(Debug, Default)]
pub(super) struct RoutingHold {
    /// Clusters that the client was sent recently and that wait for endpoints, by the names of the endpoints.
    warming: BTreeMap<Name, Warming>,
    /// Since when a change of routing has been kept back, for one cluster after another.
    since: Option<Moment>,
    /// When the last reply was made.
    made: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
struct Warming {
    /// The nonce of the reply that had the cluster.
    nonce: u64,
    sent: Moment,
    until: Moment,
    /// When the reply was made by which `until` was set.
    set: Moment,
    /// The client had no endpoints of the cluster, and has not been sent any since.
    new: bool,
    /// Set when the client has ACKed or NACKed the cluster: until when it may subscribe to the endpoints of a new cluster.
    asks_by: Option<Moment>,
    /// The client has subscribed to the endpoints.
    requested: bool,
}

impl Warming {
    fn ends_at(&self) -> Moment {
        self.asks_by.filter(|_| !self.requested).map_or(self.until, |by| by.min(self.until))
    }
}

/// A cluster that was just sent.
pub(super) struct SentCluster {
    pub(super) endpoints: Name,
    /// The client had no endpoints of the cluster.
    pub(super) new: bool,
}

impl RoutingHold {
    pub(super) fn sent(
        &mut self,
        nonce: u64,
        clusters: impl Iterator<Item = SentCluster>,
        now: Moment,
        options: &SessionOptions,
    ) {
        self.warming.retain(|_, warming| now < warming.until);
        let (until, set) = (now + options.routing_hold, now);
        self.made = Some(now);
        for SentCluster { endpoints, new } in clusters {
            let warming = Warming { nonce, sent: now, until, set, new, asks_by: None, requested: false };
            self.warming.insert(endpoints, warming);
        }
    }

    /// Records a reply with endpoints, or with their removal. The client then warms the cluster for a moment. Its ACK shows the end of that moment;
    /// until the ACK comes, the end is estimated.
    pub(super) fn on_reply_sent(&mut self, draft: &Draft, now: Moment, options: &SessionOptions) {
        if self.warming.is_empty() {
            return;
        }
        self.made = Some(now);
        for resource in draft.resources() {
            if let Some(warming) = self.warming.get_mut(&resource.name) {
                let answered = warming.asks_by.is_some();
                (warming.new, warming.set) = (false, now);
                warming.until = warming.until.min(if answered { now } else { now + options.ack_patience });
            }
        }
        for name in draft.removed() {
            if self.warming.get(name).is_some_and(|warming| !warming.new) {
                self.warming.remove(name);
            }
        }
    }

    /// Records that the last reply has waited this long since it was made: to be encoded or compressed, or until the connection had taken it. Until
    /// then the client had nothing of it to warm. The total time stays, however slowly the client reads.
    pub(super) fn on_late_reply(&mut self, by: std::time::Duration) {
        for warming in self.warming.values_mut().filter(|warming| Some(warming.set) == self.made) {
            (warming.sent, warming.until) = (warming.sent + by, warming.until + by);
        }
    }

    /// Records the ACK or NACK of a reply with clusters: these wait no longer, except new ones, whose endpoints the client may request now.
    pub(super) fn answered(&mut self, answer: Ack, now: Moment, options: &SessionOptions) {
        if let Ack::Ack { nonce, .. } | Ack::Nack { nonce, .. } = answer {
            self.warming.retain(|_, warming| warming.nonce > nonce || warming.new);
            for warming in self.warming.values_mut().filter(|warming| warming.nonce <= nonce) {
                warming.asks_by.get_or_insert(now + options.ack_patience);
            }
        }
    }

    /// Whether changes of routing have to wait now. `asks` returns whether the client has requested endpoints of that name.
    pub(super) fn stands(
        &mut self,
        endpoints: Option<&Type>,
        asks: impl Fn(&Name) -> bool,
        view: &ReplyContext,
    ) -> bool {
        if let Some(kind) = endpoints {
            let none = |name: &Name| matches!(view.state.lookup(kind, Class::Named, name), Lookup::Absent(_));
            self.warming.retain(|name, warming| warming.new || !none(name));
            // The endpoints may have been absent before the cluster was sent.
            for (_, warming) in self.warming.iter_mut().filter(|(name, _)| none(name)) {
                warming.until = warming.until.min(warming.sent + view.options.ack_patience);
            }
        }
        for (name, warming) in &mut self.warming {
            warming.requested = asks(name);
        }
        if self.since.is_some_and(|since| view.now >= since + view.options.routing_hold) {
            self.warming.clear();
        }
        self.warming.retain(|_, warming| view.now < warming.ends_at());
        !self.warming.is_empty()
    }

    /// Records whether a change is kept back, and returns until when at the latest.
    pub(super) fn account(&mut self, kept_back: bool, now: Moment, options: &SessionOptions) -> Option<Moment> {
        if !kept_back {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let last = self.warming.values().map(Warming::ends_at).max();
        earliest(last, Some(since + options.routing_hold))
    }

    /// Since when a change of routing is kept back.
    pub(super) fn since(&self) -> Option<Moment> {
        self.since
    }

    pub(super) fn is_keeping_back(&self) -> bool {
        self.since.is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.warming.len()
    }
}

/// The NACK hold: since when removals wait. It ends when no removal is due. Removals that become due meanwhile wait no longer than the first.
#[derive(Debug, Default)]
pub(super) struct NackHold {
    since: Option<Moment>,
}

impl NackHold {
    /// Records that a removal is kept back, and returns until when.
    pub(super) fn keep(&mut self, now: Moment, options: &SessionOptions) -> Moment {
        *self.since.get_or_insert(now) + options.nacked_routing_hold
    }

    /// Records that no removal is due that the hold could keep back.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

/// Whether a NACK of routing stands, so that the client uses earlier routing. The ACK of a reply without the rejected resource does not end it.
pub(super) fn nacks_routing(subscriptions: &Subscriptions, options: &SessionOptions) -> bool {
    let mut routing = subscriptions.iter().filter(|(kind, _)| kind.is(Role::Routing));
    !options.nacked_routing_hold.is_zero() && routing.any(|(_, of)| of.acks().standing().is_some())
}

/// Whether removals of a type wait: those of clusters and endpoints; and if one of these waits, those of secrets, since the clusters may need them.
pub(super) fn may_serve_routing(kind: &Type, others_wait: bool) -> bool {
    kind.is(Role::Clusters) || kind.is(Role::Endpoints) || others_wait && kind.is_secret()
}

/// Why a client has not been sent what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DelayReason {
    /// The client has not ACKed or NACKed the last reply of the type.
    Unanswered,
    /// Clusters that the client was sent wait for their endpoints.
    RoutingHold,
    /// Clusters or endpoints have to be sent first, and are waiting themselves.
    ClustersFirst,
    /// Too little is known of what the client subscribes to.
    Incomplete,
    /// Removals wait for additions that have to be sent first.
    AdditionsFirst,
    /// Removals wait until the view has counted what the client newly subscribes to.
    SubscriptionsFirst,
    /// Removals of clusters and endpoints wait, because the client has NACKed its routing and uses the routing before it.
    NackedRouting,
}

impl DelayReason {
    /// Returns its name in reports.
    pub fn name(self) -> &'static str {
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

/// The delay of one type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    pub(crate) kind: Type,
    /// Why the type waits.
    pub reason: DelayReason,
    /// Until when the type waits at the latest.
    pub until: Option<Moment>,
}

/// What waited when the session last searched for a reply.
#[derive(Debug, Default)]
pub(super) struct Delays {
    additions: Vec<Delay>,
    removals: Option<(DelayReason, Option<Moment>)>,
    /// The types of routing for which removals wait.
    routing: Vec<Type>,
}

impl Delays {
    pub(super) fn clear(&mut self) {
        *self = Self::default(); // an idle session keeps no memory for delays
    }

    pub(super) fn addition(&mut self, kind: &Type, reason: DelayReason, until: Option<Moment>) {
        self.additions.push(Delay { kind: kind.clone(), reason, until });
    }

    /// Sets until when everything that waits for this reason waits at the latest.
    pub(super) fn bound(&mut self, reason: DelayReason, until: Option<Moment>) {
        self.additions.iter_mut().filter(|delay| delay.reason == reason).for_each(|delay| delay.until = until);
    }

    pub(super) fn removals(&mut self, reason: DelayReason, until: Option<Moment>) {
        self.removals = Some((reason, until));
    }

    /// Records that removals wait for routing of this type.
    pub(super) fn for_routing(&mut self, kind: &Type) {
        self.routing.push(kind.clone());
    }

    /// Returns the types of routing for which removals wait.
    pub(super) fn awaited_routing(&self) -> impl Iterator<Item = &Type> {
        self.routing.iter()
    }

    /// Returns why additions and changes of a type wait.
    pub(super) fn of_additions(&self, kind: &Type) -> Option<&Delay> {
        self.additions.iter().find(|delay| delay.kind == *kind)
    }

    /// Returns whether anything waits.
    pub(super) fn any(&self) -> bool {
        !self.additions.is_empty() || self.removals.is_some()
    }

    /// Returns why additions and changes wait, by type.
    pub(super) fn of_all_additions(&self) -> impl Iterator<Item = &Delay> {
        self.additions.iter()
    }

    /// Returns why removals wait.
    pub(super) fn of_removals(&self) -> Option<(DelayReason, Option<Moment>)> {
        self.removals
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::protocol::session::{Client, Variant};
    use crate::protocol::view::Snapshot;

    fn at(milliseconds: u64) -> Moment {
        Moment::START + Duration::from_millis(milliseconds)
    }

    impl RoutingHold {
        /// Sends a cluster that has changed, and keeps back a change of routing.
        fn begin(&mut self, nonce: u64, now: Moment) {
            let options = SessionOptions::default();
            self.sent(nonce, [SentCluster { endpoints: "a".into(), new: false }].into_iter(), now, &options);
            assert!(self.stands_at(now));
            self.account(true, now, &options);
        }

        fn stands_at(&mut self, now: Moment) -> bool {
            let (state, client, options) =
                (Snapshot::default(), Client::plain(Variant::Delta), SessionOptions::default());
            self.stands(None, |_| true, &ReplyContext { state: &state, client: &client, options: &options, now })
        }

        /// Sends what was kept back.
        fn end(&mut self, now: Moment) {
            self.account(false, now, &SessionOptions::default());
        }
    }

    #[test]
    fn the_total_time_of_a_hold_runs_through_all_its_clusters_and_from_zero_in_the_next_hold() {
        let mut hold = RoutingHold::default();
        for (nonce, start) in [(1, 0), (3, 10_000), (5, 20_000)] {
            hold.begin(nonce, at(start));
            hold.begin(nonce + 1, at(start + 1_500));
            assert!(hold.stands_at(at(start + 1_999)), "the hold from {start} ms on");
            assert!(!hold.stands_at(at(start + 2_000)), "the second cluster does not lengthen it");
            hold.end(at(start + 2_000));
        }
    }

    #[test]
    fn i7_a_hold_waits_as_much_longer_as_its_reply_was_late_and_its_total_time_stays() {
        // The connection may take a reply later than a hold lasts.
        for late in [200, 3_000].map(Duration::from_millis) {
            let mut hold = RoutingHold::default();
            let cluster = SentCluster { endpoints: "a".into(), new: false };
            hold.sent(1, [cluster].into_iter(), at(0), &SessionOptions::default());
            hold.on_late_reply(late);
            assert!(hold.stands_at(at(1_999) + late) && !hold.stands_at(at(2_000) + late));

            hold.begin(2, at(10_000));
            hold.on_late_reply(late);
            assert!(hold.stands_at(at(11_999)) && !hold.stands_at(at(12_000)), "a change was kept back for so long");
        }
    }

    #[test]
    fn i7_a_late_reply_lengthens_no_hold_of_what_the_client_has_had_for_long() {
        let mut hold = RoutingHold::default();
        hold.begin(1, at(0));
        hold.sent(2, [].into_iter(), at(1_000), &SessionOptions::default());
        hold.on_late_reply(Duration::from_secs(5));
        assert!(hold.stands_at(at(1_999)) && !hold.stands_at(at(2_000)));
    }

    #[test]
    fn an_ack_or_a_nack_of_the_clusters_ends_the_hold_and_other_nonces_do_not() {
        let ends = |answer| {
            let mut hold = RoutingHold::default();
            hold.begin(7, at(0));
            hold.answered(answer, at(10), &SessionOptions::default());
            !hold.stands_at(at(10))
        };
        assert!(ends(Ack::Ack { nonce: 7, stale: false }) && ends(Ack::Nack { nonce: 7, stale: false }));
        assert!(ends(Ack::Ack { nonce: 8, stale: false }) && ends(Ack::Nack { nonce: 8, stale: true }));
        assert!(!ends(Ack::Ack { nonce: 6, stale: true }) && !ends(Ack::Nack { nonce: 6, stale: true }));
        assert!(!ends(Ack::UnknownNonce));
    }
}
