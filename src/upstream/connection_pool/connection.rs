//! One connection of a pool: how many streams it has, and for how many it has room.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Shared;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use crate::upstream::dial::{AttemptError, Reached};
use crate::upstream::error_chain::chain;
use crate::upstream::observed_socket::{CLOSED, ConnectionState, NothingRead, ObservedSocket};

#[derive(Debug)]
pub(super) struct Connections {
    /// In the order of their numbers.
    pub(super) open: Vec<Connection>,
    pub(super) next_number: u64,
    /// How many streams the server last allowed on a connection. The same is assumed of a connection that is being dialed.
    pub(super) expected_room: usize,
    /// A task follows which connections are due to be left.
    pub(super) are_followed: bool,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    /// The state of the connection, known once it is made.
    pub(super) state: Arc<ConnectionState>,
    /// Dials once, for all streams that wait for it. The channel never reconnects.
    pub(super) dialed: Shared<Dialed>,
    pub(super) waiting: usize,
    pub(super) streams: usize,
    /// How many of its streams are served. The others have ended, except for requests that the server has not read.
    pub(super) served: usize,
    /// When the last stream that was served has ended.
    pub(super) unused_since: Instant,
    pub(super) calls: usize,
    pub(super) is_retired: bool,
    /// Until this time the connection is kept without a stream, for the first one.
    pub(super) kept_until: Option<Instant>,
    pub(super) leaving: Leaving,
}

/// How far a connection is from being left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// Its streams stay.
    No,
    /// The connection waits for its turn since then. Meanwhile new streams prefer other connections.
    Due(Instant),
    /// Its streams move away, one at a time.
    Now,
}

pub(super) type Dialed = Pin<Box<dyn Future<Output = Result<Made, Status>> + Send>>;

/// A connection that was made, on which the server has spoken.
#[derive(Debug, Clone)]
pub(super) struct Made {
    pub(super) channel: Channel,
    pub(super) state: Arc<ConnectionState>,
}

impl Connection {
    pub(super) fn new(number: u64, dialed: Shared<Dialed>) -> Self {
        Self {
            number,
            state: Arc::new(ConnectionState::new(None)),
            dialed,
            waiting: 0,
            streams: 0,
            served: 0,
            unused_since: Instant::now(),
            calls: 0,
            is_retired: false,
            kept_until: None,
            leaving: Leaving::No,
        }
    }

    /// Returns how many streams the connection has room for, once the server has announced its limit.
    pub(super) fn room(&self, max: usize) -> Option<usize> {
        self.dialed.peek()?;
        Some(max.min(self.state.max_streams() / 2).max(1))
    }

    /// Whether the server takes streams on it, and it is not being left.
    pub(super) fn takes_streams(&self) -> bool {
        !self.is_retired && self.leaving != Leaving::Now && !self.state.is_closed()
    }

    /// Whether the connection is due to be left, and can be.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.can_be_left() && matches!(self.leaving, Leaving::Due(at) if at <= now)
    }

    /// Whether no stream uses the connection, and it is not kept for one any more.
    pub(super) fn is_of_no_use(&self) -> bool {
        let is_kept = |until: Instant| until > Instant::now() && self.takes_streams();
        self.waiting + self.streams == 0 && !self.kept_until.is_some_and(is_kept)
    }

    /// Whether its streams can move: the connection was made, and the server has not announced its end. After such an announcement its streams may
    /// still live for long.
    pub(super) fn can_be_left(&self) -> bool {
        self.dialed.peek().is_some() && self.leaving != Leaving::Now && !self.state.is_closed()
    }
}

impl Connections {
    pub(super) fn find(&mut self, number: u64) -> Option<&mut Connection> {
        let index = self.open.binary_search_by_key(&number, |connection| connection.number).ok()?;
        self.open.get_mut(index)
    }

    /// Closes a connection that is of no use. Returns whether it is still kept for a first stream.
    pub(super) fn keeps(&mut self, number: u64) -> bool {
        self.open.retain(|connection| connection.number != number || !connection.is_of_no_use());
        self.find(number).is_some_and(|connection| connection.kept_until.is_some())
    }

    /// Returns the connection that a new stream gets: the fullest one, so that others become empty and close.
    pub(super) fn fullest(&self, least_number: u64, max: usize, is_moving: bool) -> Option<usize> {
        let has_room = |connection: &Connection| {
            connection.number >= least_number
                && connection.takes_streams()
                && !(is_moving && connection.leaving != Leaving::No)
                && connection.waiting + connection.streams < connection.room(max).unwrap_or(self.expected_room)
        };
        let all = self.open.iter().enumerate().filter(|(_, connection)| has_room(connection));
        let rank =
            |connection: &Connection| (connection.leaving == Leaving::No, connection.waiting + connection.streams);
        all.max_by_key(|(_, connection)| rank(connection)).map(|(index, _)| index)
    }
}

/// Speaks HTTP/2 over a socket. Returns once the server's settings have arrived.
pub(super) async fn begin(endpoint: Endpoint, limit: Duration, reached: Reached) -> Result<Made, AttemptError> {
    let Reached { socket, address, tried, is_encrypted } = reached;
    let state = Arc::new(ConnectionState::new(tried.as_ref()));
    let is_local = tried.is_none();
    // There is one socket. A balancer could route a second one to another server, whose answers are no evidence about the streams on the
    // first.
    let mut socket = Some(ObservedSocket::new(socket, state.clone(), tried));
    let connector = service_fn(move |_| ready(socket.take().map(TokioIo::new).ok_or(CLOSED)));
    let channel = endpoint.connect_with_connector(connector).await;
    let channel = channel.map_err(|error| AttemptError::Above { address: address.clone(), reason: chain(&error) })?;
    let begun = timeout(limit, state.begun()).await.unwrap_or(Err(NothingRead::Timeout { limit }));
    begun.map_err(|reason| AttemptError::Above { address, reason: reason.on(is_encrypted || is_local) })?;
    Ok(Made { channel, state })
}
