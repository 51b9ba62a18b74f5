//! The socket of a client.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use weir_core::xds::Proven;

use super::delegate_io::delegate_io;

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Calls the same method on either kind of socket.
macro_rules! of_either {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Unix($stream) => $call,
        }
    };
}

impl Socket {
    /// Returns the process at the other end, if the system says which it is.
    pub(crate) fn process(&self) -> Option<Proven> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(stream) => {
                let process = stream.peer_cred().ok()?;
                Some(Proven::Process { uid: process.uid(), gid: process.gid() })
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

    /// Waits until there is something to read, which may be the end of the stream.
    pub(crate) async fn wait_for_bytes(&self) -> io::Result<()> {
        of_either!(self, stream => stream.async_io(Interest::READABLE, || peek(&SockRef::from(stream))).await.map(drop))
    }

    /// Whether bytes have arrived, even if the runtime has not noticed them yet.
    pub(crate) fn has_bytes(&self) -> bool {
        of_either!(self, stream => peek(&SockRef::from(stream)).is_ok_and(|length| length > 0))
    }
}

fn peek(socket: &SockRef<'_>) -> io::Result<usize> {
    socket.peek(&mut [MaybeUninit::uninit()])
}

delegate_io!(Socket { Tcp, Unix });

/// How many unsent bytes the kernel buffers for a connection. Without a bound it would buffer up to 4 MiB for each client that
/// stops reading.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT: u32 = 256 << 10;
