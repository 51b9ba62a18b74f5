//! Requests to the admin address of a relay.

use bytes::Bytes;
use clap::Args;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use super::admin_lines::AdminLines;
use super::endpoint::{EndpointError, TlsArgs};
use super::printable;
use crate::upstream::{AdsServer, dial};

#[derive(Debug, Args)]
pub(super) struct AdminArgs {
    /// Admin address of the relay: HOST:PORT, http://HOST:PORT, https://HOST:PORT, or unix:PATH for its admin socket
    #[arg(long, value_name = "URI", env = "WEIR_ADMIN", default_value = DEFAULT)]
    admin: String,
    #[command(flatten)]
    tls: TlsArgs,
    /// The option that has the address, for messages.
    #[arg(skip = "--admin")]
    flag: &'static str,
}

/// Why a request to a relay has no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminError {
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Arguments(Vec<EndpointError>),
    #[error("cannot reach {0}: {1}")]
    Unreachable(String, AnyError),
    #[error("no response from {0}")]
    Late(String),
    #[error("{reason}")]
    Refused {
        status: StatusCode,
        /// The text of the relay's response.
        reason: String,
    },
    /// The address serves clients, which it answers in JSON.
    #[error(
        "{0} is an address for clients: expected that of operators, which is admin.address or admin.socket of the relay"
    )]
    ForClients(String),
}

/// A page whose lines follow over time, and the relay that sends it.
pub(super) struct FollowedPage {
    name: String,
    lines: AdminLines,
}

impl FollowedPage {
    /// Returns the next line; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Value>, AdminError> {
        self.lines.next().await.map_err(|error| AdminError::Unreachable(self.name.clone(), error.into()))
    }
}

impl AdminArgs {
    /// Returns the arguments for a command that has the address in another option.
    pub(crate) fn of(flag: &'static str, admin: String, tls: TlsArgs) -> Self {
        Self { admin, tls, flag }
    }

    /// Returns the address as it was given.
    pub(crate) fn address(&self) -> &str {
        &self.admin
    }

    /// Whether this is the address that commands use without an option.
    pub(crate) fn is_default(&self) -> bool {
        self.admin == DEFAULT
    }

    /// Returns the options with which another command reaches the same relay, at this address.
    pub(crate) fn typed(&self, address: &str) -> String {
        let tls = if address.starts_with("https:") { self.tls.typed() } else { Vec::new() };
        let words = [("--admin", address.to_owned())].into_iter().chain(tls);
        words.map(|(flag, value)| format!("{flag} {}", shell_word(&value))).collect::<Vec<_>>().join(" ")
    }

    /// Returns a page of the relay's admin address. The values of parameters are encoded.
    pub(crate) async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, AdminError> {
        let server = self.server()?;
        let page = request(&server, Method::GET, path, parameters).await?;
        serde_json::from_slice(&page)
            .map_err(|error| AdminError::Unreachable(server.name(), format!("not a relay: {error}").into()))
    }

    /// Returns whether the relay is ready, and its text about that. The address for probes answers this request too.
    pub(crate) async fn readiness(&self) -> Result<(bool, String), AdminError> {
        let server = self.server()?;
        let (status, said) = response(&server, Method::GET, "/ready", PROBE_PATIENCE).await?;
        let said = words(&said);
        match status {
            StatusCode::OK if said.starts_with("ready") => Ok((true, said)),
            StatusCode::OK => Err(AdminError::Unreachable(server.name(), "not a relay".into())),
            status => match refused(&server, status, &said) {
                AdminError::Refused { status: StatusCode::SERVICE_UNAVAILABLE, reason } if reason == said => {
                    Ok((false, said))
                }
                error => Err(error),
            },
        }
    }

    /// Requests a change, and returns the relay's text about it.
    pub(crate) async fn post(&self, path: &str, parameters: &[(&str, &str)]) -> Result<String, AdminError> {
        let said = request(&self.server()?, Method::POST, path, parameters).await?;
        Ok(String::from_utf8_lossy(&said).into_owned())
    }

    /// Requests a page whose lines follow over time.
    pub(crate) async fn follow(&self, path: &str, parameters: &[(&str, &str)]) -> Result<FollowedPage, AdminError> {
        let server = self.server()?;
        let beginning = timeout(PATIENCE, begin(&server, Method::GET, &with_parameters(path, parameters))).await;
        let (response, driver) = match beginning {
            Ok(begun) => begun.map_err(|error| AdminError::Unreachable(server.name(), error))?,
            Err(_) => return Err(AdminError::Late(server.name())),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(FollowedPage { name: server.name(), lines: AdminLines::of(response.into_body(), driver) });
        }
        let read = timeout(PATIENCE, whole(response, driver)).await.map_err(|_| AdminError::Late(server.name()))?;
        let (_, reason) = read.map_err(|error| AdminError::Unreachable(server.name(), error))?;
        Err(refused(&server, status, &words(&reason)))
    }

    fn server(&self) -> Result<AdsServer, AdminError> {
        self.tls.endpoint(self.flag, &self.admin).map_err(AdminError::Arguments)
    }
}

/// Returns a word as it is typed in a shell.
pub(super) fn shell_word(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:=@%+,-[]".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", printable(word).replace('\'', "'\\''")),
    }
}

async fn request(
    server: &AdsServer,
    method: Method,
    path: &str,
    parameters: &[(&str, &str)],
) -> Result<Bytes, AdminError> {
    match response(server, method, &with_parameters(path, parameters), PATIENCE).await? {
        (status, body) if status.is_success() => Ok(body),
        (status, reason) => Err(refused(server, status, &words(&reason))),
    }
}

fn with_parameters(path: &str, parameters: &[(&str, &str)]) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let query: Vec<_> = parameters.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
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

fn refused(server: &AdsServer, status: StatusCode, reason: &str) -> AdminError {
    let answer: Value = serde_json::from_str(reason).unwrap_or_default();
    if answer["code"].is_u64() && answer["message"].is_string() {
        return AdminError::ForClients(server.name());
    }
    let is_page = reason.trim_start().starts_with('<'); // a page of another program
    let reason =
        if is_page || reason.is_empty() { format!("{} answers {status}", server.name()) } else { reason.to_owned() };
    AdminError::Refused { status, reason }
}

async fn exchange(server: &AdsServer, method: Method, path: &str) -> Result<(StatusCode, Bytes), AnyError> {
    let (response, driver) = begin(server, method, path).await?;
    whole(response, driver).await
}

async fn whole(response: Response<Incoming>, driver: JoinHandle<()>) -> Result<(StatusCode, Bytes), AnyError> {
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_PAGE_BYTES).collect().await?.to_bytes();
    driver.abort();
    Ok((status, body))
}

/// Returns a response whose body has not arrived yet, and the task of its connection.
async fn begin(
    server: &AdsServer,
    method: Method,
    path: &str,
) -> Result<(Response<Incoming>, JoinHandle<()>), AnyError> {
    let socket = dial(server, b"http/1.1").await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let driver = tokio::spawn(async move {
        let _ = connection.await; // the reader of the response sees the connection's end
    });
    let host = server.uri.authority().map_or("localhost", |authority| authority.as_str());
    let request =
        Request::builder().method(method).uri(path).header(http::header::HOST, host).body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await.map_err(|error| {
        // With TLS 1.3 a relay that requires a certificate ends the connection after the handshake, and its reason may be lost.
        let hint = match &server.tls {
            Some(tls) if tls.own.is_none() => "; --cert is not given",
            None if error.is_parse() => "; it does not answer in HTTP/1.1: does it expect TLS (https://)?",
            None if error.is_incomplete_message() => "; does it expect TLS (https://)?",
            _ => "",
        };
        format!("{:#}{hint}", anyhow::Error::from(error))
    })?;
    Ok((response, driver))
}

type AnyError = Box<dyn std::error::Error + Send + Sync>;

const DEFAULT: &str = "http://127.0.0.1:19000";
const PATIENCE: Duration = Duration::from_secs(30);
/// A prober asks again soon, so the wait is short.
const PROBE_PATIENCE: Duration = Duration::from_secs(5);
const MAX_PAGE_BYTES: usize = 64 << 20;
