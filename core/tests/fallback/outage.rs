//! The first words of a server after an outage, depending on how it was away and what it is. `core/src/protocol/view/after_outage` has the
//! other tests.

use std::time::Duration;

use weir_core::proto::{Any, Response};
use weir_core::protocol::ladder::Rule;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{StreamEnd, StreamId};
use weir_core::protocol::view::BrakeRules;

use super::bench::{Bench, Set, delta, plan, sotw};
use super::support::{CDS, EDS, LDS};

const HOLD: Duration = Duration::from_secs(10);

/// Returns a view for which nothing is requested yet.
fn empty(servers: usize, variant: Variant) -> Bench {
    holding(HOLD, servers, variant)
}

fn holding(after_outage: Duration, servers: usize, variant: Variant) -> Bench {
    let options = ProtocolOptions::default().with(|options| {
        options.hold_referenced(Duration::ZERO);
        options.view.brakes = BrakeRules { after_outage, ..BrakeRules::default() };
    });
    Bench::of_servers(plan(servers, variant, Rule::Reachability), options)
}

/// Returns a view whose server has sent two clusters some time ago; there may be another server below it.
fn served(servers: usize, variant: Variant) -> Bench {
    served_by(empty(servers, variant), variant)
}

fn served_by(mut bench: Bench, variant: Variant) -> Bench {
    bench.want(CDS, "*", true);
    bench.open(0);
    half(&mut bench, variant, &[("a", "1"), ("b", "1")], &[]);
    bench.later(Duration::from_secs(1));
    bench
}

/// Returns the view that follows another one of the same key after a reload. Its stream is open.
fn successor(mut before: Bench, mut after: Bench) -> Bench {
    let now = before.now;
    let mut history = before.sources.history(now);
    history.note_held(before.view.holds().held_of_servers());
    after.now = now;
    after.inherit(&before);
    after.sources.go_on(history);
    after.want(CDS, "*", true);
    after.open(0);
    after
}

/// Lets the server send a part of what it has.
fn half(bench: &mut Bench, variant: Variant, has: &[(&str, &str)], lacks: &[&str]) {
    bench.say(0, if variant == Variant::Delta { delta(CDS, has, lacks) } else { sotw(CDS, "2", has) });
}

fn has_b(bench: &Bench) -> bool {
    bench.held(CDS, Set::All, "b") == "1"
}

/// Returns a delta response in which each content is a version, too.
fn versioned(url: &str, resources: &[(&str, &str)], removed: &[&str]) -> Response {
    let Response::Delta(mut response) = delta(url, resources, removed) else { unreachable!() };
    for (resource, (_, content)) in response.resources.iter_mut().zip(resources) {
        resource.version = (*content).to_owned();
    }
    Response::Delta(response)
}

/// Returns a response with assignments of one host each. With the content `1` the host is usable, otherwise it is drained.
fn assigned(variant: Variant, all: &[(&str, &str)]) -> Response {
    let mut response = if variant == Variant::Delta { versioned(EDS, all, &[]) } else { sotw(EDS, "1", all) };
    let bodies: Vec<&mut Any> = match &mut response {
        Response::Delta(of) => of.resources.iter_mut().filter_map(|of| of.resource.as_mut()).collect(),
        Response::Sotw(of) => of.resources.iter_mut().collect(),
    };
    for body in bodies {
        let health = if body.value.ends_with(b"1") { 1 } else { 3 };
        body.value = [&[0x12, 4, 0x12, 2, 0x10, health][..], &body.value[..]].concat().into();
    }
    response
}

/// Returns a view whose server was lost, and is back without a usable host for `web`.
fn emptied(servers: usize, variant: Variant) -> Bench {
    let mut bench = empty(servers, variant);
    bench.want(EDS, "api", true);
    bench.want(EDS, "web", true);
    bench.open(0);
    bench.say(0, assigned(variant, &[("api", "1"), ("web", "1")]));
    bench.lose(0);
    bench.open(0);
    bench.say(0, assigned(variant, &[("api", "1"), ("web", "0")]));
    assert_eq!(web(&bench), "1");
    bench
}

fn web(bench: &Bench) -> String {
    bench.held(EDS, Set::Names, "web")
}

/// XLAT-19: nothing is concluded from a server that is away.
#[test]
fn an_assignment_keeps_its_hosts_while_the_server_is_away_that_took_them_away_first() {
    for (servers, variant) in [(1, Variant::Delta), (1, Variant::Sotw), (2, Variant::Delta), (2, Variant::Sotw)] {
        let mut bench = emptied(servers, variant);
        bench.later(HOLD / 2);
        bench.lose(0);
        if servers == 2 {
            bench.open(1);
            bench.say(1, assigned(variant, &[("api", "1")])); // it is active, and says nothing of the other
        }
        bench.later(HOLD * 10);
        assert_eq!(web(&bench), "1", "{variant:?}, {servers}");
    }
}

/// Otherwise the server would have no reason to say it again.
#[test]
fn an_assignment_whose_hosts_were_taken_away_is_requested_again_and_its_time_goes_on() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench = emptied(1, variant);
        bench.later(HOLD / 2);
        bench.end(0, true);
        let requests = bench.open(0);
        let is_stated = variant == Variant::Sotw || requests[0].ends_with("{api:1,web:weir-unknown}");
        assert!(is_stated, "{requests:?}");
        bench.later(HOLD / 2 + Duration::from_secs(1));
        assert_eq!(web(&bench), "1", "{variant:?}: it was not said again");
        bench.say(0, assigned(variant, &[("web", "0")]));
        bench.later(HOLD / 2 - Duration::from_millis(1));
        assert_eq!(web(&bench), "1", "{variant:?}");
        bench.later(Duration::from_millis(1));
        assert_eq!(web(&bench), "0", "{variant:?}");
    }
}

/// A server that honors stated versions sends a listener again only if it is not told that it has sent it.
#[test]
fn what_waits_with_a_removal_is_requested_again_with_it() {
    let mut bench = empty(1, Variant::Delta);
    bench.want(LDS, "*", true);
    bench.open(0);
    bench.say(0, versioned(LDS, &[("a", "1"), ("b", "1"), ("c", "1")], &[]));
    bench.later(Duration::from_secs(1));
    bench.lose(0);
    bench.open(0);
    bench.say(0, versioned(LDS, &[("a", "1")], &["b"]));
    bench.say(0, versioned(LDS, &[("c", "2")], &[]));
    let held = |bench: &Bench| ["a", "b", "c"].map(|name| bench.held(LDS, Set::All, name));
    assert_eq!(held(&bench), ["1", "1", "1"]);
    bench.end(0, true);
    let requests = bench.open(0);
    assert!(requests[0].ends_with("{a:1,b:weir-unknown,c:weir-unknown}"), "{requests:?}");
    bench.say(0, versioned(LDS, &[("c", "2")], &["b"]));
    bench.later(Duration::from_secs(121));
    assert_eq!(held(&bench), ["1", "gone", "2"]);
}

#[test]
fn what_a_server_lacks_that_was_lost_is_removed_after_the_time() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench = served(1, variant);
        bench.lose(0);
        bench.open(0);
        half(&mut bench, variant, &[("a", "1")], &["b"]);
        assert!(has_b(&bench), "{variant:?}");
        bench.later(HOLD - Duration::from_millis(1));
        assert!(has_b(&bench), "{variant:?}");
        bench.later(Duration::from_millis(1));
        assert!(!has_b(&bench), "{variant:?}");
    }
}

/// Its first response ends what was known of the set before it says what is in it.
#[test]
fn a_listener_that_a_server_removes_with_its_first_words_is_removed_after_the_time() {
    let mut bench = empty(1, Variant::Delta);
    bench.want(LDS, "*", true);
    bench.open(0);
    bench.say(0, delta(LDS, &[("a", "1"), ("b", "1")], &[]));
    bench.later(Duration::from_secs(1));
    bench.lose(0);
    bench.open(0);
    bench.say(0, delta(LDS, &[("a", "1")], &["b"]));
    let has_b = |bench: &Bench| bench.held(LDS, Set::All, "b") == "1";
    bench.later(HOLD - Duration::from_millis(1));
    assert!(has_b(&bench));
    bench.later(Duration::from_millis(1));
    assert!(!has_b(&bench));
}

#[test]
fn a_server_that_only_drains_its_connections_is_believed_at_once() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench = served(1, variant);
        bench.end(0, true);
        bench.open(0);
        half(&mut bench, variant, &[("a", "1")], &["b"]);
        assert!(!has_b(&bench), "{variant:?}");
    }
}

/// FB-3: another stream with a response shows that the server is alive. In SotW, single names have a stream of their own.
#[test]
fn a_stream_that_ends_while_another_one_has_answered_is_no_outage() {
    let mut bench = served(1, Variant::Sotw);
    bench.want(CDS, "x", true);
    let id = StreamId { server: 0, at: 1 };
    for _ in 0..2 {
        let epoch = bench.sources.opened(id).expect("it has a stream of its own");
        bench.up.insert(id, epoch);
        bench.requested(0);
        bench.end_one(id, Some(epoch), StreamEnd { answered: false, is_lost: true });
        bench.settle();
    }
    half(&mut bench, Variant::Sotw, &[("a", "1")], &[]);
    assert!(!has_b(&bench));
    half(&mut bench, Variant::Sotw, &[("a", "1"), ("b", "1")], &[]);
    bench.lose(0);
    bench.open(0);
    half(&mut bench, Variant::Sotw, &[("a", "1")], &[]);
    assert!(has_b(&bench), "now it was away");
}

#[test]
fn another_relay_is_believed_at_once() {
    let mut bench = served(1, Variant::Delta);
    bench.lose(0);
    bench.open(0);
    let id = StreamId { server: 0, at: 0 };
    let epoch = bench.up[&id];
    bench.sources.stream(id).unwrap().on_relay(epoch);
    half(&mut bench, Variant::Delta, &[], &["b"]);
    assert!(!has_b(&bench));
}

/// Only one of two streams to the server has had its first answer.
#[test]
fn another_relay_is_believed_at_once_whatever_its_other_streams_have_seen() {
    let mut bench = served(1, Variant::Sotw);
    bench.want(CDS, "x", true);
    bench.lose(0);
    bench.open(0);
    let id = StreamId { server: 0, at: 0 };
    let epoch = bench.up[&id];
    bench.sources.stream(id).unwrap().on_relay(epoch);
    half(&mut bench, Variant::Sotw, &[("a", "1")], &[]);
    assert!(!has_b(&bench));
}

/// On the stream of the next view the server repeats what it said on the stream of the view before, but more than 15 s after it came back.
#[test]
fn a_view_that_follows_another_one_holds_what_that_one_held() {
    for is_drained in [false, true] {
        let mut before = served(1, Variant::Sotw);
        before.lose(0);
        before.open(0);
        before.later(Duration::from_secs(14));
        half(&mut before, Variant::Sotw, &[("a", "1")], &[]);
        before.later(Duration::from_secs(2));
        if is_drained {
            before.end(0, true);
        }
        assert!(has_b(&before));
        let mut after = successor(before, empty(1, Variant::Sotw));
        half(&mut after, Variant::Sotw, &[("a", "1")], &[]);
        assert!(has_b(&after), "{is_drained}");
        after.later(HOLD);
        assert!(!has_b(&after), "{is_drained}");
    }
}

/// Otherwise reloads in quick succession would delay a removal for ever.
#[test]
fn views_that_follow_one_another_hold_for_no_longer_than_the_first_of_them() {
    let mut bench = served(1, Variant::Sotw);
    bench.lose(0);
    bench.open(0);
    bench.later(Duration::from_secs(14));
    half(&mut bench, Variant::Sotw, &[("a", "1")], &[]);
    for seconds in [4, 8, 12, 16] {
        bench.later(Duration::from_secs(4));
        bench = successor(bench, empty(1, Variant::Sotw));
        half(&mut bench, Variant::Sotw, &[("a", "1")], &[]);
        assert_eq!(has_b(&bench), Duration::from_secs(seconds) < HOLD, "{seconds} s after it was removed");
    }
}

/// A removal that a server sends long after it was asked does not count as a repetition of its first words.
#[test]
fn a_view_that_follows_another_one_doubts_its_server_no_longer_than_one_that_was_away() {
    let hour = Duration::from_secs(3600);
    let mut before = served_by(holding(hour, 1, Variant::Sotw), Variant::Sotw);
    before.lose(0);
    before.open(0);
    half(&mut before, Variant::Sotw, &[("a", "1")], &[]);
    before.later(Duration::from_secs(16));
    assert!(has_b(&before));
    let mut after = successor(before, holding(hour, 1, Variant::Sotw));
    half(&mut after, Variant::Sotw, &[("a", "1"), ("c", "1")], &[]);
    assert!(has_b(&after), "it says again what is held");
    let has_c = |after: &Bench| after.held(CDS, Set::All, "c") == "1";
    after.later(Duration::from_secs(16));
    assert!(has_c(&after));
    half(&mut after, Variant::Sotw, &[("a", "1")], &[]);
    assert!(!has_c(&after), "that is new, and the server is there");
    assert!(has_b(&after), "the hour is not over");
    after.later(hour);
    assert!(!has_b(&after));
}

/// A name whose removal is held is requested again, because the server would otherwise have no reason to repeat the removal. If the server
/// repeats it, the time goes on.
#[test]
fn a_server_that_is_lost_again_says_again_what_is_held_of_it() {
    let mut bench = served(1, Variant::Delta);
    for _ in 0..3 {
        bench.lose(0);
        bench.later(HOLD * 10);
        let requests = bench.open(0);
        half(&mut bench, Variant::Delta, &[], &["b"]);
        assert!(has_b(&bench), "{requests:?}");
        bench.later(HOLD / 4);
    }
    bench.lose(0);
    bench.later(HOLD * 10);
    assert!(has_b(&bench), "it is away");
    bench.open(0);
    half(&mut bench, Variant::Delta, &[], &["b"]);
    bench.later(HOLD / 4 - Duration::from_millis(1));
    assert!(has_b(&bench));
    bench.later(Duration::from_millis(1));
    assert!(!has_b(&bench), "it was there for all of the time");
}

/// A reload makes another view of the same key, and its stream is opened for the first time.
#[test]
fn a_view_that_follows_another_one_doubts_a_server_that_was_away_in_its_time() {
    for (is_back, seconds, is_doubted) in [(true, 14, true), (true, 15, false), (false, 3600, true)] {
        let mut before = served(1, Variant::Sotw);
        before.lose(0);
        if is_back {
            before.open(0);
        }
        before.now = before.now + Duration::from_secs(seconds);
        let mut after = empty(1, Variant::Sotw);
        after.now = before.now;
        after.inherit(&before);
        after.sources.go_on(before.sources.history(after.now));
        after.want(CDS, "*", true);
        after.open(0);
        half(&mut after, Variant::Sotw, &[("a", "1")], &[]);
        assert_eq!(has_b(&after), is_doubted, "{is_back}, {seconds} s");
    }
}

#[test]
fn what_a_server_has_again_after_another_loss_is_not_removed() {
    let mut bench = served(1, Variant::Delta);
    bench.lose(0);
    bench.open(0);
    half(&mut bench, Variant::Delta, &[], &["b"]);
    bench.later(HOLD / 2);
    bench.lose(0);
    let requests = bench.open(0);
    assert!(requests[0].contains("b:weir-unknown"), "{requests:?}");
    half(&mut bench, Variant::Delta, &[("b", "1")], &[]);
    bench.later(HOLD * 2);
    assert!(has_b(&bench));
}

#[test]
fn a_fallback_server_is_believed_at_once_as_far_as_it_may_remove_anything() {
    let mut bench = served(2, Variant::Sotw);
    bench.lose(0);
    bench.later(Duration::from_secs(60));
    bench.lose(1);
    bench.open(1);
    bench.say(1, sotw(CDS, "1", &[("a", "2"), ("c", "1")]));
    assert_eq!(bench.held(CDS, Set::All, "c"), "1");
    bench.say(1, sotw(CDS, "2", &[("a", "2")]));
    assert_ne!(bench.held(CDS, Set::All, "c"), "1");
    assert!(has_b(&bench), "it is kept for the server above");
}
