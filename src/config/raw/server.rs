//! One control plane.

use crate::config::form::{
    Factor, FilePath, HostName, Interval, Jitter, Located, Name, Needed, NonEmpty, OneOrMore, Pause, Positive,
    ServerUri, Size, Wait, section, words,
};

section! {
    /// One source of resources. Exactly one of uri, rest and files is needed.
    Server {
        /// A control plane that serves ADS over gRPC: http:// or https://, and a host.
        uri: Option<Located<ServerUri>>;
        /// Files and folders of resources, usually as the last rung, relative to the folder of this file.
        files: Option<Located<OneOrMore<FilePath>>>;
        /// A management server that is polled in JSON over HTTP: http:// or https://, and a host.
        rest: Option<Located<ServerUri>>;
        /// With rest: from a response to the next poll of the same type, a random time from this to twice this.
        refresh_delay: Option<Located<Pause>> = "5s";
        /// With rest: for a response.
        request_timeout: Option<Located<Pause>> = "10s";
        /// Certificates, for https://.
        tls: Option<Located<Tls>>;
        /// JSON web token, sent with each stream or poll, over TLS only; read each time.
        token_file: Option<Located<FilePath>>;
        /// What the server is shown for clients of some tenants, instead of tls.certificate and token_file. The first that is for one counts.
        tenants: Option<Located<NonEmpty<TenantEntry>>>;
        /// Without it delta is tried, and SotW if the server does not implement delta.
        variant: Option<Located<Variant>>;
        /// For name resolution, TCP and TLS. With rest the default is request_timeout.
        connect_timeout: Option<Located<Pause>> = "20s";
        /// Calls that find out whether a silent server is alive. Defaults: interval 10s, timeout 5s.
        liveness: Option<Located<Probe>>;
        /// HTTP/2 pings. Defaults: interval 300s, timeout 20s. Many gRPC servers end connections that ping more often.
        keepalive: Option<Located<Probe>>;
        /// How many streams share a connection, at most; 1: each has its own.
        max_streams_per_connection: Option<Located<Positive>> = 50;
        /// For this server alone; missing keys are as in upstream.backoff.
        backoff: Option<Located<Backoff>>;
        /// If true, the node is in every request, for servers that forget it after the first.
        node_in_every_request: Option<Located<bool>> = false;
        /// If false, no versions are stated when a delta stream opens, for servers that ignore them.
        supports_initial_resource_versions: Option<Located<bool>> = true;
        /// The longest request that the server takes; longer ones are split, or name less.
        max_request_bytes: Option<Located<Size>> = "3MiB";
        /// How the server sends a wildcard set to a new delta client: in one response, in several, or Weir finds out.
        initial_set: Option<Located<InitialSet>> = "auto";
        /// If false, empty SotW lists are avoided, for servers that take an empty list of names for a wildcard.
        supports_empty_subscription: Option<Located<bool>> = true;
        /// If true, resources that this server deletes stay available to clients.
        ignore_deletions: Option<Located<bool>> = false;
        /// If true, silence about a name is an error, not absence (gRFC A88).
        resource_timer_is_transient_error: Option<Located<bool>> = false;
        /// If true, clients lose a resource that the server reports as PERMISSION_DENIED (gRFC A88).
        fail_on_data_errors: Option<Located<bool>> = false;
    }
}

section! {
    /// What a server is shown for clients of some tenants. Connections are not shared with other tenants.
    TenantEntry {
        /// Tenants; a * at the end matches any rest.
        names: Needed<NonEmpty<Name>>;
        /// PEM file of the certificate, with its chain. Requires key.
        certificate: Option<Located<FilePath>>;
        /// PEM file of its private key. Requires certificate.
        key: Option<Located<FilePath>>;
        /// JSON web token.
        token_file: Option<Located<FilePath>>;
    }
}

section! {
    /// Certificates, read for each connection, relative to the folder of this file.
    Tls {
        /// PEM file of the CAs that may sign the server's certificate. Without it the system's trust store.
        ca: Option<Located<FilePath>>;
        /// PEM file of the certificate that Weir presents, with its chain. Requires key.
        certificate: Option<Located<FilePath>>;
        /// PEM file of its private key. Requires certificate.
        key: Option<Located<FilePath>>;
        /// The name that the server's certificate must have. Without it the host of the URI.
        server_name: Option<Located<HostName>>;
    }
}

section! {
    /// How often a server is probed, and how long it has to answer.
    Probe {
        /// Silence after which a probe is sent; 0s: none, or for liveness only when an answer decides something.
        interval: Option<Located<Interval>>;
        /// For one answer.
        timeout: Option<Located<Pause>>;
    }
}

section! {
    /// Waits between attempts to open a stream.
    Backoff {
        /// The first wait.
        initial: Option<Located<Pause>> = "1s";
        /// Each wait is this many times as long as the one before.
        factor: Option<Located<Factor>> = 1.6;
        /// The longest wait.
        max: Option<Located<Wait>> = "120s";
        /// A wait is longer or shorter by up to this part of it.
        jitter: Option<Located<Jitter>> = 0.2;
        /// The waits start over after a stream that had a response and lasted this long.
        reset_after: Option<Located<Wait>> = "30s";
    }
}

words! {
    /// The variant that a server is spoken to in.
    Variant { Delta = "delta", Sotw = "sotw" }
}

words! {
    /// How a server sends a set to a client that has nothing of it.
    InitialSet { Auto = "auto", OneResponse = "one_response", Pieces = "pieces" }
}
