//! Requests are no longer than the server takes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use prost::Message;
use weir_core::proto::Request;
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::support::{CDS, EDS, END_OF_SET, LDS, Set};
use super::{Bench, WINDOW, delta, requested, sotw, text_of};

/// How many bytes the node of these tests takes in a request.
const NODE_BYTES: usize = 6;
/// Longer than the resource timer, and shorter than the second silence.
const LONG: Duration = Duration::from_secs(60);

fn limited(max_request_bytes: usize) -> ServerQuirks {
    ServerQuirks { max_request_bytes, ..ServerQuirks::default() }
}

fn length(request: &Request) -> usize {
    match request {
        Request::Sotw(request) => request.encoded_len(),
        Request::Delta(request) => request.encoded_len(),
    }
}

/// Returns the requests of the stream that are due now.
fn requests(bench: &mut Bench) -> Vec<Request> {
    bench.raw_requests(0)
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("name-{number:03}")).collect()
}

fn as_strs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// The server's side of one delta stream: it keeps what it was sent, and checks it.
#[derive(Default)]
struct Server {
    opened: bool,
    subscribed: BTreeSet<String>,
    /// Names that were stated under a version of the server, or that it sent.
    held: BTreeSet<String>,
    stated: usize,
}

impl Server {
    fn read(&mut self, request: Request, limit: usize) {
        assert!(length(&request) <= limit, "{} of {limit}: {}", length(&request), text_of(&request));
        let Request::Delta(request) = request else { panic!("a SotW request") };
        let has_change = !request.resource_names_subscribe.is_empty() || !request.resource_names_unsubscribe.is_empty();
        assert_eq!(has_change, request.response_nonce.is_empty(), "{}", request.type_url);
        assert!(!self.opened || request.initial_resource_versions.is_empty(), "versions in a later request");
        let first = !std::mem::replace(&mut self.opened, true);
        assert!(!first || !request.resource_names_subscribe.is_empty(), "it would mean everything");
        for name in request.resource_names_unsubscribe {
            assert!(self.subscribed.remove(&name), "{name} was not subscribed");
            self.held.remove(&name);
        }
        for name in request.resource_names_subscribe {
            assert!(self.subscribed.insert(name.clone()), "{name} is subscribed");
        }
        for (name, version) in request.initial_resource_versions {
            assert!(self.subscribed.contains(&name), "{name} is stated and not subscribed");
            self.stated += 1;
            if version != "weir-unknown" {
                self.held.insert(name);
            }
        }
    }

    /// Sends up to `count` names that it has not sent.
    fn due(&mut self, count: usize) -> Vec<String> {
        let due: Vec<_> = self.subscribed.difference(&self.held).take(count).cloned().collect();
        self.held.extend(due.iter().cloned());
        due
    }
}

#[derive(Debug, Clone)]
enum Step {
    Want(usize),
    Drop(usize),
    Send,
    Reply(usize),
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0..NAMES).prop_map(Step::Want),
        6 => (0..NAMES).prop_map(Step::Drop),
        2 => Just(Step::Send),
        2 => (1..NAMES).prop_map(Step::Reply),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..300)
}

const NAMES: usize = 120;

fn random_names() -> impl Strategy<Value = Vec<String>> {
    let texts = proptest::collection::vec("[a-z]{0,80}", NAMES);
    texts.prop_map(|texts| texts.into_iter().enumerate().map(|(at, text)| format!("{text}{at}")).collect())
}

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 500, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn up_14_the_server_is_subscribed_to_what_is_wanted_once_and_no_request_is_too_long(
        names in random_names(),
        steps in steps(),
        limit in 260_usize..2000,
    ) {
        let mut bench = Bench::with(Variant::Delta, limited(limit));
        bench.want(EDS, &names[0], true);
        bench.open();
        let (mut server, mut wanted, mut replies) = (Server::default(), BTreeSet::from([names[0].clone()]), 0);
        for step in steps.into_iter().chain([Step::Send]) {
            match step {
                Step::Want(at) => {
                    if wanted.insert(names[at].clone()) {
                        bench.want(EDS, &names[at], true);
                    }
                }
                Step::Drop(at) => {
                    if wanted.remove(&names[at]) {
                        bench.want(EDS, &names[at], false);
                    }
                }
                Step::Send => {
                    bench.later(WINDOW);
                    requests(&mut bench).into_iter().for_each(|request| server.read(request, limit));
                    prop_assert_eq!(&server.subscribed, &wanted);
                }
                Step::Reply(count) => {
                    replies += 1;
                    let due = server.due(count);
                    bench.respond(0, delta(EDS, &as_strs(&due), &[], &format!("version-{replies}")));
                    requests(&mut bench).into_iter().for_each(|request| server.read(request, limit));
                }
                Step::Reopen => {
                    bench.end(0);
                    bench.open();
                    server = Server::default();
                }
            }
        }
    }

    #[test]
    fn up_4_a_list_has_what_fits_and_what_was_listed_stays(
        names in random_names(),
        steps in steps(),
        limit in 260_usize..2000,
    ) {
        let mut bench = Bench::with(Variant::Sotw, limited(limit));
        bench.want(EDS, &names[0], true);
        bench.open();
        let (mut listed, mut wanted) = (BTreeSet::new(), BTreeSet::from([names[0].clone()]));
        for step in steps.into_iter().chain([Step::Send]) {
            match step {
                Step::Want(at) => {
                    if wanted.insert(names[at].clone()) {
                        bench.want(EDS, &names[at], true);
                    }
                }
                Step::Drop(at) => {
                    if wanted.remove(&names[at]) {
                        bench.want(EDS, &names[at], false);
                        listed.remove(&names[at]);
                    }
                }
                Step::Send => drop(bench.later(WINDOW)),
                Step::Reply(count) => {
                    let some: Vec<_> = listed.iter().take(count).map(String::as_str).collect();
                    bench.respond(0, sotw(EDS, &some, "1"));
                }
                Step::Reopen => {
                    bench.end(0);
                    bench.open();
                }
            }
            let requests = requests(&mut bench);
            let bytes = requests.last().map_or(limit, length);
            for request in requests {
                prop_assert!(length(&request) <= limit, "{} of {limit}", length(&request));
                let Request::Sotw(request) = request else { panic!("a delta request") };
                let list: BTreeSet<_> = request.resource_names.iter().cloned().collect();
                prop_assert_eq!(list.len(), request.resource_names.len());
                prop_assert!(list.is_superset(&listed), "{:?} is gone", listed.difference(&list).next());
                prop_assert!(list.is_subset(&wanted));
                listed = list;
            }
            let has_room = |name: &&String| bytes + NODE_BYTES + name.len() + 2 <= limit - limit / 8;
            prop_assert_eq!(wanted.difference(&listed).find(has_room), None);
        }
    }
}

#[test]
fn up_14_a_first_request_states_what_fits_and_the_rest_is_unconfirmed_until_it_is_sent_again() {
    let names = numbered(100);
    let mut bench = requested(Variant::Delta, CDS, &["*"], limited(1000));
    bench.respond(0, delta(CDS, &as_strs(&names), &[], "7"));
    bench.requests(0);
    bench.end(0);
    bench.open();
    let first = requests(&mut bench);
    let [Request::Delta(first)] = first.as_slice() else { panic!("{first:?}") };
    assert!(first.encoded_len() <= 1000);
    let mut stated: BTreeMap<_, _> = first.initial_resource_versions.clone();
    stated.retain(|name, _| !name.starts_with(END_OF_SET));
    assert!(stated.len() > 20 && stated.values().all(|version| version == "7"), "{stated:?}");
    let others: Vec<_> = names.iter().map(String::as_str).filter(|name| !stated.contains_key(*name)).collect();
    // The server has removed the last one in the meantime. It does not report that, because it does not know that the relay has cached this name.
    let (gone, sent) = others.split_last().unwrap();
    let updates = bench.respond(0, delta(CDS, sent, &[], "7"));
    assert_eq!(updates.len(), sent.len() + 1, "each of them, and the progress of the set");
    assert_eq!(bench.later(LONG), ["Settled"], "silence removes nothing");
    assert!(bench.asks_again(), "and leads to a question");
    bench.end(0);
    bench.open();
    let first = requests(&mut bench);
    let [Request::Delta(first)] = first.as_slice() else { panic!("{first:?}") };
    assert!(first.encoded_len() <= 1000);
    assert_eq!(first.initial_resource_versions[*gone], "weir-unknown", "before all others");
    assert_eq!(bench.respond(0, delta(CDS, &[], &[gone], "8"))[0], format!("Wildcard {gone} gone"));
}

#[test]
fn up_14_what_is_left_out_of_the_second_request_too_is_absent_after_the_second_silence() {
    let names = numbered(100);
    let mut bench = requested(Variant::Delta, CDS, &["*"], limited(1000));
    bench.respond(0, delta(CDS, &as_strs(&names), &[], "7"));
    bench.requests(0);
    bench.end(0);
    bench.open();
    let count = requests(&mut bench).iter().flat_map(stated_in).filter(|name| !name.starts_with(END_OF_SET)).count();
    // The server has lost everything that was not stated.
    bench.respond(0, delta(CDS, &["new"], &[], "8"));
    assert_eq!(bench.later(LONG), ["Settled"]);
    assert!(bench.asks_again());
    bench.end(0);
    bench.open();
    let first = requests(&mut bench);
    let [Request::Delta(first)] = first.as_slice() else { panic!("{first:?}") };
    assert!(first.initial_resource_versions.values().all(|version| version == "weir-unknown"), "{first:?}");
    let stated = first.initial_resource_versions.keys().map(String::as_str);
    let removed: Vec<_> = stated.filter(|name| !name.starts_with(END_OF_SET)).collect();
    let has: Vec<_> = names.iter().map(String::as_str).take(count).chain(["new"]).collect();
    assert!(count + removed.len() < names.len(), "{removed:?}: not all of those that it did not mention fit");
    bench.respond(0, delta(CDS, &has, &removed, "9"));
    let updates = bench.later(Duration::from_secs(119));
    assert!(!updates.iter().any(|update| update.ends_with("gone")), "{updates:?}");
    let updates = bench.later(Duration::from_secs(2));
    let gone = updates.iter().filter(|update| update.ends_with("gone")).count();
    assert_eq!(gone + removed.len() + count, names.len(), "{updates:?}");
}

#[test]
fn up_14_a_wildcard_with_an_explicit_name_is_in_the_first_request() {
    let names = numbered(60);
    let mut bench = requested(Variant::Delta, EDS, &["*"], limited(300));
    bench.respond(0, delta(EDS, &as_strs(&names), &[], "7"));
    bench.requests(0);
    bench.end(0);
    bench.open();
    let first = requests(&mut bench);
    let [Request::Delta(first)] = first.as_slice() else { panic!("{first:?}") };
    assert_eq!(first.resource_names_subscribe, ["*"]);
    assert!(first.encoded_len() <= 300 && !first.initial_resource_versions.is_empty());
}

#[test]
fn up_14_names_without_a_stated_version_are_judged_like_any_that_was_not_mentioned() {
    let names = numbered(20);
    let mut bench = requested(Variant::Delta, EDS, &as_strs(&names), limited(400));
    bench.respond(0, delta(EDS, &as_strs(&names), &[], "7"));
    bench.requests(0);
    bench.end(0);
    bench.open();
    let sent = requests(&mut bench);
    assert!(sent.len() > 1);
    let stated: Vec<_> = sent.iter().flat_map(stated_in).collect();
    let others: Vec<_> = names.iter().filter(|name| !stated.contains(name)).collect();
    assert!(!stated.is_empty() && !others.is_empty());
    assert_eq!(bench.later(LONG), [""; 0], "silence removes nothing that is cached");
    assert!(bench.asks_again(), "it was not told of the others, so its silence confirms nothing");
    bench.end(0);
    bench.open();
    let sent = requests(&mut bench);
    let Request::Delta(first) = &sent[0] else { panic!("{sent:?}") };
    assert!(others.iter().all(|name| first.initial_resource_versions[*name] == "weir-unknown"), "{first:?}");
}

fn stated_in(request: &Request) -> Vec<String> {
    let Request::Delta(request) = request else { panic!("a SotW request") };
    request.initial_resource_versions.keys().cloned().collect()
}

#[test]
fn a_name_that_no_request_has_room_for_is_an_error_and_nobody_elses_matter() {
    let long = "x".repeat(400);
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::with(variant, limited(400));
        bench.want(LDS, &long, true);
        bench.open();
        assert_eq!(bench.requests(0), [""; 0], "{variant:?}: an empty list would mean everything");
        assert_eq!(bench.later(Duration::ZERO), [format!("{long} error 8")], "{variant:?}");
        bench.want(LDS, "a", true);
        bench.want(LDS, "z", true);
        assert_eq!(bench.requests(0).len(), 1, "{variant:?}: the others are requested");
        let counts: Vec<_> =
            bench.upstream.streams_mut()[0].take_left_out().into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [1], "{variant:?}");
        let whole = if variant == Variant::Sotw { sotw(LDS, &["a"], "1") } else { delta(LDS, &["a"], &["z"], "1") };
        let updates = bench.respond(0, whole);
        assert_eq!(updates, ["Named a set", "Named z gone"], "{variant:?}: nothing of the long one");
        bench.claim(LDS, Set::Names, &long);
        let updates = bench.later(LONG);
        assert!(!updates.iter().any(|update| update.contains(&long)), "{variant:?}: {updates:?}");
        assert!(!bench.asks_again(), "{variant:?}");
    }
}

#[test]
fn up_4_the_newest_names_have_no_room_until_older_ones_go() {
    let names = numbered(60);
    let mut bench = requested(Variant::Sotw, EDS, &as_strs(&names[20..50]), limited(500));
    let listed = |bench: &mut Bench| {
        let sent = requests(bench);
        let [Request::Sotw(request)] = sent.as_slice() else { panic!("{sent:?}") };
        request.resource_names.clone()
    };
    bench.want(EDS, &names[0], true);
    bench.later(WINDOW);
    let before = listed(&mut bench);
    assert!(before.contains(&names[0]), "{before:?}");
    (1..20).for_each(|at| bench.want(EDS, &names[at], true));
    bench.later(WINDOW);
    let after = listed(&mut bench);
    assert!(before.iter().all(|name| after.contains(name)) && !after.contains(&names[19]), "{after:?}");
    let errors = bench.later(Duration::ZERO);
    assert_eq!(errors.len(), 50 - after.len(), "{errors:?}");
    assert!(errors.contains(&format!("{} error 8", names[19])), "{errors:?}");
    assert_eq!(bench.later(Duration::ZERO), [""; 0], "once");
    (20..50).for_each(|at| bench.want(EDS, &names[at], false));
    bench.later(WINDOW);
    let all = listed(&mut bench);
    assert_eq!(all, names[..20], "there is room again");
}

/// A server responds to each request, and each response is applied in one step, for which other clients of the view wait.
#[test]
fn many_names_that_are_added_are_requested_in_parts_and_those_of_a_first_request_are_not() {
    const AT_ONCE: usize = 256 << 10;
    let of = |prefix: &str| (0..20_000).map(|number| format!("{prefix}-endpoints-of-a-cluster-{number:05}")).collect();
    let [earlier, later]: [Vec<String>; 2] = ["earlier", "later"].map(of);
    let mut bench = Bench::new(Variant::Delta);
    earlier.iter().for_each(|name| bench.want(EDS, name, true));
    bench.open();
    let first = requests(&mut bench);
    assert!(first.len() == 1 && length(&first[0]) > 2 * AT_ONCE, "{:?}", first.iter().map(length).collect::<Vec<_>>());
    later.iter().for_each(|name| bench.want(EDS, name, true));
    bench.later(WINDOW);
    let parts = requests(&mut bench);
    let lengths: Vec<_> = parts.iter().map(length).collect();
    assert!(lengths.iter().all(|length| *length < AT_ONCE + 100) && (3..5).contains(&lengths.len()), "{lengths:?}");
    let names = parts.iter().flat_map(|part| match part {
        Request::Delta(request) => &request.resource_names_subscribe,
        Request::Sotw(request) => &request.resource_names,
    });
    assert_eq!(names.collect::<BTreeSet<_>>(), later.iter().collect(), "each of them, at once");
}

#[test]
fn a_name_that_is_longer_than_a_part_is_requested_by_itself() {
    let mut bench = requested(Variant::Delta, EDS, &["first"], ServerQuirks::default());
    let long = format!("b{}", "x".repeat(300 << 10));
    for name in ["a", &long, "c"] {
        bench.want(EDS, name, true);
    }
    bench.later(WINDOW);
    let lengths = requests(&mut bench).into_iter().map(|part| match part {
        Request::Delta(request) => request.resource_names_subscribe.iter().map(String::len).collect::<Vec<_>>(),
        Request::Sotw(_) => panic!("a SotW request"),
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [vec![1], vec![long.len()], vec![1]]);
    assert!(requests(&mut bench).is_empty());
}
