mod put_back;
mod room;
mod waits;

use std::time::Duration;

use super::*;
use crate::proto::Any;
use crate::proto::discovery::{DeltaDiscoveryResponse, Resource as Wrapper, ResourceError, ResourceName, Status};
use crate::protocol::upstream::{NameRequest, RequestState, ViewContext};
use crate::protocol::view::{SessionId, View};

const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// A stream on which names of endpoints are requested, and the view that wants them.
struct World {
    stream: Stream,
    view: View,
    table: Arc<TypeTable>,
    epoch: Epoch,
    now: Moment,
    /// How much room is left for small responses when room is short.
    spare: usize,
}

impl World {
    fn new(names: &[&str]) -> Self {
        let table = Arc::new(TypeTable::new());
        let quirks = Arc::<ServerQuirks>::default();
        let stream = Stream::new(Variant::Delta, Bytes::new(), quirks, table.clone(), Arc::default());
        let view = View::new(table.clone(), Arc::default());
        let mut world = Self { epoch: stream.epoch(), stream, view, table, now: Moment::START, spare: 0 };
        names.iter().for_each(|name| world.want(name, true));
        world.open();
        world
    }

    fn want(&mut self, name: &str, on: bool) {
        let selector = if name == "*" { Selector::Wildcard } else { Selector::Name(name.into()) };
        let change = InterestChange { kind: self.table.resolve(EDS), selector, on };
        self.view.change_interest(SessionId(1), change.clone(), self.now);
        self.stream.want(change, false);
    }

    /// Opens the stream, and writes its first requests.
    fn open(&mut self) {
        self.epoch = self.stream.opened();
        while self.stream.next_request(self.now).is_some() {}
        self.stream.written(self.now);
    }

    fn reopen(&mut self) {
        self.stream.ended(self.epoch);
        self.open();
    }

    fn respond(&mut self, response: DeltaDiscoveryResponse) {
        let response = DeltaDiscoveryResponse { type_url: EDS.into(), nonce: "1".into(), ..response };
        let updates = self.stream.on_response(self.epoch, Response::Delta(response), &BodyStore::default(), self.now);
        self.view.apply(updates, self.now);
        while self.stream.next_request(self.now).is_some() {}
        self.stream.written(self.now);
    }

    /// Lets time pass. A server that is alive answers liveness calls.
    fn later(&mut self, seconds: u64, is_alive: bool) {
        self.now = self.now + Duration::from_secs(seconds);
        for _ in 0..2 {
            let updates = self.stream.on_time(&ViewContext::single_server(&self.view), self.now);
            self.view.apply(updates, self.now);
            if is_alive && self.stream.take_liveness_call() {
                self.stream.on_liveness_answer(self.epoch);
            }
        }
    }

    fn request_of(&self, name: &str) -> Option<NameRequest> {
        self.stream.request_of(&self.table.resolve(EDS), &name.into())
    }

    fn state(&self, name: &str) -> Option<RequestState> {
        self.request_of(name).map(|of| of.state)
    }
}

fn resource(name: &str) -> Wrapper {
    let body = [&[0x0a, u8::try_from(name.len()).unwrap()], name.as_bytes()].concat();
    let resource = Some(Any { type_url: EDS.into(), value: body.into() });
    Wrapper { name: name.into(), version: "1".into(), resource, ..Default::default() }
}

fn trouble(name: &str) -> ResourceError {
    let resource_name = Some(ResourceName { name: name.into(), ..Default::default() });
    ResourceError { resource_name, error_detail: Some(Status { code: 14, message: "later".into() }) }
}

#[test]
fn what_is_known_of_a_name_on_a_stream_follows_its_request_what_came_and_each_opening() {
    let mut world = World::new(&["a", "b", "c"]);
    let timer = Some(world.now + Duration::from_secs(15));
    assert_eq!(world.state("a"), Some(RequestState::Waiting(timer)));
    assert_eq!(world.state("other"), None, "it is not requested");
    let removed_resources = vec!["b".to_owned()];
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], removed_resources, ..Default::default() });
    assert_eq!((world.state("a"), world.state("b")), (Some(RequestState::Given), Some(RequestState::Absent)));
    world.later(15, true);
    assert_eq!(world.state("c"), Some(RequestState::Silent));
    world.reopen();
    let timer = RequestState::Waiting(Some(world.now + Duration::from_secs(15)));
    let states = ["a", "b", "c"].map(|name| world.state(name).unwrap());
    assert_eq!(states, [RequestState::Given, timer, timer], "what was said of absent names is over");
    world.want("c", false);
    assert_eq!(world.state("c"), None);
}

#[test]
fn an_error_of_a_name_is_shown_until_the_name_comes_is_left_or_the_stream_is_opened_again() {
    let error = |world: &World| world.request_of("a").and_then(|of| of.error);
    let ends: [fn(&mut World); 4] = [
        |world| world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() }),
        |world| {
            world.respond(DeltaDiscoveryResponse { removed_resources: vec!["a".into()], ..Default::default() });
        },
        World::reopen,
        |world| {
            world.want("a", false);
            world.want("a", true);
        },
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let mut world = World::new(&["a"]);
        world.respond(DeltaDiscoveryResponse { resource_errors: vec![trouble("a")], ..Default::default() });
        assert_eq!(error(&world).as_deref(), Some("later"));
        end(&mut world);
        assert_eq!(error(&world), None, "end {number}");
    }
}

#[test]
fn a_stream_is_opened_again_once_after_its_versions_were_cleared() {
    let mut world = World::new(&["a"]);
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    assert!(!world.stream.take_reopen(world.now));
    world.stream.clear_all_versions(|_| true);
    assert!(world.stream.take_reopen(world.now), "it has stated a version that is no longer valid");
    world.reopen();
    world.now = world.now + Duration::from_secs(3600);
    assert!(!world.stream.take_reopen(world.now), "the next opening has stated no such version");
}

#[test]
fn what_other_servers_have_sent_meanwhile_is_not_stated_and_all_else_is() {
    let elsewhere = |of: &Selector| matches!(of, Selector::Name(name) if name.as_str().starts_with("xdstp://"));
    for (name, of, is_stated) in [
        ("*", elsewhere as fn(&Selector) -> bool, true),
        ("*", |of| *of == Selector::Wildcard, false),
        ("a", elsewhere, true),
        ("a", |of| *of == Selector::Name("a".into()), false),
    ] {
        let mut world = World::new(&[name]);
        world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
        world.stream.clear_all_versions(of);
        world.stream.ended(world.epoch);
        world.epoch = world.stream.opened();
        let Some(Request::Delta(first)) = world.stream.next_request(world.now) else { panic!("no delta request") };
        let version = first.initial_resource_versions.get("a").map(String::as_str);
        assert_eq!(version == Some("1"), is_stated, "{name}: {version:?}");
    }
}

/// Returns the version that the next opening states for `a`.
fn states_next(world: &mut World) -> Option<String> {
    world.stream.ended(world.epoch);
    world.epoch = world.stream.opened();
    let Some(Request::Delta(mut first)) = world.stream.next_request(world.now) else { panic!("no delta request") };
    first.initial_resource_versions.remove("a")
}

#[test]
fn fb_3_another_stream_of_a_server_that_fails_is_opened_again_to_show_that_the_server_is_back() {
    let mut world = World::new(&["a"]);
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    assert_eq!(states_next(&mut world).as_deref(), Some("1"));
    world.stream.clear_one_version_per_type();
    assert!(world.stream.is_reopen_due(world.now), "this opening has stated what the server need not send");
    assert_eq!(states_next(&mut world).as_deref(), Some("weir-unknown"));
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    assert_eq!(states_next(&mut world).as_deref(), Some("1"), "once");
}

#[test]
fn what_an_earlier_process_was_given_is_kept_for_a_server_that_reads_what_is_stated() {
    for supports_initial_resource_versions in [true, false] {
        let mut world = World::new(&[]);
        let quirks = ServerQuirks { supports_initial_resource_versions, ..ServerQuirks::default() };
        world.stream = Stream::new(Variant::Delta, Bytes::new(), quirks.into(), world.table.clone(), Arc::default());
        world.want("a", true);
        let kind = world.table.resolve(EDS);
        world.stream.note_given_earlier(&kind, &"a".into());
        world.stream.request_again(&kind, &"b".into());
        let kept = world.stream.subscriptions.get(&kind).unwrap().given().given_earlier().len();
        assert_eq!(kept, if supports_initial_resource_versions { 2 } else { 0 });
    }
}

#[test]
fn names_without_room_in_a_request_are_counted_while_they_are_wanted() {
    let quirks = Arc::new(ServerQuirks { max_request_bytes: 400, ..ServerQuirks::default() });
    let mut world = World::new(&[]);
    world.stream = Stream::new(Variant::Delta, Bytes::new(), quirks, world.table.clone(), Arc::default());
    let long = ["x", "y"].map(|letter| letter.repeat(500));
    let left_out = |world: &World| world.stream.types().map(|of| of.left_out).sum::<usize>();
    let mut counts = Vec::new();
    for (name, on) in [("a", true), (&long[0], true), (&long[1], true), (&long[0], false), (&long[1], false)] {
        world.want(name, on);
        world.reopen();
        counts.push(left_out(&world));
    }
    assert_eq!(counts, [0, 1, 2, 1, 0]);
}

#[test]
fn fb_3_a_stream_that_is_silent_is_healthy_only_by_proof_of_its_own_opening() {
    let mut world = World::new(&["a"]);
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    world.later(15, true);
    assert!(world.stream.is_healthy(world.now), "it has sent all that was requested");
    world.reopen();
    assert!(!world.stream.is_healthy(world.now), "it has not had the time to respond");
    world.later(15, false);
    assert!(!world.stream.is_healthy(world.now), "it has not answered the call on this opening");
    assert_eq!(world.stream.has_answered_call(), Some(false));
    world.later(1, true);
    assert_eq!(world.stream.has_answered_call(), Some(true));
    assert!(world.stream.is_healthy(world.now), "a server need not send again what was stated");
    world.reopen();
    world.respond(DeltaDiscoveryResponse::default());
    assert!(!world.stream.is_healthy(world.now), "a server that is alive needs time to respond too");
    world.later(15, false);
    assert!(world.stream.is_healthy(world.now));
    world.want("b", true);
    while world.stream.next_request(world.now + Duration::from_secs(1)).is_some() {}
    assert!(!world.stream.is_healthy(world.now), "it has yet to send b");
}

#[test]
fn a_message_that_has_begun_and_never_ended_is_forgotten_with_its_opening() {
    let mut world = World::new(&["a"]);
    world.stream.on_receiving(world.epoch);
    world.later(15, true);
    assert!(matches!(world.state("a"), Some(RequestState::Waiting(_))), "a message is coming in");
    let earlier = world.epoch;
    world.reopen();
    world.stream.on_receiving(earlier);
    world.later(15, true);
    assert_eq!(world.state("a"), Some(RequestState::Silent));
}

#[test]
fn names_of_a_wildcard_are_requested_with_it() {
    let mut world = World::new(&["*"]);
    assert_eq!(world.state("a"), Some(RequestState::OfWildcard));
    world.want("*", false);
    assert_eq!(world.state("a"), None);
}
