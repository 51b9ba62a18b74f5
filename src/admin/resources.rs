//! The resources of the views, page by page.

use axum::extract::State;
use axum::response::Response;
use weir_core::xds::Name;

use super::AdminContext;
use super::answer::json;
use super::query::Query;
use crate::relay::{ResourceQuery, questions};

pub(super) async fn page(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    let (kind, limit) = (query.kind(&shown.views)?, query.limit(PAGE, MAX_PAGE)?);
    let name = query.get("name").map(Name::canonical);
    let (contains, view, after) = (query.owned("contains"), query.owned("view"), query.owned("after"));
    Ok(json(&questions::resources(&shown.views, ResourceQuery { kind, name, contains, view, limit, after }).await))
}

const PAGE: usize = 100;
const MAX_PAGE: usize = 10_000;
