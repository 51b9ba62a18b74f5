//! The clients: pages of them, a single client, what clients lack, and why.

use axum::extract::{Path, State};
use axum::response::Response;
use http::StatusCode;
use weir_core::xds::Name;

use super::AdminContext;
use super::answer::{bad_request, json, text};
use super::query::Query;
use crate::relay::{ClientQuery, ExplainQuery, UnknownState, Views, questions};

pub(super) async fn page(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    Ok(json(&questions::clients(&shown.views, &client_query(&query, &shown.views)?).await))
}

pub(super) async fn laggards(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    Ok(json(&questions::laggards(&shown.views, &client_query(&query, &shown.views)?).await))
}

pub(super) async fn one(State(shown): State<AdminContext>, Path(session): Path<String>) -> Result<Response, Response> {
    let session = session.parse().map_err(|_| bad_request("invalid session: expected a number"))?;
    let client = questions::client(&shown.views, session).ok_or_else(not_found)?;
    Ok(json(&client))
}

pub(super) async fn differences(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    let sessions = find(&query, &shown.views).await?;
    let reports = sessions.into_iter().filter_map(|session| questions::differences(&shown.views, session));
    Ok(json(&reports.collect::<Vec<_>>()))
}

pub(super) async fn explain(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    let (Some(kind), Some(name)) = (query.kind(&shown.views)?, query.get("name").map(Name::canonical)) else {
        return Err(bad_request("type or name missing: expected ?client=ID&type=clusters&name=NAME"));
    };
    let sessions = find(&query, &shown.views).await?;
    let explanations = questions::explain(&shown.views, &ExplainQuery { sessions, kind, name }).await;
    if explanations.is_empty() { Err(not_found()) } else { Ok(json(&explanations)) }
}

/// Returns the streams of the client in question: a session, or a node with all its streams.
async fn find(query: &Query, views: &Views) -> Result<Vec<u64>, Response> {
    let Some(client) = query.get("client") else {
        return Err(bad_request("client missing: expected the number of a session or the id of a node"));
    };
    let sessions = match client.parse().ok().filter(|id| questions::is_open(views, *id)) {
        Some(session) => vec![session],
        None => questions::sessions_of(views, client, MAX_STREAMS).await,
    };
    if sessions.is_empty() { Err(unknown(views, client).await) } else { Ok(sessions) }
}

#[expect(clippy::result_large_err, reason = "it is made once, and sent")]
fn client_query(query: &Query, views: &Views) -> Result<ClientQuery, Response> {
    let state = query.get("state").map(str::parse).transpose();
    let state = state.map_err(|error: UnknownState| bad_request(error))?;
    let Ok(after) = query.get("after").map_or(Ok(0), str::parse) else {
        return Err(bad_request("invalid after: expected the number that the page before has as next"));
    };
    let (kind, limit) = (query.kind(views)?, query.limit(PAGE, MAX_PAGE)?);
    let (node, identity, view) = (query.owned("node"), query.owned("identity"), query.owned("view"));
    Ok(ClientQuery { node, identity, view, kind, state, limit, after })
}

/// Returns the response for an unknown client, with the names of clients that are probably meant.
async fn unknown(views: &Views, client: &str) -> Response {
    let similar = questions::similar_nodes(views, client).await;
    let hint =
        if similar.is_empty() { String::new() } else { format!("; connected: {}", similar.join(", ").escape_debug()) };
    text(StatusCode::NOT_FOUND, &format!("{NOT_FOUND}{hint}"))
}

fn not_found() -> Response {
    text(StatusCode::NOT_FOUND, NOT_FOUND)
}

const NOT_FOUND: &str =
    "no such client: expected the number of a session or the id of a node, as /clients and weir status have them";

const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;
/// How many streams of one node are shown at most.
const MAX_STREAMS: usize = 20;
