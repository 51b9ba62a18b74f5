//! How large a set was when the sliding window began, from the few changes of its size.

use std::collections::VecDeque;
use std::time::Duration;

use crate::protocol::moment::Moment;

/// The sizes of one set over the window. The start of the window moves on in steps.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Window {
    /// Steps in which the size changed, each with the size at its beginning.
    steps: VecDeque<(u64, usize)>,
    /// When the set was first known. What comes before that, and a little after it, fills it and is no growth; a loss is one at any time.
    begun: Option<Moment>,
}

/// The steps of a window.
const STEPS: u128 = 60;
/// How long a set that was first known may still fill.
const FILLING: Duration = Duration::from_secs(30);

impl Window {
    pub(crate) fn begin(&mut self, now: Moment) {
        self.begun.get_or_insert(now);
    }

    /// The size was `before` and is `after` from now on.
    pub(crate) fn record(&mut self, before: usize, after: usize, now: Moment, length: Duration) {
        let step = step_of(now - Moment::START, length);
        self.drop_old(now, length);
        let fills = self.begun.is_none_or(|begun| now - begun < FILLING);
        if fills && after > before {
            return;
        }
        if self.steps.back().is_none_or(|(last, _)| *last < step) {
            self.steps.push_back((step, before));
        }
    }

    /// Returns the size at the beginning of the window. `size` is the present one.
    pub(crate) fn start_size(&mut self, size: usize, now: Moment, length: Duration) -> usize {
        self.drop_old(now, length);
        self.steps.front().map_or(size, |(_, size)| *size)
    }

    /// A resource went by itself, and does not count as removed.
    pub(crate) fn forget_one(&mut self) {
        self.steps.iter_mut().for_each(|(_, size)| *size = size.saturating_sub(1));
    }

    /// What was removed so far was meant.
    pub(crate) fn restart(&mut self) {
        self.steps.clear();
    }

    fn drop_old(&mut self, now: Moment, length: Duration) {
        let start = step_of((now - Moment::START).saturating_sub(length), length);
        while self.steps.front().is_some_and(|(step, _)| *step < start) {
            self.steps.pop_front();
        }
    }

    /// Returns the sizes with how long ago each was.
    pub(crate) fn ages(&self, now: Moment, length: Duration) -> Vec<(Duration, usize)> {
        let since = |step: u64| now - (Moment::START + step_length(length) * u32::try_from(step).unwrap_or(u32::MAX));
        self.steps.iter().map(|(step, size)| (since(*step), *size)).collect()
    }

    /// The opposite of [`Self::ages`]. What was before the start of this process counts as of then.
    pub(crate) fn of_ages(ages: &[(Duration, usize)], now: Moment, length: Duration) -> Self {
        let mut steps: VecDeque<(u64, usize)> = VecDeque::new();
        for (age, size) in ages.iter().take(STEPS as usize + 1) {
            let step = step_of((now - Moment::START).saturating_sub(*age), length);
            if steps.back().is_none_or(|(last, _)| *last < step) {
                steps.push_back((step, *size));
            }
        }
        Self { steps, begun: Some(Moment::START) }
    }
}

fn step_length(length: Duration) -> Duration {
    Duration::from_micros(u64::try_from((length.as_micros() / STEPS).max(1)).unwrap_or(u64::MAX))
}

fn step_of(since_start: Duration, length: Duration) -> u64 {
    u64::try_from(since_start.as_micros() / step_length(length).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(1000 + seconds)
    }

    fn begun() -> Window {
        Window { begun: Some(Moment::START), ..Window::default() }
    }

    #[test]
    fn the_start_is_the_size_when_the_window_began() {
        let mut window = begun();
        window.record(100, 99, at(0), LENGTH);
        window.record(99, 98, at(30), LENGTH);
        assert_eq!(window.start_size(98, at(59), LENGTH), 100);
        assert_eq!(window.start_size(98, at(61), LENGTH), 99, "the first change is out of the window");
        assert_eq!(window.start_size(98, at(91), LENGTH), 98, "both are");
    }

    #[test]
    fn a_set_that_fills_has_no_start_yet() {
        let mut window = Window::default();
        window.record(0, 40, at(0), LENGTH);
        assert_eq!(window.start_size(40, at(1), LENGTH), 40);
        let mut early = window.clone();
        early.record(40, 30, at(1), LENGTH);
        assert_eq!(early.start_size(30, at(1), LENGTH), 40, "a loss before the set is known counts too");
        window.begin(at(1));
        window.record(40, 80, at(2), LENGTH);
        assert_eq!(window.start_size(80, at(3), LENGTH), 80, "a further piece");
        window.record(80, 10, at(4), LENGTH);
        assert_eq!(window.start_size(10, at(5), LENGTH), 80, "a loss counts at once");
    }

    #[test]
    fn later_growth_counts() {
        let mut window = begun();
        window.record(10, 20, at(0), LENGTH);
        window.record(20, 10, at(10), LENGTH);
        assert_eq!(window.start_size(10, at(20), LENGTH), 10, "what came in the window and went in it is no loss");
    }

    #[test]
    fn any_number_of_changes_keeps_few_steps() {
        let mut window = begun();
        for millis in 0..600_000 {
            window.record(1000, 999, Moment::START + Duration::from_millis(millis), LENGTH);
        }
        assert!(window.steps.len() <= 61, "{}", window.steps.len());
    }

    #[test]
    fn what_expires_is_not_lost() {
        let mut window = begun();
        window.record(10, 9, at(0), LENGTH);
        window.forget_one();
        assert_eq!(window.start_size(9, at(1), LENGTH), 9);
    }

    #[test]
    fn ages_restore_a_window_in_another_process() {
        let mut window = begun();
        window.record(100, 80, at(0), LENGTH);
        window.record(80, 70, at(20), LENGTH);
        let ages = window.ages(at(25), LENGTH);
        assert_eq!(ages, [(Duration::from_secs(25), 100), (Duration::from_secs(5), 80)]);
        let mut restored = Window::of_ages(&ages, at(5000), LENGTH);
        assert_eq!(restored.start_size(70, at(5000), LENGTH), 100);
        assert_eq!(restored.start_size(70, at(5040), LENGTH), 80);
    }
}
