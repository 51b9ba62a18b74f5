//! The options of upstream streams, with their defaults.

use std::time::Duration;

/// Waiting times of one stream to a server.
#[derive(Debug, Clone)]
pub struct UpstreamOptions {
    /// Quiet time after which a set that arrives in several responses is sent to clients without state.
    pub settle_fresh: Duration,
    /// Quiet time after which a set may have ended. Weir then requests again what clients hold and the set lacks.
    pub settle_stated: Duration,
    /// How long a live server has to stay silent after a second request for a resource, until clients that hold it lose it.
    pub second_silence: Duration,
    /// Time after a request in which changes of interest are merged into the next one.
    pub interest_window: Duration,
    /// Time without a response after which a name requested upstream counts as absent.
    pub resource_timer: Duration,
    /// How many ACKs and NACKs may be queued per type. Beyond it the oldest is dropped.
    pub pending_answers: usize,
    /// How many names per type are remembered because their entries were unusable. Beyond it Weir only remembers that there were more.
    pub rejected_names: usize,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            settle_fresh: Duration::from_millis(500),
            settle_stated: Duration::from_secs(5),
            second_silence: Duration::from_secs(120),
            interest_window: Duration::from_millis(20),
            resource_timer: Duration::from_secs(15),
            pending_answers: 1024,
            rejected_names: 1024,
        }
    }
}
