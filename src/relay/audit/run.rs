//! One audit: the streams of a member, from their opening until there is a result, or none can be had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};
use weir_core::proto::Request;
use weir_core::protocol::audit::{Comparisons, Differing, MemberStream, NextStep, NotAuditable};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::sources::StreamId;
use weir_core::protocol::upstream::{ReceivedResponse, ResponseMessage};
use weir_core::xds::MemberNode;

use super::content::differing;
use crate::memory::{Charge, costs};
use crate::relay::command::{Command, ask};
use crate::relay::inspection::{AuditSubject, AuditedSide, are_shown_and_present, audited_side};
use crate::relay::link::{AbortOnDrop, Link, LinkEvent, LinkId, LinkReport};
use crate::relay::link_channel::{ReportReceiver, report_channel};
use crate::relay::shared::Shared;
use crate::transcode::Descriptors;

/// How an audit has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AuditEnd {
    Equal,
    Differs(BTreeSet<Differing>),
    Unfinished(Unfinished),
}

/// Why an audit has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unfinished {
    /// The view has ended.
    ViewEnded,
    /// The member has left, or the server is shown another one.
    MembersChanged,
    /// The view holds something back, or has another server.
    ViewUnsteady,
    /// The server, or the way to it, has ended a stream: perhaps for a type.
    StreamEnded,
    /// The server has not given all that is requested in time.
    Silent,
    /// The server gives much more than the view has.
    TooLarge,
    /// The view has changed again and again.
    Restless,
    /// There is too little memory for more than clients need.
    NoMemory,
}

impl Unfinished {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::ViewEnded => "the view has ended",
            Self::MembersChanged => "the member has left, or another one is shown",
            Self::ViewUnsteady => "the view holds something back, or has another server",
            Self::StreamEnded => "the stream has ended",
            Self::Silent => "the server has not answered in time",
            Self::TooLarge => "the server gives much more than the view has",
            Self::Restless => "the view changes too often",
            Self::NoMemory => "too little memory",
        }
    }
}

/// An audit that is under way. Its streams end with it.
pub(super) struct Audit<'a> {
    shared: &'a Shared,
    task: &'a mpsc::Sender<Command>,
    descriptors: &'a Descriptors,
    nodes: [MemberNode; 2],
    server: usize,
    most_bytes: u64,
    member: MemberStream,
    comparisons: Comparisons,
    streams: BTreeMap<StreamId, OpenStream>,
    _links: Vec<AbortOnDrop>,
    reports: ReportReceiver<LinkReport>,
    charge: Charge,
}

/// Where requests of an open stream go.
struct OpenStream {
    requests: mpsc::Sender<Request>,
    life: Arc<Notify>,
    /// A request that has no room yet.
    waiting: Option<Request>,
}

impl<'a> Audit<'a> {
    /// Opens the streams. Comparisons that count are `gap` apart.
    pub(super) fn begin(
        shared: &'a Shared,
        (task, subject): (&'a mpsc::Sender<Command>, AuditSubject),
        descriptors: &'a Descriptors,
        gap: Duration,
    ) -> Self {
        let AuditSubject { shown, member: node, offer, connector, quirks, tenant, headers } = subject;
        let options = (&*shared.view_options, &shared.stream_options);
        let (variant, server, now) = (offer.variant, offer.server, shared.clock.now());
        let most_bytes = offer.bytes.saturating_mul(MOST_TIMES).saturating_add(MOST_MORE);
        let member = MemberStream::new(node.encoded(), (variant, &*quirks), offer.wanted, &shared.table, options, now);
        let (report_to, reports) = report_channel(4);
        let links = member.streams().into_iter().map(|stream| {
            let link = Link {
                id: LinkId { stream, serial: 0 },
                variant: Some(variant),
                tenant: tenant.clone(),
                headers: headers.clone(),
                reports: report_to.clone(),
                reader: Some(shared.readers.reader()),
                follows_another: false,
            };
            AbortOnDrop(connector.start(link))
        });
        Self {
            _links: links.collect(),
            shared,
            task,
            descriptors,
            nodes: [shown, node],
            server,
            most_bytes,
            member,
            comparisons: Comparisons::apart_by(gap),
            streams: BTreeMap::new(),
            reports,
            charge: shared.memory.common(),
        }
    }

    /// Runs until it has a result, or gives up.
    pub(super) async fn run(&mut self, gap: Duration) -> AuditEnd {
        let began = Instant::now();
        let (mut look_at, mut compare_at, mut was_complete) = (began + LOOKS_EVERY, Moment::START, false);
        loop {
            if let Some(why) = self.step() {
                return AuditEnd::Unfinished(why);
            }
            let (now, moment) = (Instant::now(), self.shared.clock.now());
            was_complete |= self.member.is_complete();
            if self.member.is_complete() && compare_at <= moment {
                match self.compare().await {
                    Ok(None) => compare_at = moment + COMPARES_EVERY,
                    Ok(Some(NextStep::Equal)) => return AuditEnd::Equal,
                    Ok(Some(NextStep::Differ(found))) => return AuditEnd::Differs(found),
                    Ok(Some(NextStep::CompareAt(at))) => compare_at = at,
                    Err(why) => return AuditEnd::Unfinished(why),
                }
            }
            if now >= look_at {
                look_at = now + LOOKS_EVERY;
                if let Err(why) = self.look_at_members().await {
                    return AuditEnd::Unfinished(why);
                }
            }
            // What has come and waits to be read is no silence.
            let lasts = self.reports.read_until().saturating_duration_since(began);
            if !was_complete && lasts >= ANSWERS_WITHIN {
                return AuditEnd::Unfinished(Unfinished::Silent);
            }
            if lasts >= ANSWERS_WITHIN + gap * MOST_GAPS {
                return AuditEnd::Unfinished(Unfinished::Restless);
            }
            if let Some(why) = self.wait(now, look_at).await {
                return AuditEnd::Unfinished(why);
            }
        }
    }

    /// Waits for a report or a deadline, and applies the report.
    async fn wait(&mut self, now: Instant, look_at: Instant) -> Option<Unfinished> {
        let deadline = self.member.next_deadline().map(|at| self.shared.clock.instant(at));
        // A request that has no room, and what is due now, wait a moment.
        let until = deadline.into_iter().chain([look_at, now + COMPARES_EVERY]).min()?.max(now + LEAST_WAIT);
        tokio::select! {
            report = self.reports.recv() => match report {
                Some(report) => self.on_report(report),
                None => Some(Unfinished::StreamEnded),
            },
            () = sleep_until(until) => None,
        }
    }

    /// Runs timers, and sends what is to be requested.
    fn step(&mut self) -> Option<Unfinished> {
        let now = self.shared.clock.now();
        self.member.on_time(self.shared.clock.moment(self.reports.read_until()));
        for (id, stream) in &mut self.streams {
            if self.member.take_liveness_call(*id) {
                stream.life.notify_one();
            }
            while let Some(request) = stream.waiting.take().or_else(|| self.member.next_request(*id, now)) {
                if let Err(mpsc::error::TrySendError::Full(request)) = stream.requests.try_send(request) {
                    stream.waiting = Some(request);
                    break;
                }
            }
            if stream.waiting.is_none() {
                self.member.written(*id, now);
            }
        }
        self.charge.set(self.member.resources() * costs::TABLE_ENTRY);
        match () {
            () if self.member.bytes() > self.most_bytes => Some(Unfinished::TooLarge),
            () if self.shared.memory.is_full() => Some(Unfinished::NoMemory),
            () => None,
        }
    }

    fn on_report(&mut self, report: LinkReport) -> Option<Unfinished> {
        let (id, now) = (report.id.stream, self.shared.clock.now());
        match report.event {
            LinkEvent::Opened { variant, requests, life } => {
                self.member.opened(id, variant);
                self.streams.insert(id, OpenStream { requests, life, waiting: None });
            }
            LinkEvent::Relay => self.member.on_relay(id),
            LinkEvent::Alive => self.member.on_liveness_answer(id),
            LinkEvent::Receiving => self.member.on_receiving(id),
            LinkEvent::Received { response, at: _, turn } => {
                self.member.on_received(id, *response, now);
                drop(turn);
            }
            LinkEvent::Response(response) => {
                let message = ResponseMessage::Decoded(*response);
                if let Ok(response) = ReceivedResponse::read(message, &self.shared.table, &self.shared.store) {
                    self.member.on_received(id, response, now);
                }
            }
            LinkEvent::Moving
            | LinkEvent::Ended { .. }
            | LinkEvent::Refused(_)
            | LinkEvent::RefusedOtherwise
            | LinkEvent::PollFailed { .. } => return Some(Unfinished::StreamEnded),
            LinkEvent::Snapshot(_)
            | LinkEvent::Unchanged { .. }
            | LinkEvent::Progress { .. }
            | LinkEvent::Outage { .. }
            | LinkEvent::Trying { .. }
            | LinkEvent::Tried { .. } => {}
        }
        None
    }

    async fn look_at_members(&mut self) -> Result<(), Unfinished> {
        let [shown, member] = self.nodes.clone();
        let look = ask(self.task, move |of| are_shown_and_present(of, &shown, &member)).await;
        match look {
            None => Err(Unfinished::ViewEnded),
            Some(false) => Err(Unfinished::MembersChanged),
            Some(true) => Ok(()),
        }
    }

    /// Compares what the member was given with what the view has now. None: the view has a change under way.
    async fn compare(&mut self) -> Result<Option<NextStep>, Unfinished> {
        self.look_at_members().await?;
        let side = ask(self.task, audited_side).await.ok_or(Unfinished::ViewEnded)?;
        let AuditedSide { offer, snapshot } = match side {
            Ok(side) => side,
            Err(NotAuditable::Incomplete) => return Ok(None),
            Err(_) => return Err(Unfinished::ViewUnsteady),
        };
        if offer.server != self.server {
            return Err(Unfinished::ViewUnsteady);
        }
        let (wanted, given) = (self.member.wanted().also_in(&offer.wanted), self.member.snapshot());
        let certain = offer.certain;
        let descriptors = self.descriptors.clone();
        // There may be very many resources: the comparison must not block the runtime.
        let comparison =
            tokio::task::spawn_blocking(move || differing(&snapshot, &given, (&wanted, &certain), &descriptors));
        let found = comparison.await.map_err(|_| Unfinished::ViewUnsteady)?;
        Ok(Some(self.comparisons.note(found, self.shared.clock.now())))
    }

    /// Returns about how many bytes were received.
    pub(super) fn bytes(&self) -> u64 {
        self.member.bytes()
    }
}

/// How often to check that both members are still present: the server must not be asked on behalf of one that has left.
const LOOKS_EVERY: Duration = Duration::from_secs(1);
const COMPARES_EVERY: Duration = Duration::from_millis(500);
const LEAST_WAIT: Duration = Duration::from_millis(20);
/// How long a server has to give all that is requested: some times as long as it may be silent about what does not exist.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);
/// The audit gives up after so many gaps: the view then hardly stays unchanged for one.
const MOST_GAPS: u32 = 10;
/// A server that sends whole sets sends them again when something in them changes.
const MOST_TIMES: u64 = 4;
const MOST_MORE: u64 = 1 << 20;
