//! The progress of a run of clients, as a line of text.

use std::fmt;
use std::time::Duration;

use super::counters::Counters;

/// What is shown while clients run.
pub struct Progress<'a> {
    pub elapsed: Duration,
    pub duration: Duration,
    /// The number of clients that the run should have.
    pub clients: usize,
    pub counters: &'a Counters,
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { elapsed, duration, clients, counters } = self;
        let left = duration.saturating_sub(*elapsed).as_secs_f64();
        write!(f, "{:.0} s, {left:.0} s left: ", elapsed.as_secs_f64())?;
        write!(f, "{} of {} synced, ", counters.synced.value(), plural(*clients as u64, "client"))?;
        write!(f, "{} open, ", plural(counters.connected.value(), "connection"))?;
        write!(f, "{}, ", plural(counters.changes.value(), "change"))?;
        write!(f, "{} MiB, ", counters.bytes.value() >> 20)?;
        write!(f, "{}", plural(counters.violations.value(), "violation"))?;
        let errors = counters.errors.counted();
        errors.first().map_or(Ok(()), |(first, count)| write!(f, "; {count} x {first}"))
    }
}

/// Returns a number with its noun.
pub fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_how_much_time_is_left_and_what_goes_wrong() {
        let counters = Counters::default();
        (0..3).for_each(|_| counters.synced.increase());
        counters.connected.increase();
        counters.bytes.add(5 << 20);
        let (elapsed, duration) = (Duration::from_secs(5), Duration::from_secs(30));
        let shown = || Progress { elapsed, duration, clients: 4, counters: &counters }.to_string();
        let expected = "5 s, 25 s left: 3 of 4 clients synced, 1 connection open, 0 changes, 5 MiB, 0 violations";
        assert_eq!(shown(), expected);
        counters.errors.count("Connection refused (127.0.0.1:1)");
        assert_eq!(shown(), format!("{expected}; 1 x Connection refused (127.0.0.1:1)"));
    }
}
