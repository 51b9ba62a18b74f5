//! The memory that one connection holds. An account sums its charges, and reports the sum to its groups in steps.

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
    /// How many of these bytes were reported to the groups.
    reported: AtomicUsize,
    streams: AtomicU64,
}

/// Bytes that something holds, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: AtomicUsize,
    /// How many of these bytes the kernel keeps.
    kernel: usize,
}

/// A view that counts for the connection that made it.
pub(crate) struct ViewCharge {
    account: Arc<Account>,
    weighs: bool,
    _bytes: Charge,
}

/// A stream's entry in the group of its connection, which may end streams to make room. It is removed on drop.
pub(crate) struct StreamPlace {
    account: Arc<Account>,
    number: u64,
}

impl Account {
    pub(super) fn new(memory: Arc<Memory>, group: Arc<Group>) -> Arc<Self> {
        let (held, reported, streams) = Default::default();
        Arc::new(Self { memory, group, held, reported, streams })
    }

    /// Whether there is room for so many bytes more. Nothing is charged.
    pub(crate) fn admit(&self, more: usize) -> Result<(), NoRoom> {
        let unreported = self.held.load(Ordering::Relaxed) as isize - self.reported.load(Ordering::Relaxed) as isize;
        self.memory.admit(&self.group, more.saturating_add_signed(unreported))
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

    /// Charges a view that the connection made, until the result is dropped. If the view `weighs`, the groups of the connection get one equal part
    /// more for it.
    pub(crate) fn charge_view(self: &Arc<Self>, bytes: usize, weighs: bool) -> ViewCharge {
        self.group.change(Quantity::Views, 0, 1);
        if weighs {
            self.group.weigh(0, 1);
        }
        ViewCharge { account: self.clone(), weighs, _bytes: self.charge(bytes) }
    }

    /// Notes that this account has no room for a view, if it stays within its part of `limit` with one more. A client with more than its part then
    /// loses a stream.
    pub(crate) fn want_view(&self, limit: usize) {
        if !self.group.standing(Quantity::Views, 1, limit).is_above() {
            self.memory.want_view(limit);
        }
    }

    /// Returns the views of this account, with so many `more`, in thousandths of its part of `limit`.
    pub(crate) fn standing_of_views(&self, more: usize, limit: usize) -> usize {
        self.group.standing(Quantity::Views, more, limit).thousandths
    }

    /// Whether a client within its part has had no room for a view in the last minute.
    pub(crate) fn are_views_wanted(&self) -> bool {
        self.memory.is_view_wanted(WANTED)
    }

    /// Whether this account has to leave unused views to others: it has more than its part of `limit`, and a client within its part had no room for
    /// a view just now.
    pub(crate) fn yields_view(&self, limit: usize) -> bool {
        self.memory.is_view_wanted(GIVEN_WAY) && self.group.standing(Quantity::Views, 0, limit).is_above()
    }

    /// Enters a stream, which may be ended to make room for others.
    pub(crate) fn enter_stream(self: &Arc<Self>, stream: Weak<dyn GivesWay>) -> StreamPlace {
        let number = self.streams.fetch_add(1, Ordering::Relaxed);
        self.group.enter_stream(number, stream);
        StreamPlace { account: self.clone(), number }
    }

    /// Reports the bytes that are held now to the groups.
    pub(crate) fn tell(&self) {
        let now = self.held.load(Ordering::Relaxed);
        // A concurrent change is reported later.
        let before = self.reported.swap(now, Ordering::Relaxed);
        if now != before {
            self.group.change(Quantity::Bytes, before, now);
        }
    }

    fn change(&self, before: usize, now: usize) {
        let held = match now >= before {
            true => self.held.fetch_add(now - before, Ordering::Relaxed) + (now - before),
            false => self.held.fetch_sub(before - now, Ordering::Relaxed) - (before - now),
        };
        let reported = self.reported.load(Ordering::Relaxed);
        if held.abs_diff(reported) >= (reported / 8).clamp(LEAST_STEP, STEP) {
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
        self.group.change(Quantity::Bytes, self.reported.load(Ordering::Relaxed), 0);
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

    /// Reports everything that is charged to the account to its groups.
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

/// For so long after a client had no room for a view, clients above their part may not have the views that become free.
const GIVEN_WAY: Duration = Duration::from_secs(5);
/// For so long after a client had no room for a view, the client with the most views may not replace an unused view of another.
const WANTED: Duration = Duration::from_secs(60);
/// A change is reported to the groups once it is an eighth of what they know of the account. In bytes, this step is at least `LEAST_STEP` and at
/// most `STEP`.
const STEP: usize = 64 << 10;
const LEAST_STEP: usize = 4 << 10;
