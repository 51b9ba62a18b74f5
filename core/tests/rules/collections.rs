//! Collections that are requested as a whole.

use std::sync::Arc;

use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::session::{Client, CloseReason, Session, Step, Variant};
use weir_core::protocol::view::SessionId;

use super::support::{Bench, Extent, LDS, Set, text_of};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::xds::{Access, AccessRule, NamePattern};

const GLOB: &str = "xdstp://x/envoy.config.listener.v3.Listener/foo/*?v=1";
const A: &str = "xdstp://x/envoy.config.listener.v3.Listener/foo/a?v=1";
const B: &str = "xdstp://x/envoy.config.listener.v3.Listener/foo/b?v=1";
const ELSEWHERE: &str = "xdstp://x/envoy.config.listener.v3.Listener/bar/b?v=1";

fn client(bench: &mut Bench) -> SessionId {
    let id = bench.add(Client { errors: true, ..Client::plain(Variant::Delta) });
    let session = bench.sessions.remove(&id).unwrap();
    let session: Session = session.with_authorities(Arc::new(["x".to_owned()].into()));
    bench.sessions.insert(id, session);
    id
}

fn member(bench: &mut Bench, name: &str, content: &str) {
    bench.give(LDS, name, content, |_| {});
}

fn come_with(bench: &mut Bench, id: SessionId, on: &[&str], versions: &[(&str, String)]) {
    let request = DeltaDiscoveryRequest {
        type_url: LDS.into(),
        resource_names_subscribe: on.iter().map(ToString::to_string).collect(),
        initial_resource_versions: versions.iter().map(|(name, version)| (name.to_string(), version.clone())).collect(),
        ..Default::default()
    };
    bench.request(id, Request::Delta(request));
}

/// Returns a client that has subscribed to the collection and was sent two members.
fn with_members(bench: &mut Bench) -> SessionId {
    let id = client(bench);
    bench.delta(id, LDS, &[GLOB], &[]);
    member(bench, A, "1");
    member(bench, B, "1");
    bench.reaches(LDS, Set::Glob(GLOB), Extent::First);
    assert_eq!(bench.said(id), [format!("L {A},{B}")]);
    id
}

#[test]
fn coll_14_and_coll_18_present_and_future_members_are_sent_and_upstream_is_asked_once() {
    let mut bench = Bench::new();
    let one = client(&mut bench);
    bench.delta(one, LDS, &[GLOB], &[]);
    assert_eq!(bench.said(one), [""; 0], "nothing is known yet");
    member(&mut bench, A, "1");
    bench.reaches(LDS, Set::Glob(GLOB), Extent::First);
    assert_eq!(bench.said(one), [format!("L {A}")]);
    let other = client(&mut bench);
    bench.delta(other, LDS, &["xdstp://x/envoy.config.listener.v3.Listener/foo/%2A?v=1"], &[]);
    assert_eq!(bench.said(other), [format!("L {A}")], "what is there already");
    member(&mut bench, B, "1");
    member(&mut bench, ELSEWHERE, "1");
    for id in [one, other] {
        assert_eq!(bench.said(id), [format!("L {B}")]);
    }
    member(&mut bench, A, "1");
    assert_eq!(bench.said(one), [""; 0], "the same once more is no event");
    member(&mut bench, A, "2");
    assert_eq!(bench.said(one), [format!("L {A}")]);
    assert_eq!(bench.asked_upstream(), [format!("+{GLOB}")], "once for both");
}

#[test]
fn coll_15_and_coll_20_an_empty_collection_is_sent_by_its_own_name_and_only_when_upstream_has_said_so() {
    let mut bench = Bench::new();
    let id = client(&mut bench);
    let spelt = "xdstp://x/envoy.config.listener.v3.Listener/f%6Fo/*?v=1";
    bench.delta(id, LDS, &[spelt], &[]);
    bench.later(60_000);
    assert_eq!(bench.said(id), [""; 0], "upstream is slow, which says nothing");
    bench.removes(LDS, Set::Names, &[GLOB]);
    assert_eq!(bench.said(id), [format!("L  -{spelt}")], "in the client's own spelling");
    let other = client(&mut bench);
    bench.delta(other, LDS, &[GLOB], &[]);
    assert_eq!(bench.said(other), [format!("L  -{GLOB}")]);
    member(&mut bench, A, "1");
    for id in [id, other] {
        assert_eq!(bench.said(id), [format!("L {A}")], "a member appears");
    }
    let third = client(&mut bench);
    bench.delta(third, LDS, &[GLOB], &[]);
    assert_eq!(bench.said(third), [format!("L {A}")], "it is not empty any more");
}

#[test]
fn coll_16_a_member_that_goes_is_removed_by_its_own_name() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    bench.removes(LDS, Set::Names, &[A]);
    assert_eq!(bench.said(id), [format!("L  -{A}")]);
    bench.removes(LDS, Set::Names, &[A]);
    assert_eq!(bench.said(id), [""; 0]);
    bench.removes(LDS, Set::Names, &[B]);
    assert_eq!(bench.said(id), [format!("L  -{B}")]);
    let early = client(&mut bench);
    bench.delta(early, LDS, &[GLOB], &[]);
    assert_eq!(bench.said(early), [""; 0], "there may be more of it on the way");
    bench.reaches(LDS, Set::Glob(GLOB), Extent::Settled);
    assert_eq!(bench.said(early), [format!("L  -{GLOB}")]);
    let late = client(&mut bench);
    bench.delta(late, LDS, &[GLOB], &[]);
    assert_eq!(bench.said(late), [format!("L  -{GLOB}")], "upstream took all of it away, so it is empty");
    member(&mut bench, A, "1");
    assert_eq!((bench.said(id), bench.said(late)), (vec![format!("L {A}")], vec![format!("L {A}")]), "and back");
    assert_eq!(bench.sessions[&id].footprint().names, 2, "the glob and what is there; the dead cost nothing");
}

#[test]
fn coll_16_upstream_says_that_all_of_it_is_gone() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    bench.removes(LDS, Set::Names, &[GLOB]);
    assert_eq!(bench.said(id), [format!("L  -{A},{B}")]);
}

#[test]
fn coll_17_who_leaves_a_collection_keeps_what_it_requested_by_itself() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    bench.delta(id, LDS, &[A], &[]);
    assert_eq!(bench.said(id), [format!("L {A}")], "asked by itself is answered");
    bench.delta(id, LDS, &[], &[GLOB]);
    member(&mut bench, A, "2");
    member(&mut bench, B, "2");
    assert_eq!(bench.said(id), [format!("L {A}")], "nothing of the other");
    bench.later(60_000);
    assert_eq!(bench.asked_upstream(), [format!("+{GLOB}"), format!("+{A}"), format!("-{GLOB}")]);
    assert_eq!(bench.view.tables().held(&bench.kind(LDS), false), 1, "and what nobody wants is let go");
}

#[test]
fn coll_17_and_delta_24_a_member_left_by_name_is_still_a_member() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    bench.asked_upstream();
    bench.delta(id, LDS, &[A], &[]);
    bench.said(id);
    assert_eq!(bench.asked_upstream(), [format!("+{A}")]);
    bench.delta(id, LDS, &[], &[A]);
    assert_eq!(bench.said(id), [format!("L {A}")], "the client is told that it has it still");
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), [format!("-{A}")], "it is wanted as a member alone");
    member(&mut bench, A, "2");
    assert_eq!(bench.said(id), [format!("L {A}")]);
    bench.removes(LDS, Set::Names, &[A]);
    assert_eq!(bench.said(id), [format!("L  -{A}")]);
    bench.delta(id, LDS, &[], &[B]);
    assert_eq!(bench.said(id), [""; 0], "it was never asked for by itself");
}

#[test]
fn coll_18_and_delta_33_a_member_that_is_also_requested_by_name_comes_once() {
    let mut bench = Bench::new();
    let id = client(&mut bench);
    bench.delta(id, LDS, &[GLOB, A, "*"], &[]);
    bench.set(LDS, &[(A, "1")]);
    bench.whole(LDS, &[(A, "1")]);
    assert_eq!(bench.said(id), [format!("L {A}")]);
    bench.set(LDS, &[(A, "2")]);
    assert_eq!(bench.said(id), [format!("L {A}")]);
    bench.remove(LDS, A);
    assert_eq!(bench.said(id), [format!("L  -{A}")]);
}

#[test]
fn coll_20_claimed_members_that_do_not_exist_leave_no_trace() {
    let mut bench = Bench::new();
    with_members(&mut bench);
    bench.reaches(LDS, Set::Glob(GLOB), Extent::Settled);
    let known = bench.view.tables().known_names(&bench.kind(LDS));
    for round in 0..3 {
        let members: Vec<_> = (0..10).map(|number| A.replace("/a?", &format!("/{round}-{number}?"))).collect();
        let stated: Vec<_> = members.iter().map(|name| (name.as_str(), "x".to_owned())).collect();
        let id = client(&mut bench);
        come_with(&mut bench, id, &[GLOB], &stated);
        bench.said(id);
        assert_eq!(bench.sought().len(), 10);
        members.iter().for_each(|name| bench.removes(LDS, Set::Names, &[name]));
        let removed = std::iter::from_fn(|| bench.poll(id)).map(|reply| reply.removed.len()).sum::<usize>();
        assert_eq!((removed, bench.view.tables().known_names(&bench.kind(LDS))), (10, known), "in round {round}");
    }
}

#[test]
fn coll_19_a_client_that_reconnects_is_sent_what_differs_and_removals() {
    let mut bench = Bench::new();
    let keeper = with_members(&mut bench);
    let version = |bench: &mut Bench, name: &str| bench.resource(LDS, name, "1").full.to_string();
    let (a, b) = (version(&mut bench, A), version(&mut bench, B));
    let c = A.replace("/a?", "/c?");
    let id = client(&mut bench);
    come_with(&mut bench, id, &[GLOB], &[(A, a.clone()), (B, "another".into()), (&c, b)]);
    assert_eq!(bench.said(id), [format!("L {B}")], "one is the same, one is not, of the third nobody knows yet");
    assert_eq!(bench.sought(), [""; 0], "it may still come by itself");
    bench.later(5_000);
    bench.reaches(LDS, Set::Glob(GLOB), Extent::Settled);
    assert_eq!(bench.said(id), [""; 0], "that it is quiet says nothing of what somebody holds");
    assert_eq!(bench.sought(), std::slice::from_ref(&c), "it is asked for");
    bench.removes(LDS, Set::Names, &[&c]);
    assert_eq!(bench.said(id), [format!("L  -{c}")], "now it is known");
    bench.delta(keeper, LDS, &[], &[GLOB]);
    bench.delta(id, LDS, &[], &[GLOB]);
    bench.later(60_000);
    let cold = client(&mut bench);
    come_with(&mut bench, cold, &[GLOB], &[(A, a)]);
    bench.later(60_000);
    assert_eq!(bench.said(cold), [""; 0], "a cold relay takes nothing away");
    bench.removes(LDS, Set::Names, &[GLOB]);
    assert_eq!(bench.said(cold).concat().matches(A).count(), 1, "until it is known");
}

#[test]
fn coll_20_a_set_that_was_cut_off_is_not_judged() {
    let mut bench = Bench::new();
    let _keeper = with_members(&mut bench);
    bench.cut(LDS, Set::Glob(GLOB));
    let id = client(&mut bench);
    let c = A.replace("/a?", "/c?");
    come_with(&mut bench, id, &[GLOB], &[(&c, "v".into())]);
    bench.later(60_000);
    assert_eq!(bench.said(id), [format!("L {A},{B}")], "what is there, and no removal");
    bench.reaches(LDS, Set::Glob(GLOB), Extent::Complete);
    assert_eq!(bench.said(id), [format!("L  -{c}")]);
}

#[test]
fn coll_21_an_error_concerns_the_collection_or_the_member_that_it_names() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    bench.fails(LDS, A, 14);
    assert_eq!(bench.said(id), [format!("L !{A}:14")]);
    bench.fails(LDS, GLOB, 7);
    assert_eq!(bench.said(id), [format!("L !{GLOB}:7")]);
    let late = client(&mut bench);
    bench.delta(late, LDS, &[GLOB], &[]);
    let said = bench.said(late).concat();
    assert!(said.contains(&format!("!{GLOB}:7")) && said.contains(B), "{said}");
}

#[test]
fn coll_17_what_was_pending_of_a_name_is_pending_of_the_member() {
    let mut bench = Bench::new();
    let id = client(&mut bench);
    bench.delta(id, LDS, &[GLOB, A], &[]);
    member(&mut bench, A, "1");
    bench.delta(id, LDS, &[], &[A]);
    assert_eq!(bench.said(id), [format!("L {A}")], "it came before the client left the name");
    bench.delta(id, LDS, &[A], &[]);
    bench.said(id);
    bench.removes(LDS, Set::Names, &[A]);
    bench.delta(id, LDS, &[], &[A]);
    assert_eq!(bench.said(id), [format!("L  -{A}")], "and so did its end");
}

#[test]
fn coll_17_and_coll_24_what_a_wildcard_shows_too_is_sent_when_the_collection_is_left_or_loses_it() {
    let mut bench = Bench::new();
    let id = client(&mut bench);
    bench.delta(id, LDS, &["*", GLOB], &[]);
    member(&mut bench, A, "1");
    member(&mut bench, B, "1");
    bench.reaches(LDS, Set::Glob(GLOB), Extent::First);
    bench.whole(LDS, &[(A, "2")]);
    assert_eq!(bench.said(id), [format!("L {A},{B}")]);
    bench.delta(id, LDS, &[], &[GLOB]);
    assert_eq!(bench.said(id), [format!("L {A} -{B}")], "as `*` has them");
    bench.whole(LDS, &[]);
    assert_eq!(bench.said(id), [format!("L  -{A}")]);

    let mut bench = Bench::new();
    let id = client(&mut bench);
    bench.delta(id, LDS, &["*", GLOB], &[]);
    member(&mut bench, A, "1");
    bench.reaches(LDS, Set::Glob(GLOB), Extent::First);
    bench.whole(LDS, &[(A, "1")]);
    bench.said(id);
    bench.removes(LDS, Set::Names, &[A]);
    bench.said(id);
    bench.whole(LDS, &[]);
    assert_eq!(bench.said(id), [format!("L  -{A}")]);
}

#[test]
fn up_40_a_member_that_dies_of_its_ttl_is_requested_again_and_says_nothing_of_the_collection() {
    let mut bench = Bench::new();
    let id = client(&mut bench);
    bench.delta(id, LDS, &[GLOB], &[]);
    bench.give(LDS, A, "1", |wrapper| wrapper.ttl = Some(prost_types::Duration { seconds: 10, nanos: 0 }));
    bench.said(id);
    bench.asked_upstream();
    bench.later(10_000);
    assert_eq!(bench.said(id), [format!("L  -{A}")]);
    assert_eq!(bench.asked_upstream(), [format!("+{GLOB}")]);
    let late = client(&mut bench);
    bench.delta(late, LDS, &[GLOB], &[]);
    assert_eq!(bench.said(late), [""; 0]);
}

#[test]
fn delta_10_a_collection_requested_once_more_is_sent_once_more() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    bench.delta(id, LDS, &[GLOB], &[]);
    assert_eq!(bench.said(id), [format!("L {A},{B}")]);
}

#[test]
fn coll_24_a_wildcard_says_nothing_of_a_collection_and_a_collection_nothing_of_a_wildcard() {
    let mut bench = Bench::new();
    let [wildcard, glob] = [client(&mut bench), client(&mut bench)];
    bench.delta(wildcard, LDS, &["*"], &[]);
    bench.delta(glob, LDS, &[GLOB], &[]);
    bench.whole(LDS, &[(A, "1")]);
    assert_eq!((bench.said(wildcard), bench.said(glob)), (vec![format!("L {A}")], vec![]));
    member(&mut bench, B, "1");
    assert_eq!((bench.said(wildcard), bench.said(glob)), (vec![], vec![format!("L {B}")]));
}

#[test]
fn a_collection_that_outgrows_what_a_client_may_request_ends_its_stream_and_nobody_elses() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.names = 3));
    let id = client(&mut bench);
    bench.delta(id, LDS, &[GLOB], &[]);
    for name in ["a", "b", "c", "d"] {
        member(&mut bench, &A.replace("/a?", &format!("/{name}?")), "1");
    }
    assert!(matches!(bench.step(id), Step::End(CloseReason::BadRequest(_))));
}

#[test]
fn members_that_come_and_go_for_ever_are_not_remembered() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    for number in 0..1_000 {
        let name = A.replace("/a?", &format!("/{number}?"));
        member(&mut bench, &name, "1");
        assert_eq!(bench.said(id), [format!("L {name}")]);
        bench.removes(LDS, Set::Names, &[&name]);
        assert_eq!(bench.said(id), [format!("L  -{name}")]);
    }
    let footprint = bench.sessions[&id].footprint();
    assert_eq!((footprint.names, footprint.pending), (3, 0));
    assert_eq!(bench.view.tables().known_names(&bench.kind(LDS)), 2, "no tombstones of names that nobody asked for");
}

#[test]
fn members_that_come_and_go_while_their_client_reads_nothing_are_not_remembered_either() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    for number in 0..1_000 {
        let [first, second] = ["x", "y"].map(|letter| A.replace("/a?", &format!("/{letter}{number}?")));
        member(&mut bench, &first, "1");
        member(&mut bench, &second, "1");
        bench.removes(LDS, Set::Names, &[&first]);
        let footprint = bench.sessions[&id].footprint();
        assert!(footprint.names <= 4 && footprint.pending <= 1, "{footprint:?}");
        bench.removes(LDS, Set::Names, &[&second]);
    }
    let footprint = bench.sessions[&id].footprint();
    assert_eq!((footprint.names, footprint.pending), (3, 0));
    assert_eq!(bench.said(id), [""; 0]);
    member(&mut bench, A, "2");
    assert_eq!(bench.said(id), [format!("L {A}")]);
}

#[test]
fn a_client_that_reads_nothing_is_not_ended_by_a_limit_that_its_collection_never_reached() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.names = 3));
    let id = client(&mut bench);
    bench.delta(id, LDS, &[GLOB], &[]);
    for number in 0..10 {
        let name = A.replace("/a?", &format!("/{number}?"));
        member(&mut bench, &name, "1");
        bench.removes(LDS, Set::Names, &[&name]);
    }
    assert!(matches!(bench.step(id), Step::Idle(_)));
}

#[test]
fn nothing_more_is_kept_for_a_client_whose_stream_is_to_end() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.names = 3));
    let id = client(&mut bench);
    bench.delta(id, LDS, &[GLOB], &[]);
    let come = |bench: &mut Bench, number: usize| member(bench, &A.replace("/a?", &format!("/{number}?")), "1");
    (0..4).for_each(|number| come(&mut bench, number));
    let footprint = bench.sessions[&id].footprint();
    (4..100).for_each(|number| come(&mut bench, number));
    assert_eq!(bench.sessions[&id].footprint(), footprint);
    assert!(matches!(bench.step(id), Step::End(CloseReason::BadRequest(_))));
}

#[test]
fn names_that_other_clients_request_and_that_do_not_exist_are_no_members() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    let other = client(&mut bench);
    for number in 0..10 {
        let name = A.replace("/a?", &format!("/{number}?"));
        bench.delta(other, LDS, &[name.as_str()], &[]);
        bench.removes(LDS, Set::Names, &[&name]);
        bench.fails(LDS, &name, 5);
        bench.delta(other, LDS, &[], &[name.as_str()]);
    }
    assert_eq!(bench.sessions[&id].footprint().names, 3);
}

#[test]
fn what_a_client_requested_by_itself_or_holds_is_not_forgotten_when_it_goes_unread() {
    let mut bench = Bench::new();
    let id = client(&mut bench);
    come_with(&mut bench, id, &[GLOB, A], &[(B, "v".into())]);
    for name in [A, B] {
        member(&mut bench, name, "1");
        bench.removes(LDS, Set::Names, &[name]);
    }
    bench.reaches(LDS, Set::Glob(GLOB), Extent::Complete);
    let said = bench.said(id).concat();
    assert!(said.contains(A) && said.contains(B), "both are removed: {said}");
}

/// What the client is sent from the same snapshot may refer to it.
#[test]
fn a_member_that_waits_in_a_burst_is_sent_although_it_goes_meanwhile() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.reply_bytes = 1));
    let id = client(&mut bench);
    bench.delta(id, LDS, &[GLOB], &[]);
    member(&mut bench, A, "1");
    member(&mut bench, B, "1");
    assert_eq!(bench.poll(id).map(|reply| text_of(&reply)), Some(format!("L {A}")));
    bench.removes(LDS, Set::Names, &[B]);
    assert_eq!(bench.said(id), [format!("L {B}"), format!("L  -{B}")]);
}

/// A session may read of a change before it can read the snapshot that has it.
#[test]
fn a_client_is_sent_nothing_from_a_snapshot_that_still_has_a_member_which_its_session_has_forgotten() {
    let mut bench = Bench::new();
    let id = with_members(&mut bench);
    let c = A.replace("/a?", "/c?");
    member(&mut bench, &c, "1");
    member(&mut bench, A, "2");
    let older = bench.view.snapshot().clone();
    bench.removes(LDS, Set::Names, &[&c]);
    let session = bench.sessions.get_mut(&id).unwrap();
    assert!(matches!(session.poll(&older, &mut bench.leases, bench.now), Step::Idle(None)));
    assert_eq!(bench.said(id), [format!("L {A}")]);
}

#[test]
fn key_11_a_client_is_sent_nothing_of_a_member_that_it_may_not_have_neither_the_value_nor_its_end() {
    let mut bench = Bench::new();
    let rule = AccessRule {
        types: vec!["envoy.config.listener.v3.Listener".into()],
        names: vec![NamePattern::parse(A)],
        peers: Vec::new(),
    };
    let clearance = Access::of(vec![rule]).clearance(None);
    let keeper = client(&mut bench);
    let id = bench.add(Client { errors: true, clearance, ..Client::plain(Variant::Delta) });
    let session = bench.sessions.remove(&id).unwrap();
    bench.sessions.insert(id, session.with_authorities(Arc::new(["x".to_owned()].into())));
    bench.delta(keeper, LDS, &[GLOB], &[]);
    bench.delta(id, LDS, &[GLOB], &[]);
    for content in ["1", "2"] {
        member(&mut bench, A, content);
        member(&mut bench, B, content);
        assert_eq!(bench.said(keeper), [format!("L {A},{B}")]);
        assert_eq!(bench.said(id), [format!("L {B}")]);
    }
    bench.removes(LDS, Set::Names, &[A]);
    assert_eq!((bench.said(keeper), bench.said(id)), (vec![format!("L  -{A}")], vec![]));
}
