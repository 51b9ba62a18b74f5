//! The table of paths.
//!
//! A path has its method, its handler, one line of description, from which the index is made, and whether it changes something.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use http::StatusCode;

use super::answer::text;
use super::guard::{self, Does, Rules};
use super::{Shown, brakes, clients, files, logs, nacks, probes, resources, upstreams};

/// What is served at `probes.address`.
pub(super) fn of_probes(shown: Shown) -> Router {
    probe_paths(Pages::new(shown.rules.clone())).finish(shown)
}

/// What is served to operators.
pub(super) fn of_operators(shown: Shown) -> Router {
    probe_paths(Pages::new(shown.rules.clone()))
        .read("/clients", "client streams: ?node= &identity= &view= &type= &state=stale &limit= &after=", clients::page)
        .read("/clients/{session}", "one of them", clients::one)
        .read(
            "/laggards",
            "clients that have lacked something for longest, with the same parameters",
            clients::laggards,
        )
        .read("/diff", "what a client was sent, against what there is for it: ?client=", clients::differences)
        .read("/explain", "why a client has a resource, or lacks it: ?client= &type= &name=", clients::explain)
        .read("/upstreams", "views: ladders, upstream streams, rejected resources", upstreams::upstreams)
        .read(
            "/resources",
            "cached resources: ?type=clusters &name= &contains= &view= &limit= &after=",
            resources::page,
        )
        .read("/nacks", "versions that clients ACK and NACK: ?type=clusters &view= &nacked &limit=", nacks::nacks)
        .read("/dangling", "clusters that routing refers to and that do not exist", upstreams::dangling)
        .read("/brakes", "removals that are held", brakes::held)
        .change("/brakes/release", "releases them: ?generation= with view= or server=, and type=", brakes::release)
        .read("/files", "resource files and their errors", files::files)
        .read("/rest", "counts of REST polls", files::rest)
        .read("/log", "log filter", logs::filter)
        .change("/log", "changes it: ?filter=debug", logs::set_filter)
        .finish(shown)
}

fn probe_paths(pages: Pages) -> Pages {
    pages
        .probe("/healthz", "200 while the process runs", probes::healthz)
        .probe(
            "/ready",
            "200 when new clients should connect; ?strict: and every ladder has a reachable server",
            probes::ready,
        )
        .probe("/metrics", "metrics as text, or as OpenMetrics for those who accept it", probes::metrics)
}

/// A table that grows.
struct Pages {
    router: Router<Shown>,
    rules: Arc<Rules>,
    /// What the index says, a line for each path.
    rows: Vec<(String, &'static str)>,
}

impl Pages {
    fn new(rules: Arc<Rules>) -> Self {
        Self { router: Router::new(), rules, rows: Vec::new() }
    }

    /// A path that anybody may read, at `probes.address` too.
    fn probe<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, Shown>) -> Self {
        self.add(path, about, Does::Probe, get(handler))
    }

    /// A path that operators read.
    fn read<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, Shown>) -> Self {
        self.add(path, about, Does::Read, get(handler))
    }

    /// A path that changes something, by POST alone.
    fn change<T: 'static>(self, path: &'static str, about: &'static str, handler: impl Handler<T, Shown>) -> Self {
        self.add(path, about, Does::Change, post(handler))
    }

    fn add(mut self, path: &'static str, about: &'static str, does: Does, handler: MethodRouter<Shown>) -> Self {
        let title = if does == Does::Change { format!("POST {path}") } else { path.to_owned() };
        self.rows.push((title, about));
        let judged = handler.route_layer(from_fn_with_state((self.rules.clone(), does), guard::enter));
        Self { router: self.router.route(path, judged), ..self }
    }

    fn finish(self, shown: Shown) -> Router {
        let width = self.rows.iter().map(|(title, _)| title.len()).max().unwrap_or(0);
        let rows: Vec<_> = self.rows.iter().map(|(title, about)| format!("{title:width$}  {about}")).collect();
        let index: Arc<str> = rows.join("\n").into();
        let index = get(async move || text(StatusCode::OK, &index));
        let router = self.router.route("/", index);
        let router = router.fallback(async || text(StatusCode::NOT_FOUND, "unknown path; / lists all"));
        router.layer(from_fn_with_state(self.rules, guard::find)).with_state(shown)
    }
}
