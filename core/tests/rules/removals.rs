//! Removals, resources that delta clients stated, and the pieces of a large set.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_core::proto::Request;
use weir_core::proto::discovery::DeltaDiscoveryRequest;
use weir_core::proto::discovery::resource::CacheControl;
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{Client, Variant};
use weir_core::protocol::view::SessionId;

use super::support::{Bench, CDS, EDS, END_OF_SET, Extent, LDS, Set, VHDS, text_of, wrapper};

const SRDS: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
const LONG: &str = "012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

fn state(bench: &mut Bench, id: SessionId, url: &str, on: &[&str], versions: &[(&str, String)]) {
    let request = DeltaDiscoveryRequest {
        type_url: url.into(),
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
    state(&mut bench, client, CDS, &["*"], &[("a", held), ("old", "x".into())]);
    bench.set(CDS, &[("a", "1"), ("b", "1")]);
    bench.reaches(CDS, Set::All, Extent::First);
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
    bench.reaches(CDS, Set::All, Extent::First);
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
    bench.gives_as(EDS, Set::All, [("a", changed)]);
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

/// An Envoy whose stream has ended keeps what it has until the next one.
#[test]
fn i7_what_was_stated_and_is_gone_is_removed_in_the_reply_with_what_may_take_its_address_or_domain() {
    for (url, letter) in [(LDS, "L"), (SRDS, "S"), (VHDS, "V")] {
        let mut bench = Bench::new();
        let other = bench.client(Variant::Delta);
        bench.delta(other, url, &["*"], &[]);
        bench.whole(url, &[("r/new", "1")]);
        assert_eq!(bench.said(other), [format!("{letter} r/new")]);
        let client = bench.client(Variant::Delta);
        state(&mut bench, client, url, &["*"], &[("r/old", "x".into())]);
        assert_eq!(bench.said(client), [format!("{letter} r/new -r/old")]);
    }
}

const REPLY_BYTES: usize = 5_000;
/// What each resource and each removal counts beside its name and body.
const PER_ENTRY: usize = 48;

/// Returns a bench that splits replies of more than [`REPLY_BYTES`].
fn splitting() -> Bench {
    Bench::with(ProtocolOptions::default().with(|options| {
        options.session.reply_bytes = REPLY_BYTES;
        options.hold_referenced(Duration::ZERO);
    }))
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number:03}")).collect()
}

/// Returns listeners with these names, of which more than thirty fill a reply.
fn long(names: &[String]) -> Vec<(&str, &str)> {
    names.iter().map(|name| (name.as_str(), LONG)).collect()
}

fn sorted(names: impl Iterator<Item = impl ToString>) -> Vec<String> {
    let mut names: Vec<_> = names.map(|name| name.to_string()).collect();
    names.sort();
    names
}

/// Checks that the client is sent these listeners in several replies, each listener once, and all removals in the first, except those of `at_last`,
/// which are in the last reply.
fn assert_removed_first(
    bench: &mut Bench,
    client: SessionId,
    removed: &[String],
    added: &[String],
    at_last: &[String],
) {
    let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
    let [first, .., last] = sent.as_slice() else { panic!("{sent:?}") };
    assert!(!first.resources.is_empty(), "{sent:?}");
    assert_eq!(sorted(first.removed.iter()), removed);
    assert_eq!(sorted(last.removed.iter()), at_last);
    assert_eq!(sorted(sent[1..].iter().flat_map(|reply| &reply.removed)), at_last);
    assert_eq!(sorted(sent.iter().flat_map(|reply| reply.resources.iter()).map(|resource| &resource.name)), added);
}

#[test]
fn i7_and_delta_48_all_removals_are_in_the_first_piece_of_the_listeners_that_may_take_their_addresses() {
    let (old, new) = (numbered("old", 40), numbered("new", 40));
    let by_name: Vec<_> = old.iter().chain(&new).map(String::as_str).collect();
    for on in [&["*"][..], by_name.as_slice()] {
        let mut bench = splitting();
        let client = bench.client(Variant::Delta);
        bench.delta(client, LDS, on, &[]);
        bench.set(LDS, &long(&old));
        bench.said(client);
        bench.set(LDS, &long(&new));
        old.iter().for_each(|name| bench.remove(LDS, name));
        assert_removed_first(&mut bench, client, &old, &new, &[]);
    }
}

/// A client that takes a piece that late is sent the next one from a newer snapshot, which has a cluster that other routing waits for.
#[test]
fn i7_and_delta_48_what_replaces_removed_listeners_waits_for_no_cluster_that_comes_between_the_pieces() {
    let (old, new, mut bench) = (numbered("old", 40), numbered("new", 40), splitting());
    let client = bench.client(Variant::Delta);
    bench.delta(client, CDS, &["*"], &[]);
    bench.delta(client, LDS, &["*"], &[]);
    bench.whole(CDS, &[("a", "1")]);
    bench.whole(LDS, &long(&old));
    bench.said(client);
    bench.whole(LDS, &long(&new));
    let first = bench.poll(client).map(|reply| text_of(&reply)).unwrap();
    assert!(old.iter().all(|name| first.contains(name)), "{first}");
    bench.later(1_000);
    bench.set(CDS, &[("c", "1")]);
    bench.set(LDS, &[("next", "1")]);
    let rest: Vec<_> = new.iter().filter(|name| !first.contains(*name)).map(String::as_str).collect();
    assert_eq!(bench.said(client), ["C c".to_owned(), format!("L {}", rest.join(","))]);
    assert_eq!(bench.said(client), [""; 0], "the next one replaces nothing, and may lead to the cluster");
    bench.later(2_000);
    assert_eq!(bench.said(client), ["L next"]);
}

#[test]
fn delta_48_removals_beside_additions_exceed_the_size_of_a_reply_by_half() {
    let (old, new, mut bench) = (numbered("old", 200), numbered("new", 40), splitting());
    let client = bench.client(Variant::Delta);
    bench.delta(client, LDS, &["*"], &[]);
    bench.whole(LDS, &long(&old));
    bench.said(client);
    bench.whole(LDS, &long(&new));
    let sent: Vec<_> = std::iter::from_fn(|| bench.poll(client)).collect();
    let first = &sent[0];
    let added = first.resources.iter().map(|of| of.name.as_str().len() + of.body.bytes().len() + PER_ENTRY);
    let removed = first.removed.iter().map(|name| name.as_str().len() + PER_ENTRY);
    let (largest, bytes) = (added.clone().max().unwrap(), added.sum::<usize>() + removed.sum::<usize>());
    assert!((REPLY_BYTES * 3 / 2..REPLY_BYTES * 3 / 2 + 2 * largest).contains(&bytes), "{bytes}");
    assert_eq!(sorted(sent.iter().flat_map(|reply| &reply.removed)), old, "the others follow");
}

#[test]
fn i7_and_delta_48_what_was_stated_and_is_gone_is_in_the_first_piece_too_and_the_end_of_the_set_in_the_last() {
    let (old, new, mut bench) = (numbered("old", 40), numbered("new", 40), splitting());
    let other = bench.client(Variant::Delta);
    bench.delta(other, LDS, &["*"], &[]);
    // The client has the last one: it is in no piece.
    bench.whole(LDS, &[long(&new), vec![("same", LONG)]].concat());
    bench.said(other);
    let same = bench.resource(LDS, "same", LONG).full.to_string();
    let end = format!("{END_OF_SET}1");
    let stated = old.iter().chain([&end]).map(|name| (name.as_str(), "x".to_owned()));
    let stated: Vec<_> = stated.chain([("same", same)]).collect();
    let client = bench.client(Variant::Delta);
    state(&mut bench, client, LDS, &["*"], &stated);
    assert_removed_first(&mut bench, client, &old, &new, std::slice::from_ref(&end));
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
