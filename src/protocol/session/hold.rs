//! The LDS/RDS hold: a change of routing waits a little while for the endpoints of the clusters that went before it.
//!
//! Envoy does not hold a route back whose cluster has no endpoints yet; requests fail until they are there
//! (observed-clients 2.5). The hold ends when they have been sent, are known not to exist, when the client has answered for
//! those clusters, and in any case after a total time.

use std::collections::BTreeMap;

use super::reply::Draft;
use super::{Answer, View};
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::protocol::unit::{Class, Known};
use crate::xds::{Name, Type};

#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Names of endpoints that clusters just sent wait for, with the nonce of that reply and its time.
    warming: BTreeMap<Name, (u64, Moment)>,
    /// Since when a change has been kept back, through however many clusters.
    since: Option<Moment>,
}

impl Hold {
    pub fn sent(&mut self, nonce: u64, endpoints: impl Iterator<Item = Name>, now: Moment, limits: &Limits) {
        self.warming.retain(|_, (_, sent)| now < *sent + limits.routing_hold);
        self.warming.extend(endpoints.map(|name| (name, (nonce, now))));
    }

    /// Endpoints went out, or word that there are none.
    pub fn told(&mut self, draft: &Draft) {
        if self.warming.is_empty() {
            return;
        }
        for name in draft.resources.iter().map(|resource| &resource.name).chain(&draft.removed) {
            self.warming.remove(name);
        }
    }

    /// The client answered a reply with clusters: it waits for nothing that was in it, or for nothing any more.
    pub fn answered(&mut self, answer: Answer) {
        if let Answer::Ack { nonce, .. } | Answer::Nack { nonce, .. } = answer {
            self.warming.retain(|_, (sent, _)| *sent > nonce);
        }
    }

    /// Whether changes of routing have to wait now.
    pub fn stands(&mut self, endpoints: Option<&Type>, view: &View) -> bool {
        if let Some(kind) = endpoints {
            self.warming.retain(|name, _| !matches!(view.state.known(kind, Class::Named, name), Known::Gone(_)));
        }
        let over = |since: Moment| view.now >= since + view.limits.routing_hold;
        if self.since.is_some_and(over) {
            self.warming.clear();
        }
        self.warming.retain(|_, (_, sent)| !over(*sent));
        !self.warming.is_empty()
    }

    /// Notes whether something is kept back, and says until when at the latest.
    pub fn account(&mut self, kept_back: bool, now: Moment, limits: &Limits) -> Option<Moment> {
        if !kept_back {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let last_sent = self.warming.values().map(|(_, sent)| *sent).max().unwrap_or(since);
        Some(since.min(last_sent) + limits.routing_hold)
    }

    pub fn is_keeping_back(&self) -> bool {
        self.since.is_some()
    }

    pub fn len(&self) -> usize {
        self.warming.len()
    }
}
