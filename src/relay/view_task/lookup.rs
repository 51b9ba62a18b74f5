//! The snapshot of a view for `/resources`.

use super::ViewTask;
use crate::relay::report::ViewSnapshot;

impl ViewTask {
    pub(super) fn view_snapshot(&self) -> ViewSnapshot {
        ViewSnapshot {
            view: self.view_id.clone(),
            snapshot: self.view.snapshot().clone(),
            servers: self.connectors.iter().map(|connector| connector.describe()).collect(),
            now: self.clock.now(),
        }
    }
}
