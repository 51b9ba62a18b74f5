//! Opens the sockets for operators and probes.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;

use super::guard::Rules;
use super::listener::AdminSocket;
use crate::config::{AdminOptions, AdminTls};
use crate::downstream::{self, BACKLOG, InheritedSockets, LateSocket, UnixOptions, UnixSocket};
use crate::tls::ListenerTls;

/// Opens the sockets of a configuration, or takes them from the inherited ones.
pub(crate) fn open_sockets(
    options: &AdminOptions,
    probes: Option<SocketAddr>,
    inherited: &mut InheritedSockets,
) -> anyhow::Result<Vec<AdminSocket>> {
    let mut sockets = Vec::new();
    if let Some(address) = probes {
        let opened = downstream::listen(address, inherited);
        let (listener, _) = opened.with_context(|| format!("cannot listen on {address}"))?;
        sockets.push(AdminSocket::Probes(bound_at(&listener, address), listener));
    }
    if let Some(address) = options.address {
        let opened = downstream::listen(address, inherited);
        let (listener, _) = opened.with_context(|| format!("cannot listen on {address}"))?;
        sockets.push(match &options.tls {
            Some(AdminTls { tls, .. }) => {
                let bound = bound_at(&listener, address);
                let tls = ListenerTls::load(bound.to_string(), tls);
                let tls = tls.with_context(|| format!("cannot listen on {address}"))?;
                AdminSocket::Tls(bound, listener, Arc::new(tls))
            }
            None => AdminSocket::Loopback(bound_at(&listener, address), listener),
        });
    }
    if let Some(path) = &options.socket {
        let unix = UnixOptions { path: path.clone(), mode: OWN_USER, owner: None, group: None };
        let opened = UnixSocket::open(&unix, BACKLOG, inherited);
        let (socket, _) = opened.with_context(|| format!("cannot listen on unix:{}", path.display()))?;
        sockets.push(AdminSocket::Unix(socket));
    }
    Ok(sockets)
}

/// Returns the rules about who may make which requests.
pub(crate) fn rules_of(options: AdminOptions) -> Rules {
    let AdminOptions { address: _, socket, hosts, tls } = options;
    let (may_read, may_change, may_tap) =
        tls.map(|tls| (tls.may_read, tls.may_change, tls.may_tap)).unwrap_or_default();
    Rules { hosts: hosts.into(), socket, may_read, may_change, may_tap, ..Rules::default() }
}

/// Returns the address of a listener, with the port that the system has chosen for port 0.
fn bound_at(listener: &LateSocket<TcpListener>, configured: SocketAddr) -> SocketAddr {
    listener.now().and_then(|listener| listener.local_addr().ok()).unwrap_or(configured)
}

/// The mode of the admin socket.
const OWN_USER: u32 = 0o600;
