//! What is told about a session: in reports, in metrics, to its view, and to the scheduler of turns.

use std::collections::BTreeMap;

use super::client::Variant;
use super::reply::SentReply;
use super::subscription::Subscription;
use super::wildcard::Wildcard;
use super::{Delay, Nack, ReplyContext, Session};
use crate::protocol::moment::Moment;
use crate::protocol::view::{Class, Completeness, Lease, Lookup, ResourceTable, Revision, Snapshot};
use crate::xds::{Name, Type};

/// What a session keeps, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Names that it subscribes to, and members of collections that it was sent.
    pub names: usize,
    /// Names that it has yet to send.
    pub pending: usize,
    /// Versions that the client stated, kept until they can be compared.
    pub stated: usize,
    pub(crate) warming: usize,
    /// Nonces that are unanswered.
    pub answers: usize,
}

/// One type of a session, for reports.
#[derive(Debug)]
pub(crate) struct Summary<'a> {
    pub(crate) kind: &'a Type,
    pub(crate) wildcard: bool,
    pub(crate) names: usize,
    pub(crate) pending: usize,
    pub(crate) last_nack: Option<&'a Nack>,
    /// No ACK has followed the latest NACK.
    pub(crate) nacked: bool,
    /// The newest reply, and whether it is unanswered.
    pub(crate) newest: Option<(SentReply, bool)>,
    /// The newest reply that the client accepted.
    pub(crate) accepted: Option<SentReply>,
    /// Something is known that the client is still to be sent.
    pub(crate) has_unsent: bool,
    /// Since when it has lacked something, or has not answered.
    pub(crate) behind_since: Option<Moment>,
    /// Why it has not been sent.
    pub(crate) delay: Option<&'a Delay>,
}

impl Session {
    /// Returns how complete each collection is of which the client has been sent everything in this snapshot.
    pub(crate) fn sent_completeness(&self, state: &Snapshot) -> BTreeMap<(Type, Name), Completeness> {
        let of = |(kind, of): (&Type, &Subscription)| {
            of.sent_collections(kind, state)
                .map(|(glob, completeness)| ((kind.clone(), glob.clone()), completeness))
                .collect::<Vec<_>>()
        };
        self.subscriptions().flat_map(of).collect()
    }

    pub(crate) fn nacks(&self) -> impl Iterator<Item = (&Type, &Nack)> {
        self.subscriptions.iter().filter_map(|(kind, subscription)| Some((kind, subscription.acks.last_nack()?)))
    }

    /// Returns what clients have of each type, compared with the newest snapshot of the view.
    pub(crate) fn summaries<'a>(&'a self, newest: &'a Snapshot, now: Moment) -> impl Iterator<Item = Summary<'a>> {
        let view = ReplyContext { state: newest, client: &self.client, limits: &self.limits, now };
        self.subscriptions.iter().map(move |(kind, subscription)| Summary {
            kind,
            wildcard: subscription.wildcard.is_some(),
            names: subscription.names.len(),
            pending: subscription.pending.len() + subscription.awaiting_data.len(),
            last_nack: subscription.acks.last_nack(),
            nacked: subscription.acks.is_nacked(),
            newest: subscription.acks.newest(),
            accepted: subscription.acks.accepted(),
            has_unsent: subscription.has_unsent(kind, &view),
            behind_since: subscription.behind_since(kind, &view),
            delay: self.delays.of_additions(kind),
        })
    }

    /// Returns the revision of its lease, which may have been revoked.
    pub fn leased_revision(&self) -> Option<Revision> {
        self.lease.as_ref().map(Lease::revision)
    }

    pub(crate) fn take_rejected_names(&mut self) -> usize {
        std::mem::take(&mut self.rejected_names)
    }

    /// Whether the client waits without a time limit, as of the last look.
    pub(crate) fn is_blocked(&self) -> bool {
        self.waits
    }

    /// Whether the client has requested something, and nothing of that is unknown. To be called when a poll gave no reply. It looks at each
    /// name.
    pub(crate) fn has_sent_all_requested(&self, state: &Snapshot, now: Moment) -> bool {
        let view = ReplyContext { state, client: &self.client, limits: &self.limits, now };
        let mut all = self.subscriptions().filter(|(_, of)| of.wants_anything()).peekable();
        !self.waits && all.peek().is_some() && !all.any(|(kind, of)| of.is_awaiting_data(kind, &view))
    }

    /// Returns how many requests were left unanswered because their type is not served on this stream.
    pub fn unsupported_requests(&self) -> usize {
        self.unserved
    }

    /// Whether a change of routing waits for endpoints.
    pub fn holds_routing(&self) -> bool {
        self.hold.is_keeping_back()
    }

    /// Returns how much it keeps.
    pub fn footprint(&self) -> Footprint {
        let mut sum = Footprint { warming: self.hold.len(), ..Footprint::default() };
        for subscription in self.subscriptions.values() {
            sum.names += subscription.names.len();
            sum.pending += subscription.pending.len() + subscription.awaiting_data.len();
            sum.stated += subscription.initial_version_count();
            sum.answers += subscription.acks.len();
        }
        sum
    }
}

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
