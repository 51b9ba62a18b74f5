//! Rules of the relay as a client, on the pure model: requests out, responses in, updates out.

mod again;
mod aliases;
mod collections;
mod costs;
mod ends;
mod evidence;
mod polls;
mod refusals;
mod request_size;
mod requests;
mod responses;
mod sets;
#[path = "../support/mod.rs"]
mod support;
mod unnamed;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::envoy::nonce_of;
use support::streams::text_of_request;
use support::{Set, interest};
use weir_core::proto::discovery::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource, ResourceError, ResourceName, Status,
};
use weir_core::proto::{Any, Request, Response};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{Epoch, ServerQuirks, Upstream, ViewContext};
use weir_core::protocol::view::{Claim, Claimed, Evidence, Retain, Selector, SessionId, Update, View};
use weir_core::xds::{BodyStore, TypeTable};

struct Bench {
    upstream: Upstream,
    table: Arc<TypeTable>,
    store: BodyStore,
    now: Moment,
    epochs: Vec<Epoch>,
    /// What is present, according to the updates so far.
    view: View,
    /// The server answers no liveness call.
    mute: bool,
}

impl Bench {
    fn new(variant: Variant) -> Self {
        Self::with(variant, ServerQuirks::default())
    }

    fn with(variant: Variant, rules: ServerQuirks) -> Self {
        let table = Arc::new(TypeTable::new());
        let upstream =
            Upstream::new(variant, Bytes::from_static(b"node"), Arc::new(rules), table.clone(), Arc::default());
        let unit = View::new(table.clone(), Arc::default());
        let (store, now, epochs) = (BodyStore::default(), Moment::START, Vec::new());
        Self { upstream, table, store, now, epochs, view: unit, mute: false }
    }

    fn want(&mut self, url: &str, name: &str, on: bool) {
        let change = interest(&self.table, url, name, on);
        self.view.change_interest(SessionId(1), change.clone(), self.now);
        self.upstream.want(change, false);
    }

    /// Connects a client that holds this name, which the view does not know.
    fn claim(&mut self, url: &str, set: Set, name: &str) {
        self.claim_as(SessionId(1), url, set, [name.to_owned()]);
    }

    fn claim_as(&mut self, client: SessionId, url: &str, set: Set, names: impl IntoIterator<Item = String>) {
        let kind = self.table.resolve(url);
        let claim = |name: String| Claim { kind: kind.clone(), of: Claimed::Name(set.class(), name.as_str().into()) };
        self.view.add_claims(client, names.into_iter().map(claim).collect());
    }

    /// Connects a client that holds all of a set, which the view does not know.
    fn claim_set(&mut self, url: &str) {
        let claim = Claim { kind: self.table.resolve(url), of: Claimed::Set };
        self.view.add_claims(SessionId(1), vec![claim]);
    }

    /// Returns how many resources of a set are present.
    fn held(&self, url: &str, set: Set) -> usize {
        self.view.holds().here(&self.table.resolve(url), set.class()).count()
    }

    fn open(&mut self) {
        self.epochs = self.upstream.streams_mut().iter_mut().map(|stream| stream.opened()).collect();
    }

    fn end(&mut self, at: usize) -> Vec<String> {
        let epoch = self.epochs[at];
        let updates = self.upstream.streams_mut()[at].ended(epoch);
        self.apply(updates)
    }

    /// Breaks the stream and opens it again. Returns its first requests.
    fn reopen(&mut self) -> Vec<String> {
        self.end(0);
        self.open();
        self.requests(0)
    }

    /// Whether the first stream is due to be reopened, to request names once more.
    fn asks_again(&mut self) -> bool {
        let now = self.now;
        self.upstream.streams_mut()[0].take_reopen(now)
    }

    /// Applies updates, and returns them as text.
    fn apply(&mut self, updates: Vec<Update>) -> Vec<String> {
        let texts = updates.iter().map(fact_text).collect();
        self.view.apply(updates, self.now);
        texts
    }

    /// Returns the requests of one stream: `type [names]`, in delta `type +[on] -[off] {versions}`, with marks for NACKs and for no node.
    fn requests(&mut self, at: usize) -> Vec<String> {
        self.raw_requests(at).iter().map(text_of).collect()
    }

    fn raw_requests(&mut self, at: usize) -> Vec<Request> {
        let stream = &mut self.upstream.streams_mut()[at];
        let requests = std::iter::from_fn(|| stream.next_request(self.now)).collect();
        stream.written(self.now);
        requests
    }

    fn respond(&mut self, at: usize, response: Response) -> Vec<String> {
        let epoch = self.epochs[at];
        let updates = self.upstream.streams_mut()[at].on_response(epoch, response, &self.store, self.now);
        self.apply(updates)
    }

    fn judge(&mut self) -> Vec<String> {
        let at = ViewContext::single_server(&self.view);
        let updates = self.upstream.streams_mut().iter_mut().flat_map(|stream| stream.on_time(&at, self.now)).collect();
        self.apply(updates)
    }

    /// Lets the server answer a liveness call, if one was made.
    fn answers_call(&mut self) {
        let epoch = self.epochs[0];
        self.upstream.streams_mut()[0].on_liveness_answer(epoch);
    }

    /// Advances time. A live server answers the calls that are made at the end of it.
    fn later(&mut self, duration: Duration) -> Vec<String> {
        self.now = self.now + duration;
        let mut updates = self.judge();
        for (stream, epoch) in self.upstream.streams_mut().iter_mut().zip(&self.epochs) {
            if !self.mute && stream.take_liveness_call() {
                stream.on_liveness_answer(*epoch);
            }
        }
        updates.extend(self.judge());
        updates
    }
}

fn text_of(request: &Request) -> String {
    let letter = request.type_url().rsplit('.').next().and_then(|name| name.chars().next()).unwrap_or('?');
    let nack = if request.is_nack() { " NACK" } else { "" };
    let node = if request.node().is_some() { "" } else { " without node" };
    format!("{letter} {} n{}{nack}{node}", text_of_request(request), nonce_of(request))
}

fn fact_text(update: &Update) -> String {
    match update {
        Update::Upsert { class, key, .. } => format!("{class:?} {key} set"),
        Update::Absent { class, key, evidence: Evidence::Reported, .. } => format!("{class:?} {key} gone"),
        Update::Absent { class, key, evidence: Evidence::Silence, .. } => format!("{class:?} {key} unanswered"),
        Update::Kept { class, key, .. } => format!("{class:?} {key} kept"),
        Update::FullSet { resources, retain: kept, .. } => {
            let names: BTreeSet<_> = resources.iter().map(|resource| resource.name.to_string()).collect();
            match kept {
                Retain::These(kept) if kept.is_empty() => format!("whole {names:?}"),
                Retain::These(kept) => format!("whole {names:?} and {kept:?}"),
                Retain::Everything => format!("whole {names:?} and all that was there"),
            }
        }
        Update::Progress { of: Selector::Wildcard, completeness: fill, .. } => format!("{fill:?}"),
        Update::Progress { of: Selector::Name(glob), completeness: fill, .. } => format!("{fill:?} of {glob}"),
        Update::Unchanged { .. } => "unchanged".into(),
        Update::Unreadable { names, .. } => {
            format!("unread {:?}", names.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        Update::Interrupted { of: Selector::Wildcard, .. } => "interrupted".into(),
        Update::Interrupted { of: Selector::Name(glob), .. } => format!("interrupted {glob}"),
        Update::Refresh { class, key, ttl, .. } => format!("{class:?} {key} lives for {ttl:?}"),
        Update::Error { key, error, .. } => format!("{key} error {}", error.code),
        Update::WithoutRoom { class, key, .. } => format!("{class:?} {key} without room"),
        Update::Expired { .. } | Update::RemovalHeld { .. } | Update::PartHeld { .. } => {
            unreachable!("no stream says so")
        }
    }
}

/// Returns a resource. `name~content` is the same name with another body.
fn any(url: &str, name: &str) -> Any {
    let (name, content) = name.split_once('~').unwrap_or((name, ""));
    let mut value = vec![0x0a, u8::try_from(name.len()).unwrap()];
    value.extend(name.bytes());
    if !content.is_empty() {
        value.extend([0xc2, 0x3e, u8::try_from(content.len()).unwrap()]);
        value.extend(content.bytes());
    }
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
        name: name.split('~').next().unwrap().to_owned(),
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

fn requested(variant: Variant, url: &str, names: &[&str], rules: ServerQuirks) -> Bench {
    let mut bench = Bench::with(variant, rules);
    names.iter().for_each(|name| bench.want(url, name, true));
    bench.open();
    bench.requests(0);
    bench
}
