//! Rules of the relay as a client (spec section 6), on the pure model: requests out, responses in, facts out.

mod collections;
mod requests;
mod responses;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir::proto::discovery::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource, ResourceError, ResourceName, Status,
};
use weir::proto::{Any, Request, Response};
use weir::protocol::moment::Moment;
use weir::protocol::session::Variant;
use weir::protocol::unit::{Fact, InterestChange, Kept, Part, Wanted};
use weir::protocol::upstream::{Epoch, ServerRules, Upstream};
use weir::xds::{BodyStore, TypeTable};

struct Bench {
    upstream: Upstream,
    table: Arc<TypeTable>,
    store: BodyStore,
    now: Moment,
    epochs: Vec<Epoch>,
}

impl Bench {
    fn new(variant: Variant) -> Self {
        Self::with(variant, ServerRules::default())
    }

    fn with(variant: Variant, rules: ServerRules) -> Self {
        let table = Arc::new(TypeTable::new());
        let upstream =
            Upstream::new(variant, Bytes::from_static(b"node"), Arc::new(rules), table.clone(), Arc::default());
        Self { upstream, table, store: BodyStore::default(), now: Moment::START, epochs: Vec::new() }
    }

    fn want(&mut self, url: &str, name: &str, on: bool) {
        let wanted = if name == "*" { Wanted::Star } else { Wanted::Name(name.into()) };
        self.upstream.want(InterestChange { kind: self.table.resolve(url), wanted, on }, false);
    }

    fn open(&mut self) {
        self.epochs = self.upstream.streams().iter_mut().map(|stream| stream.opened()).collect();
        for (stream, epoch) in self.upstream.streams().iter_mut().zip(&self.epochs) {
            stream.on_sign_of_life(*epoch);
        }
    }

    fn end(&mut self, at: usize) -> Vec<Fact> {
        let epoch = self.epochs[at];
        self.upstream.streams()[at].ended(epoch)
    }

    /// Requests of one stream, each as `type [names]`, in delta `type +[on] -[off] {versions}`, with ACKs and NACKs told apart.
    fn requests(&mut self, at: usize) -> Vec<String> {
        let stream = &mut self.upstream.streams()[at];
        let mut texts = Vec::new();
        while let Some(request) = stream.next_request(self.now) {
            texts.push(text_of(&request));
        }
        stream.written(self.now);
        texts
    }

    fn respond(&mut self, at: usize, response: Response) -> Vec<String> {
        let epoch = self.epochs[at];
        let facts = self.upstream.streams()[at].on_response(epoch, response, &mut self.store, self.now);
        facts.iter().map(fact_text).collect()
    }

    fn later(&mut self, duration: Duration) -> Vec<String> {
        self.now = self.now + duration;
        let facts = self.upstream.streams().iter_mut().flat_map(|stream| stream.on_time(self.now));
        facts.map(|fact| fact_text(&fact)).collect()
    }
}

fn text_of(request: &Request) -> String {
    let letter = |url: &str| url.rsplit('.').next().and_then(|name| name.chars().next()).unwrap_or('?');
    let node = |node: &Option<Bytes>| if node.is_some() { " with node" } else { "" };
    match request {
        Request::Sotw(request) => {
            let nack = if request.error_detail.is_some() { " NACK" } else { "" };
            let (version, nonce) = (&request.version_info, &request.response_nonce);
            let names = request.resource_names.join(",");
            format!("{} [{names}] v{version} n{nonce}{nack}{}", letter(&request.type_url), node(&request.node))
        }
        Request::Delta(request) => {
            let nack = if request.error_detail.is_some() { " NACK" } else { "" };
            let (on, off) = (request.resource_names_subscribe.join(","), request.resource_names_unsubscribe.join(","));
            let versions: Vec<_> =
                request.initial_resource_versions.iter().map(|(name, v)| format!("{name}:{v}")).collect();
            let (letter, nonce) = (letter(&request.type_url), &request.response_nonce);
            format!("{letter} +[{on}] -[{off}] {{{}}} n{nonce}{nack}{}", versions.join(","), node(&request.node))
        }
    }
}

fn fact_text(fact: &Fact) -> String {
    match fact {
        Fact::Set { class, key, .. } => format!("{class:?} {key} set"),
        Fact::Gone { class, key, .. } => format!("{class:?} {key} gone"),
        Fact::Whole { resources, kept, .. } => {
            let names: BTreeSet<_> = resources.iter().map(|resource| resource.name.to_string()).collect();
            match kept {
                Kept::These(kept) if kept.is_empty() => format!("whole {names:?}"),
                Kept::These(kept) => format!("whole {names:?} and {kept:?}"),
                Kept::Everything => format!("whole {names:?} and all that was there"),
            }
        }
        Fact::Piece { of, part, .. } => {
            let piece = match part {
                Part::More => "piece",
                Part::Flawed => "flawed piece",
                Part::Last => "last piece",
            };
            match of {
                Wanted::Star => piece.into(),
                Wanted::Name(glob) => format!("{piece} of {glob}"),
            }
        }
        Fact::Interrupted { of: Wanted::Star, .. } => "interrupted".into(),
        Fact::Interrupted { of: Wanted::Name(glob), .. } => format!("interrupted {glob}"),
        Fact::Refresh { class, key, ttl, .. } => format!("{class:?} {key} lives for {ttl:?}"),
        Fact::Error { key, error, .. } => format!("{key} error {}", error.code),
    }
}

fn any(url: &str, name: &str) -> Any {
    let mut value = vec![0x0a, u8::try_from(name.len()).unwrap()];
    value.extend(name.bytes());
    Any { type_url: url.into(), value: value.into() }
}

fn sotw(url: &str, names: &[&str], version: &str) -> Response {
    Response::Sotw(DiscoveryResponse {
        version_info: version.into(),
        resources: names.iter().map(|name| any(url, name)).collect(),
        type_url: url.into(),
        nonce: format!("{version}!"),
        ..Default::default()
    })
}

fn delta(url: &str, names: &[&str], removed: &[&str], version: &str) -> Response {
    let wrapper = |name: &&str| Resource {
        version: version.into(),
        name: name.to_string(),
        resource: Some(any(url, name)),
        ..Default::default()
    };
    Response::Delta(DeltaDiscoveryResponse {
        resources: names.iter().map(wrapper).collect(),
        removed_resources: removed.iter().map(ToString::to_string).collect(),
        type_url: url.into(),
        nonce: format!("{version}!"),
        ..Default::default()
    })
}

const WINDOW: Duration = Duration::from_millis(20);

fn wrapped(url: &str, name: &str, version: &str, change: impl FnOnce(&mut Resource)) -> Response {
    let mut resource =
        Resource { version: version.into(), name: name.into(), resource: Some(any(url, name)), ..Default::default() };
    change(&mut resource);
    Response::Delta(DeltaDiscoveryResponse {
        resources: vec![resource],
        type_url: url.into(),
        nonce: format!("{version}!"),
        ..Default::default()
    })
}

fn error(code: i32) -> Vec<ResourceError> {
    let resource_name = Some(ResourceName { name: "a".into(), ..Default::default() });
    vec![ResourceError { resource_name, error_detail: Some(Status { code, ..Default::default() }) }]
}

fn asked(variant: Variant, url: &str, names: &[&str], rules: ServerRules) -> Bench {
    let mut bench = Bench::with(variant, rules);
    names.iter().for_each(|name| bench.want(url, name, true));
    bench.open();
    bench.requests(0);
    bench
}
