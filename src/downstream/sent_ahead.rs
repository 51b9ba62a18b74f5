//! What a client sends on a connection while Weir does not read one of its streams. HTTP/2 lets it send ahead, up to the window of the connection.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::memory::Charge;

/// Counts the bytes of one connection that are unread because of a paused stream.
#[derive(Debug, Default)]
pub(super) struct SentAhead {
    /// The charge is set under this lock, so that it never reflects an older state.
    book: Mutex<Book>,
    charge: OnceLock<Charge>,
}

/// A stream that is not read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PausedStream(u64);

/// A connection that is not read until this is dropped.
pub(super) struct UnreadConnection(Arc<SentAhead>);

/// Measures how long a client takes. It stands still while the client may be unable to send: its connection is not read, or so many of its streams are
/// paused that what they may hold fills the window.
#[derive(Debug)]
pub(super) struct ReadClock {
    ahead: Arc<SentAhead>,
    started: Instant,
    /// For how long clocks had stood still before.
    stopped: Duration,
}

#[derive(Debug, Default)]
struct Book {
    /// Bytes that arrived while any stream was paused, less those that the other streams have taken.
    came: usize,
    /// The paused streams, each with the value of `came` at its pause, lowered since then if `came` fell below it.
    paused: BTreeMap<PausedStream, usize>,
    /// Bytes that no longer count, since the streams to which they may belong are read again. Those streams have not taken them yet.
    left: usize,
    number: u64,
    /// Whether the connection itself is not read.
    is_unread: bool,
    /// For how long clocks stood still, up to when they last went on.
    stopped_for: Duration,
    /// Since when clocks stand still.
    stopped_since: Option<Instant>,
}

impl SentAhead {
    /// Sets the charge for unread bytes.
    pub(super) fn charge_to(&self, charge: Charge) {
        let _ = self.charge.set(charge); // once for each connection
    }

    /// Returns for how long in all clocks stood still.
    pub(super) fn stopped_for(&self) -> Duration {
        let book = self.book();
        book.stopped_for + book.stopped_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Records that a stream is not read until [`Self::resume`].
    pub(super) fn pause(&self) -> PausedStream {
        self.change(Book::pause)
    }

    #[cfg(test)]
    pub(super) fn paused_streams(&self) -> usize {
        self.book().paused.len()
    }

    /// Records that a stream is read again. What arrived before the earliest remaining pause no longer counts.
    pub(super) fn resume(&self, stream: PausedStream) {
        self.change(|book| book.resume(stream));
    }

    /// Records bytes from the client. Nothing is counted while all streams are read.
    pub(super) fn note_came(&self, bytes: usize) {
        if bytes > 0 {
            self.change(|book| book.note_came(bytes));
        }
    }

    /// Records that a stream has taken bytes of its client.
    pub(super) fn note_taken(&self, bytes: usize) {
        self.change(|book| book.note_taken(bytes));
    }

    fn change<T>(&self, change: impl FnOnce(&mut Book) -> T) -> T {
        let mut book = self.book();
        let before = book.charged();
        let changed = change(&mut book);
        let charged = book.charged();
        if let Some(charge) = self.charge.get().filter(|_| charged != before) {
            charge.set(charged);
        }
        changed
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnreadConnection {
    pub(super) fn begin(ahead: Arc<SentAhead>) -> Self {
        ahead.book().set_unread(true);
        Self(ahead)
    }
}

impl Drop for UnreadConnection {
    fn drop(&mut self) {
        self.0.book().set_unread(false);
    }
}

impl ReadClock {
    pub(super) fn start(ahead: Arc<SentAhead>) -> Self {
        Self { started: Instant::now(), stopped: ahead.stopped_for(), ahead }
    }

    /// Waits for something from the client. `None`: the clock has reached the limit.
    pub(super) async fn within<T>(&self, limit: Duration, next: impl Future<Output = T>) -> Option<T> {
        let mut next = pin!(next);
        loop {
            let left = limit.saturating_sub(self.elapsed());
            if left.is_zero() {
                return None;
            }
            if let Ok(came) = timeout(left.max(limit / LOOKS), next.as_mut()).await {
                return Some(came);
            }
        }
    }

    fn elapsed(&self) -> Duration {
        let stopped = self.ahead.stopped_for().saturating_sub(self.stopped);
        self.started.elapsed().saturating_sub(stopped)
    }
}

impl Book {
    /// Returns how much is charged: what may be unread, and no more than the paused streams may hold.
    fn charged(&self) -> usize {
        self.unread().min(self.paused.len() * STREAM_WINDOW as usize)
    }

    /// Returns how much may be unread: what has arrived since the earliest pause that still lasts. This includes frames without data, which no
    /// stream takes; they count as long as that pause lasts.
    fn unread(&self) -> usize {
        self.paused.values().next().map_or(0, |before| self.came - before)
    }

    fn pause(&mut self) -> PausedStream {
        let stream = PausedStream(self.number);
        self.number += 1;
        self.paused.insert(stream, self.came);
        self.set_clock();
        stream
    }

    fn resume(&mut self, stream: PausedStream) {
        let unread = self.unread();
        self.paused.remove(&stream);
        // The stream takes its bytes only after this. No more than a window can be unread.
        self.left = (self.left + unread - self.unread()).min(WINDOW as usize);
        if self.paused.is_empty() {
            (self.came, self.left) = (0, 0);
        }
        self.set_clock();
    }

    fn set_unread(&mut self, is_unread: bool) {
        self.is_unread = is_unread;
        self.set_clock();
    }

    fn set_clock(&mut self) {
        if self.is_unread || self.paused.len() >= FILLING {
            self.stopped_since.get_or_insert_with(Instant::now);
        } else if let Some(since) = self.stopped_since.take() {
            self.stopped_for += since.elapsed();
        }
    }

    fn note_came(&mut self, bytes: usize) {
        if let Some(before) = self.paused.values().next() {
            self.came = self.came.saturating_add(bytes).min(before.saturating_add(WINDOW as usize));
        }
    }

    fn note_taken(&mut self, bytes: usize) {
        let Some(least) = self.paused.values().next() else { return };
        let of_others = bytes.saturating_sub(self.left);
        self.left = self.left.saturating_sub(bytes);
        self.came = self.came.saturating_sub(of_others).max(*least);
        // Streams that were paused later have higher values.
        for before in self.paused.values_mut().rev().take_while(|before| **before > self.came) {
            *before = self.came;
        }
    }
}

/// How many bytes a client may send ahead on a connection.
pub(super) const WINDOW: u32 = 4 << 20;
/// How many of these bytes may be for one stream.
pub(super) const STREAM_WINDOW: u32 = 65_535;
/// So many paused streams may hold so much that other streams have no room.
pub(super) const FILLING: usize = (WINDOW / STREAM_WINDOW) as usize;
/// A clock that has stood still is looked at again after one of so many parts of its limit, or later.
const LOOKS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Budget, GroupMembership, Memory};

    #[test]
    fn what_comes_while_a_stream_is_paused_is_charged_until_it_is_taken_or_no_stream_is_paused() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let account = memory.connect(GroupMembership::default());
        let before = memory.used();
        let ahead = SentAhead::default();
        ahead.charge_to(account.charge(0));
        ahead.note_came(1 << 20);
        assert_eq!(memory.used(), before, "all streams are read");
        let first = ahead.pause();
        ahead.note_came(60 << 10);
        assert_eq!(memory.used(), before + (60 << 10));
        ahead.note_taken(20 << 10); // by another stream
        assert_eq!(memory.used(), before + (40 << 10));
        ahead.note_came(1 << 30);
        assert_eq!(memory.used(), before + STREAM_WINDOW as usize, "no stream can hold more");
        let others = [(); 2 * FILLING].map(|()| ahead.pause());
        account.tell();
        assert_eq!(memory.used(), before + WINDOW as usize, "no client can send more");
        ahead.resume(first);
        others.into_iter().for_each(|other| ahead.resume(other));
        assert_eq!(memory.used(), before);
        ahead.pause();
        ahead.note_came(1 << 20);
        drop((ahead, account));
        assert_eq!(memory.used(), before, "its connection has ended");
        assert!(memory.is_empty());
    }

    /// Of each frame no stream takes the head, and of many frames none takes anything.
    #[test]
    fn a_pause_that_does_not_end_is_charged_with_what_its_stream_may_hold_whatever_comes_on_others() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let account = memory.connect(GroupMembership::default());
        let before = memory.used();
        let ahead = SentAhead::default();
        ahead.charge_to(account.charge(0));
        let _stays = ahead.pause();
        (0..1 << 10).for_each(|_| ahead.note_came(1 << 10));
        account.tell();
        assert_eq!(memory.used() - before, STREAM_WINDOW as usize);
    }

    #[test]
    fn while_some_stream_is_always_paused_no_more_counts_than_what_came_since_that_one_was() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let account = memory.connect(GroupMembership::default());
        let before = memory.used();
        let ahead = SentAhead::default();
        ahead.charge_to(account.charge(0));
        let charged = || {
            account.tell();
            memory.used() - before
        };
        let mut paused = ahead.pause();
        for _ in 0..1000 {
            ahead.note_came(5 << 10); // of which no stream takes 1 KiB
            let next = ahead.pause();
            ahead.note_came(5 << 10);
            ahead.resume(std::mem::replace(&mut paused, next));
            ahead.note_taken(8 << 10);
            assert!(charged() <= 5 << 10, "{} bytes", charged());
        }
        ahead.note_came(3 << 10);
        assert!((3 << 10..=8 << 10).contains(&charged()), "what is taken was not of a later stream's");
        ahead.resume(paused);
        assert_eq!(charged(), 0);
    }

    #[test]
    fn what_a_stream_takes_after_it_is_read_again_is_not_what_came_since_another_one_was_paused() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let account = memory.connect(GroupMembership::default());
        let before = memory.used();
        let ahead = SentAhead::default();
        ahead.charge_to(account.charge(0));
        let charged = || {
            account.tell();
            memory.used() - before
        };
        for _ in 0..2 {
            let first = ahead.pause();
            ahead.note_came(32 << 10);
            let second = ahead.pause();
            ahead.note_came(32 << 10);
            assert_eq!(charged(), 64 << 10);
            ahead.resume(first);
            assert_eq!(charged(), 32 << 10);
            ahead.note_taken(16 << 10);
            assert_eq!(charged(), 32 << 10, "it was of the first stream's");
            ahead.note_taken(16 << 10);
            assert_eq!(charged(), 32 << 10, "so was that");
            ahead.note_taken(16 << 10);
            assert_eq!(charged(), 16 << 10, "that came later, and another stream has it");
            ahead.resume(second);
            assert_eq!(charged(), 0);
        }
        let first = ahead.pause();
        ahead.note_came(16 << 10);
        let second = ahead.pause();
        ahead.resume(first);
        ahead.resume(second);
        ahead.pause();
        ahead.note_came(16 << 10);
        ahead.note_taken(16 << 10);
        assert_eq!(charged(), 0, "nothing is left of streams before");
    }

    #[tokio::test(start_paused = true)]
    async fn clocks_stand_still_while_a_connection_is_not_read_or_its_paused_streams_can_fill_the_window() {
        const SECOND: Duration = Duration::from_secs(1);
        let (ahead, second) = (Arc::<SentAhead>::default(), || tokio::time::advance(SECOND));
        let _others = [(); FILLING - 1].map(|()| ahead.pause());
        second().await;
        assert_eq!(ahead.stopped_for(), Duration::ZERO, "there is room for other streams");
        let last = ahead.pause();
        second().await;
        let unread = UnreadConnection::begin(ahead.clone());
        second().await;
        ahead.resume(last);
        second().await;
        assert_eq!(ahead.stopped_for(), 3 * SECOND, "it is still not read");
        drop(unread);
        second().await;
        assert_eq!(ahead.stopped_for(), 3 * SECOND);
        ahead.pause();
        second().await;
        assert_eq!(ahead.stopped_for(), 4 * SECOND);
    }

    #[test]
    fn whatever_comes_while_a_stream_is_read_again_nothing_stays_charged() {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let account = memory.connect(GroupMembership::default());
        let before = memory.used();
        let ahead = SentAhead::default();
        ahead.charge_to(account.charge(0));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20_000).for_each(|_| ahead.note_came(5)));
            scope.spawn(|| (0..20_000).for_each(|_| ahead.resume(ahead.pause())));
        });
        account.tell();
        assert_eq!(memory.used(), before);
    }
}
