//! The order in which clients with large replies are served.
//!
//! If a whole fleet were served at once, piece by piece in turn, every client would be complete only at the end. Instead a few are served
//! at a time: half of the fleet is then complete in half of the time. A turn does not wait for a slow client: one that does not accept
//! pieces as fast as they are made continues without a turn, and the next client gets it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;

use weir_core::protocol::session::Estimate;

use crate::shared_runtime;

#[derive(Debug)]
pub(super) struct Turns {
    places: usize,
    began: Instant,
    state: Mutex<TurnQueue>,
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct TurnQueue {
    served: Vec<Arc<Entry>>,
    /// By due time: the larger a reply, the later. Small replies go first, and replies that bring a client something it lacks before others.
    /// No reply waits for ever.
    waiting: BTreeMap<(Duration, u64), Arc<Entry>>,
    last_number: u64,
    /// Whether a task watches for clients that accept nothing.
    watched: bool,
}

/// A client's turn, or its position in the queue for one. Dropping it gives it up.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    entry: Arc<Entry>,
}

#[derive(Debug)]
struct Entry {
    due: (Duration, u64),
    granted: AtomicBool,
    /// When the client last accepted bytes, in microseconds since the turns began.
    progressed: AtomicU64,
    waker: AtomicWaker,
}

impl Turns {
    /// `waiting`: counts the replies that wait.
    pub(super) fn new(waiting: Arc<AtomicUsize>) -> Arc<Self> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self::with_places(cores * PLACES_PER_CORE, waiting)
    }

    pub(super) fn with_places(places: usize, waiting: Arc<AtomicUsize>) -> Arc<Self> {
        Arc::new(Self { places, began: Instant::now(), state: Mutex::default(), waiting })
    }

    /// Requests a turn.
    pub(super) fn enter(self: &Arc<Self>, estimate: Estimate) -> Turn {
        let entry = self.enter_at(self.now(), estimate);
        let mut state = self.lock();
        if !state.waiting.is_empty() && !state.watched {
            state.watched = true;
            shared_runtime::spawn(watch(Arc::downgrade(self)));
        }
        drop(state);
        Turn { turns: self.clone(), entry }
    }

    fn enter_at(&self, now: Duration, estimate: Estimate) -> Arc<Entry> {
        let mut state = self.lock();
        state.last_number += 1;
        let due = now + Duration::from_nanos(estimate.bytes as u64 * NANOS_PER_BYTE);
        let due = if estimate.is_first { due } else { due + LACKS_NOTHING };
        let entry = Arc::new(Entry {
            due: (due, state.last_number),
            granted: AtomicBool::new(false),
            progressed: AtomicU64::new(0),
            waker: AtomicWaker::new(),
        });
        state.waiting.insert(entry.due, entry.clone());
        self.grant(&mut state, now);
        entry
    }

    fn leave_at(&self, now: Duration, entry: &Arc<Entry>) {
        let mut state = self.lock();
        state.waiting.remove(&entry.due);
        state.served.retain(|served| !Arc::ptr_eq(served, entry));
        self.grant(&mut state, now);
    }

    /// Grants turns while any are free.
    fn grant(&self, state: &mut TurnQueue, now: Duration) {
        while state.served.len() < self.places
            && let Some((_, next)) = state.waiting.pop_first()
        {
            next.note_progress(now);
            next.granted.store(true, Ordering::Release);
            next.waker.wake();
            state.served.push(next);
        }
        self.waiting.store(state.waiting.len(), Ordering::Relaxed);
    }

    /// Ends the turns of clients that accept nothing, so that others get them. Returns whether any client still waits.
    fn pass_over_the_slow(&self, now: Duration) -> bool {
        let is_slow = |entry: &Entry| now.saturating_sub(entry.progress()) >= PATIENCE;
        let mut state = self.lock();
        state.served.retain(|entry| !is_slow(entry));
        self.grant(&mut state, now);
        state.watched = !state.waiting.is_empty();
        state.watched
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, TurnQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs while any client waits.
async fn watch(turns: Weak<Turns>) {
    loop {
        tokio::time::sleep(PATIENCE / 2).await;
        if !turns.upgrade().is_some_and(|turns| turns.pass_over_the_slow(turns.now())) {
            return;
        }
    }
}

impl Turn {
    pub(super) fn poll_granted(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.entry.waker.register(cx.waker());
        if self.entry.granted.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Notes that the client has accepted bytes.
    pub(super) fn note_progress(&self) {
        self.entry.note_progress(self.turns.now());
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.leave_at(self.turns.now(), &self.entry);
    }
}

impl Entry {
    fn note_progress(&self, now: Duration) {
        self.progressed.store(now.as_micros() as u64, Ordering::Relaxed);
    }

    fn progress(&self) -> Duration {
        Duration::from_micros(self.progressed.load(Ordering::Relaxed))
    }
}

/// Replies of at least this size take turns.
pub(super) const LARGE: usize = 256 << 10;
/// How many turns are granted at a time for each core: enough to keep it busy while only some clients read.
const PLACES_PER_CORE: usize = 8;
/// How long a turn waits for a client that accepts no bytes.
const PATIENCE: Duration = Duration::from_millis(20);
/// The delay for clients that have an earlier state. Clients that have nothing and come within this time go before them.
const LACKS_NOTHING: Duration = Duration::from_secs(1);
/// The due time grows by this: smaller replies that arrive within 10 ms overtake a reply of 1 MiB.
const NANOS_PER_BYTE: u64 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn turns_with(places: usize) -> Arc<Turns> {
        Turns::with_places(places, Arc::default())
    }

    /// The estimate of a reply that brings what the client lacks.
    fn first(bytes: usize) -> Estimate {
        Estimate { bytes, is_first: true }
    }

    fn granted<const N: usize>(entries: [&Arc<Entry>; N]) -> [bool; N] {
        entries.map(|entry| entry.granted.load(Ordering::Relaxed))
    }

    #[test]
    fn small_replies_go_first_and_large_ones_in_the_end() {
        let turns = turns_with(1);
        let one = turns.enter_at(MS, first(1 << 20));
        let large = turns.enter_at(MS, first(100 << 20));
        let small = turns.enter_at(MS, first(1 << 20));
        assert_eq!(granted([&one, &large, &small]), [true, false, false]);
        turns.leave_at(MS, &one);
        assert_eq!(granted([&large, &small]), [false, true]);
        let later = turns.enter_at(2_000 * MS, first(1 << 20));
        turns.leave_at(2_000 * MS, &small);
        assert_eq!(granted([&large, &later]), [true, false], "one that has waited for long goes before those who come");
        turns.leave_at(2_000 * MS, &large);
        assert_eq!(granted([&later]), [true]);
    }

    #[test]
    fn clients_that_lack_something_go_before_those_that_have_an_earlier_state() {
        let turns = turns_with(1);
        let busy = turns.enter_at(MS, first(1));
        let refresher = turns.enter_at(MS, Estimate { bytes: 1 << 20, is_first: false });
        let cold = turns.enter_at(900 * MS, first(10 << 20));
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 2);
        turns.leave_at(900 * MS, &busy);
        assert_eq!(granted([&refresher, &cold]), [false, true]);
        let later = turns.enter_at(1_100 * MS, first(1 << 20));
        turns.leave_at(1_100 * MS, &cold);
        assert_eq!(granted([&refresher, &later]), [true, false], "it does not wait for ever");
        turns.leave_at(1_100 * MS, &refresher);
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_client_that_takes_nothing_is_passed_over_and_one_that_does_is_not() {
        let turns = turns_with(2);
        let [stuck, busy, next, last] = [1, 1, 1, 1].map(|bytes| turns.enter_at(MS, first(bytes)));
        for time in 2..100 {
            [&busy, &next].iter().for_each(|entry| entry.note_progress(time * MS));
            assert!(turns.pass_over_the_slow(time * MS), "there is one who waits");
            assert_eq!(granted([&next, &last]), [time * MS >= MS + PATIENCE, false]);
        }
        turns.leave_at(100 * MS, &stuck); // its turn was already given to another
        assert_eq!(granted([&last]), [false]);
        turns.leave_at(100 * MS, &busy);
        assert_eq!(granted([&last]), [true]);
        assert!(!turns.pass_over_the_slow(101 * MS));
    }

    #[tokio::test]
    async fn what_a_client_accepts_is_noted_for_its_turn() {
        let turns = turns_with(1);
        let turn = turns.enter(first(1));
        let before = turn.entry.progress();
        while turns.now() < before + MS {
            tokio::task::yield_now().await;
        }
        turn.note_progress();
        assert!(turn.entry.progress() >= before + MS);
    }

    #[test]
    fn a_client_that_leaves_the_queue_is_forgotten() {
        let turns = turns_with(1);
        let [one, second] = [1, 1].map(|bytes| turns.enter_at(MS, first(bytes)));
        turns.leave_at(MS, &second);
        turns.leave_at(MS, &one);
        let state = turns.lock();
        assert!(state.served.is_empty() && state.waiting.is_empty());
    }

    #[tokio::test]
    async fn a_turn_that_is_dropped_goes_to_the_next_and_one_that_was_still_waited_for_is_given_up() {
        let waiting = Arc::<AtomicUsize>::default();
        let turns = Turns::with_places(1, waiting.clone());
        let [one, second, third] = [(); 3].map(|()| turns.enter(first(1)));
        drop(second);
        assert_eq!((granted([&one.entry, &third.entry]), waiting.load(Ordering::Relaxed)), ([true, false], 1));
        drop(one);
        assert_eq!((granted([&third.entry]), waiting.load(Ordering::Relaxed)), ([true], 0));
        drop(third);
        assert!(turns.lock().served.is_empty());
    }

    #[tokio::test]
    async fn a_client_is_woken_by_its_turn_also_if_the_one_before_takes_nothing_each_time_anew() {
        let turns = turns_with(1);
        for is_stuck in [false, true, true] {
            let [before, next] = [(); 2].map(|()| turns.enter(first(1)));
            let granted = tokio::spawn(async move { std::future::poll_fn(|cx| next.poll_granted(cx)).await });
            tokio::task::yield_now().await;
            let kept = is_stuck.then_some(before);
            tokio::time::timeout(Duration::from_secs(20), granted).await.expect("its turn").unwrap();
            drop(kept);
        }
    }
}
