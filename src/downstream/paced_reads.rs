//! Reads a connection that opens streams in turn with others, pauses one that opens them too fast, and records when a client reads nothing.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::connections::ConnectionPlace;
use super::opening_turns::Opener;
use super::sent_ahead::PausedStream;
use super::unsent::Unsent;

pub(super) struct PacedReads<T> {
    inner: T,
    place: Arc<ConnectionPlace>,
    pause: Option<Pin<Box<Sleep>>>,
    opener: Option<Opener>,
    /// While it waits for its turn: how fast its requests arrive is not judged.
    awaits_turn: Option<PausedStream>,
    unsent: Unsent,
}

impl<T> PacedReads<T> {
    pub(crate) fn new(inner: T, place: Arc<ConnectionPlace>) -> Self {
        let unsent = Unsent::of(place.account().cloned());
        let opener = place.shard().map(|shard| shard.openings().enter());
        Self { inner, place, pause: None, opener, awaits_turn: None, unsent }
    }

    /// Waits until the connection may be read beside others of its thread that open streams.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(opener) = &mut self.opener else { return Poll::Ready(()) };
        let turn = opener.poll_turn(self.place.opened(), cx);
        let ahead = self.place.sent_ahead();
        match (turn.is_ready(), self.awaits_turn) {
            (true, Some(paused)) => {
                self.awaits_turn = None;
                ahead.resume(paused);
            }
            (false, None) => self.awaits_turn = Some(ahead.pause()),
            _ => {}
        }
        turn
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
        ready!(self.poll_turn(cx));
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let came = buffer.filled().len().saturating_sub(before);
        self.place.sent_ahead().note_came(came);
        if let Some(opener) = self.opener.as_mut().filter(|_| came > 0) {
            opener.note_read();
        }
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
