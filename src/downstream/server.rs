//! Listens, and serves each connection with hyper's HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::body::{Piece, SessionBody, trailers};
use super::frames::{Budget, Frames};
use super::slot::{Slot, Status};
use super::stream::{read, variant_of};
use crate::relay::Views;

#[derive(Debug, Clone)]
pub struct Options {
    /// The longest request that is read.
    pub message_bytes: usize,
    /// Half-received requests, over all clients.
    pub half_received_bytes: usize,
    /// How the relay calls itself in its replies.
    pub control_plane: String,
}

#[derive(Clone)]
pub struct Downstream {
    views: Arc<Views>,
    budget: Arc<Budget>,
    message_bytes: usize,
    control_plane: Arc<str>,
}

impl Downstream {
    pub fn new(views: Arc<Views>, options: Options) -> Self {
        let Options { message_bytes, half_received_bytes, control_plane } = options;
        let control_plane = control_plane.into();
        Self { views, budget: Budget::of(half_received_bytes), message_bytes, control_plane }
    }

    /// Accepts for ever. Dropping the future closes the listener and every connection.
    pub async fn serve(self, listener: TcpListener) {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => drop(connections.spawn(self.clone().connection(stream, peer))),
                    Err(error) => {
                        // Out of file descriptors, most likely: those that are open go on, and some will close.
                        tracing::error!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(self, stream: TcpStream, peer: SocketAddr) {
        let _ = stream.set_nodelay(true); // a socket that cannot is still a socket
        let service = service_fn(move |request| {
            let response = self.stream(request, peer);
            async move { Ok::<_, Infallible>(response) }
        });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(KEEPALIVE))
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .max_concurrent_streams(STREAMS)
            .max_pending_accept_reset_streams(STREAMS as usize)
            .max_local_error_reset_streams(65_536)
            .initial_stream_window_size(65_535)
            .initial_connection_window_size(4 << 20)
            .max_frame_size(16 << 10);
        if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%peer, %error, "connection ended");
        }
    }

    fn stream(&self, request: Request<Incoming>, peer: SocketAddr) -> Response<AnyBody> {
        let Some(variant) = variant_of(request.uri().path()) else {
            return refuse(&Status::unimplemented(request.uri().path().to_owned()));
        };
        let slot = Arc::new(Slot::default());
        let frames = Frames::new(request.into_body(), self.message_bytes, self.budget.clone());
        tokio::spawn(read(frames, slot.clone(), self.views.clone(), variant, peer.to_string()));
        let body = AnyBody::Session(Box::new(SessionBody::new(slot, self.control_plane.clone())));
        grpc_response(body)
    }
}

/// What a response may have for a body.
enum AnyBody {
    Session(Box<SessionBody>),
    Empty,
}

impl Body for AnyBody {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        match &mut *self {
            Self::Session(body) => Pin::new(body.as_mut()).poll_frame(cx),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

fn refuse(status: &Status) -> Response<AnyBody> {
    let mut response = grpc_response(AnyBody::Empty);
    response.headers_mut().extend(trailers(status));
    response
}

fn grpc_response(body: AnyBody) -> Response<AnyBody> {
    let mut response = Response::new(body);
    let grpc = http::HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(http::header::CONTENT_TYPE, grpc);
    response
}

/// An Envoy without ADS has a stream for each cluster and route, and opens them all before it has seen our settings.
const STREAMS: u32 = 4096;
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
