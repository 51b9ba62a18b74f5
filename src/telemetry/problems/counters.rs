//! Problems that are counted when they happen. They exist while the count rises.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::problems::{ProblemKind, Sighting};

/// Counts, and whether they rise.
#[derive(Default)]
pub(super) struct Rising(BTreeMap<&'static str, Count>);

struct Count {
    value: u64,
    /// When the count last rose, and by how much since it was last at rest.
    rose: Option<(Instant, u64)>,
}

impl Rising {
    /// Returns by how much a count has risen since it was last at rest. Its value at the first call is from before, and does not count.
    fn note(&mut self, of: &'static str, value: u64, now: Instant) -> Option<u64> {
        let count = self.0.entry(of).or_insert(Count { value, rose: None });
        let more = value.saturating_sub(count.value);
        count.value = value;
        count.rose = count.rose.filter(|(at, _)| more > 0 || now.saturating_duration_since(*at) < REST);
        if more > 0 {
            let before = count.rose.map_or(0, |(_, by)| by);
            count.rose = Some((now, before + more));
        }
        count.rose.map(|(_, by)| by)
    }

    pub(super) fn limits(&mut self, counts: impl Iterator<Item = (&'static str, u64)>, now: Instant) -> Vec<Sighting> {
        let risen = counts.filter_map(|(key, value)| self.note(key, value, now).map(|by| (key, by)));
        let of = |(key, by): (&'static str, u64)| {
            let kind = ProblemKind::LimitReached;
            let sighting = Sighting::new(kind, key, "docs/limits.md says what clients get")
                .with(NEW_ONES_REFUSED, &["weir", "top"]);
            Sighting { clients: 0, times: by, ..sighting }
        };
        risen.map(of).collect()
    }

    pub(super) fn log_lines(&mut self, dropped: u64, now: Instant) -> Option<Sighting> {
        let by = self.note("log", dropped, now)?;
        let kind = ProblemKind::LogDropped;
        let reason = "what reads the log is too slow, or the log cannot be written";
        let sighting = Sighting::new(kind, "log", reason).with("nothing", &["weir", "problems", "--watch"]);
        Some(Sighting { times: by, ..sighting })
    }
}

const NEW_ONES_REFUSED: &str = "what goes beyond the limit is refused or waits";
/// How long a count must not rise to be at rest.
const REST: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_is_a_problem_while_it_rises_and_three_seconds_longer() {
        let (mut rising, start) = (Rising::default(), Instant::now());
        let mut at = |second: u64, value| rising.note("a", value, start + Duration::from_secs(second));
        assert_eq!(at(0, 7), None, "that was before");
        assert_eq!(at(1, 7), None);
        assert_eq!((at(2, 9), at(3, 10), at(5, 10), at(6, 10)), (Some(2), Some(3), Some(3), None));
        assert_eq!(at(9, 11), Some(1), "anew");
    }
}
