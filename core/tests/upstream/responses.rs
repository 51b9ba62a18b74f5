//! What follows from a server's responses, and from its silence.

use std::time::Duration;

use weir_core::proto::discovery::{DiscoveryResponse, Resource, ResourceError, ResourceName, Status};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::{OnResourceTimeout, PollFailure, ServerQuirks};

use super::support::{CDS, EDS, LDS};
use super::{Bench, WINDOW, any, delta, error, requested, sotw, wrapped};

#[test]
fn up_19_up_20_and_up_23_each_response_is_answered_and_the_good_part_of_a_bad_one_is_used() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    assert_eq!(bench.requests(0), ["C [] v1 n1!"]);
    let updates = bench.respond(0, sotw(CDS, &["a", "b", "b~2"], "2"));
    assert_eq!(updates, ["whole {\"a\"} and {\"b\"}"], "b is named twice, and keeps its value");
    assert_eq!(bench.requests(0), ["C [] v1 n2! NACK"]);
    assert_eq!(bench.respond(0, sotw(CDS, &["a"], "3")), ["whole {\"a\"}"]);
    assert_eq!(bench.requests(0), ["C [] v3 n3!"]);
}

#[test]
fn up_22_a_name_both_sent_and_removed_is_rejected_and_keeps_its_value() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(EDS, "a", true);
    bench.want(EDS, "b", true);
    bench.open();
    bench.requests(0);
    assert_eq!(bench.respond(0, delta(EDS, &["a", "b"], &["b"], "1")), ["Named a set"]);
    assert_eq!(bench.requests(0), ["C +[] -[] {} n1! NACK"]);
}

#[test]
fn up_24_a_name_never_received_is_not_deleted_by_an_older_answer() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(LDS, "a", true);
    bench.open();
    bench.requests(0);
    bench.want(LDS, "b", true);
    bench.later(WINDOW);
    bench.requests(0);
    assert_eq!(bench.respond(0, sotw(LDS, &["a"], "1")), ["Named a set"], "it may answer the first request");
    assert_eq!(bench.respond(0, sotw(LDS, &["a", "b"], "2")), ["Named a set", "Named b set"]);
    assert_eq!(bench.respond(0, sotw(LDS, &["b"], "3")), ["Named b set", "Named a gone"]);
    assert_eq!(bench.respond(0, sotw(EDS, &["x"], "4")), [""; 0], "UP-28: nobody asked");
}

#[test]
fn up_24_an_answer_to_the_time_between_two_questions_for_a_name_deletes_nothing_and_is_asked_about() {
    for (later, deleted) in [(WINDOW, false), (Duration::from_secs(15), true)] {
        let mut bench = requested(Variant::Sotw, CDS, &["a", "b"], ServerQuirks::default());
        bench.respond(0, sotw(CDS, &["a", "b"], "1"));
        for on in [false, true] {
            bench.want(CDS, "a", on);
            bench.later(WINDOW);
            bench.requests(0);
        }
        bench.later(later);
        assert_eq!(bench.respond(0, sotw(CDS, &["a", "b"], "2")), ["Named a set", "Named b set"]);
        let updates = bench.respond(0, sotw(CDS, &["b"], "3"));
        assert_eq!(updates.contains(&"Named a gone".to_owned()), deleted, "after {later:?}: {updates:?}");
    }
}

/// That a poll has failed may be read only after the next one has begun. And polls may fail for good, or end, after names were left.
#[test]
fn up_24_a_poll_that_fails_neither_ends_nor_extends_the_doubt_about_a_name_that_was_left() {
    for (later, deleted) in [(WINDOW, false), (Duration::from_secs(30), true)] {
        let rules = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
        let mut bench = requested(Variant::Sotw, CDS, &["a", "b"], rules);
        bench.want(CDS, "a", false);
        bench.later(WINDOW);
        bench.requests(0);
        let epoch = bench.epochs[0];
        bench.upstream.streams_mut()[0].on_poll_failed(epoch, CDS, PollFailure::Refused, bench.now);
        bench.want(CDS, "a", true);
        bench.later(later);
        bench.requests(0);
        assert_eq!(bench.respond(0, sotw(CDS, &["a", "b"], "1")), ["Named a set", "Named b set"]);
        let updates = bench.respond(0, sotw(CDS, &["b"], "2"));
        assert_eq!(updates.contains(&"Named a gone".to_owned()), deleted, "after {later:?}: {updates:?}");
    }
}

#[test]
fn xlat_16_what_cannot_be_read_and_a_passing_error_are_no_absence() {
    let mut bench = requested(Variant::Delta, EDS, &["a", "b"], ServerQuirks::default());
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    assert_eq!(bench.respond(0, delta(EDS, &["a", "a~2", "b", "b~2"], &[], "2")), [""; 0], "both are named twice");
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
    let mut bench = requested(Variant::Sotw, LDS, &["a", "b"], ServerQuirks::default());
    bench.respond(0, sotw(LDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(LDS, &["a", "a~2", "b"], "2")), ["Named b set"]);
    let mut bench = requested(Variant::Sotw, LDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(LDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(LDS, &["a", "a~2"], "2")), ["whole {} and {\"a\"}"], "b is not there, and a is");
    for code in [14, 13, 2] {
        let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
        let Response::Delta(mut response) = delta(EDS, &[], &[], "1") else { unreachable!() };
        response.resource_errors = error(code);
        assert_eq!(bench.respond(0, Response::Delta(response)), [format!("a error {code}")], "of a name never held");
        assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
    }
}

#[test]
fn up_35_up_36_and_up_37_silence_means_something_only_once_the_request_is_written() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(EDS, "a", true);
    bench.open();
    assert_eq!(bench.later(Duration::from_secs(40)), [""; 0], "still connecting");
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(14)), [""; 0]);
    bench.end(0);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "the server cannot answer");
    bench.open();
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(14)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Named a unanswered"]);
    bench.want(EDS, "b", true);
    bench.later(WINDOW);
    bench.requests(0);
    bench.respond(0, sotw(EDS, &["b"], "1"));
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "UP-38");
}

#[test]
fn up_36_silence_means_something_of_a_server_that_answers_a_call_begun_after_it() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(EDS, "a", true);
    bench.open();
    bench.mute = true;
    assert_eq!(bench.requests(0), ["C [a] v n"]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "it may hang");
    let epoch = bench.epochs[0];
    bench.upstream.streams_mut()[0].on_liveness_answer(epoch);
    assert_eq!(bench.later(Duration::ZERO), ["Named a unanswered"]);
    let mut bench = requested(Variant::Sotw, EDS, &["a"], ServerQuirks::default());
    assert_eq!(bench.later(Duration::from_secs(14)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["Named a unanswered"]);
}

#[test]
fn up_36_what_was_on_its_way_and_a_call_begun_before_prove_nothing() {
    let mut bench = requested(Variant::Sotw, EDS, &["a", "b"], ServerQuirks::default());
    bench.mute = true;
    bench.later(Duration::from_secs(10));
    assert_eq!(bench.respond(0, sotw(EDS, &["b"], "1")), ["Named b set"]);
    assert_eq!(bench.later(Duration::from_secs(5)), [""; 0], "a response says nothing of what is not in it");
    let epoch = bench.epochs[0];
    bench.want(EDS, "c", true);
    bench.later(WINDOW);
    bench.requests(0);
    bench.later(Duration::from_secs(15));
    bench.upstream.streams_mut()[0].on_liveness_answer(epoch);
    assert_eq!(bench.later(Duration::ZERO), ["Named a unanswered"], "asked after a's time, and before c's was over");
    bench.upstream.streams_mut()[0].on_liveness_answer(epoch);
    assert_eq!(bench.later(Duration::ZERO), ["Named c unanswered"]);
}

#[test]
fn up_36_a_message_that_is_half_there_is_no_silence() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    let epoch = bench.epochs[0];
    bench.upstream.streams_mut()[0].on_receiving(epoch);
    assert_eq!(bench.later(Duration::from_secs(3600)), [""; 0]);
    bench.respond(0, delta(EDS, &[], &["b"], "1"));
    assert_eq!(bench.later(Duration::ZERO), ["Named a unanswered"]);
}

#[test]
fn a_message_of_an_earlier_opening_is_nothing() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.open();
    let old = bench.epochs[0];
    bench.end(0);
    bench.open();
    let updates = bench.upstream.streams_mut()[0].on_response(old, sotw(CDS, &["a"], "1"), &bench.store, bench.now);
    assert!(updates.is_empty());
    assert_eq!(bench.requests(0), ["C [] v n"], "nothing to answer");
}

#[test]
fn up_38_a_name_whose_answer_could_not_be_used_is_not_called_absent() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(EDS, "a", true);
    bench.open();
    bench.requests(0);
    assert_eq!(bench.respond(0, delta(EDS, &["a"], &["a"], "1")), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
}

#[test]
fn up_44_and_up_45_an_error_says_absent_only_where_it_means_that() {
    let respond = |code| {
        let mut bench = Bench::new(Variant::Sotw);
        bench.want(LDS, "a", true);
        bench.want(LDS, "b", true);
        bench.open();
        bench.requests(0);
        bench.respond(0, sotw(LDS, &["a", "b"], "1"));
        bench.requests(0);
        let Response::Sotw(mut response) = sotw(LDS, &["b"], "2") else { unreachable!() };
        let resource_name = Some(ResourceName { name: "a".into(), ..Default::default() });
        let error_detail = Some(Status { code, ..Default::default() });
        response.resource_errors = vec![ResourceError { resource_name, error_detail }];
        (bench.respond(0, Response::Sotw(response)), bench.requests(0))
    };
    let unavailable = respond(14);
    assert_eq!(unavailable.0, ["a error 14", "Named b set"], "a counts as present");
    assert_eq!(unavailable.1, ["L [a,b] v2 n2!"]);
    assert_eq!(respond(5).0, ["Named a gone", "a error 5", "Named b set"]);
    assert_eq!(respond(7).0, ["a error 7", "Named b set"], "what is held and not allowed any more is kept (UP-47)");
    assert_eq!(respond(0).1, ["L [a,b] v1 n2! NACK"], "an error that says OK is refused (UP-22)");
}

#[test]
fn up_20_each_answer_has_the_version_that_was_in_use_after_its_own_response() {
    let mut bench = Bench::new(Variant::Sotw);
    bench.want(CDS, "*", true);
    bench.open();
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["a", "a"], "1"));
    bench.respond(0, sotw(CDS, &["a"], "2"));
    assert_eq!(bench.requests(0), ["C [] v n1! NACK", "C [] v2 n2!"]);
}

#[test]
fn up_37_silence_is_an_error_where_the_server_is_configured_so() {
    let rules = ServerQuirks { on_resource_timeout: OnResourceTimeout::TransientError, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, EDS, &["a"], rules);
    assert_eq!(bench.later(Duration::from_secs(29)), [""; 0]);
    assert_eq!(bench.later(Duration::from_secs(1)), ["a error 14"]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
    assert_eq!(bench.respond(0, sotw(EDS, &["a"], "1")), ["Named a set"]);
}

#[test]
fn xlat_16_silence_is_nothing_where_the_source_says_by_itself_what_there_is_not() {
    let rules = ServerQuirks { on_resource_timeout: OnResourceTimeout::Unknown, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Delta, EDS, &["a", "b"], rules);
    assert_eq!(bench.later(Duration::from_secs(3600)), [""; 0]);
    assert_eq!(bench.respond(0, delta(EDS, &["a"], &["b"], "1")), ["Named a set", "Named b gone"]);
}

#[test]
fn up_36_a_type_that_is_requested_apart_is_silent_only_while_its_own_questions_are_answered() {
    let rules = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, EDS, &["a", "b"], rules);
    bench.want(CDS, "*", true);
    bench.requests(0);
    bench.respond(0, sotw(CDS, &["x"], "1"));
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(3600)), ["Settled"], "clusters, which says nothing of endpoints");
    assert_eq!(bench.respond(0, sotw(EDS, &["a"], "1")), ["Named a set"]);
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(10)), [""; 0]);
    let epoch = bench.epochs[0];
    bench.upstream.streams_mut()[0].on_poll_failed(epoch, EDS, PollFailure::Silent, bench.now);
    assert_eq!(bench.later(Duration::from_secs(3600)), [""; 0]);
    assert_eq!(bench.respond(0, sotw(EDS, &["a"], "1")), ["Named a set"]);
    bench.requests(0);
    assert_eq!(bench.later(Duration::from_secs(15)), [""; 0], "it starts over, and ends with an answer");
    assert_eq!(bench.respond(0, sotw(EDS, &["a"], "1")), ["Named a set"]);
    assert_eq!(bench.later(Duration::ZERO), ["Named b gone"], "which was one to all that is asked");
}

#[test]
fn up_40_a_heartbeat_prolongs_what_is_held_and_what_may_have_died_is_not_stated() {
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    assert_eq!(bench.respond(0, wrapped(EDS, "a", "1", |resource| resource.ttl = ttl)), ["Named a set"]);
    bench.requests(0);
    let beat = |version: &str| {
        wrapped(EDS, "a", version, |resource| {
            resource.ttl = ttl;
            resource.resource = None;
        })
    };
    assert_eq!(bench.respond(0, beat("1")), ["Named a lives for Some(60s)"]);
    assert_eq!(bench.requests(0), ["C +[] -[] {} n1!"]);
    assert_eq!(bench.respond(0, beat("2")), [""; 0], "of another version it is no heartbeat, and refused");
    assert_eq!(bench.requests(0), ["C +[] -[] {} n2! NACK"]);
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n"]);
}

#[test]
fn up_29_a_heartbeat_in_sotw_deletes_nothing() {
    // The version is in the wrapper, or only in the response.
    for version in ["1", ""] {
        heartbeat_in_sotw(version);
    }
}

fn heartbeat_in_sotw(version: &str) {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    let mut wrapper = Resource { version: version.into(), name: "a".into(), ..Default::default() };
    wrapper.ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let value = prost::Message::encode_to_vec(&wrapper).into();
    let beat = Any { type_url: "type.googleapis.com/envoy.service.discovery.v3.Resource".into(), value };
    let response = |resources: Vec<Any>| {
        let (version_info, type_url, nonce) = ("1".into(), CDS.into(), "x".into());
        Response::Sotw(DiscoveryResponse { version_info, resources, type_url, nonce, ..Default::default() })
    };
    assert_eq!(bench.respond(0, response(vec![beat.clone()])), ["Wildcard a lives for Some(60s)"]);
    let both = bench.respond(0, response(vec![beat, any(CDS, "c")]));
    assert_eq!(both, ["Wildcard a lives for Some(60s)", "whole {\"c\"} and {\"a\"}"]);
}

#[test]
fn xlat_3_a_servers_version_says_nothing_of_the_content() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = requested(variant, EDS, &["a"], ServerQuirks::default());
        let revision_after = |bench: &mut Bench, resource: &str, version: &str| {
            let response = match variant {
                Variant::Sotw => sotw(EDS, &[resource], version),
                Variant::Delta => delta(EDS, &[resource], &[], version),
            };
            bench.respond(0, response);
            bench.view.publish();
            bench.view.snapshot().revision
        };
        let first = revision_after(&mut bench, "a", "1");
        assert_eq!(revision_after(&mut bench, "a", "2"), first, "{variant:?}: the same under another version");
        let changed = revision_after(&mut bench, "a~2", "2");
        assert!(changed > first, "{variant:?}: other bytes under the same version");
        assert_eq!(revision_after(&mut bench, "a~2", "3"), changed, "{variant:?}");
    }
}

#[test]
fn xlat_20_and_up_47_what_is_deleted_is_kept_where_that_is_wished() {
    let rules = ServerQuirks { ignore_deletions: true, ..ServerQuirks::default() };
    let mut bench = requested(Variant::Sotw, LDS, &["a", "b"], rules.clone());
    bench.respond(0, sotw(LDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(LDS, &["b"], "2")), ["Named b set", "Named a kept"]);
    let mut bench = requested(Variant::Sotw, LDS, &["*"], rules.clone());
    bench.respond(0, sotw(LDS, &["a", "b"], "1"));
    assert_eq!(bench.respond(0, sotw(LDS, &["b"], "2")), ["whole {\"b\"} and all that was there"]);
    let mut bench = requested(Variant::Delta, EDS, &["a", "never"], rules);
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    let kept = ["Named a kept", "Named never kept"];
    assert_eq!(bench.respond(0, delta(EDS, &[], &["a", "never"], "2")), kept, "the view knows what there is to keep");
    bench.reopen();
    assert!(!bench.asks_again());
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    assert_eq!(bench.respond(0, delta(EDS, &[], &["a"], "2")), ["Named a gone"]);
}

#[test]
fn up_47_a_server_may_mean_by_not_allowed_that_it_is_to_be_dropped() {
    for (fail_on_data_errors, updates) in
        [(false, ["a error 7"].as_slice()), (true, ["Named a gone", "a error 7"].as_slice())]
    {
        let rules = ServerQuirks { fail_on_data_errors, ..ServerQuirks::default() };
        let mut bench = requested(Variant::Delta, EDS, &["a"], rules);
        bench.respond(0, delta(EDS, &["a"], &[], "1"));
        let Response::Delta(mut response) = delta(EDS, &[], &[], "2") else { unreachable!() };
        response.resource_errors = error(7);
        assert_eq!(bench.respond(0, Response::Delta(response)), updates);
    }
}

#[test]
fn up_38_a_name_requested_once_more_keeps_no_timer_of_the_first_time() {
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    bench.want(EDS, "a", true); // before the first response
    bench.later(WINDOW);
    bench.requests(0);
    bench.respond(0, delta(EDS, &["a"], &[], "1"));
    bench.want(EDS, "a", true); // and after it
    bench.later(WINDOW);
    bench.requests(0);
    bench.end(0);
    bench.open();
    assert_eq!(bench.requests(0), ["C +[a] -[] {} n"], "not stated, lest the server leaves it out");
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0], "it is held, and silence does not end it");
    bench.want(EDS, "a", false);
    bench.later(WINDOW);
    assert_eq!(bench.requests(0), ["C +[] -[a] {} n"]);
    assert_eq!(bench.later(Duration::from_secs(60)), [""; 0]);
    assert!(!bench.upstream.streams_mut()[0].is_wanted());
}

/// If its version was stated, the server would not send the resource, and no client has it any more.
#[test]
fn up_38_a_name_that_was_absent_and_cannot_be_read_now_exists() {
    let mut bench = requested(Variant::Delta, EDS, &["a", "b"], ServerQuirks::default());
    assert_eq!(bench.respond(0, delta(EDS, &[], &["a"], "1")), ["Named a gone"]);
    let unreadable = |name: &str| delta(EDS, &[name, &format!("{name}~2")], &[], "2");
    assert_eq!(bench.respond(0, unreadable("a")), ["interrupted a"]);
    assert_eq!(bench.respond(0, unreadable("b")), [""; 0], "nothing was said of it before");
}

#[test]
fn up_40_a_resource_that_came_again_without_a_ttl_is_stated_and_one_with_a_ttl_is_not() {
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let mut bench = requested(Variant::Delta, EDS, &["a"], ServerQuirks::default());
    for (version, ttl, stated) in [("1", ttl, ""), ("2", None, "a:2"), ("3", ttl, "")] {
        bench.respond(0, wrapped(EDS, "a", version, |resource| resource.ttl = ttl));
        assert_eq!(bench.reopen(), [format!("C +[a] -[] {{{stated}}} n")], "version {version}");
    }
}
