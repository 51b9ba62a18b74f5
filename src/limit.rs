//! The limits that a client can reach, by their keys, and how often each was reached.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares the limits. Each has a name in the program, a key in the configuration or a text in its place, and its texts in docs/limits.md.
macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $limit:ident = $key:literal { page: $page:literal, why: $why:literal, gets: $gets:literal, })+) => {
        /// A limit on what clients may do.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Limit {
            $($(#[doc = $doc])+ $limit),+
        }

        impl Limit {
            pub(crate) const ALL: [Self; <[&str]>::len(&[$($key),+])] = [$(Self::$limit),+];

            /// The configuration key, or the text in its place.
            pub(crate) fn key(self) -> &'static str {
                match self {
                    $(Self::$limit => $key),+
                }
            }

            /// The texts of its row in docs/limits.md.
            #[cfg(test)]
            pub(crate) fn words(self) -> LimitWords {
                match self {
                    $(Self::$limit => LimitWords { page: $page, why: $why, gets: $gets }),+
                }
            }
        }
    };
}

/// A row of docs/limits.md, without the key and its default.
#[cfg(test)]
pub(crate) struct LimitWords {
    /// The heading above the row.
    pub(crate) page: &'static str,
    /// Why the limit exists, and why it has this value.
    pub(crate) why: &'static str,
    /// What a client beyond it gets.
    pub(crate) gets: &'static str,
}

limits! {
    /// The bytes of one request.
    MessageBytes = "limits.message_bytes" {
        page: "Requests",
        why: "A first request of 100,000 names with versions takes 20 MB",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: 70000000 bytes, limit 67108864 (limits.message_bytes)`. REST: 413",
    }

    /// The names, and the versions by name, of one request; the rows of one load report.
    RequestEntries = "limits.request_entries" {
        page: "Requests",
        why: "Decoded, a name takes many times its bytes: 38 MiB of empty names would take 500 MiB. In load reports, clusters and rows \
            count",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: 500000 names and versions, the limit is 400000 (limits.request_entries)`",
    }

    /// The bytes of one name.
    NameBytes = "limits.name_bytes" {
        page: "Requests",
        why: "The longest known names have some hundred bytes",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: a name of 20000 bytes, the limit is 16384 (limits.name_bytes)`",
    }

    /// The bytes of a client's node.
    NodeBytes = "limits.node_bytes" {
        page: "Requests",
        why: "Large nodes have 61 kB",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: a node of 2000000 bytes, the limit is 1048576 (limits.node_bytes)`",
    }

    /// The bytes of incomplete requests, over all clients.
    IncompleteRequestBytes = "limits.incomplete_request_bytes" {
        page: "Requests",
        why: "An Envoy with 1,500 streams begins with 92 MB of nodes, all at once",
        gets: "`RESOURCE_EXHAUSTED`: `too many incomplete requests: the limit for all clients is 536870912 bytes \
            (limits.incomplete_request_bytes); retry`. REST: 503",
    }

    /// The bytes of outdated resources in replies that clients do not take.
    OutdatedReplyBytes = "limits.outdated_reply_bytes" {
        page: "Streams",
        why: "A client that stops in the middle of a reply keeps its resources in memory, also when they have been replaced",
        gets: "The stream is reset with `ENHANCE_YOUR_CALM`, which gRPC clients see as `RESOURCE_EXHAUSTED`",
    }

    /// The least rate at which the rest of a request has to arrive.
    RequestRate = "limits.request_bytes_per_second" {
        page: "Requests",
        why: "A request that never ends would hold its memory for ever",
        gets: "`RESOURCE_EXHAUSTED`: `request arrives too slowly: below 1024 bytes per second (limits.request_bytes_per_second)`. REST: \
            503",
    }

    /// The types of one stream.
    TypesPerStream = "limits.types_per_stream" {
        page: "Streams",
        why: "An Envoy has eleven",
        gets: "`RESOURCE_EXHAUSTED`",
    }

    /// The names of one type on one stream.
    NamesPerType = "limits.names_per_type" {
        page: "Streams",
        why: "The endpoints of 100,000 clusters",
        gets: "`RESOURCE_EXHAUSTED`",
    }

    /// The names of all types on one stream, with those that the client states it has.
    NamesPerStream = "limits.names_per_stream" {
        page: "Streams",
        why: "Clusters, endpoints and the versions of both, for 100,000 clusters; and 64 types with 100,000 names each would take 3 GB",
        gets: "`RESOURCE_EXHAUSTED`: `too many names on one stream, with those in initial_resource_versions: limit 500000 \
            (limits.names_per_stream)`",
    }

    /// The bytes of the versions that clients state they hold, until they are judged, over all clients.
    StatedVersionsBytes = "limits.stated_versions_bytes" {
        page: "Streams",
        why: "25 fleets that each return with 100,000 clusters",
        gets: "`RESOURCE_EXHAUSTED`: `too many versions in initial_resource_versions: the limit for all clients is 536870912 bytes \
            (limits.stated_versions_bytes); retry later`",
    }

    /// The names of all streams of one view.
    NamesPerView = "limits.names_per_view" {
        page: "Views",
        why: "The endpoints, virtual hosts and routes of 100,000 clusters are a third of it, however many Envoys request the same",
        gets: "gRPC clients and relays get an error `RESOURCE_EXHAUSTED` for each name without room: `too many names for the clients that \
            share a view: the limit is 1000000 (limits.names_per_view)`; Envoys get no reply for it",
    }

    /// The names of one type that the clients of one view hold and the view does not know.
    SoughtNames = "limits.sought_names" {
        page: "Views",
        why: "Servers are [asked for them once more](upstream.md#what-weir-concludes). Each is 150 bytes or so",
        gets: "It waits: it keeps what it holds, and the names are asked for as soon as half of the room is free",
    }

    /// The bytes of all cached resources.
    CachedBytes = "limits.cached_bytes" {
        page: "Views",
        why: "A common pool for all views",
        gets: "Like `limits.names_per_view`: `too many bytes of resources are cached: the limit is 4294967296 (limits.cached_bytes)`. What \
            a view has, and whole sets, are served as before",
    }

    /// The memory of the process.
    Memory = "limits.memory" {
        page: "Memory",
        why: "What all other limits allow together is more than a machine has",
        gets: "`RESOURCE_EXHAUSTED`: `too little memory: 1092 of 1536 MiB are in use, 402 MiB by its connection, of which the equal part \
            is 30 MiB (limits.memory); retry later`. REST: 503",
    }

    /// The views of the process.
    Views = "views.max" {
        page: "Views",
        why: "Each view has its own upstream streams, though they [share connections](upstream.md#connections)",
        gets: "`RESOURCE_EXHAUSTED`: `too many views: the limit is 10000 (views.max); metadata splits them most, with 9812 values \
            (views.key)`. REST: 503",
    }

    /// The views that exist because of one connection.
    ViewsPerConnection = "limits.views_per_connection" {
        page: "Views",
        why: "A relay has 50 streams on one connection, each of another view; other clients are one node each",
        gets: "`RESOURCE_EXHAUSTED`: `too many views of one connection: the limit is 100 (limits.views_per_connection); cluster splits \
            them most, with 100 values (views.key)`. REST: 429",
    }

    /// The views that exist because of one identity.
    ViewsPerIdentity = "limits.views_per_identity" {
        page: "Views",
        why: "Whole fleets may have one [identity](#identities)",
        gets: "`RESOURCE_EXHAUSTED`: `too many views of one identity: the limit is 100 (limits.views_per_identity); cluster splits them \
            most, with 100 values (views.key)`. REST: 429",
    }

    /// The bytes of one request to a server.
    MaxRequestBytes = "upstream.servers.max_request_bytes" {
        page: "Requests to servers",
        why: "gRPC servers take 4 MiB by default, and end the stream of the view otherwise",
        gets: "Delta: nothing is refused, long requests are [split](upstream.md#long-requests). SotW: gRPC clients and relays get an error \
            `RESOURCE_EXHAUSTED` for each name without room: `there is no room for the name in a request to the control plane \
            (max_request_bytes: 3145728)`; Envoys get no reply for it",
    }

    /// Connections of clients.
    Connections = "limits.connections" {
        page: "Connections",
        why: "Each connection takes an open file, and some memory",
        gets: "With its first request, the place of a connection without a stream, which is closed gracefully. If there is none for 4 s, \
            the request gets `RESOURCE_EXHAUSTED`: `too many connections: the limit is 768 (limits.connections); retry later`. REST: 503",
    }

    /// Connections from one address.
    ConnectionsPerAddress = "limits.connections_per_address" {
        page: "Connections",
        why: "Behind a balancer or NAT all clients have one address",
        gets: "`RESOURCE_EXHAUSTED`: `too many connections from one address: the limit is 10 (limits.connections_per_address); close \
            some`. REST: 429",
    }

    /// Connections of one identity.
    ConnectionsPerIdentity = "limits.connections_per_identity" {
        page: "Connections",
        why: "Whole fleets may have one [identity](#identities)",
        gets: "`RESOURCE_EXHAUSTED`: `too many connections of one identity: the limit is 10 (limits.connections_per_identity); close \
            some`. REST: 429",
    }

    /// New connections in a second, which wait.
    NewConnectionsPerSecond = "limits.new_connections_per_second" {
        page: "Connections",
        why: "A fleet that reconnects at once waits least without",
        gets: "It waits",
    }

    /// The time to the first request of a connection.
    FirstRequestTimeout = "limits.first_request_timeout" {
        page: "Connections",
        why: "Clients open a stream as soon as they are connected",
        gets: "The connection is closed gracefully",
    }

    /// The time to the first message of a stream.
    FirstMessage = "limits.first_message" {
        page: "Streams",
        why: "Clients open a stream when they have something to send",
        gets: "`RESOURCE_EXHAUSTED`: `no message within 30s (limits.first_message); open a stream when there is something to send`",
    }

    /// TLS handshakes that are worked on at a time; the others wait.
    Handshakes = "limits.handshakes" {
        page: "Connections",
        why: "A TLS handshake is a millisecond or two of work, for which established clients would wait",
        gets: "It waits for its turn. A handshake that waits for its client has none",
    }

    /// The time that a TLS handshake may wait for its client.
    HandshakeTimeout = "limits.handshake_timeout" {
        page: "Connections",
        why: "Clients answer within a round trip",
        gets: "The connection is closed. Time for which the relay lets it wait does not count",
    }

    /// TLS handshakes of one address at a time.
    HandshakesPerAddress = "limits.handshakes_per_address" {
        page: "Connections",
        why: "Behind a balancer or NAT all clients have one address",
        gets: "The connection is closed before the handshake. Log: `too many handshakes from one address: the limit is 10 \
            (limits.handshakes_per_address)`",
    }

    /// Open streams of one connection.
    StreamsPerConnection = "limits.streams_per_connection" {
        page: "Connections",
        why: "An Envoy without ADS has a stream for each cluster and route",
        gets: "The client itself waits: HTTP/2 announces the limit",
    }

    /// Open streams and polls of one identity.
    StreamsPerIdentity = "limits.streams_per_identity" {
        page: "Streams",
        why: "Whole fleets may have one [identity](#identities)",
        gets: "`RESOURCE_EXHAUSTED`: `too many streams of one identity: the limit is 1000 (limits.streams_per_identity); close some`. \
            REST: 429",
    }

    /// Open streams and polls of one tenant.
    StreamsPerTenant = "limits.streams_per_tenant" {
        page: "Streams",
        why: "A [tenant](security.md#tenants-and-tiers) may have a whole fleet",
        gets: "`RESOURCE_EXHAUSTED`: `too many streams of one tenant: the limit is 10000 (limits.streams_per_tenant); close some`. REST: \
            429",
    }

    /// Names of all streams of one tenant.
    NamesPerTenant = "limits.names_per_tenant" {
        page: "Streams",
        why: "Each name counts for each stream that wants it",
        gets: "The stream that would need more ends with `RESOURCE_EXHAUSTED`: `too many names of one tenant: the limit is 100000 \
            (limits.names_per_tenant); retry later`. Polls count while they last, and are not refused",
    }

    /// Requests of all streams of one tenant in a second, which wait.
    RequestsPerTenant = "limits.tenant_requests_per_second" {
        page: "Streams",
        why: "A tenant may have a whole fleet",
        gets: "It waits: its streams are read later",
    }

    /// Views of one tenant.
    ViewsPerTenant = "limits.views_per_tenant" {
        page: "Views",
        why: "Tenants decide themselves what their nodes differ by",
        gets: "`RESOURCE_EXHAUSTED`: `too many views of one tenant: the limit is 50 (limits.views_per_tenant)`. REST: 429",
    }

    /// New streams and polls of one connection in a second, which wait.
    NewStreamsPerSecond = "limits.new_streams_per_second" {
        page: "Connections",
        why: "An Envoy with 1,500 streams opens them at once. Opening and resetting streams costs a client nothing",
        gets: "It waits: the connection is read later",
    }

    /// Open streams and polls, over all clients.
    Streams = "limits.streams" {
        page: "Streams",
        why: "10,000 Envoys have 60,000",
        gets: "`RESOURCE_EXHAUSTED`: `too many streams: the limit for all clients is 1000000 (limits.streams); retry later`. REST: 503. \
            The connection gets no more streams (`GOAWAY`): a balancer may lead the next one to another relay",
    }

    /// Streams of load reports that are passed on, over all clients.
    LoadReportStreams = "load_reports.streams" {
        page: "Streams",
        why: "With `load_reports.mode: pass_through` each is a stream to the control plane, and 50 of them a connection",
        gets: "`RESOURCE_EXHAUSTED`: `too many load report streams: the limit is 10000 (load_reports.streams); retry later`, or a place of \
            the connection that has most",
    }

    /// The same of one connection.
    LoadReportStreamsPerConnection = "load_reports.streams_per_connection" {
        page: "Streams",
        why: "A client has one for each server that it reports to, and a relay below 50; a proxy may have those of many clients",
        gets: "`RESOURCE_EXHAUSTED`: `too many load report streams of one connection: the limit is 100 \
            (load_reports.streams_per_connection); close some`",
    }

    /// Requests of one stream in a second, which wait.
    RequestsPerSecond = "limits.requests_per_second" {
        page: "Streams",
        why: "What a request costs is bounded otherwise",
        gets: "It waits: the stream is read later",
    }

    /// New names of one stream in a second, which wait.
    NewNamesPerSecond = "limits.new_names_per_second" {
        page: "Streams",
        why: "Each new name is requested from the control plane, and lingers unless it is known to be absent. A stream may begin with \
            200,000",
        gets: "It waits: the stream is read later",
    }

    /// The headers of one request.
    HeaderBytes = "limits.header_bytes" {
        page: "Connections",
        why: "Tokens have a few KiB; gRPC servers take 8 to 16 KiB",
        gets: "`RESOURCE_EXHAUSTED`: `headers too large: 20000 bytes, the limit is 16384 (limits.header_bytes)`. REST: 431. Above twice \
            the limit: 431 without a reason, also over gRPC",
    }

    /// The files that the system lets the process open.
    OpenFiles = "open_files" {
        page: "Connections",
        why: "",
        gets: "It waits until a file is closed",
    }
}

/// How often each limit was reached.
#[derive(Debug)]
pub(crate) struct LimitCounters([AtomicU64; Limit::ALL.len()]);

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
    fn each_limit_is_counted_in_its_own_place() {
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place, "{limit:?}");
        }
        let counters = LimitCounters::default();
        counters.reached(Limit::Views);
        assert!(counters.counts().all(|(key, count)| count == u64::from(key == "views.max")));
    }
}
