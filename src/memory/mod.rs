//! How much memory the process may use, who holds how much of it, and who may have more.
//!
//! Everything that a peer can make grow is charged in bytes, by costs that were measured ([`costs`]). What clients hold is charged to their
//! connections, and counted for the groups of these ([`group`]). Resources have one common account.
//!
//! - Up to 70 % of the budget there are no shares.
//! - From 70 % to 95 %, groups with more than their equal part get nothing new: the more they have, the earlier they are refused. So a flood
//!   cannot take what is left, and a single fleet may take all of it.
//! - Above 95 %, the group that is furthest above twice its part gives way.
//!
//! Changes of resources that exist are never refused: the last 5 % are for them.

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
pub(crate) use self::group::{GivesWay, GroupMembership};
use self::group::{Group, Quantity, Standing};
pub(crate) use self::live::LiveBytes;
use self::live::Scale;
pub(crate) use self::room::NoRoom;
pub(crate) use self::watch::MemoryWatch;
use crate::limit::{Limit, LimitCounters};
use crate::log_pace::LogPace;

/// The memory of the process, as far as peers make it grow.
pub(crate) struct Memory {
    /// In bytes; 0 if no budget is known.
    budget: AtomicUsize,
    /// The budget with its reason.
    setting: Mutex<Budget>,
    /// All that clients hold.
    clients: Arc<Group>,
    /// What belongs to no client.
    common: Arc<Group>,
    store: Arc<BodyStore>,
    /// Bytes that are counted elsewhere, as read from time to time.
    sampled: AtomicUsize,
    /// What the kernel keeps for connections, which the process does not see.
    kernel: AtomicUsize,
    /// What the process needs without any peer.
    base: AtomicUsize,
    scale: Scale,
    allocator: OnceLock<LiveBytes>,
    /// A group within its part had no room.
    is_pressed: AtomicBool,
    /// The limit of views, if a client within its part had no room for one; otherwise 0.
    views_wanted: AtomicUsize,
    /// When a client within its part last had no room for a view.
    view_wanted_at: Mutex<Option<Instant>>,
    /// Streams that were ended to make room for others.
    given_way: AtomicU64,
    connections: AtomicU64,
    counters: Arc<LimitCounters>,
    full: LogPace,
}

/// The sums at one moment, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Book {
    /// The budget; 0 if no limit is known.
    pub(crate) budget: usize,
    /// Connections, their streams and names.
    pub(crate) clients: usize,
    /// Resources, and everything else that belongs to no client.
    pub(crate) common: usize,
    /// The sum of both, and what the program needs by itself, without what the kernel keeps.
    pub(crate) charged: usize,
    /// The same sum by the allocator; 0 if it does not report it.
    pub(crate) live: usize,
    /// The correction of the next decisions, in thousandths.
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

    /// Sets the budget. If more is in use, what is in use stays, and nothing new is added.
    pub(crate) fn set_budget(&self, setting: Budget) {
        self.budget.store(setting.bytes, Ordering::Relaxed);
        if self.is_full() {
            let used = self.used();
            tracing::warn!(budget = %setting, used, "limits.memory is below what is in use: nothing new is accepted");
        }
        *self.setting.lock().unwrap_or_else(PoisonError::into_inner) = setting;
    }

    /// Returns the budget with its reason.
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

    /// Returns the account of a new connection. The connection itself is not charged yet.
    pub(crate) fn connect(self: &Arc<Self>, of: GroupMembership) -> Arc<Account> {
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        Account::new(self.clone(), self.clients.join(of, number))
    }

    /// Returns a charge for what belongs to no client.
    pub(crate) fn common(self: &Arc<Self>) -> Charge {
        Account::new(self.clone(), self.common.clone()).charge(0)
    }

    /// Returns the charge of a TLS handshake. It belongs to no client, since the client is not known before the handshake ends.
    pub(crate) fn handshake(self: &Arc<Self>) -> Charge {
        Account::new(self.clone(), self.common.clone()).charge_with_kernel(costs::HANDSHAKE, costs::SOCKET)
    }

    /// Returns the bytes in use that are known, corrected by the count of the allocator.
    pub(crate) fn used(&self) -> usize {
        self.scale.apply(self.charged() + self.kernel.load(Ordering::Relaxed))
    }

    fn charged(&self) -> usize {
        let counted = [&self.clients, &self.common].map(|group| group.held(Quantity::Bytes));
        let read = [&self.sampled, &self.base].map(|bytes| bytes.load(Ordering::Relaxed));
        let kernel = self.kernel.load(Ordering::Relaxed);
        (counted.iter().chain(&read).sum::<usize>() + self.store.bytes()).saturating_sub(kernel)
    }

    /// Whether there is no room for anything new, of any client.
    pub(crate) fn is_full(&self) -> bool {
        let budget = self.budget();
        budget > 0 && self.used() > budget / 100 * FULL
    }

    /// Whether so much is in use that the rest has to be shared.
    pub(crate) fn is_scarce(&self) -> bool {
        let budget = self.budget();
        budget > 0 && self.used() > budget / 100 * SHARED
    }

    /// Returns three things, if memory is scarce. First, by how many charged bytes new resources of control planes exceed their limit; a negative
    /// number says how many more there may be. Second, what the budget has above that limit, in charged bytes. Third, the reason for the limit.
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

    /// Returns by how many charged bytes new resources of files exceed the limit, and why, if they do. Of these bytes, `charged` are counted as in
    /// use already.
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

    /// Whether rejected resources are worth another try: there is room for all their bytes, or for a good part of the budget.
    pub(crate) fn has_room_for_resources(&self, bytes: usize) -> bool {
        let (budget, more) = (self.budget(), self.scale.apply(bytes));
        budget == 0 || self.used() + more.min(budget / 100 * WORTHWHILE) <= budget / 100 * FULL
    }

    /// Returns how much all clients may have together, in charged bytes: the budget without what belongs to no client.
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

    /// Notes that a client within its part has no room for another view.
    fn want_view(&self, limit: usize) {
        self.views_wanted.store(limit, Ordering::Relaxed);
        *self.view_wanted_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a client within its part had no room for a view within this time.
    fn is_view_wanted(&self, within: Duration) -> bool {
        let wanted = *self.view_wanted_at.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.is_some_and(|wanted| wanted.elapsed() < within)
    }

    /// Ends streams if clients have to give way: at most so many for memory, and one for views. Returns how many were ended.
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

    /// Ends the newest stream of the group that is furthest above its part. Returns false if no group has more than `above` thousandths of its
    /// part.
    fn end_newest(&self, quantity: Quantity, of: usize, above: usize, why: &str) -> bool {
        let ended = self.clients.end_newest_of_furthest(quantity, of, above, why);
        if ended {
            self.given_way.fetch_add(1, Ordering::Relaxed);
        }
        ended
    }

    /// Takes the bytes that are counted elsewhere.
    fn note_sampled(&self, bytes: usize) {
        self.sampled.store(bytes, Ordering::Relaxed);
    }

    /// Compares what is charged with what the allocator has given out.
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

/// Returns the use of the budget, in thousandths, up to which a group gets more memory. It is lower the further the group is above its part.
fn allowed(standing: &Standing) -> usize {
    let above = standing.thousandths.clamp(1000, TWICE) - 1000;
    10 * FULL - above * (FULL - SHARED) / 100
}

/// Up to this percentage of the budget, each request for memory is granted.
const SHARED: usize = 70;
/// Above this percentage, no request for something new is granted.
const FULL: usize = 95;
/// With so many percent of the budget free, all resources that had no room are requested again.
const WORTHWHILE: usize = 5;
/// A group with more than so many thousandths of its part gives way.
const TWICE: usize = 2000;

#[cfg(test)]
mod tests;
