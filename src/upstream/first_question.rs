//! Asks each source at the start whether the relay could serve a client from it. The question is repeated until one source could.

use std::time::Duration;

use weir_core::protocol::upstream::{Backoff, BackoffTimes};

use super::{AdsConnector, FilesSource, RestConnector};
use crate::random::random;
use crate::relay::StartReport;

/// A source that is asked.
#[derive(Clone)]
pub(crate) enum FirstQuestion {
    Ads(AdsConnector),
    Rest(RestConnector),
    Files(FilesSource),
}

impl FirstQuestion {
    /// Asks at least once, and again until the source has answered or no answer is waited for any more. Its connection is kept open for `keep`.
    pub(crate) async fn ask(self, index: usize, report: StartReport, keep: Duration) {
        let (mut backoff, mut attempt) = (Backoff::new(TIMES), 0);
        loop {
            match self.ask_once(attempt, &report, keep).await {
                Ok(()) => return report.answered(index),
                Err(reason) => report.failed(index, reason),
            }
            attempt += 1;
            tokio::select! {
                () = tokio::time::sleep(backoff.next(random())) => {}
                () = report.is_over() => return,
            }
        }
    }

    async fn ask_once(&self, attempt: usize, report: &StartReport, keep: Duration) -> Result<(), String> {
        match self {
            Self::Ads(connector) => connector.first_answer(attempt, keep).await,
            Self::Rest(connector) => connector.first_answer().await,
            // A disk may hang for ever.
            Self::Files(files) => tokio::select! {
                answer = files.first_answer() => answer,
                () = report.is_over() => Err("no answer is awaited any more".into()),
            },
        }
    }
}

/// The pause between two questions. Many relays may start at once, and while a relay asks, no client is sent to it.
const TIMES: BackoffTimes = BackoffTimes {
    initial: Duration::from_millis(250),
    factor: 1.6,
    max: Duration::from_secs(5),
    jitter: 0.2,
    reset_after: Duration::from_secs(30),
};
