//! Counts what an event visits, so that tests can measure its cost independently of the machine.
//!
//! A release build, which has no debug assertions, counts nothing.

use std::cell::Cell;

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a resource, a name or a session that is visited or copied.
#[inline]
pub(crate) fn visit() {
    #[cfg(debug_assertions)]
    VISITS.set(VISITS.get() + 1);
}

/// Returns how much this thread has visited since the last call. In a release build it is always 0.
pub fn take_visits() -> u64 {
    VISITS.take()
}
