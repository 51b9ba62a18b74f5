//! Translation between the two sides: existence, versions, interest.

use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Resource as Wrapper};
use weir_core::proto::{Any, Request};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, CloseReason, Step, Variant};
use weir_core::protocol::set_mark::SetMark;
use weir_core::protocol::view::SessionId;
use weir_core::xds::Authority;

use super::support::{Bench, CDS, EDS, Extent, LDS, Set, nack, text_of};
use super::warm;

#[test]
fn xlat_10_a_whole_set_with_one_change_is_one_resource_and_a_missing_one_is_one_removal() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    let names: Vec<_> = (0..1_000).map(|number| format!("c{number}")).collect();
    let mut set: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.whole(CDS, &set);
    bench.said(client);
    set[500].1 = "2";
    set.remove(7);
    bench.whole(CDS, &set);
    assert_eq!(bench.said(client), ["C c500", "C  -c7"]);
    bench.whole(CDS, &set);
    assert_eq!(bench.said(client), [""; 0], "XLAT-3: the same again is nothing");
}

#[test]
fn xlat_30_xlat_31_the_first_asks_upstream_and_the_last_lingers() {
    let mut bench = Bench::new();
    let (one, two) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(one, EDS, &["x"], &[]);
    assert_eq!(bench.asked_upstream(), ["+x"]);
    bench.delta(two, EDS, &["x"], &[]);
    bench.delta(one, EDS, &[], &["x"]);
    bench.delta(two, EDS, &[], &["x"]);
    bench.later(29_000);
    bench.delta(one, EDS, &["x"], &[]);
    bench.later(60_000);
    assert_eq!(bench.asked_upstream(), [""; 0], "leaving and coming back is nobody else's business");
    bench.delta(one, EDS, &[], &["x"]);
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), ["-x"]);
}

#[test]
fn xlat_31_a_name_that_is_known_to_be_absent_does_not_linger() {
    let mut bench = Bench::new();
    let (one, two) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(one, EDS, &["absent", "unknown", "here"], &[]);
    bench.delta(two, EDS, &["absent"], &[]);
    bench.remove(EDS, "absent");
    bench.remove(EDS, "absent");
    bench.set(EDS, &[("here", "1")]);
    bench.asked_upstream();
    bench.later(0);
    assert_eq!(bench.asked_upstream(), [""; 0], "it is reported again, and clients subscribe to it");
    bench.delta(one, EDS, &[], &["absent", "unknown", "here"]);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), [""; 0], "another client subscribes to it");
    bench.delta(two, EDS, &[], &["absent"]);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), ["-absent"]);
    bench.remove(EDS, "unknown");
    bench.later(0);
    assert_eq!(bench.asked_upstream(), ["-unknown"], "it became known while it lingered");
    bench.remove(EDS, "here");
    bench.later(0);
    assert_eq!(bench.asked_upstream(), ["-here"]);
}

#[test]
fn xlat_31_what_a_client_had_subscribed_to_when_its_stream_ended_lingers_though_it_is_absent() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["absent", "unknown"], &[]);
    bench.remove(EDS, "absent");
    bench.leave(client);
    bench.remove(EDS, "unknown");
    bench.asked_upstream();
    bench.later(29_000);
    let again = bench.client(Variant::Delta);
    bench.delta(again, EDS, &["absent", "unknown"], &[]);
    assert_eq!(bench.said(again), ["C  -absent,unknown"], "it reconnects, or polls again, and is answered at once");
    assert_eq!(bench.asked_upstream(), [""; 0]);
    bench.leave(again);
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), ["-absent", "-unknown"]);
}

#[test]
fn xlat_31_endpoints_of_a_removed_cluster_do_not_linger() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let (client, gone) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    for id in [client, gone] {
        bench.delta(id, CDS, &[], &[]);
        bench.delta(id, EDS, &["a", "b"], &[]);
    }
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    bench.set(EDS, &[("a", "1"), ("b", "1")]);
    bench.said(client);
    bench.asked_upstream();
    bench.delta(client, EDS, &[], &["a"]);
    bench.leave(gone);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), [""; 0], "their cluster is there, and some client may be back");
    bench.whole(CDS, &[("b", "1")]);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), [""; 0], "the order lets the cluster stay until the server is quiet");
    bench.later(1_000);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), ["-a"], "nobody subscribes to these, and the cluster is gone");
    bench.whole(CDS, &[("c", "1")]);
    bench.later(1_000);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), ["+c"], "a client subscribes to those of the other");
    bench.delta(client, EDS, &[], &["b"]);
    bench.later(0);
    assert_eq!(
        bench.asked_upstream(),
        ["-b"],
        "a server may be silent for as long as it is asked for what it has removed"
    );
}

#[test]
fn xlat_31_endpoints_linger_where_clusters_are_not_known_or_another_takes_them() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a", "shared"], &[]);
    bench.set(EDS, &[("a", "1"), ("shared", "1")]);
    bench.asked_upstream();
    bench.delta(client, EDS, &[], &["a"]);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), [""; 0], "its clusters may come from somewhere else");
    bench.delta(client, EDS, &["a"], &[]);
    bench.delta(client, CDS, &[], &[]);
    for count in [2, 1] {
        bench.whole_of(CDS, ["one", "two"][..count].iter().map(|name| takes(name, "shared")));
    }
    bench.later(1_000);
    bench.asked_upstream();
    bench.delta(client, EDS, &[], &["shared"]);
    bench.later(0);
    assert_eq!(bench.asked_upstream(), [""; 0], "the other cluster takes them");
}

/// Returns a cluster whose endpoints have another name.
pub(super) fn takes(name: &str, endpoints: &str) -> Wrapper {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    let config = [&[0x0a, 2, 0x1a, 0, 0x12, length(endpoints)], endpoints.as_bytes()].concat();
    let (head, middle) = ([0x0a, length(name)], [0x1a, u8::try_from(config.len()).unwrap()]);
    let body = [&head, name.as_bytes(), &middle, &config].concat();
    let resource = Some(Any { type_url: CDS.into(), value: body.into() });
    Wrapper { name: name.into(), resource, ..Default::default() }
}

#[test]
fn xlat_19_what_was_dropped_is_not_served_from_memory() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["x"], &[]);
    bench.set(EDS, &[("x", "old")]);
    bench.said(client);
    bench.delta(client, EDS, &[], &["x"]);
    bench.later(30_000);
    bench.delta(client, EDS, &["x"], &[]);
    assert_eq!(bench.said(client), [""; 0], "what it was then may not be what it is");
    bench.set(EDS, &[("x", "new")]);
    assert_eq!(bench.said(client), ["C x"]);
    bench.delta(client, CDS, &["*"], &[]);
    bench.whole(CDS, &[("old", "1")]);
    assert_eq!(bench.said(client), ["C old"]);
    bench.delta(client, CDS, &[], &["*"]);
    bench.later(30_000);
    bench.delta(client, CDS, &["*"], &[]);
    assert_eq!(bench.said(client), [""; 0], "nor the set that it was");
    bench.whole(CDS, &[("new", "1")]);
    assert_eq!(bench.said(client), ["C new"]);
}

#[test]
fn endpoints_of_a_new_cluster_are_requested_before_any_client_does() {
    let mut bench = warm();
    bench.asked_upstream();
    bench.set(CDS, &[("new", "1")]);
    assert_eq!(bench.asked_upstream(), ["+new"]);
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), ["-new"], "and nobody came for them");
}

#[test]
fn xlat_11_one_change_of_a_thousand_is_a_thousand_in_the_state_of_the_world() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    let names: Vec<_> = (0..1_000).map(|number| format!("c{number}")).collect();
    let set: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.whole(CDS, &set);
    assert_eq!(bench.poll(client).unwrap().resources.len(), 1_000);
    bench.sotw(client, CDS, &[], "1");
    bench.gives(CDS, Set::All, &[("c500", "2")]);
    assert_eq!(bench.poll(client).unwrap().resources.len(), 1_000);
}

#[test]
fn xlat_12_a_set_that_comes_in_pieces_is_sent_when_it_has_been_quiet() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    for name in ["a", "b", "c"] {
        bench.piece(CDS, name, Extent::Arriving);
        bench.later(100);
        assert_eq!(bench.said(client), [""; 0]);
    }
    bench.reaches(CDS, Set::All, Extent::Settled);
    assert_eq!(bench.said(client), ["C a,b,c"]);
}

#[test]
fn xlat_12_a_client_without_state_is_given_the_first_response_at_once() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    bench.piece(CDS, "a", Extent::First);
    assert!(!bench.said(client).is_empty());
}

#[test]
fn xlat_12_a_set_that_was_cut_off_is_not_whole_by_waiting() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    bench.piece(CDS, "a", Extent::Arriving);
    bench.cut(CDS, Set::All);
    bench.later(100_000);
    assert_eq!(bench.said(client), [""; 0], "the rest was on its way");
    bench.piece(CDS, "b", Extent::Arriving);
    bench.reaches(CDS, Set::All, Extent::Settled);
    assert_eq!(bench.said(client), ["C a,b"]);
}

#[test]
fn xlat_13_what_was_said_to_a_name_is_not_seen_by_the_wildcard() {
    let mut bench = Bench::new();
    let (named, everything) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(named, CDS, &["a", "b"], &[]);
    bench.delta(everything, CDS, &["*"], &[]);
    bench.whole(CDS, &[("b", "1")]);
    bench.give(CDS, "a", "1", |_| {});
    assert_eq!(bench.said(named), ["C a"], "and what was said to the wildcard is no answer to b");
    assert_eq!(bench.said(everything), ["C b"]);
}

#[test]
fn xlat_16_no_evidence_no_absence() {
    let mut bench = warm();
    let (delta, sotw) = (bench.client(Variant::Delta), bench.client(Variant::Sotw));
    bench.delta(delta, EDS, &["a", "new"], &[]);
    bench.sotw(sotw, CDS, &["a", "b", "c"], "");
    let everything = [Variant::Sotw, Variant::Delta].map(|variant| bench.client(variant));
    bench.sotw(everything[0], CDS, &[], "");
    bench.delta(everything[1], CDS, &["*"], &[]);
    for id in [delta, sotw].into_iter().chain(everything) {
        bench.said(id);
    }
    bench.view.on_source([Authority::TopLevel].into(), true); // unreachable
    bench.cut(CDS, Set::All); // the stream closed
    for code in [14, 13, 2] {
        bench.fails(EDS, "new", code); // a transient error
        bench.fails(CDS, "a", code);
    }
    bench.later(100_000);
    for id in [delta, sotw].into_iter().chain(everything) {
        assert_eq!(bench.said(id), [""; 0]);
    }
}

#[test]
fn xlat_18_absence_is_remembered_for_who_comes_later_and_ends_with_the_last_interest() {
    let mut bench = Bench::new();
    let (one, two) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(one, EDS, &["x"], &[]);
    bench.remove(EDS, "x");
    bench.delta(two, EDS, &["x"], &[]);
    assert_eq!((bench.said(one), bench.said(two)), (vec!["C  -x".into()], vec!["C  -x".into()]));
    bench.delta(one, EDS, &[], &["x"]);
    bench.delta(two, EDS, &[], &["x"]);
    bench.later(30_000);
    let three = bench.client(Variant::Delta);
    bench.delta(three, EDS, &["x"], &[]);
    assert_eq!(bench.said(three), [""; 0], "nobody has asked upstream since");
}

#[test]
fn xlat_37_a_part_that_is_still_cold_is_not_left_out_for_who_holds_something() {
    let mut bench = Bench::new();
    let (fresh, holding) = (bench.client(Variant::Sotw), bench.client(Variant::Sotw));
    bench.sotw(fresh, LDS, &["a", "b"], "");
    let come_back = DiscoveryRequest {
        type_url: LDS.into(),
        version_info: "7".into(),
        resource_names: vec!["a".into(), "b".into()],
        ..Default::default()
    };
    bench.request(holding, Request::Sotw(come_back));
    bench.set(LDS, &[("a", "1")]);
    assert_eq!(bench.said(fresh), ["L a"]);
    bench.later(100_000);
    assert_eq!(bench.said(holding), [""; 0], "b may be what it holds");
    bench.set(LDS, &[("b", "1")]);
    assert_eq!(bench.said(holding), ["L a,b"]);
}

#[test]
fn xlat_33_one_clients_nack_affects_no_other_client() {
    let mut bench = warm();
    let (refusing, other) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    for id in [refusing, other] {
        bench.delta(id, CDS, &["a"], &[]);
        bench.said(id);
    }
    let nack = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        response_nonce: "1".into(),
        error_detail: nack(13),
        ..Default::default()
    };
    bench.request(refusing, Request::Delta(nack));
    bench.set(CDS, &[("a", "2")]);
    assert_eq!((bench.said(refusing), bench.said(other)), (vec!["C a".into()], vec!["C a".into()]));
}

#[test]
fn a_change_is_not_lost_when_a_server_goes_in_the_same_breath() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a"], &[]);
    bench.said(client);
    bench.publishes = false;
    bench.gives(EDS, Set::Names, &[("a", "2")]);
    bench.view.on_source([Authority::TopLevel].into(), true);
    bench.publish();
    assert_eq!(bench.said(client), ["C a"]);
}

#[test]
fn xlat_19_a_client_that_was_sent_a_forgotten_set_starts_over() {
    let mut bench = Bench::new();
    let first = bench.client(Variant::Delta);
    bench.delta(first, CDS, &["*"], &[]);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    bench.said(first);
    bench.delta(first, CDS, &[], &["*"]);
    let late = bench.client(Variant::Delta);
    let wish = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_names_subscribe: vec!["*".into()],
        ..Default::default()
    };
    let wish = bench.hear(late, Request::Delta(wish));
    assert_eq!(bench.said(late), ["C a,b"], "nobody wants it any more, and it is still there");
    bench.later(30_000);
    bench.count(late, wish);
    bench.whole(CDS, &[("a", "1")]);
    assert!(matches!(bench.step(late), Step::End(CloseReason::HistoryExpired)), "nobody could tell it that b is gone");
}

/// Returns what a relay downstream is sent, each reply with its completeness mark.
fn marked(bench: &mut Bench, id: SessionId) -> Vec<(String, Option<SetMark>)> {
    std::iter::from_fn(|| bench.poll(id)).map(|reply| (text_of(&reply), reply.set_mark)).collect()
}

fn relay(variant: Variant) -> Client {
    Client { relay: true, ..Client::plain(variant) }
}

#[test]
fn xlat_12_a_relay_is_sent_a_mark_when_it_has_all_of_a_set_and_when_that_is_open_again() {
    let mut bench = Bench::new();
    let (one, other) = (bench.add(relay(Variant::Delta)), bench.client(Variant::Delta));
    bench.delta(one, CDS, &["*"], &[]);
    bench.delta(other, CDS, &["*"], &[]);
    bench.piece(CDS, "a", Extent::First);
    assert_eq!(marked(&mut bench, one), [("C a".into(), Some(SetMark::Partial))]);
    bench.reaches(CDS, Set::All, Extent::Settled);
    assert_eq!(marked(&mut bench, one), [], "a pause is no end");
    bench.reaches(CDS, Set::All, Extent::Complete);
    assert_eq!(marked(&mut bench, one), [("C ".into(), Some(SetMark::Complete))]);
    bench.set(CDS, &[("b", "1")]);
    assert_eq!(marked(&mut bench, one), [("C b".into(), Some(SetMark::Complete))], "a change of it is a change of all");
    bench.cut(CDS, Set::All);
    assert_eq!(marked(&mut bench, one), [("C ".into(), Some(SetMark::Partial))]);
    assert_eq!(marked(&mut bench, other), [("C a,b".into(), None)], "nobody else is told so");
}

#[test]
fn xlat_12_a_relay_that_comes_to_a_complete_set_has_all_once_it_has_what_there_was_to_say() {
    let mut bench = warm();
    let one = bench.add(relay(Variant::Delta));
    let stated = [("gone".to_owned(), "1".to_owned())].into();
    let request = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_names_subscribe: vec!["*".into()],
        initial_resource_versions: stated,
        ..Default::default()
    };
    bench.request(one, Request::Delta(request));
    let said = marked(&mut bench, one);
    let marks: Vec<_> = said.iter().map(|(_, mark)| mark.unwrap()).collect();
    let (last, earlier) = marks.split_last().unwrap();
    assert!(*last == SetMark::Complete && earlier.iter().all(|mark| *mark == SetMark::Partial), "{said:?}");
    assert!(said[..said.len() - 1].iter().any(|(text, _)| text.contains("-gone")), "{said:?}");
}

#[test]
fn xlat_12_a_relay_that_is_sent_an_empty_set_knows_by_one_response_that_it_is_so() {
    let mut bench = Bench::new();
    let one = bench.add(relay(Variant::Delta));
    bench.delta(one, CDS, &["*"], &[]);
    bench.whole(CDS, &[]);
    assert_eq!(marked(&mut bench, one), [("C ".into(), Some(SetMark::Complete))]);
}

#[test]
fn xlat_12_a_relay_in_the_state_of_the_world_is_given_no_part_of_a_set() {
    let mut bench = Bench::new();
    let (one, other) = (bench.add(relay(Variant::Sotw)), bench.client(Variant::Sotw));
    bench.sotw(one, CDS, &[], "");
    bench.sotw(other, CDS, &[], "");
    bench.piece(CDS, "a", Extent::Settled);
    assert_eq!(bench.said(other), ["C a"], "which holds nothing");
    assert_eq!(bench.said(one), [""; 0], "its clients may hold more");
    assert_eq!(bench.sought(), ["*"], "the control plane is asked whether there is more");
    assert!(bench.view.sought().has_set(&bench.kind(CDS)));
    bench.reaches(CDS, Set::All, Extent::Complete);
    assert!(!bench.view.sought().has_set(&bench.kind(CDS)), "until there is none");
    assert_eq!(bench.said(one), ["C a"]);
}

#[test]
fn xlat_12_a_set_whose_replies_remove_nothing_is_not_requested_again() {
    let url = "type.googleapis.com/own.Type";
    let mut bench = Bench::new();
    let one = bench.add(relay(Variant::Sotw));
    bench.sotw(one, url, &["*"], "");
    bench.piece(url, "a", Extent::Settled);
    bench.said(one);
    assert_eq!(bench.sought(), [""; 0]);
}

#[test]
fn xlat_12_what_a_client_may_hold_of_a_set_is_requested_no_longer_once_the_set_is_wanted_by_none() {
    let mut bench = Bench::new();
    let one = bench.add(relay(Variant::Sotw));
    bench.sotw(one, CDS, &[], "");
    bench.reaches(CDS, Set::All, Extent::Settled);
    bench.said(one);
    let kind = bench.kind(CDS);
    assert!(bench.view.sought().has_set(&kind));
    bench.leave(one);
    bench.later(3_600_000);
    assert!(!bench.view.sought().has_set(&kind));
}

#[test]
fn xlat_12_a_relay_that_subscribes_to_a_set_again_has_all_of_it_only_once_it_was_sent_again() {
    let mut bench = Bench::new();
    let one = bench.add(relay(Variant::Delta));
    bench.delta(one, CDS, &["*"], &[]);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    let all = [("C a,b".to_owned(), Some(SetMark::Partial)), ("C ".to_owned(), Some(SetMark::Complete))];
    assert_eq!(marked(&mut bench, one), all);
    bench.delta(one, CDS, &["*"], &[]);
    assert_eq!(marked(&mut bench, one), all);
}
