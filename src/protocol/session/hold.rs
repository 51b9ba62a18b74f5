//! The LDS/RDS hold: a change of routing waits a little while for the endpoints of the clusters that went before it.
//!
//! Envoy does not hold a route back whose cluster is not warm yet; requests fail until it is. It answers
//! for its clusters once they are, secrets included. So the hold ends with that answer, or a little after the endpoints have
//! been sent, when they are known not to exist, and in any case after a total time. Other clients answer at once, before they ask for
//! the endpoints of a cluster that is new to them: for that the hold waits a little, and then until those are sent (ORD-13).

use std::collections::BTreeMap;

use super::reply::Draft;
use super::{Ack, ReplyContext};
use crate::protocol::faults::Fault;
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::view::{Class, Lookup};
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Names of endpoints that clusters just sent wait for.
    warming: BTreeMap<Name, Warming>,
    /// Since when a change has been kept back, through however many clusters.
    since: Option<Moment>,
}

#[derive(Debug, Clone, Copy)]
struct Warming {
    /// Of the reply with the cluster.
    nonce: u64,
    sent: Moment,
    until: Moment,
    /// The client has had no endpoints of it, and has not been sent any since.
    new: bool,
    /// The client has answered, and until when it may ask for the endpoints of a new cluster.
    asks_by: Option<Moment>,
    /// It has requested them.
    requested: bool,
}

impl Warming {
    fn ends_at(&self) -> Moment {
        self.asks_by.filter(|_| !self.requested).map_or(self.until, |by| by.min(self.until))
    }
}

/// A cluster that was just sent, by the name of its endpoints.
pub(super) struct SentCluster {
    pub(crate) endpoints: Name,
    /// The client has had no endpoints of it.
    pub(crate) new: bool,
}

impl Hold {
    pub(crate) fn sent(
        &mut self,
        nonce: u64,
        clusters: impl Iterator<Item = SentCluster>,
        now: Moment,
        limits: &Limits,
    ) {
        self.warming.retain(|_, warming| now < warming.until);
        let until = now + limits.routing_hold;
        for SentCluster { endpoints, new } in clusters {
            let new = new && !limits.faults.has(Fault::HoldEndsWithAck);
            self.warming.insert(endpoints, Warming { nonce, sent: now, until, new, asks_by: None, requested: false });
        }
    }

    /// Records a reply with endpoints, or with the news that there are none. The client then warms the cluster for a moment, and
    /// one that never answers does not show when that is over.
    pub(crate) fn on_reply_sent(&mut self, draft: &Draft, now: Moment, limits: &Limits) {
        if self.warming.is_empty() {
            return;
        }
        for resource in &draft.resources {
            if let Some(warming) = self.warming.get_mut(&resource.name) {
                let answered = warming.asks_by.is_some();
                warming.new = false;
                warming.until = warming.until.min(if answered { now } else { now + limits.ack_patience });
            }
        }
        for name in &draft.removed {
            if self.warming.get(name).is_some_and(|warming| !warming.new) {
                self.warming.remove(name);
            }
        }
    }

    /// The client answered a reply with clusters: it waits for nothing that was in it, or for nothing any more. If it has endpoints
    /// to ask for, it does so now.
    pub(crate) fn answered(&mut self, answer: Ack, now: Moment, limits: &Limits) {
        if let Ack::Ack { nonce, .. } | Ack::Nack { nonce, .. } = answer {
            self.warming.retain(|_, warming| warming.nonce > nonce || warming.new);
            for warming in self.warming.values_mut().filter(|warming| warming.nonce <= nonce) {
                warming.asks_by.get_or_insert(now + limits.ack_patience);
            }
        }
    }

    /// Whether changes of routing have to wait now. `asks` returns whether the client has requested the endpoints of a name.
    pub(crate) fn stands(
        &mut self,
        endpoints: Option<&Type>,
        asks: impl Fn(&Name) -> bool,
        view: &ReplyContext,
    ) -> bool {
        if let Some(kind) = endpoints {
            let none = |name: &Name| matches!(view.state.lookup(kind, Class::Named, name), Lookup::Absent(_));
            self.warming.retain(|name, warming| warming.new || !none(name));
            // That there are none may be an old truth, of before the cluster came.
            for (_, warming) in self.warming.iter_mut().filter(|(name, _)| none(name)) {
                warming.until = warming.until.min(warming.sent + view.limits.ack_patience);
            }
        }
        for (name, warming) in &mut self.warming {
            warming.requested = asks(name);
        }
        if self.since.is_some_and(|since| view.now >= since + view.limits.routing_hold) {
            self.warming.clear();
        }
        self.warming.retain(|_, warming| view.now < warming.ends_at());
        !self.warming.is_empty()
    }

    /// Records whether something is kept back, and returns until when at the latest.
    pub(crate) fn account(&mut self, kept_back: bool, now: Moment, limits: &Limits) -> Option<Moment> {
        if !kept_back {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let last = self.warming.values().map(Warming::ends_at).max();
        earliest(last, Some(since + limits.routing_hold))
    }

    pub(crate) fn is_keeping_back(&self) -> bool {
        self.since.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.warming.len()
    }
}
