//! Ways in which a server can be unreachable.

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::address::listen_at;
use crate::plane::Plane;
use crate::script::Way;
use crate::server::Server;

/// How a server is unreachable.
#[derive(Debug, Clone, Copy)]
pub enum Outage {
    Refuses,
    /// The kernel accepts connections, and no process reads them.
    Hangs,
    /// Sends something other than HTTP/2, and closes.
    Babbles,
    Rejects(u16),
    EndsUnheard,
}

/// An address that cannot be used as a server, until this is dropped.
pub struct Nobody {
    task: Option<JoinHandle<()>>,
    _listener: Option<TcpListener>,
    plane: Option<Plane>,
    server: Option<Server>,
}

impl Nobody {
    pub async fn at(address: SocketAddr, outage: Outage) -> Self {
        let mut nobody = Self { task: None, _listener: None, plane: None, server: None };
        match outage {
            Outage::Refuses => {}
            Outage::Hangs => nobody._listener = Some(listen_at(address).await),
            Outage::Babbles => {
                let listener = listen_at(address).await;
                nobody.task = Some(tokio::spawn(async move {
                    loop {
                        let (mut socket, _) = listener.accept().await.unwrap();
                        let _ = socket.write_all(b"SSH-2.0-nobody\r\n").await; // the relay may have disconnected
                    }
                }));
            }
            Outage::Rejects(status) => nobody.plane = Some(Plane::refusing_at(address, status).await),
            Outage::EndsUnheard => nobody.server = Some(Server::start_at(address, Way::EndsUnheard).await),
        }
        nobody
    }

    pub async fn go(mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            let _ = task.await;
        }
        if let Some(plane) = self.plane.take() {
            plane.kill().await;
        }
        if let Some(server) = self.server.take() {
            server.kill().await;
        }
    }
}
