//! Limits the log lines of events that a peer can repeat at any rate.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Selects which of many similar events are logged: the first few in each window of time.
#[derive(Debug)]
pub(crate) struct LogPace {
    lines: u32,
    window: Duration,
    state: Mutex<PaceState>,
}

#[derive(Debug, Default)]
struct PaceState {
    began: Option<Instant>,
    lines: u32,
    /// The number of events that were not logged since the last one that was.
    unlogged: u64,
}

impl LogPace {
    /// Five lines a minute, for one client. That is more than one needs that NACKs a resource each time a server sends it again.
    pub(crate) fn of_client() -> Self {
        Self { lines: 5, window: Duration::from_secs(60), state: Mutex::default() }
    }

    /// One line a minute, for a condition that may last long.
    pub(crate) fn once_a_minute() -> Self {
        Self { lines: 1, window: Duration::from_secs(60), state: Mutex::default() }
    }

    /// Ten lines a minute, for all warnings of libraries.
    pub(crate) fn of_libraries() -> Self {
        Self { lines: 10, window: Duration::from_secs(60), state: Mutex::default() }
    }

    /// Twenty lines a second, for all clients.
    pub(crate) fn of_process() -> Self {
        Self { lines: 20, window: Duration::from_secs(1), state: Mutex::default() }
    }

    /// Counts an event. Returns `Some` if it is to be logged, with the number of events before it that were not.
    pub(crate) fn line(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| now.saturating_duration_since(began) >= self.window) {
            (state.began, state.lines) = (Some(now), 0);
        }
        if state.lines == self.lines {
            state.unlogged += 1;
            return None;
        }
        state.lines += 1;
        Some(std::mem::take(&mut state.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_alike_events_of_a_client_have_lines_in_a_minute_and_the_next_line_counts_the_rest() {
        let (pace, start) = (LogPace::of_client(), Instant::now());
        let minute = Duration::from_secs(60);
        let lines = (0..1000).filter(|_| pace.line(start).is_some()).count();
        assert_eq!(lines, 5);
        assert_eq!(pace.line(start + minute), Some(995));
        assert_eq!(pace.line(start + minute), Some(0));
    }
}
