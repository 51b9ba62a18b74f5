//! When a server that is back counts as having sent its routing, with names that do not exist, types that are never answered, and answers in
//! parts.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::proto::Response;
use weir_core::proto::discovery::{DeltaDiscoveryResponse, DiscoveryResponse, Resource as Wrapper};
use weir_core::protocol::ladder::Rule;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{Plan, ServerPlan, StreamId};
use weir_core::protocol::upstream::{OnResourceTimeout, PollFailure, ServerQuirks, ServerStatus, TrialEnd};
use weir_core::xds::Authority;

use super::bench::*;
use super::support::{CDS, EDS, LDS, RDS, VHDS, route_configuration};

const SRDS: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
const THRIFT_ROUTES: &str = "type.googleapis.com/envoy.extensions.filters.network.thrift_proxy.v3.RouteConfiguration";
const SECOND: Duration = Duration::from_secs(1);
/// `limits.resource_timer`.
const TIMER: u64 = 15;

fn one(variant: Variant, quirks: ServerQuirks) -> Plan {
    Plan {
        servers: vec![ServerPlan::Streams { variant, quirks: quirks.into() }],
        ..plan(1, variant, Rule::Reachability)
    }
}

fn with_timeout(variant: Variant, on_resource_timeout: OnResourceTimeout) -> Plan {
    one(variant, ServerQuirks { on_resource_timeout, ..ServerQuirks::default() })
}

fn steady(bench: &Bench) -> bool {
    !bench.sources.unsteady().contains(&Authority::TopLevel)
}

fn say(bench: &mut Bench, variant: Variant, url: &str, resources: &[(&str, &str)]) {
    bench.say(0, if variant == Variant::Delta { delta(url, resources, &[]) } else { sotw(url, "1", resources) });
}

/// Returns for how many seconds from now on the authority is not steady, up to two minutes.
fn unsteady_for(bench: &mut Bench) -> u64 {
    (0..120)
        .find(|_| {
            steady(bench) || {
                later(bench, 1);
                false
            }
        })
        .unwrap_or(120)
}

fn later(bench: &mut Bench, seconds: u64) {
    for _ in 0..seconds {
        bench.later(SECOND);
        if bench.asked_again() == [0] {
            bench.open(0);
        }
        bench.requested(0);
    }
}

/// Returns each variant with each meaning of a silence.
fn cases() -> impl Iterator<Item = (Variant, OnResourceTimeout)> {
    use OnResourceTimeout::{Absent, TransientError, Unknown};
    let variants = [Variant::Delta, Variant::Sotw];
    variants.into_iter().flat_map(|variant| [Absent, TransientError, Unknown].map(|means| (variant, means)))
}

#[test]
fn ord_1_names_that_are_requested_later_and_never_answered_do_not_count() {
    for (variant, means) in cases() {
        let mut bench = Bench::with_servers(with_timeout(variant, means));
        [(CDS, "*"), (LDS, "*"), (RDS, "r")].iter().for_each(|(url, name)| bench.want(url, name, true));
        bench.open(0);
        say(&mut bench, variant, CDS, &[("a", "1")]);
        say(&mut bench, variant, LDS, &[("l", "1")]);
        assert!(!steady(&bench), "{variant:?} {means:?}: the route is still to come");
        say(&mut bench, variant, RDS, &[("r", "1")]);
        for number in 0..10 {
            bench.want(RDS, &format!("missing-{number}"), true);
            for _ in 0..8 {
                assert!(steady(&bench), "{variant:?} {means:?}, name {number}");
                later(&mut bench, 1);
            }
        }
    }
}

#[test]
fn ord_1_a_name_of_the_first_request_counts_until_its_answer_or_one_silence_of_a_server_that_is_alive() {
    for (variant, means) in cases() {
        for answers_calls in [true, false] {
            let mut bench = Bench::with_servers(with_timeout(variant, means));
            [(LDS, "*"), (RDS, "r"), (RDS, "missing")].iter().for_each(|(url, name)| bench.want(url, name, true));
            bench.mute.extend((!answers_calls).then_some(0));
            bench.open(0);
            say(&mut bench, variant, LDS, &[("l", "1")]);
            say(&mut bench, variant, RDS, &[("r", "1")]);
            // With `Unknown` the server is the hub, which is alive without a call.
            let lasts = if answers_calls || means == OnResourceTimeout::Unknown { TIMER } else { 120 };
            assert_eq!(unsteady_for(&mut bench), lasts, "{variant:?} {means:?} {answers_calls}");
            later(&mut bench, 60);
            assert_eq!(steady(&bench), lasts == TIMER, "and so it stays");
        }
        let mut bench = Bench::with_servers(with_timeout(variant, means));
        [(LDS, "*"), (RDS, "r"), (RDS, "late")].iter().for_each(|(url, name)| bench.want(url, name, true));
        bench.open(0);
        say(&mut bench, variant, LDS, &[("l", "1")]);
        say(&mut bench, variant, RDS, &[("r", "1")]);
        later(&mut bench, 3);
        say(&mut bench, variant, RDS, &[("late", "1")]);
        assert!(steady(&bench), "{variant:?} {means:?}");
    }
}

#[test]
fn a_type_that_nothing_is_known_of_is_not_requested_on_the_stream_of_others() {
    let quirks = ServerQuirks { tries_types_apart: true, ..ServerQuirks::default() };
    let mut bench = Bench::of_servers(one(Variant::Delta, quirks), ProtocolOptions::default());
    [(CDS, "*"), ("own.Debug", "x")].iter().for_each(|(url, name)| bench.want(url, name, true));
    assert_eq!(bench.open(0).len(), 1);
}

const ONLY: StreamId = StreamId { server: 0, at: 0 };

/// Lets the server end the stream with a status.
fn end_by(bench: &mut Bench, code: i32) {
    let status = ServerStatus { code, message: "no such type".into() };
    let (epoch, now) = (bench.up[&ONLY], bench.now);
    bench.sources.stream(ONLY).unwrap().trials().on_stream_ended(epoch, Some(&status), now);
    bench.end(0, true);
}

/// Opens the stream without the routes, and lets the server answer for everything that is requested.
fn open_without_routes(bench: &mut Bench, variant: Variant) {
    assert_eq!(bench.open(0).len(), 2, "the routes are off the stream");
    say(bench, variant, CDS, &[("a", "1")]);
    assert!(!steady(bench), "{variant:?}: the listeners are still to come");
    say(bench, variant, LDS, &[("l", "1")]);
}

/// Returns a view whose server ended the stream when the routes were new on it.
fn with_routes_off(variant: Variant) -> Bench {
    let mut bench =
        Bench::with_servers(one(variant, ServerQuirks { tries_types_apart: true, ..ServerQuirks::default() }));
    [(CDS, "*"), (LDS, "*"), (RDS, "r")].iter().for_each(|(url, name)| bench.want(url, name, true));
    assert_eq!(bench.open(0).len(), 3);
    say(&mut bench, variant, CDS, &[("a", "1")]);
    say(&mut bench, variant, LDS, &[("l", "1")]);
    end_by(&mut bench, UNKNOWN);
    open_without_routes(&mut bench, variant);
    bench
}

/// Begins the trial of the routes. If `end` is set, the trial ends with it.
fn try_routes(bench: &mut Bench, end: Option<TrialEnd>) {
    let now = bench.now;
    let mut trials = bench.sources.stream(ONLY).unwrap().trials();
    let trial = trials.take_due(now).expect("the routes are tried");
    trials.on_begun(trial.epoch, trial.serial, now);
    if let Some(end) = end {
        trials.on_end(trial.epoch, trial.serial, end, now);
    }
    bench.settle();
}

/// Requests the routes, which count from then on.
fn take_routes(bench: &mut Bench, variant: Variant) {
    let requests = bench.requested(0);
    assert!(requests.iter().any(|of| of.starts_with("+[r]") || of.starts_with("[r]")), "{requests:?}");
    bench.settle();
    assert!(!steady(bench), "{variant:?}: now it is asked");
    say(bench, variant, RDS, &[("r", "1")]);
    assert!(steady(bench), "{variant:?}");
}

const UNKNOWN: i32 = 2;

/// The type is tried soon. What the server has of it may refer to resources that are to be removed.
#[test]
fn ord_1_a_type_that_is_to_be_tried_counts_until_the_server_has_answered_or_refused_it() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench = with_routes_off(variant);
        assert!(!steady(&bench), "{variant:?}: it was not tried yet");
        try_routes(&mut bench, Some(TrialEnd::Lost));
        assert!(!steady(&bench), "{variant:?}: that has shown nothing");
        bench.later(2 * SECOND);
        try_routes(&mut bench, Some(TrialEnd::Taken(BTreeSet::from([0]))));
        take_routes(&mut bench, variant);

        let mut bench = with_routes_off(variant);
        let status = ServerStatus { code: UNKNOWN, message: "no such type".into() };
        try_routes(&mut bench, Some(TrialEnd::Refused(status)));
        assert!(steady(&bench), "{variant:?}: there will be none");
    }
}

/// The first stream ends as if the server refused the routes. That may only have been a bad moment, so the cached routes have to be
/// confirmed.
#[test]
fn ord_1_a_type_that_has_not_had_its_turn_counts() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench =
            Bench::with_servers(one(variant, ServerQuirks { tries_types_apart: true, ..ServerQuirks::default() }));
        [(CDS, "*"), (LDS, "*"), (RDS, "r")].iter().for_each(|(url, name)| bench.want(url, name, true));
        for _ in 0..2 {
            assert_eq!(bench.open(0).len(), 3);
            end_by(&mut bench, UNKNOWN);
        }
        assert_eq!(bench.open(0).len(), 1, "the clusters alone");
        say(&mut bench, variant, CDS, &[("a", "1")]);
        assert!(!steady(&bench), "{variant:?}");
        assert_eq!(unsteady_for(&mut bench), TIMER, "{variant:?}: one view after another tries its types");
    }
}

/// A server that takes one stream of a node may not be asked for a type for ten minutes.
#[test]
fn ord_1_a_type_that_a_server_of_one_stream_is_not_asked_for_yet_holds_nothing_up() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench =
            Bench::with_servers(one(variant, ServerQuirks { tries_types_apart: true, ..ServerQuirks::default() }));
        // Two types are new on the stream that ends, so that neither counts as refused.
        [(CDS, "*"), (LDS, "*"), (EDS, "e"), (RDS, "r")].iter().for_each(|(url, name)| bench.want(url, name, true));
        assert_eq!(bench.open(0).len(), 4);
        say(&mut bench, variant, CDS, &[("a", "1")]);
        say(&mut bench, variant, LDS, &[("l", "1")]);
        end_by(&mut bench, UNKNOWN);
        open_without_routes(&mut bench, variant);
        try_routes(&mut bench, None);
        end_by(&mut bench, UNKNOWN); // because of the second stream
        open_without_routes(&mut bench, variant);
        assert!(steady(&bench), "{variant:?}: the routes have not been put back");
        let is_asked = |of: &String| of.starts_with("+[r]") || of.starts_with("[r]");
        let seconds = (0..240).find(|_| {
            bench.later(SECOND);
            bench.requested(0).iter().any(is_asked)
        });
        assert!(seconds.is_some(), "{variant:?}: they are put back in the end");
        bench.settle();
        assert!(!steady(&bench), "{variant:?}: now the server is asked");
    }
}

#[test]
fn ord_1_a_type_that_is_never_answered_counts_for_the_resource_timer_after_the_last_new_routing() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let begin = |mute: bool| {
            let mut bench = Bench::with_servers(with_timeout(variant, OnResourceTimeout::Absent));
            [(LDS, "*"), (SRDS, "*")].iter().for_each(|(url, name)| bench.want(url, name, true));
            bench.mute.extend(mute.then_some(0));
            bench.open(0);
            say(&mut bench, variant, LDS, &[("l", "1")]);
            bench
        };
        assert_eq!(unsteady_for(&mut begin(false)), TIMER);
        assert_eq!(unsteady_for(&mut begin(true)), 120, "time alone proves nothing");

        let mut bench = begin(false);
        later(&mut bench, 10);
        say(&mut bench, variant, CDS, &[("c", "1")]);
        say(&mut bench, variant, LDS, &[("l", "1"), ("new", "1")]);
        assert_eq!(unsteady_for(&mut bench), TIMER, "a listener came that had not come before");
        bench.end(0, true);
        bench.open(0);
        assert!(!steady(&bench), "another opening");

        // A server that always has something new is not waited for without end.
        let mut bench = begin(false);
        let mut names: Vec<String> = Vec::new();
        let steady_after = (0..120).find(|second| {
            if second % 5 == 0 {
                names.push(format!("l-{second}"));
                let all: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
                say(&mut bench, variant, LDS, &all);
            }
            steady(&bench) || {
                later(&mut bench, 1);
                false
            }
        });
        assert_eq!(steady_after, Some(30 + TIMER));
    }
}

#[test]
fn ord_1_a_message_that_is_coming_in_is_no_silence() {
    let mut bench = Bench::with_servers(with_timeout(Variant::Delta, OnResourceTimeout::Absent));
    [(LDS, "*"), (RDS, "r")].iter().for_each(|(url, name)| bench.want(url, name, true));
    bench.open(0);
    say(&mut bench, Variant::Delta, LDS, &[("l", "1")]);
    let epoch = bench.up[&StreamId { server: 0, at: 0 }];
    bench.sources.streams_mut().for_each(|(_, stream)| stream.on_receiving(epoch));
    assert_eq!(unsteady_for(&mut bench), 120);
    say(&mut bench, Variant::Delta, RDS, &[("r", "1")]);
    assert!(steady(&bench));
}

#[test]
fn ord_1_names_that_follow_the_first_request_for_lack_of_room_count_and_names_without_any_room_do_not() {
    let [one_name, other] = ["a", "b"].map(|letter| letter.repeat(100));
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut bench =
            Bench::with_servers(one(variant, ServerQuirks { max_request_bytes: 250, ..ServerQuirks::default() }));
        [&one_name, &other].iter().for_each(|name| bench.want(RDS, name, true));
        let requests = bench.open(0);
        assert_eq!(requests.len(), if variant == Variant::Delta { 2 } else { 1 }, "{requests:?}");
        let asked_first = if requests[0].contains(&one_name) { &one_name } else { &other };
        say(&mut bench, variant, RDS, &[(asked_first, "1")]);
        assert_eq!(steady(&bench), variant == Variant::Sotw, "a SotW server never hears of the other");
        let rest = if asked_first == &one_name { &other } else { &one_name };
        if variant == Variant::Delta {
            say(&mut bench, variant, RDS, &[(rest, "1")]);
            assert!(steady(&bench));
        }
    }
}

#[test]
fn ord_1_on_another_opening_what_is_cached_counts_until_it_is_sent_or_confirmed() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let begin = || {
            let mut bench = Bench::with_servers(with_timeout(variant, OnResourceTimeout::Absent));
            [(LDS, "*"), (RDS, "r"), (RDS, "s")].iter().for_each(|(url, name)| bench.want(url, name, true));
            bench.open(0);
            say(&mut bench, variant, LDS, &[("l", "1")]);
            say(&mut bench, variant, RDS, &[("r", "1"), ("s", "1")]);
            assert!(steady(&bench));
            bench.end(0, true);
            later(&mut bench, 60);
            assert!(!steady(&bench), "it is away");
            bench.open(0);
            say(&mut bench, variant, LDS, &[("l", "2")]);
            assert!(!steady(&bench), "{variant:?}: no route yet");
            bench
        };
        let mut bench = begin();
        say(&mut bench, variant, RDS, &[("r", "2")]);
        // Delta: the other route was stated and has not changed. SotW: it may come in another response, and each reopening starts over.
        assert_eq!(unsteady_for(&mut bench), if variant == Variant::Delta { 0 } else { 3 * TIMER });
        let mut bench = begin();
        say(&mut bench, variant, RDS, &[("r", "2"), ("s", "2")]);
        assert!(steady(&bench));
        let reopenings = if variant == Variant::Delta { 0 } else { 2 };
        assert_eq!(unsteady_for(&mut begin()), (1 + reopenings) * TIMER, "{variant:?}: it has nothing new");
    }
}

#[test]
fn ord_1_what_other_servers_gave_counts_until_the_server_that_serves_has_sent_it() {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Reachability));
    bench.want(RDS, "r", true);
    bench.open(0);
    bench.say(0, delta(RDS, &[("r", "1")], &[]));
    bench.end(0, false);
    bench.want(RDS, "s", true);
    bench.open(1);
    bench.say(1, delta(RDS, &[("s", "1")], &[]));
    assert!(!steady(&bench), "its route may lead elsewhere");
    bench.say(1, delta(RDS, &[("r", "2")], &[]));
    assert!(steady(&bench));
}

#[test]
fn ord_1_a_polled_server_has_sent_its_routing_once_each_type_was_polled_and_while_polls_are_answered() {
    let quirks = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
    let mut bench = Bench::with_servers(one(Variant::Sotw, quirks));
    [(LDS, "*"), (RDS, "r"), (RDS, "missing")].iter().for_each(|(url, name)| bench.want(url, name, true));
    bench.open(0);
    say(&mut bench, Variant::Sotw, LDS, &[("l", "1")]);
    assert_eq!(unsteady_for(&mut bench), 120, "an answer for listeners says nothing of routes");
    say(&mut bench, Variant::Sotw, RDS, &[("r", "1")]);
    assert!(steady(&bench), "a poll is answered in full");
    bench.want(RDS, "new", true);
    later(&mut bench, 1);
    assert!(steady(&bench));
    let epoch = bench.up[&StreamId { server: 0, at: 0 }];
    let fails = |bench: &mut Bench, failure: PollFailure| {
        let now = bench.now;
        bench.sources.streams_mut().for_each(|(_, stream)| stream.on_poll_failed(epoch, RDS, failure, now));
        bench.settle();
    };
    fails(&mut bench, PollFailure::Waits);
    assert!(steady(&bench), "the next poll waits for an earlier one, which is for a name that was requested later");
    fails(&mut bench, PollFailure::Silent);
    assert_eq!(unsteady_for(&mut bench), 120, "it cannot be asked");
    say(&mut bench, Variant::Sotw, RDS, &[("r", "1")]);
    assert!(steady(&bench));
    let refused_for = (0..120).find(|_| {
        fails(&mut bench, PollFailure::Refused);
        steady(&bench) || {
            later(&mut bench, 1);
            false
        }
    });
    assert_eq!(refused_for, Some(TIMER), "it answers, and not with routes");
    fails(&mut bench, PollFailure::Silent);
    assert!(!steady(&bench));
}

/// Otherwise one client that requests such a type could hold up the routing and the removals of all others.
#[test]
fn i8_a_type_that_cannot_be_polled_counts_until_that_is_reported_on_each_opening() {
    let quirks = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
    let mut bench = Bench::with_servers(one(Variant::Sotw, quirks));
    bench.want(LDS, "*", true);
    bench.open(0);
    say(&mut bench, Variant::Sotw, LDS, &[("l", "1")]);
    assert!(steady(&bench));
    bench.want_as(TWO, THRIFT_ROUTES, "r", true);
    later(&mut bench, 1);
    let report = |bench: &mut Bench| {
        let (epoch, now) = (bench.up[&ONLY], bench.now);
        let stream = bench.sources.stream(ONLY).unwrap();
        stream.on_poll_failed(epoch, THRIFT_ROUTES, PollFailure::NoPath, now);
        bench.settle();
    };
    for opening in 1..=2 {
        assert!(!steady(&bench), "{opening}: it may be polled");
        report(&mut bench);
        assert!(steady(&bench), "{opening}");
        bench.want_as(TWO, THRIFT_ROUTES, &format!("s-{opening}"), true);
        later(&mut bench, 60);
        assert!(steady(&bench), "{opening}: it stays so, also for other names");
        bench.end(0, true);
        bench.open(0);
        say(&mut bench, Variant::Sotw, LDS, &[("l", "1")]);
    }
}

#[test]
fn ord_1_a_type_that_no_request_can_have_in_sotw_does_not_count() {
    let mut bench = Bench::with_servers(one(Variant::Sotw, ServerQuirks::default()));
    [(LDS, "*"), (VHDS, "r/host")].iter().for_each(|(url, name)| bench.want(url, name, true));
    bench.open(0);
    say(&mut bench, Variant::Sotw, LDS, &[("l", "1")]);
    assert!(steady(&bench));
}

/// Returns a route configuration whose route refers to a cluster.
fn route(name: &str, cluster: &str) -> Wrapper {
    Wrapper { version: "1".into(), ..route_configuration(name, &[cluster]) }
}

fn routes(variant: Variant, routes: &[Wrapper]) -> Response {
    let (type_url, nonce) = (RDS.to_owned(), "n".to_owned());
    match variant {
        Variant::Delta => Response::Delta(DeltaDiscoveryResponse {
            resources: routes.to_vec(),
            type_url,
            nonce,
            ..Default::default()
        }),
        Variant::Sotw => Response::Sotw(DiscoveryResponse {
            resources: routes.iter().filter_map(|route| route.resource.clone()).collect(),
            version_info: "1".into(),
            type_url,
            nonce,
            ..Default::default()
        }),
    }
}

/// Otherwise one client could hold up the routing and the removals of all others.
#[test]
fn i8_names_that_do_not_exist_delay_neither_routes_nor_removals_of_clusters() {
    for (variant, means) in cases().filter(|(_, means)| *means != OnResourceTimeout::Unknown) {
        let mut bench = Bench::of_servers(with_timeout(variant, means), ProtocolOptions::default());
        [(CDS, "*"), (LDS, "*"), (RDS, "r"), (RDS, "s")].iter().for_each(|(url, name)| bench.want(url, name, true));
        bench.open(0);
        say(&mut bench, variant, CDS, &[("a", "1"), ("b", "1")]);
        say(&mut bench, variant, LDS, &[("l", "1")]);
        bench.say(0, routes(variant, &[route("r", "a"), route("s", "b")]));
        later(&mut bench, 20);
        let (mut moved, mut removed) = (None, None);
        for second in 0..90 {
            if second % 8 == 0 {
                bench.want_as(TWO, RDS, &format!("missing-{second}"), true);
                bench.requested(0);
            }
            if second == 20 {
                // One route refers to a cluster that does not exist, and the cluster of the other is removed.
                bench.say(0, routes(variant, &[route("r", "missing"), route("s", "b")]));
                match variant {
                    Variant::Delta => bench.say(0, delta(CDS, &[], &["b"])),
                    Variant::Sotw => bench.say(0, sotw(CDS, "2", &[("a", "1")])),
                }
            }
            moved = moved.or((bench.leads("r") == ["missing"]).then_some(second));
            let gone = ["gone", "unknown"].contains(&bench.held(CDS, Set::All, "b").as_str());
            removed = removed.or(gone.then_some(second));
            later(&mut bench, 1);
        }
        // The time limit of the removal starts when the wait of the route ends.
        assert_eq!((moved, removed), (Some(21), Some(26)), "{variant:?} {means:?}");
    }
}
