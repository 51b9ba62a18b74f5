//! The REST form: `POST /v3/discovery:client_status` (CSDS-9). It changes nothing.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};
use prost::Message;

use super::status;
use crate::admin::Shown;
use crate::admin::answer::{bad_request, json, text};
use crate::admin::grpc::Status;
use crate::proto::status::ClientStatusRequest;
use crate::transcode::{Strictness, UnknownAny, parse_json};

pub(in crate::admin) async fn rest(State(shown): State<Shown>, body: Body) -> Result<Response, Response> {
    let body = Limited::new(body, LONGEST).collect().await.map_err(bad_request)?.to_bytes();
    let request = if body.is_empty() { ClientStatusRequest::default() } else { read(&shown, &body)? };
    let made = status(&shown, request).await.map_err(|status| text(http_status(&status), &status.message))?;
    let written = tokio::task::spawn_blocking(move || {
        (shown.descriptors)().to_json(RESPONSE, &made.encode_to_vec(), UnknownAny::Wrap)
    });
    match written.await {
        Ok(Ok(written)) => Ok(json(&written)),
        Ok(Err(error)) => Err(text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())),
        Err(_) => Err(text(StatusCode::INTERNAL_SERVER_ERROR, "the response could not be made")),
    }
}

#[expect(clippy::result_large_err, reason = "it is made once, and sent")]
fn read(shown: &Shown, body: &[u8]) -> Result<ClientStatusRequest, Response> {
    let read = parse_json(body).map_err(bad_request)?;
    let encoded = (shown.descriptors)().from_json(REQUEST, &read, Strictness::Lenient).map_err(bad_request)?;
    ClientStatusRequest::decode(encoded).map_err(bad_request)
}

fn http_status(status: &Status) -> StatusCode {
    match status.code {
        Status::INVALID_ARGUMENT => StatusCode::BAD_REQUEST,
        Status::RESOURCE_EXHAUSTED => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

const REQUEST: &str = "envoy.service.status.v3.ClientStatusRequest";
const RESPONSE: &str = "envoy.service.status.v3.ClientStatusResponse";
const LONGEST: usize = 64 << 10;
