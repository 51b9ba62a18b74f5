//! A REST client, over HTTP/1.1 or HTTP/2.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{Io, PATIENCE};

pub enum Poller {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

pub const CLUSTERS: &str = "/v3/discovery:clusters";
pub const ENDPOINTS: &str = "/v3/discovery:endpoints";

impl Poller {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::connect_from(Ipv4Addr::LOCALHOST, address).await
    }

    /// Connects from this address of the machine. Loopback has many.
    pub async fn connect_from(own: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((own, 0).into()).unwrap();
        Self::over(socket.connect(address).await.unwrap()).await
    }

    /// Polls over an existing connection.
    pub async fn over(io: impl Io) -> Self {
        let (sender, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
        tokio::spawn(connection);
        Self::Http1(sender)
    }

    pub async fn connect_http2(address: SocketAddr) -> Self {
        let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        tokio::spawn(connection);
        Self::Http2(sender)
    }

    /// Polls with a node of this cluster, and with further fields in the request.
    pub async fn poll(&mut self, path: &str, cluster: &str, fields: Value) -> Answer {
        let mut request = json!({"node": {"id": "poller", "cluster": cluster}});
        request.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        self.post(path, request.to_string()).await
    }

    /// Polls until there is a response, since a cold cache has to be filled first.
    pub async fn polled(&mut self, path: &str, cluster: &str, fields: Value) -> Answer {
        self.polled_until(path, cluster, fields, |answer| answer.status != StatusCode::SERVICE_UNAVAILABLE).await
    }

    pub async fn polled_until(
        &mut self,
        path: &str,
        cluster: &str,
        fields: Value,
        what: fn(&Answer) -> bool,
    ) -> Answer {
        let polling = async {
            loop {
                let answer = self.poll(path, cluster, fields.clone()).await;
                if what(&answer) {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(5)).await; // sooner than any client polls again
            }
        };
        tokio::time::timeout(PATIENCE, polling).await.expect("the answer that is waited for does not come")
    }

    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.send(Method::POST, path, Some("application/json"), body.into()).await
    }

    pub async fn send(&mut self, method: Method, path: &str, content_type: Option<&str>, body: Bytes) -> Answer {
        let headers: Vec<_> = content_type.map(|kind| ("content-type", kind)).into_iter().collect();
        self.send_with(method, path, &headers, body).await
    }

    pub async fn send_with(&mut self, method: Method, path: &str, headers: &[(&str, &str)], body: Bytes) -> Answer {
        let request = Request::builder().method(method).header("host", "weir").uri(path);
        let request = match &self {
            Self::Http2(_) => request.uri(format!("http://weir{path}")),
            Self::Http1(_) => request,
        };
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let request = request.body(Full::new(body)).unwrap();
        let answering = async {
            let answer = match self {
                Self::Http1(sender) => {
                    sender.ready().await.unwrap();
                    sender.send_request(request).await.unwrap()
                }
                Self::Http2(sender) => sender.send_request(request).await.unwrap(),
            };
            let (head, body) = answer.into_parts();
            Answer { status: head.status, headers: head.headers, body: body.collect().await.unwrap().to_bytes() }
        };
        tokio::time::timeout(PATIENCE, answering).await.expect("no answer")
    }
}

impl Answer {
    pub fn json(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json", "{self:?}");
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn version(&self) -> String {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        self.json()["versionInfo"].as_str().unwrap().to_owned()
    }

    /// Returns names and contents of the clusters in the response.
    pub fn clusters(&self) -> Vec<(String, String)> {
        assert_eq!(self.status, StatusCode::OK, "{self:?}");
        let json = self.json();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let none = Vec::new();
        let resources = json["resources"].as_array().unwrap_or(&none).iter();
        let mut all: Vec<_> =
            resources.map(|cluster| (text(&cluster["name"]), text(&cluster["altStatName"]))).collect();
        all.sort();
        all
    }

    /// Returns code and text of a rejection.
    pub fn nack(&self) -> (u16, String) {
        let json = self.json();
        assert_eq!(json["code"], self.status.as_u16());
        (self.status.as_u16(), json["message"].as_str().unwrap().to_owned())
    }
}

/// Shorter than an Envoy's timeout for a poll.
pub const ENVOYS_PATIENCE: Duration = Duration::from_secs(1);
