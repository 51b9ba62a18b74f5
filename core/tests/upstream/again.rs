//! What is wanted again on an opening that has requested it before: `*`, and types that were made up.

use std::time::Duration;

use weir_core::proto::Response;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::support::{EDS, LDS};
use super::{Bench, WINDOW, delta, requested, sotw};

const MADE_UP: &str = "type.googleapis.com/made.up.Thing";
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Longer than the resource timer.
const A_WHILE: Duration = Duration::from_secs(16);

fn said(variant: Variant, url: &str, names: &[&str], version: &str) -> Response {
    match variant {
        Variant::Sotw => sotw(url, names, version),
        Variant::Delta => delta(url, names, &[], version),
    }
}

/// Returns a stream that has requested all listeners and one name of endpoints, and has got both.
fn served(variant: Variant) -> Bench {
    let mut bench = Bench::new(variant);
    bench.want(LDS, "*", true);
    bench.want(EDS, "a", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, said(variant, LDS, &["l"], "1"));
    bench.respond(0, said(variant, EDS, &["a"], "1"));
    bench.requests(0);
    bench
}

/// Returns the same stream after the listeners were left.
fn left(variant: Variant) -> Bench {
    let mut bench = served(variant);
    bench.want(LDS, "*", false);
    bench.later(WINDOW);
    assert_ne!(bench.requests(0), [""; 0], "{variant:?}: it is left");
    bench
}

/// go-control-plane answers an empty response: as far as it knows, all was sent. An empty SotW response may be the answer to having left.
#[test]
fn up_8_what_comes_for_a_wildcard_that_is_wanted_again_is_no_set_before_the_next_opening() {
    let requests = |variant| match variant {
        Variant::Sotw => ["C [a] v n", "L [] v n"],
        Variant::Delta => ["C +[a] -[] {a:1} n", "L +[] -[] {} n"],
    };
    let updates: fn(Variant) -> &'static [&'static str] = |variant| match variant {
        Variant::Sotw => &["whole {\"l\"}"],
        Variant::Delta => &["Wildcard l set", "FirstResponse"],
    };
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = left(variant);
        bench.want(LDS, "*", true);
        bench.later(WINDOW);
        assert_eq!(bench.requests(0), [""; 0], "{variant:?}: it is requested on the next opening");
        for (names, version) in [(vec![], "2"), (vec!["l"], "3")] {
            assert_eq!(bench.respond(0, said(variant, LDS, &names, version)), [""; 0], "{variant:?}");
            assert_eq!(bench.requests(0).len(), 1, "{variant:?}: it is ACKed");
        }
        assert_eq!(bench.later(MINUTE), [""; 0], "{variant:?}: nothing follows from silence either");
        assert!(bench.asks_again(), "{variant:?}");
        assert_eq!(bench.reopen(), requests(variant), "as if for the first time");
        assert!(!bench.asks_again(), "{variant:?}: once");
        assert_eq!(bench.respond(0, said(variant, LDS, &["l"], "4")), updates(variant));
    }
}

/// java-control-plane says nothing if the version that it has sent last is the current one.
#[test]
fn up_8_for_a_wildcard_that_is_wanted_again_the_stream_is_opened_again_at_once_and_not_more_often_than_at_a_pace() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = left(variant);
        let mut waited = Vec::new();
        for _ in 0..7 {
            bench.want(LDS, "*", true);
            let since = bench.now;
            while !bench.asks_again() && bench.now - since < MINUTE {
                bench.later(SECOND);
            }
            waited.push((bench.now - since).as_secs());
            bench.reopen();
            bench.want(LDS, "*", false);
        }
        assert_eq!(waited, [0, 2, 4, 8, 16, 30, 30], "{variant:?}");
    }
}

#[test]
fn up_8_a_wildcard_that_is_wanted_again_is_left_all_the_same_if_the_server_does_not_know_that_yet() {
    for (variant, leaves) in
        [(Variant::Sotw, &["L [*] v n1!", "L [] v n1!"][..]), (Variant::Delta, &["L +[] -[*] {} n"][..])]
    {
        let mut bench = served(variant);
        bench.want(LDS, "*", false);
        bench.want(LDS, "*", true);
        bench.later(WINDOW);
        assert_eq!(bench.requests(0), leaves, "what it sends would be for nobody");
        assert!(bench.asks_again());
    }
}

#[test]
fn up_8_a_stream_is_not_opened_again_for_a_wildcard_that_nobody_wants_any_more() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = left(variant);
        bench.want(LDS, "*", true);
        bench.want(LDS, "*", false);
        bench.later(WINDOW);
        assert_eq!(bench.requests(0), [""; 0], "{variant:?}: the server knows");
        assert!(!bench.asks_again(), "{variant:?}");
        let next = bench.upstream.streams_mut()[0].next_deadline();
        assert!(next.is_none_or(|next| next > bench.now), "{variant:?}: nothing is left to do");
    }
}

#[test]
fn up_8_a_wildcard_that_this_opening_has_not_requested_is_requested_on_it() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    for on in [true, false, true] {
        bench.want(LDS, "*", on);
    }
    assert_eq!(bench.requests(0), ["L +[] -[] {} n"]);
    assert!(!bench.asks_again());
    assert_eq!(bench.respond(0, delta(LDS, &["l"], &[], "1")), ["Wildcard l set", "FirstResponse"]);
}

/// To go-control-plane, a request without the last nonce is an old one, which it does not answer.
#[test]
fn sotw_47_a_made_up_type_that_was_forgotten_is_requested_with_the_last_nonce_of_the_opening() {
    let mut bench = requested(Variant::Sotw, MADE_UP, &["a"], ServerQuirks::default());
    bench.respond(0, sotw(MADE_UP, &["a"], "1"));
    bench.want(MADE_UP, "a", false);
    bench.later(MINUTE);
    assert_eq!(bench.requests(0), ["T [] v1 n1!"]);
    bench.later(A_WHILE);
    assert_eq!(bench.upstream.streams_mut()[0].types().count(), 0, "it is forgotten");
    bench.respond(0, sotw(MADE_UP, &["a"], "2"));
    bench.want(MADE_UP, "a", true);
    assert_eq!(bench.requests(0), ["T [a] v n2!"]);
    assert!(!bench.asks_again());
    assert_eq!(bench.respond(0, sotw(MADE_UP, &["a"], "3")), ["Named a set"]);
    assert_eq!(bench.reopen(), ["T [a] v n"], "on another opening there is none");
}

#[test]
fn i10_of_many_made_up_types_some_are_remembered_and_for_the_others_the_stream_is_opened_again() {
    let all: Vec<_> = (0..70).map(|number| format!("{MADE_UP}{number:02}")).collect();
    let mut bench = Bench::new(Variant::Sotw);
    all.iter().for_each(|url| bench.want(url, "a", true));
    bench.open();
    bench.requests(0);
    for url in &all {
        bench.respond(0, sotw(url, &["a"], "1"));
        bench.want(url, "a", false);
    }
    bench.later(MINUTE);
    bench.requests(0);
    bench.later(A_WHILE);
    assert_eq!(bench.upstream.streams_mut()[0].types().count(), 0);
    bench.want(&all[0], "a", true);
    assert_eq!(bench.requests(0), ["T [a] v n1!"]);
    bench.want(LDS, "l", true);
    assert_eq!(bench.requests(0), ["L [l] v n"], "a type of the table is never forgotten");
    assert!(!bench.asks_again());
    bench.want(&all[69], "a", true);
    assert!(bench.asks_again(), "its last nonce is not known");
    assert!(bench.reopen().contains(&"T [a] v n".to_owned()));
    assert!(!bench.asks_again());
}
