//! How much is known of a set by what came of it: its end, said or configured, and the habit of a server to send it in pieces.

use std::time::Duration;

use weir::protocol::session::Variant;
use weir::protocol::unit::Class;
use weir::protocol::upstream::{InitialSet, ServerRules};

use super::support::{CDS, LDS};
use super::{Bench, asked, delta};

const QUIET: Duration = Duration::from_secs(5);
const A_MOMENT: Duration = Duration::from_millis(500);

fn star(rules: ServerRules) -> Bench {
    asked(Variant::Delta, CDS, &["*"], rules)
}

fn auto() -> Bench {
    star(ServerRules::default())
}

/// How much is known after the first response of the next opening.
fn after_first(bench: &mut Bench) -> String {
    bench.reopen();
    bench.respond(0, delta(CDS, &["a"], &[], "9")).pop().unwrap()
}

#[test]
fn xlat_12_an_empty_first_response_is_the_end_and_no_other() {
    let mut bench = auto();
    assert_eq!(bench.respond(0, delta(CDS, &[], &[], "1")), ["Whole"]);
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    assert_eq!(bench.respond(0, delta(CDS, &[], &[], "2")), ["Begun"], "it may be a piece of nothing");
    let glob = "xdstp://x/envoy.config.listener.v3.Listener/*";
    let mut bench = asked(Variant::Delta, LDS, &[glob], ServerRules::default());
    assert_eq!(bench.respond(0, delta(LDS, &[], &[], "1")), [""; 0], "of which of the names, nobody knows");
}

#[test]
fn xlat_12_at_the_end_what_was_not_said_is_gone() {
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.claim(CDS, Class::Star, "b");
    bench.later(QUIET);
    assert!(bench.asks_again());
    bench.reopen();
    assert_eq!(bench.respond(0, delta(CDS, &[], &[], "2")), ["Whole"]);
    assert_eq!(bench.later(Duration::ZERO), ["Star b gone", "Whole"], "it was told of a, and asked for b");
}

#[test]
fn xlat_12_a_server_that_is_said_to_send_a_set_in_one_response_has_no_more() {
    let one_response = ServerRules { initial_set: InitialSet::OneResponse, ..ServerRules::default() };
    let mut bench = star(one_response.clone());
    assert_eq!(bench.respond(0, delta(CDS, &["a", "b"], &[], "1")), ["Star a set", "Star b set", "Whole"]);
    let rules = ServerRules { initial_versions: false, ..one_response };
    let mut bench = star(rules);
    bench.respond(0, delta(CDS, &["a", "b"], &[], "1"));
    bench.later(QUIET);
    bench.reopen();
    bench.respond(0, delta(CDS, &["a"], &[], "2"));
    assert_eq!(bench.later(Duration::ZERO), ["Star b gone", "Whole"], "as it was told nothing of b");
    assert_eq!(bench.respond(0, delta(CDS, &["c"], &[], "3")), ["Star c set", "Coming"], "a change is no set");
}

#[test]
fn xlat_12_a_server_that_is_said_to_send_pieces_is_not_taken_at_its_first() {
    let mut bench = star(ServerRules { initial_set: InitialSet::Pieces, ..ServerRules::default() });
    assert_eq!(bench.respond(0, delta(CDS, &["a"], &[], "1")), ["Star a set", "Coming"]);
    assert_eq!(bench.later(A_MOMENT), ["Settled"]);
}

#[test]
fn xlat_12_a_server_that_was_seen_to_send_pieces_is_not_taken_at_its_first_until_it_sends_none() {
    let mut bench = auto();
    assert_eq!(bench.respond(0, delta(CDS, &["a"], &[], "1")), ["Star a set", "Begun"]);
    assert_eq!(
        bench.respond(0, delta(CDS, &["b"], &[], "2")),
        ["Star b set", "Coming"],
        "a piece as large as the first"
    );
    for opening in 1..=3 {
        bench.later(QUIET);
        assert_eq!(after_first(&mut bench), "Coming", "after {} whole openings", opening - 1);
    }
    bench.later(QUIET);
    assert_eq!(after_first(&mut bench), "Begun", "three times in a row all came at once");
}

#[test]
fn xlat_12_what_comes_after_a_quiet_moment_or_is_small_is_no_piece() {
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.later(A_MOMENT);
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "2")), ["Star b set", "Begun"], "a change");
    bench.later(QUIET);
    assert_eq!(after_first(&mut bench), "Begun");
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a~a-long-body", "b"], &[], "1"));
    assert_eq!(bench.respond(0, delta(CDS, &["c"], &[], "2")), ["Star c set", "Begun"], "much less than the first");
}

#[test]
fn xlat_12_an_opening_that_ends_before_it_was_quiet_says_nothing_of_the_habit() {
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.respond(0, delta(CDS, &["b"], &[], "2"));
    for _ in 0..4 {
        assert_eq!(after_first(&mut bench), "Coming");
    }
}
