//! Client status (CSDS): how far resources have come, for `grpcdebug` and its like.
//!
//! Without matchers it is the relay's own status, as a client of its servers; with matchers it is that of the clients that they match, as the
//! relay knows it. One response never has both (CSDS-3).

mod clients;
mod matchers;
mod own;
mod rest;
mod rows;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use prost::Message;

pub(super) use self::rest::rest;
use self::rows::Rows;
use super::Shown;
use super::caller::Caller;
use super::grpc::{Requests, Responses, Status};
use crate::proto::status::{ClientStatusRequest, ClientStatusResponse};

/// `FetchClientStatus`: one request, one response.
pub(super) async fn fetch(State(shown): State<Shown>, Extension(caller): Extension<Caller>, body: Body) -> Response {
    answer(shown, caller, Requests::of(body), false)
}

/// `StreamClientStatus`: a response to each request, and none without (CSDS-1).
pub(super) async fn stream(State(shown): State<Shown>, Extension(caller): Extension<Caller>, body: Body) -> Response {
    answer(shown, caller, Requests::of(body), true)
}

fn answer(shown: Shown, caller: Caller, mut requests: Requests, is_stream: bool) -> Response {
    let (responses, response) = Responses::channel();
    tokio::spawn(async move {
        let status = loop {
            let request = match requests.next().await {
                Ok(Some(request)) => ClientStatusRequest::decode(request),
                Ok(None) => break Status::new(Status::OK, ""),
                Err(status) => break status,
            };
            // A stream may outlive what its certificate may do.
            if let Err((_, reason)) = shown.rules.check_reader(&caller) {
                break Status::new(Status::PERMISSION_DENIED, reason);
            }
            let made = match request {
                Ok(request) => status(&shown, request).await,
                Err(error) => Err(Status::new(Status::INVALID_ARGUMENT, error.to_string())),
            };
            let made = match made {
                Ok(made) => made.encode_to_vec(),
                Err(status) => break status,
            };
            if !responses.send(&made).await {
                return; // the client is gone
            }
            if !is_stream {
                break Status::new(Status::OK, "");
            }
        };
        responses.end(status).await;
    });
    response
}

/// Makes one response. One is made at a time: they may be large.
async fn status(shown: &Shown, request: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
    let stopped = || Status::new(Status::INTERNAL, "the response could not be made");
    let _place = shown.statuses.acquire().await.map_err(|_| stopped())?;
    let excludes_contents = request.exclude_resource_contents;
    let rows = Rows::new((!excludes_contents).then(|| shown.descriptors.clone()));
    let config = match request.node_matchers.is_empty() {
        true => own::configs(&shown.views, rows).await,
        false => {
            let matchers = matchers::Matchers::of(&request.node_matchers)?;
            clients::configs(&shown.views, Arc::new(matchers), rows).await
        }
    };
    config.ok_or_else(stopped)?.map(|config| ClientStatusResponse { config })
}
