//! The place of one connection among all: its streams, and when it has to end.

mod open_stream;

use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OnceCell, SetOnce};
use tokio::time::Instant;

pub(in crate::downstream) use self::open_stream::OpenStream;
use super::groups::InGroup;
use super::places::TakenPlace;
use super::unused::{Turn, Use};
use super::{Closed, Connections, CountedOpen};
use crate::downstream::judged_clients::{Entered, JudgedClient};
use crate::downstream::lifetime::{Age, AgeLimit, Lifetime};
use crate::downstream::pace::Pace;
use crate::downstream::refusal::Refusal;
use crate::downstream::sent_ahead::SentAhead;
use crate::downstream::shards::OnShard;
use crate::limit::Limit;
use crate::memory::{Account, Charge, costs};
use crate::relay::ViewQuota;

pub(in crate::downstream) struct ConnectionPlace {
    connections: Arc<Connections>,
    number: u64,
    accepted: Instant,
    /// With a spare place, the first request decides.
    decision: OnceCell<Decision>,
    /// Why its requests are refused whatever its place: too many connections of its address or identity, or no memory.
    crowded: OnceLock<Refusal>,
    streams: Mutex<Streams>,
    pace: Option<Pace>,
    /// The views that this connection makes, and its account.
    quota: OnceLock<Arc<ViewQuota>>,
    /// The memory charge of the connection itself.
    charge: OnceLock<Charge>,
    ahead: Arc<SentAhead>,
    /// Set by the first request.
    first: SetOnce<()>,
    leave: Arc<Notify>,
    /// Its client, if that was judged.
    judged: OnceLock<Entered>,
    /// A stream of it was refused because the relay has too many.
    full: AtomicBool,
    /// When it has reached its maximum age, if there is one.
    age: OnceLock<Age>,
    address: OnceLock<InGroup<IpAddr>>,
    identity: OnceLock<InGroup<Arc<str>>>,
    /// The shard that it lives on, if it lives on one.
    shard: OnceLock<OnShard>,
    /// The last field: a connection that counts as closed has given back all that is its own. Its sessions may be in their views still.
    _open: CountedOpen,
}

/// Whether the requests of a connection are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    Served,
    Refused(Refusal),
}

struct Streams {
    open: usize,
    /// How many have been opened so far.
    opened: usize,
    usage: Use,
    /// When the connection may be closed for another one, while it has no stream.
    turn: Option<Turn>,
    /// The place, or the spare one until the first request has a place.
    permit: TakenPlace,
    /// Until when nothing is read.
    unread_until: Option<Instant>,
}

impl ConnectionPlace {
    pub(super) fn new(
        connections: Arc<Connections>,
        number: u64,
        decision: Option<Decision>,
        address: Option<InGroup<IpAddr>>,
        permit: TakenPlace,
    ) -> Self {
        let pace = Pace::per_second(connections.limits().new_streams_per_second);
        let open = connections.count_open();
        let place = Self {
            connections,
            number,
            accepted: Instant::now(),
            decision: OnceCell::new_with(decision),
            crowded: OnceLock::new(),
            streams: Mutex::new(Streams {
                open: 0,
                opened: 0,
                usage: Use::Nothing,
                turn: None,
                permit,
                unread_until: None,
            }),
            pace,
            quota: OnceLock::new(),
            charge: OnceLock::new(),
            ahead: Arc::default(),
            first: SetOnce::new(),
            leave: Arc::default(),
            judged: OnceLock::new(),
            full: AtomicBool::new(false),
            age: OnceLock::new(),
            address: address.map(OnceLock::from).unwrap_or_default(),
            identity: OnceLock::new(),
            shard: OnceLock::new(),
            _open: open,
        };
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
        self.quota.get_or_init(Arc::default).clone()
    }

    /// Sets what counts the views that the client makes, before anything is served.
    pub(in crate::downstream) fn set_quota(&self, quota: Arc<ViewQuota>) {
        let _ = self.quota.set(quota); // once for each connection
    }

    /// Charges the connection to its account, before anything is served. If there is no room for it, its requests are refused.
    pub(in crate::downstream) fn charge(&self, bytes: usize) {
        let Some(account) = self.account() else { return };
        if let Err(why) = account.admit(bytes) {
            let _ = self.crowded.set(Refusal::no_memory(&why)); // one reason is enough
        }
        let charge = account.charge_with_kernel(bytes, costs::SOCKET);
        charge.tell();
        self.ahead.charge_to(account.charge(0));
        let _ = self.charge.set(charge); // once for each connection
    }

    /// Returns what counts the bytes that have come and are not read.
    pub(in crate::downstream) fn sent_ahead(&self) -> &Arc<SentAhead> {
        &self.ahead
    }

    /// Returns what the connection is charged to, once that is known.
    pub(in crate::downstream) fn account(&self) -> Option<&Arc<Account>> {
        self.quota.get()?.account()
    }

    /// Whether there is no memory for one more stream, and why.
    pub(in crate::downstream) fn refuse_stream(&self) -> Option<Refusal> {
        let refused = self.account()?.admit(costs::STREAM + costs::SESSION).err()?;
        Some(Refusal::no_memory(&refused))
    }

    /// Notes that the client was judged, before anything is served.
    pub(in crate::downstream) fn set_judged(&self, client: Entered) {
        let _ = self.judged.set(client); // once for each connection
    }

    /// Returns the client, if it was judged.
    pub(in crate::downstream) fn judged(&self) -> Option<Arc<JudgedClient>> {
        self.judged.get().map(|entered| entered.client.clone())
    }

    /// Limits the age of the connection, before anything is served.
    pub(in crate::downstream) fn set_age_limit(&self, limit: AgeLimit) {
        if let Some(age) = limit.of(self.accepted) {
            let _ = self.age.set(age); // once for each connection
        }
    }

    /// Notes the shard that it lives on, before anything is served.
    pub(in crate::downstream) fn set_shard(&self, shard: OnShard) {
        let _ = self.shard.set(shard); // once for each connection
    }

    /// Returns the shard that it lives on, if it lives on one.
    pub(in crate::downstream) fn shard(&self) -> Option<&OnShard> {
        self.shard.get()
    }

    /// Returns how many streams it has opened so far.
    pub(in crate::downstream) fn opened(&self) -> usize {
        self.lock().opened
    }

    /// Returns what ends the streams of this connection.
    pub(in crate::downstream) fn lifetime(&self) -> Lifetime {
        Lifetime { judged: self.judged(), age: self.age() }
    }

    pub(super) fn age(&self) -> Option<Age> {
        self.age.get().copied()
    }

    /// Counts a stream until the result is dropped.
    pub(in crate::downstream) fn open_stream(self: &Arc<Self>) -> OpenStream {
        let mut streams = self.lock();
        streams.open += 1;
        streams.opened = streams.opened.saturating_add(1);
        if streams.open == 1 {
            self.note_used(&mut streams, Use::Requests);
            let _ = self.first.set(()); // unless it was an earlier one
        }
        if streams.open == self.connections.limits().streams_per_connection as usize {
            self.connections.reached(Limit::StreamsPerConnection);
        }
        self.keep_pace(&mut streams);
        self.connections.count_stream_opened();
        let identity = self.identity.get().filter(|identity| identity.is_served());
        let of_identity = identity.map(InGroup::open_stream).transpose();
        let charge = self.account().map(|account| account.charge(costs::STREAM));
        charge.iter().for_each(Charge::tell);
        let shard = self.shard.get().map(OnShard::stream);
        OpenStream { of_identity, _charge: charge, _shard: shard, place: self.clone() }
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
            self.connections.reached(Limit::NewStreamsPerSecond);
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
        if self.has_place() {
            self.connections.make_room();
        }
    }

    /// Whether it is known if the requests of this connection are served.
    pub(in crate::downstream) fn is_decided(&self) -> bool {
        self.crowded.get().is_some() || self.decision.initialized()
    }

    /// Finds a place for a connection that has a request, or else refuses its requests.
    pub(in crate::downstream) async fn decide(&self) {
        self.decision.get_or_init(async || self.replace(self.connections.room().await)).await;
    }

    /// The same without waiting, and without closing another connection.
    pub(in crate::downstream) fn decide_now(&self) {
        if !self.is_decided() {
            let decision = self.replace(self.connections.free_place());
            let _ = self.decision.set(decision); // unless another request decides it
        }
    }

    /// Exchanges the spare place for a place, if there is one.
    fn replace(&self, place: Option<TakenPlace>) -> Decision {
        let Some(place) = place else {
            return Decision::Refused(Refusal::too_many_connections(self.connections.max()));
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

    /// Lets the connection end with its last stream: the client's next connection may reach another relay.
    pub(in crate::downstream) fn send_elsewhere(&self) {
        self.full.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }

    /// Waits until the connection is told to end.
    pub(super) async fn must_leave(&self) {
        self.leave.notified().await;
    }

    /// Waits for the first request.
    pub(super) async fn first_request(&self) {
        self.first.wait().await;
    }

    /// Returns how long the first request may still take, if that is limited.
    pub(super) fn left_for_first_request(&self) -> Option<Duration> {
        let limit = self.connections.time_for_first_request(self.is_served());
        (!limit.is_zero()).then(|| limit.saturating_sub(self.accepted.elapsed()))
    }

    pub(super) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether it has one of the places for connections that are served.
    fn has_place(&self) -> bool {
        matches!(self.decision.get(), Some(Decision::Served))
    }

    /// Whether its requests are served: it has a place, and nothing else refuses them.
    pub(super) fn is_served(&self) -> bool {
        self.has_place() && self.crowded.get().is_none()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.crowded.get().is_some() || matches!(self.decision.get(), Some(Decision::Refused(_)))
    }

    /// Counts the connection of an address that is known only now. `Err`: it must be closed.
    pub(in crate::downstream) fn count_address(&self, address: Option<SocketAddr>) -> Result<(), Closed> {
        let (address, refusal) = self.connections.enter_address(address)?;
        self.join(&self.address, address, refusal);
        Ok(())
    }

    /// Counts the connection for the identity of its client, before anything is served. `Err`: it must be closed.
    pub(in crate::downstream) fn count_identity(&self, identity: Option<&str>) -> Result<(), Closed> {
        if self.is_refused() {
            return Ok(()); // it has its answer already, and no streams
        }
        let (identity, refusal) = self.connections.enter_identity(identity)?;
        self.join(&self.identity, identity, refusal);
        Ok(())
    }

    /// Notes a group that the connection is one of, and why it is refused if there are too many of them.
    fn join<K: Eq + Hash>(&self, group: &OnceLock<InGroup<K>>, own: Option<InGroup<K>>, refusal: Option<Refusal>) {
        if let Some(own) = own {
            let _ = group.set(own); // it is not set yet: the key was unknown
        }
        if let Some(refusal) = refusal {
            let _ = self.crowded.set(refusal); // one reason is enough
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.lock().open == 0
    }

    fn note_unused(&self, streams: &mut Streams) {
        let unused = self.connections.unused();
        streams.turn = Some(unused.insert(self.number, streams.usage, self.has_place(), self.leave.clone()));
    }

    fn note_used(&self, streams: &mut Streams, usage: Use) {
        streams.usage = streams.usage.max(usage);
        if let Some(turn) = streams.turn.take() {
            self.connections.unused().remove(turn);
        }
    }

    /// The lock of all connections may be taken after this one.
    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionPlace {
    fn drop(&mut self) {
        let mut streams = self.lock();
        let usage = streams.usage;
        self.note_used(&mut streams, usage);
    }
}
