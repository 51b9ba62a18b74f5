//! Accepts connections of operators and probes, even if the process may open no more files.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::unistd::Uid;
use socket2::SockRef;
use tokio::net::{TcpListener, UnixStream};
use tokio::time::sleep;

use super::caller::AdminSurface;
use crate::downstream::{LateSocket, Socket, UnixSocket};
use crate::log_pace::LogPace;
use crate::open_files::{self, SpareFiles};
use crate::tls::ListenerTls;

/// An open socket for operators or probes.
pub(crate) enum AdminSocket {
    Probes(SocketAddr, LateSocket<TcpListener>),
    Loopback(SocketAddr, LateSocket<TcpListener>),
    Tls(SocketAddr, LateSocket<TcpListener>, Arc<ListenerTls>),
    Unix(LateSocket<UnixSocket>),
}

/// A connection that was accepted.
pub(super) struct Incoming {
    pub(super) socket: Socket,
    /// `None` on a Unix socket.
    pub(super) address: Option<SocketAddr>,
}

/// A socket for probes that is not registered with any runtime.
pub(super) struct DetachedSocket(SocketAddr, std::net::TcpListener);

pub(super) struct Listener {
    socket: AdminSocket,
    spare: Arc<SpareFiles>,
    failed: LogPace,
    refused: LogPace,
}

impl AdminSocket {
    /// Returns the socket's address, if it is a TCP address for operators.
    pub(crate) fn of_operators(&self) -> Option<SocketAddr> {
        match self {
            Self::Loopback(address, _) | Self::Tls(address, ..) => Some(*address),
            Self::Probes(..) | Self::Unix(_) => None,
        }
    }

    /// Returns the socket's address, if it is for probes.
    pub(crate) fn of_probes(&self) -> Option<SocketAddr> {
        match self {
            Self::Probes(address, _) => Some(*address),
            Self::Loopback(..) | Self::Tls(..) | Self::Unix(_) => None,
        }
    }

    pub(crate) fn tls(&self) -> Option<&Arc<ListenerTls>> {
        match self {
            Self::Tls(.., tls) => Some(tls),
            Self::Probes(..) | Self::Loopback(..) | Self::Unix(_) => None,
        }
    }

    /// Returns the socket for probes for another runtime, once it is open. Afterwards this socket must not be used.
    pub(super) async fn detach(&self) -> io::Result<DetachedSocket> {
        match self {
            Self::Probes(address, listener) => {
                let socket = SockRef::from(listener.get().await).try_clone()?;
                Ok(DetachedSocket(*address, socket.into()))
            }
            Self::Loopback(..) | Self::Tls(..) | Self::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    pub(super) fn via(&self) -> AdminSurface {
        match self {
            Self::Probes(..) => AdminSurface::Probes,
            Self::Loopback(..) => AdminSurface::Loopback,
            Self::Tls(..) => AdminSurface::Tls,
            Self::Unix(_) => AdminSurface::Socket,
        }
    }

    async fn accept(&self) -> io::Result<Incoming> {
        match self {
            Self::Probes(_, listener) | Self::Loopback(_, listener) | Self::Tls(_, listener, _) => {
                let (stream, address) = listener.get().await.accept().await?;
                Ok(Incoming { socket: Socket::Tcp(stream), address: Some(address) })
            }
            Self::Unix(socket) => {
                let (stream, _) = socket.get().await.listener().accept().await?;
                Ok(Incoming { socket: Socket::Unix(stream), address: None })
            }
        }
    }
}

impl DetachedSocket {
    /// Registers the socket with the current runtime.
    pub(super) fn attach(self) -> io::Result<AdminSocket> {
        let Self(address, socket) = self;
        Ok(AdminSocket::Probes(address, LateSocket::open(TcpListener::from_std(socket)?)))
    }
}

impl Listener {
    /// `spare` reserves files for some connections.
    pub(crate) fn new(socket: AdminSocket, spare: Arc<SpareFiles>) -> Self {
        Self { socket, spare, failed: LogPace::once_a_minute(), refused: LogPace::once_a_minute() }
    }

    /// Returns the next connection. Dropping the future loses no connection.
    pub(crate) async fn accept(&mut self) -> Incoming {
        let mut released = false; // a file, for the connection that waits
        loop {
            let complete = !released && self.spare.refill(); // an earlier connection may have ended
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                () = sleep(PAUSE), if !complete => {
                    released = false;
                    continue;
                }
            };
            match accepted {
                Ok(Incoming { socket: Socket::Unix(stream), .. }) if !self.is_own(&stream) => {}
                Ok(incoming) => return incoming,
                Err(error) if open_files::is_exhausted(&error) && self.spare.release() => released = true,
                Err(error) => {
                    released = false;
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
    /// Whether the peer process belongs to the same user, or to root. The mode of the socket should already ensure this.
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
