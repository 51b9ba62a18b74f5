//! Local addresses for servers that are started later.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use tokio::net::TcpSocket;

/// A free local address that the system assigns to nobody else while this exists. A server that sets `SO_REUSEADDR`, as most do,
/// can listen on it.
pub struct Reserved {
    pub address: SocketAddr,
    /// A socket that is bound and never listens, so connections to it are refused.
    _socket: TcpSocket,
}

impl Reserved {
    pub fn new() -> anyhow::Result<Self> {
        let reserve = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            std::io::Result::Ok(Self { address: socket.local_addr()?, _socket: socket })
        };
        reserve().context("no free address")
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::Reserved;

    #[tokio::test]
    async fn a_server_can_listen_where_connections_were_refused() {
        let reserved = Reserved::new().unwrap();
        assert!(TcpStream::connect(reserved.address).await.is_err());
        for _ in 0..2 {
            let _server = TcpListener::bind(reserved.address).await.unwrap();
            TcpStream::connect(reserved.address).await.unwrap();
        }
    }
}
