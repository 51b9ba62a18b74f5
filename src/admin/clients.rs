//! The clients.

use axum::extract::State;
use axum::response::Response;

use super::Shown;
use super::answer::json;

pub(super) async fn clients(State(shown): State<Shown>) -> Response {
    let views = shown.views.report().await;
    json(&views.into_iter().flat_map(|(_, clients)| clients).collect::<Vec<_>>())
}
