//! Encoded bytes that clients share: replies with the same parts have the same bytes for all clients.
//!
//! No entry is ever invalidated. The key of a message is its contents, which it keeps alive, and pieces can be encoded again at any time, so both
//! may be evicted when there are too many.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use weir_core::protocol::session::{Reply, Variant};
use xxhash_rust::xxh3::Xxh3;

use super::form::FormState;
use super::message::{Message, MessageOffset, PIECE, is_for_all};
use crate::memory::Charge;

/// The messages that are being sent to clients.
#[derive(Debug)]
pub(in super::super) struct SharedMessages {
    control_plane: Arc<str>,
    shards: [Mutex<Shard>; SHARDS],
    /// Keeps small messages for the next client, which may come when the last one was served.
    latest: Mutex<Latest<Arc<SharedMessage>>>,
    pieces: Mutex<Latest<Arc<Piece>>>,
}

/// A message for any number of clients. The first client that needs a piece encodes it.
#[derive(Debug)]
pub(super) struct SharedMessage {
    pub(crate) message: Message,
    pub(crate) length: usize,
    /// What the message alone keeps.
    own_bytes: usize,
    cuts: Vec<MessageOffset>,
    pieces: Box<[Mutex<Weak<Piece>>]>,
    /// For how many clients the message was looked up.
    clients: AtomicUsize,
    /// Whether other clients can be sent the same message.
    pub(crate) is_for_all: bool,
    /// How many of the clients accept a compressed message. Outlives the message, because the forecast for the next one needs it.
    pub(crate) takers: Arc<AtomicUsize>,
    pub(crate) form: Mutex<FormState>,
    bearers: Mutex<Bearers>,
}

/// The charges of the clients that are sent a message in pieces. The oldest one bears what the message alone keeps, and the others nothing.
#[derive(Debug, Default)]
struct Bearers {
    charges: BTreeMap<u64, Charge>,
    number: u64,
}

/// A client's place among those that are charged for a message. It is left on drop, and the next client bears the bytes.
#[derive(Debug)]
pub(super) struct Bearer {
    message: Arc<SharedMessage>,
    number: u64,
}

#[derive(Debug)]
struct Piece(Vec<u8>);

#[derive(Debug, Default)]
struct Shard {
    by_hash: HashMap<u64, Weak<SharedMessage>>,
    /// Swept when this many entries are reached, so the work for each entry is constant.
    sweep_at: usize,
}

/// The latest items within a number of bytes; the oldest are evicted first.
#[derive(Debug)]
struct Latest<T> {
    queue: VecDeque<(usize, T)>,
    bytes: usize,
    most: usize,
}

impl SharedMessages {
    pub(crate) fn new(control_plane: &str) -> Arc<Self> {
        Arc::new(Self {
            control_plane: control_plane.into(),
            shards: Default::default(),
            latest: Mutex::new(Latest::new(LATEST_BYTES)),
            pieces: Mutex::new(Latest::new(PIECE_BYTES)),
        })
    }

    /// Whether the messages have this `control_plane` identifier.
    pub(in super::super) fn are_of(&self, control_plane: &str) -> bool {
        *self.control_plane == *control_plane
    }

    /// Returns the message of a reply: an existing one with the same parts, if there is one.
    pub(super) fn message(&self, reply: Reply, variant: Variant) -> Arc<SharedMessage> {
        let is_for_all = is_for_all(&reply);
        let made = |reply| Arc::new(SharedMessage::new(Message::of(reply, variant, &self.control_plane), is_for_all));
        if !is_for_all {
            return made(reply);
        }
        let hash = hash_of(&reply, variant);
        let shard = &self.shards[hash as usize % SHARDS];
        if let Some(found) = lock(shard).find(hash, &reply, variant) {
            return found;
        }
        // Measured without the lock. Two threads may do so at once; both are given the message of the one that is done first.
        let message = made(reply);
        let first = lock(shard).find_or_insert(hash, &message);
        if let Some(first) = first {
            return first;
        }
        if message.length <= LATEST_BYTES / 16 {
            let forgotten = lock(&self.latest).push(message.length + OVERHEAD, message.clone());
            drop(forgotten); // after the lock is released
        }
        message
    }

    /// Whether there is a message with the parts of this reply already.
    pub(crate) fn has(&self, reply: &Reply, variant: Variant) -> bool {
        let hash = hash_of(reply, variant);
        is_for_all(reply) && lock(&self.shards[hash as usize % SHARDS]).message(hash, reply, variant).is_some()
    }

    /// Returns one piece of a message.
    pub(super) fn piece(&self, message: &SharedMessage, at: usize) -> Bytes {
        let Some((cut, slot)) = message.cuts.get(at).zip(message.pieces.get(at)) else { return Bytes::new() };
        let most = PIECE.min(message.length - at * PIECE);
        if !message.is_shared() {
            return message.message.write(*cut, most).into();
        }
        // Clients that wait for this lock need the same bytes.
        let mut slot = lock(slot);
        let found = slot.upgrade();
        let is_new = found.is_none();
        let piece = found.unwrap_or_else(|| Arc::new(Piece(message.message.write(*cut, most))));
        if is_new {
            *slot = Arc::downgrade(&piece);
            drop(slot);
            let forgotten = lock(&self.pieces).push(piece.0.len() + OVERHEAD, piece.clone());
            drop(forgotten);
        }
        Bytes::from_owner(Owner(piece))
    }
}

impl SharedMessage {
    fn new(message: Message, is_for_all: bool) -> Self {
        let (length, cuts) = message.measure(PIECE);
        let pieces = cuts.iter().map(|_| Mutex::default()).collect();
        let own_bytes = message.own_bytes();
        let (takers, form, bearers) = Default::default();
        let clients = AtomicUsize::new(1);
        Self { message, length, own_bytes, cuts, pieces, clients, is_for_all, takers, form, bearers }
    }

    /// Enters a client among those that are charged for what the message alone keeps. `None`: that is little, or no account is charged.
    pub(super) fn bear(self: &Arc<Self>, charge: impl FnOnce() -> Option<Charge>) -> Option<Bearer> {
        if self.own_bytes < LEAST_CHARGED {
            return None;
        }
        let charge = charge()?;
        let mut bearers = lock(&self.bearers);
        let number = bearers.number;
        bearers.number += 1;
        bearers.charges.insert(number, charge);
        bearers.charge_oldest(self.own_bytes);
        Some(Bearer { message: self.clone(), number })
    }

    /// Whether the message was looked up for more than one client.
    pub(crate) fn is_shared(&self) -> bool {
        self.clients.load(Ordering::Relaxed) > 1
    }

    pub(crate) fn pieces(&self) -> usize {
        self.cuts.len()
    }

    /// Returns the message in pieces, which are made one by one and not cached.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = Vec<u8>> {
        self.cuts.iter().map(|cut| self.message.write(*cut, PIECE))
    }
}

impl Bearers {
    fn charge_oldest(&self, bytes: usize) {
        self.charges.values().next().iter().for_each(|oldest| oldest.set(bytes));
    }
}

impl Bearer {
    /// Whether it is this client that bears the bytes.
    pub(super) fn is_charged(&self) -> bool {
        lock(&self.message.bearers).charges.keys().next() == Some(&self.number)
    }
}

impl Drop for Bearer {
    fn drop(&mut self) {
        let mut bearers = lock(&self.message.bearers);
        bearers.charges.remove(&self.number);
        bearers.charge_oldest(self.message.own_bytes);
    }
}

impl Shard {
    /// Returns the message for one more client.
    fn find(&self, hash: u64, reply: &Reply, variant: Variant) -> Option<Arc<SharedMessage>> {
        let found = self.message(hash, reply, variant)?;
        found.clients.fetch_add(1, Ordering::Relaxed);
        Some(found)
    }

    fn message(&self, hash: u64, reply: &Reply, variant: Variant) -> Option<Arc<SharedMessage>> {
        let found = self.by_hash.get(&hash)?.upgrade()?;
        found.message.has_same_parts(reply, variant).then_some(found)
    }

    /// Returns the message with the same parts for one more client if there is one, and otherwise keeps this one.
    fn find_or_insert(&mut self, hash: u64, message: &Arc<SharedMessage>) -> Option<Arc<SharedMessage>> {
        let (reply, variant) = message.message.reply();
        let found = self.find(hash, reply, variant);
        if found.is_none() {
            self.insert(hash, message);
        }
        found
    }

    fn insert(&mut self, hash: u64, message: &Arc<SharedMessage>) {
        if self.by_hash.len() >= self.sweep_at.max(64) {
            self.by_hash.retain(|_, message| message.strong_count() > 0);
            self.sweep_at = self.by_hash.len() * 2;
            self.by_hash.shrink_to(self.sweep_at);
        }
        self.by_hash.insert(hash, Arc::downgrade(message));
    }
}

impl<T> Latest<T> {
    fn new(most: usize) -> Self {
        Self { queue: VecDeque::new(), bytes: 0, most }
    }

    /// Returns the evicted items, so that the caller can drop them after it releases the lock.
    fn push(&mut self, bytes: usize, item: T) -> Vec<T> {
        self.queue.push_back((bytes, item));
        self.bytes += bytes;
        let mut forgotten = Vec::new();
        while self.bytes > self.most
            && let Some((bytes, item)) = self.queue.pop_front()
        {
            self.bytes -= bytes;
            forgotten.push(item);
        }
        forgotten
    }
}

/// Keeps a piece in flight alive, but not the rest of its message.
struct Owner(Arc<Piece>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

/// Returns a hash of the parts. For a large reply it covers only both ends; the parts in between are compared on a hit.
fn hash_of(reply: &Reply, variant: Variant) -> u64 {
    let mut hasher = Xxh3::new();
    let mut number = |number: usize| hasher.update(&number.to_le_bytes());
    number(variant as usize * 2 + usize::from(reply.wrappers));
    let beside = [reply.removed.len(), reply.unresolved.len(), reply.constrained.len(), reply.errors.len()];
    beside.into_iter().for_each(&mut number);
    number(reply.resources.len());
    for resource in ends(&reply.resources) {
        number(Arc::as_ptr(resource).addr());
    }
    ends(&reply.removed).for_each(|name| hasher.update(name.as_str().as_bytes()));
    hasher.update(reply.spelling.as_bytes());
    hasher.digest()
}

fn ends<T>(list: &[T]) -> impl Iterator<Item = &T> {
    let last = list.len().saturating_sub(ENDS).max(ENDS).min(list.len());
    list[..ENDS.min(list.len())].iter().chain(&list[last..])
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const SHARDS: usize = 16;
const ENDS: usize = 8;
/// Pieces cached for the next clients. A larger cache gains nothing: clients get the same bytes at nearly the same time.
const PIECE_BYTES: usize = 8 << 20;
/// Messages cached with their resources, which may be outdated.
const LATEST_BYTES: usize = 4 << 20;
/// Fewer bytes are within what a stream and its session cost.
const LEAST_CHARGED: usize = 4 << 10;
/// The overhead in bytes that is counted for each item.
const OVERHEAD: usize = 512;
