//! Serves requests by one configuration: polls, discovery streams, load reports, health checks and client status.

use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::ACCEPT_ENCODING;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use weir_core::protocol::set_mark::RELAY_HEADER;
use weir_core::xds::{LOADS_PATH, LOADS_PATH_V2, Method, Peer, Shape};

use super::any_body::{AnyBody, grpc_response, refuse};
use super::apart::{EndConditions, answered_apart};
use super::body::{SessionBody, Shared};
use super::buffered_body::{BufferedBody, UNTAKEN};
use super::client_status::{StatusCall, StatusMethod};
use super::connections::{ConnectionLimits, ConnectionPlace};
use super::drain::Drain;
use super::encode::{CompressedForms, SharedMessages};
use super::frames::Frames;
use super::handshakes::HandshakeLimits;
use super::health::{Health, Inquiry};
use super::incomplete::Inbound;
use super::lifetime::AgeLimit;
use super::listed_names::ListedNames;
use super::loads::{self, LoadsCall};
use super::pace::Pace;
use super::polls;
use super::request_limits::RequestLimits;
use super::rest::{Poll as RestPoll, RestService};
use super::shards::OnShard;
use super::slot::{Slot, Status};
use super::stream::{Call, read};
use super::turns::Turns;
use super::unfinished_replies::UnfinishedReplies;
use crate::client_status::ClientStatus;
use crate::compression::{ACCEPTED, Compression, Encoding, GRPC_ACCEPT_ENCODING, GRPC_ENCODING, GZIP};
use crate::memory::GivesWay;
use crate::relay::{KeyHeaders, Loads, ViewQuota, Views};

#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The longest request that is read.
    pub(crate) message_bytes: usize,
    /// How long a stream may be without its first message; zero: for ever.
    pub(crate) first_message: Duration,
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
    /// What is compressed of replies.
    pub(crate) compression: Compression,
    pub(crate) connections: ConnectionLimits,
    pub(crate) handshakes: HandshakeLimits,
    pub(crate) age: AgeLimit,
    /// Threads on which connections live; 0: they live on the shared runtime. `None`: as [`default_shards`](super::default_shards) says.
    pub(crate) shards: Option<usize>,
}

/// What serves requests by one configuration.
pub(crate) struct Service {
    views: Arc<Views>,
    loads: Arc<Loads>,
    request_limits: RequestLimits,
    requests_per_second: usize,
    new_names_per_second: usize,
    message_bytes: usize,
    first_message: Duration,
    age_limit: AgeLimit,
    shared: Arc<Shared>,
    v2: bool,
    compression: Compression,
    /// Ends the streams of this configuration.
    drain: Drain,
    rest: Option<Arc<RestService>>,
    client_status: Arc<ClientStatus>,
}

impl Service {
    pub(crate) fn new(
        views: Arc<Views>,
        loads: Arc<Loads>,
        client_status: Arc<ClientStatus>,
        rest: Option<Arc<RestService>>,
        options: &Options,
        drain: Drain,
        earlier: Option<&Self>,
    ) -> Self {
        let shared = shared_by_bodies(&views, options, earlier.map(|earlier| &*earlier.shared));
        Self {
            views,
            loads,
            request_limits: options.request_limits,
            requests_per_second: options.connections.requests_per_second,
            new_names_per_second: options.new_names_per_second,
            message_bytes: options.message_bytes,
            first_message: options.first_message,
            age_limit: options.age,
            shared,
            v2: options.v2,
            compression: options.compression,
            drain,
            rest,
            client_status,
        }
    }

    /// Whether clients of both configurations are sent the same messages.
    #[cfg(test)]
    pub(crate) fn has_messages_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared.messages, &other.shared.messages)
    }

    pub(super) fn views(&self) -> &Arc<Views> {
        &self.views
    }

    /// Returns how old new connections may become.
    pub(super) fn age_limit(&self) -> AgeLimit {
        self.age_limit
    }

    pub(super) async fn poll(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Arc<Peer>,
        inbound: Arc<Inbound>,
        quota: Arc<ViewQuota>,
    ) -> Response<AnyBody> {
        let Some(rest) = self.rest.clone() else {
            let mut response = Response::new(AnyBody::Empty);
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let (views, drain, v2) = (self.views.clone(), self.drain.clone(), self.v2);
        let (message_bytes, limits) = (self.message_bytes, self.request_limits);
        let compression = self.compression_for(&request, &peer, ACCEPT_ENCODING.as_str());
        let headers = self.views.shared().take_headers(request.headers());
        let poll = RestPoll { views, inbound, drain, peer, headers, quota, message_bytes, limits, v2, compression };
        rest.answer(request, poll).await.map(|body| AnyBody::Whole(BufferedBody::new(body, UNTAKEN)))
    }

    pub(super) fn call(
        &self,
        request: Request<Incoming>,
        peer: Arc<Peer>,
        inbound: Arc<Inbound>,
        place: &ConnectionPlace,
    ) -> Response<AnyBody> {
        let path = request.uri().path().to_owned();
        let compression = self.compression_for(&request, &peer, GRPC_ACCEPT_ENCODING);
        let headers = match self.views.shared().take_headers(request.headers()) {
            Ok(headers) => headers,
            Err(unfit) => {
                let text = unfit.to_string();
                self.views.shared().client_log.request_rejected(&peer, &text);
                return refuse(&Status::invalid(text));
            }
        };
        let frames = match self.frames(request, &peer, inbound) {
            Ok(frames) => frames,
            Err(status) => return refuse(&status),
        };
        let of_loads = path == LOADS_PATH || path == LOADS_PATH_V2 && self.v2;
        if of_loads && self.loads.are_served() {
            return self.loads(frames, (peer, headers), place);
        }
        if let Some(method) = StatusMethod::of_path(&path).filter(|_| self.views.permissions().has_rules()) {
            return self.client_status(method, frames, peer, place);
        }
        let Some(method) = Method::of_path(&path).filter(|method| self.v2 || !method.v2) else {
            tracing::debug!(%peer, path, "method not served");
            return refuse(&Status::unimplemented(path));
        };
        let slot = Arc::new(Slot::default());
        let (views, drain, limits) = (self.views.clone(), self.drain.clone(), self.request_limits);
        let pace = Pace::per_second(self.requests_per_second);
        let names_pace =
            Pace::with_burst(self.new_names_per_second, self.new_names_per_second.saturating_mul(NAMES_AT_ONCE));
        let (quota, lifetime) = (place.quota(), place.lifetime());
        let gives_way: Weak<dyn GivesWay> = Arc::downgrade(&slot) as _;
        let entry = quota.account().map(|account| account.enter_stream(gives_way));
        let listed = ListedNames::default();
        let call = Call { method, views, drain, limits, peer, headers, quota, lifetime, pace, names_pace, listed };
        polls::spawn(read(frames, slot.clone(), call));
        let single = method.shape == Shape::Fetch;
        let compression = if single { Compression::Off } else { compression }; // its call ends before a form were there
        let body = SessionBody::new(slot, self.shared.clone(), single, compression).keeping(entry);
        let mut response = grpc_response(AnyBody::Session(Box::new(body)));
        if compression != Compression::Off {
            response.headers_mut().insert(GRPC_ENCODING, HeaderValue::from_static(GZIP)); // the flag of each message tells whether it is
        }
        response.headers_mut().insert(RELAY_HEADER, HeaderValue::from_static("1"));
        response
    }

    /// Returns what is compressed for a client. Nothing is for one on the same machine: it would cost both sides CPU and save nothing.
    fn compression_for(&self, request: &Request<Incoming>, peer: &Peer, accepted: &str) -> Compression {
        let is_far = peer.ip().is_some_and(|address| !address.is_loopback());
        match is_far && Encoding::is_gzip_accepted(request.headers(), accepted) {
            true => self.compression,
            false => Compression::Off,
        }
    }

    /// Returns the messages of a request, unless its client compresses them in a way that is not supported.
    pub(super) fn frames(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
        inbound: Arc<Inbound>,
    ) -> Result<Frames, Status> {
        let encoding = Encoding::of(request.headers(), GRPC_ENCODING);
        if let Encoding::Other(name) = &encoding {
            let text = format!("grpc-encoding {name:?} is not supported: expected one of {ACCEPTED}");
            self.views.shared().client_log.request_rejected(peer, &text);
            return Err(Status::unimplemented(text));
        }
        let frames = Frames::new(request.into_body(), self.message_bytes, inbound);
        Ok(frames.with_gzip(encoding == Encoding::Gzip).begun_within(self.first_message))
    }

    /// Takes the drain of the process: a watch goes on when another configuration replaces this one.
    pub(super) fn health(
        &self,
        inquiry: Inquiry,
        frames: Frames,
        place: &ConnectionPlace,
        drain: Drain,
    ) -> Response<AnyBody> {
        let (out, messages) = mpsc::channel(2);
        let held = EndConditions::by(place, inquiry == Inquiry::Check);
        let health = Health { readiness: self.views.readiness().clone(), drain, v2: self.v2 };
        answered_apart(None, messages, held, frames, move |frames| Box::pin(health.answer(inquiry, frames, out)))
    }

    fn client_status(
        &self,
        method: StatusMethod,
        frames: Frames,
        peer: Arc<Peer>,
        place: &ConnectionPlace,
    ) -> Response<AnyBody> {
        let (out, messages) = mpsc::channel(1);
        let held = EndConditions::by(place, method == StatusMethod::Fetch);
        let (status, permissions) = (self.client_status.clone(), self.views.permissions().clone());
        let call = StatusCall { status, permissions, peer, drain: self.drain.clone() };
        answered_apart(None, messages, held, frames, move |frames| Box::pin(call.answer(method, frames, out)))
    }

    fn loads(
        &self,
        frames: Frames,
        (peer, headers): (Arc<Peer>, KeyHeaders),
        place: &ConnectionPlace,
    ) -> Response<AnyBody> {
        // Reports that pass through wait for the server, which may read none.
        let frames = frames.inflating_to(LARGEST_INFLATED_REPORT);
        let (answers, messages) = mpsc::channel(1);
        let (limits, counters) = (self.request_limits, self.views.counters().limits.clone());
        let (loads, drain) = (self.loads.clone(), self.drain.clone());
        let (quota, held, pace) =
            (place.quota(), EndConditions::by(place, false), Pace::per_second(self.requests_per_second));
        let call = LoadsCall { loads, limits, counters, drain, peer, headers, quota, pace };
        let runtime = place.shard().map(OnShard::loads);
        answered_apart(runtime, messages, held, frames, move |frames| Box::pin(loads::serve(frames, call, answers)))
    }
}

/// Returns what all bodies share. A body that is not read keeps it for as long as its stream, so those of all configurations share the same.
fn shared_by_bodies(views: &Views, options: &Options, earlier: Option<&Shared>) -> Arc<Shared> {
    let Some(earlier) = earlier else {
        let counters = views.counters();
        return Arc::new(Shared {
            messages: SharedMessages::new(&options.control_plane),
            turns: Turns::new(counters.waiting_replies.clone()),
            unfinished: UnfinishedReplies::new(options.outdated_reply_bytes, counters.limits.clone()),
            forms: CompressedForms::new(views.memory().clone(), counters.compression.clone()),
        });
    };
    earlier.unfinished.set_limit(options.outdated_reply_bytes);
    let messages = match earlier.messages.are_of(&options.control_plane) {
        true => earlier.messages.clone(),
        false => SharedMessages::new(&options.control_plane),
    };
    Arc::new(Shared { messages, ..earlier.clone() })
}

/// A stream may begin with the names of so many seconds: by default with the clusters and the endpoints of 100,000 clusters.
const NAMES_AT_ONCE: usize = 40;
/// What a compressed report of loads may become. Plain ones are as long as other requests.
const LARGEST_INFLATED_REPORT: usize = 1 << 20;
