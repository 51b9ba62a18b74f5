mod sharing;

use std::collections::BTreeSet;

use prost::Message;

use super::*;
use crate::proto::node::{Extension, Node};
use crate::xds::{KeyField, KeyRule};

fn at(milliseconds: u64) -> Moment {
    Moment::START + Duration::from_millis(milliseconds)
}

fn node(id: &str) -> MemberNode {
    let extensions = vec![Extension { name: "of-all".repeat(100), ..Default::default() }];
    let encoded = Node { id: id.into(), extensions, ..Node::default() }.encode_to_vec();
    KeyRule::of(vec![KeyField::Cluster]).key(&encoded).unwrap().member_node(&encoded).unwrap()
}

fn shown(members: &Members) -> Option<String> {
    members.shown().map(id_of)
}

fn id_of(node: &MemberNode) -> String {
    Node::decode(node.encoded()).unwrap().id
}

/// Lets streams join with these nodes, one second after another. The number of a stream is its index.
fn with(nodes: &[&str]) -> Members {
    let mut members = Members::none();
    for (at_second, id) in (0..).zip(nodes) {
        members.join(SessionId(at_second), node(id), at(1_000 * at_second), at(1_000 * at_second));
    }
    members
}

#[test]
fn the_first_client_is_shown_and_stays_until_it_leaves() {
    let mut members = with(&["a", "b", "c"]);
    assert!(!members.show_next() && !members.has_left());
    assert_eq!(shown(&members).as_deref(), Some("a"));
    members.leave(SessionId(1), at(5_000));
    assert!(!members.is_due(), "it is another one that has left");
    members.leave(SessionId(0), at(6_000));
    assert!(members.is_due() && members.shown_member().is_none());
    assert_eq!(shown(&members).as_deref(), Some("a"), "servers are not told yet");
    assert!(members.show_next());
    assert_eq!(shown(&members).as_deref(), Some("c"));
}

#[test]
fn the_next_one_is_the_longest_connected_when_its_turn_comes() {
    let mut members = with(&["a", "b", "c", "d"]);
    members.leave(SessionId(0), at(6_000));
    members.leave(SessionId(1), at(6_050)); // it would have been the next
    assert!(members.show_next());
    assert_eq!(shown(&members).as_deref(), Some("c"));
}

#[test]
fn a_client_of_a_moment_is_shown_only_if_there_is_no_older_one() {
    let mut members = with(&["a"]);
    members.join(SessionId(7), node("young"), at(59_000), at(59_000));
    members.join(SessionId(8), node("old"), at(2_000), at(59_500)); // its stream was handed over from an earlier process
    members.leave(SessionId(0), at(60_000));
    members.show_next();
    assert_eq!(shown(&members).as_deref(), Some("old"));
    members.leave(SessionId(8), at(60_000));
    members.show_next();
    assert_eq!(shown(&members).as_deref(), Some("young"), "better than one that has left");
}

#[test]
fn many_streams_of_one_client_are_one_member() {
    let mut members = with(&["a", "b", "a", "a"]);
    assert_eq!(members.present().len(), 2);
    for left in [0, 3] {
        members.leave(SessionId(left), at(9_000));
        assert!(!members.has_left());
    }
    assert_eq!(members.shown_member().unwrap().sessions().collect::<Vec<_>>(), [SessionId(2)]);
    assert_eq!(members.shown_member().unwrap().since(), at(0), "for as long as its first stream");
    members.leave(SessionId(2), at(9_000));
    assert!(members.is_due());
}

/// KEY-4: the streams of one client may state its maps in different orders, and so may the client that comes back.
#[test]
fn key_4_a_client_that_writes_its_maps_in_another_order_is_the_same_member() {
    let with = |order: [&str; 2]| {
        let fields = order.map(|name| {
            let metadata = prost_types::Struct { fields: [(name.into(), Default::default())].into() };
            Node { id: "a".into(), metadata: Some(metadata), ..Node::default() }.encode_to_vec()
        });
        KeyRule::of(Vec::new()).key(&[]).unwrap().member_node(&fields.concat()).unwrap()
    };
    let (one, other) = (with(["x", "y"]), with(["y", "x"]));
    let mut members = Members::none();
    members.join(SessionId(0), one, at(0), at(0));
    members.join(SessionId(1), other.clone(), at(10), at(10));
    assert_eq!(members.present().len(), 1);
    (0..2).for_each(|session| members.leave(SessionId(session), at(1_000)));
    members.join(SessionId(2), node("b"), at(1_010), at(1_010));
    members.join(SessionId(3), other, at(1_020), at(1_020));
    assert!(!members.is_due(), "it is back");
}

#[test]
fn without_clients_the_last_one_stays_and_the_first_that_comes_is_next() {
    let mut members = with(&["a"]);
    members.leave(SessionId(0), at(1_000));
    assert!(members.has_left() && !members.is_due() && !members.show_next());
    assert_eq!(shown(&members).as_deref(), Some("a"));
    members.join(SessionId(1), node("b"), at(8_000), at(8_000));
    assert!(members.is_due());
    assert_eq!(members.removals_wait_until(), Some(at(18_000)), "from when there is one to wait for");
    members.show_next();
    assert_eq!(shown(&members).as_deref(), Some("b"));
}

#[test]
fn a_client_that_comes_back_before_its_successor_is_shown_goes_on() {
    let mut members = with(&["a", "b"]);
    members.leave(SessionId(0), at(3_000));
    members.join(SessionId(2), node("a"), at(3_050), at(3_050));
    assert!(!members.is_due() && !members.show_next());
    members.leave(SessionId(2), at(4_000));
    members.show_next();
    members.join(SessionId(3), node("a"), at(4_100), at(4_100));
    assert_eq!(shown(&members).as_deref(), Some("b"), "too late");
}

#[test]
fn removals_wait_from_when_the_shown_client_has_left() {
    let mut members = with(&["a", "b", "c"]);
    assert_eq!(members.removals_wait_until(), None);
    members.leave(SessionId(0), at(3_000));
    members.leave(SessionId(1), at(5_000));
    assert_eq!(members.removals_wait_until(), Some(at(13_000)));
    members.show_next();
    assert_eq!(members.removals_wait_until(), Some(at(13_000)), "the stream may not be open yet");
    members.leave(SessionId(2), at(20_000));
    assert_eq!(members.removals_wait_until(), Some(at(30_000)));
}

/// SOTW-11: the key is the same, so the client stays in the view.
#[test]
fn a_shown_client_that_states_another_node_stays_shown_with_what_servers_have() {
    let mut members = with(&["a", "b", "a"]);
    for session in [0, 2] {
        members.replace(SessionId(session), node("a2"));
        assert!(!members.has_left());
        assert_eq!(shown(&members).as_deref(), Some("a"));
    }
    assert_eq!(
        (members.present().len(), members.shown_member().map(|member| id_of(member.node()))),
        (2, Some("a2".into()))
    );
    members.leave(SessionId(0), at(9_000));
    assert!(!members.has_left());
    members.leave(SessionId(2), at(9_000));
    assert!(members.is_due());
    members.replace(SessionId(1), node("b2"));
    members.show_next();
    assert_eq!(shown(&members).as_deref(), Some("b2"));
}

#[test]
fn what_members_have_in_common_is_kept_once_and_nothing_of_those_that_have_left() {
    let mut members = with(&["a", "b", "c"]);
    let one = node("a").extensions().len();
    let own = members.shown().unwrap().own_bytes();
    assert_eq!((members.shared_bytes(), members.shown_bytes()), (one, own));
    (0..3).for_each(|session| members.leave(SessionId(session), at(9_000)));
    assert_eq!((members.shared_bytes(), members.present().len()), (0, 0));
    assert_eq!(members.shown_bytes(), own + one, "the shown node stays");
    assert!(members.ranks_by_node.is_empty() && members.ranks_by_session.is_empty());
}

#[test]
fn a_client_that_is_refused_is_passed_over_until_each_was_once() {
    let mut members = with(&["a", "b", "c"]);
    let next = |members: &mut Members| members.show_next().then(|| shown(members).unwrap());
    members.pass_over(at(5_000));
    members.pass_over(at(5_100));
    assert!(members.is_due() && !members.has_left() && !members.are_all_refused());
    assert_eq!(members.removals_wait_until(), Some(at(15_000)), "on the streams to other servers");
    assert_eq!(next(&mut members).as_deref(), Some("b"));
    members.pass_over(at(6_000));
    assert_eq!(next(&mut members).as_deref(), Some("c"));
    members.pass_over(at(7_000));
    assert!(members.are_all_refused());
    assert_eq!(next(&mut members), None, "one round");
    members.join(SessionId(7), node("d"), at(8_000), at(8_000));
    assert_eq!(next(&mut members).as_deref(), Some("d"), "it may be taken");
    members.pass_over(at(9_000));
    members.leave(SessionId(1), at(9_500));
    assert_eq!(next(&mut members), None, "it was not shown");
    members.leave(SessionId(7), at(10_000));
    assert_eq!(next(&mut members).as_deref(), Some("a"), "it was refused longest ago");
    assert!(members.are_all_refused());
}

/// A credential in the key that is revoked concerns all clients of the view.
#[test]
fn a_view_is_refused_after_three_different_clients_in_a_row_and_until_one_is_answered_whoever_leaves() {
    let mut members = with(&["a", "b", "c", "d", "e"]);
    members.refuse(at(5_000));
    members.refuse(at(5_100));
    members.show_next();
    members.refuse(at(6_000));
    assert!(!members.is_view_refused(), "two of them");
    members.accept();
    members.refuse(at(7_000));
    for _ in 0..2 {
        assert!(!members.is_view_refused(), "one was answered in between");
        members.show_next();
        members.refuse(at(8_000));
    }
    assert!(members.is_view_refused() && members.is_any_refused() && !members.are_all_refused());
    members.leave(SessionId(3), at(9_000));
    members.show_next();
    assert_eq!(shown(&members).as_deref(), Some("e"), "it was not refused yet");
    assert!(members.is_view_refused());
    (0..5).for_each(|session| members.leave(SessionId(session), at(10_000)));
    assert!(members.is_any_refused(), "nobody was answered");
    members.accept();
    assert!(!members.is_any_refused());
}

#[test]
fn if_all_were_refused_the_one_that_was_so_longest_ago_is_shown_to_a_server_that_is_asked_again() {
    let mut members = with(&["a", "b"]);
    for _ in 0..2 {
        assert!(!members.show_refused());
        members.pass_over(at(5_000));
        members.show_next();
    }
    assert_eq!(shown(&members).as_deref(), Some("b"));
    for next in ["a", "b"] {
        assert!(members.show_refused());
        assert_eq!(shown(&members).as_deref(), Some(next));
        members.pass_over(at(6_000));
    }
    let mut alone = with(&["a"]);
    alone.pass_over(at(5_000));
    assert!(!alone.show_refused());
}

/// Meanwhile no client may be served from the cache.
#[test]
fn the_only_client_that_is_refused_and_leaves_is_refused_when_it_is_back() {
    let mut members = with(&["a"]);
    members.pass_over(at(5_000));
    members.leave(SessionId(0), at(6_000));
    assert!(!members.are_all_refused() && members.is_view_refused(), "as to what is cached");
    members.join(SessionId(1), node("a"), at(7_000), at(7_000));
    assert!(members.are_all_refused() && members.is_view_refused());
    members.leave(SessionId(1), at(8_000));
    assert!(members.is_view_refused());
}

/// The node is the same, whether the client comes back or is refused again.
#[test]
fn a_client_that_is_refused_each_time_it_comes_back_counts_once() {
    let mut members = with(&["a", "b"]);
    for _ in 0..4 {
        members.refuse(at(5_000));
        members.show_next();
        members.leave(SessionId(0), at(6_000));
        members.show_next();
        members.leave(SessionId(1), at(6_000));
        members.join(SessionId(0), node("a"), at(7_000), at(7_000));
        members.join(SessionId(1), node("b"), at(8_000), at(8_000));
        members.show_next();
    }
    assert!(!members.is_any_refused());
}

/// A server that ends the stream for another reason says nothing about the credential.
#[test]
fn clients_that_are_passed_over_for_another_reason_are_no_row() {
    let mut members = with(&["a", "b", "c", "d"]);
    for _ in 0..3 {
        members.pass_over(at(5_000));
        members.show_next();
    }
    members.refuse(at(6_000));
    assert!(members.are_all_refused() && !members.is_any_refused());
}

#[test]
fn a_client_that_is_refused_with_the_node_that_it_had_is_shown_with_the_one_that_it_has() {
    let mut members = with(&["a"]);
    members.replace(SessionId(0), node("b"));
    members.pass_over(at(5_000));
    assert!(!members.are_all_refused());
    assert!(members.show_next());
    assert_eq!(shown(&members).as_deref(), Some("b"));
}

#[test]
fn where_servers_are_shown_no_client_it_is_the_view_that_they_refuse() {
    assert!(Members::none().is_view_refused());
}

#[test]
fn a_client_that_was_refused_comes_last_and_one_that_is_answered_stays() {
    let mut members = with(&["a", "b", "c"]);
    members.pass_over(at(5_000));
    members.show_next();
    members.accept();
    assert!(!members.show_next(), "b is shown");
    members.leave(SessionId(1), at(6_000));
    members.show_next();
    assert_eq!(shown(&members).as_deref(), Some("c"), "a was refused");
    members.leave(SessionId(2), at(7_000));
    members.show_next();
    assert_eq!(shown(&members).as_deref(), Some("a"), "there is no other");
    members.pass_over(at(8_000));
    assert!(members.are_all_refused() && !members.is_due(), "as long as it is the only one");
    members.accept();
    assert!(!members.are_all_refused());
}

#[test]
fn a_refused_client_that_states_another_node_may_be_taken_with_that() {
    let mut members = with(&["a", "b"]);
    for _ in 0..2 {
        members.pass_over(at(5_000));
        members.show_next();
    }
    members.replace(SessionId(1), node("b2"));
    assert!(members.show_next());
    assert_eq!(shown(&members).as_deref(), Some("b2"));
    members.pass_over(at(6_000));
    assert!(members.are_all_refused() && members.refused.len() == 2);
    (0..2).for_each(|session| members.leave(SessionId(session), at(9_000)));
    members.pass_over(at(9_000));
    assert!(members.refused.is_empty() && !members.is_due());
}

/// Clients that poll come and go. A server that refuses the node of one that has left would otherwise be shown that node for ever.
#[test]
fn any_other_client_will_do_once_a_server_refuses_the_last_one_and_until_it_answers_for_it() {
    let mut members = Members::none();
    assert!(members.needs_a_client(&node("a")));
    members.join(SessionId(0), node("a"), at(0), at(0));
    members.leave(SessionId(0), at(1_000));
    assert!(!members.needs_a_client(&node("b")), "the last one stays");
    for _ in 0..2 {
        members.pass_over(at(2_000));
        assert!(members.needs_a_client(&node("b")) && !members.is_due());
        assert!(!members.needs_a_client(&node("a")), "that is the refused one");
        members.accept();
        assert!(!members.needs_a_client(&node("b")));
    }
    members.pass_over(at(3_000));
    members.join(SessionId(1), node("b"), at(4_000), at(4_000));
    assert!(!members.needs_a_client(&node("c")) && members.show_next());
    assert_eq!(shown(&members).as_deref(), Some("b"));
    members.pass_over(at(5_000));
    members.leave(SessionId(1), at(6_000));
    assert!(members.needs_a_client(&node("a")), "it was refused while it was present");
}

/// A plain model of the rules: the clients in the order in which they came.
#[derive(Default)]
struct Reading {
    present: Vec<(String, Moment, BTreeSet<u64>)>,
    shown: Option<(String, Option<String>)>,
}

impl Reading {
    fn join(&mut self, session: u64, id: &str, since: Moment) {
        match self.present.iter_mut().find(|(of, ..)| of == id) {
            Some((.., sessions)) => _ = sessions.insert(session),
            None => self.present.push((id.into(), since, [session].into())),
        }
        match &mut self.shown {
            None => self.shown = Some((id.into(), Some(id.into()))),
            Some((shown, here @ None)) if shown == id => *here = Some(id.into()),
            Some(_) => {}
        }
    }

    fn of(&self, session: u64) -> Option<(String, Moment)> {
        let of = self.present.iter().find(|(.., sessions)| sessions.contains(&session));
        of.map(|(id, since, _)| (id.clone(), *since))
    }

    /// Removes a stream. Returns the client that has left with it, if one has.
    fn take(&mut self, session: u64) -> Option<String> {
        let at = self.present.iter().position(|(.., sessions)| sessions.contains(&session))?;
        self.present[at].2.remove(&session);
        self.present[at].2.is_empty().then(|| self.present.remove(at).0)
    }

    fn leave(&mut self, session: u64) {
        let left = self.take(session);
        if let Some((_, here)) = self.shown.as_mut().filter(|(_, here)| here.is_some() && *here == left) {
            *here = None;
        }
    }

    fn replace(&mut self, session: u64, id: &str) {
        let Some((_, since)) = self.of(session) else { return };
        let left = self.take(session);
        let is_shown = self.shown.as_ref().is_some_and(|(_, here)| here.is_some() && *here == left);
        match self.present.iter_mut().find(|(of, ..)| of == id) {
            Some((.., sessions)) => _ = sessions.insert(session),
            None => self.present.push((id.into(), since, [session].into())),
        }
        if let Some((_, here)) = self.shown.as_mut().filter(|_| is_shown) {
            *here = Some(id.into());
        }
    }

    fn show_next(&mut self) {
        let Some((shown, here @ None)) = &mut self.shown else { return };
        let longest = self.present.iter().min_by_key(|(_, since, _)| *since); // the first of those that came together
        if let Some((id, ..)) = longest {
            (*shown, *here) = (id.clone(), Some(id.clone()));
        }
    }
}

/// Returns whether the members agree with the plain model over a random history of joins, leaves and changes.
fn agrees(seed: u64) -> bool {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |count: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % count
    };
    let (mut members, mut reading) = (Members::none(), Reading::default());
    for step in 0..60 {
        let (now, session, id) = (at(step / 2), below(12), format!("n{}", below(8)));
        match below(6) {
            0..=1 if reading.of(session).is_none() => {
                members.join(SessionId(session), node(&id), now, now);
                reading.join(session, &id, now);
            }
            2..=3 => {
                members.leave(SessionId(session), now);
                reading.leave(session);
            }
            4 => {
                members.replace(SessionId(session), node(&id));
                reading.replace(session, &id);
            }
            _ => {
                members.show_next();
                reading.show_next();
            }
        }
        let here = members.shown_member().map(|member| id_of(member.node()));
        let seen = members.shown().map(|node| (id_of(node), here));
        let present: BTreeSet<_> =
            members.present().map(|member| (id_of(member.node()), member.sessions.len())).collect();
        let expected = reading.present.iter().map(|(id, _, sessions)| (id.clone(), sessions.len())).collect();
        if seen != reading.shown || present != expected {
            return false;
        }
    }
    true
}

#[test]
fn random_histories_agree_with_a_plain_reading() {
    assert_eq!((0..200).find(|seed| !agrees(*seed)), None);
}
