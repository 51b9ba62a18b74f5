//! One control plane.

use std::sync::LazyLock;

use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{BackoffTimes, InitialSet, ServerQuirks};

use super::proxy::Proxy;
use crate::config::form::{
    Factor, FilePath, Hidden, HostName, Interval, Jitter, Located, Name, Names, Needed, NonEmpty, OneOrMore, Pause,
    Positive, Section, ServerUri, Setting, Size, Unquoted, VariableName, Wait, seconds, section, words_for,
};
use crate::upstream::LifeMethod;

section! {
    /// One source of resources. Exactly one of uri, rest and files is needed.
    Server {
        /// A control plane that serves ADS over gRPC: http:// or https://, and a host.
        ///
        /// `http://` means no TLS. No path is allowed. `unix:PATH`, relative to the folder of this file, is a Unix socket, and
        /// `unix-abstract:NAME` one without a file; both without TLS.
        uri: Option<Located<ServerUri>>, written("http://127.0.0.1:18010");
        /// Files and folders of resources, usually as the last rung, relative to the folder of this file.
        ///
        /// No other key may be beside it. See [files](files.md).
        files: Option<Located<OneOrMore<FilePath>>>, example("resources");
        /// A management server that is polled in JSON over HTTP: http:// or https://, and a host.
        ///
        /// See [a REST server as a source](rest.md#a-rest-server-as-a-source).
        rest: Option<Located<ServerUri>>, example("http://127.0.0.1:18011");
        /// With rest: from a response to the next poll of the same type, a random time from this to twice this.
        ///
        /// At least 10 ms.
        refresh_delay: Setting<Pause> = seconds(5), only("rest"), example("");
        /// With rest: for a response.
        ///
        /// At least 10 ms.
        // Ten times the default of Envoy, which polls for itself alone: sets for many clients are larger, and a relay can serve its cache
        // meanwhile.
        request_timeout: Setting<Pause> = seconds(10), only("rest"), example("");
        /// Certificates, for https://.
        ///
        /// See [tls](#tls).
        tls: Option<Located<Tls>>, only("uri, rest");
        /// Connections are made through an HTTP proxy: this one, or with environment the one that HTTPS_PROXY and NO_PROXY say.
        ///
        /// Without it they are direct, whatever the environment has. See [proxies](upstream.md#proxies).
        proxy: Option<Located<Proxy>>, only("uri, rest"), absent("none");
        /// JSON web token, sent with each stream or poll, over TLS only; read each time.
        ///
        /// It is sent as `authorization: Bearer …`, and must have an expiry that is at least 30 s away.
        token_file: Option<Located<FilePath>>, only("uri, rest"), example("token");
        /// Headers that the server is shown with each stream, poll and call, for all clients.
        ///
        /// Needs `https://`, a Unix socket, or `http://` on this machine without a proxy. See [headers](#headers).
        headers: Option<Located<Headers>>, only("uri, rest"), example("x-consul-token");
        /// If true, all clients of an id may have what the headers may read, whichever client states it.
        ///
        /// Without it, headers are a fault if `id` is in `views.key` and not tied to identities by each of `permissions`. See
        /// [headers](#headers).
        shared_credential: Setting<bool> = false, only("uri, rest");
        /// What the server is shown for clients of some tenants, instead of tls.certificate, token_file and headers. The first entry for a
        /// tenant counts.
        ///
        /// Streams with different credentials never share a connection. Needs `tenant` in `views.key`.
        tenants: Option<Located<NonEmpty<TenantEntry>>>, only("uri"), example("");
        /// Without it delta is tried, and SotW if the server does not implement delta.
        variant: Option<Located<Variant>>, only("uri"), absent("delta, then SotW"), example("delta");
        /// For name resolution, TCP and TLS. With rest the default is request_timeout.
        ///
        /// A server that has accepted the connection has 5 s, or `connect_timeout` if that is shorter, for its first bytes of TLS and of
        /// HTTP/2.
        connect_timeout: Setting<Pause> = seconds(20), only("uri, rest"), absent("`20s`; for `rest`, `request_timeout`");
        /// Calls that find out whether a silent server is alive.
        ///
        /// See [liveness](#liveness-and-keepalive).
        liveness: Option<Located<Liveness>>, only("uri"), absent("its defaults"), written("");
        /// HTTP/2 pings.
        ///
        /// See [keepalive](#liveness-and-keepalive).
        keepalive: Option<Located<Keepalive>>, only("uri"), absent("its defaults"), written("");
        /// How many streams share a connection, at most; 1: each has its own. At most 1000.
        ///
        /// See [connections](upstream.md#connections).
        // Few connections for many views, yet one that breaks ends only few streams.
        max_streams_per_connection: Setting<Positive> = 50, only("uri");
        /// An address that the answers for the server's name lack for this long is left, stream by stream; 0s: never.
        ///
        /// See [addresses of a name](upstream.md#addresses-of-a-name).
        drain: Setting<Interval> = seconds(300), only("uri, rest");
        /// A connection that is this old, 10 % more or less, is replaced, stream by stream; 0s: never.
        ///
        /// If not 0s, at least twice `limits.resource_timer` and `limits.second_silence` together (4m 30s by default): each stream that moves
        /// starts these timers again. A SotW server sends it the whole set again. See [connections](upstream.md#connections).
        max_connection_age: Setting<Interval> = seconds(0), only("uri, rest");
        /// If true, the server is asked to compress its responses with gzip, as another Weir does with `clients.compression`.
        ///
        /// Not worth its cost where the server is near. See [compressed responses](upstream.md#compressed-responses).
        accept_compression: Setting<bool> = false, only("uri, rest");
        /// For this server alone; missing keys are as in upstream.backoff.
        ///
        /// See [backoff](#backoff).
        backoff: Option<Located<Backoff>>, only("uri, rest"), absent("upstream.backoff");
        /// If true, the node is in every request, as Envoy sends it; if false, in the first request of a stream alone.
        ///
        /// Some servers need it in each, ACKs too. [What it costs](upstream.md#the-node-in-every-request).
        node_in_every_request: Setting<bool> = ServerQuirks::default().node_in_every_request, only("uri");
        /// If false, no versions are stated when a delta stream opens, for servers that ignore them.
        supports_initial_resource_versions: Setting<bool> = ServerQuirks::default().supports_initial_resource_versions, only("uri");
        /// The longest request that the server takes; longer ones are split, or name less.
        ///
        /// gRPC servers take 4 MiB by default. At least 128 KiB. [What longer requests become](upstream.md#long-requests).
        max_request_bytes: Setting<Size> = ServerQuirks::default().max_request_bytes, only("uri");
        /// How the server sends a wildcard set to a new delta client: in one response, in several, or Weir finds out. With
        /// one_response, clients lose what the first response lacks.
        ///
        /// [Which value fits which server](upstream.md#which-settings-fit-which-server).
        initial_set: Setting<InitialSet> = ServerQuirks::default().initial_set, only("uri");
        /// If false, empty SotW lists are avoided, for servers that take an empty list of names for a wildcard.
        ///
        /// Weir then subscribes to a name that no resource has.
        supports_empty_subscription: Setting<bool> = ServerQuirks::default().supports_empty_subscription, only("uri");
        /// If true, resources that this server deletes stay available to clients.
        ignore_deletions: Setting<bool> = ServerQuirks::default().ignore_deletions, only("uri, rest");
        /// If true, silence about a name is an error, not absence (gRFC A88).
        ///
        /// It then takes twice `limits.resource_timer`, 30 s by default.
        resource_timer_is_transient_error: Setting<bool> = false, only("uri, rest");
        /// If true, clients lose a resource that the server reports as PERMISSION_DENIED (gRFC A88).
        fail_on_data_errors: Setting<bool> = ServerQuirks::default().fail_on_data_errors, only("uri, rest");
    }
}

/// Headers by their names.
pub(in crate::config) type Headers = Unquoted<Names<Unquoted<HeaderEntry>>>;

section! {
    /// What a server is shown for clients of some tenants. Connections are not shared with other tenants.
    TenantEntry {
        /// Tenants; a * at the end matches any rest.
        names: Needed<NonEmpty<Name>>, written("[payments, team-*]");
        /// PEM file of the certificate, with its chain. Requires key.
        certificate: Option<Located<FilePath>>, written("payments.pem");
        /// PEM file of its private key. Requires certificate.
        key: Option<Located<FilePath>>, written("payments.key");
        /// JSON web token.
        token_file: Option<Located<FilePath>>, example("payments.token");
        /// Headers, as those of the server.
        headers: Option<Located<Headers>>, example("x-consul-token");
    }
}

section! {
    /// The value of a header that a server is shown; exactly one key.
    HeaderEntry {
        /// The value itself; for secrets, use a file.
        value: Option<Located<Hidden>>, example("eu-west");
        /// A file that has the value, read for each stream, poll and call.
        ///
        /// Spaces and line breaks around it do not count. At most 4 KiB.
        file: Option<Located<FilePath>>, written("consul.token");
        /// The environment variable that has the value.
        environment: Option<Located<VariableName>>, example("CONSUL_TOKEN");
    }
}

section! {
    /// Certificates, read for each connection, relative to the folder of this file.
    Tls {
        /// PEM file of the CAs that may sign the server's certificate. Without it the system's trust store.
        ca: Option<Located<FilePath>>, absent("the system's trust store"), example("cp-ca.pem");
        /// PEM file of the certificate that Weir presents, with its chain. Requires key.
        certificate: Option<Located<FilePath>>, example("weir.pem");
        /// PEM file of its private key. Requires certificate.
        key: Option<Located<FilePath>>, example("weir.key");
        /// The name that the server's certificate must have. Without it the host of the URI.
        server_name: Option<Located<HostName>>, absent("the host of the URI"), example("cp.example");
    }
}

section! {
    /// Calls that find out whether a silent server is alive: when they are made, and how long it has to answer.
    Liveness {
        /// What is called: a method that does not exist, the health service of gRPC, or nothing, so that silence proves nothing.
        ///
        /// See [liveness calls](upstream.md#liveness-calls).
        method: Setting<LifeMethod> = LifeMethod::default();
        /// Silence after which a call is made; 0s: only when an answer decides something.
        ///
        /// Of the idle connections to a server, each relay makes calls on one.
        interval: Setting<Interval> = seconds(10);
        /// For one answer. Two calls in a row without an answer close the stream.
        timeout: Setting<Pause> = seconds(5);
    }
}

section! {
    /// HTTP/2 pings: when they are sent, and how long the server has to answer.
    Keepalive {
        /// Silence after which a ping is sent; 0s: none. Many gRPC servers end connections that ping more often than every 5 minutes.
        ///
        /// Those on grpc-go and gRPC's C core do by default.
        // The defaults of gRPC clients. Pings must not be more frequent (TRN-17).
        interval: Setting<Interval> = seconds(300);
        /// For one answer.
        timeout: Setting<Pause> = seconds(20);
    }
}

section! {
    /// Waits between attempts to open a stream.
    Backoff {
        /// The first wait.
        ///
        /// At least 10 ms.
        initial: Setting<Pause> = BackoffTimes::default().initial;
        /// Each wait is this many times as long as the one before.
        factor: Setting<Factor> = BackoffTimes::default().factor;
        /// The longest wait.
        ///
        /// At least `initial`.
        max: Setting<Wait> = BackoffTimes::default().max;
        /// A wait is longer or shorter by up to this part of it.
        jitter: Setting<Jitter> = BackoffTimes::default().jitter;
        /// The waits start over after a stream that had a response and lasted this long.
        reset_after: Setting<Wait> = BackoffTimes::default().reset_after;
    }
}

/// The keys of a server, in their order, each with the kinds of servers that have it; `None` if all have it.
pub(in crate::config) static KINDS: LazyLock<Vec<(&str, Option<&str>)>> =
    LazyLock::new(|| Server::rows().into_iter().map(|row| (row.key, row.only)).collect());

words_for!(Variant { Delta = "delta", Sotw = "sotw" });
words_for!(LifeMethod { Call = "call", Health = "health", None = "none" });
words_for!(InitialSet { Auto = "auto", OneResponse = "one_response", Pieces = "pieces" });
