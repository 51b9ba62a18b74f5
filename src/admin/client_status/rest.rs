//! The REST form: `POST /v3/discovery:client_status` (CSDS-9). It changes nothing.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use http_body_util::{BodyExt, Limited};

use crate::admin::AdminContext;
use crate::admin::answer::{bad_request, json, text};
use crate::client_status::{Failure, LONGEST_REQUEST};
use crate::transcode::{Strictness, UnknownAny, parse_json};

pub(in crate::admin) async fn rest(State(shown): State<AdminContext>, body: Body) -> Result<Response, Response> {
    let body = Limited::new(body, LONGEST_REQUEST).collect().await.map_err(bad_request)?.to_bytes();
    let request = if body.is_empty() { Vec::new() } else { read(&shown, &body)? };
    let made = shown.client_status.answer(&request).await;
    let made = made.map_err(|failure| text(http_status(&failure), &failure.to_string()))?;
    let written = tokio::task::spawn_blocking(move || (shown.descriptors)().to_json(RESPONSE, &made, UnknownAny::Wrap));
    match written.await {
        Ok(Ok(written)) => Ok(json(&written)),
        Ok(Err(error)) => Err(text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())),
        Err(_) => Err(text(StatusCode::INTERNAL_SERVER_ERROR, "the response could not be made")),
    }
}

#[expect(clippy::result_large_err, reason = "it is made once, and sent")]
fn read(shown: &AdminContext, body: &[u8]) -> Result<Vec<u8>, Response> {
    let read = parse_json(body).map_err(bad_request)?;
    let encoded = (shown.descriptors)().from_json(REQUEST, &read, Strictness::Lenient).map_err(bad_request)?;
    Ok(encoded.into())
}

fn http_status(failure: &Failure) -> StatusCode {
    match failure {
        Failure::Invalid(_) => StatusCode::BAD_REQUEST,
        Failure::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
        Failure::Stopped => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

const REQUEST: &str = "envoy.service.status.v3.ClientStatusRequest";
const RESPONSE: &str = "envoy.service.status.v3.ClientStatusResponse";
