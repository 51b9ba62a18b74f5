//! The task that owns one unit: it waits for what happens, and then decides without waiting.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::clock::Clock;
use super::dangling::DanglingClusters;
use super::found::Found;
use super::health::Findings;
use super::incidents::Incidents;
use super::link::{LinkEvent, LinkReport, SharedConnector};
use super::links::Links;
use super::measures::{Disorder, UnitMeasures};
use super::member::Member;
use super::published::Published;
use super::readiness::ViewReadiness;
use super::report::{UnitReport, reason_of};
use super::seat::SeatReport;
use crate::protocol::faults::Faults;
use crate::protocol::ladder::Standing;
use crate::protocol::moment::{Moment, sooner};
use crate::protocol::sources::{Batch, Sources};
use crate::protocol::unit::{Claim, Fact, InterestChange, SessionId, Unit};
use crate::protocol::upstream::Stream;
use crate::xds::{Authority, BodyStore, Name, Type, TypeTable};

/// What sessions and reporters say to an owner.
pub(super) enum Command {
    Join(Member),
    Interest(SessionId, Vec<InterestChange>),
    /// What a client holds and nobody knows of.
    Seek(Vec<Claim>),
    /// Whether a client stays with routing that it had, since it refused what came after.
    Refuses(SessionId, bool),
    Leave(SessionId, Vec<InterestChange>),
    Report(oneshot::Sender<(UnitReport, Vec<SeatReport>)>),
    Measure(oneshot::Sender<UnitMeasures>),
    Look(Type, Name, oneshot::Sender<Vec<Found>>),
    Dangling(oneshot::Sender<DanglingClusters>),
}

pub(super) struct Owner {
    pub key: String,
    /// The fields of its clients' nodes that made the key.
    pub made_from: BTreeMap<String, String>,
    pub unit: Unit,
    pub sources: Sources,
    /// By their place in the plan.
    pub connectors: Arc<[SharedConnector]>,
    pub findings: Findings,
    pub incidents: Arc<Incidents>,
    pub readiness: ViewReadiness,
    /// How the ladders stood when that was last told.
    pub standings: BTreeMap<Authority, Standing>,
    /// What could not be kept in order.
    pub disorder: Disorder,
    pub published: Arc<Published>,
    pub store: Arc<Mutex<BodyStore>>,
    pub table: Arc<TypeTable>,
    pub clock: Clock,
    pub commands: mpsc::Receiver<Command>,
    /// Since when nobody is here and nothing is wanted, for whoever retires idle views.
    pub idle_since: Arc<Mutex<Option<Instant>>>,
    /// The server for `*` and old-style names, for whoever reports loads to it.
    pub active: Arc<AtomicUsize>,
    /// Says that it has become another.
    pub moves: Arc<watch::Sender<()>>,
    /// Dropped after the commands: a session that is dropped sees that nobody takes any.
    pub seats: HashMap<SessionId, Member>,
    pub links: Links,
    /// Sessions whose interest was counted since the last publication.
    pub counted: Vec<SessionId>,
    pub faults: Faults,
}

enum Happening {
    Command(Option<Command>),
    Link(LinkReport),
    Time,
}

/// How many things are decided together before their outcome is published.
const TOGETHER: usize = 256;

impl Owner {
    pub async fn run(mut self) {
        loop {
            match self.next().await {
                Happening::Command(None) => return,
                Happening::Command(Some(command)) => self.obey(command),
                Happening::Link(report) => self.on_link(report),
                Happening::Time => {}
            }
            // What has queued up meanwhile is applied together and published once.
            for _ in 0..TOGETHER {
                if let Ok(report) = self.links.reports.try_recv() {
                    self.on_link(report);
                } else if let Ok(command) = self.commands.try_recv() {
                    self.obey(command);
                } else {
                    break;
                }
            }
            self.settle();
        }
    }

    /// Waits. Touches no state, so it may be given up anywhere.
    async fn next(&mut self) -> Happening {
        let deadline = self.next_deadline();
        let sleep = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let room = Links::room(self.links.blocked());
        tokio::select! {
            command = self.commands.recv() => Happening::Command(command),
            Some(report) = self.links.reports.recv() => Happening::Link(report),
            () = sleep => Happening::Time,
            () = room => Happening::Time,
        }
    }

    fn next_deadline(&mut self) -> Option<tokio::time::Instant> {
        // A stream whose last request has found no room has nothing to do in time.
        let sources = self.sources.next_deadline(|id| self.links.is_blocked(id));
        let moment = sooner(sources, self.unit.next_deadline());
        moment.map(|moment| self.clock.instant(moment))
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Join(member) => drop(self.seats.insert(member.id, member)),
            Command::Interest(session, changes) => {
                self.panic_if_planted(&changes);
                changes.iter().for_each(|change| self.unit.change_interest(session, change.clone(), now));
                self.counted.push(session);
                self.sources.on_asked(&changes, &self.unit);
            }
            Command::Refuses(session, refuses) => self.unit.note_refusing(session, refuses),
            Command::Leave(session, changes) => {
                self.unit.note_refusing(session, false);
                changes.into_iter().for_each(|change| self.unit.change_interest(session, change, now));
                self.seats.remove(&session);
            }
            Command::Seek(claims) => self.unit.seek(claims),
            Command::Report(to) => {
                let report = self.report();
                let seats = self.seats.values().map(|seat| seat.report()).collect();
                let _ = to.send((report, seats)); // whoever asked may have gone
            }
            Command::Look(kind, name, to) => {
                let _ = to.send(self.look(&kind, &name));
            }
            Command::Measure(to) => {
                let _ = to.send(self.measures());
            }
            Command::Dangling(to) => {
                let _ = to.send(self.dangling());
            }
        }
    }

    fn on_link(&mut self, report: LinkReport) {
        let now = self.clock.now();
        let id = report.id.stream;
        let server = self.connectors[id.server].describe();
        if self.links.reporting(report.id).is_some() {
            self.links.count(id.server, &report.event);
        }
        let Some(link) = self.links.reporting(report.id) else { return };
        let Some(stream) = self.sources.stream(id) else { return };
        let batches = match report.event {
            LinkEvent::Opened { variant, requests, life } => {
                stream.speak(variant);
                link.up = self.sources.opened(id).map(|epoch| (requests, epoch));
                link.life = Some(life);
                tracing::info!(key = %self.key, server, stream = id.at, ?variant, "upstream stream is up");
                Vec::new()
            }
            LinkEvent::Life => {
                link.up.iter().for_each(|(_, epoch)| stream.on_life(*epoch));
                Vec::new()
            }
            LinkEvent::Receiving => {
                link.up.iter().for_each(|(_, epoch)| stream.on_receiving(*epoch));
                Vec::new()
            }
            LinkEvent::Unchanged { type_url } => {
                link.up.iter().for_each(|(_, epoch)| stream.on_unchanged(*epoch, &type_url, now));
                Vec::new()
            }
            LinkEvent::Trouble { type_url } => {
                link.up.iter().for_each(|(_, epoch)| stream.on_trouble(*epoch, &type_url));
                Vec::new()
            }
            LinkEvent::Filled { type_url, glob, fill } => match link.up {
                Some((_, epoch)) => self.sources.on_filled(id, epoch, &type_url, glob, fill),
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
                let before = misnamed(stream);
                let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
                let batches = self.sources.on_response(id, epoch, *response, &mut store, &self.unit, now);
                drop(store);
                self.note_rejected(id);
                let more = self.sources.stream(id).map_or(0, |stream| misnamed(stream) - before);
                if more > 0 {
                    tracing::warn!(key = %self.key, server, more, "resources whose body goes by another name than they came under");
                }
                batches
            }
            LinkEvent::Ended { reason, answered } => {
                tracing::warn!(key = %self.key, server, stream = id.at, %reason, "upstream stream ended; what is held stays");
                link.waiting = None;
                link.last_error = Some(reason);
                let epoch = link.up.take().map(|(_, epoch)| epoch);
                self.sources.ended(id, epoch, answered, &self.unit, now)
            }
        };
        self.apply(batches, now);
    }

    fn apply(&mut self, batches: Vec<Batch>, now: Moment) {
        for Batch { source, facts } in batches {
            for fact in &facts {
                if let Fact::Error { key: name, error, .. } = fact
                    && name.is_glob()
                {
                    tracing::warn!(key = %self.key, %name, code = error.code, message = error.message, "trouble with a collection");
                }
            }
            self.unit.apply_from(source, facts, now);
        }
    }

    /// Lets time work, carries interest upstream, sends requests, publishes, and wakes whom it concerns.
    fn settle(&mut self) {
        let now = self.clock.now();
        let batches = self.sources.on_time(&self.unit, now);
        self.apply(batches, now);
        if self.unit.awaits_routing() {
            self.unit.note_unsteady(self.sources.unsteady(), now);
        }
        self.unit.on_time(now);
        self.note_dangled();
        let health = self.findings.health();
        health.note_seen(self.sources.take_seen());
        self.sources.on_hearsay(|server| health.is_unreachable(server));
        self.sources.on_habits(|server| health.cut(server));
        for change in self.unit.take_upstream_changes() {
            self.sources.want(change, &self.unit, now);
        }
        self.sources.rest(&self.unit, now);
        self.findings.replace(self.sources.findings());
        self.note_moves();
        let down = self.sources.down();
        self.report_readiness(&down);
        self.unit.on_source(down, self.sources.repeats());
        self.links.follow(&mut self.sources, &self.connectors);
        self.links.send(&mut self.sources, now);
        let wakes = self.unit.publish();
        // Marks first: a session that saw the state without them would take a changed name for an unchanged one.
        let concerned = || wakes.0.iter().filter_map(|(session, marks)| Some((self.seats.get(session)?, marks)));
        concerned().for_each(|(seat, marks)| seat.mark(marks));
        self.published.replace(self.unit.state());
        concerned().for_each(|(seat, _)| seat.wake());
        let idle = self.seats.is_empty() && !self.unit.is_wanted();
        let mut since = self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        *since = if idle { since.or_else(|| Some(Instant::now())) } else { None };
        drop(since);
        for session in std::mem::take(&mut self.counted) {
            if let Some(seat) = self.seats.get(&session) {
                seat.counted();
            }
        }
    }

    /// Says what led nowhere, whatever the relay could do.
    fn note_dangled(&mut self) {
        let dangled = self.unit.take_dangled();
        if dangled.removals > 0 {
            let clusters = names(&dangled.removed);
            tracing::warn!(key = %self.key, count = dangled.removals, clusters, "clusters are removed while routing leads to them");
        }
        if dangled.waits > 0 {
            let clusters = names(&dangled.awaited);
            tracing::info!(key = %self.key, count = dangled.waits, clusters, "routing leads to clusters that do not exist");
        }
        self.disorder.removals += dangled.removals;
        if dangled.too_large > 0 {
            let count = dangled.too_large;
            tracing::warn!(key = %self.key, count, "resources are too large to see which clusters they lead to");
        }
        self.disorder.waits += dangled.waits;
        self.disorder.too_large += dangled.too_large;
    }

    /// Says which server serves, where that has changed.
    fn note_moves(&mut self) {
        for ladder in self.sources.ladders() {
            if let (Authority::Top, Some(server)) = (ladder.authority, ladder.server)
                && self.active.swap(server, Ordering::Relaxed) != server
            {
                self.moves.send_replace(());
            }
            let known = self.standings.insert(ladder.authority.clone(), ladder.standing);
            if known != Some(ladder.standing) {
                let server = ladder.server.map(|server| self.connectors[server].describe());
                let (authority, standing) = (ladder.authority, ladder.standing);
                let because = reason_of(&ladder, &self.links);
                tracing::info!(key = %self.key, ?authority, ?standing, server, before = ?known, because, "authority is served");
            }
        }
    }
}

/// So many of a log line's names as there is room for.
fn names(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ")
}

fn misnamed(stream: &Stream) -> u64 {
    stream.topics().map(|topic| topic.misnamed).sum()
}
