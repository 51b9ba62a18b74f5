//! What is wrong now.

use std::time::Instant;

use axum::extract::State;
use axum::response::Response;

use super::AdminContext;
use super::answer::json;
use super::query::Query;

pub(super) async fn problems(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    let limit = query.limit(MOST, MOST)?;
    Ok(json(&shown.views.incidents().problems.page(limit, Instant::now())))
}

/// The maximum number of problems on one page.
pub(super) const MOST: usize = 200;
