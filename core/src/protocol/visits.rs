//! Counts what an event visits, so that tests can measure its cost independently of the machine.
//!
//! Compiled in only with the feature `faults`, like the rules that tests break on purpose.

#[cfg(feature = "faults")]
use std::cell::Cell;

#[cfg(feature = "faults")]
thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

/// Counts a resource, a name or a session that is visited or copied.
#[inline]
pub(crate) fn visit() {
    #[cfg(feature = "faults")]
    VISITS.set(VISITS.get() + 1);
}

/// Returns how much this thread has visited since the last call.
#[cfg(feature = "faults")]
pub fn take_visits() -> u64 {
    VISITS.take()
}
