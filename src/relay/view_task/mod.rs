//! The task that owns one view: it waits for an event, and then decides without waiting.

mod refusals;
mod reports;
mod supervision;
mod traces;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

pub(super) use self::traces::TracedChanges;

use super::brakes::ViewBrakes;
use super::client_log::LogPace;
use super::clock::Clock;
use super::command::Command;
use super::incidents::Incidents;
use super::inspection::Inspection;
use super::limit::LimitCounters;
use super::link::{LinkEvent, LinkReport, SharedConnector};
use super::links::Links;
use super::metric_labels::MetricLabel;
use super::published::Published;
use super::reachability::ViewReachability;
use super::readiness::ViewReadiness;
use super::reopenings::Reopenings;
use super::report::OrderMetrics;
use super::server_log::{LadderChange, ServerLog};
use super::subscriber::Subscribers;
use super::view_usage::ViewUsage;
use super::views::FromDisk;
use crate::protocol::faults::Faults;
use crate::protocol::ladder::LadderState;
use crate::protocol::moment::{Moment, earliest};
use crate::protocol::sources::{Sources, StreamId, UpdateBatch};
use crate::protocol::upstream::{Epoch, ReceivedResponse, ResponseMessage, Stream};
use crate::protocol::view::{SessionId, Update, View};
use crate::xds::{Authority, BodyStore, Name, TypeTable};

pub(super) struct ViewTask {
    pub(crate) view_id: String,
    pub(crate) metric_label: MetricLabel,
    /// The node fields that form the sharing key.
    pub(crate) made_from: BTreeMap<String, String>,
    pub(crate) view: View,
    pub(crate) sources: Sources,
    /// By the servers' places in the plan.
    pub(crate) connectors: Arc<[SharedConnector]>,
    pub(crate) reachability: ViewReachability,
    pub(crate) brakes: ViewBrakes,
    pub(crate) incidents: Arc<Incidents>,
    pub(crate) limits: Arc<LimitCounters>,
    /// For the log lines about names that were left out of requests.
    pub(crate) left_out_lines: LogPace,
    pub(crate) server_log: Arc<ServerLog>,
    pub(crate) readiness: ViewReadiness,
    /// What was loaded for it from disk.
    pub(crate) from_disk: FromDisk,
    /// The state of each ladder when it was last reported.
    pub(crate) ladder_states: BTreeMap<Authority, LadderState>,
    /// Cases in which the order of changes could not be kept.
    pub(crate) order_metrics: OrderMetrics,
    pub(crate) published: Arc<Published>,
    pub(crate) store: Arc<BodyStore>,
    /// The limit for the bytes in the store.
    pub(crate) cached_bytes_limit: usize,
    pub(crate) table: Arc<TypeTable>,
    pub(crate) clock: Clock,
    pub(crate) commands: mpsc::Receiver<Command>,
    /// Since when there is no session and no interest; idle views are removed.
    pub(crate) usage: Arc<ViewUsage>,
    /// The server for `*` and old-style names, for load reports.
    pub(crate) active: Arc<AtomicUsize>,
    /// Notifies that the active server has changed.
    pub(crate) active_server_changes: Arc<watch::Sender<()>>,
    /// Dropped after the command channel: a session that is dropped sees that the channel is closed.
    pub(crate) sessions: Subscribers,
    pub(crate) links: Links,
    pub(crate) reopenings: Reopenings,
    /// Sessions whose interest was counted since the last publication.
    pub(crate) interest_applied: Vec<SessionId>,
    /// The traced changes that are not published yet.
    pub(crate) traced: TracedChanges,
    pub(crate) faults: Faults,
}

enum Event {
    Command(Option<Command>),
    Link(LinkReport),
    Time,
}

/// How much is applied together before the result is published: 256 events, or so many changes of interest. A client that changes its
/// own as fast as it can would otherwise keep all others waiting.
const MAX_BATCH: usize = 4096;
const EVENT: usize = MAX_BATCH / 256;

impl ViewTask {
    pub(crate) async fn run(mut self) {
        self.note_room();
        loop {
            let mut batch = 0;
            match self.next().await {
                Event::Command(None) => {
                    let last = self.inspection().metrics();
                    return self.metric_label.retire(last);
                }
                Event::Command(Some(command)) => batch += self.handle_command(command),
                Event::Link(report) => self.on_link(report),
                Event::Time => {}
            }
            // Applies what has queued up meanwhile, and publishes once.
            while batch < MAX_BATCH {
                batch += EVENT;
                if let Ok(report) = self.links.reports.try_recv() {
                    self.on_link(report);
                } else if let Ok(command) = self.commands.try_recv() {
                    batch += self.handle_command(command);
                } else {
                    break;
                }
            }
            self.flush();
        }
    }

    /// Waits. It changes no state, so it may be cancelled anywhere.
    async fn next(&mut self) -> Event {
        let deadline = self.next_deadline();
        let sleep = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let room = Links::room(self.links.blocked());
        let leave = self.reopenings.granted();
        tokio::select! {
            command = self.commands.recv() => Event::Command(command),
            Some(report) = self.links.reports.recv() => Event::Link(report),
            () = sleep => Event::Time,
            () = room => Event::Time,
            () = leave => Event::Time,
        }
    }

    fn next_deadline(&mut self) -> Option<tokio::time::Instant> {
        // A stream whose last request waits for room has no deadlines.
        let sources = self.sources.next_deadline(|id| self.links.is_blocked(id));
        let moment = earliest(sources, self.view.next_deadline());
        let timers = moment.map(|moment| self.clock.instant(moment));
        timers.into_iter().chain(self.links.next_deadline()).min()
    }

    /// Returns how many changes of interest were applied.
    fn handle_command(&mut self, command: Command) -> usize {
        let now = self.clock.now();
        let changed = match &command {
            Command::Interest(_, changes) | Command::Leave(_, changes) => changes.len(),
            _ => 0,
        };
        match command {
            Command::Join(session) => drop(self.sessions.insert(session.id(), session)),
            Command::Interest(session, changes) => {
                self.panic_if_planted(&changes);
                changes.iter().for_each(|change| self.view.change_interest(session, change.clone(), now));
                self.interest_applied.push(session);
                self.refuse_names();
                self.sources.on_names_requested(&changes, &self.view);
            }
            Command::Leave(session, changes) => {
                self.view.on_session_left(session, changes, now);
                self.sessions.remove(&session);
            }
            Command::Claims(session, claims) => self.seek(session, claims),
            Command::Inspect(look) => look(&self.inspection()),
            Command::Release(query, to) => {
                let _ = to.send(self.release_brakes(&query)); // the caller may have dropped the receiver
            }
        }
        changed
    }

    fn inspection(&self) -> Inspection<'_> {
        Inspection {
            view_id: &self.view_id,
            made_from: &self.made_from,
            metric_label: self.metric_label.name(),
            view: &self.view,
            sources: &self.sources,
            links: &self.links,
            connectors: &self.connectors,
            from_disk: &self.from_disk,
            sessions: &self.sessions,
            blocked: self.published.waiting.load(Ordering::Relaxed),
            order_metrics: self.order_metrics,
            table: &self.table,
            now: self.clock.now(),
        }
    }

    fn on_link(&mut self, report: LinkReport) {
        let now = self.clock.now();
        let id = report.id.stream;
        let server = self.connectors[id.server].describe();
        self.links.note_report(&report);
        if self.links.reporting(report.id).is_some() {
            self.links.count(id.server, &report.event);
        }
        let Some(link) = self.links.reporting(report.id) else { return };
        let Some(stream) = self.sources.stream(id) else { return };
        let batches = match report.event {
            LinkEvent::Opened { variant, requests, life } => {
                stream.set_variant(variant);
                link.up = self.sources.opened(id).map(|epoch| (requests, epoch));
                link.life = Some(life);
                link.connection =
                    Some(self.server_log.stream_opened(id.server, &server, &self.view_id, variant.name()));
                Vec::new()
            }
            LinkEvent::Relay => {
                link.up.iter().for_each(|(_, epoch)| stream.on_relay(*epoch));
                Vec::new()
            }
            LinkEvent::Alive => {
                link.up.iter().for_each(|(_, epoch)| stream.on_liveness_answer(*epoch));
                Vec::new()
            }
            LinkEvent::Receiving => {
                link.up.iter().for_each(|(_, epoch)| stream.on_receiving(*epoch));
                Vec::new()
            }
            LinkEvent::Unchanged { type_url } => match link.up {
                Some((_, epoch)) => self.sources.on_unchanged(id, epoch, &type_url, now),
                None => Vec::new(),
            },
            LinkEvent::PollFailed { type_url, failure } => {
                link.up.iter().for_each(|(_, epoch)| stream.on_poll_failed(*epoch, &type_url, failure, now));
                Vec::new()
            }
            LinkEvent::Progress { type_url, glob, completeness } => match link.up {
                Some((_, epoch)) => self.sources.on_progress(id, epoch, &type_url, glob, completeness),
                None => Vec::new(),
            },
            LinkEvent::Outage { authorities } => {
                if let Some((_, epoch)) = &link.up {
                    self.sources.on_outage(id, *epoch, authorities);
                }
                Vec::new()
            }
            LinkEvent::Response(response) => {
                link.responses += 1;
                let Some((_, epoch)) = link.up else { return };
                let message = ResponseMessage::Decoded(*response);
                let Ok(response) = ReceivedResponse::read(message, &self.table, &self.store) else { return };
                self.on_received(id, epoch, response, Instant::now())
            }
            LinkEvent::Received { response, at, turn } => {
                link.responses += 1;
                let Some((_, epoch)) = link.up else { return };
                let batches = self.on_received(id, epoch, *response, at);
                self.apply_received(batches, self.clock.moment(at), now);
                return drop(turn);
            }
            LinkEvent::Ended { reason, answered } => {
                drop(link.connection.take());
                self.server_log.stream_ended(id.server, &server, &self.view_id, &reason);
                link.waiting = None;
                link.last_error = Some(reason);
                let epoch = link.up.take().map(|(_, epoch)| epoch);
                self.sources.ended(id, epoch, answered, &self.view, now)
            }
        };
        self.apply(batches, now);
    }

    fn on_received(
        &mut self,
        id: StreamId,
        epoch: Epoch,
        response: ReceivedResponse,
        received: Instant,
    ) -> Vec<UpdateBatch> {
        let now = self.clock.now();
        self.traced.begin(id.server, &response, received);
        let before = self.sources.stream(id).map_or(0, |stream| name_mismatches(stream));
        let batches = self.sources.on_received(id, epoch, response, &self.view, now);
        self.note_rejected(id);
        let more = self.sources.stream(id).map_or(0, |stream| name_mismatches(stream) - before);
        if more > 0 {
            let server = self.connectors[id.server].describe();
            tracing::warn!(view = %self.view_id, server, count = more, "resource names in body and wrapper differ");
        }
        batches
    }

    fn apply(&mut self, batches: Vec<UpdateBatch>, now: Moment) {
        self.apply_received(batches, now, now);
    }

    fn apply_received(&mut self, batches: Vec<UpdateBatch>, received: Moment, now: Moment) {
        let before = self.view.revision();
        for UpdateBatch { origin: source, updates } in batches {
            for update in &updates {
                if let Update::Error { key: name, error, .. } = update
                    && name.is_glob()
                {
                    tracing::warn!(view = %self.view_id, %name, code = error.code, error = error.message, "server reported an error for a collection");
                }
            }
            self.view.apply_received(source, updates, received, now);
        }
        self.traced.note(before, self.view.revision());
    }

    /// Runs due timers, sends interest and requests upstream, publishes, and wakes the sessions concerned.
    fn flush(&mut self) {
        let now = self.clock.now();
        let reopenings = &self.reopenings;
        let batches = self.sources.on_time_with(&self.view, now, |server| reopenings.may_reopen(server));
        self.apply(batches, now);
        if self.view.holds().awaits_routing() {
            self.view.note_unsteady(self.sources.unsteady(), now);
        }
        self.view.on_time(now);
        self.report_dangling();
        self.report_brakes();
        let health = self.reachability.health();
        health.record_deliveries(self.sources.take_deliveries());
        self.sources.on_shared_reachability(|server| health.is_unreachable(server));
        self.sources.on_delivery_habits(|server| health.types_in_pieces(server));
        for change in self.view.take_upstream_changes() {
            self.sources.want(change, &self.view, now);
        }
        self.sources.close_unused(&self.view, now);
        self.reachability.replace(self.sources.reachability());
        self.published.note_responding(self.sources.responding());
        self.published.note_fallen(self.sources.fallen());
        self.publish_active_server();
        let down = self.sources.down();
        self.report_readiness(&down);
        self.view.on_source(down, self.sources.repeats());
        self.note_room();
        self.links.follow(&mut self.sources, &self.connectors, &mut self.reopenings);
        self.reopenings.follow(&self.sources.due_reopenings(now), &self.connectors);
        self.links.send(&mut self.sources, now);
        for (server, news) in self.links.take_unreported() {
            self.incidents.upstream(self.connectors[server].describe(), news);
        }
        self.note_left_out();
        let traced = self.traced.take(&self.view);
        let wakes = self.view.publish();
        self.trace_changes(traced, &wakes);
        // Changed names go first: a session that saw the snapshot without them would miss the change.
        let concerned = || wakes.0.iter().filter_map(|(session, marks)| Some((self.sessions.get(session)?, marks)));
        concerned().for_each(|(handle, marks)| handle.on_names_changed(marks));
        self.published.replace(self.view.snapshot());
        concerned().for_each(|(handle, _)| handle.wake());
        self.note_brakes(now);
        self.usage.note(!self.sessions.is_empty(), self.view.is_wanted(), Instant::now());
        self.admit_claims();
        for session in std::mem::take(&mut self.interest_applied) {
            if let Some(handle) = self.sessions.get(&session) {
                handle.on_interest_applied();
            }
        }
    }

    /// Tells the view what new names have room for.
    fn note_room(&mut self) {
        self.view.set_list_limit(self.sources.list_limit());
        self.view.set_full_cache(Some(self.cached_bytes_limit).filter(|limit| self.store.bytes() >= *limit));
    }

    /// Logs routing that referred to missing clusters despite all holds.
    fn report_dangling(&mut self) {
        let dangled = self.view.take_dangled();
        if dangled.removals > 0 {
            let clusters = names(&dangled.removed);
            tracing::warn!(view = %self.view_id, count = dangled.removals, clusters, "clusters removed while routing refers to them");
        }
        if dangled.waits > 0 {
            let clusters = names(&dangled.awaited);
            tracing::info!(view = %self.view_id, count = dangled.waits, clusters, "routing refers to clusters that do not exist");
        }
        self.order_metrics.removals += dangled.removals;
        if dangled.too_large > 0 {
            let count = dangled.too_large;
            tracing::warn!(view = %self.view_id, count, "resources too large to find the clusters that they refer to");
        }
        self.order_metrics.waits += dangled.waits;
        self.order_metrics.too_large += dangled.too_large;
    }

    /// Publishes the active server if it has changed.
    fn publish_active_server(&mut self) {
        for ladder in self.sources.ladders() {
            if let (Authority::TopLevel, Some(server)) = (ladder.authority, ladder.server)
                && self.active.swap(server, Ordering::Relaxed) != server
            {
                self.active_server_changes.send_replace(());
            }
            let known = self.ladder_states.insert(ladder.authority.clone(), ladder.state);
            if known != Some(ladder.state) {
                let change = LadderChange {
                    authority: ladder.authority.name().to_owned(),
                    state: ladder.state,
                    previous: known,
                    server: ladder.server.map(|server| self.connectors[server].describe()),
                };
                let reason = self.links.reason_of(&ladder);
                self.server_log.ladder_changed(&self.view_id, change, reason.as_deref());
            }
        }
    }
}

/// Joins the names for a log line.
fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

fn name_mismatches(stream: &Stream) -> u64 {
    stream.types().map(|subscription| subscription.misnamed).sum()
}
