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
        why: "A first request with 100,000 names and their versions takes 20 MB",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: 70000000 bytes, limit 67108864 (limits.message_bytes)`. REST: 413",
    }

    /// The names, and the versions by name, of one request; the rows of one load report.
    RequestEntries = "limits.request_entries" {
        page: "Requests",
        why: "Decoded, a name takes many times its bytes in the request: 38 MiB of empty names would take 500 MiB. In a load report, \
            clusters and rows are counted",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: 500000 names and versions, the limit is 400000 (limits.request_entries)`",
    }

    /// The bytes of one name, and of a type URL.
    NameBytes = "limits.name_bytes" {
        page: "Requests",
        why: "The longest known names have a few hundred bytes, and the longest type URLs less than a hundred. Replies repeat the type URL \
            of the client beside each resource",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: a name of 20000 bytes, the limit is 16384 (limits.name_bytes)`. REST: 413, \
            for a long type URL",
    }

    /// The bytes of a client's node.
    NodeBytes = "limits.node_bytes" {
        page: "Requests",
        why: "A large node has 61 kB",
        gets: "`RESOURCE_EXHAUSTED`: `request too large: a node of 2000000 bytes, the limit is 1048576 (limits.node_bytes)`",
    }

    /// The bytes of incomplete requests, over all clients.
    IncompleteRequestBytes = "limits.incomplete_request_bytes" {
        page: "Requests",
        why: "An Envoy with 1,500 streams sends 92 MB of nodes at once when it starts",
        gets: "`RESOURCE_EXHAUSTED`: `too many incomplete requests: the limit for all clients is 536870912 bytes \
            (limits.incomplete_request_bytes); retry`. REST: 503",
    }

    /// The bytes of outdated resources in replies that clients do not take.
    OutdatedReplyBytes = "limits.outdated_reply_bytes" {
        page: "Streams",
        why: "A client that stops reading in the middle of a reply keeps the resources of that reply in memory, also after they have \
            been replaced",
        gets: "The stream is reset with `ENHANCE_YOUR_CALM`, which gRPC clients see as `RESOURCE_EXHAUSTED`",
    }

    /// The least rate at which the rest of a request has to arrive.
    RequestRate = "limits.request_bytes_per_second" {
        page: "Requests",
        why: "A request whose end never comes would keep its memory for ever",
        gets: "`RESOURCE_EXHAUSTED`: `request arrives too slowly: below 1024 bytes per second (limits.request_bytes_per_second)`. REST: \
            503",
    }

    /// The types of one stream.
    TypesPerStream = "limits.types_per_stream" {
        page: "Streams",
        why: "An Envoy subscribes to eleven types",
        gets: "`RESOURCE_EXHAUSTED`",
    }

    /// The names of one type on one stream.
    NamesPerType = "limits.names_per_type" {
        page: "Streams",
        why: "Enough for the endpoints of 100,000 clusters",
        gets: "`RESOURCE_EXHAUSTED`",
    }

    /// The names of all types on one stream, with those that the client states it has.
    NamesPerStream = "limits.names_per_stream" {
        page: "Streams",
        why: "Enough for 100,000 clusters and their endpoints, with the versions of both. Without it, a stream with 64 types of \
            100,000 names each would take 3 GB",
        gets: "`RESOURCE_EXHAUSTED`: `too many names on one stream, with those in initial_resource_versions: limit 500000 \
            (limits.names_per_stream)`",
    }

    /// The bytes of the versions that clients state they hold, until they are judged, over all clients.
    StatedVersionsBytes = "limits.stated_versions_bytes" {
        page: "Streams",
        why: "Enough for 25 fleets that return at the same time, each with 100,000 clusters",
        gets: "`RESOURCE_EXHAUSTED`: `too many versions in initial_resource_versions: the limit for all clients is 536870912 bytes \
            (limits.stated_versions_bytes); retry later`",
    }

    /// The names of all streams of one view.
    NamesPerView = "limits.names_per_view" {
        page: "Views",
        why: "Three times the endpoints, virtual hosts and routes of 100,000 clusters. A name counts once, however many Envoys \
            request it",
        gets: "gRPC clients and relays get an error `RESOURCE_EXHAUSTED` for each name without room: `too many names for the clients that \
            share a view: the limit is 1000000 (limits.names_per_view)`; Envoys get no reply for it",
    }

    /// The names of one type that the clients of one view hold and the view does not know.
    SoughtNames = "limits.sought_names" {
        page: "Views",
        why: "Servers are [asked once more](upstream.md#what-weir-concludes) for each of these names. A name takes about 150 bytes",
        gets: "The client waits, and keeps what it holds. Its names are asked for as soon as half of the room is free",
    }

    /// The bytes of all cached resources.
    CachedBytes = "limits.cached_bytes" {
        page: "Views",
        why: "All views share this memory",
        gets: "The same as at `limits.names_per_view`, with the text `too many bytes of resources are cached: the limit is \
            4294967296 (limits.cached_bytes)`. Resources that a view has already, and whole sets, are served as before",
    }

    /// The memory of the process.
    Memory = "limits.memory" {
        page: "Memory",
        why: "The other limits together allow more than a machine has",
        gets: "`RESOURCE_EXHAUSTED`: `too little memory: 1092 of 1536 MiB are in use, 402 MiB by its connection, of which the equal part \
            is 30 MiB (limits.memory); retry later`. REST: 503",
    }

    /// The views of the process.
    Views = "views.max" {
        page: "Views",
        why: "Each view has upstream streams of its own, although views [share connections](upstream.md#connections)",
        gets: "`RESOURCE_EXHAUSTED`: `too many views: the limit is 10000 (views.max); metadata splits them most, with 9812 values \
            (views.key)`. REST: 503",
    }

    /// The views that exist because of one connection.
    ViewsPerConnection = "limits.views_per_connection" {
        page: "Views",
        why: "A relay that is a client has up to 50 streams on one connection, each for another view. Any other client has a single \
            node",
        gets: "`RESOURCE_EXHAUSTED`: `too many views of one connection: the limit is 100 (limits.views_per_connection); cluster splits \
            them most, with 100 values (views.key)`. REST: 429",
    }

    /// The views that exist because of one identity.
    ViewsPerIdentity = "limits.views_per_identity" {
        page: "Views",
        why: "There is no limit by default, since a whole fleet may have one [identity](#identities)",
        gets: "`RESOURCE_EXHAUSTED`: `too many views of one identity: the limit is 100 (limits.views_per_identity); cluster splits them \
            most, with 100 values (views.key)`. REST: 429",
    }

    /// The bytes of one request to a server.
    MaxRequestBytes = "upstream.servers.max_request_bytes" {
        page: "Requests to servers",
        why: "By default, gRPC servers accept messages of up to 4 MiB, and end the stream of the view at a longer one",
        gets: "In delta nothing is refused, since long requests are [split](upstream.md#long-requests). In SotW, gRPC clients and \
            relays get the error `RESOURCE_EXHAUSTED` for each name without room: `there is no room for the name in a request to the \
            control plane (max_request_bytes: 3145728)`; Envoys get no reply for such a name",
    }

    /// Connections of clients.
    Connections = "limits.connections" {
        page: "Connections",
        why: "Each connection takes an open file and some memory",
        gets: "With the first request on it, a further connection gets the place of one without a stream, which is closed \
            gracefully. If there is no such place for 4 s, the request gets `RESOURCE_EXHAUSTED`: `too many connections: the limit \
            is 768 (limits.connections); retry later`. REST: 503",
    }

    /// Connections from one address.
    ConnectionsPerAddress = "limits.connections_per_address" {
        page: "Connections",
        why: "There is no limit by default, since all clients behind a balancer or NAT have one address",
        gets: "`RESOURCE_EXHAUSTED`: `too many connections from one address: the limit is 10 (limits.connections_per_address); close \
            some`. REST: 429",
    }

    /// Connections of one identity.
    ConnectionsPerIdentity = "limits.connections_per_identity" {
        page: "Connections",
        why: "There is no limit by default, since a whole fleet may have one [identity](#identities)",
        gets: "`RESOURCE_EXHAUSTED`: `too many connections of one identity: the limit is 10 (limits.connections_per_identity); close \
            some`. REST: 429",
    }

    /// New connections in a second, which wait.
    NewConnectionsPerSecond = "limits.new_connections_per_second" {
        page: "Connections",
        why: "There is no limit by default, since a fleet that reconnects all at once then waits least",
        gets: "The connection waits",
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
        why: "A TLS handshake is one or two milliseconds of work, and connected clients would wait for all of it",
        gets: "The handshake waits for its turn. It has no turn while it waits for its client",
    }

    /// The time that a TLS handshake may wait for its client.
    HandshakeTimeout = "limits.handshake_timeout" {
        page: "Connections",
        why: "Clients answer within one round trip",
        gets: "The connection is closed. Time in which the handshake waits for the relay does not count",
    }

    /// TLS handshakes of one address at a time.
    HandshakesPerAddress = "limits.handshakes_per_address" {
        page: "Connections",
        why: "There is no limit by default, since all clients behind a balancer or NAT have one address",
        gets: "The connection is closed before the handshake. Log: `too many handshakes from one address: the limit is 10 \
            (limits.handshakes_per_address)`",
    }

    /// Open streams of one connection.
    StreamsPerConnection = "limits.streams_per_connection" {
        page: "Connections",
        why: "An Envoy without ADS opens a stream for each cluster and each route",
        gets: "The client opens no further stream, since HTTP/2 tells it the limit",
    }

    /// Open streams and polls of one identity.
    StreamsPerIdentity = "limits.streams_per_identity" {
        page: "Streams",
        why: "There is no limit by default, since a whole fleet may have one [identity](#identities)",
        gets: "`RESOURCE_EXHAUSTED`: `too many streams of one identity: the limit is 1000 (limits.streams_per_identity); close some`. \
            REST: 429",
    }

    /// Open streams and polls of one tenant.
    StreamsPerTenant = "limits.streams_per_tenant" {
        page: "Streams",
        why: "There is no limit by default, since a [tenant](security.md#tenants-and-tiers) may have a whole fleet",
        gets: "`RESOURCE_EXHAUSTED`: `too many streams of one tenant: the limit is 10000 (limits.streams_per_tenant); close some`. REST: \
            429",
    }

    /// Names of all streams of one tenant.
    NamesPerTenant = "limits.names_per_tenant" {
        page: "Streams",
        why: "A name counts once for each stream that wants it",
        gets: "A stream whose names would exceed the limit ends with `RESOURCE_EXHAUSTED`: `too many names of one tenant: the limit \
            is 100000 (limits.names_per_tenant); retry later`. The names of a poll count while it lasts; no poll is refused",
    }

    /// Requests of all streams of one tenant in a second, which wait.
    RequestsPerTenant = "limits.tenant_requests_per_second" {
        page: "Streams",
        why: "There is no limit by default, since a tenant may have a whole fleet",
        gets: "The streams of the tenant are read later",
    }

    /// Views of one tenant.
    ViewsPerTenant = "limits.views_per_tenant" {
        page: "Views",
        why: "Tenants choose the nodes of their clients, and so decide how many views these have",
        gets: "`RESOURCE_EXHAUSTED`: `too many views of one tenant: the limit is 50 (limits.views_per_tenant)`. REST: 429",
    }

    /// New streams and polls of one connection in a second, which wait.
    NewStreamsPerSecond = "limits.new_streams_per_second" {
        page: "Connections",
        why: "An Envoy with 1,500 streams opens them all at once. Without a limit, opening and resetting streams would cost a client \
            nothing",
        gets: "The connection is read later",
    }

    /// Open streams and polls, over all clients.
    Streams = "limits.streams" {
        page: "Streams",
        why: "10,000 Envoys with six streams each have 60,000",
        gets: "`RESOURCE_EXHAUSTED`: `too many streams: the limit for all clients is 1000000 (limits.streams); retry later`. REST: \
            503. The connection accepts no more streams (`GOAWAY`), so that a balancer can lead the client to another relay",
    }

    /// Streams of load reports that are passed on, over all clients.
    LoadReportStreams = "load_reports.streams" {
        page: "Streams",
        why: "With `load_reports.mode: pass_through`, each of these streams is passed on as a stream to the control plane; a \
            connection to it has up to 50",
        gets: "`RESOURCE_EXHAUSTED`: `too many load report streams: the limit is 10000 (load_reports.streams); retry later`; or the \
            place of a stream of the connection that has most",
    }

    /// The same of one connection.
    LoadReportStreamsPerConnection = "load_reports.streams_per_connection" {
        page: "Streams",
        why: "A client has one such stream for each server that it reports to. A relay that is a client has up to 50 on one \
            connection; a proxy may have those of many clients",
        gets: "`RESOURCE_EXHAUSTED`: `too many load report streams of one connection: the limit is 100 \
            (load_reports.streams_per_connection); close some`",
    }

    /// Requests of one stream in a second, which wait.
    RequestsPerSecond = "limits.requests_per_second" {
        page: "Streams",
        why: "There is no limit by default, since other limits bound what a request costs",
        gets: "The stream is read later",
    }

    /// New names of one stream in a second, which wait.
    NewNamesPerSecond = "limits.new_names_per_second" {
        page: "Streams",
        why: "Each new name is requested from the control plane, and lingers unless it is known to be absent. A stream may begin \
            with 200,000 new names",
        gets: "The stream is read later",
    }

    /// The headers of one request.
    HeaderBytes = "limits.header_bytes" {
        page: "Connections",
        why: "Tokens have a few KiB, and gRPC servers accept 8 to 16 KiB of headers",
        gets: "`RESOURCE_EXHAUSTED`: `headers too large: 20000 bytes, the limit is 16384 (limits.header_bytes)`. REST: 431. Headers \
            of more than twice the limit get 431 without a reason, also over gRPC",
    }

    /// The files that the system lets the process open.
    OpenFiles = "open_files" {
        page: "Connections",
        why: "Each connection and each open file of the relay counts",
        gets: "A new connection waits until a file is closed",
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
