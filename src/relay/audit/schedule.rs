//! When each view is audited.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// The next audit of each view. Views that are new are audited some time in the first half of the interval, so that a relay that starts does
/// not audit all of them at once.
#[derive(Debug)]
pub(super) struct Schedule {
    interval: Duration,
    turns: BTreeMap<Arc<str>, Turn>,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    due: Instant,
    /// A view that cannot be audited now waits until then, and keeps its place.
    not_before: Instant,
}

impl Schedule {
    pub(super) fn every(interval: Duration) -> Self {
        Self { interval, turns: BTreeMap::new() }
    }

    /// Enters the views that are new, and forgets those that have ended. `random` returns numbers between 0 and 1.
    pub(super) fn follow(
        &mut self,
        views: impl Iterator<Item = Arc<str>>,
        now: Instant,
        mut random: impl FnMut() -> f64,
    ) {
        let mut before = std::mem::take(&mut self.turns);
        for view in views {
            let turn = before.remove(&view).unwrap_or_else(|| {
                let due = now + (self.interval / 2).mul_f64(random());
                Turn { due, not_before: due }
            });
            self.turns.insert(view, turn);
        }
    }

    /// Returns the view whose audit is due for longest, of those that do not wait.
    pub(super) fn next(&self, now: Instant) -> Option<Arc<str>> {
        let ready = self.turns.iter().filter(|(_, turn)| turn.due <= now && turn.not_before <= now);
        ready.min_by_key(|(_, turn)| turn.due).map(|(view, _)| view.clone())
    }

    /// An audit of a view had a result.
    pub(super) fn note_audit(&mut self, view: &Arc<str>, now: Instant) {
        self.put_off(view, now + self.interval);
    }

    /// An audit of a view had no result, and is made again before the interval is over.
    pub(super) fn note_unfinished(&mut self, view: &Arc<str>, now: Instant) {
        self.put_off(view, now + self.interval / 8);
    }

    /// A view cannot be audited now, and is looked at again soon.
    pub(super) fn note_not_now(&mut self, view: &Arc<str>, now: Instant) {
        if let Some(turn) = self.turns.get_mut(view) {
            turn.not_before = now + (self.interval / 20).clamp(LEAST_PAUSE, LONGEST_PAUSE);
        }
    }

    fn put_off(&mut self, view: &Arc<str>, due: Instant) {
        if let Some(turn) = self.turns.get_mut(view) {
            *turn = Turn { due, not_before: due };
        }
    }
}

const LEAST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn follow(schedule: &mut Schedule, views: &[&str], now: Instant, random: f64) {
        schedule.follow(views.iter().map(|view| Arc::from(*view)), now, || random);
    }

    #[test]
    fn each_view_has_its_turn_once_in_an_interval_and_the_first_one_in_half_of_it() {
        let (start, mut schedule) = (Instant::now(), Schedule::every(60 * MINUTE));
        follow(&mut schedule, &["a"], start, 0.5);
        follow(&mut schedule, &["a", "b"], start, 1.0);
        assert_eq!(schedule.next(start + 14 * MINUTE), None);
        let first = schedule.next(start + 31 * MINUTE).unwrap();
        assert_eq!(&*first, "a", "it is due for longer");
        schedule.note_audit(&first, start + 31 * MINUTE);
        let second = schedule.next(start + 31 * MINUTE).unwrap();
        assert_eq!(&*second, "b");
        schedule.note_not_now(&second, start + 31 * MINUTE);
        assert_eq!(schedule.next(start + 31 * MINUTE), None);
        assert_eq!(schedule.next(start + 32 * MINUTE).as_deref(), Some("b"));
        schedule.note_unfinished(&second, start + 32 * MINUTE);
        assert_eq!(schedule.next(start + 39 * MINUTE), None);
        assert_eq!(schedule.next(start + 40 * MINUTE).as_deref(), Some("b"));
        follow(&mut schedule, &["a"], start + 40 * MINUTE, 0.0);
        assert_eq!(schedule.next(start + 90 * MINUTE), None, "the other one has ended");
        assert_eq!(schedule.next(start + 91 * MINUTE).as_deref(), Some("a"));
    }

    #[test]
    fn whose_audit_is_due_for_longest_goes_first_whatever_its_name() {
        let (start, mut schedule) = (Instant::now(), Schedule::every(60 * MINUTE));
        follow(&mut schedule, &["b"], start, 0.5);
        follow(&mut schedule, &["a", "b", "c"], start, 1.0);
        assert_eq!(schedule.next(start + 31 * MINUTE).as_deref(), Some("b"));
    }

    #[test]
    fn a_view_that_cannot_be_audited_now_keeps_its_place() {
        let (start, mut schedule) = (Instant::now(), Schedule::every(60 * MINUTE));
        follow(&mut schedule, &["large"], start, 0.5);
        follow(&mut schedule, &["large", "a"], start, 1.0);
        let at = |minute: u32| start + minute * MINUTE;
        schedule.note_not_now(&"large".into(), at(29));
        assert_eq!(schedule.next(at(29)), None);
        schedule.note_not_now(&"large".into(), at(30));
        assert_eq!(schedule.next(at(30)).as_deref(), Some("a"), "the others go on meanwhile");
        assert_eq!(schedule.next(at(31)).as_deref(), Some("large"), "it is due for longer");
        schedule.note_audit(&"large".into(), at(31));
        assert_eq!(schedule.next(at(31)).as_deref(), Some("a"));
    }
}
