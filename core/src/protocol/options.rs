//! The options of all parts together.

use std::time::Duration;

use super::session::SessionOptions;
use super::upstream::UpstreamOptions;
use super::view::ViewOptions;

/// What can be configured of each part.
#[derive(Debug, Clone, Default)]
pub struct ProtocolOptions {
    /// The options of each client's session.
    pub session: SessionOptions,
    /// The options of each view.
    pub view: ViewOptions,
    /// The options of each stream to a server.
    pub upstream: UpstreamOptions,
}

impl ProtocolOptions {
    /// Returns these options with a change.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sets how long a removed cluster stays while routing refers to it. A client that has NACKed its routing keeps its clusters as long, but
    /// never longer than their removals and bodies are remembered.
    pub fn hold_referenced(&mut self, reference_hold: Duration) {
        self.view.reference_hold = reference_hold;
        self.session.nacked_routing_hold = reference_hold.min(self.view.history_age).min(self.view.tombstone_age);
    }
}
