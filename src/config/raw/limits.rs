//! Bounds and waits.

use weir_core::protocol::session::SessionOptions;
use weir_core::protocol::upstream::UpstreamOptions;
use weir_core::protocol::view::ViewOptions;

use crate::config::form::Applies::{AtOnce, NewStreams, Restart};
use crate::config::form::{
    Count, Interval, Located, MemoryAmount, Pause, Positive, Setting, Size, Wait, kib, mib, minutes, seconds, section,
};

use crate::memory::MemorySetting;

section! {
    /// Bounds on messages, names and waits.
    Limits {
        /// The longest request of a client, and the longest response of a server.
        ///
        /// A poll may have at most 4 MiB in any case.
        message_bytes: Setting<Size> = mib(64), applies(NewStreams);
        /// Memory that the relay may use; above it, new things are refused to clients that have more than their equal part.
        ///
        /// A share is of the least memory limit of the process's control groups, or else of the memory of the machine. The rest is for gaps
        /// of the allocator, stacks and the kernel. See [limits](limits.md#memory).
        memory: Setting<MemoryAmount> = MemorySetting::Percent(75), applies(AtOnce);
        /// Memory for requests that have not fully arrived, over all clients.
        incomplete_request_bytes: Option<Located<Size>>, applies(Restart), absent("12% of `memory`, and at least `message_bytes`"),
            example("512MiB");
        /// Memory for replaced resources that are part of unfinished replies, over all clients.
        outdated_reply_bytes: Option<Located<Size>>, applies(NewStreams), absent("6% of `memory`"), example("128MiB");
        /// How fast the rest of a request has to arrive, on average over half a minute.
        // Slower than any link that an Envoy is run on.
        request_bytes_per_second: Setting<Size> = kib(1), applies(Restart);
        /// Names and versions in one request, counted together; clusters and rows in one load report.
        // As many names as a stream may have, each with its version, and as many names to unsubscribe.
        request_entries: Setting<Positive> = 400_000, applies(NewStreams);
        /// The longest name, with its version or its parameters; of a type URL, 256 bytes if this is less.
        name_bytes: Setting<Size> = kib(16), applies(NewStreams);
        /// The largest node of a client.
        // Sixteen times a large node.
        node_bytes: Setting<Size> = mib(1), applies(NewStreams);
        /// Types of one stream.
        types_per_stream: Setting<Positive> = SessionOptions::default().types, applies(NewStreams);
        /// Names of one type on one stream.
        names_per_type: Setting<Positive> = SessionOptions::default().names, applies(NewStreams);
        /// Names of all types on one stream, with those in `initial_resource_versions`.
        names_per_stream: Setting<Positive> = SessionOptions::default().names_per_stream, applies(NewStreams);
        /// Names of all streams of one view.
        ///
        /// See [limits](limits.md#views).
        names_per_view: Setting<Positive> = ViewOptions::default().names_per_view, applies(NewStreams);
        /// Bytes of all cached resources; above it, new names get RESOURCE_EXHAUSTED, and nothing lingers.
        ///
        /// Counted are resources that servers sent, each body once, with what replies and removals still keep; [files](files.md) do not
        /// count.
        cached_bytes: Option<Located<Size>>, applies(NewStreams), absent("half of `memory`"), example("4GiB");
        /// Memory for the `initial_resource_versions` of all clients, until they are compared; equal ones are kept once.
        // Enough for 25 fleets with a hundred thousand clusters each that reconnect at the same time.
        stated_versions_bytes: Option<Located<Size>>, applies(NewStreams), absent("12% of `memory`"), example("512MiB");
        /// Names of one type that the clients of a view hold and the view does not know; servers are asked for them once more. Further ones
        /// are asked for later.
        ///
        /// See [limits](limits.md#views).
        sought_names: Setting<Positive> = ViewOptions::default().sought_names, applies(NewStreams);
        /// Memory for the removals that one view remembers for clients that are behind; the oldest go first.
        ///
        /// Without bodies: about 350 bytes and the name each, so some 180,000. See [limits](limits.md#views).
        removal_history_bytes: Setting<Size> = ViewOptions::default().history_bytes, applies(NewStreams);
        /// How long a removal is remembered for clients that are behind, while the control plane can be reached. At least 10s.
        ///
        /// The clock stands while no server is reachable.
        removal_history_age: Setting<Pause> = ViewOptions::default().history_age, applies(NewStreams);
        /// Once a stream wants more absent names than this, names that it alone wants no longer trigger fallback.
        absent_names_per_stream: Setting<Count> = ViewOptions::default().absent_names_per_stream, applies(NewStreams);
        /// How long a subscription and its cached resources are kept after its last client has left.
        ///
        /// A name that is known to be absent lingers only after a stream or poll that ended. With polling clients: longer than the time
        /// between two polls.
        linger: Setting<Wait> = ViewOptions::default().linger, applies(NewStreams);
        /// How many subscriptions of one view may linger. Above this number, the oldest of them end.
        lingering: Setting<Count> = ViewOptions::default().lingering, applies(NewStreams);
        /// A delta reply that is larger than this is split.
        reply_bytes: Setting<Size> = SessionOptions::default().reply_bytes, applies(NewStreams);
        /// How long a live server may be silent about a name before the name is absent for clients that do not hold it.
        ///
        /// Below 15 s there is a warning.
        resource_timer: Setting<Pause> = UpstreamOptions::default().resource_timer, applies(NewStreams);
        /// How long a live server may be silent after a second request before clients that hold the resource lose it.
        second_silence: Setting<Pause> = UpstreamOptions::default().second_silence, applies(NewStreams);
        /// A removed cluster to which routing refers stays at most this long; 0s: not at all.
        ///
        /// With `0s`, no routing waits for clusters either. See [order](order.md).
        reference_hold: Setting<Wait> = ViewOptions::default().reference_hold, applies(NewStreams);
        /// How long routes wait for clusters, and removals for routing, while too little of those is known for a client.
        ///
        /// Removals wait only for routing of which the client holds something. `0s`: not at all. See [order](order.md).
        clusters_timeout: Setting<Wait> = SessionOptions::default().clusters_timeout, applies(NewStreams);
        /// How long a Fetch call waits for what is unknown.
        ///
        /// It then ends with `UNAVAILABLE`.
        fetch_timeout: Setting<Wait> = SessionOptions::default().fetch_timeout, applies(NewStreams);
        /// The longest resource file.
        file_bytes: Setting<Size> = mib(64), applies(NewStreams);
        /// Connections of clients. Without it, what the limit of open files allows.
        ///
        /// See [open files](operations.md#open-files).
        connections: Option<Located<Positive>>, applies(AtOnce), absent("as open files allow"), example("20000");
        /// Connections from one address. 0: no limit, as balancers and NAT need it.
        connections_per_address: Setting<Count> = 0, applies(AtOnce);
        /// Connections of one identity. 0: no limit, as whole fleets may have one.
        ///
        /// See [identities](limits.md#identities).
        connections_per_identity: Setting<Count> = 0, applies(AtOnce);
        /// New connections in a second. 0: no limit.
        new_connections_per_second: Setting<Count> = 0, applies(Restart);
        /// A connection without a request is closed after this long; 0s: never.
        first_request_timeout: Setting<Interval> = minutes(1), applies(Restart);
        /// A stream that is silent from its beginning ends after this long; 0s: never.
        ///
        /// Once something has arrived, `request_bytes_per_second` counts.
        first_message: Setting<Interval> = seconds(30), applies(NewStreams);
        /// TLS handshakes that are worked on at a time.
        // A handshake takes a millisecond or two of work. Other ready tasks wait for this many handshakes, divided by the number of workers.
        handshakes: Setting<Positive> = 16, applies(AtOnce);
        /// How long a TLS handshake may wait for its client.
        ///
        /// All its waits are added up. At least 10 ms.
        handshake_timeout: Setting<Pause> = seconds(10), applies(Restart);
        /// TLS handshakes of one address at a time. 0: no limit, as balancers and NAT need it.
        handshakes_per_address: Setting<Count> = 0, applies(AtOnce);
        /// Open streams of one connection. HTTP/2 tells the client, which waits before it opens more.
        ///
        /// The setting of HTTP/2 is `SETTINGS_MAX_CONCURRENT_STREAMS`. A change counts for new connections.
        // An Envoy without ADS opens a stream for each cluster and route, all of them before it has received HTTP/2 settings.
        streams_per_connection: Setting<Positive> = 4096, applies(AtOnce);
        /// Open streams and polls of one identity. 0: no limit.
        ///
        /// See [identities](limits.md#identities).
        streams_per_identity: Setting<Count> = 0, applies(AtOnce);
        /// Open streams and polls of one tenant. 0: no limit.
        ///
        /// Needs `tenant` in `views.key`. See [tenants](security.md#tenants-and-tiers).
        streams_per_tenant: Setting<Count> = 0, applies(AtOnce);
        /// Names of all streams of one tenant. 0: no limit.
        ///
        /// Needs `tenant` in `views.key`.
        names_per_tenant: Setting<Count> = 0, applies(AtOnce);
        /// New streams and polls of one connection in a second. 0: no limit.
        ///
        /// As many may come at once.
        // An Envoy with 1,500 streams opens them at once.
        new_streams_per_second: Setting<Count> = 2000, applies(Restart);
        /// Views that exist because of one connection. 0: no limit.
        ///
        /// Their first client was on the connection. Proxies that put many clients on one connection need `0`.
        // A relay has up to 50 streams on one connection, each for another view. The limit is twice that, since views outlive their streams for a
        // while.
        views_per_connection: Setting<Count> = 100, applies(NewStreams);
        /// Views that exist because of one identity. 0: no limit.
        ///
        /// Their first client had the [identity](limits.md#identities).
        views_per_identity: Setting<Count> = 0, applies(NewStreams);
        /// Views of one tenant. 0: no limit.
        ///
        /// Needs `tenant` in `views.key`.
        views_per_tenant: Setting<Count> = 0, applies(NewStreams);
        /// Open streams and polls of all clients.
        streams: Setting<Positive> = 1_000_000, applies(AtOnce);
        /// Requests of one stream in a second. 0: no limit.
        requests_per_second: Setting<Count> = 0, applies(NewStreams);
        /// Requests of all streams of one tenant in a second. 0: no limit.
        ///
        /// Needs `tenant` in `views.key`. As many may come at once.
        tenant_requests_per_second: Setting<Count> = 0, applies(AtOnce);
        /// New names of one stream in a second; those of 40 s may come at once. 0: no limit.
        // More than the names that change while a fleet is being scaled.
        new_names_per_second: Setting<Count> = 5000, applies(NewStreams);
        /// Headers of one request. At least 1KiB.
        ///
        /// Each header counts 32 bytes besides its text.
        header_bytes: Setting<Size> = kib(16), applies(Restart);
    }
}

section! {
    /// What happens on SIGTERM.
    Drain {
        /// How long the relay is not ready but serves as before, so that balancers notice first.
        ///
        /// New clients are accepted too.
        delay: Setting<Wait> = seconds(0);
        /// How long a stream without any reply is kept.
        grace: Setting<Wait> = seconds(10);
        /// All streams have had their turn to end after this time.
        spread: Setting<Wait> = seconds(30);
        /// How much the clients of ended streams may fetch elsewhere in a second, unless that would take longer than the spread.
        ///
        /// Counted by what the clients subscribe to, and 64 KiB at least for each stream. If `spread` is too short for that, streams end
        /// evenly over it.
        // Half the capacity of a network of 1 Gbit/s.
        bytes_per_second: Setting<Size> = mib(64);
    }
}

section! {
    /// What happens when this file changes. It is read again on SIGHUP, and on POST /config/reload at the admin address.
    Reload {
        /// Whether the file is also read again when it changes.
        ///
        /// It is looked at once a second, and read once it looks the same twice. See [while it waits](reload.md#while-it-waits-for-files).
        watch: Setting<bool> = false;
        /// Streams of an earlier configuration end evenly over this time; meanwhile they are served as before.
        // Nothing waits for it: the streams are served meanwhile.
        spread: Setting<Wait> = minutes(1);
    }
}
