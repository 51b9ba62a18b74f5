//! Accepts connections and routes requests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};

use super::accept::accept;
use super::any_body::{AnyBody, grpc_response, refuse};
use super::body::{SessionBody, Shared};
use super::buffered_body::BufferedBody;
use super::client_status::{StatusCall, StatusMethod};
use super::connections::{ConnectionLimits, Connections, OpenStream, Place};
use super::drain::Drain;
use super::encode::SharedMessages;
use super::frames::Frames;
use super::handshakes::{HandshakeLimits, Handshakes};
use super::health::{Health, Inquiry};
use super::incomplete::{Inbound, IncompleteRequests};
use super::judged_clients::{self, JudgedClient, JudgedClients};
use super::listener::Listener;
use super::loads::{self, LoadsCall};
use super::pace::Pace;
use super::refusal::Refusal;
use super::request_limits::RequestLimits;
use super::rest::{Poll as RestPoll, Rest};
use super::slot::{Slot, Status};
use super::stream::{Call, LINGER, read};
use super::turns::Turns;
use super::unfinished_replies::UnfinishedReplies;
use crate::client_status::ClientStatus;
use crate::relay::{Loads, LogPace, ViewQuota, Views};
use crate::xds::{LOADS_PATH, LOADS_PATH_V2, Method, Peer, Shape};

#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The longest request that is read.
    pub(crate) message_bytes: usize,
    /// The limit for incomplete requests of all clients.
    pub(crate) incomplete_request_bytes: usize,
    /// The limit for outdated resources in unfinished replies of all clients.
    pub(crate) outdated_reply_bytes: usize,
    /// How fast the rest of a request has to arrive.
    pub(crate) request_bytes_per_second: usize,
    pub(crate) request_limits: RequestLimits,
    /// The rate of new names on one stream; 0: no limit.
    pub(crate) new_names_per_second: usize,
    /// The `control_plane` identifier in replies.
    pub(crate) control_plane: String,
    /// Whether the legacy transport is served (TRN-8).
    pub(crate) v2: bool,
    pub(crate) connections: ConnectionLimits,
    pub(crate) handshakes: HandshakeLimits,
}

#[derive(Clone)]
pub(crate) struct Downstream {
    pub(super) views: Arc<Views>,
    pub(super) loads: Arc<Loads>,
    pub(super) connections: Arc<Connections>,
    pub(super) handshakes: Arc<Handshakes>,
    pub(super) judged: Arc<JudgedClients>,
    pub(super) incomplete: Arc<IncompleteRequests>,
    pub(super) request_limits: RequestLimits,
    pub(super) new_names_per_second: usize,
    pub(super) message_bytes: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) v2: bool,
    pub(super) drain: Drain,
    pub(super) rest: Option<Arc<Rest>>,
    client_status: Arc<ClientStatus>,
    pub(super) proxy_faults: Arc<LogPace>,
}

impl Downstream {
    pub(crate) fn new(
        views: Arc<Views>,
        loads: Arc<Loads>,
        connections: Arc<Connections>,
        client_status: Arc<ClientStatus>,
        options: Options,
        drain: Drain,
    ) -> Self {
        let Options {
            message_bytes,
            incomplete_request_bytes,
            outdated_reply_bytes,
            request_bytes_per_second,
            request_limits,
            new_names_per_second,
            control_plane,
            v2,
            connections: _,
            handshakes,
        } = options;
        let limits = views.counters().limits.clone();
        let turns = Turns::new(views.counters().waiting_replies.clone());
        Self {
            views,
            loads,
            connections,
            handshakes: Arc::new(Handshakes::new(handshakes, limits.clone())),
            judged: Arc::default(),
            incomplete: IncompleteRequests::new(incomplete_request_bytes, request_bytes_per_second, limits.clone()),
            request_limits,
            new_names_per_second,
            message_bytes,
            shared: Arc::new(Shared {
                messages: SharedMessages::new(&control_plane),
                turns,
                unfinished: UnfinishedReplies::new(outdated_reply_bytes, limits),
            }),
            v2,
            drain,
            rest: None,
            client_status,
            proxy_faults: Arc::new(LogPace::once_a_minute()),
        }
    }

    /// Adds REST.
    pub(crate) fn with_rest(self, rest: Option<Arc<Rest>>) -> Self {
        Self { rest, ..self }
    }

    /// Accepts connections until the relay drains, and returns when the last one is closed. Dropping the future closes the listener and
    /// every connection.
    pub(crate) async fn serve(self, listener: Listener) {
        let tls = listener.tls().cloned();
        let serve = |accepted| self.clone().connection(accepted, tls.clone());
        let following = async {
            match &tls {
                Some(tls) => tls.clone().follow(|| self.judged.judge_again()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = accept(listener, &self.connections, self.drain.clone(), serve) => {}
            () = following => {}
        }
    }

    /// Returns the clients that were judged.
    pub(crate) fn judged_clients(&self) -> Arc<JudgedClients> {
        self.judged.clone()
    }

    pub(super) fn respond(
        self,
        request: Request<Incoming>,
        open: &OpenStream,
        peer: Arc<Peer>,
        place: &Arc<Place>,
        inbound: Arc<Inbound>,
    ) -> impl Future<Output = Response<AnyBody>> + Send + use<> {
        if is_health_check(&request) {
            place.decide_now();
        }
        let is_beyond = open.is_beyond_identity();
        let response = match place.is_decided() {
            true => self.answer(request, is_beyond, peer, place, inbound),
            false => Answer::Later(Box::pin({
                let place = place.clone();
                async move {
                    place.decide().await;
                    self.answer(request, is_beyond, peer, &place, inbound).get().await
                }
            })),
        };
        response.get()
    }

    /// A gRPC call is answered at once, and its stream goes on in tasks of its own: they keep no room for the request.
    fn answer(
        self,
        request: Request<Incoming>,
        is_beyond: bool,
        peer: Arc<Peer>,
        place: &Place,
        inbound: Arc<Inbound>,
    ) -> Answer {
        match self.refuse(&request, is_beyond, place) {
            Some(refusal) => Answer::Now(refused(request, refusal)),
            None if is_grpc(&request) => Answer::Now(self.call(request, peer, inbound, place)),
            None => Answer::Later(Box::pin(self.poll(request, peer, inbound, place.quota()))),
        }
    }

    /// Returns the limit that a request is beyond. A health check is answered all the same, or a full relay would count as a broken one.
    fn refuse(&self, request: &Request<Incoming>, is_beyond: bool, place: &Place) -> Option<Refusal> {
        let judged = place.judged();
        let verdict = judged.as_ref().and_then(|client| client.verdict());
        let refusal = place.refuse().or_else(|| verdict.map(Refusal::judged)); // the first also ends the connection
        if is_health_check(request) {
            return None;
        }
        refusal
            .or_else(|| self.connections.refuse_headers(request))
            .or_else(|| is_beyond.then(|| self.connections.refuse_stream_of_identity()))
            .or_else(|| self.connections.refuse_stream())
    }

    async fn poll(
        self,
        request: Request<Incoming>,
        peer: Arc<Peer>,
        inbound: Arc<Inbound>,
        quota: Arc<ViewQuota>,
    ) -> Response<AnyBody> {
        let Some(rest) = self.rest else {
            let mut response = Response::new(AnyBody::Empty);
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let Self { views, drain, message_bytes, v2, .. } = self;
        let poll = RestPoll { views, inbound, drain, peer, quota, message_bytes, v2 };
        rest.answer(request, poll).await.map(|body| AnyBody::Whole(BufferedBody::new(body, UNTAKEN)))
    }

    fn call(
        &self,
        request: Request<Incoming>,
        peer: Arc<Peer>,
        inbound: Arc<Inbound>,
        place: &Place,
    ) -> Response<AnyBody> {
        let path = request.uri().path().to_owned();
        let frames = Frames::new(request.into_body(), self.message_bytes, inbound);
        if let Some(inquiry) = Inquiry::of_path(&path) {
            return self.health(inquiry, frames, place.judged());
        }
        let of_loads = path == LOADS_PATH || path == LOADS_PATH_V2 && self.v2;
        if of_loads && self.loads.are_served() {
            return self.loads(frames, peer, place.judged());
        }
        if let Some(method) = StatusMethod::of_path(&path).filter(|_| self.views.are_judged()) {
            return self.client_status(method, frames, peer, place.judged());
        }
        let Some(method) = Method::of_path(&path).filter(|method| self.v2 || !method.v2) else {
            tracing::debug!(%peer, path, "method not served");
            return refuse(&Status::unimplemented(path));
        };
        let slot = Arc::new(Slot::default());
        let (views, drain, limits) = (self.views.clone(), self.drain.clone(), self.request_limits);
        let pace = Pace::per_second(self.connections.limits().requests_per_second);
        let names_pace =
            Pace::with_burst(self.new_names_per_second, self.new_names_per_second.saturating_mul(NAMES_AT_ONCE));
        let (quota, judged) = (place.quota(), place.judged());
        let call = Call { method, views, drain, limits, peer, quota, judged, pace, names_pace };
        tokio::spawn(read(frames, slot.clone(), call));
        let single = method.shape == Shape::Fetch;
        grpc_response(AnyBody::Session(Box::new(SessionBody::new(slot, self.shared.clone(), single))))
    }

    fn health(&self, inquiry: Inquiry, frames: Frames, judged: Option<Arc<JudgedClient>>) -> Response<AnyBody> {
        let (out, messages) = mpsc::channel(2);
        let (readiness, drain) = (self.views.readiness().clone(), self.drain.clone());
        let health = Health { readiness, drain, v2: self.v2 };
        answered_apart(messages, judged, health.answer(inquiry, frames, out))
    }

    fn client_status(
        &self,
        method: StatusMethod,
        frames: Frames,
        peer: Arc<Peer>,
        judged: Option<Arc<JudgedClient>>,
    ) -> Response<AnyBody> {
        let (out, messages) = mpsc::channel(1);
        let (status, permissions) = (self.client_status.clone(), self.views.permissions().clone());
        let call = StatusCall { status, permissions, peer, drain: self.drain.clone() };
        answered_apart(messages, judged, call.answer(method, frames, out))
    }

    fn loads(&self, mut frames: Frames, peer: Arc<Peer>, judged: Option<Arc<JudgedClient>>) -> Response<AnyBody> {
        let (answers, messages) = mpsc::channel(1);
        let (status, end) = oneshot::channel();
        let (limits, counters) = (self.request_limits, self.views.counters().limits.clone());
        let call = LoadsCall { loads: self.loads.clone(), limits, counters, drain: self.drain.clone(), peer };
        tokio::spawn(async move {
            let end = tokio::select! {
                end = loads::serve(&mut frames, call, answers) => end,
                end = judged_clients::ends(judged) => end,
            };
            let _ = status.send(end); // the client may have disconnected
            let _ = tokio::time::timeout(LINGER, frames.drain()).await;
        });
        grpc_response(AnyBody::Messages(messages, Some(end)))
    }
}

/// Responds with the messages and the status of a task, which ends when its client has to.
fn answered_apart(
    messages: mpsc::Receiver<Bytes>,
    judged: Option<Arc<JudgedClient>>,
    answer: impl Future<Output = Status> + Send + 'static,
) -> Response<AnyBody> {
    let (status, end) = oneshot::channel();
    tokio::spawn(async move {
        let end = tokio::select! {
            end = answer => end,
            end = judged_clients::ends(judged) => end,
        };
        let _ = status.send(end); // the client may have disconnected
    });
    grpc_response(AnyBody::Messages(messages, Some(end)))
}

/// The response to a request.
enum Answer {
    Now(Response<AnyBody>),
    Later(Pin<Box<dyn Future<Output = Response<AnyBody>> + Send>>),
}

impl Answer {
    async fn get(self) -> Response<AnyBody> {
        match self {
            Self::Now(response) => response,
            Self::Later(response) => response.await,
        }
    }
}

fn is_health_check(request: &Request<Incoming>) -> bool {
    Inquiry::of_path(request.uri().path()) == Some(Inquiry::Check)
}

/// REST paths begin with a version. Every other HTTP/2 request is gRPC, unless it has another content type.
fn is_grpc(request: &Request<Incoming>) -> bool {
    let rest = ["/v3/", "/v2/"].into_iter().any(|version| request.uri().path().starts_with(version));
    let json = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/json");
    request.version() == Version::HTTP_2 && !rest && !request.headers().get(CONTENT_TYPE).is_some_and(json)
}

/// Answers a request with the limit that it is beyond. What the client still sends is read and dropped: otherwise the answer could be lost
/// with a connection that is reset.
fn refused(request: Request<Incoming>, refusal: Refusal) -> Response<AnyBody> {
    let grpc = is_grpc(&request);
    let mut body = request.into_body();
    tokio::spawn(tokio::time::timeout(LINGER, async move { while let Some(Ok(_)) = body.frame().await {} }));
    match grpc {
        true => refuse(&refusal.grpc()),
        false => refusal.rest().map(|body| AnyBody::Whole(BufferedBody::new(body, UNTAKEN))),
    }
}

/// A stream may begin with the names of so many seconds: by default with the clusters and the endpoints of 100,000 clusters.
const NAMES_AT_ONCE: usize = 40;
/// How long a client may read nothing of a poll's response.
const UNTAKEN: Duration = Duration::from_secs(60);
