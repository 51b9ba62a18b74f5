//! One gRPC discovery call: the task that reads its requests.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::session::{BadRequest, CloseReason, FetchResult, Variant};
use weir_core::xds::{HeldVersions, Method, Peer, Scope, Shape, StatedEntries};

use super::drain::Drain;
use super::frames::Frames;
use super::lifetime::Lifetime;
use super::listed_names::ListedNames;
use super::pace::Pace;
use super::request_limits::{self, RequestLimits, Subscribed};
use super::slot::{Slot, Status};
use crate::limit::Limit;
use crate::memory::{Charge, costs};
use crate::relay::heavy::{HEAVY, HeavyKind, ThreadApart};
use crate::relay::{
    Applied, ClientInfo, KeyHeaders, SessionGuard, SessionHandle, SessionThread, TenantStream, ViewQuota, Views,
    fetch_reply, is_tapped, open_session, tap_end, tap_request, unread_names, until_session_is_free,
};

/// The context of a call.
pub(super) struct Call {
    pub(crate) method: Method,
    pub(crate) views: Arc<Views>,
    pub(crate) drain: Drain,
    pub(crate) limits: RequestLimits,
    pub(crate) peer: Arc<Peer>,
    /// The request headers of the call that are part of the sharing key.
    pub(crate) headers: KeyHeaders,
    pub(crate) quota: Arc<ViewQuota>,
    pub(crate) lifetime: Lifetime,
    /// The rate of requests, if it is limited.
    pub(crate) pace: Option<Pace>,
    /// The rate of new names, if it is limited.
    pub(crate) names_pace: Option<Pace>,
    /// In SotW, where each request repeats all names of its type.
    pub(crate) listed: ListedNames,
}

/// What a request adds to the names of its stream.
#[derive(Debug, Clone, Copy)]
struct NewNames {
    names: usize,
    bytes: usize,
    /// How many names the list before had.
    before: usize,
}

/// The stream of a task that reads requests. If the task panics, the stream ends, and so does its session: neither the client nor the view would learn
/// of the panic otherwise.
struct Reading(Arc<Slot>);

impl Drop for Reading {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.end_after_reply(Status::unavailable("internal error in this stream; reconnect"));
            drop(self.0.handle().cloned().map(SessionGuard::new));
        }
    }
}

/// Reads requests for as long as the stream lives, even if the client does not read replies. Futures that are awaited once are boxed: otherwise
/// each task would have room for the largest of them, and most streams are idle.
pub(super) fn read(mut frames: Frames, slot: Arc<Slot>, mut call: Call) -> impl Future<Output = ()> + Send {
    let (mut drain, lifetime) = (call.drain.clone(), call.lifetime.clone());
    async move {
        let reading = Reading(slot);
        let slot = &reading.0;
        let mut lifetime = until_end_of(lifetime, slot);
        tokio::select! {
            end = converse(&mut frames, slot, &mut call) => match end == Status::ok() {
                true => slot.end_after_reply(end),
                false => slot.end(end),
            },
            () = slot.finished() => {}
            () = ends(&mut lifetime) => {}
            () = drain_turn(&mut drain, slot) => slot.end_after_reply(Status::unavailable(drain.reason().message())),
        }
        if let Some(handle) = slot.handle() {
            report_end(slot, handle);
            handle.leave().await;
        }
        slot.note_left();
        drop(call); // it keeps its views, which may be those of an earlier configuration
        // Data still on its way is read and dropped, because data for a reset stream would count against the connection.
        let _ = Box::pin(tokio::time::timeout(LINGER, frames.drain())).await;
    }
}

/// Reports an end without another reply to those who tap the session. The body reports any other end, after the reply.
pub(super) fn report_end(slot: &Slot, handle: &SessionHandle) {
    if let Some(Status { code, message }) = slot.ended_at_once() {
        tap_end(handle, Some(code), &message);
    }
}

/// Reads until the client half-closes, or a request ends the stream.
async fn converse(frames: &mut Frames, slot: &Arc<Slot>, call: &mut Call) -> Status {
    let shape = call.method.shape;
    loop {
        let message = match frames.next().await {
            Ok(Some(message)) => message,
            Ok(None) => return Status::ok(),
            Err(status) => return rejected(call, status),
        };
        let counters = &call.views.counters().limits;
        let checked = request_limits::check(&message, variant_of(shape), call.limits, counters);
        let entries = checked.as_ref().map_or(0, |subscribed| subscribed.entries);
        let (new, mut waiting) = match checked.and_then(|subscribed| admit_names(call, subscribed, message.len())) {
            Ok(new) => new,
            Err(status) => return rejected(call, status),
        };
        let tapped = may_be_tapped(slot, call).then(|| message.clone());
        frames.keep_pace(call.pace.as_ref(), 1, Limit::RequestsPerSecond).await;
        let decoded = match entries < HEAVY {
            true => decode_stating(message, slot, shape, &call.views, &call.peer),
            false => {
                let thread = Box::pin(frames.paused(ThreadApart::free(HeavyKind::Request, entries))).await;
                let (slot, views, peer, charge) = (slot.clone(), call.views.clone(), call.peer.clone(), waiting.take());
                let decode = move || (decode_stating(message, &slot, shape, &views, &peer), charge);
                let (decoded, charge) = Box::pin(thread.run(decode)).await;
                waiting = charge;
                decoded
            }
        };
        let (request, stated) = match decoded {
            Ok(request) => request,
            Err(status) => return rejected(call, status),
        };
        let request = match slot.handle() {
            Some(_) => request,
            // A view may have to wait for its state on disk.
            None => match frames.paused(Box::pin(sit(request, slot, call))).await {
                Ok(request) => *request,
                Err(status) => return status,
            },
        };
        let Some(handle) = slot.handle() else { continue };
        if let Some(message) = tapped {
            tap_request(handle, &request, stated.as_ref().map_or(0, |stated| stated.len()), || message);
        }
        if let Some(tenant) = handle.tenant() {
            let now = Instant::now();
            let mut turn = tenant.request_turn(now);
            if !turn.delay(now).is_zero() {
                frames.wait(Box::pin(turn.comes()), Limit::RequestsPerTenant).await;
            }
            turn.take();
        }
        until_session_is_free(handle).await; // the client's own work stops no clock
        let names = entries.max(new.before).max(unread_names(handle)); // a list may leave out many
        let applied = match names < HEAVY {
            true => apply(&call.views, &call.quota, handle, request, stated, new),
            false => {
                let thread = SessionThread::free(handle, HeavyKind::Request, names);
                let thread = Box::pin(frames.paused(thread)).await;
                let (views, quota, charge) = (call.views.clone(), call.quota.clone(), waiting.take());
                let work = move |handle: &SessionHandle| {
                    let _until_done = charge;
                    apply(&views, &quota, handle, request, stated, new)
                };
                Box::pin(thread.run(work)).await
            }
        };
        drop(waiting);
        let applied = match applied {
            Ok(applied) => applied,
            Err(status) => return rejected(call, status),
        };
        if applied.has_ended {
            call.listed.clear(); // it accepts no more types, but its client may send any number until it reads the end
        }
        let mut forwarded = pin!(handle.forward(applied));
        if let Some(limit) = handle.tenant().and_then(TenantStream::take_exceeded) {
            let key = Limit::NamesPerTenant.key();
            let text = format!("too many names of one tenant: the limit is {limit} ({key}); retry later");
            return rejected(call, Status::exhausted(text));
        }
        let new_names = frames.paused(forwarded.as_mut()).await;
        frames.keep_pace(call.names_pace.as_ref(), new_names, Limit::NewNamesPerSecond).await;
        if shape == Shape::Fetch {
            return match Box::pin(fetch_reply(handle, handle.fetch_timeout())).await {
                FetchResult::Reply(reply) => {
                    slot.answer(*reply);
                    Status::ok()
                }
                FetchResult::End(end) => end.into(),
                FetchResult::Waiting(_) | FetchResult::Unknown => {
                    Status::unavailable("resources not available yet; retry")
                }
            };
        }
    }
}

/// Whether somebody may tap this request. Before the first request it is not known whose stream it is, so any open tap counts.
fn may_be_tapped(slot: &Slot, call: &Call) -> bool {
    slot.handle().map_or_else(|| call.views.clients().taps().is_any_open(), |handle| is_tapped(handle))
}

/// Finds room for the new names of a request, at least for their cost to a session, and charges a large request itself until it
/// is handled. `Err`: there is no room.
fn admit_names(call: &mut Call, of: Subscribed, message: usize) -> Result<(NewNames, Option<Charge>), Status> {
    let Subscribed { names, bytes, type_url, node, entries: _ } = of;
    let known = match variant_of(call.method.shape) {
        Variant::Sotw => call.listed.replace(type_url, call.views.types(), names),
        Variant::Delta => 0,
    };
    let new = NewNames { names: names.saturating_sub(known), bytes, before: known };
    // The node is not decoded yet and stays encoded.
    let lists = message.saturating_sub(node);
    let (of_names, of_lists) = (costs::names(new.names, 0, bytes), DECODED * lists);
    if new.names > 0 {
        find_room(&call.quota, of_names + of_lists)?;
    }
    let account = call.quota.account().filter(|_| lists >= LARGE);
    Ok((new, account.map(|account| account.charge(of_lists))))
}

/// Applies a request for whose names there is room, with the full cost for those that its view does not have. Nothing is awaited between the
/// check and the session, which charges the names.
fn apply(
    views: &Views,
    quota: &ViewQuota,
    handle: &SessionHandle,
    request: Request,
    stated: Option<HeldVersions>,
    new: NewNames,
) -> Result<Applied, Status> {
    if new.names > 0 {
        let kind = views.types().resolve(request.type_url());
        let unknown = new.names.saturating_sub(handle.names_of_view(&kind));
        find_room(quota, costs::names(new.names, unknown, new.bytes))?;
    }
    Ok(handle.apply_request(request, stated))
}

fn find_room(quota: &ViewQuota, bytes: usize) -> Result<(), Status> {
    let room = quota.account().map_or(Ok(()), |account| account.admit(bytes));
    room.map_err(|why| Status::exhausted(why.to_string()))
}

/// Decodes a request. Returns the versions that it states separately.
fn decode_stating(
    message: Bytes,
    slot: &Arc<Slot>,
    shape: Shape,
    views: &Views,
    peer: &Peer,
) -> Result<(Request, Option<HeldVersions>), Status> {
    let (message, stated) = match variant_of(shape) {
        Variant::Sotw => (message, None),
        Variant::Delta => take_stated(message, slot, views, peer)?,
    };
    let request = decode(message, shape).map_err(|_| request_limits::unreadable())?;
    Ok((request, stated))
}

/// Logs why a request ends its stream.
fn rejected(call: &Call, status: Status) -> Status {
    call.views.shared().client_log.request_rejected(&call.peer, &status.message);
    status
}

/// Removes the stated versions from a delta request before it is decoded: other clients have mostly stated the same, and decoded copies
/// would wait for the view.
fn take_stated(
    message: Bytes,
    slot: &Arc<Slot>,
    views: &Views,
    peer: &Peer,
) -> Result<(Bytes, Option<HeldVersions>), Status> {
    let Some((entries, others)) = StatedEntries::split_off(&message) else { return Ok((message, None)) };
    let store = views.stated_versions();
    let weak = Arc::downgrade(slot);
    let held = store.hold(entries, peer.connection, move || {
        if let Some(slot) = weak.upgrade()
            && let Some(handle) = slot.handle()
        {
            handle.on_stated_versions_refused();
        }
    });
    match held {
        Some(held) => Ok((others.into(), Some(held))),
        None => {
            views.counters().limits.reached(Limit::StatedVersionsBytes);
            Err(CloseReason::BadRequest(BadRequest::TooManyStatedVersions(store.limit())).into())
        }
    }
}

/// Opens the session of a stream. Returns the request, which identifies the client.
async fn sit(request: Request, slot: &Slot, call: &Call) -> Result<Box<Request>, Status> {
    let visit = ClientInfo {
        variant: variant_of(call.method.shape),
        only: match call.method.scope {
            Scope::Aggregated => None,
            Scope::Only(name) => Some(name),
        },
        is_stream: call.method.shape != Shape::Fetch,
        peer: call.peer.clone(),
        headers: call.headers.clone(),
        quota: call.quota.clone(),
    };
    match open_session(&call.views, &request, visit).await {
        Ok(handle) => {
            slot.attach(handle);
            Ok(Box::new(request))
        }
        Err(rejected) => Err(rejected.into()),
    }
}

/// Returns what ends a stream together with its connection, if anything can: a future that ends it when the time has come.
fn until_end_of(lifetime: Lifetime, slot: &Arc<Slot>) -> Option<Pin<Box<impl Future<Output = ()> + use<>>>> {
    let slot = slot.clone();
    lifetime.is_limited().then(|| Box::pin(async move { lifetime.end(&slot).await }))
}

async fn ends(end: &mut Option<Pin<Box<impl Future<Output = ()>>>>) {
    match end {
        Some(end) => end.await,
        None => pending().await,
    }
}

/// Waits for this stream's turn to end, after a response or at the end of the grace period.
async fn drain_turn(drain: &mut Drain, slot: &Slot) {
    drain.begins().await;
    let bytes = match slot.handle() {
        Some(handle) => {
            until_session_is_free(handle).await;
            handle.subscribed_bytes()
        }
        None => 0,
    };
    Box::pin(drain.turn_comes(bytes)).await;
    let _ = Box::pin(tokio::time::timeout_at(drain.grace_ends(), slot.answered())).await;
}

fn variant_of(shape: Shape) -> Variant {
    match shape {
        Shape::SotwStream | Shape::Fetch => Variant::Sotw,
        Shape::DeltaStream => Variant::Delta,
    }
}

fn decode(message: Bytes, shape: Shape) -> Result<Request, prost::DecodeError> {
    match variant_of(shape) {
        Variant::Sotw => DiscoveryRequest::decode(message).map(Request::Sotw),
        Variant::Delta => DeltaDiscoveryRequest::decode(message).map(Request::Delta),
    }
}

/// The memory for a request without its node, encoded and decoded, is taken to be this many times its encoded size.
const DECODED: usize = 8;
/// Shorter requests are not charged: they are handled at once.
const LARGE: usize = 16 << 10;
/// How long a client's data is read and dropped after the stream ended.
pub(super) const LINGER: Duration = Duration::from_secs(5);
