//! The reports of a running fleet of clients.

use std::time::{Duration, Instant};

/// What a client does. Figures are kept separately for each conduct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conduct {
    /// Whether the client reads, answers and stays as real clients do. Only such clients count in the figures of the server.
    pub behaves: bool,
    pub name: &'static str,
}

/// Receives what clients report, from any of their tasks. Each method does nothing by default.
pub trait Observer: Send + Sync {
    /// This many clients are going to run.
    fn asked(&self, _conduct: Conduct, _clients: usize) {}
    /// A connection is open, HTTP/2 handshake included.
    fn connected(&self, _at: Instant) {}
    /// A connection ended, or could not be opened.
    fn disconnected(&self) {}
    /// A client has everything that it subscribes to, this long after it began to connect. Failed attempts are part of the time.
    fn first_sync(&self, _client: usize, _conduct: Conduct, _since: Duration) {}
    /// A change arrived, this long after the origin made it.
    fn change_received(&self, _conduct: Conduct, _lag: Duration) {}
    /// The ACK of a change was handed to the connection, this long after the origin made the change.
    fn change_acked(&self, _conduct: Conduct, _lag: Duration) {}
    /// A response of this many bytes arrived.
    fn bytes(&self, _count: u64) {}
    /// A check failed for a client; `check` is the check's name.
    fn violation(&self, _client: usize, _check: &'static str) {}
}

/// Ignores all reports.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {}
