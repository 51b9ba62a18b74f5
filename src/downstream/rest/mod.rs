//! Discovery by polling, in JSON over HTTP: a fetch in another encoding than gRPC.
//!
//! A poll is a session with one request. Its interest lingers (`limits.linger`), so the next poll finds the resources in the cache, even if
//! this one came to an empty cache.

mod budget;
mod cache;
pub(super) mod inputs;
mod rejection;
mod request;

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;
use prost::Message;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use weir_core::proto;
use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::protocol::session::{FetchResult, Reply, Variant};
use weir_core::xds::{Peer, RestPath};
use xxhash_rust::xxh3::Xxh3;

use self::budget::Budget;
use self::cache::{CacheKey, ResponseCache};
use self::rejection::Rejection;
use super::drain::Drain;
use super::incomplete::Inbound;
use super::request_limits::RequestLimits;
use crate::compression::{Compression, GZIP};
use crate::log_pace::LogPace;
use crate::memory::costs;
use crate::relay::heavy::HEAVY;
use crate::relay::traces::{POLL, SpanIds, SpanRecord, SpanTime};
use crate::relay::{
    AdmissionError, ClientInfo, KeyHeaders, SessionGuard, SessionHandle, UnfitHeaders, ViewQuota, Views, fetch_reply,
    glance_at_reply, is_tapped, open_session_after, session_changed, tap_end, tap_reply, tap_request, tap_unchanged,
};
use crate::shared_runtime;
use crate::transcode::Descriptors;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RestOptions {
    /// How long a poll waits for unknown resources.
    pub(crate) timeout: Duration,
    /// How long a poll without a change waits for one (REST-6).
    pub(crate) long_poll: Duration,
    /// The maximum bytes of cached responses.
    pub(crate) cache_bytes: u64,
    /// The maximum bytes of all responses, cached or being sent.
    pub(crate) response_bytes: usize,
}

pub(crate) struct RestService {
    options: RestOptions,
    transcoder: Descriptors,
    shared: ResponseCache,
    /// Limits how many large requests are parsed at a time.
    places: Semaphore,
    counts: Counts,
    rejections: LogPace,
}

#[derive(Debug, Default)]
struct Counts {
    polls: AtomicU64,
    content: AtomicU64,
    unchanged: AtomicU64,
    rejected: AtomicU64,
}

/// The polls so far, by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct RestReport {
    pub(crate) polls: u64,
    pub(crate) ok: u64,
    pub(crate) not_modified: u64,
    pub(crate) rejected: u64,
    /// How many responses were made. All others came from the cache.
    pub(crate) transcoded: u64,
    pub(crate) kept: u64,
    pub(crate) kept_bytes: u64,
}

/// The views and the client of a poll.
pub(super) struct Poll {
    pub(crate) views: Arc<Views>,
    pub(crate) inbound: Arc<Inbound>,
    pub(crate) drain: Drain,
    pub(crate) peer: Arc<Peer>,
    /// The request headers that are part of the sharing key.
    pub(crate) headers: Result<KeyHeaders, UnfitHeaders>,
    pub(crate) quota: Arc<ViewQuota>,
    pub(crate) message_bytes: usize,
    pub(crate) limits: RequestLimits,
    pub(crate) v2: bool,
    /// Which responses to the client are compressed.
    pub(crate) compression: Compression,
}

/// The result of a poll.
enum Answer {
    Content(Bytes),
    Gzip(Bytes),
    Unchanged,
}

impl RestService {
    pub(crate) fn new(
        options: RestOptions,
        compression: Compression,
        transcoder: Descriptors,
        control_plane: &str,
    ) -> Self {
        let room = Budget::of(options.response_bytes);
        let shared =
            ResponseCache::new(options.cache_bytes, compression, room, transcoder.clone(), control_plane.into());
        let places = Semaphore::new(available_parallelism().map_or(1, usize::from));
        Self { options, transcoder, shared, places, counts: Counts::default(), rejections: LogPace::of_process() }
    }

    pub(crate) fn report(&self) -> RestReport {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let Counts { polls, content, unchanged, rejected } = &self.counts;
        let (kept, kept_bytes) = self.shared.kept();
        let transcoded = self.shared.transcoded();
        let (polls, content) = (of(polls), of(content));
        RestReport {
            polls,
            ok: content,
            not_modified: of(unchanged),
            rejected: of(rejected),
            transcoded,
            kept,
            kept_bytes,
        }
    }

    /// Returns status, headers and body.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>, poll: Poll) -> Response<Bytes> {
        count(&self.counts.polls);
        let peer = poll.peer.clone();
        let path = request.uri().path().to_owned();
        let views = poll.views.clone();
        let span = views.counters().traces.sample().map(|(_, ids)| (ids, SpanTime::now()));
        let response = self.respond(request, poll, &path, span.map(|(ids, _)| ids)).await;
        if let Some((ids, time)) = span {
            let values =
                [path.as_str().into(), peer.to_string().as_str().into(), u64::from(response.status().as_u16()).into()];
            views.counters().traces.take(SpanRecord::new(&POLL, ids, (time, time.elapsed()), values));
        }
        response
    }

    async fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        poll: Poll,
        path: &str,
        span: Option<SpanIds>,
    ) -> Response<Bytes> {
        let peer = poll.peer.clone();
        match self.handle(request, poll).await {
            Ok(Answer::Content(body)) => {
                count(&self.counts.content);
                json(StatusCode::OK, body)
            }
            Ok(Answer::Gzip(body)) => {
                count(&self.counts.content);
                let mut response = json(StatusCode::OK, body);
                response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(GZIP));
                response
            }
            Ok(Answer::Unchanged) => {
                count(&self.counts.unchanged);
                let mut response = Response::new(Bytes::new());
                *response.status_mut() = StatusCode::NOT_MODIFIED;
                response
            }
            Err(Rejection { status, message }) => {
                count(&self.counts.rejected);
                let (trace_id, span_id) = span.map(SpanIds::texts).unzip();
                if let Some(unlogged) = self.rejections.line(std::time::Instant::now()) {
                    tracing::debug!(%peer, path, %status, message, unlogged, trace_id, span_id, "poll rejected");
                }
                let body = serde_json::json!({"code": status.as_u16(), "message": message});
                let mut response = json(status, body.to_string().into());
                request::say_beside(status, response.headers_mut());
                response
            }
        }
    }

    async fn handle(self: &Arc<Self>, request: Request<Incoming>, poll: Poll) -> Result<Answer, Rejection> {
        let (head, body) = request.into_parts();
        let limit = poll.message_bytes.min(LONGEST_POLL);
        let path = request::check_head(&head, poll.v2, limit)?;
        let mut incomplete = poll.inbound.begin(); // until it is parsed: a small body may inflate to a large one
        let body = request::read_body(body, limit, &poll.inbound, &mut incomplete).await?;
        let body = request::inflated(&head, body, limit, &mut incomplete).await?;
        let request = incomplete.during(self.parse(body)).await.map_err(request::too_many)??;
        drop(incomplete);
        let (names, url) = (request.resource_names.len(), request.type_url.len());
        poll.limits.check_type_url(url, &poll.views.counters().limits).map_err(request::too_long)?;
        look_up(names, Box::pin(self.clone().find(request, path, poll))).await
    }

    async fn parse(&self, body: Bytes) -> Result<DiscoveryRequest, Rejection> {
        let most = if shared_runtime::is_elsewhere() { LARGE_ON_SHARD } else { LARGE };
        if body.len() <= most {
            return request::parse(&body, &(self.transcoder)());
        }
        // A parsed request takes many times the memory of its text, so at most as many as there are processors are parsed at a time.
        let Ok(_place) = self.places.acquire().await else {
            return Err(Rejection::unavailable(STOPPING));
        };
        let transcoder = self.transcoder.clone();
        let parsing = shared_runtime::spawn_blocking(move || request::parse(&body, &transcoder()));
        parsing.await.unwrap_or_else(|_| Err(Rejection::unavailable(STOPPING)))
    }

    /// Fetches once, and again after each change until the long poll ends.
    async fn find(
        self: Arc<Self>,
        request: DiscoveryRequest,
        path: RestPath,
        mut poll: Poll,
    ) -> Result<Answer, Rejection> {
        let (requested, held) = (asked_for(&request.resource_names), request.version_info.clone());
        let until = Instant::now() + self.options.long_poll;
        let mut is_first = true;
        let mut before = None;
        loop {
            let handle = match (self.long_poll(&request, path, &poll, before.as_ref()).await?, before.take()) {
                // The client was accepted by the configuration before, and comes to the new one with its next poll.
                (Err(AdmissionError::ConfigurationChanged), Some(before)) => return Ok(unchanged(&before)),
                (opened, _) => opened?,
            };
            if std::mem::take(&mut is_first) && is_tapped(&handle) {
                tap_request(&handle, &proto::Request::Sotw(request.clone()), 0, || request.encode_to_vec().into());
            }
            if self.options.long_poll.is_zero() && handle.is_current(&held) {
                return Ok(unchanged(&handle));
            }
            let reply = match fetch_reply(&handle, self.options.timeout).await {
                FetchResult::Reply(reply) => reply,
                FetchResult::End(end) => return Err(refused(&handle, end.into())),
                FetchResult::Waiting(_) | FetchResult::Unknown => {
                    return Err(refused(&handle, Rejection::unavailable(NOT_YET)));
                }
            };
            let version = format!("{}{requested}", reply.version);
            if version != held {
                let (view, spelling) = (handle.client().key.as_str().into(), reply.spelling.clone());
                let mut tapped = glance_at_reply(&handle, &reply, Variant::Sotw);
                tapped.iter_mut().for_each(|glance| glance.version = Some(version.clone()));
                let wanted = CacheKey { view, spelling, version, wrappers: reply.wrappers };
                let (deliveries, lag) = (handle.deliveries(), reply.lag);
                let place = deliveries.place(&reply.kind);
                let is_for_all = cache::is_for_all(&reply);
                let compression = if reply.kind.is_secret() { Compression::Off } else { poll.compression };
                let plain = self.shared.body(wanted.clone(), *reply).await;
                let plain = plain.and_then(|made| made.map_err(|nack| (*nack).clone()));
                let plain = plain.map_err(|why| refused(&handle, why))?;
                let gzip = match is_for_all {
                    true => self.shared.gzip(wanted, &plain, compression, &poll.views.counters().compression).await,
                    false => None,
                };
                let sent = gzip.as_ref().map_or(plain.len(), Bytes::len);
                deliveries.sent(place, sent, lag);
                if let Some(mut glance) = tapped {
                    glance.bytes = sent;
                    tap_reply(&handle, glance);
                }
                return Ok(gzip.map_or(Answer::Content(plain), Answer::Gzip));
            }
            if self.options.long_poll.is_zero() {
                return Ok(unchanged(&handle));
            }
            handle.handle_request(taken(&request, &reply)).await;
            tokio::select! {
                () = session_changed(&handle) => {}
                () = tokio::time::sleep_until(until) => return Ok(unchanged(&handle)),
                () = poll.drain.begins() => return Ok(unchanged(&handle)),
            }
            tokio::time::sleep(PAUSE).await; // wakes may concern other clients, and come in quick succession
            before = Some(handle);
        }
    }

    /// Opens a session for one fetch, beside the one before it, if any.
    async fn long_poll(
        &self,
        request: &DiscoveryRequest,
        path: RestPath,
        poll: &Poll,
        before: Option<&SessionGuard>,
    ) -> Result<Result<SessionGuard, AdmissionError>, Rejection> {
        let visit = ClientInfo {
            variant: Variant::Sotw,
            only: Some(path.kind),
            is_stream: false,
            peer: poll.peer.clone(),
            headers: poll.headers.clone().map_err(|unfit| Rejection::bad_request(unfit.to_string()))?,
            quota: poll.quota.clone(),
        };
        let (names, bytes) = (request.resource_names.len(), request.resource_names.iter().map(String::len).sum());
        let cost = costs::SESSION + costs::names(names, 0, bytes);
        let room = poll.quota.account().map_or(Ok(()), |account| account.admit(cost));
        room.map_err(|why| Rejection::unavailable(why.to_string()))?;
        let request = proto::Request::Sotw(request.clone());
        // Opening a view may wait for its state on disk.
        let opening = open_session_after(before.map(|before| &**before), &poll.views, &request, visit);
        let opened = tokio::time::timeout(self.options.timeout, opening).await;
        let opened = opened.map_err(|_| Rejection::unavailable(NOT_YET))?.map(SessionGuard::new);
        if let Ok(handle) = &opened {
            handle.handle_request(request).await;
        }
        Ok(opened)
    }
}

/// Finds the answer to a poll of so many names. If they are many, a shard leaves that to another thread: no thread would run its other connections
/// meanwhile.
async fn look_up<T: Send + 'static>(
    names: usize,
    finding: impl Future<Output = Result<T, Rejection>> + Send + 'static,
) -> Result<T, Rejection> {
    match names >= HEAVY && shared_runtime::is_elsewhere() {
        true => shared_runtime::run(finding).await.unwrap_or_else(|| Err(Rejection::unavailable(STOPPING))),
        false => finding.await,
    }
}

fn unchanged(handle: &SessionHandle) -> Answer {
    tap_unchanged(handle);
    Answer::Unchanged
}

fn refused(handle: &SessionHandle, why: Rejection) -> Rejection {
    tap_end(handle, Some(why.status.as_u16().into()), &why.message);
    why
}

fn count(of: &AtomicU64) {
    of.fetch_add(1, Ordering::Relaxed);
}

/// Returns the part of a version that depends on the requested names: it changes with every added or removed name, even an unknown one
/// (REST-8).
fn asked_for(names: &[String]) -> String {
    if names.is_empty() {
        return String::new();
    }
    let mut sorted: Vec<_> = names.iter().collect();
    sorted.sort_unstable();
    let mut hasher = Xxh3::new();
    for name in sorted {
        hasher.write_usize(name.len());
        hasher.write(name.as_bytes());
    }
    format!(".{:016x}", hasher.digest())
}

/// Returns the ACK for a client that has the last reply, so that only later changes wake its session.
fn taken(request: &DiscoveryRequest, reply: &Reply) -> proto::Request {
    proto::Request::Sotw(DiscoveryRequest {
        node: None,
        version_info: reply.version.to_string(),
        response_nonce: reply.nonce.to_string(),
        ..request.clone()
    })
}

fn json(status: StatusCode, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

const NOT_YET: &str = "resource not available yet; retry";
const STOPPING: &str = "the relay is shutting down";
/// Longer requests are parsed off the serving threads. An Envoy's node takes some 60 kB.
const LARGE: usize = 256 << 10;
/// The same on a shard, where nothing else runs meanwhile.
const LARGE_ON_SHARD: usize = 64 << 10;
/// The maximum for a poll: a node and names. No known client sends more.
const LONGEST_POLL: usize = 4 << 20;
/// The pause between two fetches of a long poll.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread::{self, ThreadId};

    use tokio::runtime::{Builder, Handle};
    use tokio::sync::oneshot;

    use super::*;
    use crate::transcode::Transcoder;

    /// Runs a task on the thread of a shard, beside the shared runtime, which is the one of the test.
    async fn on_a_shard<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> T {
        let (shared, (tell, told)) = (Handle::current(), oneshot::channel());
        thread::spawn(move || {
            let own = Builder::new_current_thread().enable_all().build().unwrap();
            shared_runtime::set_beside_this_thread(shared, own.handle().clone());
            let _ = tell.send(own.block_on(task));
        });
        told.await.unwrap()
    }

    #[tokio::test]
    async fn on_a_shard_another_thread_looks_for_many_names() {
        let is_on_shard = |names| look_up(names, async { Ok(shared_runtime::is_elsewhere()) });
        let few_and_many = async move { [is_on_shard(HEAVY - 1).await, is_on_shard(HEAVY).await] };
        assert_eq!(on_a_shard(few_and_many).await, [Ok(true), Ok(false)]);
    }

    #[tokio::test]
    async fn another_thread_parses_long_polls_and_for_a_shard_shorter_ones_too() {
        let (tell, told) = mpsc::channel();
        let transcoder: Descriptors = Arc::new(move || {
            let _ = tell.send(thread::current().id());
            Transcoder::envoy()
        });
        let (timeout, long_poll) = (Duration::ZERO, Duration::ZERO);
        let options = RestOptions { timeout, long_poll, cache_bytes: 1 << 20, response_bytes: 1 << 20 };
        let service = Arc::new(RestService::new(options, Compression::Off, transcoder, "weir"));
        let parse = |lengths: [usize; 2]| {
            let service = service.clone();
            async move {
                for length in lengths {
                    let of_name = |name: &str| format!("{{\"resource_names\":[\"{name}\"]}}");
                    let name = "n".repeat(length - of_name("").len());
                    let parsed = service.parse(of_name(&name).into()).await.unwrap();
                    assert_eq!(parsed.resource_names, [name]);
                }
                thread::current().id()
            }
        };
        let are_on = |own: ThreadId| told.try_iter().map(|on| on == own).collect::<Vec<_>>();
        let worker = parse([LARGE, LARGE + 1]).await;
        assert_eq!(are_on(worker), [true, false]);
        let shard = on_a_shard(parse([LARGE_ON_SHARD, LARGE_ON_SHARD + 1])).await;
        assert_eq!(are_on(shard), [true, false]);
    }

    #[test]
    fn rest_8_the_names_that_are_requested_are_part_of_the_version() {
        let of = |names: &[&str]| asked_for(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(of(&[]), "", "a wildcard has the version that streams have");
        assert_eq!(of(&["a", "b"]), of(&["b", "a"]));
        let different = [of(&["a"]), of(&["b"]), of(&["a", "b"]), of(&["ab"]), of(&["a", "b", ""])];
        for (at, one) in different.iter().enumerate() {
            assert!(different.iter().skip(at + 1).all(|other| other != one), "{different:?}");
        }
    }
}
