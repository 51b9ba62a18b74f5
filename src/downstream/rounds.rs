//! Whether a thread comes round to its tasks in time: a timer of its own shows it, seldom while there is nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The rounds of one thread, which alone writes them.
#[derive(Debug)]
pub(super) struct Rounds {
    began: Instant,
    count: AtomicU64,
    late: AtomicU64,
    /// Which of the last 32 were late, a bit for each.
    latest: AtomicU32,
    /// When the next one is due, in milliseconds since they began.
    due: AtomicU64,
}

impl Default for Rounds {
    fn default() -> Self {
        let [count, late, due] = [(); 3].map(|()| AtomicU64::new(0));
        Self { began: Instant::now(), count, late, latest: AtomicU32::new(0), due }
    }
}

impl Rounds {
    /// Counts the rounds of this thread, without end. `polls`: how many polls of other tasks it has made.
    pub(super) async fn keep(self: Arc<Self>, polls: impl Fn() -> u64) {
        let (mut pause, mut before) = (EVERY, polls());
        loop {
            let due = Instant::now() + pause;
            self.expect(due);
            tokio::time::sleep(pause).await;
            self.note(due, Instant::now());
            let made = polls();
            pause = self.pause_after(pause, made.wrapping_sub(before));
            before = made;
        }
    }

    /// Returns the pause after one in which so many polls were made: longer and longer for a thread that has little to do and is not late.
    fn pause_after(&self, pause: Duration, polls: u64) -> Duration {
        match polls >= BUSY || self.latest.load(Ordering::Relaxed) != 0 {
            true => EVERY,
            false => (pause * 2).min(SELDOM),
        }
    }

    fn expect(&self, due: Instant) {
        self.due.store(self.since_they_began(due).as_millis() as u64, Ordering::Relaxed);
    }

    /// Counts a round that was due at one time and began at another.
    fn note(&self, due: Instant, now: Instant) {
        let is_late = now.saturating_duration_since(due) >= LATE;
        self.latest.store((self.latest.load(Ordering::Relaxed) << 1) | u32::from(is_late), Ordering::Relaxed);
        self.late.fetch_add(u64::from(is_late), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether three of the last 32 were late, or one that is due does not come for as long as three late ones take.
    pub(super) fn are_late(&self, now: Instant) -> bool {
        let overdue =
            self.since_they_began(now).saturating_sub(Duration::from_millis(self.due.load(Ordering::Relaxed)));
        self.latest.load(Ordering::Relaxed).count_ones() >= TIMES || overdue >= LATE * TIMES
    }

    /// Returns how many there were.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns how many were late.
    pub(super) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Counts one that is in time.
    #[cfg(test)]
    pub(super) fn note_one(&self) {
        self.note(Instant::now(), Instant::now());
    }

    fn since_they_began(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }
}

const EVERY: Duration = Duration::from_millis(10);
/// The longest pause. A thread that has become busy since is known to be so after that.
const SELDOM: Duration = Duration::from_millis(320);
/// So many polls between two rounds make a thread busy.
const BUSY: u64 = 16;
/// How much later than it was due a round is late.
const LATE: Duration = Duration::from_millis(50);
/// How many late rounds make a thread late.
const TIMES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes rounds that are late by so much, one after the other. Returns the time after them, when the next one is expected.
    fn note(rounds: &Rounds, mut now: Instant, lateness: impl IntoIterator<Item = Duration>) -> Instant {
        for late in lateness {
            let due = now + EVERY;
            now = due + late;
            rounds.note(due, now);
            rounds.expect(now + EVERY);
        }
        now
    }

    #[test]
    fn a_thread_that_is_late_three_times_is_late_until_it_has_been_in_time_for_a_while() {
        let rounds = Rounds::default();
        let in_time = || std::iter::repeat_n(LATE / 2, 10);
        let mut now = note(&rounds, rounds.began, in_time().chain([LATE, LATE]).chain(in_time()));
        assert!(!rounds.are_late(now), "late twice");
        now = note(&rounds, now, [LATE * 20]);
        assert!(rounds.are_late(now) && (rounds.count(), rounds.late()) == (23, 3));
        now = note(&rounds, now, in_time());
        assert!(rounds.are_late(now));
        now = note(&rounds, now, in_time());
        assert!(!rounds.are_late(now) && (rounds.count(), rounds.late()) == (43, 3));
    }

    #[test]
    fn a_thread_that_does_not_come_round_is_late_after_as_much_time_as_three_late_rounds_take() {
        let rounds = Rounds::default();
        let (bound, moment) = (LATE * TIMES, Duration::from_millis(1));
        let due = rounds.began + SELDOM;
        rounds.expect(due);
        assert!(!rounds.are_late(due + bound - moment) && rounds.are_late(due + bound), "however long the pause is");
        let now = note(&rounds, due, [moment]) + EVERY;
        assert!(!rounds.are_late(now + bound - moment) && rounds.are_late(now + bound));
    }

    #[test]
    fn rounds_are_seldom_while_there_is_little_to_do_and_the_thread_is_not_late() {
        let rounds = Rounds::default();
        let longer = |polls| rounds.pause_after(EVERY, polls) > EVERY;
        assert!(longer(0) && longer(BUSY - 1) && !longer(BUSY));
        assert_eq!(rounds.pause_after(SELDOM, 0), SELDOM);
        let now = note(&rounds, rounds.began, [LATE]);
        assert!(!longer(0), "it was late");
        note(&rounds, now, std::iter::repeat_n(Duration::ZERO, 32));
        assert!(longer(0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_thread_with_nothing_to_do_makes_few_rounds() {
        let rounds = Arc::<Rounds>::default();
        let _ = tokio::time::timeout(Duration::from_secs(32), rounds.clone().keep(|| 0)).await;
        assert!((100..110).contains(&rounds.count()), "{}", rounds.count());
    }
}
