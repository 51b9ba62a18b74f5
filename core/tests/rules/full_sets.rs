//! Complete sets of SotW: what they contain, and when they are sent again.

use weir_core::proto::Request;
use weir_core::proto::discovery::DiscoveryRequest;
use weir_core::protocol::session::{Client, Variant};

use super::support::{Bench, CDS, LDS, Set};

const SRDS: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";

#[test]
fn sotw_20_what_was_removed_is_sent_when_it_comes_back_as_it_was() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &["*"], "");
    for (nonce, set, said) in [
        ("1", &[("a", "1"), ("b", "1")][..], "C a,b"),
        ("2", &[("a", "1")], "C a"),
        ("3", &[("a", "1"), ("b", "1")], "C a,b"),
    ] {
        bench.whole(CDS, set);
        assert_eq!(bench.said(client), [said]);
        bench.sotw(client, CDS, &["*"], nonce);
    }
}

#[test]
fn sotw_20_a_set_has_what_is_subscribed_by_name_beside_the_wildcard() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, LDS, &["*", "x"], "");
    bench.give(LDS, "x", "1", |_| {});
    bench.whole(LDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["L a,x"]);
}

#[test]
fn ord_7_what_a_client_has_of_the_wildcard_stays_in_the_union_though_it_has_just_subscribed_to_the_name() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &["*"], "");
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(bench.said(client), ["C a,b"]);
    bench.sotw(client, CDS, &["*", "a"], "1");
    bench.remove(CDS, "a");
    bench.set(CDS, &[("c", "1")]);
    assert_eq!(bench.said(client), ["C a,b,c"], "additions come first");
    bench.sotw(client, CDS, &["*", "a"], "2");
    assert_eq!(bench.said(client), ["C b,c"]);
}

#[test]
fn sotw_52_an_error_beside_a_set_is_sent_once_though_nothing_else_is_known_of_the_name() {
    let mut bench = Bench::new();
    let client = bench.add(Client { errors: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, LDS, &["a", "b"], "");
    bench.set(LDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["L a"]);
    bench.sotw(client, LDS, &["a", "b"], "1");
    bench.fails(LDS, "b", 14);
    assert_eq!(bench.said(client), ["L !b:14,a"]);
    bench.sotw(client, LDS, &["a", "b"], "2");
    assert_eq!(bench.said(client), [""; 0], "not again");
}

#[test]
fn sotw_52_the_set_without_what_is_absent_says_why() {
    let mut bench = Bench::new();
    let client = bench.add(Client { errors: true, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, LDS, &["a", "b"], "");
    bench.set(LDS, &[("a", "1"), ("b", "1")]);
    assert_eq!(bench.said(client), ["L a,b"]);
    bench.sotw(client, LDS, &["a", "b"], "1");
    bench.remove(LDS, "a");
    assert_eq!(bench.said(client), ["L !a:5,b"]);
    bench.sotw(client, LDS, &["a", "b"], "2");
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn sotw_7_a_version_that_was_stated_counts_no_more_once_a_set_was_sent() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    let request = DiscoveryRequest { type_url: CDS.into(), version_info: "x".into(), ..Default::default() };
    bench.request(client, Request::Sotw(request));
    bench.whole(CDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.sotw(client, CDS, &[], "1");
    bench.cut(CDS, Set::All);
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), ["C a"], "it holds what it was sent");
}

#[test]
fn sotw_7_and_sotw_41_what_a_client_has_of_the_wildcard_that_it_leaves_stays_until_the_name_is_known() {
    for (url, letter) in [(CDS, "C"), (LDS, "L"), (SRDS, "S")] {
        // The client is sent nothing between the lists.
        let cases: [&[&[&str]]; 3] = [&[&["a"]], &[&["*", "a"], &["a"]], &[&["b"], &["b", "a"], &["a"]]];
        for lists in cases {
            for is_present in [true, false] {
                let mut bench = Bench::new();
                let client = bench.client(Variant::Sotw);
                bench.sotw(client, url, &["*"], "");
                bench.whole(url, &[("a", "1"), ("b", "1")]);
                assert_eq!(bench.said(client), [format!("{letter} a,b")]);
                lists.iter().for_each(|list| bench.sotw(client, url, list, "1"));
                bench.later(60_000);
                assert_eq!(bench.said(client), [""; 0], "{lists:?}: nothing is known of a by its name");
                if is_present {
                    bench.give(url, "a", "1", |_| {});
                } else {
                    bench.remove(url, "a");
                }
                let set = if is_present { "a" } else { "" };
                assert_eq!(bench.said(client), [format!("{letter} {set}")], "{lists:?}");
                assert_eq!(bench.said(client), [""; 0], "{lists:?}: once");
                bench.sotw(client, url, &["a", "new"], "2");
                bench.give(url, "a", "2", |_| {});
                assert_eq!(bench.said(client), [format!("{letter} a")], "{lists:?}: the client never had new");
            }
        }
    }
}

#[test]
fn sotw_7_and_sotw_41_what_a_client_stated_of_the_wildcard_that_it_leaves_stays_until_the_name_is_known() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    let request = DiscoveryRequest { type_url: CDS.into(), version_info: "x".into(), ..Default::default() };
    bench.request(client, Request::Sotw(request));
    bench.sotw(client, CDS, &["a"], "");
    assert_eq!(bench.said(client), [""; 0]);
    bench.give(CDS, "a", "1", |_| {});
    assert_eq!(bench.said(client), ["C a"]);
}

/// The client would drop the resource, so silence does not suffice: the name is requested once more.
#[test]
fn sotw_7_what_a_client_may_hold_and_a_server_was_silent_about_is_requested_again() {
    let mut bench = Bench::new();
    let other = bench.client(Variant::Sotw);
    bench.sotw(other, CDS, &["silent", "here"], "");
    bench.set(CDS, &[("here", "1")]);
    bench.ignores(CDS, "silent");
    assert_eq!((bench.said(other), bench.sought()), (vec!["C here".into()], Vec::new()), "it holds nothing");

    let holder = bench.client(Variant::Sotw);
    bench.request(
        holder,
        Request::Sotw(DiscoveryRequest {
            type_url: CDS.into(),
            version_info: "held".into(),
            resource_names: ["silent", "here", "new"].map(String::from).into(),
            ..Default::default()
        }),
    );
    assert_eq!(bench.said(holder), [""; 0]);
    assert_eq!(bench.sought(), ["silent"]);
    bench.remove(CDS, "silent");
    bench.remove(CDS, "new");
    assert_eq!(bench.said(holder), ["C here"]);
    assert_eq!(bench.sought(), [""; 0]);
}
