//! How much is known of a set: by its end, reported or configured, and by whether the server sends it in several responses.

use std::time::Duration;

use weir_core::proto::Response;
use weir_core::proto::discovery::DeltaDiscoveryResponse;
use weir_core::protocol::session::Variant;
use weir_core::protocol::set_mark::SetMark;
use weir_core::protocol::upstream::{InitialSet, ServerQuirks};

use super::support::{CDS, LDS, Set};
use super::{Bench, delta, requested};

const QUIET: Duration = Duration::from_secs(5);
const A_MOMENT: Duration = Duration::from_millis(500);

fn wildcard(rules: ServerQuirks) -> Bench {
    requested(Variant::Delta, CDS, &["*"], rules)
}

fn auto() -> Bench {
    wildcard(ServerQuirks::default())
}

/// Returns the completeness after the first response of the next opening.
fn after_first(bench: &mut Bench) -> String {
    bench.reopen();
    bench.respond(0, delta(CDS, &["a"], &[], "9")).pop().unwrap()
}

#[test]
fn xlat_12_an_empty_first_response_is_the_end_and_no_other() {
    let mut bench = auto();
    assert_eq!(bench.respond(0, delta(CDS, &[], &[], "1")), ["Complete"]);
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    assert_eq!(bench.respond(0, delta(CDS, &[], &[], "2")), ["FirstResponse"], "it may be a piece of nothing");
    let glob = "xdstp://x/envoy.config.listener.v3.Listener/*";
    let mut bench = requested(Variant::Delta, LDS, &[glob], ServerQuirks::default());
    assert_eq!(bench.respond(0, delta(LDS, &[], &[], "1")), [""; 0], "of which of the names, nobody knows");
}

#[test]
fn xlat_12_at_the_end_what_was_not_said_is_gone() {
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.claim(CDS, Set::All, "b");
    bench.later(QUIET);
    assert!(bench.asks_again());
    bench.reopen();
    assert_eq!(bench.respond(0, delta(CDS, &[], &[], "2")), ["Complete"]);
    assert_eq!(bench.later(Duration::ZERO), ["Wildcard b gone", "Complete"], "it was told of a, and asked for b");
}

#[test]
fn xlat_12_a_server_that_is_said_to_send_a_set_in_one_response_has_no_more() {
    let one_response = ServerQuirks { initial_set: InitialSet::OneResponse, ..ServerQuirks::default() };
    let mut bench = wildcard(one_response.clone());
    assert_eq!(bench.respond(0, delta(CDS, &["a", "b"], &[], "1")), ["Wildcard a set", "Wildcard b set", "Complete"]);
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..one_response };
    let mut bench = wildcard(rules);
    bench.respond(0, delta(CDS, &["a", "b"], &[], "1"));
    bench.later(QUIET);
    bench.reopen();
    bench.respond(0, delta(CDS, &["a"], &[], "2"));
    assert_eq!(bench.later(Duration::ZERO), ["Wildcard b gone", "Complete"], "as it was told nothing of b");
    assert_eq!(bench.respond(0, delta(CDS, &["c"], &[], "3")), ["Wildcard c set", "Arriving"], "a change is no set");
}

#[test]
fn xlat_12_a_server_that_is_said_to_send_pieces_is_not_taken_at_its_first() {
    let mut bench = wildcard(ServerQuirks { initial_set: InitialSet::Pieces, ..ServerQuirks::default() });
    assert_eq!(bench.respond(0, delta(CDS, &["a"], &[], "1")), ["Wildcard a set", "Arriving"]);
    assert_eq!(bench.later(A_MOMENT), ["Settled"]);
}

#[test]
fn xlat_12_a_server_that_was_seen_to_send_pieces_is_not_taken_at_its_first_until_it_sends_none() {
    let mut bench = auto();
    assert_eq!(bench.respond(0, delta(CDS, &["a"], &[], "1")), ["Wildcard a set", "FirstResponse"]);
    assert_eq!(
        bench.respond(0, delta(CDS, &["b", "c"], &[], "2")),
        ["Wildcard b set", "Wildcard c set", "Arriving"],
        "a piece no smaller than the first"
    );
    for opening in 1..=3 {
        bench.later(QUIET);
        assert_eq!(after_first(&mut bench), "Arriving", "after {} whole openings", opening - 1);
    }
    bench.later(QUIET);
    assert_eq!(after_first(&mut bench), "FirstResponse", "three times in a row all came at once");
}

#[test]
fn xlat_12_what_comes_after_a_quiet_moment_or_is_small_is_no_piece() {
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.later(A_MOMENT);
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "2")), ["Wildcard b set", "FirstResponse"], "a change");
    bench.later(QUIET);
    assert_eq!(after_first(&mut bench), "FirstResponse");
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a~a-long-body", "b"], &[], "1"));
    assert_eq!(
        bench.respond(0, delta(CDS, &["c", "d"], &[], "2")),
        ["Wildcard c set", "Wildcard d set", "FirstResponse"],
        "much less than the first"
    );
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "2")), ["Wildcard b set", "FirstResponse"], "it may be new");
}

#[test]
fn xlat_12_an_opening_that_ends_before_it_was_quiet_says_nothing_of_the_habit() {
    let mut bench = auto();
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.respond(0, delta(CDS, &["b", "c"], &[], "2"));
    for _ in 0..4 {
        assert_eq!(after_first(&mut bench), "Arriving");
    }
}

fn marked(response: Response, mark: SetMark) -> Response {
    let Response::Delta(response) = response else { panic!("a set is marked in delta alone") };
    Response::Delta(DeltaDiscoveryResponse { system_version_info: mark.text().into(), ..response })
}

#[test]
fn xlat_12_a_relay_says_when_its_set_is_complete_and_what_it_has_not_said_is_gone() {
    let mut bench = auto();
    bench.claim(CDS, Set::All, "b");
    assert_eq!(
        bench.respond(0, marked(delta(CDS, &["a"], &[], "1"), SetMark::Partial)),
        ["Wildcard a set", "FirstResponse"],
        "more may come"
    );
    assert_eq!(bench.respond(0, marked(delta(CDS, &[], &[], "2"), SetMark::Complete)), ["Complete"]);
    assert_eq!(bench.later(Duration::ZERO), ["Complete"]);
    bench.reopen();
    assert_eq!(
        bench.respond(0, marked(delta(CDS, &["c"], &[], "3"), SetMark::Complete)),
        ["Wildcard c set", "Complete"]
    );
    assert_eq!(bench.later(Duration::ZERO), ["Complete"], "it was told of a, and left that as it is");
}

#[test]
fn xlat_12_of_a_relay_that_does_not_know_all_no_silence_says_that_anything_is_gone() {
    let mut bench = auto();
    bench.claim(CDS, Set::All, "b");
    bench.respond(0, marked(delta(CDS, &["a"], &[], "1"), SetMark::Partial));
    bench.later(QUIET);
    assert!(bench.asks_again(), "it may know of b by itself");
    bench.reopen();
    bench.respond(0, marked(delta(CDS, &["a"], &[], "2"), SetMark::Partial));
    for minute in 0..30 {
        let said = bench.later(Duration::from_secs(60));
        assert!(
            said.iter().all(|update| !update.contains("gone") && update != "Complete"),
            "minute {minute}: {said:?}"
        );
    }
    bench.respond(0, marked(delta(CDS, &[], &[], "3"), SetMark::Complete));
    assert_eq!(bench.later(Duration::ZERO), ["Wildcard b gone", "Complete"]);
}

#[test]
fn xlat_12_a_relay_whose_set_is_open_again_makes_it_open_here() {
    let mut bench = auto();
    bench.respond(0, marked(delta(CDS, &["a"], &[], "1"), SetMark::Complete));
    bench.later(Duration::ZERO);
    assert_eq!(
        bench.respond(0, marked(delta(CDS, &[], &[], "2"), SetMark::Partial)),
        ["interrupted", "FirstResponse"],
        "its server is another, say"
    );
    bench.claim(CDS, Set::All, "b");
    assert_eq!(bench.respond(0, marked(delta(CDS, &[], &[], "3"), SetMark::Complete)), ["Complete"]);
}

#[test]
fn xlat_12_an_empty_first_response_of_a_relay_that_does_not_know_all_is_no_end() {
    let mut bench = auto();
    assert_eq!(bench.respond(0, marked(delta(CDS, &[], &[], "1"), SetMark::Partial)), ["FirstResponse"]);
}

#[test]
fn xlat_12_a_word_that_may_be_about_an_earlier_wildcard_ends_nothing() {
    let mut bench = auto();
    bench.respond(0, marked(delta(CDS, &["a"], &[], "1"), SetMark::Partial));
    bench.want(CDS, "*", false);
    bench.want(CDS, "*", true);
    bench.requests(0);
    let said = bench.respond(0, marked(delta(CDS, &["a"], &[], "2"), SetMark::Complete));
    assert_eq!(said, [""; 0]);
}
