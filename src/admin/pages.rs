//! The table of paths.
//!
//! Each path has a method, a handler, one line of description, from which the index is made, and an effect.

use std::sync::Arc;

use axum::Router;
use axum::extract::FromRef;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};

use super::answer::text;
use super::grpc::Status;
use super::guard::{self, Effect, Rules};
use super::{
    CurrentContext, ProbeValues, brakes, certs, client_status, clients, dump, files, live, logs, nacks, page, probes,
    problems, resources, server_info, tap, upstreams, waits,
};
use crate::client_status::SERVICE;

/// Returns the paths that are served at `probes.address`.
pub(super) fn of_probes(rules: Arc<Rules>, values: ProbeValues) -> Router {
    probe_paths(Pages::new(rules)).finish(values, None)
}

/// Returns the paths that are served to operators.
pub(super) fn of_operators(rules: Arc<Rules>, shown: CurrentContext) -> Router {
    probe_paths(Pages::<CurrentContext>::new(rules))
        .read("/live", "server-sent events: what the page shows, each second", live::live)
        .read("/clients", "client streams: ?node= &identity= &view= &type= &state=stale &limit= &after=", clients::page)
        .read("/clients/{session}", "one of them", clients::one)
        .read(
            "/laggards",
            "clients that have lacked something for longest, with the same parameters",
            clients::laggards,
        )
        .read("/diff", "what a client was sent, against what there is for it: ?client=", clients::differences)
        .read("/explain", "why a client has a resource, or lacks it: ?client= &type= &name=", clients::explain)
        .tap("/tap", "requests and replies of one client as they go, as lines of JSON: ?client= &full", tap::tap)
        .read("/upstreams", "views: ladders, upstream streams, rejected resources", upstreams::upstreams)
        .read(
            "/resources",
            "cached resources: ?type=clusters &name= &contains= &view= &limit= &after=",
            resources::page,
        )
        .read("/problems", "what is wrong now, worst first: ?limit=", problems::problems)
        .read("/nacks", "versions that clients ACK and NACK: ?type=clusters &view= &nacked &limit=", nacks::nacks)
        .read("/dangling", "clusters that routing refers to and that do not exist", upstreams::dangling)
        .read("/waits", "what waits: sums by view and kind, and the 100 oldest", waits::waits)
        .read("/brakes", "removals that are held", brakes::held)
        .change("/brakes/release", "releases them: ?generation= with view= or server=, and type=", brakes::release)
        .read("/files", "resource files and their errors", files::files)
        .read("/rest", "counts of REST polls", files::rest)
        .read(
            "/config_dump",
            "resources as Envoy dumps them: ?client=SESSION or ?view=HASH, resource= mask= include_eds",
            dump::dump,
        )
        .read("/server_info", "version, build, state, listeners, configuration file", server_info::server_info)
        .read(
            "/config",
            "the configuration, with defaults and without secrets, and what needs a restart",
            server_info::config,
        )
        .change("/config/reload", "reads the configuration file again", server_info::reload)
        .change("/config/reload/dry_run", "only says what that would change", server_info::foretell)
        .read("/certs", "certificates of listeners and towards servers", certs::certs)
        .call(&format!("{SERVICE}FetchClientStatus"), client_status::fetch)
        .call(&format!("{SERVICE}StreamClientStatus"), client_status::stream)
        .query(
            "/v3/discovery:client_status",
            "client status (CSDS) in JSON; also as gRPC, for grpcdebug",
            client_status::rest,
        )
        .read("/log", "log filter", logs::filter)
        .change("/log", "changes it: ?filter=debug", logs::set_filter)
        .finish(shown, Some(page::page))
}

fn probe_paths<S: Clone + Send + Sync + 'static>(pages: Pages<S>) -> Pages<S>
where
    ProbeValues: FromRef<S>,
{
    pages
        .probe("/healthz", "200 while the process runs and neither its workers nor a shard hang", probes::healthz)
        .probe(
            "/ready",
            "200 when new clients should connect; ?strict: and every ladder has a reachable server",
            probes::ready,
        )
        .probe("/metrics", "metrics as text, or as OpenMetrics for those who accept it", probes::metrics)
}

async fn unknown(headers: HeaderMap) -> Response {
    let is_grpc = headers.get(CONTENT_TYPE).is_some_and(|content| content.as_bytes().starts_with(b"application/grpc"));
    match is_grpc {
        true => Status::new(Status::UNIMPLEMENTED, "this address is for operators, and serves client status of v3 alone; expected an address for clients, as in listen").response(),
        false => text(StatusCode::NOT_FOUND, "unknown path; / lists all"),
    }
}

/// Answers a request with the wrong method. The router adds an `Allow` header.
async fn other_method() -> Response {
    text(StatusCode::METHOD_NOT_ALLOWED, "invalid method: the Allow header has those of this path")
}

/// The table while it is built. Its handlers see `S`.
struct Pages<S> {
    router: Router<S>,
    rules: Arc<Rules>,
    /// The lines of the index, one for each path.
    rows: Vec<(String, &'static str)>,
}

impl<S: Clone + Send + Sync + 'static> Pages<S> {
    fn new(rules: Arc<Rules>) -> Self {
        Self { router: Router::new(), rules, rows: Vec::new() }
    }

    /// Adds a path that anybody may read, also at `probes.address`.
    fn probe<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, S>) -> Self {
        self.add(path, about, (Effect::Probe, false), get(handler))
    }

    /// Adds a path that operators read.
    fn read<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, S>) -> Self {
        self.add(path, about, (Effect::Read, false), get(handler))
    }

    /// Adds a path that shows what a single client is sent.
    fn tap<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, S>) -> Self {
        self.add(path, about, (Effect::Tap, false), get(handler))
    }

    /// Adds a path that operators read by a request with a body. It changes nothing.
    fn query<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, S>) -> Self {
        self.add(path, about, (Effect::Read, true), post(handler))
    }

    /// Adds a gRPC call that reads. The index does not list it.
    fn call<T: 'static>(self, path: &str, handler: impl Handler<T, S>) -> Self {
        let judged = post(handler).route_layer(from_fn_with_state((self.rules.clone(), Effect::Read), guard::enter));
        Self { router: self.router.route(path, judged), ..self }
    }

    /// Adds a path that changes something, only by POST.
    fn change<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, S>) -> Self {
        self.add(path, about, (Effect::Change, true), post(handler))
    }

    fn add(
        mut self,
        path: &'static str,
        about: &'static str,
        (does, is_post): (Effect, bool),
        handler: MethodRouter<S>,
    ) -> Self {
        let title = if is_post { format!("POST {path}") } else { path.to_owned() };
        self.rows.push((title, about));
        let judged = handler.route_layer(from_fn_with_state((self.rules.clone(), does), guard::enter));
        Self { router: self.router.route(path, judged), ..self }
    }

    /// Returns the router. At `/`, browsers get the page, if there is one, and other clients the index.
    fn finish(self, shown: S, page: Option<fn() -> Response>) -> Router {
        let width = self.rows.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
        let rows: Vec<_> = self.rows.iter().map(|(title, about)| format!("{title:width$}  {about}")).collect();
        let index: Arc<str> = rows.join("\n").into();
        let index = get(async move |headers: HeaderMap| match page.filter(|_| page::is_wanted(&headers)) {
            Some(page) => page(),
            None => text(StatusCode::OK, &index),
        });
        let router = self.router.route("/", index);
        let router = router.fallback(unknown).method_not_allowed_fallback(other_method);
        router.layer(from_fn_with_state(self.rules, guard::find)).with_state(shown)
    }
}
