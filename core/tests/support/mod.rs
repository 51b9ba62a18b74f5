//! One view and a few sessions, driven by hand. What a server says is an update of the view, or comes from servers with streams.
#![allow(dead_code)] // each test binary uses a part of it

pub mod bounds;
pub mod envoy;
pub mod random;
pub mod routing;
mod says;
pub mod server;
pub mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Resource as Wrapper, Status};
use weir_core::proto::{Any, Request};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, FetchResult, Reply, Session, Step, Variant};
use weir_core::protocol::sources::{Plan, Sources, StreamId};
use weir_core::protocol::upstream::{Epoch, ServerQuirks};
use weir_core::protocol::view::{Claim, Claimed, InterestChange, Leases, Selector, SessionId, View};
use weir_core::xds::{BodyStore, Resource, Type, TypeTable};

use self::bounds::Bounded;
#[allow(unused_imports)] // as above
pub use self::says::{Extent, Set, interest};

pub const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
pub const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
pub const LDS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub const RDS: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
pub const SDS: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
pub const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

/// Names with this prefix ask a server where a set ends.
pub const END_OF_SET: &str = "weir.end-of-set/";

pub struct Bench {
    pub view: View,
    pub sessions: BTreeMap<SessionId, Session>,
    pub leases: Leases,
    pub now: Moment,
    pub table: Arc<TypeTable>,
    options: Arc<ProtocolOptions>,
    pub store: BodyStore,
    claims: Vec<Claim>,
    /// How many claims the view had no room for.
    pub refused_claims: usize,
    next_id: u64,
    bounded: Bounded,
    /// Whether all that the server says is published at once. Otherwise the test does that.
    pub publishes: bool,
    /// Whether the view's interest goes to servers. Otherwise the test answers it.
    has_servers: bool,
    pub sources: Sources,
    /// The streams that are open.
    pub up: BTreeMap<StreamId, Epoch>,
    /// Servers that do not answer liveness calls.
    pub mute: BTreeSet<usize>,
    again: BTreeSet<StreamId>,
}

impl Bench {
    /// Returns a bench whose view applies at once what the server sends. Holds are tested in `core/tests/order.rs`.
    pub fn new() -> Self {
        Self::with(ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)))
    }

    pub fn with(options: ProtocolOptions) -> Self {
        Self::of(options, TypeTable::new())
    }

    pub fn of(options: ProtocolOptions, table: TypeTable) -> Self {
        Self::made(Plan::single(Variant::Delta, ServerQuirks::default()), options, table)
    }

    fn made(plan: Plan, options: ProtocolOptions, table: TypeTable) -> Self {
        let (table, options) = (Arc::new(table), Arc::new(options));
        let node = Bytes::from_static(b"node");
        Self {
            view: View::new(table.clone(), options.view.clone().into()),
            sessions: BTreeMap::new(),
            leases: Leases::new(options.view.clone().into()),
            now: Moment::START,
            sources: Sources::new(Arc::new(plan), node, table.clone(), options.upstream.clone().into()),
            table,
            options,
            store: BodyStore::default(),
            claims: Vec::new(),
            refused_claims: 0,
            next_id: 0,
            bounded: Bounded::default(),
            publishes: true,
            has_servers: false,
            up: BTreeMap::new(),
            mute: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    pub fn client(&mut self, variant: Variant) -> SessionId {
        self.add(Client::plain(variant))
    }

    pub fn add(&mut self, client: Client) -> SessionId {
        let id = SessionId(self.next_id);
        self.next_id += 1;
        self.sessions.insert(id, Session::new(client, self.table.clone(), self.options.session.clone().into()));
        id
    }

    /// Ends the stream of a client.
    pub fn leave(&mut self, id: SessionId) {
        let Some(mut session) = self.sessions.remove(&id) else { return };
        session.close();
        self.view.on_session_left(id, session.take_interest(), self.now);
    }

    pub fn kind(&self, url: &str) -> Type {
        self.table.resolve(url)
    }

    /// Publishes, and returns how many sessions were woken.
    pub fn publish(&mut self) -> usize {
        let wakes = self.view.publish();
        for (id, marks) in &wakes.0 {
            if let Some(session) = self.sessions.get_mut(id) {
                marks.iter().for_each(|mark| session.on_name_changed(mark));
            }
        }
        self.give_back_claims();
        wakes.0.len()
    }

    pub fn resource(&mut self, url: &str, name: &str, content: &str) -> Arc<Resource> {
        self.of_wrapper(url, wrapper(url, name, content))
    }

    pub fn of_wrapper(&mut self, url: &str, wrapper: Wrapper) -> Arc<Resource> {
        let kind = self.kind(url);
        Arc::new(Resource::from_wrapper(0, wrapper, &kind, &self.store).unwrap())
    }

    pub fn request(&mut self, id: SessionId, request: Request) {
        let changes = self.hear(id, request);
        self.count(id, changes);
    }

    /// Gives a request to the session, and returns the changes of interest without applying them to the view.
    pub fn hear(&mut self, id: SessionId, request: Request) -> Vec<InterestChange> {
        let session = self.sessions.get_mut(&id).unwrap();
        session.on_request(request, self.now);
        session.take_interest()
    }

    pub fn count(&mut self, id: SessionId, changes: Vec<InterestChange>) {
        let any = !changes.is_empty();
        changes.iter().for_each(|change| self.view.change_interest(id, change.clone(), self.now));
        for (id, names) in self.view.take_refused_names() {
            self.sessions.get_mut(&id).unwrap().on_names_refused(&names);
        }
        if self.has_servers {
            self.sources.on_names_requested(&changes, &self.view);
            self.settle();
        } else {
            self.publish();
        }
        if any {
            self.sessions.get_mut(&id).unwrap().on_interest_applied();
        }
    }

    /// Sends a complete SotW request, with the nonce of the last reply if there was one.
    pub fn sotw(&mut self, id: SessionId, url: &str, names: &[&str], nonce: &str) {
        self.request(
            id,
            Request::Sotw(DiscoveryRequest {
                type_url: url.into(),
                resource_names: names.iter().map(ToString::to_string).collect(),
                response_nonce: nonce.into(),
                ..Default::default()
            }),
        );
    }

    /// Sends the ACK of a SotW client for its only reply so far. A delta client needs none.
    pub fn sotw_ack(&mut self, id: SessionId, variant: Variant, url: &str, names: &[&str]) {
        if variant == Variant::Sotw {
            self.sotw(id, url, names, "1");
        }
    }

    pub fn delta(&mut self, id: SessionId, url: &str, on: &[&str], off: &[&str]) {
        self.request(
            id,
            Request::Delta(DeltaDiscoveryRequest {
                type_url: url.into(),
                resource_names_subscribe: on.iter().map(ToString::to_string).collect(),
                resource_names_unsubscribe: off.iter().map(ToString::to_string).collect(),
                ..Default::default()
            }),
        );
    }

    pub fn step(&mut self, id: SessionId) -> Step {
        let state = self.view.snapshot().clone();
        let session = self.sessions.get_mut(&id).unwrap();
        let step = self.bounded.poll(session, &state, &mut self.leases, self.now);
        let claims = session.take_claims();
        self.claims.extend(claims.clone());
        self.view.add_claims(id, claims);
        self.give_back_claims();
        step
    }

    /// Gives claims without room back to their sessions, which claim again when there is room, as the view task does.
    fn give_back_claims(&mut self) {
        for (id, claims) in self.view.take_refused_claims() {
            self.refused_claims += claims.len();
            if let Some(session) = self.sessions.get_mut(&id) {
                session.on_claims_refused(claims);
            }
        }
        for id in self.view.take_sessions_to_claim() {
            if let Some(session) = self.sessions.get_mut(&id) {
                session.on_claim_room();
            }
        }
    }

    /// Returns the names that sessions hold and the view does not know, since the last call.
    pub fn sought(&mut self) -> Vec<String> {
        std::mem::take(&mut self.claims).iter().map(claim_text).collect()
    }

    pub fn poll(&mut self, id: SessionId) -> Option<Reply> {
        match self.step(id) {
            Step::Reply(reply) => Some(*reply),
            Step::Idle(_) => None,
            Step::End(end) => panic!("the session ended: {end:?}"),
        }
    }

    /// Returns one reply to a fetch, now or at its time limit.
    pub fn fetch(&mut self, id: SessionId, at_last: bool) -> FetchResult {
        let state = self.view.snapshot().clone();
        let session = self.sessions.get_mut(&id).unwrap();
        session.fetch(&state, &mut self.leases, self.now, at_last)
    }

    /// Returns every reply that is due, as `type set -removed`, with types by their first letter. `~` marks a heartbeat, `?` an alias without a
    /// resource, `!` an error with its code, and `(5)` a remaining TTL in seconds.
    pub fn said(&mut self, id: SessionId) -> Vec<String> {
        std::iter::from_fn(|| self.poll(id)).map(|reply| text_of(&reply)).collect()
    }

    /// Advances time, by milliseconds or by a duration.
    pub fn later(&mut self, time: impl Span) {
        self.now = self.now + time.duration();
        if self.has_servers {
            self.settle();
        } else {
            self.view.on_time(self.now);
            self.publish();
        }
    }

    /// Returns what would be requested upstream (`+`) and unsubscribed from (`-`) since the last call.
    pub fn asked_upstream(&mut self) -> Vec<String> {
        let change = |change: InterestChange| {
            let name = match change.selector {
                Selector::Wildcard => "*".to_owned(),
                Selector::Name(name) => name.to_string(),
            };
            format!("{}{name}", if change.on { '+' } else { '-' })
        };
        self.view.take_upstream_changes().into_iter().map(change).collect()
    }
}

/// A span of time.
pub trait Span {
    fn duration(self) -> Duration;
}

impl Span for u64 {
    fn duration(self) -> Duration {
        Duration::from_millis(self)
    }
}

impl Span for Duration {
    fn duration(self) -> Duration {
        self
    }
}

fn claim_text(claim: &Claim) -> String {
    match &claim.of {
        Claimed::Name(_, name) => name.to_string(),
        Claimed::Set => "*".into(),
    }
}

pub fn text_of(reply: &Reply) -> String {
    let letter = reply.kind.name().rsplit('.').next().and_then(|name| name.chars().next()).unwrap_or('?');
    let ttl = |at| reply.ttls.iter().find(|(of, _)| *of == at).map(|(_, ttl)| format!("({})", ttl.as_secs()));
    let named = |(at, resource): (usize, &Arc<Resource>)| format!("{}{}", resource.name, ttl(at).unwrap_or_default());
    let mut set: Vec<_> = reply.resources.iter().enumerate().map(named).collect();
    set.extend(reply.heartbeats.iter().map(|beat| format!("~{}({})", beat.name, beat.ttl.as_secs())));
    set.extend(reply.unresolved.iter().map(|alias| format!("?{alias}")));
    set.extend(reply.errors.iter().map(|(name, error)| format!("!{name}:{}", error.code)));
    let constrained = reply.constrained.iter().map(|(name, _)| format!("{name}[]"));
    let mut removed: Vec<_> = reply.removed.iter().map(ToString::to_string).chain(constrained).collect();
    set.sort();
    removed.sort();
    let removed = if removed.is_empty() { String::new() } else { format!(" -{}", removed.join(",")) };
    format!("{letter} {}{removed}", set.join(","))
}

/// Returns a resource of a type whose name is the first field, with some content after that.
pub fn wrapper(url: &str, name: &str, content: &str) -> Wrapper {
    let mut body = vec![0x0a, u8::try_from(name.len()).unwrap()];
    body.extend(name.bytes());
    if url == CDS {
        body.extend([0x1a, 4, 0x0a, 2, 0x1a, 0]); // its endpoints come over ADS, under its own name
    }
    body.extend([0xc2, 0x3e, u8::try_from(content.len()).unwrap()]);
    body.extend(content.bytes());
    let resource = Some(Any { type_url: url.into(), value: body.into() });
    Wrapper { name: name.into(), resource, ..Default::default() }
}

/// Returns a route configuration with a route to each of these clusters. Its body ends with the name of the last one.
pub fn route_configuration(name: &str, clusters: &[&str]) -> Wrapper {
    let nested = |number: u8, bytes: &[u8]| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let routes: Vec<u8> =
        clusters.iter().flat_map(|cluster| nested(3, &nested(2, &nested(1, cluster.as_bytes())))).collect();
    let body = [nested(1, name.as_bytes()), nested(2, &routes)].concat();
    let resource = Some(Any { type_url: RDS.into(), value: body.into() });
    Wrapper { name: name.into(), resource, ..Default::default() }
}

/// Lets the server send a route configuration that refers to these clusters.
pub fn lead(bench: &mut Bench, name: &str, clusters: &[&str]) {
    lead_for(bench, Set::Names, name, clusters, None);
}

/// Like [`lead`], for one set, with a TTL.
pub fn lead_for(bench: &mut Bench, set: Set, name: &str, clusters: &[&str], ttl: Option<Duration>) {
    let ttl = ttl.map(|ttl| ttl.try_into().unwrap());
    bench.gives_as(RDS, set, [(name, Wrapper { ttl, ..route_configuration(name, clusters) })]);
}

pub fn nack(code: i32) -> Option<Status> {
    Some(Status { code, message: "no".into() })
}
