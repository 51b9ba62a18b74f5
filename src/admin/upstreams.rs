//! What views say of themselves and their servers.

use axum::extract::State;
use axum::response::Response;

use super::Shown;
use super::answer::json;

pub(super) async fn upstreams(State(shown): State<Shown>) -> Response {
    json(&shown.views.report().await)
}

pub(super) async fn dangling(State(shown): State<Shown>) -> Response {
    json(&shown.views.dangling().await)
}
