//! The connections of a control plane, which can hang, break or be left at any moment.

use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::call::{Desk, reply};
use super::control::Origin;

pub(super) async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    let mut connections = JoinSet::new();
    let mut hangs = desk.control.hangs.subscribe();
    for number in 0.. {
        let (socket, from) = tokio::select! {
            socket = listener.accept() => socket.unwrap(),
            _ = hangs.wait_for(|hangs| *hangs) => break,
        };
        connections.spawn(begin(socket, Origin { from, number }, desk.clone()));
    }
    std::future::pending::<()>().await; // keeps the listener and the connections open
}

async fn begin(socket: TcpStream, origin: Origin, desk: Arc<Desk>) {
    let _open = Open::new(desk.clone());
    let io = Stoppable { socket, hangs: desk.control.hangs.subscribe() };
    match desk.habits.tls.clone() {
        None => serve(io, origin, desk).await,
        Some(tls) => {
            // If the handshake fails, the relay gets the reason.
            if let Ok(io) = tls.accept(io).await {
                serve(io, origin, desk).await;
            }
        }
    }
}

async fn serve(io: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, origin: Origin, desk: Arc<Desk>) {
    let of_calls = desk.clone();
    let service = service_fn(move |call| {
        let desk = of_calls.clone();
        async move { Ok::<_, Infallible>(reply(call, origin, desk).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(desk.habits.max_streams);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(io), service));
    let control = &desk.control;
    let mut breaks = pin!(control.breaks.notified());
    tokio::select! {
        _ = connection.as_mut() => return,
        () = breaks.as_mut() => return,
        () = control.leaves.notified() => connection.as_mut().graceful_shutdown(),
    }
    control.left.add_permits(1);
    tokio::select! {
        _ = connection => {}
        () = breaks => {}
    }
}

/// Counts a connection as open until this is dropped.
struct Open(Arc<Desk>);

impl Open {
    fn new(desk: Arc<Desk>) -> Self {
        desk.control.open.fetch_add(1, Ordering::Relaxed);
        Self(desk)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.control.open.fetch_sub(1, Ordering::Relaxed);
    }
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

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|socket| socket.poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_shutdown(cx))
    }
}
