//! Pauses reading a connection that opens streams too fast, and records when its client reads nothing.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::ConnectionPlace;
use super::unsent::Unsent;

pub(super) struct PacedReads<T> {
    inner: T,
    place: Arc<ConnectionPlace>,
    pause: Option<Pin<Box<Sleep>>>,
    unsent: Unsent,
}

impl<T> PacedReads<T> {
    pub(crate) fn new(inner: T, place: Arc<ConnectionPlace>) -> Self {
        let unsent = Unsent::of(place.account().cloned());
        Self { inner, place, pause: None, unsent }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for PacedReads<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while let Some(resumes) = self.place.resumes_reading(Instant::now()) {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep_until(resumes)));
            if pause.deadline() != resumes {
                pause.as_mut().reset(resumes);
            }
            ready!(pause.as_mut().poll(cx));
        }
        self.pause = None;
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        self.place.sent_ahead().note_came(buffer.filled().len().saturating_sub(before));
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for PacedReads<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.unsent.note(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.unsent.note(written.is_pending());
        written
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
