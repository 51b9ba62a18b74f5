//! What may be concluded from what a server has sent, and from what it has not: from reports, from complete sets, from silence, and from a
//! second silence about a resource that clients hold.

use std::time::Duration;

use weir_core::proto::Response;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{InitialSet, ServerQuirks};
use weir_core::protocol::view::SessionId;

use super::support::{CDS, EDS, LDS, Set};
use super::{Bench, WINDOW, delta, error, requested, sotw};

const TIMER: Duration = Duration::from_secs(15);
const QUIET: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(120);

/// Returns a bench where a client holds a name that the server has not mentioned before the resource timer ended.
fn silent_about(variant: Variant, name: &str) -> Bench {
    let mut bench = requested(variant, EDS, &[name], ServerQuirks::default());
    bench.claim(EDS, Set::Names, name);
    assert_eq!(bench.later(TIMER), [format!("Named {name} unanswered")], "enough for those who do not hold it");
    assert!(bench.asks_again());
    bench
}

/// Returns a bench where a client holds a member of a set that has probably ended without it.
fn quiet_about(name: &str) -> Bench {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["x"], &[], "1"));
    bench.claim(CDS, Set::All, name);
    assert_eq!(bench.later(QUIET), ["Settled"], "which takes nothing away");
    assert!(bench.asks_again());
    bench
}

#[test]
fn xlat_15_what_a_client_holds_is_requested_again_under_a_version_that_is_nobodys() {
    let mut bench = silent_about(Variant::Delta, "a");
    assert_eq!(bench.reopen(), ["C +[a] -[] {a:weir-unknown} n"]);
    assert_eq!(bench.respond(0, delta(EDS, &["a"], &[], "1")), ["Named a set"], "it is there");
    assert_eq!(bench.later(SECOND), [""; 0]);
    assert!(!bench.asks_again());

    let mut bench = silent_about(Variant::Delta, "a");
    bench.reopen();
    assert_eq!(bench.respond(0, delta(EDS, &[], &["a"], "1")), ["Named a gone"], "it says that there is none");
    assert_eq!(bench.later(SECOND), [""; 0]);
    assert!(!bench.asks_again());

    let mut bench = silent_about(Variant::Delta, "a");
    bench.reopen();
    assert_eq!(bench.later(SECOND - Duration::from_secs(1)), ["Named a unanswered"]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Named a gone"], "it was silent a second time");
    assert_eq!(bench.later(SECOND), [""; 0]);
    assert!(!bench.asks_again(), "more is not to be had");
}

#[test]
fn xlat_15_a_server_that_goes_through_what_it_was_sent_is_not_silent_about_the_rest() {
    let mut bench = requested(Variant::Delta, EDS, &["a", "b", "c", "d"], ServerQuirks::default());
    bench.respond(0, delta(EDS, &["b", "c"], &[], "1"));
    for name in ["a", "d"] {
        bench.claim(EDS, Set::Names, name);
    }
    bench.later(TIMER);
    assert!(bench.asks_again());
    bench.reopen();
    let gone = |updates: &[String]| updates.iter().any(|update| update.ends_with("gone"));
    for name in ["a", "b", "c", "d"] {
        let updates = bench.later(SECOND - Duration::from_secs(1));
        assert!(!gone(&updates), "before {name}: {updates:?}");
        bench.respond(0, delta(EDS, &[name], &[], "1"));
    }
    assert_eq!(bench.later(SECOND), [""; 0]);
}

#[test]
fn delta_13_a_server_that_sends_a_name_again_for_reasons_of_its_own_has_read_what_was_stated() {
    let names = ["a", "b", "c", "d"];
    let returned = |url: &str, wanted: &[&str]| {
        let mut bench = requested(Variant::Delta, url, wanted, ServerQuirks::default());
        bench.respond(0, delta(url, &names, &[], "1"));
        bench.reopen();
        bench
    };
    for (url, wanted) in [(EDS, &names[..]), (CDS, &["*"])] {
        // The server has nothing new, and sends endpoints again after their clusters.
        let mut bench = returned(url, wanted);
        bench.later(TIMER);
        for name in names {
            bench.respond(0, delta(url, &[name], &[], "1"));
            bench.later(TIMER);
            assert!(!bench.asks_again(), "{url}");
        }
        // The server sends new resources at once, and sends them again after a while.
        let mut bench = returned(url, wanted);
        bench.respond(0, delta(url, &["a"], &[], "2"));
        bench.later(Duration::from_secs(1));
        bench.respond(0, delta(url, &["a"], &[], "2"));
        bench.later(TIMER);
        assert!(!bench.asks_again(), "{url}");
        // The server ignores what is stated, and has lost a part of it. It is fast first, and slow later.
        let mut bench = returned(url, wanted);
        bench.respond(0, delta(url, &["a"], &[], "1"));
        bench.later(TIMER);
        assert!(bench.asks_again(), "{url}");
        let mut bench = returned(url, wanted);
        bench.later(TIMER);
        bench.respond(0, delta(url, &["a", "b", "c"], &[], "1"));
        bench.later(TIMER);
        assert!(bench.asks_again(), "{url}");
    }
}

#[test]
fn xlat_12_what_a_client_holds_of_a_set_is_requested_again_under_a_version_that_is_nobodys() {
    let mut bench = quiet_about("b");
    assert_eq!(bench.reopen(), ["C +[] -[] {b:weir-unknown,x:1} n"]);
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "2")), ["Wildcard b set", "FirstResponse"]);
    assert_eq!(bench.later(SECOND), ["Settled"], "x was confirmed by not being sent");
    assert!(!bench.asks_again());

    let mut bench = quiet_about("b");
    bench.reopen();
    assert_eq!(bench.respond(0, delta(CDS, &[], &["b"], "2")), ["Wildcard b gone", "FirstResponse"]);

    let mut bench = quiet_about("b");
    bench.reopen();
    assert_eq!(bench.later(SECOND - Duration::from_secs(1)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Wildcard b gone"]);
}

#[test]
fn xlat_15_what_nobody_holds_is_not_requested_again() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    bench.want(LDS, "*", true);
    bench.requests(0);
    bench.respond(0, delta(LDS, &["l"], &[], "1"));
    assert_eq!(bench.later(SECOND), ["Settled", "Named a unanswered"]);
    assert!(!bench.asks_again());
}

#[test]
fn xlat_15_in_sotw_to_ask_again_is_to_open_again_and_a_second_silence_says_the_same() {
    let mut bench = silent_about(Variant::Sotw, "a");
    assert_eq!(bench.reopen(), ["C [a] v n"]);
    assert_eq!(bench.later(SECOND), ["Named a unanswered", "Named a gone"]);
    let mut bench = silent_about(Variant::Sotw, "a");
    bench.reopen();
    assert_eq!(bench.respond(0, sotw(EDS, &["a"], "1")), ["Named a set"]);
    assert_eq!(bench.later(SECOND), [""; 0]);
}

#[test]
fn sotw_4_a_server_that_is_silent_since_it_was_sent_its_version_is_asked_without() {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a"], "7"));
    assert_eq!(bench.reopen(), ["C [] v7 n"]);
    assert_eq!(bench.later(SECOND), [""; 0], "it has nothing to say that is new");
    assert!(bench.asks_again(), "and yet it has not said that it has a still");
    assert_eq!(bench.reopen(), ["C [] v n"], "or else it has no reason to speak now either");
    assert_eq!(bench.respond(0, sotw(CDS, &["a"], "7")), ["whole {\"a\"}"]);
    assert_eq!(bench.later(SECOND), ["Settled"]);
    assert!(!bench.asks_again());
}

#[test]
fn up_36_what_was_asked_again_is_concluded_of_a_server_that_answers_a_call_begun_after_it() {
    for mut bench in [silent_about(Variant::Delta, "a"), quiet_about("a")] {
        bench.reopen();
        bench.mute = true;
        assert_eq!(bench.later(SECOND - Duration::from_secs(1)), [""; 0]);
        bench.answers_call(); // the call for the first silence on this opening, if there is one
        bench.later(Duration::from_secs(1));
        let gone = |updates: &[String]| updates.iter().any(|update| update.ends_with("a gone"));
        assert!(!gone(&bench.later(Duration::from_secs(3600))), "that was begun too early, and no other was answered");
        bench.answers_call();
        assert!(gone(&bench.later(Duration::ZERO)));
    }
}

#[test]
fn up_36_what_is_held_is_not_asked_again_of_a_server_that_answers_no_call() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["x"], &[], "1"));
    bench.claim(CDS, Set::All, "b");
    bench.mute = true;
    bench.later(Duration::from_secs(3600));
    assert!(!bench.asks_again(), "it may hang");
    bench.answers_call();
    bench.later(Duration::ZERO);
    assert!(bench.asks_again());
}

#[test]
fn up_36_while_a_message_is_coming_in_nothing_settles_and_nothing_goes() {
    let mut bench = quiet_about("b");
    bench.reopen();
    bench.respond(0, delta(CDS, &["y"], &[], "2"));
    let epoch = bench.epochs[0];
    bench.upstream.streams_mut()[0].on_receiving(epoch);
    assert_eq!(bench.later(Duration::from_secs(3600)), [""; 0]);
    bench.claim(CDS, Set::All, "c");
    bench.later(Duration::from_secs(3600));
    assert!(!bench.asks_again());
    bench.respond(0, delta(CDS, &["b"], &[], "3"));
    assert_eq!(bench.later(QUIET), ["Settled"], "it was b that was coming in");
    assert!(bench.asks_again(), "and c is to be asked for");
}

#[test]
fn xlat_12_growth_postpones_what_is_asked_again_and_what_is_concluded() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.claim(CDS, Set::All, "z");
    for name in ["a", "b", "c", "d"] {
        bench.respond(0, delta(CDS, &[name], &[], "1"));
        bench.later(QUIET - Duration::from_secs(1));
        assert!(!bench.asks_again(), "{name}: there is more of it");
    }
    bench.later(Duration::from_secs(1));
    assert!(bench.asks_again());

    let mut bench = quiet_about("b");
    bench.claim(CDS, Set::All, "c");
    bench.later(Duration::ZERO);
    bench.reopen();
    bench.later(SECOND - Duration::from_secs(1));
    bench.respond(0, delta(CDS, &["b"], &[], "1"));
    assert_eq!(bench.later(SECOND - Duration::from_secs(1)), ["Settled"], "it was not silent about all of it");
    assert_eq!(bench.later(Duration::from_secs(1)), ["Wildcard c gone"]);
}

#[test]
fn xlat_12_names_that_nobody_held_are_news_and_postpone_nothing_for_ever() {
    let mut bench = quiet_about("b");
    bench.reopen();
    let mut gone = None;
    for second in (0..3000).step_by(3) {
        let name = format!("new-{second}");
        bench.respond(0, delta(CDS, &[&name], &[], "1"));
        let updates = bench.later(Duration::from_secs(3));
        if updates.contains(&"Wildcard b gone".to_owned()) {
            gone.get_or_insert(second + 3);
        }
    }
    assert_eq!(gone, Some(11 * 120));

    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.claim(CDS, Set::All, "b");
    let mut asked_at = None;
    for second in (0..600).step_by(3) {
        let name = format!("new-{second}");
        bench.respond(0, delta(CDS, &[&name], &[], "1"));
        bench.later(Duration::from_secs(3));
        if bench.asks_again() {
            asked_at.get_or_insert(second + 3);
        }
    }
    assert_eq!(asked_at, Some(30));
}

#[test]
fn xlat_12_types_come_one_after_another_and_none_is_at_its_end_before_the_others_for_a_while() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.want(LDS, "*", true);
    bench.requests(0);
    bench.claim(CDS, Set::All, "b");
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    let mut asked_at = None;
    for second in (0..60).step_by(4) {
        let name = format!("l{second}");
        bench.respond(0, delta(LDS, &[&name], &[], "1"));
        bench.later(Duration::from_secs(4));
        if bench.asks_again() {
            asked_at.get_or_insert(second + 4);
        }
    }
    assert_eq!(asked_at, Some(32), "not while listeners come in, and thirty seconds after the first word all the same");
}

#[test]
fn xlat_15_a_stream_is_opened_again_ever_more_rarely_for_those_who_make_up_names() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["x"], &[], "1"));
    let mut asked_at = Vec::new();
    for second in 0..1500_u64 {
        bench.claim(CDS, Set::All, &format!("made-up-{second}"));
        bench.later(Duration::from_secs(1));
        if bench.asks_again() {
            asked_at.push(second + 1);
            bench.reopen();
            bench.respond(0, delta(CDS, &["x"], &[], "1"));
        }
    }
    let pauses: Vec<_> = asked_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(pauses, [15, 30, 60, 120, 240, 240, 240, 240, 240], "{asked_at:?}");
    bench.later(Duration::from_secs(3600));
    assert!(bench.asks_again());
    bench.reopen();
    bench.claim(CDS, Set::All, "one more");
    bench.later(TIMER);
    assert!(bench.asks_again(), "after a calm time it begins anew");
}

#[test]
fn xlat_15_a_question_that_was_answered_before_it_could_be_asked_again_is_not_asked() {
    let mut bench = quiet_about("b");
    bench.reopen();
    bench.claim(CDS, Set::All, "c");
    bench.respond(0, delta(CDS, &["b"], &[], "1"));
    bench.later(TIMER - Duration::from_secs(1));
    assert!(!bench.asks_again(), "the last time is not long ago");
    bench.respond(0, delta(CDS, &["c"], &[], "1"));
    bench.later(Duration::from_secs(3600));
    assert!(!bench.asks_again());

    let mut bench = silent_about(Variant::Delta, "a");
    bench.reopen();
    bench.want(EDS, "b", true);
    bench.claim(EDS, Set::Names, "b");
    bench.later(WINDOW);
    bench.requests(0);
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    bench.later(TIMER - WINDOW);
    bench.want(EDS, "b", false);
    bench.later(Duration::from_secs(3600));
    assert!(!bench.asks_again(), "nobody wants it any more");
}

#[test]
fn up_35_a_question_that_a_lost_stream_left_open_is_asked_again_with_a_time_of_its_own() {
    let mut bench = quiet_about("b");
    for _ in 0..5 {
        assert_eq!(bench.reopen(), ["C +[] -[] {b:weir-unknown,x:1} n"]);
        assert_eq!(bench.later(SECOND - Duration::from_secs(1)), [""; 0], "silence on a stream that was lost is none");
    }
    assert_eq!(bench.later(Duration::from_secs(1)), ["Wildcard b gone"]);
    assert_eq!(bench.reopen(), ["C +[] -[] {x:1} n"]);
}

#[test]
fn up_24_a_full_set_knows_of_names_in_the_first_request_of_names_it_gave_and_of_those_requested_long_ago() {
    let mut bench = requested(Variant::Sotw, LDS, &["a", "b"], ServerQuirks::default());
    let first = bench.respond(0, sotw(LDS, &["a"], "1"));
    assert_eq!(first, ["Named a set", "Named b gone"], "it answers that request or a later one");
    bench.want(LDS, "c", true);
    bench.later(WINDOW);
    bench.requests(0);
    assert_eq!(bench.respond(0, sotw(LDS, &["a"], "2")), ["Named a set"], "of c it may not have read yet");
    bench.mute = true;
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
    assert_eq!(bench.respond(0, sotw(LDS, &["a"], "3")), ["Named a set"], "time alone proves nothing");
    bench.mute = false;
    bench.answers_call();
    assert_eq!(bench.later(Duration::ZERO), ["Named c unanswered"]);
    assert_eq!(bench.respond(0, sotw(LDS, &["a"], "4")), ["Named a set", "Named c gone"]);
    assert_eq!(bench.respond(0, sotw(LDS, &[], "5")), ["Named a gone"], "what it gave itself");
    bench.reopen();
    assert_eq!(bench.respond(0, sotw(LDS, &["c"], "6")), ["Named c set", "Named a gone", "Named b gone"]);
}

#[test]
fn up_38_heartbeats_alone_are_no_set() {
    let mut bench = requested(Variant::Sotw, LDS, &["a", "b"], ServerQuirks::default());
    bench.respond(0, sotw(LDS, &["a", "b"], "1"));
    let Response::Sotw(mut beat) = sotw(LDS, &[], "1") else { unreachable!() };
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let wrapper = weir_core::proto::discovery::Resource { name: "a".into(), ttl, ..Default::default() };
    let value = prost::Message::encode_to_vec(&wrapper).into();
    let type_url = "type.googleapis.com/envoy.service.discovery.v3.Resource".into();
    beat.resources = vec![weir_core::proto::Any { type_url, value }];
    assert_eq!(bench.respond(0, Response::Sotw(beat)), ["Named a lives for Some(60s)"], "b is not gone by that");
}

#[test]
fn sotw_7_who_holds_all_of_a_set_that_nobody_knows_is_answered_by_a_second_silence() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["x"], &[], "1"));
    bench.claim_set(CDS);
    assert_eq!(bench.later(QUIET), ["Settled"]);
    assert!(bench.asks_again());
    bench.reopen();
    assert_eq!(bench.later(SECOND - Duration::from_secs(1)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Complete"], "there was nothing to add");
    bench.later(SECOND);
    assert!(!bench.asks_again());
}

#[test]
fn rest_12_a_poll_that_was_begun_after_asking_is_an_answer_to_all_that_is_asked() {
    let rules = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, EDS, &["a", "b"], rules);
    bench.respond(0, sotw(EDS, &["a", "b"], "1"));
    bench.requests(0);
    bench.reopen();
    bench.respond(0, sotw(EDS, &["a"], "2"));
    bench.requests(0);
    assert_eq!(bench.later(TIMER), [""; 0]);
    let epoch = bench.epochs[0];
    let now = bench.now;
    bench.upstream.streams_mut()[0].on_unchanged(epoch, CDS, now);
    assert_eq!(bench.later(Duration::ZERO), [""; 0], "a poll of another type");
    bench.upstream.streams_mut()[0].on_unchanged(epoch, EDS, now);
    assert_eq!(bench.later(Duration::ZERO), ["Named b gone"], "what it left out it does not have");
    assert!(!bench.asks_again(), "there is nobody to be asked on another stream");
}

#[test]
fn up_36_a_call_that_a_lost_stream_left_unanswered_is_made_again_on_the_next() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    bench.mute = true;
    assert_eq!(bench.later(TIMER), [""; 0]);
    assert!(bench.upstream.streams_mut()[0].take_liveness_call(), "made, and not answered");
    bench.reopen();
    assert!(!bench.upstream.streams_mut()[0].take_liveness_call(), "the time of the next opening has only begun");
    bench.mute = false;
    assert_eq!(bench.later(TIMER), ["Named a unanswered"]);
}

#[test]
fn up_36_an_error_of_an_earlier_opening_confirms_nothing_on_the_next() {
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Delta, EDS, &["a", "b"], rules);
    bench.respond(0, delta(EDS, &["a", "b"], &[], "1"));
    let Response::Delta(mut response) = delta(EDS, &[], &[], "2") else { unreachable!() };
    response.resource_errors = error(14);
    assert_eq!(bench.respond(0, Response::Delta(response)), ["a error 14"], "it is there");
    bench.reopen();
    bench.respond(0, delta(EDS, &["b"], &[], "3"));
    bench.later(TIMER);
    assert!(bench.asks_again(), "it has not sent a on this opening");
    bench.reopen();
    bench.respond(0, delta(EDS, &["b"], &[], "4"));
    bench.later(TIMER);
    assert_eq!(bench.later(SECOND), ["Named a gone"]);
}

/// Otherwise one client with many names that no server has could keep all other clients from getting answers about their names.
#[test]
fn i8_what_a_client_holds_is_requested_although_another_holds_more_than_there_is_room_for() {
    const LIMIT: usize = 100_000;
    let [greedy, honest] = [2, 3].map(SessionId);
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["x"], &[], "1"));
    let names = |prefix: &'static str, count: usize| (0..count).map(move |number| format!("{prefix}{number:06}"));
    bench.claim_as(greedy, CDS, Set::All, names("g", LIMIT));
    bench.claim_as(honest, CDS, Set::All, names("h", 10));
    let refused = bench.view.take_refused_claims();
    assert_eq!(refused.keys().collect::<Vec<_>>(), [&greedy], "the ten have room");
    let left_out = refused[&greedy].clone();
    assert_eq!(left_out.len(), LIMIT / 8);

    let stated =
        |requests: &[String], name: &str| requests.iter().any(|text| text.contains(&format!("{name}:weir-unknown")));
    bench.later(QUIET);
    assert!(bench.asks_again());
    let requests = bench.reopen();
    assert!(stated(&requests, "h000000") && stated(&requests, "h000009"));
    assert!(stated(&requests, "g000000") && !stated(&requests, "g099999"));

    // The server answers, so there is room for the other names, which are stated on the next opening.
    assert!(bench.view.take_sessions_to_claim().is_empty());
    let removed: Vec<String> = (0..LIMIT - LIMIT / 8).map(|number| format!("g{number:06}")).collect();
    let removed: Vec<_> = removed.iter().map(String::as_str).collect();
    bench.respond(0, delta(CDS, &[], &removed, "2"));
    assert_eq!(bench.view.take_sessions_to_claim(), [greedy].into());
    bench.view.add_claims(greedy, left_out);
    assert!(bench.view.take_refused_claims().is_empty());
    bench.later(QUIET);
    bench.later(TIMER);
    assert!(bench.asks_again());
    let requests = bench.reopen();
    assert!(stated(&requests, "g099999") && stated(&requests, "h000009") && !stated(&requests, "g000000"));
}

/// A server that ignores stated versions has not confirmed what it does not send again.
#[test]
fn up_15_what_a_server_that_ignores_stated_versions_does_not_send_again_is_requested_again() {
    for (kind, wanted) in [(CDS, &["*"][..]), (EDS, &["a", "b", "c"])] {
        let mut bench = requested(Variant::Delta, kind, wanted, ServerQuirks::default());
        bench.respond(0, delta(kind, &["a", "b", "c"], &[], "1"));
        bench.later(QUIET);
        bench.reopen();
        for name in ["a", "b"] {
            bench.respond(0, delta(kind, &[name], &[], "1"));
        }
        bench.later(TIMER + QUIET);
        assert!(bench.asks_again(), "{kind}");
        assert!(bench.reopen()[0].contains("c:weir-unknown"), "{kind}");
        bench.respond(0, delta(kind, &["a", "b"], &[], "1"));
        assert!(!bench.later(SECOND - QUIET).iter().any(|update| update.ends_with("gone")), "{kind}");
        let updates = bench.later(QUIET);
        assert!(updates.iter().any(|update| update.ends_with("c gone")), "{kind}: {updates:?}");
    }
}

/// If its version was stated, a SotW server that has nothing new would not send the set.
#[test]
fn sotw_4_a_set_that_a_client_needs_is_requested_without_its_version() {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a"], "1"));
    bench.end(0);
    bench.claim_set(CDS);
    bench.open();
    bench.later(Duration::ZERO);
    assert_eq!(bench.requests(0), ["C [] v n"], "it is needed before the stream is opened");

    // It does not matter what is known of how the server sends its delta sets.
    let pieces = ServerQuirks { initial_set: InitialSet::Pieces, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, CDS, &["*"], pieces);
    bench.respond(0, sotw(CDS, &["a"], "1"));
    assert_eq!(bench.reopen(), ["C [] v1 n"]);
    bench.claim_set(CDS);
    bench.later(Duration::from_millis(400));
    assert!(!bench.asks_again(), "it may be about to answer");
    bench.later(Duration::from_millis(100));
    assert!(bench.asks_again(), "it is alive and silent");
    assert_eq!(bench.reopen(), ["C [] v n"]);
}

#[test]
fn sotw_4_no_set_states_its_version_on_an_opening_that_asks_for_another_one_again() {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.want(LDS, "*", true);
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a"], "1"));
    bench.respond(0, sotw(LDS, &["l"], "1"));
    bench.requests(0);
    bench.reopen();
    bench.respond(0, sotw(LDS, &["l"], "1"));
    bench.claim(CDS, Set::All, "held");
    bench.later(TIMER);
    assert!(bench.asks_again());
    assert_eq!(bench.reopen(), ["C [] v n", "L [] v n"], "else its silence would be asked about next");
}
