//! A REST control plane: it answers each path as configured, and records the polls.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::address::{listen_at, own_address};
use crate::wait::until;

#[derive(Debug, Clone)]
pub enum Behaviour {
    /// A version and resources. A poll that states this version gets 304, whatever else it requests, as many simple servers answer.
    Content(String, Vec<Value>),
    Status(u16),
    Body(Vec<u8>),
    Hang,
    /// Closes the connection without an answer.
    Cut,
}

#[derive(Clone)]
pub struct Script {
    behaviours: Arc<Mutex<HashMap<String, Behaviour>>>,
    polls: Arc<Mutex<Vec<Poll>>>,
}

#[derive(Debug, Clone)]
pub struct Poll {
    pub path: String,
    pub request: Value,
    pub status: u16,
    pub authorization: Option<String>,
    pub headers: http::HeaderMap,
}

pub struct RestPlane {
    pub address: SocketAddr,
    pub script: Script,
    server: JoinHandle<()>,
}

impl RestPlane {
    pub async fn start() -> Self {
        Self::start_at(own_address(), None).await
    }

    pub async fn start_at(address: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let listener = listen_at(address).await;
        let address = listener.local_addr().unwrap();
        let script = Script { behaviours: Arc::default(), polls: Arc::default() };
        let server = tokio::spawn(serve(listener, tls, script.clone()));
        Self { address, script, server }
    }

    /// Closes the listener and every connection.
    pub async fn kill(mut self) -> SocketAddr {
        self.server.abort();
        let _ = (&mut self.server).await;
        self.address
    }
}

impl Drop for RestPlane {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Script {
    pub fn behave(&self, path: &str, behaviour: Behaviour) {
        self.behaviours.lock().unwrap().insert(path.into(), behaviour);
    }

    pub fn has(&self, path: &str, version: &str, resources: Vec<Value>) {
        self.behave(path, Behaviour::Content(version.into(), resources));
    }

    /// Returns the polls, without the question by which a starting relay finds out whether the server is reachable.
    pub fn polls(&self) -> Vec<Poll> {
        let all = self.polls.lock().unwrap();
        all.iter().filter(|poll| poll.path != "/v3/discovery:nothing").cloned().collect()
    }

    pub fn polls_of(&self, path: &str) -> Vec<Poll> {
        self.polls().into_iter().filter(|poll| poll.path == path).collect()
    }

    /// Waits for `more` further polls of a path.
    pub async fn polled(&self, path: &str, more: usize) {
        let wanted = self.polls_of(path).len() + more;
        until("it is polled", async || self.polls_of(path).len() >= wanted).await;
    }

    fn answer(&self, path: &str, request: Value, headers: http::HeaderMap) -> Option<Option<Response<Full<Bytes>>>> {
        let behaviour = self.behaviours.lock().unwrap().get(path).cloned().unwrap_or(Behaviour::Status(404));
        let reply = |status: u16, body: Vec<u8>| {
            let mut response = Response::new(Full::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            Some(Some(response))
        };
        let answer = match behaviour {
            Behaviour::Content(version, _) if request["versionInfo"] == version.as_str() => reply(304, Vec::new()),
            Behaviour::Content(version, resources) => {
                let names = request["resourceNames"].as_array().cloned().unwrap_or_default();
                let name = |resource: &Value| resource.get("clusterName").or(resource.get("name")).cloned();
                let requested =
                    |resource: &Value| names.is_empty() || name(resource).is_some_and(|name| names.contains(&name));
                let resources: Vec<_> = resources.into_iter().filter(requested).collect();
                reply(200, json!({"versionInfo": version, "resources": resources}).to_string().into_bytes())
            }
            Behaviour::Status(status) => reply(status, b"as it was told".to_vec()),
            Behaviour::Body(body) => reply(200, body),
            Behaviour::Hang => Some(None),
            Behaviour::Cut => None,
        };
        let status = answer.as_ref().and_then(Option::as_ref).map_or(0, |answer| answer.status().as_u16());
        let authorization = headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
        self.polls.lock().unwrap().push(Poll { path: path.into(), request, status, authorization, headers });
        answer
    }
}

async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>, script: Script) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let (script, tls) = (script.clone(), tls.clone());
        connections.spawn(async move {
            let service = service_fn(move |request| respond(request, script.clone()));
            let builder = hyper::server::conn::http1::Builder::new();
            let _ = match tls {
                None => builder.serve_connection(TokioIo::new(socket), service).await,
                Some(tls) => match tls.accept(socket).await {
                    Ok(socket) => builder.serve_connection(TokioIo::new(socket), service).await,
                    Err(_) => Ok(()),
                },
            };
        });
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cut")]
struct Cut;

async fn respond(request: Request<Incoming>, script: Script) -> Result<Response<Full<Bytes>>, Cut> {
    let (head, body) = request.into_parts();
    assert_eq!(head.method, http::Method::POST);
    assert_eq!(head.headers["content-type"], "application/json");
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let request = serde_json::from_slice(&body).expect("the relay asks in JSON");
    match script.answer(head.uri.path(), request, head.headers) {
        Some(Some(response)) => Ok(response),
        Some(None) => std::future::pending().await,
        None => Err(Cut),
    }
}
