//! The relay as a server of delta.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, ResourceName};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Ack, Variant};
use weir_core::xds::Authority;

use super::support::{Bench, CDS, EDS, Extent, LDS, Set, nack};
use super::warm;

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
    bench.delta(client, CDS, &[], &[]);
    bench.set(CDS, &[("a", "4"), ("b", "4")]);
    assert_eq!(bench.said(client), [""; 0], "and an empty request does not bring the wildcard back");
}

#[test]
fn delta_20_everything_requested_and_left_in_one_breath_is_nothing() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &["*"]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_6_and_delta_10_a_rejected_resource_comes_again_only_when_requested() {
    let mut bench = warm();
    for (name, sent) in [("a", "C a"), ("*", "C a,b,c")] {
        let client = bench.client(Variant::Delta);
        bench.delta(client, CDS, &[name], &[]);
        bench.said(client);
        let nack = DeltaDiscoveryRequest {
            type_url: CDS.into(),
            response_nonce: "1".into(),
            error_detail: nack(13),
            ..Default::default()
        };
        bench.request(client, Request::Delta(nack));
        bench.later(60_000);
        assert_eq!(bench.said(client), [""; 0]);
        bench.delta(client, CDS, &[name], &[]);
        assert_eq!(bench.said(client), [sent]);
    }
}

#[test]
fn delta_10_what_is_requested_again_is_sent_again_though_it_was_acknowledged() {
    let mut bench = warm();
    for (name, sent) in [("a", "C a"), ("*", "C a,b,c")] {
        let client = bench.client(Variant::Delta);
        bench.delta(client, CDS, &[name], &[]);
        assert_eq!(bench.said(client), [sent]);
        let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce: "1".into(), ..Default::default() };
        bench.request(client, Request::Delta(ack));
        assert_eq!(bench.said(client), [""; 0]);
        bench.delta(client, CDS, &[name], &[]);
        assert_eq!(bench.said(client), [sent], "it may have forgotten");
    }
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
    bench.request(client, Request::Delta(request.clone()));
    assert_eq!(bench.said(client), ["C b"]);
    bench.set(EDS, &[("b", "2")]);
    assert_eq!(bench.said(client), ["C b"]);
    for (nonce, name) in [("1", "a"), ("99", "c")] {
        let (response_nonce, resource_names_subscribe) = (nonce.into(), vec![name.into()]);
        let request = DeltaDiscoveryRequest { response_nonce, resource_names_subscribe, ..request.clone() };
        bench.request(client, Request::Delta(request));
        assert_eq!(bench.said(client), [format!("C {name}")], "nonce {nonce} is not the last");
    }
}

#[test]
fn delta_30_delta_31_and_delta_32_absence_is_sent_on_evidence_and_is_not_final() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["missing"], &[]);
    bench.later(100_000);
    assert_eq!(bench.said(client), [""; 0], "unknown is not absent");
    bench.view.on_source([Authority::TopLevel].into(), true);
    bench.publish();
    bench.delta(client, EDS, &["asked for during an outage"], &[]);
    assert_eq!(bench.said(client), [""; 0], "and out of reach is not absent either");
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
fn delta_13_and_delta_15_what_is_gone_since_is_removed_and_what_is_not_requested_is_ignored() {
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
    let by_name = bench.client(Variant::Delta);
    bench.request(by_name, request(&["a", "old"]));
    assert_eq!(bench.said(by_name), ["C a"]);
    bench.remove(CDS, "old");
    assert_eq!(bench.said(by_name), ["C  -old"], "asked for, and known to be gone now");
}

#[test]
fn delta_13_what_a_client_states_after_the_first_request_of_a_type_is_ignored() {
    let mut bench = warm();
    let (probe, client) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(probe, CDS, &["b"], &[]);
    let held = bench.poll(probe).unwrap().resources[0].full.to_string();
    bench.delta(client, CDS, &["a"], &[]);
    bench.said(client);
    let later = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_names_subscribe: vec!["*".into()],
        initial_resource_versions: [("b".to_owned(), held), ("old".to_owned(), "x".to_owned())].into(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(later));
    assert_eq!(bench.said(client), ["C b,c"], "b is not taken for held, and nothing is said of old");
}

#[test]
fn delta_27_a_name_that_is_subscribed_beside_the_wildcard_goes_when_the_server_says_so_of_the_name() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*", "a"], &[]);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(bench.said(client), ["C a,b"]);
    bench.whole(CDS, &[("b", "1")]);
    assert_eq!(bench.said(client), [""; 0], "nothing is known of the name by itself");
    bench.remove(CDS, "a");
    assert_eq!(bench.said(client), ["C  -a"]);
}

#[test]
fn delta_21_a_client_that_holds_all_of_it_is_sent_an_empty_reply() {
    let mut bench = warm();
    let (first, again) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(first, CDS, &[], &[]);
    let held = bench.poll(first).unwrap().resources;
    let initial_resource_versions =
        held.iter().map(|resource| (resource.name.to_string(), resource.full.to_string())).collect();
    let request = DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions, ..Default::default() };
    bench.request(again, Request::Delta(request));
    assert_eq!(bench.said(again), ["C "], "its start waits for an answer");
    assert_eq!(bench.said(again), [""; 0]);
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
        // The set changes in the meantime. Changes later in the journal are still sent.
        bench.set(CDS, &[(&names[29_999], &sizes.len().to_string())]);
        if sizes.len() > 20 {
            break;
        }
    }
    assert!(sizes.len() > 2 && sizes.iter().sum::<usize>() >= 30_000, "{sizes:?}");
}

#[test]
fn delta_49_a_removed_variant_is_named_with_what_it_was_a_variant_for() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a", "b"], &[]);
    bench.set(EDS, &[("b", "1")]);
    bench.give(EDS, "a", "1", |wrapper| {
        let constraints = Some([0x0a, 3, 0x0a, 1, b'k'].as_slice().into());
        wrapper.name.clear();
        wrapper.resource_name = Some(ResourceName { name: "a".into(), dynamic_parameter_constraints: constraints });
    });
    assert_eq!(bench.said(client), ["C a,b"]);
    bench.remove(EDS, "a");
    bench.remove(EDS, "b");
    assert_eq!(bench.said(client), ["C  -a[],b"]);
}

#[test]
fn delta_16_nothing_is_judged_against_a_set_that_is_not_known() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    let stated = (0..100).map(|number| (format!("c{number}"), "x".to_owned())).collect();
    let request =
        DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions: stated, ..Default::default() };
    bench.request(client, Request::Delta(request));
    bench.later(100_000);
    assert_eq!(bench.said(client), [""; 0]);
    bench.whole(CDS, &[("c1", "1")]);
    let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
    let removed: usize = sent.iter().map(|reply| reply.removed.len()).sum();
    assert_eq!((sent[0].resources.len(), removed), (1, 99));
}

#[test]
fn delta_16_what_was_stated_is_judged_again_when_the_set_is_whole_though_nothing_in_it_has_changed() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    let initial_resource_versions = [("old".to_owned(), "x".to_owned())].into();
    let request = DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions, ..Default::default() };
    bench.request(client, Request::Delta(request));
    bench.set(CDS, &[("a", "1")]);
    bench.reaches(CDS, Set::All, Extent::Settled);
    assert_eq!(bench.said(client), ["C a"], "old may be what has not come yet");
    bench.reaches(CDS, Set::All, Extent::Complete);
    assert_eq!(bench.said(client), ["C  -old"]);
}

#[test]
fn delta_14_what_was_stated_counts_no_more_once_another_version_was_sent_and_the_first_comes_back() {
    let mut bench = Bench::new();
    let (probe, client) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(probe, CDS, &[], &[]);
    bench.set(CDS, &[("a", "1")]);
    bench.reaches(CDS, Set::All, Extent::Settled);
    let held = bench.poll(probe).unwrap().resources[0].full.to_string();
    let initial_resource_versions = [("a".to_owned(), held), ("old".to_owned(), "x".to_owned())].into();
    let request = DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions, ..Default::default() };
    bench.request(client, Request::Delta(request));
    assert_eq!(bench.said(client), ["C "], "it holds a, and old may be what has not come yet");
    for version in ["2", "1"] {
        bench.set(CDS, &[("a", version)]);
        assert_eq!(bench.said(client), ["C a"], "{version}");
    }
}

#[test]
fn delta_48_what_vanished_is_sent_in_pieces_too() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    let stated = (0..50_000).map(|number| (format!("cluster-{number:020}"), "x".to_owned())).collect();
    let request =
        DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions: stated, ..Default::default() };
    bench.request(client, Request::Delta(request));
    bench.whole(CDS, &[]);
    let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).map(|reply| reply.removed.len()).collect();
    assert!(sent.len() > 1 && sent.iter().sum::<usize>() == 50_000, "{sent:?}");
}

#[test]
fn delta_19_and_delta_26_an_empty_set_after_names_is_nothing_and_leaving_the_wildcard_owes_nothing() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.said(client);
    bench.delta(client, CDS, &[], &["*"]);
    assert_eq!(bench.said(client), [""; 0], "no removals");
    bench.delta(client, CDS, &[], &[]);
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_23_and_delta_25_leaving_a_name_gets_no_reply_whether_it_was_requested_or_not() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a", "b"], &[]);
    bench.said(client);
    bench.delta(client, EDS, &[], &["a", "z"]);
    bench.set(EDS, &[("a", "2")]);
    assert_eq!(bench.said(client), [""; 0]);
    bench.set(EDS, &[("b", "2")]);
    assert_eq!(bench.said(client), ["C b"]);
}

#[test]
fn delta_27_what_was_due_to_a_name_goes_with_its_subscription() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a", "b"], &[]);
    bench.said(client);
    bench.set(EDS, &[("a", "2")]);
    bench.remove(EDS, "b");
    bench.delta(client, EDS, &[], &["a", "b"]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_1_delta_5_and_delta_7_nonces_are_never_twice_the_same_and_no_ack_is_waited_for() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a"], &[]);
    let mut nonces = std::collections::BTreeSet::new();
    for round in 0..20 {
        bench.set(EDS, &[("a", &round.to_string())]);
        assert!(nonces.insert(bench.poll(client).unwrap().nonce));
    }
    let ack = DeltaDiscoveryRequest { type_url: EDS.into(), response_nonce: "20".into(), ..Default::default() };
    let now = bench.now;
    let answer = bench.sessions.get_mut(&client).unwrap().on_request(Request::Delta(ack), now);
    assert_eq!(answer, Some(Ack::Ack { nonce: 20, stale: false }));
}

#[test]
fn delta_8_and_delta_33_a_name_both_wanted_and_left_is_left_and_none_is_said_twice() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a", "b", "b"], &["a"]);
    assert_eq!(bench.said(client), ["C b"]);
    bench.delta(client, CDS, &["*", "a"], &[]);
    assert_eq!(bench.said(client), ["C a,b,c"]);
}

#[test]
fn delta_33_what_was_left_by_name_and_goes_from_the_wildcard_is_removed_once() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, LDS, &["*", "a"], &[]);
    assert_eq!(bench.said(client), ["L a,b,c"]);
    bench.delta(client, LDS, &[], &["a"]);
    bench.remove(LDS, "a");
    assert_eq!(bench.said(client), ["L  -a"]);
}

#[test]
fn delta_48_what_is_removed_from_a_wildcard_and_by_name_is_sent_in_pieces_each_once() {
    for subscription in ["*", "names"] {
        let mut bench = Bench::with(ProtocolOptions::default().with(|options| {
            options.session.reply_bytes = 1000;
            options.hold_referenced(Duration::ZERO);
        }));
        let client = bench.client(Variant::Delta);
        let names: Vec<_> = (0..200).map(|number| format!("c{number}")).collect();
        let all: Vec<_> = names.iter().map(String::as_str).collect();
        bench.delta(client, CDS, if subscription == "*" { &["*"] } else { &all }, &[]);
        let set: Vec<_> = all.iter().map(|name| (*name, "1")).collect();
        bench.set(CDS, &set);
        bench.said(client);
        all.iter().for_each(|name| bench.remove(CDS, name));
        let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
        let removed: BTreeSet<_> = sent.iter().flat_map(|reply| &reply.removed).collect();
        let count: usize = sent.iter().map(|reply| reply.removed.len()).sum();
        assert!(sent.len() > 1 && (removed.len(), count) == (200, 200), "{subscription}: {sent:?}");
    }
}

#[test]
fn delta_10_a_wildcard_subscribed_again_before_its_answer_is_sent_with_all_that_was_stated() {
    let mut bench = warm();
    let first = bench.client(Variant::Delta);
    bench.delta(first, CDS, &[], &[]);
    let held = bench.poll(first).unwrap().resources;
    let stated = held.iter().map(|resource| (resource.name.to_string(), resource.full.to_string()));
    let initial_resource_versions = stated.chain([("old".to_owned(), "x".to_owned())]).collect();
    let again = bench.client(Variant::Delta);
    let request = DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions, ..Default::default() };
    bench.request(again, Request::Delta(request));
    bench.delta(again, CDS, &["*"], &[]);
    assert_eq!(bench.said(again), ["C a,b,c", "C  -old"], "it may have forgotten them since, and old is to be removed");
}

/// A second copy of what the client stated would need as much memory again, and a retry at once would never end.
#[test]
fn i8_claims_without_room_stay_with_their_client_until_there_is_room() {
    let options = ProtocolOptions::default().with(|options| {
        options.view.sought_names = 1000;
        options.hold_referenced(Duration::ZERO);
    });
    let mut bench = Bench::with(options);
    let [greedy, honest] = [(); 2].map(|()| bench.client(Variant::Delta));
    let state = |bench: &mut Bench, client, prefix: &str, count: usize| {
        let stated = (0..count).map(|number| (format!("{prefix}{number:04}"), "x".to_owned()));
        let initial_resource_versions = stated.collect();
        let request = DeltaDiscoveryRequest { type_url: CDS.into(), initial_resource_versions, ..Default::default() };
        bench.request(client, Request::Delta(request));
    };
    state(&mut bench, greedy, "g", 2000);
    state(&mut bench, honest, "h", 10);
    bench.set(CDS, &[("a", "1")]);
    bench.reaches(CDS, Set::All, Extent::Settled);
    assert_eq!((bench.said(greedy), bench.sought().len()), (vec!["C a".to_owned()], 2000));
    assert_eq!(bench.refused_claims, 1125, "an eighth of the room is for others");
    assert_eq!((bench.said(honest), bench.sought().len()), (vec!["C a".to_owned()], 10));
    assert_eq!(bench.refused_claims, 1125, "which is room enough");
    bench.set(CDS, &[("b", "1")]);
    assert_eq!((bench.said(greedy), bench.sought().len()), (vec!["C b".to_owned()], 0), "there is no room yet");

    let answered: Vec<_> = (0..2000).map(|number| format!("g{number:04}")).collect();
    bench.removes(CDS, Set::All, &answered[..300]);
    bench.said(greedy);
    assert_eq!(bench.sought().len(), 0, "half of the room is not free yet");
    bench.removes(CDS, Set::All, &answered[300..500]);
    bench.said(greedy);
    assert_eq!(bench.sought().len(), 1500, "all that is not answered");
    assert_eq!(bench.refused_claims, 1125 + 1500 - 375 - 490, "some had room before, and some have now");
    bench.removes(CDS, Set::All, &answered[500..]);
    bench.said(greedy);
    assert_eq!(bench.sought().len(), 635, "the answers to what had no room were not kept: now it is asked for");
    bench.removes(CDS, Set::All, &answered);
    bench.said(greedy);
    assert_eq!(bench.sought().len(), 0, "everything is answered");
}
