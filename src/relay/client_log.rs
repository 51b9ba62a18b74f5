//! Log lines about client streams: one for each that opens or ends; beyond ten a second, one line a second with the counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::traces::SpanIds;
use crate::xds::Peer;

#[derive(Debug)]
pub(crate) struct ClientLog {
    second: Mutex<Second>,
    /// For events that clients may repeat as fast as they can.
    pub(super) repeated: LogPace,
    pub(super) rejections: LogPace,
    rejected_requests: LogPace,
}

impl Default for ClientLog {
    fn default() -> Self {
        let [repeated, rejections, rejected_requests] = std::array::from_fn(|_| LogPace::of_process());
        Self { second: Mutex::default(), repeated, rejections, rejected_requests }
    }
}

/// The events of one second.
#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    lines: u32,
    opened: u64,
    ended: u64,
}

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

/// The log lines of one client stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLine<'a> {
    pub(crate) session: u64,
    pub(crate) node: &'a str,
    pub(crate) peer: &'a Peer,
    pub(crate) view: &'a str,
    pub(crate) variant: &'a str,
    /// The span of its start, while it is open.
    pub(crate) span: Option<SpanIds>,
}

impl ClientLog {
    pub(crate) fn stream_opened(self: &Arc<Self>, line: StreamLine<'_>) {
        if self.is_worth_a_line(|second| second.opened += 1) {
            let StreamLine { session, node, peer, view, variant, span } = line;
            let (trace_id, span_id) = span.map(SpanIds::texts).unzip();
            tracing::info!(session, node, %peer, view, variant, trace_id, span_id, "client stream opened");
        }
    }

    pub(crate) fn stream_ended(self: &Arc<Self>, line: StreamLine<'_>) {
        if self.is_worth_a_line(|second| second.ended += 1) {
            let StreamLine { session, node, peer, view, .. } = line;
            tracing::info!(session, node, %peer, view, "client stream ended");
        }
    }

    /// Logs why a request ended its stream, unless there were many.
    pub(crate) fn request_rejected(&self, peer: &Peer, error: &str) {
        if let Some(unlogged) = self.rejected_requests.line(Instant::now()) {
            tracing::warn!(%peer, error, unlogged, "request rejected");
        }
    }

    /// Counts an event without a line of its own. The first such event schedules a line with the counts at the end of the second.
    fn is_worth_a_line(self: &Arc<Self>, count: impl FnOnce(&mut Second)) -> bool {
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        if second.began.is_none_or(|began| began.elapsed() >= SECOND) && second.opened + second.ended == 0 {
            *second = Second { began: Some(Instant::now()), ..Second::default() };
        }
        if second.lines < MOST_LINES {
            second.lines += 1;
            return true;
        }
        let first = second.opened + second.ended == 0;
        count(&mut second);
        if first {
            let log = self.clone();
            let rest = SECOND.saturating_sub(second.began.map(|began| began.elapsed()).unwrap_or_default());
            tokio::spawn(async move {
                tokio::time::sleep(rest).await;
                let Second { opened, ended, .. } =
                    std::mem::take(&mut *log.second.lock().unwrap_or_else(PoisonError::into_inner));
                tracing::info!(opened, ended, "client streams opened and ended");
            });
        }
        false
    }
}

impl LogPace {
    /// Five lines a minute, for one client. One that NACKs what a server sends again does so less often.
    pub(super) fn of_client() -> Self {
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
    fn of_process() -> Self {
        Self { lines: 20, window: SECOND, state: Mutex::default() }
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

const SECOND: Duration = Duration::from_secs(1);
const MOST_LINES: u32 = 10;

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

    #[tokio::test]
    async fn ten_streams_a_second_have_lines_and_the_rest_are_counted_once() {
        let log = Arc::new(ClientLog::default());
        let lines = (0..1000).filter(|_| log.is_worth_a_line(|second| second.opened += 1)).count();
        assert_eq!(lines, 10);
        assert_eq!(log.second.lock().unwrap().opened, 990);
        let counted = async {
            while log.second.lock().unwrap().began.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), counted).await.expect("the counts were logged");
        assert!(log.is_worth_a_line(|second| second.opened += 1), "and a new second has lines again");
    }

    #[tokio::test]
    async fn streams_that_open_and_streams_that_end_are_counted_apart() {
        let log = Arc::new(ClientLog::default());
        let peer = Peer::at((std::net::Ipv4Addr::LOCALHOST, 1).into());
        let line = StreamLine { session: 1, node: "", peer: &peer, view: "", variant: "delta", span: None };
        (0..7).for_each(|_| log.stream_opened(line));
        (0..7).for_each(|_| log.stream_ended(line));
        log.stream_opened(line);
        let second = log.second.lock().unwrap();
        assert_eq!((second.lines, second.opened, second.ended), (10, 1, 4));
    }
}
