//! Sources that are files, and clients that poll.

use axum::extract::State;
use axum::response::Response;

use super::AdminContext;
use super::answer::json;
use crate::upstream::FilesSource;

pub(super) async fn files(State(shown): State<AdminContext>) -> Response {
    json(&shown.files.iter().map(FilesSource::report).collect::<Vec<_>>())
}

pub(super) async fn rest(State(shown): State<AdminContext>) -> Response {
    json(&shown.rest.as_ref().map(|rest| rest.report()))
}
