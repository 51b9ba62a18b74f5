//! One connection to a REST server: a POST at a time over HTTP/1.1, kept alive in between.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;

use super::RestServer;
use crate::upstream::ads::chain;
use crate::upstream::dial::dial;
use crate::upstream::token;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Not even a connection, so that there is no use in asking again at once.
    #[error("{0}")]
    Unreachable(String),
    /// Nothing, too late, or that the server itself is in trouble.
    #[error("{0}")]
    Silent(String),
    /// A whole answer that is of no use: what it says of one type is nothing to the others.
    #[error("{0}")]
    Refused(String),
}

/// What a poll came back with.
#[derive(Debug)]
pub(super) enum Answer {
    Unchanged,
    Content(Bytes),
}

pub(super) struct Wire {
    server: Arc<RestServer>,
    open: Option<SendRequest<Full<Bytes>>>,
}

impl Wire {
    pub(crate) fn new(server: Arc<RestServer>) -> Self {
        Self { server, open: None }
    }

    /// Asks once. A connection that was kept and is found closed is opened again; that is no failure.
    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> Result<Answer, Failure> {
        let tokens = if self.server.at.tls.is_some() { self.server.at.tokens.as_slice() } else { &[] };
        let headers = token::metadata(tokens).await.map_err(|error| Failure::Unreachable(chain(&error)))?;
        let headers = headers.into_headers();
        if let Some(mut sender) = self.open.take().filter(|sender| !sender.is_closed()) {
            match self.once(&mut sender, path, body.clone(), headers.clone()).await {
                Err(Attempt::Gone) => {}
                Err(Attempt::Failed(failure)) => return Err(failure),
                Ok(answer) => {
                    self.open = Some(sender);
                    return Ok(answer);
                }
            }
        }
        let mut sender = self.connect().await?;
        match self.once(&mut sender, path, body, headers).await {
            Err(Attempt::Gone) => Err(Failure::Silent("the server ended the connection without an answer".into())),
            Err(Attempt::Failed(failure)) => Err(failure),
            Ok(answer) => {
                self.open = Some(sender);
                Ok(answer)
            }
        }
    }

    /// Whether there is a server at all.
    pub(crate) async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let unreachable = |error: &dyn Error| Failure::Unreachable(chain(error));
        let socket = dial(&self.server.at, b"http/1.1").await.map_err(|error| unreachable(&error))?;
        let (sender, connection) = handshake(TokioIo::new(socket)).await.map_err(|error| unreachable(&error))?;
        tokio::spawn(async move {
            let _ = connection.await; // whoever waits for an answer is told
        });
        Ok(sender)
    }

    async fn once(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        path: &str,
        body: Bytes,
        headers: HeaderMap,
    ) -> Result<Answer, Attempt> {
        let limit = self.server.request_timeout;
        let answering = self.exchange(sender, path, body, headers);
        tokio::time::timeout(limit, answering).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {}", humantime::format_duration(limit));
            Err(Attempt::Failed(Failure::Silent(reason)))
        })
    }

    async fn exchange(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        path: &str,
        body: Bytes,
        headers: HeaderMap,
    ) -> Result<Answer, Attempt> {
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
        // Nothing of an answer has come: as likely as not the server closed a connection that it took for idle.
        let (head, body) = sender.send_request(request).await.map_err(|_| Attempt::Gone)?.into_parts();
        if head.status == StatusCode::NOT_MODIFIED {
            return Ok(Answer::Unchanged);
        }
        let limit = if head.status == StatusCode::OK { self.server.at.message_bytes } else { EXPLANATION };
        let body = Limited::new(body, limit).collect().await.map(|body| body.to_bytes());
        if head.status != StatusCode::OK {
            let text = body.map(|body| String::from_utf8_lossy(&body).trim().to_owned()).unwrap_or_default();
            let reason = format!("{}: {text}", head.status);
            let in_trouble = head.status.is_server_error() && head.status != StatusCode::NOT_IMPLEMENTED;
            return Err(Attempt::Failed(if in_trouble { Failure::Silent(reason) } else { Failure::Refused(reason) }));
        }
        body.map(Answer::Content).map_err(|error| {
            let reason = format!("the answer breaks off: {}", chain(&*error));
            let too_long = error.is::<LengthLimitError>();
            Attempt::Failed(if too_long { Failure::Refused(reason) } else { Failure::Silent(reason) })
        })
    }
}

enum Attempt {
    /// The connection is not what it was.
    Gone,
    Failed(Failure),
}

/// What is read of the text of a rejection, for the log.
const EXPLANATION: usize = 4096;
