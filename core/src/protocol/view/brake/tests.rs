//! Each rule of the brakes, on a view without sessions: what is present in it is what clients would have.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::proto::Any;
use crate::proto::discovery::Resource as Wrapper;
use crate::protocol::moment::Moment;
use crate::protocol::view::ViewOptions;
use crate::protocol::view::tests::pass_to;
use crate::protocol::view::{
    BrakeEvent, BrakeRules, Class, Completeness, Evidence, InterestChange, NotReleased, Origin, ReleaseReason, Retain,
    Selector, SessionId, Update, View,
};
use crate::xds::{BodyStore, Resource, Type, TypeTable};

mod listeners;
mod openings;
mod removals;
mod state;
mod waits;

const CDS: &str = "envoy.config.cluster.v3.Cluster";
const LDS: &str = "envoy.config.listener.v3.Listener";
const GRACE: u64 = 300;
const EMPTY_GRACE: u64 = 900;

struct Bench {
    view: View,
    now: Moment,
    origin: Origin,
    kind: Type,
    store: BodyStore,
}

fn options() -> ViewOptions {
    let brakes = BrakeRules {
        types: [CDS, LDS].map(Into::into).into(),
        share: 30,
        count: 10,
        window: Duration::from_secs(600),
        grace: Duration::from_secs(GRACE),
        empty_grace: Duration::from_secs(EMPTY_GRACE),
        agree_after: Duration::from_secs(60),
        ..BrakeRules::default()
    };
    ViewOptions { brakes, reference_hold: Duration::ZERO, ..ViewOptions::default() }
}

impl Bench {
    /// Returns a view whose server has sent `count` resources, a while ago.
    fn new(kind: &str, count: usize) -> Self {
        Self::with(kind, count, options())
    }

    fn with(kind: &str, count: usize, options: ViewOptions) -> Self {
        let mut bench = Self::empty(kind, options);
        bench.set(0..count);
        bench.pass(100);
        bench
    }

    fn empty(kind: &str, options: ViewOptions) -> Self {
        let table = Arc::new(TypeTable::new());
        let kind = table.resolve(kind);
        let mut view = View::new(table, options.into());
        let wanted = InterestChange { kind: kind.clone(), selector: Selector::Wildcard, on: true };
        view.change_interest(SessionId(1), wanted, Moment::START);
        let now = Moment::START + Duration::from_secs(1000);
        Self { view, now, origin: Origin::default(), kind, store: BodyStore::default() }
    }

    fn resource(&self, number: usize, content: &str) -> Arc<Resource> {
        let name = format!("r{number}");
        let value = Bytes::from(content.to_owned());
        let body = Any { type_url: format!("type.googleapis.com/{}", self.kind.name()), value };
        let wrapper = Wrapper { name, resource: Some(body), ..Wrapper::default() };
        Arc::new(Resource::from_wrapper(0, wrapper, &self.kind, &self.store).unwrap())
    }

    fn apply(&mut self, updates: Vec<Update>) {
        self.view.apply_from(self.origin, updates, self.now);
        self.view.publish();
    }

    /// The server sends its whole set.
    fn set(&mut self, numbers: impl IntoIterator<Item = usize>) {
        let resources = numbers.into_iter().map(|number| self.resource(number, "")).collect();
        self.apply(vec![Update::FullSet { kind: self.kind.clone(), resources, retain: Retain::nothing() }]);
    }

    /// The server removes resources in one delta response.
    fn remove(&mut self, numbers: impl IntoIterator<Item = usize>) {
        let gone = |number| Update::Absent {
            kind: self.kind.clone(),
            class: Class::Wildcard,
            key: format!("r{number}").as_str().into(),
            evidence: Evidence::Reported,
        };
        self.apply(numbers.into_iter().map(gone).collect());
    }

    /// The server sends a resource in a delta response.
    fn send(&mut self, number: usize, content: &str) {
        let resource = self.resource(number, content);
        let (kind, class, key) = (self.kind.clone(), Class::Wildcard, resource.name.clone());
        self.apply(vec![Update::Upsert { kind, class, key, resource }]);
    }

    /// The stream ends.
    fn interrupt(&mut self) {
        self.apply(vec![Update::Interrupted { kind: self.kind.clone(), of: Selector::Wildcard }]);
    }

    fn settle(&mut self) {
        let (kind, of) = (self.kind.clone(), Selector::Wildcard);
        self.apply(vec![Update::Progress { kind, of, completeness: Completeness::Settled }]);
    }

    /// Lets time pass, with each deadline on the way.
    fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        pass_to(&mut self.view, &mut self.now, end);
    }

    /// The numbers of the present resources.
    fn present(&self) -> BTreeSet<usize> {
        let names = self.view.tables().wildcard_names(&self.kind);
        names.map(|name| name.as_str()[1..].parse().unwrap()).collect()
    }

    fn count(&self) -> usize {
        self.present().len()
    }

    fn held(&self) -> usize {
        self.view.holds().brakes(0).iter().map(|brake| brake.held).sum()
    }

    fn generation(&self) -> u64 {
        self.view.holds().brakes(0)[0].generation
    }

    fn releases(&mut self) -> Vec<(ReleaseReason, usize)> {
        let events = self.view.take_brake_events().into_iter();
        let released = |event| match event {
            BrakeEvent::Released { reason, count, .. } => Some((reason, count)),
            BrakeEvent::Engaged { .. } => None,
        };
        events.filter_map(released).collect()
    }

    fn content(&self, number: usize) -> Option<Vec<u8>> {
        let name = format!("r{number}").as_str().into();
        let entry = self.view.tables().entry(&self.kind, Class::Wildcard, &name)?;
        Some(entry.resource()?.body.bytes().to_vec())
    }
}
