//! One upstream stream of a view while its link is open.

use std::sync::Arc;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use weir_core::proto::Request;
use weir_core::protocol::upstream::Epoch;

use crate::relay::link::AbortOnDrop;
use crate::relay::reopenings::ReopenPermit;
use crate::relay::server_log::{Connection, StreamEnd};

pub(super) struct OpenLink {
    pub(super) serial: u64,
    #[expect(dead_code)] // ends with the link
    pub(super) task: AbortOnDrop,
    /// The state of the stream while it is open.
    pub(super) state: Option<OpenState>,
    /// Counts the stream as connected, in the log, while it is open.
    pub(super) connection: Option<Connection>,
    /// A request that did not fit into the channel, until it is sent.
    pub(super) waiting: Option<Request>,
    pub(super) last_error: Option<String>,
    /// The stream ends because the link goes on, on another connection.
    pub(super) is_moving: bool,
    pub(super) responses: u64,
    /// The permit, which is kept until the server has responded, at most until this time.
    pub(super) leave: Option<(ReopenPermit, Instant)>,
    /// The trial of types that are kept off the stream.
    pub(super) trial: Option<AbortOnDrop>,
}

/// One opening of a link.
pub(in crate::relay) struct OpenState {
    pub(in crate::relay) epoch: Epoch,
    /// `None` for a local set.
    pub(in crate::relay) stream: Option<StreamEnds>,
}

/// The ends of a stream that a view writes to.
pub(in crate::relay) struct StreamEnds {
    pub(in crate::relay) requests: mpsc::Sender<Request>,
    /// Notify it to make the edge send a liveness call.
    pub(in crate::relay) life: Arc<Notify>,
}

/// The facts about a stream's link that are reported.
#[derive(Debug, Default)]
pub(in crate::relay) struct LinkFacts {
    pub(in crate::relay) connected: bool,
    pub(in crate::relay) responses: u64,
    pub(in crate::relay) last_error: Option<String>,
    pub(in crate::relay) unrouted_calls: Option<String>,
}

/// A stream that nothing more is requested on. The server may keep a record for its node until the stream has ended.
pub(super) struct EndingLink {
    pub(super) link: OpenLink,
    pub(super) leave: Option<ReopenPermit>,
    /// When the wait for its end is over.
    pub(super) until: Instant,
}

impl OpenLink {
    /// Returns a link whose stream is not open yet.
    pub(super) fn new(serial: u64, task: AbortOnDrop) -> Self {
        let (state, connection, waiting, last_error, is_moving, responses, leave, trial) = Default::default();
        Self { serial, task, state, connection, waiting, last_error, is_moving, responses, leave, trial }
    }

    pub(super) fn stream(&self) -> Option<&StreamEnds> {
        self.state.as_ref()?.stream.as_ref()
    }

    /// Drops what belongs to a stream that has ended: a waiting request, and a trial. Returns how it ended, unless the link moves to another
    /// connection: it then counts as connected until the next stream is open, or could not be opened.
    pub(super) fn end(&mut self, has_cache: bool) -> Option<StreamEnd> {
        (self.waiting, self.trial) = (None, None);
        let moves = std::mem::take(&mut self.is_moving);
        (!moves).then(|| StreamEnd::of(self.connection.take(), has_cache))
    }
}
