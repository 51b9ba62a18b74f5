//! Bounds and waits.

use crate::config::form::{Count, Interval, Located, Pause, Positive, Size, Wait, section};

section! {
    /// Bounds on messages, names and waits.
    Limits {
        /// The longest request of a client, and the longest response of a server.
        message_bytes: Option<Located<Size>> = "64MiB";
        /// Memory for requests that have not fully arrived, over all clients.
        incomplete_request_bytes: Option<Located<Size>> = "512MiB";
        /// Memory for resources that were replaced while clients take replies with them, over all clients.
        outdated_reply_bytes: Option<Located<Size>> = "128MiB";
        /// How fast the rest of a request has to arrive, on average over half a minute.
        request_bytes_per_second: Option<Located<Size>> = "1KiB";
        /// Names, and versions by name, of one request; clusters and rows of one load report.
        request_entries: Option<Located<Positive>> = 400000;
        /// The longest name, with its version or its parameters.
        name_bytes: Option<Located<Size>> = "16KiB";
        /// The largest node of a client.
        node_bytes: Option<Located<Size>> = "1MiB";
        /// Types of one stream; above it, the stream ends with RESOURCE_EXHAUSTED.
        types_per_stream: Option<Located<Positive>> = 64;
        /// Names of one type on one stream; above it, the stream ends with RESOURCE_EXHAUSTED.
        names_per_type: Option<Located<Positive>> = 100000;
        /// Names of all types on one stream, with those in `initial_resource_versions`.
        names_per_stream: Option<Located<Positive>> = 500000;
        /// Names of all streams of one view; above half of it, only streams with few names of their own get new ones.
        names_per_view: Option<Located<Positive>> = 1000000;
        /// Bytes of all cached resources; above it, new names get RESOURCE_EXHAUSTED, and nothing lingers.
        cached_bytes: Option<Located<Size>> = "4GiB";
        /// Memory for `initial_resource_versions` of all clients until they are judged; equal ones are kept once.
        stated_versions_bytes: Option<Located<Size>> = "512MiB";
        /// Names of one type that clients hold, their view does not know, and servers are asked for once more. Those above it are asked for later.
        sought_names: Option<Located<Positive>> = 100000;
        /// Memory for the removals that one view remembers for clients that are behind; the oldest go first.
        removal_history_bytes: Option<Located<Size>> = "64MiB";
        /// How long a removal is remembered for clients that are behind, while the control plane can be reached.
        removal_history_age: Option<Located<Pause>> = "10m";
        /// Above this, names that only this stream wants no longer trigger fallback.
        absent_names_per_stream: Option<Located<Count>> = 100;
        /// How long interest and its cache outlive the last client that had it.
        linger: Option<Located<Wait>> = "30s";
        /// Subscriptions of one view that are kept for the linger time. Beyond it the oldest end.
        lingering: Option<Located<Count>> = 100000;
        /// Size above which a delta reply is split.
        reply_bytes: Option<Located<Size>> = "2MiB";
        /// Silence of a live server after which a name is absent, for clients without it.
        resource_timer: Option<Located<Pause>> = "15s";
        /// Silence after a second request, after which clients that hold the resource lose it.
        second_silence: Option<Located<Pause>> = "2m";
        /// How long a removed cluster stays at most while routing refers to it; 0s: not at all.
        reference_hold: Option<Located<Wait>> = "5s";
        /// How long a client's routes wait for clusters, and its removals for routing, of which too little is known for it.
        clusters_timeout: Option<Located<Wait>> = "20s";
        /// How long a Fetch call waits for what is unknown.
        fetch_timeout: Option<Located<Wait>> = "5s";
        /// The longest resource file.
        file_bytes: Option<Located<Size>> = "64MiB";
        /// Connections of clients; above it, new ones get RESOURCE_EXHAUSTED or 503 unless there are some without streams, which are
        /// closed instead. Without it, what the limit of open files allows.
        connections: Option<Located<Positive>>;
        /// Connections from one address; above it, new ones get RESOURCE_EXHAUSTED or 429. 0: no limit, as balancers and NAT need it.
        connections_per_address: Option<Located<Count>> = 0;
        /// Connections of one identity; above it, new ones get RESOURCE_EXHAUSTED or 429. 0: no limit, as whole fleets may have one.
        connections_per_identity: Option<Located<Count>> = 0;
        /// New connections in a second; those above it wait. 0: no limit.
        new_connections_per_second: Option<Located<Count>> = 0;
        /// A connection without a request is closed after this long; 0s: never.
        first_request_timeout: Option<Located<Interval>> = "1m";
        /// TLS handshakes that are worked on at a time; the others wait in order. One that waits for its client does not count.
        handshakes: Option<Located<Positive>> = 16;
        /// How long a TLS handshake may wait for its client.
        handshake_timeout: Option<Located<Pause>> = "10s";
        /// TLS handshakes of one address at a time; further connections are closed. 0: no limit, as balancers and NAT need it.
        handshakes_per_address: Option<Located<Count>> = 0;
        /// Open streams of one connection, as HTTP/2 announces it; the client waits with more.
        streams_per_connection: Option<Located<Positive>> = 4096;
        /// Open streams and polls of one identity; above it, new ones get RESOURCE_EXHAUSTED or 429. 0: no limit.
        streams_per_identity: Option<Located<Count>> = 0;
        /// New streams and polls of one connection in a second; the relay reads those above it later. 0: no limit.
        new_streams_per_second: Option<Located<Count>> = 2000;
        /// Views that exist because of one connection; a client that would need one more gets RESOURCE_EXHAUSTED or 429. 0: no limit.
        views_per_connection: Option<Located<Count>> = 100;
        /// Views that exist because of one identity; a client that would need one more gets RESOURCE_EXHAUSTED or 429. 0: no limit.
        views_per_identity: Option<Located<Count>> = 0;
        /// Open streams and polls of all clients; above it, new ones get RESOURCE_EXHAUSTED or 503.
        streams: Option<Located<Positive>> = 1000000;
        /// Requests of one stream in a second; the relay reads those above it later. 0: no limit.
        requests_per_second: Option<Located<Count>> = 0;
        /// New names of one stream in a second, and those of 40 s at once; the relay reads requests above it later. 0: no limit.
        new_names_per_second: Option<Located<Count>> = 5000;
        /// Headers of one request; above it, it gets RESOURCE_EXHAUSTED or 431. At least 1KiB.
        header_bytes: Option<Located<Size>> = "16KiB";
    }
}

section! {
    /// What happens on SIGTERM.
    Drain {
        /// Not ready, and serving as before, so that balancers notice first.
        delay: Option<Located<Wait>> = "0s";
        /// How long a stream without any reply is kept.
        grace: Option<Located<Wait>> = "10s";
        /// All streams have had their turn to end after this time.
        spread: Option<Located<Wait>> = "30s";
        /// Streams end no faster than their clients may fetch so much elsewhere, unless that would take longer than the spread.
        bytes_per_second: Option<Located<Size>> = "64MiB";
    }
}

section! {
    /// What happens when this file changes. It is read again on SIGHUP, and on POST /config/reload at the admin address.
    Reload {
        /// Whether the file is also read again when it changes.
        watch: Located<bool> = false;
        /// Streams of an earlier configuration end evenly over this time; meanwhile they are served as before.
        spread: Option<Located<Wait>> = "1m";
    }
}
