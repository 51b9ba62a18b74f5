//! Single rules of the protocol on the pure model, each test named by the rule that it shows.

mod support;

use support::{Bench, CDS, EDS, LDS, RDS, refusal};
use weir::proto::Request;
use weir::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator};
use weir::protocol::session::{Answer, Client, Variant};
use weir::protocol::unit::Fact;

const THREE: [(&str, &str); 3] = [("a", "1"), ("b", "1"), ("c", "1")];

/// A unit that knows three clusters and three endpoints, to `*` and by name, and keeps knowing them.
fn warm() -> Bench {
    let mut bench = Bench::new();
    let keeper = bench.client(Variant::Delta);
    for url in [CDS, LDS, EDS, RDS] {
        bench.delta(keeper, url, &["*", "a", "b", "c"], &[]);
        bench.set(url, &THREE);
        bench.whole(url, &THREE);
    }
    bench.said(keeper);
    bench
}

#[test]
fn sotw_38_the_doc_sequence_of_wildcards() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    assert_eq!(bench.said(client), ["C a,b,c"], "[] is everything");
    bench.sotw(client, CDS, &["*", "a"], "1");
    assert_eq!(bench.said(client), ["C a,b,c"], "[*, a] is everything, and a was asked for");
    bench.sotw(client, CDS, &["a"], "2");
    assert_eq!(bench.said(client), ["C a"], "[a] is a");
    bench.sotw(client, CDS, &[], "3");
    assert_eq!(bench.said(client), [""; 0], "[] is nothing now");
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), [""; 0], "SOTW-43");
}

#[test]
fn delta_18_the_doc_sequence_of_wildcards() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &[], &[]);
    assert_eq!(bench.said(client), ["C a,b,c"]);
    bench.delta(client, CDS, &["a"], &[]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.set(CDS, &[("b", "2")]);
    assert_eq!(bench.said(client), ["C b"], "the wildcard is still there");
    bench.delta(client, CDS, &[], &["*"]);
    bench.set(CDS, &[("a", "3"), ("b", "3")]);
    assert_eq!(bench.said(client), ["C a"], "only the name is left");
    bench.delta(client, CDS, &[], &["a"]);
    bench.set(CDS, &[("a", "4"), ("b", "4")]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_20_everything_asked_for_and_left_in_one_breath_is_nothing() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &["*"]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn sotw_39_and_sotw_40_an_empty_list_is_everything_only_where_that_is_the_custom() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &[], "");
    assert_eq!(bench.said(client), [""; 0], "not for endpoints");
    let grpc = bench.add(Client { grpc: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(grpc, LDS, &[], "");
    assert_eq!(bench.said(grpc), [""; 0], "not for gRPC");
}

#[test]
fn wire_14_locators_are_names() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    let locator = ResourceLocator { name: "a".into(), ..Default::default() };
    let request = DiscoveryRequest { type_url: CDS.into(), resource_locators: vec![locator], ..Default::default() };
    bench.request(client, Request::Sotw(request));
    assert_eq!(bench.said(client), ["C a"]);
}

#[test]
fn sotw_2_a_nonce_from_another_stream_is_no_answer() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "77");
    assert_eq!(bench.said(client), ["C a,b,c"]);
}

#[test]
fn sotw_26_and_sotw_28_an_added_name_is_answered_also_when_it_was_told_before() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a", "b"], "");
    assert_eq!(bench.said(client), ["C a,b"]);
    bench.sotw(client, EDS, &["a"], "1");
    assert_eq!(bench.said(client), [""; 0]);
    bench.sotw(client, EDS, &["a", "b"], "1");
    assert_eq!(bench.said(client), ["C b"]);
}

#[test]
fn sotw_45_a_stale_request_still_carries_its_names() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a"], "");
    bench.said(client);
    bench.later(600);
    bench.set(EDS, &[("a", "2")]);
    bench.said(client);
    bench.sotw(client, EDS, &["a", "b"], "1");
    assert_eq!(bench.said(client), ["C b"], "nonce 1 is old, and b is new");
    bench.sotw(client, EDS, &["a", "b"], "2");
    assert_eq!(bench.said(client), [""; 0], "b is served exactly once");
}

#[test]
fn sotw_46_a_change_waits_for_the_answer_to_the_last_and_not_for_ever() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    bench.said(client);
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), [""; 0], "the first reply is still out");
    bench.set(LDS, &[("a", "2")]);
    bench.sotw(client, EDS, &["a"], "");
    assert_eq!(bench.said(client), ["C a"], "an answer to a question waits for nothing (SOTW-16)");
    bench.later(500);
    assert_eq!(bench.said(client), ["C a,b,c"], "superseded");
    bench.later(100);
    assert_eq!(bench.said(client), ["C a"], "its endpoints, though neither reply was answered");
}

#[test]
fn sotw_12_and_sotw_14_a_refusal_is_an_error_detail_and_is_not_argued_with() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    bench.said(client);
    let nack = DiscoveryRequest {
        type_url: CDS.into(),
        response_nonce: "1".into(),
        version_info: "the new one, or any".into(),
        error_detail: refusal(3),
        ..Default::default()
    };
    let now = bench.now;
    let answer = bench.sessions.get_mut(&client).unwrap().on_request(Request::Sotw(nack), now);
    assert_eq!(answer, Some(Answer::Nack { nonce: 1, stale: false }));
    bench.later(60_000);
    assert_eq!(bench.said(client), [""; 0], "the same content is not sent again");
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), ["C a,b,c"], "a change is (SOTW-15)");
}

#[test]
fn delta_6_a_refused_resource_comes_again_only_when_asked_for() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["a"], &[]);
    bench.said(client);
    let nack = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        response_nonce: "1".into(),
        error_detail: refusal(13),
        ..Default::default()
    };
    bench.request(client, Request::Delta(nack));
    bench.later(60_000);
    assert_eq!(bench.said(client), [""; 0]);
    bench.delta(client, CDS, &["a"], &[]);
    assert_eq!(bench.said(client), ["C a"], "DELTA-10");
}

#[test]
fn delta_3_a_subscription_counts_whatever_its_nonce() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    let request = DeltaDiscoveryRequest {
        type_url: EDS.into(),
        resource_names_subscribe: vec!["b".into()],
        response_nonce: "bogus".into(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
    assert_eq!(bench.said(client), ["C b"]);
}

#[test]
fn sotw_21_and_sotw_22_a_removal_is_a_complete_set_without_it_down_to_the_empty_one() {
    let mut bench = warm();
    let (named, everything) = (bench.client(Variant::Sotw), bench.client(Variant::Sotw));
    bench.sotw(named, LDS, &["a", "b"], "");
    bench.sotw(everything, LDS, &[], "");
    assert_eq!((bench.said(named), bench.said(everything)), (vec!["L a,b".to_owned()], vec!["L a,b,c".to_owned()]));
    for (number, name) in ["b", "a", "c"].into_iter().enumerate() {
        bench.later(600);
        bench.remove(LDS, name);
        let left = ["L a,c", "L c", "L "][number];
        assert_eq!(bench.said(everything), [left]);
    }
    assert_eq!(bench.said(named), ["L "], "two removals that were pending together");
}

#[test]
fn sotw_23_and_delta_21_an_empty_set_is_answered() {
    let mut bench = Bench::new();
    let (sotw, delta) = (bench.client(Variant::Sotw), bench.client(Variant::Delta));
    bench.sotw(sotw, LDS, &[], "");
    bench.delta(delta, LDS, &[], &[]);
    assert_eq!((bench.said(sotw), bench.said(delta)), (vec![], vec![]), "SOTW-7: nothing is known yet");
    bench.whole(LDS, &[]);
    assert_eq!((bench.said(sotw), bench.said(delta)), (vec!["L ".to_owned()], vec!["L ".to_owned()]));
    assert_eq!((bench.said(sotw), bench.said(delta)), (vec![], vec![]), "once");
}

#[test]
fn sotw_25_and_sotw_55_what_does_not_exist_is_silence_in_a_partial_type() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a", "missing"], "");
    assert_eq!(bench.said(client), ["C a"], "ORD-10: what is there is not kept back");
    let gone = Fact::Gone { kind: bench.kind(EDS), class: weir::protocol::unit::Class::Named, key: "missing".into() };
    bench.apply(vec![gone]);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(600);
    bench.set(EDS, &[("missing", "1")]);
    assert_eq!(bench.said(client), ["C missing"], "SOTW-29");
}

#[test]
fn delta_30_delta_31_and_delta_32_absence_is_told_on_evidence_and_is_not_final() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["missing"], &[]);
    bench.later(100_000);
    assert_eq!(bench.said(client), [""; 0], "unknown is not absent");
    bench.remove(EDS, "missing");
    assert_eq!(bench.said(client), ["C  -missing"]);
    bench.set(EDS, &[("missing", "1")]);
    assert_eq!(bench.said(client), ["C missing"]);
}

#[test]
fn delta_24_a_name_left_under_the_wildcard_is_answered_with_what_the_wildcard_shows() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*", "a", "z"], &[]);
    bench.remove(CDS, "z");
    bench.said(client);
    bench.delta(client, CDS, &[], &["a"]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.delta(client, CDS, &[], &["z"]);
    assert_eq!(bench.said(client), ["C  -z"]);
}

#[test]
fn delta_11_a_name_is_answered_though_the_client_says_it_has_it() {
    let mut bench = warm();
    let (probe, client) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(probe, EDS, &["a"], &[]);
    let version = bench.poll(probe).unwrap().resources[0].full.to_string();
    let come_back = |url: &str, names: &[&str]| {
        Request::Delta(DeltaDiscoveryRequest {
            type_url: url.into(),
            resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
            initial_resource_versions: [("a".to_owned(), version.clone())].into(),
            ..Default::default()
        })
    };
    bench.request(client, come_back(EDS, &["a"]));
    assert_eq!(bench.said(client), ["C a"]);
}

#[test]
fn delta_13_and_delta_15_what_is_gone_since_is_removed_and_what_is_not_asked_for_is_ignored() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    let stated = [("a", "x"), ("old", "x")].map(|(name, version)| (name.to_owned(), version.to_owned()));
    let request = |names: &[&str]| {
        Request::Delta(DeltaDiscoveryRequest {
            type_url: CDS.into(),
            resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
            initial_resource_versions: stated.clone().into(),
            ..Default::default()
        })
    };
    bench.request(client, request(&["*"]));
    assert_eq!(bench.said(client), ["C a,b,c", "C  -old"]);
    let named = bench.client(Variant::Delta);
    bench.request(named, request(&["a"]));
    assert_eq!(bench.said(named), ["C a"], "nothing is said of old");
}

#[test]
fn sotw_33_and_delta_45_endpoints_follow_a_changed_cluster_though_they_did_not_change() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = warm();
        let client = bench.client(variant);
        match variant {
            Variant::Sotw => {
                bench.sotw(client, CDS, &[], "");
                bench.sotw(client, EDS, &["a", "b"], "");
            }
            Variant::Delta => {
                bench.delta(client, CDS, &[], &[]);
                bench.delta(client, EDS, &["a", "b"], &[]);
            }
        }
        assert_eq!(bench.said(client), ["C a,b,c", "C a,b"]);
        bench.later(1_000);
        bench.set(CDS, &[("a", "2")]);
        let clusters = if variant == Variant::Sotw { "C a,b,c" } else { "C a" };
        assert_eq!(bench.said(client), [clusters], "a change of the endpoints may have come with it");
        bench.later(100);
        assert_eq!(bench.said(client), ["C a"], "no ACK has come, and none is waited for");
        bench.later(100_000);
        assert_eq!(bench.said(client), [""; 0], "once (SOTW-34)");
    }
}

#[test]
fn i7_grpc_is_not_sent_endpoints_again() {
    let mut bench = warm();
    let client = bench.add(Client { grpc: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, CDS, &["a"], "");
    bench.sotw(client, EDS, &["a"], "");
    bench.said(client);
    bench.later(1_000);
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.later(100_000);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn the_hold_keeps_a_route_until_the_endpoints_are_sent_or_the_client_answers_or_two_seconds_are_over() {
    let prepare = || {
        let mut bench = warm();
        let client = bench.client(Variant::Delta);
        bench.delta(client, CDS, &[], &[]);
        bench.delta(client, RDS, &["a"], &[]);
        bench.delta(client, EDS, &["a"], &[]);
        bench.said(client);
        bench.later(1_000);
        bench.set(CDS, &[("new", "1")]);
        bench.set(RDS, &[("a", "to new")]);
        assert_eq!(bench.said(client), ["C new"], "the route is held");
        (bench, client)
    };
    let (mut bench, client) = prepare();
    bench.delta(client, EDS, &["new"], &[]);
    bench.set(EDS, &[("new", "1")]);
    assert_eq!(bench.said(client), ["C new", "R a"], "endpoints, then the route");

    let (mut bench, client) = prepare();
    let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce: "4".into(), ..Default::default() };
    bench.request(client, Request::Delta(ack));
    assert_eq!(bench.said(client), ["R a"]);

    let (mut bench, client) = prepare();
    bench.later(1_999);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["R a"]);
}

#[test]
fn ord_9_endpoints_do_not_wait_for_clusters_to_be_asked_for() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["c"], "");
    assert_eq!(bench.said(client), ["C c"]);
}

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
}

#[test]
fn endpoints_of_a_new_cluster_are_asked_for_before_any_client_does() {
    let mut bench = warm();
    bench.asked_upstream();
    bench.set(CDS, &[("new", "1")]);
    assert_eq!(bench.asked_upstream(), ["+new"]);
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), ["-new"], "and nobody came for them");
}

#[test]
fn sotw_57_a_client_that_stopped_reading_delays_nobody_and_gets_the_newest_at_last() {
    let mut bench = warm();
    let (stalled, reader) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    for id in [stalled, reader] {
        bench.delta(id, CDS, &[], &[]);
        bench.said(id);
    }
    for round in 0..1_000 {
        bench.set(CDS, &[("a", &round.to_string())]);
        bench.later(10);
        assert_eq!(bench.said(reader), ["C a"]);
    }
    let reply = bench.poll(stalled).unwrap();
    assert_eq!(reply.resources.len(), 1);
    assert!(reply.resources[0].body.bytes().ends_with(b"999"));
    assert!(bench.poll(stalled).is_none());
}

#[test]
fn delta_48_a_large_answer_comes_in_pieces_and_none_is_lost_between_them() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    let content = "x".repeat(120);
    let names: Vec<_> = (0..30_000).map(|number| format!("c{number}")).collect();
    let set: Vec<_> = names.iter().map(|name| (name.as_str(), content.as_str())).collect();
    bench.whole(CDS, &set);
    let mut sizes = Vec::new();
    while let Some(reply) = bench.poll(client) {
        sizes.push(reply.resources.len());
        // The set changes under it; what comes later in the journal is still told.
        bench.set(CDS, &[(&names[29_999], &sizes.len().to_string())]);
        if sizes.len() > 20 {
            break;
        }
    }
    assert!(sizes.len() > 2 && sizes.iter().sum::<usize>() >= 30_000, "{sizes:?}");
}

#[test]
fn trn_6_a_request_without_a_type_ends_the_stream_with_a_reason() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.request(client, Request::Sotw(DiscoveryRequest::default()));
    let state = bench.unit.state().clone();
    let step = bench.sessions.get_mut(&client).unwrap().poll(&state, &mut bench.leases, bench.now);
    assert!(matches!(step, weir::protocol::session::Step::End(_)));
}

#[test]
fn trn_3_a_delta_only_type_asked_for_in_sotw_is_left_unanswered() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, "type.googleapis.com/envoy.config.route.v3.VirtualHost", &["a"], "");
    bench.sotw(client, CDS, &[], "");
    assert_eq!(bench.said(client), ["C a,b,c"]);
}

#[test]
fn a_client_that_came_with_a_version_for_a_name_that_is_gone_gets_it_when_it_is_back() {
    let mut bench = Bench::new();
    let keeper = bench.client(Variant::Delta);
    bench.delta(keeper, LDS, &["a"], &[]);
    bench.remove(LDS, "a");
    let client = bench.client(Variant::Sotw);
    let request = DiscoveryRequest {
        type_url: LDS.into(),
        version_info: "7".into(),
        resource_names: vec!["a".into()],
        ..Default::default()
    };
    bench.request(client, Request::Sotw(request));
    assert!(bench.poll(client).is_some_and(|reply| reply.resources.is_empty()));
    bench.set(LDS, &[("a", "1")]);
    bench.later(1_000);
    assert_eq!(bench.said(client), ["L a"]);
}

#[test]
fn i10_a_client_that_asks_for_ever_new_types_is_ended() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    (0..65).for_each(|number| bench.delta(client, &format!("example.org/type.{number}"), &["a"], &[]));
    let state = bench.unit.state().clone();
    let step = bench.sessions.get_mut(&client).unwrap().poll(&state, &mut bench.leases, bench.now);
    assert!(matches!(step, weir::protocol::session::Step::End(_)));
}
