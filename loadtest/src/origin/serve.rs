//! A gRPC server for streams of the discovery services, without TLS.

use std::convert::Infallible;
use std::pin::Pin;

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request as HttpRequest, Response};
use http_body_util::{BodyExt, Either, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::loads::{self, LOADS};
use crate::kind::{Kind, method};
use crate::wire::Variant;

/// One stream that a client has opened.
pub struct Call {
    pub variant: Variant,
    /// The type, if the method serves only one.
    pub only: Option<Kind>,
    pub requests: Requests,
    pub replies: Replies,
}

/// Serves, and calls `run` for each stream, until the future is dropped, which also ends the connections.
pub async fn serve<R, F>(listener: TcpListener, run: R)
where
    R: Fn(Call) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, _)) => {
                    let _ = socket.set_nodelay(true); // the peer may have disconnected
                    connections.spawn(connection(TokioIo::new(socket), run.clone()));
                }
                Err(_) => tokio::task::yield_now().await, // there may be too many open files; the next attempt may succeed
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection<R, F>(socket: TokioIo<TcpStream>, run: R)
where
    R: Fn(Call) -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let service = service_fn(move |request| {
        let response = open(request, &run);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(65_536).max_pending_accept_reset_streams(4096);
    builder.max_local_error_reset_streams(65_536).initial_connection_window_size(4 << 20);
    let _ = builder.serve_connection(socket, service).await; // clients may disconnect at any time
}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
type Body = Either<StreamBody<Frames>, Empty<Bytes>>;

fn open<R, F>(request: HttpRequest<Incoming>, run: &R) -> Response<Body>
where
    R: Fn(Call) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    if request.uri().path() == LOADS {
        let (out, frames) = mpsc::channel(QUEUED_FRAMES);
        tokio::spawn(loads::run(request.into_body(), out));
        let frames: Frames = Box::pin(ReceiverStream::new(frames).map(Ok));
        return response(Either::Left(StreamBody::new(frames)), HeaderMap::new());
    }
    let Some((variant, only)) = method(request.uri().path()) else {
        return response(Either::Right(Empty::new()), status(UNIMPLEMENTED, "unknown method"));
    };
    let (out, frames) = mpsc::channel(QUEUED_FRAMES);
    let requests = Requests { body: request.into_body(), buffer: BytesMut::new(), variant };
    tokio::spawn(run(Call { variant, only, requests, replies: Replies { out } }));
    let frames: Frames = Box::pin(ReceiverStream::new(frames).map(Ok));
    response(Either::Left(StreamBody::new(frames)), HeaderMap::new())
}

fn response(body: Body, headers: HeaderMap) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response.headers_mut().extend(headers);
    response
}

fn status(code: u16, message: &'static str) -> HeaderMap {
    let code = (HeaderName::from_static("grpc-status"), HeaderValue::from(code));
    HeaderMap::from_iter([code, (HeaderName::from_static("grpc-message"), HeaderValue::from_static(message))])
}

pub struct Requests {
    body: Incoming,
    buffer: BytesMut,
    variant: Variant,
}

impl Requests {
    /// Waits for requests, and returns all that have arrived; `None` at the end of the stream. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Result<Vec<Request>, &'static str>> {
        let frame = self.body.frame().await?.ok()?;
        self.buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        Some(self.decode())
    }

    fn decode(&mut self) -> Result<Vec<Request>, &'static str> {
        let mut requests = Vec::new();
        while let Some(prefix) = self.buffer.get(1..5) {
            let length = u32::from_be_bytes(prefix.try_into().unwrap_or_default()) as usize;
            if length > MAX_REQUEST {
                return Err("request too large");
            }
            if self.buffer.len() < 5 + length {
                break;
            }
            let message = self.buffer.split_to(5 + length).freeze().slice(5..);
            let request = match self.variant {
                Variant::Sotw => DiscoveryRequest::decode(message).map(Request::Sotw),
                Variant::Delta => DeltaDiscoveryRequest::decode(message).map(Request::Delta),
            };
            requests.push(request.map_err(|_| "malformed request")?);
        }
        Ok(requests)
    }
}

pub struct Replies {
    out: Sender<Frame<Bytes>>,
}

/// An error: the client has disconnected.
#[derive(Debug)]
pub struct Gone;

impl Replies {
    /// Sends a message in two parts; the second may be shared with other streams. Waits while the client does not read.
    pub async fn send(&self, head: &[u8], rest: Bytes) -> Result<(), Gone> {
        self.frame(Frame::data(prefixed(head, rest.len()).freeze())).await?;
        if rest.is_empty() { Ok(()) } else { self.frame(Frame::data(rest)).await }
    }

    /// Sends half of the head, and waits until the client disconnects.
    pub async fn hang(&self, head: &[u8], rest: &[u8]) -> Gone {
        let mut half = prefixed(head, rest.len());
        half.truncate(5 + head.len() / 2);
        if self.frame(Frame::data(half.freeze())).await.is_ok() {
            self.out.closed().await;
        }
        Gone
    }

    pub async fn end(&self, code: u16, message: &'static str) {
        let _ = self.frame(Frame::trailers(status(code, message))).await; // the client may have disconnected
    }

    async fn frame(&self, frame: Frame<Bytes>) -> Result<(), Gone> {
        self.out.send(frame).await.map_err(|_| Gone)
    }
}

fn prefixed(head: &[u8], rest: usize) -> BytesMut {
    let mut first = BytesMut::with_capacity(5 + head.len());
    first.put_u8(0);
    first.put_u32((head.len() + rest) as u32);
    first.put_slice(head);
    first
}

const QUEUED_FRAMES: usize = 2;
/// The default of gRPC servers.
const MAX_REQUEST: usize = 4 << 20;
pub const INVALID_ARGUMENT: u16 = 3;
const UNIMPLEMENTED: u16 = 12;
pub const UNAVAILABLE: u16 = 14;
