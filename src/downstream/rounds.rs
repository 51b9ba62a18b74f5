//! Whether a thread comes round to its tasks in time: a timer of its own shows it.

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
    /// When the last one was, in milliseconds since they began.
    last: AtomicU64,
}

impl Default for Rounds {
    fn default() -> Self {
        let [count, late, last] = [(); 3].map(|()| AtomicU64::new(0));
        Self { began: Instant::now(), count, late, latest: AtomicU32::new(0), last }
    }
}

impl Rounds {
    /// Counts the rounds of this thread, without end.
    pub(super) async fn keep(self: Arc<Self>) {
        loop {
            let due = Instant::now() + EVERY;
            tokio::time::sleep(EVERY).await;
            self.note(due, Instant::now());
        }
    }

    /// Counts a round that was due at one time and began at another.
    fn note(&self, due: Instant, now: Instant) {
        let is_late = now.saturating_duration_since(due) >= LATE;
        self.latest.store((self.latest.load(Ordering::Relaxed) << 1) | u32::from(is_late), Ordering::Relaxed);
        self.late.fetch_add(u64::from(is_late), Ordering::Relaxed);
        self.last.store(self.since_they_began(now).as_millis() as u64, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether three of the last 32 were late, or there was none for as long as three late ones take.
    pub(super) fn are_late(&self, now: Instant) -> bool {
        let silent =
            self.since_they_began(now).saturating_sub(Duration::from_millis(self.last.load(Ordering::Relaxed)));
        self.latest.load(Ordering::Relaxed).count_ones() >= TIMES || silent >= (EVERY + LATE) * TIMES
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
/// How much later than it was due a round is late.
const LATE: Duration = Duration::from_millis(50);
/// How many late rounds make a thread late.
const TIMES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes rounds that are late by so much, one after the other. Returns the time after them.
    fn note(rounds: &Rounds, mut now: Instant, lateness: impl IntoIterator<Item = Duration>) -> Instant {
        for late in lateness {
            let due = now + EVERY;
            now = due + late;
            rounds.note(due, now);
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
        let (bound, moment) = ((EVERY + LATE) * TIMES, Duration::from_millis(1));
        assert!(!rounds.are_late(rounds.began + bound - moment) && rounds.are_late(rounds.began + bound));
        let now = note(&rounds, rounds.began, [moment]);
        assert!(!rounds.are_late(now + bound - moment) && rounds.are_late(now + bound));
    }
}
