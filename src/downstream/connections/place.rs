//! The place of one connection among all: its streams, and when it has to end.

use std::future::pending;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep, timeout};

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
    /// Why its requests are refused, if they are.
    refusal: Option<Refusal>,
    streams: Mutex<Streams>,
    pace: Option<Pace>,
    /// The views that this connection makes.
    quota: Arc<ViewQuota>,
    first: Notify,
    leave: Arc<Notify>,
    /// Its client, if that was judged.
    judged: OnceLock<Entered>,
    _address: Option<FromAddress>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Default)]
struct Streams {
    open: usize,
    /// Since when there is none.
    idle_since: Option<Instant>,
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
    Idle,
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
        refusal: Option<Refusal>,
        address: Option<FromAddress>,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let pace = Pace::per_second(connections.limits.new_streams_per_second);
        let place = Self {
            connections,
            number,
            accepted: Instant::now(),
            refusal,
            streams: Mutex::default(),
            pace,
            quota: Arc::default(),
            first: Notify::new(),
            leave: Arc::default(),
            judged: OnceLock::new(),
            _address: address,
            _permit: permit,
        };
        place.connections.open.fetch_add(1, Ordering::Relaxed);
        place.note_idle(&mut place.lock());
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
            self.note_busy(&mut streams);
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

    /// Returns why the requests of this connection are refused. The connection ends after that.
    pub(in crate::downstream) fn refuse(&self) -> Option<Refusal> {
        let refusal = self.refusal.clone()?;
        self.leave.notify_one();
        Some(refusal)
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
            if self.refusal.is_some() {
                return End::Refused;
            }
            if self.is_idle() {
                return End::Idle;
            }
            self.connections.make_room(); // it has a stream again: another one ends instead
        }
    }

    /// Waits until the first request is late. That may never be.
    async fn is_late(&self) {
        let limit = match self.refusal {
            Some(_) => self.connections.times.refusal,
            None => self.connections.limits.first_request,
        };
        let left = limit.saturating_sub(self.accepted.elapsed());
        // Boxed, since most connections outlive this.
        if limit.is_zero() || Box::pin(timeout(left, self.first.notified())).await.is_ok() {
            pending::<()>().await;
        }
        if self.refusal.is_none() {
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
        let has_streams = end != End::Judged && self.refusal.is_none() && !self.is_idle();
        if has_streams { Some(serving.await) } else { None }
    }

    fn is_idle(&self) -> bool {
        self.lock().open == 0
    }

    fn note_idle(&self, streams: &mut Streams) {
        if self.refusal.is_some() {
            return;
        }
        let now = Instant::now();
        streams.idle_since = Some(now);
        self.connections.lock().idle.insert((now, self.number), self.leave.clone());
    }

    fn note_busy(&self, streams: &mut Streams) {
        if let Some(since) = streams.idle_since.take() {
            self.connections.lock().idle.remove(&(since, self.number));
        }
    }

    /// The lock of all connections may be taken after this one.
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.note_busy(&mut self.lock());
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
            place.note_idle(&mut streams);
        }
    }
}
