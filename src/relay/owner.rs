//! The task that owns one unit: it waits for what happens, and then decides without waiting.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::clock::Clock;
use super::link::{Link, LinkEvent, LinkReport, SharedConnector};
use super::published::Published;
use super::seat::{Seat, SeatReport};
use crate::proto::Request;
use crate::protocol::moment::sooner;
use crate::protocol::session::Variant;
use crate::protocol::unit::{InterestChange, SessionId, Unit};
use crate::protocol::upstream::{Epoch, Stream, Upstream};
use crate::xds::BodyStore;

/// What sessions and reporters say to an owner.
pub(super) enum Command {
    Join(Arc<Seat>),
    Interest(SessionId, Vec<InterestChange>),
    Leave(SessionId, Vec<InterestChange>),
    Report(oneshot::Sender<(UnitReport, Vec<SeatReport>)>),
}

pub(super) struct Owner {
    pub key: String,
    /// The fields of its clients' nodes that made the key.
    pub made_from: BTreeMap<String, String>,
    pub unit: Unit,
    pub upstream: Upstream,
    pub connector: SharedConnector,
    pub published: Arc<Published>,
    pub store: Arc<Mutex<BodyStore>>,
    pub clock: Clock,
    pub commands: mpsc::Receiver<Command>,
    /// Since when nobody is here and nothing is wanted, for whoever retires idle views.
    pub idle_since: Arc<Mutex<Option<Instant>>>,
    pub seats: HashMap<SessionId, Arc<Seat>>,
    pub links: Links,
    /// Sessions whose interest was counted since the last publication.
    pub counted: Vec<SessionId>,
}

/// The upstream streams that are kept open, and what they report.
pub(super) struct Links {
    open: Vec<OpenLink>,
    reports: mpsc::Receiver<LinkReport>,
    report_to: mpsc::Sender<LinkReport>,
}

struct OpenLink {
    task: JoinHandle<()>,
    /// While the stream is up: where its requests go, and which opening it is.
    up: Option<(mpsc::Sender<Request>, Epoch)>,
    /// A request that found no room, so that none after it may be taken.
    waiting: Option<Request>,
    last_error: Option<String>,
    responses: u64,
}

/// A unit in a report.
#[derive(Debug, Serialize)]
pub struct UnitReport {
    pub key: String,
    pub made_from: BTreeMap<String, String>,
    pub server: String,
    pub sessions: usize,
    pub streams: Vec<StreamReport>,
}

#[derive(Debug, Serialize)]
pub struct StreamReport {
    pub up: bool,
    pub variant: &'static str,
    pub responses: u64,
    pub last_error: Option<String>,
    pub types: Vec<TopicReport>,
}

#[derive(Debug, Serialize)]
pub struct TopicReport {
    #[serde(rename = "type")]
    pub kind: String,
    pub wildcard: bool,
    pub names: usize,
    pub held: usize,
    /// Resources whose body goes by another name than they came under.
    pub misnamed: u64,
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
        let blocked = self.links.open.iter().find(|link| link.waiting.is_some()).and_then(|link| link.up.as_ref());
        let room = async {
            match blocked {
                Some((requests, _)) => drop(requests.reserve().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = self.commands.recv() => Happening::Command(command),
            Some(report) = self.links.reports.recv() => Happening::Link(report),
            () = sleep => Happening::Time,
            () = room => Happening::Time,
        }
    }

    fn next_deadline(&mut self) -> Option<tokio::time::Instant> {
        // One whose last request has found no room has nothing to do in time.
        let waiting = |at: usize| self.links.open.get(at).is_some_and(|link| link.waiting.is_some());
        let streams = self.upstream.streams().iter().enumerate().filter(|(at, _)| !waiting(*at));
        let streams = streams.filter_map(|(_, stream)| stream.next_deadline()).min();
        let moment = sooner(streams, self.unit.next_deadline());
        moment.map(|moment| self.clock.instant(moment))
    }

    fn obey(&mut self, command: Command) {
        let now = self.clock.now();
        match command {
            Command::Join(seat) => drop(self.seats.insert(seat.id, seat)),
            Command::Interest(session, changes) => {
                changes.into_iter().for_each(|change| self.unit.change_interest(session, change, now));
                self.counted.push(session);
            }
            Command::Leave(session, changes) => {
                changes.into_iter().for_each(|change| self.unit.change_interest(session, change, now));
                self.seats.remove(&session);
            }
            Command::Report(to) => {
                let report = self.report();
                let seats = self.seats.values().map(|seat| seat.report()).collect();
                let _ = to.send((report, seats)); // whoever asked may have gone
            }
        }
    }

    fn on_link(&mut self, report: LinkReport) {
        let now = self.clock.now();
        let (Some(link), Some(stream)) =
            (self.links.open.get_mut(report.at), self.upstream.streams().get_mut(report.at))
        else {
            return;
        };
        let facts = match report.event {
            LinkEvent::Opened { variant, requests } => {
                stream.speak(variant);
                link.up = Some((requests, stream.opened()));
                self.unit.on_source(true, variant == Variant::Delta);
                tracing::info!(key = %self.key, stream = report.at, ?variant, "upstream stream is up");
                Vec::new()
            }
            LinkEvent::SignOfLife => {
                link.up.iter().for_each(|(_, epoch)| stream.on_sign_of_life(*epoch));
                Vec::new()
            }
            LinkEvent::Response(response) => {
                link.responses += 1;
                self.unit.on_source(true, stream.variant() == Variant::Delta);
                let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
                match &link.up {
                    Some((_, epoch)) => {
                        let misnamed = |stream: &Stream| stream.topics().map(|topic| topic.misnamed).sum::<u64>();
                        let before = misnamed(stream);
                        let facts = stream.on_response(*epoch, *response, &mut store, now);
                        let more = misnamed(stream) - before;
                        if more > 0 {
                            tracing::warn!(key = %self.key, more, "resources whose body goes by another name than they came under");
                        }
                        facts
                    }
                    None => Vec::new(),
                }
            }
            LinkEvent::Ended { reason, answered } => {
                tracing::warn!(key = %self.key, stream = report.at, %reason, "upstream stream ended; what is held stays");
                link.waiting = None;
                link.last_error = Some(reason);
                let facts = link.up.take().map(|(_, epoch)| stream.ended(epoch)).unwrap_or_default();
                let repeats = stream.variant() == Variant::Delta;
                if !answered && self.links.open.iter().all(|link| link.up.is_none()) {
                    self.unit.on_source(false, repeats);
                }
                facts
            }
        };
        self.unit.apply(facts, now);
    }

    /// Lets time work, carries interest upstream, sends requests, publishes, and wakes whom it concerns.
    fn settle(&mut self) {
        let now = self.clock.now();
        for stream in 0..self.upstream.streams().len() {
            let facts = self.upstream.streams()[stream].on_time(now);
            self.unit.apply(facts, now);
        }
        self.unit.on_time(now);
        for change in self.unit.take_upstream_changes() {
            self.upstream.want(change);
        }
        self.open_links();
        self.send_requests();
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

    fn open_links(&mut self) {
        for at in self.links.open.len()..self.upstream.streams().len() {
            let reports = self.links.report_to.clone();
            let task = self.connector.start(Link { at, variant: self.connector.variant(), reports });
            self.links.open.push(OpenLink { task, up: None, waiting: None, last_error: None, responses: 0 });
        }
    }

    fn send_requests(&mut self) {
        let now = self.clock.now();
        for (stream, link) in self.upstream.streams().iter_mut().zip(&mut self.links.open) {
            let Some((requests, _)) = &link.up else { continue };
            while let Some(request) = link.waiting.take().or_else(|| stream.next_request(now)) {
                if let Err(mpsc::error::TrySendError::Full(request)) = requests.try_send(request) {
                    link.waiting = Some(request);
                    break;
                }
            }
            if link.waiting.is_none() {
                stream.written(now);
            }
        }
    }

    fn report(&mut self) -> UnitReport {
        let streams = self.upstream.streams().iter().zip(&self.links.open).map(|(stream, link)| StreamReport {
            up: link.up.is_some(),
            variant: if stream.variant() == Variant::Sotw { "sotw" } else { "delta" },
            responses: link.responses,
            last_error: link.last_error.clone(),
            types: stream
                .topics()
                .map(|topic| TopicReport {
                    kind: topic.kind.name().to_owned(),
                    wildcard: topic.wildcard,
                    names: topic.names,
                    misnamed: topic.misnamed,
                    held: self.unit.held(topic.kind, topic.wildcard),
                })
                .collect(),
        });
        let streams = streams.collect();
        let (key, made_from) = (self.key.clone(), self.made_from.clone());
        UnitReport { key, made_from, server: self.connector.describe(), sessions: self.seats.len(), streams }
    }
}

impl Links {
    pub fn none() -> Self {
        // One response at a time is on its way to the owner for each stream: it reads as fast as it applies.
        let (report_to, reports) = mpsc::channel(4);
        Self { open: Vec::new(), reports, report_to }
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.open.iter().for_each(|link| link.task.abort());
    }
}
