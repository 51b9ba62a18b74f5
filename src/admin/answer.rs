//! Responses.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

pub(super) fn json(value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec_pretty(value) {
        Ok(mut body) => {
            body.push(b'\n');
            response(StatusCode::OK, "application/json", body.into())
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Returns a response with one or more lines of text. The last line break is added here.
pub(super) fn text(status: StatusCode, body: &str) -> Response {
    response(status, "text/plain; charset=utf-8", format!("{body}\n").into())
}

pub(super) fn bad_request(reason: impl std::fmt::Display) -> Response {
    text(StatusCode::BAD_REQUEST, &reason.to_string())
}

pub(super) fn response(status: StatusCode, content: &'static str, body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}
