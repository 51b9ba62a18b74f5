//! What waits, since when and for how long at most.

use axum::extract::State;
use axum::response::Response;

use super::Shown;
use super::answer::json;

pub(super) async fn waits(State(shown): State<Shown>) -> Response {
    json(&shown.views.waits(ROWS).await.into_page())
}

const ROWS: usize = 100;
