//! Accepts connections of operators and probes, also when the process may open no more files.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use tokio::net::{TcpListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::guard::Via;
use crate::downstream::{Socket, UnixSocket};
use crate::open_files::{self, Spare};
use crate::relay::LogPace;

/// An open socket for operators.
#[derive(Debug)]
pub(crate) enum AdminSocket {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

pub(super) struct Listener {
    socket: AdminSocket,
    places: Arc<Semaphore>,
    spare: Arc<Spare>,
    failed: LogPace,
    refused: LogPace,
}

impl AdminSocket {
    /// Returns its address, if it is not a Unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    pub(super) fn via(&self) -> Via {
        match self {
            Self::Tcp(_) => Via::Network,
            Self::Unix(_) => Via::Socket,
        }
    }

    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| Socket::Tcp(stream)),
            Self::Unix(socket) => socket.listener().accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

impl Listener {
    /// `connections` is how many may be open at a time; `spare` has files for some of them in any case.
    pub(crate) fn new(socket: AdminSocket, connections: usize, spare: Arc<Spare>) -> Self {
        let places = Arc::new(Semaphore::new(connections));
        Self { socket, places, spare, failed: LogPace::once_a_minute(), refused: LogPace::once_a_minute() }
    }

    /// Returns the next connection, with its place. Dropping the future loses none.
    pub(crate) async fn accept(&mut self) -> (Socket, OwnedSemaphorePermit) {
        let Ok(place) = self.places.clone().acquire_owned().await else { return std::future::pending().await };
        loop {
            let complete = self.spare.refill(); // an earlier connection may have ended
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = sleep(PAUSE), if !complete => continue,
            };
            match accepted {
                Ok(Socket::Unix(stream)) if !self.is_own(&stream) => {}
                Ok(stream) => return (stream, place),
                Err(error) if open_files::is_exhausted(&error) && self.spare.release() => {}
                Err(error) => {
                    if let Some(unlogged) = self.failed.line(Instant::now()) {
                        tracing::error!(%error, unlogged, "cannot accept admin connections");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }
}

impl Listener {
    /// Whether a process belongs to the same user, or to root. The mode of the socket says so too.
    fn is_own(&self, stream: &UnixStream) -> bool {
        let user = stream.peer_cred().map(|own| Uid::from_raw(own.uid())).ok();
        let is_own = user.is_some_and(|user| user == Uid::effective() || user.is_root());
        if !is_own && let Some(unlogged) = self.refused.line(Instant::now()) {
            let user = user.map(tracing::field::display);
            tracing::warn!(user, unlogged, "admin connection of another user refused");
        }
        is_own
    }
}

const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn connections_beyond_the_limit_wait_for_one_that_ends() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut listener = Listener::new(AdminSocket::Tcp(listener), 2, Spare::new(0));
        let mut clients = Vec::new();
        for _ in 0..3 {
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        let first = listener.accept().await;
        let _second = listener.accept().await;
        assert!(timeout(Duration::from_millis(20), listener.accept()).await.is_err());
        drop(first);
        drop(timeout(Duration::from_secs(20), listener.accept()).await.expect("the third is not accepted"));
    }
}
