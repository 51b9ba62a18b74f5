//! Unusable entries: what they prevent, and what they do not affect.

use std::time::Duration;

use weir_core::proto::Response;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::support::{CDS, EDS, Set};
use super::{Bench, WINDOW, delta, error, requested, sotw};

/// Returns how many resources of a type are rejected.
fn rejected(bench: &mut Bench, url: &str) -> usize {
    let kind = bench.table.resolve(url);
    bench.upstream.streams_mut()[0].rejected(&kind).count()
}

/// Returns what was rejected since the last call, each as `name version`.
fn news(bench: &mut Bench) -> Vec<String> {
    let rejected = bench.upstream.streams_mut()[0].take_rejected();
    let entries = rejected.into_iter().flat_map(|of| of.news.entries);
    let name = |name: Option<weir_core::xds::Name>| name.map_or_else(|| "(no name)".into(), |name| name.to_string());
    entries.map(|(of, nack)| format!("{} {}", name(of), nack.version)).collect()
}

#[test]
fn up_22_the_same_entry_twice_is_one_and_rejected_and_two_that_differ_are_one_that_cannot_be_read() {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    assert_eq!(bench.respond(0, sotw(CDS, &["a", "b", "b"], "1")), ["whole {\"a\", \"b\"}"]);
    assert_eq!(bench.requests(0), ["C [] v n1! NACK"]);
    assert_eq!(bench.respond(0, sotw(CDS, &["a", "b", "b~2"], "2")), ["whole {\"a\"} and {\"b\"}"]);
    assert_eq!(bench.requests(0), ["C [] v n2! NACK"]);
    let mut bench = requested(Variant::Delta, EDS, &["a", "b"], ServerQuirks::default());
    assert_eq!(bench.respond(0, delta(EDS, &["a", "b", "b"], &[], "1")), ["Named a set", "Named b set"]);
    assert_eq!(bench.requests(0), ["C +[] -[] {} n1! NACK"]);
}

#[test]
fn up_25_an_entry_that_cannot_be_read_keeps_its_own_value_and_no_others() {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a", "b", "c"], "1"));
    assert_eq!(bench.respond(0, sotw(CDS, &["a", "b", "b~2"], "2")), ["whole {\"a\"} and {\"b\"}"], "c is gone");
    let never_held = bench.respond(0, sotw(CDS, &["a", "b", "d", "d~2"], "3"));
    assert_eq!(never_held, ["whole {\"a\", \"b\"} and {\"d\"}", "unread [\"d\"]"]);
    assert_eq!(bench.respond(0, sotw(CDS, &["a"], "4")), ["whole {\"a\"}", "unread []"], "it is not there any more");
}

#[test]
fn up_25_what_cannot_be_read_and_was_never_held_is_reported_until_it_can_or_is_gone() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    let first = bench.respond(0, delta(CDS, &["a", "b", "b~2", "c", "c~2"], &[], "1"));
    assert_eq!(first, ["Wildcard a set", "FirstResponse", "unread [\"b\", \"c\"]"]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Settled"]);
    assert_eq!(
        bench.respond(0, delta(CDS, &["d"], &[], "2")),
        ["Wildcard d set", "FirstResponse"],
        "b and c are still unknown"
    );
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "3")), ["Wildcard b set", "FirstResponse", "unread [\"c\"]"]);
    assert_eq!(bench.respond(0, delta(CDS, &[], &["c"], "4")), ["Wildcard c gone", "FirstResponse", "unread []"]);
    assert_eq!(
        bench.respond(0, delta(CDS, &["b", "b~2"], &[], "5")),
        ["FirstResponse"],
        "of b there is a last good value"
    );
}

#[test]
fn up_25_what_could_not_be_read_on_one_stream_is_unknown_on_the_next_until_it_comes_again() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    let bad = || delta(CDS, &["x", "x~2"], &[], "1");
    assert_eq!(bench.respond(0, bad()), ["FirstResponse", "unread [\"x\"]"]);
    bench.reopen();
    let updates = bench.respond(0, delta(CDS, &["b"], &[], "2"));
    assert_eq!(updates, ["Wildcard b set", "FirstResponse"], "nobody speaks of x any more");
    bench.reopen();
    assert_eq!(bench.respond(0, bad()).last().unwrap(), "unread [\"x\"]");
}

#[test]
fn up_24_an_entry_without_a_name_suspends_what_a_full_set_lacks_until_the_next() {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(CDS, &["a", ""], "2")), ["Wildcard a set", "FirstResponse"], "b may be the one");
    assert_eq!(bench.respond(0, sotw(CDS, &["a"], "3")), ["whole {\"a\"}"]);
    let mut bench = requested(Variant::Sotw, CDS, &["a", "b"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(CDS, &["a", ""], "2")), ["Named a set"]);
    assert_eq!(bench.respond(0, sotw(CDS, &["a"], "3")), ["Named a set", "Named b gone"]);
}

#[test]
fn up_24_an_entry_without_a_name_suspends_a_second_silence_until_the_next_opening() {
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Delta, CDS, &["*"], rules);
    bench.respond(0, delta(CDS, &["a", "b"], &[], "1"));
    bench.reopen();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.later(Duration::from_secs(60));
    assert!(bench.asks_again());
    bench.reopen();
    bench.respond(0, delta(CDS, &["a", ""], &[], "1"));
    assert_eq!(bench.later(Duration::from_secs(3600)), ["Settled"], "b may be the one");
    bench.reopen();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    assert_eq!(bench.later(Duration::from_secs(120)), ["Settled", "Wildcard b gone"]);
}

#[test]
fn up_25_and_i10_of_ever_new_names_that_cannot_be_read_only_so_many_are_remembered() {
    let limit = ProtocolOptions::default().upstream.rejected_names;
    for (bad, unread) in [(limit, "unread []"), (limit + 1, "unread [\"weir.more\"]")] {
        let names: Vec<_> = (0..bad).map(|number| format!("x{number:04}")).collect();
        let others: Vec<_> = names.iter().map(|name| format!("{name}~2")).collect();
        let both: Vec<_> = names.iter().chain(&others).map(String::as_str).collect();
        let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
        assert_eq!(bench.respond(0, delta(CDS, &both, &[], "1")).len(), 2);
        assert_eq!(news(&mut bench).len(), limit);
        // In the second case the last name is not sent again, so it still counts as unread.
        let names: Vec<_> = names[..limit].iter().map(String::as_str).collect();
        let updates = bench.respond(0, delta(CDS, &names, &[], "2"));
        assert_eq!(updates.last().unwrap(), unread, "what was not remembered may be missing still");
        bench.reopen();
        let updates = bench.respond(0, delta(CDS, &["b"], &[], "3"));
        assert_eq!(updates, ["Wildcard b set", "FirstResponse"]);
    }
}

#[test]
fn up_25_each_version_of_a_name_that_is_rejected_is_news_once() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = requested(variant, CDS, &["*"], ServerQuirks::default());
        let bad = |version| match variant {
            Variant::Sotw => sotw(CDS, &["a", "b", "b~2"], version),
            Variant::Delta => delta(CDS, &["a", "b", "b~2"], &[], version),
        };
        bench.respond(0, bad("1"));
        assert_eq!(news(&mut bench), ["b 1"], "{variant:?}");
        bench.respond(0, bad("1"));
        assert_eq!(news(&mut bench), [""; 0], "{variant:?}: as some servers do when they are refused");
        bench.respond(0, bad("2"));
        assert_eq!(news(&mut bench), ["b 2"], "{variant:?}");
        assert_eq!(rejected(&mut bench, CDS), 1, "{variant:?}");
        let good = match variant {
            Variant::Sotw => sotw(CDS, &["a", "b"], "3"),
            Variant::Delta => delta(CDS, &["b"], &[], "3"),
        };
        bench.respond(0, good);
        assert_eq!(rejected(&mut bench, CDS), 0, "{variant:?}");
    }
}

/// Adds the server's report of an error for a name to a response.
fn reporting(response: Response, code: i32) -> Response {
    let errors = error(code);
    match response {
        Response::Sotw(response) => Response::Sotw(DiscoveryResponse { resource_errors: errors, ..response }),
        Response::Delta(response) => Response::Delta(DeltaDiscoveryResponse { resource_errors: errors, ..response }),
    }
}

#[test]
fn up_44_and_up_45_what_is_reported_of_a_name_of_a_set_says_absent_only_where_it_means_that() {
    for (code, fail_on_data_errors, gone) in [(5, false, true), (14, false, false), (7, false, false), (7, true, true)]
    {
        for variant in [Variant::Sotw, Variant::Delta] {
            let rules = ServerQuirks { fail_on_data_errors, ..ServerQuirks::default() };
            let mut bench = requested(variant, CDS, &["*"], rules);
            let answer = |names: &[&str]| match variant {
                Variant::Sotw => sotw(CDS, names, "1"),
                Variant::Delta => delta(CDS, names, &[], "1"),
            };
            bench.respond(0, answer(&["a", "b"]));
            let updates = bench.respond(0, reporting(answer(&["b"]), code));
            assert_eq!(updates.contains(&"Wildcard a gone".to_owned()), gone, "{variant:?} {code}: {updates:?}");
            let held = bench.held(CDS, Set::All);
            assert_eq!(held, if gone { 1 } else { 2 }, "{variant:?} {code}");
        }
    }
}

#[test]
fn up_25_a_name_of_a_set_that_is_reported_in_error_is_there_and_unknown() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.claim(CDS, Set::All, "a");
    assert_eq!(
        bench.respond(0, reporting(delta(CDS, &["b"], &[], "1"), 14)),
        ["Wildcard b set", "FirstResponse", "unread [\"a\"]"]
    );
    assert_eq!(bench.later(Duration::from_secs(3600)), ["Settled"]);
    assert!(!bench.asks_again(), "it has spoken of it");
    assert_eq!(
        bench.respond(0, reporting(delta(CDS, &[], &[], "2"), 5)),
        ["Wildcard a gone", "FirstResponse", "unread []"]
    );
}

#[test]
fn up_38_xlat_15_a_name_that_came_and_could_not_be_read_is_a_question_again_on_the_next_opening() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = requested(variant, EDS, &["a"], ServerQuirks::default());
        let twice = match variant {
            Variant::Sotw => sotw(EDS, &["a", "a~2"], "1"),
            Variant::Delta => delta(EDS, &["a", "a~2"], &[], "1"),
        };
        bench.respond(0, twice);
        assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "{variant:?}: it is there");
        bench.reopen();
        assert_eq!(bench.later(Duration::from_secs(14)), [""; 0], "{variant:?}");
        assert_eq!(
            bench.later(Duration::from_secs(1)),
            ["Named a unanswered"],
            "{variant:?}: it was taken away meanwhile"
        );
    }
}

/// What a server sent for an earlier subscription must not count as its answer to a later one: a client would keep a resource that was removed
/// in between.
#[test]
fn up_25_xlat_15_a_name_that_could_not_be_read_and_was_left_is_requested_a_second_time_when_it_is_claimed() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = requested(variant, EDS, &["a", "b"], ServerQuirks::default());
        let twice = match variant {
            Variant::Sotw => sotw(EDS, &["a", "a~2", "b"], "1"),
            Variant::Delta => delta(EDS, &["a", "a~2", "b"], &[], "1"),
        };
        bench.respond(0, twice);
        bench.requests(0);
        assert_eq!(rejected(&mut bench, EDS), 1, "{variant:?}");
        for on in [false, true] {
            bench.want(EDS, "a", on);
            bench.later(WINDOW);
            assert_eq!(bench.requests(0).len(), 1, "{variant:?}: the server learns of it");
            assert_eq!(rejected(&mut bench, EDS), 0, "{variant:?}");
        }
        bench.claim(EDS, Set::Names, "a");
        assert_eq!(bench.later(Duration::from_secs(15)), ["Named a unanswered"], "{variant:?}");
        assert!(bench.asks_again(), "{variant:?}: a client holds it");
    }
}

#[test]
fn up_25_a_member_that_could_not_be_read_stays_so_when_it_is_left_by_its_name_alone() {
    let [glob, a] = ["*", "a"].map(|id| format!("xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/f/{id}"));
    let mut bench = requested(Variant::Delta, EDS, &[&glob, &a], ServerQuirks::default());
    bench.respond(0, delta(EDS, &[&a, &format!("{a}~2")], &[], "1"));
    bench.want(EDS, &a, false);
    assert_eq!(rejected(&mut bench, EDS), 1, "its collection has it");
    bench.want(EDS, &glob, false);
    assert_eq!(rejected(&mut bench, EDS), 0);
}

#[test]
fn xlat_15_up_45_a_name_of_a_set_that_is_said_not_to_be_found_is_gone_for_who_holds_it_and_not_requested_again() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["x"], &[], "1"));
    bench.claim(CDS, Set::All, "a");
    bench.later(Duration::from_secs(5));
    assert!(bench.asks_again());
    assert_eq!(bench.reopen(), ["C +[] -[] {a:weir-unknown,x:1} n"]);
    let updates = bench.respond(0, reporting(delta(CDS, &[], &[], "2"), 5));
    assert!(updates.contains(&"Wildcard a gone".to_owned()), "{updates:?}");
    assert_eq!(bench.later(Duration::from_secs(3600)), ["Settled"], "x is there, and a's end is not told twice");
    assert!(!bench.asks_again());
}
