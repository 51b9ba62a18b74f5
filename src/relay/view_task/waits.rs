//! What waits in a view, and for its servers.

use super::ViewTask;
use crate::protocol::wait::{Wait, WaitList};
use crate::relay::report::ViewWaits;
use crate::xds::{Name, Type};

impl ViewTask {
    /// Returns all waits but those of sessions, with so many of the oldest.
    pub(super) fn waits(&self, limit: usize) -> ViewWaits {
        let mut list = WaitList::keeping(limit);
        self.add_waits(&mut list);
        let servers = self.connectors.iter().map(|server| server.describe()).collect();
        ViewWaits { view: self.view_id.clone(), servers, list }
    }

    /// Returns the waits that concern a name.
    pub(super) fn waits_of(&self, kind: &Type, name: &Name) -> Vec<Wait> {
        let mut list = WaitList::about(kind, name);
        self.add_waits(&mut list);
        list.into_oldest()
    }

    fn add_waits(&self, list: &mut WaitList) {
        let now = self.clock.now();
        self.sources.add_waits(&self.view, now, list);
        self.view.add_waits(now, list);
    }
}
