//! The TTL of a resource, and what must not be served from the cache.

use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, Resource as Wrapper, resource::CacheControl};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Variant};
use weir_core::protocol::view::SessionId;
use weir_core::xds::{Access, AccessRule, NamePattern};

use super::support::{Bench, CDS, EDS, LDS, Set};

fn mortal(seconds: i64) -> impl Fn(&mut Wrapper) {
    move |wrapper| wrapper.ttl = Some(prost_types::Duration { seconds, nanos: 0 })
}

/// Adds a client that runs TTLs itself, and one that does not.
fn two(bench: &mut Bench, variant: Variant, names: &[&str]) -> [SessionId; 2] {
    [true, false].map(|ttl| {
        let id = bench.add(Client { ttl, wrappers: true, ..Client::plain(variant) });
        match variant {
            Variant::Delta => bench.delta(id, EDS, names, &[]),
            Variant::Sotw => bench.sotw(id, EDS, names, ""),
        }
        id
    })
}

#[test]
fn delta_46_xlat_28_and_sotw_50_a_ttl_is_sent_and_extended_for_clients_that_run_ttls() {
    for variant in [Variant::Sotw, Variant::Delta] {
        for (names, key, set) in [(["a"], "a", Set::Names), (["*"], "*", Set::All)] {
            let mut bench = Bench::new();
            let [able, unable] = two(&mut bench, variant, &names);
            bench.give(EDS, key, "1", |wrapper| {
                mortal(60)(wrapper);
                wrapper.name = "a".into();
            });
            bench.later(10_000);
            assert_eq!(bench.said(able), ["C a(50)"], "{variant:?} {set:?}: what is left of it");
            assert_eq!(bench.said(unable), ["C a"], "SOTW-51");
            bench.sotw_ack(able, variant, EDS, &names);
            bench.prolongs(EDS, set, "a", 60);
            assert_eq!(bench.said(able), ["C ~a(60)"]);
            assert_eq!(bench.said(unable), [""; 0], "never a wrapper without a body");
            assert_eq!(bench.said(able), [""; 0], "once");
        }
    }
}

#[test]
fn delta_46_a_resource_that_no_longer_expires_is_sent_as_a_change() {
    let mut bench = Bench::new();
    let [able, unable] = two(&mut bench, Variant::Delta, &["a"]);
    bench.give(EDS, "a", "1", mortal(60));
    assert_eq!((bench.said(able), bench.said(unable)), (vec!["C a(60)".to_owned()], vec!["C a".to_owned()]));
    bench.give(EDS, "a", "1", |_| {});
    assert_eq!((bench.said(able), bench.said(unable)), (vec!["C a".to_owned()], vec![]), "the same, and for ever");
    bench.later(100_000);
    assert_eq!((bench.said(able), bench.said(unable)), (vec![], vec![]));
}

#[test]
fn delta_46_a_ttl_of_the_wildcard_that_ends_is_sent_beside_what_all_clients_are_sent() {
    let mut bench = Bench::new();
    let [able, unable] = two(&mut bench, Variant::Delta, &["*"]);
    bench.give(EDS, "*", "1", |wrapper| {
        mortal(60)(wrapper);
        wrapper.name = "a".into();
    });
    assert_eq!((bench.said(able), bench.said(unable)), (vec!["C a(60)".to_owned()], vec!["C a".to_owned()]));
    for name in ["a", "b"] {
        bench.give(EDS, "*", "1", |wrapper| wrapper.name = name.into());
    }
    assert_eq!(bench.said(able), ["C a,b"], "without it, the TTL would end at the client");
    assert_eq!(bench.said(unable), ["C b"]);
    bench.later(100_000);
    assert_eq!((bench.said(able), bench.said(unable)), (vec![], vec![]));
}

#[test]
fn delta_48_what_had_a_ttl_once_is_sent_once_to_a_client_that_comes_later() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| {
        options.session.reply_bytes = 1000;
        options.hold_referenced(Duration::ZERO);
    }));
    let keeper = bench.client(Variant::Delta);
    bench.delta(keeper, EDS, &["*"], &[]);
    for has_ttl in [true, false] {
        bench.give(EDS, "*", "1", |wrapper| {
            wrapper.name = "a".into();
            if has_ttl {
                mortal(60)(wrapper);
            }
        });
    }
    let names: Vec<_> = (0..50).map(|number| format!("e{number}")).collect();
    bench.set(EDS, &names.iter().map(|name| (name.as_str(), "1")).collect::<Vec<_>>());
    let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
    bench.delta(client, EDS, &["*"], &[]);
    let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).map(|reply| reply.resources.len()).collect();
    assert!(sent.len() > 1 && sent.iter().sum::<usize>() == 51, "{sent:?}");
}

#[test]
fn delta_47_and_xlat_6_a_heartbeat_has_the_version_last_sent() {
    let mut bench = Bench::new();
    let [able, _] = two(&mut bench, Variant::Delta, &["a"]);
    bench.give(EDS, "a", "1", mortal(60));
    let sent = bench.poll(able).unwrap().resources[0].full;
    bench.prolongs(EDS, Set::Names, "a", 60);
    assert_eq!(bench.poll(able).unwrap().heartbeats[0].version, sent);
}

#[test]
fn delta_46_many_heartbeats_come_in_pieces() {
    for (wanted, set) in [("", Set::Names), ("*", Set::All)] {
        let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.reply_bytes = 1000));
        let names: Vec<_> = (0..200).map(|number| format!("e{number}")).collect();
        let wanted = if wanted.is_empty() { names.iter().map(String::as_str).collect() } else { vec![wanted] };
        let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
        bench.delta(client, EDS, &wanted, &[]);
        for name in &names {
            let key = if set == Set::Names { name } else { "*" };
            bench.give(EDS, key, "1", |wrapper| {
                mortal(60)(wrapper);
                wrapper.name = name.clone();
            });
        }
        while bench.poll(client).is_some() {}
        names.iter().for_each(|name| bench.prolongs(EDS, set, name, 60));
        let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).map(|reply| reply.heartbeats.len()).collect();
        assert!(
            sent.iter().all(|many| (1..=30).contains(many)) && sent.iter().sum::<usize>() == 200,
            "{set:?}: {sent:?}"
        );
        bench.prolongs(EDS, set, "e7", 60);
        assert_eq!(bench.said(client), ["C ~e7(60)"]);
    }
}

#[test]
fn delta_21_a_set_comes_before_heartbeats_of_names() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.reply_bytes = 1000));
    let names: Vec<_> = (0..200).map(|number| format!("e{number}")).collect();
    let client = bench.add(Client { ttl: true, relay: true, ..Client::plain(Variant::Delta) });
    bench.delta(client, EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    names.iter().for_each(|name| bench.give(EDS, name, "1", mortal(60)));
    while bench.poll(client).is_some() {}
    bench.delta(client, EDS, &["*"], &[]);
    bench.whole(EDS, &[("of_set", "1")]);
    names.iter().for_each(|name| bench.prolongs(EDS, Set::Names, name, 60));
    let replies: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
    assert!(replies.len() > 2 && replies.iter().any(|reply| reply.set_mark.is_some()), "heartbeats come in pieces");
    assert_eq!(
        replies[0].resources.len(),
        1,
        "the set is not over before it has been sent, and waits for no heartbeat"
    );
}

/// What a reply adds and removes comes first, and heartbeats have no part in how much longer than wanted removals may make it.
#[test]
fn delta_48_heartbeats_come_after_additions_and_removals_and_make_no_reply_longer() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| {
        options.session.reply_bytes = 1000;
        options.hold_referenced(Duration::ZERO);
    }));
    let named = |prefix: &str| (0..40).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
    let (held, old, new) = (named("held"), named("old"), named("new"));
    let set = |names: &[String], bench: &mut Bench| {
        bench.whole(LDS, &names.iter().map(|name| (name.as_str(), "1")).collect::<Vec<_>>());
    };
    let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
    let wanted: Vec<_> = held.iter().map(String::as_str).chain(["*"]).collect();
    bench.delta(client, LDS, &wanted, &[]);
    held.iter().for_each(|name| bench.give(LDS, name, "1", mortal(60)));
    set(&old, &mut bench);
    while bench.poll(client).is_some() {}
    held.iter().for_each(|name| bench.prolongs(LDS, Set::Names, name, 60));
    set(&new, &mut bench);
    let replies: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
    let sent: Vec<_> =
        replies.iter().map(|reply| (reply.resources.len(), reply.removed.len(), reply.heartbeats.len())).collect();
    assert!(sent.iter().all(|(added, removed, beats)| added + removed + beats <= 30), "{sent:?}");
    assert!(sent[0].0 > 0 && sent[0].1 > 0 && sent[0].2 == 0, "{sent:?}");
    let sum = sent.iter().fold((0, 0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1, sum.2 + of.2));
    assert_eq!(sum, (40, 40, 40), "{sent:?}");
}

#[test]
fn up_40_and_sotw_51_what_outlives_its_time_is_gone_for_those_who_cannot_tell() {
    let mut bench = Bench::new();
    let [able, unable] = two(&mut bench, Variant::Delta, &["a"]);
    let sotw = bench.client(Variant::Sotw);
    bench.sotw(sotw, CDS, &["c"], "");
    bench.give(EDS, "a", "1", mortal(60));
    bench.give(CDS, "c", "1", mortal(60));
    bench.said(able);
    assert_eq!((bench.said(unable), bench.said(sotw)), (vec!["C a".to_owned()], vec!["C c".to_owned()]));
    bench.later(59_999);
    assert_eq!(bench.said(unable), [""; 0]);
    bench.later(1);
    assert_eq!((bench.said(unable), bench.said(sotw)), (vec!["C  -a".to_owned()], vec!["C ".to_owned()]));
    let late = bench.client(Variant::Delta);
    bench.delta(late, EDS, &["a"], &[]);
    assert_eq!(bench.said(late), ["C  -a"]);
}

#[test]
fn up_40_a_heartbeat_puts_the_end_off() {
    let mut bench = Bench::new();
    let [_, unable] = two(&mut bench, Variant::Delta, &["a"]);
    bench.give(EDS, "a", "1", mortal(60));
    bench.said(unable);
    bench.later(50_000);
    bench.prolongs(EDS, Set::Names, "a", 60);
    bench.later(59_000);
    assert_eq!(bench.said(unable), [""; 0]);
    bench.later(1_000);
    assert_eq!(bench.said(unable), ["C  -a"]);
}

#[test]
fn sotw_50_a_full_state_type_is_prolonged_by_the_whole_set() {
    let mut bench = Bench::new();
    let client = bench.add(Client { ttl: true, wrappers: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, CDS, &["a", "b"], "");
    bench.give(CDS, "a", "1", mortal(60));
    bench.give(CDS, "b", "1", |_| {});
    assert_eq!(bench.said(client), ["C a(60),b"]);
    bench.sotw(client, CDS, &["a", "b"], "1");
    bench.later(10_000);
    bench.give(CDS, "a", "1", mortal(60));
    assert_eq!(bench.said(client), ["C a(60),b"], "a heartbeat alone would leave b out");
    bench.sotw(client, CDS, &["a", "b"], "2");
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn up_42_and_xlat_29_what_must_not_be_kept_is_fetched_again_for_who_comes_later() {
    let mut bench = Bench::new();
    bench.view.on_source([].into(), true);
    let (early, late) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(early, EDS, &["a"], &[]);
    assert_eq!(bench.asked_upstream(), ["+a"]);
    bench.give(EDS, "a", "1", uncached);
    assert_eq!(bench.said(early), ["C a"]);
    bench.delta(late, EDS, &["a"], &[]);
    assert_eq!(bench.said(late), [""; 0], "not from memory");
    assert_eq!(bench.asked_upstream(), ["+a"], "UP-17: asked for once more");
    bench.give(EDS, "a", "1", uncached);
    assert_eq!((bench.said(early), bench.said(late)), (vec![], vec!["C a".to_owned()]));

    bench.view.on_source([].into(), false);
    let later = bench.client(Variant::Delta);
    bench.delta(later, EDS, &["a"], &[]);
    assert_eq!(bench.said(later), ["C a"], "SotW has no way to ask again");
}

fn uncached(wrapper: &mut Wrapper) {
    wrapper.cache_control = Some(CacheControl { do_not_cache: true });
}

fn subscribe(url: &str, name: &str) -> Request {
    let resource_names_subscribe = vec![name.to_owned()];
    Request::Delta(DeltaDiscoveryRequest { type_url: url.into(), resource_names_subscribe, ..Default::default() })
}

#[test]
fn delta_28_an_answer_that_was_quicker_than_the_count_is_not_given_again() {
    let mut bench = Bench::new();
    let [keeper, _] = two(&mut bench, Variant::Delta, &["a"]);
    bench.give(EDS, "a", "1", |_| {});
    bench.said(keeper);
    let client = bench.add(Client { ttl: true, ..Client::plain(Variant::Delta) });
    let changes = bench.hear(client, subscribe(EDS, "a"));
    assert_eq!(bench.said(client), ["C a"]);
    bench.count(client, changes);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn up_42_a_client_in_the_middle_of_something_is_not_forgotten() {
    let mut bench = Bench::new();
    bench.view.on_source([].into(), true);
    let (early, late) = (bench.client(Variant::Delta), bench.client(Variant::Delta));
    bench.delta(early, EDS, &["a"], &[]);
    bench.give(EDS, "a", "1", uncached);
    bench.said(early);
    bench.delta(late, CDS, &["x"], &[]);
    bench.set(CDS, &[("x", "1")]);
    assert!(bench.poll(late).is_some(), "it works on this state from now on");
    bench.delta(late, EDS, &["a"], &[]);
    bench.give(EDS, "a", "1", uncached);
    assert_eq!(bench.said(late), ["C a"]);
}

#[test]
fn sotw_50_after_a_silent_change_of_the_version_the_resource_goes_whole() {
    let mut bench = Bench::new();
    let client = bench.add(Client { ttl: true, wrappers: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, EDS, &["a", "b"], "");
    bench.give(EDS, "b", "1", |_| {});
    bench.give(EDS, "a", "1", mortal(60));
    assert_eq!(bench.said(client), ["C a(60),b"]);
    bench.sotw(client, EDS, &["a"], "1");
    bench.prolongs(EDS, Set::Names, "a", 60);
    assert_eq!(bench.said(client), ["C a(60)"], "a heartbeat would have a version that was never sent");
}

#[test]
fn up_17_and_up_40_what_died_is_requested_again_and_a_late_heartbeat_revives_it() {
    let mut bench = Bench::new();
    let [_, unable] = two(&mut bench, Variant::Delta, &["a"]);
    bench.give(EDS, "a", "1", mortal(60));
    bench.said(unable);
    bench.asked_upstream();
    bench.later(60_000);
    assert_eq!((bench.said(unable), bench.asked_upstream()), (vec!["C  -a".into()], vec!["+a".into()]));
    bench.prolongs(EDS, Set::Names, "a", 60);
    assert_eq!(bench.said(unable), ["C a"]);
}

#[test]
fn delta_46_a_ttl_that_is_removed_is_sent_in_full_state_types_too() {
    let mut bench = Bench::new();
    let client = bench.add(Client { ttl: true, wrappers: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, CDS, &["a"], "");
    bench.give(CDS, "a", "1", mortal(60));
    assert_eq!(bench.said(client), ["C a(60)"]);
    bench.sotw(client, CDS, &["a"], "1");
    bench.give(CDS, "a", "1", |_| {});
    assert_eq!(bench.said(client), ["C a"]);
    bench.sotw(client, CDS, &["a"], "2");
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn up_40_a_new_version_has_a_time_of_its_own_and_none_of_the_one_before() {
    for (seconds, ends) in [(Some(100), Some(50_000)), (Some(20), None), (None, None)] {
        let mut bench = Bench::new();
        let [_, unable] = two(&mut bench, Variant::Delta, &["a"]);
        bench.give(EDS, "a", "1", mortal(60));
        assert_eq!(bench.said(unable), ["C a"]);
        bench.later(10_000);
        bench.give(EDS, "a", "2", |wrapper| {
            wrapper.ttl = seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 });
        });
        assert_eq!(bench.said(unable), ["C a"]);
        match (seconds, ends) {
            (Some(_), Some(rest)) => {
                bench.later(50_000);
                assert_eq!(bench.said(unable), [""; 0], "{seconds:?}: the time of the earlier version is over");
                bench.later(rest);
            }
            (Some(_), None) => bench.later(20_000),
            (None, _) => bench.later(1_000_000),
        }
        let end = if seconds.is_some() { vec!["C  -a".to_owned()] } else { vec![] };
        assert_eq!(bench.said(unable), end, "{seconds:?}");
    }
}

#[test]
fn key_11_a_longer_ttl_of_what_a_client_may_not_have_is_not_sent_to_it() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let rule = AccessRule {
            types: vec!["envoy.config.endpoint.v3.ClusterLoadAssignment".into()],
            names: vec![NamePattern::parse("secret*")],
            peers: Vec::new(),
        };
        let clearance = Access::of(vec![rule]).clearance(None);
        let client = bench.add(Client { ttl: true, wrappers: true, clearance, ..Client::plain(variant) });
        match variant {
            Variant::Delta => bench.delta(client, EDS, &["*"], &[]),
            Variant::Sotw => bench.sotw(client, EDS, &["*"], ""),
        }
        for name in ["a", "secret"] {
            bench.give(EDS, "*", "1", |wrapper| {
                *wrapper = super::support::wrapper(EDS, name, "1");
                mortal(60)(wrapper);
            });
        }
        assert_eq!(bench.said(client), ["C a(60)"], "{variant:?}");
        bench.later(1_000);
        ["a", "secret"].iter().for_each(|name| bench.prolongs(EDS, Set::All, name, 60));
        assert_eq!(bench.said(client), ["C ~a(60)"], "{variant:?}");
    }
}
