//! Names that clients want and that have no room in a request to a server.

use std::time::Instant;

use super::ViewTask;
use crate::relay::limit::Limit;

impl ViewTask {
    /// Counts and logs the names that were left out of the last requests. Clients decide how often that is.
    pub(super) fn note_left_out(&mut self) {
        let view = self.view_id.as_str();
        for (id, stream) in self.sources.streams() {
            for (kind, count) in stream.take_left_out() {
                self.limits.reached(Limit::MaxRequestBytes);
                let Some(unlogged) = self.left_out_lines.line(Instant::now()) else { continue };
                let server = self.connectors[id.server].describe();
                tracing::warn!(view, server, type_url = kind.name(), count, unlogged, "names left out of a request");
            }
        }
    }
}
