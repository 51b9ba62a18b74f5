//! Every bound, waiting time and choice of the pure layers, by name and with its default.

use std::time::Duration;

use super::faults::Faults;

/// Bounds and waiting times of sessions, views and upstream streams.
#[derive(Debug, Clone)]
pub struct Limits {
    /// States that sessions of one view may keep alive besides the newest.
    pub leased_states: usize,
    /// A lease without progress for this long may be taken away.
    pub lease_patience: Duration,
    /// How long a SotW reply without an answer keeps the next change of its type back.
    pub ack_patience: Duration,
    /// How long forced endpoints wait for a change of theirs that came with the cluster's.
    pub forced_endpoints_after: Duration,
    /// How long, in total, a change of routing waits for the endpoints of clusters just sent.
    pub routing_hold: Duration,
    /// How long a cluster that upstream took away stays at most while something leads to it. Zero: not at all, and no routing waits
    /// for clusters either.
    pub reference_hold: Duration,
    /// How long routes wait for clusters that are not all known: more than any timer that may make them known.
    pub clusters_timeout: Duration,
    /// Quiet time after which a set that comes in pieces is given to clients that hold nothing.
    pub settle_fresh: Duration,
    /// Quiet time after which a set may be at its end, so that what somebody holds beyond it is requested once more.
    pub settle_stated: Duration,
    /// How long a server that is there has to be silent, asked a second time, about what somebody holds.
    pub second_silence: Duration,
    /// Versions of a `*` set that are remembered, so that a client that comes back with one is known to hold nothing else.
    pub past_versions: usize,
    /// Names per type that somebody holds, nothing is known of, and that are requested of the server.
    pub sought_names: usize,
    /// Removed names that a `*` table remembers; a session further behind starts over.
    pub tombstones: usize,
    /// Bytes of removed bodies kept for replies that must still hold the union.
    pub tombstone_bytes: usize,
    /// How long a removal is remembered.
    pub tombstone_age: Duration,
    /// How long interest outlives the last session that had it.
    pub linger: Duration,
    /// Sent replies that are remembered per session and type.
    pub answers: usize,
    /// Size at which a delta answer is cut into pieces.
    pub reply_bytes: usize,
    /// Time after a request in which changes of interest are merged into the next one.
    pub interest_window: Duration,
    /// Time without an answer after which a name requested upstream is held not to exist.
    pub resource_timer: Duration,
    /// Answers that an upstream server may be owed per type before the oldest are given up.
    pub owed_answers: usize,
    /// Names per type of a stream that are remembered because what came under them could not be used. Beyond it only that there
    /// are more.
    pub rejected_names: usize,
    /// Types that one session may request.
    pub types: usize,
    /// Names that one session may request of one type.
    pub names: usize,
    /// Names that nobody has which one session may request. Beyond it, what it requests is no reason to turn to the next server.
    pub absent_names_per_stream: usize,
    /// Bytes of an error text that are kept or sent.
    pub error_bytes: usize,
    /// How long a single fetch waits for what is not known yet.
    pub fetch_timeout: Duration,
    /// A new gRPC client that nothing can be given because no server is reachable is ended, so that it turns to its next one.
    pub grpc_fail_fast: bool,
    /// Rules that tests break on purpose; none in a release.
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
            tombstones: 4096,
            tombstone_bytes: 16 << 20,
            tombstone_age: Duration::from_secs(60),
            linger: Duration::from_secs(30),
            answers: 8,
            reply_bytes: 2 << 20,
            interest_window: Duration::from_millis(20),
            resource_timer: Duration::from_secs(15),
            owed_answers: 1024,
            rejected_names: 1024,
            types: 64,
            names: 100_000,
            absent_names_per_stream: 100,
            error_bytes: 4096,
            fetch_timeout: Duration::from_secs(5),
            grpc_fail_fast: true,
            faults: Faults::NONE,
        }
    }
}

/// A text of a peer's, no longer than so many bytes.
pub(crate) fn truncate(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}
