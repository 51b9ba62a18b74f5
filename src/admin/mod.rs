//! The admin address: plain HTTP, for operators and probes.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::net::TcpListener;

use crate::downstream::Rest;
use crate::relay::{Readiness, Views};
use crate::upstream::FilesSource;

/// What there is to be seen.
#[derive(Clone)]
pub struct Shown {
    pub views: Arc<Views>,
    pub files: Arc<[FilesSource]>,
    /// None where polls are not served.
    pub rest: Option<Arc<Rest>>,
    pub metrics: Exposition,
}

/// Writes the metrics of the moment, as OpenMetrics text.
pub type Exposition = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

/// Serves for ever. Dropping the future closes everything.
pub async fn serve(listener: TcpListener, shown: Shown) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::error!(%error, "cannot accept an admin connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    continue;
                }
            },
            Some(_) = connections.join_next() => continue,
        };
        let shown = shown.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let shown = shown.clone();
                async move { Ok::<_, Infallible>(answer(request, &shown).await) }
            });
            let _ =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, shown: &Shown) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served here\n");
    }
    let Shown { views, files, rest, metrics } = shown;
    match request.uri().path() {
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/ready" => ready(request.uri().query().unwrap_or_default(), views.readiness()),
        "/clients" => json(&views.report().await.into_iter().flat_map(|(_, seats)| seats).collect::<Vec<_>>()),
        "/upstreams" => json(&views.report().await.into_iter().map(|(unit, _)| unit).collect::<Vec<_>>()),
        "/files" => json(&files.iter().map(FilesSource::report).collect::<Vec<_>>()),
        "/resources" => resources(request.uri().query().unwrap_or_default(), views).await,
        "/dangling" => json(&views.dangling().await),
        "/rest" => json(&rest.as_ref().map(|rest| rest.report())),
        "/metrics" => response(StatusCode::OK, OPENMETRICS, metrics().await.into()),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /healthz, /ready, /clients, /upstreams, /resources, /dangling, /files, /rest and /metrics\n",
        ),
    }
}

/// Returns 503 with a reason on each line while the relay is not ready.
fn ready(query: &str, readiness: &Readiness) -> Response<Full<Bytes>> {
    let strict = query.split('&').any(|pair| matches!(pair, "strict" | "strict=true" | "strict=1"));
    let (reasons, count) = readiness.reasons(strict, MAX_REASONS);
    if count == 0 {
        return text(StatusCode::OK, "ready\n");
    }
    let mut lines: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    if count > reasons.len() {
        lines.push(format!("and {} more", count - reasons.len()));
    }
    text(StatusCode::SERVICE_UNAVAILABLE, &format!("{}\n", lines.join("\n")))
}

const MAX_REASONS: usize = 100;

/// What the views know of one resource.
async fn resources(query: &str, views: &Views) -> Response<Full<Bytes>> {
    let parameter = |name: &str| {
        let pair = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
        pair.and_then(|(_, value)| percent_decode_str(value).decode_utf8().ok())
    };
    match (parameter("type"), parameter("name")) {
        (Some(kind), Some(name)) => json(&views.lookup(&kind, &name).await),
        _ => text(StatusCode::BAD_REQUEST, "which? /resources?type=envoy.config.cluster.v3.Cluster&name=web\n"),
    }
}

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn json(value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec_pretty(value) {
        Ok(body) => response(StatusCode::OK, "application/json", body.into()),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    response(status, "text/plain", Bytes::copy_from_slice(body.as_bytes()))
}

fn response(status: StatusCode, content: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content));
    response
}
