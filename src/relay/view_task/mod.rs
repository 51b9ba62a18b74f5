//! The task that owns one view: it waits for an event, and then decides without waiting.

mod channels;
mod link_events;
mod refusals;
mod reports;
mod room;
mod round;
mod shown_member;
mod supervision;
mod traces;
mod troubles;
mod types_apart;

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_core::protocol::moment::{Moment, earliest};
use weir_core::protocol::sources::{ServerHistory, SetUpdates, Sources, UpdateBatch};
use weir_core::protocol::view::{KeptByView, Notifications, View};
use weir_core::xds::{Authority, SharingKey};

pub(super) use self::channels::ViewChannels;
use self::link_events::{Arrival, Upstream};
use self::refusals::Refusals;
use self::reports::ViewReporter;
use self::room::{LackedRoom, ROOM_CHECK, scarcity};
use self::round::{Round, Stretch};
use self::shown_member::ShownMember;
use self::traces::{TracedChanges, trace_changes};
use self::troubles::Troubles;
use self::types_apart::NotedTypes;
use super::command::Command;
use super::heavy::beside_others;
use super::inspection::{self, Inspection, ViewFacts};
use super::key_headers::KeyHeaders;
use super::link::LinkReport;
use super::link_channel::Read;
use super::links::Links;
use super::published::Published;
use super::reachability::ViewReachability;
use super::shared::Shared;
use super::subscriber::Subscribers;
use super::view_usage::ViewUsage;
use crate::memory::{Charge, costs};

pub(super) struct ViewTask {
    shared: Arc<Shared>,
    facts: ViewFacts,
    view: View,
    sources: Sources,
    shown: ShownMember,
    reachability: ViewReachability,
    reporter: ViewReporter,
    published: Arc<Published>,
    commands: mpsc::Receiver<Command>,
    /// Since when there is no session and no interest; idle views are removed.
    usage: Arc<ViewUsage>,
    /// Dropped after the command channel: a session that is dropped sees that the channel is closed.
    sessions: Subscribers,
    links: Links,
    /// Types for which no server is asked.
    types_apart: NotedTypes,
    refusals: Refusals,
    troubles: Troubles,
    /// The traced changes that are not published yet.
    traced: TracedChanges,
    /// What was rejected for want of memory.
    lacked_room: LackedRoom,
    /// The memory charge of the view. Bodies, and what sessions are charged with, are not part of it.
    charge: Charge,
}

enum Event {
    Command(Option<Command>),
    Link(Read<LinkReport>),
    Time,
}

impl ViewTask {
    /// Begins with a view, which may have something from an earlier one, and with what that knew of the servers.
    pub(super) fn new(
        shared: Arc<Shared>,
        key: &SharingKey,
        facts: ViewFacts,
        view: View,
        history: ServerHistory,
        headers: KeyHeaders,
        channels: ViewChannels,
    ) -> Self {
        let ViewChannels { commands, published, usage, active, nacks } = channels;
        let (view_id, answered) = (facts.view_id.clone(), facts.from_disk.answered.clone());
        let options = shared.stream_options.clone();
        let troubles = shared.incidents.troubles.view(view_id.clone(), facts.words(), nacks);
        let mut sources = Sources::new(shared.plan.clone(), key.upstream_node(), shared.table.clone(), options);
        sources.go_on(history);
        Self {
            facts,
            view,
            sources,
            shown: ShownMember::none(),
            reachability: ViewReachability::none(shared.reachability.clone(), shared.credentials_for(key)),
            reporter: ViewReporter::new(shared.clone(), view_id.clone(), active, answered),
            published,
            commands,
            usage,
            sessions: Subscribers::none(shared.counters.limits.clone()),
            links: Links::none(&shared, view_id, key.tenant(), headers),
            refusals: Refusals::of(&shared.rule),
            troubles: Troubles::reported_by(troubles),
            types_apart: NotedTypes::default(),
            traced: TracedChanges::of(shared.counters.clone()),
            lacked_room: LackedRoom::default(),
            charge: shared.memory.common(),
            shared,
        }
    }

    /// Runs until the last command sender is dropped. A panic ends this view alone.
    pub(super) async fn run_supervised(self) {
        let (shared, view_id) = (self.shared.clone(), self.facts.view_id.clone());
        supervision::supervise(&view_id, &shared.incidents, self.run()).await;
    }

    async fn run(mut self) {
        let mut stretch = Stretch::default();
        self.note_room();
        loop {
            let mut round = Round::default();
            match self.next().await {
                Event::Command(None) => {
                    self.published.clear(self.shared.clock.now());
                    return self.facts.metric_label.retire(inspection::metrics(&self.inspection()));
                }
                Event::Command(Some(command)) => round.note_command(self.handle_command(command)),
                Event::Link(report) => round.note_event(self.on_link(report).await),
                Event::Time => {}
            }
            // Applies what has queued up meanwhile, and publishes once. However much one client wants, what servers have sent goes along.
            loop {
                if round.has_room()
                    && let Some(report) = self.links.try_next()
                {
                    round.note_event(self.on_link(report).await);
                } else if round.has_room_for_commands()
                    && let Ok(command) = self.commands.try_recv()
                {
                    round.note_command(self.handle_command(command));
                } else {
                    break;
                }
            }
            // What links have reported since then is applied next: timers must not run before it, however long it waits.
            let seen = self.shared.clock.moment(self.links.read_until());
            let turn = self.shared.heavy_views.turn(round.names()).await;
            beside_others(round.names(), || self.flush(seen));
            drop(turn);
            stretch.rest_after(&round).await;
        }
    }

    /// Waits. It changes no state, so it may be cancelled anywhere.
    async fn next(&mut self) -> Event {
        let deadline = self.next_deadline();
        let sleep = async {
            match deadline {
                Some(at) if at <= Instant::now() => tokio::task::yield_now().await, // so that other tasks run between parts
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv() => Event::Command(command),
            report = self.links.next() => report.map_or(Event::Time, Event::Link),
            () = sleep => Event::Time,
        }
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        // A stream whose last request waits for room has no deadlines.
        let sources = self.sources.next_deadline(|id| self.links.is_blocked(id));
        let moment = earliest(earliest(sources, self.shown.next_deadline()), self.view.next_deadline());
        let timers = moment.map(|moment| self.shared.clock.instant(moment));
        let room = self.lacked_room.is_lacking().then(|| Instant::now() + ROOM_CHECK);
        timers.into_iter().chain(self.links.next_deadline()).chain(self.troubles.next_deadline()).chain(room).min()
    }

    /// Returns how many changes of interest were applied.
    fn handle_command(&mut self, command: Command) -> usize {
        let now = self.shared.clock.now();
        let changed = command.changes();
        match command {
            Command::Join(mut session) => {
                let (id, refusal) = (session.id(), self.published.refusal());
                self.shown.join(&mut *session, &mut self.sources, now);
                self.sessions.join(session);
                if let Some(status) = refusal {
                    self.sessions.refuse_view_to(id, &status); // it was accepted before the server refused the view
                }
            }
            Command::Interest(session, changes) => {
                supervision::panic_at(self.shared.panics_at.as_ref(), &changes);
                changes.iter().for_each(|change| self.view.change_interest(session, change.clone(), now));
                self.sessions.note_interest(session);
                self.sessions.refuse_names(&mut self.view);
                self.sources.on_names_requested(&changes, &self.view);
                self.types_apart.on_interest(session, &changes, &self.view, &self.sessions);
            }
            Command::Node(session, node) => self.shown.replace(session, node),
            Command::Leaving(session, changes) => self.view.on_session_leaving(session, changes, now),
            Command::Leave(session, changes) => {
                self.view.on_session_left(session, changes, now);
                self.shown.leave(session, now);
                self.sessions.leave(session);
            }
            Command::Claims(session, claims) => {
                self.view.add_claims(session, claims);
                self.sessions.refuse_claims(&mut self.view);
            }
            Command::Inspect(question) => question(&self.inspection()),
            Command::Release(query, to) => {
                let released = query.release(&self.facts.view_id, &mut self.view, self.links.servers(), now);
                let _ = to.send(released); // the caller may have dropped the receiver
            }
        }
        changed
    }

    fn inspection(&self) -> Inspection<'_> {
        Inspection {
            facts: &self.facts,
            view: &self.view,
            sources: &self.sources,
            links: &self.links,
            sessions: &self.sessions,
            members: self.shown.members(),
            blocked: self.published.blocked(),
            order_metrics: self.reporter.order_metrics(),
            shared: &self.shared,
            now: self.shared.clock.now(),
        }
    }

    /// Returns how many names the event concerned.
    async fn on_link(&mut self, read: Read<LinkReport>) -> usize {
        let names = read.report.entries();
        let _turn = self.shared.heavy_views.turn(names).await;
        beside_others(names, || self.apply_event(read));
        names
    }

    fn apply_event(&mut self, read: Read<LinkReport>) {
        let Self { shared, view, sources, links, traced, reporter, refusals, shown, .. } = self;
        let now = shared.clock.now();
        let Arrival { batches, at, turn } =
            Upstream::new(shared, view, sources, (links, refusals, shown), traced, reporter).on_event(read);
        let received = at.map_or(now, |at| self.shared.clock.moment(at));
        self.apply(batches, received, now);
        drop(turn);
    }

    fn apply(&mut self, batches: Vec<UpdateBatch>, received: Moment, now: Moment) {
        let before = self.view.revision();
        if !batches.is_empty() {
            self.view.note_recovering(self.shown.recovering(&mut self.sources, &self.links, now));
        }
        for UpdateBatch { origin, updates } in batches {
            self.reporter.report_errors(&updates);
            self.view.apply_received(origin, updates, received, now);
        }
        self.traced.note(before, self.view.revision());
    }

    /// Does what follows from the events since the last time. The order of the steps matters:
    ///
    /// - what timers release is part of what is reported, requested and published, and so are streams that show another client;
    /// - interest is requested before streams are looked at: it decides which of them are wanted;
    /// - what is known of servers comes after requests, because those may end the use of a server, and before the links are opened and
    ///   requests are sent, so that the view knows their room;
    /// - sessions are woken when they can read the snapshot, know that their interest is part of it, and everything that it needs is under way.
    /// - `seen`: until when all that links have reported was applied. Nothing is judged by a later time.
    fn flush(&mut self, seen: Moment) {
        let now = self.shared.clock.now();
        self.shown.follow(&mut self.sources, &self.links, now);
        self.shown.note_clients(self.sessions.len(), (&mut self.view, &mut self.sources), &self.links, now);
        self.run_timers(seen);
        self.reporter.report_dangling(&mut self.view);
        self.reporter.report_brakes(&mut self.view, &self.links);
        self.exchange_reachability();
        self.request_interest(seen);
        let down = self.note_servers();
        self.send_requests(now);
        let notifications = self.publish();
        let Self { refusals, view, sources, shown, links, sessions, published, reporter, .. } = self;
        refusals.follow((view, sources, shown), (links, sessions), published, reporter);
        self.note_for_later_views(now);
        self.sessions.admit_claims(&mut self.view);
        self.sessions.wake(&notifications);
        let KeptByView { resources, lingering, removal_bytes, without_room } = self.view.kept();
        let names = lingering * costs::LINGERING + without_room * costs::WITHOUT_ROOM;
        let nodes = self.shown.bytes(&mut self.sources);
        self.charge.set(resources * costs::TABLE_ENTRY + names + removal_bytes + nodes);
        let Self { view, sources, links, published, .. } = self;
        // The streams of the hub are of other views.
        let clients = if self.facts.is_hub { 0 } else { self.sessions.len() };
        self.troubles.report(clients, (view, sources), &down, (links, published));
    }

    fn run_timers(&mut self, now: Moment) {
        for SetUpdates { server, batches, summary, misnamed } in self.sources.take_set_updates(&self.view, now) {
            self.traced.begin(server, || summary, Instant::now());
            self.apply(batches, now, now);
            if misnamed > 0 {
                self.reporter.report_mismatches(misnamed, &self.links.server(server));
            }
        }
        let batches = self.sources.on_time_with(&self.view, now, |server| self.links.may_reopen(server));
        self.apply(batches, now, now);
        if self.view.holds().awaits_routing() {
            self.view.note_unsteady(self.sources.unsteady(), now);
        }
        self.view.on_time(now);
    }

    /// Reports to other views how servers send their sets, and takes over what they have found of servers.
    fn exchange_reachability(&mut self) {
        let health = self.reachability.health();
        health.record_deliveries(self.sources.take_deliveries());
        self.sources.on_shared_reachability(|server| self.reachability.is_unreachable(server));
        self.sources.on_delivery_habits(|server| health.types_in_pieces(server));
        self.refusals.exchange_trials(&mut self.sources, &self.view, &self.reachability);
    }

    fn request_interest(&mut self, now: Moment) {
        for change in self.view.take_upstream_changes() {
            self.sources.want(change, &self.view, now);
        }
        self.sources.close_unused(&self.view, now);
    }

    /// Passes on what is known of the servers now: to other views, to sessions, to operators, and to the view itself. Returns the authorities
    /// whose servers are all unreachable.
    fn note_servers(&mut self) -> BTreeSet<Authority> {
        self.reachability.replace(self.sources.reachability());
        self.published.note_responding(self.sources.responding());
        let mut history = self.sources.history(self.shared.clock.now());
        history.note_held(self.view.holds().held_of_servers());
        self.published.note_history(history);
        self.reporter.report_ladders(&self.sources, &self.links);
        let down = self.sources.down();
        self.reporter.report_readiness(&self.sources, &self.links, &down);
        self.view.on_source(down.clone(), self.sources.repeats());
        self.note_room();
        down
    }

    /// Reports to the view how much room there is for new names.
    fn note_room(&mut self) {
        let Shared { view_options, store, memory, .. } = &*self.shared;
        self.view.set_list_limit(self.sources.list_limit());
        let is_full = store.bytes() >= view_options.cached_bytes;
        self.view.set_full_cache(is_full.then_some(view_options.cached_bytes));
        let rejected: usize = self.sources.streams().map(|(_, stream)| stream.lacked_room()).sum();
        let has_room = self.lacked_room.note(self.view.kept().without_room, rejected, memory);
        self.view.set_scarcity(scarcity(memory), has_room);
        if rejected > 0 && memory.has_room_for_resources(rejected) {
            self.sources.streams_mut().for_each(|(_, stream)| stream.on_room());
        }
    }

    fn send_requests(&mut self, now: Moment) {
        self.links.follow(&mut self.sources);
        self.links.request_reopenings(&self.sources.due_reopenings(now));
        self.links.send(&mut self.sources, now);
        self.reporter.report_links(&mut self.links);
        self.reporter.report_left_out(&mut self.sources, &self.links);
        let Self { sources, view, links, sessions, published, reporter, .. } = self;
        self.types_apart.follow(sources, view, (links, sessions), published, reporter);
    }

    /// Publishes a snapshot. Changed names go first: a session that saw the snapshot without them would miss the change.
    fn publish(&mut self) -> Notifications {
        let traced = self.traced.take(&self.view);
        let notifications = self.view.publish();
        trace_changes(traced, &notifications, &self.sessions, &self.facts.view_id, &self.links);
        self.sessions.mark(&notifications);
        self.published.replace(self.view.snapshot());
        notifications
    }

    /// Notes what brakes hold, for the state file and for the views of another configuration, and whether the view is in use.
    fn note_for_later_views(&mut self, now: Moment) {
        if let Some(state) = self.view.take_brake_state(now) {
            self.published.note_brakes(self.view.holds().is_braked().then_some(state));
        }
        self.usage.note(self.sessions.len() > 0, self.view.wants().is_any(), Instant::now());
    }
}
