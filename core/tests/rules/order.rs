//! Order between types, and endpoints behind clusters.

use std::sync::Arc;
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Step, Variant};

use super::support::{Bench, CDS, EDS, Extent, LDS, RDS, SDS, Set, lead, lead_for, nack, text_of};
use super::warm;

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
        let Step::Idle(Some(until)) = bench.step(client) else { panic!("nothing would wake it") };
        assert_eq!(until, bench.now + Duration::from_millis(100));
        bench.later(100);
        assert_eq!(bench.said(client), ["C a"], "no ACK has come, and none is waited for");
        bench.later(100_000);
        assert_eq!(bench.said(client), [""; 0], "once (SOTW-34)");
    }
}

#[test]
fn sotw_33_and_delta_45_endpoints_that_came_before_their_cluster_come_again_after_it() {
    let mut bench = warm();
    let (sotw, delta) = (bench.client(Variant::Sotw), bench.client(Variant::Delta));
    bench.sotw(sotw, EDS, &["a"], "");
    bench.delta(delta, EDS, &["a"], &[]);
    assert_eq!((bench.said(sotw), bench.said(delta)), (vec!["C a".to_owned()], vec!["C a".to_owned()]));
    bench.later(1_000);
    bench.sotw(sotw, CDS, &[], "");
    bench.delta(delta, CDS, &[], &[]);
    for id in [sotw, delta] {
        assert_eq!(bench.said(id), ["C a,b,c"]);
    }
    bench.later(100);
    for id in [sotw, delta] {
        assert_eq!(bench.said(id), ["C a"], "it warms the cluster with what comes after it");
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
fn the_hold_keeps_a_route_until_the_client_is_warm_or_should_be_or_two_seconds_are_over() {
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
    assert_eq!(bench.said(client), ["C new"], "endpoints; a secret may still be on its way");
    bench.later(499);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["R a"], "a client that never answers");

    let (mut bench, client) = prepare();
    let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce: "4".into(), ..Default::default() };
    bench.request(client, Request::Delta(ack.clone()));
    bench.later(499);
    assert_eq!(bench.said(client), [""; 0], "it may ask for the endpoints still");
    bench.later(1);
    assert_eq!(bench.said(client), ["R a"]);

    let (mut bench, client) = prepare();
    bench.request(client, Request::Delta(ack));
    bench.delta(client, EDS, &["new"], &[]);
    bench.later(1_000);
    assert_eq!(bench.said(client), [""; 0], "they are on their way");
    bench.set(EDS, &[("new", "1")]);
    assert_eq!(bench.said(client), ["C new", "R a"]);

    let (mut bench, client) = prepare();
    bench.later(1_999);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["R a"]);
}

#[test]
fn ord_13_the_acknowledgement_of_a_cluster_that_merely_changed_ends_the_hold() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &[], &[]);
    bench.delta(client, RDS, &["a"], &[]);
    bench.delta(client, EDS, &["c"], &[]);
    bench.said(client);
    bench.later(1_000);
    bench.set(CDS, &[("c", "2")]);
    bench.set(RDS, &[("a", "changed")]);
    let reply = bench.poll(client).unwrap();
    assert_eq!(bench.said(client), [""; 0], "the route is held");
    let response_nonce = reply.nonce.to_string();
    let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce, ..Default::default() };
    bench.request(client, Request::Delta(ack));
    assert_eq!(bench.said(client).last().unwrap(), "R a");
}

/// The reply after it is made only once the client's connection has taken it: until then the client warms nothing.
#[test]
fn i7_a_reply_after_which_clusters_wait_for_endpoints_says_so_and_no_other_does() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &[], &[]);
    bench.delta(client, RDS, &["a"], &[]);
    bench.delta(client, EDS, &["c"], &[]);
    while let Some(reply) = bench.poll(client) {
        assert!(!reply.awaits_endpoints, "the first of its type: {reply:?}");
    }
    bench.later(1_000);
    bench.set(CDS, &[("c", "2")]);
    bench.set(RDS, &[("a", "changed")]);
    let clusters = bench.poll(client).unwrap();
    assert!(clusters.awaits_endpoints);
    let response_nonce = clusters.nonce.to_string();
    let ack = DeltaDiscoveryRequest { type_url: CDS.into(), response_nonce, ..Default::default() };
    bench.request(client, Request::Delta(ack));
    assert!(!bench.poll(client).unwrap().awaits_endpoints);
}

#[test]
fn ord_9_endpoints_do_not_wait_for_clusters_to_be_requested() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["c"], "");
    assert_eq!(bench.said(client), ["C c"]);
}

#[test]
fn ord_4_and_ord_2_a_secret_is_not_overtaken_by_the_endpoints_that_need_it() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a"], &[]);
    bench.delta(client, SDS, &["s"], &[]);
    bench.set(SDS, &[("s", "1")]);
    bench.said(client);
    bench.set(SDS, &[("s", "2")]);
    bench.set(EDS, &[("a", "2")]);
    assert_eq!(bench.said(client), ["S s", "C a"]);
}

#[test]
fn ord_4_and_ord_2_a_secret_is_not_overtaken_by_the_cluster_that_needs_it() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["a"], &[]);
    bench.delta(client, SDS, &["s"], &[]);
    bench.set(SDS, &[("s", "1")]);
    bench.said(client);
    bench.set(CDS, &[("a", "2")]);
    bench.set(SDS, &[("s", "2")]);
    assert_eq!(bench.said(client), ["S s", "C a"]);
}

#[test]
fn ord_10_a_name_that_is_missing_keeps_nothing_back() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["a", "missing"], "");
    bench.sotw(client, RDS, &["b", "missing"], "");
    assert_eq!(bench.said(client), ["C a", "R b"]);
}

#[test]
fn ord_4_a_route_never_overtakes_the_cluster_that_came_before_it() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = warm();
        let client = bench.client(variant);
        for (url, names) in [(CDS, [].as_slice()), (EDS, &["a"]), (RDS, &["a"])] {
            match variant {
                Variant::Sotw => bench.sotw(client, url, names, ""),
                Variant::Delta => bench.delta(client, url, names, &[]),
            }
        }
        bench.said(client);
        let mut clusters_told = 0;
        for round in 1..=1_000 {
            let content = round.to_string();
            bench.set(CDS, &[("y", &content)]);
            bench.set(EDS, &[("y", &content)]);
            bench.set(RDS, &[("a", &content)]);
            if round % 7 == 0 {
                // A slow client never ACKs clusters. In some rounds it reads before the wait for the ACK has ended.
                bench.later(if round % 2 == 0 { 3_000 } else { 100 });
                while let Some(reply) = bench.poll(client) {
                    let newest = |name: &str| {
                        let resource = reply.resources.iter().find(|resource| resource.name.as_str() == name);
                        resource.map(|resource| content_of(resource.body.bytes()))
                    };
                    match text_of(&reply).split_at(1).0 {
                        "C" => clusters_told = newest("y").unwrap_or(clusters_told),
                        _ => assert!(newest("a").is_none_or(|route| route <= clusters_told), "{variant:?} {round}"),
                    }
                    if variant == Variant::Sotw && text_of(&reply).starts_with('R') {
                        bench.sotw(client, RDS, &["a"], &reply.nonce.to_string());
                    }
                }
            }
        }
        assert!(clusters_told >= 990, "{variant:?}: {clusters_told}");
    }
}

/// Returns the number in the body of a resource.
fn content_of(body: &[u8]) -> u32 {
    let digits = body.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&body[body.len() - digits..]).unwrap().parse().unwrap()
}

#[test]
fn ord_7_and_ord_5_what_is_merged_is_the_union_first_and_the_removal_last() {
    for (variant, sent) in [
        (Variant::Sotw, ["C x,y", "C y", "R a", "C y"].as_slice()),
        (Variant::Delta, ["C y", "C y", "R a", "C  -x"].as_slice()),
    ] {
        let mut bench = Bench::new();
        let client = bench.client(variant);
        match variant {
            Variant::Sotw => {
                bench.sotw(client, CDS, &[], "");
                bench.sotw(client, EDS, &["x", "y"], "");
                bench.sotw(client, RDS, &["a"], "");
            }
            Variant::Delta => {
                bench.delta(client, CDS, &[], &[]);
                bench.delta(client, EDS, &["x", "y"], &[]);
                bench.delta(client, RDS, &["a"], &[]);
            }
        }
        bench.whole(CDS, &[("x", "1")]);
        bench.set(EDS, &[("x", "1")]);
        bench.set(RDS, &[("a", "to x")]);
        bench.said(client);
        bench.later(5_000);
        // While the client does not read, the server sends:
        bench.whole(CDS, &[("x", "1"), ("y", "1")]);
        bench.set(EDS, &[("y", "1")]);
        bench.set(RDS, &[("a", "to y")]);
        bench.whole(CDS, &[("y", "1")]);
        let mut heard = Vec::new();
        for _ in 0..4 {
            heard.extend(bench.said(client));
            bench.later(600); // in SotW the relay waits for the missing ACK
        }
        assert_eq!(heard, sent, "{variant:?}");
    }
}

#[test]
fn ord_7_the_union_has_what_was_requested_by_name_too() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &["x", "y"], "");
    bench.sotw(client, EDS, &["x", "y"], "");
    bench.sotw(client, RDS, &["a"], "");
    bench.set(CDS, &[("x", "1")]);
    bench.remove(CDS, "y");
    bench.set(EDS, &[("x", "1"), ("y", "1")]);
    bench.set(RDS, &[("a", "to x")]);
    bench.said(client);
    bench.later(5_000);
    // While the client does not read, the server sends:
    bench.set(CDS, &[("y", "1")]);
    bench.set(RDS, &[("a", "to y")]);
    bench.remove(CDS, "x");
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.extend(bench.said(client));
        bench.later(600); // the relay waits for the missing ACK
    }
    assert_eq!(heard, ["C x,y", "C y", "R a", "C y"], "as with `*`");
}

#[test]
fn ord_5_what_is_gone_goes_after_what_pointed_at_it() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    for (url, name) in [(CDS, "*"), (EDS, "a"), (LDS, "*"), (RDS, "a")] {
        bench.delta(client, url, &[name], &[]);
    }
    bench.said(client);
    for url in [CDS, EDS, LDS, RDS] {
        bench.remove(url, "a");
    }
    let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
    let types: Vec<_> = sent.iter().map(|reply| reply.kind.name().rsplit('.').next().unwrap()).collect();
    assert_eq!(types, ["Listener", "RouteConfiguration", "Cluster", "ClusterLoadAssignment"]);
}

#[test]
fn ord_13_streams_of_one_type_each_wait_for_nothing() {
    let mut bench = warm();
    let only = Some(bench.kind(RDS));
    let client = bench.add(Client { only, ..Client::plain(Variant::Delta) });
    bench.delta(client, "", &["a"], &[]);
    bench.said(client);
    bench.set(CDS, &[("new", "1")]);
    bench.set(RDS, &[("a", "to new")]);
    assert_eq!(bench.said(client), ["R a"]);
}

#[test]
fn ord_17_a_collection_of_endpoints_follows_what_names_it_and_the_old_one_goes_after_that() {
    let [old, new] = ["old", "new"].map(|folder| format!("xdstp://x/{}/{folder}", LEDS.rsplit('/').next().unwrap()));
    let [old_glob, new_glob] = [&old, &new].map(|folder| format!("{folder}/*"));
    let [old, new] = [old, new].map(|folder| format!("{folder}/a"));
    let mut bench = Bench::new();
    let id = bench.client(Variant::Delta);
    let session = bench.sessions.remove(&id).unwrap();
    bench.sessions.insert(id, session.with_authorities(Arc::new(["x".to_owned()].into())));
    bench.delta(id, LEDS, &[&old_glob, &new_glob], &[]);
    bench.delta(id, EDS, &["e"], &[]);
    bench.give(LEDS, &old, "1", |_| {});
    bench.give(EDS, "e", "names the old one", |_| {});
    assert_eq!(bench.said(id), ["C e".to_owned(), format!("L {old}")]);
    // The order does not matter, and all of it comes before the client reads.
    bench.remove(LEDS, &old);
    bench.give(LEDS, &new, "1", |_| {});
    bench.give(EDS, "e", "names the new one", |_| {});
    assert_eq!(bench.said(id), ["C e".to_owned(), format!("L {new}"), format!("L  -{old}")]);
}

const LEDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";

#[test]
fn a_listener_comes_with_the_removal_of_the_one_whose_address_it_may_take() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO)));
    let clients = [Variant::Delta, Variant::Sotw].map(|variant| bench.client(variant));
    bench.delta(clients[0], LDS, &["*"], &[]);
    bench.sotw(clients[1], LDS, &[], "");
    bench.whole(LDS, &[("a", "1")]);
    assert_eq!((bench.said(clients[0]), bench.said(clients[1])), (owned(&["L a"]), owned(&["L a"])));
    bench.sotw(clients[1], LDS, &[], "1");
    bench.whole(LDS, &[("b", "1")]);
    assert_eq!((bench.said(clients[0]), bench.said(clients[1])), (owned(&["L b -a"]), owned(&["L b"])));
}

#[test]
fn routes_that_were_removed_and_come_again_lead_only_where_they_do_now() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &[], &[]);
    bench.delta(client, RDS, &["r"], &[]);
    bench.whole(CDS, &[("x", "1"), ("y", "1")]);
    lead(&mut bench, "r", &["x"]);
    bench.said(client);
    bench.remove(RDS, "r");
    lead(&mut bench, "r", &["y"]);
    bench.said(client);
    bench.whole(CDS, &[("y", "1")]);
    assert_eq!(bench.said(client), ["C  -x"], "nothing refers to it that it would have to wait for");
}

#[test]
fn a_listener_stays_while_the_one_in_its_place_is_kept_back() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, EDS, &["a"], &[]);
    bench.delta(client, LDS, &["*"], &[]);
    bench.whole(CDS, &[("a", "1")]);
    bench.set(EDS, &[("a", "1")]);
    bench.whole(LDS, &[("old", "1")]);
    bench.said(client);
    bench.later(5_000);
    bench.said(client);
    bench.delta(client, EDS, &["b"], &[]);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(bench.said(client), ["C b"], "it waits for its endpoints");
    bench.whole(LDS, &[("new", "1")]);
    bench.delta(client, LDS, &["x"], &[]);
    bench.give(LDS, "x", "1", |_| {});
    assert_eq!(bench.said(client), ["L x"], "what was requested is sent, and nothing is taken away");
    bench.set(EDS, &[("b", "1")]);
    assert_eq!(bench.said(client), ["C b"]);
    bench.later(1_000);
    assert_eq!(bench.said(client), ["L new -old"]);
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn i7_routes_wait_for_a_set_of_clusters_that_is_not_known_enough_and_each_time_no_longer_than_the_limit() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    let stated = DiscoveryRequest { type_url: CDS.into(), version_info: "7".into(), ..Default::default() };
    bench.request(client, Request::Sotw(stated));
    bench.sotw(client, RDS, &["a"], "");
    for change in ["1", "2", "3"] {
        bench.set(RDS, &[("a", change)]);
        assert_eq!(bench.said(client), [""; 0], "the client may hold clusters that are not known");
        bench.later(19_999);
        assert_eq!(bench.said(client), [""; 0]);
        bench.later(1);
        assert_eq!(bench.said(client), ["R a"]);
        bench.later(60_000);
        assert_eq!(bench.said(client), [""; 0]);
    }
}

#[test]
fn ord_13_a_rejection_of_clusters_ends_the_hold_and_the_wait_for_the_answer() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &[], "");
    bench.sotw(client, EDS, &["c"], "");
    bench.sotw(client, RDS, &["a"], "");
    bench.said(client);
    bench.later(1_000);
    bench.set(CDS, &[("c", "2")]);
    bench.set(RDS, &[("a", "changed")]);
    let clusters = bench.poll(client).unwrap();
    assert_eq!(bench.said(client), [""; 0], "the route is held");
    let rejection = DiscoveryRequest {
        type_url: CDS.into(),
        response_nonce: clusters.nonce.to_string(),
        error_detail: nack(3),
        ..Default::default()
    };
    bench.request(client, Request::Sotw(rejection));
    assert_eq!(bench.said(client).last().unwrap(), "R a");
}

#[test]
fn ord_13_a_route_waits_a_short_time_for_endpoints_that_are_known_not_to_exist() {
    let mut bench = warm();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &[], &[]);
    bench.delta(client, RDS, &["a"], &[]);
    bench.delta(client, EDS, &["a", "new"], &[]);
    bench.remove(EDS, "new");
    bench.said(client);
    bench.later(1_000);
    bench.set(CDS, &[("new", "1")]);
    bench.set(RDS, &[("a", "to new")]);
    assert_eq!(bench.said(client), ["C new"], "the route is held");
    bench.later(100);
    assert_eq!(bench.said(client), ["C  -new"], "the endpoints are said again to be absent");
    bench.later(399);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), ["R a"], "and not only after the two seconds of a hold");
}

#[test]
fn up_17_a_route_that_is_back_by_its_ttl_refers_to_its_clusters_again() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, RDS, &["*"], &[]);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    lead_for(&mut bench, Set::All, "r", &["a"], Some(Duration::from_secs(2)));
    lead_for(&mut bench, Set::All, "s", &["b"], None);
    bench.reaches(RDS, Set::All, Extent::Settled);
    assert_eq!(bench.said(client), ["C a,b", "R r,s"]);
    bench.later(2_000);
    assert_eq!(bench.said(client), ["R  -r"]);
    bench.prolongs(RDS, Set::All, "r", 100);
    assert_eq!(bench.said(client), ["R r"]);
    bench.later(10_000);
    bench.whole(CDS, &[("b", "1")]);
    bench.later(4_000);
    assert_eq!(bench.said(client), [""; 0], "the route leads there");
    bench.later(1_000);
    assert_eq!(bench.said(client), ["C  -a"]);
    // Every reference was counted exactly once.
    lead_for(&mut bench, Set::All, "t", &["b"], None);
    lead_for(&mut bench, Set::All, "s", &[], None);
    assert_eq!(bench.said(client), ["R s,t"]);
    bench.later(10_000);
    bench.whole(CDS, &[]);
    bench.later(4_000);
    assert_eq!(bench.said(client), [""; 0], "another route leads there");
}

#[test]
fn ord_4_routes_that_one_cluster_releases_follow_it_and_stay_in_their_set() {
    let mut bench = Bench::with(ProtocolOptions::default());
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, RDS, &["*"], &[]);
    let lead = |bench: &mut Bench, route, cluster| lead_for(bench, Set::All, route, &[cluster], None);
    bench.whole(CDS, &[("x", "1")]);
    ["r1", "r2", "r3"].into_iter().for_each(|route| lead(&mut bench, route, "x"));
    bench.later(10_000);
    bench.said(client);
    ["r1", "r2", "r3"].into_iter().for_each(|route| lead(&mut bench, route, "y"));
    assert_eq!(bench.said(client), [""; 0], "they wait");
    bench.set(CDS, &[("y", "1")]);
    assert_eq!(bench.said(client), ["C y"]);
    bench.later(10_000);
    assert_eq!(bench.said(client), ["R r1,r2,r3"]);
    ["r4", "r5", "r6"].into_iter().for_each(|route| lead(&mut bench, route, "x"));
    bench.later(10_000);
    assert_eq!(bench.said(client), ["R r4,r5,r6"]);
    let later = bench.client(Variant::Sotw);
    bench.sotw(later, RDS, &["*"], "");
    assert_eq!(bench.said(later), ["R r1,r2,r3,r4,r5,r6"]);
}
