//! Liveness of a server. Many servers send nothing before they have a response, and a hung server sends nothing either. The answer
//! to a call that was begun after the silence, on the same connection, distinguishes the two.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::{BodyExt, Full};
use tokio::sync::{MutexGuard, Notify};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::super::connection_pool::{NoCall, StreamSlot};
use super::super::error_chain::chain;
use super::super::observed_socket::CLOSED;
use super::super::server::LifeTimes;
use super::frames::Incoming;
use super::shared::{Doubts, Shared};

/// Makes liveness calls on the connection of one stream.
pub(super) struct Life<'a> {
    pub(crate) server: String,
    pub(crate) times: LifeTimes,
    pub(crate) shared: &'a Shared,
    pub(crate) slot: &'a StreamSlot,
    pub(crate) channel: Channel,
    pub(crate) metadata: MetadataMap,
    pub(crate) incoming: Arc<Incoming>,
    /// When notified, the stream wants an answer to a call that begins from then on.
    pub(crate) requested: Arc<Notify>,
    /// Notified when that answer has come. Everything received before the answer must be reported first.
    pub(crate) answered: &'a Notify,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    /// A gRPC status from the discovery server.
    Own,
    /// A gateway does not route the call to the server. This is no evidence about the server.
    Unrouted(StatusCode),
    /// The server takes no more calls on the connection.
    Closed,
    /// The server allows no call beside the streams of the connection. This is no evidence about it.
    Full,
    /// No answer in time, or the reason why none can come, for example a gateway that does not reach the server.
    Missing(Option<String>),
}

/// Calls in a row without an answer.
#[derive(Default)]
struct Missed {
    count: u32,
    since: Option<Instant>,
}

impl Life<'_> {
    /// Runs for as long as the server answers. Returns why the stream has to be closed.
    pub(crate) async fn watch(mut self) -> Status {
        let mut doubts = self.shared.doubts();
        let mut duty = None;
        // Whether a request still lacks its answer, and the earliest time for the next call.
        let (mut pending, mut missed) = (false, Missed::default());
        let (mut last, mut earliest) = (Instant::now(), Instant::now());
        let mut is_due = self.is_on_silent_connection();
        loop {
            if !pending && missed.count == 0 && !std::mem::take(&mut is_due) {
                tokio::select! {
                    () = self.requested.notified() => pending = true,
                    () = self.idle(last, &mut duty) => {}
                    () = self.doubted(&mut doubts) => {}
                }
            }
            sleep_until(earliest).await;
            pending |= self.requested.notified().now_or_never().is_some(); // the call begins after the request
            let began = Instant::now();
            last = began;
            let answer = self.call(&mut doubts).await;
            if answer != Answer::Own {
                earliest = began + self.times.timeout;
            }
            match answer {
                Answer::Own => {
                    missed = Missed::default();
                    self.incoming.note_received();
                    // This call does not answer a request that came during it. The next call answers both.
                    if pending && self.requested.notified().now_or_never().is_none() {
                        pending = false;
                        self.answered.notify_one();
                    }
                }
                Answer::Unrouted(status) => {
                    if self.shared.is_first_unrouted() {
                        let (server, status) = (&self.server, status.as_u16());
                        tracing::warn!(
                            server,
                            status,
                            path = LIFE_PATH,
                            "liveness calls do not reach the server; a hung server looks like a silent one"
                        );
                    }
                    missed = Missed::default();
                }
                Answer::Closed => return Status::unavailable(CLOSED),
                Answer::Full => {
                    if self.shared.is_first_unrouted() {
                        let server = &self.server;
                        tracing::warn!(
                            server,
                            "server allows no liveness call beside a stream; a hung server looks like a silent one"
                        );
                    }
                    missed = Missed::default();
                }
                Answer::Missing(reason) => {
                    self.shared.count_unanswered();
                    self.shared.unconfirmed(Some(&mut doubts));
                    if self.incoming.last_received() > began {
                        missed = Missed::default(); // the server was busy sending
                        continue;
                    }
                    let since = *missed.since.get_or_insert(began);
                    missed.count += 1;
                    if missed.count == LIMIT {
                        let limit = humantime::format_duration(self.times.timeout);
                        let reason = reason.map_or(format!(" within {limit} each"), |reason| format!(": {reason}"));
                        let reason = format!("no answer to two calls{reason}");
                        let (server, elapsed) = (&self.server, humantime::format_duration(in_millis(since.elapsed())));
                        tracing::warn!(server, %elapsed, reason, "server does not answer; closing stream");
                        self.slot.is_silent();
                        return Status::unavailable(reason);
                    }
                }
            }
        }
    }

    /// Whether the stream is new on a connection of others on which nothing has arrived for some time: the server may hang.
    fn is_on_silent_connection(&self) -> bool {
        let is_silent = self.slot.last_received() + self.times.timeout <= Instant::now();
        self.times.interval.is_some() && self.slot.is_shared() && is_silent
    }

    /// Waits until nothing has arrived, and no call was made since `last`, for the interval, while this stream has the duty to
    /// call.
    async fn idle<'s>(&self, last: Instant, duty: &mut Option<MutexGuard<'s, ()>>)
    where
        Self: 's,
    {
        let Some(interval) = self.times.interval else { return std::future::pending().await };
        if duty.is_none() {
            *duty = Some(self.shared.duty().await);
        }
        loop {
            let due = self.incoming.last_received().max(last) + interval;
            if due <= Instant::now() {
                return;
            }
            sleep_until(due).await;
        }
    }

    /// Waits until another stream suspects the server. Never returns where calls are made on request alone.
    async fn doubted(&self, doubts: &mut Doubts) {
        match self.times.interval {
            Some(_) => doubts.next().await,
            None => std::future::pending().await,
        }
    }

    async fn call(&mut self, doubts: &mut Doubts) -> Answer {
        let (limit, shared) = (self.times.timeout, self.shared);
        let _room = match self.slot.call() {
            Ok(room) => room,
            Err(NoCall::Closed) => return Answer::Closed,
            Err(NoCall::Full) => return Answer::Full,
        };
        let mut call = pin!(timeout(limit, ask(&mut self.channel, self.metadata.clone())));
        let answer = tokio::select! {
            answer = &mut call => answer,
            () = sleep(limit / 2) => {
                // The other streams need the same time for their calls, and all of them must find a hung server in time.
                shared.unconfirmed(Some(doubts));
                call.await
            }
        };
        answer.unwrap_or(Answer::Missing(None))
    }
}

/// Calls a method that does not exist, on a path that gateways route as they route discovery.
async fn ask(channel: &mut Channel, metadata: MetadataMap) -> Answer {
    let missing = |error: &tonic::transport::Error| Answer::Missing(Some(chain(error)));
    if let Err(error) = poll_fn(|cx| channel.poll_ready(cx)).await {
        return missing(&error);
    }
    let mut request = http::Request::new(Body::new(Full::new(Bytes::from_static(&EMPTY_MESSAGE))));
    *request.method_mut() = http::Method::POST;
    *request.version_mut() = http::Version::HTTP_2;
    *request.uri_mut() = http::Uri::from_static(LIFE_PATH);
    *request.headers_mut() = metadata.into_headers();
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let (head, mut body) = match channel.call(request).await {
        Ok(response) => response.into_parts(),
        Err(error) => return missing(&error),
    };
    let mut status = grpc_status(&head.headers);
    while status.is_none() {
        match body.frame().await {
            Some(Ok(frame)) => status = frame.trailers_ref().and_then(grpc_status),
            Some(Err(error)) => return Answer::Missing(Some(chain(&error))),
            None => break,
        }
    }
    judge(head.status, status)
}

fn grpc_status(headers: &HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(|status| Code::from_bytes(status.as_bytes()))
}

/// Classifies an answer by its HTTP status and its gRPC status.
fn judge(http: StatusCode, grpc: Option<Code>) -> Answer {
    match grpc {
        Some(Code::Unavailable) => Answer::Missing(Some("the server is unavailable".into())),
        Some(_) => Answer::Own,
        // From a gateway that does not reach the server.
        None if http.is_server_error() => Answer::Missing(Some(format!("HTTP status {}", http.as_u16()))),
        None => Answer::Unrouted(http),
    }
}

/// Truncates to milliseconds, for the log.
fn in_millis(elapsed: Duration) -> Duration {
    Duration::from_millis(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX))
}

const LIFE_PATH: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/WeirIsAnyoneThere";
/// The prefix of an uncompressed message of zero bytes.
const EMPTY_MESSAGE: [u8; 5] = [0; 5];
/// Calls in a row without an answer that close a stream.
const LIMIT: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_36_a_status_of_the_server_is_an_answer_and_what_stands_before_it_gives_none() {
        for code in [0, 2, 5, 7, 12, 13, 16, 4711] {
            assert_eq!(judge(StatusCode::OK, Some(Code::from_i32(code))), Answer::Own, "{code}");
        }
        assert!(matches!(judge(StatusCode::OK, Some(Code::Unavailable)), Answer::Missing(_)));
        for http in [200, 401, 403, 404, 405] {
            let http = StatusCode::from_u16(http).unwrap();
            assert_eq!(judge(http, None), Answer::Unrouted(http));
        }
        for http in [500, 502, 503, 504] {
            assert!(matches!(judge(StatusCode::from_u16(http).unwrap(), None), Answer::Missing(_)), "{http}");
        }
    }
}
