//! Turns of connections that open streams, on one shard.
//!
//! To open a stream, or to refuse it, takes as long as dozens of deliveries. A thread does what is due in the order in which it came, so a change
//! would wait behind all streams that others open at that moment. Instead the shard reads only so many connections that have opened streams before
//! what else is due has its turn. A connection that opens nothing is always read, and so is a new one, whatever it opens by its first bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::task::yield_now;

/// The turns of one shard. Only tasks of its thread use them, so the lock is never waited for.
#[derive(Debug, Default)]
pub(super) struct OpeningTurns(Mutex<Rounds>);

#[derive(Debug, Default)]
struct Rounds {
    /// The streams that were opened and that no round has made up for.
    opened: usize,
    waiting: VecDeque<Arc<Entry>>,
    /// Whether a task makes rounds.
    running: bool,
}

#[derive(Debug, Default)]
struct Entry {
    granted: AtomicBool,
    has_left: AtomicBool,
    reader: AtomicWaker,
}

/// A connection of the shard.
#[derive(Debug)]
pub(super) struct Opener {
    turns: Arc<OpeningTurns>,
    /// The streams that it had opened when it was last asked.
    opened: usize,
    /// Whether what was read last opened a stream.
    is_opening: bool,
    waiting: Option<Arc<Entry>>,
}

impl OpeningTurns {
    /// Returns a new connection.
    pub(super) fn enter(self: &Arc<Self>) -> Opener {
        Opener { turns: self.clone(), opened: 0, is_opening: false, waiting: None }
    }

    /// Counts streams that were opened. If these are as many as a round may have, rounds begin.
    fn note(self: &Arc<Self>, streams: usize) {
        let mut rounds = self.lock();
        rounds.opened = rounds.opened.saturating_add(streams);
        if rounds.opened >= A_ROUND && !rounds.running {
            rounds.running = true;
            tokio::spawn(self.clone().make_rounds());
        }
    }

    /// Returns a place in the queue. `None`: nobody has to wait now.
    fn queue(&self) -> Option<Arc<Entry>> {
        let mut rounds = self.lock();
        if !rounds.running || (rounds.opened < A_ROUND && rounds.waiting.is_empty()) {
            return None;
        }
        let entry = Arc::<Entry>::default();
        rounds.waiting.push_back(entry.clone());
        Some(entry)
    }

    /// Makes rounds until all that were opened are made up for, and no connection waits.
    async fn make_rounds(self: Arc<Self>) {
        loop {
            yield_now().await; // what else is due has its turn
            if self.lock().make_one() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Rounds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rounds {
    /// Grants turns to those who have waited longest, fewer if more was opened than a round may have, but always a few: a flood of new connections, which
    /// do not wait, would keep all others from their turns. Returns true if there is nothing left to do.
    fn make_one(&mut self) -> bool {
        self.opened = self.opened.min(MOST).saturating_sub(A_ROUND);
        let mut room = A_ROUND.saturating_sub(self.opened).max(A_FEW);
        while room > 0
            && let Some(entry) = self.waiting.pop_front()
        {
            room -= usize::from(entry.grant());
        }
        self.running = self.opened > 0 || !self.waiting.is_empty();
        !self.running
    }
}

impl Entry {
    /// Returns false if the connection has left.
    fn grant(&self) -> bool {
        if self.has_left.load(Ordering::Acquire) {
            return false;
        }
        self.granted.store(true, Ordering::Release);
        self.reader.wake();
        true
    }
}

impl Opener {
    /// Waits until the connection may be read, which has opened so many streams in all.
    pub(super) fn poll_turn(&mut self, opened: usize, cx: &mut Context<'_>) -> Poll<()> {
        let new = opened.saturating_sub(std::mem::replace(&mut self.opened, opened));
        if new > 0 {
            self.turns.note(new);
            self.is_opening = true;
        }
        if self.waiting.is_none() && self.is_opening {
            self.waiting = self.turns.queue();
        }
        let Some(entry) = &self.waiting else { return Poll::Ready(()) };
        entry.reader.register(cx.waker());
        match entry.granted.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Notes that something was read: the turn is over, and only another stream makes the connection wait again.
    pub(super) fn note_read(&mut self) {
        (self.waiting, self.is_opening) = (None, false);
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        if let Some(entry) = &self.waiting {
            entry.has_left.store(true, Ordering::Release);
        }
    }
}

/// How many streams are opened before what else is due has its turn. One read may open more, which later rounds make up for.
const A_ROUND: usize = 16;
/// How many connections are read in any round.
const A_FEW: usize = 4;
/// The streams for which later rounds make up at most.
const MOST: usize = 16 * A_ROUND;

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// A connection that is read for as long as it has its turn.
    struct Connection {
        opener: Opener,
        opened: usize,
        woken: Arc<Woken>,
    }

    impl Connection {
        fn of(turns: &Arc<OpeningTurns>) -> Self {
            Self { opener: turns.enter(), opened: 0, woken: Arc::default() }
        }

        /// Reads so many streams, if it has its turn.
        fn reads(&mut self, streams: usize) -> bool {
            if !self.has_turn() {
                return false;
            }
            self.opener.note_read();
            self.opened += streams;
            let _ = self.has_turn(); // it is read again in the same poll
            true
        }

        fn has_turn(&mut self) -> bool {
            let waker = Waker::from(self.woken.clone());
            self.opener.poll_turn(self.opened, &mut Context::from_waker(&waker)).is_ready()
        }

        fn was_woken(&self) -> bool {
            self.woken.0.swap(false, Ordering::Relaxed)
        }
    }

    fn running(turns: &OpeningTurns) -> bool {
        turns.lock().running
    }

    async fn until_over(turns: &OpeningTurns) {
        for _ in 0..1000 {
            if !running(turns) {
                return;
            }
            yield_now().await;
        }
        panic!("rounds without end");
    }

    #[tokio::test]
    async fn connections_that_open_streams_wait_once_a_round_is_full_and_others_never_do() {
        let turns = Arc::<OpeningTurns>::default();
        let mut few: Vec<_> = (0..A_ROUND).map(|_| Connection::of(&turns)).collect();
        assert!(few.iter_mut().take(A_ROUND - 1).all(|connection| connection.reads(1)));
        assert!(!running(&turns) && few[0].has_turn(), "there is room in the round");
        assert!(few[A_ROUND - 1].reads(1) && running(&turns));
        assert!(few.iter_mut().all(|connection| !connection.has_turn()), "each has opened a stream");
        let mut other = Connection::of(&turns);
        assert!(other.reads(0) && other.reads(0), "it opens none");
        assert!(other.reads(1) && !other.has_turn());
        until_over(&turns).await;
        assert!(few.iter_mut().all(|connection| connection.was_woken() && connection.has_turn()));
        assert!(other.was_woken() && other.has_turn());
    }

    #[tokio::test]
    async fn those_that_wait_are_read_in_the_order_in_which_they_came_a_round_at_a_time() {
        let turns = Arc::<OpeningTurns>::default();
        let mut all: Vec<_> = (0..3 * A_ROUND).map(|_| Connection::of(&turns)).collect();
        assert!(all.iter_mut().all(|connection| connection.reads(1)));
        let may_read = |all: &mut Vec<Connection>| all.iter_mut().map(|one| usize::from(one.has_turn())).sum::<usize>();
        let first = may_read(&mut all); // those before the round was full
        let mut rounds = vec![first];
        while running(&turns) {
            yield_now().await;
            rounds.push(may_read(&mut all));
        }
        rounds.dedup();
        assert!(first < A_ROUND && rounds.last() == Some(&(3 * A_ROUND)), "{rounds:?}");
        assert!(rounds.windows(2).all(|step| step[1] - step[0] <= A_ROUND), "{rounds:?}");
    }

    #[tokio::test]
    async fn many_streams_of_one_read_are_made_up_for_by_rounds_of_few() {
        let turns = Arc::<OpeningTurns>::default();
        let mut greedy = Connection::of(&turns);
        assert!(greedy.reads(1000 * A_ROUND));
        let mut all: Vec<_> = (0..3 * A_ROUND).map(|_| Connection::of(&turns)).collect();
        assert!(all.iter_mut().all(|connection| connection.reads(1) && !connection.has_turn()));
        let may_read = |all: &mut Vec<Connection>| all.iter_mut().map(|one| usize::from(one.has_turn())).sum::<usize>();
        let (mut before, mut rounds_of_few) = (0, 0);
        while may_read(&mut all) < all.len() {
            yield_now().await;
            let now = may_read(&mut all);
            rounds_of_few += usize::from(now == before + A_FEW);
            before = now;
        }
        assert!(rounds_of_few >= 8, "{rounds_of_few}");
        until_over(&turns).await;
    }

    #[tokio::test]
    async fn those_who_wait_get_on_however_much_others_open_by_their_first_bytes() {
        let turns = Arc::<OpeningTurns>::default();
        let mut waits = Connection::of(&turns);
        let flood = || assert!(Connection::of(&turns).reads(10 * A_ROUND));
        flood();
        assert!(waits.reads(1) && !waits.has_turn());
        for _ in 0..100 {
            flood();
            yield_now().await;
            if waits.was_woken() {
                assert!(waits.has_turn());
                return;
            }
        }
        panic!("it starves");
    }

    #[tokio::test]
    async fn one_that_has_left_takes_no_turn_and_keeps_none_waiting() {
        let turns = Arc::<OpeningTurns>::default();
        let mut all: Vec<_> = (0..2 * A_ROUND).map(|_| Connection::of(&turns)).collect();
        assert!(all.iter_mut().all(|connection| connection.reads(1)));
        let mut last = all.pop().unwrap();
        drop(all);
        until_over(&turns).await;
        assert!(last.was_woken() && last.has_turn() && turns.lock().waiting.is_empty());
    }
}
