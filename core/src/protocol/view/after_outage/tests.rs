//! Each rule of the first words after an outage, on a view without sessions: what is present in it is what clients would have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::proto::Any;
use crate::proto::discovery::Resource as Wrapper;
use crate::protocol::moment::Moment;
use crate::protocol::view::tests::pass_to;
use crate::protocol::view::{
    BrakeRules, Class, Completeness, Evidence, InterestChange, NamedError, Origin, Retain, Selector, SessionId, Update,
    View, ViewOptions,
};
use crate::protocol::visits::take_visits;
use crate::protocol::wait::{WaitKind, WaitList};
use crate::xds::{BodyStore, Name, Resource, Type, TypeTable};

mod brakes;
mod histories;
mod seams;
mod words;

const CDS: &str = "envoy.config.cluster.v3.Cluster";
const LDS: &str = "envoy.config.listener.v3.Listener";
const SRDS: &str = "envoy.config.route.v3.ScopedRouteConfiguration";
const EDS: &str = "envoy.config.endpoint.v3.ClusterLoadAssignment";
const SDS: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";
const HOLD: Duration = Duration::from_secs(10);
/// Assignments with a usable host, and with one that is drained.
const USABLE: &[u8] = &[0x12, 4, 0x12, 2, 0x10, 1];
const DRAINED: &[u8] = &[0x12, 4, 0x12, 2, 0x10, 3];

struct Bench {
    view: View,
    now: Moment,
    origin: Origin,
    table: Arc<TypeTable>,
    store: BodyStore,
}

fn options() -> ViewOptions {
    let brakes = BrakeRules { after_outage: HOLD, ..BrakeRules::default() };
    ViewOptions { brakes, reference_hold: Duration::ZERO, ..ViewOptions::default() }
}

fn names(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

impl Bench {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: ViewOptions) -> Self {
        let table = Arc::new(TypeTable::new());
        let mut view = View::new(table.clone(), options.into());
        for kind in [CDS, LDS, SRDS, SDS] {
            let (kind, selector) = (table.resolve(kind), Selector::Wildcard);
            view.change_interest(SessionId(1), InterestChange { kind, selector, on: true }, Moment::START);
        }
        for name in ["web", "api"] {
            let (kind, selector) = (table.resolve(EDS), Selector::Name(name.into()));
            view.change_interest(SessionId(1), InterestChange { kind, selector, on: true }, Moment::START);
        }
        let now = Moment::START + Duration::from_secs(1000);
        Self { view, now, origin: Origin::default(), table, store: BodyStore::default() }
    }

    /// A bench with a set of these names, which were sent a while ago. Their server has just come back.
    fn back(kind: &str, all: &[&str], options: ViewOptions) -> Self {
        let mut bench = Self::with(options);
        bench.set(kind, all);
        bench.pass(100_000);
        bench.outage(kind);
        bench
    }

    fn kind(&self, kind: &str) -> Type {
        self.table.resolve(kind)
    }

    fn resource(&self, kind: &str, name: &str, body: &[u8]) -> Arc<Resource> {
        let body = Any { type_url: format!("type.googleapis.com/{kind}"), value: Bytes::copy_from_slice(body) };
        let wrapper = Wrapper { name: name.into(), resource: Some(body), ..Wrapper::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &self.kind(kind), &self.store).unwrap())
    }

    fn apply(&mut self, updates: Vec<Update>) {
        self.view.apply_from(self.origin, updates, self.now);
        self.view.publish();
    }

    /// The server sends its whole set.
    fn set(&mut self, kind: &str, names: &[&str]) {
        let resources = names.iter().map(|name| self.resource(kind, name, b"")).collect();
        self.apply(vec![Update::FullSet { kind: self.kind(kind), resources, retain: Retain::nothing() }]);
    }

    fn absent(&self, kind: &str, class: Class, name: &str) -> Update {
        Update::Absent { kind: self.kind(kind), class, key: name.into(), evidence: Evidence::Reported }
    }

    /// The server removes a resource of a set in a delta response.
    fn remove(&mut self, kind: &str, name: &str) {
        self.apply(vec![self.absent(kind, Class::Wildcard, name)]);
    }

    fn upsert(&self, kind: &str, class: Class, name: &str, body: &[u8]) -> Update {
        let resource = self.resource(kind, name, body);
        Update::Upsert { kind: self.kind(kind), class, key: name.into(), resource }
    }

    fn send(&mut self, kind: &str, name: &str, body: &[u8]) {
        self.apply(vec![self.upsert(kind, Class::Wildcard, name, body)]);
    }

    fn assign(&mut self, name: &str, body: &[u8]) {
        self.apply(vec![self.upsert(EDS, Class::Named, name, body)]);
    }

    fn interrupt(&mut self, kind: &str) {
        self.apply(vec![Update::Interrupted { kind: self.kind(kind), of: Selector::Wildcard }]);
    }

    /// The stream is lost, and is open again.
    fn outage(&mut self, kind: &str) {
        self.interrupt(kind);
        let until = self.now + Duration::from_secs(15);
        self.view.note_recovering(BTreeMap::from([(self.origin.server, until)]));
    }

    /// Lets time pass, with each deadline on the way.
    fn pass(&mut self, milliseconds: u64) {
        let end = self.now + Duration::from_millis(milliseconds);
        pass_to(&mut self.view, &mut self.now, end);
    }

    fn present(&self, kind: &str) -> BTreeSet<String> {
        self.view.tables().wildcard_names(&self.kind(kind)).map(Name::to_string).collect()
    }

    fn body(&self, kind: &str, class: Class, name: &str) -> Vec<u8> {
        let entry = self.view.tables().entry(&self.kind(kind), class, &name.into());
        entry.and_then(|entry| entry.resource()).map(|resource| resource.body.bytes().to_vec()).unwrap_or_default()
    }

    fn assigned(&self, name: &str) -> Vec<u8> {
        self.body(EDS, Class::Named, name)
    }

    fn is_complete(&self, kind: &str) -> bool {
        self.view.tables().completeness_of(&self.kind(kind), &Selector::Wildcard) == Completeness::Complete
    }

    /// How many names are held, each with its age in milliseconds.
    fn waits(&self) -> Vec<u128> {
        let mut list = WaitList::keeping(10_000);
        self.view.holds().add_waits(self.now, &mut list);
        let held = list.into_oldest().into_iter().filter(|wait| wait.kind == WaitKind::AfterOutage);
        held.inspect(|wait| assert_eq!(wait.bound, Some(HOLD))).map(|wait| wait.age.as_millis()).collect()
    }
}
