//! Incomplete requests: how many bytes they may have, which of them ends when they have too many, and how slowly the rest may arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::poll_immediate;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::sent_ahead::{PausedStream, ReadClock, SentAhead};
use super::slot::Status;
use crate::limit::{Limit, LimitCounters};
use crate::relay::heavy::{HeavyTurn, HeavyTurns};

/// Bounds the bytes of incomplete requests, over all clients of the process.
#[derive(Debug)]
pub(super) struct IncompleteRequests {
    limit: usize,
    bytes_per_second: usize,
    window: Duration,
    counters: Arc<LimitCounters>,
    /// The turns of requests that become large when they are inflated.
    turns: HeavyTurns,
    connections: AtomicU64,
    ledger: Mutex<Ledger>,
}

/// One connection of a client.
#[derive(Debug)]
pub(super) struct Inbound {
    requests: Arc<IncompleteRequests>,
    number: u64,
    /// What the client sends while Weir does not read a stream.
    ahead: Arc<SentAhead>,
    /// A permit for inflating: each connection inflates one large request at a time.
    inflating: Arc<Semaphore>,
}

/// The turn of a request that becomes large when it is inflated. Dropping it ends the turn.
pub(super) struct InflateTurn {
    _of_all: Option<HeavyTurn>,
    _of_connection: Option<OwnedSemaphorePermit>,
}

/// A request that has arrived in part. Dropping it releases the bytes that it counts for.
#[derive(Debug)]
pub(super) struct Incomplete {
    inbound: Arc<Inbound>,
    key: Key,
    bytes: usize,
    ended: Arc<Notify>,
    window: Window,
}

/// A stream that is not read until this is dropped.
pub(super) struct Pause<'a>(&'a Inbound, PausedStream);

/// A time in which a request has to make progress.
#[derive(Debug)]
struct Window {
    clock: ReadClock,
    bytes: usize,
}

/// The number of the connection, and the age order of the request among all incomplete ones.
type Key = (u64, u64);

#[derive(Debug, Default)]
struct Ledger {
    bytes: usize,
    begun: u64,
    requests: BTreeMap<Key, Entry>,
    /// The requests from the oldest to the newest.
    by_age: BTreeMap<u64, u64>,
    by_connection: BTreeMap<u64, usize>,
    /// The connections with incomplete requests, from the one with the fewest bytes to the one with the most.
    by_bytes: BTreeSet<(usize, u64)>,
}

#[derive(Debug)]
struct Entry {
    bytes: usize,
    ended: Arc<Notify>,
}

/// How much may be incomplete on one connection whatever others have, up to half of the limit: an Envoy with 1,500 streams begins with 92 MB of
/// nodes.
const SHARE: usize = 128 << 20;
/// The time in which a request has to receive what the minimum rate requires.
const WINDOW: Duration = Duration::from_secs(30);

impl IncompleteRequests {
    pub(super) fn new(limit: usize, bytes_per_second: usize, counters: Arc<LimitCounters>) -> Arc<Self> {
        Arc::new(Self::with_counters(limit, bytes_per_second, counters))
    }

    fn with_counters(limit: usize, bytes_per_second: usize, counters: Arc<LimitCounters>) -> Self {
        let (connections, ledger, turns) = (AtomicU64::default(), Mutex::default(), HeavyTurns::new());
        Self { limit, bytes_per_second, window: WINDOW, counters, turns, connections, ledger }
    }

    #[cfg(test)]
    pub(super) fn with_window(limit: usize, bytes_per_second: usize, window: Duration) -> Arc<Self> {
        Arc::new(Self { window, ..Self::with_counters(limit, bytes_per_second, Arc::default()) })
    }

    /// At most `turns` of these requests may be large at a time when they are inflated.
    #[cfg(test)]
    pub(super) fn with_turns(limit: usize, turns: usize) -> Arc<Self> {
        Arc::new(Self { turns: HeavyTurns::of(turns), ..Self::with_counters(limit, 0, Arc::default()) })
    }

    pub(super) fn connection(self: &Arc<Self>) -> Arc<Inbound> {
        self.connection_with(Arc::default())
    }

    /// Returns the counts of one connection: of its incomplete requests, and of what it has sent ahead.
    pub(super) fn connection_with(self: &Arc<Self>, ahead: Arc<SentAhead>) -> Arc<Inbound> {
        Arc::new(Inbound {
            requests: self.clone(),
            number: self.connections.fetch_add(1, Ordering::Relaxed),
            ahead,
            inflating: Arc::new(Semaphore::new(1)),
        })
    }

    /// Returns the bytes of all incomplete requests.
    pub(super) fn bytes(&self) -> usize {
        self.ledger().bytes
    }

    pub(super) fn counters(&self) -> &LimitCounters {
        &self.counters
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn too_many(&self) -> Status {
        self.counters.reached(Limit::IncompleteRequestBytes);
        Status::exhausted(format!(
            "too many incomplete requests: the limit for all clients is {} bytes ({}); retry",
            self.limit,
            Limit::IncompleteRequestBytes.key()
        ))
    }

    fn too_slow(&self) -> Status {
        self.counters.reached(Limit::RequestRate);
        Status::exhausted(format!(
            "request arrives too slowly: below {} bytes per second ({})",
            self.bytes_per_second,
            Limit::RequestRate.key()
        ))
    }
}

impl Inbound {
    /// Begins to count a request.
    pub(super) fn begin(self: &Arc<Self>) -> Incomplete {
        let ended = Arc::new(Notify::new());
        let key = self.requests.ledger().begin(self.number, ended.clone());
        Incomplete { inbound: self.clone(), key, bytes: 0, ended, window: self.window(0) }
    }

    /// Records that a stream is not read for a while. Data of the connection's other streams may have to wait, since they share a window.
    pub(super) fn pause(&self) -> Pause<'_> {
        Pause(self, self.ahead.pause())
    }

    /// Records that a stream has taken bytes that its client sent.
    pub(super) fn note_taken(&self, bytes: usize) {
        self.ahead.note_taken(bytes);
    }

    pub(super) fn requests(&self) -> &IncompleteRequests {
        &self.requests
    }

    /// Starts a clock that stands still while the client may be unable to send.
    pub(super) fn clock(&self) -> ReadClock {
        ReadClock::start(self.ahead.clone())
    }

    /// Begins a window of a request of which so many bytes have arrived.
    fn window(&self, bytes: usize) -> Window {
        Window { clock: self.clock(), bytes }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.ahead.resume(self.1);
    }
}

impl Incomplete {
    /// Counts what has arrived so far. If that is too much for all clients together, requests are ended: the oldest one of the largest connection if
    /// that has more than its share, otherwise the oldest one of all. This may be the request itself.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), Status> {
        let requests = &self.inbound.requests;
        let mut ledger = requests.ledger();
        let still_counted = ledger.set(self.key, bytes);
        self.bytes = bytes;
        while ledger.bytes > requests.limit && ledger.end_one(SHARE.min(requests.limit / 2)) {}
        let counted = still_counted && ledger.requests.contains_key(&self.key);
        drop(ledger);
        if counted { Ok(()) } else { Err(requests.too_many()) }
    }

    /// Waits for more of the request. An error if the request was ended or arrives too slowly.
    pub(super) async fn more<T>(&mut self, next: impl Future<Output = T>) -> Result<T, Status> {
        let mut next = pin!(next);
        loop {
            tokio::select! {
                biased;
                more = self.window.clock.within(self.inbound.requests.window, next.as_mut()) => match more {
                    Some(more) => return Ok(more),
                    None => self.close_window()?,
                },
                () = self.ended.notified() => return Err(self.inbound.requests.too_many()),
            }
        }
    }

    /// Waits for work on a request that has arrived. An error if the request was ended meanwhile.
    pub(super) async fn during<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Status> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.ended.notified() => Err(self.inbound.requests.too_many()),
        }
    }

    /// Waits for the turn of a large request: first among those of its connection, so that one connection does not delay all others.
    /// Its stream is not read meanwhile.
    pub(super) async fn turn(&mut self) -> Result<InflateTurn, Status> {
        let (inbound, turns) = (self.inbound.clone(), self.inbound.requests.turns.clone());
        let of_connection = inbound.inflating.clone();
        let mut turn = pin!(async move {
            let _of_connection = of_connection.acquire_owned().await.ok(); // never closed
            InflateTurn { _of_all: turns.next().await, _of_connection }
        });
        if let Some(turn) = poll_immediate(turn.as_mut()).await {
            return Ok(turn); // not paused, because pauses may stop the clock of the minimum rate
        }
        let _paused = inbound.pause();
        self.during(turn).await
    }

    fn close_window(&mut self) -> Result<(), Status> {
        let requests = &self.inbound.requests;
        let least = requests.bytes_per_second as u128 * requests.window.as_millis() / 1000;
        let came = self.bytes.saturating_sub(self.window.bytes);
        if (came as u128) < least {
            return Err(requests.too_slow());
        }
        self.window = self.inbound.window(self.bytes);
        Ok(())
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        self.inbound.requests.ledger().remove(self.key);
    }
}

impl Ledger {
    fn begin(&mut self, connection: u64, ended: Arc<Notify>) -> Key {
        let key = (connection, self.begun);
        self.begun += 1;
        self.requests.insert(key, Entry { bytes: 0, ended });
        self.by_age.insert(key.1, connection);
        key
    }

    /// Sets the bytes of a request. Returns false if the request was ended.
    fn set(&mut self, key: Key, bytes: usize) -> bool {
        let Some(entry) = self.requests.get_mut(&key) else { return false };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        self.count(key.0, before, bytes);
        true
    }

    fn remove(&mut self, key: Key) -> Option<Entry> {
        let entry = self.requests.remove(&key)?;
        self.by_age.remove(&key.1);
        self.count(key.0, entry.bytes, 0);
        Some(entry)
    }

    fn count(&mut self, connection: u64, before: usize, after: usize) {
        self.bytes = self.bytes - before + after;
        let of_connection = self.by_connection.entry(connection).or_default();
        self.by_bytes.remove(&(*of_connection, connection));
        *of_connection = *of_connection - before + after;
        match *of_connection {
            0 => drop(self.by_connection.remove(&connection)),
            bytes => drop(self.by_bytes.insert((bytes, connection))),
        }
    }

    /// Ends one request. Returns false if there is none.
    fn end_one(&mut self, share: usize) -> bool {
        let greediest = self.by_bytes.last().filter(|(bytes, _)| *bytes > share).map(|(_, connection)| *connection);
        let oldest_of =
            |connection| self.requests.range((connection, 0)..=(connection, u64::MAX)).next().map(|(key, _)| *key);
        let oldest = || self.by_age.first_key_value().map(|(age, connection)| (*connection, *age));
        let Some(key) = greediest.and_then(oldest_of).or_else(oldest) else { return false };
        let Some(entry) = self.remove(key) else { return false };
        entry.ended.notify_one();
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::downstream::sent_ahead::UnreadConnection;

    const SHORT: Duration = Duration::from_millis(300);

    fn requests(limit: usize) -> Arc<IncompleteRequests> {
        IncompleteRequests::with_window(limit, 100, SHORT)
    }

    fn count(requests: &IncompleteRequests, limit: Limit) -> u64 {
        requests.counters.counts().find(|(key, _)| *key == limit.key()).map_or(0, |(_, count)| count)
    }

    /// Whether a request that waits for more was ended.
    async fn has_ended(request: &mut Incomplete) -> bool {
        request.more(std::future::ready(())).await.is_ok() && {
            let waiting = request.more(std::future::pending::<()>());
            tokio::time::timeout(Duration::from_millis(1), waiting).await.is_ok()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn i8_when_bytes_run_short_the_oldest_request_gives_way_and_new_ones_are_read() {
        let all = requests(100);
        let greedy: Vec<_> = (0..10).map(|_| all.connection()).collect();
        let mut held: Vec<_> = greedy.iter().map(Inbound::begin).collect();
        held.iter_mut().for_each(|request| request.grow_to(10).unwrap());
        let mut honest = all.connection().begin();
        honest.grow_to(15).unwrap();
        assert!(has_ended(&mut held[0]).await && has_ended(&mut held[1]).await && !has_ended(&mut held[2]).await);
        assert!(!has_ended(&mut honest).await);
        assert!(held[0].grow_to(11).is_err(), "it is not counted again");
        drop((held, honest));
        assert_eq!(all.ledger().bytes, 0);
        assert!(
            all.ledger().by_connection.is_empty() && all.ledger().by_bytes.is_empty() && all.ledger().by_age.is_empty()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn i8_a_connection_above_its_share_gives_way_before_older_requests_of_others() {
        let all = requests(SHARE + 100);
        let (honest, greedy) = (all.connection(), all.connection());
        let mut old = honest.begin();
        old.grow_to(100).unwrap();
        let mut first = greedy.begin();
        first.grow_to(SHARE).unwrap();
        let mut second = greedy.begin();
        second.grow_to(1).unwrap();
        assert!(!has_ended(&mut old).await && has_ended(&mut first).await && !has_ended(&mut second).await);
        let mut alone = greedy.begin();
        assert!(alone.grow_to(SHARE + 101).is_err(), "the one that asks is no exception");
        assert!(!has_ended(&mut old).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_too_slowly_ends_and_the_clock_stops_while_nothing_is_read() {
        let all = requests(1 << 20);
        let inbound = all.connection();
        let mut request = inbound.begin();
        request.grow_to(5).unwrap();
        let unread = UnreadConnection::begin(inbound.ahead.clone());
        let waiting = request.more(std::future::pending::<()>());
        assert!(tokio::time::timeout(SHORT * 3, waiting).await.is_err(), "the relay does not read");
        drop(unread);
        let _paused = inbound.pause(); // another stream, which leaves room
        let started = Instant::now();
        let waiting = tokio::time::timeout(SHORT * 100, request.more(std::future::pending::<()>()));
        let status = waiting.await.expect("the relay reads again").unwrap_err();
        assert!(started.elapsed() >= SHORT);
        assert!(status.message.contains("limits.request_bytes_per_second"), "{}", status.message);
        assert_eq!(count(&all, Limit::RequestRate), 1);
    }

    /// Otherwise a moment in each window would excuse a request whose end never comes.
    #[tokio::test(start_paused = true)]
    async fn a_pause_excuses_a_slow_request_for_as_long_as_it_lasts() {
        let inbound = requests(1 << 20).connection();
        let (mut request, begun) = (inbound.begin(), Instant::now());
        let a_third_is_paused = async {
            for _ in 0..100 {
                let unread = UnreadConnection::begin(inbound.ahead.clone());
                tokio::time::sleep(SHORT / 10).await;
                drop(unread);
                tokio::time::sleep(SHORT / 5).await;
            }
        };
        tokio::select! {
            more = request.more(std::future::pending::<()>()) => assert!(more.is_err()),
            () = a_third_is_paused => panic!("it is read without end"),
        }
        let lasted = begun.elapsed();
        assert!((SHORT * 4 / 3..SHORT * 2).contains(&lasted), "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_comes_as_fast_as_it_has_to_is_read_however_long_it_takes() {
        let inbound = requests(1 << 20).connection();
        let mut steady = inbound.begin();
        for part in 1..=50 {
            steady.grow_to(part * 10).unwrap();
            steady.more(tokio::time::sleep(SHORT / 15)).await.expect("ten times as fast as it has to be");
        }
    }

    /// Otherwise an occasional large request would protect the slow requests of its connection.
    #[tokio::test(start_paused = true)]
    async fn a_turn_that_comes_at_once_pauses_no_stream() {
        let all = IncompleteRequests::with_turns(1 << 20, 1);
        let (one, other) = (all.connection(), all.connection());
        let mut first = one.begin();
        let turn = first.turn().await.unwrap();
        let mut second = other.begin();
        let mut waiting = Box::pin(second.turn());
        assert!(poll_immediate(waiting.as_mut()).await.is_none());
        assert_eq!([one, other].map(|inbound| inbound.ahead.paused_streams()), [0, 1]);
        drop(turn);
        assert!(waiting.await.is_ok());
    }
}
