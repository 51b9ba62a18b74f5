//! Ends connections whose peer has stopped reading.
//!
//! HTTP/2 has keepalive for that, and each stream pins only one piece. An HTTP/1.1 response is written as a whole, and without a limit its peer
//! could pin it for ever.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A connection that fails if no bytes could be written for a given time.
pub(crate) struct WriteTimeout<T> {
    inner: T,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Called each time the peer has taken bytes.
    notes: Option<Box<dyn Fn() + Send>>,
}

impl<T> WriteTimeout<T> {
    pub(crate) fn new(inner: T, patience: Duration) -> Self {
        Self { inner, patience, waiting: None, notes: None }
    }

    /// Calls `notes` each time the peer has taken bytes.
    pub(crate) fn noting(self, notes: impl Fn() + Send + 'static) -> Self {
        Self { notes: Some(Box::new(notes)), ..self }
    }

    fn watch<R>(&mut self, polled: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.notes.iter().for_each(|notes| notes());
            self.waiting = None;
            return polled;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        waiting.as_mut().poll(cx).map(|()| Err(io::Error::new(ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watch(polled, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.watch(polled, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteTimeout<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_stops_reading_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(16);
        let noted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let notes = noted.clone();
        let near = WriteTimeout::new(near, Duration::from_millis(400));
        let mut near = near.noting(move || {
            notes.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        let slow = tokio::spawn(async move {
            for _ in 0..8 {
                tokio::time::sleep(Duration::from_millis(60)).await; // longer than the timeout in total
                far.read_exact(&mut [0; 16]).await.unwrap();
            }
            far
        });
        near.write_all(&[7; 128]).await.unwrap();
        assert_eq!(noted.load(std::sync::atomic::Ordering::Relaxed), 8, "once for each piece");
        let _far = slow.await.unwrap();
        near.write_all(&[7; 16]).await.unwrap();
        let ended = near.write_all(&[7; 16]).await.unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::TimedOut);
    }
}
