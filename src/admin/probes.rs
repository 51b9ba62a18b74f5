//! The pages for probes and for scrapers of metrics.

use axum::extract::State;
use axum::response::Response;
use http::header::ACCEPT;
use http::{HeaderMap, StatusCode};

use super::answer::{response, text};
use super::probe_values::ProbeValues;
use super::query::Query;
use crate::plural::plural;
use crate::telemetry::MetricsFormat;

/// Returns 503 while the worker threads or a shard hang.
pub(super) async fn healthz(State(values): State<ProbeValues>) -> Response {
    match values.workers.hang() {
        None => text(StatusCode::OK, "ok"),
        Some(reason) => text(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

/// Returns 503 with a reason on each line while the relay is not ready.
pub(super) async fn ready(State(values): State<ProbeValues>, query: Query) -> Response {
    let (reasons, count) = values.readiness.reasons(query.has("strict"), MAX_REASONS);
    if count == 0 {
        return text(StatusCode::OK, &ready_with_notes(&values));
    }
    let mut lines: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    if count > reasons.len() {
        lines.push(format!("and {} more", count - reasons.len()));
    }
    text(StatusCode::SERVICE_UNAVAILABLE, &lines.join("\n"))
}

/// Returns the text of a ready relay, with notes about what it serves.
fn ready_with_notes(values: &ProbeValues) -> String {
    let mut lines = vec!["ready".to_owned()];
    let (from_disk, brakes) = (values.views_from_disk(), &values.brakes);
    if from_disk > 0 {
        let views = plural(from_disk, "view");
        lines.push(format!("note: {views} from disk or an earlier configuration, not confirmed by a server"));
    }
    if brakes.views() > 0 {
        let held: usize = brakes.held().values().sum();
        let (removals, views) = (plural(held, "removal"), plural(brakes.views(), "view"));
        lines.push(format!("note: brakes hold {removals} in {views}; see /brakes"));
    }
    lines.join("\n")
}

pub(super) async fn metrics(State(values): State<ProbeValues>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::accepted(accept);
    let Ok(_waits) = values.scrapes.try_acquire() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "too many scrapes are waiting for a page; retry");
    };
    match values.metrics.page(format).await {
        Some(page) => response(StatusCode::OK, format.content_type(), page),
        None => text(StatusCode::SERVICE_UNAVAILABLE, "the worker threads have not answered in time"),
    }
}

const MAX_REASONS: usize = 100;
