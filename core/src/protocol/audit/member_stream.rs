//! What a server gives one member. A view without clients holds it, and requests the same as the audited view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::offer::Wanted;
use crate::proto::Request;
use crate::protocol::ladder::{FallbackTimers, Rule};
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::session::Variant;
use crate::protocol::sources::{AuthorityPlan, Plan, ServerPlan, Sources, StreamId, UpdateBatch, authority_of};
use crate::protocol::upstream::{Epoch, ReceivedResponse, ServerQuirks, UpstreamOptions};
use crate::protocol::view::{BrakeRules, InterestChange, SessionId, Snapshot, View, ViewOptions};
use crate::xds::{Authority, TypeTable};

/// The streams of one audit to one server, and what has come on them.
///
/// They are not opened again: when one of them ends, the audit ends.
#[derive(Debug)]
pub struct MemberStream {
    view: View,
    sources: Sources,
    wanted: Wanted,
    epochs: BTreeMap<StreamId, Epoch>,
    bytes: u64,
}

impl MemberStream {
    /// Starts with nothing requested yet. `node` is encoded, as the server is sent it.
    pub fn new(
        node: Bytes,
        (variant, quirks): (Variant, &ServerQuirks),
        wanted: Wanted,
        table: &Arc<TypeTable>,
        (of_views, of_streams): (&ViewOptions, &Arc<UpstreamOptions>),
        now: Moment,
    ) -> Self {
        // A type that makes the server end the stream ends the audit. Nothing is held back, since no client uses what comes.
        let quirks = ServerQuirks { tries_types_apart: false, ..quirks.clone() };
        let options = ViewOptions {
            brakes: BrakeRules::default(),
            reference_hold: Duration::ZERO,
            names_per_view: usize::MAX,
            ..of_views.clone()
        };
        let plan = plan(ServerPlan::Streams { variant, quirks: quirks.into() }, &wanted);
        let mut view = View::new(table.clone(), options.into());
        let mut sources = Sources::new(plan.into(), node, table.clone(), of_streams.clone());
        for (kind, of) in wanted.iter() {
            let change = InterestChange { kind: kind.clone(), selector: of.clone(), on: true };
            view.change_interest(SESSION, change, now);
        }
        for change in view.take_upstream_changes() {
            sources.want(change, &view, now);
        }
        sources.close_unused(&view, now);
        Self { view, sources, wanted, epochs: BTreeMap::new(), bytes: 0 }
    }

    /// Returns the streams to open. There are two if the wildcard and names of one type are wanted.
    pub fn streams(&self) -> Vec<StreamId> {
        self.sources.streams().map(|(id, _)| id).collect()
    }

    /// Records that a stream is open, in this variant.
    pub fn opened(&mut self, id: StreamId, variant: Variant) {
        if let Some(stream) = self.sources.stream(id) {
            stream.set_variant(variant);
        }
        if let Some(epoch) = self.sources.opened(id) {
            self.epochs.insert(id, epoch);
        }
    }

    /// Returns the next request on a stream.
    pub fn next_request(&mut self, id: StreamId, now: Moment) -> Option<Request> {
        self.sources.stream(id)?.next_request(now)
    }

    /// Records that all requests of a stream were written.
    pub fn written(&mut self, id: StreamId, now: Moment) {
        if let Some(stream) = self.sources.stream(id) {
            stream.written(now);
        }
    }

    /// Returns whether to make a liveness call on the connection of a stream.
    pub fn take_liveness_call(&mut self, id: StreamId) -> bool {
        self.sources.stream(id).is_some_and(|stream| stream.take_liveness_call())
    }

    /// Records that the server has answered the liveness call.
    pub fn on_liveness_answer(&mut self, id: StreamId) {
        if let (Some(stream), Some(epoch)) = (self.sources.stream(id), self.epochs.get(&id)) {
            stream.on_liveness_answer(*epoch);
        }
    }

    /// Records that a message has begun to come in.
    pub fn on_receiving(&mut self, id: StreamId) {
        if let (Some(stream), Some(epoch)) = (self.sources.stream(id), self.epochs.get(&id)) {
            stream.on_receiving(*epoch);
        }
    }

    /// Records that the server is a relay.
    pub fn on_relay(&mut self, id: StreamId) {
        if let (Some(stream), Some(epoch)) = (self.sources.stream(id), self.epochs.get(&id)) {
            stream.on_relay(*epoch);
        }
    }

    /// Applies a response.
    pub fn on_received(&mut self, id: StreamId, response: ReceivedResponse, now: Moment) {
        let Some(epoch) = self.epochs.get(&id).copied() else { return };
        self.bytes = self.bytes.saturating_add(u64::try_from(response.summary().bytes).unwrap_or(u64::MAX));
        let batches = self.sources.on_received(id, epoch, response, &self.view, now);
        self.apply(batches, now);
    }

    /// Runs the timers that are due.
    pub fn on_time(&mut self, now: Moment) {
        let batches = self.sources.on_time_with(&self.view, now, |_| false);
        self.apply(batches, now);
        self.view.on_time(now);
        self.sources.close_unused(&self.view, now);
    }

    fn apply(&mut self, batches: Vec<UpdateBatch>, now: Moment) {
        for UpdateBatch { origin, updates } in batches {
            self.view.apply_received(origin, updates, now, now);
        }
    }

    /// Returns when [`Self::on_time`] has something to do next.
    pub fn next_deadline(&self) -> Option<Moment> {
        earliest(self.sources.next_deadline(|_| false), self.view.next_deadline())
    }

    /// Whether the server has given all that is wanted, or reported it as absent.
    pub fn is_complete(&self) -> bool {
        self.wanted.is_known(&self.view)
    }

    /// Returns what the server has given the member.
    pub fn snapshot(&mut self) -> Arc<Snapshot> {
        self.view.publish();
        self.view.snapshot().clone()
    }

    /// Returns what is requested.
    pub fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Returns about how many bytes have come.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many resources are kept.
    pub fn resources(&self) -> usize {
        self.view.kept().resources
    }
}

#[cfg(test)]
impl MemberStream {
    /// Returns what could be audited if this were the audited view.
    pub(super) fn offer(&self) -> Result<super::Offer, super::NotAuditable> {
        super::Offer::of(&self.view, &self.sources)
    }
}

/// A plan in which the one server serves all authorities.
fn plan(server: ServerPlan, wanted: &Wanted) -> Plan {
    let only = || AuthorityPlan { servers: vec![0], rule: Rule::default() };
    let named = wanted.iter().filter_map(|(_, of)| match authority_of(of) {
        Authority::Named(name) => Some((name, only())),
        Authority::TopLevel => None,
    });
    Plan {
        servers: vec![server],
        top: only(),
        authorities: named.collect(),
        timers: FallbackTimers::default(),
        holds_missing: false,
    }
}

/// The only session of such a view.
const SESSION: SessionId = SessionId(0);
