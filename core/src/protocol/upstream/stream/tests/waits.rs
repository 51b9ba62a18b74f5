//! Everything that waits for a server is listed with its age and its bound, for as long as it waits.

use super::*;
use crate::protocol::upstream::quirks::OnResourceTimeout;
use crate::protocol::view::{Claim, Claimed};
use crate::protocol::wait::{Wait, WaitKind, WaitList};

/// A wait with its name, its age and its bound in seconds.
type Listed = (WaitKind, Option<String>, u64, Option<u64>);

impl World {
    fn list(&self, limit: usize) -> WaitList {
        let mut list = WaitList::keeping(limit);
        self.stream.add_waits(3, &self.view, self.now, &mut list);
        list
    }

    /// Returns the waits of some kinds.
    fn waits(&self, kinds: &[WaitKind]) -> Vec<Listed> {
        let listed = |wait: Wait| {
            assert_eq!(wait.subject.server, Some(3));
            let name = wait.subject.of.map(|of| match of {
                Selector::Wildcard => "*".to_owned(),
                Selector::Name(name) => name.to_string(),
            });
            (wait.kind, name, wait.age.as_secs(), wait.bound.map(|bound| bound.as_secs()))
        };
        let all = self.list(100).into_oldest().into_iter();
        let mut listed: Vec<_> = all.filter(|wait| kinds.contains(&wait.kind)).map(listed).collect();
        listed.sort();
        listed
    }

    fn names(&self) -> Vec<Listed> {
        self.waits(&[WaitKind::Name])
    }
}

fn name(name: &str, age: u64, bound: Option<u64>) -> Listed {
    (WaitKind::Name, Some(name.into()), age, bound)
}

#[test]
fn a_requested_name_is_listed_until_it_is_answered_or_its_timer_is_over() {
    let mut world = World::new(&["a", "b"]);
    world.later(5, true);
    assert_eq!(world.names(), [name("a", 5, Some(15)), name("b", 5, Some(15))]);
    world.want("c", true);
    while world.stream.next_request(world.now).is_some() {}
    world.stream.written(world.now);
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    world.later(9, true);
    assert_eq!(world.names(), [name("b", 14, Some(15)), name("c", 9, Some(15))]);
    world.later(1, true);
    assert_eq!(world.names(), [name("c", 10, Some(15))], "it is silent about b");
    world.want("c", false);
    assert_eq!(world.names(), []);
}

#[test]
fn the_bound_of_a_name_follows_the_options_of_its_server() {
    for (on_resource_timeout, bound) in
        [(OnResourceTimeout::Absent, 20), (OnResourceTimeout::TransientError, 40), (OnResourceTimeout::Unknown, 0)]
    {
        let mut world = World::new(&[]);
        let options = UpstreamOptions { resource_timer: Duration::from_secs(20), ..UpstreamOptions::default() };
        let quirks = ServerQuirks { on_resource_timeout, ..ServerQuirks::default() };
        let table = world.table.clone();
        world.stream = Stream::new(Variant::Delta, Bytes::new(), quirks.into(), table, options.into());
        world.want("a", true);
        world.open();
        let expected = if bound > 0 { vec![name("a", 0, Some(bound))] } else { vec![] };
        assert_eq!(world.names(), expected, "{on_resource_timeout:?}");
    }
}

#[test]
fn of_many_names_all_are_counted_and_those_are_told_apart_that_have_waited_for_longest() {
    let mut world = World::new(&["a", "b"]);
    world.later(5, true);
    ["c", "d", "e"].iter().for_each(|name| world.want(name, true));
    while world.stream.next_request(world.now).is_some() {}
    world.stream.written(world.now);
    let list = world.list(1);
    let sums: Vec<_> = list.sums().filter(|(kind, _)| *kind == WaitKind::Name).collect();
    assert_eq!((sums[0].1.count, sums[0].1.oldest), (5, Duration::from_secs(5)));
    let oldest = list.into_oldest().remove(0);
    assert!(["a", "b"].map(|name| Some(Selector::Name(name.into()))).contains(&oldest.subject.of));
}

#[test]
fn while_the_stream_is_away_or_shows_no_life_what_is_requested_has_no_bound() {
    let mut world = World::new(&["a", "*"]);
    world.later(5, true);
    world.stream.ended(world.epoch);
    let set = (WaitKind::Set, Some("*".to_owned()), 0, None);
    world.later(500, false);
    assert_eq!(world.waits(&[WaitKind::Name, WaitKind::Set]), [name("a", 0, None), set]);
    world.open();
    world.later(3, true);
    assert_eq!(world.names(), [name("a", 3, Some(15))], "its timer begins with the request");
    world.later(15, false);
    assert_eq!(world.names(), [name("a", 18, None)], "the server does not answer the call");
    world.later(1, true);
    world.later(1, true);
    assert_eq!(world.names(), []);
}

#[test]
fn a_message_that_is_coming_in_stops_the_clock() {
    let mut world = World::new(&["a"]);
    world.stream.on_receiving(world.epoch);
    world.later(60, true);
    assert_eq!(world.names(), [name("a", 60, None)]);
    world.respond(DeltaDiscoveryResponse::default());
    assert_eq!(world.names(), [name("a", 60, Some(15))]);
    assert!(world.list(1).beyond().len() == 1, "until the stream looks at its timers");
    world.later(1, true);
    assert_eq!(world.names(), []);
}

#[test]
fn a_set_is_listed_until_the_first_silence_is_over() {
    let mut world = World::new(&["*"]);
    let set = |age| (WaitKind::Set, Some("*".to_owned()), age, Some(35));
    let quiet = (WaitKind::Quiet, Some("*".to_owned()), 0, Some(0));
    let kinds = [WaitKind::Set, WaitKind::Quiet];
    world.later(10, true);
    assert_eq!(world.waits(&kinds), [set(10)]);
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    assert_eq!(world.waits(&kinds), [set(0), quiet], "it has begun");
    world.later(4, true);
    assert_eq!(world.waits(&kinds), [set(4)]);
    world.later(1, true);
    assert_eq!(world.waits(&kinds), []);
}

#[test]
fn a_server_that_always_has_something_new_keeps_a_set_waiting_beyond_its_bound() {
    let mut world = World::new(&["*"]);
    for round in 0..40_u64 * 4 {
        let resources = vec![resource(&format!("a{round}"))];
        world.respond(DeltaDiscoveryResponse { resources, ..Default::default() });
        world.now = world.now + Duration::from_millis(250);
        world.later(0, true);
    }
    let beyond: Vec<_> = world.list(1).beyond().iter().map(|wait| wait.kind).collect();
    assert_eq!(beyond, [WaitKind::Set]);
}

#[test]
fn what_is_requested_a_second_time_is_listed_until_the_second_silence_is_over() {
    let mut world = World::new(&["*"]);
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    world.later(1, true);
    let kind = world.table.resolve(EDS);
    world.view.add_claims(SessionId(1), vec![Claim { kind, of: Claimed::Name(Class::Wildcard, "held".into()) }]);
    let kinds = [WaitKind::Reopening, WaitKind::SecondSilence];
    world.later(10, true);
    assert_eq!(world.waits(&kinds), [], "the stream may be opened again at once");
    let all = Some("*".to_owned());
    for round in 0..2 {
        assert!(world.stream.take_reopen(world.now), "{round}");
        world.stream.ended(world.epoch);
        assert_eq!(world.waits(&kinds), [(WaitKind::SecondSilence, all.clone(), 0, None)]);
        world.open();
        world.later(7, true);
        assert_eq!(world.waits(&kinds), [(WaitKind::SecondSilence, all.clone(), 7, Some(1320))]);
        if round == 0 {
            let claim = Claimed::Name(Class::Wildcard, "other".into());
            world.view.add_claims(SessionId(1), vec![Claim { kind: world.table.resolve(EDS), of: claim }]);
            world.later(10, true);
            let waits = world.waits(&kinds);
            assert_eq!(waits[0], (WaitKind::Reopening, all.clone(), 17, Some(240)), "{waits:?}");
            assert_eq!(waits[1].0, WaitKind::SecondSilence);
            world.later(0, true);
        }
    }
    world.later(120, true);
    world.later(1, true);
    assert_eq!(world.waits(&kinds), []);
}

#[test]
fn the_question_where_a_set_ends_is_listed_until_something_shows_that_it_has_not_or_its_timer_is_over() {
    let end = |age| vec![(WaitKind::End, Some("*".to_owned()), age, Some(15))];
    for grows in [true, false] {
        let mut world = World::new(&["*"]);
        world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
        world.later(1, true);
        assert_eq!(world.waits(&[WaitKind::End]), [], "a first opening asks for nothing");
        world.reopen();
        world.later(5, true);
        assert_eq!(world.waits(&[WaitKind::End]), end(5));
        if grows {
            world.respond(DeltaDiscoveryResponse { resources: vec![resource("b")], ..Default::default() });
        } else {
            world.later(9, true);
            assert_eq!(world.waits(&[WaitKind::End]), end(14));
            world.later(1, true);
        }
        assert_eq!(world.waits(&[WaitKind::End]), [], "{grows}");
    }
}

#[test]
fn an_answer_that_shows_no_end_is_listed_if_a_client_needs_the_end_and_nothing_else_ends_its_wait() {
    for needs_end in [true, false] {
        let mut world = World::new(&["*"]);
        let mortal = Wrapper { ttl: Some(prost_types::Duration { seconds: 600, nanos: 0 }), ..resource("mortal") };
        world.respond(DeltaDiscoveryResponse { resources: vec![resource("a"), mortal], ..Default::default() });
        world.later(1, true);
        if needs_end {
            world.view.add_claims(SessionId(1), vec![Claim { kind: world.table.resolve(EDS), of: Claimed::Set }]);
        }
        world.stream.ended(world.epoch);
        world.epoch = world.stream.opened();
        let mut question = None;
        while let Some(request) = world.stream.next_request(world.now) {
            let Request::Delta(request) = request else { unreachable!() };
            let mut stated = request.initial_resource_versions.into_keys();
            question = question.or(stated.find(|name| name.starts_with("weir.end-of-set/")));
        }
        world.stream.written(world.now);
        // A resource with a TTL is not stated, and it does not come.
        world.respond(DeltaDiscoveryResponse { removed_resources: vec![question.unwrap()], ..Default::default() });
        world.later(2, true);
        let waits = world.waits(&[WaitKind::End]);
        assert_eq!(waits.iter().map(|wait| wait.2).collect::<Vec<_>>(), if needs_end { vec![2] } else { vec![] });
    }
}

#[test]
fn a_stream_that_has_to_be_opened_again_is_listed_whatever_the_reason() {
    let mut world = World::new(&["a"]);
    world.respond(DeltaDiscoveryResponse { resources: vec![resource("a")], ..Default::default() });
    let mut listed = Vec::new();
    for _ in 0..2 {
        world.stream.clear_all_versions(|_| true);
        listed.push(world.waits(&[WaitKind::Reopening]).len());
        assert_eq!(world.stream.take_reopen(world.now), listed.len() == 1, "the second one waits for its pace");
        if listed.len() == 1 {
            world.reopen();
        }
    }
    assert_eq!(listed, [0, 1]);
}
