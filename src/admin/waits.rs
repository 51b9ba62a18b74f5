//! The open waits: since when, and for how long at most.

use axum::extract::State;
use axum::response::Response;

use super::AdminContext;
use super::answer::json;
use crate::relay::questions;

pub(super) async fn waits(State(shown): State<AdminContext>) -> Response {
    json(&questions::waits(&shown.views, ROWS).await.into_page())
}

const ROWS: usize = 100;
