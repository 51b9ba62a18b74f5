//! The defaults of a server with nothing but an address.

use std::collections::BTreeSet;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use weir_core::protocol::ladder::Rule;
use weir_core::protocol::upstream::{BackoffTimes, ServerQuirks};

use crate::upstream::{AdsServer, Keepalive, LifeTimes};

/// Returns a server without TLS and with defaults for everything else.
pub(crate) fn plain_server(uri: Uri, message_bytes: usize) -> AdsServer {
    AdsServer {
        uri,
        socket: None,
        tls: None,
        tokens: Vec::new(),
        tenants: Vec::new(),
        variant: None,
        quirks: ServerQuirks::default(),
        features: BTreeSet::new(),
        connect_timeout: CONNECT_TIMEOUT,
        life: LifeTimes::default(),
        keepalive: Keepalive::default(),
        backoff: BackoffTimes::default(),
        message_bytes,
        max_streams_per_connection: MAX_STREAMS_PER_CONNECTION,
    }
}

/// Returns the default name for the certificate of a server.
pub(crate) fn name_in(uri: &Uri) -> Option<ServerName<'static>> {
    let host = uri.host()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

pub(super) fn rule(reachability_only: bool) -> Rule {
    if reachability_only { Rule::Reachability } else { Rule::Uncached }
}

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const MESSAGE_BYTES: usize = 64 << 20;
/// Few connections for many views, while one that breaks ends few streams.
pub(crate) const MAX_STREAMS_PER_CONNECTION: usize = 50;
