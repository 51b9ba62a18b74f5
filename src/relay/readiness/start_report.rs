//! Where those who ask the sources at the start report what they are told.

use std::sync::Arc;

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
        self.readiness.state().start.failed(self.number, index, reason);
    }

    /// Returns when nothing is waited for any more, or the sources of another configuration are asked.
    pub(crate) async fn is_over(&self) {
        let mut changes = self.readiness.changes.subscribe();
        while self.is_waiting() {
            let _ = changes.changed().await; // the readiness keeps the sender alive
        }
    }

    fn is_waiting(&self) -> bool {
        let mut state = self.readiness.state();
        !state.is_draining() && state.start.is_asking(self.number) && !state.start.is_over(Instant::now())
    }
}
