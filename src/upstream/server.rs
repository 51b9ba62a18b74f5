//! One control plane, as configured.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{BackoffTimes, ServerQuirks};
use weir_core::xds::NamePattern;

use super::dial::DialLimits;
use super::headers::ServerHeader;
use super::proxy::Proxy;
use super::tls::TlsFiles;
use crate::known_files::KnownFiles;
use crate::relay::ShownValues;
use crate::tls::OwnCertificate;

/// Equal servers are one, and share connections (BOOT-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdsServer {
    /// A scheme, a host and an optional port, without a path.
    pub(crate) uri: Uri,
    /// A Unix socket that is connected to instead of the host of the URI.
    pub(crate) socket: Option<PathBuf>,
    /// The proxy that makes the connections to the server; without it they are made directly.
    pub(crate) proxy: Option<Proxy>,
    /// Present if and only if the scheme is https.
    pub(crate) tls: Option<TlsFiles>,
    /// Each of these files has a token that is sent with each stream, over TLS alone (BOOT-7).
    pub(crate) tokens: Vec<PathBuf>,
    /// Sent with each stream, poll and call, where they cannot be read on the way.
    pub(crate) headers: Vec<ServerHeader>,
    /// Credentials for clients of some tenants, instead of the server's own certificate, tokens and headers. The first entry that matches counts.
    pub(crate) tenants: Vec<TenantCredentials>,
    /// The variant used from the start. Without it delta is tried, then SotW if the server does not support delta.
    pub(crate) variant: Option<Variant>,
    pub(crate) quirks: ServerQuirks,
    /// Configured features that change nothing here, but distinguish the server from others (BOOT-10).
    pub(crate) features: BTreeSet<&'static str>,
    pub(crate) connect_timeout: Duration,
    pub(crate) life: LifeTimes,
    pub(crate) keepalive: Keepalive,
    pub(crate) backoff: BackoffTimes,
    pub(crate) message_bytes: usize,
    /// Whether it is asked to compress its responses.
    pub(crate) accept_compression: bool,
    /// How many streams share a connection, at most.
    pub(crate) max_streams_per_connection: usize,
    pub(crate) ages: ConnectionAges,
    /// Whether streams show the server headers of clients, by which it may judge them. Calls and polls without a client show none.
    pub(crate) judges_clients: bool,
    /// The last contents of its files.
    pub(crate) known_files: KnownFiles,
    /// The values that the server is shown in headers, or was shown lately.
    pub(crate) shown_values: ShownValues,
}

/// Credentials for clients of some tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TenantCredentials {
    pub(crate) tenants: Vec<NamePattern>,
    pub(crate) own: Option<OwnCertificate>,
    pub(crate) tokens: Vec<PathBuf>,
    pub(crate) headers: Vec<ServerHeader>,
}

/// When liveness calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LifeTimes {
    /// The silence after which a call is made. Without it, calls are made on request alone.
    pub(crate) interval: Option<Duration>,
    /// The time limit of one call.
    pub(crate) timeout: Duration,
    pub(crate) method: LifeMethod,
}

/// The method of liveness calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum LifeMethod {
    /// A method that does not exist, on the path of the discovery service.
    #[default]
    Call,
    /// `grpc.health.v1.Health/Check`.
    Health,
    /// No calls are made, and nothing follows from silence.
    None,
}

/// HTTP/2 pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keepalive {
    pub(crate) interval: Option<Duration>,
    pub(crate) timeout: Duration,
}

/// When streams move away from a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionAges {
    /// How long the answers for the server's name must lack the address of a connection before its streams move. `None`: they stay.
    pub(crate) drain: Option<Duration>,
    /// The maximum age of a connection, varied by 10 %.
    pub(crate) max: Option<Duration>,
}

impl ConnectionAges {
    /// Streams never move.
    pub(crate) const NONE: Self = Self { drain: None, max: None };
}

impl AdsServer {
    /// A server that tests never dial.
    #[cfg(test)]
    pub(super) fn undialed() -> Self {
        Self {
            uri: "http://127.0.0.1:1".parse().unwrap(),
            socket: None,
            proxy: None,
            tls: None,
            tokens: Vec::new(),
            headers: Vec::new(),
            tenants: Vec::new(),
            variant: None,
            quirks: Default::default(),
            features: Default::default(),
            connect_timeout: Duration::from_secs(20),
            life: LifeTimes { interval: None, timeout: Duration::from_secs(5), method: LifeMethod::Call },
            keepalive: Keepalive { interval: None, timeout: Duration::from_secs(20) },
            backoff: Default::default(),
            message_bytes: 1 << 20,
            accept_compression: false,
            max_streams_per_connection: 50,
            ages: ConnectionAges::NONE,
            judges_clients: false,
            known_files: KnownFiles::default(),
            shown_values: ShownValues::default(),
        }
    }

    /// Returns the time limits for a connection. The server's first bytes have a limit of their own, since a kernel accepts connections for a hung
    /// program (FB-32).
    pub(super) fn dial_limits(&self) -> DialLimits {
        DialLimits { connect: self.connect_timeout, first_words: self.connect_timeout.min(FIRST_WORDS) }
    }

    /// Returns the server with the credentials for some tenants.
    pub(super) fn with_credentials(&self, credentials: &TenantCredentials) -> Self {
        let TenantCredentials { tenants: _, own, tokens, headers } = credentials.clone();
        let tls = self.tls.clone().map(|tls| TlsFiles { own, ..tls });
        Self { tls, tokens, headers, tenants: Vec::new(), ..self.clone() }
    }

    /// Whether secret headers may be sent to the server: the connection has TLS, or does not leave this machine.
    pub(crate) fn may_be_shown_headers(&self) -> bool {
        let host = self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.tls.is_some() || self.socket.is_some() || is_here && self.proxy.is_none()
    }

    /// Returns its configured address: a scheme, a host and an optional port.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Whether connections to it are made with TLS.
    pub fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the URI without the trailing slash that its type appends.
    pub(crate) fn name(&self) -> String {
        match &self.socket {
            Some(path) => match path.to_str().and_then(|path| path.strip_prefix('\0')) {
                Some(name) => format!("unix-abstract:{name}"),
                None => format!("unix:{}", path.display()),
            },
            None => self.uri.to_string().trim_end_matches('/').into(),
        }
    }
}

const FIRST_WORDS: Duration = Duration::from_secs(5);
