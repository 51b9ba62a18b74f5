//! The question for the end of a `*` set, on the stream on which the set is requested.

use std::time::Duration;

use weir_core::proto::discovery::{DeltaDiscoveryRequest, DeltaDiscoveryResponse};
use weir_core::proto::{Request, Response};
use weir_core::protocol::session::Variant;
use weir_core::protocol::set_mark::SetMark;
use weir_core::protocol::upstream::{InitialSet, OnResourceTimeout, ServerQuirks};

use super::support::{CDS, END_OF_SET, LDS, Set};
use super::{Bench, delta, error, requested, sotw, wrapped};

const A_MOMENT: Duration = Duration::from_millis(500);
const QUIET: Duration = Duration::from_secs(5);
const TIMER: Duration = Duration::from_secs(15);

/// Returns a server that has sent these clusters, and whose set was quiet for a moment.
fn settled(names: &[&str], rules: ServerQuirks) -> Bench {
    let mut bench = requested(Variant::Delta, CDS, &["*"], rules);
    bench.respond(0, delta(CDS, names, &[], "1"));
    bench.requests(0);
    bench.later(A_MOMENT);
    bench
}

/// Makes a client need the end of the set.
fn need(bench: &mut Bench) {
    bench.claim_set(CDS);
    bench.later(Duration::ZERO);
}

/// Opens the stream again, and returns the first request for clusters.
fn reopened(bench: &mut Bench) -> DeltaDiscoveryRequest {
    bench.end(0);
    bench.open();
    let (now, stream) = (bench.now, &mut bench.upstream.streams_mut()[0]);
    let mut requests = Vec::new();
    while let Some(request) = stream.next_request(now) {
        requests.push(request);
    }
    stream.written(now);
    let of_clusters = requests.into_iter().find_map(|request| match request {
        Request::Delta(request) if request.type_url == CDS => Some(request),
        _ => None,
    });
    of_clusters.unwrap()
}

/// Returns the made-up name of a request, if it has one.
fn question(request: &DeltaDiscoveryRequest) -> Option<String> {
    let mut names = request.initial_resource_versions.iter().filter(|(name, _)| name.starts_with(END_OF_SET));
    let (name, version) = names.next()?;
    assert_eq!((version.as_str(), names.next()), ("weir-unknown", None));
    Some(name.clone())
}

/// Lets the server list the made-up name as removed, together with what it has to send.
fn answers(bench: &mut Bench, name: &str, resources: &[&str]) -> Vec<String> {
    bench.respond(0, delta(CDS, resources, &[name], "2"))
}

#[test]
fn xlat_12_a_reopening_asks_for_the_end_by_a_name_of_its_own_and_a_first_opening_does_not() {
    let mut bench = Bench::new(Variant::Delta);
    bench.want(CDS, "*", true);
    bench.want(LDS, "*", true);
    bench.open();
    bench.requests(0);
    assert_eq!(question(&reopened(&mut bench)), None, "the server knows nothing of the set yet");
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    let first = question(&reopened(&mut bench)).unwrap();
    let second = question(&reopened(&mut bench)).unwrap();
    assert_ne!(first, second);
}

#[test]
fn xlat_12_servers_that_mark_the_end_or_ignore_what_is_stated_are_not_asked() {
    let rules = ServerQuirks::default();
    let not_asked = [
        ServerQuirks { initial_set: InitialSet::Pieces, ..rules.clone() },
        ServerQuirks { initial_set: InitialSet::OneResponse, ..rules.clone() },
        ServerQuirks { supports_initial_resource_versions: false, ..rules.clone() },
        ServerQuirks { on_resource_timeout: OnResourceTimeout::Unknown, ..rules.clone() },
    ];
    for rules in not_asked {
        let mut bench = settled(&["a"], rules.clone());
        assert_eq!(question(&reopened(&mut bench)), None, "{rules:?}");
    }
    let mut bench = settled(&["a"], ServerQuirks { max_request_bytes: 100, ..rules });
    assert_eq!(question(&reopened(&mut bench)), None, "there is no room");
}

#[test]
fn xlat_12_the_set_has_ended_a_moment_after_the_answer_if_the_server_is_alive_then() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    let name = question(&reopened(&mut bench)).unwrap();
    assert_eq!(answers(&mut bench, &name, &[]), ["FirstResponse"], "no update has the made-up name");
    assert_eq!(bench.later(A_MOMENT - Duration::from_millis(1)), [""; 0]);
    bench.mute = true;
    assert_eq!(bench.later(Duration::from_millis(1)), ["Settled"]);
    assert_eq!(bench.later(TIMER), [""; 0]);
    bench.mute = false;
    bench.answers_call();
    assert_eq!(bench.later(Duration::ZERO), ["Complete"]);
    assert_eq!(bench.later(TIMER), [""; 0], "once");
    assert!(!bench.asks_again());
}

#[test]
fn xlat_12_a_client_that_needs_the_end_has_it_asked_after_a_short_quiet_and_no_other_has() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    bench.later(TIMER);
    assert!(!bench.asks_again(), "nobody needs it");
    let mut bench = settled(&["a"], ServerQuirks::default());
    need(&mut bench);
    assert!(bench.asks_again(), "half a second after the last that was new");
    let name = question(&reopened(&mut bench)).unwrap();
    answers(&mut bench, &name, &[]);
    assert!(bench.later(A_MOMENT).contains(&"Complete".to_owned()));
    bench.later(TIMER);
    assert!(!bench.asks_again() && !bench.view.sought().has_set(&bench.table.resolve(CDS)));
}

#[test]
fn xlat_12_a_set_that_has_ended_by_the_answer_does_not_end_again_by_a_second_silence() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    need(&mut bench);
    assert!(bench.asks_again());
    let name = question(&reopened(&mut bench)).unwrap();
    answers(&mut bench, &name, &[]);
    assert!(bench.later(A_MOMENT).contains(&"Complete".to_owned()));
    assert_eq!(bench.later(Duration::from_secs(121)), [""; 0]);
}

#[test]
fn xlat_12_a_set_that_still_comes_in_is_not_asked_for_again() {
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, delta(CDS, &["a"], &[], "1"));
    bench.later(A_MOMENT);
    bench.respond(0, delta(CDS, &["b"], &[], "2"));
    need(&mut bench);
    assert!(!bench.asks_again());
    bench.later(A_MOMENT);
    assert!(bench.asks_again());
}

/// The end is asked for the second time at once, and the third time at the pace of all second requests. After that, silence has to suffice.
#[test]
fn xlat_12_a_set_that_grows_is_asked_for_three_times_each_with_all_that_came_stated() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    need(&mut bench);
    let mut waited = Vec::new();
    for (time, new) in ["b", "c", "d", "e"].into_iter().enumerate() {
        let since = bench.now;
        while !bench.asks_again() && bench.now - since < 4 * TIMER {
            bench.later(A_MOMENT);
        }
        if bench.now - since >= 4 * TIMER {
            break;
        }
        waited.push((bench.now - since).as_secs());
        let request = reopened(&mut bench);
        assert_eq!(request.initial_resource_versions.len(), 2 + time, "all that came, and the question");
        answers(&mut bench, &question(&request).unwrap(), &[new]);
    }
    assert_eq!(waited, [0, 0, 5], "how long each took, in seconds");
    assert!(bench.view.sought().has_set(&bench.table.resolve(CDS)));
    let mut said = Vec::new();
    (0..30).for_each(|_| said.extend(bench.later(QUIET)));
    assert!(said.contains(&"Complete".to_owned()), "the second silence");
}

#[test]
fn xlat_12_what_comes_before_the_answer_or_within_a_moment_after_it_shows_that_the_set_has_more() {
    for gap in [Duration::ZERO, A_MOMENT - Duration::from_millis(1), A_MOMENT] {
        let mut bench = settled(&["a"], ServerQuirks::default());
        let name = question(&reopened(&mut bench)).unwrap();
        answers(&mut bench, &name, &[]);
        let mut said = bench.later(gap);
        said.extend(bench.respond(0, delta(CDS, &["b"], &[], "3")));
        said.extend(bench.later(TIMER));
        assert_eq!(said.contains(&"Complete".to_owned()), gap == A_MOMENT, "{gap:?}");
    }
}

#[test]
fn xlat_12_changes_of_stated_resources_do_not_put_the_end_in_doubt() {
    let mut bench = settled(&["a", "b"], ServerQuirks::default());
    let name = question(&reopened(&mut bench)).unwrap();
    bench.respond(0, delta(CDS, &["a~changed"], &["b", &name], "9"));
    assert!(bench.later(A_MOMENT).contains(&"Complete".to_owned()));
}

#[test]
fn xlat_12_a_server_that_sends_stated_versions_again_does_not_compare() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    need(&mut bench);
    let name = question(&reopened(&mut bench)).unwrap();
    bench.respond(0, delta(CDS, &["a"], &[&name], "1"));
    assert!(!bench.later(TIMER).contains(&"Complete".to_owned()));
}

#[test]
fn xlat_12_what_clients_claimed_has_to_be_answered_too() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    bench.claim(CDS, Set::All, "held");
    bench.later(QUIET);
    assert!(bench.asks_again());
    let request = reopened(&mut bench);
    assert_eq!(request.initial_resource_versions["held"], "weir-unknown");
    answers(&mut bench, &question(&request).unwrap(), &[]);
    assert!(!bench.later(QUIET).contains(&"Complete".to_owned()));
    bench.respond(0, delta(CDS, &[], &["held"], "3"));
    assert!(bench.later(Duration::ZERO).contains(&"Complete".to_owned()));
}

#[test]
fn up_40_a_resource_with_a_ttl_is_not_stated_and_has_to_come_before_the_end() {
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, wrapped(CDS, "a", "1", |resource| resource.ttl = ttl));
    bench.respond(0, wrapped(CDS, "b", "1", |_| ()));
    bench.later(A_MOMENT);
    let request = reopened(&mut bench);
    assert_eq!(request.initial_resource_versions.len(), 2, "b and the made-up name");
    answers(&mut bench, &question(&request).unwrap(), &[]);
    assert!(!bench.later(QUIET).contains(&"Complete".to_owned()));
    // The resource comes under its old version. That does not show that the server ignores stated versions, because this one was not
    // stated.
    bench.respond(0, wrapped(CDS, "a", "1", |resource| resource.ttl = ttl));
    assert!(bench.later(Duration::ZERO).contains(&"Complete".to_owned()));
}

#[test]
fn xlat_12_a_relay_whose_set_is_partial_has_not_answered() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    let name = question(&reopened(&mut bench)).unwrap();
    let response = DeltaDiscoveryResponse {
        system_version_info: SetMark::Partial.text().into(),
        type_url: CDS.into(),
        removed_resources: vec![name],
        nonce: "x".into(),
        ..Default::default()
    };
    bench.respond(0, Response::Delta(response));
    assert!(!bench.later(TIMER).contains(&"Complete".to_owned()));
}

#[test]
fn xlat_12_a_made_up_name_that_comes_as_a_resource_or_with_an_error_is_dropped_and_no_answer() {
    for as_resource in [true, false] {
        let mut bench = settled(&["a"], ServerQuirks::default());
        let name = question(&reopened(&mut bench)).unwrap();
        let said = if as_resource {
            bench.respond(0, delta(CDS, &[&name], &[], "7"))
        } else {
            let Response::Delta(mut response) = delta(CDS, &[], &[], "7") else { unreachable!() };
            response.resource_errors = error(5);
            response.resource_errors[0].resource_name.as_mut().unwrap().name = name.clone();
            bench.respond(0, Response::Delta(response))
        };
        assert_eq!(said, ["FirstResponse"]);
        answers(&mut bench, &name, &[]);
        assert!(!bench.later(TIMER).contains(&"Complete".to_owned()));
        let request = reopened(&mut bench);
        assert!(!request.initial_resource_versions.contains_key(&name), "what is made up is not kept");
    }
}

#[test]
fn xlat_12_a_late_answer_to_an_earlier_opening_and_a_second_answer_change_nothing() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    let earlier = question(&reopened(&mut bench)).unwrap();
    let name = question(&reopened(&mut bench)).unwrap();
    answers(&mut bench, &earlier, &[]);
    assert!(!bench.later(QUIET).contains(&"Complete".to_owned()));
    answers(&mut bench, &name, &[]);
    bench.later(Duration::from_millis(400));
    answers(&mut bench, &name, &[]);
    assert!(bench.later(Duration::from_millis(100)).contains(&"Complete".to_owned()));
}

#[test]
fn xlat_12_without_an_answer_in_time_the_set_is_requested_again_and_silence_decides() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    need(&mut bench);
    assert!(bench.asks_again());
    reopened(&mut bench);
    bench.respond(0, delta(CDS, &["a~changed"], &[], "2"));
    bench.later(TIMER - Duration::from_secs(1));
    assert!(!bench.asks_again());
    bench.later(Duration::from_secs(1));
    let mut said = Vec::new();
    (0..30).for_each(|_| said.extend(bench.later(QUIET)));
    assert!(bench.asks_again() || said.contains(&"Complete".to_owned()));
}

#[test]
fn up_25_while_an_entry_has_no_readable_name_the_set_has_no_end() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    let name = question(&reopened(&mut bench)).unwrap();
    let Response::Delta(mut response) = delta(CDS, &["x"], &[&name], "2") else { unreachable!() };
    response.resources[0].name.clear();
    response.resources[0].resource.as_mut().unwrap().value = vec![0xff].into();
    bench.respond(0, Response::Delta(response));
    assert!(!bench.later(TIMER).contains(&"Complete".to_owned()));
}

#[test]
fn xlat_12_a_set_that_is_subscribed_again_has_no_end_by_an_answer_to_the_subscription_before() {
    let mut bench = settled(&["a"], ServerQuirks::default());
    let name = question(&reopened(&mut bench)).unwrap();
    answers(&mut bench, &name, &[]);
    bench.want(CDS, "*", false);
    bench.want(CDS, "*", true);
    let said = bench.later(QUIET);
    assert!(!said.contains(&"Complete".to_owned()), "{said:?}");
}

/// A resource with a TTL may have expired at the server.
#[test]
fn up_40_a_question_whose_answer_shows_no_end_is_given_up_and_the_set_is_requested_again() {
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, wrapped(CDS, "a", "1", |resource| resource.ttl = ttl));
    bench.later(A_MOMENT);
    let name = question(&reopened(&mut bench)).unwrap();
    answers(&mut bench, &name, &[]);
    need(&mut bench);
    bench.later(TIMER - A_MOMENT);
    assert!(!bench.asks_again());
    bench.later(A_MOMENT);
    assert!(bench.asks_again());
}

/// The server has `b` alone in the end, and lists all else as removed that is stated to it.
#[test]
fn up_40_what_had_a_ttl_before_sotw_is_not_waited_for_in_delta_after_it() {
    let ttl = Some(prost_types::Duration { seconds: 60, nanos: 0 });
    for between in [&["b"][..], &["a", "b"]] {
        let mut bench = requested(Variant::Delta, CDS, &["*"], ServerQuirks::default());
        bench.respond(0, wrapped(CDS, "a", "1", |resource| resource.ttl = ttl));
        bench.respond(0, wrapped(CDS, "b", "1", |_| ()));
        bench.later(A_MOMENT);
        bench.end(0);
        bench.upstream.streams_mut()[0].set_variant(Variant::Sotw);
        bench.open();
        bench.requests(0);
        bench.respond(0, sotw(CDS, between, "2"));
        bench.requests(0);
        bench.upstream.streams_mut()[0].set_variant(Variant::Delta);
        let request = reopened(&mut bench);
        assert!(question(&request).is_some());
        let stated = request.initial_resource_versions.keys().map(String::as_str);
        let removed: Vec<_> = stated.filter(|name| *name != "b").collect();
        bench.respond(0, delta(CDS, &["b"], &removed, "3"));
        assert!(bench.later(A_MOMENT).contains(&"Complete".to_owned()), "{between:?}");
    }
}
