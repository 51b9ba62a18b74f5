//! `/clients`, `/clients/ID`, `/laggards`, `/diff` and `/explain`.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use super::{Query, json, text};
use crate::relay::{ClientQuery, ExplainQuery, UnknownState, Views};
use crate::xds::Name;

type Answer = Result<Response<Full<Bytes>>, Response<Full<Bytes>>>;

/// Returns a page of client streams.
pub(super) async fn page(query: &Query, views: &Views) -> Answer {
    Ok(json(&views.clients(&client_query(query, views)?).await))
}

/// Returns the clients that have lacked something for longest.
pub(super) async fn laggards(query: &Query, views: &Views) -> Answer {
    Ok(json(&views.laggards(&client_query(query, views)?).await))
}

/// Returns one client stream by its number.
pub(super) fn one(id: &str, views: &Views) -> Answer {
    let session = id.parse().map_err(|_| text(StatusCode::BAD_REQUEST, "invalid session: expected a number"))?;
    let client = views.client(session).ok_or_else(not_found)?;
    Ok(json(&client.report()))
}

/// Compares what clients were sent with what there is for them.
pub(super) async fn differences(query: &Query, views: &Views) -> Answer {
    let reports = find(query, views).await?;
    Ok(json(&reports.iter().filter_map(|id| Some(views.client(*id)?.differences())).collect::<Vec<_>>()))
}

/// Explains why clients have a resource, or lack it.
pub(super) async fn explain(query: &Query, views: &Views) -> Answer {
    let (Some(kind), Some(name)) = (query.get("type"), query.get("name")) else {
        return Err(text(StatusCode::BAD_REQUEST, "type or name missing: expected ?client=ID&type=clusters&name=NAME"));
    };
    let kind = views.type_of(kind).map_err(|error| text(StatusCode::BAD_REQUEST, &error.to_string()))?;
    let name = Name::canonical(name);
    let mut explanations = Vec::new();
    for session in find(query, views).await? {
        let query = ExplainQuery { session, kind: kind.clone(), name: name.clone() };
        explanations.extend(views.explain(&query).await);
    }
    if explanations.is_empty() { Err(not_found()) } else { Ok(json(&explanations)) }
}

/// Returns the streams of the client in question: a session, or a node with all its streams.
async fn find(query: &Query, views: &Views) -> Result<Vec<u64>, Response<Full<Bytes>>> {
    let Some(client) = query.get("client") else {
        return Err(text(
            StatusCode::BAD_REQUEST,
            "client missing: expected the number of a session or the id of a node",
        ));
    };
    let sessions = match client.parse().ok().filter(|id| views.client(*id).is_some()) {
        Some(session) => vec![session],
        None => {
            let of_node = ClientQuery { node: Some(client.to_owned()), limit: MAX_PAGE, ..ClientQuery::default() };
            let page = views.clients(&of_node).await;
            page.clients
                .iter()
                .filter(|found| found.node == client)
                .map(|found| found.session)
                .take(MAX_STREAMS)
                .collect()
        }
    };
    if sessions.is_empty() { Err(not_found()) } else { Ok(sessions) }
}

fn client_query(query: &Query, views: &Views) -> Result<ClientQuery, Response<Full<Bytes>>> {
    let bad = |reason: &str| text(StatusCode::BAD_REQUEST, reason);
    let kind =
        query.get("type").map(|text| views.type_of(text)).transpose().map_err(|error| bad(&error.to_string()))?;
    let state = query.get("state").map(str::parse).transpose();
    let state = state.map_err(|error: UnknownState| bad(&error.to_string()))?;
    let Ok(limit @ 1..=MAX_PAGE) = query.get("limit").map_or(Ok(PAGE), str::parse) else {
        return Err(bad(&format!("invalid limit: expected a number from 1 to {MAX_PAGE}")));
    };
    let Ok(after) = query.get("after").map_or(Ok(0), str::parse) else {
        return Err(bad("invalid after: expected the number that the page before has as next"));
    };
    let of = |key| query.get(key).map(str::to_owned);
    Ok(ClientQuery { node: of("node"), identity: of("identity"), view: of("view"), kind, state, limit, after })
}

fn not_found() -> Response<Full<Bytes>> {
    text(StatusCode::NOT_FOUND, "no such client; /clients lists all")
}

const PAGE: usize = 100;
const MAX_PAGE: usize = 1_000;
/// How many streams of one node are shown together.
const MAX_STREAMS: usize = 20;
