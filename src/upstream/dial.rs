//! From a server's name to a connection: every address is tried, and TLS is part of the attempt.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::codegen::Service;

use super::AdsServer;
use super::server::TlsFiles;
use super::tls::FilesError;

/// Makes the connections of a channel.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    pub server: Arc<AdsServer>,
    /// Told of the first that is read of a connection, or that nothing can be.
    pub heard: Arc<Notify>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("{0} names no host")]
    NoHost(Uri),
    #[error("cannot find an address of {host}")]
    Resolve {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("{host} has no address")]
    NoAddress { host: String },
    #[error(transparent)]
    Files(#[from] FilesError),
    #[error("{}", refusals.join("; "))]
    Refused { refusals: Vec<String> },
    #[error("no connection to {server} within {}", humantime::format_duration(*limit))]
    Late { server: String, limit: Duration },
}

pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

type Connection = TokioIo<Box<dyn Socket>>;

impl Service<Uri> for Dial {
    type Response = Connection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let (server, heard) = (self.server.clone(), self.heard.clone());
        Box::pin(async move {
            let socket = dial(&server, b"h2").await?;
            Ok(TokioIo::new(Box::new(Listening { socket, heard: Some(heard) }) as Box<dyn Socket>))
        })
    }
}

/// A connection over which this is to be spoken, as soon as there is one.
pub(super) async fn dial(server: &AdsServer, alpn: &[u8]) -> Result<Box<dyn Socket>, DialError> {
    let limit = server.connect_timeout;
    let late = || DialError::Late { server: server.name(), limit };
    tokio::time::timeout(limit, connect(server, alpn)).await.map_err(|_| late())?
}

async fn connect(server: &AdsServer, alpn: &[u8]) -> Result<Box<dyn Socket>, DialError> {
    let host = server.uri.host().ok_or_else(|| DialError::NoHost(server.uri.clone()))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = server.uri.port_u16().unwrap_or(if server.tls.is_some() { 443 } else { 80 });
    let tls = match &server.tls {
        Some(files) => Some((files.clone(), Arc::new(files.read(alpn).await?))),
        None => None,
    };
    let addresses = tokio::net::lookup_host((host, port)).await;
    let addresses = addresses.map_err(|source| DialError::Resolve { host: host.into(), source })?;
    first_of(addresses.collect(), tls).await.map_err(|refusals| match refusals.is_empty() {
        true => DialError::NoAddress { host: host.into() },
        false => DialError::Refused { refusals },
    })
}

/// The first address that leads to a connection. The next one is tried when one has failed, and beside one that takes its time.
async fn first_of(
    addresses: Vec<SocketAddr>,
    tls: Option<(TlsFiles, Arc<ClientConfig>)>,
) -> Result<Box<dyn Socket>, Vec<String>> {
    let mut left = addresses.into_iter();
    let mut attempts = JoinSet::new(); // those still under way end with it
    let mut refusals = Vec::new();
    loop {
        if let Some(address) = left.next() {
            attempts.spawn(attempt(address, tls.clone()));
        }
        tokio::select! {
            attempted = attempts.join_next() => match attempted {
                Some(Ok(Ok(socket))) => return Ok(socket),
                Some(Ok(Err(refusal))) => refusals.push(refusal),
                Some(Err(ended)) => refusals.push(ended.to_string()),
                None => return Err(refusals),
            },
            () = tokio::time::sleep(HEAD_START), if left.len() > 0 => {}
        }
    }
}

async fn attempt(address: SocketAddr, tls: Option<(TlsFiles, Arc<ClientConfig>)>) -> Result<Box<dyn Socket>, String> {
    let tcp = TcpStream::connect(address).await.map_err(|error| format!("{address}: {error}"))?;
    tcp.set_nodelay(true).map_err(|error| format!("{address}: {error}"))?;
    let Some((files, config)) = tls else { return Ok(Box::new(tcp)) };
    let encrypted = TlsConnector::from(config).connect(files.server_name.clone(), tcp).await;
    match encrypted {
        Ok(stream) => Ok(Box::new(Encrypted { stream, address, files })),
        Err(error) => Err(format!("{address}: {}", files.explain(&error))),
    }
}

/// A server may refuse the relay's certificate when the handshake is over for the relay. What is read then is explained here,
/// since the layers above keep no more than the words.
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

/// Says when the other side has said something. A kernel completes connections for a program that hangs, and it is no more than
/// that until HTTP/2's own first words have come (FB-32).
struct Listening {
    socket: Box<dyn Socket>,
    heard: Option<Arc<Notify>>,
}

impl AsyncRead for Listening {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = ready!(Pin::new(&mut this.socket).poll_read(cx, buffer));
        if let Some(heard) = this.heard.take() {
            heard.notify_one();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Listening {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

/// How long an address has for itself (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
