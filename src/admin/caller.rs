//! Who makes a request.

use std::sync::Arc;

use weir_core::xds::Peer;

use crate::tls::ClientChain;

/// The other end of a connection for operators or probes.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(super) via: AdminSurface,
    pub(super) peer: Arc<Peer>,
    /// The certificate chain that it has presented, if it came with TLS.
    pub(super) chain: Option<Arc<ClientChain>>,
}

/// The address or socket over which a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdminSurface {
    /// Over `probes.address`: anybody who can reach it.
    Probes,
    /// Over `admin.address` in plain text: anybody on this machine, browsers included.
    Loopback,
    /// Over `admin.address` with a certificate that was verified.
    Tls,
    /// Over `admin.socket`: the user of this process, or root.
    Socket,
}
