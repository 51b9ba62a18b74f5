//! Streams, methods, and the types that they serve.

use weir_core::proto::Request;
use weir_core::proto::discovery::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator, resource::CacheControl};
use weir_core::protocol::options::ProtocolOptions;
use weir_core::protocol::session::{BadRequest, Client, CloseReason, FetchResult, Step, Variant};
use weir_core::protocol::view::SessionId;
use weir_core::xds::{Access, AccessRule, NamePattern, TypeInfo, TypeTable};

use super::support::{Bench, CDS, EDS, RDS, text_of};
use super::warm;

const V2_CDS: &str = "type.googleapis.com/envoy.api.v2.Cluster";
const COLLECTION: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpointCollection";
const SRDS: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";

fn only(bench: &mut Bench, url: &str, variant: Variant) -> SessionId {
    let only = Some(bench.kind(url));
    bench.add(Client { only, ..Client::plain(variant) })
}

#[test]
fn trn_5_a_stream_of_one_type_needs_no_type_url() {
    let mut bench = warm();
    let client = only(&mut bench, EDS, Variant::Delta);
    bench.delta(client, "", &["a"], &[]);
    let reply = bench.poll(client).unwrap();
    assert_eq!((text_of(&reply).as_str(), &*reply.spelling), ("C a", EDS));
}

#[test]
fn trn_7_another_type_on_a_stream_of_one_ends_it_and_is_not_subscribed() {
    let mut bench = warm();
    bench.asked_upstream();
    let client = only(&mut bench, EDS, Variant::Sotw);
    bench.sotw(client, RDS, &["z"], "");
    assert!(matches!(bench.step(client), Step::End(CloseReason::BadRequest(BadRequest::OtherType { .. }))));
    assert_eq!(bench.asked_upstream(), [""; 0]);
}

#[test]
fn trn_10_and_type_5_v2_is_a_type_of_its_own_in_the_clients_spelling() {
    let mut bench = Bench::of(ProtocolOptions::default(), TypeTable::new().with_v2(true));
    let (old, new) = (bench.client(Variant::Sotw), bench.client(Variant::Sotw));
    bench.sotw(old, V2_CDS, &[], "");
    bench.sotw(new, CDS, &[], "");
    bench.whole(V2_CDS, &[("old", "1")]);
    bench.whole(CDS, &[("new", "1")]);
    let reply = bench.poll(old).unwrap();
    assert_eq!((text_of(&reply).as_str(), &*reply.spelling), ("C old", V2_CDS));
    assert_eq!(bench.said(new), ["C new"]);
    let kin = only(&mut bench, CDS, Variant::Sotw);
    bench.sotw(kin, V2_CDS, &[], "");
    assert_eq!(bench.said(kin), ["C old"], "TRN-7: either spelling on the stream of one type");
}

#[test]
fn trn_8_and_trn_15_v2_is_left_unanswered_where_it_is_off_and_the_stream_goes_on() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, V2_CDS, &[], "");
    bench.sotw(client, "type.googleapis.com/never.heard.of.It", &["a"], "");
    bench.sotw(client, CDS, &[], "");
    assert_eq!(bench.said(client), ["C a,b,c"]);
    assert_eq!(bench.sessions[&client].unsupported_requests(), 1);
}

#[test]
fn trn_22_a_fetch_waits_for_all_of_it_and_never_takes_a_part_for_the_whole() {
    let mut bench = Bench::new();
    let everything = only(&mut bench, CDS, Variant::Sotw);
    bench.sotw(everything, CDS, &[], "");
    assert!(matches!(bench.fetch(everything, false), FetchResult::Waiting(None)));
    assert!(matches!(bench.fetch(everything, true), FetchResult::Unknown), "REST-12");
    bench.whole(CDS, &[]);
    let FetchResult::Reply(reply) = bench.fetch(everything, false) else { panic!("an empty set is an answer") };
    assert_eq!(text_of(&reply), "C ");

    let named = only(&mut bench, EDS, Variant::Sotw);
    bench.sotw(named, EDS, &["a", "b", "c"], "");
    bench.set(EDS, &[("a", "1")]);
    bench.remove(EDS, "b");
    assert!(matches!(bench.fetch(named, false), FetchResult::Waiting(None)), "c is unknown");
    let FetchResult::Reply(reply) = bench.fetch(named, true) else { panic!("what is there is given") };
    assert_eq!(text_of(&reply), "C a");

    let absent = only(&mut bench, EDS, Variant::Sotw);
    bench.sotw(absent, EDS, &["b"], "");
    let FetchResult::Reply(reply) = bench.fetch(absent, false) else { panic!("nothing is an answer too") };
    assert_eq!(text_of(&reply), "C ");
}

#[test]
fn type_3_scoped_routes_are_complete_in_sotw_and_requested_by_an_empty_list() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, SRDS, &[], "");
    bench.whole(SRDS, &[("one", "1"), ("two", "1")]);
    assert_eq!(bench.said(client), ["S one,two"]);
    bench.later(1_000);
    bench.set(SRDS, &[("one", "2")]);
    assert_eq!(bench.said(client), ["S one,two"]);
}

#[test]
fn type_4_coll_5_and_xlat_26_a_nameless_type_goes_wrapped_to_whoever_asks_also_when_it_is_empty() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, COLLECTION, &["full", "empty"], "");
    bench.give(COLLECTION, "full", "1", |_| {});
    bench.give(COLLECTION, "empty", "1", |wrapper| wrapper.resource.as_mut().unwrap().value.clear());
    let reply = bench.poll(client).unwrap();
    assert_eq!(text_of(&reply), "L empty,full");
    assert!(reply.resources.iter().all(|resource| reply.wraps(resource, None)));
}

#[test]
fn type_7_an_operators_type_is_what_the_operator_says() {
    let opaque = TypeTable::new().resolve("own.Type");
    let table = TypeTable::with(vec![TypeInfo { full_state: true, ..opaque.info().clone() }]);
    for (mut bench, whole) in [(Bench::of(ProtocolOptions::default(), table), true), (Bench::new(), false)] {
        let client = bench.client(Variant::Sotw);
        bench.sotw(client, "x/own.Type", &["a", "b"], "");
        bench.set("x/own.Type", &[("a", "1"), ("b", "1")]);
        assert_eq!(bench.said(client), ["T a,b"]);
        bench.later(1_000);
        bench.set("x/own.Type", &[("a", "2")]);
        assert_eq!(bench.said(client), [if whole { "T a,b" } else { "T a" }]);
    }
}

#[test]
fn type_10_a_body_under_another_name_needs_a_wrapper_or_is_withheld() {
    let mut bench = Bench::new();
    let delta = bench.client(Variant::Delta);
    bench.delta(delta, CDS, &["a"], &[]);
    let [able, unable] = [true, false].map(|wrappers| {
        let id = bench.add(Client { wrappers, ..Client::plain(Variant::Sotw) });
        bench.sotw(id, CDS, &["a"], "");
        id
    });
    bench.give(CDS, "b", "1", |wrapper| wrapper.name = "a".into()); // no client requested the name in the body
    bench.give(CDS, "a", "1", |wrapper| wrapper.resource = super::support::wrapper(CDS, "b", "1").resource);
    assert_eq!(bench.said(delta), ["C a"]);
    let reply = bench.poll(able).unwrap();
    assert!(reply.resources[0].name.as_str() == "a" && reply.wraps(&reply.resources[0], None));
    assert_eq!(bench.said(unable), ["C "], "as if it were not there");
}

#[test]
fn wire_1_and_wire_2_bodies_pass_byte_for_byte_whatever_is_in_them() {
    // After the name: an unknown field, one of another kind than its definition, and one in the wrong place.
    let strange = b"\x0a\x01a\xf8\xff\x03\xff\xff\x7f\x32\x02\xff\xff\x12\x00".as_slice();
    for variant in [Variant::Sotw, Variant::Delta] {
        let mut bench = Bench::new();
        let client = bench.client(variant);
        match variant {
            Variant::Sotw => bench.sotw(client, CDS, &["a"], ""),
            Variant::Delta => bench.delta(client, CDS, &["a"], &[]),
        }
        bench.give(CDS, "a", "1", |wrapper| wrapper.resource.as_mut().unwrap().value = strange.into());
        let reply = bench.poll(client).unwrap();
        assert_eq!(reply.resources[0].body.bytes(), strange, "{variant:?}");
    }
}

#[test]
fn wire_14_locators_are_names() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    let locator = ResourceLocator { name: "a".into(), ..Default::default() };
    let request = DiscoveryRequest { type_url: CDS.into(), resource_locators: vec![locator], ..Default::default() };
    bench.request(client, Request::Sotw(request));
    assert_eq!(bench.said(client), ["C a"]);
    let client = bench.client(Variant::Delta);
    let locators = || vec![ResourceLocator { name: "a".into(), ..Default::default() }];
    let request = || DeltaDiscoveryRequest { type_url: CDS.into(), ..Default::default() };
    let on = DeltaDiscoveryRequest { resource_locators_subscribe: locators(), ..request() };
    bench.request(client, Request::Delta(on));
    assert_eq!(bench.said(client), ["C a"]);
    let off = DeltaDiscoveryRequest { resource_locators_unsubscribe: locators(), ..request() };
    bench.request(client, Request::Delta(off));
    bench.set(CDS, &[("a", "2")]);
    assert_eq!(bench.said(client), [""; 0]);
}

#[test]
fn trn_6_a_request_without_a_type_ends_the_stream_with_a_reason() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Sotw);
    bench.request(client, Request::Sotw(DiscoveryRequest::default()));
    let state = bench.view.snapshot().clone();
    let step = bench.sessions.get_mut(&client).unwrap().poll(&state, &mut bench.leases, bench.now);
    assert!(matches!(step, weir_core::protocol::session::Step::End(_)));
}

#[test]
fn trn_3_a_delta_only_type_requested_in_sotw_is_left_unanswered() {
    let mut bench = warm();
    let client = bench.client(Variant::Sotw);
    bench.sotw(client, "type.googleapis.com/envoy.config.route.v3.VirtualHost", &["a"], "");
    bench.sotw(client, CDS, &[], "");
    assert_eq!(bench.said(client), ["C a,b,c"]);
}

#[test]
fn i10_a_client_that_requests_ever_new_types_is_ended() {
    let mut bench = Bench::new();
    let client = bench.client(Variant::Delta);
    (0..65).for_each(|number| bench.delta(client, &format!("example.org/type.{number}"), &["a"], &[]));
    let state = bench.view.snapshot().clone();
    let step = bench.sessions.get_mut(&client).unwrap().poll(&state, &mut bench.leases, bench.now);
    assert!(matches!(step, weir_core::protocol::session::Step::End(_)));
}

#[test]
fn trn_22_a_fetch_with_the_current_version_is_answered_in_full() {
    let mut bench = warm();
    let ask = |version: String| {
        Request::Sotw(DiscoveryRequest { type_url: CDS.into(), version_info: version, ..Default::default() })
    };
    let first = only(&mut bench, CDS, Variant::Sotw);
    bench.request(first, ask(String::new()));
    let FetchResult::Reply(reply) = bench.fetch(first, false) else { panic!("all is known") };
    let again = only(&mut bench, CDS, Variant::Sotw);
    bench.request(again, ask(reply.version.to_string()));
    let FetchResult::Reply(reply) = bench.fetch(again, false) else { panic!("all is known") };
    assert_eq!(text_of(&reply), "C a,b,c", "an empty set would delete everything");
}

#[test]
fn rest_5_who_has_everything_is_known_by_its_version_without_making_the_set() {
    let mut bench = warm();
    let ask = |bench: &mut Bench, names: &[&str]| {
        let client = only(bench, CDS, Variant::Sotw);
        bench.sotw(client, CDS, names, "");
        client
    };
    let is_current = |bench: &Bench, client, version: &str| {
        bench.sessions[&client].report().is_current(bench.view.snapshot(), version, bench.now)
    };
    let all = ask(&mut bench, &[]);
    let FetchResult::Reply(reply) = bench.fetch(all, false) else { panic!("all is known") };
    let version = reply.version.to_string();
    let [again, some, mixed] = [&[][..], &["a"], &["*", "a"]].map(|names| ask(&mut bench, names));
    assert!(is_current(&bench, again, &version));
    assert!(!is_current(&bench, again, "") && !is_current(&bench, again, "1.another"));
    assert!(
        !is_current(&bench, some, &version) && !is_current(&bench, mixed, &version),
        "a version tells of `*` alone"
    );
    bench.whole(CDS, &[("a", "1"), ("b", "2"), ("c", "1")]);
    assert!(!is_current(&bench, again, &version));
    let mut cold = Bench::new();
    let client = ask(&mut cold, &[]);
    assert!(!is_current(&cold, client, &version));
}

#[test]
fn trn_22_a_fetch_waits_for_what_must_not_be_answered_from_memory() {
    let mut bench = Bench::new();
    bench.view.on_source([].into(), true);
    let keeper = bench.client(Variant::Delta);
    bench.delta(keeper, EDS, &["a"], &[]);
    let give = |bench: &mut Bench| {
        bench.give(EDS, "a", "1", |wrapper| wrapper.cache_control = Some(CacheControl { do_not_cache: true }));
    };
    give(&mut bench);
    let client = only(&mut bench, EDS, Variant::Sotw);
    bench.sotw(client, EDS, &["a"], "");
    assert!(matches!(bench.fetch(client, false), FetchResult::Waiting(None)));
    give(&mut bench);
    let FetchResult::Reply(reply) = bench.fetch(client, false) else { panic!("it has come") };
    assert_eq!(text_of(&reply), "C a");
}

#[test]
fn i10_questions_that_cannot_be_answered_are_bounded() {
    let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.names = 100));
    let client = bench.add(Client { errors: true, ..Client::plain(Variant::Delta) });
    for number in 0..200 {
        let dynamic_parameters = [("k".to_owned(), "v".to_owned())].into();
        let locator = ResourceLocator { name: format!("a{number}"), dynamic_parameters };
        let (type_url, resource_locators_subscribe) = (CDS.to_owned(), vec![locator]);
        let request = DeltaDiscoveryRequest { type_url, resource_locators_subscribe, ..Default::default() };
        bench.request(client, Request::Delta(request));
    }
    assert!(matches!(bench.step(client), Step::End(CloseReason::BadRequest(BadRequest::TooManyNames(100)))));
}

#[test]
fn i10_what_a_client_states_that_it_holds_counts_with_its_names() {
    for (stated, names, is_refused) in [(3, 2, false), (4, 2, true), (3, 3, true)] {
        let mut bench = Bench::with(ProtocolOptions::default().with(|options| options.session.names_per_stream = 5));
        let client = bench.add(Client::plain(Variant::Delta));
        let versions = (0..stated).map(|number| (format!("held-{number}"), "1".to_owned()));
        let request = DeltaDiscoveryRequest {
            type_url: CDS.into(),
            resource_names_subscribe: vec!["*".into()],
            initial_resource_versions: versions.collect(),
            ..Default::default()
        };
        bench.request(client, Request::Delta(request));
        let names: Vec<_> = (0..names).map(|number| format!("name-{number}")).collect();
        bench.delta(client, EDS, &names.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        let too_many = BadRequest::TooManyNamesOnStream(5);
        let end = Step::End(CloseReason::BadRequest(too_many));
        assert_eq!(format!("{:?}", bench.step(client)) == format!("{end:?}"), is_refused, "{stated}");
    }
}

#[test]
fn rest_5_a_client_that_may_not_have_everything_is_current_by_the_version_of_what_it_may_have() {
    let mut bench = warm();
    let rule = AccessRule {
        types: vec!["envoy.config.cluster.v3.Cluster".into()],
        names: vec![NamePattern::parse("c")],
        peers: Vec::new(),
    };
    let clearance = Access::of(vec![rule]).clearance(None);
    let only = Some(bench.kind(CDS));
    let client = bench.add(Client { only, clearance, ..Client::plain(Variant::Sotw) });
    bench.sotw(client, CDS, &[], "");
    let FetchResult::Reply(reply) = bench.fetch(client, false) else { panic!("all is known") };
    assert_eq!(text_of(&reply), "C a,b");
    let is_current = |bench: &Bench| {
        bench.sessions[&client].report().is_current(bench.view.snapshot(), &reply.version.to_string(), bench.now)
    };
    assert!(is_current(&bench));
    bench.set(CDS, &[("c", "2")]);
    assert!(is_current(&bench), "nothing has changed for it");
    bench.set(CDS, &[("b", "2")]);
    assert!(!is_current(&bench));
}
