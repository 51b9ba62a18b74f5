use std::time::Duration;

use super::*;
use crate::proto::Response;
use crate::proto::discovery::DeltaDiscoveryResponse;
use crate::protocol::ladder::{LadderState, Rule};
use crate::protocol::session::Variant;
use crate::protocol::upstream::{Epoch, ResponseMessage, ServerQuirks};
use crate::protocol::view::{Class, Completeness, SessionId};
use crate::protocol::wait::WaitKind;
use crate::xds::{BodyStore, Name, Resource};

const URL: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const NAME: &str = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/a";
const STREAM: StreamId = StreamId { server: 0, at: 0 };

/// A view and one source that stands for several servers. One name of the authority `x` may be wanted from it.
struct World {
    view: View,
    sources: Sources,
    table: Arc<TypeTable>,
    now: Moment,
}

impl World {
    fn new() -> Self {
        Self::of_servers(1)
    }

    /// The authority `x` has all servers in its list.
    fn of_servers(count: usize) -> Self {
        let table = Arc::new(TypeTable::new());
        let mut plan = Plan::single(Variant::Delta, ServerQuirks::default());
        plan.servers = vec![plan.servers[0].clone(); count];
        let servers = (0..count).collect();
        plan.authorities.insert("x".into(), AuthorityPlan { servers, rule: Rule::Reachability });
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

    /// Opens the stream, and lets the server respond.
    fn open(&mut self) -> Epoch {
        let epoch = self.sources.opened(STREAM).expect("a stream is wanted");
        let response = DeltaDiscoveryResponse { type_url: URL.into(), nonce: "1".into(), ..Default::default() };
        let store = BodyStore::default();
        let response = ResponseMessage::Decoded(Response::Delta(response));
        let response = ReceivedResponse::read(response, &self.table, &store).unwrap();
        self.sources.on_received(STREAM, epoch, response, &self.view, self.now);
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

/// Until a server is active everything may be cached, and what was known of the servers before the reload still counts.
#[test]
fn fb_7_what_had_fallen_back_before_a_reload_goes_on_so_only_until_a_server_is_active() {
    let mut world = World::new();
    let x = Authority::Named("x".into());
    let gone = Authority::Named("of an earlier configuration".into());
    let lowest = LowestOpen { server: 1, rank: 1 };
    let earlier = [x.clone(), gone].map(|authority| (authority, lowest)).into();
    world.sources.go_on(ServerHistory { lowest: earlier, ..ServerHistory::default() });
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
    let of_the_next_view = |world: &mut World| world.sources.history(world.now).lowest;
    assert_eq!(of_the_next_view(&mut world), [(x.clone(), lowest)].into(), "another reload");
    world.open();
    goes_on(&mut world);
    assert!(!goes_on(&mut world), "a server has spoken");
    let first = LowestOpen { server: 0, rank: 0 };
    assert_eq!(of_the_next_view(&mut world), [(x.clone(), first)].into());
    world.sources.go_on(ServerHistory { lowest: [(x.clone(), first)].into(), ..ServerHistory::default() });
    world.sources.ended(STREAM, None, false, &world.view, world.now);
    assert!(!goes_on(&mut world), "the first one is not left with everything cached");
}

#[test]
fn fb_31_a_later_view_is_told_of_the_lowest_server_that_is_open_or_was_before() {
    let mut world = World::of_servers(3);
    let x = Authority::Named("x".into());
    let at = |at: u16| LowestOpen { server: at, rank: at as u8 };
    let lowest = |world: &mut World| world.sources.history(world.now).lowest.get(&x).copied();
    assert_eq!(lowest(&mut world), None);
    world.sources.go_on(ServerHistory { lowest: [(x.clone(), at(1))].into(), ..ServerHistory::default() });
    world.want(true);
    assert_eq!(lowest(&mut world), Some(at(1)), "only the first is open here");
    for (unreachable, expected) in [(0, at(1)), (1, at(2))] {
        world.sources.ended(StreamId { server: unreachable, at: 0 }, None, false, &world.view, world.now);
        assert_eq!(lowest(&mut world), Some(expected));
    }
    let gone = LowestOpen { server: u16::MAX, rank: 2 };
    world.sources.go_on(ServerHistory { lowest: [(x.clone(), gone)].into(), ..ServerHistory::default() });
    assert_eq!(lowest(&mut world), Some(at(2)), "one that is gone is not in the way of one that is there");
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

/// Returns a view of which all clusters are wanted from these servers.
fn over(servers: Vec<ServerPlan>) -> World {
    let mut world = World::new();
    let places = (0..servers.len()).collect();
    let top = AuthorityPlan { servers: places, rule: Rule::Reachability };
    let plan = Plan { servers, top, ..Plan::single(Variant::Delta, ServerQuirks::default()) };
    world.sources = Sources::new(Arc::new(plan), Bytes::new(), world.table.clone(), Arc::default());
    let change = InterestChange { kind: world.table.resolve(CDS), selector: Selector::Wildcard, on: true };
    world.view.change_interest(SessionId(1), change, world.now);
    for change in world.view.take_upstream_changes() {
        world.sources.want(change, &world.view, world.now);
    }
    world
}

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

fn streams() -> ServerPlan {
    ServerPlan::Streams { variant: Variant::Delta, quirks: Arc::default() }
}

fn snapshot_of(world: &World, names: &[&str]) -> Arc<SourceSnapshot> {
    let kind = world.table.resolve(CDS);
    let resource = |name: &&str| {
        let body = crate::proto::Any { type_url: CDS.into(), value: Bytes::from_static(b"\x12\x01x") };
        let wrapper =
            crate::proto::discovery::Resource { name: (*name).into(), resource: Some(body), ..Default::default() };
        let resource = Resource::from_wrapper(0, wrapper, &kind, &BodyStore::default()).unwrap();
        (Name::from(*name), Arc::new(resource))
    };
    let items = names.iter().map(resource).collect();
    Arc::new(SourceSnapshot::default().next([(kind.clone(), items)].into(), true))
}

impl World {
    /// Makes a local set reachable, and applies all its updates that are due. Returns how many there were.
    fn report(&mut self, id: StreamId, names: &[&str]) -> (Epoch, usize) {
        let epoch = self.sources.opened(id).expect("it is wanted");
        self.sources.on_snapshot(id, epoch, snapshot_of(self, names));
        let mut count = 0;
        while self.sources.local_sets().any(|(_, set)| set.next_deadline() == Some(Moment::START)) {
            for SetUpdates { batches, .. } in self.sources.take_set_updates(&self.view, self.now) {
                for UpdateBatch { origin, updates } in batches {
                    count += updates.len();
                    self.view.apply_from(origin, updates, self.now);
                }
            }
        }
        (epoch, count)
    }

    fn clusters(&self) -> Vec<String> {
        let kind = self.table.resolve(CDS);
        self.view.holds().here(&kind, Class::Wildcard).map(|(name, _)| name.to_string()).collect()
    }

    fn state(&self) -> LadderState {
        self.sources.ladders().next().expect("a ladder is in use").state
    }
}

#[test]
fn fs_6_a_local_set_serves_while_the_server_above_it_is_unreachable_and_says_nothing_of_the_rest() {
    let mut world = over(vec![streams(), ServerPlan::LocalSet { authoritative: false }]);
    let (server, set) = (StreamId { server: 0, at: 0 }, StreamId { server: 1, at: 0 });
    assert_eq!(world.sources.local_sets().count(), 0, "it is not in use");
    world.sources.ended(server, None, false, &world.view, world.now);
    assert_eq!(world.state(), LadderState::Trying(1));
    world.report(set, &["a", "b"]);
    assert_eq!((world.state(), world.clusters()), (LadderState::Active(1), vec!["a".into(), "b".into()]));
    world.report(set, &["b"]);
    assert_eq!(world.clusters(), ["a", "b"], "it is no evidence of absence");
    let epoch = world.sources.opened(server).unwrap();
    let content = crate::proto::discovery::Resource {
        name: "c".into(),
        version: "1".into(),
        resource: Some(crate::proto::Any { type_url: CDS.into(), value: Bytes::new() }),
        ..Default::default()
    };
    let response = DeltaDiscoveryResponse { type_url: CDS.into(), resources: vec![content], ..Default::default() };
    let response = ResponseMessage::Decoded(Response::Delta(response));
    let response = ReceivedResponse::read(response, &world.table, &BodyStore::default()).unwrap();
    for UpdateBatch { origin, updates } in world.sources.on_received(server, epoch, response, &world.view, world.now) {
        world.view.apply_from(origin, updates, world.now);
    }
    assert_eq!((world.state(), world.clusters()), (LadderState::Active(0), ["a", "b", "c"].map(String::from).into()));
    assert_eq!(world.sources.local_sets().count(), 0, "it is closed");
    assert_eq!(world.sources.take_closed(), [1].into());
}

#[test]
fn a_local_set_that_is_lost_is_unreachable_however_long_it_was_well() {
    let mut world = over(vec![ServerPlan::LocalSet { authoritative: false }, streams()]);
    let set = StreamId { server: 0, at: 0 };
    let (epoch, _) = world.report(set, &["a"]);
    assert_eq!(world.state(), LadderState::Active(0));
    world.now = world.now + Duration::from_secs(3600);
    world.sources.ended(set, Some(epoch), false, &world.view, world.now);
    assert_eq!((world.state(), world.clusters()), (LadderState::Trying(1), vec!["a".to_owned()]));
    assert_eq!(world.sources.reachability().next().unwrap(), Some(Reachability::Refused));

    let mut alone = over(vec![ServerPlan::LocalSet { authoritative: true }]);
    let (epoch, _) = alone.report(set, &["a", "b"]);
    alone.now = alone.now + Duration::from_secs(3600);
    alone.sources.ended(set, Some(epoch), false, &alone.view, alone.now);
    assert_eq!(alone.state(), LadderState::Down);
    alone.report(set, &["b"]);
    assert_eq!((alone.state(), alone.clusters()), (LadderState::Active(0), vec!["b".to_owned()]));
}

#[test]
fn what_a_local_set_reports_is_reported_once_also_if_it_becomes_active_by_that_and_for_another_authority_later() {
    let mut world = over(vec![ServerPlan::LocalSet { authoritative: true }]);
    let set = StreamId { server: 0, at: 0 };
    let mut plan = Plan::clone(&world.sources.plan);
    plan.authorities.insert("x".into(), AuthorityPlan { servers: vec![0], rule: Rule::Uncached });
    world.sources = Sources::new(Arc::new(plan), Bytes::new(), world.table.clone(), Arc::default());
    let change = InterestChange { kind: world.table.resolve(CDS), selector: Selector::Wildcard, on: true };
    world.sources.want(change, &world.view, world.now);
    let names: Vec<_> = (0..2_500).map(|number| format!("c{number:04}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let (_, count) = world.report(set, &names);
    // With the interruption of the set, two updates that more is to come, and the end.
    assert!((2_500..2_510).contains(&count), "{count}");
    let other = InterestChange { kind: world.table.resolve(URL), selector: Selector::Name(NAME.into()), on: true };
    world.view.change_interest(SessionId(1), other.clone(), world.now);
    world.sources.want(other, &world.view, world.now);
    let updates = world.sources.take_set_updates(&world.view, world.now);
    let count: usize = updates.iter().flat_map(|of| &of.batches).map(|batch| batch.updates.len()).sum();
    assert_eq!(count, 1, "the name is absent, and nothing else is reported");
    assert_eq!(world.sources.next_deadline(|_| false), None);
}

#[test]
fn what_a_local_set_has_still_to_report_is_due_at_once() {
    let mut world = over(vec![ServerPlan::LocalSet { authoritative: true }]);
    let set = StreamId { server: 0, at: 0 };
    let epoch = world.sources.opened(set).unwrap();
    let snapshot = snapshot_of(&world, &["a"]);
    world.sources.on_snapshot(set, epoch, snapshot);
    assert_eq!(world.sources.next_deadline(|_| false), Some(Moment::START));
}

#[test]
fn an_authority_without_any_server_is_listed_as_a_wait_without_a_bound() {
    let mut world = over(vec![ServerPlan::LocalSet { authoritative: true }]);
    let set = StreamId { server: 0, at: 0 };
    let (epoch, _) = world.report(set, &["a"]);
    let waits = |world: &World| {
        let mut list = WaitList::keeping(10);
        world.sources.add_waits(&world.view, world.now, &mut list);
        let all = list.into_oldest().into_iter();
        let ladders = all.filter(|wait| wait.kind == WaitKind::Ladder);
        ladders.map(|wait| (wait.subject.authority, wait.age, wait.bound)).collect::<Vec<_>>()
    };
    assert_eq!(waits(&world), []);
    world.sources.ended(set, Some(epoch), false, &world.view, world.now);
    assert_eq!(world.state(), LadderState::Down);
    let age = Duration::from_secs(60);
    world.now = world.now + age;
    assert_eq!(waits(&world), [(Some(Authority::TopLevel), age, None)]);
}

#[test]
fn fb_20_what_a_server_that_is_not_in_use_any_more_reports_late_says_nothing_of_it() {
    let mut world = over(vec![streams(), streams()]);
    let [first, second] = [0, 1].map(|server| StreamId { server, at: 0 });
    world.sources.ended(first, None, false, &world.view, world.now);
    assert_eq!(world.state(), LadderState::Trying(1));
    let epoch = world.sources.opened(first).unwrap();
    let response = DeltaDiscoveryResponse {
        type_url: CDS.into(),
        resources: vec![crate::proto::discovery::Resource {
            name: "a".into(),
            resource: Some(crate::proto::Any { type_url: CDS.into(), value: Bytes::new() }),
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = ResponseMessage::Decoded(Response::Delta(response));
    let response = ReceivedResponse::read(response, &world.table, &BodyStore::default()).unwrap();
    world.sources.on_received(first, epoch, response, &world.view, world.now);
    assert_eq!(world.state(), LadderState::Active(0));
    world.sources.ended(second, None, false, &world.view, world.now);
    assert_eq!((world.sources.opened(second), world.sources.reachability().nth(1).unwrap()), (None, None));
}

#[test]
fn another_node_is_shown_once_the_stream_is_opened_again_and_that_has_no_pause() {
    let mut world = World::new();
    world.want(true);
    let due = |world: &mut World| {
        let node = world.sources.shown_node();
        (node.open_streams(), node.is_on(STREAM), node.left_behind())
    };
    let (all, none) = (|| BTreeSet::from([STREAM]), BTreeSet::new);
    world.sources.shown_node().set(Bytes::from_static(b"first"));
    assert_eq!(due(&mut world), (none(), false, none()), "nothing is open");
    world.open();
    world.sources.stream(STREAM).unwrap().next_request(world.now);
    assert!(due(&mut world).1);
    assert_eq!(world.sources.shown_node().bytes(), "first".len());
    world.sources.shown_node().set(Bytes::from_static(b"second"));
    assert_eq!(world.sources.shown_node().bytes(), "first".len() + "second".len(), "each once");
    assert_eq!(due(&mut world), (all(), false, all()));
    assert!(world.sources.due_reopenings(world.now).is_empty(), "it waits for its turn");
    world.sources.shown_node().show_on(STREAM);
    assert_eq!(due(&mut world), (all(), false, none()));
    assert_eq!(world.sources.due_reopenings(world.now), [STREAM.server].into());
    world.sources.on_time(&world.view, world.now);
    assert_eq!(world.sources.take_reopened(), [STREAM].into());
    world.open();
    assert_eq!(due(&mut world), (all(), true, none()));
    assert_eq!(world.sources.shown_node().bytes(), "second".len());
    let request = world.sources.stream(STREAM).unwrap().next_request(world.now).unwrap();
    assert_eq!(request.node().map(|node| &**node), Some(&b"second"[..]));
    assert!(world.sources.due_reopenings(world.now).is_empty());
}

#[test]
fn a_server_whose_stream_has_ended_is_shown_another_node_without_a_turn() {
    let mut world = World::new();
    world.want(true);
    let epoch = world.open();
    world.sources.shown_node().set(Bytes::from_static(b"second"));
    world.sources.ended(STREAM, Some(epoch), true, &world.view, world.now);
    world.sources.shown_node().show_to_unopened();
    world.open();
    assert!(world.sources.shown_node().is_on(STREAM));
    let request = world.sources.stream(STREAM).unwrap().next_request(world.now).unwrap();
    assert_eq!(request.node().map(|node| &**node), Some(&b"second"[..]));
}
