//! The options of views, with their defaults.

use std::time::Duration;

use super::brake::rules::BrakeRules;

/// Bounds and waiting times of one view.
#[derive(Debug, Clone)]
pub struct ViewOptions {
    /// Snapshots that sessions may keep alive besides the newest.
    pub leased_states: usize,
    /// A lease without progress for this long may be revoked.
    pub lease_patience: Duration,
    /// The longest time that a cluster stays after upstream removed it, while routing refers to it. Zero: it is removed at once, and routing
    /// does not wait for clusters.
    pub reference_hold: Duration,
    /// The longest time that a change of routing waits for a cluster that the server has sent and for which there is no room.
    pub clusters_timeout: Duration,
    /// Unknown names per type that clients hold and Weir requests from the server.
    pub sought_names: usize,
    /// Bytes of the removals that the `*` tables remember; a session further behind starts over.
    pub history_bytes: usize,
    /// How long a removal is remembered for sessions that are behind.
    pub history_age: Duration,
    /// Bytes of removed bodies kept for replies that still have to contain the union.
    pub tombstone_bytes: usize,
    /// How long a removed body is kept.
    pub tombstone_age: Duration,
    /// Remembered versions of a `*` set: a client that reconnects with one of them holds nothing outside of that set.
    pub past_versions: usize,
    /// How long interest lasts after the last session that had it.
    pub linger: Duration,
    /// How many subscriptions without a session are kept. Above this number, the oldest of them end.
    pub lingering: usize,
    /// Names that the sessions may subscribe to, those that linger included.
    pub names_per_view: usize,
    /// The bytes of all resources. Above it new names have no room, and nothing lingers.
    pub cached_bytes: usize,
    /// Absent names that one session may subscribe to. Beyond it, names that only this session wants do not trigger fallback.
    pub absent_names_per_stream: usize,
    /// Which removals are held, and for how long.
    pub brakes: BrakeRules,
}

impl Default for ViewOptions {
    fn default() -> Self {
        Self {
            leased_states: 4,
            lease_patience: Duration::from_secs(1),
            reference_hold: Duration::from_secs(5),
            clusters_timeout: Duration::from_secs(20),
            sought_names: 100_000,
            history_bytes: 64 << 20,
            history_age: Duration::from_secs(600),
            tombstone_bytes: 16 << 20,
            tombstone_age: Duration::from_secs(60),
            past_versions: 32,
            linger: Duration::from_secs(30),
            lingering: 100_000,
            names_per_view: 1_000_000,
            cached_bytes: 4 << 30,
            absent_names_per_stream: 100,
            brakes: BrakeRules::default(),
        }
    }
}
