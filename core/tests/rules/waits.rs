//! What a client's burst waits for, for how long at most, and what does not wait for it (I7, I3, DELTA-21).

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Step, Variant};
use weir_core::protocol::set_mark::SetMark;
use weir_core::protocol::view::SessionId;
use weir_core::xds::Authority;

use super::support::{Bench, CDS, EDS, Extent, LDS, RDS, Set};

/// How long a client waits at most, in milliseconds.
const BOUND: u64 = 20_000;
const BOTH: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// Makes the first request of a client, which states that it holds something.
fn stating(bench: &mut Bench, client: SessionId, variant: Variant, url: &str, names: &[&str]) {
    let type_url = url.to_owned();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let request = match variant {
        Variant::Sotw => {
            let version_info = "of-another".into();
            Request::Sotw(DiscoveryRequest { type_url, resource_names: names, version_info, ..Default::default() })
        }
        Variant::Delta => {
            let initial_resource_versions = [("old".to_owned(), "of-another".to_owned())].into();
            let resource_names_subscribe = names;
            Request::Delta(DeltaDiscoveryRequest {
                type_url,
                resource_names_subscribe,
                initial_resource_versions,
                ..Default::default()
            })
        }
    };
    bench.request(client, request);
}

fn ask(bench: &mut Bench, client: SessionId, variant: Variant, url: &str, names: &[&str]) {
    match variant {
        Variant::Sotw => bench.sotw(client, url, names, ""),
        Variant::Delta => bench.delta(client, url, names, &[]),
    }
}

fn reachable(bench: &mut Bench, is_reachable: bool) {
    let down = if is_reachable { BTreeSet::new() } else { BTreeSet::from([Authority::TopLevel]) };
    bench.view.on_source(down, true);
    bench.publish();
}

/// Sends a client clusters `a` and `b`, and then lets the server remove `b`. The client has also requested listeners and scoped routes, which no
/// server answers. With `holds`, it states that it holds listeners; with `is_back`, that it holds clusters.
fn unanswered(variant: Variant, is_back: bool, holds: bool, relay: bool) -> (Bench, SessionId) {
    let mut bench = Bench::new();
    let client = bench.add(Client { relay, ..Client::plain(variant) });
    let names: &[&str] = if relay { &["*"] } else { &[] };
    if is_back {
        stating(&mut bench, client, variant, CDS, names);
    } else {
        ask(&mut bench, client, variant, CDS, names);
    }
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    if holds {
        stating(&mut bench, client, variant, LDS, names);
    } else {
        ask(&mut bench, client, variant, LDS, names);
    }
    ask(&mut bench, client, variant, "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration", names);
    assert_eq!(bench.said(client)[0], "C a,b");
    bench.sotw_ack(client, variant, CDS, names);
    (bench, client)
}

#[test]
fn ord_5_removals_wait_for_no_routing_of_which_the_client_holds_nothing() {
    for (variant, is_back, relay) in
        BOTH.into_iter().flat_map(|of| [(of, false, false), (of, true, false), (of, false, true), (of, true, true)])
    {
        let (mut bench, client) = unanswered(variant, is_back, false, relay);
        bench.said(client);
        bench.whole(CDS, &[("a", "1")]);
        let removal = if variant == Variant::Sotw { "C a" } else { "C  -b" };
        assert_eq!(bench.said(client), [removal], "{variant:?}, back: {is_back}, relay: {relay}");
    }
}

#[test]
fn ord_5_removals_wait_for_routing_that_the_client_states_for_a_bounded_time_in_which_a_server_could_send_it() {
    for (variant, is_back, relay) in
        BOTH.into_iter().flat_map(|of| [(of, false, false), (of, true, false), (of, false, true), (of, true, true)])
    {
        let case = format!("{variant:?}, back: {is_back}, relay: {relay}");
        let (mut bench, client) = unanswered(variant, is_back, true, relay);
        bench.whole(CDS, &[("a", "1")]);
        bench.later(BOUND / 2);
        assert_eq!(bench.said(client), [""; 0], "{case}: its listeners may lead there");
        reachable(&mut bench, false);
        assert!(matches!(bench.step(client), Step::Idle(None)), "{case}: no time ends the wait now");
        bench.later(100 * BOUND);
        assert_eq!(bench.said(client), [""; 0], "{case}: nobody could have sent them");
        reachable(&mut bench, true);
        let Step::Idle(Some(until)) = bench.step(client) else { panic!("{case}: nothing would wake it") };
        assert_eq!(until, bench.now + Duration::from_millis(BOUND / 2), "{case}");
        bench.later(BOUND / 2 - 1);
        assert_eq!(bench.said(client), [""; 0], "{case}");
        bench.later(1);
        let removal = if variant == Variant::Sotw { "C a" } else { "C  -b" };
        assert!(bench.said(client).iter().any(|said| said.starts_with(removal)), "{case}");
        bench.whole(CDS, &[]);
        bench.later(500); // in SotW the relay waits for the missing ACK
        let removal = if variant == Variant::Sotw { "C " } else { "C  -a" };
        assert_eq!(bench.said(client), [removal], "{case}: the wait does not start over");
    }
}

#[test]
fn ord_5_removals_wait_for_routing_of_which_the_client_was_sent_a_piece() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, LDS, &["*"], &[]);
    bench.whole(CDS, &[("a", "1"), ("b", "1")]);
    bench.piece(LDS, "l", Extent::Arriving);
    assert_eq!(bench.said(client), ["C a,b", "L l"]);
    bench.whole(CDS, &[("a", "1")]);
    bench.later(BOUND - 1);
    assert_eq!(bench.said(client), [""; 0], "a change of it may be on its way");
    bench.reaches(LDS, Set::All, Extent::Settled);
    assert_eq!(bench.said(client), ["C  -b"]);
}

/// The server is asked for a name once on each opening, so its answer must not be lost meanwhile.
#[test]
fn ord_5_what_a_client_states_is_removed_also_if_that_has_to_wait_for_routing() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    stating(&mut bench, client, Variant::Delta, CDS, &[]);
    stating(&mut bench, client, Variant::Delta, LDS, &[]);
    bench.piece(CDS, "a", Extent::Settled);
    assert_eq!((bench.said(client), bench.sought()), (vec!["C a".to_owned()], vec!["old".to_owned()]));
    bench.remove(CDS, "old");
    assert_eq!(bench.said(client), [""; 0], "its listeners may lead there");
    bench.later(BOUND);
    assert_eq!(bench.said(client), ["C  -old"]);
}

#[test]
fn ord_5_without_a_clusters_timeout_removals_wait_for_no_routing() {
    for variant in BOTH {
        let mut bench = Bench::with(ProtocolOptions::default().with(|options| {
            options.session.clusters_timeout = Duration::ZERO;
            options.hold_referenced(Duration::ZERO);
        }));
        let client = bench.client(variant);
        ask(&mut bench, client, variant, CDS, &["*"]);
        stating(&mut bench, client, variant, LDS, &["*"]);
        bench.whole(CDS, &[("a", "1"), ("b", "1")]);
        bench.said(client);
        bench.sotw_ack(client, variant, CDS, &["*"]);
        bench.whole(CDS, &[("a", "1")]);
        assert_eq!(bench.said(client), [if variant == Variant::Sotw { "C a" } else { "C  -b" }], "{variant:?}");
    }
}

#[test]
fn ord_4_the_wait_of_a_route_for_clusters_does_not_start_over_when_the_route_waits_for_something_else_too() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    stating(&mut bench, client, Variant::Delta, CDS, &["*"]);
    bench.delta(client, RDS, &["r"], &[]);
    bench.set(RDS, &[("r", "1")]);
    bench.piece(CDS, "a", Extent::Arriving);
    let said = bench.said(client);
    assert_eq!(said, ["C a"], "more clusters may come");
    bench.later(BOUND - 500);
    assert_eq!(bench.said(client), [""; 0]);
    bench.delta(client, EDS, &["a", "b"], &[]);
    bench.piece(CDS, "b", Extent::Arriving);
    assert_eq!(bench.said(client), ["C b"]);
    bench.later(499);
    assert_eq!(bench.said(client), [""; 0]);
    // The routing hold for `b` lasts a little longer.
    bench.later(1);
    let mut waited = 0;
    while bench.said(client).is_empty() {
        bench.later(100);
        waited += 100;
        assert!(waited <= 2_000, "it waits for clusters a second time");
    }
}

#[test]
fn delta_21_an_empty_set_is_answered_though_removals_wait() {
    for is_back in [false, true] {
        let (mut bench, client) = unanswered(Variant::Delta, false, true, false);
        bench.whole(CDS, &[("a", "1")]);
        assert_eq!(bench.said(client), [""; 0], "the removal waits");
        if is_back {
            stating(&mut bench, client, Variant::Delta, EDS, &["*"]);
        } else {
            bench.delta(client, EDS, &["*"], &[]);
        }
        assert_eq!(bench.said(client), [""; 0], "nothing is known");
        bench.whole(EDS, &[]);
        assert_eq!(bench.said(client), ["C "], "back: {is_back}");
        bench.later(BOUND);
        let mut rest = vec!["C  -b"];
        rest.extend(is_back.then_some("C  -old"));
        assert_eq!(bench.said(client), rest, "back: {is_back}");
    }
}

#[test]
fn delta_21_an_empty_set_is_no_answer_to_who_may_be_sent_nothing_of_it() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    stating(&mut bench, client, Variant::Delta, CDS, &["*"]);
    bench.delta(client, LDS, &["*"], &[]);
    bench.whole(LDS, &[]);
    assert_eq!(bench.said(client), [""; 0], "clusters come first");
    bench.whole(CDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a", "L ", "C  -old"]);
}

/// Returns a delta client, new or back with a cluster that it states, after the first push of a server whose stream is lost at once.
fn cut_short(is_back: bool, extent: Extent) -> (Bench, SessionId) {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    if is_back {
        stating(&mut bench, client, Variant::Delta, CDS, &["*"]);
    } else {
        bench.delta(client, CDS, &["*"], &[]);
    }
    bench.delta(client, EDS, &["new"], &[]);
    bench.delta(client, RDS, &["r"], &[]);
    bench.set(RDS, &[("r", "1")]);
    bench.piece(CDS, "new", extent);
    bench.set(EDS, &[("new", "1")]);
    (bench, client)
}

#[test]
fn i4_what_was_received_whole_before_the_stream_was_lost_goes_to_delta_clients_in_order_during_the_outage() {
    for (is_back, extent) in [(false, Extent::Arriving), (true, Extent::Arriving), (true, Extent::First)] {
        let case = format!("back: {is_back}, {extent:?}");
        let (mut bench, client) = cut_short(is_back, extent);
        assert_eq!(bench.said(client), ["C new", "C new"], "{case}");
        bench.later(100);
        bench.said(client);
        assert!(bench.publish() == 0);
        bench.publishes = false;
        bench.cut(CDS, Set::All);
        assert!(bench.publish() > 0, "{case}: the client is woken");
        reachable(&mut bench, false);
        bench.later(2_000); // the routing hold
        assert_eq!(bench.said(client), ["R r"], "{case}");
        bench.later(100 * BOUND);
        assert_eq!(bench.said(client), [""; 0], "{case}: what it stated may exist");
    }
}

#[test]
fn i3_a_set_that_was_cut_short_is_still_no_set_for_sotw_clients_and_no_removal() {
    for extent in [Extent::Arriving, Extent::First] {
        let (mut bench, client) = cut_short(true, extent);
        bench.cut(CDS, Set::All);
        let fresh = bench.client(Variant::Sotw);
        bench.sotw(fresh, CDS, &[], "");
        let moved = bench.client(Variant::Sotw);
        stating(&mut bench, moved, Variant::Sotw, CDS, &[]);
        bench.later(100 * BOUND);
        assert!(!bench.said(client).iter().any(|said| said.contains('-')), "{extent:?}");
        let given: &[&str] = if extent == Extent::Arriving { &[] } else { &["C new"] };
        assert_eq!(bench.said(fresh), given, "{extent:?}");
        assert_eq!(bench.said(moved), [""; 0], "{extent:?}");
    }
}

#[test]
fn i4_the_next_opening_of_a_set_that_was_cut_short_is_waited_for_as_the_first_was() {
    let (mut bench, client) = cut_short(true, Extent::First);
    bench.cut(CDS, Set::All);
    bench.later(2_000);
    bench.said(client);
    bench.piece(CDS, "newer", Extent::First);
    bench.set(RDS, &[("r", "2")]);
    assert_eq!(bench.said(client), ["C newer"], "more of it may come now");
    bench.reaches(CDS, Set::All, Extent::Settled);
    bench.later(2_000);
    assert_eq!(bench.said(client), ["R r"]);
}

/// A relay states listeners of which nothing is known, so its removals wait. If nothing is to be removed from a set, the end of the set is sent
/// all the same.
#[test]
fn xlat_12_the_end_of_a_set_does_not_wait_for_routing_of_which_nothing_is_known() {
    for removes in [false, true] {
        let mut bench = Bench::new();
        let client = bench.add(Client { relay: true, ..Client::plain(Variant::Delta) });
        ask(&mut bench, client, Variant::Delta, CDS, &["*"]);
        stating(&mut bench, client, Variant::Delta, LDS, &["*"]);
        bench.piece(CDS, "a", Extent::First);
        bench.piece(CDS, "b", Extent::Settled);
        assert_eq!(bench.said(client), ["C a,b"]);
        if removes {
            bench.remove(CDS, "b");
        }
        bench.reaches(CDS, Set::All, Extent::Complete);
        let marks: Vec<_> = std::iter::from_fn(|| bench.poll(client)).map(|reply| reply.set_mark).collect();
        let expected = if removes { &[][..] } else { &[Some(SetMark::Complete)] };
        assert_eq!(marks, expected, "removes: {removes}");
    }
}

/// Endpoints are sent again with their clusters. If their set comes later, the client would be sent them and would not be sent their removal.
#[test]
fn delta_45_a_member_of_a_set_is_not_sent_before_the_first_reply_to_the_set() {
    let mut first = Bench::new();
    first.whole(CDS, &[("a", "1")]);
    let keeper = first.client(Variant::Delta);
    for url in [CDS, EDS] {
        first.delta(keeper, url, &["*"], &[]);
    }
    first.whole(CDS, &[("a", "1")]);
    first.piece(EDS, "a", Extent::Settled);
    let mut bench = Bench::new();
    bench.inherit(&first);
    let client = bench.client(Variant::Delta);
    ask(&mut bench, client, Variant::Delta, CDS, &["*"]);
    stating(&mut bench, client, Variant::Delta, EDS, &["*"]);
    assert_eq!(bench.said(client), ["C a"], "its endpoints are from disk, and it may hold newer ones");
    bench.later(1000);
    assert_eq!(bench.said(client), [""; 0]);
    bench.piece(EDS, "a", Extent::Settled);
    assert_eq!(bench.said(client), ["C a"], "a server has confirmed them");
}
