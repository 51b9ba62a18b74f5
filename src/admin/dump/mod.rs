//! Resources with their content, in the form of Envoy's `/config_dump`: those of a view, or those that one client was sent.
//!
//! A thread writes a dump from immutable states, piece by piece as its reader takes it. It has no secrets.

mod mask;
mod sections;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use self::mask::Mask;
use self::writer::{Pieces, Source, Writer};
use super::AdminContext;
use super::answer::{bad_request, text};
use super::query::Query;
use crate::relay::questions;

/// The parts of a dump that are requested.
struct Wanted {
    /// The only requested list, such as `dynamic_listeners`.
    resource: Option<String>,
    mask: Option<Mask>,
    include_eds: bool,
}

/// Limits how many dumps are made at a time.
pub(crate) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(AT_A_TIME))
}

pub(super) async fn dump(State(shown): State<AdminContext>, query: Query) -> Result<Response, Response> {
    let wanted = wanted(&query)?;
    let Ok(place) = shown.dumps.clone().try_acquire_owned() else {
        let reason = format!("{AT_A_TIME} dumps are being made, which is the limit: try again");
        let mut busy = text(StatusCode::TOO_MANY_REQUESTS, &reason);
        busy.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        return Err(busy);
    };
    let source = source(&shown, &query).await?;
    let (to, from) = mpsc::channel(PIECES);
    let is_whole = Arc::new(AtomicBool::new(false));
    let mut pieces = Pieces::new(to, Handle::current());
    let (descriptors, whole) = (shown.descriptors.clone(), is_whole.clone());
    tokio::task::spawn_blocking(move || {
        let _place = place;
        let transcoder = descriptors();
        let written = Writer { transcoder: &transcoder, source: &source, wanted: &wanted }.write(&mut pieces);
        whole.store(written.is_some(), Ordering::Release);
    });
    // An incomplete dump must not look complete to a reader that was too slow.
    let end = stream::once(async move {
        match is_whole.load(Ordering::Acquire) {
            true => Ok(bytes::Bytes::new()),
            false => Err(io::Error::new(io::ErrorKind::TimedOut, "the dump was not read in time")),
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(from).map(Ok).chain(end)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

#[expect(clippy::result_large_err, reason = "it is made once, and sent")]
fn wanted(query: &Query) -> Result<Wanted, Response> {
    let resource = query.owned("resource");
    if let Some(unknown) = resource.as_ref().filter(|list| !sections::lists().any(|known| known == **list)) {
        let known = sections::lists().collect::<Vec<_>>().join(", ");
        return Err(bad_request(format_args!("unknown resource {unknown:?}: expected one of {known}")));
    }
    let include_eds = query.has("include_eds") || resource.as_deref() == Some(sections::ENDPOINTS);
    Ok(Wanted { resource, mask: query.get("mask").map(Mask::parse), include_eds })
}

async fn source(shown: &AdminContext, query: &Query) -> Result<Source, Response> {
    match (query.get("client"), query.get("view")) {
        (Some(client), None) => {
            let expected = || bad_request("invalid client: expected the number of a session that /clients shows");
            let session = client.parse().map_err(|_| expected())?;
            let found = questions::client_of(&shown.views, session).await;
            let unknown = || text(StatusCode::NOT_FOUND, "unknown client: /clients lists the sessions that there are");
            let client = found.ok_or_else(unknown)?;
            Ok(Source { snapshot: client.snapshot.clone(), now: client.now, client: Some(client) })
        }
        (None, Some(view)) => {
            let found = questions::snapshot_of(&shown.views, view).await;
            let unknown = || text(StatusCode::NOT_FOUND, "unknown view: /upstreams lists the views that there are");
            found.map(|view| Source { client: None, snapshot: view.snapshot, now: view.now }).ok_or_else(unknown)
        }
        _ => Err(bad_request("expected client=SESSION, as in /clients, or view=HASH, as in /upstreams")),
    }
}

const AT_A_TIME: usize = 2;
/// The number of pieces that may wait for the reader.
const PIECES: usize = 2;
