//! One attempt to connect: TCP to one address, and TLS over it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::tunnel::{Tunnel, TunnelError};
use crate::upstream::observed_socket::Socket;
use crate::upstream::tls::{ReadTls, TlsFiles};

/// Reports that TCP is connected.
#[derive(Debug, Clone, Default)]
pub(super) struct Connected(Arc<Notify>);

impl Connected {
    pub(super) fn report(&self) {
        self.0.notify_one();
    }

    /// Waits until TCP is connected.
    pub(super) async fn reported(&self) {
        self.0.notified().await;
    }
}

/// Why an attempt to connect to one address failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("{address}: {error}")]
    Tcp { address: SocketAddr, error: io::Error },
    #[error("{address}: no connection within {}", humantime::format_duration(*limit))]
    TcpTimeout { address: SocketAddr, limit: Duration },
    #[error("{address}: {reason}")]
    Tls { address: SocketAddr, reason: String },
    #[error("{address}: took the connection and said nothing of TLS within {}", humantime::format_duration(*limit))]
    TlsTimeout { address: SocketAddr, limit: Duration },
    #[error("{address}: {error}")]
    Proxy { address: SocketAddr, error: TunnelError },
    #[error("{address}: the proxy does not answer within {}", humantime::format_duration(*limit))]
    ProxyTimeout { address: SocketAddr, limit: Duration },
    /// Nothing valid was received above TLS.
    #[error("{address}: {reason}")]
    Above { address: String, reason: String },
    #[error("{address}: it did not answer, and gave way to the next address")]
    GaveWay { address: SocketAddr },
    #[error("{0}")]
    Task(JoinError),
}

/// How long a server has for each step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DialLimits {
    /// To accept a connection.
    pub(crate) connect: Duration,
    /// For its first bytes on a connection that it has accepted.
    pub(crate) first_words: Duration,
}

/// Connects to an address: that of the server, or that of the proxy before it.
pub(super) async fn attempt(
    address: SocketAddr,
    tunnel: Option<Arc<Tunnel>>,
    tls: Option<ReadTls>,
    limits: DialLimits,
    connected: Connected,
) -> Result<Box<dyn Socket>, AttemptError> {
    let DialLimits { connect: limit, first_words } = limits;
    let begun = Instant::now();
    let tcp = timeout(limit, connect_to(address)).await.map_err(|_| AttemptError::TcpTimeout { address, limit })?;
    let tcp = tcp.map_err(|error| AttemptError::Tcp { address, error })?;
    connected.report();
    let mut socket: Box<dyn Socket> = Box::new(tcp);
    if let Some(tunnel) = tunnel {
        if let Some(tls) = tunnel.tls.clone() {
            socket = encrypt(socket, address, tls, first_words).await?;
        }
        let opened = timeout(limit.saturating_sub(begun.elapsed()), tunnel.open(&mut socket)).await;
        let opened = opened.map_err(|_| AttemptError::ProxyTimeout { address, limit })?;
        opened.map_err(|error| AttemptError::Proxy { address, error })?;
    }
    match tls {
        Some(tls) => encrypt(socket, address, tls, first_words).await,
        None => Ok(socket),
    }
}

async fn encrypt(
    socket: Box<dyn Socket>,
    address: SocketAddr,
    (files, config): ReadTls,
    first_words: Duration,
) -> Result<Box<dyn Socket>, AttemptError> {
    let encrypted = TlsConnector::from(config).connect(files.server_name.clone(), socket);
    match timeout(first_words, encrypted).await {
        Ok(Ok(stream)) => Ok(Box::new(Encrypted { stream, address, files })),
        Ok(Err(error)) => Err(AttemptError::Tls { address, reason: files.explain(&error) }),
        Err(_) => Err(AttemptError::TlsTimeout { address, limit: first_words }),
    }
}

async fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    give_up_dead_peers(&tcp)?;
    Ok(tcp)
}

/// A peer that acknowledges nothing for this long is dead. By default the kernel retransmits for a quarter of an hour.
#[cfg(target_os = "linux")]
fn give_up_dead_peers(tcp: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(tcp).set_tcp_user_timeout(Some(UNACKNOWLEDGED))
}

#[cfg(not(target_os = "linux"))]
fn give_up_dead_peers(_: &TcpStream) -> io::Result<()> {
    Ok(())
}

/// A server may reject the relay's certificate after the handshake is complete for the relay. The read error is explained here,
/// since the layers above keep only its text.
struct Encrypted {
    stream: TlsStream<Box<dyn Socket>>,
    address: SocketAddr,
    files: TlsFiles,
}

impl AsyncRead for Encrypted {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = ready!(Pin::new(&mut this.stream).poll_read(cx, buffer));
        let explained = |error: io::Error| format!("{}: {}", this.address, this.files.explain(&error));
        Poll::Ready(read.map_err(|error| io::Error::new(error.kind(), explained(error))))
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn trn_17_a_connection_waits_for_no_more_to_send_and_is_given_up_when_nothing_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = connect_to(listener.local_addr().unwrap()).await.unwrap();
        assert!(tcp.nodelay().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(socket2::SockRef::from(&tcp).tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }
}
