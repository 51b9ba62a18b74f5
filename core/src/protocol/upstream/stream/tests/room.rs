//! Resources that have no room: new ones are rejected by name, and requested again when there is room.

use super::*;
use crate::protocol::view::{Completeness, Lookup};
use crate::protocol::visits::take_visits;

/// How many bytes a resource takes besides its body, which has three bytes.
const EACH: usize = 10;

impl World {
    /// Responds with these resources of `*`. `excess` is the number of bytes that are too many or, if negative, left. Returns the text of the NACK.
    fn respond_into(&mut self, excess: i64, resources: &[Wrapper], removed: &[&str]) -> Option<String> {
        let response = DeltaDiscoveryResponse {
            type_url: EDS.into(),
            nonce: "1".into(),
            resources: resources.to_vec(),
            removed_resources: removed.iter().map(ToString::to_string).collect(),
            ..Default::default()
        };
        let message = ResponseMessage::Decoded(Response::Delta(response));
        let mut response = ReceivedResponse::read(message, &self.table, &BodyStore::default()).unwrap();
        let room = Room { excess, each: EACH, spare: self.spare, why: "95 of 100 MiB are in use".into() };
        self.stream.make_room(&mut response, &room, &self.view);
        let updates = self.stream.on_received(self.epoch, response, self.now);
        self.view.apply(updates, self.now);
        self.view.publish();
        let Some(Request::Delta(answer)) = self.stream.next_request(self.now) else { panic!("no answer") };
        answer.error_detail.map(|status| status.message)
    }

    /// Returns for each name whether it is present, absent or unknown, as one letter.
    fn known(&self, names: &[&str], class: Class) -> String {
        let kind = self.table.resolve(EDS);
        let snapshot = self.view.snapshot();
        let of = |name: &&str| match snapshot.lookup(&kind, class, &Name::from(*name)) {
            Lookup::Present(_) => 'p',
            Lookup::Absent(_) => 'a',
            Lookup::Unknown => '?',
        };
        names.iter().map(of).collect()
    }
}

#[test]
fn what_is_new_and_has_no_room_is_rejected_by_name_and_what_is_there_changes_all_the_same() {
    let mut world = World::new(&["*"]);
    let all = ["a", "b", "c"].map(resource);
    assert_eq!(world.respond_into(-3 * 13, &all[..2], &[]), None, "they fit");
    let changed = Wrapper { version: "2".into(), ..resource("a") };
    // The replaced body of a is free then, and so is all of b. The entries of c and d take 20 bytes.
    let nack = world.respond_into(3 + 13 + 1, &[changed, resource("c"), resource("d")], &["b"]).unwrap();
    let reason = "no room for its 3 bytes: 95 of 100 MiB are in use";
    assert_eq!(nack, format!("d: {reason}; c: {reason}"));
    assert_eq!(world.known(&["a", "b", "c", "d"], Class::Wildcard), "pa??", "removals go through");
    assert_eq!(world.stream.lacked_room(), 2 * (3 + EACH));
    world.later(60, true);
    let completeness = world.view.tables().completeness_of(&world.table.resolve(EDS), &Selector::Wildcard);
    assert!(completeness < Completeness::Complete, "it is not whole without them: {completeness:?}");
    assert_eq!(world.known(&["c", "d"], Class::Wildcard), "??");
}

/// Neither is trusted, so what is there stays, and leaves no room for others.
#[test]
fn a_name_that_is_both_sent_and_removed_makes_no_room() {
    let mut world = World::new(&["*"]);
    assert_eq!(world.respond_into(-100, &[resource("a")], &[]), None);
    let changed = Wrapper { version: "2".into(), ..resource("a") };
    for sent in [changed.clone(), Wrapper { version: "3".into(), resource: None, ..changed }] {
        // The entry of b takes ten bytes, so one byte is too many.
        let nack = world.respond_into(-9, &[sent, resource("b")], &["a"]).unwrap();
        assert!(nack.contains("b: no room for its 3 bytes") && nack.contains("a: both sent and removed"), "{nack}");
        assert_eq!(world.known(&["a", "b"], Class::Wildcard), "p?");
    }
}

#[test]
fn as_many_as_fit_are_taken_the_first_by_name() {
    let mut world = World::new(&["*"]);
    let all = ["a", "b", "c", "d"].map(resource);
    // The bodies are counted in already. The four entries take 40 bytes, so one resource of 13 bytes is too many.
    let nack = world.respond_into(-27, &all, &[]).unwrap();
    assert!(nack.starts_with("d: ") && !nack.contains("c: "), "{nack}");
    assert_eq!(world.known(&["a", "b", "c", "d"], Class::Wildcard), "ppp?");
}

#[test]
fn what_had_no_room_is_requested_again_once_when_there_is_room() {
    for names in [&["*"][..], &["a", "b"]] {
        let mut world = World::new(names);
        let class = if names == ["*"] { Class::Wildcard } else { Class::Named };
        let both = ["a", "b"].map(resource);
        world.respond_into(1, &both, &[]);
        assert_eq!(world.known(&["a", "b"], class), "??");
        world.later(600, true);
        assert_eq!(world.known(&["a", "b"], class), "??", "they exist: no silence makes them absent");
        assert!(!world.stream.is_reopen_due(world.now), "there is no room yet");
        world.stream.on_room();
        assert!(world.stream.take_reopen(world.now));
        world.reopen();
        assert_eq!(world.stream.lacked_room(), 0);
        assert_eq!(world.respond_into(-100, &both, &[]), None);
        assert_eq!(world.known(&["a", "b"], class), "pp");
        world.stream.on_room();
        assert!(!world.stream.is_reopen_due(world.now), "nothing is rejected any more");
    }
}

#[test]
fn what_nobody_wants_takes_no_room() {
    let mut world = World::new(&["a"]);
    assert_eq!(world.respond_into(1, &[resource("other")], &[]), None);
    assert_eq!(world.stream.lacked_room(), 0);
}

#[test]
fn up_25_a_resource_without_room_is_not_absent_under_the_alias_that_it_was_requested_by() {
    let mut world = World::new(&["alias"]);
    let aliased = Wrapper { aliases: vec!["alias".into()], ..resource("own") };
    assert!(world.respond_into(1, &[aliased], &[]).is_some());
    world.later(600, true);
    assert_eq!(world.known(&["alias"], Class::Named), "?");
}

#[test]
fn a_response_with_little_that_is_new_has_more_room_than_others() {
    let mut world = World::new(&["*"]);
    world.spare = 5 * 2 * 13;
    let all = ["a", "b", "c"].map(resource);
    assert_eq!(world.respond_into(1, &all[..2], &[]), None, "26 bytes are a fifth");
    let mut world = World::new(&["*"]);
    world.spare = 5 * 2 * 13;
    assert!(world.respond_into(1, &all, &[]).is_some());
}

#[test]
fn what_others_have_too_is_rejected_last_since_that_frees_least() {
    let mut world = World::new(&["*"]);
    let store = BodyStore::default();
    let response = |names: &[&str]| {
        let resources = names.iter().map(|name| resource(name)).collect();
        let response = DeltaDiscoveryResponse { type_url: EDS.into(), resources, ..Default::default() };
        let message = ResponseMessage::Decoded(Response::Delta(response));
        ReceivedResponse::read(message, &world.table, &store).unwrap()
    };
    let _of_another_view = response(&["y", "z"]);
    let mut both = response(&["a", "y", "z"]);
    let room = Room { excess: -17, each: EACH, spare: 0, why: "full".into() };
    assert_eq!(world.stream.make_room(&mut both, &room, &world.view), 13);
    assert!(both.usable_names().map(Name::as_str).eq(["y", "z"]));
}

#[test]
fn what_is_lacked_is_that_of_the_last_set_and_not_of_all_that_came() {
    let mut world = World::new(&["*"]);
    for _ in 0..3 {
        world.respond_into(1, &[resource("a")], &[]);
        assert_eq!(world.stream.lacked_room(), 13, "the same again");
    }
    world.respond_into(1, &["a", "b"].map(resource), &[]);
    assert_eq!(world.stream.lacked_room(), 26);
}

/// The bound on what a response may cost holds when room is short, too.
#[test]
fn a_change_without_room_costs_what_it_concerns_and_not_what_is_there() {
    let visits = |count: usize| {
        let mut world = World::new(&["*"]);
        let all: Vec<_> = (0..count).map(|number| resource(&format!("n{number:05}"))).collect();
        assert_eq!(world.respond_into(i64::MIN / 2, &all, &[]), None);
        take_visits();
        assert!(world.respond_into(100, &[resource("x")], &["n00001"]).is_some());
        take_visits()
    };
    let (few, many) = (visits(100), visits(10_000));
    assert!(many <= few * 6 / 5 + 5, "{few} with 100 resources, {many} with 10,000");
}
