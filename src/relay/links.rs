//! The upstream streams of one view as the edge carries them: which are open, and the requests on their way out.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::select_all;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::link::{Link, LinkEvent, LinkId, LinkReport, SharedConnector};
use super::report::{ServerMetrics, Totals};
use super::response_reader::ResponseReaders;
use super::server_log::Connection;
use crate::proto::Request;
use crate::protocol::ladder::LadderState;
use crate::protocol::moment::Moment;
use crate::protocol::session::Variant;
use crate::protocol::sources::{LadderSummary, Sources, StreamId};
use crate::protocol::upstream::Epoch;

pub(super) struct Links {
    open: BTreeMap<StreamId, OpenLink>,
    /// By server, over all streams that there were.
    totals: BTreeMap<usize, Totals>,
    /// Distinguishes a link from an earlier one of the same stream, whose last events may still be on their way.
    serial: u64,
    pub(crate) reports: mpsc::Receiver<LinkReport>,
    report_to: mpsc::Sender<LinkReport>,
    readers: ResponseReaders,
}

pub(super) struct OpenLink {
    serial: u64,
    task: JoinHandle<()>,
    /// While the stream is up: where its requests go, and which opening it is.
    pub(crate) up: Option<(mpsc::Sender<Request>, Epoch)>,
    /// While it is, it counts as connected in the log.
    pub(crate) connection: Option<Connection>,
    /// Notified, the edge asks the server whether it is there.
    pub(crate) life: Option<Arc<Notify>>,
    /// A request that found no room, so that none after it may be taken.
    pub(crate) waiting: Option<Request>,
    pub(crate) last_error: Option<String>,
    pub(crate) responses: u64,
}

impl Links {
    pub(crate) fn none(readers: ResponseReaders) -> Self {
        // One response at a time is on its way to the view task for each stream: it reads as fast as it applies.
        let (report_to, reports) = mpsc::channel(4);
        Self { open: BTreeMap::new(), totals: BTreeMap::new(), serial: 0, reports, report_to, readers }
    }

    /// The link that a report is from, unless that has been given up.
    pub(crate) fn reporting(&mut self, id: LinkId) -> Option<&mut OpenLink> {
        self.open.get_mut(&id.stream).filter(|link| link.serial == id.serial)
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&OpenLink> {
        self.open.get(&id)
    }

    pub(crate) fn count(&mut self, server: usize, event: &LinkEvent) {
        let totals = self.totals.entry(server).or_default();
        match event {
            LinkEvent::Opened { .. } => totals.opened += 1,
            LinkEvent::Response(_) | LinkEvent::Received { .. } => totals.responses += 1,
            LinkEvent::Ended { .. } => totals.ended += 1,
            LinkEvent::Alive
            | LinkEvent::Receiving
            | LinkEvent::Unchanged { .. }
            | LinkEvent::PollFailed { .. }
            | LinkEvent::Progress { .. }
            | LinkEvent::Outage { .. } => {}
        }
    }

    pub(crate) fn metrics(&self, at: usize, server: String) -> ServerMetrics {
        let links = || self.open.iter().filter(|(id, _)| id.server == at);
        let connected = links().filter(|(_, link)| link.up.is_some()).count();
        let totals = self.totals.get(&at).copied().unwrap_or_default();
        ServerMetrics { server, streams: links().count(), connected, totals }
    }

    /// What last went wrong with a server.
    pub(crate) fn last_error(&self, server: usize) -> Option<&str> {
        let mut links = self.open.iter().filter(|(id, _)| id.server == server);
        links.find_map(|(_, link)| link.last_error.as_deref())
    }

    /// Why a ladder is not at its first server, or not at all.
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

    /// Opens a link for each stream that has none, and releases those whose stream is not there any more.
    pub(crate) fn follow(&mut self, sources: &mut Sources, connectors: &[SharedConnector]) {
        let closed = sources.take_closed();
        let wanted: Vec<_> = sources.streams().map(|(id, _)| id).collect();
        let reopened = sources.take_reopened();
        let stays = |id: &StreamId| wanted.contains(id) && !closed.contains(&id.server) && !reopened.contains(id);
        self.open.retain(|id, _| stays(id));
        for stream in wanted {
            if !self.open.contains_key(&stream) {
                self.serial += 1;
                let (serial, reports) = (self.serial, self.report_to.clone());
                let connector = &connectors[stream.server];
                let variant: Option<Variant> = connector.variant();
                let reader = Some(self.readers.reader());
                let task = connector.start(Link { id: LinkId { stream, serial }, variant, reports, reader });
                let link = OpenLink {
                    serial,
                    task,
                    up: None,
                    connection: None,
                    life: None,
                    waiting: None,
                    last_error: None,
                    responses: 0,
                };
                self.open.insert(stream, link);
            }
        }
    }

    pub(crate) fn send(&mut self, sources: &mut Sources, now: Moment) {
        for (id, stream) in sources.streams() {
            let Some(link) = self.open.get_mut(&id) else { continue };
            if stream.take_liveness_call() {
                link.life.iter().for_each(|life| life.notify_one());
            }
            let Some((requests, _)) = &link.up else { continue };
            while let Some(request) = link.waiting.take().or_else(|| {
                let next = stream.next_request(now);
                let refuses = next.as_ref().is_some_and(Request::is_nack);
                self.totals.entry(id.server).or_default().nacks += u64::from(refuses);
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
    }

    /// Until one of the requests that found no room finds some.
    pub(crate) async fn room(blocked: Vec<mpsc::Sender<Request>>) {
        if blocked.is_empty() {
            std::future::pending().await
        }
        let _ = select_all(blocked.iter().map(|requests| Box::pin(requests.reserve()))).await;
    }

    /// Where requests wait for room.
    pub(crate) fn blocked(&self) -> Vec<mpsc::Sender<Request>> {
        let blocked = self.open.values().filter(|link| link.waiting.is_some());
        blocked.filter_map(|link| link.up.as_ref()).map(|(requests, _)| requests.clone()).collect()
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}
