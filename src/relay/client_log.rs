//! Log lines about client streams: one for each that opens or ends; beyond ten a second, one line a second with the counts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct ClientLog {
    second: Mutex<Second>,
}

/// The events of one second.
#[derive(Debug, Default)]
struct Second {
    began: Option<Instant>,
    lines: u32,
    opened: u64,
    ended: u64,
}

/// The log lines of one client stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamLine<'a> {
    pub(crate) session: u64,
    pub(crate) node: &'a str,
    pub(crate) peer: &'a str,
    pub(crate) view: &'a str,
    pub(crate) variant: &'a str,
}

impl ClientLog {
    pub(crate) fn stream_opened(self: &Arc<Self>, line: StreamLine<'_>) {
        if self.is_worth_a_line(|second| second.opened += 1) {
            let StreamLine { session, node, peer, view, variant } = line;
            tracing::info!(session, node, peer, view, variant, "client stream opened");
        }
    }

    pub(crate) fn stream_ended(self: &Arc<Self>, line: StreamLine<'_>) {
        if self.is_worth_a_line(|second| second.ended += 1) {
            let StreamLine { session, node, peer, view, .. } = line;
            tracing::info!(session, node, peer, view, "client stream ended");
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

const SECOND: Duration = Duration::from_secs(1);
const MOST_LINES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

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
}
