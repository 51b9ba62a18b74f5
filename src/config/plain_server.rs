//! The defaults of a server of which only the address is set.

use std::collections::BTreeSet;

use http::Uri;
use rustls::pki_types::ServerName;
use weir_core::protocol::ladder::Rule;
use weir_core::protocol::upstream::{BackoffTimes, ServerQuirks};

use super::raw;
use crate::known_files::KnownFiles;
use crate::relay::ShownValues;
use crate::upstream::{AdsServer, ConnectionAges, Keepalive, LifeTimes};

/// Returns a server without TLS and with defaults for everything else.
pub(crate) fn plain_server(uri: Uri) -> AdsServer {
    let defaults = raw::Server::default();
    AdsServer {
        uri,
        socket: None,
        proxy: None,
        tls: None,
        tokens: Vec::new(),
        headers: Vec::new(),
        tenants: Vec::new(),
        variant: None,
        quirks: ServerQuirks::default(),
        features: BTreeSet::new(),
        connect_timeout: defaults.connect_timeout.0,
        life: life(&raw::Liveness::default()),
        keepalive: keepalive(&raw::Keepalive::default()),
        backoff: BackoffTimes::default(),
        message_bytes: default_message_bytes(),
        accept_compression: defaults.accept_compression.value,
        max_streams_per_connection: defaults.max_streams_per_connection.0,
        ages: ages(&defaults),
        judges_clients: false,
        known_files: KnownFiles::default(),
        shown_values: ShownValues::default(),
    }
}

pub(super) fn life(raw: &raw::Liveness) -> LifeTimes {
    LifeTimes { interval: raw.interval.0, timeout: raw.timeout.0, method: raw.method.value }
}

pub(super) fn keepalive(raw: &raw::Keepalive) -> Keepalive {
    Keepalive { interval: raw.interval.0, timeout: raw.timeout.0 }
}

pub(super) fn ages(raw: &raw::Server) -> ConnectionAges {
    ConnectionAges { drain: raw.drain.0, max: raw.max_connection_age.0 }
}

/// Returns the default limit for a server's response and for a client's request.
pub(crate) fn default_message_bytes() -> usize {
    raw::Limits::default().message_bytes.0
}

/// Returns the default name that a server's certificate has to have.
pub(crate) fn name_in(uri: &Uri) -> Option<ServerName<'static>> {
    let host = uri.host()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

pub(super) fn rule(reachability_only: bool) -> Rule {
    if reachability_only { Rule::Reachability } else { Rule::Uncached }
}
