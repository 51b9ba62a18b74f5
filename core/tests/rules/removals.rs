//! Removals, resources that delta clients stated, and the pieces of a large set.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::proto::discovery::resource::CacheControl;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Variant};
use weir_core::protocol::view::{Class, Completeness, Selector, SessionId, Update};

use super::support::{Bench, CDS, EDS, LDS, wrapper};

fn progress(bench: &mut Bench, url: &str, completeness: Completeness) {
    bench.apply(vec![Update::Progress { kind: bench.kind(url), of: Selector::Wildcard, completeness }]);
}

fn state(bench: &mut Bench, id: SessionId, on: &[&str], versions: &[(&str, String)]) {
    let request = DeltaDiscoveryRequest {
        type_url: CDS.into(),
        resource_names_subscribe: on.iter().map(ToString::to_string).collect(),
        initial_resource_versions: versions.iter().map(|(name, version)| (name.to_string(), version.clone())).collect(),
        ..Default::default()
    };
    bench.request(id, Request::Delta(request));
}

#[test]
fn delta_14_what_was_stated_and_removed_is_sent_when_it_comes_back_as_it_was() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    let held = bench.resource(CDS, "a", "1").full.to_string();
    state(&mut bench, client, &["*"], &[("a", held), ("old", "x".into())]);
    bench.set(CDS, &[("a", "1"), ("b", "1")]);
    progress(&mut bench, CDS, Completeness::FirstResponse);
    assert_eq!(bench.said(client), ["C b"], "it holds a");
    bench.remove(CDS, "a");
    assert_eq!(bench.said(client), ["C  -a"]);
    bench.set(CDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"], "it has dropped what it stated");
}

#[test]
fn delta_21_the_first_response_of_a_server_without_resources_is_passed_on() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    assert_eq!(bench.said(client), [""; 0]);
    progress(&mut bench, CDS, Completeness::FirstResponse);
    assert_eq!(bench.said(client), ["C "], "its start waits for it");
}

#[test]
fn delta_48_a_wildcard_with_and_without_names_is_sent_in_pieces_each_resource_once() {
    for on in [&["*"][..], &["*", "z"]] {
        let mut bench = Bench::with(ProtocolOptions::default().with(|options| {
            options.session.reply_bytes = 1000;
            options.hold_referenced(Duration::ZERO);
        }));
        let client = bench.client(Variant::Delta);
        bench.delta(client, CDS, on, &[]);
        let names: Vec<_> = (0..200).map(|number| format!("c{number}")).collect();
        let set: Vec<_> = names.iter().map(|name| (name.as_str(), "1")).collect();
        bench.whole(CDS, &set);
        let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).take(300).collect();
        let distinct: BTreeSet<_> = sent.iter().flat_map(|reply| reply.resources.iter()).map(|of| &of.name).collect();
        let count: usize = sent.iter().map(|reply| reply.resources.len()).sum();
        assert!((2..200).contains(&sent.len()) && (distinct.len(), count) == (200, 200), "{on:?}: {}", sent.len());
    }
}

#[test]
fn xlat_2_a_change_of_the_wrapper_alone_is_sent_only_to_clients_that_read_wrappers() {
    let mut bench = Bench::new();
    let plain = bench.client(Variant::Sotw);
    let reads = bench.add(Client { wrappers: true, ..Client::plain(Variant::Sotw) });
    let delta = bench.client(Variant::Delta);
    bench.sotw(plain, EDS, &["*"], "");
    bench.sotw(reads, EDS, &["*"], "");
    bench.delta(delta, EDS, &["*", "z"], &[]);
    bench.whole(EDS, &[("a", "1")]);
    for id in [plain, reads, delta] {
        assert_eq!(bench.said(id), ["C a"]);
    }
    for id in [plain, reads] {
        bench.sotw(id, EDS, &["*"], "1");
    }
    let mut changed = wrapper(EDS, "a", "1");
    changed.cache_control = Some(CacheControl { do_not_cache: true });
    let (kind, resource) = (bench.kind(EDS), bench.of_wrapper(EDS, changed));
    bench.apply(vec![Update::Upsert { kind, class: Class::Wildcard, key: "a".into(), resource }]);
    assert_eq!(bench.said(plain), [""; 0], "it cannot see that");
    assert_eq!((bench.said(reads), bench.said(delta)), (vec!["C a".into()], vec!["C a".into()]));
}

#[test]
fn a_listener_that_goes_and_one_that_may_take_its_address_are_in_one_reply_by_name_too() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, LDS, &["old", "new"], &[]);
    bench.set(LDS, &[("old", "1")]);
    assert_eq!(bench.said(client), ["L old"]);
    bench.set(LDS, &[("new", "1")]);
    bench.remove(LDS, "old");
    assert_eq!(bench.said(client), ["L new -old"]);
}

#[test]
fn delta_10_what_was_requested_again_and_is_gone_is_sent_when_it_comes_back_as_it_was() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a"], &[]);
    bench.set(EDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.delta(client, EDS, &["a"], &[]);
    bench.remove(EDS, "a");
    assert_eq!(bench.said(client), ["C  -a"]);
    bench.set(EDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
}

/// The server sends a name by `*` first, removes it, and then sends it by name, unchanged.
#[test]
fn delta_24_what_a_client_has_of_a_name_is_what_it_was_sent_last_by_whichever_subscription() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["*", "a"], &[]);
    bench.whole(EDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.give(EDS, "a", "1", |_| ());
    assert_eq!(bench.said(client), [""; 0], "it has that");
    bench.remove(EDS, "a");
    assert_eq!(bench.said(client), ["C  -a"]);

    bench.whole(EDS, &[("a", "2")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.whole(EDS, &[]);
    assert_eq!(bench.said(client), ["C  -a"]);
    bench.give(EDS, "a", "2", |_| ());
    assert_eq!(bench.said(client), ["C a"]);
}
