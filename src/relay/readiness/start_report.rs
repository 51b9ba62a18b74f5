//! Receives the answers of the sources that are asked at the start.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use tokio::time::Instant;

use super::Readiness;

/// The question of one configuration. Clones belong to the same question.
#[derive(Debug, Clone)]
pub(crate) struct StartReport {
    readiness: Arc<Readiness>,
    number: u64,
}

impl StartReport {
    pub(super) fn new(readiness: Arc<Readiness>, number: u64) -> Self {
        Self { readiness, number }
    }

    /// Reports that the source at this place has answered.
    pub(crate) fn answered(&self, index: usize) {
        self.readiness.state().start.answered(self.number, index);
        self.readiness.changes.send_replace(());
    }

    /// Reports why the source at this place has not answered.
    pub(crate) fn failed(&self, index: usize, reason: String) {
        let reason = reason.replace(char::is_control, " "); // text of a server, for pages with one reason on each line
        self.readiness.state().start.failed(self.number, index, reason);
    }

    /// Waits until no answer is needed any more, or the sources of another configuration are asked.
    pub(crate) async fn is_over(&self) {
        let mut changes = self.readiness.changes.subscribe();
        loop {
            let deadline = {
                let (mut state, now) = (self.readiness.state(), Instant::now());
                if state.is_draining() || !state.start.is_asking(self.number) || state.start.is_over(now) {
                    return;
                }
                state.next_deadline(now)
            };
            tokio::select! {
                _ = changes.changed() => {} // the readiness keeps the sender alive
                () = OptionFuture::from(deadline.map(tokio::time::sleep_until)).map(drop), if deadline.is_some() => {}
            }
        }
    }
}
