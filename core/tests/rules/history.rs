//! What a view remembers of removals, for whom, and what happens to clients that are too far behind.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{CloseReason, Step, Variant};
use weir_core::protocol::view::SessionId;

use super::support::{Bench, CDS, Extent, LDS, Set};

const SECOND: u64 = 1_000;

fn unordered(options: ProtocolOptions) -> Bench {
    Bench::with(options.with(|options| options.hold_referenced(Duration::ZERO)))
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("c{number:06}")).collect()
}

fn fill(bench: &mut Bench, names: &[String]) {
    let all: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
    bench.whole(CDS, &all);
}

/// Adds a client that states names of which nothing is known.
fn stating(bench: &mut Bench, names: &[String]) -> SessionId {
    let client = bench.client(Variant::Delta);
    let request = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_names_subscribe: vec!["*".into()],
        initial_resource_versions: names.iter().map(|name| (name.clone(), "x".to_owned())).collect(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
    client
}

/// Returns how many removals a client is sent.
fn removed(bench: &mut Bench, client: SessionId) -> usize {
    std::iter::from_fn(|| bench.poll(client)).map(|reply| reply.removed.len()).sum()
}

#[test]
fn i8_names_that_nobody_has_are_told_to_those_that_claim_them_and_end_nobody() {
    for count in [5_000, 100_000] {
        let mut bench = unordered(ProtocolOptions::default().with(|options| {
            options.view.history_bytes = 10_000;
            options.view.sought_names = 200_000;
        }));
        let reader = bench.client(Variant::Delta);
        bench.delta(reader, CDS, &["*"], &[]);
        bench.set(CDS, &[("a", "1"), ("b", "1")]);
        bench.reaches(CDS, Set::All, Extent::Settled);
        assert_eq!(bench.said(reader), ["C a,b"]);
        let gone = names(count);
        let claims = stating(&mut bench, &gone);
        assert_eq!(bench.said(claims), ["C a,b"]);
        assert_eq!(bench.sought().len(), count);
        bench.removes(CDS, Set::All, &gone);
        bench.remove(CDS, "b");
        bench.later(0);
        assert_eq!(bench.said(reader), ["C  -b"], "{count}: it has missed nothing");
        assert_eq!(removed(&mut bench, claims), count + 1);
        assert!(!bench.remembers(CDS, Set::All, &gone[0]), "what was never there leaves no trace");
    }
}

#[test]
fn xlat_12_an_answer_holds_for_all_that_claim_the_same_on_one_opening() {
    let mut bench = unordered(ProtocolOptions::default());
    let reader = bench.client(Variant::Delta);
    bench.delta(reader, CDS, &["*"], &[]);
    bench.set(CDS, &[("a", "1")]);
    bench.reaches(CDS, Set::All, Extent::Settled);
    bench.said(reader);
    let gone = names(3);
    let early: Vec<_> = (0..40).map(|_| stating(&mut bench, &gone)).collect();
    early.iter().for_each(|client| drop(bench.said(*client)));
    bench.removes(CDS, Set::All, &gone);
    for client in &early {
        assert_eq!(bench.said(*client), ["C  -c000000,c000001,c000002"]);
    }
    assert_eq!(bench.said(reader), [""; 0], "it concerns nobody else");
    let late = stating(&mut bench, &gone[..1]);
    assert_eq!(bench.said(late), ["C a"]);
    bench.publish();
    assert_eq!(bench.said(late), ["C  -c000000"], "the server has answered that on this opening");

    // On another opening the server is asked again, and its earlier answers do not count any more.
    let blocked = stating(&mut bench, &gone);
    bench.cut(CDS, Set::All);
    assert_eq!(bench.said(blocked), ["C a"]);
    bench.sought();
    bench.set(CDS, &[("c000001", "1")]);
    assert_eq!(bench.said(blocked), ["C c000001"]);
    bench.removes(CDS, Set::All, &[gone[0].clone(), gone[2].clone()]);
    assert_eq!(bench.said(blocked), ["C  -c000000,c000002"]);
}

#[test]
fn up_25_an_answer_does_not_outlive_what_the_server_sends_under_the_name() {
    let mut bench = unordered(ProtocolOptions::default());
    let reader = bench.client(Variant::Delta);
    bench.delta(reader, CDS, &["*"], &[]);
    bench.set(CDS, &[("a", "1")]);
    bench.reaches(CDS, Set::All, Extent::Settled);
    let gone = names(1);
    let early = stating(&mut bench, &gone);
    bench.said(early);
    bench.removes(CDS, Set::All, &gone);
    assert_eq!(bench.said(early), ["C  -c000000"]);
    bench.garbles(CDS, &gone[0]);
    let late = stating(&mut bench, &gone);
    bench.said(late);
    bench.publish();
    assert_eq!(bench.said(late), [""; 0], "it is there, and cannot be read");
}

#[test]
fn i4_removals_of_one_response_reach_everybody_that_has_read_the_one_before_it() {
    let mut bench = unordered(ProtocolOptions::default().with(|options| options.view.history_bytes = 1_000));
    let [delta, sotw] = [Variant::Delta, Variant::Sotw].map(|variant| bench.client(variant));
    bench.delta(delta, CDS, &["*"], &[]);
    bench.sotw(sotw, CDS, &["*"], "");
    let all = names(50_000);
    fill(&mut bench, &all);
    [delta, sotw].into_iter().for_each(|client| drop(bench.said(client)));
    bench.sotw(sotw, CDS, &["*"], "1");
    fill(&mut bench, &all[..100]);
    bench.view.on_time(bench.now); // as in each flush, before what it publishes
    assert_eq!(removed(&mut bench, delta), 49_900);
    assert_eq!(bench.poll(sotw).unwrap().resources.len(), 100);
}

#[test]
fn i4_removals_of_many_responses_reach_everybody_that_reads() {
    let mut bench = unordered(ProtocolOptions::default());
    let [delta, sotw, silent] = [Variant::Delta, Variant::Sotw, Variant::Delta].map(|variant| bench.client(variant));
    for client in [delta, silent] {
        bench.delta(client, CDS, &["*"], &[]);
    }
    bench.sotw(sotw, CDS, &["*"], "");
    let all = names(50_000);
    fill(&mut bench, &all);
    [delta, sotw, silent].into_iter().for_each(|client| drop(bench.said(client)));
    let (mut told, mut nonce) = (0, 1);
    for round in 1..=50 {
        bench.sotw(sotw, CDS, &["*"], &nonce.to_string());
        bench.removes(CDS, Set::All, &all[(round - 1) * 1_000..round * 1_000]);
        told += removed(&mut bench, delta);
        while let Some(reply) = bench.poll(sotw) {
            nonce = reply.nonce;
            bench.sotw(sotw, CDS, &["*"], &nonce.to_string());
        }
        bench.later(20);
    }
    assert_eq!(told, 50_000);
    assert_eq!(bench.poll(sotw).map(|reply| reply.resources.len()), None, "it has been sent the empty set");
    assert_eq!(removed(&mut bench, silent), 50_000, "a second was not too long either");
}

#[test]
fn sotw_21_and_delta_21_who_reads_nothing_until_removals_are_forgotten_ends_alone_or_is_sent_the_set() {
    for is_old in [true, false] {
        let mut bench = unordered(match is_old {
            true => ProtocolOptions::default().with(|options| options.view.history_age = Duration::from_secs(60)),
            false => ProtocolOptions::default().with(|options| options.view.history_bytes = 5_000),
        });
        let [reader, silent, sotw] =
            [Variant::Delta, Variant::Delta, Variant::Sotw].map(|variant| bench.client(variant));
        for client in [reader, silent] {
            bench.delta(client, CDS, &["*"], &[]);
            bench.delta(client, LDS, &["*"], &[]);
        }
        bench.sotw(sotw, CDS, &["*"], "");
        let all = names(100);
        fill(&mut bench, &all);
        bench.whole(LDS, &[("l", "1")]);
        [reader, silent, sotw].into_iter().for_each(|client| drop(bench.said(client)));
        bench.sotw(sotw, CDS, &["*"], "1");
        for left in (50..100).rev() {
            fill(&mut bench, &all[..left]);
            bench.later(10 * SECOND / 50);
            assert_eq!(removed(&mut bench, reader), 1, "{is_old}");
        }
        bench.later(if is_old { 60 * SECOND } else { 0 });
        bench.set(LDS, &[("l", "2")]);
        assert!(matches!(bench.step(silent), Step::End(CloseReason::HistoryExpired)), "{is_old}");
        assert_eq!(bench.said(reader), ["L l"], "{is_old}");
        assert_eq!(bench.poll(sotw).unwrap().resources.len(), 50, "{is_old}");
        bench.later(2_000 * SECOND);
        fill(&mut bench, &all[..49]);
        assert_eq!(removed(&mut bench, reader), 1, "{is_old}");
    }
}

#[test]
fn i8_those_that_are_too_far_behind_end_fifty_in_a_second_and_are_sent_what_is_new_until_then() {
    let mut bench = unordered(ProtocolOptions::default().with(|options| options.view.history_bytes = 0));
    let clients: Vec<_> = (0..200).map(|_| bench.client(Variant::Delta)).collect();
    clients.iter().for_each(|client| bench.delta(*client, CDS, &["*"], &[]));
    bench.whole(CDS, &[("a", "1"), ("b", "1"), ("c", "1")]);
    clients.iter().for_each(|client| drop(bench.said(*client)));
    bench.remove(CDS, "b");
    bench.later(1);
    bench.remove(CDS, "c");
    bench.set(CDS, &[("new", "1")]);
    let mut ended = BTreeMap::new();
    for tick in 0..=400 {
        for client in &clients {
            if ended.contains_key(client) {
                continue;
            }
            match bench.step(*client) {
                Step::End(reason) => {
                    assert_eq!(reason, CloseReason::HistoryExpired);
                    ended.insert(*client, tick);
                }
                Step::Reply(reply) => {
                    assert_eq!((reply.removed.len(), reply.resources.len()), (0, 1));
                    assert!(matches!(bench.step(*client), Step::Idle(Some(_))), "it knows when to look again");
                }
                Step::Idle(until) => assert!(until.is_some(), "it knows when to look again"),
            }
        }
        bench.later(10);
    }
    let by_second: Vec<_> = (0..4).map(|second| ended.values().filter(|tick| **tick / 100 == second).count()).collect();
    assert_eq!(by_second, [50; 4]);
}
