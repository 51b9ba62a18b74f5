//! The options of sessions, with their defaults.

use std::time::Duration;

/// Limits and waiting times of one client's session.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// How long the next change of a type waits for the ACK or NACK of the last SotW reply.
    pub ack_patience: Duration,
    /// How long, in total, a routing change waits for the endpoints of clusters that were just sent.
    pub routing_hold: Duration,
    /// How long routes wait while not all clusters are known, and removals while not all routing is known. Longer than any timer that may make
    /// them known.
    pub clusters_timeout: Duration,
    /// How long removals of clusters and endpoints wait for a client that has NACKed its routing. Zero: they do not wait.
    pub nacked_routing_hold: Duration,
    /// How long forced endpoints wait, so that a change of the endpoints that came with the change of the cluster is sent with them.
    pub forced_endpoints_after: Duration,
    /// How many unanswered replies are remembered per type.
    pub answers: usize,
    /// Size at which a delta reply is split.
    pub reply_bytes: usize,
    /// How many types a session may subscribe to.
    pub types: usize,
    /// How many names of one type a session may subscribe to.
    pub names: usize,
    /// How many names of all types a session may subscribe to or state that it holds.
    pub names_per_stream: usize,
    /// How long a single fetch waits for an unknown resource.
    pub fetch_timeout: Duration,
    /// Whether to close the stream of a new gRPC client when no server is reachable and the cache has nothing for it, so that the client tries
    /// its next server.
    pub grpc_fail_fast: bool,
    /// What happens to an aggregated stream on which a client requests a type that the server refuses.
    pub on_refused_type: OnRefusedType,
}

/// What happens to an aggregated stream on which a client requests a type that the server refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnRefusedType {
    /// The stream goes on.
    Ignore,
    /// The stream ends with the server's status.
    End,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            ack_patience: Duration::from_millis(500),
            routing_hold: Duration::from_secs(2),
            clusters_timeout: Duration::from_secs(20),
            nacked_routing_hold: Duration::from_secs(5),
            forced_endpoints_after: Duration::from_millis(100),
            answers: 8,
            reply_bytes: 2 << 20,
            types: 64,
            names: 100_000,
            names_per_stream: 500_000,
            fetch_timeout: Duration::from_secs(5),
            grpc_fail_fast: true,
            on_refused_type: OnRefusedType::Ignore,
        }
    }
}
