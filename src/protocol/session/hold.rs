//! The LDS/RDS hold: a change of routing waits a little while for the endpoints of the clusters that went before it.
//!
//! Envoy does not hold a route back whose cluster is not warm yet; requests fail until it is (observed-clients 2.5). It answers
//! for its clusters once they are, secrets included. So the hold ends with that answer, or a little after the endpoints have
//! been sent, when they are known not to exist, and in any case after a total time.

use std::collections::BTreeMap;

use super::reply::Draft;
use super::{Answer, View};
use crate::protocol::limits::Limits;
use crate::protocol::moment::{Moment, sooner};
use crate::protocol::unit::{Class, Known};
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
    until: Moment,
}

impl Hold {
    pub fn sent(&mut self, nonce: u64, endpoints: impl Iterator<Item = Name>, now: Moment, limits: &Limits) {
        self.warming.retain(|_, warming| now < warming.until);
        let until = now + limits.routing_hold;
        self.warming.extend(endpoints.map(|name| (name, Warming { nonce, until })));
    }

    /// Endpoints went out, or word that there are none. What is left of warming takes a moment, and a client that never answers
    /// would not say when it is over.
    pub fn told(&mut self, draft: &Draft, now: Moment, limits: &Limits) {
        if self.warming.is_empty() {
            return;
        }
        for resource in &draft.resources {
            if let Some(warming) = self.warming.get_mut(&resource.name) {
                warming.until = warming.until.min(now + limits.ack_patience);
            }
        }
        for name in &draft.removed {
            self.warming.remove(name);
        }
    }

    /// The client answered a reply with clusters: it waits for nothing that was in it, or for nothing any more.
    pub fn answered(&mut self, answer: Answer) {
        if let Answer::Ack { nonce, .. } | Answer::Nack { nonce, .. } = answer {
            self.warming.retain(|_, warming| warming.nonce > nonce);
        }
    }

    /// Whether changes of routing have to wait now.
    pub fn stands(&mut self, endpoints: Option<&Type>, view: &View) -> bool {
        if let Some(kind) = endpoints {
            self.warming.retain(|name, _| !matches!(view.state.known(kind, Class::Named, name), Known::Gone(_)));
        }
        if self.since.is_some_and(|since| view.now >= since + view.limits.routing_hold) {
            self.warming.clear();
        }
        self.warming.retain(|_, warming| view.now < warming.until);
        !self.warming.is_empty()
    }

    /// Notes whether something is kept back, and says until when at the latest.
    pub fn account(&mut self, kept_back: bool, now: Moment, limits: &Limits) -> Option<Moment> {
        if !kept_back {
            self.since = None;
            return None;
        }
        let since = *self.since.get_or_insert(now);
        let last = self.warming.values().map(|warming| warming.until).max();
        sooner(last, Some(since + limits.routing_hold))
    }

    pub fn is_keeping_back(&self) -> bool {
        self.since.is_some()
    }

    pub fn len(&self) -> usize {
        self.warming.len()
    }
}
