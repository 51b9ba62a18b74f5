//! One address for clients: where it is, and what its connections have to bring.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::listen::{BACKLOG, listen};
use super::socket::Socket;
use super::unix_options::{UnixOptions, UnixSocketError};
use super::unix_socket::UnixSocket;
use crate::tls::{ListenTls, ListenerTls, TlsFileError};
use crate::xds::Network;

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

/// An open listener.
pub(crate) struct Listener {
    socket: ListenSocket,
    pub(super) options: Arc<ListenOptions>,
    tls: Option<Arc<ListenerTls>>,
}

enum ListenSocket {
    Tcp(TcpListener),
    Unix(UnixSocket),
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
    pub(crate) fn open(options: ListenOptions) -> Result<Self, ListenError> {
        let socket = match &options.address {
            ListenAddress::Tcp(address) => ListenSocket::Tcp(listen(*address)?),
            ListenAddress::Unix(unix) => ListenSocket::Unix(UnixSocket::listen(unix, BACKLOG)?),
        };
        let mut listener = Self { socket, options: Arc::new(options), tls: None };
        if let Some(tls) = &listener.options.tls {
            listener.tls = Some(Arc::new(ListenerTls::load(listener.address().to_string(), tls)?));
        }
        Ok(listener)
    }

    /// Returns its TLS, if it has any.
    pub(crate) fn tls(&self) -> Option<&Arc<ListenerTls>> {
        self.tls.as_ref()
    }

    /// Returns where it listens, with the port that was chosen for port 0.
    pub(crate) fn address(&self) -> ListenAddress {
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                listener.local_addr().map_or_else(|_| self.options.address.clone(), ListenAddress::Tcp)
            }
            ListenSocket::Unix(_) => self.options.address.clone(),
        }
    }

    /// Accepts a connection, with its address if it has one.
    pub(super) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        match &self.socket {
            ListenSocket::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok((Socket::Tcp(stream), Some(address)))
            }
            ListenSocket::Unix(socket) => {
                let (stream, _) = socket.listener().accept().await?;
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
