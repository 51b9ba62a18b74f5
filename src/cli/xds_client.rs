//! One stream to an xDS server, and its events. The relay's own code opens the stream, and opens it again whenever it ends.

use std::collections::VecDeque;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use weir_core::proto::{Request, Response};
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::StreamId;

use super::query_state::{Change, QueryState};
use crate::relay::{Connector, Link, LinkEvent, LinkId, LinkReport, ReportReceiver, report_channel};
use crate::upstream::{AdsConnector, AdsServer};

/// The question of a stream: responses go in, changes and requests come out.
pub(super) trait Query {
    /// Returns the first requests of a stream.
    fn open(&mut self, variant: Variant) -> Vec<Request>;
    /// Applies a response, and returns the changes and the next requests.
    fn apply(&mut self, response: Response) -> (Vec<Change>, Vec<Request>);
}

impl Query for QueryState {
    fn open(&mut self, variant: Variant) -> Vec<Request> {
        vec![QueryState::open(self, variant)]
    }

    fn apply(&mut self, response: Response) -> (Vec<Change>, Vec<Request>) {
        let (changes, answer) = QueryState::apply(self, response);
        (changes, answer.into_iter().collect())
    }
}

pub(super) struct Client<Q = QueryState> {
    query: Q,
    reports: ReportReceiver<LinkReport>,
    requests: Option<mpsc::Sender<Request>>,
    /// Requests that are not sent yet. No response is read before they are sent.
    unsent: VecDeque<Request>,
    /// Whether the other variant is tried if the server does not support the first.
    turns: bool,
    heard: bool,
    task: JoinHandle<()>,
}

#[derive(Debug)]
pub(super) enum Event {
    Open(Variant),
    News(Vec<Change>),
    Lost {
        reason: String,
        /// Whether the server does not support this variant, so that the other one is tried now.
        turns: bool,
        /// Whether the server supports neither variant, or not the chosen one.
        hopeless: bool,
    },
}

impl<Q: Query> Client<Q> {
    pub(crate) fn start(server: AdsServer, query: Q) -> Self {
        let (sender, reports) = report_channel(1);
        let turns = server.variant.is_none();
        let id = LinkId { stream: StreamId { server: 0, at: 0 }, serial: 0 };
        let link = Link {
            id,
            variant: server.variant,
            tenant: None,
            headers: Default::default(),
            reports: sender,
            reader: None,
            follows_another: false,
        };
        let task = AdsConnector::new(server).start(link);
        Self { query, reports, requests: None, unsent: VecDeque::new(), turns, heard: false, task }
    }

    pub(crate) fn query(&self) -> &Q {
        &self.query
    }

    /// Returns the next event. Cancelling it loses nothing.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            self.send().await;
            let Some(report) = self.reports.recv().await else {
                return Event::Lost { reason: "the stream is not opened again".into(), turns: false, hopeless: true };
            };
            match report.event {
                LinkEvent::Opened { variant, requests, .. } => {
                    self.unsent = self.query.open(variant).into();
                    self.requests = Some(requests);
                    return Event::Open(variant);
                }
                LinkEvent::Snapshot(_)
                | LinkEvent::Relay
                | LinkEvent::Alive
                | LinkEvent::Receiving
                | LinkEvent::Moving
                | LinkEvent::Unchanged { .. }
                | LinkEvent::PollFailed { .. }
                | LinkEvent::Refused(_)
                | LinkEvent::RefusedOtherwise
                | LinkEvent::Progress { .. }
                | LinkEvent::Received { .. }
                | LinkEvent::Trying { .. }
                | LinkEvent::Tried { .. }
                | LinkEvent::Outage { .. } => {}
                LinkEvent::Response(response) => {
                    self.heard = true;
                    let (changes, requests) = self.query.apply(*response);
                    self.unsent.extend(requests);
                    return Event::News(changes);
                }
                LinkEvent::Ended { reason, .. } => {
                    self.requests = None;
                    let unspoken = !self.heard && reason.starts_with("Unimplemented");
                    let turns = unspoken && std::mem::take(&mut self.turns);
                    return Event::Lost { reason, turns, hopeless: unspoken && !turns };
                }
            }
        }
    }

    async fn send(&mut self) {
        let Some(requests) = &self.requests else { return };
        while !self.unsent.is_empty() {
            let Ok(room) = requests.reserve().await else {
                self.unsent.clear(); // the stream has ended, which is reported next
                return;
            };
            if let Some(request) = self.unsent.pop_front() {
                room.send(request);
            }
        }
    }
}

impl<Q> Drop for Client<Q> {
    fn drop(&mut self) {
        self.task.abort();
    }
}
