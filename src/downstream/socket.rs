//! The socket of a client.

use std::io::{self, IoSlice};
use std::mem::{self, MaybeUninit};
use std::net::TcpStream as StdTcpStream;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use weir_core::xds::PeerProof;

use super::delegate_io::delegate_io;

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// It has left a runtime, and is on no other one yet.
    Between(Unregistered),
}

/// A socket that is on no runtime. Nothing is read from it or written to it.
#[derive(Debug)]
pub(crate) struct Unregistered(Option<StdSocket>);

#[derive(Debug)]
enum StdSocket {
    Tcp(StdTcpStream),
    Unix(StdUnixStream),
}

/// Calls the same method of either kind of socket, unless it is between two runtimes.
macro_rules! of_either {
    ($socket:expr, $stream:ident => $call:expr, $between:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Unix($stream) => $call,
            Socket::Between(_) => $between,
        }
    };
}

impl Socket {
    /// Returns the process at the other end, if the system says which it is.
    pub(crate) fn process(&self) -> Option<PeerProof> {
        match self {
            Self::Tcp(_) | Self::Between(_) => None,
            Self::Unix(stream) => {
                let process = stream.peer_cred().ok()?;
                Some(PeerProof::Process { uid: process.uid(), gid: process.gid() })
            }
        }
    }

    /// Sets socket options. Failures are ignored: the socket works without them.
    pub(crate) fn prepare(&self) {
        if let Self::Tcp(stream) = self {
            let _ = stream.set_nodelay(true);
            #[cfg(any(target_os = "linux", target_os = "android"))]
            let _ = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT);
        }
    }

    /// Waits until there is something to read, which may be the end of the stream. The runtime assumes that there is when a socket was accepted, until a
    /// read has found nothing.
    pub(crate) async fn wait_for_bytes(&self) -> io::Result<()> {
        of_either!(
            self,
            stream => loop {
                stream.readable().await?;
                match stream.try_io(Interest::READABLE, || peek(&SockRef::from(stream))) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    peeked => break peeked.map(drop),
                }
            },
            Err(nowhere())
        )
    }

    /// Whether bytes have arrived, even if the runtime has not noticed them yet.
    pub(crate) fn has_bytes(&self) -> bool {
        of_either!(self, stream => peek(&SockRef::from(stream)).is_ok_and(|length| length > 0), false)
    }

    /// Takes the socket from the runtime that it is on.
    pub(super) fn leave_runtime(&mut self) -> io::Result<()> {
        let left = match mem::replace(self, Self::Between(Unregistered(None))) {
            Self::Tcp(stream) => Unregistered(Some(StdSocket::Tcp(stream.into_std()?))),
            Self::Unix(stream) => Unregistered(Some(StdSocket::Unix(stream.into_std()?))),
            Self::Between(left) => left,
        };
        *self = Self::Between(left);
        Ok(())
    }

    /// Puts a socket that has left its runtime on the current one.
    pub(super) fn enter_runtime(&mut self) -> io::Result<()> {
        let Self::Between(left) = self else { return Ok(()) };
        *self = match left.0.take().ok_or_else(nowhere)? {
            StdSocket::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            StdSocket::Unix(stream) => Self::Unix(UnixStream::from_std(stream)?),
        };
        Ok(())
    }
}

impl AsyncRead for Unregistered {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(nowhere()))
    }
}

impl AsyncWrite for Unregistered {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(nowhere()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(nowhere()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(nowhere()))
    }
}

fn nowhere() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the socket is on no runtime")
}

fn peek(socket: &SockRef<'_>) -> io::Result<usize> {
    socket.peek(&mut [MaybeUninit::uninit()])
}

delegate_io!(Socket { Tcp, Unix, Between });

/// How many unsent bytes the kernel buffers for a connection. Without a bound it would buffer up to 4 MiB for each client that
/// stops reading.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 256 << 10;

#[cfg(test)]
mod tests {
    use std::thread;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    use super::*;

    async fn pair(is_unix: bool) -> (Socket, Socket) {
        if is_unix {
            let (near, far) = UnixStream::pair().unwrap();
            return (Socket::Unix(near), Socket::Unix(far));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (Socket::Tcp(listener.accept().await.unwrap().0), Socket::Tcp(far))
    }

    #[tokio::test]
    async fn a_socket_goes_on_where_it_was_on_another_runtime() {
        for is_unix in [false, true] {
            let (mut near, mut far) = pair(is_unix).await;
            far.write_all(b"early").await.unwrap();
            near.read_exact(&mut [0; 2]).await.unwrap();
            near.leave_runtime().unwrap();
            assert!(near.read(&mut [0]).await.is_err() && near.write(&[0]).await.is_err() && !near.has_bytes());
            near.leave_runtime().unwrap(); // it has
            let elsewhere = thread::spawn(move || {
                Builder::new_current_thread().enable_all().build().unwrap().block_on(async move {
                    near.enter_runtime().unwrap();
                    let mut read = [0; 8];
                    near.read_exact(&mut read).await.unwrap();
                    near.write_all(b"answer").await.unwrap();
                    read
                })
            });
            far.write_all(b"later").await.unwrap();
            let mut answer = String::new();
            far.read_to_string(&mut answer).await.unwrap();
            assert_eq!((answer.as_str(), elsewhere.join().unwrap()), ("answer", *b"rlylater"), "{is_unix}");
        }
    }
}
