//! A server that can hang, leave or break at any moment, and answers liveness calls as the test decides.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request as Call, Response as Reply};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::client::PATIENCE;
use crate::plane::{listen_at, own_address};

#[derive(Clone, Copy)]
pub enum Answers {
    Status(u16),
    /// Answers like an HTTP server without gRPC.
    Http(u16),
    /// Lets each call wait until the test releases it.
    Held,
    /// A gateway rejects the call with this status. The server answers empty streams with the other one; `None`: it ignores their end.
    Refused(u16, Option<u16>),
    /// Like `Refused`, by a gateway that has no route for the call and identifies itself.
    NoRoute(u16, Option<u16>),
    /// Like `Refused`, by a gateway that has no route for the call and says so.
    NoRouteInWords(u16, Option<u16>),
}

pub struct Server {
    pub address: SocketAddr,
    pub streams: mpsc::UnboundedReceiver<Stream>,
    script: Arc<Script>,
    task: JoinHandle<()>,
}

struct Script {
    answers: Mutex<Answers>,
    released: Semaphore,
    calls: AtomicUsize,
    empty_streams: AtomicUsize,
    /// When the server itself last sent something, as far as calls show.
    last_word: Mutex<Instant>,
    /// The path of the last call.
    path: Mutex<String>,
    /// The connections on which calls arrived.
    requested: Mutex<BTreeSet<usize>>,
    hangs: watch::Sender<bool>,
    leaves: Notify,
    breaks: Notify,
    /// The maximum of concurrent streams on a connection.
    max_streams: Option<u32>,
    connections: AtomicUsize,
    accepted: mpsc::UnboundedSender<Stream>,
}

/// A stream of discovery or of load reports. Dropping it ends the stream.
pub struct Stream {
    pub connection: usize,
    responses: mpsc::UnboundedSender<Bytes>,
    requests: Incoming,
}

impl Stream {
    pub fn send(&self, bytes: impl Into<Bytes>) {
        let _ = self.responses.send(bytes.into()); // the relay may have disconnected
    }

    /// Waits until the relay has half-closed the stream.
    pub async fn requests_end(&mut self) {
        while let Some(Ok(_)) = self.requests.frame().await {}
    }
}

impl Server {
    pub async fn start(answers: Answers) -> Self {
        Self::start_at(own_address(), answers).await
    }

    pub async fn start_at(address: SocketAddr, answers: Answers) -> Self {
        Self::start_limited(address, answers, None).await
    }

    pub async fn start_limited(address: SocketAddr, answers: Answers, max_streams: Option<u32>) -> Self {
        let listener = listen_at(address).await;
        let address = listener.local_addr().unwrap();
        let (accepted, streams) = mpsc::unbounded_channel();
        let script = Arc::new(Script {
            answers: Mutex::new(answers),
            released: Semaphore::new(0),
            calls: AtomicUsize::new(0),
            empty_streams: AtomicUsize::new(0),
            last_word: Mutex::new(Instant::now()),
            path: Mutex::default(),
            requested: Mutex::default(),
            hangs: watch::Sender::new(false),
            leaves: Notify::new(),
            breaks: Notify::new(),
            max_streams,
            connections: AtomicUsize::new(0),
            accepted,
        });
        let task = tokio::spawn(accept(listener, script.clone()));
        Self { address, streams, script, task }
    }

    pub async fn stream(&mut self) -> Stream {
        tokio::time::timeout(PATIENCE, self.streams.recv()).await.expect("no stream comes").unwrap()
    }

    /// Returns the path of the last call.
    pub fn path(&self) -> String {
        self.script.path.lock().unwrap().clone()
    }

    pub fn answer(&self, answers: Answers) {
        *self.script.answers.lock().unwrap() = answers;
    }

    /// Answers one waiting call.
    pub fn release(&self) {
        self.script.released.add_permits(1);
    }

    pub fn calls(&self) -> usize {
        self.script.calls.load(Ordering::Relaxed)
    }

    /// Returns how many streams began with a half-close.
    pub fn empty_streams(&self) -> usize {
        self.script.empty_streams.load(Ordering::Relaxed)
    }

    /// Returns when the server last answered an empty stream.
    pub fn last_word(&self) -> Instant {
        *self.script.last_word.lock().unwrap()
    }

    pub fn requested(&self) -> BTreeSet<usize> {
        self.script.requested.lock().unwrap().clone()
    }

    /// Returns how many connections are open.
    pub fn connections(&self) -> usize {
        self.script.connections.load(Ordering::Relaxed)
    }

    /// Breaks all open connections.
    pub fn cut(&self) {
        self.script.breaks.notify_waiters();
    }

    /// Hangs like a stopped process: the kernel still accepts connections and bytes.
    pub fn hang(&self) {
        self.script.hangs.send_replace(true);
    }

    /// Accepts no more calls on the open connections. Their current calls continue.
    pub fn leave(&self) {
        self.script.leaves.notify_waiters();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, script: Arc<Script>) {
    let mut connections = JoinSet::new();
    let mut hangs = script.hangs.subscribe();
    for number in 0.. {
        let socket = tokio::select! {
            socket = listener.accept() => socket.unwrap().0,
            _ = hangs.wait_for(|hangs| *hangs) => break,
        };
        connections.spawn(serve(socket, number, script.clone()));
    }
    std::future::pending::<()>().await; // keeps the listener open
}

async fn serve(socket: TcpStream, number: usize, script: Arc<Script>) {
    let _open = Open::new(script.clone());
    let io = Stoppable { socket, hangs: script.hangs.subscribe() };
    let of_calls = script.clone();
    let service = service_fn(move |call| reply(call, number, of_calls.clone()));
    let mut builder = Builder::new(TokioExecutor::new());
    let connection = builder.max_concurrent_streams(script.max_streams).serve_connection(TokioIo::new(io), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = script.breaks.notified() => return,
        () = script.leaves.notified() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = script.breaks.notified() => {}
    }
}

/// Counts a connection as open until this is dropped.
struct Open(Arc<Script>);

impl Open {
    fn new(script: Arc<Script>) -> Self {
        script.connections.fetch_add(1, Ordering::Relaxed);
        Self(script)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

type Body = BoxBody<Bytes, Infallible>;

async fn reply(call: Call<Incoming>, connection: usize, script: Arc<Script>) -> Result<Reply<Body>, Infallible> {
    let grpc = Reply::builder().header("content-type", "application/grpc");
    if call.uri().path().ends_with("AggregatedResources") || call.uri().path() == weir_core::xds::LOADS_PATH {
        let answers = *script.answers.lock().unwrap();
        if let (true, Answers::Refused(_, answer) | Answers::NoRoute(_, answer) | Answers::NoRouteInWords(_, answer)) =
            (call.body().is_end_stream(), answers)
        {
            script.empty_streams.fetch_add(1, Ordering::Relaxed);
            if answer.is_some() {
                *script.last_word.lock().unwrap() = Instant::now();
            }
            return match answer {
                Some(status) => Ok(grpc.header("grpc-status", status).body(Empty::new().boxed()).unwrap()),
                None => std::future::pending().await,
            };
        }
        let (responses, out) = mpsc::unbounded_channel();
        script.accepted.send(Stream { connection, responses, requests: call.into_body() }).ok();
        let out = UnboundedReceiverStream::new(out).map(|bytes| Ok(Frame::data(bytes)));
        return Ok(grpc.body(StreamBody::new(out).boxed()).unwrap());
    }
    call.uri().path().clone_into(&mut script.path.lock().unwrap());
    script.calls.fetch_add(1, Ordering::Relaxed);
    script.requested.lock().unwrap().insert(connection);
    let answers = *script.answers.lock().unwrap();
    let reply = match answers {
        Answers::Status(status) | Answers::Refused(status, _) => grpc.header("grpc-status", status),
        Answers::NoRoute(status, _) => grpc.header("server", "gateway").header("grpc-status", status),
        Answers::NoRouteInWords(status, _) => {
            grpc.header("server", "gateway").header("grpc-status", status).header("grpc-message", "unimplemented")
        }
        Answers::Http(status) => Reply::builder().status(status),
        Answers::Held => {
            script.released.acquire().await.unwrap().forget();
            grpc.header("grpc-status", 12)
        }
    };
    Ok(reply.body(Empty::new().boxed()).unwrap())
}

/// A connection that reads and writes nothing while its server hangs.
struct Stoppable {
    socket: TcpStream,
    hangs: watch::Receiver<bool>,
}

impl Stoppable {
    fn poll<T>(&mut self, poll: impl FnOnce(Pin<&mut TcpStream>) -> Poll<T>) -> Poll<T> {
        if *self.hangs.borrow() { Poll::Pending } else { poll(Pin::new(&mut self.socket)) }
    }
}

impl AsyncRead for Stoppable {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stoppable {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(|socket| socket.poll_write(cx, bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_shutdown(cx))
    }
}
