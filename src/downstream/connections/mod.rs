//! All connections of clients: how many there are, from which addresses, and which of them have no stream.
//!
//! A connection is accepted only while there is a place for its answer. Those beyond `limits.connections` use one of a few spare places: with
//! their first request they get the place of a connection without streams, or the request is refused. While all spare places are taken,
//! further clients wait in the queue of the listener, and spare places without a request are vacated.

mod ending;
mod groups;
mod limits;
mod place;
mod places;
mod unused;

use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

pub(super) use self::ending::{End, ends, finish};
use self::groups::{Groups, InGroup};
pub(crate) use self::limits::ConnectionLimits;
use self::place::Decision;
pub(super) use self::place::{ConnectionPlace, OpenStream};
pub(super) use self::places::{Places, TakenPlace};
use self::unused::{Unused, UnusedTimes};
use super::pace::Pace;
use super::refusal::Refusal;
use crate::limit::{Limit, LimitCounters};
use crate::log_pace::LogPace;
use crate::open_files::{self, Shares, SpareFiles};
use crate::relay::{Newest, ProcessCounters};

/// The connections of all listeners.
pub(crate) struct Connections {
    limits: Newest<ConnectionLimits>,
    /// How many the limit of open files leaves room for.
    most: usize,
    places: Places,
    spare: Places,
    pace: Option<Pace>,
    /// Open streams, those of polls included.
    streams: AtomicUsize,
    /// Open connections, those included whose requests are refused.
    open: Arc<AtomicUsize>,
    /// Connections that have ended because of their age.
    aged: Arc<AtomicU64>,
    /// The number of the last connection.
    last: AtomicU64,
    unused: Unused,
    addresses: Arc<Groups<IpAddr>>,
    identities: Arc<Groups<Arc<str>>>,
    counters: Arc<LimitCounters>,
    /// The open files that are in reserve for the admin address.
    reserve: Arc<SpareFiles>,
    times: Times,
    full: LogPace,
    failed: LogPace,
}

/// What is counted over the life of the process.
#[derive(Default)]
struct ConnectionCounters {
    limits: Arc<LimitCounters>,
    open: Arc<AtomicUsize>,
    aged: Arc<AtomicU64>,
}

impl From<&ProcessCounters> for ConnectionCounters {
    fn from(counters: &ProcessCounters) -> Self {
        let ProcessCounters { limits, open_connections, aged_connections, .. } = counters;
        Self { limits: limits.clone(), open: open_connections.clone(), aged: aged_connections.clone() }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    unused: UnusedTimes,
    /// How long a connection is given to end gracefully.
    end: Duration,
    /// How long a first request waits for the place of a connection that is being closed.
    room: Duration,
    /// How long a connection with a spare place may take for its first request.
    first_request: Duration,
}

/// Whether a connection is one of a group, and why it is refused if there are too many of them. `Err`: it must be closed instead.
type Entered<K> = Result<(Option<InGroup<K>>, Option<Refusal>), Closed>;

/// Counts an open connection until this is dropped.
struct CountedOpen(Arc<AtomicUsize>);

/// A connection must be closed: there are too many of its kind, and refusals for some of them already.
pub(super) struct Closed;

impl Connections {
    /// `listeners` is how many listeners accept at the same time.
    pub(crate) fn new(
        limits: ConnectionLimits,
        shares: Shares,
        reserve: Arc<SpareFiles>,
        listeners: usize,
        counters: &ProcessCounters,
    ) -> Arc<Self> {
        Self::with_times(limits, shares, reserve, listeners, counters.into(), TIMES)
    }

    fn with_times(
        limits: ConnectionLimits,
        shares: Shares,
        reserve: Arc<SpareFiles>,
        listeners: usize,
        counters: ConnectionCounters,
        times: Times,
    ) -> Arc<Self> {
        let ConnectionCounters { limits: counters, open, aged } = counters;
        Arc::new(Self {
            most: shares.clients,
            places: Places::new(limits.max(shares.clients)),
            spare: Places::new(shares.refusals.max(2 * listeners)),
            pace: Pace::per_second(limits.new_per_second),
            addresses: Groups::new(limits.of_address()),
            identities: Groups::new(limits.of_identity()),
            limits: Newest::new(Arc::new(limits)),
            streams: AtomicUsize::new(0),
            open,
            aged,
            last: AtomicU64::new(0),
            unused: Unused::new(times.unused),
            counters,
            reserve,
            times,
            full: LogPace::once_a_minute(),
            failed: LogPace::once_a_minute(),
        })
    }

    /// Returns how many connections are served at a time.
    pub(crate) fn max(&self) -> usize {
        self.limits().max(self.most)
    }

    pub(super) fn limits(&self) -> Arc<ConnectionLimits> {
        self.limits.get()
    }

    /// Puts other limits in force. Connections that are open stay.
    pub(crate) fn set_limits(&self, limits: ConnectionLimits) {
        self.places.resize(limits.max(self.most));
        self.addresses.set_limits(limits.of_address());
        self.identities.set_limits(limits.of_identity());
        self.limits.replace(Arc::new(limits));
    }

    /// Waits until another connection may be accepted, whatever its answer will be.
    pub(super) async fn spare_place(&self) -> TakenPlace {
        let mut spare = pin!(self.spare.take());
        loop {
            if let Ok(spare) = timeout(LOOK, spare.as_mut()).await {
                return spare;
            }
            self.unused.close_spare(Instant::now());
        }
    }

    /// Delays connections beyond the rate.
    pub(super) async fn keep_pace(&self) {
        let delay = self.pace.as_ref().map(|pace| pace.delay(Instant::now())).unwrap_or_default();
        if !delay.is_zero() {
            self.reached(Limit::NewConnectionsPerSecond);
            sleep(delay).await;
        }
    }

    /// Reports that no connection could be accepted, and waits until it may be tried again.
    pub(super) async fn not_accepted(&self, error: &io::Error) {
        if open_files::is_exhausted(error) {
            self.reached(Limit::OpenFiles);
            self.make_room();
        }
        if let Some(unlogged) = self.failed.line(Instant::now().into_std()) {
            tracing::error!(%error, unlogged, "cannot accept connections; clients wait");
        }
        sleep(PAUSE).await;
        while !self.reserve.refill() {
            sleep(PAUSE).await;
        }
    }

    /// Returns the place of a new connection. `None` if the connection must be closed: its address has too many, and refusals for some of
    /// them already.
    pub(super) fn admit(
        self: &Arc<Self>,
        address: Option<SocketAddr>,
        spare: TakenPlace,
    ) -> Option<Arc<ConnectionPlace>> {
        let (address, refusal) = self.enter_address(address).ok()?;
        if let Some(refusal) = refusal {
            return Some(self.place(address, spare, Some(Decision::Refused(refusal))));
        }
        if let Some(place) = self.free_place() {
            return Some(self.place(address, place, Some(Decision::Served)));
        }
        self.reached(Limit::Connections);
        if let Some(unlogged) = self.full.line(Instant::now().into_std()) {
            let limit = self.max();
            tracing::warn!(limit, unlogged, "limits.connections reached; closing connections without streams");
        }
        Some(self.place(address, spare, None))
    }

    /// Returns a place for a connection with a request, for which it closes one without a stream. `None` if it finds none in time.
    async fn room(&self) -> Option<TakenPlace> {
        let last = Instant::now() + self.times.room;
        let mut place = pin!(self.places.take());
        let place = async {
            tokio::select! {
                biased;
                place = place.as_mut() => return Some(place),
                is_closing = self.close_unused(last) => if !is_closing { return None },
            }
            Some(place.await)
        };
        timeout(self.times.room, place).await.ok().flatten()
    }

    /// Waits until a connection without a stream may be closed, and closes it. Returns false if there will be none in time.
    async fn close_unused(&self, last: Instant) -> bool {
        loop {
            let Err(next) = self.unused.close_one(Instant::now()) else { return true };
            match next.filter(|next| *next <= last) {
                Some(next) => sleep_until(next).await,
                None => return false,
            }
        }
    }

    fn place(
        self: &Arc<Self>,
        address: Option<InGroup<IpAddr>>,
        permit: TakenPlace,
        decision: Option<Decision>,
    ) -> Arc<ConnectionPlace> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(ConnectionPlace::new(self.clone(), number, decision, address, permit))
    }

    /// Counts a connection of an address, if it has one.
    fn enter_address(&self, address: Option<SocketAddr>) -> Entered<IpAddr> {
        let address = address.map(|address| address.ip().to_canonical());
        let refusal = || Refusal::too_many_from_address(self.limits().per_address);
        self.enter(&self.addresses, address, Limit::ConnectionsPerAddress, refusal)
    }

    /// Counts a connection of an identity, if it has one.
    fn enter_identity(&self, identity: Option<&str>) -> Entered<Arc<str>> {
        let refusal = || Refusal::too_many_of_identity(self.limits().per_identity);
        self.enter(&self.identities, identity.map(Arc::from), Limit::ConnectionsPerIdentity, refusal)
    }

    fn enter<K: Clone + Eq + Hash>(
        &self,
        groups: &Arc<Groups<K>>,
        key: Option<K>,
        limit: Limit,
        refusal: impl FnOnce() -> Refusal,
    ) -> Entered<K> {
        let Some(key) = key else { return Ok((None, None)) };
        let entered = groups.enter(key);
        if entered.as_ref().is_some_and(InGroup::is_served) {
            return Ok((entered, None));
        }
        self.reached(limit);
        if entered.is_some() { Ok((entered, Some(refusal()))) } else { Err(Closed) }
    }

    /// Closes a connection without a stream, if there is one that may be closed.
    pub(super) fn make_room(&self) {
        let _ = self.unused.close_one(Instant::now()); // there may be none
    }

    /// Whether there are too many streams, the one that asks included.
    pub(super) fn refuse_stream(&self) -> Option<Refusal> {
        let limit = self.limits().streams;
        if self.streams.load(Ordering::Relaxed) <= limit {
            return None;
        }
        self.reached(Limit::Streams);
        Some(Refusal::too_many_streams(limit))
    }

    /// Refuses a stream that is one too many of its identity.
    pub(super) fn refuse_stream_of_identity(&self) -> Refusal {
        self.reached(Limit::StreamsPerIdentity);
        Refusal::too_many_streams_of_identity(self.limits().streams_per_identity)
    }

    /// Whether the headers of a request are too large, as HTTP/2 counts them.
    pub(super) fn refuse_headers<B>(&self, request: &http::Request<B>) -> Option<Refusal> {
        let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + HEADER);
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        let bytes = headers.sum::<usize>() + target;
        let limit = self.limits().header_bytes;
        if bytes <= limit {
            return None;
        }
        self.reached(Limit::HeaderBytes);
        Some(Refusal::headers_too_large(bytes, limit))
    }

    fn reached(&self, limit: Limit) {
        self.counters.reached(limit);
    }

    /// Returns a place, if one is free.
    fn free_place(&self) -> Option<TakenPlace> {
        self.places.try_take()
    }

    /// Returns the connections without a stream.
    fn unused(&self) -> &Unused {
        &self.unused
    }

    /// Counts an open connection until the result is dropped.
    fn count_open(&self) -> CountedOpen {
        self.open.fetch_add(1, Ordering::Relaxed);
        CountedOpen(self.open.clone())
    }

    fn count_stream_opened(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    fn count_stream_closed(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a connection that ends because of its age.
    fn count_aged(&self) {
        self.aged.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how long a connection is given to end gracefully.
    fn time_to_end(&self) -> Duration {
        self.times.end
    }

    /// Returns how long a connection may take for its first request. Zero: no limit.
    fn time_for_first_request(&self, is_served: bool) -> Duration {
        if is_served { self.limits().first_request } else { self.times.first_request }
    }
}

impl Drop for CountedOpen {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release); // after all that it had is given back
    }
}

const TIMES: Times = Times {
    unused: UnusedTimes {
        // Most clients send their first bytes with the end of the handshake. One that is silent this long may wait for the relay's.
        silent: Duration::from_millis(100),
        without_request: Duration::from_secs(1),
        idle: Duration::from_secs(5),
    },
    end: Duration::from_secs(2),
    room: Duration::from_secs(4),
    first_request: Duration::from_secs(5),
};
/// How often spare places without a request are vacated while none is free.
const LOOK: Duration = Duration::from_millis(10);
/// The pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// The size of a header beyond its name and value (RFC 9113, 6.5.2).
const HEADER: usize = 32;

#[cfg(test)]
pub(super) mod tests;
