//! Estimates cheaply what a session has to send, for the scheduler of turns.

use super::Session;
use super::client::Variant;
use super::subscription::{Subscription, Wildcard};
use crate::protocol::view::{Class, Lookup, ResourceTable, Revision, Snapshot};
use crate::xds::{Name, Type};

/// What a session has to send.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Estimate {
    pub(crate) bytes: usize,
    /// The client lacks some of it: it was not sent an earlier state of that on this stream.
    pub(crate) is_first: bool,
}

impl Session {
    /// Returns about what the client would be sent of a snapshot.
    pub(crate) fn estimate(&self, snapshot: &Snapshot) -> Estimate {
        if self.end.is_some() {
            return Estimate::default(); // the end of a stream waits for no turn
        }
        let variant = self.client.variant;
        let mut estimate = Estimate::default();
        for (kind, of) in self.subscriptions() {
            let (wildcard, named) = (of.wildcard_bytes(kind, variant, snapshot), of.named_bytes(kind, snapshot));
            estimate.bytes += wildcard + named;
            let is_new = |wildcard: &Wildcard| wildcard.added == Revision::ZERO;
            estimate.is_first |= wildcard > 0 && of.wildcard.as_ref().is_some_and(is_new);
            estimate.is_first |=
                named > 0 && of.pending.values().take(SAMPLE).any(|pending| pending.requested.is_some());
        }
        estimate
    }
}

impl Session {
    /// Returns about what the client would be sent of a snapshot if it came back with nothing.
    pub(crate) fn subscribed_bytes(&self, snapshot: &Snapshot) -> usize {
        self.subscriptions().map(|(kind, of)| of.subscribed_bytes(kind, snapshot)).sum()
    }
}

impl Subscription {
    fn subscribed_bytes(&self, kind: &Type, snapshot: &Snapshot) -> usize {
        let table = self.wildcard.as_ref().and_then(|_| snapshot.resources(kind, Class::Wildcard));
        table.map_or(0, ResourceTable::bytes) + bytes_of(self.names.keys(), self.names.len(), kind, snapshot)
    }

    fn wildcard_bytes(&self, kind: &Type, variant: Variant, snapshot: &Snapshot) -> usize {
        let Some(wildcard) = &self.wildcard else { return 0 };
        let Some(table) = snapshot.resources(kind, Class::Wildcard) else { return 0 };
        let mut additions = table.additions(wildcard.added).map(|(_, resource)| resource.body.bytes().len()).peekable();
        if additions.peek().is_none() && self.complete_due.is_none() {
            return 0;
        }
        // A client that states what it holds mostly has what it would be sent.
        let returns = wildcard.first && (self.initial_version.is_some() || wildcard.initial_versions.is_some());
        if returns {
            return 0;
        }
        let complete = variant == Variant::Sotw && kind.info().full_state || wildcard.added == Revision::ZERO;
        if complete {
            return table.bytes();
        }
        let some: Vec<usize> = additions.take(SAMPLE).collect();
        if some.len() < SAMPLE { some.iter().sum() } else { table.bytes() }
    }

    fn named_bytes(&self, kind: &Type, snapshot: &Snapshot) -> usize {
        bytes_of(self.pending.keys(), self.pending.len(), kind, snapshot)
    }
}

/// Returns about how many bytes the resources of these names have.
fn bytes_of<'a>(names: impl Iterator<Item = &'a Name>, count: usize, kind: &Type, snapshot: &Snapshot) -> usize {
    let length = |name: &Name| match snapshot.lookup(kind, Class::Named, name) {
        Lookup::Present(resource) => resource.body.bytes().len(),
        Lookup::Absent(_) | Lookup::Unknown => 0,
    };
    let sample: usize = names.take(SAMPLE).map(length).sum();
    sample * count.div_ceil(SAMPLE)
}

/// So many names are looked at, and the others are assumed to be like them.
const SAMPLE: usize = 64;
