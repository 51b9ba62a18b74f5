//! One view with several servers, and time, driven by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};
use weir_core::proto::{Request, Response};
use weir_core::protocol::ladder::{LadderState, Rule};
use weir_core::protocol::moment::Moment;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{AuthorityPlan, Plan, ServerPlan, Sources, StreamEnd, StreamId};
use weir_core::protocol::upstream::{Epoch, ReceivedResponse, ResponseMessage};
use weir_core::protocol::view::{Class, InterestChange, Lookup, SavedSet, Selector, SessionId, View};
use weir_core::xds::{Authority, BodyStore, TypeTable};

use super::support::{EDS, END_OF_SET, wrapper};

pub struct Bench {
    pub view: View,
    pub sources: Sources,
    pub store: BodyStore,
    pub table: Arc<TypeTable>,
    pub now: Moment,
    pub up: BTreeMap<StreamId, Epoch>,
    /// Servers that do not answer liveness calls.
    pub mute: BTreeSet<usize>,
    again: BTreeSet<StreamId>,
}

pub fn plan(servers: usize, variant: Variant, rule: Rule) -> Plan {
    let server = || ServerPlan::Streams { variant, quirks: Arc::default() };
    Plan {
        servers: (0..servers).map(|_| server()).collect(),
        top: AuthorityPlan { servers: (0..servers).collect(), rule },
        ..Plan::single(variant, Default::default())
    }
}

pub const ONE: SessionId = SessionId(1);
pub const TWO: SessionId = SessionId(2);

impl Bench {
    pub fn new(plan: Plan) -> Self {
        // `core/tests/order.rs` tests what waits for other changes.
        Self::with(plan, ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)))
    }

    pub fn with(plan: Plan, options: ProtocolOptions) -> Self {
        let (table, options) = (Arc::new(TypeTable::new()), Arc::new(options));
        let node = Bytes::from_static(b"node");
        Self {
            view: View::new(table.clone(), options.view.clone().into()),
            sources: Sources::new(Arc::new(plan), node, table.clone(), options.upstream.clone().into()),
            store: BodyStore::default(),
            table,
            now: Moment::START,
            up: BTreeMap::new(),
            mute: BTreeSet::new(),
            again: BTreeSet::new(),
        }
    }

    /// Returns the same view in a later process, which has its state.
    pub fn restarted(&self, plan: Plan) -> Self {
        let mut after = Self::new(plan);
        after.view.restore(
            SavedSet::all_of(self.view.snapshot(), self.now),
            after.now + Duration::from_secs(3600),
            after.now,
        );
        after
    }

    pub fn want(&mut self, url: &str, name: &str, on: bool) {
        self.want_as(ONE, url, name, on);
    }

    pub fn want_as(&mut self, session: SessionId, url: &str, name: &str, on: bool) {
        let wanted = if name == "*" { Selector::Wildcard } else { Selector::Name(name.into()) };
        let change = InterestChange { kind: self.table.resolve(url), selector: wanted, on };
        self.view.change_interest(session, change.clone(), self.now);
        self.sources.on_names_requested(&[change], &self.view);
        self.settle();
    }

    pub fn settle(&mut self) {
        self.judge();
        if self.answer_calls() {
            self.judge();
        }
        self.again.extend(self.sources.take_reopened());
        self.view.note_unsteady(self.sources.unsteady(), self.now);
        self.view.on_time(self.now);
        for change in self.view.take_upstream_changes() {
            self.sources.want(change, &self.view, self.now);
        }
        self.sources.close_unused(&self.view, self.now);
        self.view.publish();
        let closed = self.sources.take_closed();
        let there: Vec<_> = self.sources.streams_mut().map(|(id, _)| id).collect();
        self.up.retain(|id, _| there.contains(id) && !closed.contains(&id.server));
    }

    fn judge(&mut self) {
        for batch in self.sources.on_time(&self.view, self.now) {
            self.view.apply_from(batch.origin, batch.updates, self.now);
        }
    }

    /// Lets live servers answer their liveness calls.
    fn answer_calls(&mut self) -> bool {
        let mut any = false;
        for (id, stream) in self.sources.streams_mut() {
            if let Some(epoch) = self.up.get(&id).filter(|_| !self.mute.contains(&id.server))
                && stream.take_liveness_call()
            {
                stream.on_liveness_answer(*epoch);
                any = true;
            }
        }
        any
    }

    /// Returns the servers whose streams were reopened for a second request since the last call.
    pub fn asked_again(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.again).into_iter().map(|id| id.server).collect()
    }

    pub fn later(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.settle();
    }

    /// Opens the streams to a server. Returns the requests to it in the form of [`text_of`].
    pub fn open(&mut self, server: usize) -> Vec<String> {
        for (id, stream) in self.sources.streams_mut().filter(|(id, _)| id.server == server) {
            let epoch = stream.opened();
            self.up.insert(id, epoch);
        }
        self.requested(server)
    }

    pub fn requested(&mut self, server: usize) -> Vec<String> {
        let now = self.now;
        let mut texts = Vec::new();
        for (_, stream) in self.sources.streams_mut().filter(|(id, _)| id.server == server) {
            while let Some(request) = stream.next_request(now) {
                texts.push(text_of(&request));
            }
            stream.written(now);
        }
        texts
    }

    pub fn say(&mut self, server: usize, response: Response) {
        let id = StreamId { server, at: 0 };
        let epoch = self.up[&id];
        let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &self.table, &self.store).unwrap();
        let batches = self.sources.on_received(id, epoch, response, &self.view, self.now);
        self.view.note_recovering(self.sources.recovering());
        for batch in batches {
            self.view.apply_from(batch.origin, batch.updates, self.now);
        }
        self.settle();
    }

    /// Ends the streams to a server. Unless they count as answered, the server is unreachable after that.
    pub fn end(&mut self, server: usize, answered: bool) {
        self.end_all(server, answered, false);
    }

    /// Loses a server, or the connection to it.
    pub fn lose(&mut self, server: usize) {
        self.end_all(server, false, true);
    }

    fn end_all(&mut self, server: usize, answered: bool, is_lost: bool) {
        let ids: Vec<_> = self.sources.streams_mut().map(|(id, _)| id).filter(|id| id.server == server).collect();
        for id in ids {
            let epoch = self.up.remove(&id);
            let had_answered = self.sources.stream(id).is_some_and(|stream| stream.has_answered());
            let end = StreamEnd { answered: answered || had_answered, is_lost };
            self.end_one(id, epoch, end);
            if had_answered && !answered {
                self.end_one(id, None, StreamEnd { answered, ..end });
            }
        }
        self.settle();
    }

    pub fn end_one(&mut self, id: StreamId, epoch: Option<Epoch>, end: impl Into<StreamEnd>) {
        for batch in self.sources.ended(id, epoch, end, &self.view, self.now) {
            self.view.apply_from(batch.origin, batch.updates, self.now);
        }
    }

    pub fn standing(&self) -> LadderState {
        self.sources.ladders().find(|ladder| *ladder.authority == Authority::TopLevel).unwrap().state
    }

    /// Returns the last letter of the body that is cached under a name, or `gone`, or `unknown`.
    pub fn held(&self, url: &str, class: Class, name: &str) -> String {
        match self.view.snapshot().lookup(&self.table.resolve(url), class, &name.into()) {
            Lookup::Unknown => "unknown".into(),
            Lookup::Absent(_) => "gone".into(),
            Lookup::Present(resource) => {
                String::from_utf8_lossy(&resource.body.bytes()[resource.body.bytes().len() - 1..]).into()
            }
        }
    }
}

pub fn text_of(request: &Request) -> String {
    match request {
        Request::Sotw(request) => {
            format!("[{}] v{}", request.resource_names.join(","), request.version_info)
        }
        Request::Delta(request) => {
            // The name that asks for the end of a set differs each time: `core/tests/upstream/ends.rs` checks it.
            let stated = request.initial_resource_versions.iter().filter(|(name, _)| !name.starts_with(END_OF_SET));
            let versions: Vec<_> = stated.map(|(name, version)| format!("{name}:{version}")).collect();
            let (on, off) = (request.resource_names_subscribe.join(","), request.resource_names_unsubscribe.join(","));
            format!("+[{on}] -[{off}] {{{}}}", versions.join(","))
        }
    }
}

pub fn delta(url: &str, resources: &[(&str, &str)], removed: &[&str]) -> Response {
    let resources = resources.iter().map(|(name, content)| {
        let mut resource = wrapper(url, name, content);
        resource.version = "1".into();
        resource
    });
    Response::Delta(DeltaDiscoveryResponse {
        resources: resources.collect(),
        removed_resources: removed.iter().map(ToString::to_string).collect(),
        type_url: url.into(),
        nonce: "n".into(),
        ..Default::default()
    })
}

pub fn sotw(url: &str, version: &str, resources: &[(&str, &str)]) -> Response {
    let resources = resources.iter().filter_map(|(name, content)| wrapper(url, name, content).resource);
    let (version_info, type_url, nonce) = (version.to_owned(), url.to_owned(), "n".to_owned());
    Response::Sotw(DiscoveryResponse {
        resources: resources.collect(),
        version_info,
        type_url,
        nonce,
        ..Default::default()
    })
}

/// Returns two servers, the first of which has sent `a` of endpoints.
pub fn served(rule: Rule) -> Bench {
    let mut bench = Bench::new(plan(2, Variant::Delta, rule));
    bench.want(EDS, "a", true);
    assert_eq!(bench.open(0), ["+[a] -[] {}"]);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench
}
