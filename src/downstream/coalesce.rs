//! Collects what HTTP/2 writes while a connection is polled, and writes it to the socket in one call.
//!
//! The HTTP/2 library writes and flushes each frame separately, and a frame has at most 16 KiB: a response of 1 MiB would take 67 system
//! calls. Copying the bytes once more costs less than the calls.
//!
//! One poll writes 256 KiB at most. A connection with more to send wakes itself, so that the others on its thread have their turn in between.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection whose writes are collected until [`Coalesced::drive`] has polled the writer.
pub(super) struct Coalesced<T>(Arc<Mutex<Inner<T>>>);

struct Inner<T> {
    io: T,
    /// The bytes from `sent` on are not sent yet.
    buffer: Vec<u8>,
    sent: usize,
    /// The socket is full. No write is accepted until the rest of the buffer is sent.
    blocked: bool,
    /// How many more bytes this poll may write, besides those that TLS has kept from an earlier one.
    left: usize,
    /// A write waits for the next poll.
    is_turn_over: bool,
    error: Option<io::ErrorKind>,
}

/// How many bytes one poll writes at most. A peer that stops reading pins no more.
pub(super) const BUFFER: usize = 256 << 10;

thread_local! {
    /// A connection needs a buffer only while it is polled, so each thread keeps one.
    static SPARE: Cell<Option<Vec<u8>>> = const { Cell::new(None) };
}

impl<T: AsyncRead + AsyncWrite + Unpin> Coalesced<T> {
    pub(crate) fn new(io: T) -> Self {
        Self(Arc::new(Mutex::new(Inner::new(io))))
    }

    /// Returns the connection, if this is its only handle.
    #[cfg(test)]
    pub(crate) fn into_inner(self) -> Option<T> {
        Some(Arc::into_inner(self.0)?.into_inner().unwrap_or_else(PoisonError::into_inner).io)
    }

    /// Returns another handle of the connection, for its reader and writer.
    pub(crate) fn share(&self) -> Self {
        Self(self.0.clone())
    }

    /// Polls the writer of this connection, and sends what it has written.
    pub(crate) async fn drive<F: Future>(&self, mut writer: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| {
            let polled = writer.as_mut().poll(cx);
            self.lock().end_of_poll(cx);
            polled
        })
        .await
    }

    /// Never contended: the writer and `drive` run in the same task.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: AsyncWrite + Unpin> Inner<T> {
    fn new(io: T) -> Self {
        Self { io, buffer: Vec::new(), sent: 0, blocked: false, left: BUFFER, is_turn_over: false, error: None }
    }

    fn collect(&mut self, cx: &mut Context<'_>, pieces: &[&[u8]]) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.error {
            return Poll::Ready(Err(kind.into()));
        }
        if self.blocked {
            ready!(self.send(cx))?;
        }
        if self.left == 0 {
            self.is_turn_over = true;
            return Poll::Pending; // the end of this poll wakes the task
        }
        if self.buffer.capacity() == 0 {
            self.buffer = SPARE.take().unwrap_or_else(|| Vec::with_capacity(BUFFER));
        }
        let before = self.buffer.len();
        for piece in pieces {
            let taken = piece.len().min(self.left);
            self.buffer.extend_from_slice(&piece[..taken]);
            self.left -= taken;
        }
        Poll::Ready(Ok(self.buffer.len() - before))
    }

    /// Sends the collected bytes. Ready when all of them are sent and the layer below is flushed too: TLS accepts bytes that it cannot send yet.
    fn send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(kind) = self.error {
            return Poll::Ready(Err(kind.into()));
        }
        while self.sent < self.buffer.len() {
            match Pin::new(&mut self.io).poll_write(cx, &self.buffer[self.sent..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(self.fail(io::ErrorKind::WriteZero))),
                Poll::Ready(Ok(written)) => {
                    self.sent += written;
                    if self.blocked {
                        self.left = self.left.saturating_sub(written); // the others counted when they were collected
                    }
                }
                Poll::Ready(Err(error)) => {
                    self.fail(error.kind());
                    return Poll::Ready(Err(error));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
        if let Err(error) = ready!(Pin::new(&mut self.io).poll_flush(cx)) {
            self.fail(error.kind());
            return Poll::Ready(Err(error));
        }
        (self.sent, self.blocked) = (0, false);
        self.buffer.clear();
        Poll::Ready(Ok(()))
    }

    fn end_of_poll(&mut self, cx: &mut Context<'_>) {
        let is_turn_over = std::mem::take(&mut self.is_turn_over);
        match self.send(cx) {
            Poll::Ready(Ok(())) => {
                put_back(std::mem::take(&mut self.buffer));
                if is_turn_over {
                    cx.waker().wake_by_ref();
                }
            }
            // The next read or write reports the error.
            Poll::Ready(Err(_)) => cx.waker().wake_by_ref(),
            Poll::Pending if !self.blocked => {
                let rest = self.buffer[self.sent..].to_vec();
                put_back(std::mem::replace(&mut self.buffer, rest));
                (self.sent, self.blocked) = (0, true);
            }
            Poll::Pending => {} // the socket wakes the task
        }
        self.left = BUFFER;
    }

    fn fail(&mut self, kind: io::ErrorKind) -> io::Error {
        self.error = Some(kind);
        (self.buffer, self.sent) = (Vec::new(), 0);
        kind.into()
    }
}

/// Keeps a buffer for the next connection that this thread polls.
fn put_back(mut buffer: Vec<u8>) {
    if buffer.capacity() >= BUFFER {
        buffer.clear();
        SPARE.set(Some(buffer));
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Coalesced<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().collect(cx, &[bytes])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.lock();
        match pieces {
            [one] => inner.collect(cx, &[one]),
            [one, two] => inner.collect(cx, &[one, two]),
            more => inner.collect(cx, &more.iter().map(|piece| &**piece).collect::<Vec<_>>()),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Waits only if the socket is full. Otherwise `drive` sends the bytes at the end of this poll.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        if inner.blocked { inner.send(cx) } else { Poll::Ready(Ok(())) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        ready!(inner.send(cx))?;
        Pin::new(&mut inner.io).poll_shutdown(cx)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesced<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.lock();
        if let Some(kind) = inner.error {
            return Poll::Ready(Err(kind.into()));
        }
        Pin::new(&mut inner.io).poll_read(cx, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Accepts at most this many bytes, and counts the writes. With an error, the next write or the next flush fails.
    struct Socket {
        room: usize,
        error: Option<io::ErrorKind>,
        flush_error: Option<io::ErrorKind>,
        taken: Vec<u8>,
        writes: usize,
    }

    impl AsyncWrite for Socket {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if let Some(kind) = self.error.take() {
                return Poll::Ready(Err(kind.into()));
            }
            if self.room == 0 {
                return Poll::Pending;
            }
            let taken = bytes.len().min(self.room);
            (self.room, self.writes) = (self.room - taken, self.writes + 1);
            self.taken.extend_from_slice(&bytes[..taken]);
            Poll::Ready(Ok(taken))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(self.flush_error.take().map_or(Ok(()), |kind| Err(kind.into())))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncRead for Socket {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn socket(room: usize) -> Coalesced<Socket> {
        Coalesced::new(raw(room))
    }

    fn raw(room: usize) -> Socket {
        Socket { room, error: None, flush_error: None, taken: Vec::new(), writes: 0 }
    }

    #[tokio::test]
    async fn frames_that_are_written_and_flushed_one_by_one_go_out_at_once() {
        let io = socket(usize::MAX);
        let mut writer = io.share();
        let frames = pin!(async {
            for frame in 0..40u8 {
                writer.write_all(&[frame; 1000]).await.unwrap();
                writer.flush().await.unwrap();
            }
        });
        io.drive(frames).await;
        let inner = io.lock();
        assert_eq!(inner.io.writes, 1);
        assert_eq!(inner.io.taken, (0..40u8).flat_map(|frame| [frame; 1000]).collect::<Vec<_>>());
        assert_eq!(inner.buffer.capacity(), 0, "an idle connection has no buffer");
    }

    #[tokio::test]
    async fn a_socket_that_is_full_takes_the_rest_later_and_pins_one_buffer_at_most() {
        let io = socket(1_000);
        let mut writer = io.share();
        let bytes: Vec<u8> = (0..3 * BUFFER + 7).map(|at| at as u8).collect();
        let mut writing = pin!(async { writer.write_all(&bytes).await });
        let mut rounds = 0;
        while std::future::poll_fn(|cx| {
            let polled = pin!(io.drive(writing.as_mut())).poll(cx);
            Poll::Ready(polled.is_pending())
        })
        .await
        {
            let mut inner = io.lock();
            assert!(inner.buffer.capacity() <= BUFFER);
            inner.io.room = 10_000;
            rounds += 1;
        }
        assert!(rounds > 10);
        let mut left = pin!(async { writer.shutdown().await });
        while std::future::poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_pending())).await {
            io.lock().io.room = 10_000;
        }
        assert!(io.lock().io.taken == bytes, "in order, and nothing twice");
    }

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Otherwise a peer that reads fast would keep the thread for as long as there is something to send.
    #[test]
    fn one_poll_writes_a_buffer_at_most_and_the_connection_wakes_itself_while_its_socket_takes_more() {
        let (full, woken) = (BUFFER / 2, Arc::<Woken>::default());
        let (waker, io) = (Waker::from(woken.clone()), socket(usize::MAX));
        let mut cx = Context::from_waker(&waker);
        let mut writer = io.share();
        let bytes: Vec<u8> = (0..5 * BUFFER + 7).map(|at| (at / 7) as u8).collect();
        let mut writing = pin!(async {
            for frame in bytes.chunks(16 << 10) {
                writer.write_all(frame).await.unwrap();
                writer.flush().await.unwrap();
            }
        });
        let mut poll = || {
            let before = (io.lock().io.taken.len(), woken.0.load(Ordering::Relaxed));
            let is_over = pin!(io.drive(writing.as_mut())).poll(&mut cx).is_ready();
            (is_over, io.lock().io.taken.len() - before.0, woken.0.load(Ordering::Relaxed) - before.1)
        };
        assert_eq!(poll(), (false, BUFFER, 1));
        io.lock().io.room = full;
        assert_eq!(poll(), (false, full, 0), "the socket will wake it");
        assert_eq!(poll(), (false, 0, 0), "it is full");
        io.lock().io.room = usize::MAX;
        assert_eq!(poll(), (false, BUFFER, 1), "with what was left");
        assert_eq!(poll(), (false, BUFFER, 1));
        assert_eq!(poll(), (false, BUFFER, 1));
        assert_eq!(poll(), (true, full + 7, 0));
        assert!(io.lock().io.taken == bytes, "in order, and nothing twice");
    }

    /// Buffers what is written until it is flushed, as TLS may.
    struct Buffering {
        taken: Vec<u8>,
        socket: Socket,
    }

    impl AsyncWrite for Buffering {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.taken.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            while !self.taken.is_empty() {
                let bytes = self.taken.clone();
                let sent = ready!(Pin::new(&mut self.socket).poll_write(cx, &bytes))?;
                self.taken.drain(..sent);
            }
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_flush(cx)
        }
    }

    impl AsyncRead for Buffering {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn what_the_layer_below_has_taken_and_not_sent_is_sent_when_there_is_room() {
        let io = Coalesced::new(Buffering { taken: Vec::new(), socket: raw(300) });
        let mut writer = io.share();
        let mut writing = pin!(async {
            writer.write_all(&[7; 1000]).await.unwrap();
            writer.flush().await.unwrap(); // `drive` sends after the poll of the writer
            std::future::pending::<()>().await
        });
        let mut poll = async || {
            std::future::poll_fn(|cx| Poll::Ready(pin!(io.drive(writing.as_mut())).poll(cx).is_pending())).await
        };
        for sent in [300, 600, 900, 1000] {
            assert!(poll().await);
            let mut inner = io.lock();
            assert_eq!(inner.io.socket.taken.len(), sent);
            inner.io.socket.room = 300;
        }
    }

    #[tokio::test]
    async fn a_socket_that_fails_is_found_out_by_the_next_read() {
        let (near, far) = tokio::io::duplex(64);
        drop(far);
        let io = Coalesced::new(near);
        let mut writer = io.share();
        io.drive(pin!(async { writer.write_all(b"lost").await.unwrap() })).await;
        assert_eq!(writer.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// A part of a frame may be lost, and what follows would be taken for its rest.
    #[tokio::test]
    async fn nothing_is_sent_after_an_error_of_a_write_or_a_flush() {
        let broken = Some(io::ErrorKind::ConnectionReset);
        for (error, flush_error, taken) in [(broken, None, &b""[..]), (None, broken, b"lost")] {
            let io = socket(usize::MAX);
            io.lock().io.error = error;
            io.lock().io.flush_error = flush_error;
            let mut writer = io.share();
            io.drive(pin!(async { writer.write_all(b"lost").await.unwrap() })).await;
            let late = io.drive(pin!(async { writer.write_all(b"late").await.unwrap_err().kind() })).await;
            assert_eq!((Some(late), &*io.lock().io.taken), (broken, taken));
        }
    }
}
