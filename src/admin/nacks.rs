//! How clients answer, by view and type.

use axum::extract::State;
use axum::response::Response;

use super::AdminContext;
use super::answer::json;
use super::query::Query;
use crate::relay::{NackQuery, questions};

pub(super) async fn nacks(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    let (kind, limit) = (query.kind(&shown.views)?, query.limit(ROWS, MAX_ROWS)?);
    let (view, nacked) = (query.owned("view"), query.has("nacked"));
    Ok(json(&questions::nacks(&shown.views, NackQuery { kind, view, nacked, limit }).await))
}

const ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;
