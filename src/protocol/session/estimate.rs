//! Estimates cheaply how much a session has to send, for the scheduler of turns.

use super::Session;
use super::client::Variant;
use super::subscription::Subscription;
use crate::protocol::view::{Class, Lookup, Revision, Snapshot};
use crate::xds::{Name, Type};

impl Session {
    /// Returns about how many bytes the client would be sent of a snapshot.
    pub(crate) fn pending_bytes(&self, snapshot: &Snapshot) -> usize {
        if self.end.is_some() {
            return 0; // the end of a stream waits for no turn
        }
        let variant = self.client.variant;
        let of = |(kind, of): (&Type, &Subscription)| {
            of.wildcard_bytes(kind, variant, snapshot) + of.named_bytes(kind, snapshot)
        };
        self.subscriptions().map(of).sum()
    }
}

impl Subscription {
    fn wildcard_bytes(&self, kind: &Type, variant: Variant, snapshot: &Snapshot) -> usize {
        let Some(wildcard) = &self.wildcard else { return 0 };
        let Some(table) = snapshot.resources(kind, Class::Wildcard) else { return 0 };
        let mut additions = table.additions(wildcard.added).map(|(_, resource)| resource.body.bytes().len()).peekable();
        if additions.peek().is_none() && !self.complete_due {
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
        let length = |name: &Name| match snapshot.lookup(kind, Class::Named, name) {
            Lookup::Present(resource) => resource.body.bytes().len(),
            Lookup::Absent(_) | Lookup::Unknown => 0,
        };
        let sample: usize = self.pending.keys().take(SAMPLE).map(length).sum();
        sample * self.pending.len().div_ceil(SAMPLE)
    }
}

/// So many names are looked at, and the others are assumed to be like them.
const SAMPLE: usize = 64;
