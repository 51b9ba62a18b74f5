use std::time::Duration;

use super::*;
use crate::proto::Response;
use crate::proto::discovery::DeltaDiscoveryResponse;
use crate::protocol::ladder::Rule;
use crate::protocol::session::Variant;
use crate::protocol::upstream::{Epoch, ServerQuirks};
use crate::protocol::view::{Completeness, SessionId};
use crate::xds::{BodyStore, Name};

const URL: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const NAME: &str = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/a";
const STREAM: StreamId = StreamId { server: 0, at: 0 };

/// A view of which one name of the authority `x` may be wanted, from a source that stands for several servers.
struct World {
    view: View,
    sources: Sources,
    table: Arc<TypeTable>,
    now: Moment,
}

impl World {
    fn new() -> Self {
        let table = Arc::new(TypeTable::new());
        let mut plan = Plan::single(Variant::Delta, ServerQuirks::default());
        plan.authorities.insert("x".into(), AuthorityPlan { servers: vec![0], rule: Rule::Reachability });
        let sources = Sources::new(Arc::new(plan), Bytes::from_static(b"node"), table.clone(), Arc::default());
        Self { view: View::new(table.clone(), Arc::default()), sources, table, now: Moment::START }
    }

    fn want(&mut self, on: bool) {
        let change = InterestChange { kind: self.table.resolve(URL), selector: Selector::Name(NAME.into()), on };
        self.view.change_interest(SessionId(1), change, self.now);
        self.now = self.now + Duration::from_secs(3600); // long enough for interest to end
        self.view.on_time(self.now);
        for change in self.view.take_upstream_changes() {
            self.sources.want(change, &self.view, self.now);
        }
        self.sources.close_unused(&self.view, self.now);
    }

    /// The stream opens, and has a response.
    fn open(&mut self) -> Epoch {
        let epoch = self.sources.opened(STREAM).expect("a stream is wanted");
        let response = DeltaDiscoveryResponse { type_url: URL.into(), nonce: "1".into(), ..Default::default() };
        let store = BodyStore::default();
        self.sources.on_response(STREAM, epoch, Response::Delta(response), &store, &self.view, self.now);
        epoch
    }
}

#[test]
fn fb_27_an_outage_that_a_source_has_reported_is_over_when_the_source_was_closed_or_its_stream_has_ended() {
    let x = BTreeSet::from([Authority::Named("x".into())]);
    for closes in [true, false] {
        let mut world = World::new();
        world.want(true);
        let epoch = world.open();
        world.sources.on_outage(STREAM, epoch, x.clone());
        assert_eq!(world.sources.down(), x);
        if closes {
            world.want(false);
            assert!(world.sources.stream(STREAM).is_none(), "nothing is wanted of it");
            world.want(true);
        } else {
            world.sources.ended(STREAM, Some(epoch), true, &world.view, world.now);
        }
        world.open();
        assert_eq!(world.sources.down(), [].into(), "closes: {closes}");
    }
}

#[test]
fn fb_2_a_server_that_opens_a_stream_can_be_reached_and_what_it_has_answered_before_stays_known() {
    let mut world = World::new();
    world.want(true);
    let found = |world: &World| world.sources.reachability().next().unwrap();
    world.sources.ended(STREAM, None, false, &world.view, world.now);
    assert_eq!(found(&world), Some(Reachability::Unreachable));
    world.sources.opened(STREAM);
    assert_eq!(found(&world), Some(Reachability::Refused), "without a response it is none to turn to");
    world.sources.opened(STREAM);
    assert_eq!(found(&world), Some(Reachability::Refused));
    world.open();
    assert_eq!(found(&world), Some(Reachability::Responded));
    world.sources.opened(STREAM);
    assert_eq!(found(&world), Some(Reachability::Responded));
}

#[test]
fn what_comes_late_from_an_earlier_opening_of_a_stream_says_nothing() {
    let mut world = World::new();
    world.want(true);
    let earlier = world.open();
    world.sources.ended(STREAM, Some(earlier), true, &world.view, world.now);
    let epoch = world.open();
    let x = BTreeSet::from([Authority::Named("x".into())]);
    let glob = Name::from("xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/*");
    let says = |world: &mut World, epoch| {
        world.sources.on_outage(STREAM, epoch, x.clone());
        let progress = world.sources.on_progress(STREAM, epoch, URL, glob.clone(), Completeness::Complete);
        let count: usize = progress.iter().map(|batch| batch.updates.len()).sum();
        (world.sources.down(), count)
    };
    assert_eq!(says(&mut world, earlier), ([].into(), 0));
    assert_eq!(says(&mut world, epoch), (x.clone(), 1));
}

/// Until then everything may be cached, and the servers of before the reload still count.
#[test]
fn fb_7_what_had_fallen_back_before_a_reload_goes_on_so_only_until_a_server_is_active() {
    let mut world = World::new();
    let x = Authority::Named("x".into());
    world.sources.go_on_fallen([x.clone()].into());
    world.want(true);
    let goes_on = |world: &mut World| {
        let mut goes_on = None;
        world.sources.step(&x, &world.view, |_, around| {
            goes_on = Some(around.goes_on);
            Vec::new()
        });
        goes_on.unwrap()
    };
    assert!(goes_on(&mut world));
    world.sources.ended(STREAM, None, false, &world.view, world.now);
    assert!(goes_on(&mut world), "no server is active");
    world.open();
    goes_on(&mut world);
    assert!(!goes_on(&mut world), "a server has spoken");
}

#[test]
fn up_4_a_list_is_as_long_as_the_strictest_server_takes_of_those_that_are_spoken_to_in_lists() {
    let quirks = |max_request_bytes| ServerQuirks { max_request_bytes, ..ServerQuirks::default() };
    let mut plan = Plan::single(Variant::Delta, quirks(100));
    let mut second = Plan::single(Variant::Sotw, quirks(300));
    plan.servers.append(&mut second.servers);
    plan.top = AuthorityPlan { servers: vec![0, 1], rule: Rule::Uncached };
    plan.authorities.insert("x".into(), AuthorityPlan { servers: vec![0], rule: Rule::Uncached });
    let mut world = World::new();
    let table = world.table.clone();
    world.sources = Sources::new(Arc::new(plan), Bytes::new(), table, Arc::default());
    assert_eq!(world.sources.list_limit(), Some(300), "the first is tried in delta");
    world.want(true);
    assert_eq!(world.sources.list_limit(), Some(300));
    world.sources.stream(STREAM).unwrap().set_variant(Variant::Sotw);
    assert_eq!(world.sources.list_limit(), Some(100), "it turned out to speak in lists");
    world.sources.stream(STREAM).unwrap().set_variant(Variant::Delta);
    assert_eq!(world.sources.list_limit(), Some(300));
}
