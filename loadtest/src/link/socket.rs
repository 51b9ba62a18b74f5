//! A connection over TCP, with TLS or without, or over a Unix socket.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::first_bytes::{FirstBytes, Transport};
use super::options::{LinkError, LinkOptions};

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Tcp(SocketAddr),
    Unix(Arc<Path>),
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

pub struct Socket {
    stream: Stream,
    first_bytes: FirstBytes,
    readable: Readable,
}

/// How many more bytes are read. `usize::MAX`: there is no limit.
pub type Readable = Arc<AtomicUsize>;

enum Stream {
    Plain(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    pub async fn connect(target: &Target, options: &LinkOptions) -> Result<Self, LinkError> {
        let address = match target {
            Target::Tcp(address) => *address,
            Target::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(LinkError::Connect)?;
                return Ok(Self::new(Stream::Unix(stream), Transport::Unix));
            }
        };
        let stream = connect(address, options).await.map_err(LinkError::Connect)?;
        let Some(tls) = &options.tls else { return Ok(Self::new(Stream::Plain(stream), Transport::Tcp)) };
        let connector = TlsConnector::from(tls.config.clone());
        let stream = connector.connect(tls.server_name.clone(), stream).await.map_err(LinkError::Tls)?;
        Ok(Self::new(Stream::Tls(Box::new(stream)), Transport::Tls))
    }

    fn new(stream: Stream, transport: Transport) -> Self {
        Self { stream, first_bytes: FirstBytes::new(transport), readable: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    /// Returns the first bytes of the server, as far as they are known.
    pub fn first_bytes(&self) -> FirstBytes {
        self.first_bytes.clone()
    }

    /// Returns what limits the bytes that are read.
    pub fn readable(&self) -> Readable {
        self.readable.clone()
    }
}

/// Connects over TCP, without TLS.
pub async fn connect(address: SocketAddr, options: &LinkOptions) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(local) = options.local {
        socket.bind(SocketAddr::new(local, 0))?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, first_bytes, readable } = self.get_mut();
        let limit = readable.load(Ordering::Relaxed);
        if limit == 0 {
            return Poll::Pending; // until the owner of the connection allows more and polls it
        }
        let before = buffer.filled().len();
        let read = match stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        let new = buffer.filled().get(before..).unwrap_or_default();
        if limit < usize::MAX {
            readable.store(limit.saturating_sub(new.len()), Ordering::Relaxed);
        }
        first_bytes.note(new);
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Stream::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        !matches!(self.stream, Stream::Tls(_))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
