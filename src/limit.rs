//! The limits that a client can reach, by the names of their keys, and how often each was reached.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit on what clients may do. `docs/limits.md` has a row for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// The bytes of one request.
    MessageBytes,
    /// The names, and the versions by name, of one request; the rows of one load report.
    RequestEntries,
    /// The bytes of one name.
    NameBytes,
    /// The bytes of a client's node.
    NodeBytes,
    /// The bytes of incomplete requests, over all clients.
    IncompleteRequestBytes,
    /// The bytes of outdated resources in replies that clients do not take.
    OutdatedReplyBytes,
    /// The least rate at which the rest of a request has to arrive.
    RequestRate,
    /// The types of one stream.
    TypesPerStream,
    /// The names of one type on one stream.
    NamesPerType,
    /// The names of all types on one stream, with those that the client states it has.
    NamesPerStream,
    /// The bytes of what clients state that they hold, until it is judged, over all clients.
    StatedVersionsBytes,
    /// The names of all streams of one view.
    NamesPerView,
    /// The names of one type that the clients of one view hold and the view does not know.
    SoughtNames,
    /// The bytes of all cached resources.
    CachedBytes,
    /// The views of the process.
    Views,
    /// The views that exist because of one connection.
    ViewsPerConnection,
    /// The views that exist because of one identity.
    ViewsPerIdentity,
    /// The bytes of one request to a server.
    MaxRequestBytes,
    /// Connections of clients.
    Connections,
    /// Connections from one address.
    ConnectionsPerAddress,
    /// Connections of one identity.
    ConnectionsPerIdentity,
    /// New connections in a second, which wait.
    NewConnectionsPerSecond,
    /// The time to the first request of a connection.
    FirstRequestTimeout,
    /// TLS handshakes that are worked on at a time; the others wait.
    Handshakes,
    /// The time that a TLS handshake may wait for its client.
    HandshakeTimeout,
    /// TLS handshakes of one address at a time.
    HandshakesPerAddress,
    /// Open streams of one connection.
    StreamsPerConnection,
    /// Open streams and polls of one identity.
    StreamsPerIdentity,
    /// New streams and polls of one connection in a second, which wait.
    NewStreamsPerSecond,
    /// Open streams and polls, over all clients.
    Streams,
    /// Requests of one stream in a second, which wait.
    RequestsPerSecond,
    /// New names of one stream in a second, which wait.
    NewNamesPerSecond,
    /// The headers of one request.
    HeaderBytes,
    /// The files that the system lets the process open.
    OpenFiles,
}

/// How often each limit was reached.
#[derive(Debug)]
pub(crate) struct LimitCounters([AtomicU64; Limit::ALL.len()]);

impl Limit {
    pub(crate) const ALL: [Self; 34] = [
        Self::MessageBytes,
        Self::RequestEntries,
        Self::NameBytes,
        Self::NodeBytes,
        Self::IncompleteRequestBytes,
        Self::OutdatedReplyBytes,
        Self::RequestRate,
        Self::TypesPerStream,
        Self::NamesPerType,
        Self::NamesPerStream,
        Self::StatedVersionsBytes,
        Self::NamesPerView,
        Self::SoughtNames,
        Self::CachedBytes,
        Self::Views,
        Self::ViewsPerConnection,
        Self::ViewsPerIdentity,
        Self::MaxRequestBytes,
        Self::Connections,
        Self::ConnectionsPerAddress,
        Self::ConnectionsPerIdentity,
        Self::NewConnectionsPerSecond,
        Self::FirstRequestTimeout,
        Self::Handshakes,
        Self::HandshakeTimeout,
        Self::HandshakesPerAddress,
        Self::StreamsPerConnection,
        Self::StreamsPerIdentity,
        Self::NewStreamsPerSecond,
        Self::Streams,
        Self::RequestsPerSecond,
        Self::NewNamesPerSecond,
        Self::HeaderBytes,
        Self::OpenFiles,
    ];

    /// The configuration key, or what stands for one.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Self::MessageBytes => "limits.message_bytes",
            Self::RequestEntries => "limits.request_entries",
            Self::NameBytes => "limits.name_bytes",
            Self::NodeBytes => "limits.node_bytes",
            Self::IncompleteRequestBytes => "limits.incomplete_request_bytes",
            Self::OutdatedReplyBytes => "limits.outdated_reply_bytes",
            Self::RequestRate => "limits.request_bytes_per_second",
            Self::TypesPerStream => "limits.types_per_stream",
            Self::NamesPerType => "limits.names_per_type",
            Self::NamesPerStream => "limits.names_per_stream",
            Self::StatedVersionsBytes => "limits.stated_versions_bytes",
            Self::NamesPerView => "limits.names_per_view",
            Self::SoughtNames => "limits.sought_names",
            Self::Views => "views.max",
            Self::CachedBytes => "limits.cached_bytes",
            Self::ViewsPerConnection => "limits.views_per_connection",
            Self::ViewsPerIdentity => "limits.views_per_identity",
            Self::MaxRequestBytes => "upstream.servers.max_request_bytes",
            Self::Connections => "limits.connections",
            Self::ConnectionsPerAddress => "limits.connections_per_address",
            Self::ConnectionsPerIdentity => "limits.connections_per_identity",
            Self::NewConnectionsPerSecond => "limits.new_connections_per_second",
            Self::FirstRequestTimeout => "limits.first_request_timeout",
            Self::Handshakes => "limits.handshakes",
            Self::HandshakeTimeout => "limits.handshake_timeout",
            Self::HandshakesPerAddress => "limits.handshakes_per_address",
            Self::StreamsPerConnection => "limits.streams_per_connection",
            Self::StreamsPerIdentity => "limits.streams_per_identity",
            Self::NewStreamsPerSecond => "limits.new_streams_per_second",
            Self::Streams => "limits.streams",
            Self::RequestsPerSecond => "limits.requests_per_second",
            Self::NewNamesPerSecond => "limits.new_names_per_second",
            Self::HeaderBytes => "limits.header_bytes",
            Self::OpenFiles => "open_files",
        }
    }
}

impl Default for LimitCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::default()))
    }
}

impl LimitCounters {
    pub(crate) fn reached(&self, limit: Limit) {
        self.0[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often each limit was reached, by its key.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Limit::ALL.into_iter().map(|limit| (limit.key(), self.0[limit as usize].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_limits_md_has_a_row_for_each_limit_and_no_others() {
        let page = include_str!("../docs/limits.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
        let (mut keys, mut known): (Vec<_>, Vec<_>) =
            (rows.map(|(key, _)| key).collect(), Limit::ALL.map(Limit::key).to_vec());
        keys.sort_unstable();
        known.sort_unstable();
        assert_eq!(keys, known);
    }

    #[test]
    fn each_limit_is_counted_in_its_own_place() {
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place, "{limit:?}");
        }
        let counters = LimitCounters::default();
        counters.reached(Limit::Views);
        assert!(counters.counts().all(|(key, count)| count == u64::from(key == "views.max")));
    }
}
