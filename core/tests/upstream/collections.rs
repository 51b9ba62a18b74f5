//! Collections that are requested as a whole, towards upstream.

use std::time::Duration;

use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::support::{LDS, RDS, Set};
use super::{Bench, delta, sotw};

const LEDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
const GLOB: &str = "xdstp://x/envoy.config.endpoint.v3.LbEndpoint/foo/*";
const A: &str = "xdstp://x/envoy.config.endpoint.v3.LbEndpoint/foo/a";
const B: &str = "xdstp://x/envoy.config.endpoint.v3.LbEndpoint/foo/b";
const DEEPER: &str = "xdstp://x/envoy.config.endpoint.v3.LbEndpoint/foo/a/b";

fn open(variant: Variant, rules: ServerQuirks, names: &[&str]) -> Bench {
    let mut bench = Bench::with(variant, rules);
    names.iter().for_each(|name| bench.want(LEDS, name, true));
    bench.open();
    bench
}

#[test]
fn coll_18_and_name_24_the_glob_goes_upstream_and_its_members_are_taken_in() {
    let mut bench = open(Variant::Delta, ServerQuirks::default(), &[GLOB]);
    assert_eq!(bench.requests(0), [format!("L +[{GLOB}] -[] {{}} n")]);
    let updates = bench.respond(0, delta(LEDS, &[A, DEEPER], &[], "1"));
    assert_eq!(updates, [format!("Named {A} set"), format!("FirstResponse of {GLOB}")], "what is deeper is no member");
    assert_eq!(bench.later(Duration::from_secs(1)), [format!("Settled of {GLOB}")]);
    let updates = bench.respond(0, delta(LEDS, &[B], &[A, DEEPER], "2"));
    assert_eq!(updates, [format!("Named {B} set"), format!("Named {A} gone"), format!("FirstResponse of {GLOB}")]);
    let updates = bench.respond(0, delta(LEDS, &[], &[GLOB], "3"));
    assert_eq!(updates, [format!("Named {GLOB} gone")]);
}

#[test]
fn coll_20_and_up_36_silence_says_nothing_of_a_collection() {
    let mut bench = open(Variant::Delta, ServerQuirks::default(), &[GLOB, A]);
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(60)), [format!("Named {A} unanswered")], "of the name it does");
}

#[test]
fn coll_19_members_are_stated_when_the_stream_comes_back() {
    let mut bench = open(Variant::Delta, ServerQuirks::default(), &[GLOB]);
    bench.requests(0);
    bench.respond(0, delta(LEDS, &[A, B], &[], "1"));
    assert_eq!(bench.end(0), [format!("interrupted {GLOB}")]);
    bench.open();
    assert_eq!(bench.requests(0), [format!("L +[{GLOB}] -[] {{{A}:1,{B}:1}} n")]);
    assert_eq!(bench.respond(0, delta(LEDS, &[], &[B], "2")), [format!("Named {B} gone")]);
}

#[test]
fn coll_19_a_server_that_is_sent_no_versions_has_to_say_again_what_there_is() {
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    let mut bench = open(Variant::Delta, rules, &[GLOB]);
    bench.requests(0);
    bench.respond(0, delta(LEDS, &[A, B], &[], "1"));
    assert_eq!(bench.reopen(), [format!("L +[{GLOB}] -[] {{}} n")]);
    bench.respond(0, delta(LEDS, &[A], &[], "2"));
    assert_eq!(bench.later(Duration::from_secs(60)), [format!("Settled of {GLOB}")]);
    assert!(bench.asks_again());
    bench.reopen();
    bench.respond(0, delta(LEDS, &[A], &[], "2"));
    assert_eq!(bench.later(Duration::from_secs(119)), [format!("Settled of {GLOB}")]);
    assert_eq!(bench.later(Duration::from_secs(1)), [format!("Named {B} gone")]);
}

#[test]
fn coll_19_what_a_client_holds_of_a_collection_is_requested_again() {
    let silent_about_b = || {
        let mut bench = open(Variant::Delta, ServerQuirks::default(), &[GLOB]);
        bench.requests(0);
        bench.respond(0, delta(LEDS, &[A], &[], "1"));
        bench.claim(LEDS, Set::Names, B);
        assert_eq!(bench.later(Duration::from_secs(15)), [format!("Settled of {GLOB}")]);
        bench
    };
    let mut bench = silent_about_b();
    assert!(bench.asks_again());
    assert_eq!(bench.reopen(), [format!("L +[{GLOB}] -[] {{{A}:1,{B}:weir-unknown}} n")]);
    assert_eq!(bench.respond(0, delta(LEDS, &[], &[B], "2")), [format!("Named {B} gone")]);
    let mut bench = silent_about_b();
    bench.reopen();
    assert_eq!(bench.later(Duration::from_secs(119)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), [format!("Named {B} gone")]);
    let mut bench = silent_about_b();
    bench.want(LEDS, GLOB, false);
    assert!(!bench.asks_again(), "nobody wants it any more");
}

#[test]
fn coll_17_what_is_left_is_unsubscribed_and_forgotten() {
    let mut bench = open(Variant::Delta, ServerQuirks::default(), &[GLOB, A]);
    bench.requests(0);
    bench.respond(0, delta(LEDS, &[A, B], &[], "1"));
    bench.want(LEDS, GLOB, false);
    bench.later(Duration::from_secs(1));
    assert_eq!(bench.requests(0), ["L +[] -[] {} n1!".to_owned(), format!("L +[] -[{GLOB}] {{}} n")]);
    assert_eq!(bench.respond(0, delta(LEDS, &[A, B], &[], "2")), [format!("Named {A} set")]);
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), [format!("L +[{A}] -[] {{{A}:2}} n")]);
}

#[test]
fn coll_23_and_up_48_no_collection_is_requested_of_a_server_that_speaks_sotw_alone() {
    let (glob, member) = (
        "xdstp://x/envoy.config.route.v3.RouteConfiguration/*",
        "xdstp://x/envoy.config.route.v3.RouteConfiguration/a",
    );
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(RDS, glob, true);
    bench.open();
    assert_eq!(bench.requests(0), [""; 0], "an empty list would ask for everything");
    let is_due = |bench: &mut Bench| {
        let now = bench.now;
        bench.upstream.streams_mut()[0].next_deadline().is_some_and(|at| at <= now)
    };
    assert!(is_due(&mut bench), "its clients are to know at once");
    assert_eq!(bench.later(Duration::ZERO), [format!("{glob} error 12")]);
    assert!(!is_due(&mut bench), "nothing is left to do");
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "once");
    bench.want(RDS, member, true);
    bench.later(Duration::from_secs(1));
    assert_eq!(bench.requests(0), [format!("R [{member}] v n")]);
    let mut bench = open(Variant::Sotw, ServerQuirks::default(), &[GLOB]);
    assert_eq!(bench.requests(0), [""; 0]);
    assert_eq!(bench.later(Duration::ZERO), [format!("{GLOB} error 12")], "of a type that is never in SotW too");
}

#[test]
fn coll_23_a_server_that_turns_to_sotw_takes_no_members_away_by_what_it_cannot_say() {
    let folder = "xdstp://x/envoy.config.listener.v3.Listener/f";
    let [glob, a, other] = ["*", "a", "b/c"].map(|id| format!("{folder}/{id}"));
    let mut bench = Bench::new(Variant::Delta);
    bench.want(LDS, &glob, true);
    bench.want(LDS, &other, true);
    bench.open();
    bench.requests(0);
    bench.respond(0, delta(LDS, &[&a, &other], &[], "1"));
    bench.end(0);
    bench.upstream.streams_mut()[0].set_variant(Variant::Sotw);
    bench.open();
    bench.requests(0);
    assert_eq!(bench.respond(0, sotw(LDS, &[&other], "2")), [format!("Named {other} set")]);
}

#[test]
fn up_25_a_member_that_came_again_and_cannot_be_read_is_not_gone() {
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    let mut bench = open(Variant::Delta, rules, &[GLOB]);
    bench.requests(0);
    let (b, other_b) = (B.to_owned(), format!("{B}~2"));
    let bad = || delta(LEDS, &[&b, &other_b], &[], "2");
    assert_eq!(bench.respond(0, delta(LEDS, &[A, B], &[], "1")).len(), 3);
    bench.reopen();
    assert_eq!(bench.respond(0, bad()), [format!("FirstResponse of {GLOB}")]);
    bench.later(Duration::from_secs(60));
    assert!(bench.asks_again());
    bench.reopen();
    bench.respond(0, bad());
    assert_eq!(bench.later(Duration::from_secs(120)), [format!("Settled of {GLOB}"), format!("Named {A} gone")]);
}

#[test]
fn coll_19_and_up_16_while_one_collection_is_said_again_nothing_of_another_goes() {
    let other = |id: &str| format!("xdstp://x/envoy.config.endpoint.v3.LbEndpoint/bar/{id}");
    let [late_glob, late, later, gone] = ["*", "a", "b", "c"].map(other);
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    let mut bench = open(Variant::Delta, rules, &[GLOB, &late_glob]);
    bench.requests(0);
    bench.respond(0, delta(LEDS, &[A, B, &late, &later, &gone], &[], "1"));
    bench.reopen();
    bench.later(Duration::from_secs(60));
    assert!(bench.asks_again());
    bench.reopen();
    let mut sent = Vec::new();
    for second in 0..360 {
        // Every response has something of the first collection; only some have something of the second.
        let names: &[&str] = match second {
            100 => &[A, &late],
            200 => &[A, &later],
            _ => &[A],
        };
        bench.respond(0, delta(LEDS, names, &[], "2"));
        let updates = bench.later(Duration::from_secs(1)).into_iter().filter(|update| update.ends_with("gone"));
        sent.extend(updates.map(|update| (second + 1, update)));
    }
    assert_eq!(sent, [(320, format!("Named {gone} gone")), (320, format!("Named {B} gone"))]);
}
