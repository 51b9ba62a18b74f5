//! Parses HTTP requests, and rejects invalid ones.

use std::fmt::Display;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Body;
use prost::Message;
use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::xds::RestPath;

use super::rejection::Rejection;
use crate::compression::{ACCEPTED, Encoding, InflateError};
use crate::downstream::incomplete::{Inbound, Incomplete};
use crate::downstream::inflate::{NotInflated, inflate};
use crate::downstream::slot::Status;
use crate::transcode::{Strictness, Transcoder};

/// Checks the head of a request. If it is rejected, the body is not read.
pub(super) fn check_head(head: &Parts, v2: bool, limit: usize) -> Result<RestPath, Rejection> {
    let path = head.uri.path();
    let known = RestPath::of(path).filter(|known| v2 || !known.v2);
    let Some(known) = known else {
        let words = RestPath::words();
        let message = format!(
            "{path} is not served; REST has /v3/discovery:<word> with one of {words}, and everything else is for gRPC, over HTTP/2"
        );
        return Err(Rejection::new(StatusCode::NOT_FOUND, message));
    };
    if head.method != Method::POST {
        return Err(Rejection::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!("invalid method {}: expected POST", head.method),
        ));
    }
    let unsupported = |message: &str| Err(Rejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    if !head.headers.get(CONTENT_TYPE).is_none_or(|kind| is_json(kind.as_bytes())) {
        return unsupported("invalid content-type: expected application/json");
    }
    if let Encoding::Other(name) = Encoding::of(&head.headers, CONTENT_ENCODING.as_str()) {
        return unsupported(&format!("content-encoding {name:?} is not supported: expected one of {ACCEPTED}"));
    }
    if stated_length(&head.headers).is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    Ok(known)
}

/// Adds the headers that a response with this status must have.
pub(super) fn say_beside(status: StatusCode, headers: &mut HeaderMap) {
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("POST"));
    }
    if status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
    }
    if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
    }
}

fn is_json(kind: &[u8]) -> bool {
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default();
    essence.trim_ascii().eq_ignore_ascii_case(b"application/json")
}

fn stated_length(headers: &HeaderMap) -> Option<usize> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large(limit: usize) -> Rejection {
    Rejection::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("request too large: limit {limit} bytes (limits.message_bytes)"),
    )
}

/// Reads the complete body, within its time and the limits for one message and for all incomplete requests.
pub(super) async fn read_body(
    body: impl Body<Data = Bytes, Error: Display> + Unpin,
    limit: usize,
    inbound: &Inbound,
    incomplete: &mut Incomplete,
) -> Result<Bytes, Rejection> {
    let late = || Rejection::new(StatusCode::REQUEST_TIMEOUT, "request incomplete");
    inbound.clock().within(BODY, collect(body, limit, incomplete)).await.ok_or_else(late)?
}

async fn collect(
    mut body: impl Body<Data = Bytes, Error: Display> + Unpin,
    limit: usize,
    incomplete: &mut Incomplete,
) -> Result<Bytes, Rejection> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = incomplete.more(body.frame()).await.map_err(too_many)? {
        let frame = frame.map_err(|error| Rejection::bad_request(format!("request incomplete: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&data);
        incomplete.grow_to(bytes.len()).map_err(too_many)?;
    }
    Ok(bytes.freeze())
}

/// Inflates a body if it is compressed.
pub(super) async fn inflated(
    head: &Parts,
    body: Bytes,
    limit: usize,
    incomplete: &mut Incomplete,
) -> Result<Bytes, Rejection> {
    if Encoding::of(&head.headers, CONTENT_ENCODING.as_str()) == Encoding::Identity {
        return Ok(body);
    }
    inflate(body, limit, incomplete).await.map_err(|why| match why {
        NotInflated::NoRoom(status) => too_many(status),
        NotInflated::Unreadable(InflateError::TooLarge { limit }) => too_large(limit),
        NotInflated::Unreadable(error) => Rejection::bad_request(format!("invalid body: {error}")),
    })
}

/// A part of the request is longer than its own limit.
pub(super) fn too_long(status: Status) -> Rejection {
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, status.message)
}

/// The requests of all clients take too much memory.
pub(super) fn too_many(status: Status) -> Rejection {
    Rejection::unavailable(status.message)
}

/// Ignores unknown fields (TRN-15), nonces and errors: a poll has no stream to which the last two could refer (REST-4, REST-7).
pub(super) fn parse(body: &[u8], transcoder: &Transcoder) -> Result<DiscoveryRequest, Rejection> {
    let unreadable =
        |reason: String| Rejection::bad_request(format!("invalid body: expected a DiscoveryRequest in JSON: {reason}"));
    let mut json: serde_json::Value = serde_json::from_slice(body).map_err(|error| unreadable(error.to_string()))?;
    if let Some(fields) = json.as_object_mut() {
        for unheard in ["errorDetail", "error_detail", "responseNonce", "response_nonce"] {
            fields.remove(unheard);
        }
    }
    let message = transcoder.from_json(REQUEST, &json, Strictness::Lenient);
    let message = message.map_err(|error| unreadable(error.to_string()))?;
    DiscoveryRequest::decode(message).map_err(|error| unreadable(error.to_string()))
}

const REQUEST: &str = "envoy.service.discovery.v3.DiscoveryRequest";
/// The time limit for the body of a request, without that in which the connection is not read.
const BODY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::stream;
    use http_body_util::StreamBody;
    use hyper::body::Frame;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::downstream::incomplete::IncompleteRequests;
    use crate::downstream::sent_ahead::{SentAhead, UnreadConnection};

    #[tokio::test(start_paused = true)]
    async fn no_body_is_late_while_its_connection_is_not_read() {
        let ahead = Arc::<SentAhead>::default();
        let inbound = IncompleteRequests::new(1 << 10, 0, Arc::default()).connection_with(ahead.clone());
        let mut incomplete = inbound.begin();
        let body_after = |time: Duration| {
            let content = Box::pin(async move {
                sleep(time).await;
                Ok::<_, &str>(Frame::data(Bytes::from_static(b"{}")))
            });
            StreamBody::new(stream::once(content))
        };
        let unread = UnreadConnection::begin(ahead);
        let body = read_body(body_after(BODY * 4 / 3), 1 << 10, &inbound, &mut incomplete).await;
        assert_eq!(body.ok().as_deref(), Some(&b"{}"[..]), "only the relay has waited");
        drop(unread);
        let _paused = inbound.pause(); // another stream, which leaves room
        let begun = Instant::now();
        let late = read_body(body_after(BODY * 4 / 3), 1 << 10, &inbound, &mut incomplete).await;
        assert_eq!(late.err().map(|late| late.status), Some(StatusCode::REQUEST_TIMEOUT), "it is read again");
        assert_eq!(begun.elapsed().as_secs(), BODY.as_secs());
    }
}
