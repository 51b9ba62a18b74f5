//! One liveness call on the connection of a stream. It calls a method that does not exist. Where a gateway may have answered that call for the
//! server, the method of the stream itself is called too.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version};
use http_body_util::{BodyExt, Full};
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::super::connection_pool::{NoCall, StreamSlot};
use super::super::error_chain::chain;
use super::super::method_calls::CallDecision;
use super::super::server::LifeMethod;
use super::AdsConnector;
use super::frames::Incoming;
use super::methods::{DELTA_PATH, HEALTH_PATH, LIFE_PATH, SOTW_PATH};
use super::shared::NO_CALLS;
use crate::relay::KeyHeaders;

/// What calls on the connection of one stream need.
pub(super) struct LifeCalls<'a> {
    pub(crate) connector: &'a AdsConnector,
    pub(crate) slot: &'a StreamSlot,
    pub(crate) channel: Channel,
    pub(crate) incoming: Arc<Incoming>,
    /// The method of the stream.
    pub(crate) method: &'static str,
    /// The headers of clients that the stream shows. A server may judge each call by them.
    pub(crate) headers: &'a KeyHeaders,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    /// A gRPC status from the discovery server.
    Own,
    /// No call can show whether the server is there, for this reason. That is no evidence about the server.
    Unrouted(String),
    /// The server takes no more calls on the connection.
    Closed,
    /// Another call of the stream's own method is too early before this time. That is no evidence about the server.
    TooEarly(Instant),
    /// There was no answer in time, or there can be none, for this reason: for example, a gateway does not reach the server.
    Missing(Option<String>),
}

/// What a call has brought back.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Grpc(Code),
    /// A status without a message, from a program that names itself in a header and names no server behind it. gRPC servers do not name themselves.
    OfGateway(Code),
    Http(StatusCode),
    /// Data before a status.
    Data,
    Lost(Option<String>),
}

impl LifeCalls<'_> {
    /// Removes the values of the headers from a reason, which the server may have quoted.
    pub(super) fn without_values(&self, reason: String) -> String {
        self.connector.redaction(self.headers).apply(reason)
    }

    /// Makes a call for a stream that has wanted a sign of life since `asked`. If there is no room or no token for the call, the server is not
    /// asked, and nothing follows. The call of a method that does not exist is skipped if it was refused just now.
    pub(super) async fn ask(&mut self, asked: Instant, was_refused: bool) -> CallResult {
        if self.connector.life().method == LifeMethod::None {
            return CallResult::Unrouted(NO_CALLS.into());
        }
        let slot = self.slot;
        let _room = match slot.call() {
            Ok(room) => room,
            Err(NoCall::Closed) => return CallResult::Closed,
            Err(NoCall::Full) => return CallResult::Unrouted("it allows no call beside a stream".into()),
        };
        // The token of the stream's start may have expired since.
        let metadata = match timeout(self.limit(), self.connector.metadata_of(self.headers)).await {
            Ok(Ok(metadata)) => metadata,
            Ok(Err(error)) => return CallResult::Unrouted(error.message().into()),
            Err(_) => return CallResult::Unrouted("a file that is needed for a call cannot be read in time".into()),
        };
        if was_refused {
            return self.ask_own_method(asked, metadata).await;
        }
        let reply = self.call(self.path(), Full::from(&EMPTY_MESSAGE[..]), metadata.clone()).await;
        match judge(reply) {
            Judged::Answer(answer) => answer,
            Judged::Refused(_) => self.ask_own_method(asked, metadata).await,
        }
    }

    /// Returns the path of the first call.
    pub(super) fn path(&self) -> &'static str {
        match self.connector.life().method {
            LifeMethod::Health => HEALTH_PATH,
            LifeMethod::Call | LifeMethod::None => LIFE_PATH,
        }
    }

    /// Whether no stream on the connection has called the method of this one.
    pub(super) fn is_untried(&self) -> bool {
        self.slot.method_calls().is_untried(self.method)
    }

    /// Repeats a refused call with the stream's own method, which the server is known to have. The call ends before a request is sent on it.
    async fn ask_own_method(&mut self, asked: Instant, metadata: MetadataMap) -> CallResult {
        let slot = self.slot;
        let own = match slot.method_calls().leave(self.method, asked, self.limit() / PROMPT) {
            CallDecision::Call(call) => call,
            CallDecision::Answered => return CallResult::Own,
            CallDecision::TooEarly(until) => return CallResult::TooEarly(until),
        };
        let reply = match self.call(self.method, Full::default(), metadata).await {
            Reply::OfGateway(code) => Reply::Grpc(code), // it passes this method to the server: the stream is one
            reply => reply,
        };
        match judge(reply) {
            Judged::Answer(CallResult::Own) => {
                own.answered();
                self.connector.shared().own_method_was_answered();
                CallResult::Own
            }
            Judged::Answer(CallResult::Missing(reason)) => {
                // If the stream has had no response either, answers on other connections count.
                let is_silent = || !self.incoming.has_answered() && self.connector.shared().has_answered_own_method();
                match own.missed(reason.is_some() || is_silent()) {
                    true => CallResult::Missing(reason),
                    false => CallResult::Unrouted("they are refused, and an empty stream has no answer".into()),
                }
            }
            Judged::Answer(answer) => {
                own.refused();
                answer
            }
            Judged::Refused(code) => {
                own.refused();
                CallResult::Unrouted(format!("they are refused, and an empty stream too ({code:?})"))
            }
        }
    }

    async fn call(&mut self, path: &'static str, body: Full<Bytes>, metadata: MetadataMap) -> Reply {
        let exchanged = timeout(self.limit(), exchange(&mut self.channel, path, body, metadata, is_of_gateway)).await;
        exchanged.unwrap_or(Reply::Lost(None))
    }

    /// Returns how long a call may take.
    pub(super) fn limit(&self) -> Duration {
        self.connector.life().timeout
    }
}

/// Returns an error if a server has taken a connection and gives no answer of its own: neither to a call on a path that gateways route like
/// discovery, nor to an empty discovery stream. If the server judges clients by headers, it may refuse the stream: none are shown here.
pub(super) async fn is_there(
    channel: &mut Channel,
    metadata: MetadataMap,
    limit: Duration,
    judges_clients: bool,
) -> Result<(), String> {
    let life = exchange(channel, LIFE_PATH, Full::from(&EMPTY_MESSAGE[..]), metadata.clone(), names_gateway);
    match judge(timeout(limit, life).await.unwrap_or(Reply::Lost(None))) {
        Judged::Answer(CallResult::Own) => return Ok(()),
        Judged::Answer(CallResult::Missing(reason)) => return Err(reason.unwrap_or_else(|| "none in time".into())),
        Judged::Answer(_) | Judged::Refused(_) => {}
    }
    let [delta, sotw] = [DELTA_PATH, SOTW_PATH].map(|path| {
        let (mut channel, metadata) = (channel.clone(), metadata.clone());
        Box::pin(async move { stream_is_there(&mut channel, path, metadata, limit, judges_clients).await })
    });
    match select(delta, sotw).await {
        Either::Left((Ok(()), _)) | Either::Right((Ok(()), _)) => Ok(()),
        Either::Left((Err(first), other)) | Either::Right((Err(first), other)) => {
            other.await.map_err(|second| format!("{first}; {second}"))
        }
    }
}

/// Asks by an empty stream of this method whether a server is there. The error is the reason to doubt it.
async fn stream_is_there(
    channel: &mut Channel,
    path: &'static str,
    metadata: MetadataMap,
    limit: Duration,
    judges_clients: bool,
) -> Result<(), String> {
    let stream = exchange(channel, path, Full::default(), metadata, names_gateway);
    let reply = match timeout(limit, stream).await {
        Ok(Reply::OfGateway(Code::Ok)) => Reply::Grpc(Code::Ok), // it passes this method to the server
        Ok(reply) => reply,
        Err(_) => return Err("an empty stream has no answer in time".into()), // of a server behind a gateway, or of none
    };
    match judge(reply) {
        Judged::Answer(CallResult::Own) => Ok(()),
        Judged::Refused(Code::Unauthenticated | Code::PermissionDenied) if judges_clients => Ok(()),
        Judged::Refused(code) => Err(format!("a stream is refused ({code:?})")),
        Judged::Answer(CallResult::Missing(Some(reason)) | CallResult::Unrouted(reason)) => Err(reason),
        Judged::Answer(_) => Err("a stream has no answer".into()),
    }
}

/// Makes a call. `is_of_gateway` decides by the headers of the answer whether a gateway may have made it.
async fn exchange(
    channel: &mut Channel,
    path: &'static str,
    body: Full<Bytes>,
    metadata: MetadataMap,
    is_of_gateway: fn(&HeaderMap) -> bool,
) -> Reply {
    let lost = |error: &tonic::transport::Error| Reply::Lost(Some(chain(error)));
    if let Err(error) = poll_fn(|cx| channel.poll_ready(cx)).await {
        return lost(&error);
    }
    let mut request = http::Request::new(Body::new(body));
    *request.method_mut() = Method::POST;
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = Uri::from_static(path);
    *request.headers_mut() = metadata.into_headers();
    request.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    let (head, mut body) = match channel.call(request).await {
        Ok(response) => response.into_parts(),
        Err(error) => return lost(&error),
    };
    if let Some(code) = grpc_status(&head.headers) {
        return if is_of_gateway(&head.headers) { Reply::OfGateway(code) } else { Reply::Grpc(code) };
    }
    loop {
        match body.frame().await {
            Some(Ok(frame)) if frame.is_data() => return Reply::Data,
            Some(Ok(frame)) => {
                if let Some(code) = frame.trailers_ref().and_then(grpc_status) {
                    return Reply::Grpc(code);
                }
            }
            Some(Err(error)) => return Reply::Lost(Some(chain(&error))),
            None => return Reply::Http(head.status),
        }
    }
}

/// Whether a gateway seems to have made a status without asking a server, for example because it has no route for the path.
fn is_of_gateway(headers: &HeaderMap) -> bool {
    names_gateway(headers) && !headers.contains_key(Status::GRPC_MESSAGE)
}

/// Whether a gateway may have made a status, even if the status has a text.
pub(super) fn names_gateway(headers: &HeaderMap) -> bool {
    let has = |name: &str| headers.contains_key(name);
    (has("server") || has("via")) && !has("x-envoy-upstream-service-time")
}

fn grpc_status(headers: &HeaderMap) -> Option<Code> {
    headers.get(Status::GRPC_STATUS).map(|status| Code::from_bytes(status.as_bytes()))
}

#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Answer(CallResult),
    /// A gateway may have answered, because it checks callers or has no route. The server may be there or not.
    Refused(Code),
}

/// Decides who has answered, by the HTTP status and the gRPC status.
fn judge(reply: Reply) -> Judged {
    Judged::Answer(match reply {
        Reply::Grpc(Code::Unavailable) | Reply::OfGateway(Code::Unavailable) => {
            CallResult::Missing(Some("the server is unavailable".into()))
        }
        Reply::Grpc(code @ (Code::PermissionDenied | Code::Unauthenticated)) | Reply::OfGateway(code) => {
            return Judged::Refused(code);
        }
        Reply::Grpc(_) => CallResult::Own,
        // A gateway that does not reach the server answers like this.
        Reply::Http(status) if status.is_server_error() => {
            CallResult::Missing(Some(format!("HTTP status {}", status.as_u16())))
        }
        Reply::Http(status) => CallResult::Unrouted(format!("HTTP status {}", status.as_u16())),
        Reply::Data => CallResult::Own,
        Reply::Lost(reason) => CallResult::Missing(reason),
    })
}

/// For this part of the limit, a stream waits for a call of its method that another stream has begun. If there is no answer by then, the stream
/// calls by itself, and still has the time for two calls.
const PROMPT: u32 = 5;
/// The prefix of an uncompressed message of zero bytes.
const EMPTY_MESSAGE: [u8; 5] = [0; 5];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_36_a_status_of_the_server_is_an_answer_and_what_stands_before_it_gives_none() {
        for code in [0, 2, 5, 12, 13, 4711] {
            assert_eq!(judge(Reply::Grpc(Code::from_i32(code))), Judged::Answer(CallResult::Own), "{code}");
        }
        for code in [Code::PermissionDenied, Code::Unauthenticated] {
            assert_eq!(judge(Reply::Grpc(code)), Judged::Refused(code));
        }
        for code in [Code::Unimplemented, Code::Unknown, Code::PermissionDenied] {
            assert_eq!(judge(Reply::OfGateway(code)), Judged::Refused(code), "no server is asked");
        }
        for reply in [Reply::Grpc(Code::Unavailable), Reply::OfGateway(Code::Unavailable)] {
            assert!(matches!(judge(reply), Judged::Answer(CallResult::Missing(_))));
        }
        for http in [200, 401, 403, 404, 405] {
            let answer = CallResult::Unrouted(format!("HTTP status {http}"));
            assert_eq!(judge(Reply::Http(StatusCode::from_u16(http).unwrap())), Judged::Answer(answer));
        }
        for http in [500, 502, 503, 504] {
            let judged = judge(Reply::Http(StatusCode::from_u16(http).unwrap()));
            assert!(matches!(judged, Judged::Answer(CallResult::Missing(_))), "{http}");
        }
    }

    /// Answers of an Envoy and of servers behind it.
    #[test]
    fn up_36_a_status_is_of_a_gateway_that_names_itself_and_says_nothing_of_a_server() {
        let headers = |names: &[&'static str]| {
            names.iter().map(|name| ((*name).parse().unwrap(), HeaderValue::from_static("x"))).collect::<HeaderMap>()
        };
        assert!(is_of_gateway(&headers(&["grpc-status", "date", "server"])), "it has no route");
        assert!(is_of_gateway(&headers(&["grpc-status", "via"])));
        assert!(!is_of_gateway(&headers(&["grpc-status"])), "a server without a gateway");
        assert!(
            !is_of_gateway(&headers(&["grpc-status", "grpc-message", "server"])),
            "what a server says of the method"
        );
        assert!(names_gateway(&headers(&["grpc-status", "grpc-message", "server"])), "or a gateway");
        assert!(!is_of_gateway(&headers(&["grpc-status", "x-envoy-upstream-service-time", "server"])));
    }
}
