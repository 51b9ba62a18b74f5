//! The messages between a view task and the edge that carries its upstream streams.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::Instant;
use weir_core::proto::{Request, Response};
use weir_core::protocol::local_set::SourceSnapshot;
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::StreamId;
use weir_core::protocol::upstream::{
    Epoch, PollFailure, ReceivedResponse, ResponseMessage, ServerStatus, Trial, TrialEnd, UnreadableResponse,
};
use weir_core::protocol::view::Completeness;
use weir_core::xds::{Authority, Name};

use super::key_headers::KeyHeaders;
use super::link_channel::ReportSender;
use super::redaction::Redaction;
use super::response_reader::{ResponseReader, Turn};
use crate::compression::{InflateError, Inflater};

/// Identifies a link: the stream of the view, and which of the links that were started for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkId {
    /// The stream within its view.
    pub stream: StreamId,
    /// Grows with each link of that stream, so that events of an earlier one can be dropped.
    pub serial: u64,
}

/// Why a response that is compressed cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableCompressed {
    #[error(transparent)]
    Inflate(#[from] InflateError),
    #[error(transparent)]
    Response(#[from] UnreadableResponse),
}

/// One upstream stream to be kept open, through all its reconnects.
pub struct Link {
    /// The identifier in every report.
    pub id: LinkId,
    /// The variant to begin with. If the server does not support it, the other one is used.
    pub variant: Option<Variant>,
    /// The tenant of the view, if views have tenants. It decides which credentials the server is shown.
    pub tenant: Option<Arc<str>>,
    /// The headers of the view's clients that the server is shown.
    pub headers: KeyHeaders,
    /// Where events are sent. The link ends when the receiver is dropped.
    pub reports: ReportSender<LinkReport>,
    /// Reads responses for the view. Without it, they are reported unread.
    pub reader: Option<ResponseReader>,
    /// The link follows a stream that was ended to be opened again. A server that still has that stream may refuse this one.
    pub follows_another: bool,
}

impl Link {
    /// Returns the report of a response.
    pub(crate) async fn read(&self, message: ResponseMessage) -> Result<LinkEvent, UnreadableResponse> {
        self.read_arrived(message, Instant::now(), None).await
    }

    /// Inflates a response, and returns its report. A large one waits for its turn as soon as its size is known.
    pub(crate) async fn read_compressed(
        &self,
        variant: Variant,
        mut inflater: Inflater,
    ) -> Result<LinkEvent, UnreadableCompressed> {
        let (at, mut turn) = (Instant::now(), None);
        while inflater.step()? {
            if turn.is_none() && ResponseReader::is_large(inflater.len()) {
                turn = self.turn().await;
            }
            yield_now().await;
        }
        Ok(self.read_arrived(ResponseMessage::Encoded(variant, inflater.into_bytes()), at, turn).await?)
    }

    async fn read_arrived(
        &self,
        message: ResponseMessage,
        at: Instant,
        turn: Option<Turn>,
    ) -> Result<LinkEvent, UnreadableResponse> {
        let Some(reader) = &self.reader else { return Ok(LinkEvent::Response(Box::new(message.decode()?))) };
        let turn = match turn {
            None if ResponseReader::is_large(message.size()) => self.turn().await,
            turn => turn,
        };
        Ok(LinkEvent::Received { response: Box::new(reader.read(message).await?), at, turn })
    }

    /// Waits for the turn of a large response.
    async fn turn(&self) -> Option<Turn> {
        let reader = self.reader.as_ref()?;
        // The server is not silent while its response waits to be read.
        let _ = self.reports.send(LinkReport { id: self.id, event: LinkEvent::Receiving }).await; // the view may have ended
        reader.turn().await
    }
}

/// An event of one link.
#[derive(Debug)]
pub struct LinkReport {
    pub(crate) id: LinkId,
    /// What happened.
    pub event: LinkEvent,
}

impl LinkReport {
    /// Returns how many names the report concerns, if that is known.
    pub(super) fn entries(&self) -> usize {
        match &self.event {
            LinkEvent::Received { response, .. } => response.entries(),
            _ => 0,
        }
    }
}

/// What happens on an upstream stream, or to a local set.
#[derive(Debug)]
pub enum LinkEvent {
    /// The stream is open in this variant, and accepts requests here.
    Opened {
        /// The variant that the server accepted.
        variant: Variant,
        /// The channel for requests.
        requests: mpsc::Sender<Request>,
        /// When notified, the edge calls the server on the connection of this stream, to see whether it is alive.
        life: Arc<Notify>,
    },
    /// A local set is reachable, or has changed.
    Snapshot(Arc<SourceSnapshot>),
    /// The server is a relay.
    Relay,
    /// The server has answered a liveness call that was started after the last notification, on the connection of this stream.
    Alive,
    /// A message has begun to arrive, and is not complete.
    Receiving,
    /// A complete response has arrived, decoded and not read: of a polled source, or of a link without a reader. The view task reads it itself.
    Response(Box<Response>),
    /// A complete response has arrived and was read.
    Received {
        /// The response.
        response: Box<ReceivedResponse>,
        /// When the response had arrived.
        at: Instant,
        /// The turn of a large response, kept until it is applied.
        turn: Option<Turn>,
    },
    /// A poll for one type was answered without a change.
    Unchanged {
        /// The polled type.
        type_url: String,
    },
    /// A poll for one type failed, or waits, and will be made again; or the type cannot be polled.
    PollFailed {
        /// The polled type.
        type_url: String,
        /// The kind of failure.
        failure: PollFailure,
    },
    /// The server refuses what the view shows it, in every poll.
    Refused(ServerStatus),
    /// A poll was refused, and not because of what the view shows: the server accepts that, or a gateway has answered.
    RefusedOtherwise,
    /// How much of a collection was sent; only the hub reports it.
    Progress {
        /// The collection's type.
        type_url: String,
        /// The collection.
        glob: Name,
        /// How much of it was sent.
        completeness: Completeness,
    },
    /// Authorities without a reachable server; only a source that stands for several servers reports them.
    Outage {
        /// All such authorities; others are reachable again.
        authorities: BTreeSet<Authority>,
    },
    /// The stream is about to end, because the link goes on at once on another connection. The server is not lost.
    Moving,
    /// The stream has ended, and the link opens another one after a pause; or the local set is unreachable.
    Ended {
        /// The cause, for logs and reports.
        reason: String,
        /// Whether the server can be reached: it has responded, or refused the variant alone. If not, it is unreachable (UP-31).
        answered: bool,
        /// The server, or the way to it, was lost. False if the server drained the connection, or does not support the variant.
        is_lost: bool,
        /// The status by which the server itself has ended it.
        status: Option<ServerStatus>,
    },
    /// The stream of a trial is about to be opened.
    Trying {
        /// The opening of the stream that the trial is for.
        epoch: Epoch,
        /// The trial's number on that opening.
        serial: u64,
    },
    /// A trial of types that are kept off the stream has ended.
    Tried {
        /// The opening of the stream that the trial was for.
        epoch: Epoch,
        /// The trial's number on that opening.
        serial: u64,
        /// The result of the trial.
        end: TrialEnd,
    },
}

/// Types to be requested on a stream of their own, beside the stream of a link.
pub struct TypeTrial {
    /// The link.
    pub id: LinkId,
    /// Whose view it is for: see [`Link::tenant`].
    pub tenant: Option<Arc<str>>,
    /// See [`Link::headers`].
    pub headers: KeyHeaders,
    /// The types that are requested, and how.
    pub trial: Trial,
    /// Where its end is reported.
    pub reports: ReportSender<LinkReport>,
}

impl LinkEvent {
    /// Returns the event without shown header values that the server quotes in errors of single resources.
    pub(crate) fn without_values(mut self, redaction: impl FnOnce() -> Redaction) -> Self {
        let errors = match &mut self {
            Self::Received { response, .. } => response.resource_errors_mut(),
            Self::Response(response) => response.resource_errors_mut(),
            _ => return self,
        };
        if !errors.is_empty() {
            let redaction = redaction();
            for detail in errors.iter_mut().filter_map(|error| error.error_detail.as_mut()) {
                detail.message = redaction.apply(std::mem::take(&mut detail.message));
            }
        }
        self
    }
}

impl TypeTrial {
    /// Reports that the stream of the trial is about to be opened.
    pub(crate) async fn begun(&self) {
        let event = LinkEvent::Trying { epoch: self.trial.epoch, serial: self.trial.serial };
        let _ = self.reports.send(LinkReport { id: self.id, event }).await; // the view may have ended
    }

    /// Reports how the trial has ended.
    pub(crate) async fn report(self, end: TrialEnd) {
        let event = LinkEvent::Tried { epoch: self.trial.epoch, serial: self.trial.serial, end };
        let _ = self.reports.send(LinkReport { id: self.id, event }).await; // the view may have ended
    }
}

/// The task of a link, which ends when this is dropped.
pub(super) struct AbortOnDrop(pub(super) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens upstream streams. The edge implements it, so that view tasks need no sockets.
pub trait Connector: Send + Sync {
    /// Opens the stream in a task of its own, and opens it again whenever it ends.
    fn start(&self, link: Link) -> JoinHandle<()>;

    /// Requests types on a stream of their own. One server has one trial at a time, whatever the number of views.
    fn try_types(&self, trial: TypeTrial) -> JoinHandle<()> {
        tokio::spawn(trial.report(TrialEnd::Lost)) // a source without such streams
    }

    /// Returns the server's name in reports.
    fn describe(&self) -> String;

    /// Returns the number of the credentials that the server is shown for a tenant. Results with one of them say nothing of the others.
    fn credentials(&self, _tenant: Option<&str>) -> usize {
        0
    }

    /// Returns the configured variant of the server, if there is one.
    fn variant(&self) -> Option<Variant>;

    /// Returns the permits to reopen streams, if the source is a server that has streams. An open stream is then first ended gracefully.
    fn reopenings(&self) -> Option<Arc<Semaphore>> {
        None
    }

    /// Takes the next turn to reopen a stream because another client is shown on it. Returns its time.
    fn member_turn(&self, now: Moment) -> Moment {
        now // a source within the process
    }

    /// Whether the source can give everything again after a restart, so that saving it is not worthwhile.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether this is the hub of this process, which answers from what other servers sent.
    fn is_hub(&self) -> bool {
        false
    }

    /// Returns how many connections to the server there are, if streams share them.
    fn connections(&self) -> Option<usize> {
        None
    }

    /// Returns how many liveness calls the server did not answer, if it gets any.
    fn unanswered_calls(&self) -> Option<u64> {
        None
    }

    /// Returns why liveness calls show nothing about the server; `None` if they do show something.
    fn unrouted_calls(&self) -> Option<String> {
        None
    }
}

/// A connector for any number of views.
pub type SharedConnector = Arc<dyn Connector>;
