//! The connections to one server, which streams share.
//!
//! A stream gets a slot on a connection, and the connection closes with its last slot. A connection has at most `max_streams_per_connection`
//! streams, and at most half as many as the server allows at a time. So each stream has room for a liveness call beside it, and no stream waits for
//! another to end: the client library would make a stream beyond the server's limit wait, and everything that is opened after it.

mod connection;
mod kept;
mod moves;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::transport::{Channel, Endpoint};

use self::connection::{Connection, Connections, Dialed, Leaving, Made, begin};
use self::kept::end_unused;
use self::moves::Next;
pub(super) use self::moves::{MoveTurn, Moves, settle};
use super::dial::Dialer;
use super::error_chain::chain;
use super::method_calls::MethodCalls;
use super::observed_socket::{CLOSED, ConnectionState};
use super::server::AdsServer;
use crate::random::random;

#[derive(Debug)]
pub(super) struct ConnectionPool {
    server: Arc<AdsServer>,
    dialer: Arc<Dialer>,
    endpoint: Endpoint,
    connections: Mutex<Connections>,
    /// When streams move to other connections. `None`: they stay.
    moves: Option<Arc<Moves>>,
    /// Notified when a connection that was being left has closed, or its streams stay after all.
    left: Notify,
}

/// One stream's slot on a connection. Dropping this frees it.
#[derive(Debug)]
pub(super) struct StreamSlot {
    pool: Arc<ConnectionPool>,
    number: u64,
    state: Arc<ConnectionState>,
    is_shared: bool,
    /// False until the connection is made.
    is_open: bool,
}

/// A stream that is served, until this is dropped. Its slot may be held for longer, since requests that the server does not read cannot be taken
/// back. A connection with no other streams is then closed.
#[derive(Debug)]
pub(super) struct ServedStream(Arc<StreamSlot>);

/// Room for one call beside the streams of a connection.
#[derive(Debug)]
pub(super) struct CallSlot<'a>(&'a StreamSlot);

/// Why no call can be made on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoCall {
    /// The connection is lost, or the server takes no more streams on it.
    Closed,
    /// The server allows no more streams at a time.
    Full,
}

impl ConnectionPool {
    pub(crate) fn new(server: Arc<AdsServer>, dialer: Arc<Dialer>, moves: Option<Arc<Moves>>) -> Self {
        let max = server.max_streams_per_connection;
        // Room for everything that all streams may have unread, and for the answers to calls, so that a stream that is not read stops no other.
        let window = STREAM_WINDOW.saturating_mul(u32::try_from(max).unwrap_or(u32::MAX).saturating_add(1));
        let mut endpoint = Endpoint::from(server.uri.clone())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(window.min(MAX_WINDOW));
        if let Some(interval) = server.keepalive.interval {
            endpoint = endpoint
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(server.keepalive.timeout)
                .keep_alive_while_idle(true);
        }
        let connections = Connections { open: Vec::new(), next_number: 0, expected_room: max, are_followed: false };
        Self { server, dialer, endpoint, connections: Mutex::new(connections), moves, left: Notify::new() }
    }

    /// Returns a slot for a stream on a connection with at least this number, and dials if no connection has room.
    pub(crate) async fn slot(self: &Arc<Self>, least_number: u64) -> Result<(StreamSlot, Channel), Status> {
        self.open_slot(least_number, false).await
    }

    /// Returns a slot for a stream that moves, on a connection with at least this number that is not due to be left.
    pub(crate) async fn slot_elsewhere(self: &Arc<Self>, least_number: u64) -> Result<(StreamSlot, Channel), Status> {
        self.open_slot(least_number, true).await
    }

    async fn open_slot(self: &Arc<Self>, least_number: u64, is_moving: bool) -> Result<(StreamSlot, Channel), Status> {
        loop {
            let (mut slot, dialed) = self.reserve(least_number, is_moving);
            let Made { channel, state } = dialed.await.inspect_err(|_| slot.retire())?;
            slot.is_made(state);
            if slot.open()? {
                return Ok((slot, channel));
            }
        }
    }

    /// Starts the task that leaves connections, if streams may move and the task does not run yet.
    fn follow(self: &Arc<Self>) {
        let ages = self.server.ages;
        let may_leave = ages.max.is_some() || ages.drain.is_some() && Dialer::has_name(&self.server);
        let Some(moves) = self.moves.as_ref().filter(|_| may_leave) else { return };
        if !std::mem::replace(&mut self.lock().are_followed, true) {
            tokio::spawn(moves::follow(Arc::downgrade(self), moves.clone()));
        }
    }

    /// Returns the next step of the task that leaves connections.
    fn next_to_leave(&self) -> Next {
        self.dialer.look_up(&self.server);
        let (now, mut connections) = (Instant::now(), self.lock());
        let is_due = |connection: &Connection| {
            let has_left = |address| self.dialer.has_left(&self.server, address);
            connection.state.ends_at().is_some_and(|at| at <= now) || connection.state.address().is_some_and(has_left)
        };
        // A connection that is only kept has no stream to move, and takes no turn: it closes.
        connections.open.retain(|of| of.kept_until.is_none() || of.waiting + of.streams > 0 || !is_due(of));
        if connections.open.is_empty() {
            connections.are_followed = false;
            return Next::Empty;
        }
        let mut next = now + LOOK;
        for connection in connections.open.iter_mut().filter(|connection| connection.can_be_left()) {
            if let Leaving::Due(at) = connection.leaving
                && at > now
            {
                next = next.min(at);
                continue;
            }
            let is_due = is_due(connection);
            connection.leaving = if is_due { Leaving::Due(now) } else { Leaving::No };
            if !is_due {
                next = connection.state.ends_at().map_or(next, |at| next.min(at));
            }
        }
        if connections.open.iter().any(|connection| connection.is_due(now)) {
            return Next::Connection;
        }
        Next::Look(next)
    }

    /// Begins to leave the first connection that is due. Returns false if none is due any more.
    fn begin_to_leave(&self) -> bool {
        let (now, mut connections) = (Instant::now(), self.lock());
        let is_due = |connection: &&mut Connection| connection.is_due(now);
        let Some(connection) = connections.open.iter_mut().find(is_due) else { return false };
        connection.leaving = Leaving::Now;
        connection.state.leave();
        let (server, streams) = (self.server.name(), connection.streams);
        drop(connections);
        tracing::debug!(server, streams, "leaving a connection; its streams move");
        true
    }

    /// Waits until no connection is being left.
    async fn is_left(&self) {
        while self.lock().open.iter().any(|connection| connection.leaving == Leaving::Now && connection.served > 0) {
            self.left.notified().await;
        }
    }

    /// Returns the number of connections, those being dialed included.
    pub(crate) fn len(&self) -> usize {
        self.lock().open.len()
    }

    fn reserve(self: &Arc<Self>, least_number: u64, is_moving: bool) -> (StreamSlot, Shared<Dialed>) {
        let mut connections = self.lock();
        let fullest = connections.fullest(least_number, self.server.max_streams_per_connection, is_moving);
        let index = fullest.unwrap_or_else(|| {
            let number = connections.next_number.max(least_number);
            connections.next_number = number + 1;
            connections.open.push(Connection::new(number, self.dial()));
            connections.open.len() - 1
        });
        let connection = &mut connections.open[index];
        connection.waiting += 1;
        let (number, state, dialed) = (connection.number, connection.state.clone(), connection.dialed.clone());
        let is_shared = dialed.peek().is_some();
        (StreamSlot { pool: self.clone(), number, state, is_shared, is_open: false }, dialed)
    }

    fn dial(&self) -> Shared<Dialed> {
        let (server, dialer, endpoint) = (self.server.clone(), self.dialer.clone(), self.endpoint.clone());
        let limit = server.dial_limits().first_words;
        let dialed: Dialed = Box::pin(async move {
            let begin = move |reached| begin(endpoint.clone(), limit, reached);
            let made = dialer.connect(&server, b"h2", begin).await;
            made.map_err(|error| Status::unavailable(chain(&error)))
        });
        dialed.shared()
    }

    /// Closes a connection if it has served no stream for a while.
    fn close_unused(&self, number: u64) {
        let mut connections = self.lock();
        let is_unused = |connection: &Connection| {
            connection.waiting + connection.served == 0 && connection.unused_since.elapsed() >= UNREAD_TIMEOUT
        };
        let Some(connection) = connections.find(number).filter(|connection| is_unused(connection)) else { return };
        let state = connection.state.clone();
        connections.open.retain(|connection| connection.number != number);
        drop(connections);
        tracing::debug!(server = self.server.name(), "connection closed; the server does not read what was sent on it");
        state.give_up();
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamSlot {
    /// The number of the connection. Later connections have higher ones.
    pub(crate) fn connection(&self) -> u64 {
        self.number
    }

    /// Whether the server has announced that it takes no more streams on the connection.
    pub(crate) fn is_server_leaving(&self) -> bool {
        self.state.is_leaving()
    }

    /// Whether the connection was there before the stream.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns when bytes last arrived on the connection, of any stream.
    pub(crate) fn last_received(&self) -> Instant {
        self.state.last_received()
    }

    /// Notes that the server has not answered here, so that other addresses are tried first.
    pub(crate) fn is_silent(&self) {
        self.state.failed();
        self.retire();
    }

    /// Notes that the server has ended a stream without a response. Another address may be better.
    pub(crate) fn is_rejecting(&self) {
        self.state.failed();
    }

    /// Notes that the server has sent a response.
    pub(crate) fn has_answered(&self) {
        self.state.worked();
    }

    /// Returns the state of liveness calls with the streams' own methods on the connection.
    pub(crate) fn method_calls(&self) -> &MethodCalls {
        self.state.method_calls()
    }

    /// Keeps the connection open for so long after this slot is freed, for the first stream.
    pub(crate) fn keep(&self, time: Duration) {
        if let Some(connection) = self.pool.lock().find(self.number) {
            connection.kept_until = Some(Instant::now() + time);
            tokio::spawn(end_unused(Arc::downgrade(&self.pool), self.number));
        }
    }

    /// Gives no other stream a slot on the connection. Its streams stay.
    pub(crate) fn retire(&self) {
        if let Some(connection) = self.pool.lock().find(self.number) {
            connection.is_retired = true;
        }
    }

    /// Reserves room for a call on the connection of the stream.
    pub(crate) fn call(&self) -> Result<CallSlot<'_>, NoCall> {
        if self.state.is_closed() {
            return Err(NoCall::Closed);
        }
        let mut connections = self.pool.lock();
        let connection = connections.find(self.number).ok_or(NoCall::Closed)?;
        if connection.streams + connection.calls >= self.state.max_streams() {
            return Err(NoCall::Full);
        }
        connection.calls += 1;
        Ok(CallSlot(self))
    }

    /// Notes that the connection is made.
    fn is_made(&mut self, state: Arc<ConnectionState>) {
        let max_age = self.pool.server.ages.max;
        state.set_end(max_age.map(|age| age.mul_f64(0.9 + 0.2 * random())));
        if let Some(connection) = self.pool.lock().find(self.number) {
            connection.state = state.clone();
        }
        self.state = state;
        self.pool.follow();
    }

    /// Takes the slot on the new connection. Returns false if the server allows fewer streams than were waiting for the connection.
    fn open(&mut self) -> Result<bool, Status> {
        if self.state.is_closed() {
            return Err(Status::unavailable(CLOSED));
        }
        let mut connections = self.pool.lock();
        let max = self.pool.server.max_streams_per_connection;
        let Some(connection) = connections.find(self.number) else { return Ok(false) };
        let room = connection.room(max).unwrap_or(max);
        let has_room = connection.streams < room;
        if has_room {
            connection.waiting -= 1;
            connection.streams += 1;
            connection.kept_until = None;
            connection.unused_since = Instant::now(); // it is served from now on
            self.is_open = true;
        }
        connections.expected_room = room;
        Ok(has_room)
    }
}

impl ServedStream {
    pub(crate) fn new(slot: Arc<StreamSlot>) -> Self {
        if let Some(connection) = slot.pool.lock().find(slot.number) {
            connection.served += 1;
        }
        Self(slot)
    }
}

impl Drop for ServedStream {
    fn drop(&mut self) {
        let StreamSlot { pool, number, .. } = &*self.0;
        let mut connections = pool.lock();
        let Some(connection) = connections.find(*number) else { return };
        connection.served -= 1;
        connection.unused_since = Instant::now();
        if connection.served > 0 {
            return;
        }
        if connection.leaving == Leaving::Now {
            pool.left.notify_one();
        }
        drop(connections);
        let (pool, number) = (pool.clone(), *number);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                sleep(UNREAD_TIMEOUT).await;
                pool.close_unused(number);
            });
        }
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let mut connections = self.pool.lock();
        let Some(connection) = connections.find(self.number) else { return };
        match self.is_open {
            true => connection.streams -= 1,
            false => connection.waiting -= 1,
        }
        connections.keeps(self.number);
    }
}

impl Drop for CallSlot<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.pool.lock().find(self.0.number) {
            connection.calls -= 1;
        }
    }
}

/// How long the server has to read what was requested on streams that have ended.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time between two checks for connections to leave.
const LOOK: Duration = Duration::from_secs(30);
/// How many bytes of a stream the server may send ahead of their reading.
const STREAM_WINDOW: u32 = 1 << 20;
/// The largest window of HTTP/2.
const MAX_WINDOW: u32 = (1 << 31) - 1;

#[cfg(test)]
mod tests;
