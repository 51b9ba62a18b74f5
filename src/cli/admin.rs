//! Requests to the admin address of a relay.

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::{Duration, timeout};

use super::endpoint::{EndpointError, TlsArgs};
use crate::upstream::{AdsServer, dial};

#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// Admin address of the relay: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or unix:PATH for its admin socket
    #[arg(long, value_name = "URI", env = "WEIR_ADMIN", default_value = "http://127.0.0.1:19000")]
    admin: String,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Why a relay gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Arguments(Vec<EndpointError>),
    #[error("cannot reach {0}: {1}")]
    Unreachable(String, Box<dyn std::error::Error + Send + Sync>),
    #[error("no response from {0}")]
    Late(String),
    /// The relay's own words.
    #[error("{0}")]
    Refused(String),
}

impl AdminArgs {
    /// Returns a page of the relay's admin address. The values of parameters are encoded.
    pub(crate) async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, AdminError> {
        let server = self.server()?;
        let page = request(&server, Method::GET, path, parameters).await?;
        serde_json::from_slice(&page)
            .map_err(|error| AdminError::Unreachable(server.name(), format!("not a relay: {error}").into()))
    }

    /// Returns whether the relay is ready, and what it says about that. The address for probes answers too.
    pub(crate) async fn readiness(&self) -> Result<(bool, String), AdminError> {
        let server = self.server()?;
        let (status, said) = response(&server, Method::GET, "/ready", PROBE_PATIENCE).await?;
        let said = words(&said);
        match status {
            StatusCode::OK if said.starts_with("ready") => Ok((true, said)),
            StatusCode::OK => Err(AdminError::Unreachable(server.name(), "not a relay".into())),
            StatusCode::SERVICE_UNAVAILABLE => Ok((false, said)),
            _ => Err(AdminError::Refused(said)),
        }
    }

    /// Requests a change, and returns what the relay says about it.
    pub(crate) async fn post(&self, path: &str, parameters: &[(&str, &str)]) -> Result<String, AdminError> {
        let said = request(&self.server()?, Method::POST, path, parameters).await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    fn server(&self) -> Result<AdsServer, AdminError> {
        self.tls.endpoint("--admin", &self.admin).map_err(AdminError::Arguments)
    }
}

async fn request(
    server: &AdsServer,
    method: Method,
    path: &str,
    parameters: &[(&str, &str)],
) -> Result<Bytes, AdminError> {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let query: Vec<_> = parameters.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
    let path = if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) };
    match response(server, method, &path, PATIENCE).await? {
        (status, body) if status.is_success() => Ok(body),
        (_, reason) => Err(AdminError::Refused(words(&reason))),
    }
}

/// Returns a response, whatever its status.
async fn response(
    server: &AdsServer,
    method: Method,
    path: &str,
    patience: Duration,
) -> Result<(StatusCode, Bytes), AdminError> {
    match timeout(patience, exchange(server, method, path)).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(AdminError::Unreachable(server.name(), error)),
        Err(_) => Err(AdminError::Late(server.name())),
    }
}

fn words(body: &[u8]) -> String {
    String::from_utf8_lossy(body).trim_end().to_owned()
}

async fn exchange(
    server: &AdsServer,
    method: Method,
    path: &str,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let socket = dial(server, b"http/1.1").await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let driver = tokio::spawn(connection);
    let host = server.uri.authority().map_or("localhost", |authority| authority.as_str());
    let request =
        Request::builder().method(method).uri(path).header(http::header::HOST, host).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.map_err(|error| {
        // With TLS 1.3 a relay that wants a certificate ends the connection after the handshake, and the reason may be lost.
        let has_none = server.tls.as_ref().is_some_and(|tls| tls.own.is_none());
        format!("{:#}{}", anyhow::Error::from(error), if has_none { "; --cert is not given" } else { "" })
    })?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_PAGE_BYTES).collect().await?.to_bytes();
    driver.abort();
    Ok((status, body))
}

const PATIENCE: Duration = Duration::from_secs(30);
/// Who probes asks again soon.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
const MAX_PAGE_BYTES: usize = 64 << 20;
