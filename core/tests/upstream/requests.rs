//! Requests to a server.

use std::time::Duration;

use weir_core::proto::Request;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::support::{CDS, EDS, LDS, RDS};
use super::{Bench, WINDOW, delta, requested, sotw};

#[test]
fn up_1_and_up_6_types_come_in_make_before_break_order_and_the_node_in_the_first_request_alone_if_it_is_to() {
    let rules = ServerQuirks { node_in_every_request: false, ..ServerQuirks::default() };
    let mut bench = Bench::with(Variant::Sotw, rules);
    for (url, name) in [(RDS, "r"), (LDS, "*"), (EDS, "e"), (CDS, "*")] {
        bench.want(url, name, true);
    }
    bench.open();
    let expected = ["C [] v n", "C [e] v n without node", "L [] v n without node", "R [r] v n without node"];
    assert_eq!(bench.requests(0), expected);
}

#[test]
fn up_5_changes_of_interest_are_merged_and_the_first_goes_at_once() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(EDS, "a", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n"]);
    bench.want(EDS, "b", true);
    assert_eq!(bench.requests(0), [""; 0]);
    bench.later(Duration::from_millis(5));
    bench.want(EDS, "c", true);
    bench.want(EDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["C +[b,c] -[a] {} n"]);
    bench.later(WINDOW);
    bench.want(EDS, "d", true);
    assert_eq!(bench.requests(0), ["C +[d] -[] {} n"], "nothing to merge it with");
}

/// A SotW list has all names. If the new names of one client came in parts, each part would send all names again.
#[test]
fn a_long_list_is_sent_again_less_often_than_a_short_one_and_has_all_names_in_the_end() {
    for (count, lists) in [(10, 10), (40_000, 1)] {
        let names: Vec<_> = (0..count).map(|number| format!("name-{number:06}-{}", "x".repeat(40))).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let mut bench = requested(Variant::Sotw, EDS, &names, ServerQuirks::default());
        let mut sent = 0;
        for number in 0..10 {
            bench.want(EDS, &format!("more-{number}"), true);
            bench.later(WINDOW);
            sent += bench.requests(0).len();
        }
        assert!(sent <= lists, "{sent} lists of {count} names");
        bench.later(Duration::from_secs(1));
        let last = bench.raw_requests(0).pop();
        assert_eq!(last.is_some(), count > 10, "what is left goes together");
        if let Some(Request::Sotw(last)) = last {
            assert_eq!(last.resource_names.len(), count + 10);
        }
        bench.want(EDS, "later", true);
        bench.later(Duration::from_secs(1));
        bench.requests(0);
        bench.later(Duration::from_secs(1));
        bench.want(EDS, "alone", true);
        assert_eq!(bench.requests(0).len(), 1, "a change by itself goes at once");
    }
}

#[test]
fn up_7_a_wildcard_alone_goes_in_the_form_that_every_server_knows() {
    for (variant, first) in [(Variant::Sotw, "L [] v n"), (Variant::Delta, "L +[] -[] {} n")] {
        let mut bench = Bench::new(variant);
        bench.want(LDS, "*", true);
        bench.open();
        assert_eq!(bench.requests(0), [first]);
    }
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(EDS, "*", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C [*] v n"], "a type without that form");
}

#[test]
fn up_8_a_wildcard_is_left_so_that_the_server_notices() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(LDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.want(LDS, "*", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L [*] v n", "L [] v n"]);
    let mut bench = Bench::new(Variant::Delta);
    bench.want(LDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.want(LDS, "*", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L +[] -[*] {} n"]);
}

#[test]
fn xlat_13_a_wildcard_and_names_of_one_type_go_over_streams_of_their_own() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "a", true);
    bench.want(CDS, "*", true);
    bench.want(EDS, "e", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n", "C +[e] -[] {} n"]);
    assert_eq!(bench.requests(1), ["C +[] -[] {} n"]);
    assert_eq!(
        bench.respond(1, delta(CDS, &["a", "b"], &[], "1")),
        ["Wildcard a set", "Wildcard b set", "FirstResponse"]
    );
    assert_eq!(bench.respond(0, delta(CDS, &["a", "b"], &[], "1")), ["Named a set"], "UP-27");
}

#[test]
fn up_11_up_13_and_up_14_a_new_stream_is_sent_what_is_held_from_this_server() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "*", true);
    bench.want(EDS, "e", true);
    bench.want(EDS, "unknown", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, delta(CDS, &["a", "b"], &[], "7"));
    bench.respond(0, delta(CDS, &[], &["a"], "8"));
    bench.respond(0, delta(EDS, &["e"], &[], "9"));
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[] -[] {b:7} n", "C +[e,unknown] -[] {e:9} n"]);

    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.want(EDS, "e", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a"], "7"));
    bench.respond(0, sotw(EDS, &["e"], "9"));
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C [] v7 n", "C [e] v n"]);

    let mut bench = Bench::new(Variant::Sotw);
    bench.want(EDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(EDS, &["e"], "9"));
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C [*] v n"], "a response of the type need not have been all of it");
}

#[test]
fn up_12_another_variant_starts_from_nothing() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, delta(CDS, &["a"], &[], "7"));
    bench.end(0);
    bench.upstream.streams_mut()[0].set_variant(Variant::Sotw);
    bench.open();
    assert_eq!(bench.requests(0), ["C [] v n"]);
    bench.end(0);
    bench.upstream.streams_mut()[0].set_variant(Variant::Delta);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[] -[] {a:weir-unknown} n"], "not the 7 of the time before");

    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a"], "7"));
    for (variant, request) in [(Variant::Delta, "C +[] -[] {a:weir-unknown} n"), (Variant::Sotw, "C [] v n")] {
        bench.end(0);
        bench.upstream.streams_mut()[0].set_variant(variant);
        bench.open();
        assert_eq!(bench.requests(0), [request]);
    }
}

#[test]
fn a_name_dropped_and_wanted_again_within_the_window_is_requested_again() {
    for (variant, sent) in
        [(Variant::Delta, ["C +[] -[a] {} n", "C +[a] -[] {} n"]), (Variant::Sotw, ["C [b] v n", "C [a,b] v n"])]
    {
        let mut bench = Bench::new(variant);
        bench.want(EDS, "a", true);
        bench.want(EDS, "b", true);
        bench.open();
        bench.requests(0);
        bench.want(EDS, "a", false);
        bench.want(EDS, "a", true);
        bench.later(WINDOW);
        assert_eq!(bench.requests(0), sent, "the server would not send what it believes is held");
    }
}

/// java-control-plane groups clients by the node of each request, including ACKs and NACKs.
#[test]
fn up_1_every_request_has_the_node_in_the_bytes_of_the_stream() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new(variant);
        bench.want(EDS, "a", true);
        bench.open();
        let mut sent = bench.raw_requests(0);
        for (at, names) in [&["a"][..], &["a", "a~2"]].into_iter().enumerate() {
            let version = at.to_string();
            let response = match variant {
                Variant::Sotw => sotw(EDS, names, &version),
                Variant::Delta => delta(EDS, names, &[], &version),
            };
            bench.respond(0, response);
            sent.extend(bench.raw_requests(0));
        }
        bench.want(EDS, "b", true);
        bench.later(WINDOW);
        sent.extend(bench.raw_requests(0));
        let nodes: Vec<_> = sent.iter().map(|request| request.node().expect("a request without node")).collect();
        assert_eq!(nodes.len(), 4, "{variant:?}: the first, an ACK, a NACK and a change");
        assert!(nodes.iter().all(|node| node.as_ptr() == nodes[0].as_ptr()), "{variant:?}: a copy for each request");
    }
}

/// Istiod ignores a change that comes with a NACK or with an old nonce, and logs an error for one that comes with an ACK.
#[test]
fn delta_2_an_ack_and_a_nack_carry_no_change_of_subscription() {
    let mut bench = requested(Variant::Delta, EDS, &["a", "b"], ServerQuirks::default());
    bench.later(WINDOW);
    bench.want(EDS, "c", true);
    bench.want(EDS, "a", false);
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    bench.respond(0, delta(EDS, &["b", "b~2"], &[], "2"));
    assert_eq!(bench.requests(0), ["C +[] -[] {} n1!", "C +[] -[] {} n2! NACK", "C +[c] -[a] {} n"]);
    bench.want(EDS, "d", true);
    bench.respond(0, delta(EDS, &["c"], &[], "3"));
    assert_eq!(bench.requests(0), ["C +[] -[] {} n3!"]);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["C +[d] -[] {} n"], "UP-5: merged with what comes in the window, whatever is ACKed");
}

/// A server may send a type that was not requested yet. The ACK of that response is not the first request of the type: from the first request, a
/// server takes what is subscribed.
#[test]
fn delta_2_what_comes_before_the_first_request_of_its_type_is_acked_after_it() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(EDS, "a", true);
    bench.open();
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    assert_eq!(bench.requests(0), ["C +[a] -[] {a:1} n", "C +[] -[] {} n1!"]);
}

/// Istiod counts a request that repeats what it knows as an error.
#[test]
fn delta_10_no_request_repeats_what_the_server_knows() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    bench.want(EDS, "b", true);
    bench.want(EDS, "b", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), [""; 0], "wanted and dropped again within the window");
    let next = bench.upstream.streams_mut()[0].next_deadline();
    assert!(next.is_none_or(|next| next > bench.now), "nothing is left to send");
    bench.want(EDS, "a", true);
    bench.want(EDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["C +[] -[a] {} n"], "wanted once more, and dropped");
    bench.want(EDS, "a", true);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n"]);
}

#[test]
fn up_9_a_server_that_takes_an_empty_list_for_everything_never_gets_one() {
    let rules = ServerQuirks { supports_empty_subscription: false, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, LDS, &["a"], rules);
    bench.want(LDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L [weir.nothing] v n"]);
    assert_eq!(bench.respond(0, sotw(LDS, &["a"], "1")), [""; 0], "what was on its way is for nobody");
    assert_eq!(bench.requests(0), ["L [weir.nothing] v1 n1!"]);
    bench.want(LDS, "a", true);
    bench.want(LDS, "a", false);
    bench.want(LDS, "a", true);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L [a] v1 n1!"]);
    let mut bench = requested(Variant::Sotw, LDS, &["a"], ServerQuirks::default());
    bench.want(LDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["L [] v n"]);
    assert_eq!(bench.respond(0, sotw(LDS, &["x"], "1")), [""; 0], "an old server sends everything then");
}

#[test]
fn up_16_what_a_server_without_initial_versions_does_not_send_again_twice_is_gone() {
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Delta, CDS, &["*"], rules);
    bench.respond(0, delta(CDS, &["a", "b", "c"], &[], "1"));
    bench.requests(0);
    assert_eq!(bench.reopen(), ["C +[] -[] {} n"], "told nothing of what is held");
    bench.respond(0, delta(CDS, &["a"], &[], "2"));
    assert_eq!(bench.later(Duration::from_secs(4)), ["Settled"]);
    bench.respond(0, delta(CDS, &["b"], &[], "3"));
    assert_eq!(bench.later(Duration::from_secs(4)), ["Settled"]);
    assert!(!bench.asks_again(), "it was not quiet for long enough");
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "quiet takes nothing away");
    assert!(bench.asks_again());
    assert_eq!(bench.reopen(), ["C +[] -[] {} n"], "to open anew is to ask again");
    bench.respond(0, delta(CDS, &["a"], &[], "2"));
    assert_eq!(bench.later(Duration::from_secs(110)), ["Settled"]);
    bench.respond(0, delta(CDS, &["b"], &[], "3"));
    assert_eq!(bench.later(Duration::from_secs(119)), ["Settled"], "it was saying things again until then");
    assert_eq!(bench.later(Duration::from_secs(1)), ["Wildcard c gone"]);
    assert_eq!(bench.later(Duration::from_secs(3600)), [""; 0]);
    assert!(!bench.asks_again());
}

#[test]
fn up_15_after_a_reconnect_with_versions_what_is_not_mentioned_stays() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["a", "b"], &[], "1"));
    bench.reopen();
    assert_eq!(bench.respond(0, delta(CDS, &["b"], &[], "2")), ["Wildcard b set", "FirstResponse"]);
    assert_eq!(bench.later(Duration::from_secs(3600)), ["Settled"]);
    assert!(!bench.asks_again(), "it was told of a, and so has confirmed it");
}

#[test]
fn trn_3_what_exists_in_delta_alone_is_not_requested_in_sotw_and_not_called_absent() {
    let vhds = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(vhds, "r/a", true);
    bench.want(EDS, "e", true);
    bench.open();
    assert_eq!(bench.requests(0), ["C [e] v n"]);
    assert_eq!(bench.later(Duration::from_secs(60)), ["Named e unanswered"]);
}

#[test]
fn up_17_what_is_wanted_once_more_is_requested_once_more() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    bench.requests(0);
    bench.want(EDS, "a", true);
    bench.later(WINDOW);
    assert_eq!(
        bench.requests(0),
        ["C +[] -[a] {} n", "C +[a] -[] {} n"],
        "a server may ignore what repeats a subscription"
    );
    assert_eq!(bench.respond(0, delta(EDS, &["a~2"], &[], "2")), ["Named a set"]);
    assert_eq!(bench.requests(0), ["C +[] -[] {} n2!"]);
}

#[test]
fn up_16_and_up_25_what_came_again_and_could_not_be_read_is_not_gone() {
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    for ignore_deletions in [false, true] {
        let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks { ignore_deletions, ..rules.clone() });
        bench.respond(0, delta(CDS, &["a", "b", "c"], &[], "1"));
        bench.requests(0);
        let bad = || delta(CDS, &["a", "b", "b~2"], &[], "2");
        bench.reopen();
        bench.respond(0, bad());
        assert_eq!(bench.later(Duration::from_secs(60)), ["Settled"]);
        assert_eq!(bench.asks_again(), !ignore_deletions);
        bench.reopen();
        bench.respond(0, bad());
        let gone: &[&str] = if ignore_deletions { &["Settled"] } else { &["Settled", "Wildcard c gone"] };
        assert_eq!(bench.later(Duration::from_secs(120)), gone);
    }
}

#[test]
fn xlat_13_and_up_28_a_type_that_was_made_up_is_forgotten_after_the_last_words_on_it() {
    const MADE_UP: &str = "type.googleapis.com/made.up.Thing";
    for (variant, first) in [(Variant::Sotw, "T [*] v n"), (Variant::Delta, "T +[*] -[] {} n")] {
        let mut bench = requested(variant, MADE_UP, &["*"], ServerQuirks::default());
        let answer = |version| match variant {
            Variant::Sotw => sotw(MADE_UP, &["a"], version),
            Variant::Delta => delta(MADE_UP, &["a"], &[], version),
        };
        bench.respond(0, answer("1"));
        bench.want(MADE_UP, "*", false);
        bench.later(Duration::from_secs(60));
        assert_ne!(bench.requests(0), [""; 0], "{variant:?}: the server did not know before");
        bench.later(Duration::from_secs(14));
        assert_eq!(bench.respond(0, answer("2")), [""; 0], "{variant:?}");
        assert_eq!(bench.requests(0).len(), 1, "{variant:?}: it is owed an answer still");
        bench.later(Duration::from_secs(15));
        assert_eq!(bench.upstream.streams_mut()[0].types().count(), 0, "{variant:?}");
        assert_eq!(bench.respond(0, answer("3")), [""; 0], "{variant:?}");
        assert_eq!(bench.requests(0), [""; 0], "{variant:?}");
        bench.want(MADE_UP, "*", true);
        assert_eq!(bench.requests(0), [""; 0], "{variant:?}: this opening has requested it before");
        assert!(bench.asks_again(), "{variant:?}");
        assert_eq!(bench.reopen(), [first], "as if for the first time");
    }
}

/// A stream is opened again for that instead.
#[test]
fn sotw_38_what_a_server_was_sent_of_a_type_of_the_table_is_remembered() {
    let rules = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, LDS, &["*"], rules);
    bench.respond(0, sotw(LDS, &["a"], "1"));
    bench.want(LDS, "*", false);
    bench.later(Duration::from_secs(60));
    bench.requests(0);
    bench.later(Duration::from_secs(60));
    bench.want(LDS, "*", true);
    assert_eq!(bench.requests(0), ["L [*] v n1!"], "an empty list means nothing to it any more");
    assert_eq!(bench.respond(0, sotw(LDS, &[], "2")), ["whole {}"], "each poll is answered for itself");
    assert!(!bench.asks_again());
}

/// go-control-plane's snapshot cache and java-control-plane answer a NACK at once with what they have, whatever the reason of the NACK is.
#[test]
fn up_20_a_version_that_is_sent_again_after_its_nack_is_nacked_after_a_pause() {
    let mut bench = requested(Variant::Sotw, EDS, &["a"], ServerQuirks::default());
    let bad = |version: &str| sotw(EDS, &["a", "a~2"], version);
    bench.respond(0, bad("1"));
    assert_eq!(bench.requests(0), ["C [a] v n1! NACK"]);
    for round in 0..3 {
        bench.respond(0, bad("1"));
        let pause = Duration::from_secs(2);
        let next = bench.upstream.streams_mut()[0].next_deadline();
        assert!(next.is_some_and(|next| next <= bench.now + pause), "its task has to wake for it: {next:?}");
        bench.later(pause - WINDOW);
        assert_eq!(bench.requests(0), [""; 0], "{round}");
        bench.later(WINDOW);
        assert_eq!(bench.requests(0), ["C [a] v n1! NACK"], "{round}");
    }
    bench.respond(0, bad("1"));
    bench.want(EDS, "b", true);
    assert_eq!(bench.requests(0), ["C [a,b] v n1! NACK"], "the list needs the newest nonce");
    bench.respond(0, bad("1"));
    assert_eq!(bench.requests(0), [""; 0]);
    bench.respond(0, bad("2"));
    assert_eq!(bench.requests(0), ["C [a,b] v n1! NACK", "C [a,b] v n2! NACK"], "another version");
    bench.respond(0, bad("2"));
    bench.respond(0, sotw(EDS, &["a"], "2"));
    assert_eq!(bench.requests(0), ["C [a,b] v n2! NACK", "C [a,b] v2 n2!"], "an ACK");
}

#[test]
fn up_16_what_is_not_said_again_goes_though_the_server_never_stops_talking() {
    let rules = ServerQuirks { supports_initial_resource_versions: false, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Delta, CDS, &["*"], rules);
    bench.respond(0, delta(CDS, &["a", "b"], &[], "1"));
    bench.reopen();
    let mut asked_at = None;
    let mut gone_at = None;
    for second in 0..150 {
        bench.respond(0, delta(CDS, &[if second % 2 == 0 { "a" } else { "a~2" }], &[], "2"));
        let updates = bench.later(Duration::from_secs(1));
        if updates.contains(&"Wildcard b gone".to_owned()) {
            gone_at = Some(second + 1);
        }
        if asked_at.is_none() && bench.asks_again() {
            asked_at = Some(second + 1);
            bench.reopen();
        }
    }
    assert_eq!(asked_at, Some(5), "what it says once more is no growth");
    assert_eq!(gone_at, Some(5 + 120));
}

#[test]
fn i10_of_a_server_that_reads_no_acks_the_latest_are_kept_for_it() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    let limit = ProtocolOptions::default().upstream.pending_answers;
    for number in 0..limit + 2 {
        bench.respond(0, delta(EDS, &["a"], &[], &number.to_string()));
    }
    let acks = bench.requests(0);
    let nonce = |number: usize| format!("C +[] -[] {{}} n{number}!");
    assert_eq!((acks.len(), acks.first(), acks.last()), (limit, Some(&nonce(2)), Some(&nonce(limit + 1))));
}

#[test]
fn a_type_that_is_subscribed_to_keeps_its_stream_however_many_others_come_and_go() {
    let own = "type.googleapis.com/own.Type";
    let mut bench = Bench::new(Variant::Delta);
    bench.want(own, "*", true);
    for number in 0..300 {
        let other = format!("type.googleapis.com/other.Type{number}");
        bench.want(&other, "*", true);
        bench.want(&other, "*", false);
    }
    assert_eq!(bench.upstream.streams_mut().len(), 1);
    bench.want(own, "a", true);
    assert_eq!(bench.upstream.streams_mut().len(), 2, "a response to one class would be read as one to the other");
}
