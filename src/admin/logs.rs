//! The log filter.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::AdminContext;
use super::answer::{bad_request, text};
use super::query::Query;
use crate::telemetry::LogFilter;

pub(super) async fn filter(State(shown): State<AdminContext>) -> Response {
    text(StatusCode::OK, &shown.log.current().unwrap_or_else(|| "off".into()))
}

pub(super) async fn set_filter(State(shown): State<AdminContext>, query: Query) -> Response {
    let Some(filter) = query.get("filter") else {
        return bad_request("filter missing: expected POST /log?filter=debug");
    };
    match filter.parse::<LogFilter>() {
        Ok(filter) if shown.log.set(&filter) => {
            let current = shown.log.current().unwrap_or_default();
            tracing::info!(filter = current, "log filter changed");
            text(StatusCode::OK, &current)
        }
        Ok(_) => text(StatusCode::NOT_FOUND, "this process has no log of its own"),
        Err(error) => bad_request(error),
    }
}
