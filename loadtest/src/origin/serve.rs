//! The origin's sockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request as Call, Response};
use http_body_util::{BodyExt, Either, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use weir::proto::Request;
use weir::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};

use super::Shared;
use super::burst::{Reply, TooFarBehind};
use super::session::Session;
use crate::kind::{Kind, method};
use crate::wire::Variant;

/// Serves until it is dropped, with its connections.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => {
                    let _ = socket.set_nodelay(true); // the peer may be gone already
                    connections.spawn(connection(TokioIo::new(socket), peer, shared.clone()));
                }
                Err(_) => tokio::task::yield_now().await, // out of files, say: the next may succeed
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(socket: TokioIo<tokio::net::TcpStream>, _peer: SocketAddr, shared: Arc<Shared>) {
    let service = service_fn(move |call| {
        let reply = open(call, &shared);
        async move { Ok::<_, Infallible>(reply) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(65_536).max_pending_accept_reset_streams(4096);
    builder.max_local_error_reset_streams(65_536).initial_connection_window_size(4 << 20);
    let _ = builder.serve_connection(socket, service).await; // clients may break off at any time
}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
type Body = Either<StreamBody<Frames>, Empty<Bytes>>;

fn open(call: Call<Incoming>, shared: &Arc<Shared>) -> Response<Body> {
    let Some((variant, only)) = method(call.uri().path()) else {
        return response(Either::Right(Empty::new()), status(UNIMPLEMENTED, "unknown method"));
    };
    let (out, frames) = mpsc::channel(QUEUED_FRAMES);
    tokio::spawn(stream(call.into_body(), variant, only, shared.clone(), out));
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

/// Counts a stream for as long as it is open.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn stream(
    mut body: Incoming,
    variant: Variant,
    only: Option<Kind>,
    shared: Arc<Shared>,
    out: Sender<Frame<Bytes>>,
) {
    let _counted = Counted::new(&shared.open_streams);
    let mut session = Session::new(variant, shared.next_stream(), shared.faults.clone());
    let mut updates = shared.updated.subscribe();
    let mut buffer = BytesMut::new();
    loop {
        tokio::select! {
            biased;
            frame = body.frame() => {
                let Some(Ok(frame)) = frame else { return };
                buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
                if let Err(message) = take_requests(&mut buffer, &mut session, only) {
                    let _ = out.send(Frame::trailers(status(INVALID_ARGUMENT, message))).await; // the client may be gone
                    return;
                }
            }
            changed = updates.changed() => if changed.is_err() { return },
        }
        let replies = session.burst(&mut shared.world());
        match replies {
            Ok(replies) => {
                for reply in replies {
                    if send(&out, reply).await.is_err() {
                        return;
                    }
                }
            }
            Err(TooFarBehind) => {
                let trailers = status(UNAVAILABLE, "too far behind; open the stream again");
                let _ = out.send(Frame::trailers(trailers)).await; // the client may be gone
                return;
            }
        }
    }
}

fn take_requests(buffer: &mut BytesMut, session: &mut Session, only: Option<Kind>) -> Result<(), &'static str> {
    while let Some(prefix) = buffer.get(1..5) {
        let length = u32::from_be_bytes(prefix.try_into().unwrap_or_default()) as usize;
        if length > MAX_REQUEST {
            return Err("request too large");
        }
        if buffer.len() < 5 + length {
            break;
        }
        let message = buffer.split_to(5 + length).freeze().slice(5..);
        let request = match session.variant {
            Variant::Sotw => DiscoveryRequest::decode(message).map(Request::Sotw),
            Variant::Delta => DeltaDiscoveryRequest::decode(message).map(Request::Delta),
        };
        session.on_request(&request.map_err(|_| "malformed request")?, only);
    }
    Ok(())
}

async fn send(out: &Sender<Frame<Bytes>>, reply: Reply) -> Result<(), mpsc::error::SendError<Frame<Bytes>>> {
    let mut first = BytesMut::with_capacity(5 + reply.head.len());
    first.put_u8(0);
    first.put_u32((reply.head.len() + reply.resources.len()) as u32);
    first.put_slice(&reply.head);
    if reply.hangs {
        first.truncate(5 + reply.head.len() / 2);
        out.send(Frame::data(first.freeze())).await?;
        out.closed().await;
        return Ok(());
    }
    out.send(Frame::data(first.freeze())).await?;
    if !reply.resources.is_empty() {
        out.send(Frame::data(reply.resources)).await?;
    }
    Ok(())
}

const QUEUED_FRAMES: usize = 2;
const MAX_REQUEST: usize = 64 << 20;
const INVALID_ARGUMENT: u16 = 3;
const UNIMPLEMENTED: u16 = 12;
const UNAVAILABLE: u16 = 14;
