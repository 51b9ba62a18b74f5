//! The views, and the state of their servers.

use axum::extract::State;
use axum::response::Response;

use super::AdminContext;
use super::answer::json;
use crate::relay::questions;

pub(super) async fn upstreams(State(shown): State<AdminContext>) -> Response {
    json(&questions::report(&shown.views).await)
}

pub(super) async fn dangling(State(shown): State<AdminContext>) -> Response {
    json(&questions::dangling(&shown.views).await)
}
