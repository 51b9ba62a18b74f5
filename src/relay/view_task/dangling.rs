//! The clusters that routing leads to and the view lacks.

use super::ViewTask;
use crate::relay::report::DanglingClusters;

impl ViewTask {
    pub(super) fn dangling(&self) -> DanglingClusters {
        let now = self.clock.now();
        let clusters =
            self.view.dangling().take(MAX_SHOWN).map(|(name, since)| (name.clone(), (now - since).as_secs()));
        DanglingClusters {
            view: self.view_id.clone(),
            clusters: clusters.collect(),
            state: self.view.snapshot().clone(),
        }
    }
}

/// The largest number of dangling clusters in a report.
const MAX_SHOWN: usize = 1_000;
