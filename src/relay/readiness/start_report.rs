//! Where those who ask the sources at the start report what they are told.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::OptionFuture;
use tokio::time::Instant;

use super::Readiness;

/// The question that one configuration asks. Clones are for the same one.
#[derive(Debug, Clone)]
pub(crate) struct StartReport {
    readiness: Arc<Readiness>,
    number: u64,
}

impl StartReport {
    pub(super) fn new(readiness: Arc<Readiness>, number: u64) -> Self {
        Self { readiness, number }
    }

    /// The source at this place has answered.
    pub(crate) fn answered(&self, index: usize) {
        self.readiness.state().start.answered(self.number, index);
        self.readiness.changes.send_replace(());
    }

    /// It has not, for this reason.
    pub(crate) fn failed(&self, index: usize, reason: String) {
        let reason = reason.replace(char::is_control, " "); // a server's words, in pages with a reason on each line
        self.readiness.state().start.failed(self.number, index, reason);
    }

    /// Returns when nothing is waited for any more, or the sources of another configuration are asked.
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
