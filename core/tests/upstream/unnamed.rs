//! Resources without a name: the one resource of a type that has no names, and errors of types that have names.

use std::time::Duration;

use bytes::Bytes;
use weir_core::proto::discovery::{
    DeltaDiscoveryResponse, DiscoveryResponse, Resource, ResourceError, ResourceName, Status,
};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Variant;
use weir_core::protocol::upstream::ServerQuirks;

use super::support::{CDS, EDS, Set};
use super::{delta, requested, sotw};

const NDS: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";

fn any(url: &str, body: &'static [u8]) -> Any {
    Any { type_url: url.into(), value: Bytes::from_static(body) }
}

/// Returns a response with unnamed resources that have these bodies.
fn unnamed(variant: Variant, url: &str, bodies: &[&'static [u8]], removed: &[&str]) -> Response {
    let (type_url, nonce) = (url.to_owned(), "n".to_owned());
    let bodies = bodies.iter().map(|body| any(url, body));
    match variant {
        Variant::Sotw => {
            let version_info = "v".into();
            let response = DiscoveryResponse { type_url, nonce, version_info, ..Default::default() };
            Response::Sotw(DiscoveryResponse { resources: bodies.collect(), ..response })
        }
        Variant::Delta => {
            let version = || "1".to_owned();
            let wrapped = bodies.map(|any| Resource { resource: Some(any), version: version(), ..Default::default() });
            let removed_resources = removed.iter().map(ToString::to_string).collect();
            let resources = wrapped.collect();
            Response::Delta(DeltaDiscoveryResponse {
                type_url,
                nonce,
                resources,
                removed_resources,
                ..Default::default()
            })
        }
    }
}

#[test]
fn type_4_the_one_resource_of_a_type_without_names_has_the_empty_name_in_both_variants() {
    let mut bench = requested(Variant::Sotw, NDS, &["*"], ServerQuirks::default());
    assert_eq!(bench.respond(0, unnamed(Variant::Sotw, NDS, &[b"one"], &[])), ["whole {\"\"}"]);
    assert_eq!(bench.respond(0, unnamed(Variant::Sotw, NDS, &[b"two"], &[])), ["whole {\"\"}"]);
    assert_eq!(bench.respond(0, unnamed(Variant::Sotw, NDS, &[], &[])), ["whole {}"], "its set is complete");
    let mut bench = requested(Variant::Delta, NDS, &["*"], ServerQuirks::default());
    assert_eq!(bench.respond(0, unnamed(Variant::Delta, NDS, &[b"one"], &[]))[0], "Wildcard  set");
    let requests = bench.reopen();
    assert!(requests[0].contains("{:1"), "it is stated on a new stream: {requests:?}");
    let updates = bench.respond(0, unnamed(Variant::Delta, NDS, &[], &[""]));
    assert_eq!(updates[0], "Wildcard  gone");
}

#[test]
fn up_25_an_unnamed_entry_of_a_type_with_names_removes_nothing() {
    let mut bench = requested(Variant::Sotw, CDS, &["*"], ServerQuirks::default());
    bench.respond(0, sotw(CDS, &["a", "b"], "1"));
    bench.requests(0);
    for bodies in [&[b"".as_slice()][..], &[b"\x0a\x01a", b""]] {
        let updates = bench.respond(0, unnamed(Variant::Sotw, CDS, bodies, &[]));
        assert!(updates.iter().all(|update| !update.contains("whole") && !update.contains("gone")), "{updates:?}");
        bench.later(Duration::from_secs(2)); // both responses have one version, and its second NACK waits
        assert!(bench.requests(0)[0].ends_with("NACK"));
    }
    for (url, names) in [(CDS, ["*", "*"]), (EDS, ["a", "b"])] {
        let mut bench = requested(Variant::Delta, url, &names, ServerQuirks::default());
        bench.respond(0, delta(url, &["a", "b"], &[], "1"));
        bench.requests(0);
        for (bodies, ack) in [(&[b"".as_slice()][..], "NACK"), (&[], "ACK")] {
            let updates = bench.respond(0, unnamed(Variant::Delta, url, bodies, &[""]));
            assert!(updates.iter().all(|update| !update.contains("gone")), "{updates:?}");
            assert_eq!(bench.requests(0)[0].ends_with("NACK"), ack == "NACK");
        }
    }
}

/// An operator's type whose names are in the wrappers has no field for names either.
#[test]
fn up_25_an_entry_without_a_name_among_others_that_have_one_removes_nothing() {
    let mut bench = requested(Variant::Sotw, NDS, &["*"], ServerQuirks::default());
    assert_eq!(bench.respond(0, unnamed(Variant::Sotw, NDS, &[b"one"], &[])), ["whole {\"\"}"]);
    bench.requests(0);
    let updates = bench.respond(0, unnamed(Variant::Sotw, NDS, &[b"one", b"two"], &[]));
    assert!(updates.iter().all(|update| !update.contains("whole") && !update.contains("gone")), "{updates:?}");
}

/// Returns a response without resources that reports an error, with an empty name or without a name.
fn reporting(variant: Variant, url: &str, has_name: bool, code: i32) -> Response {
    let error_detail = Some(Status { code, message: "later".into() });
    let resource_errors = vec![ResourceError { resource_name: has_name.then(ResourceName::default), error_detail }];
    match unnamed(variant, url, &[], &[]) {
        Response::Sotw(response) => Response::Sotw(DiscoveryResponse { resource_errors, ..response }),
        Response::Delta(response) => Response::Delta(DeltaDiscoveryResponse { resource_errors, ..response }),
    }
}

#[test]
fn up_44_and_up_45_an_error_without_a_name_is_about_the_one_resource_of_a_type_without_names() {
    for (variant, has_name) in [Variant::Sotw, Variant::Delta].into_iter().flat_map(|of| [(of, true), (of, false)]) {
        for (code, gone) in [(5, true), (14, false)] {
            let mut bench = requested(variant, NDS, &["*"], ServerQuirks::default());
            bench.respond(0, unnamed(variant, NDS, &[b"one"], &[]));
            bench.requests(0);
            let updates = bench.respond(0, reporting(variant, NDS, has_name, code));
            assert_eq!(updates.contains(&"Wildcard  gone".to_owned()), gone, "{variant:?} {code}: {updates:?}");
            let held = bench.held(NDS, Set::All);
            assert_eq!(held, usize::from(!gone), "{variant:?} {code}");
            assert!(!bench.requests(0)[0].ends_with("NACK"), "{variant:?} {code}");
        }
    }
}

#[test]
fn up_22_an_error_without_a_name_of_a_type_with_names_is_rejected() {
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = requested(variant, EDS, &["a"], ServerQuirks::default());
        let updates = bench.respond(0, reporting(variant, EDS, true, 5));
        assert!(updates.iter().all(|update| !update.contains("gone")), "{updates:?}");
        assert!(bench.requests(0)[0].ends_with("NACK"), "{variant:?}");
    }
}
