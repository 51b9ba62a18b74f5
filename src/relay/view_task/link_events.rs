//! What an event of an upstream stream means to the view.

use std::sync::Arc;

use tokio::time::Instant;
use weir_core::protocol::local_set::SourceSnapshot;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{Sources, StreamEnd, StreamId, UpdateBatch};
use weir_core::protocol::upstream::{Epoch, ReceivedResponse, ResponseMessage, Room, Stream};
use weir_core::protocol::view::View;

use super::refusals::{Refusals, has_of};
use super::reports::ViewReporter;
use super::shown_member::ShownMember;
use super::traces::TracedChanges;
use crate::limit::Limit;
use crate::memory::costs;
use crate::relay::link::{LinkEvent, LinkReport};
use crate::relay::link_channel::Read;
use crate::relay::links::{Links, OpenState, StreamEnds};
use crate::relay::response_reader::Turn;
use crate::relay::shared::Shared;

/// What follows from an event.
#[derive(Default)]
pub(super) struct Arrival {
    pub(super) batches: Vec<UpdateBatch>,
    /// When they had arrived, if that was before now.
    pub(super) at: Option<Instant>,
    /// The turn of a large response, kept until it is applied.
    pub(super) turn: Option<Turn>,
}

/// What events are read against, and what they change.
pub(super) struct Upstream<'a> {
    shared: &'a Shared,
    view: &'a View,
    sources: &'a mut Sources,
    links: &'a mut Links,
    refusals: &'a mut Refusals,
    shown: &'a mut ShownMember,
    traced: &'a mut TracedChanges,
    reporter: &'a ViewReporter,
}

impl<'a> Upstream<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        view: &'a View,
        sources: &'a mut Sources,
        (links, refusals, shown): (&'a mut Links, &'a mut Refusals, &'a mut ShownMember),
        traced: &'a mut TracedChanges,
        reporter: &'a ViewReporter,
    ) -> Self {
        Self { shared, view, sources, links, refusals, shown, traced, reporter }
    }

    /// Returns the updates of an event. An event of a link that was given up, or of an earlier opening, has none.
    pub(super) fn on_event(&mut self, Read { report, at: reported }: Read<LinkReport>) -> Arrival {
        let (id, now) = (report.id.stream, self.shared.clock.now());
        // How long a stream has lasted does not depend on how long its end waits here.
        let reported = self.shared.clock.moment(reported);
        if !self.links.note(&report) {
            return Arrival::default();
        }
        let epoch = self.links.epoch(id);
        let is_of_shown = self.sources.shown_node().is_on(id);
        let event = match report.event {
            LinkEvent::Ended { reason, answered, is_lost, status } => {
                let is_moving = self.links.is_moving(id);
                let has_cache = self.view.tables().sizes().any(|(_, present, _)| present > 0);
                let epoch = self.links.ended(id, reason, has_cache);
                let (mut is_refusal, mut refuses_shown) = (false, false);
                let takes_shown = self.takes_shown_elsewhere(id);
                if let (Some(stream), Some(epoch), false) = (self.sources.stream(id), epoch, is_moving) {
                    let is_answered = stream.has_answered() || takes_shown;
                    let may_be_type = stream.trials().on_stream_ended(epoch, status.as_ref(), reported);
                    let of_view = status.filter(|_| !may_be_type);
                    is_refusal = of_view.as_ref().is_some_and(|status| self.refusals.on_status(id, status));
                    let may_concern_request = of_view.is_some_and(|status| status.may_concern_request());
                    refuses_shown = is_of_shown && !is_answered && may_concern_request;
                }
                let end = StreamEnd { answered, is_lost };
                let batches = self.sources.ended(id, epoch, end, self.view, reported);
                if refuses_shown {
                    self.shown.pass_over(is_refusal, false, self.sources, now);
                }
                if let Some(stream) = self.sources.stream(id).filter(|_| is_refusal) {
                    stream.clear_one_version_per_type(); // a server that takes the view again has to respond
                }
                return Arrival { batches, ..Arrival::default() };
            }
            LinkEvent::Snapshot(snapshot) => {
                self.on_snapshot(id, epoch, snapshot);
                return Arrival::default();
            }
            event => event,
        };
        let Some(stream) = self.sources.stream(id) else { return Arrival::default() };
        if is_answer(&event) && epoch.is_some() {
            self.refusals.on_taken(id);
            if is_of_shown {
                self.shown.on_answer(!self.refusals.is_none());
            }
        }
        if matches!(event, LinkEvent::RefusedOtherwise) {
            self.refusals.on_left_open(id, |server| has_of(self.view, server));
        }
        let batches = match (event, epoch) {
            (LinkEvent::Opened { variant, requests, life }, _) => {
                stream.set_variant(variant);
                let ends = Some(StreamEnds { requests, life });
                let state = self.sources.opened(id).map(|epoch| OpenState { epoch, stream: ends });
                self.links.opened(id, variant, state);
                Vec::new()
            }
            (LinkEvent::Trying { epoch, serial }, _) => {
                stream.trials().on_begun(epoch, serial, reported);
                Vec::new()
            }
            (LinkEvent::Tried { epoch, serial, end }, _) => {
                stream.trials().on_end(epoch, serial, end, now);
                Vec::new()
            }
            (LinkEvent::Snapshot(_) | LinkEvent::Moving | LinkEvent::RefusedOtherwise | LinkEvent::Ended { .. }, _)
            | (_, None) => Vec::new(),
            (LinkEvent::Relay, Some(epoch)) => {
                stream.on_relay(epoch);
                Vec::new()
            }
            (LinkEvent::Alive, Some(epoch)) => {
                stream.on_liveness_answer(epoch);
                Vec::new()
            }
            (LinkEvent::Receiving, Some(epoch)) => {
                stream.on_receiving(epoch);
                Vec::new()
            }
            (LinkEvent::Unchanged { type_url }, Some(epoch)) => self.sources.on_unchanged(id, epoch, &type_url, now),
            (LinkEvent::PollFailed { type_url, failure }, Some(epoch)) => {
                stream.on_poll_failed(epoch, &type_url, failure, now);
                Vec::new()
            }
            (LinkEvent::Refused(status), Some(_)) => {
                let is_refusal = self.refusals.on_status(id, &status);
                if is_of_shown {
                    self.shown.pass_over(is_refusal, true, self.sources, now);
                }
                Vec::new()
            }
            (LinkEvent::Progress { type_url, glob, completeness }, Some(epoch)) => {
                self.sources.on_progress(id, epoch, &type_url, glob, completeness)
            }
            (LinkEvent::Outage { authorities }, Some(epoch)) => {
                self.sources.on_outage(id, epoch, authorities);
                Vec::new()
            }
            (LinkEvent::Response(response), Some(epoch)) => {
                let message = ResponseMessage::Decoded(*response);
                match ReceivedResponse::read(message, &self.shared.table, &self.shared.store) {
                    Ok(response) => self.on_received(id, epoch, response, Instant::now()),
                    Err(_) => Vec::new(),
                }
            }
            (LinkEvent::Received { response, at, turn }, Some(epoch)) => {
                let batches = self.on_received(id, epoch, *response, at);
                return Arrival { batches, at: Some(at), turn };
            }
        };
        Arrival { batches, ..Arrival::default() }
    }

    /// `Sources::take_set_updates` returns what follows from it, in parts.
    fn on_snapshot(&mut self, id: StreamId, epoch: Option<Epoch>, snapshot: Arc<SourceSnapshot>) {
        let epoch = epoch.or_else(|| {
            let epoch = self.sources.opened(id)?;
            self.links.opened(id, Variant::Delta, Some(OpenState { epoch, stream: None })); // it gives single resources, as delta does
            Some(epoch)
        });
        if let Some(epoch) = epoch {
            self.sources.on_snapshot(id, epoch, snapshot);
        }
    }

    /// Whether the server has answered on another stream that shows the client which is shown now: then it does not refuse that one's node.
    fn takes_shown_elsewhere(&mut self, id: StreamId) -> bool {
        let others = self
            .sources
            .streams()
            .filter(|(other, stream)| other.server == id.server && *other != id && stream.has_answered());
        let others: Vec<_> = others.map(|(other, _)| other).collect();
        others.into_iter().any(|other| self.sources.shown_node().is_on(other))
    }

    /// Rejects new resources for which there is too little memory.
    fn make_room(&mut self, id: StreamId, response: &mut ReceivedResponse) {
        let Some((excess, spare, why)) = self.shared.memory.excess() else { return };
        let room = Room { excess, each: costs::TABLE_ENTRY, spare, why: why.into() };
        if let Some(stream) = self.sources.stream(id)
            && stream.make_room(response, &room, self.view) > 0
        {
            self.shared.counters.limits.reached(Limit::Memory);
        }
    }

    fn on_received(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        mut response: ReceivedResponse,
        received: Instant,
    ) -> Vec<UpdateBatch> {
        let now = self.shared.clock.now();
        self.traced.begin(id.server, || response.summary(), received);
        self.make_room(id, &mut response);
        let before = self.sources.stream(id).map_or(0, |stream| name_mismatches(stream));
        let batches = self.sources.on_received(id, epoch, response, self.view, now);
        if let Some(stream) = self.sources.stream(id) {
            let server = || self.links.server(id.server);
            self.reporter.report_rejected(stream, server);
            let more = name_mismatches(stream) - before;
            if more > 0 {
                self.reporter.report_mismatches(more, &server());
            }
        }
        batches
    }
}

/// Whether the server has answered a request.
fn is_answer(event: &LinkEvent) -> bool {
    use LinkEvent::{Received, Response, Unchanged};
    matches!(event, Response(_) | Received { .. } | Unchanged { .. })
}

fn name_mismatches(stream: &Stream) -> u64 {
    stream.types().map(|subscription| subscription.misnamed).sum()
}
