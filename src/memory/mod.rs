//! How much memory the process may use, who holds how much of it, and who may have more.
//!
//! Whatever a peer can make grow is charged in bytes, by costs that were measured ([`costs`]). What clients hold is charged to their
//! connections, and counted for the groups that these are in ([`group`]); resources have an account in common. Below 70 % of the budget
//! there are no shares. From there to 95 % new things are refused to groups that have more than their equal part, the sooner the more they
//! have, so that a flood cannot take what is left and one fleet alone may. Above 95 % the group that is furthest above twice its part gives
//! way. What control planes change of what is there is never refused: the last 5 % are for that.

mod account;
mod container;
pub(crate) mod costs;
mod group;
mod live;
mod room;
mod watch;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use weir_core::xds::BodyStore;

pub(crate) use self::account::{Account, Charge, StreamPlace, ViewCharge};
pub(crate) use self::container::{Budget, MachineMemory, MemorySetting};
pub(crate) use self::group::{Belonging, GivesWay};
use self::group::{Group, Quantity, Standing};
pub(crate) use self::live::LiveBytes;
use self::live::Scale;
pub(crate) use self::room::NoRoom;
pub(crate) use self::watch::MemoryWatch;
use crate::limit::{Limit, LimitCounters};
use crate::log_pace::LogPace;

/// The memory of the process, as far as peers make it grow.
pub(crate) struct Memory {
    /// In bytes; 0: none is known.
    budget: AtomicUsize,
    /// Where it comes from.
    setting: Mutex<Budget>,
    /// All that clients hold.
    clients: Arc<Group>,
    /// What belongs to no client.
    common: Arc<Group>,
    store: Arc<BodyStore>,
    /// What is asked for now and then, in bytes.
    sampled: AtomicUsize,
    /// What the kernel keeps for connections, which the process does not see.
    kernel: AtomicUsize,
    /// What the process needs without any peer.
    base: AtomicUsize,
    scale: Scale,
    allocator: OnceLock<LiveBytes>,
    /// A group with less than its part has no room.
    is_pressed: AtomicBool,
    /// The limit of views, while somebody with few has no room for one.
    views_wanted: AtomicUsize,
    /// When that was so last.
    view_wanted_at: Mutex<Option<Instant>>,
    /// Streams that have ended for others.
    given_way: AtomicU64,
    connections: AtomicU64,
    counters: Arc<LimitCounters>,
    full: LogPace,
}

/// The book at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Book {
    /// What may be used; 0: no limit is known.
    pub(crate) budget: usize,
    /// Of connections, their streams and names.
    pub(crate) clients: usize,
    /// Of resources, and all that belongs to no client.
    pub(crate) common: usize,
    /// All of it, without what the kernel keeps.
    pub(crate) charged: usize,
    /// The same as the allocator counts it; 0: it does not tell.
    pub(crate) live: usize,
    /// By which the next decisions are corrected, in thousandths.
    pub(crate) scale: usize,
    pub(crate) given_way: u64,
}

impl Memory {
    pub(crate) fn new(budget: Budget, store: Arc<BodyStore>, counters: Arc<LimitCounters>) -> Arc<Self> {
        Arc::new(Self {
            budget: AtomicUsize::new(budget.bytes),
            setting: Mutex::new(budget),
            clients: Group::root(),
            common: Group::root(),
            store,
            sampled: AtomicUsize::new(0),
            kernel: AtomicUsize::new(0),
            base: AtomicUsize::new(costs::PROGRAM + costs::LOG_QUEUE),
            scale: Scale::default(),
            allocator: OnceLock::new(),
            is_pressed: AtomicBool::new(false),
            views_wanted: AtomicUsize::new(0),
            view_wanted_at: Mutex::default(),
            given_way: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            counters,
            full: LogPace::once_a_minute(),
        })
    }

    /// Sets what may be used. What is more than that stays, and nothing new is added to it.
    pub(crate) fn set_budget(&self, setting: Budget) {
        self.budget.store(setting.bytes, Ordering::Relaxed);
        if self.is_full() {
            let used = self.used();
            tracing::warn!(budget = %setting, used, "limits.memory is below what is in use: nothing new is accepted");
        }
        *self.setting.lock().unwrap_or_else(PoisonError::into_inner) = setting;
    }

    /// Returns what was set.
    pub(crate) fn setting(&self) -> Budget {
        self.setting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the limit of the container again.
    fn read_limit(&self) {
        let before = self.setting();
        let now = before.again();
        if now.bytes != before.bytes {
            tracing::warn!(%before, %now, "the memory that there is has changed");
            self.set_budget(now);
        }
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget.load(Ordering::Relaxed)
    }

    /// Returns the account of a new connection, which is charged with the connection itself.
    pub(crate) fn connect(self: &Arc<Self>, of: Belonging) -> Arc<Account> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        Account::new(self.clone(), self.clients.join(of, number))
    }

    /// Returns a charge for what belongs to no client.
    pub(crate) fn common(self: &Arc<Self>) -> Charge {
        Account::new(self.clone(), self.common.clone()).charge(0)
    }

    /// Returns the charge of a TLS handshake. It belongs to no client: none is known before its end.
    pub(crate) fn handshake(self: &Arc<Self>) -> Charge {
        Account::new(self.clone(), self.common.clone()).charge_with_kernel(costs::HANDSHAKE, costs::SOCKET)
    }

    /// Returns the bytes in use, as far as they are known, corrected by what the allocator says.
    pub(crate) fn used(&self) -> usize {
        self.scale.apply(self.charged() + self.kernel.load(Ordering::Relaxed))
    }

    fn charged(&self) -> usize {
        let counted = [&self.clients, &self.common].map(|group| group.held(Quantity::Bytes));
        let read = [&self.sampled, &self.base].map(|bytes| bytes.load(Ordering::Relaxed));
        let kernel = self.kernel.load(Ordering::Relaxed);
        (counted.iter().chain(&read).sum::<usize>() + self.store.bytes()).saturating_sub(kernel)
    }

    /// Whether nothing new has room, whoever it is for.
    pub(crate) fn is_full(&self) -> bool {
        let budget = self.budget();
        budget > 0 && self.used() > budget / 100 * FULL
    }

    /// Whether there is so little that it has to be shared.
    pub(crate) fn is_scarce(&self) -> bool {
        let budget = self.budget();
        budget > 0 && self.used() > budget / 100 * SHARED
    }

    /// Returns by how many bytes of the book too much is in use for new resources of control planes, if that is near; below zero: how many
    /// more there may be. Then what is left of the budget above that, and why there is no more.
    pub(crate) fn excess(&self) -> Option<(i64, usize, String)> {
        if !self.is_scarce() {
            return None;
        }
        let (used, budget) = (self.used(), self.budget());
        let most = budget / 100 * FULL;
        let (more, less) = (used.saturating_sub(most), most.saturating_sub(used));
        let [more, less] = [more, less].map(|bytes| i64::try_from(self.scale.undo(bytes)).unwrap_or(i64::MAX));
        let why = format!("{} of {} MiB are in use ({})", used >> 20, budget >> 20, Limit::Memory.key());
        Some((more - less, self.scale.undo(budget - most), why))
    }

    /// Returns by how many bytes of the book so many new ones of files are too many, and why, if they are. Some are in it already.
    pub(crate) fn excess_of(&self, new: usize, charged: usize) -> Option<(usize, String)> {
        let (budget, used) = (self.budget(), self.used().saturating_sub(self.scale.apply(charged)));
        let (wanted, most) = (used.saturating_add(self.scale.apply(new)), budget / 100 * FULL);
        if budget == 0 || wanted <= most {
            return None;
        }
        self.counters.reached(Limit::Memory);
        let why = format!("{} of {} MiB are in use ({})", used >> 20, budget >> 20, Limit::Memory.key());
        Some((self.scale.undo(wanted - most).min(new), why))
    }

    /// Whether so many bytes of resources have room.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        let budget = self.budget();
        budget == 0 || self.used().saturating_add(self.scale.apply(bytes)) <= budget / 100 * FULL
    }

    /// Whether rejected resources are worth another try: so many bytes have room, or more than the odd one.
    pub(crate) fn has_room_for_resources(&self, bytes: usize) -> bool {
        let (budget, more) = (self.budget(), self.scale.apply(bytes));
        budget == 0 || self.used() + more.min(budget / 100 * WORTHWHILE) <= budget / 100 * FULL
    }

    /// Returns what the clients have together, in the book: all but what belongs to none of them.
    fn left_for_clients(&self) -> usize {
        let all = self.charged() + self.kernel.load(Ordering::Relaxed);
        let of_none = all.saturating_sub(self.clients.held(Quantity::Bytes));
        self.scale.undo(self.budget()).saturating_sub(of_none)
    }

    /// Decides whether a group gets so many bytes more.
    fn admit(&self, group: &Group, more: usize) -> Result<(), NoRoom> {
        let budget = self.budget();
        let wanted = self.used().saturating_add(self.scale.apply(more));
        if budget == 0 || wanted <= budget / 100 * SHARED {
            return Ok(());
        }
        let standing = group.standing(Quantity::Bytes, more, self.left_for_clients());
        if wanted <= budget / 1000 * allowed(&standing) {
            return Ok(());
        }
        if !standing.is_above() {
            self.is_pressed.store(true, Ordering::Relaxed);
        }
        self.counters.reached(Limit::Memory);
        let used = self.used();
        let refused = NoRoom { used, budget, above: standing.is_above().then_some(standing) };
        if let Some(unlogged) = self.full.line(Instant::now()) {
            tracing::warn!(reason = %refused, unlogged, "limits.memory reached; clients are refused");
        }
        Err(refused)
    }

    /// A client with few views has no room for another one.
    fn want_view(&self, limit: usize) {
        self.views_wanted.store(limit, Ordering::Relaxed);
        *self.view_wanted_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a client with few views has had no room for one within this time.
    fn is_view_wanted(&self, within: Duration) -> bool {
        let wanted = *self.view_wanted_at.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.is_some_and(|wanted| wanted.elapsed() < within)
    }

    /// Ends streams if somebody has to give way: at most so many for memory, and one for views.
    fn give_way(&self, most: usize) -> usize {
        let limit = self.views_wanted.swap(0, Ordering::Relaxed);
        let for_view = limit > 0 && {
            let key = Limit::Views.key();
            let why =
                format!("another client needs one of the views of this one: the limit is {limit} ({key}); retry later");
            self.end_newest(Quantity::Views, limit, 1000, &why)
        };
        let budget = self.budget();
        if budget == 0 || !(self.is_pressed.swap(false, Ordering::Relaxed) || self.is_full()) {
            return usize::from(for_view);
        }
        let part = self.left_for_clients();
        if part <= self.scale.undo(budget / 100 * (100 - FULL)) {
            return usize::from(for_view); // it is not clients that have the memory: to end them makes no room
        }
        let why = NoRoom { used: self.used(), budget, above: None }.to_string();
        let for_memory = (0..most).take_while(|_| self.end_newest(Quantity::Bytes, part, TWICE, &why)).count();
        for_memory + usize::from(for_view)
    }

    /// Ends the newest stream of the group that is furthest above so many thousandths of its part. Returns false if there is none.
    fn end_newest(&self, quantity: Quantity, of: usize, above: usize, why: &str) -> bool {
        let ended = self.clients.end_newest_of_furthest(quantity, of, above, why);
        if ended {
            self.given_way.fetch_add(1, Ordering::Relaxed);
        }
        ended
    }

    /// Takes what was asked for: bytes that are counted elsewhere.
    fn note_sampled(&self, bytes: usize) {
        self.sampled.store(bytes, Ordering::Relaxed);
    }

    /// Compares the book with what the allocator has given out.
    fn compare(&self) {
        if let Some(live) = self.live() {
            self.scale.note(live, self.charged());
        }
    }

    fn live(&self) -> Option<usize> {
        self.allocator.get().and_then(|live| live())
    }

    pub(crate) fn book(&self) -> Book {
        Book {
            budget: self.budget(),
            clients: self.clients.held(Quantity::Bytes),
            common: self.common.held(Quantity::Bytes) + self.store.bytes() + self.sampled.load(Ordering::Relaxed),
            charged: self.charged(),
            live: self.live().unwrap_or_default(),
            scale: self.scale.thousandths(),
            given_way: self.given_way.load(Ordering::Relaxed),
        }
    }

    fn kernel(&self) -> &AtomicUsize {
        &self.kernel
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        [&self.clients, &self.common].iter().all(|group| group.is_empty())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.book().fmt(f)
    }
}

/// Returns up to how many thousandths of the budget a group gets more: less, the further it is above its part.
fn allowed(standing: &Standing) -> usize {
    let above = standing.thousandths.clamp(1000, TWICE) - 1000;
    10 * FULL - above * (FULL - SHARED) / 100
}

/// Up to this percentage of the budget, each request for memory is granted.
const SHARED: usize = 70;
/// Above this percentage, none is.
const FULL: usize = 95;
/// So much room is worth requesting everything again that had none.
const WORTHWHILE: usize = 5;
/// A group with more than so many thousandths of its part gives way.
const TWICE: usize = 2000;

#[cfg(test)]
mod tests;
