//! What a control plane does with a call: it passes streams to the test, and answers other calls as its habits say.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Request as Call, Response as Reply};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use prost::Message;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::proto::node::Node;
use weir_core::protocol::session::Variant;
use weir_core::protocol::set_mark::RELAY_HEADER;
use weir_core::xds::LOADS_PATH;

use super::control::{Control, Origin};
use super::habits::{Answers, Habits};
use super::stream::{Stream, end, frame};
use crate::load_plane::{self, LoadStream};

/// All calls that were received, in order.
pub type Calls = Arc<Mutex<Vec<SeenCall>>>;

/// A call of any method.
#[derive(Debug, Clone)]
pub struct SeenCall {
    pub path: String,
    pub headers: HeaderMap,
    /// The node cluster in its first request.
    pub cluster: Option<String>,
    /// Why the control plane ended the stream, if a request was too long.
    pub refused: Option<String>,
}

/// What all calls of a control plane share.
pub(super) struct Desk {
    pub habits: Habits,
    pub control: Control,
    pub streams: mpsc::UnboundedSender<Stream>,
    pub loads: mpsc::UnboundedSender<LoadStream>,
    pub calls: Calls,
    pub answers: Mutex<Answers>,
    /// The number of calls that wait for an answer and may have one.
    pub released: Semaphore,
    /// The calls that are not served, with their connections.
    pub unserved: Mutex<Vec<(String, usize)>>,
    pub empty_streams: AtomicUsize,
    /// When the server itself last sent something, as far as calls show.
    pub last_word: Mutex<Instant>,
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";
const UNAUTHENTICATED: u16 = 16;
const OUT_OF_RANGE: u8 = 11;

pub(super) async fn reply(call: Call<Incoming>, origin: Origin, desk: Arc<Desk>) -> Reply<Body> {
    let at = note(&desk.calls, &call);
    let grpc = || Reply::builder().header("content-type", "application/grpc");
    if desk.habits.judge.is_some_and(|takes| !takes(call.headers())) {
        return grpc().header("grpc-status", UNAUTHENTICATED).body(empty()).unwrap();
    }
    let variant = match call.uri().path().rsplit('/').next() {
        Some("StreamAggregatedResources") => Some(Variant::Sotw),
        Some("DeltaAggregatedResources") => Some(Variant::Delta),
        _ => None,
    };
    let variant = variant.filter(|variant| desk.habits.variants.contains(variant));
    let is_of_loads = call.uri().path() == LOADS_PATH;
    if variant.is_none() && !is_of_loads {
        return answer(call, origin, &desk).await;
    }
    let answers = *desk.answers.lock().unwrap();
    if let (true, Some(status)) = (call.body().is_end_stream(), answers.to_empty_stream()) {
        desk.empty_streams.fetch_add(1, Ordering::Relaxed);
        let Some(status) = status else { return pending().await };
        *desk.last_word.lock().unwrap() = Instant::now();
        return grpc().header("grpc-status", status).body(empty()).unwrap();
    }
    let Some(variant) = variant else {
        return named(load_plane::open(call, origin.number, &desk.loads), &desk.habits).map(BodyExt::boxed_unsync);
    };
    let (responses, mut out) = mpsc::unbounded_channel();
    let (seen, requests) = mpsc::unbounded_channel();
    let (head, body) = call.into_parts();
    // The test may end the stream by dropping its sender.
    let refusing = responses.downgrade();
    let Origin { from, number } = origin;
    let unread = if desk.habits.reads {
        let reading = Reading { variant, max: desk.habits.max_request, calls: desk.calls.clone(), at };
        tokio::spawn(reading.read(body, seen, refusing));
        None
    } else {
        Some((body, seen))
    };
    let (headers, connection) = (head.headers, number);
    desk.streams.send(Stream { variant, requests, responses, headers, from, connection, unread }).ok();
    let first = if desk.habits.late_headers { out.recv().await } else { None };
    let out = tokio_stream::iter(first).chain(UnboundedReceiverStream::new(out));
    let out = out.map(|bytes| Ok::<_, Infallible>(frame(bytes)));
    named(grpc().body(StreamBody::new(out).boxed_unsync()).unwrap(), &desk.habits)
}

/// Answers a call that is not served.
async fn answer(call: Call<Incoming>, origin: Origin, desk: &Desk) -> Reply<Body> {
    let answers = *desk.answers.lock().unwrap(); // before the test can see the call, and change them
    desk.unserved.lock().unwrap().push((call.uri().path().to_owned(), origin.number));
    let grpc = Reply::builder().header("content-type", "application/grpc");
    let reply = match answers {
        Answers::Status(status) | Answers::Refused(status, _) => grpc.header("grpc-status", status),
        Answers::NoRoute(status, _) => grpc.header("server", "gateway").header("grpc-status", status),
        Answers::NoRouteInWords(status, _) => {
            grpc.header("server", "gateway").header("grpc-status", status).header("grpc-message", "unimplemented")
        }
        Answers::Http(status) => Reply::builder().status(status),
        Answers::Health(serving) if call.uri().path() == HEALTH_CHECK => {
            let message = Bytes::from(vec![0, 0, 0, 0, 2, 8, serving]);
            let trailers =
                HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
            let frames = [Ok::<_, Infallible>(Frame::data(message)), Ok(Frame::trailers(trailers))];
            return grpc.body(StreamBody::new(tokio_stream::iter(frames)).boxed_unsync()).unwrap();
        }
        Answers::Health(_) => grpc.header("grpc-status", 12),
        Answers::Held => {
            desk.released.acquire().await.unwrap().forget();
            grpc.header("grpc-status", 12)
        }
    };
    reply.body(empty()).unwrap()
}

fn empty() -> Body {
    Empty::new().boxed_unsync()
}

/// Adds the headers that state the encoding of a response, and identify a relay.
fn named<B>(mut reply: Reply<B>, habits: &Habits) -> Reply<B> {
    if let Some(encoding) = habits.encoding {
        reply.headers_mut().insert("grpc-encoding", HeaderValue::from_static(encoding));
    }
    if habits.is_relay {
        reply.headers_mut().insert(RELAY_HEADER, HeaderValue::from_static("1"));
    }
    reply
}

/// Records a call, and returns its index.
fn note(calls: &Calls, call: &Call<Incoming>) -> usize {
    let mut calls = calls.lock().unwrap();
    let (path, headers) = (call.uri().path().to_owned(), call.headers().clone());
    calls.push(SeenCall { path, headers, cluster: None, refused: None });
    calls.len() - 1
}

/// Reads the requests of one stream.
struct Reading {
    variant: Variant,
    /// The maximum of bytes in a request.
    max: Option<usize>,
    calls: Calls,
    /// The index of the call.
    at: usize,
}

impl Reading {
    async fn read(
        self,
        mut body: Incoming,
        seen: mpsc::UnboundedSender<Request>,
        refusing: mpsc::WeakUnboundedSender<Bytes>,
    ) {
        let mut buffer = BytesMut::new();
        while let Some(Ok(frame)) = body.frame().await {
            buffer.extend_from_slice(&frame.into_data().unwrap_or_default());
            while buffer.len() >= 5 {
                let length = u32::from_be_bytes(buffer[1..5].try_into().unwrap()) as usize;
                if let Some(max) = self.max.filter(|max| length > *max) {
                    let reason =
                        format!("decoded message length too large: found {length} bytes, the limit is: {max} bytes");
                    self.calls.lock().unwrap()[self.at].refused = Some(reason.clone());
                    refusing.upgrade().into_iter().for_each(|out| drop(out.send(end(OUT_OF_RANGE, &reason))));
                    return;
                }
                if buffer.len() < 5 + length {
                    break;
                }
                let message = buffer.split_to(5 + length).freeze().slice(5..);
                seen.send(self.request(message)).ok();
            }
        }
    }

    fn request(&self, message: Bytes) -> Request {
        let request = match self.variant {
            Variant::Sotw => Request::Sotw(DiscoveryRequest::decode(message).unwrap()),
            Variant::Delta => Request::Delta(DeltaDiscoveryRequest::decode(message).unwrap()),
        };
        if let Some(node) = request.node() {
            let cluster = Node::decode(&node[..]).unwrap_or_default().cluster;
            self.calls.lock().unwrap()[self.at].cluster.get_or_insert(cluster);
        }
        request
    }
}
