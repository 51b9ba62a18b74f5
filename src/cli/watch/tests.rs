use weir_core::proto::discovery::{DeltaDiscoveryResponse, Resource, ResourceError, ResourceName, Status};
use weir_core::proto::{Any, Response};
use weir_core::protocol::session::Variant;
use weir_core::xds::TypeTable;

use super::*;
use crate::cli::query_state::Question;
use crate::transcode::{Strictness, Transcoder};

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const SECRET: &str = "envoy.extensions.transport_sockets.tls.v3.Secret";

/// Returns what is printed for the changes in these responses.
fn printed(kind: &str, output: Output, colour: bool, responses: Vec<DeltaDiscoveryResponse>) -> String {
    let type_url = format!("type.googleapis.com/{kind}");
    let kind = TypeTable::new().resolve(kind);
    let mut query = QueryState::new(Question { kind, type_url, names: Vec::new(), node: bytes::Bytes::new() });
    query.open(Variant::Delta);
    let printer = Printer { transcoder: Transcoder::envoy(), output, secrets: false };
    let mut changes_out = ChangePrinter { printer, colour, out: Vec::new() };
    for response in responses {
        let changes = query.apply(Response::Delta(response)).0;
        changes.iter().for_each(|change| changes_out.note(change, &query).unwrap());
    }
    String::from_utf8(changes_out.out).unwrap()
}

fn resource(kind: &str, name: &str, version: &str, body: serde_json::Value) -> Resource {
    let value = Transcoder::envoy().from_json(kind, &body, Strictness::Strict).unwrap();
    let resource = Some(Any { type_url: format!("type.googleapis.com/{kind}"), value });
    Resource { name: name.into(), version: version.into(), resource, ..Resource::default() }
}

fn cluster(name: &str, version: &str) -> Resource {
    resource(CLUSTER, name, version, json!({"name": name}))
}

fn response(resources: Vec<Resource>, removed: &[&str]) -> DeltaDiscoveryResponse {
    let removed_resources = removed.iter().map(ToString::to_string).collect();
    DeltaDiscoveryResponse { resources, removed_resources, ..DeltaDiscoveryResponse::default() }
}

/// A set whose resources are added, changed and removed, and an error.
fn history() -> Vec<DeltaDiscoveryResponse> {
    let failed = ResourceError {
        resource_name: Some(ResourceName { name: "d".into(), ..ResourceName::default() }),
        error_detail: Some(Status { code: 7, message: "not for you".into() }),
    };
    vec![
        response(vec![cluster("a", "1"), cluster("b", "1")], &[]),
        response(vec![cluster("a", "2")], &["b", "c"]),
        response(vec![cluster("b", "3")], &[]),
        DeltaDiscoveryResponse { resource_errors: vec![failed], ..response(vec![], &[]) },
        DeltaDiscoveryResponse { type_url: "own.Type".into(), ..response(vec![], &[]) },
    ]
}

#[test]
fn each_kind_of_change_has_its_sign() {
    let names = printed(CLUSTER, Output::Names, false, history());
    assert_eq!(names, "+ a\n+ b\n~ a\n- b\n! c\n+ b\n! d\n! own.Type\n");
    let lines = printed(CLUSTER, Output::Json, false, history());
    let lines: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let changes: Vec<_> = lines.iter().map(|line| (&line["change"], &line["name"], &line["now"]["version"])).collect();
    let none = &serde_json::Value::Null;
    let (added, changed, removed) = (&json!("added"), &json!("changed"), &json!("removed"));
    let (a, b, c, d) = (&json!("a"), &json!("b"), &json!("c"), &json!("d"));
    let expected = [
        (added, a, &json!("1")),
        (added, b, &json!("1")),
        (changed, a, &json!("2")),
        (removed, b, none),
        (&json!("absent"), c, none),
        (added, b, &json!("3")),
        (&json!("error"), d, none),
        (&json!("unasked"), none, none),
    ];
    assert_eq!(changes, expected);
    assert_eq!(
        (&lines[6]["reason"], &lines[7]["type"]),
        (&json!("not for you (PermissionDenied)"), &json!("own.Type"))
    );
}

#[test]
fn terminals_get_each_kind_of_line_in_its_colour() {
    let shown = printed(CLUSTER, Output::Yaml, true, history());
    for line in [
        "\u{1b}[32m+++ a, version 1\u{1b}[0m",
        "\u{1b}[31m--- a, version 1\u{1b}[0m",
        "\u{1b}[32m+++ a, version 2\u{1b}[0m",
        "\u{1b}[31m-version: \"1\"\u{1b}[0m",
        "\u{1b}[32m+version: \"2\"\u{1b}[0m",
        " name: a",
        "\u{1b}[31m--- b, version 1, removed\u{1b}[0m",
        "\u{1b}[31m--- c, does not exist\u{1b}[0m",
        "\u{1b}[36m!!! d: not for you (PermissionDenied)\u{1b}[0m",
        "\u{1b}[36m!!! own.Type, unasked\u{1b}[0m",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line:?} is missing in {shown:?}");
    }
    assert!(!printed(CLUSTER, Output::Yaml, false, history()).contains('\u{1b}'));
}

#[test]
fn a_change_of_nothing_but_secrets_is_said_to_be_one() {
    let secret = |key: &str| {
        let body = json!({"name": "s", "tlsCertificate": {"privateKey": {"inlineString": key}}});
        response(vec![resource(SECRET, "s", "1", body)], &[])
    };
    let shown = printed(SECRET, Output::Yaml, false, vec![secret("one"), secret("two"), secret("two")]);
    assert!(!shown.contains("one") && !shown.contains("two"), "{shown}");
    assert!(shown.ends_with("--- s, version 1\n+++ s, version 1\n@@ only omitted fields changed @@\n"), "{shown}");
    assert_eq!(shown.matches("@@ only").count(), 1, "the third is the same: {shown}");
}
