//! Servers that come back or end in the middle of a set: what is known then, and what is not.

use std::time::Duration;

use weir_core::proto::discovery::{DeltaDiscoveryResponse, ResourceError, ResourceName, Status};
use weir_core::proto::{Request, Response};
use weir_core::protocol::ladder::{LadderState, Rule};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{AuthorityPlan, Plan, ServerPlan, StreamId};
use weir_core::protocol::upstream::{OnResourceTimeout, ServerQuirks};

use super::bench::*;
use super::support::{CDS, EDS, END_OF_SET, LDS};

const FOLDER: &str = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/f";

/// Returns a plan with two servers for everything, and for an authority `x`.
fn two(variant: Variant) -> Plan {
    let mut two = Plan { holds_missing: false, ..plan(2, variant, Rule::Reachability) };
    two.authorities.insert("x".into(), AuthorityPlan { servers: vec![0, 1], rule: Rule::Reachability });
    two
}

/// Returns a view whose first of two servers is unreachable, so that everything is requested from the second.
fn fallen_back(wanted: &[(&str, &str)]) -> Bench {
    let mut bench = Bench::with_servers(two(Variant::Delta));
    wanted.iter().for_each(|(url, name)| bench.want(url, name, true));
    bench.end(0, false);
    bench.open(1);
    bench
}

/// Returns what is stated to a server on a new stream, with the versions.
fn stated(bench: &mut Bench, server: usize) -> Vec<String> {
    let mut stated = Vec::new();
    let now = bench.now;
    for (id, stream) in bench.sources.streams_mut().filter(|(id, _)| id.server == server) {
        let epoch = stream.opened();
        bench.up.insert(id, epoch);
        while let Some(Request::Delta(request)) = stream.next_request(now) {
            stated.extend(request.initial_resource_versions.iter().map(|(name, version)| format!("{name}:{version}")));
        }
        stream.written(now);
    }
    stated.retain(|name| !name.starts_with(END_OF_SET));
    stated.sort();
    stated
}

fn with_error(response: Response, name: &str, code: i32) -> Response {
    let Response::Delta(response) = response else { unreachable!() };
    let resource_name = Some(ResourceName { name: name.into(), ..Default::default() });
    let error_detail = Some(Status { code, ..Default::default() });
    let resource_errors = vec![ResourceError { resource_name, error_detail }];
    Response::Delta(DeltaDiscoveryResponse { resource_errors, ..response })
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn xlat_12_and_row_12_a_set_that_a_server_was_left_in_the_middle_of_has_not_ended() {
    let [glob, a, b] = ["*", "a", "b"].map(|id| format!("{FOLDER}/{id}"));
    let mut bench = fallen_back(&[(LDS, "*"), (CDS, "*"), (EDS, &glob)]);
    bench.say(1, delta(LDS, &[("a", "1")], &[]));
    bench.say(1, delta(EDS, &[(&a, "1")], &[]));
    bench.open(0);
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench.later(LONG);
    for (url, set) in [(LDS, Set::All), (EDS, Set::Glob(&glob))] {
        assert_eq!(bench.extent(url, set), Extent::First, "{url}: there may have been more");
    }
    assert_eq!(bench.extent(CDS, Set::All), Extent::Settled, "which the other has begun with");
    assert_eq!(bench.asked_again(), [0], "for what the other gave and it has not said");
    bench.open(0);
    bench.say(0, delta(LDS, &[("a", "1"), ("b", "1")], &[]));
    bench.say(0, delta(EDS, &[(&a, "1"), (&b, "1")], &[]));
    bench.later(LONG);
    assert_eq!((bench.extent(LDS, Set::All), bench.extent(EDS, Set::Glob(&glob))), (Extent::Settled, Extent::Settled));
}

#[test]
fn xlat_12_a_set_that_is_gone_on_with_in_the_answer_that_leaves_the_other_settles_from_there() {
    let mut bench = fallen_back(&[(LDS, "*")]);
    bench.say(1, delta(LDS, &[("a", "1")], &[]));
    bench.open(0);
    bench.later(Duration::from_millis(400));
    bench.say(0, delta(LDS, &[("a", "1")], &[]));
    bench.later(Duration::from_millis(400));
    assert_eq!(bench.extent(LDS, Set::All), Extent::First, "its time runs from the new server's first piece");
    bench.later(Duration::from_millis(100));
    assert_eq!(bench.extent(LDS, Set::All), Extent::Settled);
}

#[test]
fn xlat_12_an_empty_set_said_before_a_servers_word_counts_is_no_less_said() {
    let mut bench = fallen_back(&[(LDS, "*"), (CDS, "*")]);
    bench.say(1, delta(CDS, &[("c", "1")], &[]));
    bench.open(0);
    bench.say(0, delta(LDS, &[], &[]));
    assert_eq!(bench.standing(), LadderState::Active(1), "nothing of use");
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    bench.later(LONG);
    assert_eq!(bench.extent(LDS, Set::All), Extent::Complete, "it has no more to say of that");
}

#[test]
fn up_25_and_xlat_16_what_a_server_that_returns_has_and_cannot_be_read_is_not_gone() {
    let [glob, c, d, e] = ["*", "c", "d", "e"].map(|id| format!("{FOLDER}/{id}"));
    for (url, wanted, set, [c, d, e], gone) in [
        (CDS, "*", Set::All, ["c", "d", "e"], "gone"),
        (EDS, &*glob, Set::Names, [&*c, &*d, &*e], "unknown"), // a member leaves no trace
    ] {
        for answer in
            [delta(url, &[(d, "1"), (c, "2"), (c, "3")], &[]), with_error(delta(url, &[(d, "1")], &[]), c, 14)]
        {
            let mut bench = fallen_back(&[(url, wanted)]);
            bench.say(1, delta(url, &[(c, "1"), (d, "1"), (e, "1")], &[]));
            bench.open(0);
            bench.say(0, answer.clone());
            assert!(bench.sources.ladders().all(|ladder| ladder.state == LadderState::Active(0)));
            bench.later(LONG);
            assert_eq!((bench.held(url, set, e).as_str(), bench.asked_again()), ("1", vec![0]));
            assert_eq!(stated(&mut bench, 0), [format!("{d}:1"), format!("{e}:weir-unknown")], "and not {c}");
            bench.say(0, answer);
            bench.later(2 * LONG);
            assert_eq!(bench.held(url, set, c), "1", "{url}: it is there, and its value not known");
            assert_eq!(bench.held(url, set, e), gone, "{url}: which only the other had");
        }
    }
}

#[test]
fn up_25_what_a_later_full_set_lacks_is_not_there_though_it_could_not_be_read_before() {
    let mut bench = Bench::with_servers(two(Variant::Sotw));
    bench.want(CDS, "*", true);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, sotw(CDS, "1", &[("x", "1"), ("y", "1")]));
    bench.open(0);
    bench.say(0, sotw(CDS, "1", &[("x", "2"), ("x", "3")]));
    assert_eq!(bench.standing(), LadderState::Active(0), "a full answer, be it of nothing that can be read (FB-9)");
    let held = |bench: &Bench| ["a", "x", "y"].map(|name| bench.held(CDS, Set::All, name));
    assert_eq!(held(&bench), ["unknown", "1", "gone"], "x keeps its last good value, and y is not there");
    bench.say(0, sotw(CDS, "2", &[("a", "2")]));
    bench.later(LONG);
    assert_eq!(held(&bench), ["2", "gone", "gone"]);
}

#[test]
fn up_25_and_i10_with_more_rejected_than_is_remembered_nothing_goes_by_silence() {
    let limit = ProtocolOptions::default().upstream.rejected_names;
    let names: Vec<_> = (0..=limit).map(|number| format!("b{number:06}")).chain(["c".to_owned()]).collect();
    let bad = names.iter().flat_map(|name| [(name.as_str(), "2"), (name.as_str(), "3")]);
    let mut bench = fallen_back(&[(CDS, "*")]);
    bench.say(1, delta(CDS, &[("c", "1"), ("d", "1")], &[]));
    bench.open(0);
    bench.say(0, delta(CDS, &bad.chain([("d", "1")]).collect::<Vec<_>>(), &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench.later(LONG);
    assert_eq!(bench.asked_again(), [0; 0]);
    assert_eq!(bench.held(CDS, Set::All, "c"), "1", "it was one of those");
}

#[test]
fn up_16_a_server_that_returns_and_never_stops_talking_is_believed_all_the_same() {
    let mut bench = fallen_back(&[(CDS, "*")]);
    bench.say(1, delta(CDS, &[("a", "1"), ("x", "1")], &[]));
    bench.open(0);
    let (mut second, mut asked_at) = (0, None);
    while bench.held(CDS, Set::All, "x") == "1" && second < 1000 {
        bench.say(0, delta(CDS, &[("a", if second % 2 == 0 { "2" } else { "3" })], &[]));
        bench.later(Duration::from_secs(1));
        second += 1;
        if bench.asked_again() == [0] {
            asked_at.get_or_insert(second);
            bench.open(0);
        }
    }
    assert_eq!((asked_at, second, bench.held(CDS, Set::All, "x").as_str()), (Some(5), 5 + 120, "gone"));
}

#[test]
fn xlat_12_and_up_14_a_set_that_was_cut_off_is_said_again_and_so_comes_to_its_end() {
    let [glob, a, by_name] = ["*", "a", "deep/o"].map(|id| format!("{FOLDER}/{id}"));
    let mut bench = Bench::with_servers(two(Variant::Delta));
    [(CDS, "*"), (LDS, "*"), (EDS, &glob), (EDS, &by_name)].iter().for_each(|(url, name)| bench.want(url, name, true));
    bench.open(0);
    bench.say(0, delta(LDS, &[("l", "1")], &[]));
    bench.later(LONG);
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    bench.say(0, delta(EDS, &[(&a, "1"), (&by_name, "1")], &[]));
    bench.end(0, true);
    assert_eq!(bench.extent(CDS, Set::All), Extent::First);
    let again = |versions: [&str; 4]| {
        let [c, l, a_version, named] = versions;
        let mut all = [format!("c:{c}"), format!("l:{l}"), format!("{a}:{a_version}"), format!("{by_name}:{named}")];
        all.sort();
        all
    };
    assert_eq!(
        stated(&mut bench, 0),
        again(["weir-unknown", "1", "weir-unknown", "1"]),
        "what has ended, and what is no set, is stated as it is"
    );
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    bench.say(0, delta(EDS, &[(&a, "1")], &[]));
    bench.later(LONG);
    assert_eq!((bench.extent(CDS, Set::All), bench.extent(EDS, Set::Glob(&glob))), (Extent::Settled, Extent::Settled));
    bench.end(0, true);
    assert_eq!(stated(&mut bench, 0), again(["1", "1", "1", "1"]));
}

#[test]
fn coll_23_a_glob_that_was_rejected_before_the_server_was_active_is_rejected_when_it_is() {
    let glob = format!("{FOLDER}/*");
    let mut bench = Bench::with_servers(two(Variant::Sotw));
    bench.want(EDS, &glob, true);
    bench.want(EDS, &format!("{FOLDER}/n"), true);
    bench.open(0);
    bench.later(LONG);
    assert_eq!(bench.error_of(EDS, &glob), None, "it has not answered yet");
    bench.say(0, sotw(EDS, "1", &[]));
    assert_eq!(bench.error_of(EDS, &glob), Some(12));
}

#[test]
fn sotw_52_and_up_46_an_error_from_before_the_server_was_active_is_sent_when_it_is() {
    let mut bench = fallen_back(&[(EDS, "a"), (EDS, "b"), (EDS, "c"), (EDS, "d")]);
    bench.say(1, delta(EDS, &[("a", "1")], &[]));
    bench.open(0);
    for (name, code) in [("b", 14), ("c", 5), ("d", 14)] {
        bench.say(0, with_error(delta(EDS, &[], &[]), name, code));
    }
    bench.say(0, delta(EDS, &[], &["d"]));
    let troubles = |bench: &Bench| ["b", "c", "d"].map(|name| bench.error_of(EDS, name));
    assert_eq!((bench.standing(), troubles(&bench)), (LadderState::Active(1), [None; 3]));
    bench.say(0, delta(EDS, &[("a", "2")], &[]));
    assert_eq!(troubles(&bench), [Some(14), Some(5), None]);
    let held = ["b", "c", "d"].map(|name| bench.held(EDS, Set::Names, name));
    assert_eq!(held, ["unknown", "gone", "gone"], "the last word of each");
}

#[test]
fn sotw_52_an_error_that_an_outage_an_answer_or_a_lack_of_interest_has_ended_is_not_sent_again() {
    for ended_by in ["outage", "answer", "no interest"] {
        let mut bench = fallen_back(&[(EDS, "a"), (EDS, "b")]);
        bench.say(1, delta(EDS, &[("a", "1")], &[]));
        bench.open(0);
        bench.say(0, with_error(delta(EDS, &[], &[]), "b", 14));
        let mut answer = vec![("a", "2")];
        match ended_by {
            "outage" => {
                bench.end(0, true);
                bench.open(0);
            }
            "answer" => answer.push(("b", "2")),
            _ => {
                bench.want(EDS, "b", false);
                bench.later(LONG);
                bench.want(EDS, "b", true);
                bench.requested(0);
            }
        }
        bench.say(0, delta(EDS, &answer, &[]));
        assert_eq!((bench.standing(), bench.error_of(EDS, "b")), (LadderState::Active(0), None), "{ended_by}");
    }
}

#[test]
fn up_37_a_timer_that_ran_out_before_the_server_was_active_counts_when_it_is() {
    let rules = ServerQuirks { on_resource_timeout: OnResourceTimeout::TransientError, ..ServerQuirks::default() };
    let mut two = two(Variant::Delta);
    two.servers[0] = ServerPlan::Streams { variant: Variant::Delta, quirks: rules.into() };
    let mut bench = Bench::with_servers(two);
    bench.want(EDS, "a", true);
    bench.want(EDS, "b", true);
    bench.open(0);
    bench.later(LONG);
    assert_eq!(bench.error_of(EDS, "b"), None);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    assert_eq!(["a", "b"].map(|name| bench.error_of(EDS, name)), [None, Some(14)]);
}

#[test]
fn up_24_a_name_that_is_wanted_beside_its_collection_goes_by_a_full_set_that_lacks_it() {
    let folder = "xdstp://x/envoy.config.cluster.v3.Cluster/f";
    let [glob, name] = ["*", "c"].map(|id| format!("{folder}/{id}"));
    let mut two = two(Variant::Sotw);
    two.top.servers = vec![1];
    let mut bench = Bench::with_servers(two);
    ["old", &glob, &name].iter().for_each(|name| bench.want(CDS, name, true));
    bench.open(0);
    bench.open(1);
    bench.say(0, sotw(CDS, "1", &[(&name, "1")]));
    bench.say(1, sotw(CDS, "1", &[("old", "1")]));
    bench.end(0, false);
    bench.requested(1);
    bench.say(1, sotw(CDS, "2", &[("old", "2")]));
    assert_eq!(bench.held(CDS, Set::Names, &name), "1", "the answer may be older than the question");
    bench.later(Duration::from_secs(16));
    assert_eq!((bench.held(CDS, Set::Names, &name).as_str(), bench.asked_again()), ("1", vec![1]));
    bench.open(1);
    bench.say(1, sotw(CDS, "2", &[("old", "2")]));
    assert_eq!(bench.held(CDS, Set::Names, &name), "gone", "in SotW nothing is ever said of the collection");
}

#[test]
fn fb_28_the_silence_of_the_first_of_several_servers_says_nothing_before_it_has_answered() {
    for (servers, silent) in [(1, "gone"), (2, "unknown")] {
        let mut bench = Bench::with_servers(plan(servers, Variant::Delta, Rule::Uncached));
        bench.want(EDS, "a", true);
        bench.want(EDS, "b", true);
        bench.open(0);
        bench.later(LONG);
        assert_eq!(bench.standing(), LadderState::Trying(0));
        assert_eq!(bench.held(EDS, Set::Names, "a"), silent, "{servers}");
        bench.say(0, delta(EDS, &[("b", "1")], &[]));
        assert_eq!(["a", "b"].map(|name| bench.held(EDS, Set::Names, name)), ["gone", "1"], "{servers}");
    }
}

#[test]
fn fb_28_and_fb_6_what_a_server_that_never_answered_was_silent_about_is_asked_of_the_next() {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Uncached));
    bench.want(EDS, "a", true);
    bench.open(0);
    bench.later(LONG);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Trying(1), "it is not cached");
    bench.open(1);
    bench.say(1, delta(EDS, &[("a", "9")], &[]));
    assert_eq!(bench.held(EDS, Set::Names, "a"), "9");
}

#[test]
fn fb_20_what_was_found_of_a_server_is_forgotten_when_the_server_is_closed() {
    let mut bench = Bench::with_servers(plan(3, Variant::Delta, Rule::Reachability));
    bench.want(EDS, "a", true);
    bench.end(0, false);
    bench.end(1, false);
    assert_eq!(bench.standing(), LadderState::Trying(2));
    bench.open(2);
    bench.say(2, delta(EDS, &[("a", "3")], &[]));
    bench.open(0);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0), "the others are closed");
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Trying(1), "whether it is still unreachable is not known");
}

/// Otherwise such a server would never become active again, because it has no resource to send.
#[test]
fn fb_9_and_xlat_12_a_server_that_comes_back_with_removals_alone_is_active_once_its_set_has_ended() {
    let mut bench = served(Rule::default());
    bench.want(CDS, "*", true);
    bench.requested(0);
    bench.say(0, delta(CDS, &[("c", "1")], &[]));
    bench.later(Duration::from_secs(1));
    bench.end(0, false);
    bench.want(EDS, "missing", true);
    bench.open(1);
    bench.say(1, delta(CDS, &[("c", "2")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(1));
    for (_, stream) in bench.sources.streams_mut().filter(|(id, _)| id.server == 0) {
        bench.up.insert(StreamId { server: 0, at: 0 }, stream.opened());
    }
    let mut question = None;
    let now = bench.now;
    for (_, stream) in bench.sources.streams_mut().filter(|(id, _)| id.server == 0) {
        while let Some(Request::Delta(request)) = stream.next_request(now) {
            let mut stated = request.initial_resource_versions.into_keys();
            question = question.or(stated.find(|name| name.starts_with(END_OF_SET)));
        }
        stream.written(now);
    }
    bench.say(0, delta(CDS, &[], &["c", &question.unwrap()]));
    assert_eq!(bench.standing(), LadderState::Active(1), "a removal alone may be the first piece");
    bench.later(Duration::from_millis(500));
    assert_eq!(bench.standing(), LadderState::Active(0));
    assert_eq!(bench.held(CDS, Set::All, "c"), "2", "a switch deletes nothing");
}

/// A stream confirms what was stated when it was opened, whatever happens to another stream of the server later.
#[test]
fn i3_a_stream_that_fails_puts_nothing_in_doubt_that_another_has_stated() {
    let mut bench = Bench::with_servers(plan(1, Variant::Delta, Rule::Reachability));
    bench.want(CDS, "*", true);
    bench.want(CDS, "named", true);
    bench.open(0);
    bench.say(0, delta(CDS, &[("a", "1"), ("b", "1")], &[]));
    bench.later(Duration::from_secs(1));
    bench.end(0, false);
    assert!(bench.open(0).contains(&"+[] -[] {a:weir-unknown,b:1}".to_owned()));
    bench.say(0, delta(CDS, &[("a", "1")], &[]));
    bench.end(0, false);
    bench.open(0);
    let other = StreamId { server: 0, at: 1 };
    let epoch = bench.up.remove(&other);
    bench.end_one(other, epoch, false);
    let Response::Delta(all) = delta(CDS, &[("a", "1")], &[]) else { unreachable!() };
    bench.say(0, Response::Delta(DeltaDiscoveryResponse { system_version_info: "weir.set=complete".into(), ..all }));
    assert_eq!(["a", "b"].map(|name| bench.held(CDS, Set::All, name)), ["1", "1"]);
}
