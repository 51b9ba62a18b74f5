//! Names and types that stand for several resources, and that the relay passes on as they are.

use weir_core::protocol::session::Variant;

use super::support::{Bench, EDS, LDS, text_of};

const COLLECTION: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";
const OTHERS: [&str; 2] = [
    "type.googleapis.com/envoy.config.listener.v3.ListenerCollection",
    "type.googleapis.com/envoy.config.cluster.v3.ClusterCollection",
];

#[test]
fn coll_3_and_coll_11_a_list_collection_has_no_name_but_that_of_its_wrapper_in_both_variants() {
    for variant in [Variant::Sotw, Variant::Delta] {
        for url in [COLLECTION, OTHERS[0], OTHERS[1]] {
            has_the_name_of_its_wrapper(url, variant);
        }
    }
}

fn has_the_name_of_its_wrapper(url: &str, variant: Variant) {
    let mut bench = Bench::new();
    let client = bench.client(variant);
    match variant {
        Variant::Sotw => bench.sotw(client, url, &["list"], ""),
        Variant::Delta => bench.delta(client, url, &["list"], &[]),
    }
    // The first field of an entry is text, which would be the name in most other types.
    bench.give(url, "list", "1", |wrapper| {
        wrapper.resource.as_mut().unwrap().value = b"\x0a\x05other".as_slice().into();
    });
    let reply = bench.poll(client).unwrap();
    assert!(text_of(&reply).contains("list"), "{variant:?}: {}", text_of(&reply));
    assert!(reply.resources.iter().all(|resource| variant == Variant::Delta || reply.wraps(resource, None)));
}

#[test]
fn wire_9_a_list_collection_is_passed_on_with_all_its_entries() {
    // Two entries, where older definitions have one.
    let entries = b"\x0a\x03\x0a\x01x\x0a\x03\x0a\x01y".as_slice();
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let client = bench.client(variant);
        match variant {
            Variant::Sotw => bench.sotw(client, COLLECTION, &["list"], ""),
            Variant::Delta => bench.delta(client, COLLECTION, &["list"], &[]),
        }
        bench.give(COLLECTION, "list", "1", |wrapper| wrapper.resource.as_mut().unwrap().value = entries.into());
        let reply = bench.poll(client).unwrap();
        assert_eq!(reply.resources[0].body.bytes(), entries, "{variant:?}");
    }
}

#[test]
fn coll_2_and_coll_9_a_list_collection_is_requested_by_name_and_left_like_any_other_resource() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, COLLECTION, &["list"], "");
    assert_eq!(bench.asked_upstream(), ["+list"]);
    bench.give(COLLECTION, "list", "1", |_| {});
    bench.said(client);
    bench.sotw(client, COLLECTION, &["other"], "1");
    bench.later(30_000);
    assert_eq!(bench.asked_upstream(), ["+other", "-list"], "it lingers, and is dropped");
}

#[test]
fn name_2_and_name_25_an_old_style_name_is_opaque_whatever_it_looks_like() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    let names = ["/envoy.config.listener.v3.Listener/id", "?b=2&a=1", "a%2Db", "a/*"];
    bench.delta(client, EDS, &names, &[]);
    assert_eq!(bench.asked_upstream(), names.map(|name| format!("+{name}")));
    bench.set(EDS, &[("a/*", "1"), ("a/b", "1")]);
    assert_eq!(bench.said(client), ["C a/*"], "no member of anything");
}

#[test]
fn name_30_names_differ_by_case_and_by_every_byte() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, LDS, &["a", "A", " a", "\u{e4}", "a\u{308}"], &[]);
    assert_eq!(bench.asked_upstream().len(), 5);
}
