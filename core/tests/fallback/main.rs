//! Several servers behind one view: fallback and return, on the pure model of sources and view.

mod bench;
mod cached;
mod costs;
mod cut;
mod evidence;
mod kept;
mod lacks;
mod outage;
mod returns;
mod room;
mod steady;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use bench::*;
use support::{CDS, EDS, LDS};
use weir_core::proto::discovery::{ResourceError, ResourceName, Status};
use weir_core::proto::{Request, Response};
use weir_core::protocol::ladder::{LadderState, Rule};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::sources::{AuthorityPlan, Plan, ServerPlan, StreamEnd, StreamId};
use weir_core::protocol::upstream::{PollFailure, ReceivedResponse, ResponseMessage, ServerQuirks};
use weir_core::xds::Authority;

#[test]
fn fb_3_only_what_cannot_be_reached_is_left() {
    let mut bench = served(Rule::Uncached);
    bench.want(EDS, "uncached", true);
    bench.later(Duration::from_secs(60)); // the server sends nothing, and the timer ends
    bench.say(0, delta(EDS, &[("a", "2"), ("a", "3")], &[])); // an invalid response
    bench.end(0, true); // the stream ends after a response
    assert_eq!(bench.standing(), LadderState::Active(0));
    assert_eq!(bench.sources.streams_mut().filter(|(id, _)| id.server == 1).count(), 0);
    bench.want(EDS, "other", true);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Trying(1));
}

#[test]
fn fb_6_fb_14_and_up_12_with_all_cached_the_cache_serves_and_a_new_name_moves_on() {
    let mut bench = served(Rule::Uncached);
    bench.end(0, false);
    assert_eq!((bench.standing(), bench.held(EDS, Set::Names, "a").as_str()), (LadderState::Cached(0), "1"));
    bench.want(EDS, "b", true);
    assert_eq!(bench.standing(), LadderState::Trying(1));
    assert_eq!(bench.open(1), ["+[a,b] -[] {}"], "FB-7: everything, and UP-12, FB-14: no version of another server");
    bench.say(1, delta(EDS, &[("b", "9")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(1));
    assert_eq!((bench.held(EDS, Set::Names, "a"), bench.held(EDS, Set::Names, "b")), ("1".into(), "9".into()));
}

#[test]
fn ord_1_it_is_known_whether_the_server_that_serves_has_said_what_routing_it_has() {
    let unsteady = |bench: &Bench| bench.sources.unsteady().contains(&Authority::TopLevel);
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Reachability));
    bench.want(CDS, "*", true);
    bench.want(LDS, "*", true);
    assert!(unsteady(&bench), "nobody serves");
    bench.open(0);
    bench.say(0, delta(CDS, &[("a", "1")], &[]));
    assert!(unsteady(&bench), "it has said its clusters alone");
    bench.say(0, delta(LDS, &[("l", "1")], &[]));
    assert!(!unsteady(&bench));
    bench.end(0, true);
    assert!(unsteady(&bench), "it is away");
    bench.open(0);
    assert!(unsteady(&bench), "it is back, and may say something else");
    bench.say(0, delta(LDS, &[], &[]));
    assert!(!unsteady(&bench));
    bench.end(0, true);
    bench.open(0);
    bench.say(0, delta(CDS, &[], &[]));
    assert!(unsteady(&bench));
    bench.later(Duration::from_secs(30));
    assert!(!unsteady(&bench), "it had the time, and nothing new to say");
}

#[test]
fn fb_12_a_name_added_during_fallback_is_asked_of_the_first_server_too() {
    let mut bench = served(Rule::Reachability);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[("a", "9")], &[]));
    bench.want(EDS, "n", true);
    assert_eq!(bench.requested(1), ["+[] -[] {}"], "an ACK");
    bench.later(Duration::from_millis(20));
    assert_eq!(bench.requested(1), ["+[n] -[] {}"]);
    assert_eq!(bench.open(0), ["+[a,n] -[] {a:weir-unknown}"], "back, to say again what it has");
    bench.say(0, delta(EDS, &[("n", "1")], &[]));
    assert_eq!((bench.standing(), bench.held(EDS, Set::Names, "n").as_str()), (LadderState::Active(0), "1"));
    assert_eq!(bench.sources.streams_mut().filter(|(id, _)| id.server == 1).count(), 0, "the second is closed");
}

#[test]
fn fb_13_and_fb_24_a_move_deletes_nothing_and_equal_content_is_no_event() {
    let mut bench = served(Rule::Reachability);
    let mark = bench.view.snapshot().revision;
    bench.end(0, false);
    bench.open(1);
    assert_eq!(bench.held(EDS, Set::Names, "a"), "1");
    bench.say(1, delta(EDS, &[("a", "1")], &[]));
    bench.open(0);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    assert_eq!(bench.view.snapshot().revision, mark, "nothing for anybody to hear of");
}

#[test]
fn fb_9_a_higher_server_returns_with_something_of_use() {
    let mut bench = served(Rule::Reachability);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[("a", "9")], &[]));
    bench.open(0);
    bench.say(0, delta(EDS, &[], &[]));
    assert_eq!(bench.standing(), LadderState::Active(1));
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    assert_eq!((bench.standing(), bench.held(EDS, Set::Names, "a").as_str()), (LadderState::Active(0), "1"));
}

#[test]
fn fb_13_row_13_a_late_word_of_a_closed_server_is_not_taken() {
    let mut bench = served(Rule::Reachability);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[("a", "9")], &[]));
    let late = bench.up[&StreamId { server: 1, at: 0 }];
    bench.open(0);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    let id = StreamId { server: 1, at: 0 };
    let response = delta(EDS, &[("a", "8")], &[]);
    let response = ReceivedResponse::read(ResponseMessage::Decoded(response), &bench.table, &bench.store).unwrap();
    let batches = bench.sources.on_received(id, late, response, &bench.view, bench.now);
    assert!(batches.is_empty());
}

#[test]
fn fb_15_the_silence_of_a_fallback_server_about_what_is_cached_says_nothing() {
    let mut bench = served(Rule::Reachability);
    bench.want(EDS, "b", true);
    bench.end(0, false);
    bench.open(1);
    bench.later(Duration::from_secs(60));
    assert_eq!(bench.held(EDS, Set::Names, "b"), "unknown", "FB-28: it has never answered");
    bench.say(1, delta(EDS, &[("x", "9")], &[]));
    bench.later(Duration::from_secs(60));
    assert_eq!(bench.held(EDS, Set::Names, "a"), "1");
}

#[test]
fn fb_21_a_name_known_not_to_exist_is_cached() {
    let mut bench = served(Rule::Uncached);
    bench.want(EDS, "x", true);
    bench.say(0, delta(EDS, &[], &["x"]));
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Cached(0));
}

#[test]
fn boot_14_and_xlat_38_names_go_to_the_servers_of_their_authority_and_no_others() {
    let mut two = plan(3, Variant::Delta, Rule::Uncached);
    two.top.servers = vec![0, 1];
    two.authorities.insert("x".into(), AuthorityPlan { servers: vec![2, 1], rule: Rule::Reachability });
    let mut bench = Bench::with_servers(two);
    let new = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    bench.want(EDS, "old", true);
    bench.want(EDS, new, true);
    bench.want(EDS, "xdstp://nobody/envoy.config.endpoint.v3.ClusterLoadAssignment/e", true);
    assert_eq!((bench.open(0), bench.open(2)), (vec!["+[old] -[] {}".to_owned()], vec![format!("+[{new}] -[] {{}}")]));
    bench.say(0, delta(EDS, &[("old", "1")], &[]));
    bench.say(2, delta(EDS, &[(new, "2")], &[]));
    bench.end(2, false);
    assert_eq!(bench.standing(), LadderState::Active(0), "FB-22: decisions are per authority");
    assert_eq!(
        bench.open(1),
        [format!("+[{new}] -[] {{}}")],
        "a server that two may use is asked for what is needed of it"
    );
    bench.say(1, delta(EDS, &[(new, "3"), ("old", "9")], &[]));
    assert_eq!(bench.held(EDS, Set::Names, new), "3");
    assert_eq!(bench.held(EDS, Set::Names, "old"), "1", "it was not asked, and its word does not count there");
}

#[test]
fn xlat_38_a_collection_is_asked_of_the_servers_of_its_authority_and_no_others() {
    let mut two = plan(2, Variant::Delta, Rule::Uncached);
    two.top.servers = vec![0];
    two.authorities.insert("x".into(), AuthorityPlan { servers: vec![1], rule: Rule::Uncached });
    let mut bench = Bench::with_servers(two);
    let [glob, member] = ["*", "a"].map(|id| format!("xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/{id}"));
    bench.want(EDS, "*", true);
    bench.want(EDS, &glob, true);
    assert_eq!((bench.open(0), bench.open(1)), (vec!["+[*] -[] {}".into()], vec![format!("+[{glob}] -[] {{}}")]));
    bench.say(0, delta(EDS, &[(&member, "9")], &[]));
    assert_eq!(bench.held(EDS, Set::Names, &member), "unknown", "the server of `*` has no say in it");
    bench.say(1, delta(EDS, &[(&member, "1")], &[]));
    assert_eq!(bench.held(EDS, Set::Names, &member), "1");
}

#[test]
fn fb_33_an_answer_ends_the_fallback_of_every_authority_that_has_its_server_above() {
    let mut both = plan(2, Variant::Delta, Rule::Reachability);
    both.authorities.insert("x".into(), AuthorityPlan { servers: vec![0, 1], rule: Rule::Reachability });
    let mut bench = Bench::with_servers(both);
    let new = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    bench.want(EDS, "old", true);
    bench.want(EDS, new, true);
    bench.open(0);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[("old", "1"), (new, "1")], &[]));
    let standings = |bench: &Bench| bench.sources.ladders().map(|ladder| ladder.state).collect::<Vec<_>>();
    assert_eq!(standings(&bench), [LadderState::Active(1), LadderState::Active(1)]);
    bench.open(0);
    bench.say(0, delta(EDS, &[("old", "2")], &[]));
    assert_eq!(standings(&bench), [LadderState::Active(0), LadderState::Active(0)]);
    assert_eq!(bench.held(EDS, Set::Names, new), "1", "what it has not said yet stays");
}

#[test]
fn fb_21_a_session_that_requests_many_names_that_nobody_has_does_not_move_the_ladder() {
    let mut bench = served(Rule::Uncached);
    let names: Vec<_> =
        (0..=ProtocolOptions::default().view.absent_names_per_stream).map(|number| format!("none-{number}")).collect();
    let many = |bench: &mut Bench, names: &[String]| {
        names.iter().for_each(|name| bench.want_as(TWO, EDS, name, true));
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        bench.say(0, delta(EDS, &[], &names));
    };
    // Exactly as many names as are allowed.
    many(&mut bench, &names[1..]);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Cached(0));
    bench.want_as(TWO, EDS, "another", true);
    assert_eq!(bench.standing(), LadderState::Trying(1));

    let mut bench = served(Rule::Uncached);
    many(&mut bench, &names);
    bench.end(0, false);
    bench.want_as(TWO, EDS, "another", true);
    assert_eq!(bench.standing(), LadderState::Cached(0), "one too many");
    bench.want_as(ONE, EDS, "another", true);
    assert_eq!(bench.standing(), LadderState::Trying(1), "somebody else wants it too, and upstream was asked before");

    // The same happens if the server is lost while the name is requested.
    let mut bench = served(Rule::Uncached);
    many(&mut bench, &names);
    bench.want_as(TWO, EDS, "another", true);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Cached(0));
    bench.want(EDS, "mine", true);
    assert_eq!(bench.standing(), LadderState::Trying(1));
}

#[test]
fn fb_20_what_others_have_found_counts_until_a_view_has_tried_for_itself() {
    let mut bench = Bench::with_servers(plan(3, Variant::Delta, Rule::Uncached));
    bench.sources.on_shared_reachability(|server| server < 2);
    bench.want(EDS, "a", true);
    assert_eq!(bench.standing(), LadderState::Trying(2), "row 22");
    bench.open(0);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench.want(EDS, "a", false);
    bench.later(Duration::from_secs(60));
    assert_eq!(bench.standing(), LadderState::Idle);
    bench.sources.on_shared_reachability(|_| false);
    bench.want(EDS, "a", true);
    assert_eq!(bench.standing(), LadderState::Trying(0));
    bench.sources.on_shared_reachability(|_| true);
    bench.settle();
    assert_eq!(bench.standing(), LadderState::Trying(0), "it is being tried, and that will say more");
}

#[test]
fn fb_4_and_fb_5_an_error_of_a_name_is_known_of_it_and_no_reason_to_go_on() {
    let mut bench = served(Rule::Uncached);
    bench.want(EDS, "trouble", true);
    let Response::Delta(mut response) = delta(EDS, &[], &[]) else { unreachable!() };
    let resource_name = Some(ResourceName { name: "trouble".into(), ..Default::default() });
    let error_detail = Some(Status { code: 14, ..Default::default() });
    response.resource_errors = vec![ResourceError { resource_name, error_detail }];
    bench.say(0, Response::Delta(response));
    assert_eq!(bench.held(EDS, Set::Names, "trouble"), "unknown");
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Cached(0));
}

#[test]
fn fb_27_an_authority_is_down_with_its_servers_and_no_other() {
    let mut two = plan(2, Variant::Delta, Rule::Uncached);
    two.top.servers = vec![0];
    two.authorities.insert("x".into(), AuthorityPlan { servers: vec![1], rule: Rule::Uncached });
    let new = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    let x = Authority::Named("x".into());
    let mut bench = Bench::with_servers(two);
    assert_eq!(bench.sources.down(), [].into());
    bench.want(EDS, new, true);
    bench.end(1, false);
    assert_eq!(bench.sources.down(), [x.clone()].into());
    bench.want(EDS, "old", true);
    assert_eq!(bench.sources.down(), [x.clone()].into(), "the other may answer");
    bench.end(0, false);
    assert_eq!(bench.sources.down(), [Authority::TopLevel, x.clone()].into());
    bench.open(0);
    bench.say(0, delta(EDS, &[("old", "1")], &[]));
    assert_eq!(bench.sources.down(), [x].into());
}

#[test]
fn fb_3_a_server_that_ends_a_stream_on_which_it_had_nothing_to_say_is_not_left() {
    let mut bench = served(Rule::Reachability);
    bench.end(0, true);
    assert_eq!(bench.open(0), ["+[a] -[] {a:1}"], "it holds what the server gave");
    bench.later(Duration::from_secs(20));
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Active(0));
    bench.open(0);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Trying(1), "it had no time to answer");

    let mut bench = served(Rule::Reachability);
    bench.end(0, true);
    bench.open(0);
    bench.later(Duration::from_secs(20));
    bench.want(EDS, "new", true);
    bench.requested(0);
    bench.end(0, false);
    assert_eq!(bench.standing(), LadderState::Trying(1), "it owed an answer");
    bench.open(1);
    bench.later(Duration::from_secs(20));
    bench.end(1, false);
    assert_eq!(bench.standing(), LadderState::Down, "it had never answered, and was asked for what another gave");
}

#[test]
fn fb_2_a_stream_that_has_had_no_answer_vouches_for_no_other() {
    let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Uncached));
    bench.want(EDS, "*", true);
    bench.want(EDS, "a", true);
    let [one, other] = [0, 1].map(|at| StreamId { server: 0, at });
    bench.open(0);
    let epoch = bench.up.remove(&one);
    bench.end_one(one, epoch, false);
    assert_eq!(bench.standing(), LadderState::Trying(1));

    let mut bench = served(Rule::Reachability);
    bench.want(EDS, "*", true);
    bench.open(0);
    bench.want(EDS, "*", false);
    bench.later(Duration::from_secs(60));
    let epochs = [one, other].map(|id| bench.up.remove(&id));
    bench.end_one(one, epochs[0], true);
    bench.end_one(other, epochs[1], false);
    assert_eq!(bench.standing(), LadderState::Active(0), "nothing was asked on it any more");
}

/// A stream on which nothing is polled stays open when its server is lost.
#[test]
fn fb_2_a_polled_server_is_vouched_for_only_by_a_stream_whose_polls_are_answered() {
    for (polled_there, answered_there) in [(true, true), (true, false), (false, true)] {
        let mut servers = plan(2, Variant::Sotw, Rule::Reachability);
        let quirks = ServerQuirks { per_type_liveness: true, ..ServerQuirks::default() };
        servers.servers[0] = ServerPlan::Streams { variant: Variant::Sotw, quirks: quirks.into() };
        let mut bench = Bench::with_servers(servers);
        let [one, other] = [0, 1].map(|at| StreamId { server: 0, at });
        bench.want(CDS, "*", true);
        bench.want_as(TWO, CDS, "a", true);
        bench.open(0);
        for id in [one, other] {
            bench.say_on(id, sotw(CDS, "1", &[("a", "1")]));
        }
        if !polled_there {
            bench.want_as(TWO, CDS, "a", false);
        }
        bench.later(Duration::from_secs(60));
        bench.requested(0);
        for id in [Some(one), (!answered_there).then_some(other)].into_iter().flatten() {
            let (epoch, now) = (bench.up[&id], bench.now);
            bench.sources.stream(id).unwrap().on_poll_failed(epoch, CDS, PollFailure::Silent, now);
        }
        let epoch = bench.up.remove(&one);
        bench.end_one(one, epoch, StreamEnd { answered: false, is_lost: true });
        let stays = polled_there && answered_there;
        let standing = if stays { LadderState::Active(0) } else { LadderState::Trying(1) };
        assert_eq!(bench.standing(), standing, "polled: {polled_there}, answered: {answered_there}");
    }
}

#[test]
fn fb_7_a_server_that_is_closed_and_needed_at_once_is_asked_on_new_streams() {
    let mut two = plan(2, Variant::Delta, Rule::Reachability);
    two.authorities.insert("x".into(), AuthorityPlan { servers: vec![1], rule: Rule::Uncached });
    let mut bench = Bench::with_servers(two);
    bench.want(EDS, "a", true);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, delta(EDS, &[("a", "1")], &[]));
    bench.open(0);
    let name = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    bench.count_interest(ONE, EDS, name, true); // before the ladder is stepped
    bench.say(0, delta(EDS, &[("a", "2")], &[]));
    let first = StreamId { server: 1, at: 0 };
    assert!(bench.sources.stream(first).is_some() && !bench.up.contains_key(&first), "the old one is not it");
    assert_eq!(bench.open(1).len(), 1);
}

#[test]
fn fb_9_a_full_answer_without_resources_ends_a_fallback() {
    let mut bench = Bench::with_servers(plan(2, Variant::Sotw, Rule::Reachability));
    bench.want(LDS, "a", true);
    bench.end(0, false);
    bench.open(1);
    bench.say(1, sotw(LDS, "1", &[("a", "1")]));
    bench.open(0);
    bench.say(0, sotw(LDS, "1", &[]));
    assert_eq!(bench.standing(), LadderState::Active(0));
}

#[test]
fn fb_33_the_silence_of_a_server_that_has_answered_for_another_authority_is_a_word() {
    let mut two = plan(2, Variant::Delta, Rule::Uncached);
    two.authorities.insert("x".into(), AuthorityPlan { servers: vec![0, 1], rule: Rule::Uncached });
    let mut bench = Bench::with_servers(two);
    bench.want(EDS, "a", true);
    bench.open(0);
    bench.say(0, delta(EDS, &[("a", "1")], &[]));
    let name = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment/e";
    bench.want(EDS, name, true);
    bench.later(Duration::from_secs(1));
    bench.requested(0);
    bench.later(Duration::from_secs(16));
    assert_eq!(bench.held(EDS, Set::Names, name), "gone");
}

#[test]
fn fb_3_a_stream_on_which_a_server_keeps_quiet_vouches_for_it_if_something_is_asked_there() {
    for asked_there in [true, false] {
        let mut bench = Bench::with_servers(plan(2, Variant::Delta, Rule::Uncached));
        bench.want(EDS, "*", true);
        bench.want(EDS, "a", true);
        bench.open(0);
        bench.say(0, delta(EDS, &[("a", "1"), ("b", "1")], &[]));
        bench.later(Duration::from_secs(1));
        bench.end(0, true);
        bench.open(0);
        if !asked_there {
            bench.want(EDS, "*", false);
        }
        bench.later(Duration::from_secs(60));
        bench.requested(0);
        bench.want(EDS, "uncached", true);
        bench.later(Duration::from_secs(1));
        bench.requested(0);
        let other = StreamId { server: 0, at: 1 };
        let epoch = bench.up.remove(&other);
        bench.end_one(other, epoch, false);
        let left = bench.standing() != LadderState::Active(0);
        assert_eq!(left, !asked_there, "{:?}", bench.standing());
    }
}
