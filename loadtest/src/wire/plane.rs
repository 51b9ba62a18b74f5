//! The server of the scripted control plane: it accepts the relay's streams, and passes each to the world of its node's cluster.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request as Call, Response as Reply};
use http_body_util::{BodyExt, Either, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::proto::node::Node;
use weir_core::proto::{Request, Response};

use super::Variant;
use super::server::Out;
use super::world::World;

/// A running control plane. It serves until it is dropped.
pub struct Plane {
    pub address: SocketAddr,
    worlds: Worlds,
    server: JoinHandle<()>,
}

type Worlds = Arc<Mutex<HashMap<String, World>>>;

impl Plane {
    pub async fn start(address: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        let worlds = Worlds::default();
        Ok(Self { address, server: tokio::spawn(serve(listener, worlds.clone())), worlds })
    }

    /// Returns the world of a node cluster. Until a check scripts it, it reports that it has no resources.
    pub fn world(&self, cluster: &str) -> World {
        world_of(&self.worlds, cluster)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn world_of(worlds: &Worlds, cluster: &str) -> World {
    worlds.lock().unwrap_or_else(PoisonError::into_inner).entry(cluster.into()).or_default().clone()
}

async fn serve(listener: TcpListener, worlds: Worlds) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else { continue };
        let _ = socket.set_nodelay(true); // the peer may have disconnected
        let worlds = worlds.clone();
        connections.spawn(async move {
            let service = service_fn(move |call| {
                let reply = open(call, worlds.clone());
                async move { Ok::<_, Infallible>(reply) }
            });
            let _ = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

type Frames = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;
type Body = Either<StreamBody<Frames>, Empty<Bytes>>;

fn open(call: Call<Incoming>, worlds: Worlds) -> Reply<Body> {
    let variant = match call.uri().path() {
        SOTW_PATH => Variant::Sotw,
        DELTA_PATH => Variant::Delta,
        _ => return reply(Either::Right(Empty::new()), Some(status(UNIMPLEMENTED))),
    };
    #[allow(clippy::disallowed_methods, reason = "responses of one check")]
    let (out, queue) = mpsc::unbounded_channel();
    tokio::spawn(read(call.into_body(), variant, worlds, out));
    let frames = UnboundedReceiverStream::new(queue).then(framed).filter_map(|frame| frame.map(Ok));
    reply(Either::Left(StreamBody::new(Box::pin(frames))), None)
}

fn reply(body: Body, status: Option<HeaderMap>) -> Reply<Body> {
    let mut reply = Reply::new(body);
    reply.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    reply.headers_mut().extend(status.unwrap_or_default());
    reply
}

fn status(code: u8) -> HeaderMap {
    HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from(u16::from(code)))])
}

async fn read(mut body: Incoming, variant: Variant, worlds: Worlds, out: UnboundedSender<Out>) {
    let mut buffer = BytesMut::new();
    let mut joined: Option<(World, usize)> = None;
    while let Some(Ok(frame)) = body.frame().await {
        buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(message) = next_message(&mut buffer) {
            let Some(request) = decode(message, variant) else {
                let _ = out.send(Out::End(INVALID_ARGUMENT)); // the relay may have disconnected
                return;
            };
            let (world, stream) = joined.get_or_insert_with(|| {
                let world = world_of(&worlds, &cluster_of(&request));
                let stream = world.join(variant, out.clone());
                (world, stream)
            });
            world.take(*stream, request);
        }
    }
}

fn next_message(buffer: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(buffer.get(1..5)?.try_into().ok()?) as usize;
    (buffer.len() >= 5 + length).then(|| buffer.split_to(5 + length).freeze().slice(5..))
}

fn decode(message: Bytes, variant: Variant) -> Option<Request> {
    match variant {
        Variant::Sotw => DiscoveryRequest::decode(message).map(Request::Sotw).ok(),
        Variant::Delta => DeltaDiscoveryRequest::decode(message).map(Request::Delta).ok(),
    }
}

fn cluster_of(first: &Request) -> String {
    first.node().and_then(|node| Node::decode(node.clone()).ok()).unwrap_or_default().cluster
}

async fn framed(out: Out) -> Option<Frame<Bytes>> {
    let message = match out {
        Out::Pause(time) => {
            tokio::time::sleep(time).await;
            return None;
        }
        Out::End(code) => return Some(Frame::trailers(status(code))),
        Out::Response(response) => match *response {
            Response::Sotw(response) => response.encode_to_vec(),
            Response::Delta(response) => response.encode_to_vec(),
        },
    };
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(message.len() as u32);
    frame.extend_from_slice(&message);
    Some(Frame::data(frame.freeze()))
}

const SOTW_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const DELTA_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
const INVALID_ARGUMENT: u8 = 3;
const UNIMPLEMENTED: u8 = 12;
