//! What one connection holds. It sums by itself, and the sums of its groups hear of it in steps.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::group::{GivesWay, Group, Quantity};
use super::{Memory, NoRoom};

/// The account of a connection, or of what belongs to none.
pub(crate) struct Account {
    memory: Arc<Memory>,
    pub(super) group: Arc<Group>,
    /// The bytes of its charges.
    held: AtomicUsize,
    /// How much of that was reported to the groups.
    told: AtomicUsize,
    streams: AtomicU64,
}

/// Bytes that something holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: AtomicUsize,
    /// What the kernel keeps, of these bytes.
    kernel: usize,
}

/// A view that counts for the connection that made it.
pub(crate) struct ViewCharge {
    account: Arc<Account>,
    weighs: bool,
    _bytes: Charge,
}

/// The place of a stream among those of its connection, for when some have to end.
pub(crate) struct StreamPlace {
    account: Arc<Account>,
    number: u64,
}

impl Account {
    pub(super) fn new(memory: Arc<Memory>, group: Arc<Group>) -> Arc<Self> {
        let (held, told, streams) = Default::default();
        Arc::new(Self { memory, group, held, told, streams })
    }

    /// Whether there is room for so many bytes more. Nothing is charged.
    pub(crate) fn admit(&self, more: usize) -> Result<(), NoRoom> {
        let untold = self.held.load(Ordering::Relaxed) as isize - self.told.load(Ordering::Relaxed) as isize;
        self.memory.admit(&self.group, more.saturating_add_signed(untold))
    }

    /// Charges bytes until the result is dropped.
    pub(crate) fn charge(self: &Arc<Self>, bytes: usize) -> Charge {
        self.charge_with_kernel(bytes, 0)
    }

    /// Charges bytes of the process, and others that the kernel keeps.
    pub(crate) fn charge_with_kernel(self: &Arc<Self>, bytes: usize, kernel: usize) -> Charge {
        if kernel > 0 {
            self.memory.kernel().fetch_add(kernel, Ordering::Relaxed);
        }
        let charge = Charge { account: self.clone(), bytes: AtomicUsize::new(0), kernel };
        charge.set(bytes + kernel);
        charge
    }

    /// Charges a view that the connection made, until the result is dropped. `weighs`: it has an equal part of its own.
    pub(crate) fn charge_view(self: &Arc<Self>, bytes: usize, weighs: bool) -> ViewCharge {
        self.group.change(Quantity::Views, 0, 1);
        if weighs {
            self.group.weigh(0, 1);
        }
        ViewCharge { account: self.clone(), weighs, _bytes: self.charge(bytes) }
    }

    /// Lets a stream end of who has more views than its part of `limit`, if this one has less with one more.
    pub(crate) fn want_view(&self, limit: usize) {
        if !self.group.standing(Quantity::Views, 1, limit).is_above() {
            self.memory.want_view(limit);
        }
    }

    /// Returns how many thousandths of its part of `limit` the views make that this one has with so many more.
    pub(crate) fn standing_of_views(&self, more: usize, limit: usize) -> usize {
        self.group.standing(Quantity::Views, more, limit).thousandths
    }

    /// Whether others with few views have had no room for one in the last minute.
    pub(crate) fn are_views_wanted(&self) -> bool {
        self.memory.is_view_wanted(WANTED)
    }

    /// Whether this account has to leave unused views to others: it has more than its part of `limit`, and others have had no room for one.
    pub(crate) fn yields_view(&self, limit: usize) -> bool {
        self.memory.is_view_wanted(GIVEN_WAY) && self.group.standing(Quantity::Views, 0, limit).is_above()
    }

    /// Enters a stream, which ends for others if it has to.
    pub(crate) fn enter_stream(self: &Arc<Self>, stream: Weak<dyn GivesWay>) -> StreamPlace {
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        self.group.enter_stream(number, stream);
        StreamPlace { account: self.clone(), number }
    }

    /// Reports the bytes that are held now to the groups.
    pub(crate) fn tell(&self) {
        let now = self.held.load(Ordering::Relaxed);
        // Who comes between hears of it later.
        let before = self.told.swap(now, Ordering::Relaxed);
        if now != before {
            self.group.change(Quantity::Bytes, before, now);
        }
    }

    fn change(&self, before: usize, now: usize) {
        let held = match now >= before {
            true => self.held.fetch_add(now - before, Ordering::Relaxed) + (now - before),
            false => self.held.fetch_sub(before - now, Ordering::Relaxed) - (before - now),
        };
        let told = self.told.load(Ordering::Relaxed);
        if held.abs_diff(told) >= (told / 8).clamp(LEAST_STEP, STEP) {
            self.tell();
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.held.load(Ordering::Relaxed))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.group.change(Quantity::Bytes, self.told.load(Ordering::Relaxed), 0);
    }
}

impl Charge {
    /// Changes how many bytes are charged.
    pub(crate) fn set(&self, bytes: usize) {
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        if before != bytes {
            self.account.change(before, bytes);
        }
    }

    /// Charges other bytes to the same account.
    pub(crate) fn beside(&self, bytes: usize) -> Self {
        self.account.charge(bytes)
    }

    /// Lets the groups of the account hear of everything that is charged to it.
    pub(crate) fn tell(&self) {
        self.account.tell();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
        if self.kernel > 0 {
            self.account.memory.kernel().fetch_sub(self.kernel, Ordering::Relaxed);
        }
    }
}

impl Drop for ViewCharge {
    fn drop(&mut self) {
        self.account.group.change(Quantity::Views, 1, 0);
        if self.weighs {
            self.account.group.weigh(1, 0);
        }
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.account.group.leave_stream(self.number);
    }
}

/// For how long the views that gave way are kept for who wanted one.
const GIVEN_WAY: Duration = Duration::from_secs(5);
/// For how long views that nobody uses are.
const WANTED: Duration = Duration::from_secs(60);
/// A change reaches the groups once it is an eighth of what they know of the account, but for these bounds, in bytes.
const STEP: usize = 64 << 10;
const LEAST_STEP: usize = 4 << 10;
