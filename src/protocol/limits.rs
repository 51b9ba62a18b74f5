//! The bounds, timers and options of the pure layers, with their defaults.

use std::time::Duration;

use super::faults::Faults;
use super::view::BrakeRules;

/// Bounds and timers of sessions, views and upstream streams.
#[derive(Debug, Clone)]
pub struct Limits {
    /// States that sessions of one view may keep alive besides the newest.
    pub leased_states: usize,
    /// A lease without progress for this long may be revoked.
    pub lease_patience: Duration,
    /// How long a SotW reply without an ACK or NACK delays the next change of its type.
    pub ack_patience: Duration,
    /// How long forced endpoints wait for an endpoint change that came with the cluster's change.
    pub forced_endpoints_after: Duration,
    /// How long, in total, a routing change waits for the endpoints of clusters that were just sent.
    pub routing_hold: Duration,
    /// The longest time that a cluster stays after upstream removed it, while routing refers to it. Zero: it is removed at once, and routing
    /// does not wait for clusters.
    pub reference_hold: Duration,
    /// How long routes wait for clusters that are not all known, and removals for routing that is not all known: longer than any timer
    /// that may make them known.
    pub clusters_timeout: Duration,
    /// Quiet time after which a set that arrives in several responses is sent to clients without state.
    pub settle_fresh: Duration,
    /// Quiet time after which a set may have ended; Weir then requests again what clients hold beyond it.
    pub settle_stated: Duration,
    /// How long a live server has to stay silent, after a second request, about a resource that clients hold.
    pub second_silence: Duration,
    /// Remembered versions of a `*` set: a client that reconnects with one of them holds nothing outside of that set.
    pub past_versions: usize,
    /// Unknown names per type that clients hold and Weir requests from the server.
    pub sought_names: usize,
    /// Bytes of the removals that the `*` tables of a view remember; a session further behind starts over.
    pub history_bytes: usize,
    /// How long a removal is remembered for sessions that are behind.
    pub history_age: Duration,
    /// Bytes of removed bodies kept for replies that still have to contain the union.
    pub tombstone_bytes: usize,
    /// How long a removed body is kept.
    pub tombstone_age: Duration,
    /// How long interest lasts after the last session that had it.
    pub linger: Duration,
    /// Subscriptions of a view without a session that are kept. Beyond it the oldest end.
    pub lingering: usize,
    /// Sent replies remembered per session and type.
    pub answers: usize,
    /// Size at which a delta reply is split.
    pub reply_bytes: usize,
    /// Time after a request in which changes of interest are merged into the next one.
    pub interest_window: Duration,
    /// Time without a response after which a name requested upstream counts as absent.
    pub resource_timer: Duration,
    /// Responses that may be pending per type of an upstream stream; beyond it the oldest are given up.
    pub pending_answers: usize,
    /// Names per type of a stream that are remembered because their entries were unusable. Beyond it Weir only remembers that there were
    /// more.
    pub rejected_names: usize,
    /// Types that one session may subscribe to.
    pub types: usize,
    /// Names that one session may subscribe to per type.
    pub names: usize,
    /// Names of all types that one session may subscribe to, or state that it holds.
    pub names_per_stream: usize,
    /// Names that the sessions of one view may subscribe to, those that linger included.
    pub names_per_view: usize,
    /// The bytes of all resources. Above it new names have no room, and nothing lingers.
    pub cached_bytes: usize,
    /// Absent names that one session may subscribe to. Beyond it, names that only this session wants do not trigger fallback.
    pub absent_names_per_stream: usize,
    /// Bytes of an error text that are stored or sent.
    pub error_bytes: usize,
    /// How long a single fetch waits for an unknown resource.
    pub fetch_timeout: Duration,
    /// Closes the stream of a new gRPC client when no server is reachable and the cache has nothing for it, so that the client tries its
    /// next server.
    pub grpc_fail_fast: bool,
    /// Which removals are held, and for how long.
    pub brakes: BrakeRules,
    /// Rules that tests break on purpose; none in the program.
    pub faults: Faults,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            leased_states: 4,
            lease_patience: Duration::from_secs(1),
            ack_patience: Duration::from_millis(500),
            forced_endpoints_after: Duration::from_millis(100),
            routing_hold: Duration::from_secs(2),
            reference_hold: Duration::from_secs(5),
            clusters_timeout: Duration::from_secs(20),
            settle_fresh: Duration::from_millis(500),
            settle_stated: Duration::from_secs(5),
            second_silence: Duration::from_secs(120),
            past_versions: 32,
            sought_names: 100_000,
            history_bytes: 64 << 20,
            history_age: Duration::from_secs(600),
            tombstone_bytes: 16 << 20,
            tombstone_age: Duration::from_secs(60),
            linger: Duration::from_secs(30),
            lingering: 100_000,
            answers: 8,
            reply_bytes: 2 << 20,
            interest_window: Duration::from_millis(20),
            resource_timer: Duration::from_secs(15),
            pending_answers: 1024,
            rejected_names: 1024,
            types: 64,
            names: 100_000,
            names_per_stream: 500_000,
            names_per_view: 1_000_000,
            cached_bytes: 4 << 30,
            absent_names_per_stream: 100,
            error_bytes: 4096,
            fetch_timeout: Duration::from_secs(5),
            grpc_fail_fast: true,
            brakes: BrakeRules::default(),
            faults: Faults::NONE,
        }
    }
}

/// Returns the text of a peer, cut to at most `limit` bytes.
pub(crate) fn truncate(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
