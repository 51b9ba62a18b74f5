//! Removals of clusters for a client that has NACKed its routing and continues with the routing before it (ORD-1, I8).

use std::collections::BTreeMap;
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, Status};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Step, Variant};
use weir_core::protocol::view::SessionId;

use super::support::{Bench, CDS, EDS, LDS, RDS, SDS, lead, nack, text_of};

const HOLD: u64 = 5_000;
const QUIET: u64 = 50;
/// How long a change of routing waits for its clusters at most, in milliseconds.
const WAIT: u64 = 1_000;

/// Returns a client of one variant that has `r`, `a`, `idle` and the endpoints of both clusters, new or back with what it holds. It NACKs the
/// latest change of `r`.
fn nacking(variant: Variant, is_back: bool, options: ProtocolOptions) -> (Bench, SessionId) {
    let mut bench = Bench::with(options);
    let other = bench.client(Variant::Delta);
    for (url, names) in [(CDS, ["*"].as_slice()), (EDS, &["a", "idle"]), (RDS, &["r"])] {
        bench.delta(other, url, names, &[]);
    }
    bench.whole(CDS, &[("a", "1"), ("idle", "1")]);
    bench.set(EDS, &[("a", "1"), ("idle", "1")]);
    lead(&mut bench, "r", &["a"]);
    let clusters = bench.poll(other).unwrap();
    let stated = clusters.resources.iter().map(|of| (of.name.to_string(), of.full.to_string()));
    let stated: BTreeMap<String, String> = stated.collect();
    bench.said(other);
    let client = bench.client(variant);
    for (url, names) in [(CDS, ["*"].as_slice()), (EDS, &["a", "idle"]), (RDS, &["r"])] {
        let type_url = url.to_owned();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        bench.request(
            client,
            match variant {
                Variant::Sotw => Request::Sotw(DiscoveryRequest {
                    type_url,
                    resource_names: names,
                    version_info: if is_back { "of-another".into() } else { String::new() },
                    ..Default::default()
                }),
                Variant::Delta => Request::Delta(DeltaDiscoveryRequest {
                    type_url,
                    resource_names_subscribe: names,
                    initial_resource_versions: if is_back && url == CDS { stated.clone() } else { BTreeMap::new() },
                    ..Default::default()
                }),
            },
        );
    }
    bench.said(client);
    bench.said(other);
    bench.later(10 * HOLD);
    bench.said(client);
    lead(&mut bench, "r", &["a", "a2"]);
    bench.later(WAIT);
    bench.said(other);
    let nonce = std::iter::from_fn(|| bench.poll(client)).last().unwrap().nonce.to_string();
    answer(&mut bench, client, variant, &nonce, nack(3));
    bench.later(10 * HOLD);
    assert_eq!(bench.said(client), [""; 0]);
    bench.said(other);
    (bench, client)
}

/// Lets the client ACK or NACK a reply with routes.
fn answer(bench: &mut Bench, client: SessionId, variant: Variant, nonce: &str, error_detail: Option<Status>) {
    let (type_url, response_nonce) = (RDS.to_owned(), nonce.to_owned());
    bench.request(
        client,
        match variant {
            Variant::Sotw => {
                let resource_names = vec!["r".into()];
                Request::Sotw(DiscoveryRequest {
                    type_url,
                    response_nonce,
                    resource_names,
                    error_detail,
                    ..Default::default()
                })
            }
            Variant::Delta => {
                Request::Delta(DeltaDiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() })
            }
        },
    );
}

/// Returns what the client is sent when `idle` and its endpoints are removed.
fn removed(variant: Variant) -> Vec<&'static str> {
    if variant == Variant::Sotw { vec!["C a"] } else { vec!["C  -idle", "C  -idle"] }
}

fn without_order() -> ProtocolOptions {
    // The view removes a cluster to which nothing refers after 50 ms.
    ProtocolOptions::default().with(|options| options.hold_referenced(Duration::from_millis(HOLD)))
}

#[test]
fn ord_1_removals_of_a_client_that_nacked_its_routing_wait_for_the_bound_and_those_of_others_do_not() {
    for (variant, is_back) in [Variant::Sotw, Variant::Delta].into_iter().flat_map(|of| [(of, false), (of, true)]) {
        let (mut bench, client) = nacking(variant, is_back, without_order());
        let other = bench.client(Variant::Delta);
        bench.delta(other, CDS, &["*"], &[]);
        bench.delta(other, LDS, &["l"], &[]);
        bench.said(other);
        bench.remove(EDS, "idle");
        bench.remove(CDS, "idle");
        bench.later(QUIET);
        assert_eq!(bench.said(other), ["C  -idle"], "{variant:?} {is_back}");
        assert_eq!(bench.said(client), [""; 0], "{variant:?} {is_back}: its routing may lead there");
        // Removals that become due in the meantime do not prolong the wait, and removals of other types do not wait.
        bench.later(HOLD - 1);
        bench.set(SDS, &[("s", "1")]);
        assert_eq!(bench.said(client), [""; 0], "{variant:?} {is_back}");
        let Step::Idle(Some(until)) = bench.step(client) else { panic!("nothing would wake it") };
        assert_eq!(until, bench.now + Duration::from_millis(1));
        bench.later(1);
        assert_eq!(bench.said(client), removed(variant), "{variant:?} {is_back}");
        bench.later(10 * HOLD);
        assert_eq!(bench.said(client), [""; 0], "once");
    }
}

#[test]
fn ord_1_the_removals_of_a_client_that_nacked_its_routing_go_when_it_accepts_a_newer_one() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let (mut bench, client) = nacking(variant, false, without_order());
        bench.remove(EDS, "idle");
        bench.remove(CDS, "idle");
        bench.later(QUIET);
        assert_eq!(bench.said(client), [""; 0], "{variant:?}");
        lead(&mut bench, "r", &["a"]);
        let reply = bench.poll(client).unwrap();
        assert_eq!(bench.said(client), [""; 0], "{variant:?}");
        answer(&mut bench, client, variant, &reply.nonce.to_string(), None);
        assert_eq!(bench.said(client), removed(variant), "{variant:?}");
    }
}

/// An Envoy that rejects `r` goes on with its earlier `r`, whatever else it accepts.
#[test]
fn ord_1_removals_wait_although_the_client_has_accepted_other_routing_since_its_nack() {
    let (mut bench, client) = nacking(Variant::Delta, false, without_order());
    bench.delta(client, RDS, &["q"], &[]);
    lead(&mut bench, "q", &["a"]);
    let reply = bench.poll(client).unwrap();
    assert_eq!(text_of(&reply), "R q");
    answer(&mut bench, client, Variant::Delta, &reply.nonce.to_string(), None);
    bench.remove(EDS, "idle");
    bench.remove(CDS, "idle");
    bench.later(QUIET);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(HOLD - 1);
    assert_eq!(bench.said(client), [""; 0]);
    bench.later(1);
    assert_eq!(bench.said(client), removed(Variant::Delta));
}

/// Delta replies wait for no ACK, so a NACK may come when its reply is forgotten.
#[test]
fn i7_removals_wait_for_a_nack_of_routing_however_many_replies_were_sent_before_it_came() {
    let (mut bench, client) = nacking(Variant::Delta, false, without_order());
    let change = |bench: &mut Bench, routes: usize| {
        lead(bench, "r", &vec!["a"; routes]);
        bench.poll(client).unwrap().nonce.to_string()
    };
    let accepted = change(&mut bench, 1);
    answer(&mut bench, client, Variant::Delta, &accepted, None);
    let nonces: Vec<_> = (2..14).map(|routes| change(&mut bench, routes)).collect();
    answer(&mut bench, client, Variant::Delta, &nonces[0], nack(3));
    bench.remove(EDS, "idle");
    bench.remove(CDS, "idle");
    bench.later(QUIET);
    assert_eq!(bench.said(client), [""; 0], "its routing may lead there");
    answer(&mut bench, client, Variant::Delta, &nonces[nonces.len() - 1], None);
    assert_eq!(bench.said(client), removed(Variant::Delta));
}

#[test]
fn ord_1_what_a_nack_of_routing_keeps_back_is_routing_and_what_it_refers_to_and_nothing_else() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let (mut bench, client) = nacking(variant, false, without_order());
        match variant {
            Variant::Sotw => bench.sotw(client, LDS, &["*"], ""),
            Variant::Delta => [LDS, SDS].iter().for_each(|url| bench.delta(client, url, &["*"], &[])),
        }
        bench.whole(LDS, &[("l", "1"), ("m", "1")]);
        bench.whole(SDS, &[("s", "1"), ("t", "1")]);
        bench.said(client);
        bench.later(HOLD);
        bench.said(client);
        bench.whole(SDS, &[("s", "1")]);
        let alone = if variant == Variant::Sotw { vec![] } else { vec!["S  -t"] };
        assert_eq!(bench.said(client), alone, "{variant:?}: no cluster that stays may need it");
        bench.remove(CDS, "idle");
        bench.later(QUIET);
        bench.whole(LDS, &[("l", "1")]);
        let listeners = if variant == Variant::Sotw { "L l" } else { "L  -m" };
        assert_eq!(bench.said(client), [listeners], "{variant:?}");
    }
}

#[test]
fn ord_1_a_nack_of_routing_keeps_nothing_back_without_order_and_never_so_much_that_the_history_forgets_it() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let options = ProtocolOptions::default().with(|options| options.hold_referenced(Duration::ZERO));
        let (mut bench, client) = nacking(variant, false, options);
        bench.remove(EDS, "idle");
        bench.remove(CDS, "idle");
        assert_eq!(bench.said(client), removed(variant), "{variant:?}");

        let (mut bench, client) =
            nacking(variant, false, without_order().with(|options| options.view.history_bytes = 1600));
        let many = ["a", "idle", "c", "d", "e"].map(|name| (name, "1"));
        bench.whole(CDS, &many);
        bench.said(client);
        for left in (1..5).rev() {
            bench.whole(CDS, &many[..left]);
            bench.later(QUIET);
            bench.said(client); // a session that ends fails the test
        }
    }
}

#[test]
fn i8_names_that_do_not_exist_are_no_removals_of_sets() {
    let (mut bench, client) =
        nacking(Variant::Delta, false, ProtocolOptions::default().with(|options| options.view.history_bytes = 6_000));
    let guesses: Vec<_> = (0..50).map(|number| format!("none-{number}")).collect();
    let guesses: Vec<_> = guesses.iter().map(String::as_str).collect();
    let other = bench.client(Variant::Delta);
    bench.delta(other, EDS, &guesses, &[]);
    guesses.iter().for_each(|name| bench.remove(EDS, name));
    bench.said(other);
    bench.remove(EDS, "idle");
    bench.remove(CDS, "idle");
    bench.later(HOLD - 1);
    assert_eq!(bench.said(client), [""; 0], "its routing may lead there");
}
