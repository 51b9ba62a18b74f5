//! Accepts connections and routes requests.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, StatusCode, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};

use super::accept::{Accepted, accept};
use super::body::{Piece, ReadStalled, SessionBody, Shared, trailers};
use super::buffered_body::BufferedBody;
use super::client_address::{AddressError, AddressSource};
use super::client_stream::ClientStream;
use super::connection::{self, ConnectionTimeouts};
use super::connections::{ConnectionLimits, Connections, Place};
use super::drain::Drain;
use super::encode::SharedMessages;
use super::frames::{Frames, framed};
use super::handshake::{VerifiedClient, secure};
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
use super::socket::Socket;
use super::stream::{Call, LINGER, read};
use super::turns::Turns;
use super::unfinished_replies::UnfinishedReplies;
use crate::relay::{Loads, LogPace, ViewQuota, Views};
use crate::tls::ListenerTls;
use crate::xds::{LOADS_PATH, LOADS_PATH_V2, Method, Peer, Proven, Shape};

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
    views: Arc<Views>,
    loads: Arc<Loads>,
    connections: Arc<Connections>,
    handshakes: Arc<Handshakes>,
    judged: Arc<JudgedClients>,
    incomplete: Arc<IncompleteRequests>,
    request_limits: RequestLimits,
    new_names_per_second: usize,
    message_bytes: usize,
    shared: Arc<Shared>,
    v2: bool,
    drain: Drain,
    rest: Option<Arc<Rest>>,
    proxy_faults: Arc<LogPace>,
}

impl Downstream {
    pub(crate) fn new(
        views: Arc<Views>,
        loads: Arc<Loads>,
        connections: Arc<Connections>,
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

    async fn connection(self, accepted: Accepted, tls: Option<Arc<ListenerTls>>) {
        let Accepted { mut socket, address, spare, options } = accepted;
        socket.prepare();
        let (source, patience) = (AddressSource::of(&options, address), ConnectionTimeouts::default());
        let Some(place) = self.connections.admit(source.known(), spare) else { return log_crowded(address) };
        let mut peer = Peer { connection: place.number(), address, proven: socket.process() };
        if !connection::has_spoken(&socket, &peer, patience, &place).await {
            return;
        }
        peer.address = match self.find_address(source, &mut socket, &place, patience.first_word).await {
            Some(address) => address,
            None => return,
        };
        let stream = match tls {
            None => ClientStream::Plain(socket),
            Some(tls) => match self.secure(socket, &tls, &mut peer, &place).await {
                Some(stream) => stream,
                None => return,
            },
        };
        let peer = Arc::new(peer);
        let drain = self.drain.clone();
        let inbound = self.incomplete.connection();
        let answering = place.clone();
        let of_call = peer.clone();
        let call = move |request| self.clone().respond(request, of_call.clone(), &answering, inbound.clone());
        connection::serve(stream, &peer, drain, patience, place, call).await;
    }

    /// Finds out whose connection it is. Returns `None` if it must be closed.
    async fn find_address(
        &self,
        source: AddressSource,
        socket: &mut Socket,
        place: &Place,
        limit: Duration,
    ) -> Option<Option<SocketAddr>> {
        let mut drain = self.drain.clone();
        let found = tokio::select! {
            biased;
            found = source.find(socket, limit) => found,
            end = place.ends(&mut drain) => Err(AddressError::Ended(end)),
        };
        let address = found.map_err(|error| self.log_unknown(source, &error)).ok()?;
        if source.known() != address && !place.count_address(address) {
            log_crowded(address);
            return None;
        }
        Some(address)
    }

    /// Reports that it is not known whose connection it is.
    fn log_unknown(&self, source: AddressSource, error: &AddressError) {
        let peer = source.peer().map(tracing::field::display);
        let Some(fault) = error.fault() else { return tracing::debug!(peer, %error, "connection closed") };
        self.views.counters().proxy_faults.found(fault);
        if let Some(unlogged) = self.proxy_faults.line(Instant::now()) {
            tracing::warn!(peer, %error, unlogged, "connection closed: PROXY header expected from balancers alone");
        }
    }

    /// Does the TLS handshake. What the client proves by its certificate is its peer's.
    async fn secure(
        &self,
        socket: Socket,
        tls: &Arc<ListenerTls>,
        peer: &mut Peer,
        place: &Place,
    ) -> Option<ClientStream> {
        let mut drain = self.drain.clone();
        let secured = tokio::select! {
            secured = secure(socket, peer.ip(), tls, &self.handshakes) => secured,
            end = place.ends(&mut drain) => {
                tracing::debug!(%peer, ?end, "connection closed within the TLS handshake");
                return None;
            }
        };
        let secured = secured.map_err(|failure| tls.failed(peer, &failure)).ok()?;
        if let Some(VerifiedClient { names, chain }) = secured.client {
            peer.proven = Some(Proven::Certificate(names));
            let judge = move || chain.judge().map_err(|rejection| Status::unauthenticated(rejection.to_string()));
            place.set_judged(self.judged.enter(Box::new(judge)));
        }
        Some(ClientStream::Tls(Box::new(secured.stream)))
    }

    fn respond(
        self,
        request: Request<Incoming>,
        peer: Arc<Peer>,
        place: &Arc<Place>,
        inbound: Arc<Inbound>,
    ) -> impl Future<Output = Response<AnyBody>> + Send + use<> {
        if is_health_check(&request) {
            place.decide_now();
        }
        let response = match place.is_decided() {
            true => self.answer(request, peer, place, inbound),
            false => Answer::Later(Box::pin({
                let place = place.clone();
                async move {
                    place.decide().await;
                    self.answer(request, peer, &place, inbound).get().await
                }
            })),
        };
        response.get()
    }

    /// A gRPC call is answered at once, and its stream goes on in tasks of its own: they keep no room for the request.
    fn answer(self, request: Request<Incoming>, peer: Arc<Peer>, place: &Place, inbound: Arc<Inbound>) -> Answer {
        match self.refuse(&request, place) {
            Some(refusal) => Answer::Now(refused(request, refusal)),
            None if is_grpc(&request) => Answer::Now(self.call(request, peer, inbound, place)),
            None => Answer::Later(Box::pin(self.poll(request, peer, inbound, place.quota()))),
        }
    }

    /// Returns the limit that a request is beyond. A health check is answered all the same, or a full relay would count as a broken one.
    fn refuse(&self, request: &Request<Incoming>, place: &Place) -> Option<Refusal> {
        let judged = place.judged();
        let verdict = judged.as_ref().and_then(|client| client.verdict());
        let refusal = place.refuse().or_else(|| verdict.map(Refusal::judged)); // the first also ends the connection
        if is_health_check(request) {
            return None;
        }
        refusal.or_else(|| self.connections.refuse_headers(request)).or_else(|| self.connections.refuse_stream())
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
        let (status, end) = oneshot::channel();
        let (readiness, drain) = (self.views.readiness().clone(), self.drain.clone());
        let health = Health { readiness, drain, v2: self.v2 };
        tokio::spawn(async move {
            let end = tokio::select! {
                end = health.answer(inquiry, frames, out) => end,
                end = judged_clients::ends(judged) => end,
            };
            let _ = status.send(end); // the client may have disconnected
        });
        grpc_response(AnyBody::Messages(messages, Some(end)))
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

fn log_crowded(address: Option<SocketAddr>) {
    let peer = address.map(tracing::field::display);
    tracing::debug!(peer, "too many connections from one address; closing it");
}

/// The kinds of response bodies.
enum AnyBody {
    Session(Box<SessionBody>),
    /// Messages of another task, and the final status.
    Messages(mpsc::Receiver<Bytes>, Option<oneshot::Receiver<Status>>),
    Whole(BufferedBody),
    Empty,
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

impl Body for AnyBody {
    type Data = Piece;
    type Error = ReadStalled;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, ReadStalled>>> {
        match &mut *self {
            Self::Session(body) => Pin::new(body.as_mut()).poll_frame(cx),
            Self::Messages(messages, end) => {
                if let Some(message) = ready!(messages.poll_recv(cx)) {
                    return Poll::Ready(Some(Ok(Frame::data(framed(&message).into()))));
                }
                let Some(waiting) = end else { return Poll::Ready(None) };
                let status = ready!(Pin::new(waiting).poll(cx))
                    .unwrap_or_else(|_| Status::unavailable("the relay is shutting down"));
                *end = None;
                Poll::Ready(Some(Ok(Frame::trailers(trailers(&status)))))
            }
            Self::Whole(body) => Pin::new(body).poll_frame(cx),
            Self::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            other => matches!(other, Self::Empty),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            _ => SizeHint::default(),
        }
    }
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

/// A stream may begin with the names of so many seconds: by default with the clusters and the endpoints of 100,000 clusters.
const NAMES_AT_ONCE: usize = 40;
/// How long a client may read nothing of a poll's response.
const UNTAKEN: Duration = Duration::from_secs(60);
