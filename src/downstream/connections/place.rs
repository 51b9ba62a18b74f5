//! The place of one connection among all: its streams, and when it has to end.

use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, OnceCell, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

use super::unused::{Turn, Use};
use super::{Connections, FromAddress};
use crate::downstream::drain::Drain;
use crate::downstream::judged_clients::{self, Entered, JudgedClient};
use crate::downstream::pace::Pace;
use crate::downstream::refusal::Refusal;
use crate::relay::{Limit, ViewQuota};

pub(in crate::downstream) struct Place {
    connections: Arc<Connections>,
    number: u64,
    accepted: Instant,
    /// With a spare place, the first request decides.
    decision: OnceCell<Decision>,
    /// Why its requests are refused all the same, if its address turned out to have too many connections.
    crowded: OnceLock<Refusal>,
    streams: Mutex<Streams>,
    pace: Option<Pace>,
    /// The views that this connection makes.
    quota: Arc<ViewQuota>,
    first: Notify,
    leave: Arc<Notify>,
    /// Its client, if that was judged.
    judged: OnceLock<Entered>,
    address: OnceLock<FromAddress>,
}

/// Whether the requests of a connection are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Served,
    Refused(Refusal),
}

struct Streams {
    open: usize,
    usage: Use,
    /// When the connection may be closed for another one, while it has no stream.
    turn: Option<Turn>,
    /// The place, or the spare one until the first request has a place.
    permit: OwnedSemaphorePermit,
    /// Until when nothing is read.
    unread_until: Option<Instant>,
}

/// Counts a stream for as long as it exists.
pub(in crate::downstream) struct OpenStream(Arc<Place>);

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum End {
    /// The relay drains.
    Drain,
    /// Another connection needs its place, and it has no stream.
    Unused,
    /// Its first request is late.
    Late,
    /// Its request was refused.
    Refused,
    /// Its client was judged again, and has to end.
    Judged,
}

impl Place {
    pub(super) fn new(
        connections: Arc<Connections>,
        number: u64,
        decision: Option<Decision>,
        address: Option<FromAddress>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let pace = Pace::per_second(connections.limits.new_streams_per_second);
        let place = Self {
            connections,
            number,
            accepted: Instant::now(),
            decision: OnceCell::new_with(decision),
            crowded: OnceLock::new(),
            streams: Mutex::new(Streams { open: 0, usage: Use::Nothing, turn: None, permit, unread_until: None }),
            pace,
            quota: Arc::default(),
            first: Notify::new(),
            leave: Arc::default(),
            judged: OnceLock::new(),
            address: address.map(OnceLock::from).unwrap_or_default(),
        };
        place.connections.open.fetch_add(1, Ordering::Relaxed);
        place.note_unused(&mut place.lock());
        place
    }

    pub(in crate::downstream) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Returns the number of the connection in this process.
    pub(in crate::downstream) fn number(&self) -> u64 {
        self.number
    }

    pub(in crate::downstream) fn quota(&self) -> Arc<ViewQuota> {
        self.quota.clone()
    }

    /// Notes that the client was judged, before anything is served.
    pub(in crate::downstream) fn set_judged(&self, client: Entered) {
        let _ = self.judged.set(client); // once for each connection
    }

    /// Returns the client, if it was judged.
    pub(in crate::downstream) fn judged(&self) -> Option<Arc<JudgedClient>> {
        self.judged.get().map(|entered| entered.client.clone())
    }

    /// Counts a stream until the result is dropped.
    pub(in crate::downstream) fn open_stream(self: &Arc<Self>) -> OpenStream {
        let mut streams = self.lock();
        streams.open += 1;
        if streams.open == 1 {
            self.note_used(&mut streams, Use::Requests);
            self.first.notify_one();
        }
        if streams.open == self.connections.limits.streams_per_connection as usize {
            self.connections.counters.reached(Limit::StreamsPerConnection);
        }
        self.keep_pace(&mut streams);
        self.connections.streams.fetch_add(1, Ordering::Relaxed);
        OpenStream(self.clone())
    }

    /// Returns when the connection is read again, if that is later.
    pub(in crate::downstream) fn resumes_reading(&self, now: Instant) -> Option<Instant> {
        let mut streams = self.lock();
        streams.unread_until = streams.unread_until.filter(|until| *until > now);
        streams.unread_until
    }

    fn keep_pace(&self, streams: &mut Streams) {
        let Some(pace) = &self.pace else { return };
        let now = Instant::now();
        let delay = pace.delay(now);
        if !delay.is_zero() {
            streams.unread_until = Some(now + delay);
            self.connections.counters.reached(Limit::NewStreamsPerSecond);
        }
    }

    /// Notes that something has arrived.
    pub(in crate::downstream) fn note_bytes(&self) {
        let mut streams = self.lock();
        if streams.usage == Use::Nothing {
            self.note_used(&mut streams, Use::Bytes);
            self.note_unused(&mut streams);
        }
    }

    /// Keeps a connection that was to close for another one, since something has arrived. Another one closes instead.
    pub(in crate::downstream) fn stay(&self) {
        self.note_bytes();
        if self.has_place() {
            self.connections.make_room();
        }
    }

    /// Whether it is known if the requests of this connection are served.
    pub(in crate::downstream) fn is_decided(&self) -> bool {
        self.decision.initialized()
    }

    /// Finds a place for a connection that has a request, or else refuses its requests.
    pub(in crate::downstream) async fn decide(&self) {
        self.decision.get_or_init(async || self.replace(self.connections.room().await)).await;
    }

    /// The same without waiting, and without closing another connection.
    pub(in crate::downstream) fn decide_now(&self) {
        if !self.is_decided() {
            let decision = self.replace(self.connections.places.clone().try_acquire_owned().ok());
            let _ = self.decision.set(decision); // unless another request decides it
        }
    }

    /// Exchanges the spare place for a place, if there is one.
    fn replace(&self, place: Option<OwnedSemaphorePermit>) -> Decision {
        let Some(place) = place else {
            return Decision::Refused(Refusal::too_many_connections(self.connections.max));
        };
        self.lock().permit = place;
        Decision::Served
    }

    /// Returns why the requests of this connection are refused. The connection ends after that.
    pub(in crate::downstream) fn refuse(&self) -> Option<Refusal> {
        let decided = match self.decision.get() {
            Some(Decision::Refused(refusal)) => Some(refusal),
            _ => None,
        };
        let refusal = self.crowded.get().or(decided)?;
        self.leave.notify_one();
        Some(refusal.clone())
    }

    /// Whether its requests are served.
    fn has_place(&self) -> bool {
        matches!(self.decision.get(), Some(Decision::Served))
    }

    fn is_refused(&self) -> bool {
        self.crowded.get().is_some() || matches!(self.decision.get(), Some(Decision::Refused(_)))
    }

    /// Waits until the connection has to end, also because the relay drains.
    pub(in crate::downstream) async fn ends(&self, drain: &mut Drain) -> End {
        tokio::select! {
            () = drain.begins() => End::Drain,
            end = self.closes() => end,
        }
    }

    /// Waits until the connection has to end while the relay does not drain.
    pub(in crate::downstream) async fn closes(&self) -> End {
        tokio::select! {
            end = self.is_closed() => end,
            () = self.is_late() => End::Late,
            _ = judged_clients::ends(self.judged()) => End::Judged,
        }
    }

    async fn is_closed(&self) -> End {
        loop {
            self.leave.notified().await;
            if self.is_refused() {
                return End::Refused;
            }
            if self.is_idle() {
                return End::Unused;
            }
            self.stay(); // it has a stream again
        }
    }

    /// Waits until the first request is late. That may never be.
    async fn is_late(&self) {
        let limit = match self.has_place() {
            true => self.connections.limits.first_request,
            false => self.connections.times.first_request,
        };
        let left = limit.saturating_sub(self.accepted.elapsed());
        // Boxed, since most connections outlive this.
        if limit.is_zero() || Box::pin(timeout(left, self.first.notified())).await.is_ok() {
            pending::<()>().await;
        }
        if self.has_place() {
            self.connections.counters.reached(Limit::FirstRequestTimeout);
        }
    }

    /// Lets a connection end that was told to. Without streams it has little time for that. Returns `None` if it took longer.
    pub(in crate::downstream) async fn finish<T>(&self, end: End, serving: impl Future<Output = T>) -> Option<T> {
        let mut serving = pin!(serving);
        if end == End::Drain {
            return Some(serving.await);
        }
        tokio::select! {
            ended = &mut serving => return Some(ended),
            () = sleep(self.connections.times.end) => {}
        }
        let has_streams = end != End::Judged && !self.is_refused() && !self.is_idle();
        if has_streams { Some(serving.await) } else { None }
    }

    /// Counts the connection of an address that is known only now. Returns false if it must be closed.
    pub(in crate::downstream) fn count_address(&self, address: Option<SocketAddr>) -> bool {
        let (address, count) = self.connections.count_address(address);
        if let Some(address) = address {
            let _ = self.address.set(address); // there is none: it was not known
        }
        match self.connections.refuse_address(count) {
            Ok(refusal) => {
                if let Some(refusal) = refusal {
                    let _ = self.crowded.set(refusal); // one reason is enough
                }
                true
            }
            Err(()) => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.lock().open == 0
    }

    fn note_unused(&self, streams: &mut Streams) {
        let mut state = self.connections.lock();
        let (unused, usage) = match self.has_place() {
            true => (&mut state.unused, streams.usage),
            false => (&mut state.unused_spare, streams.usage.min(Use::Bytes)), // a request that was withdrawn keeps no spare place
        };
        let turn = (Instant::now() + self.connections.times.unused.of(usage), self.number);
        unused.insert(turn, self.leave.clone());
        streams.turn = Some(turn);
    }

    fn note_used(&self, streams: &mut Streams, usage: Use) {
        streams.usage = streams.usage.max(usage);
        if let Some(turn) = streams.turn.take() {
            let mut state = self.connections.lock();
            state.unused.remove(turn);
            state.unused_spare.remove(turn);
        }
    }

    /// The lock of all connections may be taken after this one.
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut streams = self.lock();
        let usage = streams.usage;
        self.note_used(&mut streams, usage);
        drop(streams);
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let place = &self.0;
        place.connections.streams.fetch_sub(1, Ordering::Relaxed);
        let mut streams = place.lock();
        streams.open -= 1;
        if streams.open == 0 {
            place.note_unused(&mut streams);
        }
    }
}
