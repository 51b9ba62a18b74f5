//! One opening of a stream: requests out, responses in.

use std::error::Error;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request as Call, Response, Status, Streaming};
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::session::Variant;
use weir_core::protocol::set_mark::RELAY_HEADER;
use weir_core::protocol::upstream::{BackoffTimes, ResponseMessage, ServerStatus, UnreadableResponse};

use super::super::connection_pool::{MoveTurn, StreamSlot, settle};
use super::super::error_chain::chain;
use super::super::wire_message::{INVALID, WireMessage, unreadable};
use super::codec::RawResponses;
use super::frames::{Incoming, Watched};
use super::life_call::{CallResult, LifeCalls};
use super::liveness::LivenessProbe;
use super::methods::{DELTA_PATH, SOTW_PATH};
use super::shared::AttemptStage;
use super::{AdsConnector, CUT, Connected, Moved, NO_GRPC, NO_TRAILERS, is_unspoken};
use crate::compression::Inflater;
use crate::relay::{Connector, KeyHeaders, Link, LinkEvent, LinkReport, Redaction, UnreadableCompressed};

/// How one opening of a stream ended.
pub(super) struct End {
    pub(crate) stage: AttemptStage,
    pub(crate) status: Status,
    /// How long the stream was up.
    pub(crate) lived: Duration,
    /// The number of its connection, if there was one.
    pub(crate) connection: Option<u64>,
    /// The stream was put on a shared connection on which the server takes no more streams.
    pub(crate) is_sent_away: bool,
    /// The server takes no more streams on the connection of this stream.
    pub(crate) is_server_leaving: bool,
    /// Liveness calls have ended the stream: the server does not answer them, or takes none.
    pub(crate) is_silent: bool,
    /// The new place of the stream, if it was ended to move there.
    pub(crate) moved: Option<Moved>,
    /// The server has sent the status.
    pub(crate) is_of_server: bool,
}

/// Who has ended a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndedBy {
    /// The server, by its status.
    Server,
    /// Liveness calls: the server does not answer them, or takes none any more.
    Silence,
    Others,
}

impl End {
    pub(crate) fn unreached(status: Status) -> Self {
        let (stage, lived) = (AttemptStage::Unreached, Duration::ZERO);
        let (is_sent_away, is_server_leaving, is_silent, is_of_server) = Default::default();
        let (connection, moved) = (None, None);
        Self { stage, status, lived, connection, is_sent_away, is_server_leaving, is_silent, moved, is_of_server }
    }

    /// Returns the status by which the server has ended the stream, without the values that it was shown.
    pub(crate) fn by_server(&self, redaction: &Redaction) -> Option<ServerStatus> {
        self.is_of_server.then(|| server_status(&self.status, redaction))
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.stage == AttemptStage::Answered
    }

    /// Whether the server has ended the stream without a response, so that another address may be better. If the end may be due to the stream
    /// before this one, it says nothing of the address.
    pub(crate) fn is_of_address(&self, follows_another: bool) -> bool {
        let is_rejection = self.stage == AttemptStage::Rejected && self.moved.is_none() && !is_unspoken(&self.status);
        is_rejection && !(follows_another && self.may_be_early())
    }

    /// Whether the server refuses the headers of a client that it was shown. That says nothing of its address: the server may accept those of other
    /// clients.
    pub(crate) fn refuses(&self, headers: &KeyHeaders) -> bool {
        let is_refusal = matches!(self.status.code(), Code::PermissionDenied | Code::Unauthenticated);
        is_refusal && self.is_of_server && headers.are_in_key()
    }

    /// Whether the stream is soon opened again, on another connection. That is so if the server has announced the end of the connection and kept
    /// the stream for a while: other connections are there already. It is not so if the server ends each connection soon (UP-34).
    pub(crate) fn is_replaced(&self, times: BackoffTimes) -> bool {
        self.is_answered() && self.is_server_leaving && self.lived >= times.reset_after.max(times.initial)
    }

    /// Whether the server may have ended the stream because it had not noticed yet that the stream before it has ended.
    pub(crate) fn may_be_early(&self) -> bool {
        self.stage == AttemptStage::Rejected && self.lived <= EARLY && !self.is_silent
    }
}

/// What differs between the variants on the wire.
struct WireForm<Q> {
    path: &'static str,
    inner: fn(Request) -> Option<Q>,
}

pub(super) fn sotw_request(request: Request) -> Option<DiscoveryRequest> {
    match request {
        Request::Sotw(request) => Some(request),
        Request::Delta(_) => None,
    }
}

pub(super) fn delta_request(request: Request) -> Option<DeltaDiscoveryRequest> {
    match request {
        Request::Delta(request) => Some(request),
        Request::Sotw(_) => None,
    }
}

/// Opens the stream and serves it to its end: at the place that it has moved to, or else on a connection with at least this number.
/// `follows_another`: the server may not have noticed yet that an earlier stream has ended.
pub(super) async fn open_once(
    connector: &AdsConnector,
    link: &Link,
    variant: Variant,
    least_connection: u64,
    moved: Option<Moved>,
    follows_another: bool,
) -> End {
    let place = match moved {
        Some(Moved { to, turn }) => Ok((to, Some(turn))),
        None => connector.connect(least_connection, &link.headers).await.map(|connected| (connected, None)),
    };
    let place = match place {
        Ok(place) => place,
        Err(status) => return End::unreached(status),
    };
    match variant {
        Variant::Sotw => {
            let wire = WireForm { path: SOTW_PATH, inner: sotw_request };
            run((connector, least_connection), place, (link, follows_another), variant, wire).await
        }
        Variant::Delta => {
            let wire = WireForm { path: DELTA_PATH, inner: delta_request };
            run((connector, least_connection), place, (link, follows_another), variant, wire).await
        }
    }
}

async fn run<Q>(
    (connector, least_connection): (&AdsConnector, u64),
    (connected, turn): (Connected, Option<MoveTurn>),
    (link, follows_another): (&Link, bool),
    variant: Variant,
    wire: WireForm<Q>,
) -> End
where
    Q: prost::Message + Default + 'static,
{
    let Connected { slot, served: _served, channel, metadata } = connected;
    let (incoming, opened) = (Arc::new(Incoming::new()), Instant::now());
    let mut grpc = connector.limited(Watched { channel: channel.clone(), incoming: incoming.clone() });
    if let Err(error) = grpc.ready().await {
        turn.into_iter().for_each(MoveTurn::stay);
        return End::unreached(Status::unavailable(chain(&error)));
    }
    let (sender, receiver) = mpsc::channel(16);
    let requested = Arc::new(Notify::new());
    let event = LinkEvent::Opened { variant, requests: sender, life: requested.clone() };
    let (id, reports) = (link.id, link.reports.clone());
    // The stream is reported before the server has sent anything: many servers send no headers until they have a first request.
    let reported = reports.send(LinkReport { id, event }).await;
    let (until_sent, half_close) = (slot.clone(), Arc::new(Notify::new()));
    let requests = ReceiverStream::new(receiver).filter_map(move |request| {
        let _open = &until_sent;
        ready((wire.inner)(request))
    });
    let closes = half_close.clone();
    let requests = requests.take_until(Box::pin(async move { closes.notified().await }));
    let mut call = Call::new(requests);
    *call.metadata_mut() = metadata;
    let codec = RawResponses::<Q>::default();
    let call = grpc.streaming(call, PathAndQuery::from_static(wire.path), codec);
    let shared = connector.shared();
    let alive = Notify::new();
    let probe = LivenessProbe {
        server: connector.describe(),
        times: connector.life(),
        shared,
        slot: &slot,
        calls: LifeCalls {
            connector,
            slot: &slot,
            channel: channel.clone(),
            incoming: incoming.clone(),
            method: wire.path,
            headers: &link.headers,
        },
        incoming: incoming.clone(),
        requested,
        answered: &alive,
    };
    let mut serving = pin!(async {
        tokio::select! {
            end = listen((connector, &slot), call, link, variant, &incoming, &alive) => end,
            status = probe.watch() => (status, EndedBy::Silence),
        }
    });
    let ((status, ended_by), moved) = match reported {
        Err(_) => ((gone(), EndedBy::Others), None),
        Ok(()) => {
            let (of_calls, headers, method) = (incoming.clone(), &link.headers, wire.path);
            let calls = LifeCalls { connector, slot: &slot, channel, incoming: of_calls, method, headers };
            let alive = is_alive(calls);
            let end = settle(turn, serving.as_mut(), incoming.answered(), || incoming.has_answered(), alive).await;
            match end {
                Some(status) => (status, None),
                None => tokio::select! {
                    status = &mut serving => (status, None),
                    moved = connector.moved(&slot, least_connection, &link.headers) => {
                        end_in_order(&half_close, serving).await;
                        ((Status::ok(MOVES), EndedBy::Others), Some(moved))
                    }
                },
            }
        }
    };
    let stage = if incoming.has_answered() { AttemptStage::Answered } else { AttemptStage::Rejected };
    let (connection, is_server_leaving) = (Some(slot.connection()), slot.is_server_leaving());
    let is_sent_away = slot.is_shared() && is_server_leaving;
    let (is_silent, is_of_server) = (ended_by == EndedBy::Silence, ended_by == EndedBy::Server);
    let lived = opened.elapsed();
    let end = End { stage, status, lived, connection, is_sent_away, is_server_leaving, is_silent, moved, is_of_server };
    if end.is_of_address(follows_another) && !end.refuses(&link.headers) {
        slot.is_rejecting();
    }
    end
}

/// Closes the request side of a stream, and waits for its end. A server that keeps one record for each node deletes it at that end.
pub(super) async fn end_in_order(half_close: &Notify, stream: impl Future) {
    half_close.notify_one();
    let _ = timeout(END_OF_STREAM, stream).await; // some servers never end one
}

/// Waits until the server has answered a call on the connection of a stream.
async fn is_alive(mut calls: LifeCalls<'_>) {
    let (asked, mut was_refused) = (Instant::now(), false);
    loop {
        let (begun, limit) = (Instant::now(), calls.limit());
        let answer = calls.ask(asked, was_refused).await;
        was_refused = matches!(answer, CallResult::TooEarly(_)); // the answer to another stream's call is one for this stream too
        let next = match answer {
            CallResult::Own => return,
            CallResult::TooEarly(until) => until,
            CallResult::Unrouted(_) | CallResult::Closed | CallResult::Missing(_) => begun + limit,
        };
        sleep_until(next).await;
    }
}

/// Serves the stream until it ends. Returns its status, and who has ended it.
async fn listen(
    (connector, slot): (&AdsConnector, &StreamSlot),
    call: impl Future<Output = Result<Response<Streaming<WireMessage>>, Status>>,
    link: &Link,
    variant: Variant,
    incoming: &Incoming,
    alive: &Notify,
) -> (Status, EndedBy) {
    let tell = async |event| link.reports.send(LinkReport { id: link.id, event }).await.map_err(|_| gone());
    let mut call = pin!(call);
    let call = loop {
        // Some servers send nothing, not even headers, before they have a response.
        tokio::select! {
            biased;
            call = &mut call => break call,
            () = alive.notified() => if let Err(status) = tell(LinkEvent::Alive).await { return (status, EndedBy::Others) },
        }
    };
    let mut responses = match call {
        Ok(call) => {
            if call.metadata().contains_key(RELAY_HEADER)
                && let Err(status) = tell(LinkEvent::Relay).await
            {
                return (status, EndedBy::Others);
            }
            call.into_inner()
        }
        Err(status) => return ended_by(status),
    };
    loop {
        let event = tokio::select! {
            biased; // a complete message is not half-received any more, and came before the answer to a call
            message = responses.message() => match message {
                Ok(Some(message)) => {
                    let response = match read(connector, link, variant, message).await {
                        Ok(response) => response,
                        Err(status) => return (status, EndedBy::Others),
                    };
                    if incoming.answer() {
                        connector.shared().answered();
                        slot.has_answered();
                    }
                    response
                }
                Ok(None) => return (Status::ok("the server ended the stream"), EndedBy::Server),
                Err(status) => return ended_by(status),
            },
            () = incoming.receiving() => LinkEvent::Receiving,
            () = alive.notified() => LinkEvent::Alive,
        };
        if let Err(status) = tell(event).await {
            return (status, EndedBy::Others);
        }
    }
}

/// Reads a response. A compressed one is inflated first.
async fn read(
    connector: &AdsConnector,
    link: &Link,
    variant: Variant,
    message: WireMessage,
) -> Result<LinkEvent, Status> {
    let invalid = |error: UnreadableResponse| Status::internal(error.to_string());
    let read = match message {
        WireMessage::Plain(message) => link.read(ResponseMessage::Encoded(variant, message)).await.map_err(invalid),
        WireMessage::Gzip(message) => {
            let inflater = Inflater::new(message, connector.message_bytes());
            link.read_compressed(variant, inflater).await.map_err(|error| match error {
                UnreadableCompressed::Inflate(error) => unreadable(&error),
                UnreadableCompressed::Response(error) => invalid(error),
            })
        }
    };
    Ok(read?.without_values(|| connector.redaction(&link.headers)))
}

/// Returns a status, and whether the server has sent it.
fn ended_by(status: Status) -> (Status, EndedBy) {
    let by = if is_of_server(&status) { EndedBy::Server } else { EndedBy::Others };
    (status, by)
}

/// Whether the server has sent a status. These come from elsewhere:
///
/// - A status with a cause: from the connection.
/// - A status for an answer that is not of gRPC: from a gateway.
/// - A stream that was cut off, which has no status of the server.
/// - A stream that cannot be read, which is ended here.
pub(super) fn is_of_server(status: &Status) -> bool {
    let is_made_up = [NO_GRPC, NO_TRAILERS, CUT, INVALID].iter().any(|text| status.message().starts_with(text));
    status.source().is_none() && !is_made_up
}

/// Returns a status of the server, without the values that it was shown.
pub(super) fn server_status(status: &Status, redaction: &Redaction) -> ServerStatus {
    ServerStatus { code: i32::from(status.code()), message: redaction.apply(status.message().to_owned()) }
}

fn gone() -> Status {
    Status::cancelled("the owner is gone")
}

/// How long the server has to end a stream that moves, after its request side was closed.
const END_OF_STREAM: Duration = Duration::from_secs(1);
/// If a stream lives longer than this, it has not ended because of the stream before it.
const EARLY: Duration = END_OF_STREAM.saturating_add(Duration::from_secs(1));
/// The reported reason when a stream ends to go on elsewhere.
const MOVES: &str = "the stream moves to another connection";
