//! One address for clients: where it is, and what it expects of connections.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use weir_core::xds::Network;

use super::inherited::{Handover, InheritedSockets};
use super::late_socket::LateSocket;
use super::listen::{BACKLOG, listen};
use super::socket::Socket;
use super::unix_options::{UnixOptions, UnixSocketError};
use super::unix_socket::UnixSocket;
use crate::tls::{ListenTls, ListenerTls, TlsFileError};

/// How the connections of one address are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// Where it listens.
    pub address: ListenAddress,
    /// Balancers that state by the PROXY protocol whose connection they pass on. Others must not.
    pub proxy_protocol_from: Vec<Network>,
    /// Without it, connections are in plain text.
    pub(crate) tls: Option<ListenTls>,
}

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(UnixOptions),
}

/// A listener that is open, or will be once another process has left its address.
pub(crate) struct Listener {
    socket: ListenSocket,
    options: Arc<ListenOptions>,
    tls: Option<Arc<ListenerTls>>,
    /// When the next process begins to accept its connections. Only an inherited socket has this.
    handover: Option<Handover>,
}

enum ListenSocket {
    Tcp(LateSocket<TcpListener>),
    Unix(LateSocket<UnixSocket>),
}

/// Why no listener could be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error(transparent)]
    Tcp(#[from] io::Error),
    #[error(transparent)]
    Unix(#[from] UnixSocketError),
    #[error(transparent)]
    Tls(#[from] TlsFileError),
}

impl Listener {
    /// Opens a listener, with the inherited socket of its address if there is one.
    pub(crate) fn open(options: ListenOptions, inherited: &mut InheritedSockets) -> Result<Self, ListenError> {
        let (socket, is_inherited) = match &options.address {
            ListenAddress::Tcp(address) => {
                let (listener, is_inherited) = listen(*address, inherited)?;
                (ListenSocket::Tcp(listener), is_inherited)
            }
            ListenAddress::Unix(unix) => {
                let (socket, is_inherited) = UnixSocket::open(unix, BACKLOG, inherited)?;
                (ListenSocket::Unix(socket), is_inherited)
            }
        };
        let handover = is_inherited.then(|| inherited.handover());
        let mut listener = Self { socket, options: Arc::new(options), tls: None, handover };
        if let Some(tls) = &listener.options.tls {
            listener.tls = Some(Arc::new(ListenerTls::load(listener.address().to_string(), tls)?));
        }
        Ok(listener)
    }

    /// Returns what the listener expects of connections.
    pub(super) fn options(&self) -> &Arc<ListenOptions> {
        &self.options
    }

    /// Returns its TLS, if it has any.
    pub(crate) fn tls(&self) -> Option<&Arc<ListenerTls>> {
        self.tls.as_ref()
    }

    /// Returns where it listens, with the port that was chosen for port 0.
    pub(crate) fn address(&self) -> ListenAddress {
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                let address = listener.now().and_then(|listener| listener.local_addr().ok());
                address.map_or_else(|| self.options.address.clone(), ListenAddress::Tcp)
            }
            ListenSocket::Unix(_) => self.options.address.clone(),
        }
    }

    /// Whether its socket was opened before the process was started.
    pub(crate) fn is_inherited(&self) -> bool {
        self.handover.is_some()
    }

    /// Waits until the next process accepts its connections. That is never for a socket that this process has opened.
    pub(super) async fn is_handed_over(&self) {
        match &self.handover {
            Some(handover) => handover.begins().await,
            None => std::future::pending().await,
        }
    }

    /// Accepts a connection, with its address if it has one.
    pub(super) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                let (stream, address) = listener.get().await.accept().await?;
                Ok((Socket::Tcp(stream), Some(address)))
            }
            ListenSocket::Unix(socket) => {
                let (stream, _) = socket.get().await.listener().accept().await?;
                Ok((Socket::Unix(stream), None))
            }
        }
    }
}

impl ListenAddress {
    /// Returns the address, if it is not a Unix socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(unix) => write!(f, "unix:{}", unix.path.display()),
        }
    }
}
