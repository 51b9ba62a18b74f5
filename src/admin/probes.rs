//! What probes and scrapers of metrics read.

use axum::extract::State;
use axum::response::Response;
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};

use super::Shown;
use super::answer::{response, text};
use super::query::Query;
use crate::relay::Views;
use crate::telemetry::MetricsFormat;

pub(super) async fn healthz() -> Response {
    text(StatusCode::OK, "ok")
}

/// Returns 503 with a reason on each line while the relay is not ready.
pub(super) async fn ready(State(shown): State<Shown>, query: Query) -> Response {
    let (reasons, count) = shown.views.readiness().reasons(query.has("strict"), MAX_REASONS);
    if count == 0 {
        return text(StatusCode::OK, &ready_with_notes(&shown.views));
    }
    let mut lines: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    if count > reasons.len() {
        lines.push(format!("and {} more", count - reasons.len()));
    }
    text(StatusCode::SERVICE_UNAVAILABLE, &lines.join("\n"))
}

/// Returns what a relay that is ready says of what it serves.
fn ready_with_notes(views: &Views) -> String {
    let mut lines = vec!["ready".to_owned()];
    let (from_disk, brakes) = (views.loaded_from_disk(), &views.incidents().brakes);
    if from_disk > 0 {
        lines.push(format!("note: {from_disk} views from disk or an earlier configuration, not confirmed by a server"));
    }
    if brakes.views() > 0 {
        let held: usize = brakes.held().values().sum();
        lines.push(format!("note: brakes hold {held} removals in {} views; see /brakes", brakes.views()));
    }
    lines.join("\n")
}

pub(super) async fn metrics(State(shown): State<Shown>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::accepted(accept);
    response(StatusCode::OK, format.content_type(), (shown.metrics)(format).await.into())
}

const MAX_REASONS: usize = 100;
