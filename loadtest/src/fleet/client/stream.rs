//! A stream of a client: its subscriptions, and the checks of each response.

use crate::checks::{self, Check, Nacked, Nonces, Truth};
use crate::kind::Kind;
use crate::subscription::{Response, Topic};
use crate::wire::Variant;

pub(super) struct Stream {
    pub(super) topics: Vec<Topic>,
    nonces: Nonces,
    nacked: [Nacked; 4],
    sent_node: bool,
}

impl Stream {
    pub(super) fn new(topics: Vec<Topic>) -> Self {
        Self { topics, nonces: Nonces::default(), nacked: Default::default(), sent_node: false }
    }

    /// Notes that a new stream continues with the same subscriptions.
    pub(super) fn reopen(&mut self) {
        self.sent_node = false;
        self.nonces = Nonces::default();
        self.nacked = Default::default();
    }

    /// Returns the first request of a type. It has the node if it is the first request of the stream.
    pub(super) fn open(&mut self, place: usize, node: &[u8]) -> Vec<u8> {
        let node = (!std::mem::replace(&mut self.sent_node, true)).then_some(node);
        self.topics[place].open(node)
    }

    pub(super) fn remember_nacked(&mut self, kind: Kind, variant: Variant, response: &Response) {
        self.nacked[kind as usize].remember(variant, response);
    }

    /// Returns what is wrong with a response. Whether a set is complete is only checked if the origin is known.
    pub(super) fn check(
        &mut self,
        place: Option<usize>,
        response: &Response,
        truth: Option<&Truth>,
    ) -> Vec<(Check, String)> {
        let mut found = Vec::new();
        found.extend(response.unreadable.clone().map(|what| (Check::Readable, what)));
        found.extend(self.nonces.see(&response.nonce).err().map(|what| (Check::Nonce, what)));
        match place.map(|place| &self.topics[place]) {
            None => {
                found.push((Check::Unasked, format!("a response of type {:?}, which is not subscribed", response.url)))
            }
            Some(topic) => {
                let kind = topic.kind;
                found.extend(
                    checks::unasked(topic, response).map(|name| (Check::Unasked, format!("{name} is not subscribed"))),
                );
                found.extend(
                    checks::duplicate(response)
                        .map(|name| (Check::Duplicate, format!("{name} is twice in a response"))),
                );
                let older = checks::regression(topic, response);
                let older = older.map(|(name, got, held)| format!("{name} is from update {got}, and {held} is held"));
                found.extend(older.map(|what| (Check::Regression, what)));
                let missing = truth.and_then(|truth| checks::incomplete(truth, topic, response));
                let missing = missing.map(|name| format!("{name} is missing from a complete set"));
                found.extend(missing.map(|what| (Check::Completeness, what)));
                let again = self.nacked[kind as usize].check(kind, response).err();
                found.extend(again.map(|what| (Check::ResendAfterNack, what)));
            }
        }
        found
    }
}
