//! Client status (CSDS) over gRPC; `rest` has the same over REST.

mod rest;

use axum::Extension;
use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::response::Response;

pub(super) use self::rest::rest;
use super::caller::Caller;
use super::grpc::{Requests, Responses, Status};
use super::guard::Effect;
use super::{AdminContext, CurrentContext};
use crate::client_status::Failure;

/// `FetchClientStatus`: one request, one response.
pub(super) async fn fetch(
    State(shown): State<CurrentContext>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Response {
    answer(shown, caller, Requests::of(body), false)
}

/// `StreamClientStatus`: one response to each request, and none without a request (CSDS-1).
pub(super) async fn stream(
    State(shown): State<CurrentContext>,
    Extension(caller): Extension<Caller>,
    body: Body,
) -> Response {
    answer(shown, caller, Requests::of(body), true)
}

fn answer(now: CurrentContext, caller: Caller, mut requests: Requests, is_stream: bool) -> Response {
    let (responses, response) = Responses::channel();
    tokio::spawn(async move {
        let status = loop {
            let request = match requests.next().await {
                Ok(Some(request)) => request,
                Ok(None) => break Status::new(Status::OK, ""),
                Err(status) => break status,
            };
            // While the stream was open, the certificate may have lost its rights, and the configuration may have changed.
            let shown = AdminContext::from_ref(&now);
            if let Err((_, reason)) = shown.rules.check_still(&caller, Effect::Read) {
                break Status::new(Status::PERMISSION_DENIED, reason);
            }
            let made = match shown.client_status.answer(&request).await {
                Ok(made) => made,
                Err(failure) => break failure.into(),
            };
            if !responses.send(&made).await {
                return; // the client has left
            }
            if !is_stream {
                break Status::new(Status::OK, "");
            }
        };
        responses.end(status).await;
    });
    response
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        let code = match &failure {
            Failure::Invalid(_) => Self::INVALID_ARGUMENT,
            Failure::TooLong(_) => Self::RESOURCE_EXHAUSTED,
            Failure::Stopped => Self::INTERNAL,
        };
        Self::new(code, failure.to_string())
    }
}
