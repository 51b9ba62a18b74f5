//! One address for clients: where it is, and what its connections have to bring.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::listen::listen;
use super::socket::Socket;
use crate::tls::{ListenTls, ListenerTls, TlsFileError};

/// How the connections of one address are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// Where it listens.
    pub address: SocketAddr,
    /// Without it, connections are in plain text.
    pub(crate) tls: Option<ListenTls>,
}

/// An open listener.
pub(crate) struct Listener {
    socket: TcpListener,
    tls: Option<Arc<ListenerTls>>,
}

/// Why no listener could be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListenError {
    #[error(transparent)]
    Socket(#[from] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsFileError),
}

impl Listener {
    pub(crate) fn open(options: ListenOptions) -> Result<Self, ListenError> {
        let socket = listen(options.address)?;
        let name = socket.local_addr()?.to_string();
        let tls = options.tls.map(|tls| ListenerTls::load(name, &tls)).transpose()?.map(Arc::new);
        Ok(Self { socket, tls })
    }

    /// Returns its TLS, if it has any.
    pub(crate) fn tls(&self) -> Option<&Arc<ListenerTls>> {
        self.tls.as_ref()
    }

    /// Returns its address, with the port that was chosen for port 0.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Accepts a connection, with its address if it has one.
    pub(super) async fn accept(&self) -> io::Result<(Socket, Option<SocketAddr>)> {
        let (stream, address) = self.socket.accept().await?;
        Ok((Socket::Tcp(stream), Some(address)))
    }
}
