//! What a client has sent on a connection of which a stream is not read for now. HTTP/2 lets it send ahead, up to the window of the connection.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::memory::Charge;

/// The bytes of one connection that are not read, as far as a pause is why.
#[derive(Debug, Default)]
pub(super) struct SentAhead {
    /// Streams that are not read now.
    paused: AtomicUsize,
    /// Bytes that have come since the first of them was paused, and that no stream has taken.
    bytes: AtomicUsize,
    charge: OnceLock<Charge>,
}

impl SentAhead {
    /// Sets what it is charged to.
    pub(super) fn charge_to(&self, charge: Charge) {
        let _ = self.charge.set(charge); // once for each connection
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed) > 0
    }

    /// A stream is not read until [`Self::resume`].
    pub(super) fn pause(&self) {
        self.paused.fetch_add(1, Ordering::Relaxed);
    }

    /// A stream is read again. With the last of them, so is all that has come.
    pub(super) fn resume(&self) {
        if self.paused.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.note(|_| 0);
        }
    }

    /// Bytes have come from the client. Nothing is counted while all streams are read.
    pub(super) fn note_came(&self, bytes: usize) {
        if bytes > 0 && self.is_paused() {
            self.note(|before| before.saturating_add(bytes).min(WINDOW as usize));
        }
    }

    /// A stream has taken bytes of its client's.
    pub(super) fn note_taken(&self, bytes: usize) {
        if self.is_paused() {
            self.note(|before| before.saturating_sub(bytes));
        }
    }

    fn note(&self, change: impl Fn(usize) -> usize) {
        let changed = |before| Some(change(before));
        let before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed).unwrap_or_default();
        if let Some(charge) = self.charge.get() {
            charge.set(change(before));
        }
    }
}

/// What a client may send ahead on a connection.
pub(super) const WINDOW: u32 = 4 << 20;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::{Belonging, Budget, Memory};

    #[test]
    fn what_comes_while_a_stream_is_paused_is_charged_until_it_is_taken_or_no_stream_is_paused() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let account = memory.connect(Belonging::default());
        let before = memory.used();
        let ahead = SentAhead::default();
        ahead.charge_to(account.charge(0));
        ahead.note_came(1 << 20);
        assert_eq!(memory.used(), before, "all streams are read");
        ahead.pause();
        ahead.note_came(600 << 10);
        assert_eq!(memory.used(), before + (600 << 10));
        ahead.note_taken(200 << 10); // by another stream
        assert_eq!(memory.used(), before + (400 << 10));
        ahead.pause();
        ahead.resume();
        assert_eq!(memory.used(), before + (400 << 10), "another one is paused");
        ahead.note_came(1 << 30);
        assert_eq!(memory.used(), before + WINDOW as usize, "no client can send more");
        ahead.resume();
        assert_eq!(memory.used(), before);
        ahead.pause();
        ahead.note_came(1 << 20);
        drop((ahead, account));
        assert_eq!(memory.used(), before, "its connection has ended");
        assert!(memory.is_empty());
    }
}
