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
use super::sent_ahead::UnreadConnection;
use super::unsent::Unsent;

pub(super) struct PacedReads<T> {
    inner: T,
    place: Arc<ConnectionPlace>,
    pause: Option<Pin<Box<Sleep>>>,
    opener: Option<Opener>,
    unread: Option<UnreadConnection>,
    unsent: Unsent,
}

impl<T> PacedReads<T> {
    pub(crate) fn new(inner: T, place: Arc<ConnectionPlace>) -> Self {
        let unsent = Unsent::of(place.account().cloned());
        let opener = place.shard().map(|shard| shard.openings().enter());
        Self { inner, place, pause: None, opener, unread: None, unsent }
    }

    /// Waits until the connection may be read: after its pause, and then beside others of its thread that open streams.
    fn poll_may_read(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(resumes) = self.place.resumes_reading(Instant::now()) {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep_until(resumes)));
            if pause.deadline() != resumes {
                pause.as_mut().reset(resumes);
            }
            ready!(pause.as_mut().poll(cx));
        }
        self.pause = None;
        match &mut self.opener {
            Some(opener) => opener.poll_turn(self.place.opened(), cx),
            None => Poll::Ready(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for PacedReads<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.poll_may_read(cx).is_pending() {
            if self.unread.is_none() {
                self.unread = Some(UnreadConnection::begin(self.place.sent_ahead().clone()));
            }
            return Poll::Pending;
        }
        self.unread = None;
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

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::downstream::connections::OpenStream;
    use crate::downstream::connections::tests::place_of_pace;
    use crate::downstream::incomplete::IncompleteRequests;

    const WINDOW: Duration = Duration::from_secs(30);

    /// Returns a connection that has opened so many streams that it is not read for longer than a window, and its client.
    async fn paused() -> (PacedReads<DuplexStream>, DuplexStream, Vec<OpenStream>) {
        let (place, (client, socket)) = (place_of_pace(10).await, duplex(1 << 10));
        let streams = (0..400).map(|_| place.open_stream()).collect();
        (PacedReads::new(socket, place), client, streams)
    }

    #[tokio::test(start_paused = true)]
    async fn no_request_arrives_too_slowly_while_its_connection_is_not_read_because_of_new_streams() {
        let (mut reads, mut client, _streams) = paused().await;
        let requests = IncompleteRequests::with_window(1 << 20, 100, WINDOW);
        let (mut request, begun) = (requests.connection_with(reads.place.sent_ahead().clone()).begin(), Instant::now());
        request.grow_to(5).unwrap();
        client.write_all(b"rest").await.unwrap();
        tokio::select! {
            more = request.more(pending::<()>()) => panic!("{more:?}: only the relay has waited"),
            read = reads.read_u8() => assert_eq!(read.unwrap(), b'r'),
        }
        let unread = begun.elapsed();
        assert!(unread > WINDOW, "{unread:?}");
        assert!(request.more(pending::<()>()).await.is_err(), "it is read again");
        let judged = begun.elapsed() - unread;
        assert!((WINDOW..2 * WINDOW).contains(&judged), "{judged:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_ends_while_it_is_not_read_stops_no_clock_any_longer() {
        let (mut reads, _client, _streams) = paused().await;
        let place = reads.place.clone();
        assert!(reads.read_u8().now_or_never().is_none());
        tokio::time::advance(WINDOW).await;
        drop(reads);
        tokio::time::advance(WINDOW).await;
        assert_eq!(place.sent_ahead().stopped_for(), WINDOW);
    }
}
