//! The limits of connections and their streams.

use std::time::Duration;

use super::groups::GroupLimits;

/// The limits of connections, by their keys in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// `connections`; without it as many as the limit of open files allows.
    pub(crate) connections: Option<usize>,
    /// `connections_per_address`; 0: no limit.
    pub(crate) per_address: usize,
    /// `connections_per_identity`; 0: no limit.
    pub(crate) per_identity: usize,
    /// `new_connections_per_second`; 0: no limit.
    pub(crate) new_per_second: usize,
    /// `first_request_timeout`; zero: no limit.
    pub(crate) first_request: Duration,
    /// `streams_per_connection`.
    pub(crate) streams_per_connection: u32,
    /// `streams_per_identity`; 0: no limit.
    pub(crate) streams_per_identity: usize,
    /// `new_streams_per_second` of one connection; 0: no limit.
    pub(crate) new_streams_per_second: usize,
    /// `streams`, over all connections.
    pub(crate) streams: usize,
    /// `requests_per_second` of one stream; 0: no limit.
    pub(crate) requests_per_second: usize,
    /// `header_bytes` of one request.
    pub(crate) header_bytes: usize,
}

impl ConnectionLimits {
    pub(super) fn max(&self, most: usize) -> usize {
        self.connections.map_or(most, |max| max.min(most))
    }

    pub(super) fn of_address(&self) -> GroupLimits {
        GroupLimits { connections: self.per_address, streams: 0 }
    }

    pub(super) fn of_identity(&self) -> GroupLimits {
        GroupLimits { connections: self.per_identity, streams: self.streams_per_identity }
    }
}
