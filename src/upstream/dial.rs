//! Connects to a server by name: tries every address; TLS is part of the attempt.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::{JoinError, JoinSet};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;

use super::AdsServer;
use super::observed_socket::{CLOSED, ConnectionState, ObservedSocket, Socket};
use super::tls::TlsFiles;
use crate::tls::TlsFileError;

/// Makes the one connection of a channel. A balancer could route a second one to another server, whose answers are no evidence
/// about the streams on the first.
#[derive(Debug)]
pub(super) struct Dial {
    server: Arc<AdsServer>,
    state: Arc<ConnectionState>,
    is_used: bool,
}

impl Dial {
    pub(crate) fn new(server: Arc<AdsServer>, state: Arc<ConnectionState>) -> Self {
        Self { server, state, is_used: false }
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("{0} names no host")]
    NoHost(Uri),
    #[error("{}: {error}", path.display())]
    Unix { path: PathBuf, error: io::Error },
    #[error("cannot find an address of {host}")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error(transparent)]
    Files(#[from] TlsFileError),
    #[error("{}", failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Failed { failures: Vec<AttemptError> },
    #[error("{CLOSED}")]
    Used,
    #[error("no connection to {server} within {}", humantime::format_duration(*limit))]
    Late { server: String, limit: Duration },
}

/// Why an attempt to connect to one address failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AttemptError {
    #[error("{address}: {error}")]
    Tcp { address: SocketAddr, error: io::Error },
    #[error("{address}: {reason}")]
    Tls { address: SocketAddr, reason: String },
    #[error("{address}: took the connection and said nothing of TLS within {}", humantime::format_duration(*limit))]
    TlsTimeout { address: SocketAddr, limit: Duration },
    #[error("{0}")]
    Task(JoinError),
}

type Connection = TokioIo<ObservedSocket>;

impl Service<Uri> for Dial {
    type Response = Connection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (server, state) = (self.server.clone(), self.state.clone());
        let is_used = std::mem::replace(&mut self.is_used, true);
        Box::pin(async move {
            if is_used {
                return Err(DialError::Used);
            }
            let socket = dial(&server, b"h2").await?;
            Ok(TokioIo::new(ObservedSocket::new(socket, state)))
        })
    }
}

/// Opens a connection for this ALPN protocol.
pub(crate) async fn dial(server: &AdsServer, alpn: &[u8]) -> Result<Box<dyn Socket>, DialError> {
    let limit = server.connect_timeout;
    let late = || DialError::Late { server: server.name(), limit };
    tokio::time::timeout(limit, connect(server, alpn)).await.map_err(|_| late())?
}

async fn connect(server: &AdsServer, alpn: &[u8]) -> Result<Box<dyn Socket>, DialError> {
    if let Some(path) = &server.socket {
        let stream = UnixStream::connect(path).await;
        return Ok(Box::new(stream.map_err(|error| DialError::Unix { path: path.clone(), error })?));
    }
    dial_host(&server.uri, server.tls.as_ref(), alpn, server.first_words_timeout()).await
}

/// Opens a connection to a host, with TLS if there are files for it. `limit` is for the first bytes of a TLS handshake.
pub(crate) async fn dial_host(
    uri: &Uri,
    tls: Option<&TlsFiles>,
    alpn: &[u8],
    limit: Duration,
) -> Result<Box<dyn Socket>, DialError> {
    let host = uri.host().ok_or_else(|| DialError::NoHost(uri.clone()))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let tls = match tls {
        Some(files) => Some((files.clone(), Arc::new(files.read(alpn).await?))),
        None => None,
    };
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|source| DialError::Resolve { host: host.into(), source })?;
    first_of(addresses.collect(), tls, limit).await.map_err(|failures| match failures.is_empty() {
        true => DialError::NoAddress { host: host.into() },
        false => DialError::Failed { failures },
    })
}

/// Returns the first address that connects. The next one is tried when one has failed, and in parallel to a slow one.
async fn first_of(
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsFiles, Arc<ClientConfig>)>,
    limit: Duration,
) -> Result<Box<dyn Socket>, Vec<AttemptError>> {
    let mut left = addresses.into_iter();
    let mut attempts = JoinSet::new(); // dropping it cancels the attempts under way
    let mut failures = Vec::new();
    loop {
        if let Some(address) = left.next() {
            attempts.spawn(attempt(address, tls.clone(), limit));
        }
        tokio::select! {
            attempted = attempts.join_next() => match attempted {
                Some(Ok(Ok(socket))) => return Ok(socket),
                Some(Ok(Err(error))) => failures.push(error),
                Some(Err(ended)) => failures.push(AttemptError::Task(ended)),
                None => return Err(failures),
            },
            () = tokio::time::sleep(HEAD_START), if left.len() > 0 => {}
        }
    }
}

/// The limit bounds the TLS handshake of a server that has accepted the connection.
async fn attempt(
    address: SocketAddr,
    tls: Option<(TlsFiles, Arc<ClientConfig>)>,
    limit: Duration,
) -> Result<Box<dyn Socket>, AttemptError> {
    let tcp = connect_to(address).await.map_err(|error| AttemptError::Tcp { address, error })?;
    let Some((files, config)) = tls else { return Ok(Box::new(tcp)) };
    let encrypted = TlsConnector::from(config).connect(files.server_name.clone(), tcp);
    match tokio::time::timeout(limit, encrypted).await {
        Ok(Ok(stream)) => Ok(Box::new(Encrypted { stream, address, files })),
        Ok(Err(error)) => Err(AttemptError::Tls { address, reason: files.explain(&error) }),
        Err(_) => Err(AttemptError::TlsTimeout { address, limit }),
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
    stream: TlsStream<TcpStream>,
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

/// How long an address is tried alone (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    /// A listener whose queue is full, so that the kernel answers no other connection, and what fills it.
    async fn full() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut filling = Vec::new();
        while let Ok(connected) = timeout(4 * HEAD_START, TcpStream::connect(address)).await {
            filling.push(connected.unwrap());
        }
        (listener, filling, address)
    }

    #[tokio::test]
    async fn trn_17_a_connection_waits_for_no_more_to_send_and_is_given_up_when_nothing_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = connect_to(listener.local_addr().unwrap()).await.unwrap();
        assert!(tcp.nodelay().unwrap());
        #[cfg(target_os = "linux")]
        assert_eq!(socket2::SockRef::from(&tcp).tcp_user_timeout().unwrap(), Some(UNACKNOWLEDGED));
    }

    #[tokio::test]
    async fn the_last_address_too_is_tried_beside_those_that_do_not_answer() {
        let (mute, good) = (full().await, TcpListener::bind("127.0.0.1:0").await.unwrap());
        for before in [1, 2] {
            let mut addresses = vec![mute.2; before];
            addresses.push(good.local_addr().unwrap());
            let found = timeout(LONG, first_of(addresses, None, LONG)).await;
            assert!(matches!(found, Ok(Ok(_))), "after {before} without an answer");
        }
    }

    #[tokio::test]
    async fn what_failed_at_each_address_is_said() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let failures = first_of(vec![closed; 3], None, LONG).await.err().unwrap();
        assert!(failures.len() == 3 && failures.iter().all(|failure| matches!(failure, AttemptError::Tcp { .. })));
    }

    fn server_at(address: SocketAddr) -> AdsServer {
        AdsServer { uri: format!("http://{address}").parse().unwrap(), ..AdsServer::undialed() }
    }

    /// What the relay knows of one connection is no evidence about another.
    #[tokio::test]
    async fn a_channel_is_given_one_connection_and_never_another() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = server_at(listener.local_addr().unwrap());
        let mut dial = Dial::new(Arc::new(server.clone()), Arc::new(ConnectionState::new()));
        let first = timeout(LONG, dial.call(server.uri.clone())).await.unwrap();
        assert!(first.is_ok());
        let second = timeout(LONG, dial.call(server.uri)).await.unwrap();
        assert!(matches!(second, Err(DialError::Used)));
    }

    #[tokio::test]
    async fn a_server_has_its_own_time_to_accept_a_connection() {
        let mute = full().await;
        let server = AdsServer { connect_timeout: HEAD_START, ..server_at(mute.2) };
        let late = timeout(LONG, dial(&server, b"h2")).await.expect("it is given up").err().unwrap();
        assert_eq!(late.to_string(), format!("no connection to http://{} within 250ms", mute.2));
    }

    #[test]
    fn the_first_words_of_a_server_are_waited_for_no_longer_than_its_connection() {
        let with = |seconds| AdsServer { connect_timeout: Duration::from_secs(seconds), ..AdsServer::undialed() };
        assert_eq!([1, 5, 20].map(|seconds| with(seconds).first_words_timeout().as_secs()), [1, 5, 5]);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next_and_the_last_one_counts() {
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap().into_std().unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let addresses = vec![closed, closed, good.local_addr().unwrap()];
        let found = timeout(LONG, first_of(addresses, None, LONG)).await.unwrap();
        assert!(found.is_ok());
    }
}
