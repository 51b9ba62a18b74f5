//! What an owner and the edge that carries its upstream streams say to one another.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::response_reader::{ResponseReader, Turn};
use crate::proto::{Request, Response};
use crate::protocol::session::Variant;
use crate::protocol::sources::StreamId;
use crate::protocol::upstream::{ReceivedResponse, ResponseMessage, UnreadableResponse};
use crate::protocol::view::Completeness;
use crate::xds::{Authority, Name};

/// Which of the view's streams it is, and which of those that were opened for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkId {
    pub stream: StreamId,
    pub serial: u64,
}

/// One upstream stream to be kept open, through all its reconnects.
pub struct Link {
    pub id: LinkId,
    /// The variant to begin with; a server that does not speak it is spoken to in the other.
    pub variant: Option<Variant>,
    pub reports: mpsc::Sender<LinkReport>,
    /// Reads responses for the view. Without one, they are reported as they come.
    pub reader: Option<ResponseReader>,
}

impl Link {
    /// Returns the report of a response.
    pub(crate) async fn read(&self, message: ResponseMessage) -> Result<LinkEvent, UnreadableResponse> {
        let Some(reader) = &self.reader else { return Ok(LinkEvent::Response(Box::new(message.decode()?))) };
        let turn = if ResponseReader::is_large(&message) {
            // A server whose response waits to be read is not silent.
            let _ = self.reports.send(LinkReport { id: self.id, event: LinkEvent::Receiving }).await; // the view may be gone
            reader.turn().await
        } else {
            None
        };
        Ok(LinkEvent::Received { response: Box::new(reader.read(message).await?), turn })
    }
}

#[derive(Debug)]
pub struct LinkReport {
    pub(crate) id: LinkId,
    pub event: LinkEvent,
}

#[derive(Debug)]
pub enum LinkEvent {
    /// The stream is up, in this variant, and takes requests here.
    Opened {
        variant: Variant,
        requests: mpsc::Sender<Request>,
        /// Notified, the edge asks the server on the connection of this stream whether it is there.
        life: Arc<Notify>,
    },
    /// The server has answered a call that was begun after the edge was last notified, on the connection of this stream.
    Alive,
    /// A message has begun to come in, and is not complete.
    Receiving,
    /// A response that the task of the view reads itself: of sources whose responses are small.
    Response(Box<Response>),
    /// A response that is read.
    Received {
        response: Box<ReceivedResponse>,
        /// Kept until the response is applied.
        turn: Option<Turn>,
    },
    /// A poll for one type was answered with nothing new.
    Unchanged { type_url: String },
    /// A question about one type was not answered, and will be asked again.
    PollFailed { type_url: String },
    /// So much of a collection has been said, which only a source can tell that is no server.
    Progress { type_url: String, glob: Name, completeness: Completeness },
    /// Authorities of which nobody is in reach, which only a source can tell that stands for several servers.
    Outage { authorities: BTreeSet<Authority> },
    Ended {
        reason: String,
        /// Something had come on it. Otherwise the server is out of reach (UP-31).
        answered: bool,
    },
}

/// Opens upstream streams. The edge implements it; owners know no sockets.
pub trait Connector: Send + Sync {
    fn start(&self, link: Link) -> JoinHandle<()>;

    /// What to say of the server in reports.
    fn describe(&self) -> String;

    fn variant(&self) -> Option<Variant>;

    /// Calls that asked whether the server is there and that it did not answer, if it is asked such things.
    fn unanswered_calls(&self) -> Option<u64> {
        None
    }
}

pub type SharedConnector = Arc<dyn Connector>;
