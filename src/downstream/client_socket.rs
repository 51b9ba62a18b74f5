//! The socket of a client, below TLS: the calls that write to it are counted.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::socket::Socket;
use crate::relay::deliveries::ThreadCounter;

pub(super) struct ClientSocket {
    socket: Socket,
    /// Calls that wrote bytes, of all clients.
    writes: Arc<ThreadCounter>,
}

impl ClientSocket {
    pub(super) fn new(socket: Socket, writes: Arc<ThreadCounter>) -> Self {
        Self { socket, writes }
    }

    pub(super) fn socket(&mut self) -> &mut Socket {
        &mut self.socket
    }

    fn count(&self, written: &Poll<io::Result<usize>>) {
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.writes.add_one();
        }
    }
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, pieces);
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    use super::*;

    #[tokio::test]
    async fn each_call_that_writes_bytes_counts_and_no_other_does() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let writes = Arc::<ThreadCounter>::default();
        let mut socket = ClientSocket::new(Socket::Unix(near), writes.clone());
        assert_eq!(socket.write(b"").await.unwrap(), 0);
        assert_eq!(writes.count(), 0);
        assert_eq!(socket.write(b"one").await.unwrap(), 3);
        let pieces = [b"two".as_slice(), b"three"].map(IoSlice::new);
        assert_eq!(socket.write_vectored(&pieces).await.unwrap(), 8);
        socket.flush().await.unwrap();
        assert_eq!(writes.count(), 2);
        let many = vec![0u8; 1 << 20];
        let mut written = 0;
        while poll_fn(|cx| Poll::Ready(Pin::new(&mut socket).poll_write(cx, &many).is_ready())).await {
            written += 1;
        }
        assert_eq!(writes.count(), 2 + written, "the last one wrote nothing");
        drop(socket);
        let mut read = Vec::new();
        far.read_to_end(&mut read).await.unwrap();
        assert!(read.starts_with(b"onetwothree"));
    }
}
