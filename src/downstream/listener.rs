//! One address for clients: where it is, and what its connections have to bring.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use super::listen::listen;
use super::socket::Socket;

/// How the connections of one address are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenOptions {
    /// Where it listens.
    pub address: SocketAddr,
}

/// An open listener.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    pub(super) _options: Arc<ListenOptions>,
}

impl Listener {
    pub(crate) fn open(options: ListenOptions) -> io::Result<Self> {
        Ok(Self { socket: listen(options.address)?, _options: Arc::new(options) })
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
