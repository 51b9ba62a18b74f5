//! A view that was loaded from disk: it serves clients, and is no evidence of anything.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::resource::CacheControl;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, FetchResult, Variant};
use weir_core::protocol::set_mark::SetMark;
use weir_core::protocol::view::{BrakeRules, SessionId};

use super::support::{Bench, CDS, EDS, Extent, LDS, RDS, Set, wrapper};
use super::{THREE, warm};

const HOUR: Duration = Duration::from_secs(3600);

/// Returns the same view in another process, in which no server has responded yet.
fn restarted(before: &Bench) -> Bench {
    restarted_with(before, ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)))
}

fn restarted_with(before: &Bench, options: ProtocolOptions) -> Bench {
    let mut after = Bench::with(options);
    after.inherit(before);
    after
}

/// Adds a SotW client that comes with the version of what it holds.
fn comes_with(bench: &mut Bench, url: &str, names: &[&str], version: &str) -> SessionId {
    let client = bench.client(Variant::Sotw);
    let request = DiscoveryRequest {
        type_url: url.into(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        version_info: version.into(),
        ..Default::default()
    };
    bench.request(client, Request::Sotw(request));
    client
}

/// Adds a delta client that comes with the versions of what it holds.
fn comes_holding(bench: &mut Bench, url: &str, names: &[&str], versions: &BTreeMap<String, String>) -> SessionId {
    let client = bench.client(Variant::Delta);
    let request = DeltaDiscoveryRequest {
        type_url: url.into(),
        resource_names_subscribe: names.iter().map(ToString::to_string).collect(),
        initial_resource_versions: versions.clone(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
    client
}

/// Returns what a delta client of `*` holds, and the version of the set in SotW.
fn held(bench: &mut Bench, url: &str) -> (BTreeMap<String, String>, String) {
    let delta = bench.client(Variant::Delta);
    bench.delta(delta, url, &["*"], &[]);
    let reply = bench.poll(delta).unwrap();
    let versions = reply.resources.iter().map(|of| (of.name.to_string(), of.full.to_string())).collect();
    let sotw = bench.client(Variant::Sotw);
    bench.sotw(sotw, url, &["*"], "");
    let version = bench.poll(sotw).unwrap().version.to_string();
    [delta, sotw].into_iter().for_each(|client| bench.leave(client));
    (versions, version)
}

#[test]
fn a_client_without_state_is_served_from_disk_at_once() {
    let mut bench = restarted(&warm());
    assert_eq!(bench.view.tables().loaded_from_disk(), 24, "four types, by `*` and by name");
    for url in [CDS, LDS, EDS, RDS] {
        let letter = &url.rsplit('.').next().unwrap()[..1];
        for variant in [Variant::Delta, Variant::Sotw] {
            let all = bench.client(variant);
            let by_name = bench.client(variant);
            match variant {
                Variant::Delta => {
                    bench.delta(all, url, &["*"], &[]);
                    bench.delta(by_name, url, &["b"], &[]);
                }
                Variant::Sotw => {
                    bench.sotw(all, url, &["*"], "");
                    bench.sotw(by_name, url, &["b"], "");
                }
            }
            assert_eq!(bench.said(all), [format!("{letter} a,b,c")], "{url} {variant:?}");
            assert_eq!(bench.said(by_name), [format!("{letter} b")], "{url} {variant:?}");
        }
    }
    let poll = bench.client(Variant::Sotw);
    bench.sotw(poll, CDS, &["*"], "");
    assert!(matches!(bench.fetch(poll, false), FetchResult::Reply(_)));
}

#[test]
fn a_version_that_was_given_out_is_answered_and_any_other_waits_for_a_server() {
    let mut first = warm();
    let (_, earlier) = held(&mut first, CDS);
    first.set(CDS, &[("a", "2")]);
    let (_, current) = held(&mut first, CDS);
    let mut bench = restarted(&first);
    let of_current = comes_with(&mut bench, CDS, &["*"], &current);
    let of_earlier = comes_with(&mut bench, CDS, &["*"], &earlier);
    let of_newer = comes_with(&mut bench, CDS, &["*"], "1.newer-than-the-disk");
    assert_eq!(bench.said(of_current), [""; 0], "it holds this set");
    assert_eq!(bench.said(of_earlier), ["C a,b,c"], "this relay gave it an older set");
    assert_eq!(bench.said(of_newer), [""; 0], "what it holds may be newer");

    bench.whole(CDS, &[("a", "3"), ("b", "1")]);
    for client in [of_current, of_earlier, of_newer] {
        let mut said = bench.said(client);
        bench.later(500);
        said.extend(bench.said(client));
        assert_eq!(said.last().unwrap(), "C a,b", "the server has spoken");
    }
}

#[test]
fn what_a_delta_client_states_is_answered_if_it_is_a_set_that_was_given_out() {
    let mut first = warm();
    let (earlier, _) = held(&mut first, CDS);
    first.set(CDS, &[("a", "2")]);
    let (current, _) = held(&mut first, CDS);
    let mut bench = restarted(&first);
    let of_current = comes_holding(&mut bench, CDS, &["*"], &current);
    let of_earlier = comes_holding(&mut bench, CDS, &["*"], &earlier);
    assert_eq!(bench.said(of_current), ["C "], "it holds this set (DELTA-21)");
    assert_eq!(bench.said(of_earlier), ["C a"], "the difference");

    let mut other = current.clone();
    other.insert("d".into(), current["a"].clone());
    let of_more = comes_holding(&mut bench, CDS, &["*"], &other);
    let of_less = comes_holding(&mut bench, CDS, &["*"], &BTreeMap::from([("a".to_owned(), current["a"].clone())]));
    let of_others = comes_holding(&mut bench, CDS, &["*"], &BTreeMap::from([("a".to_owned(), "5".to_owned())]));
    for client in [of_more, of_less, of_others] {
        assert_eq!(bench.said(client), [""; 0]);
        bench.later(60_000);
        assert_eq!(bench.said(client), [""; 0], "no clock says that the disk is newer");
    }
    // The server sends the same again, resource by resource.
    bench.set(CDS, &[("a", "2"), ("b", "1")]);
    assert_eq!(bench.said(of_less), ["C b"], "and not what it stated, nor what is still unconfirmed");
    assert_eq!(bench.said(of_others), ["C a,b"]);
    bench.set(CDS, &[("new", "1")]);
    assert_eq!(bench.said(of_less), ["C new"], "what was never on disk");
    bench.set(CDS, &[("c", "1")]);
    assert_eq!(bench.said(of_less), ["C c"]);
    assert_eq!(bench.said(of_others), ["C c,new"]);
    assert_eq!(bench.said(of_more), ["C new"], "the server has not said that d is gone");
    bench.reaches(CDS, Set::All, Extent::Complete);
    assert_eq!(bench.said(of_more), ["C  -d"]);
}

#[test]
fn a_name_that_a_client_holds_waits_for_a_server_and_other_names_do_not() {
    let mut first = warm();
    let (versions, _) = held(&mut first, EDS);
    let mut bench = restarted(&first);
    let stated = BTreeMap::from([("a".to_owned(), versions["a"].clone())]);
    let delta = comes_holding(&mut bench, EDS, &["a", "b"], &stated);
    let sotw = comes_with(&mut bench, EDS, &["a", "b"], "1.something");
    assert_eq!(bench.said(delta), ["C b"]);
    assert_eq!(bench.said(sotw), [""; 0], "its version says nothing of single names");
    bench.set(EDS, &[("a", "1")]);
    assert_eq!(bench.said(delta), ["C a"], "confirmed");
    assert_eq!(bench.said(sotw), ["C a"]);
    bench.set(EDS, &[("b", "2")]);
    assert_eq!((bench.said(delta), bench.said(sotw)), (vec!["C b".to_owned()], vec!["C b".to_owned()]));
}

#[test]
fn endpoints_that_follow_their_cluster_are_kept_back_from_a_client_that_may_hold_newer_ones() {
    let mut first = warm();
    let (versions, _) = held(&mut first, EDS);
    for holds_newer in [true, false] {
        let mut bench = restarted(&first);
        let mut stated = versions.clone();
        match holds_newer {
            true => stated.insert("a".into(), "5".into()),
            false => stated.insert("d".into(), versions["a"].clone()),
        };
        let client = comes_holding(&mut bench, EDS, &["*"], &stated);
        bench.delta(client, CDS, &["*"], &[]);
        bench.said(client);
        bench.later(1000);
        bench.said(client); // the clusters that it holds
        bench.set(CDS, &[("a", "2")]);
        let said = bench.said(client);
        assert_eq!(said[0], "C a", "the cluster");
        bench.later(1000);
        let said: Vec<_> = said.into_iter().skip(1).chain(bench.said(client)).collect();
        match holds_newer {
            true => assert_eq!(said, [""; 0], "nobody has confirmed them"),
            false => assert_eq!(said, ["C a"], "it holds these"),
        }
        bench.set(EDS, &[("a", "1")]);
        assert_eq!(bench.said(client), Vec::from_iter(holds_newer.then_some("C a")), "confirmed");
    }
}

#[test]
fn what_was_kept_back_is_sent_also_if_only_what_travels_beside_the_body_has_changed() {
    let mut bench = restarted(&warm());
    let client = comes_with(&mut bench, EDS, &["*"], "1.something");
    assert_eq!(bench.said(client), [""; 0]);
    bench.give(EDS, "*", "1", |given| {
        *given = wrapper(EDS, "a", "1");
        given.cache_control = Some(CacheControl { do_not_cache: true });
    });
    assert_eq!(bench.said(client), ["C a"]);
}

#[test]
fn delta_24_a_name_that_stays_visible_through_the_set_is_kept_back_like_the_set() {
    let mut first = warm();
    let (mut stated, _) = held(&mut first, CDS);
    stated.insert("a".into(), "5".into());
    let mut bench = restarted(&first);
    let client = comes_holding(&mut bench, CDS, &["*", "a"], &stated);
    assert_eq!(bench.said(client), [""; 0]);
    bench.delta(client, CDS, &[], &["a"]);
    assert_eq!(bench.said(client), [""; 0], "nobody has confirmed it");
    bench.set(CDS, &[("a", "6")]);
    assert_eq!(bench.said(client), ["C a"]);
}

#[test]
fn what_a_server_has_removed_and_stays_for_now_is_not_sent_to_a_client_that_holds_something_newer() {
    let first = warm();
    let newer = BTreeMap::from([("c".to_owned(), "5".to_owned())]);
    let other = BTreeMap::from([("a".to_owned(), "5".to_owned())]);
    let types = ["envoy.config.cluster.v3.Cluster".into()].into();
    let brakes = BrakeRules { types, share: 10, count: 1, ..BrakeRules::default() };
    for (case, options) in [
        ("order", ProtocolOptions::default().with(|options| options.hold_referenced(Duration::from_secs(5)))),
        (
            "brake",
            ProtocolOptions::default().with(|options| {
                options.view.brakes = brakes;
                options.hold_referenced(Duration::ZERO);
            }),
        ),
    ] {
        let mut bench = restarted_with(&first, options);
        let client = comes_holding(&mut bench, CDS, &["*"], &newer);
        let does_not_state_it = comes_holding(&mut bench, CDS, &["*"], &other);
        let relay = bench.add(Client { relay: true, ..Client::plain(Variant::Delta) });
        let request = DeltaDiscoveryRequest {
            type_url: CDS.into(),
            resource_names_subscribe: vec!["*".into()],
            initial_resource_versions: newer.clone(),
            ..Default::default()
        };
        bench.request(relay, Request::Delta(request));
        bench.remove(CDS, "c");
        bench.set(CDS, &[("a", "1"), ("b", "1")]);
        bench.reaches(CDS, Set::All, Extent::Complete);
        assert_eq!(bench.said(client), ["C a,b"], "{case}");
        assert_eq!(bench.said(does_not_state_it), ["C a,b,c"], "{case}");
        let replies: Vec<_> = std::iter::from_fn(|| bench.poll(relay)).collect();
        let sent: BTreeSet<_> =
            replies.iter().flat_map(|reply| reply.resources.iter()).map(|of| of.name.to_string()).collect();
        assert_eq!(Vec::from_iter(sent), ["a", "b", "c"], "{case}: the end of the set without it would remove it");
        assert_eq!(replies.last().unwrap().set_mark, Some(SetMark::Complete), "{case}: the set has ended");
        bench.set(CDS, &[("c", "1")]);
        assert_eq!(bench.said(client), ["C c"], "{case}: it is back");
        assert_eq!(bench.said(does_not_state_it), [""; 0], "{case}: it has that");
    }
}

#[test]
fn delta_16_a_name_whose_removal_was_forgotten_before_the_first_reply_is_asked_for() {
    let options = ProtocolOptions::default().with(|options| {
        options.view.history_bytes = 0;
        options.hold_referenced(Duration::ZERO);
    });
    let mut bench = restarted_with(&warm(), options);
    let stated = BTreeMap::from(["a", "b"].map(|name| (name.to_owned(), "5".to_owned())));
    let client = comes_holding(&mut bench, CDS, &["*"], &stated);
    assert_eq!(bench.said(client), [""; 0]);
    assert_eq!(bench.sought(), ["*"], "both names are present");
    bench.remove(CDS, "b");
    bench.later(1);
    bench.later(1);
    assert_eq!(bench.said(client), [""; 0], "a may still be confirmed");
    assert!(bench.sought().contains(&"b".to_owned()));
}

#[test]
fn what_a_restored_brake_holds_is_removed_by_the_server_that_states_it_again() {
    let types = ["envoy.config.cluster.v3.Cluster".into()].into();
    let brakes = BrakeRules { types, share: 10, count: 1, grace: HOUR, agree_after: HOUR, ..BrakeRules::default() };
    let options = ProtocolOptions::default().with(|options| {
        options.view.brakes = brakes;
        options.hold_referenced(Duration::ZERO);
    });
    let mut first = restarted_with(&warm(), options.clone());
    let keeper = first.client(Variant::Delta);
    first.delta(keeper, CDS, &["*"], &[]);
    first.whole(CDS, &THREE);
    first.later(60_000);
    first.whole(CDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(first.view.holds().brakes(0)[0].held, 1);
    let mut bench = restarted_with(&first, options);
    bench.view.restore_brakes(&first.view.holds().brake_state(first.now), bench.now);
    let newer = BTreeMap::from([("c".to_owned(), "5".to_owned())]);
    let client = comes_holding(&mut bench, CDS, &["*"], &newer);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(bench.view.holds().brakes(0)[0].held, 1);
    assert_eq!(bench.said(client), ["C a,b"], "it is not sent what the server has removed twice");
}

#[test]
fn a_set_by_name_of_which_the_client_holds_something_is_not_sent_in_part() {
    let mut bench = restarted(&warm());
    let client = comes_with(&mut bench, LDS, &["a", "b"], "1.something");
    assert_eq!(bench.said(client), [""; 0]);
    bench.set(LDS, &[("a", "1")]);
    assert_eq!(bench.said(client), [""; 0], "b would be deleted");
    bench.set(LDS, &[("b", "1")]);
    assert_eq!(bench.said(client), ["L a,b"]);
}

#[test]
fn a_confirmation_is_no_change_for_clients_that_were_served_from_disk() {
    let mut bench = restarted(&warm());
    let (delta, sotw) = (bench.client(Variant::Delta), bench.client(Variant::Sotw));
    bench.delta(delta, CDS, &["*"], &[]);
    bench.delta(delta, EDS, &["a", "b"], &[]);
    bench.sotw(sotw, CDS, &["*"], "");
    bench.said(delta);
    bench.said(sotw);
    bench.sotw(sotw, CDS, &["*"], "1");
    bench.later(1000);
    bench.said(delta);
    for url in [CDS, EDS, LDS, RDS] {
        bench.set(url, &THREE);
        bench.whole(url, &THREE);
    }
    assert_eq!((bench.said(delta), bench.said(sotw)), (vec![], vec![]), "I4, I5");
    assert_eq!(bench.view.tables().loaded_from_disk(), 0);
}

#[test]
fn what_the_server_lacks_goes_by_its_word_alone() {
    let mut bench = restarted(&warm());
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    assert_eq!(bench.said(client), ["C a,b,c"]);
    bench.later(200_000);
    assert_eq!(bench.said(client), [""; 0]);
    bench.whole(CDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C  -b,c"]);
}

#[test]
fn parts_of_sets_absences_and_what_is_not_to_be_cached_stay_in_the_process() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    for url in [CDS, LDS, EDS] {
        bench.delta(client, url, &["*", "a", "b", "gone"], &[]);
    }
    bench.set(CDS, &THREE);
    bench.reaches(CDS, Set::All, Extent::First);
    bench.set(LDS, &THREE);
    bench.whole(LDS, &THREE);
    bench.give(LDS, "*", "secret", |wrapper| {
        wrapper.name = "a".into();
        wrapper.cache_control = Some(CacheControl { do_not_cache: true });
    });
    bench.give(EDS, "b", "x", |wrapper| wrapper.cache_control = Some(CacheControl { do_not_cache: true }));
    bench.give(EDS, "a", "x", |_| {});
    bench.remove(EDS, "gone");
    for url in [CDS, LDS, EDS] {
        assert_eq!(bench.saved(url, Set::All), None, "{url}: it may be a part, or has what is not to be cached");
    }
    assert_eq!([CDS, LDS].map(|url| bench.saved(url, Set::Names).map(|names| names.len())), [Some(2); 2]);
    assert_eq!(bench.saved(EDS, Set::Names), Some(vec!["a".to_owned()]));
}

#[test]
fn what_nobody_asks_for_is_forgotten_in_the_end_and_all_of_it_is_requested_before() {
    let mut bench = restarted(&warm());
    let mut asked = bench.asked_upstream();
    asked.sort();
    assert_eq!(asked, ["+*", "+*", "+*", "+*", "+a", "+a", "+a", "+a", "+b", "+b", "+b", "+b", "+c", "+c", "+c", "+c"]);
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a"], &[]);
    bench.later(3_599_000);
    assert_eq!(bench.view.tables().loaded_from_disk(), 24);
    bench.later(2_000);
    assert_eq!(bench.view.tables().loaded_from_disk(), 1);
}
