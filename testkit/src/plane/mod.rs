//! A scripted control plane: it passes each stream of the relay to the test, as a pair of requests and responses.

mod call;
mod connections;
mod control;
mod habits;
mod stream;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsAcceptor;
use weir_core::protocol::session::Variant;

pub use self::call::{Calls, SeenCall};
pub use self::habits::{Answers, GRPC_LIMIT, Habits};
pub use self::stream::{END_OF_SET, Stream, encoded};
pub use crate::address::{listen_at, own_address};

use self::call::Desk;
use self::connections::accept;
use self::control::Control;
use crate::last_errors::errors_of;
use crate::load_plane::LoadStream;
use crate::wait::PATIENCE;

pub struct Plane {
    pub address: SocketAddr,
    pub streams: mpsc::UnboundedReceiver<Stream>,
    pub loads: mpsc::UnboundedReceiver<LoadStream>,
    /// All calls that were received so far.
    pub calls: Calls,
    desk: Arc<Desk>,
    server: JoinHandle<()>,
}

impl Plane {
    pub async fn start(variants: &'static [Variant]) -> Self {
        Self::start_at(own_address(), variants).await
    }

    pub async fn start_at(address: SocketAddr, variants: &'static [Variant]) -> Self {
        Self::with(address, Habits { variants, ..Habits::default() }).await
    }

    /// Starts a control plane that identifies itself as a relay.
    pub async fn relay_at(address: SocketAddr, variants: &'static [Variant]) -> Self {
        Self::with(address, Habits { variants, is_relay: true, ..Habits::default() }).await
    }

    /// Starts a control plane that states this encoding in its responses. The test decides which messages are encoded.
    pub async fn compressing(variants: &'static [Variant], encoding: Option<&'static str>) -> Self {
        Self::with(own_address(), Habits { variants, encoding, ..Habits::default() }).await
    }

    /// Starts a control plane that ends every stream with this status, before any response.
    pub async fn refusing_at(address: SocketAddr, status: u16) -> Self {
        let answers = Answers::Status(status);
        Self::with(address, Habits { variants: &[], answers, ..Habits::default() }).await
    }

    /// Starts a control plane that accepts or rejects calls of any method by their headers.
    pub async fn judging(variants: &'static [Variant], judge: fn(&http::HeaderMap) -> bool) -> Self {
        Self::with(own_address(), Habits { variants, judge: Some(judge), ..Habits::default() }).await
    }

    pub async fn start_with_tls(tls: rustls::ServerConfig) -> Self {
        let tls = Some(TlsAcceptor::from(Arc::new(tls)));
        Self::with(([127, 0, 0, 1], 0).into(), Habits { tls, ..Habits::default() }).await
    }

    /// Starts a control plane that answers calls which it does not serve in this way, and allows any number of streams.
    pub async fn answering(answers: Answers) -> Self {
        Self::answering_at(own_address(), answers).await
    }

    pub async fn answering_at(address: SocketAddr, answers: Answers) -> Self {
        Self::with(address, Habits { answers, max_streams: None, ..Habits::default() }).await
    }

    /// Starts a control plane with these habits.
    pub async fn with(address: SocketAddr, habits: Habits) -> Self {
        let listener = listen_at(address).await;
        let address = listener.local_addr().unwrap();
        let (of_streams, streams) = mpsc::unbounded_channel();
        let (of_loads, loads) = mpsc::unbounded_channel();
        let calls = Calls::default();
        let desk = Arc::new(Desk {
            answers: Mutex::new(habits.answers),
            habits,
            control: Control::new(),
            streams: of_streams,
            loads: of_loads,
            calls: calls.clone(),
            released: Semaphore::new(0),
            unserved: Mutex::default(),
            empty_streams: AtomicUsize::new(0),
            last_word: Mutex::new(Instant::now()),
        });
        let server = tokio::spawn(accept(listener, desk.clone()));
        Self { address, streams, loads, calls, desk, server }
    }

    pub async fn stream(&mut self) -> Stream {
        match timeout(PATIENCE, self.streams.recv()).await {
            Ok(stream) => stream.unwrap(),
            Err(_) => panic!("the relay opens no stream: {}", errors_of(self.address).await),
        }
    }

    pub async fn load_stream(&mut self) -> LoadStream {
        timeout(PATIENCE, self.loads.recv()).await.expect("the relay reports no loads").unwrap()
    }

    /// Changes how calls are answered that are not served.
    pub fn answer(&self, answers: Answers) {
        *self.desk.answers.lock().unwrap() = answers;
    }

    /// Answers one waiting call.
    pub fn release(&self) {
        self.desk.released.add_permits(1);
    }

    /// Returns how many calls came that are not served.
    pub fn calls(&self) -> usize {
        self.desk.unserved.lock().unwrap().len()
    }

    /// Returns the path of the last of these calls.
    pub fn path(&self) -> String {
        self.desk.unserved.lock().unwrap().last().map(|(path, _)| path.clone()).unwrap_or_default()
    }

    /// Returns the connections on which they came.
    pub fn requested(&self) -> BTreeSet<usize> {
        self.desk.unserved.lock().unwrap().iter().map(|(_, connection)| *connection).collect()
    }

    /// Returns how many streams began with a half-close.
    pub fn empty_streams(&self) -> usize {
        self.desk.empty_streams.load(Ordering::Relaxed)
    }

    /// Returns when the server behind a gateway last answered an empty stream.
    pub fn last_word(&self) -> Instant {
        *self.desk.last_word.lock().unwrap()
    }

    /// Returns how many connections are open.
    pub fn connections(&self) -> usize {
        self.desk.control.open.load(Ordering::Relaxed)
    }

    /// Breaks all open connections.
    pub fn cut(&self) {
        self.desk.control.breaks.notify_waiters();
    }

    /// Hangs like a stopped process: the kernel still accepts connections and bytes.
    pub fn hang(&self) {
        self.desk.control.hangs.send_replace(true);
    }

    /// Accepts no more calls on the open connections. Their current calls continue.
    pub fn leave(&self) {
        self.desk.control.leaves.notify_waiters();
    }

    /// Announces on every connection that it accepts no more streams. Returns once the announcements are sent.
    pub async fn drain(&self) {
        self.leave();
        timeout(PATIENCE, self.desk.control.left.acquire()).await.expect("no connection").unwrap().forget();
    }

    /// Closes the listener and every connection.
    pub async fn kill(self) -> SocketAddr {
        self.server.abort();
        let _ = self.server.await;
        self.address
    }

    /// Begins to close the listener and every connection.
    pub fn abort(&self) {
        self.server.abort();
    }
}
