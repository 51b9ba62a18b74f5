//! A network between two peers that can fail silently: no byte passes, and no connection closes.
//!
//! While it is cut, bytes are buffered, and only the kernel completes connections. So it also simulates a hanging server: from outside, a process
//! that was stopped by a signal looks the same.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub struct Partition {
    /// The address to connect to instead of the server's.
    pub address: SocketAddr,
    cut: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Partition {
    /// Forwards everything to a server, until it is cut.
    pub async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cut, state) = watch::channel(false);
        Self { address, cut, task: tokio::spawn(accept(listener, server, state)) }
    }

    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    /// Lets the network work again. Bytes that were sent meanwhile arrive now.
    pub fn heal(&self) {
        self.cut.send_replace(false);
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut gate = state.clone();
    while passes(&mut gate).await {
        let (near, _) = tokio::select! {
            accepted = listener.accept() => accepted.unwrap(),
            _ = gate.changed() => continue,
        };
        connections.spawn(carry(near, server, state.clone()));
    }
}

/// Forwards a connection until one side closes, and then closes the other side.
async fn carry(near: TcpStream, server: SocketAddr, state: watch::Receiver<bool>) {
    let mut gate = state.clone();
    if !passes(&mut gate).await {
        return;
    }
    let Ok(far) = TcpStream::connect(server).await else { return };
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        () = pass(near_in, far_out, gate) => {}
        () = pass(far_in, near_out, state) => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut gate: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if !passes(&mut gate).await || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
    passes(&mut gate).await; // the end of a connection is a packet too
}

/// Waits while the network is cut. Returns false if the network was dropped.
async fn passes(gate: &mut watch::Receiver<bool>) -> bool {
    gate.wait_for(|cut| !cut).await.is_ok()
}
