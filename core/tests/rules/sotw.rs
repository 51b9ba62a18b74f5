//! The relay as a server of the state of the world.

use prost::Message;
use weir_core::proto::Request;
use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::proto::node::Node;
use weir_core::protocol::session::{Ack, Client, Variant};

use super::support::{Bench, CDS, EDS, LDS, Set, nack};
use super::warm;

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
fn sotw_39_and_sotw_40_an_empty_list_is_everything_only_where_that_is_the_custom() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &[], "");
    assert_eq!(bench.said(client), [""; 0], "not for endpoints");
    for agent in ["gRPC Go", "gRPC C-core", "grpc-java"] {
        let grpc = bench.add(of_node(agent, &[]));
        bench.sotw(grpc, LDS, &[], "");
        assert_eq!(bench.said(grpc), [""; 0], "not for {agent}");
    }
    let envoy = bench.add(of_node("envoy", &[]));
    bench.sotw(envoy, LDS, &[], "");
    assert_eq!(bench.said(envoy), ["L a,b,c"]);
}

fn of_node(agent: &str, features: &[&str]) -> Client {
    let client_features = features.iter().map(ToString::to_string).collect();
    let node = Node { user_agent_name: agent.into(), client_features, ..Node::default() };
    Client::of_node(&node.encode_to_vec(), Variant::Sotw, None)
}

#[test]
fn sotw_48_and_sotw_50_a_client_that_reads_wrappers_need_not_run_ttls() {
    for feature in
        ["xds.config.resource-in-sotw", "xds.config.supports-resource-in-sotw", "envoy.config.resource-in-sotw"]
    {
        let client = of_node("gRPC Go", &[feature]);
        assert!(client.wrappers && !client.ttl, "{feature}");
    }
    for feature in ["xds.config.supports-resource-ttl", "envoy.config.supports-resource-ttl"] {
        assert!(of_node("envoy", &[feature]).ttl, "{feature}");
    }
    assert!(!of_node("envoy", &[]).wrappers);
}

#[test]
fn sotw_2_a_nonce_from_another_stream_is_no_answer() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "77");
    assert_eq!(bench.said(client), ["C a,b,c"]);
    bench.sotw(client, EDS, &["a"], "77");
    assert_eq!(bench.said(client), ["C a"]);
    bench.sotw(client, EDS, &["a", "b"], "77");
    assert_eq!(bench.said(client), ["C b"], "nor does it hide what is asked for");
}

#[test]
fn sotw_26_and_sotw_28_an_added_name_is_answered_also_when_it_was_sent_before() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a", "b"], "");
    assert_eq!(bench.said(client), ["C a,b"]);
    bench.sotw(client, EDS, &["a"], "1");
    assert_eq!(bench.said(client), [""; 0]);
    bench.sotw(client, EDS, &["a", "b"], "1");
    assert_eq!(bench.said(client), ["C b"]);
    bench.sotw(client, EDS, &["a", "b", "c"], "2");
    assert_eq!(bench.said(client), ["C c"]);
    for (names, sent, nonce) in [(["a"].as_slice(), "L a", ""), (&["a", "b"], "L a,b", "4"), (&["a"], "L a", "5")] {
        bench.sotw(client, LDS, names, nonce);
        assert_eq!(bench.said(client), [sent]);
    }
    bench.sotw(client, LDS, &["a", "b"], "6");
    assert_eq!(bench.said(client), ["L a,b"], "of a full-state type all of it");
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
fn sotw_45_a_stale_request_is_no_answer_to_the_latest_reply() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a"], "");
    bench.said(client);
    bench.later(600);
    bench.set(EDS, &[("a", "2")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.set(EDS, &[("a", "3")]);
    bench.sotw(client, EDS, &["a"], "1");
    assert_eq!(bench.said(client), [""; 0], "the second is still out");
    bench.sotw(client, EDS, &["a"], "2");
    assert_eq!(bench.said(client), ["C a"]);
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
fn sotw_12_and_sotw_14_a_nack_is_an_error_detail_and_is_not_argued_with() {
    for (url, names, sent) in [(CDS, [].as_slice(), "C a,b,c"), (EDS, &["a"], "C a")] {
        let mut bench = warm();
        let client = bench.client(Variant::Sotw);
        bench.sotw(client, url, names, "");
        let new = bench.poll(client).unwrap().version.to_string();
        let mut answer = |nonce: &str, version_info: &str, error_detail| {
            let resource_names = names.iter().map(ToString::to_string).collect();
            let (type_url, response_nonce, version_info) = (url.into(), nonce.into(), version_info.into());
            let request =
                DiscoveryRequest { type_url, response_nonce, version_info, error_detail, ..Default::default() };
            let request = Request::Sotw(DiscoveryRequest { resource_names, ..request });
            let now = bench.now;
            let answer = bench.sessions.get_mut(&client).unwrap().on_request(request, now);
            bench.later(60_000);
            assert_eq!(bench.said(client), [""; 0], "the same content is not sent again");
            bench.set(url, &[("a", &format!("changed after {nonce}"))]);
            assert_eq!(bench.said(client), [sent], "a change is (SOTW-15)");
            answer
        };
        let stale = false;
        assert_eq!(answer("1", &new, nack(3)), Some(Ack::Nack { nonce: 1, stale }), "with the new version");
        assert_eq!(answer("2", "an old one", nack(13)), Some(Ack::Nack { nonce: 2, stale }));
        assert_eq!(answer("3", "an old one", None), Some(Ack::Ack { nonce: 3, stale }), "no error, no refusal");
    }
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
    bench.removes(EDS, Set::Names, &["missing"]);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(600);
    bench.set(EDS, &[("missing", "1")]);
    assert_eq!(bench.said(client), ["C missing"], "SOTW-29");
}

#[test]
fn sotw_57_a_client_that_stopped_reading_delays_nobody_and_gets_the_newest_at_last() {
    let mut bench = warm();
    let (stalled, reader) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    for id in [stalled, reader] {
        bench.delta(id, CDS, &[], &[]);
        bench.said(id);
    }
    bench.delta(stalled, EDS, &["a"], &[]);
    bench.set(CDS, &[("b", "2")]);
    bench.said(reader);
    assert!(bench.poll(stalled).is_some(), "it stops reading in the middle of something");
    for round in 0..1_000 {
        bench.set(CDS, &[("a", &round.to_string())]);
        bench.later(10);
        assert_eq!(bench.said(reader), ["C a"]);
    }
    let reply = bench.poll(stalled).unwrap();
    assert_eq!(reply.resources.len(), 1);
    assert!(reply.resources[0].body.bytes().ends_with(b"999"));
    assert_eq!(bench.said(stalled), ["C a"], "and its endpoints");
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
fn sotw_4_a_version_on_a_first_request_does_not_say_which_names_are_held() {
    let mut bench = warm();
    let first = bench.client(Variant::Sotw);
    bench.sotw(first, EDS, &["a"], "");
    let version = bench.poll(first).unwrap().version.to_string();
    let come_back = |url: &str, version: &str, names: &[&str]| {
        Request::Sotw(DiscoveryRequest {
            type_url: url.into(),
            version_info: version.into(),
            resource_names: names.iter().map(ToString::to_string).collect(),
            ..Default::default()
        })
    };
    let second = bench.client(Variant::Sotw);
    bench.request(second, come_back(EDS, &version, &["a", "b"]));
    assert_eq!(bench.said(second), ["C a,b"]);
    for (url, sent) in [(EDS, "C a,b"), (CDS, "C a,b")] {
        let first = bench.client(Variant::Sotw);
        bench.sotw(first, url, &["a", "b"], "");
        let version = bench.poll(first).unwrap().version.to_string();
        let again = bench.client(Variant::Sotw);
        bench.request(again, come_back(url, &version, &["a", "b"]));
        assert_eq!(bench.said(again), [sent], "it may have dropped b since it was told that version");
    }

    let wildcard = bench.client(Variant::Sotw);
    bench.sotw(wildcard, CDS, &[], "");
    let version = bench.poll(wildcard).unwrap().version.to_string();
    let again = bench.client(Variant::Sotw);
    bench.request(again, come_back(CDS, &version, &[]));
    assert_eq!(bench.said(again), [""; 0], "SOTW-5: a pure wildcard, and versions are content");
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(again), ["C a,b,c"], "SOTW-6");
}

#[test]
fn sotw_7_a_cold_cache_is_not_an_empty_set() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    bench.later(100_000);
    assert_eq!(bench.said(client), [""; 0]);
    bench.whole(CDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
}

#[test]
fn sotw_16_a_type_that_is_never_answered_delays_no_other_and_itself_a_bounded_time() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["b"], "");
    bench.sotw(client, CDS, &[], "");
    assert_eq!(bench.said(client), ["C a,b,c", "C b"]);
    bench.sotw(client, CDS, &[], "1");
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), ["C a,b,c"], "clusters at once, though endpoints were not acknowledged");
    bench.set(EDS, &[("b", "2")]);
    bench.later(500);
    assert_eq!(bench.said(client), ["C b"]);
}

#[test]
fn sotw_19_a_client_that_says_again_what_it_wants_is_not_answered() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a", "b"], "");
    bench.said(client);
    for _ in 0..10 {
        bench.sotw(client, EDS, &["b", "a", "a", ""], "1");
        assert_eq!(bench.said(client), [""; 0], "SOTW-60: it is a set");
    }
}

#[test]
fn sotw_27_and_sotw_41_a_shorter_list_of_a_full_state_type_gets_the_reduced_set() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &["a", "b"], "");
    bench.said(client);
    bench.sotw(client, CDS, &["a"], "1");
    assert_eq!(bench.said(client), ["C a"]);
    let other = bench.client(Variant::Sotw);
    bench.sotw(other, CDS, &["*", "a"], "");
    bench.said(other);
    bench.sotw(other, CDS, &["a"], "1");
    assert_eq!(bench.said(other), ["C a"]);
}

#[test]
fn sotw_32_what_was_due_to_a_name_goes_with_it() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a", "b"], "");
    bench.said(client);
    bench.sotw(client, EDS, &["a", "b"], "1");
    bench.set(EDS, &[("a", "2"), ("b", "2")]);
    bench.sotw(client, EDS, &["b"], "1");
    assert_eq!(bench.said(client), ["C b"]);
}

#[test]
fn sotw_47_and_sotw_59_a_longer_list_before_the_first_answer_is_one_question() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a"], "");
    bench.sotw(client, EDS, &["a", "b"], "");
    bench.set(EDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(bench.said(client), ["C a,b"]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn sotw_9_and_xlat_4_a_version_changes_with_what_is_seen_and_with_nothing_else() {
    let mut bench = warm();
    let version = |names: &[&str], bench: &mut Bench| {
        let client = bench.client(Variant::Sotw);
        bench.sotw(client, CDS, names, "");
        bench.poll(client).unwrap().version.to_string()
    };
    let (all, two) = (version(&[], &mut bench), version(&["a", "b"], &mut bench));
    assert_ne!(all, two);
    assert_eq!(two, version(&["b", "a"], &mut bench));
    bench.set(CDS, &[("c", "2")]);
    assert_eq!(two, version(&["a", "b"], &mut bench), "c is none of its business");
    assert_ne!(all, version(&[], &mut bench));
    bench.set(CDS, &[("c", "1")]);
    assert_eq!(all, version(&[], &mut bench), "the same content is the same version");
}

#[test]
fn sotw_4_and_sotw_26_a_stated_version_counts_no_more_once_names_are_requested_beside_the_wildcard() {
    let mut bench = warm();
    let first = bench.client(Variant::Sotw);
    bench.sotw(first, CDS, &[], "");
    let version_info = bench.poll(first).unwrap().version.to_string();
    let again = bench.client(Variant::Sotw);
    let request = DiscoveryRequest { type_url: CDS.into(), version_info, ..Default::default() };
    bench.request(again, Request::Sotw(request));
    bench.sotw(again, CDS, &["*", "a"], "");
    assert_eq!(bench.said(again), ["C a,b,c"], "a was requested, and the version says nothing of it");
}
