//! One connection to a REST server: one POST at a time over HTTP/1.1, with keep-alive.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::RestServer;
use crate::compression::{Encoding, GZIP, Inflater};
use crate::random::random;
use crate::relay::{KeyHeaders, Redaction};
use crate::upstream::connection_pool::Moves;
use crate::upstream::dial::{Dialer, TriedAddress};
use crate::upstream::error_chain::chain;
use crate::upstream::own_headers::headers_for;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// There is no connection, so that an immediate retry is of no use.
    #[error("{0}")]
    Unreachable(String),
    /// No answer, a late one, or an error of the server itself.
    #[error("{0}")]
    Silent(String),
    /// A complete but unusable answer. It concerns one type; the others are not affected.
    #[error("{0}")]
    Refused(String),
}

/// The answer to a poll.
#[derive(Debug)]
pub(super) enum PollAnswer {
    Unchanged,
    Content(Bytes),
}

pub(super) struct PollConnection {
    server: Arc<RestServer>,
    dialer: Arc<Dialer>,
    moves: Arc<Moves>,
    /// The headers of its view's clients that the server is shown.
    headers: KeyHeaders,
    open: Option<Open>,
    /// The task that makes a connection to replace the open one.
    replacing: JoinSet<Result<Open, Failure>>,
    /// The last replacement has failed. The next one is made at this time.
    retry_at: Option<Instant>,
}

/// An open connection, and its address; none over a Unix socket.
pub(super) struct Open {
    sender: SendRequest<Full<Bytes>>,
    tried: Option<Arc<TriedAddress>>,
    /// When the connection reaches its maximum age.
    ends_at: Option<Instant>,
}

impl PollConnection {
    pub(crate) fn new(server: Arc<RestServer>, dialer: Arc<Dialer>, moves: Arc<Moves>) -> Self {
        let headers = KeyHeaders::default();
        Self { server, dialer, moves, headers, open: None, replacing: JoinSet::new(), retry_at: None }
    }

    pub(crate) fn showing(self, headers: &KeyHeaders) -> Self {
        Self { headers: headers.clone(), ..self }
    }

    /// Returns what removes the shown values from the server's texts.
    pub(crate) fn redaction(&self) -> Redaction {
        self.headers.redaction(&self.server.at.shown_values)
    }

    /// Sends one poll. If a kept connection turns out to be closed, it is opened again; that does not count as a failure.
    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> Result<PollAnswer, Failure> {
        let at = &self.server.at;
        let mut headers = headers_for(at).await.map_err(|error| Failure::Unreachable(chain(&error)))?;
        if at.may_be_shown_headers() {
            self.headers.show_in(&mut headers);
        }
        if let Some(mut open) = self.open.take().filter(|open| !open.sender.is_closed()) {
            if let Some(mut other) = self.replacement(&open).await {
                match self.once(&mut other, path, body.clone(), headers.clone()).await {
                    Ok(answer) => {
                        self.open = Some(other);
                        return Ok(answer);
                    }
                    Err(Attempt::Failed(failure)) => self.stays(&open, &failure.to_string()),
                    Err(Attempt::Gone) => self.stays(&open, ENDED),
                }
            }
            match self.once(&mut open, path, body.clone(), headers.clone()).await {
                Err(Attempt::Gone) => {}
                Err(Attempt::Failed(failure)) => return Err(failure),
                Ok(answer) => {
                    self.open = Some(open);
                    return Ok(answer);
                }
            }
        }
        self.replacing = JoinSet::new(); // there is nothing to replace
        let mut open = self.connect().await?;
        match self.once(&mut open, path, body, headers).await {
            Err(Attempt::Gone) => {
                open.tried.inspect(|tried| tried.failed());
                Err(Failure::Silent(ENDED.into()))
            }
            Err(Attempt::Failed(failure)) => Err(failure),
            Ok(answer) => {
                self.open = Some(open);
                Ok(answer)
            }
        }
    }

    /// Returns a connection that replaces the open one, once it is made. The open one is replaced if it is old, or if its address has left the
    /// server's name. It stays in use until there was an answer over the new one.
    async fn replacement(&mut self, open: &Open) -> Option<Open> {
        if self.replacing.is_empty() {
            let at = &self.server.at;
            self.dialer.look_up(at);
            let has_left = open.tried.as_ref().is_some_and(|tried| self.dialer.has_left(at, tried.address()));
            let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= Instant::now());
            let may_try = self.retry_at.is_none() || is_due(self.retry_at);
            if !(has_left || is_due(open.ends_at)) || !may_try || !self.moves.try_turn() {
                return None;
            }
            open.tried.iter().for_each(|tried| tried.leaves());
            self.replacing.spawn(dial(self.server.clone(), self.dialer.clone()));
        }
        // A connection that takes longer is used for a later poll.
        match timeout(BESIDE, self.replacing.join_next()).await.ok().flatten()? {
            Ok(Ok(other)) => return Some(other),
            Ok(Err(failure)) => self.stays(open, &failure.to_string()),
            Err(error) => self.stays(open, &error.to_string()),
        }
        None
    }

    /// Records that the open connection could not be replaced.
    fn stays(&mut self, open: &Open, error: &str) {
        tracing::info!(server = self.server.at.name(), error, "cannot replace a connection; it stays");
        open.tried.iter().for_each(|tried| tried.stays());
        self.retry_at = Some(Instant::now() + RETRY);
    }

    /// Checks whether the server accepts a connection.
    pub(crate) async fn connect(&self) -> Result<Open, Failure> {
        dial(self.server.clone(), self.dialer.clone()).await
    }

    async fn once(&self, open: &mut Open, path: &str, body: Bytes, headers: HeaderMap) -> Result<PollAnswer, Attempt> {
        let limit = self.server.request_timeout;
        let answering = self.exchange(&mut open.sender, path, body, headers);
        let answer = timeout(limit, answering).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {}", humantime::format_duration(limit));
            Err(Attempt::Failed(Failure::Silent(reason)))
        });
        if let Some(tried) = &open.tried {
            match &answer {
                Ok(_) | Err(Attempt::Failed(Failure::Refused(_))) => tried.worked(),
                Err(Attempt::Failed(_)) => tried.failed(),
                Err(Attempt::Gone) => {}
            }
        }
        answer
    }

    async fn exchange(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        path: &str,
        body: Bytes,
        headers: HeaderMap,
    ) -> Result<PollAnswer, Attempt> {
        let rejected = |reason: String| Attempt::Failed(Failure::Refused(reason));
        sender.ready().await.map_err(|_| Attempt::Gone)?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = path.parse().map_err(|error: http::uri::InvalidUri| rejected(error.to_string()))?;
        *request.headers_mut() = headers;
        let authority = self.server.at.uri.authority().map_or("", |authority| authority.as_str());
        let json = HeaderValue::from_static("application/json");
        request
            .headers_mut()
            .insert(HOST, HeaderValue::from_str(authority).map_err(|error| rejected(error.to_string()))?);
        request.headers_mut().insert(CONTENT_TYPE, json.clone());
        request.headers_mut().insert(ACCEPT, json);
        if self.server.at.accept_compression {
            request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(GZIP));
        }
        // No part of an answer has come: the server has probably closed an idle connection.
        let (head, body) = sender.send_request(request).await.map_err(|_| Attempt::Gone)?.into_parts();
        if head.status == StatusCode::NOT_MODIFIED {
            return Ok(PollAnswer::Unchanged);
        }
        let limit = if head.status == StatusCode::OK { self.server.at.message_bytes } else { EXPLANATION };
        let body = Limited::new(body, limit).collect().await.map(|body| body.to_bytes());
        if head.status != StatusCode::OK {
            let body = content(&head.headers, body.unwrap_or_default(), limit).await.unwrap_or_default();
            let text = self.redaction().apply(String::from_utf8_lossy(&body).trim().to_owned());
            let reason = format!("{}: {text}", head.status);
            let in_trouble = head.status.is_server_error() && head.status != StatusCode::NOT_IMPLEMENTED;
            return Err(Attempt::Failed(if in_trouble { Failure::Silent(reason) } else { Failure::Refused(reason) }));
        }
        let body = body.map_err(|error| {
            let reason = format!("the answer breaks off: {}", chain(&*error));
            let too_long = error.is::<LengthLimitError>();
            Attempt::Failed(if too_long { Failure::Refused(reason) } else { Failure::Silent(reason) })
        })?;
        content(&head.headers, body, limit).await.map(PollAnswer::Content).map_err(rejected)
    }
}

async fn dial(server: Arc<RestServer>, dialer: Arc<Dialer>) -> Result<Open, Failure> {
    let unreachable = |error: &dyn Error| Failure::Unreachable(chain(error));
    let reached = dialer.reach(&server.at, b"http/1.1").await.map_err(|error| unreachable(&error))?;
    let (sender, connection) = handshake(TokioIo::new(reached.socket)).await.map_err(|error| unreachable(&error))?;
    tokio::spawn(async move {
        let _ = connection.await; // the request's own future reports the error
    });
    let ends_at = server.at.ages.max.map(|age| Instant::now() + age.mul_f64(0.9 + 0.2 * random()));
    Ok(Open { sender, tried: reached.tried, ends_at })
}

/// Returns the content of a body. A server may compress it, even if it is not asked to.
async fn content(headers: &HeaderMap, body: Bytes, limit: usize) -> Result<Bytes, String> {
    match Encoding::of(headers, CONTENT_ENCODING.as_str()) {
        Encoding::Identity => Ok(body),
        Encoding::Gzip => {
            let inflated = Inflater::new(body, limit).finish().await;
            inflated.map_err(|error| format!("the answer is compressed and cannot be read: {error}"))
        }
        // Some servers name the encoding of the text here.
        Encoding::Other(_) if body.trim_ascii_start().starts_with(b"{") => Ok(body),
        Encoding::Other(name) => {
            Err(format!("the server compresses its answers with {name:?}: expected gzip or identity"))
        }
    }
}

enum Attempt {
    /// The connection was closed.
    Gone,
    Failed(Failure),
}

/// How a poll fails whose connection has ended.
const ENDED: &str = "the server ended the connection without an answer";
/// How long a poll waits for a connection that replaces another one.
const BESIDE: Duration = Duration::from_secs(1);
/// How long a connection stays when it could not be replaced.
const RETRY: Duration = Duration::from_secs(30);
/// Bytes of a rejection's text that are read for the log.
const EXPLANATION: usize = 4096;

#[cfg(test)]
pub(super) mod tests;
