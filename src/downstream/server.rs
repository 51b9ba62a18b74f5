//! Accepts connections and routes requests.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use weir_core::xds::Peer;

use super::accept::{Accepted, accept};
use super::any_body::{AnyBody, refuse};
use super::arrival::Arrivals;
use super::buffered_body::{BufferedBody, UNTAKEN};
use super::client_stream::ClientStream;
use super::connection::{self, ConnectionTimeouts};
use super::connections::{ConnectionPlace, Connections, OpenStream};
use super::drain::Drain;
use super::health::Inquiry;
use super::incomplete::{Inbound, IncompleteRequests};
use super::judged_clients::JudgedClients;
use super::listener::Listener;
use super::polls;
use super::refusal::Refusal;
use super::service::{Options, Service};
use super::shards::{ShardFigures, Shards};
use super::stream::LINGER;
use crate::open_files;
use crate::relay::Newest;
use crate::tls::ListenerTls;

/// The listeners' side: what all connections share, whichever configuration serves their requests.
#[derive(Clone)]
pub(crate) struct Downstream {
    /// Serves new requests.
    service: Arc<Newest<Service>>,
    connections: Arc<Connections>,
    arrivals: Arc<Arrivals>,
    incomplete: Arc<IncompleteRequests>,
    drain: Drain,
    /// Where connections live, if not on the shared runtime.
    shards: Option<Arc<Shards>>,
}

impl Downstream {
    /// Starts the shards. `Err`: they could not be started.
    pub(crate) fn new(
        service: Arc<Newest<Service>>,
        connections: Arc<Connections>,
        options: &Options,
        drain: Drain,
    ) -> io::Result<Self> {
        let limits = service.get().views().counters().limits.clone();
        let Options { incomplete_request_bytes, request_bytes_per_second, handshakes, shards, .. } = *options;
        let arrivals = Arrivals::new(service.clone(), connections.clone(), handshakes, drain.clone());
        Ok(Self {
            service,
            connections,
            arrivals: Arc::new(arrivals),
            incomplete: IncompleteRequests::new(incomplete_request_bytes, request_bytes_per_second, limits),
            drain,
            shards: match shards {
                Some(count) => Shards::start(count)?,
                None => Shards::start_default(open_files::limit())?,
            },
        })
    }

    /// Accepts connections until the relay drains, and returns when the last one is closed. Dropping the future closes the listener and
    /// every connection.
    pub(crate) async fn serve(self, listener: Listener) {
        let tls = listener.tls().cloned();
        let accepting = async {
            let (connections, drain) = (&self.connections, self.drain.clone());
            match &self.shards {
                None => accept(listener, connections, drain, |new| self.clone().connection(new, tls.clone())).await,
                Some(shards) => {
                    let serve = |new| self.clone().connection_of_shard(new, tls.clone(), shards.clone());
                    accept(listener, connections, drain, serve).await;
                }
            }
        };
        let following = async {
            match &tls {
                Some(tls) => tls.clone().follow(|| self.judged_clients().judge_again()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = accepting => {}
            () = following => {}
        }
    }

    /// Puts other limits of connections and handshakes in force.
    pub(crate) fn set_limits(&self, options: &Options) {
        self.connections.set_limits(options.connections.clone());
        self.arrivals.set_handshakes(options.handshakes);
    }

    /// Returns what is known of the shards, if there are any.
    pub(crate) fn shards(&self) -> Vec<ShardFigures> {
        self.shards.iter().flat_map(|shards| shards.figures()).collect()
    }

    /// Returns on how many threads connections live; 0: on those of all else.
    pub(crate) fn shard_count(&self) -> usize {
        self.shards.as_ref().map_or(0, |shards| shards.count())
    }

    /// Ends the shards after all connections. One that hangs is not waited for any longer.
    pub(crate) async fn end_shards(&self, patience: Duration) {
        if let Some(shards) = &self.shards {
            shards.end(patience).await;
        }
    }

    /// Ends the thread of load reports, after all of them.
    pub(crate) async fn end_loads(&self, patience: Duration) {
        if let Some(shards) = &self.shards {
            shards.end_loads(patience).await;
        }
    }

    /// Returns a function that returns the bytes of all incomplete requests.
    pub(crate) fn incomplete(&self) -> impl Fn() -> usize + Send + use<> {
        let incomplete = self.incomplete.clone();
        move || incomplete.bytes()
    }

    /// Returns the clients that were judged.
    pub(crate) fn judged_clients(&self) -> Arc<JudgedClients> {
        self.arrivals.judged_clients().clone()
    }

    async fn connection(self, accepted: Accepted, tls: Option<Arc<ListenerTls>>) {
        // Boxed, since the task would keep room for a handshake as long as the connection lives.
        let Some((stream, peer, place)) = Box::pin(self.arrivals.arrive(accepted, tls)).await else { return };
        self.requests(stream, peer, place).await;
    }

    /// A connection that moves to a shard when its client is known.
    async fn connection_of_shard(self, accepted: Accepted, tls: Option<Arc<ListenerTls>>, shards: Arc<Shards>) {
        let Some((mut stream, peer, place)) = Box::pin(self.arrivals.arrive(accepted, tls)).await else { return };
        if let Err(error) = stream.leave_runtime() {
            return log_unmoved(&peer, &error);
        }
        let served = shards.serve(move |on_shard| async move {
            place.set_shard(on_shard);
            if let Err(error) = stream.enter_runtime() {
                return log_unmoved(&peer, &error);
            }
            self.requests(stream, peer, place).await;
        });
        served.await;
    }

    /// No `async fn`: its future would keep room for what it was called with, beside that of the connection.
    fn requests(
        self,
        stream: ClientStream,
        peer: Arc<Peer>,
        place: Arc<ConnectionPlace>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let drain = self.drain.clone();
        let inbound = self.incomplete.connection_with(place.sent_ahead().clone());
        let answering = place.clone();
        let of_call = peer.clone();
        let call = move |request, open: &OpenStream| {
            self.clone().respond(request, open, of_call.clone(), &answering, inbound.clone())
        };
        connection::serve(stream, peer, drain, ConnectionTimeouts::default(), place, call)
    }

    fn respond(
        self,
        request: Request<Incoming>,
        open: &OpenStream,
        peer: Arc<Peer>,
        place: &Arc<ConnectionPlace>,
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

    /// A gRPC call is answered at once. Its stream goes on in tasks of its own, which do not keep the request.
    fn answer(
        self,
        request: Request<Incoming>,
        is_beyond: bool,
        peer: Arc<Peer>,
        place: &ConnectionPlace,
        inbound: Arc<Inbound>,
    ) -> Answer {
        match self.refuse(&request, is_beyond, place) {
            Some(refusal) => Answer::Now(refused(request, refusal)),
            None if is_grpc(&request) => Answer::Now(self.call(request, peer, inbound, place)),
            None => Answer::Later(Box::pin(self.service.get().poll(request, peer, inbound, place.quota()))),
        }
    }

    /// Returns why a request is refused, if it is. A health check never is, since a full relay would then count as a broken one.
    fn refuse(&self, request: &Request<Incoming>, is_beyond: bool, place: &ConnectionPlace) -> Option<Refusal> {
        let judged = place.judged();
        let verdict = judged.as_ref().and_then(|client| client.verdict());
        let refusal = place.refuse().or_else(|| verdict.map(Refusal::judged)); // the first also ends the connection
        if is_health_check(request) {
            return None;
        }
        refusal
            .or_else(|| self.connections.refuse_headers(request))
            .or_else(|| is_beyond.then(|| self.connections.refuse_stream_of_identity()))
            .or_else(|| self.connections.refuse_stream().inspect(|_| place.send_elsewhere()))
            .or_else(|| place.refuse_stream())
    }

    fn call(
        &self,
        request: Request<Incoming>,
        peer: Arc<Peer>,
        inbound: Arc<Inbound>,
        place: &ConnectionPlace,
    ) -> Response<AnyBody> {
        let service = self.service.get();
        if let Some(inquiry) = Inquiry::of_path(request.uri().path()) {
            return match service.frames(request, &peer, inbound) {
                Ok(frames) => service.health(inquiry, frames, place, self.drain.clone()),
                Err(status) => refuse(&status),
            };
        }
        service.call(request, peer, inbound, place)
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

fn log_unmoved(peer: &Peer, error: &io::Error) {
    tracing::debug!(%peer, %error, "connection closed; its socket could not move to a shard");
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

/// Answers a request with the reason why it is refused. What the client still sends is read and dropped: otherwise the answer could be lost
/// with a connection that is reset.
fn refused(request: Request<Incoming>, refusal: Refusal) -> Response<AnyBody> {
    let grpc = is_grpc(&request);
    let mut body = request.into_body();
    polls::spawn(tokio::time::timeout(LINGER, async move { while let Some(Ok(_)) = body.frame().await {} }));
    match grpc {
        true => refuse(&refusal.grpc()),
        false => refusal.rest().map(|body| AnyBody::Whole(BufferedBody::new(body, UNTAKEN))),
    }
}
