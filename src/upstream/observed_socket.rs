//! The socket of a connection to a server, and what the bytes that arrive on it reveal of the connection.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::dial::TriedAddress;
use super::frame_scan::{Announced, FrameScan};
use super::method_calls::MethodCalls;

pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    observed: Mutex<Observed>,
    /// The server's settings have arrived, or nothing more can be read.
    begun: Notify,
    /// The connection's entry in the address book, while the connection is open; none over a Unix socket.
    tried: Weak<TriedAddress>,
    method_calls: MethodCalls,
    /// The turn of the stream that moves, if streams have to move. Without a permit, streams stay.
    moves: Arc<Semaphore>,
    /// When the connection reaches its maximum age.
    ends_at: OnceLock<Option<Instant>>,
}

#[derive(Debug)]
struct Observed {
    announced: Announced,
    last_received: Instant,
    ended: Option<NothingRead>,
    /// Reads and writes fail from now on, even while nothing arrives.
    is_given_up: bool,
    reader: Option<Waker>,
}

/// Why nothing can be read from a connection.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum NothingRead {
    #[error("it took the connection and said nothing on it within {}", humantime::format_duration(*limit))]
    Timeout { limit: Duration },
    #[error("it closed the connection without a word")]
    Closed,
    #[error("it speaks TLS: expected https://")]
    Tls,
    #[error("it speaks HTTP/1.1 and not gRPC; is this an address for operators?")]
    Http1,
    #[error("{0}")]
    Failed(String),
}

impl NothingRead {
    /// Returns the reason as text. `is_encrypted_or_local`: if false, the text adds that the server may expect TLS.
    pub(crate) fn on(&self, is_encrypted_or_local: bool) -> String {
        match self {
            Self::Closed if !is_encrypted_or_local => format!("{self}; does it expect TLS (https://)?"),
            reason => reason.to_string(),
        }
    }
}

impl ConnectionState {
    pub(crate) fn new(tried: Option<&Arc<TriedAddress>>) -> Self {
        let observed = Observed {
            announced: Announced::default(),
            last_received: Instant::now(),
            ended: None,
            is_given_up: false,
            reader: None,
        };
        let tried = tried.map(Arc::downgrade).unwrap_or_default();
        Self {
            observed: Mutex::new(observed),
            begun: Notify::new(),
            tried,
            method_calls: MethodCalls::default(),
            moves: Arc::new(Semaphore::new(0)),
            ends_at: OnceLock::new(),
        }
    }

    /// Waits until the server has sent its settings. Fails when the connection has ended before.
    pub(crate) async fn begun(&self) -> Result<(), NothingRead> {
        self.begun.notified().await;
        let observed = self.lock();
        match &observed.ended {
            Some(reason) if !observed.announced.has_settings => Err(reason.clone()),
            _ => Ok(()),
        }
    }

    pub(crate) fn method_calls(&self) -> &MethodCalls {
        &self.method_calls
    }

    /// Notes that a server has answered on the connection.
    pub(crate) fn worked(&self) {
        self.tried.upgrade().inspect(|tried| tried.worked());
    }

    /// Notes that the server does not answer any more.
    pub(crate) fn failed(&self) {
        self.tried.upgrade().inspect(|tried| tried.failed());
    }

    /// Returns the address of the connection.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.tried.upgrade().map(|tried| tried.address())
    }

    /// Sets the maximum age of the connection. Only the first call counts.
    pub(crate) fn set_end(&self, after: Option<Duration>) {
        self.ends_at.get_or_init(|| after.map(|after| Instant::now() + after));
    }

    pub(crate) fn ends_at(&self) -> Option<Instant> {
        self.ends_at.get().copied().flatten()
    }

    /// Lets its streams move away, one at a time.
    pub(crate) fn leave(&self) {
        self.tried.upgrade().inspect(|tried| tried.leaves());
        self.moves.add_permits(1);
    }

    /// Lets all remaining streams stay. The stream that had the turn has not returned its permit.
    pub(crate) fn stay(&self) {
        self.tried.upgrade().inspect(|tried| tried.stays());
    }

    /// Waits until a stream has to move, and the streams before it have moved.
    pub(crate) async fn move_turn(&self) -> OwnedSemaphorePermit {
        match self.moves.clone().acquire_owned().await {
            Ok(turn) => turn,
            Err(_) => std::future::pending().await, // it is never closed
        }
    }

    /// Returns how many streams the server allows at a time.
    pub(crate) fn max_streams(&self) -> usize {
        self.lock().announced.max_streams.map_or(usize::MAX, |max| max as usize)
    }

    /// Whether the server has announced that it takes no more streams.
    pub(crate) fn is_leaving(&self) -> bool {
        self.lock().announced.is_leaving
    }

    /// Whether no stream can be opened any more.
    pub(crate) fn is_closed(&self) -> bool {
        let observed = self.lock();
        observed.announced.is_leaving || observed.ended.is_some()
    }

    /// Returns when bytes last arrived, of any stream.
    pub(crate) fn last_received(&self) -> Instant {
        self.lock().last_received
    }

    /// Closes the connection. Data that is still to be sent is dropped.
    pub(crate) fn give_up(&self) {
        let mut observed = self.lock();
        observed.is_given_up = true;
        let reader = observed.reader.take();
        drop(observed);
        reader.into_iter().for_each(Waker::wake);
    }

    /// Whether the connection was given up. If not, the reader is woken when it is.
    fn is_given_up(&self, reader: &Context<'_>) -> bool {
        let mut observed = self.lock();
        match &mut observed.reader {
            Some(waker) => waker.clone_from(reader.waker()),
            None => observed.reader = Some(reader.waker().clone()),
        }
        observed.is_given_up
    }

    fn ended(&self, reason: NothingRead) {
        self.lock().ended.get_or_insert(reason);
        self.begun.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Observed> {
        self.observed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports arriving bytes to the state. A kernel accepts connections for a hung program, so only the first bytes of HTTP/2 are evidence of a server
/// (FB-32).
pub(super) struct ObservedSocket {
    socket: Box<dyn Socket>,
    scan: FrameScan,
    state: Arc<ConnectionState>,
    _connected: Option<Arc<TriedAddress>>,
}

impl ObservedSocket {
    pub(crate) fn new(socket: Box<dyn Socket>, state: Arc<ConnectionState>, tried: Option<Arc<TriedAddress>>) -> Self {
        Self { socket, scan: FrameScan::default(), state, _connected: tried }
    }

    fn received(&mut self, bytes: &[u8]) {
        let announced = self.scan.read(bytes);
        if let Some(other) = self.scan.other_protocol() {
            self.state.ended(other_than_http2(other));
        }
        let mut observed = self.state.lock();
        observed.last_received = Instant::now();
        if announced.has_settings && !observed.announced.has_settings {
            self.state.begun.notify_one();
        }
        observed.announced = announced;
    }
}

impl AsyncRead for ObservedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (this, before, room) = (self.get_mut(), buffer.filled().len(), buffer.remaining());
        if this.state.is_given_up(cx) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let read = ready!(Pin::new(&mut this.socket).poll_read(cx, buffer));
        match &read {
            Ok(()) if buffer.filled().len() > before => this.received(&buffer.filled()[before..]),
            Ok(()) if room > 0 => this.state.ended(other_than_http2(this.scan.beginning())),
            Ok(()) => {}
            Err(error) => this.state.ended(NothingRead::Failed(error.to_string())),
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for ObservedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().socket).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().socket).poll_shutdown(cx)
    }
}

impl Drop for ObservedSocket {
    /// This side has ended the connection, for example because a ping was not answered.
    fn drop(&mut self) {
        self.state.ended(NothingRead::Closed);
    }
}

/// Returns why bytes that begin like this are not HTTP/2. A server that expects TLS sends an alert, which is shorter than the head of a frame.
fn other_than_http2(bytes: &[u8]) -> NothingRead {
    match bytes {
        [0x15 | 0x16, 0x03, ..] => NothingRead::Tls,
        [b'H', b'T', b'T', b'P', b'/', ..] => NothingRead::Http1,
        _ => NothingRead::Closed,
    }
}

/// The status text of a stream or call on a connection that has ended.
pub(super) const CLOSED: &str = "the connection is lost, or takes no more calls";

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    /// An empty SETTINGS frame.
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

    fn connection() -> (ObservedSocket, Arc<ConnectionState>, DuplexStream) {
        let ((socket, server), state) = (duplex(64), Arc::new(ConnectionState::new(None)));
        (ObservedSocket::new(Box::new(socket), state.clone(), None), state, server)
    }

    #[tokio::test]
    async fn who_waits_for_the_first_words_of_a_server_is_woken_by_them_and_by_the_end() {
        let (mut socket, state, mut server) = connection();
        let begun = tokio::spawn({
            let state = state.clone();
            async move { state.begun().await }
        });
        tokio::task::yield_now().await;
        let before = state.last_received();
        while Instant::now() <= before {}
        server.write_all(&SETTINGS).await.unwrap();
        socket.read_exact(&mut [0; SETTINGS.len()]).await.unwrap();
        assert!(timeout(LONG, begun).await.expect("it has begun").unwrap().is_ok());
        assert!(state.last_received() > before);

        let (socket, state, _server) = connection();
        assert!(state.begun().now_or_never().is_none());
        drop(socket);
        assert!(timeout(LONG, state.begun()).await.expect("it has ended").is_err());
    }

    #[tokio::test]
    async fn a_connection_that_is_given_up_wakes_its_reader() {
        let (mut socket, state, _server) = connection();
        let reader = tokio::spawn(async move { socket.read(&mut [0; 9]).await });
        tokio::task::yield_now().await;
        state.give_up();
        let read = timeout(LONG, reader).await.expect("it is woken").unwrap();
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    /// Fails when it is read.
    struct Broken;

    impl AsyncRead for Broken {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::Error::other("certificate refused")))
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn the_first_reason_of_an_end_is_reported_and_none_of_what_ended_after_its_beginning() {
        let state = Arc::new(ConnectionState::new(None));
        let mut socket = ObservedSocket::new(Box::new(Broken), state.clone(), None);
        assert!(!state.is_closed());
        assert!(socket.read(&mut [0; 9]).await.is_err());
        assert!(state.is_closed(), "nothing more can be read");
        drop(socket);
        let reason = timeout(LONG, state.begun()).await.unwrap().unwrap_err();
        assert_eq!(reason.to_string(), "certificate refused");

        let (mut socket, state, server) = connection();
        drop(server);
        assert_eq!(socket.read(&mut [0; 9]).await.unwrap(), 0);
        let reason = timeout(LONG, state.begun()).await.unwrap().unwrap_err();
        assert_eq!(reason.to_string(), "it closed the connection without a word");

        let (mut socket, state, mut server) = connection();
        server.write_all(&SETTINGS).await.unwrap();
        socket.read_exact(&mut [0; SETTINGS.len()]).await.unwrap();
        drop(socket);
        assert!(timeout(LONG, state.begun()).await.unwrap().is_ok() && state.is_closed());
    }

    struct Woken(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_connection_that_is_given_up_wakes_the_task_that_read_it_last_and_is_read_no_more() {
        let (mut socket, state, mut server) = connection();
        let tasks = [(); 2].map(|()| Arc::new(Woken(false.into())));
        for task in &tasks {
            let waker = Waker::from(task.clone());
            let mut bytes = [0; 9];
            let read = Pin::new(&mut socket).poll_read(&mut Context::from_waker(&waker), &mut ReadBuf::new(&mut bytes));
            assert!(read.is_pending());
        }
        state.give_up();
        assert!(tasks[1].0.load(std::sync::atomic::Ordering::Relaxed));
        server.write_all(&SETTINGS).await.unwrap();
        let read = socket.read(&mut [0; 9]).await;
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionAborted, "although something has arrived");
    }
}
