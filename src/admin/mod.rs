//! The admin address and the admin socket: plain HTTP, for operators and probes.

mod clients;
mod guard;
mod listener;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::task::JoinSet;

use self::guard::{Guard, Via};
pub(crate) use self::listener::AdminSocket;
use self::listener::Listener;
use crate::downstream::{Rest, WriteTimeout};
use crate::open_files::Spare;
use crate::relay::{NackQuery, ReleaseQuery, Released, ResourceQuery, Views};
use crate::telemetry::{Exposition, LogControl, LogFilter};
use crate::upstream::FilesSource;
use crate::xds::Name;

/// The sources of what the admin address shows.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) views: Arc<Views>,
    pub(crate) files: Arc<[FilesSource]>,
    /// None if REST is not served.
    pub(crate) rest: Option<Arc<Rest>>,
    pub(crate) metrics: Exposition,
    pub(crate) log: LogControl,
    /// Names in the Host header that may lead here, besides addresses and localhost.
    pub(crate) hosts: Arc<[Box<str>]>,
    /// Where changes are sent.
    pub(crate) socket: Option<Arc<Path>>,
}

/// Serves for ever. Dropping the future closes all connections.
pub(crate) async fn serve(sockets: Vec<AdminSocket>, spare: Arc<Spare>, shown: Shown) {
    let listeners = sockets.into_iter().map(|socket| {
        let via = socket.via();
        serve_one(Listener::new(socket, CONNECTIONS, spare.clone()), via, shown.clone())
    });
    listeners.collect::<JoinSet<_>>().join_all().await;
}

async fn serve_one(mut listener: Listener, via: Via, shown: Shown) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, place) = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let shown = shown.clone();
        connections.spawn(async move {
            let _place = place;
            let service = service_fn(move |request| {
                let shown = shown.clone();
                async move { Ok::<_, Infallible>(answer(request, via, &shown).await) }
            });
            let io = TokioIo::new(WriteTimeout::new(stream, STALL));
            let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(io, service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, via: Via, shown: &Shown) -> Response<Full<Bytes>> {
    let guard = Guard { hosts: &shown.hosts, socket: shown.socket.as_deref() };
    if let Err((status, reason)) = guard.check(&request, via) {
        return text(status, &reason);
    }
    let (path, query) = (request.uri().path(), Query::of(request.uri()));
    match (request.method(), path) {
        (&Method::GET, _) => get(path, &query, shown).await,
        (&Method::HEAD, _) => {
            let (head, body) = get(path, &query, shown).await.into_parts();
            let mut response = Response::from_parts(head, Full::default());
            let length = http::HeaderValue::from(body.size_hint().exact().unwrap_or_default());
            response.headers_mut().insert(http::header::CONTENT_LENGTH, length);
            response
        }
        (&Method::POST, "/log") => set_log(&query, &shown.log),
        (&Method::POST, "/brakes/release") => release(&query, &shown.views).await,
        _ => text(
            StatusCode::METHOD_NOT_ALLOWED,
            "invalid method: expected GET, HEAD, or POST to /log or /brakes/release",
        ),
    }
}

async fn get(path: &str, query: &Query, shown: &Shown) -> Response<Full<Bytes>> {
    let Shown { views, files, rest, metrics, log, hosts: _, socket: _ } = shown;
    match path {
        "/" => text(StatusCode::OK, INDEX),
        "/healthz" => text(StatusCode::OK, "ok"),
        "/ready" => ready(query, views),
        "/clients" => clients::page(query, views).await.unwrap_or_else(|refusal| refusal),
        "/laggards" => clients::laggards(query, views).await.unwrap_or_else(|refusal| refusal),
        "/diff" => clients::differences(query, views).await.unwrap_or_else(|refusal| refusal),
        "/explain" => clients::explain(query, views).await.unwrap_or_else(|refusal| refusal),
        "/upstreams" => json(&views.report().await),
        "/files" => json(&files.iter().map(FilesSource::report).collect::<Vec<_>>()),
        "/resources" => resources(query, views).await,
        "/nacks" => nacks(query, views).await,
        "/dangling" => json(&views.dangling().await),
        "/brakes" => json(&views.brakes().await),
        "/rest" => json(&rest.as_ref().map(|rest| rest.report())),
        "/log" => text(StatusCode::OK, &log.current().unwrap_or_else(|| "off".into())),
        path if path.starts_with("/clients/") => {
            clients::one(&path["/clients/".len()..], views).unwrap_or_else(|refusal| refusal)
        }
        "/metrics" => response(StatusCode::OK, OPENMETRICS, metrics().await.into()),
        _ => text(StatusCode::NOT_FOUND, "unknown path; / lists all"),
    }
}

const INDEX: &str = "\
/healthz    200 while the process runs
/ready      200 when new clients should connect; ?strict: and every ladder has a reachable server
/clients    client streams: ?node= &identity= &view= &type= &state=stale &limit= &after=; /clients/SESSION is one of them
/laggards   clients that have lacked something for longest
/diff       ?client=: what a client was sent, against what there is for it
/explain    ?client= &type= &name=: why a client has a resource, or lacks it
/upstreams  views: ladders, upstream streams, rejected resources
/resources  cached resources: ?type=clusters &name= &contains= &view= &limit= &after=
/nacks      versions that clients ACK and NACK: ?type=clusters &view= &nacked &limit=
/dangling   clusters that routing refers to and that do not exist
/brakes     removals that are held; POST /brakes/release?generation= with view= or server= over the Unix socket lets them go
/files      resource files and their errors
/rest       counts of REST polls
/metrics    OpenMetrics
/log        log filter; POST /log?filter=debug over the Unix socket changes it";

/// The parameters of a request.
struct Query(BTreeMap<String, String>);

impl Query {
    fn of(uri: &http::Uri) -> Self {
        let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decode(key), decode(value)))
                .collect(),
        )
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }
}

fn set_log(query: &Query, log: &LogControl) -> Response<Full<Bytes>> {
    let Some(filter) = query.get("filter") else {
        return text(StatusCode::BAD_REQUEST, "filter missing: expected POST /log?filter=debug");
    };
    match filter.parse::<LogFilter>() {
        Ok(filter) if log.set(&filter) => {
            let current = log.current().unwrap_or_default();
            tracing::info!(filter = current, "log filter changed");
            text(StatusCode::OK, &current)
        }
        Ok(_) => text(StatusCode::NOT_FOUND, "this process has no log of its own"),
        Err(error) => text(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// Lets go removals that brakes hold: of one view, or of all that one server has removed.
async fn release(query: &Query, views: &Views) -> Response<Full<Bytes>> {
    let kind = match query.get("type").map(|text| views.type_of(text)).transpose() {
        Ok(kind) => kind,
        Err(error) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let Some(Ok(generation)) = query.get("generation").map(str::parse) else {
        return text(StatusCode::BAD_REQUEST, "generation missing or invalid: expected the number that /brakes shows");
    };
    let (view, server) = (query.get("view").map(str::to_owned), query.get("server").map(str::to_owned));
    if view.is_some() == server.is_some() {
        return text(StatusCode::BAD_REQUEST, "expected either view or server");
    }
    let query = ReleaseQuery { view, kind, server, generation };
    let released = views.release(&query).await;
    let (view, server) = (query.view.as_deref(), query.server.as_deref());
    tracing::warn!(view, server, generation, removals = released.removals, "operator released held removals");
    match released {
        Released { removals: 0, later: 0, .. } => text(StatusCode::NOT_FOUND, "nothing is held there"),
        Released { removals: 0, .. } => {
            text(StatusCode::CONFLICT, "all that is held there was held later; /brakes shows the present generation")
        }
        Released { removals, views, .. } => {
            text(StatusCode::OK, &format!("released {removals} removals in {views} views"))
        }
    }
}

/// Returns 503 with a reason on each line while the relay is not ready.
fn ready(query: &Query, views: &Views) -> Response<Full<Bytes>> {
    let strict = matches!(query.get("strict"), Some("" | "true" | "1"));
    let (reasons, count) = views.readiness().reasons(strict, MAX_REASONS);
    if count == 0 {
        return text(StatusCode::OK, &ready_with_notes(views));
    }
    let mut lines: Vec<_> = reasons.iter().map(ToString::to_string).collect();
    if count > reasons.len() {
        lines.push(format!("and {} more", count - reasons.len()));
    }
    text(StatusCode::SERVICE_UNAVAILABLE, &lines.join("\n"))
}

/// Returns what a relay that is ready says of what it serves.
fn ready_with_notes(views: &Views) -> String {
    let mut lines = vec!["ready".to_owned()];
    let (from_disk, brakes) = (views.loaded_from_disk(), &views.incidents().brakes);
    if from_disk > 0 {
        lines.push(format!("note: {from_disk} views from disk, not confirmed by a server"));
    }
    if brakes.views() > 0 {
        let held: usize = brakes.held().values().sum();
        lines.push(format!("note: brakes hold {held} removals in {} views; see /brakes", brakes.views()));
    }
    lines.join("\n")
}

const MAX_REASONS: usize = 100;
/// Operators and probes that are connected at a time, to the address and to the socket. Others wait.
const CONNECTIONS: usize = 32;
/// How long a peer may read nothing of a response.
const STALL: Duration = Duration::from_secs(30);

/// Returns how clients answer, by view and type.
async fn nacks(query: &Query, views: &Views) -> Response<Full<Bytes>> {
    let kind = match query.get("type").map(|text| views.type_of(text)).transpose() {
        Ok(kind) => kind,
        Err(error) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let limit = match query.get("limit").map_or(Ok(PAGE), str::parse) {
        Ok(limit @ 1..=MAX_NACK_ROWS) => limit,
        _ => {
            let reason = format!("invalid limit: expected a number from 1 to {MAX_NACK_ROWS}");
            return text(StatusCode::BAD_REQUEST, &reason);
        }
    };
    let nacked = matches!(query.get("nacked"), Some("" | "true" | "1"));
    let view = query.get("view").map(str::to_owned);
    json(&views.nacks(NackQuery { kind, view, nacked, limit }).await)
}

/// Returns the resources of the views, page by page.
async fn resources(query: &Query, views: &Views) -> Response<Full<Bytes>> {
    let kind = match query.get("type").map(|text| views.type_of(text)).transpose() {
        Ok(kind) => kind,
        Err(error) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let limit = match query.get("limit").map_or(Ok(PAGE), str::parse) {
        Ok(limit @ 1..=MAX_PAGE) => limit,
        _ => return text(StatusCode::BAD_REQUEST, &format!("invalid limit: expected a number from 1 to {MAX_PAGE}")),
    };
    let of = |key| query.get(key).map(str::to_owned);
    let name = query.get("name").map(Name::canonical);
    let query = ResourceQuery { kind, name, contains: of("contains"), view: of("view"), limit, after: of("after") };
    json(&views.resources(query).await)
}

const PAGE: usize = 100;
const MAX_PAGE: usize = 10_000;
const MAX_NACK_ROWS: usize = 1_000;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

fn json(value: &impl serde::Serialize) -> Response<Full<Bytes>> {
    match serde_json::to_vec_pretty(value) {
        Ok(mut body) => {
            body.push(b'\n');
            response(StatusCode::OK, "application/json", body.into())
        }
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn text(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", format!("{body}\n").into())
}

fn response(status: StatusCode, content: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static(content));
    response
}
