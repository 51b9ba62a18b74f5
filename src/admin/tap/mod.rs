//! `/tap`: the requests and replies of one client live, a line of JSON for each.

mod line;

use std::convert::Infallible;
use std::time::{Duration, SystemTime};

use axum::Extension;
use axum::body::Body;
use axum::extract::{FromRef, State};
use axum::response::Response;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use super::answer::{bad_request, text};
use super::caller::Caller;
use super::guard::Effect;
use super::query::Query;
use super::{AdminContext, CurrentContext};
use crate::relay::questions;
use crate::relay::taps::{MAX_TAPS, OpenedStream, Taken, TapReader, TapWhat};

/// One use of a tap for the log: the caller, the client, and how much was sent.
struct Use {
    by: String,
    client: String,
    full: bool,
    lines: u64,
    dropped: u64,
}

/// The stream of lines to the caller.
struct Lines {
    to: mpsc::Sender<Frame<Bytes>>,
    now: CurrentContext,
    caller: Caller,
    /// The sessions in the first line. One that opens meanwhile may be listed there and come as an event too.
    listed: Vec<u64>,
}

/// Sends lines until the caller leaves or loses the right to see them, or the relay drains.
pub(super) async fn tap(
    State(now): State<CurrentContext>,
    Extension(caller): Extension<Caller>,
    query: Query,
) -> Result<Response, Response> {
    let Some(client) = query.get("client").filter(|client| !client.is_empty()) else {
        return Err(bad_request("client missing: expected the number of a session or the id of a node"));
    };
    let full = query.has("full");
    let shown = AdminContext::from_ref(&now);
    let Some((reader, streams)) = questions::tap(&shown.views, client, full).await else { return Err(too_many()) };
    let mut used = Use { by: caller.peer.to_string(), client: client.to_owned(), full, lines: 0, dropped: 0 };
    used.log_begin();
    let (to, from) = mpsc::channel(1);
    let first = beginning(client, full, &streams);
    let listed = streams.iter().take(MAX_STREAMS).map(|stream| stream.session).collect();
    tokio::spawn(async move {
        let lines = Lines { to, now, caller, listed };
        let reason = lines.send_all(first, &reader, &mut used).await;
        drop(reader);
        used.log_end(reason);
    });
    let frames = ReceiverStream::new(from).map(Ok::<_, Infallible>);
    let mut response = Response::new(Body::new(StreamBody::new(frames)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

fn too_many() -> Response {
    let reason = format!("too many taps: the limit is {MAX_TAPS}; end another one");
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, &reason);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("10"));
    response
}

/// Returns the first line, with the client's open streams.
fn beginning(client: &str, full: bool, streams: &[OpenedStream]) -> Json {
    let shown: Vec<_> = streams.iter().take(MAX_STREAMS).map(line::of_stream).collect();
    json!({
        "at": line::time(SystemTime::now()),
        "event": "tap",
        "client": client,
        "full": full,
        "connected": !streams.is_empty(),
        "count": streams.len(),
        "streams": shown,
    })
}

impl Lines {
    /// Sends all lines, and returns why they end.
    async fn send_all(&self, first: Json, reader: &TapReader, used: &mut Use) -> &'static str {
        if !self.send(first).await {
            return LEFT;
        }
        loop {
            let taken = tokio::select! {
                taken = reader.next() => Some(taken),
                () = self.to.closed() => return LEFT,
                () = tokio::time::sleep(LOOKS) => None,
            };
            // The tap may outlive the rights of its caller's certificate, and the configuration.
            let shown = AdminContext::from_ref(&self.now);
            if shown.rules.check_still(&self.caller, Effect::Tap).is_err() {
                return "the caller may not tap any more";
            }
            if let Some(taken) = taken
                && !self.send_taken(taken, &shown, used).await
            {
                return LEFT;
            }
            if shown.views.readiness().is_draining() {
                let reason = "the relay drains";
                let last = json!({"at": line::time(SystemTime::now()), "event": "end", "reason": reason});
                self.send(last).await;
                return reason;
            }
        }
    }

    /// Returns false if the caller has left.
    async fn send_taken(&self, Taken { dropped, event }: Taken, shown: &AdminContext, used: &mut Use) -> bool {
        if dropped > 0 {
            used.dropped += dropped;
            let line = json!({"at": line::time(SystemTime::now()), "event": "dropped", "dropped": dropped});
            if !self.send(line).await {
                return false;
            }
        }
        let Some(event) = event.filter(|event| !is_listed(&event.what, &self.listed)) else { return true };
        used.lines += 1;
        let line = match used.full {
            false => line::of_event(&event, None),
            true => {
                let descriptors = shown.descriptors.clone();
                let making = tokio::task::spawn_blocking(move || line::of_event(&event, Some(&descriptors())));
                making.await.unwrap_or_default()
            }
        };
        self.send(line).await
    }

    async fn send(&self, line: Json) -> bool {
        let mut line = line.to_string();
        line.push('\n');
        self.to.send(Frame::data(line.into())).await.is_ok()
    }
}

/// Whether the event is the opening of a stream that the first line lists.
fn is_listed(what: &TapWhat, listed: &[u64]) -> bool {
    matches!(what, TapWhat::Opened(stream) if listed.contains(&stream.session))
}

impl Use {
    fn log_begin(&self) {
        let Self { by, client, full, .. } = self;
        tracing::info!(by = %by, client = %client, full, "tap of a client begins");
    }

    fn log_end(&self, reason: &str) {
        let Self { by, client, lines, dropped, .. } = self;
        tracing::info!(by = %by, client = %client, lines, dropped, reason, "tap of a client ends");
    }
}

const LEFT: &str = "the caller has left";
/// How often a silent tap checks the relay and the rights of its caller.
const LOOKS: Duration = Duration::from_secs(1);
/// How many streams the first line lists at most.
const MAX_STREAMS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_of_the_first_line_does_not_open_again() {
        let (node, peer, view) = Default::default();
        let opened = TapWhat::Opened(OpenedStream { session: 7, node, peer, view, variant: "delta" });
        assert!(is_listed(&opened, &[6, 7]) && !is_listed(&opened, &[6]));
        assert!(!is_listed(&TapWhat::Unchanged, &[7]));
    }
}
