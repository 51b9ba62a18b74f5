//! How requests change a subscription, and what clients hold of sets that they unsubscribe from.

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::Variant;
use weir_core::protocol::view::SessionId;

use super::support::{Bench, CDS, EDS, Extent, Set, text_of};

fn first_with_version(bench: &mut Bench, id: SessionId, names: &[&str], version: &str) {
    let resource_names = names.iter().map(ToString::to_string).collect();
    let (type_url, version_info) = (CDS.into(), version.into());
    bench.request(id, Request::Sotw(DiscoveryRequest { type_url, version_info, resource_names, ..Default::default() }));
}

#[test]
fn i10_a_client_with_as_many_names_as_it_may_have_is_sent_their_changes() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.names = 2));
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["a", "b"], &[]);
    for content in ["1", "2"] {
        bench.set(EDS, &[("a", content), ("b", content)]);
        assert_eq!(bench.said(client), ["C a,b"]);
    }
}

#[test]
fn sotw_4_a_version_that_is_stated_with_names_does_not_show_that_the_client_has_them() {
    for names in [&["a"][..], &["*", "a"]] {
        let mut bench = Bench::new();
        let before = bench.client(Variant::Sotw);
        bench.sotw(before, CDS, names, "");
        bench.whole(CDS, &[("a", "1")]);
        bench.set(CDS, &[("a", "1")]);
        let version = bench.poll(before).expect("it has nothing").version.to_string();
        let client = bench.client(Variant::Sotw);
        first_with_version(&mut bench, client, names, &version);
        assert_eq!(bench.said(client), ["C a"], "{names:?}");
    }
}

#[test]
fn sotw_21_who_has_missed_removals_that_are_forgotten_is_sent_the_set_without_them() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.view.history_bytes = 0));
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, CDS, &["*"], "");
    bench.whole(CDS, &[("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")]);
    assert_eq!(bench.said(client), ["C a,b,c,d"]);
    bench.sotw(client, CDS, &["*"], "1");
    bench.whole(CDS, &[("d", "1")]);
    bench.later(5_000); // nothing refers to them, so they are removed
    bench.later(55_000); // and their removals are forgotten
    assert_eq!(bench.said(client), ["C d"]);
}

#[test]
fn delta_16_what_is_stated_and_unknown_is_requested_again_and_nothing_else() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    let stated = ["here", "gone", "lost", "by-name"].map(|name| (name.to_owned(), "x".to_owned()));
    let request = DeltaDiscoveryRequest {
        type_url: EDS.into(),
        resource_names_subscribe: vec!["*".into(), "by-name".into()],
        initial_resource_versions: stated.into(),
        ..Default::default()
    };
    bench.request(client, Request::Delta(request));
    bench.gives(EDS, Set::All, &[("here", "1"), ("gone", "1")]);
    bench.removes(EDS, Set::All, &["gone"]);
    bench.reaches(EDS, Set::All, Extent::Settled);
    assert_eq!(bench.said(client), ["C here", "C  -gone"]);
    assert_eq!(bench.sought(), ["lost"], "the server's word on it is still to come");
    bench.reaches(EDS, Set::All, Extent::Complete);
    assert_eq!(bench.said(client), ["C  -lost"]);
    assert_eq!(bench.sought(), [""; 0], "the whole set is known");
}

#[test]
fn delta_24_a_name_that_was_left_just_before_the_wildcard_is_not_sent() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["*", "a"], &[]);
    bench.whole(EDS, &[("a", "1")]);
    bench.set(EDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.delta(client, EDS, &[], &["a"]);
    bench.delta(client, EDS, &[], &["*"]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn delta_24_who_leaves_the_wildcard_drops_what_it_has_of_a_name_by_the_wildcard_alone() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    bench.delta(client, EDS, &["*", "a"], &[]);
    bench.removes(EDS, Set::Names, &["a"]);
    bench.whole(EDS, &[("a", "1")]);
    assert_eq!(bench.said(client), ["C a"]);
    bench.delta(client, EDS, &[], &["*"]);
    assert_eq!(bench.said(client), ["C  -a"], "it still subscribes to the name");
}

#[test]
fn a_sotw_client_that_leaves_a_name_beside_the_wildcard_is_sent_what_the_wildcard_has_of_it() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, EDS, &["*", "a"], "");
    bench.whole(EDS, &[("a", "1")]);
    bench.give(EDS, "a", "2", |_| ());
    let by_name = bench.poll(client).expect("it has nothing");
    assert_eq!(text_of(&by_name), "C a");
    bench.sotw(client, EDS, &["*"], "1");
    let by_wildcard = bench.poll(client).expect("it has another version");
    assert_eq!(text_of(&by_wildcard), "C a");
    assert_ne!(by_name.version, by_wildcard.version);
}
