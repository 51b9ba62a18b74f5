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
        self.unsent.note_write(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, pieces);
        self.unsent.note_write(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(cx);
        self.unsent.note(flushed.is_pending());
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut_down = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.unsent.note(shut_down.is_pending());
        shut_down
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter, DuplexStream, duplex};

    use super::*;
    use crate::downstream::connections::OpenStream;
    use crate::downstream::connections::tests::{any_place, place_of_pace};
    use crate::downstream::incomplete::IncompleteRequests;
    use crate::memory::{Budget, GroupMembership, Memory, costs};
    use crate::relay::ViewQuota;

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

    /// A connection over a layer that may take bytes before they are sent, as TLS does.
    type OverLayer = PacedReads<BufWriter<DuplexStream>>;

    const FULL: usize = costs::UNSENT + costs::UNSENT_IN_KERNEL;

    /// Returns a connection whose socket has room for 100 bytes, over a layer that takes fewer bytes than `taken` before they are sent. Also returns
    /// its client, and a function that counts the bytes charged to it.
    async fn over_layer(taken: usize) -> (OverLayer, DuplexStream, impl Fn() -> usize) {
        let memory = Memory::new(Budget::unlimited(), Arc::default(), Arc::default());
        let (account, place) = (memory.connect(GroupMembership::default()), any_place().await);
        place.set_quota(Arc::new(ViewQuota::default().charged_to(account, false)));
        let (client, socket) = duplex(100);
        let before = memory.used();
        (PacedReads::new(BufWriter::with_capacity(taken, socket), place), client, move || memory.used() - before)
    }

    /// Whether so many bytes can be written and flushed at once.
    fn sends(connection: &mut OverLayer, bytes: usize) -> bool {
        let bytes = vec![7; bytes];
        let sending = async {
            connection.write_all(&bytes).await.unwrap();
            connection.flush().await.unwrap();
        };
        sending.now_or_never().is_some()
    }

    #[tokio::test]
    async fn i10_a_client_that_reads_nothing_is_charged_for_it_also_if_tls_takes_the_bytes_until_it_reads_again() {
        for taken in [0, 1 << 10] {
            let (mut connection, mut client, charged) = over_layer(taken).await;
            assert_eq!((sends(&mut connection, 100), charged()), (true, 0), "{taken}: the socket takes them");
            for bytes in [50, 10] {
                assert_eq!((sends(&mut connection, bytes), charged()), (false, FULL), "{taken}: it is full");
            }
            client.read_exact(&mut [0; 100]).await.unwrap();
            assert_eq!((sends(&mut connection, 10), charged()), (true, 0), "{taken}: there is room again");
        }
    }

    #[tokio::test]
    async fn a_client_that_reads_nothing_is_charged_for_it_while_the_last_bytes_of_its_connection_wait() {
        let (mut connection, mut client, charged) = over_layer(1 << 10).await;
        connection.write_all(&[7; 200]).await.unwrap();
        assert_eq!((connection.shutdown().now_or_never().is_some(), charged()), (false, FULL));
        client.read_exact(&mut [0; 100]).await.unwrap();
        assert_eq!((connection.shutdown().now_or_never().is_some(), charged()), (true, 0));
    }
}
