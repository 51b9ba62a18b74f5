//! The polls that a relay has measured on its threads for connections, by its metrics.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Polls {
    pub measured: u64,
    /// Those that took more than a millisecond of processor time.
    pub long: u64,
    /// Those that took more than 50 milliseconds.
    #[serde(default)]
    pub very_long: u64,
}

impl Polls {
    /// Returns the polls of all threads; `None` if the page of metrics has none.
    pub fn in_metrics(page: &str) -> Option<Self> {
        let of = |name: &str, label: &str| {
            let series = page.lines().filter_map(|line| line.strip_prefix(name)?.split_once("} "));
            let values = series.filter(|(labels, _)| labels.contains(label));
            values.filter_map(|(_, value)| value.trim().parse::<u64>().ok()).reduce(|sum, count| sum + count)
        };
        let measured = of("weir_shard_poll_seconds_count{", "")?;
        let beyond = |bound: &str| {
            let within = of("weir_shard_poll_seconds_bucket{", &format!("le=\"{bound}\""));
            measured.saturating_sub(within.unwrap_or_default())
        };
        Some(Self { measured, long: beyond("0.001"), very_long: beyond("0.05") })
    }

    /// Returns those after an earlier look at the same relay.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            measured: self.measured.saturating_sub(earlier.measured),
            long: self.long.saturating_sub(earlier.long),
            very_long: self.very_long.saturating_sub(earlier.very_long),
        }
    }

    /// Returns the share of long ones.
    pub fn long_percent(self) -> f64 {
        self.long as f64 * 100.0 / self.measured.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polls_of_all_threads_are_found_in_the_metrics() {
        let page = "# TYPE weir_shard_poll_seconds histogram\n\
                    weir_shard_poll_seconds_sum{shard=\"0\"} 0.5\nweir_shard_poll_seconds_count{shard=\"0\"} 90\n\
                    weir_shard_poll_seconds_bucket{le=\"0.0005\",shard=\"0\"} 70\n\
                    weir_shard_poll_seconds_bucket{le=\"0.001\",shard=\"0\"} 80\n\
                    weir_shard_poll_seconds_bucket{le=\"0.05\",shard=\"0\"} 86\n\
                    weir_shard_poll_seconds_bucket{le=\"+Inf\",shard=\"0\"} 90\n\
                    weir_shard_poll_seconds_count{shard=\"1\"} 110\n\
                    weir_shard_poll_seconds_bucket{shard=\"1\",le=\"0.001\"} 100\n\
                    weir_shard_poll_seconds_bucket{shard=\"1\",le=\"0.05\"} 107\nweir_views 3\n";
        let polls = Polls::in_metrics(page).unwrap();
        assert_eq!(polls, Polls { measured: 200, long: 20, very_long: 7 });
        let earlier = Polls { measured: 100, long: 15, very_long: 4 };
        assert_eq!(polls.since(earlier), Polls { measured: 100, long: 5, very_long: 3 });
        assert_eq!((polls.long_percent(), Polls::default().long_percent()), (10.0, 0.0));
        assert_eq!(Polls::in_metrics("weir_views 3\n"), None, "connections have no threads of their own");
    }
}
