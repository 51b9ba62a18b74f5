//! The answers to clients that exceed a limit: which limit it is, and its value.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use weir_core::proto::code;

use super::slot::Status;
use crate::limit::Limit;
use crate::memory::NoRoom;

/// Why a request is rejected, with the status for REST and for gRPC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    grpc: i32,
    message: String,
}

impl Refusal {
    pub(crate) fn too_many_connections(limit: usize) -> Self {
        let key = Limit::Connections.key();
        let message = format!("too many connections: the limit is {limit} ({key}); retry later");
        Self { grpc: EXHAUSTED, status: StatusCode::SERVICE_UNAVAILABLE, message }
    }

    pub(crate) fn too_many_from_address(limit: usize) -> Self {
        let key = Limit::ConnectionsPerAddress.key();
        let message = format!("too many connections from one address: the limit is {limit} ({key}); close some");
        Self { grpc: EXHAUSTED, status: StatusCode::TOO_MANY_REQUESTS, message }
    }

    pub(crate) fn too_many_of_identity(limit: usize) -> Self {
        let key = Limit::ConnectionsPerIdentity.key();
        let message = format!("too many connections of one identity: the limit is {limit} ({key}); close some");
        Self { grpc: EXHAUSTED, status: StatusCode::TOO_MANY_REQUESTS, message }
    }

    pub(crate) fn too_many_streams_of_identity(limit: usize) -> Self {
        let key = Limit::StreamsPerIdentity.key();
        let message = format!("too many streams of one identity: the limit is {limit} ({key}); close some");
        Self { grpc: EXHAUSTED, status: StatusCode::TOO_MANY_REQUESTS, message }
    }

    pub(crate) fn too_many_streams(limit: usize) -> Self {
        let key = Limit::Streams.key();
        let message = format!("too many streams: the limit for all clients is {limit} ({key}); retry later");
        Self { grpc: EXHAUSTED, status: StatusCode::SERVICE_UNAVAILABLE, message }
    }

    pub(crate) fn no_memory(why: &NoRoom) -> Self {
        Self { grpc: EXHAUSTED, status: StatusCode::SERVICE_UNAVAILABLE, message: why.to_string() }
    }

    pub(crate) fn headers_too_large(bytes: usize, limit: usize) -> Self {
        let key = Limit::HeaderBytes.key();
        let message = format!("headers too large: {bytes} bytes, the limit is {limit} ({key})");
        Self { grpc: EXHAUSTED, status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message }
    }

    /// The client failed a later judgement, and has to end.
    pub(crate) fn judged(verdict: &Status) -> Self {
        let status = match verdict.code {
            code::UNAUTHENTICATED => StatusCode::UNAUTHORIZED,
            code::UNAVAILABLE => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::FORBIDDEN,
        };
        Self { status, grpc: verdict.code, message: verdict.message.clone() }
    }

    pub(crate) fn grpc(self) -> Status {
        Status { code: self.grpc, message: self.message }
    }

    pub(crate) fn rest(self) -> Response<Bytes> {
        let Self { status, grpc, message } = self;
        let body = serde_json::json!({"code": status.as_u16(), "message": message});
        let mut response = Response::new(Bytes::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if grpc == EXHAUSTED && status != StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("10"));
        }
        response
    }
}

/// A limit is reached.
const EXHAUSTED: i32 = code::RESOURCE_EXHAUSTED;
