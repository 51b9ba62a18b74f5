use std::time::Duration;

use prost::Message;
use weir_core::proto::Any;
use weir_core::proto::discovery::{ResourceName, Status};
use weir_core::xds::{TypeTable, WRAPPER_TYPE};

use super::*;

const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
const EDS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
const VHDS: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";

fn query(type_url: &str, names: &[&str]) -> QueryState {
    let names = names.iter().map(ToString::to_string).collect();
    let kind = TypeTable::new().resolve(type_url);
    QueryState::new(Question { kind, type_url: type_url.into(), names, node: Bytes::new() })
}

fn body(type_url: &str, name: &str) -> Any {
    let mut value = vec![0x0a, u8::try_from(name.len()).unwrap()];
    value.extend(name.bytes());
    Any { type_url: type_url.into(), value: value.into() }
}

fn sotw(type_url: &str, version: &str, names: &[&str]) -> Response {
    Response::Sotw(DiscoveryResponse {
        version_info: version.into(),
        nonce: format!("n{version}"),
        type_url: type_url.into(),
        resources: names.iter().map(|name| body(type_url, name)).collect(),
        ..Default::default()
    })
}

fn delta(type_url: &str, set: &[(&str, &str)], removed: &[&str]) -> Response {
    let set = set.iter().map(|(name, version)| Resource {
        name: name.to_string(),
        version: version.to_string(),
        resource: Some(body(type_url, name)),
        ..Default::default()
    });
    Response::Delta(DeltaDiscoveryResponse {
        type_url: type_url.into(),
        nonce: "n".into(),
        resources: set.collect(),
        removed_resources: removed.iter().map(ToString::to_string).collect(),
        ..Default::default()
    })
}

fn words(changes: &[Change]) -> Vec<String> {
    let word = |change: &Change| match change {
        Change::Set { name, before: None } => format!("+{name}"),
        Change::Set { name, before: Some(_) } => format!("~{name}"),
        Change::Removed { name, .. } => format!("-{name}"),
        Change::Absent { name } => format!("!{name}"),
        Change::Trouble { name, reason } => format!("{name}: {reason}"),
        Change::Unasked { type_url } => type_url.clone(),
    };
    changes.iter().map(word).collect()
}

fn apply(query: &mut QueryState, response: Response) -> Vec<String> {
    words(&query.apply(response).0)
}

#[test]
fn everything_is_requested_in_the_legacy_form_where_there_is_one() {
    let names = |request: Request| match request {
        Request::Sotw(request) => request.resource_names,
        Request::Delta(request) => request.resource_names_subscribe,
    };
    for variant in [Variant::Sotw, Variant::Delta] {
        assert_eq!(names(query(CDS, &[]).open(variant)), Vec::<String>::new());
        assert_eq!(names(query(EDS, &[]).open(variant)), ["*"]);
        assert_eq!(names(query(EDS, &["a"]).open(variant)), ["a"]);
    }
}

#[test]
fn names_are_known_by_delta_when_each_is_there_or_removed() {
    let mut query = query(EDS, &["a", "b"]);
    query.open(Variant::Delta);
    assert_eq!(apply(&mut query, delta(EDS, &[("a", "1")], &[])), ["+a"]);
    assert!(!query.is_known());
    assert_eq!(apply(&mut query, delta(EDS, &[], &["b"])), ["!b"]);
    assert!(query.is_known() && !query.is_open_ended());
    assert_eq!(query.statuses().values().collect::<Vec<_>>(), [&NameStatus::There, &NameStatus::Absent]);
    assert_eq!(apply(&mut query, delta(EDS, &[], &["b"])), [""; 0], "it was said before");
    assert_eq!(apply(&mut query, delta(EDS, &[("a", "1"), ("b", "1")], &[])), ["+b"]);
    assert_eq!(apply(&mut query, delta(EDS, &[("a", "2")], &["b"])), ["~a", "-b"]);
}

#[test]
fn absence_shows_in_sotw_where_a_set_is_whole_and_nowhere_else() {
    let mut clusters = query(CDS, &["a", "b"]);
    clusters.open(Variant::Sotw);
    assert_eq!(apply(&mut clusters, sotw(CDS, "1", &["a"])), ["+a", "!b"]);
    assert!(clusters.is_known());
    assert_eq!(apply(&mut clusters, sotw(CDS, "2", &["b"])), ["+b", "-a"]);
    assert_eq!(clusters.statuses().values().collect::<Vec<_>>(), [&NameStatus::Absent, &NameStatus::There]);
    let mut endpoints = query(EDS, &["a", "b"]);
    endpoints.open(Variant::Sotw);
    assert_eq!(apply(&mut endpoints, sotw(EDS, "1", &["a"])), ["+a"]);
    assert!(!endpoints.is_known());
    assert_eq!(apply(&mut endpoints, sotw(EDS, "2", &["b"])), ["+b"], "what is not repeated stays");
    assert!(endpoints.is_known() && endpoints.received().len() == 2);
}

#[test]
fn another_version_of_a_whole_set_is_no_change_of_what_is_in_it() {
    let mut query = query(CDS, &[]);
    query.open(Variant::Sotw);
    assert!(!query.is_known());
    assert_eq!(apply(&mut query, sotw(CDS, "1", &["a"])), ["+a"]);
    assert!(query.is_known() && query.is_open_ended());
    assert_eq!(apply(&mut query, sotw(CDS, "2", &["a", "b"])), ["+b"]);
    assert_eq!(query.received()["a"].version, "2");
}

#[test]
fn every_response_is_accepted_and_sotw_repeats_what_is_wanted() {
    let mut first = query(EDS, &["a"]);
    first.open(Variant::Sotw);
    let Some(Request::Sotw(answer)) = first.apply(sotw(EDS, "7", &["a"])).1 else { panic!("no answer") };
    assert_eq!((answer.version_info.as_str(), answer.response_nonce.as_str()), ("7", "n7"));
    assert_eq!((answer.resource_names.as_slice(), answer.error_detail), (["a".to_owned()].as_slice(), None));
    let mut second = query(EDS, &["a"]);
    second.open(Variant::Delta);
    let Some(Request::Delta(answer)) = second.apply(delta(EDS, &[], &[])).1 else { panic!("no answer") };
    assert!(answer.response_nonce == "n" && answer.resource_names_subscribe.is_empty() && answer.node.is_none());
}

#[test]
fn a_second_stream_states_what_is_held_if_it_speaks_the_same_variant() {
    let mut query = query(CDS, &[]);
    query.open(Variant::Delta);
    query.apply(delta(CDS, &[("a", "1")], &[]));
    let versions = |request: Request| match request {
        Request::Delta(request) => request.initial_resource_versions,
        Request::Sotw(_) => panic!("another variant"),
    };
    assert_eq!(versions(query.open(Variant::Delta)), BTreeMap::from([("a".to_owned(), "1".to_owned())]));
    query.open(Variant::Sotw);
    assert_eq!(versions(query.open(Variant::Delta)), BTreeMap::new());
}

#[test]
fn reported_errors_make_a_name_known() {
    let mut query = query(EDS, &["a", "b"]);
    query.open(Variant::Sotw);
    let error = |name: &str, code, message: &str| ResourceError {
        resource_name: Some(ResourceName { name: name.into(), ..Default::default() }),
        error_detail: Some(Status { code, message: message.into() }),
    };
    let resource_errors = vec![error("a", 5, "gone"), error("b", 7, "not for you")];
    let response = DiscoveryResponse { type_url: EDS.into(), resource_errors, ..Default::default() };
    assert_eq!(apply(&mut query, Response::Sotw(response)), ["!a", "b: not for you (PermissionDenied)"]);
    assert!(query.is_known());
}

#[test]
fn an_alias_makes_known_what_was_requested_by_it_and_without_a_body_it_leads_nowhere() {
    let mut query = query(VHDS, &["r/a.example", "r/b.example"]);
    query.open(Variant::Delta);
    let host = Resource {
        name: "r/host".into(),
        aliases: vec!["r/a.example".into()],
        resource: Some(body(VHDS, "host")),
        ..Default::default()
    };
    let nowhere = Resource { name: "r/b.example".into(), ..Default::default() };
    let response =
        DeltaDiscoveryResponse { type_url: VHDS.into(), resources: vec![host, nowhere], ..Default::default() };
    assert_eq!(apply(&mut query, Response::Delta(response)), ["+r/host", "!r/b.example"]);
    assert!(query.is_known());
    assert_eq!(apply(&mut query, delta(VHDS, &[], &["r/a.example"])), ["-r/host"]);
}

#[test]
fn wrappers_are_opened_and_other_types_are_passed_over() {
    let mut query = query(EDS, &["x"]);
    query.open(Variant::Sotw);
    let ttl = Some(prost_types::Duration { seconds: 3, nanos: 0 });
    let wrapper = Resource { name: "x".into(), resource: Some(body(EDS, "y")), ttl, ..Default::default() };
    let type_url = format!("type.googleapis.com/{WRAPPER_TYPE}");
    let resources = vec![Any { type_url, value: wrapper.encode_to_vec().into() }];
    let response = DiscoveryResponse { version_info: "4".into(), resources, ..Default::default() };
    assert_eq!(apply(&mut query, Response::Sotw(response)), ["+x"]);
    assert_eq!((&*query.received()["x"].version, query.received()["x"].ttl), ("4", Some(Duration::from_secs(3))));
    let (changes, answer) = query.apply(sotw(CDS, "1", &["c"]));
    assert_eq!((words(&changes), answer), (vec![CDS.to_owned()], None));
}

#[test]
fn new_style_names_are_one_in_all_their_spellings() {
    let mut query = query(EDS, &["xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?b=1&a=2"]);
    query.open(Variant::Delta);
    apply(&mut query, delta(EDS, &[("xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/x?a=2&b=1", "1")], &[]));
    assert!(query.is_known());
}

#[test]
fn what_is_known_of_a_name_is_the_last_that_was_said_of_it() {
    let mut query = query(EDS, &["a"]);
    query.open(Variant::Delta);
    let failed = |code| {
        let error = ResourceError {
            resource_name: Some(ResourceName { name: "a".into(), ..Default::default() }),
            error_detail: Some(Status { code, message: "no".into() }),
        };
        Response::Delta(DeltaDiscoveryResponse { resource_errors: vec![error], ..Default::default() })
    };
    let mut status = |response, changes: &[&str]| {
        assert_eq!(apply(&mut query, response), changes);
        query.statuses()[&Name::canonical("a")]
    };
    assert_eq!(status(failed(7), &["a: no (PermissionDenied)"]), NameStatus::Trouble);
    assert_eq!(status(delta(EDS, &[("a", "1")], &[]), &["+a"]), NameStatus::There);
    assert_eq!(status(failed(13), &["a: no (Internal)"]), NameStatus::Trouble, "it is still received");
    assert_eq!(status(failed(5), &["-a"]), NameStatus::Absent);
    assert_eq!(status(failed(5), &[]), NameStatus::Absent);
    assert_eq!(status(delta(EDS, &[("a", "1")], &[]), &["+a"]), NameStatus::There);
}

#[test]
fn what_has_no_version_is_not_stated_to_a_second_stream() {
    let mut query = query(CDS, &[]);
    query.open(Variant::Delta);
    query.apply(delta(CDS, &[("a", "1"), ("b", "")], &[]));
    let Request::Delta(request) = query.open(Variant::Delta) else { panic!("another variant") };
    assert_eq!(request.initial_resource_versions, BTreeMap::from([("a".to_owned(), "1".to_owned())]));
}
