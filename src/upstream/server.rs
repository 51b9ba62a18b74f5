//! One control plane, as the configuration describes it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;

use crate::protocol::session::Variant;
use crate::protocol::upstream::{BackoffTimes, ServerQuirks};

/// Two that are equal are one server, with one connection (BOOT-9).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdsServer {
    /// A scheme, a host, perhaps a port, and nothing behind them.
    pub(crate) uri: Uri,
    /// There if and only if the scheme is https.
    pub(crate) tls: Option<TlsFiles>,
    /// A token out of each of these files goes along with each stream, over TLS alone (BOOT-7).
    pub(crate) tokens: Vec<PathBuf>,
    /// Spoken from the start; without it delta is tried, and SotW where the server does not speak that.
    pub(crate) variant: Option<Variant>,
    pub(crate) quirks: ServerQuirks,
    /// Features that it is said to have and that change nothing here, but tell it from others (BOOT-10).
    pub(crate) features: BTreeSet<&'static str>,
    pub(crate) connect_timeout: Duration,
    pub(crate) life: LifeTimes,
    pub(crate) keepalive: Keepalive,
    pub(crate) backoff: BackoffTimes,
    pub(crate) message_bytes: usize,
}

/// When the server is asked whether it is there, by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LifeTimes {
    /// How long nothing has to be heard before it is asked; without it, it is only asked on demand.
    pub(crate) interval: Option<Duration>,
    /// How long a call may take.
    pub(crate) timeout: Duration,
}

impl Default for LifeTimes {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(10)), timeout: Duration::from_secs(5) }
    }
}

/// HTTP/2's own pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keepalive {
    pub(crate) interval: Option<Duration>,
    pub(crate) timeout: Duration,
}

/// What gRPC clients do, and no more often (TRN-17).
impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Some(Duration::from_secs(300)), timeout: Duration::from_secs(20) }
    }
}

/// Where the certificates for a server are. They are read again for each connection (BOOT-8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// Who may have signed the server's certificate; without it, whom the system trusts.
    pub(crate) ca: Option<PathBuf>,
    pub(crate) own: Option<OwnCertificate>,
    /// Whom the server's certificate has to be for.
    pub(crate) server_name: ServerName<'static>,
}

/// What the relay shows to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnCertificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl AdsServer {
    /// How long a server that has taken a connection may take for its first words on it: a kernel takes connections for a program
    /// that hangs (FB-32).
    pub(super) fn first_words_timeout(&self) -> Duration {
        self.connect_timeout.min(FIRST_WORDS)
    }

    /// The URI without the slash that the type puts behind it.
    pub(crate) fn name(&self) -> String {
        self.uri.to_string().trim_end_matches('/').into()
    }
}

const FIRST_WORDS: Duration = Duration::from_secs(5);
