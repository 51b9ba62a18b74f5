//! Removals that brakes hold.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::AdminContext;
use super::answer::{bad_request, json, text};
use super::query::Query;
use crate::plural::plural;
use crate::relay::{ReleaseQuery, Released, questions};

pub(super) async fn held(State(shown): State<AdminContext>) -> Response {
    json(&questions::brakes(&shown.views).await)
}

/// Releases removals that brakes hold: those of one view, or all that one server has made.
pub(super) async fn release(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    let kind = query.kind(&shown.views)?;
    let Some(Ok(generation)) = query.get("generation").map(str::parse) else {
        return Err(bad_request("generation missing or invalid: expected the number that /brakes shows"));
    };
    let (view, server) = (query.owned("view"), query.owned("server"));
    if view.is_some() == server.is_some() {
        return Err(bad_request("expected either view or server"));
    }
    let query = ReleaseQuery { view, kind, server, generation };
    let released = questions::release(&shown.views, &query).await;
    let (view, server) = (query.view.as_deref(), query.server.as_deref());
    tracing::warn!(view, server, generation, removals = released.removals, "operator released held removals");
    Ok(match released {
        Released { removals: 0, later: 0, .. } => text(StatusCode::NOT_FOUND, "nothing is held there"),
        Released { removals: 0, .. } => {
            text(StatusCode::CONFLICT, "all that is held there was held later; /brakes shows the present generation")
        }
        Released { removals, views, .. } => {
            text(StatusCode::OK, &format!("released {} in {}", plural(removals, "removal"), plural(views, "view")))
        }
    })
}
