//! The upstream streams of one view: open links, and requests that wait to be sent.

mod open_link;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::select_all;
use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_core::proto::Request;
use weir_core::protocol::ladder::LadderState;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{LadderSummary, Sources, StreamId};
use weir_core::protocol::upstream::Epoch;

use self::open_link::{EndingLink, OpenLink};
pub(super) use self::open_link::{LinkFacts, OpenState, StreamEnds};
use super::key_headers::KeyHeaders;
use super::link::{AbortOnDrop, Link, LinkEvent, LinkId, LinkReport, SharedConnector, TypeTrial};
use super::link_channel::{Read, ReportReceiver, ReportSender, report_channel};
use super::reopenings::Reopenings;
use super::report::{ServerMetrics, Totals};
use super::response_reader::ResponseReaders;
use super::server_log::ServerLog;
use super::shared::Shared;

pub(super) struct Links {
    /// By the servers' places in the plan.
    connectors: Arc<[SharedConnector]>,
    open: BTreeMap<StreamId, OpenLink>,
    /// Streams that end to be opened again.
    ending: BTreeMap<StreamId, EndingLink>,
    /// By server, summed over all streams to it.
    totals: BTreeMap<usize, Totals>,
    /// The part of `totals` that was not taken yet.
    unreported: BTreeMap<usize, Totals>,
    last_responses: BTreeMap<usize, SystemTime>,
    /// Distinguishes a link from an earlier one of the same stream, whose last events may still be queued.
    serial: u64,
    reports: ReportReceiver<LinkReport>,
    report_to: ReportSender<LinkReport>,
    readers: ResponseReaders,
    reopenings: Reopenings,
    log: Arc<ServerLog>,
    /// The view of the streams, and its tenant.
    view_id: Arc<str>,
    tenant: Option<Arc<str>>,
    /// The headers of the view's clients that servers are shown.
    headers: KeyHeaders,
}

impl Links {
    pub(crate) fn none(shared: &Shared, view_id: Arc<str>, tenant: Option<Arc<str>>, headers: KeyHeaders) -> Self {
        // The channel is short, so that a stream reads as fast as the view task applies.
        let (report_to, reports) = report_channel(4);
        let (open, ending, totals, unreported, last_responses, reopenings) = Default::default();
        Self {
            connectors: shared.connectors.clone(),
            open,
            ending,
            totals,
            unreported,
            last_responses,
            serial: 0,
            reports,
            report_to,
            readers: shared.readers.clone(),
            reopenings,
            log: shared.server_log.clone(),
            view_id,
            tenant,
            headers,
        }
    }

    /// Returns what decides, besides the node, what servers are shown: the tenant, and the headers of clients.
    pub(crate) fn shown_for(&self) -> (Option<Arc<str>>, KeyHeaders) {
        (self.tenant.clone(), self.headers.clone())
    }

    /// Whether a stream is wanted: it is open, or about to be.
    pub(crate) fn has_link(&self, id: StreamId) -> bool {
        self.open.contains_key(&id) || self.ending.contains_key(&id)
    }

    /// Waits for a report. None: a request has room now, or a stream may be opened again. It changes no link, so it may be cancelled
    /// anywhere.
    pub(crate) async fn next(&mut self) -> Option<Read<LinkReport>> {
        let room = room_on(self.blocked());
        tokio::select! {
            Some(report) = self.reports.next() => Some(report),
            () = room => None,
            () = self.reopenings.granted() => None,
        }
    }

    /// Returns a report that has already arrived.
    pub(crate) fn try_next(&mut self) -> Option<Read<LinkReport>> {
        self.reports.try_next()
    }

    /// Returns until when all that links have reported has been read.
    pub(crate) fn read_until(&self) -> Instant {
        self.reports.read_until()
    }

    /// Returns the name of a server in reports, by its place in the plan.
    pub(crate) fn server(&self, at: usize) -> String {
        self.connectors[at].describe()
    }

    /// Returns the name of a server that may not be in the plan any more, since restored removals may be of such a server.
    pub(crate) fn server_name(&self, at: u16) -> String {
        self.connectors.get(usize::from(at)).map_or_else(|| "unknown".into(), |server| server.describe())
    }

    /// Whether a server is the hub of this process.
    pub(crate) fn is_hub(&self, at: usize) -> bool {
        self.connectors[at].is_hub()
    }

    pub(crate) fn servers(&self) -> impl ExactSizeIterator<Item = String> {
        self.connectors.iter().map(|connector| connector.describe())
    }

    /// Returns the link that a report is from, unless that link has been given up.
    fn reporting(&mut self, id: LinkId) -> Option<&mut OpenLink> {
        self.open.get_mut(&id.stream).filter(|link| link.serial == id.serial)
    }

    /// Notes a report, and counts it unless its link has been given up. Returns whether it counts.
    pub(crate) fn note(&mut self, report: &LinkReport) -> bool {
        let ended = matches!(report.event, LinkEvent::Ended { .. });
        let responded = is_response(&report.event);
        let ending = self.ending.get_mut(&report.id.stream).filter(|of| of.link.serial == report.id.serial);
        if let Some(of) = ending.filter(|_| ended) {
            of.until = Instant::now(); // the next one is opened at once
        }
        let Some(link) = self.reporting(report.id) else { return false };
        if ended || responded {
            link.leave = None;
        }
        link.responses += u64::from(responded);
        link.connection.iter_mut().for_each(|of| of.is_answered |= responded);
        link.is_moving |= matches!(report.event, LinkEvent::Moving);
        let opens = link.state.is_none() && matches!(report.event, LinkEvent::Opened { .. } | LinkEvent::Snapshot(_));
        let (opened, responses, ended, bytes) = (opens.into(), responded.into(), ended.into(), bytes_of(&report.event));
        let news = Totals { opened, ended, responses, bytes, ..Totals::default() };
        self.count(report.id.stream.server, news);
        true
    }

    /// Returns the opening of a stream, while it is open.
    pub(crate) fn epoch(&self, id: StreamId) -> Option<Epoch> {
        self.open.get(&id)?.state.as_ref().map(|state| state.epoch)
    }

    /// Records that the stream is open in this variant, or that the local set is reachable.
    pub(crate) fn opened(&mut self, id: StreamId, variant: Variant, state: Option<OpenState>) {
        let server = self.server(id.server);
        let Some(link) = self.open.get_mut(&id) else { return };
        link.state = state;
        let connection = self.log.stream_opened(id.server, &server, &self.view_id, variant.name());
        link.connection = Some(connection.answered(link.stream().is_none())); // a local set is its own answer
    }

    /// Records that the stream has ended or could not be opened. `has_cache`: the view has something to serve. Returns the opening that is over.
    pub(crate) fn ended(&mut self, id: StreamId, reason: String, has_cache: bool) -> Option<Epoch> {
        let server = self.server(id.server);
        let link = self.open.get_mut(&id)?;
        if let Some(end) = link.end(has_cache) {
            self.log.stream_ended(id.server, &server, &self.view_id, &reason, end);
            link.last_error = Some(reason);
        }
        link.state.take().map(|state| state.epoch)
    }

    /// Whether the stream ends because its link goes on, on another connection.
    pub(crate) fn is_moving(&self, id: StreamId) -> bool {
        self.open.get(&id).is_some_and(|link| link.is_moving)
    }

    /// Returns when the next wait for the end of a stream, or for a first response, is over.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let ending = self.ending.values().map(|of| of.until);
        let leaves = self.open.values().filter_map(|link| Some(link.leave.as_ref()?.1));
        ending.chain(leaves).min()
    }

    pub(crate) fn facts(&self, id: StreamId) -> LinkFacts {
        let of = |link: &OpenLink| LinkFacts {
            connected: link.state.is_some(),
            responses: link.responses,
            last_error: link.last_error.clone(),
            unrouted_calls: self.connectors[id.server].unrouted_calls(),
        };
        self.open.get(&id).map(of).unwrap_or_default()
    }

    pub(crate) fn is_connected(&self, id: StreamId) -> bool {
        self.open.get(&id).is_some_and(|link| link.state.is_some())
    }

    fn count(&mut self, server: usize, news: Totals) {
        if news.responses > 0 {
            self.last_responses.insert(server, SystemTime::now());
        }
        self.add(server, news);
    }

    fn add(&mut self, server: usize, news: Totals) {
        if news != Totals::default() {
            *self.totals.entry(server).or_default() += news;
            *self.unreported.entry(server).or_default() += news;
        }
    }

    /// Returns what was counted since the last call, by server.
    pub(crate) fn take_unreported(&mut self) -> BTreeMap<usize, Totals> {
        std::mem::take(&mut self.unreported)
    }

    /// Returns the metrics of servers to which a stream is or was wanted.
    pub(crate) fn metrics(&self) -> Vec<ServerMetrics> {
        let of = |(at, server): (usize, String)| {
            let links = || self.open.iter().filter(|(id, _)| id.server == at);
            let connected = links().filter(|(_, link)| link.state.is_some()).count();
            let totals = self.totals.get(&at).copied().unwrap_or_default();
            let last_response = self.last_responses.get(&at).copied();
            ServerMetrics { server, streams: links().count(), connected, last_response, totals }
        };
        let servers = self.servers().enumerate().map(of);
        servers.filter(|server| server.streams > 0 || server.totals != Totals::default()).collect()
    }

    /// Returns why a server gives nothing, if that is known.
    pub(crate) fn why_away(&self, server: usize) -> &str {
        let mut links = self.open.iter().filter(|(id, _)| id.server == server);
        match links.any(|(_, link)| link.state.is_some()) {
            true => "it is connected, and what it has to answer first has not come",
            false => self.last_error(server).unwrap_or("no response"),
        }
    }

    /// Returns the last error of a server.
    fn last_error(&self, server: usize) -> Option<&str> {
        let mut links = self.open.iter().filter(|(id, _)| id.server == server);
        links.find_map(|(_, link)| link.last_error.as_deref())
    }

    /// Returns why the active server of a ladder is not the first, or why none is active.
    pub(crate) fn reason_of(&self, ladder: &LadderSummary<'_>) -> Option<String> {
        let rung = match ladder.state {
            LadderState::Idle => None,
            LadderState::Trying(at) | LadderState::Active(at) => at.checked_sub(1),
            LadderState::Cached(at) => Some(at),
            LadderState::Down => ladder.servers.len().checked_sub(1),
        };
        self.last_error(*ladder.servers.get(rung?)?).map(str::to_owned)
    }

    pub(crate) fn is_blocked(&self, id: StreamId) -> bool {
        self.open.get(&id).is_some_and(|link| link.waiting.is_some())
    }

    /// Whether this view has a permit to reopen a stream to a server.
    pub(crate) fn may_reopen(&self, server: usize) -> bool {
        self.reopenings.may_reopen(server)
    }

    /// Takes the next turn to reopen a stream to a server because another client is shown. Returns its time.
    pub(crate) fn member_turn(&self, server: usize, now: Moment) -> Moment {
        self.connectors[server].member_turn(now)
    }

    /// Requests permits to reopen streams, for servers where that is due.
    pub(crate) fn request_reopenings(&mut self, due: &BTreeSet<usize>) {
        self.reopenings.follow(due, &self.connectors);
    }

    /// Opens a link for each stream that has none, and closes those whose stream is no longer wanted.
    pub(crate) fn follow(&mut self, sources: &mut Sources) {
        let (closed, now) = (sources.take_closed(), Instant::now());
        let streams = sources.streams().map(|(id, stream)| (id, Some(stream.variant())));
        let wanted: BTreeMap<_, _> = streams.chain(sources.local_sets().map(|(id, _)| (id, None))).collect();
        let stays = |id: &StreamId| wanted.contains_key(id) && !closed.contains(&id.server);
        self.open.retain(|id, _| stays(id));
        self.ending.retain(|id, _| stays(id));
        for id in sources.take_reopened() {
            let leave = self.reopenings.take(id.server);
            if let Some(mut link) = self.open.remove(&id)
                && link.state.take().is_some()
                && self.connectors[id.server].reopenings().is_some()
            {
                // Dropping the request channel half-closes the stream.
                link.waiting = None;
                self.ending.insert(id, EndingLink { link, leave, until: now + END_OF_STREAM });
            }
        }
        for link in self.open.values_mut() {
            link.leave.take_if(|(_, until)| *until <= now);
        }
        for (stream, variant) in wanted {
            if self.open.contains_key(&stream) || self.ending.get(&stream).is_some_and(|of| of.until > now) {
                continue;
            }
            let ended = self.ending.remove(&stream);
            let link = self.start(stream, variant, ended.is_some());
            let leave = ended.and_then(|of| of.leave).map(|leave| (leave, now + FIRST_RESPONSE));
            self.open.insert(stream, OpenLink { leave, ..link });
        }
    }

    /// `last_variant`: the one in which the stream was last opened. The server may lack the other one.
    fn start(&mut self, stream: StreamId, last_variant: Option<Variant>, follows_another: bool) -> OpenLink {
        let connector = &self.connectors[stream.server];
        self.serial += 1;
        let (serial, reports) = (self.serial, self.report_to.clone());
        let variant = connector.variant().or(last_variant);
        let reader = Some(self.readers.reader());
        let (id, tenant, headers) = (LinkId { stream, serial }, self.tenant.clone(), self.headers.clone());
        let task = connector.start(Link { id, variant, tenant, headers, reports, reader, follows_another });
        OpenLink::new(serial, AbortOnDrop(task))
    }

    pub(crate) fn send(&mut self, sources: &mut Sources, now: Moment) {
        let mut nacks = Vec::new();
        for (id, stream) in sources.streams_mut() {
            let Some(link) = self.open.get_mut(&id) else { continue };
            if stream.take_liveness_call() {
                link.stream().iter().for_each(|stream| stream.life.notify_one());
            }
            if let Some(trial) = stream.trials().take_due(now) {
                let link_id = LinkId { stream: id, serial: link.serial };
                let (tenant, headers) = (self.tenant.clone(), self.headers.clone());
                let trial = TypeTrial { id: link_id, tenant, headers, trial, reports: self.report_to.clone() };
                let task = self.connectors[id.server].try_types(trial);
                link.trial = Some(AbortOnDrop(task));
            } else if !stream.trials().is_trying() {
                link.trial = None;
            }
            let Some(StreamEnds { requests, .. }) = link.state.as_ref().and_then(|state| state.stream.as_ref()) else {
                continue;
            };
            while let Some(request) = link.waiting.take().or_else(|| {
                let next = stream.next_request(now);
                nacks.extend(next.as_ref().filter(|next| next.is_nack()).map(|_| id.server));
                next
            }) {
                if let Err(mpsc::error::TrySendError::Full(request)) = requests.try_send(request) {
                    link.waiting = Some(request);
                    break;
                }
            }
            if link.waiting.is_none() {
                stream.written(now);
            }
        }
        nacks.into_iter().for_each(|server| self.add(server, Totals { nacks: 1, ..Totals::default() }));
    }

    /// Returns the full channels of streams with a waiting request.
    fn blocked(&self) -> Vec<mpsc::Sender<Request>> {
        let blocked = self.open.values().filter(|link| link.waiting.is_some());
        blocked.filter_map(OpenLink::stream).map(|stream| stream.requests.clone()).collect()
    }
}

/// Whether it is a response. A version of a local set counts as one.
fn is_response(event: &LinkEvent) -> bool {
    matches!(event, LinkEvent::Response(_) | LinkEvent::Received { .. } | LinkEvent::Snapshot(_))
}

/// Returns about how many bytes a response had that was read; 0 for other events.
fn bytes_of(event: &LinkEvent) -> u64 {
    match event {
        LinkEvent::Received { response, .. } => u64::try_from(response.summary().bytes).unwrap_or(u64::MAX),
        _ => 0,
    }
}

/// Waits until one of the full channels has room.
async fn room_on(blocked: Vec<mpsc::Sender<Request>>) {
    if blocked.is_empty() {
        std::future::pending().await
    }
    let _ = select_all(blocked.iter().map(|requests| Box::pin(requests.reserve()))).await;
}

/// How long the end of a stream is awaited that is to be opened again.
const END_OF_STREAM: Duration = Duration::from_secs(1);
/// How long a reopened stream keeps its permit if the server does not respond.
const FIRST_RESPONSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Mutex;

    use bytes::Bytes;
    use futures_util::FutureExt;
    use tokio::task::JoinHandle;
    use weir_core::protocol::options::ProtocolOptions;
    use weir_core::protocol::sources::Plan;
    use weir_core::protocol::upstream::{ServerQuirks, Upstream};
    use weir_core::protocol::view::{InterestChange, Selector, SessionId, View};
    use weir_core::xds::{KeyRule, TypeTable};

    use super::*;
    use crate::memory::Budget;

    #[tokio::test]
    async fn a_view_waits_for_room_for_a_request_and_only_as_long_as_there_is_none() {
        let ((full, mut taken), (other, _kept)) = (mpsc::channel(1), mpsc::channel(1));
        for sender in [&full, &other] {
            sender.try_send(Request::Delta(Default::default())).unwrap();
        }
        let mut room = pin!(room_on(vec![full, other]));
        assert!(room.as_mut().now_or_never().is_none());
        taken.recv().await.unwrap();
        assert!(room.now_or_never().is_some());
        assert!(room_on(Vec::new()).now_or_never().is_none(), "no request waits");
    }

    #[tokio::test]
    async fn the_streams_without_room_are_those_that_are_open_and_have_a_request_to_send() {
        let table = Arc::<TypeTable>::default();
        let kind = table.resolve("envoy.config.cluster.v3.Cluster");
        let mut upstream = Upstream::new(Variant::Delta, Bytes::new(), Arc::default(), table, Arc::default());
        upstream.want(InterestChange { kind, selector: Selector::Wildcard, on: true }, false);
        let epoch = upstream.streams_mut()[0].opened();
        let plan = Plan::single(Variant::Delta, ServerQuirks::default());
        let (rule, table, memory) = (KeyRule::default(), TypeTable::new(), Budget::unlimited());
        let shared = Shared::new(rule, table, ProtocolOptions::default(), plan, Vec::new(), 1, memory);
        let mut links = Links::none(&shared, "view".into(), None, KeyHeaders::default());
        let (requests, mut taken) = mpsc::channel(1);
        requests.try_send(Request::Delta(Default::default())).unwrap();
        for (at, is_open, waits) in [(0, true, true), (1, true, false), (2, false, true)] {
            let mut link = OpenLink::new(0, AbortOnDrop(tokio::spawn(std::future::pending())));
            link.state = is_open.then(|| OpenState {
                epoch,
                stream: Some(StreamEnds { requests: requests.clone(), life: Arc::default() }),
            });
            link.waiting = waits.then(|| Request::Delta(Default::default()));
            links.open.insert(StreamId { server: 0, at }, link);
        }
        assert_eq!(links.blocked().len(), 1);
        let mut room = pin!(room_on(links.blocked()));
        assert!(room.as_mut().now_or_never().is_none());
        taken.recv().await.unwrap();
        assert!(room.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_stream_that_moves_counts_as_connected_and_has_no_error_unless_it_cannot_be_opened_again() {
        let (rule, table, memory) = (KeyRule::default(), TypeTable::new(), Budget::unlimited());
        let plan = Plan::single(Variant::Delta, ServerQuirks::default());
        let shared = Shared::new(rule, table, ProtocolOptions::default(), plan, Vec::new(), 1, memory);
        let mut links = Links::none(&shared, "view".into(), None, KeyHeaders::default());
        let stream = StreamId { server: 0, at: 0 };
        let connection = links.log.stream_opened(0, "server", "view", "delta");
        let mut link = OpenLink::new(0, AbortOnDrop(tokio::spawn(std::future::pending())));
        link.connection = Some(connection);
        links.open.insert(stream, link);
        let counts = |links: &Links| {
            let link = &links.open[&stream];
            (link.connection.is_some(), link.last_error.clone())
        };
        links.connectors = Arc::new([Arc::new(Nowhere::default()) as SharedConnector]);
        let event = LinkEvent::Moving;
        assert!(links.note(&LinkReport { id: LinkId { stream, serial: 0 }, event }));
        links.ended(stream, "moves".into(), true);
        assert_eq!(counts(&links), (true, None));
        links.ended(stream, "lost".into(), true);
        assert_eq!(counts(&links), (false, Some("lost".into())));
    }

    #[tokio::test]
    async fn fb_32_a_stream_that_is_opened_again_begins_in_the_variant_of_the_stream_before_it() {
        let (table, now) = (Arc::new(TypeTable::new()), Moment::START);
        let plan = Plan::single(Variant::Delta, ServerQuirks::default());
        let mut sources = Sources::new(Arc::new(plan.clone()), Bytes::new(), table.clone(), Arc::default());
        let mut view = View::new(table.clone(), Arc::default());
        let kind = table.resolve("envoy.config.cluster.v3.Cluster");
        view.change_interest(SessionId(1), InterestChange { kind, selector: Selector::Wildcard, on: true }, now);
        for change in view.take_upstream_changes() {
            sources.want(change, &view, now);
        }
        let (rule, table, memory) = (KeyRule::default(), TypeTable::new(), Budget::unlimited());
        let nowhere = Arc::new(Nowhere::default());
        let connectors = vec![nowhere.clone() as SharedConnector];
        let shared = Shared::new(rule, table, ProtocolOptions::default(), plan, connectors, 1, memory);
        let mut links = Links::none(&shared, "view".into(), None, KeyHeaders::default());
        links.follow(&mut sources);
        let id = StreamId { server: 0, at: 0 };
        sources.stream(id).unwrap().set_variant(Variant::Sotw);
        sources.opened(id).unwrap();
        sources.shown_node().set(Bytes::from_static(b"another"));
        sources.shown_node().show_on(id);
        sources.on_time(&view, now);
        links.follow(&mut sources);
        assert_eq!(*nowhere.began_in.lock().unwrap(), [Variant::Delta, Variant::Sotw].map(Some));
    }

    /// Records in which variant each link begins.
    #[derive(Default)]
    struct Nowhere {
        began_in: Mutex<Vec<Option<Variant>>>,
    }

    impl crate::relay::link::Connector for Nowhere {
        fn start(&self, link: Link) -> JoinHandle<()> {
            self.began_in.lock().unwrap().push(link.variant);
            tokio::spawn(async {})
        }

        fn describe(&self) -> String {
            "server".into()
        }

        fn variant(&self) -> Option<Variant> {
            None
        }
    }
}
