//! What counts as cached, so that there is no fallback (FB-4 to FB-6), and which updates make a name known.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use weir_core::protocol::sources::ServerPlan;
use weir_core::protocol::upstream::{InitialSet, ServerQuirks, ServerStatus, TrialEnd};

const GLOB: &str = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/*";
const MEMBER: &str = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/a";

/// Returns a delta response that reports a transient error for a name.
fn trouble(url: &str, name: &str) -> Response {
    let Response::Delta(mut response) = delta(url, &[], &[]) else { unreachable!() };
    let resource_name = Some(ResourceName { name: name.into(), ..Default::default() });
    let error_detail = Some(Status { code: 14, ..Default::default() });
    response.resource_errors = vec![ResourceError { resource_name, error_detail }];
    Response::Delta(response)
}

/// Returns a plan with two servers for everything, also for the authority `x`.
fn plan_of_both(rule: Rule) -> Plan {
    let mut both = plan(2, Variant::Delta, rule);
    both.authorities.insert("x".into(), AuthorityPlan { servers: vec![0, 1], rule });
    both
}

fn both(rule: Rule) -> Bench {
    Bench::with_servers(plan_of_both(rule))
}

#[test]
fn xlat_15_and_delta_30_a_fallback_server_says_that_there_is_none_of_a_name_in_error() {
    for troubled in [0, 1] {
        let mut bench = served(Rule::Reachability);
        bench.want(EDS, "x", true);
        if troubled == 0 {
            bench.say(0, trouble(EDS, "x"));
        }
        bench.end(0, false);
        bench.open(1);
        bench.say(1, delta(EDS, &[("a", "9")], &[]));
        if troubled == 1 {
            bench.say(1, trouble(EDS, "x"));
        }
        bench.say(1, delta(EDS, &[], &["x"]));
        assert_eq!(bench.held(EDS, Set::Names, "x"), "gone", "server {troubled} had trouble with it");
    }
}

const OWN: &str = "type.googleapis.com/own.Debug";

/// Returns a plan with two servers that may refuse types.
fn that_may_refuse() -> Plan {
    let quirks = Arc::new(ServerQuirks { tries_types_apart: true, ..ServerQuirks::default() });
    let server = || ServerPlan::Streams { variant: Variant::Delta, quirks: quirks.clone() };
    Plan { servers: vec![server(), server()], ..plan(2, Variant::Delta, Rule::Uncached) }
}

/// Tries the type at the first server.
fn try_own(bench: &mut Bench, end: TrialEnd) {
    let (id, now) = (StreamId { server: 0, at: 0 }, bench.now);
    let mut trials = bench.sources.stream(id).unwrap().trials();
    let trial = trials.take_due(now).expect("it is tried");
    trials.on_begun(trial.epoch, trial.serial, now);
    trials.on_end(trial.epoch, trial.serial, end, now);
    bench.settle();
}

fn refused() -> TrialEnd {
    TrialEnd::Refused(ServerStatus { code: 2, message: "no such type".into() })
}

/// FB-5: an error of a name is no reason to leave a server, and neither is a type that the server refuses. A type that was not requested from it
/// is a reason, because another server may have it.
#[test]
fn fb_4_a_type_that_the_server_refuses_is_no_reason_to_leave_it() {
    for (name, is_refused, is_later) in [("*", true, false), ("x", true, true), ("*", false, false), ("x", false, true)]
    {
        let mut bench = Bench::with_servers(that_may_refuse());
        bench.want(CDS, "*", true);
        bench.want(OWN, name, true);
        assert_eq!(bench.open(0).len(), 1, "the other type is tried apart");
        bench.say(0, delta(CDS, &[("a", "1")], &[]));
        if is_refused {
            try_own(&mut bench, refused());
        }
        if is_later {
            bench.want(OWN, name, false);
            [40, 1].into_iter().for_each(|seconds| bench.later(Duration::from_secs(seconds)));
            bench.end(0, false);
            assert_eq!(bench.standing(), LadderState::Cached(0), "{name}");
            bench.want(OWN, name, true); // by another client, during the outage
        } else {
            bench.end(0, false);
        }
        let expected = if is_refused { LadderState::Cached(0) } else { LadderState::Trying(1) };
        assert_eq!(bench.standing(), expected, "{name}");
    }
}

/// The server may be away when the configuration is read again. Then the next view cannot find out by itself that the server refuses the type.
#[test]
fn fb_4_a_type_that_the_server_has_refused_before_a_reload_is_no_reason_to_leave_it_until_it_takes_it() {
    let want = |bench: &mut Bench| [(EDS, "a"), (OWN, "x")].iter().for_each(|(url, name)| bench.want(url, name, true));
    let mut before = Bench::with_servers(that_may_refuse());
    want(&mut before);
    before.open(0);
    before.say(0, delta(EDS, &[("a", "1")], &[]));
    try_own(&mut before, refused());
    let history = before.sources.history(before.now);
    for knows in [false, true] {
        let mut bench = before.restarted(that_may_refuse());
        if knows {
            bench.sources.go_on(history.clone());
        }
        want(&mut bench);
        bench.end(0, false);
        assert_eq!(bench.standing(), if knows { LadderState::Cached(0) } else { LadderState::Trying(1) });
        if knows {
            assert_eq!(bench.sources.history(bench.now).refused, history.refused, "for another reload");
            bench.open(0);
            bench.say(0, delta(EDS, &[("a", "1")], &[]));
            try_own(&mut bench, TrialEnd::Taken([0].into()));
            bench.end(0, false);
            assert_eq!(bench.standing(), LadderState::Trying(1), "it is a type like any other now");
        }
    }
}

#[test]
fn coll_15_a_fallback_server_says_that_a_collection_in_error_is_empty() {
    let mut bench = both(Rule::Reachability);
    bench.want(EDS, GLOB, true);
    bench.open(0);
    bench.say(0, trouble(EDS, GLOB));
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[], &[GLOB]));
    assert_eq!(bench.held(EDS, Set::Names, GLOB), "gone");
}

#[test]
fn xlat_15_and_up_40_what_a_fallback_server_lets_live_on_is_its_own() {
    let mut bench = served(Rule::Reachability);
    bench.want(CDS, "*", true);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, mortal(CDS, "x", 60));
    bench.later(Duration::from_secs(60));
    assert_eq!(bench.held(CDS, Set::All, "x"), "gone");
    bench.say(1, heartbeat(CDS, "x", 60)); // the heartbeat comes a little late
    assert_eq!(bench.held(CDS, Set::All, "x"), "1");
    bench.say(1, delta(CDS, &[], &["x"]));
    assert_eq!(bench.held(CDS, Set::All, "x"), "gone", "it was nobody else's");
}

#[test]
fn fb_6_what_nobody_watches_any_more_is_no_reason_to_go_on() {
    for name in ["left", "*", GLOB] {
        let mut bench = both(Rule::Uncached);
        let kept = if name == GLOB { MEMBER } else { "a" };
        bench.want(EDS, kept, true);
        bench.open(0);
        bench.say(0, delta(EDS, &[(kept, "1")], &[]));
        bench.want_as(TWO, EDS, name, true);
        bench.want_as(TWO, EDS, name, false);
        bench.end(0, false);
        let standings = |bench: &Bench| bench.sources.ladders().map(|ladder| ladder.state).collect::<Vec<_>>();
        assert!(!standings(&bench).contains(&LadderState::Trying(1)), "{name} only lingers");
        bench.later(Duration::from_secs(10));
        bench.end(0, false);
        assert!(!standings(&bench).contains(&LadderState::Trying(1)), "{name} lingers still");
        bench.want(EDS, name, true);
        assert!(standings(&bench).contains(&LadderState::Trying(1)), "{name} is watched again");
    }
}

#[test]
fn fb_6_what_is_about_to_be_watched_is_a_reason_to_go_on() {
    let mut bench = served(Rule::Uncached);
    bench.want(CDS, "c", true);
    bench.say(0, delta(CDS, &[("c", "1")], &[])); // its endpoints are requested before any client requests them
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Trying(1));
}

#[test]
fn fb_21_names_that_a_session_leaves_count_for_it_no_more() {
    let mut bench = served(Rule::Uncached);
    let names: Vec<_> =
        (0..=ProtocolOptions::default().view.absent_names_per_stream).map(|number| format!("none-{number}")).collect();
    names.iter().for_each(|name| bench.want_as(TWO, EDS, name, true));
    bench.say(0, delta(EDS, &[], &names.iter().map(String::as_str).collect::<Vec<_>>()));
    bench.end(0, false);
    bench.want_as(TWO, EDS, "first", true);
    assert_eq!(bench.standing(), LadderState::Cached(0), "one too many");
    bench.want_as(TWO, EDS, &names[0], false);
    bench.want_as(TWO, EDS, "second", true);
    assert_eq!(bench.standing(), LadderState::Trying(1));
    bench.open(1);
    let there: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.say(1, delta(EDS, &there, &[]));
    bench.want_as(TWO, EDS, &names[0], true);
    bench.open(0);
    bench.say(0, delta(EDS, &[("first", "1"), ("second", "1")], &[]));
    bench.end(0, false);
    bench.want_as(TWO, EDS, "third", true);
    assert_eq!(bench.standing(), LadderState::Trying(1), "they are there now");
}

#[test]
fn fb_4_and_up_40_what_outlives_its_time_in_an_outage_is_asked_of_the_next_server() {
    for (url, wanted, name, set) in
        [(EDS, "m", "m", Set::Names), (CDS, "*", "m", Set::All), (EDS, GLOB, MEMBER, Set::Names)]
    {
        let mut bench = both(Rule::Uncached);
        bench.want(url, wanted, true);
        bench.open(0);
        bench.say(0, mortal(url, name, 60));
        bench.later(Duration::from_secs(20));
        bench.end(0, false);
        let standing = |bench: &Bench| bench.sources.ladders().next().unwrap().state;
        assert_eq!(standing(&bench), LadderState::Cached(0), "{wanted}");
        bench.later(Duration::from_secs(40));
        assert_ne!(bench.held(url, set, name), "1", "{wanted}: its life is over");
        assert_eq!(standing(&bench), LadderState::Trying(1), "{wanted}");
        assert_eq!(bench.open(1).len(), 1);
        bench.say(1, delta(url, &[(name, "9")], &[]));
        assert_eq!((bench.held(url, set, name).as_str(), standing(&bench)), ("9", LadderState::Active(1)), "{wanted}");
    }
}

#[test]
fn fb_4_and_xlat_15_what_has_outlived_its_time_is_absent_once_that_is_said() {
    for (url, wanted, name) in [(EDS, "m", "m"), (CDS, "*", "m"), (EDS, GLOB, MEMBER)] {
        for says in [true, false] {
            let mut bench = both(Rule::Uncached);
            bench.want(url, wanted, true);
            bench.open(0);
            bench.say(0, mortal(url, name, 60));
            bench.later(Duration::from_secs(60));
            bench.requested(0);
            if says {
                bench.say(0, delta(url, &[], &[if wanted == GLOB { GLOB } else { name }]));
            }
            bench.end(0, false);
            let expected = if says { LadderState::Cached(0) } else { LadderState::Trying(1) };
            assert_eq!(bench.sources.ladders().next().unwrap().state, expected, "{wanted}");
        }
    }
}

#[test]
fn fb_21_what_has_outlived_its_time_makes_nobody_one_who_guesses() {
    let mut bench = served(Rule::Uncached);
    for number in 0..=ProtocolOptions::default().view.absent_names_per_stream {
        let name = format!("mortal-{number}");
        bench.want_as(TWO, EDS, &name, true);
        bench.say(0, mortal(EDS, &name, 60));
    }
    bench.later(Duration::from_secs(60));
    bench.want(EDS, "a", true);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Trying(1));
}

#[test]
fn up_40_a_set_is_not_requested_again_when_something_in_it_outlives_its_time() {
    let mut bench = served(Rule::Uncached);
    bench.want(LDS, "*", true);
    bench.requested(0);
    bench.say(0, mortal(LDS, "m", 60));
    bench.requested(0);
    bench.later(Duration::from_secs(60));
    assert_eq!((bench.held(LDS, Set::All, "m").as_str(), bench.requested(0)), ("gone", vec![]));
}

#[test]
fn fb_6_a_set_that_clients_without_state_are_given_is_cached_and_one_that_was_cut_off_before_is_not() {
    for (url, wanted, name) in [(LDS, "*", "c"), (EDS, GLOB, MEMBER)] {
        let bad = format!("{name}-bad");
        let with_bad = [(name, "1"), (bad.as_str(), "1"), (bad.as_str(), "2")];
        for (sent, pieces, millis) in [
            (&with_bad[..1], true, 499),
            (&with_bad[..1], true, 500),
            (&with_bad[..1], false, 0),
            (&with_bad, false, 0), // the bad entry counts as present, and affects only its own name (FB-5)
        ] {
            let mut both = plan_of_both(Rule::Uncached);
            let initial_set = if pieces { InitialSet::Pieces } else { InitialSet::Auto };
            both.servers.iter_mut().for_each(|server| {
                let quirks = ServerQuirks { initial_set, ..ServerQuirks::default() }.into();
                *server = ServerPlan::Streams { variant: Variant::Delta, quirks };
            });
            let mut bench = Bench::with_servers(both);
            bench.want(url, wanted, true);
            bench.open(0);
            bench.say(0, delta(url, sent, &[]));
            bench.later(Duration::from_millis(millis));
            bench.end(0, true);
            bench.end(0, false);
            let standing = |bench: &Bench| bench.sources.ladders().next().unwrap().state;
            if millis != 499 {
                assert_eq!(standing(&bench), LadderState::Cached(0), "{wanted}, pieces {pieces}");
                continue;
            }
            assert_eq!(standing(&bench), LadderState::Trying(1), "{wanted}: there may have been more");
            bench.open(1);
            bench.say(1, delta(url, &[(name, "9")], &[]));
            bench.later(Duration::from_millis(500));
            bench.end(1, false);
            bench.open(0);
            bench.say(0, delta(url, &[(name, "1")], &[]));
            bench.end(0, false);
            assert_eq!(standing(&bench), LadderState::Cached(0), "{wanted}: what has ended once stays ended");
        }
    }
}

/// Returns a response with a resource that has a TTL.
fn mortal(url: &str, name: &str, seconds: i64) -> Response {
    let Response::Delta(mut response) = delta(url, &[(name, "1")], &[]) else { unreachable!() };
    response.resources.iter_mut().for_each(|of| of.ttl = Some(prost_types::Duration { seconds, nanos: 0 }));
    Response::Delta(response)
}

fn heartbeat(url: &str, name: &str, seconds: i64) -> Response {
    let Response::Delta(mut response) = mortal(url, name, seconds) else { unreachable!() };
    response.resources.iter_mut().for_each(|of| of.resource = None);
    Response::Delta(response)
}
