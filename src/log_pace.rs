//! How many log lines events have that a peer may repeat as fast as it can.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Which of many alike events are logged: the first few of each window of time.
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
    /// Events without a line since the last one that had one.
    unlogged: u64,
}

impl LogPace {
    /// Five lines a minute, for one client. One that NACKs what a server sends again does so less often.
    pub(crate) fn of_client() -> Self {
        Self { lines: 5, window: Duration::from_secs(60), state: Mutex::default() }
    }

    /// One line a minute, for what may go on for long.
    pub(crate) fn once_a_minute() -> Self {
        Self { lines: 1, window: Duration::from_secs(60), state: Mutex::default() }
    }

    /// Ten lines a minute, for all that the libraries warn of.
    pub(crate) fn of_libraries() -> Self {
        Self { lines: 10, window: Duration::from_secs(60), state: Mutex::default() }
    }

    /// Twenty lines a second, for all clients.
    pub(crate) fn of_process() -> Self {
        Self { lines: 20, window: Duration::from_secs(1), state: Mutex::default() }
    }

    /// Counts an event. `Some`: it is worth a line, which says how many before it had none.
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
