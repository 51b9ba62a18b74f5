//! What counts as evidence with several servers: whose silence counts, which server gets a second request, and what happens to sets when a
//! ladder switches or a stream is lost.

use std::time::Duration;

use super::*;
use weir_core::protocol::sources::ServerPlan;
use weir_core::protocol::upstream::ServerQuirks;

const SECOND: Duration = Duration::from_secs(120);
const LONG: Duration = Duration::from_secs(60);

/// Returns two servers for all clusters. The first has sent some of them and is unreachable now.
fn fallen_back(holds_missing: bool) -> Bench {
    let mut bench = Bench::with_servers(Plan { holds_missing, ..plan(2, Variant::Delta, Rule::Reachability) });
    bench.want(CDS, "*", true);
    bench.open(0);
    bench.say(0, delta(CDS, &[("a", "1"), ("b", "1")], &[]));
    bench.later(LONG);
    bench.end(0, false);
    bench
}

fn held(bench: &Bench, names: [&str; 2]) -> [String; 2] {
    names.map(|name| bench.held(CDS, Set::All, name))
}

#[test]
fn fb_14_and_fb_26_a_fallback_server_is_sent_no_versions_and_asked_again_only_where_what_it_lacks_is_deleted() {
    for holds_missing in [true, false] {
        let mut bench = fallen_back(holds_missing);
        assert_eq!(bench.open(1), ["+[] -[] {}"], "nothing of another's");
        bench.say(1, delta(CDS, &[("b", "2")], &[]));
        bench.later(LONG);
        assert_eq!(held(&bench, ["a", "b"]), ["1", "2"], "quiet takes nothing away");
        if holds_missing {
            assert_eq!(bench.asked_again(), [0; 0]);
            bench.later(Duration::from_secs(3600));
            assert_eq!(held(&bench, ["a", "b"]), ["1", "2"]);
            continue;
        }
        assert_eq!(bench.asked_again(), [1]);
        assert_eq!(bench.open(1), ["+[] -[] {a:weir-unknown,b:1}"]);
        bench.later(SECOND - Duration::from_secs(1));
        assert_eq!(held(&bench, ["a", "b"]), ["1", "2"]);
        bench.later(Duration::from_secs(1));
        assert_eq!(held(&bench, ["a", "b"]), ["gone", "2"], "it was silent a second time");
    }
}

#[test]
fn fb_26_a_fallback_server_that_is_asked_again_keeps_by_a_resource_and_ends_by_a_removal() {
    for (answer, left) in [(delta(CDS, &[("a", "2")], &[]), "2"), (delta(CDS, &[], &["a"]), "gone")] {
        let mut bench = fallen_back(false);
        bench.open(1);
        bench.say(1, delta(CDS, &[("b", "2")], &[]));
        bench.later(LONG);
        assert_eq!(bench.asked_again(), [1]);
        bench.open(1);
        bench.say(1, answer);
        assert_eq!(held(&bench, ["a", "b"]), [left, "2"]);
        bench.later(Duration::from_secs(3600));
        assert_eq!(held(&bench, ["a", "b"]), [left, "2"]);
        assert_eq!(bench.asked_again(), [0; 0]);
    }
}

#[test]
fn fb_13_a_first_server_that_returns_slowly_takes_nothing_away_before_it_was_asked_twice() {
    let mut bench = fallen_back(true);
    bench.open(1);
    bench.say(1, delta(CDS, &[("b", "2"), ("x", "2")], &[]));
    bench.later(LONG);
    assert_eq!(bench.open(0), ["+[] -[] {a:weir-unknown,b:weir-unknown}"], "its own, to be said again");
    bench.say(0, delta(CDS, &[("a", "3")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench.later(Duration::from_secs(4));
    assert_eq!(bench.asked_again(), [0; 0]);
    bench.later(LONG);
    assert_eq!(bench.asked_again(), [0], "it has paused");
    assert_eq!(bench.open(0), ["+[] -[] {a:1,b:weir-unknown,x:weir-unknown}"]);
    bench.later(SECOND - Duration::from_secs(1));
    assert_eq!(held(&bench, ["b", "x"]), ["2", "2"]);
    bench.say(0, delta(CDS, &[("b", "3")], &[])); // after two minutes
    assert_eq!(held(&bench, ["b", "x"]), ["3", "2"]);
    bench.later(SECOND - Duration::from_secs(1));
    assert_eq!(held(&bench, ["b", "x"]), ["3", "2"]);
    bench.later(Duration::from_secs(1));
    assert_eq!(held(&bench, ["b", "x"]), ["3", "gone"], "which only the other had");
}

#[test]
fn up_36_a_server_that_answers_no_call_takes_nothing_away() {
    let mut bench = fallen_back(false);
    bench.mute.insert(1);
    bench.open(1);
    bench.say(1, delta(CDS, &[("b", "2")], &[]));
    bench.later(Duration::from_secs(3600));
    assert_eq!(bench.asked_again(), [0; 0]);
    assert_eq!(held(&bench, ["a", "b"]), ["1", "2"]);
    bench.mute.clear();
    bench.end(1, true);
    bench.open(1);
    bench.later(LONG);
    assert_eq!(bench.asked_again(), [1]);
    bench.open(1);
    bench.mute.insert(1);
    bench.later(Duration::from_secs(3600));
    assert_eq!(held(&bench, ["a", "b"]), ["1", "2"]);
}

#[test]
fn fb_28_a_server_whose_word_does_not_count_is_not_asked_again() {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Uncached));
    bench.want(EDS, "a", true);
    bench.open(0);
    bench.claims(EDS, Set::Names, "a");
    bench.later(Duration::from_secs(3600));
    assert_eq!(bench.asked_again(), [0; 0], "it has not answered yet, and the other may know better");
    bench.say(0, delta(EDS, &[("x", "1")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench.later(LONG);
    assert_eq!(bench.asked_again(), [0]);
}

#[test]
fn fb_4_silence_is_an_answer_to_the_ladder_whoever_holds_the_thing() {
    let mut bench = served(Rule::Uncached);
    bench.want(EDS, "b", true);
    bench.claims(EDS, Set::Names, "b");
    bench.later(Duration::from_secs(1));
    bench.requested(0);
    bench.later(Duration::from_secs(15));
    assert_eq!(bench.asked_again(), [0]);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Cached(0), "there is nothing that another might be asked");
}

#[test]
fn xlat_12_a_set_that_has_ended_once_stays_ended_over_lost_streams_and_switches() {
    for first in [delta(CDS, &[("a", "1")], &[]), delta(CDS, &[], &[])] {
        let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Uncached));
        bench.want(CDS, "*", true);
        bench.open(0);
        bench.say(0, first);
        bench.later(LONG);
        assert!(bench.extent(CDS, Set::All) >= Extent::Settled);
        bench.end(0, true);
        assert_eq!(bench.extent(CDS, Set::All), Extent::Settled, "and may have grown since");
        bench.open(0);
        bench.end(0, false);
        assert_eq!(
            (bench.standing(), bench.extent(CDS, Set::All)),
            (LadderState::Cached(0), Extent::Settled),
            "it is cached"
        );
        bench.want(EDS, "e", true);
        bench.open(1);
        bench.say(1, delta(EDS, &[("e", "1")], &[]));
        assert_eq!((bench.standing(), bench.extent(CDS, Set::All)), (LadderState::Active(1), Extent::Settled));
    }
}

#[test]
fn up_32_what_a_server_said_of_a_name_before_a_lost_stream_is_asked_of_it_again() {
    let mut bench = served(Rule::Uncached);
    bench.want(EDS, "b", true);
    bench.requested(0);
    bench.say(0, delta(EDS, &[], &["b"]));
    assert_eq!(bench.held(EDS, Set::Names, "b"), "gone");
    assert!(bench.is_denied(EDS, "b"), "also for who comes and holds it");
    bench.end(0, true);
    assert!(!bench.is_denied(EDS, "b"), "it may have come back meanwhile");
    bench.open(0);
    bench.claims(EDS, Set::Names, "b");
    bench.later(Duration::from_secs(16));
    assert!(!bench.is_denied(EDS, "b"), "silence is not enough for who holds it");
    assert_eq!(bench.asked_again(), [0]);
    assert_eq!(bench.open(0), ["+[a,b] -[] {a:1,b:weir-unknown}"]);
    bench.say(0, delta(EDS, &[], &["b"]));
    assert!(bench.is_denied(EDS, "b"));
}

#[test]
fn xlat_12_and_up_14_a_set_that_is_cut_off_by_asking_again_for_another_type_is_said_again() {
    let mut bench = served(Rule::Uncached);
    bench.want(EDS, "b", true);
    bench.claims(EDS, Set::Names, "b");
    bench.later(Duration::from_secs(1));
    bench.requested(0);
    bench.want(LDS, "*", true);
    bench.later(Duration::from_secs(40));
    assert_eq!(bench.asked_again(), [0]);
    bench.open(0);
    bench.later(Duration::from_secs(20));
    bench.claims(EDS, Set::Names, "b");
    bench.want(EDS, "c", true);
    bench.claims(EDS, Set::Names, "c");
    bench.later(Duration::from_secs(1));
    bench.requested(0);
    bench.later(Duration::from_millis(14_900));
    bench.say(0, delta(LDS, &[("l", "1")], &[]));
    assert_eq!(bench.extent(LDS, Set::All), Extent::First);
    bench.later(Duration::from_millis(200));
    assert_eq!(bench.asked_again(), [0], "about endpoints, in the middle of listeners");
    let requested = bench.open(0).join(" ");
    assert!(
        requested.contains("{l:weir-unknown}"),
        "{requested}: or else a server that has all of it out says nothing more"
    );
}

#[test]
fn up_25_what_one_server_has_and_cannot_be_read_keeps_no_set_of_another_back() {
    let mut bench = fallen_back(true);
    bench.open(1);
    bench.say(1, delta(CDS, &[("b", "2"), ("x", "2"), ("x", "3")], &[]));
    assert!(!bench.is_readable(CDS), "x is there, and nobody knows what it is");
    bench.open(0);
    bench.say(0, delta(CDS, &[("a", "1"), ("b", "1")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    assert!(bench.is_readable(CDS), "of the first server it was never heard");
}

#[test]
fn up_25_what_cannot_be_read_of_a_server_counts_when_it_becomes_active() {
    let mut bench = fallen_back(true);
    bench.want(LDS, "*", true);
    bench.open(1);
    bench.say(1, delta(CDS, &[("b", "2")], &[]));
    bench.open(0);
    bench.say(0, delta(CDS, &[("x", "2"), ("x", "3")], &[]));
    assert_eq!((bench.standing(), bench.is_readable(CDS)), (LadderState::Active(1), true), "nothing of use");
    bench.say(0, delta(LDS, &[("l", "1")], &[]));
    assert_eq!((bench.standing(), bench.is_readable(CDS)), (LadderState::Active(0), false));
}

#[test]
fn up_16_a_server_that_is_sent_no_versions_is_asked_again_by_opening_again() {
    let mut one = plan(1, Variant::Delta, Rule::Uncached);
    let quirks = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() }.into();
    one.servers[0] = ServerPlan::Streams { variant: Variant::Delta, quirks };
    let mut bench = Bench::with_servers(one);
    bench.want(CDS, "*", true);
    bench.open(0);
    bench.say(0, delta(CDS, &[("a", "1"), ("b", "1")], &[]));
    bench.later(LONG);
    bench.end(0, true);
    for seconds in [60, 119] {
        assert_eq!(bench.open(0), ["+[] -[] {}"]);
        bench.say(0, delta(CDS, &[("b", "1")], &[]));
        bench.later(Duration::from_secs(seconds));
        assert_eq!(bench.asked_again().len(), usize::from(seconds == 60));
        assert_eq!(held(&bench, ["a", "b"]), ["1", "1"]);
    }
    bench.later(Duration::from_secs(1));
    assert_eq!(held(&bench, ["a", "b"]), ["gone", "1"]);
}

#[test]
fn fb_9_what_another_server_took_away_is_asked_of_the_first_again_though_it_was_sent_its_versions() {
    for (url, wanted, set) in [(CDS, "*", Set::All), (EDS, "a", Set::Names)] {
        let mut bench =
            Bench::with_servers(Plan { holds_missing: false, ..plan(2, Variant::Delta, Rule::Reachability) });
        bench.want(url, wanted, true);
        bench.want(LDS, "*", true);
        bench.open(0);
        bench.say(0, delta(url, &[("a", "1")], &[]));
        bench.say(0, delta(LDS, &[("l", "1")], &[]));
        bench.later(LONG);
        bench.end(0, false);
        bench.open(0); // before any response of the other server
        bench.open(1);
        bench.say(1, delta(url, &[], &["a"]));
        bench.say(1, delta(LDS, &[("l", "2")], &[]));
        assert_eq!((bench.standing(), bench.held(url, set, "a").as_str()), (LadderState::Active(1), "gone"));
        assert_eq!(bench.asked_again(), [0], "{wanted}: it has no reason to say what it gave before");
        assert!(bench.open(0).join(" ").contains("{a:weir-unknown}"), "{wanted}");
        bench.say(0, delta(url, &[("a", "1")], &[]));
        bench.say(0, delta(LDS, &[("l", "3")], &[]));
        assert_eq!(bench.standing(), LadderState::Active(0), "{wanted}");
        assert_eq!(bench.held(url, set, "a"), "1", "{wanted}");
        bench.later(Duration::from_secs(3600));
        assert_eq!(bench.asked_again(), [0; 0], "{wanted}");
    }
}
